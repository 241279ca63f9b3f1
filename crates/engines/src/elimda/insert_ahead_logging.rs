//! Insert-ahead logging (ElimDA 3.3, 3.7): every new item goes to a backup log, in order.
//!
//! The log has lanes. The bucket of a key chooses the lane, so that all items of a bucket, in
//! whatever segment, lie in one lane, and their positions in it rise: the position is the order
//! number of an item, and nothing has to be stored for it. An item is dead when its live bit is
//! clear, or when its number is not above the watermark of its bucket.
//!
//! A lane is a list of blocks with rising numbers. Its oldest blocks are reused when none of their
//! items is needed any more; the durable link to the first block is the floor below which
//! everything is dead, and moves before a block is written again.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Lock, Media, Span};

use super::form::{Form, Item, corrupt};
use super::lane::{Block, FreeBlock, Holds, Lane, Taken};
use super::layout::{self, BlockHead, Geometry, Kind, LineState, LogLine};
use super::setup::{block_head, empty_block};
use super::state::{ElimDa, LaneOf};

/// Where the log persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// An item, before the state of its line, where a line keeps no order.
        ITEM = "elimda/log/item";
        /// The state of a line that makes an item true.
        APPEND = "elimda/log/append";
        /// The state of a line that ends an item.
        END = "elimda/log/end";
        /// A value that is replaced in the log.
        VALUE = "elimda/log/value";
        /// A block that no link leads to yet.
        BLOCK = "elimda/log/block";
        /// The link to a new block.
        NEXT = "elimda/log/next";
        /// The link to the oldest block that is still needed.
        FIRST = "elimda/log/first";
    }
}

/// A slot of the log that was handed out and holds nothing yet. Dropped, it is given back: others
/// wait for it, and its block cannot be reused before.
#[must_use = "a reservation is filled or given back"]
pub struct Reserved<'t, M: Media> {
    lane: &'t LaneOf<M>,
    geometry: &'t Geometry,
    order: u64,
    crowded: bool,
    is_over: bool,
}

impl<M: Media> Drop for Reserved<'_, M> {
    fn drop(&mut self) {
        // A lane in which a thread panicked hands nothing out any more.
        if !self.is_over
            && let Ok(mut log) = self.lane.lock()
        {
            log.give_back(self.geometry, self.order);
        }
    }
}

