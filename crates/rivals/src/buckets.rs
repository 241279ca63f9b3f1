//! Where buckets and slots lie: four slots in two lines, 128 slots in a page, as in Tiered Hashing.
//!
//! ```text
//!   line 0   | tokens | -      | key 0, value 0 | key 1, value 1 | -
//!   line 1   | -      | -      | key 2, value 2 | key 3, value 3 | -
//! ```
//!
//! A pair of words stands for one of 31 bytes: a page holds as many of them.

use everhash_pmem::{Addr, LINE, Span, WORD};

/// Unit: slots. Source: Tiered Hashing 2.4; Level Hashing (OSDI 2018) has as many.
pub const SLOTS: u64 = 4;

/// The tokens of all slots of a bucket.
pub const ALL_TOKENS: u64 = (1 << SLOTS) - 1;

/// Unit: words.
const BUCKET_WORDS: u64 = 2 * LINE / WORD;

/// Unit: bytes. Source: Tiered Hashing, Table 2.
pub const PAGE_BYTES: u64 = 4096;

/// Slots of a page.
pub const PAGE_SLOTS: u64 = PAGE_BUCKETS * SLOTS;

/// Buckets of a page.
pub const PAGE_BUCKETS: u64 = PAGE_BYTES / (BUCKET_WORDS * WORD);

/// Pages before the first bucket: one that is left alone, and the log. Source: ours; a log of more
/// pages is written at as many places, which makes no difference to what a write costs.
pub const FIRST_PAGE: u64 = 1 + LOG_PAGES;

/// Unit: pages. Source: ours, see [`FIRST_PAGE`].
pub const LOG_PAGES: u64 = 8;

/// Returns how long a medium for so many pages of buckets is. Unit: bytes.
pub const fn bytes_needed(pages: u64) -> u64 {
    (FIRST_PAGE + pages) * PAGE_BYTES
}

/// A row of buckets.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    start: Addr,
    count: u64,
}

impl Buckets {
    /// Returns the buckets of `pages` pages from page `first` on.
    pub const fn new(first: u64, pages: u64) -> Buckets {
        Buckets { start: Addr::new(first * PAGE_BYTES), count: pages * PAGE_BUCKETS }
    }

    /// Returns their number.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns how many pages they take.
    pub const fn pages(&self) -> u64 {
        self.count / PAGE_BUCKETS
    }

    /// Returns the page behind them.
    pub const fn end_page(&self) -> u64 {
        self.span().end_byte() / PAGE_BYTES
    }

    /// Returns the index of the bucket of a hash: in twice as many buckets it is twice as large, or
    /// one more than that.
    pub const fn of_hash(&self, hash: u64) -> u64 {
        ((hash as u128 * self.count as u128) >> 64) as u64
    }

    /// Returns a bucket.
    pub const fn at(&self, index: u64) -> Bucket {
        Bucket(self.start.plus(index * BUCKET_WORDS))
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = Bucket> + use<> {
        let buckets = *self;
        (0..buckets.count).map(move |index| buckets.at(index))
    }

    /// Returns where they lie.
    pub const fn span(&self) -> Span {
        Span::new(self.start, self.count * BUCKET_WORDS)
    }
}

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket(Addr);

impl Bucket {
    /// Returns where its tokens lie: one bit for each slot from bit 0 on, and what a scheme needs
    /// beside them above.
    pub const fn tokens(self) -> Addr {
        self.0
    }

    /// Returns where it lies, which is in one page.
    pub const fn span(self) -> Span {
        Span::new(self.0, BUCKET_WORDS)
    }

    /// Returns a slot.
    pub const fn slot(self, index: u64) -> Slot {
        Slot { bucket: self, index }
    }

    /// Returns the slots whose bits are set.
    pub fn slots(self, bits: u64) -> impl Iterator<Item = Slot> {
        (0..SLOTS).filter(move |index| bits >> index & 1 == 1).map(move |index| self.slot(index))
    }
}

/// A slot of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its bucket.
    pub bucket: Bucket,
    /// Its number in the bucket.
    pub index: u64,
}

impl Slot {
    /// Returns its token's bit.
    pub const fn token(self) -> u64 {
        1 << self.index
    }

    /// Returns where its key lies; the value is the next word.
    pub const fn key(self) -> Addr {
        self.bucket.0.plus(self.index / 2 * (LINE / WORD) + 2 + self.index % 2 * 2)
    }

    /// Returns where its value lies.
    pub const fn value(self) -> Addr {
        self.key().plus(1)
    }
}
