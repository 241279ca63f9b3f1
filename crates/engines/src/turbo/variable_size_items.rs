//! The forms of pairs (TurboHash 3.6): 8-byte words in the slot, and all others as the hash of the
//! key and a pointer to a record.

use everhash_index::{Error, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Heap, Media, RecordWord};

use super::bucket::Pair;
use super::concurrency::before_reuse;
use super::layout;
use crate::common::hash::KeyedHash;
use crate::common::record;

/// Where a record is persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, before a slot leads to it.
        RECORD = "turbo/write/record";
    }
}

/// A form of pairs. Everything else is written once, for both.
pub trait Form: Send + Sync + Sized + 'static {
    /// Whether slots lead to records.
    const RECORDS: bool;

    /// A key as it is looked for.
    type Key<'k>: Copy;
    /// A value as it is written.
    type Value<'v>: Copy;

    /// Returns the key in `bytes`, whose length is that of the pool's form.
    fn key(bytes: &[u8]) -> Self::Key<'_>;

    /// Returns the value in `bytes`, whose length is that of the pool's form.
    fn value(bytes: &[u8]) -> Self::Value<'_>;

    /// Returns the hash of a key.
    fn hash(hasher: &KeyedHash, key: Self::Key<'_>) -> u64;

    /// Returns the hash of the key in a slot; records are not touched (P6).
    fn pair_hash(hasher: &KeyedHash, pair: Pair) -> u64;

    /// Returns whether the slot whose second word is at `at` holds `key`. A record's value is left
    /// in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if a write comes between.
    fn holds<M: Media>(
        pm: &Access<'_, M>,
        pair: Pair,
        at: Addr,
        hash: u64,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool>;

    /// Returns whether a slot holds `key`, if that can be told from the slot.
    fn is_pair_of(pair: Pair, key: Self::Key<'_>) -> Option<bool>;

    /// Makes the words of a slot. A record is durable on return.
    ///
    /// # Errors
    /// [`Error::Full`], and as the medium.
    fn pair<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
    ) -> Result<Pair>;

    /// Returns the record that a slot leads to.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn record(pair: Pair, at: Addr) -> Result<Option<RecordWord>>;

    /// Replaces `key` and `value` by those of a slot.
    ///
    /// # Errors
    /// As [`Form::holds`].
    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: Pair,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()>;

    /// Replaces `value` by the value of a slot that [`Form::holds`] found; a record's is there.
    fn found_value(pair: Pair, value: &mut Vec<u8>);
}

/// 8-byte keys and values, in the slot.
#[derive(Debug)]
pub enum Words {}

impl Form for Words {
    const RECORDS: bool = false;

    type Key<'k> = u64;
    type Value<'v> = u64;

    fn key(bytes: &[u8]) -> u64 {
        everhash_pmem::word_of(bytes)
    }

    fn value(bytes: &[u8]) -> u64 {
        everhash_pmem::word_of(bytes)
    }

    #[inline(always)]
    fn hash(hasher: &KeyedHash, key: u64) -> u64 {
        hasher.word(key)
    }

    #[inline(always)]
    fn pair_hash(hasher: &KeyedHash, pair: Pair) -> u64 {
        hasher.word(pair[0])
    }

    #[inline(always)]
    fn holds<M: Media>(
        _pm: &Access<'_, M>,
        pair: Pair,
        _at: Addr,
        _hash: u64,
        key: u64,
        _bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(pair[0] == key)
    }

    #[inline(always)]
    fn is_pair_of(pair: Pair, key: u64) -> Option<bool> {
        Some(pair[0] == key)
    }

    #[inline(always)]
    fn pair<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: u64,
        value: u64,
    ) -> Result<Pair> {
        Ok([key, value])
    }

    #[inline(always)]
    fn record(_pair: Pair, _at: Addr) -> Result<Option<RecordWord>> {
        Ok(None)
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        pair: Pair,
        _at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        key.clear();
        key.extend_from_slice(&pair[0].to_le_bytes());
        Self::found_value(pair, value);
        Ok(())
    }

    fn found_value(pair: Pair, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&pair[1].to_le_bytes());
    }
}

/// Byte strings, of one length or of many: the slot holds the hash of the key and a record word.
#[derive(Debug)]
pub enum Records {}

impl Form for Records {
    const RECORDS: bool = true;

    type Key<'k> = &'k [u8];
    type Value<'v> = &'v [u8];

    fn key(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn value(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn hash(hasher: &KeyedHash, key: &[u8]) -> u64 {
        hasher.bytes(key)
    }

    fn pair_hash(_hasher: &KeyedHash, pair: Pair) -> u64 {
        pair[0]
    }

    /// Compares whole keys: two of them may have one hash (P1).
    fn holds<M: Media>(
        pm: &Access<'_, M>,
        pair: Pair,
        at: Addr,
        hash: u64,
        key: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        let word = leads_to(pair, at)?;
        if pair[0] != hash {
            return Ok(false);
        }
        let key_bytes = record::read(pm, word, hash, bytes)?;
        let equal = &bytes[..key_bytes] == key;
        if equal {
            bytes.drain(..key_bytes);
        }
        Ok(equal)
    }

    fn is_pair_of(_pair: Pair, _key: &[u8]) -> Option<bool> {
        None
    }

    fn pair<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<Pair> {
        let (bytes, limit) = (value.len(), MAX_VALUE_BYTES);
        let class =
            record::class_of(key.len(), value.len()).ok_or(Error::ValueTooLong { bytes, limit })?;
        let addr = heap.take(class)?;
        before_reuse::<M::Sync>();
        let span = record::write(pm, addr, hash, key, value)?;
        // Before the slot's fence, not with it: a slot that leads to half a record would look like
        // damage (P14), and the other way round.
        pm.persist(span, sites::RECORD)?;
        let untagged = RecordWord { addr, class, tag: 0 };
        let tag = layout::record_tag(hash, untagged.word());
        Ok([hash, RecordWord { tag, ..untagged }.word()])
    }

    fn record(pair: Pair, at: Addr) -> Result<Option<RecordWord>> {
        leads_to(pair, at).map(Some)
    }

    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: Pair,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let key_bytes = record::read(pm, leads_to(pair, at)?, pair[0], key)?;
        value.clear();
        value.extend_from_slice(&key[key_bytes..]);
        key.truncate(key_bytes);
        Ok(())
    }

    fn found_value(_pair: Pair, _value: &mut Vec<u8>) {}
}

fn leads_to(pair: Pair, at: Addr) -> Result<RecordWord> {
    match RecordWord::from_medium(at, pair[1])? {
        Some(word) if word.tag == layout::record_tag(pair[0], pair[1]) => Ok(word),
        _ => {
            let broken = "a record word matches its check";
            Err(Error::Corrupt { at: at.byte(), broken })
        }
    }
}
