//! A lane of the backup log in DRAM: its blocks, and which of them are needed.

use std::collections::VecDeque;

use everhash_pmem::Addr;

use super::layout::{Geometry, LogSlot};

/// Free blocks that a lane keeps, whether it has used them or not.
///
/// Unit: blocks. Source: ours; with one in hand a lane goes on once its oldest items are relocated,
/// also on a full medium. What is given back must be written whole when it is used again.
const KEPT: usize = 1;

/// The log of some buckets.
#[repr(align(128))]
pub struct Lane {
    /// The blocks in use, oldest first; the last one is open.
    pub blocks: VecDeque<Block>,
    /// Number of the oldest block.
    pub first: u64,
    /// The order number of the next item.
    pub next: u64,
    /// Blocks to be used next, the last one first.
    pub free: Vec<FreeBlock>,
    /// How many of them nobody has used since the last upkeep: the first ones.
    pub idle: usize,
    /// How many blocks it may have at least before its oldest items are relocated early: the table
    /// may have grown since.
    pub most: u64,
}

/// A slot that was handed out.
pub struct Taken {
    /// Its order number.
    pub order: u64,
    /// The number of its block.
    pub number: u64,
    /// Where that lies.
    pub block: Addr,
    /// The slot there.
    pub slot: LogSlot,
}

/// A block in use.
pub struct Block {
    /// Where it lies.
    pub at: Addr,
    /// A bit for each slot: those that are being filled, and those with the durable copy of an item
    /// in a D-bucket.
    needed: Box<[u64]>,
    /// How many they are.
    count: u64,
    /// How many of them were reserved and hold nothing yet: a thread is about to fill them, or to
    /// give them back.
    reserved: u64,
}

impl Block {
    /// Makes a block of which no slot is needed.
    pub fn new(at: Addr, geometry: &Geometry) -> Block {
        let words = geometry.block_slots().div_ceil(64) as usize;
        Block { at, needed: vec![0; words].into(), count: 0, reserved: 0 }
    }

    fn need(&mut self, index: usize, bit: u64) {
        debug_assert_eq!(self.needed[index] & bit, 0, "a slot is handed out once");
        self.needed[index] |= bit;
        self.count += 1;
    }

    /// Returns whether a slot is reserved and holds nothing yet.
    pub fn is_awaited(&self) -> bool {
        self.reserved > 0
    }

    /// Returns whether no slot is needed.
    pub fn is_dead(&self) -> bool {
        self.count == 0
    }

    /// Returns the first slot from `from` on that is needed.
    fn next_needed(&self, from: u64) -> Option<u64> {
        let first = (from / 64) as usize;
        let ahead = u64::MAX << (from % 64);
        let words = self.needed.iter().enumerate().skip(first);
        words
            .map(|(index, word)| (index, if index == first { word & ahead } else { *word }))
            .find(|(_, word)| *word != 0)
            .map(|(index, word)| 64 * index as u64 + u64::from(word.trailing_zeros()))
    }
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

/// Whether the oldest block of a lane can be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimed {
    /// It can.
    Free,
    /// Not before another thread fills a slot that it has reserved, or gives it back.
    Awaited,
    /// It cannot, or there is none beside the open one.
    Stuck,
}

impl Lane {
    /// Makes the lane of `blocks`, the first of which has number `first`; `next` is the order
    /// number of the next item.
    pub fn new(blocks: VecDeque<Block>, first: u64, next: u64) -> Self {
        Lane { blocks, first, next, free: Vec::new(), idle: 0, most: 0 }
    }

    /// Returns the number of the open block.
    pub fn last_number(&self) -> u64 {
        self.first + self.blocks.len() as u64 - 1
    }

    /// Returns whether the open block has no free slot.
    pub fn is_full(&self, geometry: &Geometry) -> bool {
        self.next == (self.last_number() + 1) * geometry.block_slots()
    }

    /// Hands out the next slot of the open block, which has one.
    pub fn take(&mut self, geometry: &Geometry) -> Taken {
        let (order, number) = (self.next, self.last_number());
        let slot = order - number * geometry.block_slots();
        let block = self.blocks.back_mut().expect("a lane has an open block");
        block.need((slot / 64) as usize, 1 << (slot % 64));
        self.next += 1;
        Taken { order, number, block: block.at, slot: geometry.slot_in_block(slot) }
    }

