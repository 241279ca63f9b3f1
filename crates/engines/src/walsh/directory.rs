//! The two-level directory (3.1.1): an index of blocks, and blocks of directories, taken from a
//! common pool when the first write needs one.
//!
//! A directory is two words: the head of its chain and a Bloom filter. Blocks never move and are
//! never given back to the allocator, only to the pool, so that a reader may look at one that
//! has found another use: it notices by the area's view, and looks again.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Lock, Primitives, prefetch};

use super::layout::DIRECTORY_HASH;

/// Powers of two that a growing sequence can reach: 2^44 directories are 256 TiB of DRAM.
const MOST_POWERS: u32 = 44;

/// A growing sequence whose elements never move, in `PARTS` parts per power of two: at most one in
/// `PARTS` of them waits for its use.
struct Growing<T, const PARTS: u32> {
    /// Each from its first use on.
    parts: Box<[OnceLock<Box<[T]>>]>,
}

/// A directory: the head of its chain, and its filter. Both lie in one cache line.
#[repr(align(16))]
struct Slot<P: Primitives> {
    head: P::AtomicU64,
    filter: P::AtomicU64,
}

/// Returns in which part element `index` lies, and where in it.
#[inline(always)]
const fn place(index: usize, parts: u32) -> (usize, usize) {
    let number = index + parts as usize;
    let high = number.ilog2() - parts.ilog2();
    let part = high * parts + ((number >> high) as u32 & (parts - 1));
    (part as usize, number & ((1 << high) - 1))
}

impl<T, const PARTS: u32> Growing<T, PARTS> {
    fn new() -> Self {
        Growing { parts: (0..MOST_POWERS * PARTS).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the element, or `None` if the sequence is not that long.
    #[inline(always)]
    fn get(&self, index: usize) -> Option<&T> {
        let (part, offset) = place(index, PARTS);
        self.parts.get(part)?.get()?.get(offset)
    }

    /// Returns the element; makes the sequence longer, by elements of `zero`, if it must.
    fn reach(&self, index: usize, zero: impl Fn() -> T) -> &T {
        let (part, offset) = place(index, PARTS);
        let length = 1 << (part as u32 / PARTS);
        &self.parts[part].get_or_init(|| (0..length).map(|_| zero()).collect())[offset]
    }

    /// Returns at most `count` elements from one on, as many as lie in one piece.
    fn reach_run(&self, index: usize, count: usize, zero: impl Fn() -> T) -> &[T] {
        self.reach(index, zero);
        let (part, offset) = place(index, PARTS);
        let elements = self.parts[part].get().map_or(&[][..], |part| &part[offset..]);
        &elements[..count.min(elements.len())]
    }

    fn bytes(&self) -> u64 {
        let parts = self.parts.iter().filter_map(|part| part.get());
        parts.map(|part| size_of_val(&**part) as u64).sum()
    }
}

/// All blocks of a table.
pub struct Blocks<P: Primitives> {
    slots: Growing<Slot<P>, 8>,
    /// Directories of a block, as a base-2 logarithm.
    block_level: u32,
    free: P::Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Blocks that were given back.
    blocks: Vec<u64>,
    /// Blocks that there are.
    count: u64,
}

/// The directories of one area, of one generation.
pub struct Side<P: Primitives> {
    /// Number of each block plus one; 0 = there is none yet.
    index: Growing<P::AtomicU64, 1>,
}

/// What a directory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// The newest object of the chain, or [`Addr::NULL`].
    pub head: Addr,
    /// The filter over all keys of the chain.
    pub filter: u64,
}

impl Directory {
    /// Returns whether a key may be in the chain.
    #[inline(always)]
    pub fn may_hold(&self, hash: u64) -> bool {
        let bits = filter_bits(hash);
        self.filter & bits == bits
    }
}

/// Returns the bits of the filter that a key sets: two, chosen by the first 16 bits of its hash.
#[inline(always)]
pub const fn filter_bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 8 & 63)
}

/// Returns the directory of a key among 2^`level`.
///
/// The high bits choose, so that doubling parts each directory into two neighbours.
#[inline(always)]
pub const fn directory_of(hash: u64, level: u32) -> u64 {
    DIRECTORY_HASH.get(hash) >> (32 - level)
}

