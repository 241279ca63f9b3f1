//! The three forms of pairs: what the words of an item mean, and how a key is compared.

use everhash_index::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Class, Heap, Media, word_of};

pub use super::layout::Item;
use super::value_pool;
use crate::common::hash::KeyedHash;

/// How an update makes a new value true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// By one store of the item's second word, where the item is.
    InPlace,
    /// By a new item in the log, and then the end of the old one.
    NewItem,
}

/// A form of pairs. Everything else is written once, for all forms.
pub trait Form: Send + Sync + Sized + 'static {
    /// Its name in the contract.
    const FORM: everhash_index::Form;
    /// Words of an item.
    const WORDS: usize;
    /// How an update is made.
    const UPDATE: Update;
    /// Whether an item leads to a record, which has to be durable before the item.
    const RECORDS: bool;

    /// A key as it is looked for.
    type Key<'k>: Copy;
    /// A value as it is written.
    type Value<'v>: Copy;

    /// Returns the key in `bytes`, or `None` if no key has this form.
    fn key(bytes: &[u8]) -> Option<Self::Key<'_>>;

    /// Returns the value in `bytes`, or `None` if no value has this form.
    fn value(bytes: &[u8]) -> Option<Self::Value<'_>>;

    /// Returns the hash of a key.
    fn hash(hasher: &KeyedHash, key: Self::Key<'_>) -> u64;

    /// Returns the hash of the key of an item.
    fn item_hash(hasher: &KeyedHash, item: &Item) -> u64;

    /// Returns whether an item may have the key, without reading its record.
    fn may_match(item: &Item, hash: u64, key: Self::Key<'_>) -> bool;

    /// Returns whether an item that may match has the key. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if the item is being replaced, and the caller tells.
    fn matches<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool>;

    /// Makes an item. A record is written and made durable.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn item<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
    ) -> Result<Item>;

    /// Returns the record that an item leads to.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the item, found at `at`, is damaged.
    fn record(item: &Item, at: Addr) -> Result<Option<(Addr, Class)>>;

    /// Replaces `key` and `value` by those of an item.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn read<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()>;

    /// Replaces `value` by the value of an item that [`Form::matches`] accepted; byte strings are
    /// there already.
    fn found_value(item: &Item, value: &mut Vec<u8>);
}

/// 8-byte keys and values.
#[derive(Debug)]
pub enum Words {}

impl Form for Words {
    const FORM: everhash_index::Form = everhash_index::Form::WORDS;
    const WORDS: usize = 2;
    const UPDATE: Update = Update::InPlace;
    const RECORDS: bool = false;

    type Key<'k> = u64;
    type Value<'v> = u64;

    fn key(bytes: &[u8]) -> Option<u64> {
        (bytes.len() == 8).then(|| word_of(bytes))
    }

    fn value(bytes: &[u8]) -> Option<u64> {
        Self::key(bytes)
    }

    #[inline(always)]
    fn hash(hasher: &KeyedHash, key: u64) -> u64 {
        hasher.word(key)
    }

    fn item_hash(hasher: &KeyedHash, item: &Item) -> u64 {
        hasher.word(item[0])
    }

    #[inline(always)]
    fn may_match(item: &Item, _hash: u64, key: u64) -> bool {
        item[0] == key
    }

    #[inline(always)]
    fn matches<M: Media>(
        _pm: &Access<'_, M>,
        _item: &Item,
        _at: Addr,
        _key: u64,
        _bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(true)
    }

    fn item<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: u64,
        value: u64,
    ) -> Result<Item> {
        Ok([key, value, 0, 0])
    }

    fn record(_item: &Item, _at: Addr) -> Result<Option<(Addr, Class)>> {
        Ok(None)
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        item: &Item,
        _at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        set_words(key, &item[..1]);
        set_words(value, &item[1..2]);
        Ok(())
    }

    fn found_value(item: &Item, value: &mut Vec<u8>) {
        set_words(value, &item[1..2]);
    }
}

