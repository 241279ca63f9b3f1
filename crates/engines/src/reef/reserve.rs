//! Room for segments, and what is kept back of it: on a medium without room, removing, clearing and
//! collecting must still work.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{AtomicWord, Domain, Lock, Media, Span, WORD, before_reuse};

use super::directory::END;
use super::layout::SegmentHead;
use super::state::Reef;
use super::stream::{Step, Stream};
use crate::common::room::had_room;

/// For what room is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For more pairs: not what is kept back.
    Add,
    /// To remove: half of what is kept back, or where nothing can be collected all but a segment.
    Remove,
    /// To collect or clear: all that is kept back. A clear leaves nothing to collect, and gives
    /// back more than it takes.
    Move,
}

/// Segments that are kept back for each stream: as many to remove as to collect.
///
/// Unit: segments. Source: ours; each stream fills one while it is emptied of others.
const KEPT: u64 = 2;

/// For how many streams segments are kept back at least.
///
/// Source: ours; a process that is killed while it collects leaves one half used.
const LEAST_STREAMS: u64 = 2;

/// How many of them are as long as the longest object needs: one to remove it, one to move it.
///
/// Unit: segments. Source: ours.
const LONG: usize = 2;

/// The part of a table that may be kept back for its longest object; for a longer one none is.
///
/// Source: ours; a small table with a few long values would be as long again.
const LONGEST_PART: u64 = 8;

/// Fewer objects of one length make a segment as long as they are.
///
/// Unit: objects. Source: ours; of more, less than a thirty-second of a segment is left over.
const FEW: u64 = 32;

/// How many units a segment of long objects has at least, and the part of a unit that is long.
///
/// Source: ours; of the last unit half is left over, a sixteenth of such a segment.
const WHOLE_UNITS: u64 = 8;

/// The part of a small table that a segment of long objects may be.
///
/// Source: ours; with four streams, a thirty-second of a table is empty room.
const LONG_PART: u64 = 64;

/// How many lengths of a segment are tried in what is free before the medium grows.
///
/// Unit: lengths, each half of the one before. Source: ours; a table that grows has shorter ones
/// behind it.
const SHORTER: usize = 4;

impl<M: Media> Reef<M> {
    /// Returns the part of itself by which the medium grows for a stream.
    pub(super) fn step(&self, stream: &Stream) -> Step {
        let domain = self.pool.region().media().guarantees().domain;
        match stream.replaces || domain == Domain::Process {
            true => Step::SMALL,
            false => Step::LOAD,
        }
    }

    /// Takes room for a segment with an object of `words` words; `step` is the part of the medium
    /// by which it grows if there is none. Returns also whether it is borrowed: whether it was kept
    /// back, or should be.
    ///
    /// # Errors
    /// [`Error::Full`](everhash_index::Error::Full).
    pub(super) fn take_segment(
        &self,
        purpose: Purpose,
        words: u64,
        step: Step,
    ) -> Result<(Span, bool)> {
        let least = self.whole_units(SegmentHead::WORDS as u64 + words);
        match purpose {
            Purpose::Add => self.keep_back(step, 0)?,
            // An opening keeps nothing back: a removal must leave some room to collect.
            Purpose::Remove if self.kept.lock()?.is_empty() => {
                had_room(self.keep_back(step, 0))?;
            }
            Purpose::Remove | Purpose::Move => {}
        }
        let (span, was_kept) = match self.take_span(least, self.bytes_for(words), step) {
            Err(full @ Error::Full { .. }) if purpose != Purpose::Add => {
                (self.take_kept(purpose, least)?.ok_or(full)?, true)
            }
            span => (span?, false),
        };
        self.used.fetch_add(span.bytes(), Ordering::Relaxed);
        // After an opening nothing is kept back until a pair is added.
        let is_borrowed = was_kept || count(&self.kept.lock()?, 0).0 < self.kept_bytes() / 2;
        Ok((span, is_borrowed))
    }

