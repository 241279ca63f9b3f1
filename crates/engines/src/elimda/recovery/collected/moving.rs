//! The way out of the collecting logs, where inserts no longer go to them.
//!
//! One by one, and by way of the backup log, each item would wait for the device three times. At
//! open nobody else is at work, so the items go straight to the device table: in each round one
//! access unit for each bucket that has some, with what its D-bucket holds in front of them.
//!
//! | step of a round | a crash leaves |
//! |---|---|
//! | the units of all buckets, not their states; one fence | units that are free |
//! | the states; one fence | of each bucket its unit or not |
//!
//! An item in a unit and in a collecting log counts once: recovery ends the latter. So the logs
//! stay as they are until everything has moved, or the medium is full.

use std::collections::BTreeMap;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media, Primitives, Span};

use crate::common::room::had_room;
use crate::elimda::bucket_relocation::{fill_unit, has_room, sites};
use crate::elimda::collecting_log;
use crate::elimda::collectors::Collectors;
use crate::elimda::dram_table::{Entry, Segment};
use crate::elimda::form::{Form, Item, corrupt};
use crate::elimda::layout::{self, CollectingLog as Log, Ended, LINE_WORDS, UnitHead, UnitState};
use crate::elimda::state::ElimDa;

/// Rounds in a row in which segments are split and nothing moves, at most.
///
/// Unit: rounds. Source: ours; each halves the hashes that a full bucket has.
const MOST_IDLE: u32 = 64;

/// An item of a collecting log, on its way.
#[derive(Clone, Copy)]
struct Waiting {
    hash: u64,
    item: Item,
    log: Addr,
    slot: u64,
}

/// The access unit that a bucket gets in a round.
struct Row<'t, P: Primitives> {
    segment: Segment<'t, P>,
    index: u64,
    /// Its first unit.
    first: u64,
    /// What it holds, oldest first, with hashes.
    items: Vec<(u64, Item)>,
    /// The order numbers of those that were in the D-bucket.
    orders: Vec<u64>,
    watermark: u64,
}

/// Moves the items of all collecting logs to the device table. Returns whether all have moved: on a
/// full medium the others stay where they are, and those that have moved have ended there.
///
/// A crash leaves each item in its log, in a unit, or in both.
pub(super) fn move_all<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    collectors: &Collectors<M::Sync>,
) -> Result<bool> {
    if table.geometry.bucket_units == 0 {
        // A setting without relocation: its buckets have no units.
        return had_room(table.drain(pm));
    }
    let mut waiting = read(table, pm, collectors)?;
    let mut moved = BTreeMap::new();
    let mut idle = 0;
    while !waiting.is_empty() {
        let (rows, crowded);
        (rows, crowded, waiting) = take_rows(table, waiting, &mut moved);
        write(table, pm, &rows)?;
        idle = if rows.is_empty() { idle + 1 } else { 0 };
        if !crowded.is_empty() {
            // A split drops what a blind insert wrote twice, and its record: no log may lead there.
            end(table, pm, &moved)?;
            moved.clear();
        }
        let grown = crowded.iter().try_for_each(|hash| table.grow(pm, *hash));
        if !had_room(grown)? || idle > MOST_IDLE {
            end(table, pm, &moved)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the items of all logs: those of one key in the order in which they came.
fn read<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    collectors: &Collectors<M::Sync>,
) -> Result<Vec<Waiting>> {
    let mut waiting = Vec::new();
    for collector in 0..table.geometry.collecting_logs {
        let logs = collectors.logs(collector);
        for log in logs.in_flight.into_iter().chain([logs.current]).map(|log| collectors.at(log)) {
            let items = table.collecting_log(pm, log).read()?;
            waiting.extend(items.slots().map(|slot| {
                let item = items.item(slot);
                Waiting { hash: F::item_hash(&table.hasher, &item), item, log, slot }
            }));
        }
    }
    Ok(waiting)
}

/// Sorts items by their buckets; those of one key stay in order.
///
/// Knows no medium: a sort is long, and is compiled once so.
fn sort(waiting: &mut [Waiting], bucket: &dyn Fn(&Waiting) -> (u64, u64)) {
    waiting.sort_by_key(bucket);
}

/// What a round writes, the hashes of buckets whose segments must grow, and what still waits.
type Round<'t, P> = (Vec<Row<'t, P>>, Vec<u64>, Vec<Waiting>);

/// Takes an access unit for each bucket that has items to come, and notes in `moved` which of them
/// it gets.
fn take_rows<'t, M: Media, F: Form>(
    table: &'t ElimDa<M, F>,
    mut waiting: Vec<Waiting>,
    moved: &mut BTreeMap<Addr, u64>,
) -> Round<'t, M::Sync> {
    let bucket = |it: &Waiting| (table.table.slot_of(it.hash), table.geometry.bucket_of(it.hash));
    sort(&mut waiting, &bucket);
    let (mut rows, mut crowded, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for items in waiting.chunk_by(|one, other| bucket(one) == bucket(other)) {
        let Some((row, taken)) = take_row(table, items) else {
            crowded.push(items[0].hash);
            rest.extend_from_slice(items);
            continue;
        };
        for Waiting { log, slot, .. } in &items[..taken] {
            *moved.entry(*log).or_insert(0) |= 1 << slot;
        }
        rest.extend_from_slice(&items[taken..]);
        rows.push(row);
    }
    (rows, crowded, rest)
}

