//! How the pairs of one form lie in slots, whatever the buckets look like in which the slots are.
//!
//! An engine with slots is generic over a [`SlotCodec`], and an enum of its tables, one for each
//! codec, is the table that it opens (`table_of_forms`). So the form is asked once
//! for each call, and the code below it is compiled for the form. An engine that needs more of a
//! codec, such as where in its buckets a slot lies, adds a trait of its own with this one above
//! it. `docs/decisions/0012-forms-as-types.md` has the reasons.

use everhash_index::{Error, Form, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Heap, HeapUsage, Media, RecordWord, Site, WORD, word_of};

use super::hash::KeyedHash;
use super::record;

/// Returns what pairs of a form take in slots and records. Unit: bytes; of a damaged pool, whose
/// number of items may be any, something.
pub(crate) fn live_bytes(form: Form, items: u64, heap: &HeapUsage) -> u64 {
    let slot_bytes: u64 = match form {
        Form::Fixed { key_bytes, value_bytes } => [key_bytes, value_bytes]
            .map(|bytes| u64::from(bytes).next_multiple_of(WORD))
            .iter()
            .sum(),
        Form::Variable => 2 * WORD,
    };
    items.saturating_mul(slot_bytes).saturating_add(heap.record_bytes)
}

/// The pairs of one form, in slots.
pub trait SlotCodec: Send + Sync + Sized + 'static {
    /// Whether slots lead to records.
    const RECORDS: bool;

    /// A key as it is looked for.
    type Key<'k>: Copy;
    /// A value as it is written.
    type Value<'v>: Copy;
    /// The words of a slot on the medium.
    type Words: Copy;
    /// A decoded slot.
    type Pair: Copy;

    /// Returns the key in `bytes`, which have the form of the pool's keys.
    fn key(bytes: &[u8]) -> Self::Key<'_>;

    /// Returns the value in `bytes`, which have the form of the pool's values.
    fn value(bytes: &[u8]) -> Self::Value<'_>;

    /// Returns the hash of a key.
    fn hash(hasher: &KeyedHash, key: Self::Key<'_>) -> u64;

    /// Returns the hash of the key in a slot, without reading a record.
    fn words_hash(hasher: &KeyedHash, words: Self::Words) -> u64;

    /// Decodes the words of the slot whose last word lies at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record word does not match its tag.
    fn decode(words: Self::Words, at: Addr) -> Result<Self::Pair>;

    /// Returns the words of a slot that holds `pair`.
    fn encode(pair: Self::Pair) -> Self::Words;

    /// Makes the pair of a key and a value. A record is written, and flushed at `site`: the caller
    /// fences before a slot leads to it.
    ///
    /// A crash leaves any part of a record that no slot leads to, which is free space.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::ValueTooLong`].
    fn make<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
        site: Site,
    ) -> Result<Self::Pair>;

    /// Returns the record that a pair leads to.
    fn record(pair: Self::Pair) -> Option<RecordWord>;

    /// Returns whether a pair is that of `key`, or `None` if that takes reading a record.
    fn has_key(pair: Self::Pair, key: Self::Key<'_>) -> Option<bool>;

    /// Returns whether a pair is that of `key`, which hashes to `hash`. If it is, a record's value
    /// replaces the contents of `bytes`; if it is not, they may be anything.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if a write comes between, which the caller's validation detects.
    fn holds<M: Media>(
        pm: &Access<'_, M>,
        pair: Self::Pair,
        hash: u64,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool>;

    /// Replaces `key` and `value` by those of a pair.
    ///
    /// # Errors
    /// As [`SlotCodec::holds`].
    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: Self::Pair,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()>;

    /// Replaces `value` by the value of a pair that [`SlotCodec::holds`] has found; a record's is
    /// there already.
    fn found_value(pair: Self::Pair, value: &mut Vec<u8>);
}

/// A key as it is looked for, with its hash.
pub struct HashedKey<'k, C: SlotCodec> {
    /// The hash of the key.
    pub hash: u64,
    /// The key.
    pub key: C::Key<'k>,
}

impl<C: SlotCodec> Clone for HashedKey<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: SlotCodec> Copy for HashedKey<'_, C> {}

/// A key or a value of fixed length: one word, or two.
pub trait Part: Copy + PartialEq + Send + Sync + 'static {
    /// Returns the part that `bytes` are.
    fn of(bytes: &[u8]) -> Self;

    /// Returns the hash of a key.
    fn hash(self, hasher: &KeyedHash) -> u64;

    /// Replaces `bytes` by those of the part.
    fn set(self, bytes: &mut Vec<u8>);
}

impl Part for u64 {
    #[inline(always)]
    fn of(bytes: &[u8]) -> u64 {
        word_of(bytes)
    }

    #[inline(always)]
    fn hash(self, hasher: &KeyedHash) -> u64 {
        hasher.word(self)
    }

    fn set(self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}

impl Part for [u64; 2] {
    #[inline(always)]
    fn of(bytes: &[u8]) -> [u64; 2] {
        [word_of(&bytes[..8]), word_of(&bytes[8..])]
    }

    #[inline(always)]
    fn hash(self, hasher: &KeyedHash) -> u64 {
        hasher.two_words(self)
    }

    fn set(self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self[0].to_le_bytes());
        bytes.extend_from_slice(&self[1].to_le_bytes());
    }
}

/// Keys and values of fixed length, in the slot: the key, then the value.
#[derive(Debug)]
pub struct Fixed<P>(core::marker::PhantomData<P>);

/// 8-byte keys and values.
pub type Words = Fixed<u64>;

