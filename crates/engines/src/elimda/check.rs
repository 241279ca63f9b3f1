//! A judge of pools at rest: from the words on the medium to the pairs, or to what is broken.
//!
//! Shares the rulers with the code that serves the table, and nothing else.

mod logs;

use std::collections::BTreeMap;

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, Boot, Media, Pool, Region, Shutdown, Span, WORD, pool};

use super::layout::{
    self, EXTENTS, Geometry, KeyedHash, Kind, Prefix, ROOT, Root, SECOND_WORD, UnitHead, UnitState,
    VERSION,
};
use crate::common::check::{
    Budget, corrupt, reachable_bytes, read_record, record_span, verify_root,
};

/// The order of what is in a collecting log. What the backup log or a unit holds of the same key
/// counts instead: a crash came between the two steps of a move, or of an update.
const COLLECTED: u64 = u64::MAX;

/// The watermark of a bucket of which it is not known what it has absorbed: what the backup log
/// holds of it may be old.
const UNKNOWN: u64 = COLLECTED - 1;

/// Everything that the judge knows of a pool.
struct Judge<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    geometry: Geometry,
    /// What is in use.
    spans: Vec<Span>,
    /// How much may still be read; a record to which a crash has left two items is read twice.
    budget: Budget,
    /// Whether the pool was closed: only then its number of pairs counts.
    is_closed: bool,
    /// Items that have a newer one, or another copy.
    doubled: u64,
    /// Whether there are fewer units than there were: what they had absorbed, and where, is not
    /// known, and anything in the backup log may be old.
    units_are_gone: bool,
    /// Live slots of the log, by bucket and segment: hash, order number, where the item lies.
    logged: Vec<Logged>,
    /// What was damaged so far, if that is passed over.
    damages: Option<Vec<Error>>,
}

/// A live slot of the log.
struct Logged {
    hash: u64,
    order: u64,
    at: Addr,
}

impl Logged {
    fn order(&self) -> (u64, u64) {
        (self.hash, self.order)
    }
}

/// A segment that counts.
struct Segment {
    at: Addr,
    prefix: Prefix,
}

impl Segment {
    fn order(&self) -> (u64, u32) {
        self.prefix.order()
    }
}

/// A key that was found, and how new its pair is.
struct Pair {
    order: u64,
    /// The value, where a newer one may come: other pairs are visited at once, and only the key is
    /// kept.
    value: Option<Vec<u8>>,
}

/// What was read of a segment.
struct Reading<'v> {
    pairs: BTreeMap<Vec<u8>, Pair>,
    visit: &'v mut dyn FnMut(&[u8], &[u8]),
}

/// Visits every pair once. What a crash may leave to recovery is passed over.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let mut judge = Judge::new(region)?;
    let items = judge.pairs(visit)?;
    Ok(Checked { items, reachable_bytes: reachable_bytes(judge.spans, region.media().bytes())? })
}

/// As [`check`], but passes over what is damaged, which costs as little as can be known: a record
/// or an item its pair, a line of the log or a unit its items, a link of the log what lies behind
/// it in its lane, the head of a segment that segment. Where a watermark is damaged, items of the
/// log are left out that may be old: all of them, if a closed pool has fewer units than it had.
///
/// # Errors
/// [`Error::Corrupt`] if the root is damaged.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut judge = Judge::new(region)?;
    judge.damages = Some(Vec::new());
    let read = judge.pairs(visit);
    judge.damages.take().into_iter().flatten().for_each(&mut *report);
    pass_over(read, report)
}

impl<'a, M: Media> Judge<'a, M> {
    fn new(region: &'a Region<M>) -> Result<Self> {
        let identity = Pool::inspect(region)?;
        let form = Form::from_code(identity.form);
        let pm = region.access();
        let mut root = [0; Root::WORDS];
        pm.read_words(ROOT, &mut root)?;
        verify_root(&root[..=Root::CHECKSUM], "elimda", VERSION)?;
        let geometry = Geometry::of_root(&root, form)
            .ok_or(corrupt(ROOT, "the settings of a table are in range"))?;
        let hasher = KeyedHash::of(&identity)?;
        let spans = vec![Span::of_bytes(Addr::NULL, pool::DATA.byte())];
        let is_closed = Pool::status(region, Boot::default())?.previous == Shutdown::Clean;
        Ok(Judge {
            pm,
            form,
            hasher,
            geometry,
            spans,
            budget: Budget::of(region.media().bytes()),
            is_closed,
            doubled: 0,
            units_are_gone: false,
            logged: Vec::new(),
            damages: None,
        })
    }

