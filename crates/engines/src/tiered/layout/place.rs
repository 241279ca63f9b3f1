//! Where a layer lies: as a word of DRAM that searches use, and as a word of the root.

use everhash_pmem::{Addr, Bits, LINE, WORD};

use super::{BUCKET_BYTES, Kind, MOST_LOG, ROOT, Root, mix};

const PLACE_LINE: Bits = Bits::new(0, 40);
pub(super) const PLACE_LOG: Bits = Bits::new(40, 6);
const PLACE_DROPPED: Bits = Bits::new(46, 1);
const PLACE_UNUSED: Bits = Bits::new(47, 1);
pub(super) const PLACE_CHECK: Bits = Bits::new(48, 16);

/// The bits of a byte's address that say where in its bucket it lies.
///
/// Unit: bit mask. Source: ours; a bucket begins at a multiple of its length.
const LOW_BYTE: u64 = BUCKET_BYTES - 1;

/// How far a position is shifted so that its leading bits stand where the index of the only bucket
/// of a layer would: by one less for each doubling.
///
/// Unit: bits. Source: a bucket has 2^7 bytes.
const HOME_SHIFT: u32 = u64::BITS - LOW_BYTE.count_ones();

/// Where a layer lies, in one word: its first byte, and in the low bits of that how far a position
/// is shifted. So a search comes from a position to its bucket by a shift and a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

impl Place {
    /// Returns nowhere.
    pub const NONE: Place = Place(0);

    /// Makes the place of a layer of 2^`log` buckets.
    ///
    /// # Panics
    /// If a bucket would not begin at a multiple of its length, or if there are too many.
    pub const fn new(start: Addr, log: u32) -> Place {
        assert!(start.byte() & LOW_BYTE == 0 && log <= MOST_LOG);
        Place(start.byte() | (HOME_SHIFT - log) as u64)
    }

    /// Returns the first line of the first bucket.
    #[inline(always)]
    pub const fn start(self) -> Addr {
        Addr::new(self.0 & !LOW_BYTE)
    }

    /// Returns the logarithm of the number of buckets.
    #[inline(always)]
    pub const fn log(self) -> u32 {
        HOME_SHIFT - (self.0 & LOW_BYTE) as u32
    }

    /// Returns the number of buckets.
    pub const fn buckets(self) -> u64 {
        1 << self.log()
    }

    /// Returns the length. Unit: bytes.
    pub const fn bytes(self) -> u64 {
        self.buckets() * BUCKET_BYTES
    }

    /// Returns where a bucket begins.
    #[inline(always)]
    pub const fn bucket(self, index: u64) -> Addr {
        self.start().plus(index * (BUCKET_BYTES / WORD))
    }

    /// Returns where the bucket of a position begins.
    #[inline(always)]
    pub const fn home(self, position: u64) -> Addr {
        Addr::new(self.home_byte(position) & !LOW_BYTE)
    }

    /// Returns the number of the bucket of a position.
    #[inline(always)]
    pub const fn index(self, position: u64) -> u64 {
        position.wrapping_shr(self.0 as u32) / BUCKET_BYTES
    }

    /// Returns a byte in the bucket of a position.
    #[inline(always)]
    pub const fn home_byte(self, position: u64) -> u64 {
        // The bits of the position below the index of the bucket become a place in the bucket.
        (self.0 & !LOW_BYTE).wrapping_add(position.wrapping_shr(self.0 as u32))
    }

    /// Returns the place as one word of DRAM.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the place in a word that [`Place::word`] made.
    #[inline(always)]
    pub const fn of_word(word: u64) -> Place {
        Place(word)
    }
}

/// A layer in the list of the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// It lies here.
    Live(Place),
    /// It was drained and dropped.
    Dropped,
    /// It was not added yet. No zero says so: a hole in a file would take the newest layer away.
    Unused,
}

impl Listed {
    /// Returns the word for the place word at `at`.
    pub const fn encode(self, at: Addr) -> u64 {
        let word = match self {
            Listed::Live(place) => PLACE_LOG.set(place.start().line(), place.log() as u64),
            Listed::Dropped => PLACE_DROPPED.set(0, 1),
            Listed::Unused => PLACE_UNUSED.set(0, 1),
        };
        PLACE_CHECK.set(word, mix(word, at.word(), Kind::Place) >> 48)
    }

    /// Decodes the word at `at`; `None` if no engine stored it there.
    pub const fn decode(word: u64, at: Addr) -> Option<Listed> {
        let (start, log) = (Addr::new(PLACE_LINE.get(word) * LINE), PLACE_LOG.get(word) as u32);
        let listed = if PLACE_DROPPED.get(word) == 1 {
            Listed::Dropped
        } else if PLACE_UNUSED.get(word) == 1 {
            Listed::Unused
        } else if log <= MOST_LOG && !start.is_null() && start.byte() & LOW_BYTE == 0 {
            Listed::Live(Place::new(start, log))
        } else {
            return None;
        };
        if listed.encode(at) == word { Some(listed) } else { None }
    }
}

/// Returns where the root lists layer `index`.
pub const fn place_at(index: usize) -> Addr {
    ROOT.plus((Root::PLACES + index) as u64)
}

const _: () = assert!(MOST_LOG <= HOME_SHIFT && HOME_SHIFT <= LOW_BYTE as u32);
