//! 16-byte keys and values: slot 0 in the line of the token word, the others found by fingerprint.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Block, Class, Heap, Media, word_of};

use super::{Form, Update, set_words};
use crate::common::hash::KeyedHash;
use crate::wophi::bucket::{Bucket, corrupt};
use crate::wophi::layout::{self, DoubleBucket, LINE_WORDS};

/// 16-byte keys and values.
#[derive(Debug)]
pub enum DoubleWords {}

/// Index of the first word of a slot of a double bucket, counted in its line.
const fn double_slot(slot: usize) -> usize {
    match slot {
        0 => DoubleBucket::SLOT_0,
        _ => (DoubleBucket::SLOT_1 + 4 * (slot - 1)) % LINE_WORDS,
    }
}

impl DoubleWords {
    fn key_in(block: &impl Block<LINE_WORDS>, slot: usize) -> [u64; 2] {
        let at = double_slot(slot);
        [block.load_relaxed(at), block.load_relaxed(at + 1)]
    }

    fn load_in(block: &impl Block<LINE_WORDS>, slot: usize) -> [u64; 4] {
        core::array::from_fn(|word| block.load_relaxed(double_slot(slot) + word))
    }
}

impl Form for DoubleWords {
    const FORM: everhash_index::Form = everhash_index::Form::DOUBLE_WORDS;
    const SLOTS: usize = 4;
    const LINES: u64 = 3;
    const UPDATE: Update = Update::TwoSlots;
    const RECORDS: bool = false;

    type Key<'k> = [u64; 2];
    type Value<'v> = [u64; 2];
    type Pair = [u64; 4];

    fn key(bytes: &[u8]) -> Option<[u64; 2]> {
        (bytes.len() == 16).then(|| [word_of(&bytes[..8]), word_of(&bytes[8..])])
    }

    fn value(bytes: &[u8]) -> Option<[u64; 2]> {
        Self::key(bytes)
    }

    fn hash(hasher: &KeyedHash, key: [u64; 2]) -> u64 {
        hasher.two_words(key)
    }

    fn pair_hash(hasher: &KeyedHash, pair: &[u64; 4]) -> u64 {
        hasher.two_words([pair[0], pair[1]])
    }

    #[inline]
    fn find<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: [u64; 2],
        _bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        for slot in bucket.token.live_slots() {
            if slot == 0 {
                if Self::key_in(bucket.head(), 0) == key {
                    return Ok(Some(0));
                }
                continue;
            }
            let (word, shift) = layout::print_place(slot);
            let field = (bucket.head().load_relaxed(word) >> shift) & u64::from(u32::MAX);
            if field == layout::seal_print(hash, bucket.at, slot) {
                let line = pm.block::<LINE_WORDS>(bucket.line(Self::line(slot)).start)?;
                if Self::key_in(&line, slot) == key {
                    return Ok(Some(slot));
                }
            } else if !layout::is_print(field, bucket.at, slot) {
                return Err(corrupt(bucket.at, "a fingerprint matches its check"));
            }
        }
        Ok(None)
    }

    fn load<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<[u64; 4]> {
        if slot == 0 {
            return Ok(Self::load_in(bucket.head(), 0));
        }
        let line = pm.block::<LINE_WORDS>(bucket.line(Self::line(slot)).start)?;
        Ok(Self::load_in(&line, slot))
    }

    fn store<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        hash: u64,
        pair: &[u64; 4],
    ) -> Result<()> {
        let line = pm.block::<LINE_WORDS>(bucket.line(Self::line(slot)).start)?;
        for (word, value) in pair.iter().enumerate() {
            line.store(double_slot(slot) + word, *value);
        }
        if slot > 0 {
            let (word, shift) = layout::print_place(slot);
            let others = bucket.head().load_relaxed(word) & !(u64::from(u32::MAX) << shift);
            let print = layout::seal_print(hash, bucket.at, slot);
            bucket.head().store(word, others | print << shift);
        }
        Ok(())
    }

    fn line(slot: usize) -> u64 {
        slot.div_ceil(2) as u64
    }

    fn pair<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: [u64; 2],
        value: [u64; 2],
    ) -> Result<[u64; 4]> {
        Ok([key[0], key[1], value[0], value[1]])
    }

    fn last_word(pair: &[u64; 4], slot: usize) -> (usize, u64) {
        (double_slot(slot) + 3, pair[3])
    }

    fn record(_pair: &[u64; 4]) -> Option<(Addr, Class)> {
        None
    }

    fn same_key(a: &[u64; 4], b: &[u64; 4]) -> bool {
        a[..2] == b[..2]
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        pair: &[u64; 4],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        set_words(key, &pair[..2]);
        set_words(value, &pair[2..]);
        Ok(())
    }

    fn found_value(pair: &[u64; 4], value: &mut Vec<u8>) {
        set_words(value, &pair[2..]);
    }
}