/// 16-byte keys and values.
pub type DoubleWords = Fixed<[u64; 2]>;

impl<P: Part> SlotCodec for Fixed<P> {
    const RECORDS: bool = false;

    type Key<'k> = P;
    type Value<'v> = P;
    type Words = [P; 2];
    type Pair = [P; 2];

    #[inline(always)]
    fn key(bytes: &[u8]) -> P {
        P::of(bytes)
    }

    #[inline(always)]
    fn value(bytes: &[u8]) -> P {
        P::of(bytes)
    }

    #[inline(always)]
    fn hash(hasher: &KeyedHash, key: P) -> u64 {
        key.hash(hasher)
    }

    #[inline(always)]
    fn words_hash(hasher: &KeyedHash, words: [P; 2]) -> u64 {
        words[0].hash(hasher)
    }

    #[inline(always)]
    fn decode(words: [P; 2], _at: Addr) -> Result<[P; 2]> {
        Ok(words)
    }

    #[inline(always)]
    fn encode(pair: [P; 2]) -> [P; 2] {
        pair
    }

    #[inline(always)]
    fn make<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: P,
        value: P,
        _site: Site,
    ) -> Result<[P; 2]> {
        Ok([key, value])
    }

    #[inline(always)]
    fn record(_pair: [P; 2]) -> Option<RecordWord> {
        None
    }

    #[inline(always)]
    fn has_key(pair: [P; 2], key: P) -> Option<bool> {
        Some(pair[0] == key)
    }

    #[inline(always)]
    fn holds<M: Media>(
        _pm: &Access<'_, M>,
        pair: [P; 2],
        _hash: u64,
        key: P,
        _bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(pair[0] == key)
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        pair: [P; 2],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        pair[0].set(key);
        pair[1].set(value);
        Ok(())
    }

    fn found_value(pair: [P; 2], value: &mut Vec<u8>) {
        pair[1].set(value);
    }
}

/// Byte strings, of one length or of many: a slot holds the hash of the key and a record word.
#[derive(Debug)]
pub enum Bytes {}

/// A decoded slot of [`Bytes`]. The record word matches its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashAndRecord {
    /// The hash of the key.
    pub hash: u64,
    /// What leads to the record.
    pub record: RecordWord,
}

impl SlotCodec for Bytes {
    const RECORDS: bool = true;

    type Key<'k> = &'k [u8];
    type Value<'v> = &'v [u8];
    type Words = [u64; 2];
    type Pair = HashAndRecord;

    fn key(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn value(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn hash(hasher: &KeyedHash, key: &[u8]) -> u64 {
        hasher.bytes(key)
    }

    fn words_hash(_hasher: &KeyedHash, words: [u64; 2]) -> u64 {
        words[0]
    }

    fn decode([hash, word]: [u64; 2], at: Addr) -> Result<HashAndRecord> {
        match RecordWord::from_medium(at, word)? {
            Some(record) if record.tag == record::tag_of(hash, word) => {
                Ok(HashAndRecord { hash, record })
            }
            _ => {
                let broken = "a record word matches its check";
                Err(Error::Corrupt { at: at.byte(), broken })
            }
        }
    }

    fn encode(pair: HashAndRecord) -> [u64; 2] {
        [pair.hash, pair.record.word()]
    }

    fn make<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: &[u8],
        value: &[u8],
        site: Site,
    ) -> Result<HashAndRecord> {
        let (bytes, limit) = (value.len(), MAX_VALUE_BYTES);
        let class =
            record::class_of(key.len(), value.len()).ok_or(Error::ValueTooLong { bytes, limit })?;
        let addr = heap.take(class)?;
        let span = record::write(pm, addr, hash, key, value)?;
        pm.flush(span, site);
        let untagged = RecordWord { addr, class, tag: 0 };
        let tag = record::tag_of(hash, untagged.word());
        Ok(HashAndRecord { hash, record: RecordWord { tag, ..untagged } })
    }

    fn record(pair: HashAndRecord) -> Option<RecordWord> {
        Some(pair.record)
    }

    fn has_key(_pair: HashAndRecord, _key: &[u8]) -> Option<bool> {
        None
    }

    /// Compares whole keys: two of them may have one hash.
    fn holds<M: Media>(
        pm: &Access<'_, M>,
        pair: HashAndRecord,
        hash: u64,
        key: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        if pair.hash != hash {
            return Ok(false);
        }
        let key_bytes = record::read(pm, pair.record, hash, bytes)?;
        let is_equal = &bytes[..key_bytes] == key;
        if is_equal {
            bytes.drain(..key_bytes);
        }
        Ok(is_equal)
    }

    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: HashAndRecord,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let key_bytes = record::read(pm, pair.record, pair.hash, key)?;
        *value = key.split_off(key_bytes);
        Ok(())
    }

    fn found_value(_pair: HashAndRecord, _value: &mut Vec<u8>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_alive_beside_the_slots_that_lead_to_them() {
        // Fails if statistics leave out the one or the other, or overflow for a damaged pool.
        let heap = HeapUsage { record_bytes: 1000, ..HeapUsage::default() };
        assert_eq!(live_bytes(Form::Variable, 3, &heap), 3 * 16 + 1000);
        assert_eq!(live_bytes(Form::WORDS, 3, &HeapUsage::default()), 3 * 16);
        assert_eq!(live_bytes(Form::DOUBLE_WORDS, 3, &HeapUsage::default()), 3 * 32);
        assert_eq!(live_bytes(Form::Variable, u64::MAX, &heap), u64::MAX);
    }
}