/// 16-byte keys and values.
#[derive(Debug)]
pub enum DoubleWords {}

impl Form for DoubleWords {
    const FORM: everhash_index::Form = everhash_index::Form::DOUBLE_WORDS;
    const WORDS: usize = 4;
    const UPDATE: Update = Update::NewItem;
    const RECORDS: bool = false;

    type Key<'k> = [u64; 2];
    type Value<'v> = [u64; 2];

    fn key(bytes: &[u8]) -> Option<[u64; 2]> {
        (bytes.len() == 16).then(|| [word_of(&bytes[..8]), word_of(&bytes[8..])])
    }

    fn value(bytes: &[u8]) -> Option<[u64; 2]> {
        Self::key(bytes)
    }

    fn hash(hasher: &KeyedHash, key: [u64; 2]) -> u64 {
        hasher.two_words(key)
    }

    fn item_hash(hasher: &KeyedHash, item: &Item) -> u64 {
        hasher.two_words([item[0], item[1]])
    }

    #[inline(always)]
    fn may_match(item: &Item, _hash: u64, key: [u64; 2]) -> bool {
        item[..2] == key
    }

    fn matches<M: Media>(
        _pm: &Access<'_, M>,
        _item: &Item,
        _at: Addr,
        _key: [u64; 2],
        _bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(true)
    }

    fn item<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: [u64; 2],
        value: [u64; 2],
    ) -> Result<Item> {
        Ok([key[0], key[1], value[0], value[1]])
    }

    fn record(_item: &Item, _at: Addr) -> Result<Option<(Addr, Class)>> {
        Ok(None)
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        item: &Item,
        _at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        set_words(key, &item[..2]);
        set_words(value, &item[2..]);
        Ok(())
    }

    fn found_value(item: &Item, value: &mut Vec<u8>) {
        set_words(value, &item[2..]);
    }
}

/// Byte strings: an item is the hash of its key and a record word (ElimDA 3.7).
#[derive(Debug)]
pub enum Bytes {}

impl Form for Bytes {
    const FORM: everhash_index::Form = everhash_index::Form::Variable;
    const WORDS: usize = 2;
    const UPDATE: Update = Update::InPlace;
    const RECORDS: bool = true;

    type Key<'k> = &'k [u8];
    type Value<'v> = &'v [u8];

    fn key(bytes: &[u8]) -> Option<&[u8]> {
        (bytes.len() <= MAX_KEY_BYTES).then_some(bytes)
    }

    fn value(bytes: &[u8]) -> Option<&[u8]> {
        (bytes.len() <= MAX_VALUE_BYTES).then_some(bytes)
    }

    fn hash(hasher: &KeyedHash, key: &[u8]) -> u64 {
        hasher.bytes(key)
    }

    fn item_hash(_hasher: &KeyedHash, item: &Item) -> u64 {
        item[0]
    }

    #[inline(always)]
    fn may_match(item: &Item, hash: u64, _key: &[u8]) -> bool {
        item[0] == hash
    }

    fn matches<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        key: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        let key_bytes = value_pool::read(pm, item, at, bytes)?;
        let equal = &bytes[..key_bytes] == key;
        bytes.drain(..key_bytes);
        Ok(equal)
    }

    fn item<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<Item> {
        value_pool::write(pm, heap, hash, key, value)
    }

    fn record(item: &Item, at: Addr) -> Result<Option<(Addr, Class)>> {
        let record = value_pool::open(item, at)?;
        Ok(Some((record.addr, record.class)))
    }

    fn read<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let key_bytes = value_pool::read(pm, item, at, key)?;
        value.clear();
        value.extend_from_slice(&key[key_bytes..]);
        key.truncate(key_bytes);
        Ok(())
    }

    fn found_value(_item: &Item, _value: &mut Vec<u8>) {}
}

fn set_words(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.clear();
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// Returns the error of damage at `at`.
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}