/// Takes an access unit for the D-bucket of these items and for as many of them as fit behind it;
/// returns how many. `None` if the bucket or its segment has none left.
fn take_row<'t, M: Media, F: Form>(
    table: &'t ElimDa<M, F>,
    waiting: &[Waiting],
) -> Option<(Row<'t, M::Sync>, usize)> {
    let located = table.locate(waiting[0].hash);
    let (segment, bucket) = (located.segment, located.bucket);
    if !has_room(&table.geometry, &bucket) {
        return None;
    }
    let first = segment.take_units(&table.geometry)?;
    let taken = waiting.len().min(table.geometry.dram_slots() as usize - bucket.items());
    let own = (0..bucket.items()).map(|place| bucket.item(place));
    let hashed = |item: Item| (F::item_hash(&table.hasher, &item), item);
    let mut items: Vec<_> = own.clone().map(|(item, _)| hashed(item)).collect();
    items.extend(waiting[..taken].iter().map(|it| (it.hash, it.item)));
    let orders: Vec<_> = own.map(|(_, order)| order).collect();
    let watermark = orders.iter().copied().max().unwrap_or(bucket.watermark());
    Some((Row { segment, index: located.index, first, items, orders, watermark }, taken))
}

impl<P: Primitives> Row<'_, P> {
    /// Returns its units, each with its items.
    fn units(&self, slots: u64) -> impl Iterator<Item = (Entry, &[(u64, Item)])> {
        (self.first..).zip(self.items.chunks(slots as usize)).map(|(unit, items)| {
            let live = ((1u32 << items.len()) - 1) as u16;
            (Entry { unit, live }, items)
        })
    }
}

/// Writes the rows of a round, and makes them true.
fn write<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    rows: &[Row<'_, M::Sync>],
) -> Result<()> {
    let geometry = &table.geometry;
    let mut states = Vec::with_capacity(rows.len());
    for row in rows {
        let at = geometry.unit_at(row.segment.at(), row.first);
        let words = words_of(table, row);
        pm.write_words(at.plus(UnitHead::WATERMARK as u64), &words[UnitHead::WATERMARK..])?;
        // Where a line keeps the order of its stores, the first one goes with its state.
        let first = if table.ordered { LINE_WORDS } else { 0 };
        pm.flush(Span::new(at.plus(first), words.len() as u64 - first), sites::UNIT);
        states.push((at, words[UnitHead::STATE]));
    }
    pm.fence(sites::UNIT)?;
    for (at, state) in states {
        pm.commit_word(at, state, sites::STATE)?;
        pm.flush(Span::new(at, LINE_WORDS), sites::STATE);
    }
    pm.fence(sites::STATE)?;
    for row in rows {
        let bucket = row.segment.bucket(row.index);
        for (entry, items) in row.units(geometry.unit_slots) {
            let prints: Vec<_> = items.iter().map(|it| layout::fingerprint(it.0)).collect();
            bucket.push_unit(entry, &prints);
        }
        bucket.clear_items();
        bucket.set_watermark(row.watermark);
        table.release(geometry.lane_of(row.index), row.orders.iter().copied())?;
    }
    Ok(())
}

/// Returns the words of a row. The first one, the state of its first unit, makes all of it true.
fn words_of<M: Media, F: Form>(table: &ElimDa<M, F>, row: &Row<'_, M::Sync>) -> Vec<u64> {
    let geometry = &table.geometry;
    let mut words = vec![0; geometry.access_words() as usize];
    let places = words.chunks_mut(geometry.unit_words() as usize);
    for ((Entry { unit, live }, items), words) in row.units(geometry.unit_slots).zip(places) {
        let state = UnitState { live, bucket: row.index, lap: row.segment.lap() };
        let at = geometry.unit_at(row.segment.at(), unit);
        fill_unit::<F>(words, at, (state, row.watermark), items.iter().map(|(_, item)| *item));
    }
    words
}

/// Ends what has moved in logs that stay, durably.
fn end<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    moved: &BTreeMap<Addr, u64>,
) -> Result<()> {
    for (log, slots) in moved {
        let place = log.plus(Log::ENDED as u64);
        let generation = table.collecting_log(pm, *log).look()?.control.generation;
        let ended = Ended::open(pm.load(place)?, *log)
            .ok_or(corrupt(place, "what has ended in a collecting log matches its check"))?;
        let slots = ended.of(generation) | slots;
        let word = Ended { slots, generation }.seal(*log);
        pm.commit_word(place, word, collecting_log::sites::ENDED)?;
        pm.flush(Span::new(place, 1), collecting_log::sites::ENDED);
    }
    Ok(pm.fence(collecting_log::sites::ENDED)?)
}
