//! Segment split and rebuild (ElimDA 3.5): DRAM table and device table change together.
//!
//! The segment table on the device names every segment, one word each. A split writes both halves
//! to new space, gives the upper one a slot of its own, and then turns the slot of the old segment
//! to the lower one: with that one store both halves count and the old segment does not. Until then
//! the old segment covers the hashes of the upper half, and recovery drops that one.
//!
//! A segment that overflows while at most half of its units would be needed is rebuilt at the same
//! depth, by the turn of its slot alone: churn must not grow the directory.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media, Span};

use super::bucket_relocation::has_room;
use super::concurrency::Held;
use super::dram_table::{Entry, Segment};
use super::form::{Form, Item};
use super::lane::Holds;
use super::layout::{self, Kind, MOST_DEPTH, Prefix, SegmentHead, UnitHead, UnitState};
use super::state::{ElimDa, Room, SegmentTable};
use crate::common::room::crowded;

/// Where a change of the device table persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A segment to which no slot leads yet.
        SEGMENT = "elimda/split/segment";
        /// The slot of an upper half, which counts once the slot of the old segment turns.
        UPPER = "elimda/split/upper";
        /// The slot of the old segment, which turns to the lower half or to the rebuilt segment.
        TURN = "elimda/split/turn";
        /// The ends in the log of items whose keys older items have.
        DUPLICATE = "elimda/split/duplicate";
        /// An extent of the segment table to which no link leads yet.
        EXTENT = "elimda/split/extent";
        /// The link to an extent.
        EXTENT_LINK = "elimda/split/extent-link";
    }
}

/// Entries of the directory per segment, at most: a segment that would need more is full.
///
/// Source: ours; with a keyed hash a segment six bits deeper than the mean does not happen, and the
/// bound keeps hostile pools from taking the memory away.
const MOST_ENTRIES: u64 = 64;

/// Spare space for segments, at most: one for a rebuild, one for the next split. The laps of space
/// that was given back are not known, and all of it must be written.
///
/// Unit: segments. Source: ours; a split frees one segment and takes two.
pub const MOST_SPARES: usize = 2;

/// The items of a bucket.
#[derive(Default)]
struct Contents {
    /// Live items of its units, oldest first, with their hashes.
    units: Vec<(u64, Item)>,
    /// Items of its D-bucket, with hashes and order numbers.
    dram: Vec<(u64, Item, u64)>,
    watermark: u64,
    /// The order numbers of the items that were moved from the D-bucket to units.
    absorbed: Vec<u64>,
}

impl Contents {
    /// Returns the part with a prefix. The last of its units, which is written whole, is filled
    /// with the items of the D-bucket that come first: they need no unit later.
    fn part(&self, prefix: Prefix, slots: usize) -> Contents {
        let covers = |hash: u64| prefix.covers(hash);
        let mut units: Vec<_> = self.units.iter().filter(|it| covers(it.0)).copied().collect();
        let mut dram: Vec<_> = self.dram.iter().filter(|it| covers(it.0)).copied().collect();
        dram.sort_unstable_by_key(|(_, _, order)| *order);
        let free = units.len().next_multiple_of(slots) - units.len();
        let mut absorbed = Vec::new();
        for (hash, item, order) in dram.drain(..free.min(dram.len())) {
            units.push((hash, item));
            absorbed.push(order);
        }
        let watermark = absorbed.last().copied().unwrap_or(self.watermark);
        Contents { units, dram, watermark, absorbed }
    }
}

/// An item whose key an older one has.
struct Duplicate {
    /// Its bucket.
    index: u64,
    hash: u64,
    item: Item,
    /// Its order number, if it is in the D-bucket: the log holds it, too.
    order: Option<u64>,
}

/// Which hashes were seen in a bucket, as a bit for each of [`Seen::BITS`] values.
struct Seen(Box<[u64]>);

impl Seen {
    /// How many bits there are: of the 300 hashes of a bucket, one in two buckets looks as if it
    /// had come before.
    const BITS: usize = 1 << 16;

