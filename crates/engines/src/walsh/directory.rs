//! The two-level directory (3.1.1): an index of blocks for each area, and blocks of directories,
//! taken from a common pool when the first write needs one.
//!
//! A directory is two words (`layout/directory.rs`). Indexes and blocks are runs of words in one
//! arena; they never move, and go back to its free runs only, so that a reader may look at one that
//! has found another use: it notices by the area's view, and looks again.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Bits, LINE, Lock, Parts, Primitives, WORD, prefetch};

use super::layout::{DIRECTORY_HASH, Directory};

/// Length of the arena's part 0, which is never made: a place in it says that there is none.
///
/// Unit: words. Source: ours; a small table takes little more than it needs.
const FIRST_PART: u64 = 4;

/// Where a run begins, as a word: its part, of which there are as many as [`Parts`] has, and the
/// word in it.
const PLACE_PART: Bits = Bits::new(48, 6);
/// The word in the part.
const PLACE_WORD: Bits = Bits::new(0, 48);

/// Words of a directory. Both lie in one cache line.
const SLOT_WORDS: u64 = 2;

/// Words of a line.
const LINE_WORDS: u64 = LINE / WORD;

/// The unit in which memory is counted of which much may never be touched. Unit: words.
const PAGE_WORDS: u64 = 4096 / WORD;

/// The most of the arena that a thread takes for itself at a time.
///
/// Unit: words. Source: ours; the 2 MiB of a large page of most machines. When two threads touch
/// one for the first time, both clear it, and what one of them did is thrown away.
const STOCK_WORDS: u64 = (2 << 20) / WORD;

/// All directories of a table, and their indexes.
pub struct Blocks<P: Primitives> {
    /// Each twice as long as the one before, so that there are more than there can be DRAM, and
    /// there from its first use on.
    parts: Parts<P::AtomicU64>,
    /// Directories of a block, as a base-2 logarithm.
    block_level: u32,
    free: P::Mutex<Free>,
}

/// Which runs of the arena are free.
#[derive(Default)]
struct Free {
    /// Runs that were given back, or that did not fit anything else, by the logarithms of their
    /// lengths.
    runs: Vec<Vec<u64>>,
    /// The part behind whose used words everything is free; the parts before have none.
    part: u64,
    used: u64,
}

/// Blocks that a recovering thread has taken and not used yet: it shares neither the lock nor a
/// page for each.
#[derive(Debug)]
pub struct Stock {
    next: u64,
    left: u64,
    /// How many it will use yet, as far as that is known.
    expected: u64,
    /// Areas that it has not begun yet.
    areas: u64,
}

impl Stock {
    /// Makes an empty stock for a thread that recovers so many areas.
    pub fn new(areas: u64) -> Stock {
        Stock { next: 0, left: 0, expected: 0, areas }
    }

    /// Says how many blocks the next area uses at most; those behind it will use about as many.
    pub fn expect(&mut self, blocks: u64) {
        self.expected = blocks.saturating_mul(self.areas);
        self.areas = self.areas.saturating_sub(1);
    }
}

/// Where a directory lies.
pub struct Slot<'b, P: Primitives>(&'b [P::AtomicU64; SLOT_WORDS as usize]);

impl<P: Primitives> Clone for Slot<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitives> Copy for Slot<'_, P> {}

impl<P: Primitives> Slot<'_, P> {
    /// Reads the directory, without a lock.
    #[inline(always)]
    pub fn read(self) -> Directory {
        let [newer, older] = self.0;
        let newer = newer.load(Ordering::Acquire);
        // Behind the newer word, and stored before it: what that passed over is there. It may be
        // of an object that comes after; whatever it passed over is behind that.
        Directory { newer, older: older.load(Ordering::Acquire) }
    }

    /// Says that the directory will be read soon.
    #[inline(always)]
    pub fn prefetch(self) {
        prefetch(self.0);
    }

    /// Says something else. The caller holds the area's lock.
    #[inline(always)]
    pub fn write(self, directory: Directory) {
        let [newer, older] = self.0;
        older.store(directory.older, Ordering::Release);
        newer.store(directory.newer, Ordering::Release);
    }
}

/// The directories of one area, of one generation: where their index lies, which has the place of
/// each block; 0 = there is none yet.
pub struct Side<P: Primitives> {
    index: P::AtomicU64,
}

/// Returns the directory of a key among 2^`level`.
///
/// The high bits choose, so that doubling parts each directory into two neighbours.
#[inline(always)]
pub const fn directory_of(hash: u64, level: u32) -> u64 {
    DIRECTORY_HASH.get(hash) >> (32 - level)
}

