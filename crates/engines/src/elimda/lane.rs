//! A lane of the backup log in DRAM: its blocks, and which of them are needed.

use std::collections::VecDeque;

use everhash_pmem::Addr;

use super::layout::Geometry;

/// The log of some buckets.
pub struct Lane {
    /// The blocks in use, oldest first; the last one is open.
    pub(super) blocks: VecDeque<Block>,
    /// Number of the oldest block.
    pub(super) first: u64,
    /// The order number of the next item.
    pub(super) next: u64,
    /// Blocks to be used next.
    pub(super) free: Vec<FreeBlock>,
}

/// A block in use.
pub struct Block {
    /// Where it lies.
    pub at: Addr,
    /// Items in D-buckets whose durable copy lies here, and slots that are being filled.
    pub live: u64,
}

/// A block that is not in use.
pub struct FreeBlock {
    /// Where it lies.
    pub at: Addr,
    /// What its lines hold.
    pub holds: Holds,
}

/// What free space holds, of a block or of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Zero, or states with lower numbers: nothing has to be written but what counts.
    OldStates,
    /// Anything.
    Anything,
}

impl Lane {
    /// Makes the lane of `blocks`, the first of which has number `first`; `next` is the order
    /// number of the next item.
    pub fn new(blocks: VecDeque<Block>, first: u64, next: u64) -> Self {
        Lane { blocks, first, next, free: Vec::new() }
    }

    /// Returns the number of the open block.
    pub fn last_number(&self) -> u64 {
        self.first + self.blocks.len() as u64 - 1
    }

    /// Returns whether the open block has no free slot.
    pub fn is_full(&self, geometry: &Geometry) -> bool {
        self.next == (self.last_number() + 1) * geometry.block_slots()
    }

    /// Returns the block in which an order number lies.
    pub fn block(&mut self, geometry: &Geometry, order: u64) -> &mut Block {
        let index = geometry.block_number(order) - self.first;
        &mut self.blocks[index as usize]
    }

    /// Returns how many blocks are in use, and how many are free.
    pub fn blocks(&self) -> (u64, u64) {
        (self.blocks.len() as u64, self.free.len() as u64)
    }

    /// Returns the oldest block and its number, unless it is the open one.
    pub fn oldest(&self) -> Option<(Addr, u64)> {
        (self.blocks.len() > 1).then(|| (self.blocks[0].at, self.first))
    }
}