/// An item that the log holds, durably.
pub struct Appended {
    /// Its order number.
    pub order: u64,
    /// Whether the lane has more blocks than it should.
    pub crowded: bool,
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Hands out a slot of a lane, or `None` if the lane has no room and the medium has none for
    /// another block.
    ///
    /// A crash leaves a block that no link leads to, or one that is empty.
    pub(super) fn reserve(&self, pm: &Access<'_, M>, lane: u64) -> Result<Option<Reserved<'_, M>>> {
        let (lane_of, geometry) = (&self.lanes[lane as usize], &self.geometry);
        let mut log = lane_of.lock()?;
        if !self.has_log_slot(pm, &mut log, lane)? {
            return Ok(None);
        }
        let order = log.reserve(geometry).order;
        let crowded = self.is_crowded(&mut log);
        Ok(Some(Reserved { lane: lane_of, geometry, order, crowded, is_over: false }))
    }

    /// Returns whether a locked lane has a slot to hand out, of the next block if need be.
    #[inline(always)]
    fn has_log_slot(&self, pm: &Access<'_, M>, log: &mut Lane, lane: u64) -> Result<bool> {
        Ok(!log.is_full(&self.geometry) || self.open_block(pm, log, lane)?)
    }

    /// Returns whether a lane has more blocks than it should, and the oldest one is needed.
    #[inline(always)]
    fn is_crowded(&self, log: &mut Lane) -> bool {
        let long = log.blocks.len() as u64 > log.most && self.is_long(log);
        long && !log.blocks[0].is_dead()
    }

    /// Returns whether a lane has more blocks than it should.
    #[inline(never)]
    fn is_long(&self, log: &mut Lane) -> bool {
        log.most = if self.geometry.bucket_units > 0 { self.most_blocks() } else { u64::MAX };
        log.blocks.len() as u64 > log.most
    }

    /// Hands out a slot of a lane and writes an item into it, durably, where item and state need
    /// one fence: as [`ElimDa::reserve`] and then [`ElimDa::fill`], in one step.
    pub(super) fn append_at_once(
        &self,
        pm: &Access<'_, M>,
        lane: u64,
        item: &Item,
    ) -> Result<Option<Appended>> {
        debug_assert!(self.ordered);
        let mut log = self.lanes[lane as usize].lock()?;
        if !self.has_log_slot(pm, &mut log, lane)? {
            return Ok(None);
        }
        let taken = log.take(&self.geometry);
        let crowded = self.is_crowded(&mut log);
        self.write_item(pm, &taken, item)?;
        self.commit_item(pm, &taken)?;
        drop(log);
        self.persist_item(pm, &taken)?;
        Ok(Some(Appended { order: taken.order, crowded }))
    }

    /// Writes an item into a slot that was reserved, and makes it durable.
    ///
    /// Where a line keeps the order of its stores, item and state need one flush and one fence
    /// (3.7); elsewhere the item is durable before the state. A crash leaves the item or not.
    pub(super) fn fill(
        &self,
        pm: &Access<'_, M>,
        mut reserved: Reserved<'_, M>,
        item: &Item,
    ) -> Result<Appended> {
        let (lane, order) = (reserved.lane, reserved.order);
        let mut log = lane.lock()?;
        let taken = log.taken(&self.geometry, order);
        self.write_item(pm, &taken, item)?;
        if !self.ordered {
            drop(log);
            pm.persist(line_of(&taken), sites::ITEM)?;
            log = lane.lock()?;
        }
        // From here on the slot may be live: it is not handed out again, whatever fails.
        reserved.is_over = true;
        log.end_reservation(&self.geometry, order);
        self.commit_item(pm, &taken)?;
        drop(log);
        self.persist_item(pm, &taken)?;
        Ok(Appended { order, crowded: reserved.crowded })
    }

    /// Writes an item and its check. The lane is locked.
    #[inline(always)]
    fn write_item(&self, pm: &Access<'_, M>, taken: &Taken, item: &Item) -> Result<()> {
        let (geometry, Taken { block, slot, .. }) = (&self.geometry, taken);
        let (line, at) = (slot.line_at(*block), slot.item_at(*block, geometry.item_words));
        if self.has_units {
            // Before any of them is written: the device reads the unit once for all its lines then,
            // and once more for each line that is asked for after a write.
            geometry.lines_to_come(*block, *slot).for_each(|line| pm.prefetch_for_store(line));
        }
        pm.write_words(at, &item[..F::WORDS])?;
        let checks_at = line.plus(LogLine::CHECKS as u64);
        let check = layout::key_check(item, geometry.key_words as usize, at);
        Ok(pm.store(checks_at, slot.with_check(pm.load(checks_at)?, check))?)
    }

    /// Says that an item is live. The lane is locked.
    #[inline(always)]
    fn commit_item(&self, pm: &Access<'_, M>, taken: &Taken) -> Result<()> {
        let (line, number) = (line_of(taken).start, taken.number);
        let mut state = line_state(pm, line)?;
        if state.number != number {
            state = LineState { number, live: 0 };
        }
        state.live |= 1 << taken.slot.slot;
        Ok(pm.commit_word(line, state.seal(line), sites::APPEND)?)
    }

    #[inline(always)]
    fn persist_item(&self, pm: &Access<'_, M>, taken: &Taken) -> Result<()> {
        pm.persist(line_of(taken), sites::APPEND)?;
        if self.durable_caches
            && let Some(unit) = self.geometry.completed_unit(taken.block, taken.slot)
            && !self.caches_keep_the_log()
        {
            pm.write_back(unit);
        }
        Ok(())
    }

    /// Ends an item of the log; durable with the caller's next fence.
    ///
    /// A crash leaves the item or not.
    pub(super) fn end_in_log(&self, pm: &Access<'_, M>, lane: u64, order: u64) -> Result<()> {
        let slot = self.geometry.log_slot(order);
        let log = self.lanes[lane as usize].lock()?;
        let line = slot.line_at(log.block(&self.geometry, order).at);
        let mut state = line_state(pm, line)?;
        state.live &= !(1 << slot.slot);
        pm.commit_word(line, state.seal(line), sites::END)?;
        drop(log);
        pm.flush(Span::new(line, layout::LINE_WORDS), sites::END);
        Ok(())
    }

    /// Replaces the second word of an item of the log, durably. Its bucket is locked.
    ///
    /// A crash leaves the old or the new word.
    pub(super) fn replace_in_log(
        &self,
        pm: &Access<'_, M>,
        lane: u64,
        order: u64,
        word: u64,
    ) -> Result<()> {
        let at = self.log_item(lane, order)?.plus(layout::SECOND_WORD);
        pm.commit_word(at, word, sites::VALUE)?;
        Ok(pm.persist(Span::new(at, 1), sites::VALUE)?)
    }

    /// Returns where the item with an order number lies in the log.
    pub(super) fn log_item(&self, lane: u64, order: u64) -> Result<Addr> {
        let block = self.lanes[lane as usize].lock()?.block(&self.geometry, order).at;
        Ok(self.geometry.log_slot(order).item_at(block, self.geometry.item_words))
    }

    /// Says that the copies of these items in the log are dead, durably.
    pub(super) fn release(&self, lane: u64, orders: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut orders = orders.into_iter().peekable();
        if orders.peek().is_none() {
            return Ok(());
        }
        let mut log = self.lanes[lane as usize].lock()?;
        for order in orders {
            log.release(&self.geometry, order);
        }
        Ok(())
    }

    /// Returns the number of the oldest block of a lane, unless it is the open one, and whether a
    /// slot of the oldest one is reserved.
    pub(super) fn oldest_block(&self, lane: u64) -> Result<(Option<u64>, bool)> {
        let log = self.lanes[lane as usize].lock()?;
        Ok((log.oldest(), log.blocks[0].is_awaited()))
    }

    /// Returns the item with an order number, if it lies in the oldest block of its lane and is
    /// live. The lane is locked meanwhile: a block that nobody needs may get another use.
    pub(super) fn oldest_item(
        &self,
        pm: &Access<'_, M>,
        lane: u64,
        order: u64,
    ) -> Result<Option<Item>> {
        let (slot, number) = (self.geometry.log_slot(order), self.geometry.block_number(order));
        let log = self.lanes[lane as usize].lock()?;
        if log.oldest() != Some(number) {
            return Ok(None);
        }
        let at = slot.line_at(log.blocks[0].at);
        let mut words = [0; layout::LINE_WORDS as usize];
        pm.read_words(at, &mut words)?;
        drop(log);
        let state = LineState::open(words[LogLine::STATE], at)
            .ok_or(corrupt(at, "the state of a log line matches its check"))?;
        let is_live = state.number == number && state.live >> slot.slot & 1 == 1;
        let first = LogLine::ITEMS + slot.slot as usize * F::WORDS;
        let mut item = [0; 4];
        item[..F::WORDS].copy_from_slice(&words[first..first + F::WORDS]);
        Ok(is_live.then_some(item))
    }

    /// Returns the first order number from `from` on whose slot is needed, in the block with this
    /// number; `None` if there is none, or if the block is not the oldest one any more.
    pub(super) fn next_needed(&self, lane: u64, number: u64, from: u64) -> Result<Option<u64>> {
        Ok(self.lanes[lane as usize].lock()?.next_needed(&self.geometry, number, from))
    }

    /// Returns whether the block with this number is gone, or will go when the next one is needed.
    pub(super) fn is_dead(&self, lane: u64, number: u64) -> Result<bool> {
        let log = self.lanes[lane as usize].lock()?;
        Ok(log.first != number || log.blocks[0].is_dead())
    }

    /// Gets a free block ahead of need, if the medium has room: with it a lane can always go on
    /// once its oldest items are relocated.
    ///
    /// A lane whose oldest block is dead needs none: it will reuse that one.
    pub(super) fn reserve_block(&self, lane: u64) -> Result<()> {
        let mut log = self.lanes[lane as usize].lock()?;
        let has_dead = log.blocks.len() > 1 && log.blocks[0].is_dead();
        if log.free.is_empty()
            && !has_dead
            && let Some(block) = self.new_block()?
        {
            log.free.push(block);
        }
        Ok(())
    }

    /// Gives the free blocks of a lane back that it has not used since the last call, but for one,
    /// and makes those free that nobody needs. A lane that was emptied has all its blocks in hand,
    /// and others have no use of them. Returns whether the lane has more than one in hand now.
    ///
    /// A crash leaves the link to the oldest block as it was, or behind what is free.
    pub(super) fn give_idle_blocks(&self, pm: &Access<'_, M>, lane: u64) -> Result<bool> {
        let mut log = self.lanes[lane as usize].lock()?;
        let idle = log.take_idle();
        // One is made free by the append that needs the next block.
        if log.dead_blocks() > 1 {
            self.retire_blocks(pm, &mut log, lane)?;
            log.idle = log.free.len();
        }
        let has_more = log.has_surplus();
        drop(log);
        idle.into_iter().for_each(|block| self.space.give(self.geometry.block(block.at)));
        Ok(has_more)
    }

    fn new_block(&self) -> Result<Option<FreeBlock>> {
        let bytes = self.geometry.block(Addr::NULL).bytes();
        match self.space.take(bytes, self.geometry.align_bytes()) {
            Ok(taken) => {
                let holds = if taken.zero { Holds::OldStates } else { Holds::Anything };
                Ok(Some(FreeBlock { at: taken.span.start, holds }))
            }
            Err(everhash_pmem::Error::Full { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Takes a free block that another lane has beside the one that it keeps: the medium is full.
    /// A lane that is locked is passed over, because this one is, too.
    #[cold]
    fn block_of_another(&self, lane: u64) -> Option<FreeBlock> {
        let others = (0..).zip(&self.lanes).filter(|(other, _)| *other != lane);
        others.filter_map(|(_, log)| log.try_lock().ok().flatten()).find_map(|mut log| {
            let free = log.take_surplus()?;
            // Its states may have higher numbers than those of this lane.
            Some(FreeBlock { holds: Holds::Anything, ..free })
        })
    }

    /// Returns how many blocks a lane may have before its oldest items are relocated early.
    pub(super) fn most_blocks(&self) -> u64 {
        let geometry = &self.geometry;
        let slots = self.segments() * (geometry.buckets / geometry.lanes) * geometry.dram_slots();
        2 + slots * self.settings.log_percent / 100 / geometry.block_slots()
    }

    /// Returns whether the log is so short that durable caches hold all of it: its lines are
    /// overwritten before they would leave.
    fn caches_keep_the_log(&self) -> bool {
        let blocks = self.geometry.lanes * self.most_blocks();
        blocks * self.geometry.block(Addr::NULL).bytes() <= self.settings.cached_log_kib << 10
    }

    /// Opens the next block of a lane; `false` if there is none.
    fn open_block(&self, pm: &Access<'_, M>, log: &mut Lane, lane: u64) -> Result<bool> {
        self.retire_blocks(pm, log, lane)?;
        let number = log.last_number() + 1;
        if !self.geometry.is_number(number) {
            let name = "blocks of the backup log, counted over the life of the table";
            let remedy = "copy the pairs to a new table, which counts from the beginning";
            return Err(Error::Limit { name, limit: log.last_number(), remedy });
        }
        let free = match log.take_free() {
            Some(free) => Some(free),
            None => self.new_block()?.or_else(|| self.block_of_another(lane)),
        };
        let Some(free) = free else { return Ok(false) };
        let at = free.at;
        match free.holds {
            Holds::OldStates => {
                pm.write_words(at, &block_head(at, number))?;
                pm.flush(Span::new(at, layout::LINE_WORDS), sites::BLOCK);
            }
            Holds::Anything => {
                pm.write_words(at, &empty_block(&self.geometry, at, number))?;
                pm.flush(self.geometry.block(at), sites::BLOCK);
            }
        }
        pm.fence(sites::BLOCK)?;
        let last = log.blocks.back().expect("a lane has an open block").at;
        let next = last.plus(BlockHead::NEXT as u64);
        pm.commit_word(next, layout::seal(at.byte(), next, Kind::Next), sites::NEXT)?;
        pm.persist(Span::new(next, 1), sites::NEXT)?;
        log.blocks.push_back(Block::new(at, &self.geometry));
        log.next = number * self.geometry.block_slots();
        Ok(true)
    }

    /// Takes the blocks away that nobody needs, from the oldest on, but not the open one.
    fn retire_blocks(&self, pm: &Access<'_, M>, log: &mut Lane, lane: u64) -> Result<()> {
        let dead = log.dead_blocks();
        if dead == 0 {
            return Ok(());
        }
        let link = layout::first_link(lane);
        let first = layout::seal(log.blocks[dead].at.byte(), link, Kind::First);
        pm.commit_word(link, first, sites::FIRST)?;
        pm.persist(Span::new(link, 1), sites::FIRST)?;
        log.first += dead as u64;
        let retired = log.blocks.drain(..dead);
        log.free.extend(retired.map(|block| FreeBlock { at: block.at, holds: Holds::OldStates }));
        Ok(())
    }
}

/// Returns the line of a slot.
#[inline(always)]
fn line_of(taken: &Taken) -> Span {
    Span::new(taken.slot.line_at(taken.block), layout::LINE_WORDS)
}

/// Returns the state of the line at `line`.
///
/// # Errors
/// [`Error::Corrupt`].
#[inline(always)]
pub fn line_state<M: Media>(pm: &Access<'_, M>, line: Addr) -> Result<LineState> {
    let state = LineState::open(pm.load(line)?, line);
    state.ok_or(corrupt(line, "the state of a log line matches its check"))
}