    /// Takes a segment of `least` bytes at least out of what is kept back, if there is one that may
    /// be used for this.
    fn take_kept(&self, purpose: Purpose, least: u64) -> Result<Option<Span>> {
        let (mut kept, long) = (self.kept.lock()?, self.long_bytes(0));
        let (bytes, longs) = count(&kept, long);
        let may_go = |span: &Span| match purpose {
            Purpose::Move => true,
            _ => {
                let is_last = longs == 1 && span.bytes() >= long;
                bytes - span.bytes() >= self.left_to_move() && !is_last
            }
        };
        let taken = self.take_shortest(&mut kept, least, may_go);
        // Whoever looks at what lay here before must see that it changed.
        before_reuse::<M::Sync>();
        Ok(taken)
    }

    /// Takes the shortest of the spans that may go and have `least` bytes; of a long one no more
    /// than a segment.
    fn take_shortest(
        &self,
        spans: &mut Vec<Span>,
        least: u64,
        may_go: impl Fn(&Span) -> bool,
    ) -> Option<Span> {
        let fits = |(_, span): &(usize, &Span)| span.bytes() >= least && may_go(span);
        let (place, _) = spans.iter().enumerate().filter(fits).min_by_key(|(_, it)| it.words)?;
        let (taken, rest) = split(spans.swap_remove(place), least.max(self.segment_bytes()));
        spans.extend(rest);
        Some(taken)
    }

