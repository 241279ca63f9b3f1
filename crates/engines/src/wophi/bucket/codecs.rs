//! The slots of each form: 8-byte pairs, 16-byte pairs, and byte strings.

use core::num::NonZero;

use everhash_index::Result;
use everhash_pmem::{Access, Block, Media};

use super::{Bucket, BucketCodec, Update, corrupt};
use crate::common::slot_codec::{Bytes, DoubleWords, SlotCodec, Words};
use crate::wophi::layout::{self, DoubleBucket, LINE_WORDS, WordBucket};

/// Returns the index of the first word of a slot of a word bucket.
#[inline(always)]
const fn word_slot(slot: usize) -> usize {
    WordBucket::SLOTS + 2 * slot
}

#[inline(always)]
fn load_two<M: Media, C: BucketCodec>(bucket: &Bucket<'_, M, C>, slot: usize) -> [u64; 2] {
    let head = bucket.head();
    // Every slot lies in the line: to name its words inside of it spares the check of the window.
    let first = word_slot(slot) % LINE_WORDS;
    [head.load_relaxed(first), head.load_relaxed((first + 1) % LINE_WORDS)]
}

#[inline(always)]
fn store_two<M: Media, C: BucketCodec>(bucket: &Bucket<'_, M, C>, slot: usize, words: [u64; 2]) {
    bucket.head().store(word_slot(slot), words[0]);
    bucket.head().store(word_slot(slot) + 1, words[1]);
}

/// The words of a word bucket that are keys, as a mask.
///
/// Unit: a mask of bits. Source: the ruler of a bucket.
const WORD_KEYS: u32 = 1 << word_slot(0) | 1 << word_slot(1) | 1 << word_slot(2);

/// Returns a mask of the words that are `key` in the first line of a bucket of words.
#[inline(always)]
pub fn key_words(line: &impl Block<LINE_WORDS>, key: u64) -> u32 {
    line.equal_words(WORD_KEYS, key)
}

/// Returns which of the words `equal`, a mask, are keys of slots that hold something.
#[inline(always)]
fn live_words<M: Media>(bucket: &Bucket<'_, M, Words>, equal: u32) -> Option<NonZero<u32>> {
    // Bit 2i for slot i becomes the bit of its first word.
    let live = (bucket.token.live() as u32) << WordBucket::SLOTS;
    NonZero::new(equal & live & WORD_KEYS)
}

/// Returns the value in the slot whose key is among the words `equal`, a mask.
///
/// All slots are compared without a branch: which one it is cannot be predicted.
#[inline(always)]
pub fn find_value<M: Media>(bucket: &Bucket<'_, M, Words>, equal: u32) -> Option<u64> {
    let word = live_words(bucket, equal)?.trailing_zeros() as usize;
    Some(bucket.head().load_relaxed((word | 1) % LINE_WORDS))
}

/// Three slots, all in the line of their token word.
impl BucketCodec for Words {
    const SLOTS: usize = 3;
    const LINES: u64 = 1;
    const UPDATE: Update = Update::LastWord;

    #[inline(always)]
    fn line(_slot: usize) -> u64 {
        0
    }

    #[inline(always)]
    fn last_index(slot: usize) -> usize {
        word_slot(slot) + 1
    }

    fn last_word(words: [u64; 2]) -> u64 {
        words[1]
    }

    #[inline(always)]
    fn load<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<[u64; 2]> {
        Ok(load_two(bucket, slot))
    }

    #[inline(always)]
    fn store<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        _hash: u64,
        words: [u64; 2],
    ) -> Result<()> {
        store_two(bucket, slot, words);
        Ok(())
    }

    #[inline(always)]
    fn find<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        _hash: u64,
        key: u64,
        _bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let found = live_words(bucket, key_words(bucket.head(), key));
        Ok(found.map(|word| (word.trailing_zeros() as usize - WordBucket::SLOTS) / 2))
    }

    #[inline(always)]
    fn find_pair<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        _hash: u64,
        key: u64,
        _bytes: &mut Vec<u8>,
    ) -> Result<Option<[u64; 2]>> {
        let value = find_value(bucket, key_words(bucket.head(), key));
        Ok(value.map(|value| [key, value]))
    }

    fn is_same_key(a: [u64; 2], b: [u64; 2]) -> bool {
        a[0] == b[0]
    }
}

