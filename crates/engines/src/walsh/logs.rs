//! Object logs and directory logs (3.1.2, 3.1.3, 3.1.7).
//!
//! The newest log of an area is filled by plain stores and written back as two large sequential
//! spans: when it is full, when it is old, or at a sync. One 8-byte store to the area's tail word
//! then makes all of it true at once, objects and directory records. A log leads to the one
//! before it, so that taking space and making it reachable is that same store.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Media, Span, WORD};

use super::layout::{
    self, AreaRecord, Info, LOG_AREA, LOG_SEQUENCE, Link, LogHead, RECORD_HASH, RECORD_OFFSET, Tail,
};
use super::object::Content;
use super::reserve::{FIRST_ENTRIES, Purpose};
use super::state::{Area, Counted, Log, NewInfo, OpenLog, State, Walsh};

/// Where logs are persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// The new part of both logs, before the tail covers it.
        CONTENTS = "walsh/log/contents";
        /// New objects with their seals, which recovery finds behind the tail.
        SEALED = "walsh/log/sealed";
        /// The tail that makes it true.
        TAIL = "walsh/log/tail";
        /// The newest objects, for a killed process.
        LIVE = "walsh/log/live";
        /// Everything, on media whose fences wait for nothing.
        SYNC = "walsh/sync/all";
        /// Which logs and directories an area has.
        INFO = "walsh/log/info";
    }
}

/// What is appended.
#[derive(Clone, Copy, Debug)]
pub struct Object<'o> {
    pub(super) hash: u64,
    pub(super) link: Link,
    pub(super) content: Content<'o>,
}

/// Directory records of a log beyond a quarter more than there are usual objects: of long objects
/// a few more or less are a large part.
///
/// Unit: records. Source: ours.
const MORE_ENTRIES: u64 = 4;

/// How many objects as long as the first a log has room for at least.
///
/// Source: ours; with fewer, the first pairs of a table would each have a log.
const LONG_OBJECTS: u64 = 4;

impl<M: Media> Walsh<M> {
    /// Returns the most objects of an area's next log, and the room for them. Unit: words.
    pub(super) fn room(&self, state: &State, purpose: Purpose, words: u64) -> (u64, u64) {
        if words > self.ordinary.object_words {
            // A long object has a log of its own (3.1.6 does not say where it goes).
            return (1, words);
        }
        if purpose.is_removal() {
            return self.least_room(words);
        }
        if purpose.moves() {
            let (entries, room) = self.moved_room(state, purpose);
            return (entries, room.max(words));
        }
        let (entries, object_words) = self.written_room(state, words);
        let some = state.stored.next_power_of_two().max(FIRST_ENTRIES).min(entries);
        let room = (object_words * some / entries).max(LONG_OBJECTS * words);
        (some, room.min(object_words))
    }

    /// As [`Walsh::room`], of a log to which pairs are moved: all of them if an ordinary log can
    /// hold them, and as much again if that can be. Where there is no room for that, a collection
    /// takes room for what is left and for a tombstone: what its logs have at their ends is missing
    /// when another area is collected.
    pub(super) fn moved_room(&self, state: &State, purpose: Purpose) -> (u64, u64) {
        let least = self.objects.least_words();
        let (entries, object_words) = self.ordinary_room(state, least);
        if purpose == Purpose::Collect && state.is_exact() {
            let Counted { items, item_bytes } = state.left();
            let some = (items + 1).min(entries);
            let room = match self.form {
                // The tombstone may be longer than the average.
                Form::Variable => item_bytes / WORD + 2 * self.average_words(state, least),
                Form::Fixed { .. } => some * least,
            };
            return (some, room.max(least).min(object_words));
        }
        let some = (self.live(state) + 1).next_power_of_two().max(FIRST_ENTRIES).min(entries);
        let room = match self.form {
            Form::Variable => 2 * (state.item_bytes.min(state.log_bytes) / WORD),
            Form::Fixed { .. } => some * least,
        };
        (some, room.max(FIRST_ENTRIES * least).min(object_words))
    }

