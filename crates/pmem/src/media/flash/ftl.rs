//! The flash translation layer: the map of pages, and garbage collection.

use core::ops::Sub;
use std::collections::VecDeque;

use super::super::random::Random;
use super::victim::choose;
use crate::profile::{FlashDevice, Victim};

/// No page.
const NONE: u32 = u32::MAX;

/// A block of flash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// Valid pages.
    pub(super) valid: u32,
    /// Pages that were written since the last erasure.
    pub(super) written: u32,
    /// The page writes of the host when the last page was written.
    pub(super) closed_at: u64,
    stream: u8,
    erases: u32,
}

impl Block {
    /// Returns whether every page was written.
    pub(super) fn is_full(&self, block_pages: u32) -> bool {
        self.written == block_pages
    }
}

/// What a translation layer counts. Unit: pages, except erasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlCounters {
    /// Pages written by the host.
    pub host_writes: u64,
    /// Pages written to flash, those that garbage collection moved included.
    pub flash_writes: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Pages that the host released.
    pub trims: u64,
}

impl Sub for FtlCounters {
    type Output = FtlCounters;

    /// Returns what came between two snapshots.
    ///
    /// # Panics
    /// If `before` is the later one.
    fn sub(self, before: FtlCounters) -> FtlCounters {
        let less = |after: u64, before: u64| {
            after.checked_sub(before).expect("the snapshots are subtracted the wrong way")
        };
        FtlCounters {
            host_writes: less(self.host_writes, before.host_writes),
            flash_writes: less(self.flash_writes, before.flash_writes),
            erases: less(self.erases, before.erases),
            trims: less(self.trims, before.trims),
        }
    }
}

impl FtlCounters {
    /// Returns pages written to flash for each page that the host wrote: the internal write
    /// amplification of Tiered Hashing.
    pub fn internal_write_amplification(&self) -> f64 {
        self.flash_writes as f64 / self.host_writes as f64
    }
}

/// What one stream has cost, and what it holds. Unit: pages, except erasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUse {
    /// Pages that the host wrote to it.
    pub host_writes: u64,
    /// Pages of its blocks that garbage collection moved.
    pub moved: u64,
    /// Blocks of it that were erased.
    pub erases: u64,
    /// Pages of its blocks that are in use now.
    pub valid: u64,
    /// Pages of its blocks that are written now, and not in use.
    pub stale: u64,
}

/// The work of the device for one page write, that write included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Pages moved by garbage collection, each one read and one write.
    pub moved: u64,
    /// Blocks erased.
    pub erased: u64,
}

/// A page-mapped translation layer with one open block for each stream.
#[derive(Debug)]
pub struct Ftl {
    block_pages: u32,
    /// Free blocks at which collection begins, beside one for each stream that is in use.
    low_water: usize,
    victim: Victim,
    blocks: Vec<Block>,
    /// For each logical page where it lies, or [`NONE`].
    places: Vec<u32>,
    /// For each place the logical page in it, or [`NONE`].
    pages: Vec<u32>,
    open: Vec<Option<u32>>,
    used_streams: Vec<bool>,
    free: VecDeque<u32>,
    counters: FtlCounters,
    /// What each stream has cost; what it holds is counted when that is asked for.
    costs: Vec<StreamUse>,
    random: Random,
}

impl Ftl {
    /// Makes an empty layer.
    ///
    /// # Panics
    /// If the spare space does not hold the open and free blocks of all streams, so that garbage
    /// collection could find nothing to win; or if there are 2^32 pages.
    pub fn new(device: &FlashDevice, seed: u64) -> Ftl {
        let pages = device.blocks * device.block_pages;
        assert!(pages < u64::from(NONE), "a page number has 32 bits");
        let spare_blocks = device.spare_blocks();
        assert!(
            spare_blocks > device.most_open_blocks(),
            "{spare_blocks} spare blocks are too few for {} streams",
            device.streams
        );
        Ftl {
            block_pages: device.block_pages as u32,
            low_water: device.low_water_blocks as usize,
            victim: device.victim,
            blocks: vec![Block::default(); device.blocks as usize],
            places: vec![NONE; device.logical_pages() as usize],
            pages: vec![NONE; pages as usize],
            open: vec![None; device.streams as usize],
            used_streams: vec![false; device.streams as usize],
            free: (0..device.blocks as u32).collect(),
            counters: FtlCounters::default(),
            costs: vec![StreamUse::default(); device.streams as usize],
            random: Random::new(seed),
        }
    }