    /// As [`Lane::take`], of a slot that is filled, or given back, later: until then others wait
    /// for it.
    pub fn reserve(&mut self, geometry: &Geometry) -> Taken {
        let taken = self.take(geometry);
        self.blocks.back_mut().expect("a lane has an open block").reserved += 1;
        taken
    }

    /// Says that the slot with this order number, which was reserved, is filled or will never be.
    pub fn end_reservation(&mut self, geometry: &Geometry, order: u64) {
        let block = (geometry.block_number(order) - self.first) as usize;
        self.blocks[block].reserved -= 1;
    }

    /// Takes the next free block, if there is one.
    pub fn take_free(&mut self) -> Option<FreeBlock> {
        let free = self.free.pop();
        self.idle = self.idle.min(self.free.len());
        free
    }

    /// Takes a free block for another lane, if there is one beside those that are kept.
    pub fn take_surplus(&mut self) -> Option<FreeBlock> {
        if self.has_surplus() { self.take_free() } else { None }
    }

    /// Returns whether there are more free blocks than are kept.
    pub fn has_surplus(&self) -> bool {
        self.free.len() > KEPT
    }

    /// Takes the free blocks out that nobody has used since the last call, but for [`KEPT`].
    pub fn take_idle(&mut self) -> Vec<FreeBlock> {
        let surplus = self.idle.saturating_sub(KEPT);
        let idle = self.free.drain(..surplus).collect();
        self.idle = self.free.len();
        idle
    }

    /// Returns how many blocks nobody needs, from the oldest on, without the open one.
    pub fn dead_blocks(&self) -> usize {
        let dead = self.blocks.iter().take_while(|block| block.is_dead()).count();
        dead.min(self.blocks.len() - 1)
    }

    /// Returns where a slot lies that was handed out.
    pub fn taken(&self, geometry: &Geometry, order: u64) -> Taken {
        let number = geometry.block_number(order);
        let slot = geometry.slot_in_block(order - number * geometry.block_slots());
        Taken { order, number, block: self.block(geometry, order).at, slot }
    }

    /// Returns the block in which an order number lies.
    pub fn block(&self, geometry: &Geometry, order: u64) -> &Block {
        &self.blocks[(geometry.block_number(order) - self.first) as usize]
    }

    /// Says that the slot with this order number is needed.
    pub fn need(&mut self, geometry: &Geometry, order: u64) {
        let (block, index, bit) = self.slot(geometry, order);
        block.need(index, bit);
    }

    /// Says that the slot with this order number is not needed any more.
    pub fn release(&mut self, geometry: &Geometry, order: u64) {
        let (block, index, bit) = self.slot(geometry, order);
        debug_assert_ne!(block.needed[index] & bit, 0, "a slot is given up once");
        block.needed[index] &= !bit;
        block.count -= 1;
    }

    /// Takes a slot back that was reserved and holds nothing: it is the next one again, if no
    /// other was handed out since and it lies in the open block.
    pub fn give_back(&mut self, geometry: &Geometry, order: u64) {
        self.end_reservation(geometry, order);
        self.release(geometry, order);
        // The first slot of the open block may have been given back before the last one of the
        // block before it.
        if order + 1 == self.next && geometry.block_number(order) == self.last_number() {
            self.next = order;
        }
    }

    fn slot(&mut self, geometry: &Geometry, order: u64) -> (&mut Block, usize, u64) {
        let number = geometry.block_number(order);
        let slot = order - number * geometry.block_slots();
        let block = &mut self.blocks[(number - self.first) as usize];
        (block, (slot / 64) as usize, 1 << (slot % 64))
    }

    /// Returns the first order number from `from` on that is needed in the oldest block, if that
    /// has this number and is not the open one.
    pub fn next_needed(&self, geometry: &Geometry, number: u64, from: u64) -> Option<u64> {
        let oldest = self.oldest()?;
        let before = number * geometry.block_slots();
        let slot = self.blocks[0].next_needed(from - before)?;
        (oldest == number).then_some(before + slot)
    }