    /// Returns how an ordinary log, which is always as long, is divided: the most objects, and the
    /// room for them in words. Objects of variable length get as many directory records as there
    /// will probably be objects, and some more; `words` is the length of the first.
    fn ordinary_room(&self, state: &State, words: u64) -> (u64, u64) {
        let (most, object_words) = (self.ordinary.entries, self.ordinary.object_words);
        match self.form {
            Form::Fixed { .. } => (most, object_words),
            Form::Variable => self.divide(state, most + object_words, words),
        }
    }

    /// As [`Walsh::ordinary_room`], of a log for writes. Where the log before it held shorter
    /// objects than live pairs are, so will this one: tombstones of long values would use up the
    /// records of a log whose room for objects is nearly empty then.
    fn written_room(&self, state: &State, words: u64) -> (u64, u64) {
        let (entries, object_words) = self.ordinary_room(state, words);
        let all = entries + object_words;
        let written = state.open.as_ref().and_then(|log| {
            let offset = layout::objects_offset(log.entries);
            (log.fill - offset).checked_div(log.count)
        });
        match (self.form, written) {
            (Form::Variable, Some(written)) => {
                self.divide_by(written.min(self.average_words(state, words)), all, words)
            }
            _ => (entries, object_words),
        }
    }

    /// Divides `all` words of a log as [`Walsh::ordinary_room`] does; `words` is the length of an
    /// object that must fit if one does at all.
    pub(super) fn divide(&self, state: &State, all: u64, words: u64) -> (u64, u64) {
        let least = self.objects.least_words();
        match self.form {
            Form::Fixed { .. } => (all / (least + 1), all / (least + 1) * least),
            Form::Variable => self.divide_by(self.average_words(state, words), all, words),
        }
    }

    /// As [`Walsh::divide`], among byte strings whose objects have `average` words.
    pub(super) fn divide_by(&self, average: u64, all: u64, words: u64) -> (u64, u64) {
        let usual = all / (average.max(self.objects.least_words()) + 1);
        let entries = (usual + usual / 4 + MORE_ENTRIES).min(self.ordinary.entries);
        let entries = entries.min(all.saturating_sub(words));
        (entries, all - entries)
    }

    /// Returns the average length of an area's objects, without those that have logs of their own;
    /// `words` if there are none.
    pub(super) fn average_words(&self, state: &State, words: u64) -> u64 {
        let short = state.item_bytes.saturating_sub(state.long_bytes) / WORD;
        let average = short.checked_div(state.items).unwrap_or(words);
        average.max(self.objects.least_words())
    }

    /// Says that the area's newest logs will be appended to.
    #[inline(always)]
    pub(super) fn prefetch_ends(&self, pm: &Access<'_, M>, state: &State) {
        let Some(log) = &state.open else { return };
        pm.prefetch_for_store(log.span.start.plus(LogHead::WORDS as u64 + log.count));
        pm.prefetch_for_store(log.span.start.plus(log.fill));
    }

    /// Appends an object and its directory record to the area's newest logs; returns where the
    /// object lies. No head leads to it yet.
    ///
    /// A power loss leaves it only if the durable tail covers it, a killed process if the
    /// visible tail.
    ///
    /// # Errors
    /// [`Error::Full`]; everything is as it was then.
    #[inline(always)]
    pub(super) fn append(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        object: &Object<'_>,
    ) -> Result<Addr> {
        let Object { hash, link, content } = object;
        let words = self.objects.words(content);
        let fits = |log: &OpenLog| log.count < log.entries && log.fill + words <= log.span.words;
        if !state.open.as_ref().is_some_and(fits) {
            self.open_log(pm, area, state, purpose, words)?;
        }
        let is_added = purpose == Purpose::Write && link.kind.is_live();
        if is_added && !state.open.as_ref().is_some_and(|log| log.is_for_writes) {
            self.admit_writes(state)?;
        }
        let log = state.open.as_mut().expect("a log was opened");
        let at = log.span.start.plus(log.fill);
        let record_at = log.span.start.plus(LogHead::WORDS as u64 + log.count);
        // The lines that the next writes to this area need are far from this processor.
        pm.prefetch_for_store(at.plus(words + LINE / WORD));
        pm.prefetch_for_store(record_at.plus(LINE / WORD));
        self.objects.write(pm, at, *link, content)?;
        self.objects.write_seal(pm, at, words, log.checksum)?;
        let record = RECORD_OFFSET.set(RECORD_HASH.get(*hash), log.fill);
        pm.store(record_at, record)?;
        log.count += 1;
        log.fill += words;
        state.stored += 1;
        set_visible_tail(pm, area, Tail { at: log.span.start, count: log.count })?;
        match purpose.moves() {
            false => self.add_pending((words + 1) * WORD),
            // The logs that the pair comes from are there until an epoch covers the new ones.
            true => self.add_housekeeping((words + 1) * WORD),
        }
        Ok(at)
    }

