//! The lanes: which blocks they have, and which items of the log are live.

use std::collections::{BTreeMap, VecDeque};

use everhash_index::{Executor, Result};
use everhash_pmem::{Access, Addr, Lock, Media, Span};

use super::sites;
use crate::common::jobs::run_all;
use crate::elimda::dram_table::{Bucket, Candidate, Segment};
use crate::elimda::form::{Form, Item, Update, corrupt};
use crate::elimda::lane::{Block, Lane};
use crate::elimda::layout::{
    self, BlockHead, Kind, LINE_WORDS, LineState, LogLine, LogSlot, UnitState,
};
use crate::elimda::state::{ElimDa, LaneOf};

/// The words that end items which have newer ones, by where they lie.
pub(super) type Ends = BTreeMap<Addr, u64>;

/// The lanes, and what ends items that have newer ones: see [`end_older`].
type Found<M> = (Box<[LaneOf<M>]>, Vec<Ends>);

/// Reads all lanes, and fills the D-buckets.
pub(super) fn load<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    executor: &dyn Executor,
) -> Result<Found<M>> {
    let lanes = run_all::<M::Sync, _>(executor, table.geometry.lanes as usize, |lane| {
        let (lane, pm) = (lane as u64, table.pool.access());
        let (log, ends) = (Lane::new(VecDeque::new(), 0, 0), Ends::new());
        let mut reader = Reader { table, pm: &pm, lane, log, ends };
        reader.read()?;
        Ok((reader.log, reader.ends))
    })?;
    let (lanes, ends): (Vec<_>, _) = lanes.into_iter().unzip();
    Ok((lanes.into_iter().map(Lock::new).collect(), ends))
}

/// Ends items that have newer ones, not yet fenced.
pub(super) fn end_older<M: Media>(pm: &Access<'_, M>, ends: &[Ends]) -> Result<()> {
    for (at, word) in ends.iter().flatten() {
        pm.commit_word(*at, *word, sites::ENDED)?;
        pm.flush(Span::new(*at, 1), sites::ENDED);
    }
    Ok(())
}

struct Reader<'t, M: Media, F: Form> {
    table: &'t ElimDa<M, F>,
    pm: &'t Access<'t, M>,
    lane: u64,
    log: Lane,
    ends: Ends,
}

/// An item of the log, and where it is.
struct Logged {
    item: Item,
    hash: u64,
    order: u64,
    line: Addr,
    slot: u64,
}

