//! Collection: the live objects of a segment are appended to its stream, and the segment is empty.
//!
//! Collecting is done in steps, each by whoever has the time: upkeep, or a write when there is more
//! garbage than upkeep should leave. An object is alive if the directory still leads to it. A
//! tombstone is alive as long as an older version of its key may lie in a segment that exists, and
//! no newer one does: only of the oldest segment of a stream no tombstone is needed any more. When
//! there are many of them, the oldest segment is collected for their sake. Empty room counts as
//! garbage where two segments fit into one.

mod fits;

use core::ops::Range;
use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media, Span, WORD};

use super::directory::damaged;
use super::layout::{Kind, SegmentHead};
use super::reader::{Held, Part, Reader};
use super::reserve::Purpose;
use super::segments::Object;
use super::state::Reef;
use super::stream::{Sealed, Stream, Victim};

/// How much garbage there may be in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// So much room, per 32 words of live objects: of segments and of what is kept for them.
    pub(super) room: u64,
    /// Of each segment so much, per 32 words: if it has less garbage, it is not collected whatever
    /// room there is. What is moved is bounded by that.
    pub(super) least: u64,
}

/// What writers allow: 1.41 times the pairs, to which comes what waits for the end of an epoch. No
/// word that is gained costs more than 2.2 that are moved, so that at most 3.2 are written for
/// each.
///
/// Source: ours; `tests/space.rs` measures both.
pub const WRITERS: Allowance = Allowance { room: 45, least: 10 };

/// What upkeep allows while they write: 1.34 times, so that they need not help as long as it keeps
/// up.
///
/// Source: ours; of a table of a hundred megabytes, the difference is what a writer writes in 50
/// ms, and upkeep comes every 10. Some percent more are moved.
pub const AHEAD: Allowance = Allowance { room: 43, ..WRITERS };

/// What upkeep allows when nobody writes: 1.19 times.
///
/// Source: ours.
pub const AT_REST: Allowance = Allowance { room: 38, least: 6 };

/// How much of a segment a write collects, at least.
///
/// Unit: words. Source: ours; 8 KiB, of which some microseconds are seen by one write of 25, and
/// which collects many times more than a write of a usual length adds.
pub const STEP: u64 = 1024;

/// How many times what was written since the last step a write collects, if that is more.
///
/// Source: ours; a segment is collected that is garbage to a third at least, so that collecting
/// gains more than is written.
const STEP_SHARE: u64 = 4;

/// The part of the room in use that may wait for the end of an epoch.
///
/// Source: ours; of a table of half a gigabyte, as much as epochs end for anyway.
const WAITING: u64 = 32;

/// How much of a segment is copied at once, unless one object is longer.
///
/// Unit: words. Source: ours; about as many objects of a usual length as are looked at together.
const PIECE: u64 = 512;

/// For how many objects lines of the directory are fetched together.
///
/// Unit: objects. Source: ours; about twice as many cache misses can a present core have
/// outstanding.
const TOGETHER: usize = 32;

/// What a full medium allows.
pub const NOTHING: Allowance = Allowance { room: 0, least: 0 };

/// Of so many words an [`Allowance`] speaks.
const PARTS: u64 = 32;

/// A stream of which more than this part is garbage has pairs replaced rather than added.
///
/// Source: ours; of a load with few overwrites less is garbage.
const REPLACES: u64 = 16;

/// The part of a stream's words that may be tombstones.
const TOMBSTONES: u64 = 8;

/// So many segments of which half is empty are merged, each time the emptiest: of fewer, one that
/// has gathered the pairs of many short processes would be moved by each further one.
///
/// Unit: segments. Source: ours; with four streams, a megabyte of a small file.
const MERGED: usize = 3;

/// The part of a segment that is worth its collection on a full medium, before tombstones are.
///
/// Source: ours; as much as of a stream may be tombstones.
const WORTH: u64 = TOMBSTONES;

/// Segments that a full medium collects at most before a write of a pair fails.
///
/// Source: ours; each gains something, or comes closer to tombstones that nothing needs.
const ATTEMPTS: usize = 64;

/// What was collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Nothing: there is too little garbage, or somebody else collects it.
    Nothing,
    /// A part of a segment.
    Step,
    /// The rest of a segment.
    Segment,
}

