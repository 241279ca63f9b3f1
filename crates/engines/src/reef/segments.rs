//! Streams and their segments: objects are appended to the newest segment of a stream.
//!
//! A shard belongs to one stream for ever, so that the versions of a key stand in order. A segment
//! is filled upwards, and nothing in it is ever rewritten but the head of room that a thread took
//! for its own objects (`runs.rs`), and two words of its own head: the tail, which leads a process
//! that follows a killed one, and the checksum, when it is empty. Immediate writes leave the tail
//! alone until the segment ends: their checks lead.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Lock, Media, Primitives, Site, Span, WORD};

use super::layout::{self, Ended, Kind, SIZE_STREAM, SIZE_UNITS, SegmentHead, Tail};
use super::reserve::Purpose;
use super::runs::Run;
use super::state::{LatchedStream, Reef};
use super::stream::{Open, Position, Sealed, Stream, Turns};

/// Where segments are persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// New objects, before a write returns that must survive power loss.
        OBJECTS = "reef/write/objects";
        /// How far a segment is filled, or a run in it, for the end of a process.
        TAIL = "reef/write/tail";
    }
}

/// What is appended.
#[derive(Clone, Copy, Debug)]
pub struct Object<'o> {
    pub(super) kind: Kind,
    pub(super) key: &'o [u8],
    pub(super) value: &'o [u8],
    /// What it must lie behind if that is in the same segment: the version before, or of a key that
    /// is added, the last tombstone of the shard.
    pub(super) behind: Addr,
}

impl<M: Media> Reef<M> {
    /// Appends an object; returns where it lies, and whether [`Reef::after_write`] has to do
    /// something. With immediate durability it is durable then, unless it is only moved. No
    /// directory leads to it yet.
    ///
    /// A crash leaves it if it is whole and, of batches, if its epoch is durable.
    ///
    /// # Errors
    /// [`Error::Full`](everhash_index::Error::Full); everything is as it was then.
    #[inline(always)]
    pub(super) fn append(
        &self,
        pm: &Access<'_, M>,
        number: usize,
        purpose: Purpose,
        object: &Object<'_>,
    ) -> Result<(Addr, bool)> {
        let words = self.objects.words(object.kind, object.key, object.value);
        if purpose != Purpose::Move
            && let Some(at) = self.append_to_run(pm, number, (object, words))?
        {
            return Ok((at, false));
        }
        let mut stream = self.stream_for(number, words)?;
        let pending = stream.pending;
        let at = self.store(pm, &mut stream, purpose, (object, words))?;
        match purpose {
            Purpose::Add | Purpose::Remove => self.take_turn(pm, &mut stream, words)?,
            Purpose::Move => stream.moved += stream.pending - pending,
        }
        let cares = self.cares(&stream);
        if !self.is_immediate || purpose == Purpose::Move {
            return Ok((at, cares));
        }
        let position = stream.position();
        // What others have stored before is flushed again: theirs is not fenced yet, and without
        // it recovery would not come as far as here.
        stream.not_durable(|span| pm.flush(span, sites::OBJECTS));
        drop(stream);
        self.poison_on_error(pm.fence(sites::OBJECTS))?;
        self.streams[number].0.lock()?.made_durable(position);
        Ok((at, cares))
    }