    /// Writes back what the newest logs hold, and then moves the tail: two fences.
    ///
    /// A crash inside leaves the tail before or after. Where areas share epochs, nothing happens:
    /// a killed process leaves every store, in this order.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn flush(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<()> {
        state.seen = None;
        let Some(log) = &mut state.open else { return Ok(()) };
        if self.is_grouped {
            return Ok(());
        }
        if log.published && log.committed == log.count {
            return Ok(());
        }
        let start = log.span.start;
        let first = if log.published { LogHead::WORDS as u64 + log.committed } else { 0 };
        let end = LogHead::WORDS as u64 + log.count;
        pm.flush(Span::new(start.plus(first), end - first), sites::CONTENTS);
        let objects = Span::new(start.plus(log.durable_fill), log.fill - log.durable_fill);
        pm.flush(objects, sites::CONTENTS);
        self.poison_on_error(pm.fence(sites::CONTENTS))?;
        let tail = area.record.plus(AreaRecord::DURABLE_TAIL as u64);
        let word = Tail { at: start, count: log.count }.encode(tail);
        self.poison_on_error(pm.commit_word(tail, word, sites::TAIL))?;
        self.poison_on_error(pm.persist(Span::new(tail, 1), sites::TAIL))?;
        (log.durable, log.durable_fill, log.published) = (log.count, log.fill, true);
        log.committed = log.count;
        Ok(())
    }

    /// With durability 1: makes what the newest log holds durable, by one fence. The tail stays:
    /// recovery finds the objects behind it by their seals, and what follows from them.
    ///
    /// A crash inside leaves objects up to one that is not whole, which ends the log.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn secure(&self, pm: &Access<'_, M>, state: &mut State) -> Result<()> {
        let Some(log) = &mut state.open else { return Ok(()) };
        // All before the newest object too: a rehash does not wait for each of its own.
        if log.durable < log.count {
            let from = log.span.start.plus(log.durable_fill);
            pm.flush(Span::new(from, log.fill - log.durable_fill), sites::SEALED);
            self.poison_on_error(pm.fence(sites::SEALED))?;
            (log.durable, log.durable_fill) = (log.count, log.fill);
        }
        Ok(())
    }

    /// Flushes the newest log and begins another one with room for an object of `words` words.
    ///
    /// # Errors
    /// [`Error::Full`]; everything is as it was then.
    pub(super) fn open_log(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        words: u64,
    ) -> Result<()> {
        self.open_log_of(pm, area, state, purpose, (words, state.sequence))
    }

    /// As [`Walsh::open_log`], of the log in front of which the next info will name a border. Its
    /// head has the sequence of that info: an object in it says that the info was whole, so that
    /// damage to the info is not taken for a crash while it was written.
    ///
    /// # Errors
    /// As [`Walsh::open_log`].
    pub(super) fn open_border(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
    ) -> Result<()> {
        self.open_log_of(pm, area, state, purpose, (0, state.sequence + 1))
    }

    /// As [`Walsh::open_log`], of a log whose head has the sequence of an info.
    fn open_log_of(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        (words, sequence): (u64, u64),
    ) -> Result<()> {
        let (span, entries) = self.take_log(state, purpose, words)?;
        if let Err(error) = self.flush(pm, area, state) {
            self.space.give(span);
            return Err(error);
        }
        self.has_begun.store(1, Ordering::Relaxed);
        self.taken.fetch_add(span.bytes(), Ordering::Relaxed);
        let previous = state.newest();
        let mut sum = 0;
        let before = match state.open.take() {
            Some(OpenLog { number, span, count, .. }) => {
                let mut records = vec![0; count as usize];
                pm.read_words(span.start.plus(LogHead::WORDS as u64), &mut records)?;
                sum = layout::sum(&records, self.seed);
                state.logs.push_back(Log { number, span, count });
                number
            }
            // The next one is the oldest.
            None => state.info.start.wrapping_sub(1),
        };
        let number = before.wrapping_add(1);
        let mut head = [0; LogHead::WORDS];
        head[LogHead::NUMBER] = number;
        head[LogHead::OWNER] = LOG_SEQUENCE.set(LOG_AREA.set(0, area.number), sequence);
        head[LogHead::PREVIOUS] = match previous.at.is_null() {
            true => 0,
            false => previous.encode(span.start),
        };
        head[LogHead::PREVIOUS_SUM] = sum;
        head[LogHead::SIZE] = (span.bytes() / LINE) << 32 | entries;
        head[LogHead::ITEMS] = state.items;
        head[LogHead::ITEM_BYTES] = state.item_bytes;
        let head = layout::seal_head(head, span.start, self.seed);
        self.poison_on_error(pm.write_words(span.start, &head))?;
        self.add_housekeeping(LogHead::BYTES as u64);
        *self.bytes_of(state, span) += span.bytes();
        let fill = layout::objects_offset(entries);
        state.open = Some(OpenLog {
            number,
            span,
            entries,
            count: 0,
            fill,
            durable: 0,
            durable_fill: fill,
            published: false,
            is_for_writes: purpose.keeps_reserve(),
            committed: 0,
            checksum: head[LogHead::CHECKSUM],
        });
        self.poison_on_error(set_visible_tail(pm, area, Tail { at: span.start, count: 0 }))?;
        match self.settings.durability {
            // Recovery must know the log before it looks for objects behind its tail.
            1 => self.flush(pm, area, state),
            _ => Ok(()),
        }
    }

    /// Lets the words that lead to an area's newest log lead nowhere. The info says already that
    /// the area has no logs.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn forget_logs(&self, pm: &Access<'_, M>, area: &Area<M>) -> Result<()> {
        self.poison_on_error(set_visible_tail(pm, area, Tail::default()))?;
        if self.is_grouped {
            return Ok(());
        }
        let tail = area.record.plus(AreaRecord::DURABLE_TAIL as u64);
        self.poison_on_error(pm.commit_word(tail, Tail::default().encode(tail), sites::TAIL))?;
        self.poison_on_error(pm.persist(Span::new(tail, 1), sites::TAIL))
    }

    /// Makes another info of the area true: numbers of logs, numbers of directories.
    ///
    /// A crash inside leaves the info before or this one.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn write_info(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        new: &NewInfo,
    ) -> Result<()> {
        let info = new.words(state.sequence + 1);
        let at = area.record.plus(info_place(state.sequence + 1));
        self.poison_on_error(pm.write_words(at, &layout::seal_head(info, at, self.seed)))?;
        self.add_housekeeping(Info::BYTES as u64);
        if !self.is_grouped {
            self.poison_on_error(pm.persist(Span::new(at, Info::WORDS as u64), sites::INFO))?;
        }
        (state.sequence, state.info) = (state.sequence + 1, *new);
        Ok(())
    }
}

/// Stores up to where objects are whole, for a killed process. Never flushed for its own sake.
#[inline(always)]
pub(super) fn set_visible_tail<M: Media>(
    pm: &Access<'_, M>,
    area: &Area<M>,
    tail: Tail,
) -> everhash_pmem::Result<()> {
    let live = area.record.plus(AreaRecord::VISIBLE_TAIL as u64);
    pm.commit_word(live, tail.encode(live), sites::LIVE)
}

/// Returns where the info of a sequence number lies in the area's record. Unit: words.
pub const fn info_place(sequence: u64) -> u64 {
    match sequence % 2 {
        1 => AreaRecord::INFO_A as u64,
        _ => AreaRecord::INFO_B as u64,
    }
}

/// Returns the error of a damaged log.
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}