    /// Returns whether a segment for so many words of objects is kept back, whatever they are.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub(super) fn keeps_segment_for(&self, words: u64) -> Result<bool> {
        let least = SegmentHead::WORDS as u64 + words;
        Ok(self.kept.lock()?.iter().any(|span| span.words >= least))
    }

    /// Returns whether there is room for objects of these lengths, moved in this order behind what
    /// is left of a segment. Unit: words.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn fits(&self, left: u64, lengths: &[u64], step: Step) -> Result<bool> {
        let mut taken = Vec::new();
        let fits = self.lay_out(left, lengths, step, &mut taken);
        taken.into_iter().for_each(|span| self.space.give(span));
        fits
    }

    /// As [`Reef::fits`]; leaves the free room that this needs in `taken`.
    fn lay_out(
        &self,
        mut left: u64,
        lengths: &[u64],
        step: Step,
        taken: &mut Vec<Span>,
    ) -> Result<bool> {
        // As a move takes room: what is kept back only when there is no other.
        let mut kept: Option<Vec<Span>> = None;
        for words in lengths {
            if *words > left {
                let least = self.whole_units(SegmentHead::WORDS as u64 + words);
                if kept.is_none() {
                    match self.take_span(least, self.bytes_for(*words), step) {
                        Ok(span) => taken.push(span),
                        Err(Error::Full { .. }) => kept = Some(self.kept.lock()?.clone()),
                        Err(error) => return Err(error),
                    }
                }
                let span = match &mut kept {
                    None => taken.last().copied(),
                    Some(kept) => self.take_shortest(kept, least, |_| true),
                };
                let Some(span) = span else { return Ok(false) };
                left = span.words - SegmentHead::WORDS as u64;
            }
            left -= words;
        }
        Ok(true)
    }

    /// Returns how long a segment must be for the longest object, or for one of `words` words;
    /// for none, if that would be much of the table. Unit: bytes.
    fn long_bytes(&self, words: u64) -> u64 {
        let longest = self.longest.load(Ordering::Relaxed).max(words);
        let long = self.whole_units(SegmentHead::WORDS as u64 + longest);
        let used = self.used.load(Ordering::Relaxed);
        if LONG as u64 * long <= used / LONGEST_PART { long } else { self.unit_bytes }
    }

    /// Ensures that an object of `words` words, which is to be stored in a stream, leaves the room
    /// that is kept back for other purposes.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline(always)]
    pub(super) fn leave_room(
        &self,
        purpose: Purpose,
        words: u64,
        stream: &mut Stream,
    ) -> Result<()> {
        match (purpose, &stream.open) {
            (Purpose::Add, _) => self.keep_for(words, stream),
            (Purpose::Remove, Some(open)) if open.is_borrowed => {
                self.leave_to_move(self.step(stream))
            }
            (Purpose::Remove | Purpose::Move, _) => Ok(()),
        }
    }

    /// Ensures that an object of `words` words can be removed and moved on a full medium, before it
    /// is stored in a stream. After the next opening it is not known any more how long it is.
    ///
    /// Nor is it stored in a segment that was taken out of what is kept back, before that has been
    /// made good: else whoever collects would need another one.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline(always)]
    fn keep_for(&self, words: u64, stream: &mut Stream) -> Result<()> {
        let is_usual = words <= self.longest.load(Ordering::Relaxed);
        if is_usual && stream.open.is_none_or(|open| !open.is_borrowed) {
            return Ok(());
        }
        cold_path();
        self.keep_back(self.step(stream), if is_usual { 0 } else { words })?;
        if let Some(open) = &mut stream.open {
            open.is_borrowed = false;
        }
        Ok(())
    }

    /// Ensures that a tombstone leaves room to collect, before it is stored in a segment that was
    /// taken out of what is kept back: unless as much as removals leave is there beside it, whoever
    /// collects needs that segment.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[cold]
    fn leave_to_move(&self, step: Step) -> Result<()> {
        let is_left = || Result::Ok(count(&self.kept.lock()?, 0).0 >= self.left_to_move());
        if !is_left()? {
            // An opening keeps nothing back.
            had_room(self.keep_back(step, 0))?;
        }
        match is_left()? {
            true => Ok(()),
            false => Err(Error::Full { needed: self.segment_bytes() }),
        }
    }

    /// Returns how much of what is kept back removals leave to those who collect. Unit: bytes.
    fn left_to_move(&self) -> u64 {
        match self.is_short.load(Ordering::Relaxed) {
            0 => self.kept_bytes() / 2,
            _ => self.segment_bytes(),
        }
    }

    /// Lets removals use all that is kept back but one segment, until half of it is there again:
    /// there is nothing to collect yet, and a removal leaves more garbage than it takes. Returns
    /// whether they could not before.
    pub(super) fn lend_more(&self) -> bool {
        let could = self.is_short.load(Ordering::Relaxed) == 1;
        self.is_short.store(1, Ordering::Relaxed);
        !could
    }

    /// Returns how long a segment is best that begins with an object of `words` words: as usual,
    /// or as long as several such objects, so that no part of one is left over. Unit: bytes.
    fn bytes_for(&self, words: u64) -> u64 {
        let mut usual = self.segment_bytes();
        if words * WORD > self.unit_bytes / WHOLE_UNITS {
            // Of such objects, much of a last unit is left over.
            let part = self.used.load(Ordering::Relaxed) / LONG_PART / self.unit_bytes;
            usual = usual.max(WHOLE_UNITS.min(part) * self.unit_bytes);
        }
        let head = SegmentHead::WORDS as u64;
        match (usual / WORD).saturating_sub(head) / words {
            count if count >= FEW => usual,
            count => self.whole_units(head + count.max(1) * words),
        }
    }

    /// Takes a span of `bytes` bytes, or a shorter one where there are only such, of `least` bytes
    /// at least. What is free comes before a longer file, unless it is much shorter.
    fn take_span(&self, least: u64, bytes: u64, step: Step) -> Result<Span> {
        let mut bytes = bytes.max(least);
        // Ends: at the latest, it is halved to the least.
        loop {
            let mut lengths = [bytes; SHORTER];
            for place in 1..SHORTER {
                lengths[place] = self.shorter(lengths[place - 1], least);
            }
            let step = step.of(self.pool.region().media().bytes());
            match self.space.take_first(&lengths, self.unit_bytes, step) {
                Err(everhash_pmem::Error::Full { .. }) if bytes > least => {
                    bytes = self.shorter(bytes, least);
                }
                taken => {
                    let span = taken?.span;
                    if span.end_byte() > END.byte() {
                        self.space.give(span);
                        return Err(Error::Full { needed: bytes });
                    }
                    return Ok(span);
                }
            }
        }
    }

    /// Returns a shorter length for a segment, of whole units; the least one is its own.
    fn shorter(&self, bytes: u64, least: u64) -> u64 {
        let half = (bytes / 2).next_multiple_of(self.unit_bytes);
        if half < bytes { half.max(least) } else { least }
    }

    /// Returns how much is kept back. Unit: bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_segments() * self.segment_bytes()
    }

    fn kept_segments(&self) -> u64 {
        KEPT * LEAST_STREAMS.max(self.streams.len() as u64)
    }

    /// Ensures that enough is kept back, also for an object of `words` words.
    fn keep_back(&self, step: Step, words: u64) -> Result<()> {
        let mut kept = self.kept.lock()?;
        if kept.len() as u64 > 2 * self.kept_segments() {
            // Of a table that was small: long objects need long ones.
            kept.drain(..).for_each(|span| self.space.give(span));
        }
        let (mut bytes, _) = count(&kept, 0);
        while bytes < self.kept_bytes() {
            let span = self.take_span(self.unit_bytes, self.segment_bytes(), step)?;
            bytes += span.bytes();
            kept.push(span);
        }
        let long = self.long_bytes(words);
        let (_, mut longs) = count(&kept, long);
        while longs < LONG {
            match self.take_span(long, long.max(self.segment_bytes()), step) {
                Ok(span) => kept.push(span),
                // Free room lies in shorter pieces: no reason to refuse shorter objects.
                Err(Error::Full { .. }) if words == 0 => break,
                Err(error) => return Err(error),
            }
            longs += 1;
        }
        self.give_spare(&mut kept, long);
        self.is_short.store(0, Ordering::Relaxed);
        // With the lock, so that no longer one of another stream is forgotten.
        let longest = self.longest.load(Ordering::Relaxed).max(words);
        self.longest.store(longest, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what needs not be kept, since longer spans are, or fewer would do.
    fn give_spare(&self, kept: &mut Vec<Span>, long: u64) {
        let ((mut bytes, mut longs), mut place) = (count(kept, long), 0);
        while let Some(span) = kept.get(place) {
            let is_long = span.bytes() >= long;
            if bytes - span.bytes() >= self.kept_bytes() && (!is_long || longs > LONG) {
                bytes -= span.bytes();
                longs -= usize::from(is_long);
                self.space.give(kept.swap_remove(place));
            } else {
                place += 1;
            }
        }
    }

    /// Gives room another use, to which nothing durable leads. What is kept back comes first:
    /// without it nothing could be collected.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub(super) fn give(&self, span: Span) -> Result<()> {
        self.units.set(span, 0, self.unit_bytes);
        self.used.fetch_sub(span.bytes(), Ordering::Relaxed);
        let (mut kept, long) = (self.kept.lock()?, self.long_bytes(0));
        let (bytes, longs) = count(&kept, long);
        if bytes < self.kept_bytes() || longs < LONG && span.bytes() >= long {
            // Of a long one no more than that: the rest is room for pairs.
            let (part, rest) = split(span, long.max(self.segment_bytes()));
            kept.push(part);
            if bytes + part.bytes() >= self.kept_bytes() / 2 {
                self.is_short.store(0, Ordering::Relaxed);
            }
            rest.into_iter().for_each(|rest| self.space.give(rest));
        } else {
            self.space.give(span);
        }
        Ok(())
    }
}

/// Returns whether an operation failed for want of room on the medium: beyond a limit of the table,
/// as where too many keys have one hash, more would not help.
#[cold]
pub fn is_room_wanted(error: &Error) -> bool {
    matches!(error, Error::Full { .. })
}

/// Returns how many bytes spans have, and how many of them have `long` bytes at least.
fn count(spans: &[Span], long: u64) -> (u64, usize) {
    let bytes = spans.iter().map(|span| span.bytes());
    (bytes.clone().sum(), bytes.filter(|bytes| *bytes >= long).count())
}

/// Returns the first `bytes` bytes of a span, and what there is behind them.
fn split(span: Span, bytes: u64) -> (Span, Option<Span>) {
    let words = bytes / WORD;
    if span.words <= words {
        return (span, None);
    }
    let rest = Span::new(span.start.plus(words), span.words - words);
    (Span::new(span.start, words), Some(rest))
}
