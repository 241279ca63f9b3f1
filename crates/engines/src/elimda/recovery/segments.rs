//! The segments: which there are, and what their units hold.

use core::sync::atomic::Ordering;

use everhash_index::{Executor, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media, Span, WORD};

use super::sites;
use crate::common::jobs::run_all;
use crate::elimda::dram_table::{Entry, Segment};
use crate::elimda::form::{Form, corrupt};
use crate::elimda::layout::{
    self, EXTENTS, Kind, MOST_SLOTS, Prefix, UNIT_BYTES, UnitHead, UnitState,
};
use crate::elimda::resize::depth_fits;
use crate::elimda::state::{ElimDa, SegmentTable};

/// A segment that the segment table names.
#[derive(Clone, Copy)]
pub(super) struct Named {
    slot: u64,
    /// Where its slot lies.
    slot_at: Addr,
    at: Addr,
    prefix: Prefix,
}

impl Named {
    fn order(&self) -> (u64, u32) {
        self.prefix.order()
    }
}

/// Segments of one recovery job. Unit: segments. Source: ours; some milliseconds of reading.
const SEGMENTS_PER_JOB: usize = 64;

/// Finds the segments that count, claims their space, and builds the directory. Returns them, and
/// the upper halves whose old segments still count: see [`drop_halves`].
pub(super) fn find<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
) -> Result<(Vec<Named>, Vec<Named>)> {
    let mut segment_table = table.segment_table.lock()?;
    let mut named = read_table(table, pm, &mut segment_table)?;
    named.sort_by_key(Named::order);
    let (kept, dropped) = tile(named)?;
    let count = kept.len() as u64;
    add_extents(table, segment_table.extents.len(), count)?;
    for segment in &kept {
        if !depth_fits(segment.prefix.depth, count) {
            return Err(corrupt(segment.at, "segments are of similar depths"));
        }
        table.space.claim(table.geometry.segment(segment.at))?;
        table.table.point(segment.prefix, segment.slot);
    }
    // Used last: until the fence nothing but the stores of `drop_halves` keeps the slots from
    // naming space that another part of the pool takes.
    segment_table.free.splice(0..0, dropped.iter().map(|segment| segment.slot));
    table.segments.store(count, Ordering::Relaxed);
    Ok((kept, dropped))
}

/// Takes upper halves out of the segment table, not yet fenced.
pub(super) fn drop_halves<M: Media>(pm: &Access<'_, M>, dropped: &[Named]) -> Result<()> {
    for segment in dropped {
        pm.commit_word(segment.slot_at, 0, sites::DROPPED)?;
        pm.flush(Span::new(segment.slot_at, 1), sites::DROPPED);
    }
    Ok(())
}

/// Makes room in DRAM for the slots of all extents, in proportion to the `count` segments.
///
/// The first extent is full from the start, each other one doubles the slots when none is free, and
/// segments never become fewer: about half of the slots name one. A split that fails may lose its
/// slot until the next open.
fn add_extents<M: Media, F: Form>(table: &ElimDa<M, F>, extents: usize, count: u64) -> Result<()> {
    let slots = layout::first_slot(table.geometry.initial_segments, extents);
    // That segments do not overlap is seen when their space is claimed.
    let bytes = count.saturating_mul(table.geometry.segment(Addr::NULL).bytes());
    if slots > 4 * count || bytes > table.pool.region().media().bytes() {
        let broken = "slots are in proportion to segments, and these to the pool";
        return Err(corrupt(layout::extent_link(0), broken));
    }
    (0..extents).for_each(|extent| table.table.add_extent(extent));
    Ok(())
}

fn read_table<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    segment_table: &mut SegmentTable,
) -> Result<Vec<Named>> {
    let initial = table.geometry.initial_segments;
    let (mut named, mut first) = (Vec::new(), 0);
    for extent in 0..EXTENTS {
        let link = layout::extent_link(extent);
        let word = pm.load(link)?;
        if word == 0 {
            continue;
        }
        let at = layout::open_link(word, link, Kind::Extent)
            .ok_or(corrupt(link, "the link to an extent matches its check"))?;
        if segment_table.extents.len() != extent {
            return Err(corrupt(link, "extents follow one another"));
        }
        table.space.claim(Span::of_bytes(at, layout::extent_bytes(initial, extent)))?;
        segment_table.extents.push(at);
        let mut slots = vec![0; layout::extent_slots(initial, extent) as usize];
        pm.read_words(at, &mut slots)?;
        for (index, word) in slots.into_iter().enumerate() {
            let (slot, slot_at) = (first + index as u64, at.plus(index as u64));
            if word == 0 {
                segment_table.free.push(slot);
                continue;
            }
            let at = layout::open_link(word, slot_at, Kind::Slot)
                .ok_or(corrupt(slot_at, "a slot of the segment table matches its check"))?;
            let prefix = Prefix::open(pm.load(at)?, at)
                .ok_or(corrupt(at, "the head of a segment matches its check"))?;
            named.push(Named { slot, slot_at, at, prefix });
        }
        first += layout::extent_slots(initial, extent);
    }
    // The lowest slots are used first.
    segment_table.free.reverse();
    Ok(named)
}