/// What the segments of a stream hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survey {
    /// Room of segments that count, and of what is kept beside them. Unit: words.
    room: u64,
    /// Objects that are alive. Unit: words.
    live: u64,
    /// Words in use in full segments.
    used: u64,
    /// Of them, words of garbage.
    garbage: u64,
    tombstones: u64,
    /// The segment from which most is gained.
    best: Option<Victim>,
    /// Of the segments that the opening found, the two of whose objects the fewest words are alive,
    /// and how many words those are.
    emptiest: [Option<(u64, Victim)>; 2],
    /// How many of those are half empty.
    half_empty: usize,
}

impl Survey {
    fn note_emptiest(&mut self, segment: (u64, Victim)) {
        let is_emptier = |other: &(u64, Victim)| segment.0 < other.0;
        let [first, second] = &mut self.emptiest;
        if first.as_ref().is_none_or(is_emptier) {
            *second = first.replace(segment);
        } else if second.as_ref().is_none_or(is_emptier) {
            *second = Some(segment);
        }
    }

    /// Returns the emptiest segment if its objects fit into the newest one, or into one with those
    /// of another. Every opening ends the segments that it finds: where processes write little, far
    /// more is empty than is garbage.
    fn merged(&self, stream: &Stream) -> Option<Victim> {
        let [first, second] = self.emptiest;
        let (moved, victim) = first?;
        let both = second.map(|(other, _)| SegmentHead::WORDS as u64 + moved + other);
        let fits =
            moved <= stream.left() || both.is_some_and(|both| both <= victim.segment.span.words);
        fits.then_some(victim)
    }
}

impl<M: Media> Reef<M> {
    /// Looks at the segments of a stream.
    fn survey(&self, stream: &Stream) -> Survey {
        let mut survey = Survey::default();
        let Some(oldest) = stream.sealed.keys().next().copied() else { return survey };
        let number = stream.number as usize;
        for (sequence, segment) in &stream.sealed {
            if segment.is_empty {
                continue;
            }
            let is_oldest = *sequence == oldest;
            let dead = self.units.garbage(segment.span.start);
            let buried = if is_oldest { segment.tombstones } else { 0 };
            let gain = (dead + buried).min(segment.fill);
            let live = segment.fill - gain;
            survey.room += segment.span.words;
            survey.live += live;
            survey.used += segment.span.words;
            survey.garbage += gain;
            survey.tombstones += segment.tombstones;
            let is_better =
                |best: Victim| gain * best.segment.span.words > best.gain * segment.span.words;
            if segment.is_damaged || stream.is_refused(segment) {
                continue;
            }
            let victim = |gain| Victim::new(number, (*sequence, *segment), is_oldest, gain);
            if survey.best.is_none_or(is_better) {
                survey.best = Some(victim(gain));
            }
            if !segment.is_found {
                // It was full once.
                continue;
            }
            let moved = live.saturating_sub(SegmentHead::WORDS as u64);
            survey.half_empty += usize::from(2 * moved <= segment.span.words);
            survey.note_emptiest((moved, victim(segment.span.words - moved)));
        }
        if let Some(open) = &stream.open {
            survey.room += open.span.words;
            survey.live += open.fill - self.units.garbage(open.span.start).min(open.fill);
        }
        // What is kept back, and the checkpoint, but not the room for the next one.
        let taken = self.space.usage().map_or(0, |usage| usage.used_bytes);
        let spare = self.spare.lock().map_or(0, |spare| spare.map_or(0, |span| span.bytes()));
        let beside = taken.saturating_sub(self.used.load(Ordering::Relaxed) + spare);
        survey.room += beside / WORD / self.streams.len() as u64;
        survey
    }

    /// Looks at the segments of a stream, and notes who is to collect.
    pub(super) fn look(&self, stream: &mut Stream) -> Survey {
        let survey = self.survey(stream);
        stream.is_due = self.chosen(stream, &survey, AHEAD).is_some();
        let is_behind = self.chosen(stream, &survey, WRITERS).is_some();
        stream.set_behind(is_behind);
        stream.has_news = false;
        stream.replaces = survey.garbage * REPLACES > survey.used;
        survey
    }

    /// Returns the segment of a stream from which most is gained, if the stream has more garbage
    /// than is allowed.
    pub(super) fn victim(&self, stream: &Stream, allowance: Allowance) -> Option<Victim> {
        self.chosen(stream, &self.survey(stream), allowance)
    }

