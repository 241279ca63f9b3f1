//! What a word of the directory says: a tag, how far it is from home, and where the pair lies.

use everhash_pmem::{Addr, Bits};

use super::SLOTS;

/// Where the pair lies. Unit: words.
pub const PLACE: Bits = Bits::new(0, 42);
/// How many buckets from home.
pub const DISTANCE: Bits = Bits::new(42, DISTANCE_BITS);
/// Bits of the hash from the base of the shard on.
const TAG: Bits = Bits::new(42 + DISTANCE_BITS, TAG_BITS);
/// Bits of a distance.
///
/// Source: ours; of eight buckets in a row, none has room when three fifths of a shard are in use
/// once in 50,000 times. Of four it is once in 250 times, so that shards would double half empty.
const DISTANCE_BITS: u32 = 3;
/// Bits of a tag.
pub const TAG_BITS: u32 = 22 - DISTANCE_BITS;

/// The buckets of a shard: how many, and which bits of the hash their tags are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Base-2 logarithm of the buckets.
    pub level: u32,
    /// The first bit of the tags.
    pub base: u32,
}

/// Where distance and tag begin in a word.
const DISTANCE_SHIFT: u32 = 42;

impl Shape {
    /// Returns the shape as one word.
    pub fn word(self) -> u64 {
        u64::from(self.level) | u64::from(self.base) << 8
    }

    /// Returns the shape of such a word.
    #[inline(always)]
    pub fn of(word: u64) -> Self {
        Shape { level: word as u32 & 0xff, base: (word >> 8) as u32 & 0xff }
    }

    /// Returns the bits of a hash that are the number of its home.
    #[inline(always)]
    pub fn mask(self) -> u64 {
        (1 << self.level) - 1
    }

    /// Returns in how many buckets a pair may lie.
    #[inline(always)]
    pub fn reach(self) -> u64 {
        1 << self.level.min(DISTANCE_BITS)
    }

    /// Returns what a word of this hash begins with, so many buckets from home.
    #[inline(always)]
    pub fn wanted(self, hash: u64, distance: u64) -> u64 {
        self.word_of(hash, distance, Addr::NULL) >> DISTANCE_SHIFT
    }

    /// Returns the word of a pair, so many buckets from home.
    #[inline(always)]
    pub fn word_of(self, hash: u64, distance: u64, place: Addr) -> u64 {
        TAG.set(DISTANCE.set(place.word(), distance), hash >> self.base)
    }

    /// Returns the bits of the hash that a word in a bucket tells, up to the end of the tag.
    pub fn hash_of(self, word: u64, bucket: u64) -> u64 {
        let home = bucket.wrapping_sub(DISTANCE.get(word)) & self.mask();
        let below = home & ((1 << self.base) - 1);
        below | TAG.get(word) << self.base
    }

    /// Puts pairs into the words of a shard of this shape; `None` if they, or one more of another
    /// hash, do not find a slot.
    pub fn arrange(self, pairs: &[(u64, Addr)], other: u64) -> Option<Vec<u64>> {
        let mut words = vec![0; SLOTS << self.level];
        let mut place = |hash: u64, place: Addr| {
            (0..self.reach()).find_map(|distance| {
                let first = SLOTS * ((hash + distance) & self.mask()) as usize;
                let free = words[first..][..SLOTS].iter_mut().find(|word| **word == 0)?;
                *free = self.word_of(hash, distance, place);
                Some(())
            })
        };
        for (hash, at) in pairs {
            place(*hash, *at)?;
        }
        let room = |distance| {
            let first = SLOTS * ((other + distance) & self.mask()) as usize;
            words[first..][..SLOTS].contains(&0)
        };
        (0..self.reach()).any(room).then_some(words)
    }
}

/// Returns whether a word has this distance and tag. An empty slot looks like a word at home whose
/// tag is zero, as one hash in a million has.
#[inline(always)]
pub fn is_wanted(word: u64, wanted: u64) -> bool {
    word >> DISTANCE_SHIFT == wanted && word != 0
}

/// Returns the place in a word.
#[inline(always)]
pub fn place_of(word: u64) -> Addr {
    Addr::NULL.plus(PLACE.get(word))
}
