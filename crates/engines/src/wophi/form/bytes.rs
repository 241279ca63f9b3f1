//! Byte strings: a slot holds the hash of the key and leads to a record.

use everhash_index::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Block, Class, Heap, Media, RecordWord};

use super::{Form, Update, word_slot};
use crate::common::hash::KeyedHash;
use crate::common::record;
use crate::wophi::bucket::{Bucket, corrupt};
use crate::wophi::concurrency::before_reuse;
use crate::wophi::failure_atomic_writes::sites;
use crate::wophi::layout;

/// Byte strings: a slot holds the hash of the key and a record word.
#[derive(Debug)]
pub enum Bytes {}

impl Form for Bytes {
    const FORM: everhash_index::Form = everhash_index::Form::Variable;
    const SLOTS: usize = 3;
    const LINES: u64 = 1;
    const UPDATE: Update = Update::LastWord;
    const RECORDS: bool = true;

    type Key<'k> = &'k [u8];
    type Value<'v> = &'v [u8];
    /// The second word was checked against the first.
    type Pair = (u64, RecordWord);

    fn key(bytes: &[u8]) -> Option<&[u8]> {
        (bytes.len() <= MAX_KEY_BYTES).then_some(bytes)
    }

    fn value(bytes: &[u8]) -> Option<&[u8]> {
        (bytes.len() <= MAX_VALUE_BYTES).then_some(bytes)
    }

    fn hash(hasher: &KeyedHash, key: &[u8]) -> u64 {
        hasher.bytes(key)
    }

    fn pair_hash(_hasher: &KeyedHash, pair: &Self::Pair) -> u64 {
        pair.0
    }

    fn find<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        for slot in bucket.token.live_slots() {
            // A slot of another key is checked too: its hash might be the damaged one.
            let (slot_hash, word) = Self::load(pm, bucket, slot)?;
            if slot_hash == hash {
                let key_bytes = record::read(pm, word, hash, bytes)?;
                if &bytes[..key_bytes] == key {
                    bytes.drain(..key_bytes);
                    return Ok(Some(slot));
                }
            }
        }
        Ok(None)
    }

    fn load<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<Self::Pair> {
        let index = word_slot(slot);
        let (hash, word) = (bucket.head().load_relaxed(index), bucket.head().load(index + 1));
        let at = bucket.at.plus(index as u64 + 1);
        match RecordWord::from_medium(at, word)? {
            Some(record) if record.tag == layout::record_tag(hash, word) => Ok((hash, record)),
            _ => Err(corrupt(at, "a record word matches its check")),
        }
    }

    fn store<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        _hash: u64,
        pair: &Self::Pair,
    ) -> Result<()> {
        bucket.head().store(word_slot(slot), pair.0);
        bucket.head().store(word_slot(slot) + 1, pair.1.word());
        Ok(())
    }

    fn line(_slot: usize) -> u64 {
        0
    }

    fn pair<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<Self::Pair> {
        let (bytes, limit) = (value.len(), MAX_VALUE_BYTES);
        let class =
            record::class_of(key.len(), value.len()).ok_or(Error::ValueTooLong { bytes, limit })?;
        let addr = heap.take(class)?;
        before_reuse::<M::Sync>();
        let span = record::write(pm, addr, hash, key, value)?;
        pm.flush(span, sites::RECORD);
        let untagged = RecordWord { addr, class, tag: 0 };
        Ok((hash, RecordWord { tag: layout::record_tag(hash, untagged.word()), ..untagged }))
    }

    fn last_word(pair: &Self::Pair, slot: usize) -> (usize, u64) {
        (word_slot(slot) + 1, pair.1.word())
    }

    fn record(pair: &Self::Pair) -> Option<(Addr, Class)> {
        Some((pair.1.addr, pair.1.class))
    }

    /// One record may be reached once only, so equal hashes are different keys.
    fn same_key(_a: &Self::Pair, _b: &Self::Pair) -> bool {
        false
    }

    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: &Self::Pair,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let key_bytes = record::read(pm, pair.1, pair.0, key)?;
        value.clear();
        value.extend_from_slice(&key[key_bytes..]);
        key.truncate(key_bytes);
        Ok(())
    }

    fn found_value(_pair: &Self::Pair, _value: &mut Vec<u8>) {}
}