    fn new() -> Seen {
        Seen(vec![0; Self::BITS / 64].into())
    }

    /// Returns the places of the hashes that may have come before, and forgets them all.
    fn again(&mut self, hashes: impl Iterator<Item = u64> + Clone) -> Vec<usize> {
        // The bits in the middle: the first lead to the segment, and the last to the bucket.
        let bit = |hash: u64| (hash >> 24) as usize % Self::BITS;
        let mut again = Vec::new();
        for (place, bit) in hashes.clone().map(bit).enumerate() {
            let mask = 1 << (bit % 64);
            if self.0[bit / 64] & mask != 0 {
                again.push(place);
            }
            self.0[bit / 64] |= mask;
        }
        hashes.map(bit).for_each(|bit| self.0[bit / 64] = 0);
        again
    }
}

/// A segment that is ready to be named.
struct Built {
    at: Addr,
    lap: u64,
    prefix: Prefix,
    used_units: u64,
    buckets: Vec<BuiltBucket>,
}

struct BuiltBucket {
    units: Vec<(Entry, Vec<u16>)>,
    dram: Vec<(u64, Item, u64)>,
    watermark: u64,
    absorbed: Vec<u64>,
}

/// Returns whether a directory of this depth is in proportion to the number of segments.
pub fn depth_fits(depth: u32, segments: u64) -> bool {
    depth <= MOST_DEPTH && 1 << depth <= MOST_ENTRIES * segments.max(MOST_ENTRIES)
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Makes room in the bucket of a hash: splits its segment, or rebuilds it. Does nothing if
    /// there is room.
    ///
    /// Only this segment's writers wait; its readers wait while the slot turns. A crash leaves
    /// the old segment or what replaces it.
    ///
    /// # Errors
    /// [`Error::Full`], and [`Error::Limit`] if its keys cannot be taken apart; everything is as it
    /// was then.
    pub(super) fn grow(&self, pm: &Access<'_, M>, hash: u64) -> Result<()> {
        let index = self.geometry.bucket_of(hash);
        self.change_segment(pm, hash, false, |segment| {
            segment.used_units() == self.geometry.segment_units
                || !has_room(&self.geometry, &segment.bucket(index))
        })
    }

    /// As [`ElimDa::grow`], ahead of need: if few units are left, and more are afterwards. Where a
    /// segment has hardly more units than buckets, its halves have as few left: they would be split
    /// again and again, for no pair.
    pub(super) fn grow_ahead(&self, pm: &Access<'_, M>, hash: u64) -> Result<()> {
        // Nearly no segment is short: the others need no locks.
        if !self.is_short(self.table.find(hash).used_units()) {
            return Ok(());
        }
        self.change_segment(pm, hash, true, |segment| self.is_short(segment.used_units()))
    }

    /// Returns whether a segment that uses so many units has few left.
    fn is_short(&self, used_units: u64) -> bool {
        used_units * 16 >= self.geometry.segment_units * 15
    }

    /// Returns whether the units of a segment, whose live items these are, have room for twice as
    /// many items. A split would leave the halves nearly empty.
    fn is_half_empty(&self, contents: &[Contents]) -> bool {
        let items: u64 = contents.iter().map(|bucket| bucket.units.len() as u64).sum();
        items * 2 < self.geometry.segment_units * self.geometry.unit_slots
    }

    /// Returns whether what comes of a segment, by a rebuild or by a split, has more than a few
    /// units left.
    fn gains_units(&self, contents: &[Contents], prefix: Prefix, rebuilds: bool) -> bool {
        let has_units = |part| !self.is_short(self.units_of(contents, part));
        match rebuilds {
            true => has_units(prefix),
            false => has_units(prefix.half(false)) && has_units(prefix.half(true)),
        }
    }

    /// Returns how many units the part of a segment with a prefix uses once it is built.
    fn units_of(&self, contents: &[Contents], prefix: Prefix) -> u64 {
        let needed = |bucket: &Contents| {
            let items = bucket.units.iter().filter(|(hash, _)| prefix.covers(*hash));
            items.count().div_ceil(self.slots()) as u64
        };
        let units: u64 = contents.iter().map(needed).sum();
        units.next_multiple_of(self.geometry.access_units)
    }

    fn change_segment(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        is_ahead: bool,
        is_needed: impl Fn(&Segment<'_, M::Sync>) -> bool,
    ) -> Result<()> {
        let slot = self.table.slot_of(hash);
        let segment = &self.table.segment(slot);
        let held: Vec<Held<'_, M>> =
            segment.locks().map(|lock| lock.hold(pm)).collect::<Result<_>>()?;
        if !segment.prefix().covers(hash) || !is_needed(segment) {
            return Ok(());
        }
        let mut contents = self.read_segment(pm, segment)?;
        let dropped = self.drop_duplicates(pm, &mut contents)?;
        let needed = |bucket: &Contents| bucket.units.len().div_ceil(self.slots()) as u64;
        let units: u64 = contents.iter().map(needed).sum();
        // What is rebuilt has room for one relocation into each bucket.
        let access = self.geometry.access_units;
        let fits = units + access <= self.geometry.segment_units
            && contents.iter().all(|bucket| needed(bucket) + access <= self.geometry.bucket_units);
        let rebuilds = fits
            && (units * 2 <= self.geometry.segment_units
                || is_ahead && self.is_half_empty(&contents));
        if is_ahead && !self.gains_units(&contents, segment.prefix(), rebuilds) {
            return Ok(());
        }
        if rebuilds {
            self.rebuild(pm, slot, segment, &held, contents)?;
        } else {
            match self.split(pm, slot, segment, &held, &contents) {
                Err(error)
                    if error.is_full()
                        && fits
                        && units < segment.used_units()
                        && !(is_ahead && self.is_short(units)) =>
                {
                    self.rebuild(pm, slot, segment, &held, contents)?;
                }
                other => other?,
            }
        }
        self.end_duplicates(pm, &dropped)
    }

    fn slots(&self) -> usize {
        self.geometry.unit_slots as usize
    }

    /// Reads what a segment holds, bucket by bucket, units in the order in which they were filled.
    fn read_segment(
        &self,
        pm: &Access<'_, M>,
        segment: &Segment<'_, M::Sync>,
    ) -> Result<Vec<Contents>> {
        let mut all = Vec::new();
        let mut words = vec![0; self.geometry.unit_words() as usize];
        for index in 0..self.geometry.buckets {
            let bucket = segment.bucket(index);
            let mut contents = Contents { watermark: bucket.watermark(), ..Contents::default() };
            for entry in (0..bucket.units()).map(|entry| bucket.entry(entry)) {
                pm.read_words(self.geometry.unit_at(segment.at(), entry.unit), &mut words)?;
                for slot in (0..self.slots()).filter(|slot| entry.live >> slot & 1 == 1) {
                    let mut item = [0; 4];
                    let first = UnitHead::WORDS + slot * F::WORDS;
                    item[..F::WORDS].copy_from_slice(&words[first..first + F::WORDS]);
                    contents.units.push((F::item_hash(&self.hasher, &item), item));
                }
            }
            for (item, order) in (0..bucket.items()).map(|place| bucket.item(place)) {
                contents.dram.push((F::item_hash(&self.hasher, &item), item, order));
            }
            all.push(contents);
        }
        Ok(all)
    }

    /// Takes the items out whose keys an older item has; only blind inserts make such.
    fn drop_duplicates(&self, pm: &Access<'_, M>, all: &mut [Contents]) -> Result<Vec<Duplicate>> {
        let (mut dropped, mut seen) = (Vec::new(), Seen::new());
        for (index, contents) in (0u64..).zip(all) {
            let Contents { units, dram, .. } = contents;
            let hashes = units.iter().map(|it| it.0).chain(dram.iter().map(|it| it.0));
            let again = seen.again(hashes);
            // From the newest on, so that the places of older ones stay as they are.
            for place in again.into_iter().rev() {
                let split = units.len();
                let item = |place: usize| match place < split {
                    true => units[place],
                    false => (dram[place - split].0, dram[place - split].1),
                };
                let (hash, newer) = item(place);
                let mut older = (0..place).map(item).filter(|(other, _)| *other == hash);
                let has_older = older.try_fold(false, |found, (_, older)| {
                    Ok::<bool, Error>(found || F::same_key(pm, &older, &newer)?)
                })?;
                if !has_older {
                    continue;
                }
                let order = match place.checked_sub(split) {
                    None => {
                        units.remove(place);
                        None
                    }
                    Some(place) => Some(dram.remove(place).2),
                };
                dropped.push(Duplicate { index, hash, item: newer, order });
            }
        }
        Ok(dropped)
    }

    /// Ends what [`ElimDa::drop_duplicates`] left out of a segment that counts now. A crash before
    /// leaves those of the log as they were.
    fn end_duplicates(&self, pm: &Access<'_, M>, dropped: &[Duplicate]) -> Result<()> {
        if dropped.iter().any(|it| it.order.is_some()) {
            for Duplicate { index, order, .. } in dropped {
                if let Some(order) = order {
                    self.end_in_log(pm, self.geometry.lane_of(*index), *order)?;
                }
            }
            pm.fence(sites::DUPLICATE)?;
        }
        for Duplicate { index, hash, item, order } in dropped {
            self.release(self.geometry.lane_of(*index), *order)?;
            self.drop_record(item)?;
            self.count_removed(*hash, 1);
        }
        Ok(())
    }

    fn rebuild(
        &self,
        pm: &Access<'_, M>,
        slot: u64,
        segment: &Segment<'_, M::Sync>,
        held: &[Held<'_, M>],
        contents: Vec<Contents>,
    ) -> Result<()> {
        let (old, prefix) = ((segment.at(), segment.lap()), segment.prefix());
        let mut table = self.segment_table.lock()?;
        let room = self.take_segment(&mut table, 0)?;
        let built = self.build(pm, room, prefix, &contents)?;
        pm.fence(sites::SEGMENT)?;
        self.turn(pm, &table, slot, held, built, None)?;
        table.rebuilds += 1;
        self.keep(&mut table, Room::after(old.0, old.1));
        Ok(())
    }

    fn split(
        &self,
        pm: &Access<'_, M>,
        slot: u64,
        segment: &Segment<'_, M::Sync>,
        held: &[Held<'_, M>],
        contents: &[Contents],
    ) -> Result<()> {
        let (old, prefix) = ((segment.at(), segment.lap()), segment.prefix());
        if !depth_fits(prefix.depth + 1, self.segments() + 1) {
            return Err(crowded("bits of a hash that choose a segment", prefix.depth.into()));
        }
        let mut table = self.segment_table.lock()?;
        let mut rooms = Vec::new();
        let taken = self.take_for_split(pm, &mut table, &mut rooms);
        let upper_slot = match taken {
            Ok(slot) => slot,
            Err(error) => {
                rooms.into_iter().for_each(|room| self.keep(&mut table, room));
                return Err(error);
            }
        };
        let [upper, lower] = [rooms.pop(), rooms.pop()].map(|room| room.expect("two were taken"));
        let lower = self.build(pm, lower, prefix.half(false), contents)?;
        let upper = self.build(pm, upper, prefix.half(true), contents)?;
        pm.fence(sites::SEGMENT)?;
        let at = self.slot_at(&table, upper_slot);
        pm.commit_word(at, layout::seal(upper.at.byte(), at, Kind::Slot), sites::UPPER)?;
        pm.persist(Span::new(at, 1), sites::UPPER)?;
        self.turn(pm, &table, slot, held, lower, Some((upper_slot, upper)))?;
        table.splits += 1;
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.keep(&mut table, Room::after(old.0, old.1));
        Ok(())
    }

    /// Turns the slot of a segment to what replaces it, and the DRAM table with it.
    fn turn(
        &self,
        pm: &Access<'_, M>,
        table: &SegmentTable,
        slot: u64,
        held: &[Held<'_, M>],
        first: Built,
        second: Option<(u64, Built)>,
    ) -> Result<()> {
        let at = self.slot_at(table, slot);
        let changes = held.iter().map(Held::change).collect::<Result<Vec<_>>>()?;
        pm.commit_word(at, layout::seal(first.at.byte(), at, Kind::Slot), sites::TURN)?;
        pm.persist(Span::new(at, 1), sites::TURN)?;
        self.install(&self.table.segment(slot), &first);
        if let Some((upper_slot, upper)) = &second {
            self.install(&self.table.segment(*upper_slot), upper);
            self.table.point(upper.prefix, *upper_slot);
        }
        changes.into_iter().for_each(everhash_pmem::Change::end);
        let built = [first].into_iter().chain(second.map(|(_, upper)| upper));
        for (index, bucket) in built.flat_map(|built| (0..).zip(built.buckets)) {
            self.release(self.geometry.lane_of(index), bucket.absorbed)?;
        }
        Ok(())
    }

    /// Writes the part of `contents` whose hashes have `prefix` to new space, not yet fenced.
    fn build(
        &self,
        pm: &Access<'_, M>,
        Room { at, lap, holds }: Room,
        prefix: Prefix,
        contents: &[Contents],
    ) -> Result<Built> {
        let geometry = &self.geometry;
        let mut image = vec![0; geometry.segment_words() as usize];
        image[SegmentHead::PLACE] = prefix.seal(at);
        image[SegmentHead::LAP] = layout::seal(lap, geometry.lap_at(at), Kind::Lap);
        let offset = |place: Addr| (place.word() - at.word()) as usize;
        let mut used_units = 0;
        let mut buckets = Vec::with_capacity(contents.len());
        for (index, contents) in contents.iter().enumerate() {
            let contents = contents.part(prefix, self.slots());
            let mark = geometry.watermark_at(at, index as u64);
            image[offset(mark)] = layout::seal(contents.watermark, mark, Kind::Watermark);
            let mut units = Vec::new();
            for items in contents.units.chunks(self.slots()) {
                let unit = geometry.unit_at(at, used_units);
                let words = &mut image[offset(unit)..][..geometry.unit_words() as usize];
                let live = ((1u32 << items.len()) - 1) as u16;
                let state = UnitState { live, bucket: index as u64, lap };
                words[UnitHead::STATE] = state.seal(unit);
                let mark = unit.plus(UnitHead::WATERMARK as u64);
                words[UnitHead::WATERMARK] =
                    layout::seal(contents.watermark, mark, Kind::Watermark);
                for (slot, (_, item)) in items.iter().enumerate() {
                    words[UnitHead::WORDS + slot * F::WORDS..][..F::WORDS]
                        .copy_from_slice(&item[..F::WORDS]);
                }
                let prints = items.iter().map(|(hash, _)| layout::fingerprint(*hash)).collect();
                units.push((Entry { unit: used_units, live }, prints));
                used_units += 1;
            }
            let Contents { dram, watermark, absorbed, .. } = contents;
            buckets.push(BuiltBucket { units, dram, watermark, absorbed });
        }
        let used_units = used_units.next_multiple_of(geometry.access_units);
        let written = match holds {
            Holds::OldStates => offset(geometry.unit_at(at, used_units)),
            Holds::Anything => image.len(),
        };
        pm.write_words_nt(at, &image[..written], sites::SEGMENT)?;
        Ok(Built { at, lap, prefix, used_units, buckets })
    }

    fn install(&self, segment: &Segment<'_, M::Sync>, built: &Built) {
        segment.place((built.at, built.lap), built.prefix, built.used_units);
        for (index, built) in built.buckets.iter().enumerate() {
            let bucket = segment.bucket(index as u64);
            bucket.reset(built.watermark);
            for (entry, fingerprints) in &built.units {
                bucket.push_unit(*entry, fingerprints);
            }
            for (hash, item, order) in &built.dram {
                bucket.push(*hash, item, *order);
            }
        }
    }

    /// Takes space for both halves of a segment into `rooms`, and a slot for the upper one.
    fn take_for_split(
        &self,
        pm: &Access<'_, M>,
        table: &mut SegmentTable,
        rooms: &mut Vec<Room>,
    ) -> Result<u64> {
        for _ in 0..2 {
            // The last spare is for a rebuild.
            rooms.push(self.take_segment(table, 1)?);
        }
        self.take_slot(pm, table)
    }

    /// Takes space for a segment: a spare, as long as there are more than `left`.
    fn take_segment(&self, table: &mut SegmentTable, left: usize) -> Result<Room> {
        if table.spares.len() > left
            && let Some(room) = table.spares.pop()
        {
            everhash_pmem::before_reuse::<M::Sync>();
            return Ok(room);
        }
        let bytes = self.geometry.segment(Addr::NULL).bytes();
        let taken = self.space.take(bytes, self.geometry.align_bytes())?;
        let holds = if taken.zero { Holds::OldStates } else { Holds::Anything };
        Ok(Room { at: taken.span.start, lap: 1, holds })
    }

    /// Gets space for a rebuild ahead of need, if the medium has room.
    pub(super) fn reserve_segment(&self) -> Result<()> {
        let mut table = self.segment_table.lock()?;
        if table.spares.is_empty() {
            match self.take_segment(&mut table, 0) {
                Ok(room) => table.spares.push(room),
                Err(Error::Full { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Takes space back in which no segment lies any more, durably.
    fn keep(&self, table: &mut SegmentTable, room: Room) {
        if table.spares.len() < MOST_SPARES {
            table.spares.push(room);
        } else {
            self.space.give(self.geometry.segment(room.at));
        }
    }

    fn slot_at(&self, table: &SegmentTable, slot: u64) -> Addr {
        let (extent, index) = layout::extent_of(self.geometry.initial_segments, slot);
        table.extents[extent].plus(index)
    }

    /// Takes a slot of the segment table, which doubles if there is none.
    ///
    /// A crash leaves an extent to which no link leads: it is free.
    fn take_slot(&self, pm: &Access<'_, M>, table: &mut SegmentTable) -> Result<u64> {
        if let Some(slot) = table.free.pop() {
            return Ok(slot);
        }
        let (initial, extent) = (self.geometry.initial_segments, table.extents.len());
        let bytes = layout::extent_bytes(initial, extent);
        if extent == layout::EXTENTS {
            let limit = (0..extent).map(|it| layout::extent_slots(initial, it)).sum();
            let remedy = "copy the pairs to a new table with larger segments (segment_units)";
            return Err(Error::Limit { name: "segments", limit, remedy });
        }
        let taken = self.space.take(bytes, 64)?;
        if !taken.zero {
            let zeros = vec![0; taken.span.words as usize];
            pm.write_words_nt(taken.span.start, &zeros, sites::EXTENT)?;
            pm.fence(sites::EXTENT)?;
        }
        let link = layout::extent_link(extent);
        let word = layout::seal(taken.span.start.byte(), link, Kind::Extent);
        pm.commit_word(link, word, sites::EXTENT_LINK)?;
        // Durable with the fence of the slot that is taken, until when the table stays locked.
        pm.flush(Span::new(link, 1), sites::EXTENT_LINK);
        self.table.add_extent(extent);
        table.extents.push(taken.span.start);
        let first = layout::first_slot(initial, extent);
        table.free.extend((first..first + layout::extent_slots(initial, extent)).rev());
        Ok(table.free.pop().expect("an extent has slots"))
    }
}