impl<P: Primitives> Blocks<P> {
    /// Makes a pool without blocks of `block_directories`, a power of two.
    pub fn new(block_directories: u64) -> Self {
        let free = Lock::new(Free::default());
        Blocks { slots: Growing::new(), block_level: block_directories.ilog2(), free }
    }

    /// Reads a directory, without a lock.
    #[inline(always)]
    pub fn read(&self, side: &Side<P>, directory: u64) -> Directory {
        let slot = self.find(side, directory).and_then(|index| self.slots.get(index));
        let Some(slot) = slot else { return Directory::default() };
        let head = slot.head.load(Ordering::Acquire);
        // Behind the head: the filter was set before the head was.
        let filter = slot.filter.load(Ordering::Relaxed);
        Directory { head: Addr::NULL.plus(head), filter }
    }

    /// Says that a directory will be read soon.
    #[inline(always)]
    pub fn prefetch(&self, side: &Side<P>, directory: u64) {
        if let Some(slot) = self.find(side, directory).and_then(|index| self.slots.get(index)) {
            prefetch(slot);
        }
    }

    /// Makes an object the head of a chain. The caller holds the area's lock.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a panic inside.
    pub fn push(&self, side: &Side<P>, directory: u64, head: Addr, hash: u64) -> Result<()> {
        let index = match self.find(side, directory) {
            Some(index) => index,
            None => self.add_block(side, directory)?,
        };
        let slot = self.slots.reach(index, Slot::zero);
        let filter = slot.filter.load(Ordering::Relaxed) | filter_bits(hash);
        slot.filter.store(filter, Ordering::Relaxed);
        slot.head.store(head.word(), Ordering::Release);
        Ok(())
    }

    /// Empties a side of 2^`level` directories. The caller holds the area's lock and has changed
    /// the area's view.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn clear(&self, side: &Side<P>, level: u32) -> Result<()> {
        let mut free = self.free.lock()?;
        for block in 0..self.most_blocks(level) {
            let Some(entry) = side.index.get(block as usize) else { continue };
            let number = entry.load(Ordering::Relaxed);
            if number != 0 {
                entry.store(0, Ordering::Relaxed);
                free.blocks.push(number - 1);
            }
        }
        Ok(())
    }

    /// Returns which blocks of a side of 2^`level` directories there are, each with its number in
    /// the pool, in ascending order.
    pub fn of_side<'s>(
        &self,
        side: &'s Side<P>,
        level: u32,
    ) -> impl Iterator<Item = (u64, u64)> + use<'s, P> {
        (0..self.most_blocks(level)).filter_map(|block| {
            let number = side.index.get(block as usize)?.load(Ordering::Relaxed);
            (number != 0).then(|| (block, number - 1))
        })
    }

    /// Returns how many blocks 2^`level` directories have at most.
    pub fn most_blocks(&self, level: u32) -> u64 {
        1 << level.saturating_sub(self.block_level)
    }

    /// Returns how many words the directories of a block are.
    pub fn block_words(&self) -> usize {
        2 << self.block_level
    }

    /// Visits the words of a block's directories as they lie here: head, filter, and so on.
    pub fn visit_block(&self, number: u64, mut visit: impl FnMut(u64)) {
        let (mut index, mut left) = ((number as usize) << self.block_level, 1 << self.block_level);
        while left > 0 {
            let slots = self.slots.reach_run(index, left, Slot::zero);
            for slot in slots {
                visit(slot.head.load(Ordering::Relaxed));
                visit(slot.filter.load(Ordering::Relaxed));
            }
            (index, left) = (index + slots.len(), left - slots.len());
        }
    }

    /// Takes `count` blocks that nobody has used yet; returns the number of the first.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn take_new(&self, count: u64) -> Result<u64> {
        let mut free = self.free.lock()?;
        let first = free.count;
        free.count += count;
        Ok(first)
    }

    /// Gives back blocks that were taken and are on no side.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn give_back(&self, numbers: core::ops::Range<u64>) -> Result<()> {
        self.free.lock()?.blocks.extend(numbers);
        Ok(())
    }

    /// Makes a block that was taken one of a side, with the words that a visit showed. Nobody reads
    /// the side yet.
    pub fn set_block(&self, side: &Side<P>, block: u64, number: u64, words: &[u64]) {
        let (mut index, mut words) = ((number as usize) << self.block_level, words);
        while !words.is_empty() {
            let slots = self.slots.reach_run(index, words.len() / 2, Slot::zero);
            let (now, later) = words.split_at(2 * slots.len());
            for (slot, pair) in slots.iter().zip(now.chunks_exact(2)) {
                slot.head.store(pair[0], Ordering::Relaxed);
                slot.filter.store(pair[1], Ordering::Relaxed);
            }
            (index, words) = (index + slots.len(), later);
        }
        let entry = side.index.reach(block as usize, || AtomicWord::new(0));
        entry.store(number + 1, Ordering::Release);
    }

    /// Returns the DRAM that all blocks take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.slots.bytes()
    }

    /// Returns where a directory lies, if its block is there.
    #[inline(always)]
    fn find(&self, side: &Side<P>, directory: u64) -> Option<usize> {
        let (block, offset) = self.parts(directory);
        let number = side.index.get(block)?.load(Ordering::Acquire) as usize;
        (number != 0).then(|| ((number - 1) << self.block_level) + offset)
    }

    #[inline(always)]
    fn parts(&self, directory: u64) -> (usize, usize) {
        let offset = directory as usize & ((1 << self.block_level) - 1);
        ((directory >> self.block_level) as usize, offset)
    }

    fn add_block(&self, side: &Side<P>, directory: u64) -> Result<usize> {
        let mut free = self.free.lock()?;
        let number = free.blocks.pop().unwrap_or(free.count);
        free.count = free.count.max(number + 1);
        drop(free);
        let (block, offset) = self.parts(directory);
        let first = (number as usize) << self.block_level;
        for index in first..first + (1 << self.block_level) {
            let slot = self.slots.reach(index, Slot::zero);
            slot.head.store(0, Ordering::Relaxed);
            slot.filter.store(0, Ordering::Relaxed);
        }
        let entry = side.index.reach(block, || AtomicWord::new(0));
        entry.store(number + 1, Ordering::Release);
        Ok(first + offset)
    }
}

