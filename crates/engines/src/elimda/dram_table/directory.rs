//! The directory: which segment holds the hashes with some leading bits. In DRAM only.
//!
//! The segment heads say on the device which prefix each has; so doubling the directory is no
//! change of the device, and a crash cannot leave half of one.

use core::sync::atomic::Ordering;

use everhash_pmem::{AtomicWord, LINE, Parts, Primitives, WORD};

use crate::elimda::layout::{Prefix, leading};

/// Entries of a line.
const TOGETHER: usize = (LINE / WORD) as usize;

/// One array for each global depth there has been; the last one counts. All of the earlier ones
/// together are as long as the last.
pub struct Directory<P: Primitives> {
    arrays: Parts<P::AtomicU64>,
    depth: P::AtomicU64,
}

impl<P: Primitives> Directory<P> {
    /// Makes a directory of one entry.
    pub fn new() -> Self {
        let directory = Directory { arrays: Parts::new(), depth: AtomicWord::new(0) };
        directory.add_array(0);
        directory
    }

    /// Adds the array of a depth. It has whole lines, which begin where its words need not.
    fn add_array(&self, depth: u32) {
        self.arrays.add(depth as usize, P::words((1 << depth).max(TOGETHER) + TOGETHER));
    }

    /// Returns the global depth.
    #[inline(always)]
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Acquire) as u32
    }

    /// Returns the place of the segment that holds a hash.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> u64 {
        let depth = self.depth();
        self.entry(depth, leading(hash, depth)).load(Ordering::Acquire)
    }

    #[inline(always)]
    fn entry(&self, depth: u32, index: u64) -> &P::AtomicU64 {
        let entry = self.arrays.get(depth as usize, index as usize);
        entry.expect("a depth is stored after its array")
    }

    /// Points the entries of a prefix to `place`; doubles the directory until it can. The segment
    /// table is locked, or the table is not open yet.
    ///
    /// A reader of a shorter array finds what its entries were before: the caller has made the
    /// sequences of the segment odd, so that it looks again.
    pub fn point(&self, prefix: Prefix, place: u64) {
        let mut depth = self.depth();
        while depth < prefix.depth {
            self.add_array(depth + 1);
            for index in 0..1 << (depth + 1) {
                let old = self.entry(depth, index / 2).load(Ordering::Relaxed);
                self.entry(depth + 1, index).store(old, Ordering::Relaxed);
            }
            depth += 1;
            self.depth.store(depth.into(), Ordering::Release);
        }
        let first = prefix.bits << (depth - prefix.depth);
        for index in first..first + (1 << (depth - prefix.depth)) {
            self.entry(depth, index).store(place, Ordering::Release);
        }
    }

    /// Returns how much DRAM the arrays take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        (16 << self.depth()) - 8
    }
}