impl<P: Primitives> Blocks<P> {
    /// Makes an arena without blocks of `block_directories`, a power of two.
    pub fn new(block_directories: u64) -> Self {
        Blocks {
            parts: Parts::new(),
            block_level: block_directories.ilog2(),
            free: Lock::new(Free::default()),
        }
    }

    /// Reads a directory, without a lock.
    #[inline(always)]
    pub fn read(&self, side: &Side<P>, directory: u64) -> Directory {
        self.slot(side, directory).map_or_else(Directory::default, Slot::read)
    }

    /// Returns where a directory lies, if its block is there.
    #[inline(always)]
    pub fn slot(&self, side: &Side<P>, directory: u64) -> Option<Slot<'_, P>> {
        let index = side.index.load(Ordering::Acquire);
        // A reader that comes too late may find anything there.
        let (part, word) = split(index.wrapping_add(directory >> self.block_level));
        let block = self.parts.get(part, word)?.load(Ordering::Acquire);
        let offset = directory & ((1 << self.block_level) - 1);
        // A slot begins at a multiple of its length.
        let (part, word) = split(block);
        self.parts.around(part, word + (SLOT_WORDS * offset) as usize).map(Slot)
    }

    /// Makes an object the head of the chain of its hash, among 2^`level` directories. The caller
    /// holds the area's lock.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a panic inside.
    #[inline]
    pub fn push(&self, side: &Side<P>, level: u32, hash: u64, object: Addr) -> Result<()> {
        self.push_with(side, level, (hash, object), || self.take(self.block_log()))
    }

    /// As [`Blocks::push`], with blocks out of a stock.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    #[inline]
    pub fn push_from(
        &self,
        stock: &mut Stock,
        side: &Side<P>,
        level: u32,
        object: (u64, Addr),
    ) -> Result<()> {
        self.push_with(side, level, object, || self.take_from(stock))
    }

    #[inline(always)]
    fn push_with(
        &self,
        side: &Side<P>,
        level: u32,
        (hash, object): (u64, Addr),
        take: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let directory = directory_of(hash, level);
        let slot = match self.slot(side, directory) {
            Some(slot) => slot,
            None => self.add_block(side, level, directory, take()?)?,
        };
        slot.write(slot.read().with(hash, object));
        Ok(())
    }

    /// Empties a side of 2^`level` directories. The caller holds the area's lock and has changed
    /// the area's view.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn clear(&self, side: &Side<P>, level: u32) -> Result<()> {
        let index = side.index.load(Ordering::Relaxed);
        if index == 0 {
            return Ok(());
        }
        let mut free = self.free.lock()?;
        for (_, place) in self.of_side(side, level) {
            free.give(place, self.block_log());
        }
        side.index.store(0, Ordering::Relaxed);
        free.give(index, self.index_log(level));
        Ok(())
    }

    /// Returns which blocks of a side of 2^`level` directories there are, each with its place, in
    /// ascending order.
    pub fn of_side(&self, side: &Side<P>, level: u32) -> impl Iterator<Item = (u64, u64)> {
        let index = side.index.load(Ordering::Relaxed);
        let entries = (0..self.most_blocks(level)).zip(self.words(index));
        let blocks = entries.map(|(block, entry)| (block, entry.load(Ordering::Relaxed)));
        blocks.filter(|(_, place)| *place != 0)
    }

    /// Returns how many blocks 2^`level` directories have at most.
    pub fn most_blocks(&self, level: u32) -> u64 {
        1 << level.saturating_sub(self.block_level)
    }

    /// Returns how many words the directories of a block are.
    pub fn block_words(&self) -> usize {
        1 << self.block_log()
    }

    /// Visits the words of a block's directories as they lie here.
    pub fn visit_block(&self, place: u64, mut visit: impl FnMut(u64)) {
        let words = self.words(place).iter().take(self.block_words());
        words.for_each(|word| visit(word.load(Ordering::Relaxed)));
    }

    /// Adds a block to a side of 2^`level` directories, with the words that a visit showed. Nobody
    /// reads the side yet.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn set_block(
        &self,
        stock: &mut Stock,
        (side, level): (&Side<P>, u32),
        block: u64,
        words: &[u64],
    ) -> Result<()> {
        let index = self.index(side, level)?;
        let place = self.take_from(stock)?;
        for (word, value) in self.words(place).iter().zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        self.enter(index, block, place);
        Ok(())
    }

    /// Gives what is left of a stock back.
    ///
    /// # Errors
    /// As [`Blocks::push`].
    pub fn put_back(&self, stock: Stock) -> Result<()> {
        self.free.lock()?.give_blocks(stock.next, stock.left, self.block_log());
        Ok(())
    }

    /// Returns the DRAM that all blocks and indexes take. Unit: bytes; of the arena's last part,
    /// which is taken from the kernel as it is stored to, what was ever in use.
    pub fn dram_bytes(&self) -> Result<u64> {
        let free = self.free.lock()?;
        let last = self.parts.count(free.part as usize) as u64;
        let untouched = last.saturating_sub(free.used.next_multiple_of(PAGE_WORDS));
        let runs: usize = free.runs.iter().map(Vec::capacity).sum();
        Ok((self.parts.total() as u64 - untouched + runs as u64) * WORD)
    }

    /// Returns the words from a place on to the end of its part; none if there is no such place.
    fn words(&self, place: u64) -> &[P::AtomicU64] {
        let (part, word) = split(place);
        self.parts.all(part).get(word..).unwrap_or(&[])
    }

    /// Returns the length of a block as a base-2 logarithm. Unit: words.
    fn block_log(&self) -> u32 {
        self.block_level + SLOT_WORDS.ilog2()
    }

    /// Returns the length of the index of 2^`level` directories as a base-2 logarithm. Unit:
    /// words; no less than a directory has, so that none of those begins in the middle of another.
    fn index_log(&self, level: u32) -> u32 {
        level.saturating_sub(self.block_level).max(SLOT_WORDS.ilog2())
    }

    /// Adds the block at a place, for a directory of a side.
    #[cold]
    fn add_block(
        &self,
        side: &Side<P>,
        level: u32,
        directory: u64,
        block: u64,
    ) -> Result<Slot<'_, P>> {
        let index = self.index(side, level)?;
        let words = self.words(block).iter().take(self.block_words());
        words.for_each(|word| word.store(0, Ordering::Relaxed));
        self.enter(index, directory >> self.block_level, block);
        Ok(self.slot(side, directory).expect("its block was added"))
    }

    /// Returns where the index of a side lies; makes one without blocks if there is none.
    fn index(&self, side: &Side<P>, level: u32) -> Result<u64> {
        let index = side.index.load(Ordering::Relaxed);
        if index != 0 {
            return Ok(index);
        }
        let index = self.take(self.index_log(level))?;
        let words = self.words(index).iter().take(1 << self.index_log(level));
        words.for_each(|word| word.store(0, Ordering::Relaxed));
        side.index.store(index, Ordering::Release);
        Ok(index)
    }

    /// Enters the place of a block in an index.
    fn enter(&self, index: u64, block: u64, place: u64) {
        let (part, word) = split(index + block);
        let entry = self.parts.get(part, word).expect("the index is that long");
        entry.store(place, Ordering::Release);
    }

    /// Takes a run of 2^`log` words.
    fn take(&self, log: u32) -> Result<u64> {
        let place = self.free.lock()?.take(log, self.block_log());
        Ok(self.made(place))
    }

    /// Takes a block out of a stock, and fills that if it is empty.
    fn take_from(&self, stock: &mut Stock) -> Result<u64> {
        let log = self.block_log();
        if stock.left == 0 {
            let count = stock.expected.min(STOCK_WORDS >> log);
            (stock.next, stock.left) = self.free.lock()?.take_blocks(count, log);
            self.made(stock.next);
        }
        let place = stock.next;
        (stock.next, stock.left) = (place + (1 << log), stock.left - 1);
        stock.expected = stock.expected.saturating_sub(1);
        Ok(place)
    }

    /// Makes the part of the arena that a place lies in, if that is new.
    fn made(&self, place: u64) -> u64 {
        let part = PLACE_PART.get(place);
        if self.parts.count(part as usize) == 0 {
            // Some may lie before the first line. Whoever is first adds them; the words of the
            // other one are dropped.
            self.parts.add(part as usize, P::words(((FIRST_PART << part) + LINE_WORDS) as usize));
        }
        place
    }
}