    fn chosen(&self, stream: &Stream, survey: &Survey, allowance: Allowance) -> Option<Victim> {
        let Survey { room, live, used, garbage, tombstones, best, .. } = *survey;
        let (merged, is_full) = (survey.merged(stream), allowance == NOTHING);
        if is_full && merged.is_some() {
            return merged;
        }
        let slack = if is_full { 0 } else { self.segment_bytes() / WORD };
        let are_many = tombstones > used / TOMBSTONES + slack || is_full && tombstones > garbage;
        // In front of tombstones may lie hundreds of segments in which everything is alive.
        let is_worth = |it: Victim| it.gain * WORTH > it.segment.fill;
        let has_better = is_full && best.is_some_and(is_worth);
        if are_many && !has_better {
            // Those of the oldest segment are garbage, and then those of the next one, as soon as
            // the epoch is durable as of which that one is the oldest.
            let oldest = stream.sealed.iter().next();
            let may_go = |it: &Sealed| !it.is_empty && !it.is_damaged && !stream.is_refused(it);
            let oldest = oldest.filter(|(_, it)| may_go(it));
            if let Some((sequence, segment)) = oldest {
                let gain = self.units.garbage(segment.span.start) + segment.tombstones;
                let number = stream.number as usize;
                return Some(Victim::new(number, (*sequence, *segment), true, gain.max(1)));
            }
        }
        let is_due = room * PARTS > live * allowance.room;
        let is_enough = |it: &Victim| it.gain * PARTS >= it.segment.fill * allowance.least;
        let merged = merged.filter(|_| survey.half_empty >= MERGED);
        let found = [best, merged].into_iter().flatten();
        found.filter(|_| is_due).find(|it| it.gain > 0 && is_enough(it))
    }

    /// Collects some of a segment of a stream if it has more garbage than is allowed, or if one is
    /// half collected. `step` is how much of it is looked at, at least. Unit: words.
    ///
    /// # Errors
    /// [`Error::Corrupt`](everhash_index::Error::Corrupt) if it is damaged; what was moved before
    /// is moved.
    pub(super) fn collect_stream(
        &self,
        number: usize,
        allowance: Allowance,
        step: u64,
    ) -> Result<Collected> {
        let Some(mut collected) = self.collected[number].0.try_lock()? else {
            return Ok(Collected::Nothing);
        };
        if collected.is_none() {
            let mut stream = self.streams[number].0.lock()?;
            let survey = self.look(&mut stream);
            *collected = self.chosen(&stream, &survey, allowance);
            if collected.is_none() && allowance == AT_REST {
                stream.tidied = Some(stream.written());
            }
        }
        if collected.is_none() {
            return Ok(Collected::Nothing);
        }
        self.collect_held(&mut collected, step)?;
        Ok(if collected.is_some() { Collected::Step } else { Collected::Segment })
    }