/// Splits the segments, in the order of their hashes, into those that count and upper halves whose
/// old segment still counts.
fn tile(named: Vec<Named>) -> Result<(Vec<Named>, Vec<Named>)> {
    let (mut kept, mut dropped): (Vec<Named>, Vec<Named>) = (Vec::new(), Vec::new());
    // The first hash that no segment holds yet; `None` behind the last one.
    let mut next = Some(0);
    for segment in named {
        let whole = kept.last().is_some_and(|old| old.prefix.half(true) == segment.prefix);
        if whole {
            dropped.push(segment);
        } else if next == Some(segment.prefix.start()) {
            next = segment.prefix.last().checked_add(1);
            kept.push(segment);
        } else {
            return Err(corrupt(segment.slot_at, "each hash belongs to one segment"));
        }
    }
    match next {
        None => Ok((kept, dropped)),
        Some(_) => Err(corrupt(layout::extent_link(0), "each hash belongs to one segment")),
    }
}

/// Reads the units of all segments: fingerprints, live items, watermarks, records. Returns how many
/// units there are.
pub(super) fn load<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    segments: &[Named],
    executor: &dyn Executor,
) -> Result<u64> {
    let jobs = segments.len().div_ceil(SEGMENTS_PER_JOB);
    let units = run_all::<M::Sync, u64>(executor, jobs, |job| {
        let first = job * SEGMENTS_PER_JOB;
        let last = segments.len().min(first + SEGMENTS_PER_JOB);
        segments[first..last].iter().map(|segment| load_segment(table, segment)).sum()
    });
    Ok(units?.into_iter().sum())
}

/// Returns how many units it has.
fn load_segment<M: Media, F: Form>(table: &ElimDa<M, F>, named: &Named) -> Result<u64> {
    let (pm, geometry) = (table.pool.access(), &table.geometry);
    let segment = table.table.segment(named.slot);
    let lap_at = geometry.lap_at(named.at);
    let lap = layout::open_lap(pm.load(lap_at)?, lap_at)
        .ok_or(corrupt(lap_at, "the lap of a segment matches its check"))?;
    pm.media().will_read(geometry.segment(named.at));
    for index in 0..geometry.buckets {
        let at = geometry.watermark_at(named.at, index);
        let watermark = layout::open(pm.load(at)?, at, Kind::Watermark)
            .ok_or(corrupt(at, "a watermark matches its check"))?;
        segment.bucket(index).reset(watermark);
    }
    let (mut units, mut used_units, mut items) = (0, 0, 0);
    for unit in 0..geometry.segment_units {
        if let Some(live) = load_unit(table, &pm, &segment, (named, lap), unit)? {
            used_units = (unit + 1).next_multiple_of(geometry.access_units);
            items += live;
            units += 1;
        }
    }
    segment.place((named.at, lap), named.prefix, used_units);
    table.count_found(items);
    Ok(units)
}

/// Reads a unit; returns its live items, or `None` if its access unit was never made true since
/// the segment has this lap.
fn load_unit<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    segment: &Segment<'_, M::Sync>,
    (named, lap): (&Named, u64),
    unit: u64,
) -> Result<Option<u64>> {
    let geometry = &table.geometry;
    let at = geometry.unit_at(named.at, unit);
    let state = |at| {
        UnitState::of_lap(pm.load(at)?, at, lap)
            .ok_or(corrupt(at, "the state of a unit matches its check"))
    };
    let commit = geometry.commit_of(named.at, unit);
    if commit != at && state(commit)?.is_none() {
        return Ok(None);
    }
    let Some(state) = state(at)? else { return Ok(None) };
    if state.bucket >= geometry.buckets || state.live >> geometry.unit_slots != 0 {
        return Err(corrupt(at, "the state of a unit is in range"));
    }
    let mut words = [0; (UNIT_BYTES / WORD) as usize];
    pm.read_words(at, &mut words[..geometry.unit_words() as usize])?;
    let mark = at.plus(UnitHead::WATERMARK as u64);
    let watermark = layout::open(words[UnitHead::WATERMARK], mark, Kind::Watermark)
        .ok_or(corrupt(mark, "a watermark matches its check"))?;
    let bucket = segment.bucket(state.bucket);
    if bucket.units() as u64 == geometry.bucket_units {
        return Err(corrupt(at, "a bucket has as many units as it may have"));
    }
    let mut fingerprints = [0; MOST_SLOTS as usize];
    for slot in 0..geometry.unit_slots {
        let mut item = [0; 4];
        let first = UnitHead::WORDS + slot as usize * F::WORDS;
        item[..F::WORDS].copy_from_slice(&words[first..first + F::WORDS]);
        if state.live >> slot & 1 == 0 {
            continue;
        }
        let (item_at, hash) = (geometry.unit_item(at, slot), F::item_hash(&table.hasher, &item));
        if !named.prefix.covers(hash) || geometry.bucket_of(hash) != state.bucket {
            return Err(corrupt(item_at, "a key lies in the bucket it hashes to"));
        }
        if let Some((record, class)) = F::record_of(&item, item_at)? {
            table.heap.claim(record, class)?;
        }
        fingerprints[slot as usize] = layout::fingerprint(hash);
    }
    bucket.push_unit(Entry { unit, live: state.live }, &fingerprints);
    bucket.set_watermark(bucket.watermark().max(watermark));
    Ok(Some(u64::from(state.live.count_ones())))
}