/// Returns the part that a place lies in, and the word there.
#[inline(always)]
fn split(place: u64) -> (usize, usize) {
    (PLACE_PART.get(place) as usize, PLACE_WORD.get(place) as usize)
}

impl Free {
    /// Takes a run of 2^`log` words out of the free ones; a block may be part of a longer run.
    fn take(&mut self, log: u32, block_log: u32) -> u64 {
        let longest = if log == block_log { self.runs.len() } else { log as usize + 1 };
        for length in log as usize..longest.min(self.runs.len()) {
            if let Some(place) = self.runs[length].pop() {
                (1..1 << (length as u32 - log)).for_each(|n| self.give(place + (n << log), log));
                return place;
            }
        }
        while self.part == 0 || self.used + (1 << log) > FIRST_PART << self.part {
            // What is left of a part is too short for this run, and not for blocks.
            while self.part != 0 && self.used + (1 << block_log) <= FIRST_PART << self.part {
                let block = self.cut(block_log);
                self.give(block, block_log);
            }
            (self.part, self.used) = (self.part + 1, 0);
        }
        self.cut(log)
    }

    /// Takes at least one block, and others behind it as far as there are and `count` allows;
    /// returns where they begin and how many there are.
    fn take_blocks(&mut self, count: u64, log: u32) -> (u64, u64) {
        let first = self.take(log, log);
        if first + (1 << log) != self.end() {
            return (first, 1);
        }
        let more = ((FIRST_PART << self.part) - self.used) >> log;
        let more = more.min(count.saturating_sub(1));
        self.used += more << log;
        (first, 1 + more)
    }