    /// Visits every pair once; returns how many there are.
    fn pairs(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let segments = self.segments()?;
        // Where segments are damaged, nobody knows how many units they had.
        if self.finds_no_damage() {
            self.count_units(&segments)?;
        }
        for lane in 0..self.geometry.lanes {
            let read = self.lane(lane);
            self.pass(read)?;
        }
        let read = self.collecting_logs();
        self.pass(read)?;
        self.logged.sort_by_key(Logged::order);
        let logged = core::mem::take(&mut self.logged);
        let (mut items, mut first) = (0, 0);
        for segment in &segments {
            // A segment that is damaged leaves a gap.
            first += logged[first..].partition_point(|one| one.hash < segment.prefix.start());
            let count = logged[first..].partition_point(|one| one.hash <= segment.prefix.last());
            let mut reading = Reading { pairs: BTreeMap::new(), visit };
            let read = self.segment(segment, &logged[first..first + count], &mut reading);
            first += count;
            items += reading.end();
            self.pass(read)?;
        }
        // What is damaged explains why there are fewer.
        if self.finds_no_damage() {
            let counted = self.demand_items(items);
            self.pass(counted)?;
        }
        Ok(items)
    }

    fn finds_no_damage(&self) -> bool {
        self.damages.as_ref().is_none_or(Vec::is_empty)
    }

    /// Demands that a closed pool has as many units as it had then: a hole in one looks like space
    /// that was never used, and what it has absorbed like items of the log that count.
    fn count_units(&mut self, segments: &[Segment]) -> Result<()> {
        if !self.is_closed {
            return Ok(());
        }
        let units = layout::open(self.pm.load(layout::UNITS)?, layout::UNITS, Kind::Units)
            .ok_or(corrupt(layout::UNITS, "the number of units matches its check"));
        let Some(units) = self.pass(units)? else { return Ok(()) };
        let mut found = 0;
        for segment in segments {
            // It is reported, and its units are lost with it, where its pairs are read.
            let Ok(lap) = self.lap(segment.at) else { return Ok(()) };
            for unit in 0..self.geometry.segment_units {
                // One with a damaged state is still there.
                found += u64::from(!matches!(self.unit_state(segment, unit, lap), Ok(None)));
            }
        }
        if found != units {
            let broken = "a table has as many units as when it was closed";
            self.pass::<()>(Err(corrupt(layout::UNITS, broken)))?;
            self.units_are_gone = true;
        }
        Ok(())
    }

    /// Demands that a closed pool has as many pairs as it had then: a hole in it looks like space
    /// that was never used.
    fn demand_items(&self, found: u64) -> Result<()> {
        let items = layout::open(self.pm.load(layout::ITEMS)?, layout::ITEMS, Kind::Items);
        let is_true = |items| (found..=found + self.doubled).contains(&items);
        match !self.is_closed || items.is_some_and(is_true) {
            true => Ok(()),
            false => Err(corrupt(layout::ITEMS, "a table has as many pairs as when it was closed")),
        }
    }