/// As [`Words`]: a slot holds the hash of the key and a record word.
impl BucketCodec for Bytes {
    const SLOTS: usize = 3;
    const LINES: u64 = 1;
    const UPDATE: Update = Update::LastWord;

    fn line(_slot: usize) -> u64 {
        0
    }

    fn last_index(slot: usize) -> usize {
        word_slot(slot) + 1
    }

    fn last_word(words: [u64; 2]) -> u64 {
        words[1]
    }

    fn load<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<[u64; 2]> {
        // The record word is the commit word of an update: acquire.
        let hash = bucket.head().load_relaxed(word_slot(slot));
        Ok([hash, bucket.head().load(word_slot(slot) + 1)])
    }

    fn store<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        _hash: u64,
        words: [u64; 2],
    ) -> Result<()> {
        store_two(bucket, slot, words);
        Ok(())
    }

    fn find<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        for slot in bucket.token.live_slots() {
            // A slot of another key is verified too: its hash might be the damaged one.
            let pair = bucket.pair(pm, slot)?;
            if Bytes::holds(pm, pair, hash, key, bytes)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// One record may be reached once only, so equal hashes are different keys.
    fn is_same_key(_a: Self::Pair, _b: Self::Pair) -> bool {
        false
    }
}

/// Returns the index of the first word of a slot of a double bucket.
const fn double_slot(slot: usize) -> usize {
    match slot {
        0 => DoubleBucket::SLOT_0,
        _ => DoubleBucket::SLOT_1 + 4 * (slot - 1),
    }
}

/// Loads the first `N` words of a slot from its line.
#[inline(always)]
fn words_in<const N: usize>(line: &impl Block<LINE_WORDS>, slot: usize) -> [u64; N] {
    core::array::from_fn(|word| line.load_relaxed(double_slot(slot) % LINE_WORDS + word))
}

/// As [`words_in`], of a bucket whose first line is known.
#[inline(always)]
fn load_words<const N: usize, M: Media>(
    pm: &Access<'_, M>,
    bucket: &Bucket<'_, M, DoubleWords>,
    slot: usize,
) -> Result<[u64; N]> {
    match DoubleWords::line(slot) {
        0 => Ok(words_in(bucket.head(), slot)),
        line => Ok(words_in(&pm.block::<LINE_WORDS>(bucket.line(line).start)?, slot)),
    }
}

/// Four slots: the first in the line of the token word, the others found by fingerprint.
impl BucketCodec for DoubleWords {
    const SLOTS: usize = 4;
    const LINES: u64 = 3;
    const UPDATE: Update = Update::TwoSlots;

    fn line(slot: usize) -> u64 {
        slot.div_ceil(2) as u64
    }

    fn last_index(slot: usize) -> usize {
        double_slot(slot) + 3
    }

    fn last_word(words: [[u64; 2]; 2]) -> u64 {
        words[1][1]
    }

    fn load<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<[[u64; 2]; 2]> {
        let words: [u64; 4] = load_words(pm, bucket, slot)?;
        Ok([[words[0], words[1]], [words[2], words[3]]])
    }

    fn store<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        hash: u64,
        words: [[u64; 2]; 2],
    ) -> Result<()> {
        let line = pm.block::<LINE_WORDS>(bucket.line(Self::line(slot)).start)?;
        for (index, word) in words.into_iter().flatten().enumerate() {
            line.store(double_slot(slot) % LINE_WORDS + index, word);
        }
        if slot > 0 {
            let (word, shift) = layout::print_place(slot);
            let others = bucket.head().load_relaxed(word) & !(u64::from(u32::MAX) << shift);
            let print = layout::encode_print(hash, bucket.at, slot);
            bucket.head().store(word, others | print << shift);
        }
        Ok(())
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
            if slot > 0 {
                let (word, shift) = layout::print_place(slot);
                let field = (bucket.head().load_relaxed(word) >> shift) & u64::from(u32::MAX);
                if field != layout::encode_print(hash, bucket.at, slot) {
                    if !layout::is_print(field, bucket.at, slot) {
                        return Err(corrupt(bucket.at, "a fingerprint matches its check"));
                    }
                    continue;
                }
            }
            if load_words(pm, bucket, slot)? == key {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn is_same_key(a: [[u64; 2]; 2], b: [[u64; 2]; 2]) -> bool {
        a[0] == b[0]
    }
}
