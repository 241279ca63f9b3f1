//! The forms of pairs: what ElimDA asks of one beyond how its pairs lie in slots.
//!
//! An item is the words of a slot, whatever the form: the DRAM table, the log and the units hold
//! items, and the few lines that know the form are here.

use everhash_index::{Error, Form as PairForm, Result};
use everhash_pmem::{Access, Addr, Class, Heap, Media};

pub use super::layout::Item;
use crate::common::hash::KeyedHash;
use crate::common::slot_codec::{Bytes, DoubleWords, SlotCodec, Words};

/// Where the value pool (ElimDA 3.7) persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, before the item that leads to it.
        RECORD = "elimda/pool/record";
    }
}

/// How an update makes a new value true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// By one store of the item's second word, where the item is.
    InPlace,
    /// By a new item in the log, and then the end of the old one.
    NewItem,
}

/// A form of pairs. Everything else is written once, for all forms.
pub trait Form: SlotCodec {
    /// Its name in the contract.
    const FORM: PairForm;
    /// Words of an item.
    const WORDS: usize;
    /// How an update is made.
    const UPDATE: Update;

    /// Returns the words of a slot.
    fn words(item: &Item) -> Self::Words;

    /// Returns the item of the words of a slot.
    fn of_words(words: Self::Words) -> Item;

    /// Returns the first word of the item of a key.
    fn first_word(hash: u64, key: Self::Key<'_>) -> u64;

    /// Returns whether an item may have the key, without reading its record.
    fn may_match(item: &Item, hash: u64, key: Self::Key<'_>) -> bool;

    /// Returns the hash of the key of an item.
    #[inline(always)]
    fn item_hash(hasher: &KeyedHash, item: &Item) -> u64 {
        Self::words_hash(hasher, Self::words(item))
    }

    /// Returns the pair of an item that was found at `at`; null for items in DRAM.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record word does not match its check.
    #[inline(always)]
    fn pair(item: &Item, at: Addr) -> Result<Self::Pair> {
        Self::decode(Self::words(item), at.plus(Self::WORDS as u64 - 1))
    }

    /// Returns whether an item has the key. If it does, byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if the item is being replaced, and the caller tells.
    #[inline(always)]
    fn matches<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        (hash, key): (u64, Self::Key<'_>),
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(Self::may_match(item, hash, key)
            && Self::holds(pm, Self::pair(item, at)?, hash, key, bytes)?)
    }

    /// Returns whether two items with one hash have one key.
    ///
    /// # Errors
    /// [`Error::Corrupt`] of a record.
    fn same_key<M: Media>(pm: &Access<'_, M>, one: &Item, other: &Item) -> Result<bool>;

    /// Makes an item. A record is written and made durable.
    ///
    /// A crash leaves a record that no item leads to: it is free.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline(always)]
    fn item<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
    ) -> Result<Item> {
        let pair = Self::make(pm, heap, hash, key, value, sites::RECORD)?;
        if Self::RECORDS {
            pm.fence(sites::RECORD)?;
        }
        Ok(Self::of_words(Self::encode(pair)))
    }

    /// Returns the record that an item leads to.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the item, found at `at`, is damaged.
    fn record_of(item: &Item, at: Addr) -> Result<Option<(Addr, Class)>> {
        if !Self::RECORDS {
            return Ok(None);
        }
        Ok(Self::record(Self::pair(item, at)?).map(|record| (record.addr, record.class)))
    }

    /// Replaces `key` and `value` by those of an item.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn read_item<M: Media>(
        pm: &Access<'_, M>,
        item: &Item,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        Self::read(pm, Self::pair(item, at)?, key, value)
    }
}

impl Form for Words {
    const FORM: PairForm = PairForm::WORDS;
    const WORDS: usize = 2;
    const UPDATE: Update = Update::InPlace;

    #[inline(always)]
    fn words(item: &Item) -> [u64; 2] {
        [item[0], item[1]]
    }

    #[inline(always)]
    fn of_words([key, value]: [u64; 2]) -> Item {
        [key, value, 0, 0]
    }

    #[inline(always)]
    fn first_word(_hash: u64, key: u64) -> u64 {
        key
    }

    #[inline(always)]
    fn may_match(item: &Item, _hash: u64, key: u64) -> bool {
        item[0] == key
    }

    fn same_key<M: Media>(_pm: &Access<'_, M>, one: &Item, other: &Item) -> Result<bool> {
        Ok(one[0] == other[0])
    }
}

impl Form for DoubleWords {
    const FORM: PairForm = PairForm::DOUBLE_WORDS;
    const WORDS: usize = 4;
    const UPDATE: Update = Update::NewItem;

    #[inline(always)]
    fn words(item: &Item) -> [[u64; 2]; 2] {
        [[item[0], item[1]], [item[2], item[3]]]
    }

    #[inline(always)]
    fn of_words([key, value]: [[u64; 2]; 2]) -> Item {
        [key[0], key[1], value[0], value[1]]
    }

    #[inline(always)]
    fn first_word(_hash: u64, key: [u64; 2]) -> u64 {
        key[0]
    }

    #[inline(always)]
    fn may_match(item: &Item, _hash: u64, key: [u64; 2]) -> bool {
        item[..2] == key
    }

    fn same_key<M: Media>(_pm: &Access<'_, M>, one: &Item, other: &Item) -> Result<bool> {
        Ok(one[..2] == other[..2])
    }
}

/// An item holds the hash of its key beside the record word: a search, a split and a recovery of
/// the fingerprints read no record of another key.
impl Form for Bytes {
    const FORM: PairForm = PairForm::Variable;
    const WORDS: usize = 2;
    const UPDATE: Update = Update::InPlace;

    #[inline(always)]
    fn words(item: &Item) -> [u64; 2] {
        [item[0], item[1]]
    }

    #[inline(always)]
    fn of_words([hash, record]: [u64; 2]) -> Item {
        [hash, record, 0, 0]
    }

    #[inline(always)]
    fn first_word(hash: u64, _key: &[u8]) -> u64 {
        hash
    }

    #[inline(always)]
    fn may_match(item: &Item, hash: u64, _key: &[u8]) -> bool {
        item[0] == hash
    }

    fn same_key<M: Media>(pm: &Access<'_, M>, one: &Item, other: &Item) -> Result<bool> {
        let mut keys = [Vec::new(), Vec::new()];
        for (item, key) in [one, other].into_iter().zip(&mut keys) {
            Self::read_item(pm, item, Addr::NULL, key, &mut Vec::new())?;
        }
        Ok(keys[0] == keys[1])
    }
}

/// Returns the error of damage at `at`.
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}