    /// Collects some of a segment that is held for it, and none any more once that was all, or
    /// once it met damage, or an object for which there is no room: other segments may have shorter
    /// ones. It is tried again once the stream has found room for one more segment.
    fn collect_held(&self, held: &mut Option<Victim>, step: u64) -> Result<()> {
        let Some(victim) = held else { return Ok(()) };
        match self.collect(victim, step) {
            Ok(false) => {}
            Ok(true) => *held = None,
            Err(Error::Corrupt { at, broken }) => {
                let mut stream = self.streams[victim.stream].0.lock()?;
                let segment = stream.sealed.get_mut(&victim.sequence).filter(|it| !it.is_empty);
                *held = None;
                // A clear may have come between: then nothing is damaged any more.
                let Some(segment) = segment else { return Ok(()) };
                segment.is_damaged = true;
                stream.damaged = stream.damaged.or(Some(Addr::new(at)));
                return Err(Error::Corrupt { at, broken });
            }
            Err(full @ Error::Full { .. }) => {
                let mut stream = self.streams[victim.stream].0.lock()?;
                let newest = stream.last.sequence;
                if let Some(segment) = stream.sealed.get_mut(&victim.sequence) {
                    segment.refused_at = Some(newest);
                }
                *held = None;
                return Err(full);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Moves what is alive in `step` words of a segment, at least; returns whether that was all. A
    /// crash leaves each object in the one place or the other.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for all that is alive: as a rule nothing was moved then.
    pub(super) fn collect(&self, victim: &mut Victim, step: u64) -> Result<bool> {
        let pm = self.pool.access();
        let Sealed { span, seal, fill, .. } = victim.segment;
        let part = Part::new((span.start, seal), victim.offset, fill);
        // The next process begins such a segment anew: a step of each would never come to its end.
        let step = if span.bytes() <= self.unit_bytes { fill } else { step };
        let end = victim.offset.saturating_add(step).min(fill);
        let mut reader = Reader::new(&pm, self.objects, PIECE, []);
        reader.turn(part);
        if victim.offset == SegmentHead::WORDS as u64 {
            self.runs.wait(victim.stream)?;
            if !self.has_room_for(victim)? {
                return Err(Error::Full { needed: span.bytes() });
            }
        }
        let mut objects = Vec::new();
        // Ends: every object has a length, and some are listed or it is an error.
        while victim.offset < end {
            self.list(&mut reader, victim.offset..end, &mut objects)?;
            if objects.is_empty() {
                let at = span.start.plus(victim.offset);
                return if self.is_gone(victim)? { Ok(true) } else { Err(damaged(at)) };
            }
            for (held, hash) in objects.drain(..) {
                self.keep(&pm, victim, (&held, hash), reader.bytes())?;
                victim.offset += held.head.words;
            }
        }
        if victim.offset < fill {
            return Ok(false);
        }
        let mut stream = self.streams[victim.stream].0.lock()?;
        self.mark_empty(&pm, &mut stream, victim.sequence)?;
        self.collections.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Lists the first sound objects at these offsets and the hashes of their keys, as many as are
    /// looked at together, and fetches the lines of the directory that keeping them looks at. Lists
    /// none where there is no sound one.
    fn list<I: Iterator<Item = Span>>(
        &self,
        reader: &mut Reader<'_, '_, M, I>,
        offsets: Range<u64>,
        objects: &mut Vec<(Held, u64)>,
    ) -> Result<()> {
        let mut offset = offsets.start;
        if reader.held(offset).is_none() && !reader.hold(offset)? {
            return Ok(());
        }
        while objects.len() < TOGETHER && offset < offsets.end {
            // One that goes on behind what is held is the first of the next.
            let Some(held) = reader.held(offset) else { break };
            let Some(key) = reader.key(&held) else { break };
            let hash = self.hash(key);
            self.shard(hash).0.prefetch_link(hash);
            objects.push((held, hash));
            offset += held.head.words;
        }
        for (_, hash) in &*objects {
            self.shard(*hash).0.prefetch(*hash);
        }
        Ok(())
    }

    /// Returns whether a clear has emptied a segment meanwhile: its room may have another use.
    fn is_gone(&self, victim: &Victim) -> Result<bool> {
        let stream = self.streams[victim.stream].0.lock()?;
        Ok(stream.sealed.get(&victim.sequence).is_none_or(|segment| segment.is_empty))
    }

    /// Appends an object to its stream anew if it is alive; `bytes` are what is held of the
    /// segment, `hash` that of the key.
    fn keep(
        &self,
        pm: &Access<'_, M>,
        victim: &Victim,
        (held, hash): (&Held, u64),
        bytes: &[u8],
    ) -> Result<()> {
        let Held { at, head, first } = *held;
        let Some(kind) = head.kind else { return Ok(()) };
        let (shard, number) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        self.alive()?;
        if self.units.seal(at) != victim.segment.seal {
            // After a clear, another segment lies here: what was read is of no time.
            return Ok(());
        }
        self.touch(pm, (shard, &*members), hash)?;
        let (key, value) = self.objects.held(&bytes[first..], &head);
        // What is moved comes to the end of the stream.
        let object = Object { kind, key, value, behind: Addr::NULL };
        match kind {
            Kind::Put => {
                if let Some(found) = shard.locate_place(hash, at, head.words) {
                    let (place, _) = self.append(pm, number, Purpose::Move, &object)?;
                    shard.replace(&found, place);
                    self.units.add_garbage(at, head.words);
                }
            }
            Kind::Removed if victim.is_oldest => {}
            Kind::Removed => {
                let look = |at| self.objects.look(pm, (at, self.units.seal(at)), key, None);
                // Moved behind a newer version it would remove that.
                if shard.locate(hash, look)?.is_none() {
                    members.tombstone = self.append(pm, number, Purpose::Move, &object)?.0;
                }
            }
        }
        Ok(())
    }

    /// Collects and ends epochs until there is room again, after so many attempts for one write;
    /// returns whether there is any. The caller holds no latch.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn make_room(&self, purpose: Purpose, attempt: usize) -> Result<bool> {
        if attempt >= self.attempts(purpose)? {
            return Ok(false);
        }
        let _making_room = self.making_room.lock()?;
        if self.give_up_spare()? || self.give_up_checkpoint()? {
            return Ok(true);
        }
        let mut victims = Vec::new();
        for (stream, collected) in self.streams.iter().zip(&self.collected) {
            let begun = *collected.0.lock()?;
            victims.extend(match begun {
                Some(begun) => Some(begun),
                None => self.victim(&*stream.0.lock()?, NOTHING),
            });
        }
        victims.sort_by_key(Victim::loss);
        let mut waits = false;
        for stream in &self.streams {
            let stream = stream.0.lock()?;
            waits |= !stream.emptied.is_empty() || !stream.ends.is_empty();
        }
        // One is enough.
        let mut gained = waits;
        for victim in victims {
            if self.collect_any(victim)? {
                gained = true;
                break;
            }
        }
        if gained {
            self.commit_epoch()?;
        }
        Ok(gained || purpose == Purpose::Remove && self.lend_more())
    }

    /// Returns how many segments are collected at most before a write fails.
    fn attempts(&self, purpose: Purpose) -> Result<usize> {
        let mut attempts = ATTEMPTS;
        if purpose != Purpose::Add {
            // Once all of a stream were collected, its tombstones are gone.
            for stream in &self.streams {
                attempts += stream.0.lock()?.sealed.len();
            }
        }
        Ok(attempts)
    }

    /// Collects a segment of a full medium, or if it cannot be moved, another one of its stream:
    /// there may be room for the objects of that one. Returns whether one was collected.
    fn collect_any(&self, victim: Victim) -> Result<bool> {
        let mut collected = self.collected[victim.stream].0.lock()?;
        collected.get_or_insert(victim);
        for _ in 0..ATTEMPTS {
            match self.collect_held(&mut collected, u64::MAX) {
                Ok(()) => return Ok(true),
                Err(Error::Full { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
            let mut stream = self.streams[victim.stream].0.lock()?;
            *collected = self.victim(&stream, NOTHING);
            if collected.is_none() {
                // The medium may have room the next time, and nothing here may have shown it.
                stream.sealed.values_mut().for_each(|it| it.refused_at = None);
                break;
            }
        }
        Ok(false)
    }

    /// Does what a write leaves to do when it holds no latch any more: prepares memory for the next
    /// ones, and bounds what waits for an epoch, and the garbage.
    ///
    /// # Errors
    /// Those of the medium. The write itself is done.
    #[cold]
    pub(super) fn after_write(&self, number: usize) -> Result<()> {
        let (piece, must_end, is_behind, step) = {
            let mut stream = self.streams[number].0.lock()?;
            // Who helps already ends the segment that is being collected first.
            if stream.has_news && !stream.is_behind {
                self.look(&mut stream);
            }
            let written = stream.written();
            let since = written - stream.paid;
            stream.paid = written;
            let step = STEP.max(since.min(self.segment_bytes()) / WORD * STEP_SHARE);
            let piece = self.next_piece(&mut stream);
            (piece, self.must_end_epoch(&stream), stream.is_behind, step)
        };
        if let Some(piece) = piece {
            self.prepare(number, piece)?;
        }
        if must_end {
            self.bound_pending(number)?;
        }
        if is_behind {
            match self.collect_stream(number, WRITERS, step) {
                // The write itself is done. Upkeep says what is damaged.
                Err(Error::Full { .. } | Error::Corrupt { .. }) => {}
                Ok(Collected::Step) => {}
                outcome => {
                    outcome?;
                    self.bound_waiting()?;
                }
            }
        }
        Ok(())
    }

    /// Ends the epoch if much of the room waits for it.
    fn bound_waiting(&self) -> Result<()> {
        match self.waits_much()? {
            true => self.commit_epoch(),
            false => Ok(()),
        }
    }

    /// Returns whether so much room waits for the end of an epoch that it should come early.
    pub(super) fn waits_much(&self) -> Result<bool> {
        let mut waiting = 0;
        for stream in &self.streams {
            waiting += stream.0.lock()?.waiting();
        }
        let used = self.used.load(Ordering::Relaxed);
        // Of a small table a larger part: an epoch waits for the device.
        let [most, least] = [1, 4].map(|part| self.settings.flush_bytes / WAITING / part);
        let some = (2 * used / WAITING).min(most).max(least).max(2 * self.segment_bytes());
        Ok(waiting > used / WAITING + some)
    }
}