    /// Returns the number of logical pages.
    pub fn logical_pages(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the counters.
    pub fn counters(&self) -> FtlCounters {
        self.counters
    }

    /// Returns what each stream has cost so far, and what it holds.
    pub fn streams(&self) -> Vec<StreamUse> {
        let mut streams = self.costs.clone();
        for block in &self.blocks {
            let stream = &mut streams[usize::from(block.stream)];
            stream.valid += u64::from(block.valid);
            stream.stale += u64::from(block.written - block.valid);
        }
        streams
    }

    /// Returns how often each block was erased.
    pub fn erase_counts(&self) -> Vec<u32> {
        self.blocks.iter().map(|block| block.erases).collect()
    }

    /// Writes a logical page to a stream.
    ///
    /// # Panics
    /// If there is no such page or stream.
    pub fn write(&mut self, page: u64, stream: u8) -> Outcome {
        self.invalidate(page as usize);
        self.counters.host_writes += 1;
        self.costs[usize::from(stream)].host_writes += 1;
        self.append(page as u32, stream);
        if !core::mem::replace(&mut self.used_streams[usize::from(stream)], true) {
            self.low_water += 1;
        }
        let mut outcome = Outcome::default();
        // Each victim but a random one wins at least a page; a random one does so on average.
        let bound = 64 * self.blocks.len();
        for _ in 0..bound {
            if self.free.len() > self.low_water {
                return outcome;
            }
            outcome.moved += self.collect();
            outcome.erased += 1;
        }
        panic!("garbage collection wins no space; give the profile a larger spare_ratio");
    }

    /// Forgets a logical page.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn trim(&mut self, page: u64) {
        if self.invalidate(page as usize) {
            self.counters.trims += 1;
        }
    }

    fn invalidate(&mut self, page: usize) -> bool {
        let place = core::mem::replace(&mut self.places[page], NONE);
        if place == NONE {
            return false;
        }
        self.pages[place as usize] = NONE;
        self.blocks[(place / self.block_pages) as usize].valid -= 1;
        true
    }

    /// Writes a page behind the last one of its stream.
    fn append(&mut self, page: u32, stream: u8) {
        let index = match self.open[usize::from(stream)] {
            Some(index) => index,
            None => {
                let index =
                    self.free.pop_front().expect("collection keeps more blocks than streams");
                self.open[usize::from(stream)] = Some(index);
                self.blocks[index as usize].stream = stream;
                index
            }
        };
        let block = &mut self.blocks[index as usize];
        let place = index * self.block_pages + block.written;
        block.written += 1;
        block.valid += 1;
        self.counters.flash_writes += 1;
        if block.is_full(self.block_pages) {
            block.closed_at = self.counters.host_writes;
            self.open[usize::from(stream)] = None;
        }
        self.places[page as usize] = place;
        self.pages[place as usize] = page;
    }

    /// Empties one block; returns the pages that had to move.
    fn collect(&mut self) -> u64 {
        let now = self.counters.host_writes;
        let chosen = choose(self.victim, &self.blocks, now, self.block_pages, &mut self.random);
        let index = chosen.expect("with few free blocks left, some are full");
        let block = self.blocks[index];
        assert!(
            block.valid < self.block_pages || self.victim == Victim::Random,
            "every full block is valid to its last page; give the profile a larger spare_ratio"
        );
        let first = index * self.block_pages as usize;
        for place in first..first + self.block_pages as usize {
            let page = core::mem::replace(&mut self.pages[place], NONE);
            if page != NONE {
                // Back to its own stream, so that what was kept apart stays apart.
                self.append(page, block.stream);
            }
        }
        self.blocks[index] = Block { erases: block.erases + 1, ..Block::default() };
        self.free.push_back(index as u32);
        self.counters.erases += 1;
        let cost = &mut self.costs[usize::from(block.stream)];
        cost.moved += u64::from(block.valid);
        cost.erases += 1;
        u64::from(block.valid)
    }
}
