//! Every byte of the engine with planted bugs.

use everhash_pmem::{Addr, pool};

everhash_pmem::ruler! {
    /// The root: three lines, so that what is stored in one says nothing about another.
    pub struct Root [192] {
        0   TABLE   [1] "address of the buckets, a multiple of 256, plus log2 of their number";
        8   COUNT   [1] "number of pairs, as of the last clean close";
        16  LOCK    [1] "zero; only bugs keep a lock here";
        24  SPARE   [5] "zero";
        64  JOURNAL [1] "address of the value that is being replaced, 0 for none";
        72  OLD     [2] "that value before";
        88  SPARE_2 [5] "zero";
        128 LOG2    [1] "zero; only a bug keeps the size apart from the address";
        136 APART   [3] "zero; only a bug keeps that value here, and then 1";
        160 SPARE_3 [4] "zero";
    }
}

everhash_pmem::ruler! {
    /// A bucket: four lines, so that its slots lie in different ones, and some across two.
    pub struct Bucket [256] {
        0   VALID [1]  "bit i: slot i holds a pair";
        8   TAGS  [1]  "byte i: low byte of the hash of the key in slot i";
        16  PAIRS [28] "seven times two words of key and two of value";
        240 SPARE [2]  "zero";
    }
}

/// Where the root lies.
pub const ROOT: Addr = pool::ROOT;

/// Pairs of a bucket. Unit: none. Source: ours.
pub const SLOTS: usize = 7;

/// Words of a slot. Unit: words. Source: ours; 8-byte keys and values leave half of it zero.
pub const SLOT_WORDS: usize = 4;

/// A key or a value: two words, the second of which is zero in the form 8/8.
pub type Two = [u64; 2];

/// Where the buckets lie, and how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The first bucket.
    pub start: Addr,
    /// Log2 of their number.
    pub log2: u32,
}

impl Home {
    /// Returns the buckets that a root word names; of garbage, something in bounds of nothing.
    pub fn of(word: u64) -> Home {
        Home { start: Addr::new(word & !0xff), log2: (word & 0x3f) as u32 }
    }

    /// Returns the root word that names the buckets.
    pub fn word(self) -> u64 {
        self.start.byte() | u64::from(self.log2)
    }

    /// Returns the number of buckets.
    pub fn buckets(self) -> u64 {
        1 << self.log2
    }

    /// Returns the bucket of a hash: its high bits, so that cursors survive growth.
    pub fn index(self, hash: u64) -> u64 {
        if self.log2 == 0 { 0 } else { hash >> (64 - self.log2) }
    }

    /// Returns where a bucket lies.
    pub fn bucket(self, index: u64) -> Addr {
        self.start.plus(index * Bucket::WORDS as u64)
    }
}

/// Returns where a slot of a bucket lies.
pub fn slot(bucket: Addr, index: usize) -> Addr {
    bucket.plus((Bucket::PAIRS + index * SLOT_WORDS) as u64)
}

/// Returns the hash of a key.
pub fn hash(key: Two, hash_key: [u64; 2]) -> u64 {
    let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, hash_key[0])
}

/// Returns the tag of a hash.
pub fn tag(hash: u64) -> u8 {
    hash as u8
}

/// Packs a key or a value of at most 16 bytes.
pub fn two(bytes: &[u8]) -> Two {
    let (first, second) = bytes.split_at(bytes.len().min(8));
    [everhash_pmem::word_of(first), everhash_pmem::word_of(second)]
}

/// Unpacks a key or a value of `length` bytes.
pub fn bytes(words: Two, length: usize) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect()
}
