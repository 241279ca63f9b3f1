//! What a word of the directory says: a tag, how far it is from home, and where the pair lies; and
//! the links by which a hash finds its leaf.

use everhash_pmem::{Addr, Bits, WORD};

/// Where the pair lies. Unit: words.
pub const PLACE: Bits = Bits::new(0, 41);
/// Whether pairs of this bucket lie behind it: those whose tags have the number of this slot in
/// their highest bits. It says nothing of the pair whose word this is, and is zero in a checkpoint.
pub const BEHIND: Bits = Bits::new(41, 1);
/// How many buckets from home.
pub const DISTANCE: Bits = Bits::new(42, DISTANCE_BITS);
/// Bits of the hash from the base of the leaf on.
pub const TAG: Bits = Bits::new(42 + DISTANCE_BITS, TAG_BITS);
/// Bits of a distance.
///
/// Source: ours; a power of two above the reach.
const DISTANCE_BITS: u32 = 3;
/// Bits of a tag.
const TAG_BITS: u32 = 22 - DISTANCE_BITS;

/// Where distance and tag begin in a word.
pub const WANTED_SHIFT: u32 = 42;

/// Behind the last place that a word can name: 16 TiB.
pub const END: Addr = Addr::new((PLACE.max() + 1) * WORD);

/// The lowest bit of the hash that chooses a home.
const HOME_SHIFT: u32 = 20;

/// Where a leaf or an array of links begins in the arena; of a leaf also, which bits of the hash
/// lead there and which are in its tags. Every look-up takes one apart, with few instructions.
///
/// A leaf that only a checkpoint has lies in a part of the arena that there never is: who looks for
/// it there finds nothing, and needs no other question.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Link(pub u64);

impl Link {
    /// The first word in its part.
    const WORD: Bits = Bits::new(0, 32);
    /// The first bit of the tags.
    const BASE: Bits = Bits::new(40, 6);
    /// How many bits its hashes share.
    const DEPTH: Bits = Bits::new(48, 6);
    /// The part of the arena.
    const PART: Bits = Bits::new(58, 6);
    /// The part of leaves that only a checkpoint has.
    const SAVED: usize = Self::PART.max() as usize;

    /// Returns a link to a word of a part.
    pub fn new(part: usize, word: usize) -> Self {
        Link(Self::PART.set(Self::WORD.set(0, word as u64), part as u64))
    }

    /// Returns a link to a leaf so many words behind the beginning of a shard in a checkpoint, if
    /// it can name that.
    pub fn to_saved(word: usize) -> Option<Self> {
        (word as u64 <= Self::WORD.max()).then(|| Link::new(Self::SAVED, word))
    }

    /// Returns whether only a checkpoint has the leaf.
    #[inline(always)]
    pub fn is_saved(self) -> bool {
        self.part() == Self::SAVED
    }

    /// Returns the link to a leaf there whose hashes share so many bits, and whose tags begin at
    /// bit `base`.
    pub fn with(self, depth: u32, base: u32) -> Self {
        Link(Self::BASE.set(Self::DEPTH.set(self.0, depth.into()), base.into()))
    }

    /// Returns the part.
    #[inline(always)]
    pub fn part(self) -> usize {
        Self::PART.get(self.0) as usize
    }

    /// Returns the first word.
    #[inline(always)]
    pub fn word(self) -> usize {
        Self::WORD.get(self.0) as usize
    }

    /// Returns how many bits the hashes of a leaf share.
    #[inline(always)]
    pub fn depth(self) -> u32 {
        Self::DEPTH.get(self.0) as u32
    }

    /// Returns the first bit of the tags of a leaf.
    #[inline(always)]
    pub fn base(self) -> u32 {
        Self::BASE.get(self.0) as u32
    }

    /// Returns the bits of a hash that all of its leaf share.
    #[inline(always)]
    pub fn index(self, hash: u64) -> u64 {
        hash & !(u64::MAX << self.depth())
    }

    /// Returns what a word of this hash begins with, at home. A bucket further it is one more.
    #[inline(always)]
    pub fn wanted(self, hash: u64) -> u64 {
        self.word_of(hash, 0, Addr::NULL) >> WANTED_SHIFT
    }

    /// Returns the word of a pair of a leaf, so many buckets from home.
    #[inline(always)]
    pub fn word_of(self, hash: u64, distance: u64, place: Addr) -> u64 {
        TAG.set(DISTANCE.set(PLACE.set(0, place.word()), distance), hash >> self.base())
    }
}

/// Returns the home of a hash in a leaf of `length` buckets: the bits between those that choose a
/// leaf and those that choose a shard are a fraction of it. So a pair's home is the same in all
/// leaves.
#[inline(always)]
pub fn home(hash: u64, length: u64) -> u64 {
    (u64::from((hash >> HOME_SHIFT) as u32) * length) >> 32
}

/// Returns whether a word has this distance and tag. An empty slot looks like a word at home whose
/// tag is zero, as one hash in half a million has.
#[inline(always)]
pub fn is_wanted(word: u64, wanted: u64) -> bool {
    word >> WANTED_SHIFT == wanted && word != 0
}

/// Returns the slot of a home that says whether pairs like the one that is wanted lie behind it.
#[inline(always)]
pub fn behind_slot(wanted: u64) -> usize {
    // The highest of the bits, at most eight numbers. No split uses them up.
    (wanted >> (u64::BITS - WANTED_SHIFT - 3)) as usize & 7
}

/// Returns the place in a word.
#[inline(always)]
pub fn place_of(word: u64) -> Addr {
    Addr::NULL.plus(PLACE.get(word))
}
