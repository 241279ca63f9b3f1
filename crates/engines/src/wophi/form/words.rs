//! 8-byte keys and values: three slots, all in the line of their token word.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Block, Class, Heap, Media, word_of};

use super::{Form, Update, set_words, word_slot};
use crate::common::hash::KeyedHash;
use crate::wophi::bucket::Bucket;

/// 8-byte keys and values.
#[derive(Debug)]
pub enum Words {}

impl Form for Words {
    const FORM: everhash_index::Form = everhash_index::Form::WORDS;
    const SLOTS: usize = 3;
    const LINES: u64 = 1;
    const UPDATE: Update = Update::LastWord;
    const RECORDS: bool = false;

    type Key<'k> = u64;
    type Value<'v> = u64;
    type Pair = [u64; 2];

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

    fn pair_hash(hasher: &KeyedHash, pair: &[u64; 2]) -> u64 {
        hasher.word(pair[0])
    }

    #[inline(always)]
    fn find<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        _hash: u64,
        key: u64,
        _bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        // All three slots are compared without a branch: which one it is cannot be predicted.
        let head = bucket.head();
        let equal = u64::from(head.load_relaxed(word_slot(0)) == key)
            | u64::from(head.load_relaxed(word_slot(1)) == key) << 2
            | u64::from(head.load_relaxed(word_slot(2)) == key) << 4;
        let found = equal & bucket.token.live();
        Ok((found != 0).then(|| found.trailing_zeros() as usize / 2))
    }

    #[inline(always)]
    fn load<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<[u64; 2]> {
        let head = bucket.head();
        Ok([head.load_relaxed(word_slot(slot)), head.load_relaxed(word_slot(slot) + 1)])
    }

    #[inline(always)]
    fn store<M: Media>(
        _pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        _hash: u64,
        pair: &[u64; 2],
    ) -> Result<()> {
        bucket.head().store(word_slot(slot), pair[0]);
        bucket.head().store(word_slot(slot) + 1, pair[1]);
        Ok(())
    }

    #[inline(always)]
    fn line(_slot: usize) -> u64 {
        0
    }

    #[inline(always)]
    fn pair<M: Media>(
        _pm: &Access<'_, M>,
        _heap: &Heap<M>,
        _hash: u64,
        key: u64,
        value: u64,
    ) -> Result<[u64; 2]> {
        Ok([key, value])
    }

    fn last_word(pair: &[u64; 2], slot: usize) -> (usize, u64) {
        (word_slot(slot) + 1, pair[1])
    }

    fn record(_pair: &[u64; 2]) -> Option<(Addr, Class)> {
        None
    }

    fn same_key(a: &[u64; 2], b: &[u64; 2]) -> bool {
        a[0] == b[0]
    }

    fn read<M: Media>(
        _pm: &Access<'_, M>,
        pair: &[u64; 2],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        set_words(key, &pair[..1]);
        set_words(value, &pair[1..]);
        Ok(())
    }

    fn found_value(pair: &[u64; 2], value: &mut Vec<u8>) {
        set_words(value, &pair[1..]);
    }
}