    /// Gives `count` blocks back that lie one behind the other.
    fn give_blocks(&mut self, place: u64, count: u64, log: u32) {
        if place + (count << log) == self.end() {
            self.used -= count << log;
        } else {
            (0..count).for_each(|block| self.give(place + (block << log), log));
        }
    }

    /// Returns the place behind the used words of the last part.
    fn end(&self) -> u64 {
        PLACE_PART.set(self.used, self.part)
    }

    /// Takes a run from behind the used words of the last part.
    fn cut(&mut self, log: u32) -> u64 {
        let place = self.end();
        self.used += 1 << log;
        place
    }

    /// Gives a run of 2^`log` words back.
    fn give(&mut self, place: u64, log: u32) {
        let lists = self.runs.len().max(log as usize + 1);
        self.runs.resize_with(lists, Vec::new);
        self.runs[log as usize].push(place);
    }
}

impl<P: Primitives> Side<P> {
    /// Makes a side without directories.
    pub fn new() -> Self {
        Side { index: AtomicWord::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everhash_pmem::Std;

    #[test]
    fn no_word_of_the_arena_is_used_twice() {
        // Fails if two runs overlap, if one lies behind the end of its part, or if what does not
        // fit is lost: long and short indexes and blocks, taken and given back in disorder.
        const BLOCK_LOG: u32 = 6;
        let mut free = Free::default();
        let mut runs: Vec<(u64, u32)> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let log = [1, 4, BLOCK_LOG, BLOCK_LOG, BLOCK_LOG, 9][(random >> 40) as usize % 6];
            if step % 3 == 2 {
                let (place, log) = runs.swap_remove((random >> 33) as usize % runs.len());
                free.give(place, log);
            } else if step % 5 == 1 {
                // Of several blocks some are given back together, the last ones or all.
                let (first, count) = free.take_blocks(random >> 60, BLOCK_LOG);
                let kept = (random >> 50) % (count + 1);
                runs.extend((0..kept).map(|block| (first + (block << BLOCK_LOG), BLOCK_LOG)));
                free.give_blocks(first + (kept << BLOCK_LOG), count - kept, BLOCK_LOG);
            } else {
                runs.push((free.take(log, BLOCK_LOG), log));
            }
        }
        let left = free.runs.iter().enumerate();
        runs.extend(left.flat_map(|(log, runs)| runs.iter().map(move |run| (*run, log as u32))));
        runs.sort_unstable();
        assert!(runs.windows(2).all(|pair| pair[0].0 + (1 << pair[0].1) <= pair[1].0));
        for (place, log) in &runs {
            let part = PLACE_PART.get(*place);
            assert!(PLACE_WORD.get(*place) + (1 << log) <= FIRST_PART << part && part > 0);
        }
        let words: u64 = runs.iter().map(|(_, log)| 1 << log).sum();
        let made: u64 = (1..free.part).map(|part| FIRST_PART << part).sum::<u64>() + free.used;
        assert!(words > made * 9 / 10, "{words} of {made} words are in use or free");
    }

    #[test]
    fn blocks_are_taken_for_writes_only_and_used_again() {
        // Fails if a read takes DRAM, if a directory keeps what its block held before, or if
        // clearing loses blocks or indexes.
        const LEVEL: u32 = 10;
        let hash = |directory: u64| DIRECTORY_HASH.set(3, directory << (32 - LEVEL));
        let blocks = Blocks::<Std>::new(4);
        let side = Side::new();
        assert_eq!(blocks.read(&side, 1000), Directory::default());
        assert_eq!(blocks.dram_bytes().unwrap(), 0);
        let mut taken = Vec::new();
        for round in 0..5u64 {
            for directory in [0, 5, 1000].map(|directory| directory + round) {
                blocks.push(&side, LEVEL, hash(directory), Addr::new(64)).unwrap();
                assert_eq!(blocks.read(&side, directory).start(3), Addr::new(64));
            }
            assert_eq!(blocks.read(&side, 11), Directory::default());
            taken.push(blocks.dram_bytes().unwrap());
            blocks.clear(&side, LEVEL).unwrap();
            assert_eq!(blocks.read(&side, 0), Directory::default());
        }
        // Only the list of what is free is new in the second round.
        assert!(taken[1..].iter().all(|bytes| *bytes == taken[1]), "{taken:?}");
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