    /// Returns how many blocks are in use, and how many are free.
    pub fn blocks(&self) -> (u64, u64) {
        (self.blocks.len() as u64, self.free.len() as u64)
    }

    /// Returns the number of the oldest block, unless it is the open one.
    pub fn oldest(&self) -> Option<u64> {
        (self.blocks.len() > 1).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use everhash_index::Form;

    use super::*;
    use crate::elimda::ElimDaSettings;

    #[test]
    fn a_block_knows_which_of_its_slots_are_needed() {
        // Fails if a slot that is needed is passed over, if one is found that is not, or if the
        // open block is given away.
        let settings = ElimDaSettings { block_lines: 128, ..ElimDaSettings::tiny() };
        let geometry = settings.geometry(Form::WORDS).unwrap();
        let (number, slots) = (7, geometry.block_slots());
        let first = number * slots;
        let blocks = (1..3).map(|at| Block::new(Addr::new(at << 20), &geometry));
        let mut lane = Lane::new(blocks.collect(), number, first + slots);
        let needed = [0, 1, 63, 64, 130, slots - 1].map(|slot| first + slot);
        for order in needed.into_iter().chain([first + slots]) {
            lane.need(&geometry, order);
        }
        let all = |lane: &Lane, number| {
            let mut from = number * slots;
            core::iter::from_fn(|| {
                let order = lane.next_needed(&geometry, number, from)?;
                from = order + 1;
                Some(order)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(all(&lane, number), needed);
        assert_eq!(all(&lane, number + 1), [], "the open block");
        lane.release(&geometry, needed[3]);
        assert!(!all(&lane, number).contains(&needed[3]));
        needed.iter().filter(|order| **order != needed[3]).for_each(|order| {
            assert!(!lane.blocks[0].is_dead());
            lane.release(&geometry, *order);
        });
        assert!(lane.blocks[0].is_dead() && all(&lane, number).is_empty());
    }

    #[test]
    fn a_slot_that_is_given_back_is_the_next_one_again_in_the_open_block_only() {
        // Fails if a lane goes back into a block that is not the open one, or not back at all.
        let geometry = ElimDaSettings::tiny().geometry(Form::WORDS).unwrap();
        let (number, slots) = (7, geometry.block_slots());
        let block = |at: u64| Block::new(Addr::new(at << 20), &geometry);
        let mut lane = Lane::new([block(1)].into(), number, (number + 1) * slots - 1);
        let last = lane.reserve(&geometry).order;
        // Another thread finds the block full and opens the next one.
        assert!(lane.is_full(&geometry));
        lane.blocks.push_back(block(2));
        let first = lane.reserve(&geometry).order;
        assert_eq!(first, last + 1);
        lane.give_back(&geometry, first);
        lane.give_back(&geometry, last);
        assert_eq!(lane.take(&geometry).order, first);
    }

    #[test]
    fn free_blocks_that_nobody_uses_are_idle_but_for_one() {
        // Fails if a block that was used since the last upkeep is given away, or the last one, or
        // if what was not used stays.
        let geometry = ElimDaSettings::tiny().geometry(Form::WORDS).unwrap();
        let at = |number: u64| Addr::new(number << 20);
        let mut lane = Lane::new([Block::new(at(1), &geometry)].into(), 7, 7);
        let free = |number| FreeBlock { at: at(number), holds: Holds::OldStates };
        lane.free.extend((2..8).map(free));
        let taken = |blocks: Vec<FreeBlock>| blocks.iter().map(|it| it.at).collect::<Vec<_>>();
        assert_eq!(taken(lane.take_idle()), [], "nothing is known of them yet");
        let used = [lane.take_free(), lane.take_free()].map(|block| block.unwrap().at);
        assert_eq!(used, [at(7), at(6)]);
        lane.free.extend([6, 7].map(free));
        assert_eq!(taken(lane.take_idle()), [at(2), at(3), at(4)]);
        assert_eq!(taken(lane.take_idle()), [at(5), at(6)]);
        assert_eq!(taken(lane.take_idle()), []);
        assert_eq!(lane.take_free().unwrap().at, at(7));
    }
}