impl<M: Media, F: Form> Reader<'_, M, F> {
    fn read(&mut self) -> Result<()> {
        let link = layout::first_link(self.lane);
        let mut next = Some(open_link(self.pm.load(link)?, link, Kind::First)?);
        // Ends: each block is claimed, which fails for one that is met twice.
        while let Some(at) = next {
            next = self.read_block(at)?;
        }
        Ok(())
    }

    /// Reads a block; returns where the next one lies.
    fn read_block(&mut self, at: Addr) -> Result<Option<Addr>> {
        let geometry = &self.table.geometry;
        if at.is_null() {
            return Err(corrupt(layout::first_link(self.lane), "a lane has a block"));
        }
        self.table.space.claim(geometry.block(at))?;
        let number = layout::open(self.pm.load(at)?, at, Kind::Number)
            .filter(|number| geometry.is_number(*number))
            .ok_or(corrupt(at, "the number of a block matches its check"))?;
        let log = &mut self.log;
        if log.blocks.is_empty() {
            log.first = number;
        } else if number != log.first + log.blocks.len() as u64 {
            return Err(corrupt(at, "the numbers of blocks rise by one"));
        }
        log.blocks.push_back(Block::new(at, geometry));
        log.next = number * geometry.block_slots();
        for line in 1..geometry.block_lines {
            self.read_line(at, number, line)?;
        }
        let next = at.plus(BlockHead::NEXT as u64);
        let target = open_link(self.pm.load(next)?, next, Kind::Next)?;
        Ok((!target.is_null()).then_some(target))
    }

    fn read_line(&mut self, block: Addr, number: u64, line: u64) -> Result<()> {
        let geometry = &self.table.geometry;
        let slots = geometry.slots_of_line(line);
        let at = LogSlot { line, slot: 0 }.line_at(block);
        let mut words = [0; LINE_WORDS as usize];
        self.pm.read_words(at, &mut words)?;
        let state = LineState::open(words[LogLine::STATE], at)
            .filter(|state| state.number <= number && state.live >> slots == 0)
            .ok_or(corrupt(at, "the state of a log line matches its check"))?;
        if state.number != number {
            return Ok(());
        }
        // A line that was begun is never filled further: a slot that is clear may have been used,
        // and its number may be below a watermark.
        self.log.next = geometry.order(number, LogSlot { line: line + 1, slot: 0 });
        for slot in (0..slots).filter(|slot| state.live >> slot & 1 == 1) {
            let place = LogSlot { line, slot };
            let item_at = place.item_at(block, geometry.item_words);
            let mut item = [0; 4];
            let first = LogLine::ITEMS + slot as usize * F::WORDS;
            item[..F::WORDS].copy_from_slice(&words[first..first + F::WORDS]);
            let check = layout::key_check(&item, geometry.key_words as usize, item_at);
            if place.check(words[LogLine::CHECKS]) != check {
                return Err(corrupt(item_at, "a key in the log matches its check"));
            }
            let hash = F::item_hash(&self.table.hasher, &item);
            if geometry.lane_of(geometry.bucket_of(hash)) != self.lane {
                return Err(corrupt(item_at, "a key lies in the lane of its bucket"));
            }
            let order = geometry.order(number, place);
            self.take(&Logged { item, hash, order, line: at, slot })?;
        }
        Ok(())
    }

    /// Puts an item into its D-bucket, unless the device table has absorbed it.
    fn take(&mut self, logged: &Logged) -> Result<()> {
        let table = self.table;
        let index = table.geometry.bucket_of(logged.hash);
        let segment = table.table.find(logged.hash);
        let bucket = segment.bucket(index);
        if logged.order <= bucket.watermark() {
            return Ok(());
        }
        if F::UPDATE == Update::NewItem {
            self.end_older(&segment, index, &bucket, logged)?;
        }
        if bucket.is_full() {
            return Err(corrupt(logged.line, "a D-bucket holds its items"));
        }
        let at = logged.line.plus(LogLine::ITEMS as u64 + logged.slot * F::WORDS as u64);
        if let Some((record, class)) = F::record_of(&logged.item, at)? {
            table.heap.claim(record, class)?;
        }
        bucket.push(logged.hash, &logged.item, logged.order);
        self.log.need(&table.geometry, logged.order);
        table.count_found(1);
        Ok(())
    }

    /// Ends the older item of a key, where a crash came between the new one and its end.
    fn end_older(
        &mut self,
        segment: &Segment<'_, M::Sync>,
        index: u64,
        bucket: &Bucket<'_, M::Sync>,
        newer: &Logged,
    ) -> Result<()> {
        let (table, pm) = (self.table, self.pm);
        for place in 0..bucket.items() {
            let (item, order) = bucket.item(place);
            if item[..2] != newer.item[..2] {
                continue;
            }
            bucket.remove(place);
            self.log.release(&table.geometry, order);
            let slot = table.geometry.log_slot(order);
            let line = slot.line_at(self.log.block(&table.geometry, order).at);
            let word = self.ends.get(&line).copied().map_or_else(|| pm.load(line), Ok)?;
            let mut state = LineState::open(word, line)
                .ok_or(corrupt(line, "the state of a log line matches its check"))?;
            state.live &= !(1 << slot.slot);
            self.ends.insert(line, state.seal(line));
            table.count_lost();
            return Ok(());
        }
        for candidate in bucket.candidates(layout::fingerprint(newer.hash)) {
            let item = table.load_item(pm, table.candidate_at(segment, candidate))?;
            if item[..2] != newer.item[..2] {
                continue;
            }
            let Candidate { entry, unit, slot } = candidate;
            let live = bucket.entry(entry).live & !(1 << slot);
            bucket.end(entry, slot);
            let unit = table.geometry.unit_at(segment.at(), unit);
            let state = UnitState { live, bucket: index, lap: segment.lap() };
            self.ends.insert(unit, state.seal(unit));
            table.count_lost();
            return Ok(());
        }
        Ok(())
    }
}

fn open_link(word: u64, at: Addr, kind: Kind) -> Result<Addr> {
    layout::open_link(word, at, kind).ok_or(corrupt(at, "a link of the log matches its check"))
}