    /// Appends an object to the run of this thread, if there is one that can take it; returns
    /// where. The caller holds the latch of its shard.
    ///
    /// A crash leaves it if it is whole and its epoch is durable.
    ///
    /// # Errors
    /// Those of the medium; everything is as it was then.
    #[inline(always)]
    fn append_to_run(
        &self,
        pm: &Access<'_, M>,
        number: usize,
        (object, words): (&Object<'_>, u64),
    ) -> Result<Option<Addr>> {
        if !self.runs.are_taken() {
            return Ok(None);
        }
        let mut run = self.runs.own(number).lock()?;
        // Of one that is longer than all before, room must be kept back.
        let is_usual = words <= self.longest.load(Ordering::Relaxed);
        let takes = run.takes(words, object.behind) && is_usual;
        if !takes || run.ends != self.runs.ends(number) {
            return Ok(None);
        }
        let (at, seal, left) = (run.at, run.seal, run.left - words);
        if left > 0 {
            let behind = at.plus(words);
            pm.store(behind, layout::unused_head(layout::bound(seal, behind), left))?;
        }
        let Object { kind, key, value, .. } = *object;
        let head = self.objects.write_body(pm, (at, seal), (kind, kind.code()), key, value)?;
        pm.commit_word(at, head, sites::TAIL)?;
        (run.at, run.left) = (at.plus(words), left);
        run.tombstones += if kind == Kind::Removed { words } else { 0 };
        Ok(Some(at))
    }

    /// Notes that this thread has appended an object of `words` words, and takes a run for it if
    /// several threads do by turns.
    ///
    /// A crash leaves room without objects, or none.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    #[inline(always)]
    fn take_turn(&self, pm: &Access<'_, M>, stream: &mut Stream, words: u64) -> Result<()> {
        let run = self.settings.run_bytes / WORD;
        let open = stream.open.as_mut().expect("it has just taken an object");
        if self.is_immediate || !open.turns.note(M::Sync::thread()) || words > run / RUN_SHARE {
            return Ok(());
        }
        cold_path();
        self.begin_run(pm, stream, run)
    }

    /// Takes a run of so many words in the newest segment of a stream, if that has them, and is not
    /// left to those who collect.
    pub(super) fn begin_run(
        &self,
        pm: &Access<'_, M>,
        stream: &mut Stream,
        words: u64,
    ) -> Result<()> {
        let is_busy = self.is_busy(stream);
        let open = stream.open.as_mut().expect("it has just taken an object");
        let (at, seal, fill) = (open.span.start.plus(open.fill), open.seal, open.fill + words);
        // Nothing waits here for memory: the next append may find it prepared.
        let has_memory = fill <= open.renewed || !is_busy && !open.is_preparing;
        if fill > open.span.words || !has_memory || open.is_borrowed {
            return Ok(());
        }
        let head = layout::unused_head(layout::bound(seal, at), words);
        self.poison_on_error(pm.store(at, head))?;
        self.poison_on_error(self.move_tail(pm, open, fill, sites::TAIL))?;
        open.fill = fill;
        let (end, sequence) = (open.span.start.plus(open.span.words), open.sequence);
        stream.pending += words * WORD;
        let ends = self.runs.ends(stream.number as usize);
        let run = Run { at, left: words, end, seal, sequence, tombstones: 0, ends };
        self.runs.begin(stream, run, &self.units)
    }

    /// Returns whether [`Reef::after_write`] has to do something for a stream.
    #[inline(always)]
    pub(super) fn cares(&self, stream: &Stream) -> bool {
        let collects = stream.is_behind || stream.has_news;
        collects || self.must_end_epoch(stream) || self.needs_memory(stream)
    }

    /// Takes the latch of a stream when so many more words meet no memory that is being prepared.
    #[inline(always)]
    pub(super) fn stream_for(&self, number: usize, words: u64) -> Result<LatchedStream<'_, M>> {
        let mut attempt = 0;
        // Ends: who prepares memory waits for nothing but the latch.
        loop {
            let stream = self.streams[number].0.lock()?;
            let is_free = |open: &Open| !open.is_preparing || words <= open.renewed - open.fill;
            if stream.open.as_ref().is_none_or(is_free) {
                return Ok(stream);
            }
            drop(stream);
            cold_path();
            M::Sync::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    #[inline(always)]
    fn store(
        &self,
        pm: &Access<'_, M>,
        stream: &mut Stream,
        purpose: Purpose,
        (object, words): (&Object<'_>, u64),
    ) -> Result<Addr> {
        self.leave_room(purpose, words, stream)?;
        if stream.open.is_none_or(|open| open.fill + words > open.span.words) {
            let floor = stream.floor;
            let room = self.take_segment(purpose, words, self.step(stream))?;
            self.begin_segment(pm, stream, room, floor)?;
        }
        let is_busy = self.is_busy(stream);
        let open = stream.open.as_mut().expect("a segment was begun");
        if is_busy && open.fill + words > open.renewed {
            let from = open.fill.max(open.renewed);
            let piece = self.piece(open, from, open.fill + words);
            self.pool.region().media().renew(piece);
            open.renewed = from + piece.words;
        }
        let at = open.span.start.plus(open.fill);
        let kind = (object.kind, object.kind.code());
        self.objects.write(pm, (at, open.seal), kind, object.key, object.value)?;
        open.fill += words;
        if object.kind == Kind::Removed {
            open.tombstones += words;
        }
        self.move_tail(pm, open, open.fill, sites::TAIL)?;
        stream.pending += words * WORD;
        Ok(at)
    }

    /// Says in the head of a segment that takes objects how many of its words are in use, unless
    /// writes are immediate: a sync would write the page of the head for this word alone.
    #[inline(always)]
    pub(super) fn move_tail(
        &self,
        pm: &Access<'_, M>,
        open: &Open,
        words: u64,
        site: Site,
    ) -> everhash_pmem::Result<()> {
        if self.is_immediate {
            return Ok(());
        }
        let tail = Tail { words, ended: Ended::Not }.word(open.seal);
        pm.commit_word(open.span.start.plus(SegmentHead::TAIL as u64), tail, site)
    }

    /// Returns how much of a segment is prepared at once. Unit: words.
    #[inline(always)]
    fn piece_words(&self) -> u64 {
        (self.settings.segment_bytes / PIECES / WORD).max(LINE / WORD)
    }

    /// Returns whether memory should be prepared at all: what is when an epoch ends goes to the
    /// device twice.
    #[inline(always)]
    fn is_busy(&self, stream: &Stream) -> bool {
        !self.is_immediate && stream.pending >= self.piece_words() * WORD
    }

    /// Returns the piece of a segment that is prepared from one offset on, beyond another one.
    fn piece(&self, open: &Open, from: u64, beyond: u64) -> Span {
        let to = beyond.next_multiple_of(self.piece_words()).min(open.span.words);
        Span::new(open.span.start.plus(from), to - from)
    }

    /// Returns whether the next piece should be prepared: less than half of one is left.
    #[inline(always)]
    fn needs_memory(&self, stream: &Stream) -> bool {
        stream.open.as_ref().is_some_and(|open| {
            // Where stores have gone beyond what is prepared, this is a large number.
            let left = open.renewed.wrapping_sub(open.fill);
            left < self.piece_words() / 2 && open.renewed < open.span.words && !open.is_preparing
        }) && self.is_busy(stream)
    }

    /// Returns the next piece of the newest segment of a stream if it is time to prepare it, which
    /// the caller does then by [`Reef::prepare`].
    pub(super) fn next_piece(&self, stream: &mut Stream) -> Option<Span> {
        let needs_memory = self.needs_memory(stream);
        let open = stream.open.as_mut().filter(|_| needs_memory)?;
        open.is_preparing = true;
        Some(self.piece(open, open.renewed, open.renewed + 1))
    }

    /// Prepares a piece of a stream's newest segment: without the latch, so that writers go on
    /// meanwhile.
    pub(super) fn prepare(&self, number: usize, piece: Span) -> Result<()> {
        self.pool.region().media().renew(piece);
        let mut stream = self.streams[number].0.lock()?;
        let open = stream.open.as_mut().expect("a segment does not end meanwhile");
        open.renewed += piece.words;
        open.is_preparing = false;
        Ok(())
    }

    /// Ends the newest segment of a stream and begins another one.
    ///
    /// A crash inside leaves the stream with or without the new segment, which is empty.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn begin_segment(
        &self,
        pm: &Access<'_, M>,
        stream: &mut Stream,
        (span, is_borrowed): (Span, bool),
        floor: u64,
    ) -> Result<()> {
        let sequence = stream.last.sequence + 1;
        let mut plain = [0; SegmentHead::TAIL];
        plain[SegmentHead::SEQUENCE] = sequence;
        let units = span.bytes() / self.unit_bytes;
        plain[SegmentHead::SIZE] = SIZE_STREAM.set(SIZE_UNITS.set(0, units), stream.number);
        plain[SegmentHead::FLOOR] = floor.max(1);
        plain[SegmentHead::GENERATION] = self.generation;
        let mut head = [0; SegmentHead::CHECKSUM + 1];
        head[..SegmentHead::TAIL].copy_from_slice(&layout::stored_head(plain));
        let seal = layout::sum(&head[..SegmentHead::TAIL], span.start, self.seed);
        head[SegmentHead::CHECKSUM] = seal;
        let fill = SegmentHead::WORDS as u64;
        head[SegmentHead::TAIL] = Tail { words: fill, ended: Ended::Not }.word(seal);
        self.units.set(span, seal, self.unit_bytes);
        self.poison_on_error(pm.write_words(span.start, &head))?;
        if let Some(open) = stream.open.take() {
            self.end_segment(pm, stream, &open)?;
        }
        stream.open = Some(Open {
            span,
            sequence,
            seal,
            fill,
            renewed: 0,
            is_preparing: false,
            turns: Turns::NONE,
            is_borrowed,
            tombstones: 0,
        });
        self.runs.end(stream.number);
        stream.last = Position { sequence, fill };
        stream.census = (stream.census.0 + 1, stream.census.1 ^ seal);
        stream.pending += SegmentHead::BYTES as u64;
        stream.floor = floor.max(1);
        (stream.has_news, stream.tidied) = (true, None);
        Ok(())
    }

    /// Says in the head of a segment that another one follows. The whole units behind its last
    /// object are free when that is durable.
    fn end_segment(&self, pm: &Access<'_, M>, stream: &mut Stream, open: &Open) -> Result<()> {
        let Open { span, sequence, seal, fill, tombstones, .. } = *open;
        let tail_at = span.start.plus(SegmentHead::TAIL as u64);
        let tail = Tail { words: fill, ended: Ended::Followed }.word(seal);
        self.poison_on_error(pm.commit_word(tail_at, tail, sites::TAIL))?;
        let used = Span::of_bytes(span.start, self.whole_units(fill));
        if used.words < span.words {
            stream.ends.push(Span::new(span.start.plus(used.words), span.words - used.words));
        }
        let sealed = Sealed {
            span: used,
            seal,
            fill,
            tombstones,
            is_empty: false,
            is_damaged: false,
            is_found: false,
            refused_at: None,
        };
        stream.sealed.insert(sequence, sealed);
        Ok(())
    }

    /// Returns the length of the units that hold `words` words. Unit: bytes.
    pub(super) fn whole_units(&self, words: u64) -> u64 {
        words.saturating_mul(WORD).div_ceil(self.unit_bytes).saturating_mul(self.unit_bytes)
    }

    /// Says that a full segment is empty as of the next epoch; the caller holds the latch.
    ///
    /// A crash leaves it as it was until that epoch is durable.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn mark_empty(
        &self,
        pm: &Access<'_, M>,
        stream: &mut Stream,
        sequence: u64,
    ) -> Result<()> {
        let Some(sealed) = stream.sealed.get_mut(&sequence).filter(|it| !it.is_empty) else {
            return Ok(());
        };
        sealed.is_empty = true;
        let word = layout::freed_word(stream.epoch, sealed.seal);
        let checksum_at = sealed.span.start.plus(SegmentHead::CHECKSUM as u64);
        self.poison_on_error(pm.store(checksum_at, word))?;
        stream.census = (stream.census.0 - 1, stream.census.1 ^ sealed.seal);
        stream.emptied.push((sequence, sealed.span));
        Ok(())
    }

    /// Returns how long the next segment is. Unit: bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        // A small table has small segments, so that it takes little more than its pairs.
        let part = (self.settings.segment_bytes / SMALL_BYTES).clamp(4, SMALL_PART);
        let some = self.used.load(Ordering::Relaxed) / part;
        let some = some.next_power_of_two().min(self.settings.segment_bytes);
        some.max(self.unit_bytes)
    }
}

/// The part of a run that an object may be.
///
/// Source: ours; on average half an object's length is left over at the end of a run.
const RUN_SHARE: u64 = 8;

/// In how many pieces the longest segments are prepared.
///
/// Source: ours; of 4 MiB each is 64 KiB, which a file keeps as one large page: for each stream, a
/// 256th of what an epoch of a busy table has.
const PIECES: u64 = 64;

/// The part of a small table that its next segment is long.
///
/// Source: ours; with four streams and what is kept back, at most a twentieth of a table is empty
/// room.
const SMALL_PART: u64 = 512;

/// Tables whose longest segments are shorter than this, times [`SMALL_PART`], have a larger part.
///
/// Unit: bytes. Source: ours; a table of tiny settings has segments of one unit and of several.
const SMALL_BYTES: u64 = 1024;

const _: () = assert!(SegmentHead::BYTES as u64 == LINE, "a head is a line");
