//! The directory: which segment holds the hashes with some leading bits. In DRAM only.
//!
//! The segment heads say on the device which prefix each has; so doubling the directory is no
//! change of the device, and a crash cannot leave half of one.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_pmem::{AtomicWord, Primitives};

use crate::elimda::layout::{MOST_DEPTH, Prefix, leading};

/// One array for each global depth there has been; the last one counts. All of the earlier ones
/// together are as long as the last.
pub struct Directory<P: Primitives> {
    arrays: [OnceLock<Box<[P::AtomicU64]>>; MOST_DEPTH as usize + 1],
    depth: P::AtomicU64,
}

impl<P: Primitives> Directory<P> {
    /// Makes a directory of one entry.
    pub fn new() -> Self {
        let directory =
            Directory { arrays: [const { OnceLock::new() }; _], depth: AtomicWord::new(0) };
        directory.arrays[0].get_or_init(|| P::words(1));
        directory
    }

    /// Returns the global depth.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Acquire) as u32
    }

    /// Returns the slot of the segment that holds a hash.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> u64 {
        let depth = self.depth();
        self.array(depth)[leading(hash, depth) as usize].load(Ordering::Acquire)
    }

    #[inline(always)]
    fn array(&self, depth: u32) -> &[P::AtomicU64] {
        self.arrays[depth as usize].get().expect("a depth is stored after its array")
    }

    /// Points the entries of a prefix to `slot`; doubles the directory until it can. The segment
    /// table is locked, or the table is not open yet.
    ///
    /// A reader of a shorter array finds what its entries were before: the caller has made the
    /// sequences of the segment odd, so that it looks again.
    pub fn point(&self, prefix: Prefix, slot: u64) {
        let mut depth = self.depth();
        while depth < prefix.depth {
            let old = self.array(depth);
            self.arrays[depth as usize + 1].get_or_init(|| {
                let new = P::words(2 * old.len());
                for (index, entry) in new.iter().enumerate() {
                    entry.store(old[index / 2].load(Ordering::Relaxed), Ordering::Relaxed);
                }
                new
            });
            depth += 1;
            self.depth.store(depth.into(), Ordering::Release);
        }
        let first = (prefix.bits << (depth - prefix.depth)) as usize;
        let count = 1usize << (depth - prefix.depth);
        for entry in &self.array(depth)[first..first + count] {
            entry.store(slot, Ordering::Release);
        }
    }

    /// Returns how much DRAM the arrays take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        (16 << self.depth()) - 8
    }
}