    /// Returns what was read; `None` if it is damaged and that is passed over.
    fn pass<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match (read, &mut self.damages) {
            (Err(damage @ Error::Corrupt { .. }), Some(damages)) => {
                damages.push(damage);
                Ok(None)
            }
            (read, _) => read.map(Some),
        }
    }

    /// Notes that a span is in use. It is checked here that it lies inside the pool, and that not
    /// much more is in use than that has room for, so that what is made of it is in proportion to
    /// the pool: a forged one may name one place again and again.
    fn reach(&mut self, span: Span) -> Result<()> {
        self.admit(span)?;
        self.spans.push(span);
        Ok(())
    }

    /// As [`Judge::reach`], of what may turn out to be no longer in use.
    fn admit(&mut self, span: Span) -> Result<()> {
        if span.end_byte() > self.pm.media().bytes() {
            return Err(corrupt(span.start, "everything lies inside the pool"));
        }
        self.budget.take(span)
    }

    /// Finds the segments that count, in the order of their hashes.
    fn segments(&mut self) -> Result<Vec<Segment>> {
        let mut named = Vec::new();
        let mut extents = 0;
        for extent in 0..EXTENTS {
            let link = layout::extent_link(extent);
            let word = self.pm.load(link)?;
            if word == 0 {
                continue;
            }
            let is_next = core::mem::replace(&mut extents, extent + 1) == extent;
            let at = layout::open_link(word, link, Kind::Extent)
                .filter(|_| is_next || self.damages.is_some())
                .ok_or(corrupt(link, "extents follow one another, with checks that match"));
            let Some(at) = self.pass(at)? else { continue };
            let initial = self.geometry.initial_segments;
            // First, because a salvage follows links that only a forged pool has: their extents
            // may be longer than any medium.
            let fits = layout::extent_slots(initial, extent) <= self.pm.media().bytes() / WORD;
            let reached = match fits {
                true => self.reach(Span::of_bytes(at, layout::extent_bytes(initial, extent))),
                false => Err(corrupt(link, "everything lies inside the pool")),
            };
            if self.pass(reached)?.is_none() {
                continue;
            }
            for index in 0..layout::extent_slots(initial, extent) {
                let segment = self.named(at.plus(index));
                named.extend(self.pass(segment)?.flatten());
            }
        }
        self.tile(named)
    }

    /// Returns the segment that a slot of the segment table names, if it names one.
    fn named(&self, slot: Addr) -> Result<Option<Segment>> {
        let word = self.pm.load(slot)?;
        if word == 0 {
            return Ok(None);
        }
        let at = layout::open_link(word, slot, Kind::Slot)
            .ok_or(corrupt(slot, "a slot of the segment table matches its check"))?;
        let prefix = Prefix::open(self.pm.load(at)?, at)
            .ok_or(corrupt(at, "the head of a segment matches its check"))?;
        Ok(Some(Segment { at, prefix }))
    }

    /// Returns the segments that count, in the order of their hashes.
    fn tile(&mut self, mut named: Vec<Segment>) -> Result<Vec<Segment>> {
        named.sort_by_key(Segment::order);
        let mut kept: Vec<Segment> = Vec::new();
        for segment in named {
            // A split that a crash has cut short leaves the upper half beside the whole.
            if kept.last().is_some_and(|whole| segment.prefix == whole.prefix.half(true)) {
                continue;
            }
            let next = kept.last().map_or(Some(0), |last| last.prefix.last().checked_add(1));
            let broken = corrupt(segment.at, "each hash belongs to one segment");
            let is_next = next == Some(segment.prefix.start());
            self.pass(if is_next { Ok(()) } else { Err(broken) })?;
            // Behind a gap, it is still the only one of its hashes.
            if next.is_none_or(|next| segment.prefix.start() < next) {
                continue;
            }
            let reached = self.reach(self.geometry.segment(segment.at));
            if self.pass(reached)?.is_some() {
                kept.push(segment);
            }
        }
        let ends = kept.last().is_some_and(|last| last.prefix.last() == u64::MAX);
        let broken = corrupt(ROOT, "each hash belongs to one segment");
        self.pass(if ends { Ok(()) } else { Err(broken) })?;
        Ok(kept)
    }

    fn item(&self, at: Addr) -> Result<[u64; 4]> {
        let mut item = [0; 4];
        self.pm.read_words(at, &mut item[..self.geometry.item_words as usize])?;
        Ok(item)
    }

    fn hash(&self, item: &[u64; 4]) -> u64 {
        match self.form {
            Form::WORDS => self.hasher.word(item[0]),
            Form::DOUBLE_WORDS => self.hasher.two_words([item[0], item[1]]),
            _ => item[0],
        }
    }

    /// Returns the pairs of a segment: those of its units, and what the log holds above the
    /// watermarks.
    fn segment(
        &mut self,
        segment: &Segment,
        logged: &[Logged],
        reading: &mut Reading<'_>,
    ) -> Result<()> {
        let geometry = self.geometry;
        let lap = self.lap(segment.at)?;
        let mut watermarks = Vec::new();
        for bucket in 0..geometry.buckets {
            let at = geometry.watermark_at(segment.at, bucket);
            let word = self.pm.load(at)?;
            let watermark = layout::open(word, at, Kind::Watermark)
                .ok_or(corrupt(at, "a watermark matches its check"));
            watermarks.push(self.pass(watermark)?.unwrap_or(UNKNOWN));
        }
        if self.units_are_gone {
            watermarks.fill(UNKNOWN);
        }
        for unit in 0..geometry.segment_units {
            let read = self.unit(segment, (unit, lap), &mut watermarks, reading);
            if self.pass(read)?.is_none() {
                self.hide_absorbed(segment, unit, &mut watermarks)?;
            }
        }
        for logged in logged {
            if logged.order > watermarks[geometry.bucket_of(logged.hash) as usize] {
                let read = self.pair(logged.at, logged.order, reading);
                self.pass(read)?;
            }
        }
        Ok(())
    }

    /// Adds the pairs of a unit, unless it is free, and what its bucket has absorbed with it.
    fn unit(
        &mut self,
        segment: &Segment,
        (unit, lap): (u64, u64),
        watermarks: &mut [u64],
        reading: &mut Reading<'_>,
    ) -> Result<()> {
        let geometry = self.geometry;
        let at = geometry.unit_at(segment.at, unit);
        let Some(state) = self.unit_state(segment, unit, lap)? else { return Ok(()) };
        if state.bucket >= geometry.buckets || state.live >> geometry.unit_slots != 0 {
            return Err(corrupt(at, "the state of a unit is in range"));
        }
        let watermark = self.watermark(at);
        let watermark = self.pass(watermark)?.unwrap_or(UNKNOWN);
        let absorbed = &mut watermarks[state.bucket as usize];
        *absorbed = watermark.max(*absorbed);
        for slot in (0..geometry.unit_slots).filter(|slot| state.live >> slot & 1 == 1) {
            let item_at = geometry.unit_item(at, slot);
            let hash = self.hash(&self.item(item_at)?);
            let is_here = segment.prefix.covers(hash) && geometry.bucket_of(hash) == state.bucket;
            let read = match is_here {
                true => self.pair(item_at, 0, reading),
                false => Err(corrupt(item_at, "a key lies in the bucket it hashes to")),
            };
            self.pass(read)?;
        }
        Ok(())
    }

    fn watermark(&self, unit: Addr) -> Result<u64> {
        let at = unit.plus(UnitHead::WATERMARK as u64);
        layout::open(self.pm.load(at)?, at, Kind::Watermark)
            .ok_or(corrupt(at, "a watermark matches its check"))
    }

    /// Raises the watermark of the bucket to which a damaged unit belongs by its items: what it has
    /// absorbed has copies in the backup log, which may be old.
    fn hide_absorbed(&self, segment: &Segment, unit: u64, watermarks: &mut [u64]) -> Result<()> {
        let geometry = self.geometry;
        let at = geometry.unit_at(segment.at, unit);
        let watermark = self.watermark(at).unwrap_or(UNKNOWN);
        for slot in 0..geometry.unit_slots {
            let hash = self.hash(&self.item(geometry.unit_item(at, slot))?);
            if segment.prefix.covers(hash) {
                let absorbed = &mut watermarks[geometry.bucket_of(hash) as usize];
                *absorbed = watermark.max(*absorbed);
            }
        }
        Ok(())
    }

    /// Returns the lap of the segment at `at`.
    fn lap(&self, at: Addr) -> Result<u64> {
        let at = self.geometry.lap_at(at);
        layout::open_lap(self.pm.load(at)?, at)
            .ok_or(corrupt(at, "the lap of a segment matches its check"))
    }

    /// Returns the state of a unit of a segment with this lap, or `None` if the unit is free.
    fn unit_state(&self, segment: &Segment, unit: u64, lap: u64) -> Result<Option<UnitState>> {
        let commit = self.state(self.geometry.commit_of(segment.at, unit), lap)?;
        let own = self.state(self.geometry.unit_at(segment.at, unit), lap)?;
        Ok(commit.and(own))
    }

    /// Returns the state at `at` in a segment with this lap, or `None` if there is none yet.
    fn state(&self, at: Addr, lap: u64) -> Result<Option<UnitState>> {
        UnitState::of_lap(self.pm.load(at)?, at, lap)
            .ok_or(corrupt(at, "the state of a unit matches its check"))
    }

    /// Adds the pair of the item at `at`. Of 16-byte pairs the newer one counts, where a crash came
    /// between it and the end of the older one.
    fn pair(&mut self, at: Addr, order: u64, reading: &mut Reading<'_>) -> Result<()> {
        let item = self.item(at)?;
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (key, value, record): (Vec<u8>, Vec<u8>, Option<Span>) = match self.form {
            Form::WORDS => (bytes(&item[..1]), bytes(&item[1..2]), None),
            Form::DOUBLE_WORDS => (bytes(&item[..2]), bytes(&item[2..]), None),
            _ => {
                let (slot, at) = ([item[0], item[1]], at.plus(SECOND_WORD));
                // Before it is read: in a forged pool, one long record may be that of many items.
                self.admit(record_span(slot, at)?)?;
                let (key, value, record) = read_record(&self.pm, &self.hasher, slot, at)?;
                (key, value, Some(record))
            }
        };
        let older = reading.pairs.get(&key).map(|pair| pair.order);
        if older.is_some() && older != Some(COLLECTED) && order == COLLECTED {
            self.doubled += 1;
            return Ok(());
        }
        self.spans.extend(record);
        match older {
            Some(older) if self.form != Form::DOUBLE_WORDS || older >= order => {
                return Err(corrupt(at, "a key is there once"));
            }
            older => self.doubled += u64::from(older.is_some()),
        }
        let value = match self.form {
            Form::DOUBLE_WORDS => Some(value),
            _ => {
                (reading.visit)(&key, &value);
                None
            }
        };
        reading.pairs.insert(key, Pair { order, value });
        Ok(())
    }
}

impl Reading<'_> {
    /// Visits what was kept back; returns how many pairs there are.
    fn end(self) -> u64 {
        let kept = self.pairs.iter().filter_map(|(key, pair)| Some((key, pair.value.as_ref()?)));
        kept.for_each(|(key, value)| (self.visit)(key, value));
        self.pairs.len() as u64
    }
}