impl<P: Primitives> Slot<P> {
    fn zero() -> Self {
        Slot { head: AtomicWord::new(0), filter: AtomicWord::new(0) }
    }
}

impl<P: Primitives> Side<P> {
    /// Makes a side without directories.
    pub fn new() -> Self {
        Side { index: Growing::new() }
    }

    /// Returns the DRAM that the index takes. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.index.bytes() + size_of_val(&*self.index.parts) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everhash_pmem::Std;

    #[test]
    fn every_element_has_a_place_of_its_own() {
        // Fails if two elements share a place, or one lies behind the end of its part.
        const PARTS: u32 = 8;
        let mut before: Option<(usize, usize)> = None;
        for index in 0..100_000 {
            let (part, offset) = place(index, PARTS);
            assert!(offset < 1 << (part as u32 / PARTS), "{index}");
            let expected = match before {
                Some((part, offset)) if offset + 1 < 1usize << (part as u32 / PARTS) => {
                    (part, offset + 1)
                }
                Some((part, _)) => (part + 1, 0),
                None => (0, 0),
            };
            assert_eq!((part, offset), expected, "{index}");
            before = Some((part, offset));
        }
    }

    #[test]
    fn blocks_are_taken_for_writes_only_and_used_again() {
        // Fails if a read takes DRAM, if a directory keeps what its block held before, or if
        // clearing loses blocks.
        let blocks = Blocks::<Std>::new(4);
        let side = Side::new();
        assert_eq!(blocks.read(&side, 1000), Directory::default());
        assert_eq!(blocks.dram_bytes(), 0);
        for directory in [0, 5, 1000] {
            blocks.push(&side, directory, Addr::new(64), 3).unwrap();
            assert!(blocks.read(&side, directory).may_hold(3));
        }
        let before = blocks.dram_bytes();
        blocks.clear(&side, 10).unwrap();
        for directory in [1, 6, 1001] {
            blocks.push(&side, directory, Addr::new(128), 3).unwrap();
        }
        assert_eq!(blocks.read(&side, 0), Directory::default());
        assert_eq!(blocks.dram_bytes(), before);
    }

    #[test]
    fn doubling_parts_a_directory_into_neighbours() {
        // Fails if a scan or a rehash by neighbours would miss a key.
        for hash in [0, 1 << 47, 0x1234_5678_9abc_def0, u64::MAX] {
            for level in 0..32 {
                assert_eq!(directory_of(hash, level + 1) / 2, directory_of(hash, level));
            }
        }
    }
}
