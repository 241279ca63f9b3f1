//! Room for logs, and the reserve: the room that every write leaves free, so that removing and
//! collecting work on a medium without room.
//!
//! The reserve is a condition and not a set of spans. A log that takes more pairs, or those that a
//! rehash moves step by step, is taken only if afterwards the largest area could still be collected
//! and each area could take the smallest log. A collection under its area's lock may use
//! everything: it begins only if there is room for all of it, and what it frees is the reserve
//! again. Where a removal has no other room, there need only be as much as is probably enough: a
//! collection that finds no more is ended later.
//!
//! The invariant: whatever fills the logs that are there, the free room holds the live pairs of the
//! largest area and a tombstone. So pairs are added only to a log whose end was counted when it was
//! taken, or is counted now: not to that of a removal, of a collection, or of an earlier process.
//! Live pairs are counted, not guessed, before an area is collected: blind writes only estimate
//! them, and of an interrupted collection a part has been moved.
//!
//! | For what | May use the reserve |
//! |---|---|
//! | a write, a step of a rehash | no |
//! | a removal | the smallest log, if the largest area can be collected then |
//! | a collection that runs to its end | yes: it began with enough |
//! | a removal, where no collection frees room | yes: the smallest log |
//!
//! So there is always room for a removal. Four tombstones fill the smallest log, and leave more
//! garbage than it has room. Once every area has had one there is an area whose collection frees
//! more than it takes, and the largest can be collected to begin with. This holds because on a full
//! medium a collection takes logs for what it moves and no more.
//!
//! For byte strings this is no proof: free room that is divided into short runs holds less than it
//! seems to. Where hundreds of areas have a few hundred pairs each (512 areas, empty values, 6 to
//! 12 MB) and a thousand writes were refused, removals still use the reserve up after some
//! thousand. A clearing, which takes no room, helps then.
//!
//! Only the thread that holds `rescue` uses the reserve; all others leave it whole, whatever that
//! thread has taken so far.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{LINE, Lock, Media, Span, WORD};

use super::layout::{self, LogHead};
use super::state::{Counted, Extent, Need, OpenLog, State, Walsh};

/// For what a log is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To add, replace or remove a pair.
    Write,
    /// To move pairs, a step at a time.
    Move,
    /// To move all pairs of an area under its lock.
    Collect,
    /// To remove a pair where there is no room for a write.
    Spare,
    /// To remove a pair where there is no other room.
    Rescue,
}

impl Purpose {
    /// Returns whether pairs are moved that have been there before.
    pub fn moves(self) -> bool {
        matches!(self, Purpose::Move | Purpose::Collect)
    }

    /// Returns whether the reserve must be whole afterwards.
    pub fn keeps_reserve(self) -> bool {
        matches!(self, Purpose::Write | Purpose::Move)
    }

    /// Returns whether only the smallest log is taken.
    pub fn is_removal(self) -> bool {
        matches!(self, Purpose::Spare | Purpose::Rescue)
    }
}

/// Objects of an area's first log, unless the ordinary ones are smaller; the next logs hold as many
/// as there are, until they are ordinary.
///
/// Unit: objects. Source: ours; the paper's 256 in each of its 512 areas are 4 MB for a thousand
/// pairs. Now at most half of a small table is empty room.
pub(super) const FIRST_ENTRIES: u64 = 8;

/// Objects of the smallest logs.
///
/// Unit: objects. Source: ours; the head of a log takes as much room as two of them.
const LEAST_ENTRIES: u64 = 4;

/// By how often its length is halved a log is shorter that takes pairs on a medium without free
/// room but at the ends of logs.
///
/// Unit: times. Source: ours; the first areas would take for a pair each what all need.
const HALVED: u32 = 3;

/// Lines that a long object takes beside its words: the head of its log, its record, and the rest
/// of a line.
///
/// Unit: lines. Source: ours.
const LONG_HEAD_LINES: u64 = 3;

/// Objects of the average length for which a short log may have no room at its end.
///
/// Unit: objects. Source: ours; longer ones need a longer hole, and there is more room than one
/// collection takes of it.
const END_OBJECTS: u64 = 4;

/// Objects that an area may take without asking for room. Unit of their length: words.
#[derive(Clone, Copy, Default)]
struct More {
    items: u64,
    words: u64,
    long_words: u64,
    /// Ordinary logs beyond these: the last log that a collection takes is not full, and writes
    /// fill it without asking.
    logs: u64,
}

impl<M: Media> Walsh<M> {
    /// Returns what collecting an area needs, once it has taken some more objects.
    fn need(&self, state: &State, more: More) -> Need {
        self.need_for(state, Counted { items: self.live(state), ..state.counted() }, more)
    }

    /// As [`Walsh::need`], of an area with so many live pairs.
    fn need_for(&self, state: &State, live: Counted, more: More) -> Need {
        let items = live.items + more.items;
        let short = live.item_bytes.min(state.log_bytes) / WORD + more.words;
        let (entries, object_words) = (self.ordinary.entries, self.ordinary.object_words);
        let wanted = match self.form {
            // And the tombstone of a removal that finds no other room.
            Form::Fixed { .. } => (items + more.logs * entries + 1) * self.pair_bytes(),
            // A log closes when it has all the objects that it may have, which are the most or a
            // quarter more than are usual, or when the next one does not fit: two neighbours
            // together then hold more than one has room for.
            Form::Variable => {
                let by_count =
                    items.div_ceil(entries) + (short + items).div_ceil(entries + object_words);
                let average = short.checked_div(items).unwrap_or(0);
                let (_, room) = self.divide_by(average, entries + object_words, 0);
                // Half of it: those of one log may be much shorter than the average.
                let room = (room / 2).max(object_words);
                (by_count + (2 * short).div_ceil(room) + more.logs) * self.ordinary.bytes
            }
        };
        let long_heads = (live.item_bytes / (object_words * WORD) + 1) * LONG_HEAD_LINES * LINE;
        let long = state.long_bytes.min(live.item_bytes + long_heads);
        let more_long = match more.long_words {
            0 => 0,
            words => words * WORD + LONG_HEAD_LINES * LINE,
        };
        let end_bytes = END_OBJECTS * self.average_words(state, LEAST_ENTRIES) * WORD;
        Need { wanted, log_bytes: self.ordinary.bytes, end_bytes, run_bytes: long + more_long }
    }

    /// Returns the live pairs of an area: at most, if blind writes have made their count a guess.
    pub(super) fn live(&self, state: &State) -> u64 {
        if state.is_exact() { state.items } else { state.stored }
    }

    /// Returns what a pair of a fixed form takes of a log, with its record. Unit: bytes.
    fn pair_bytes(&self) -> u64 {
        (self.objects.least_words() + 1) * WORD
    }

    /// Returns whether an area, whose pairs are counted, can be collected to the end: surely, or
    /// `probably`, if the objects of its logs are about as long as they are on average. The caller
    /// holds `rescue`.
    pub(super) fn has_room_to_collect(&self, state: &State, probably: bool) -> Result<bool> {
        let mut left = state.left();
        // What a collection took before it was interrupted, it fills first.
        if let (Some(_), Some(log)) = (state.rehash, &state.open) {
            let (entries, words) = (log.entries - log.count, log.span.words - log.fill);
            let end_words = END_OBJECTS * self.average_words(state, LEAST_ENTRIES);
            left = match self.form {
                Form::Fixed { .. } => Counted { items: left.items.saturating_sub(entries), ..left },
                Form::Variable if left.items <= entries && left.item_bytes <= words * WORD => {
                    return Ok(true);
                }
                Form::Variable => {
                    let item_bytes = words.saturating_sub(end_words) * WORD;
                    left.minus(Counted { items: 0, item_bytes })
                }
            };
        }
        let need = self.need_for(state, left, More::default());
        let (entries, object_words) = self.moved_room(state, Purpose::Collect);
        let is_one = self.form == Form::Variable
            && left.items < entries
            && left.item_bytes.min(state.log_bytes) <= object_words * WORD;
        let bytes = layout::log_bytes(entries, object_words);
        self.is_free(match is_one {
            // The first log is as long as all of them need.
            true => Need { wanted: bytes, log_bytes: bytes, ..need },
            false if probably && self.form == Form::Variable => {
                Need { wanted: need.wanted.min(self.usual_bytes(state, left)), ..need }
            }
            false => need,
        })
    }

    /// Returns how much logs take for byte strings that are about as long as an area's are on
    /// average. Unit: bytes.
    fn usual_bytes(&self, state: &State, pairs: Counted) -> u64 {
        let average = self.average_words(state, LEAST_ENTRIES);
        let all = self.ordinary.entries + self.ordinary.object_words;
        let (entries, object_words) = self.divide_by(average, all, average);
        // The last object that would lie there may be longer.
        let a_log = (object_words.saturating_sub(2 * average) / average).min(entries).max(1);
        (pairs.items.div_ceil(a_log) + 1) * self.ordinary.bytes
    }

    /// Returns whether collecting an area leaves more room than there was, by what the logs hold
    /// that are taken and freed.
    pub(super) fn frees_room(&self, state: &State) -> bool {
        if state.rehash.is_some() {
            return true;
        }
        let heads = |count: u64| count * LogHead::BYTES as u64;
        let now = state.log_bytes + state.long_bytes;
        // The last log divides a free run, whose rest has a head of its own.
        let end = heads(1) + LINE;
        match self.form {
            Form::Fixed { .. } => {
                let logs = state.logs.len() as u64 + u64::from(state.open.is_some());
                let held = now.saturating_sub(heads(logs));
                held > (self.live(state) + 1) * self.pair_bytes() + end
            }
            // Some of the room is heads and ends of logs, and was there after the last collection.
            // With more than that counted, one smallest log that is full of tombstones would not
            // suffice, and removals from other areas would use up the reserve meanwhile.
            Form::Variable => {
                let Extent { log_bytes, live_bytes } = state.rehashed;
                let left = log_bytes.saturating_sub(live_bytes);
                let live = state.extent().live_bytes;
                state.stored > state.items && now > live + left + self.least_bytes() + end
            }
        }
    }

    /// Returns the length of the smallest log. Unit: bytes.
    fn least_bytes(&self) -> u64 {
        layout::log_bytes(LEAST_ENTRIES, LEAST_ENTRIES * self.objects.least_words())
    }

    /// Returns what writes keep free if removals keep `need` free.
    fn with_spare(&self, need: Need) -> Need {
        Need { wanted: need.wanted + self.areas.len() as u64 * self.least_bytes(), ..need }
    }

    /// Returns whether the largest area can be collected, whatever removals have taken.
    pub(super) fn is_reserve_whole(&self) -> Result<bool> {
        let need = self.reserve.lock()?.need;
        self.is_free(need)
    }

    /// Returns whether there is room for all of `need`.
    fn is_free(&self, need: Need) -> Result<bool> {
        let (log_bytes, pair) = (self.ordinary.bytes, self.pair_bytes());
        let head = LogHead::BYTES as u64;
        // As many logs as fit there, and then a shorter one.
        let holds = |bytes: u64| match self.form {
            Form::Fixed { .. } => {
                let rest = (bytes % log_bytes).saturating_sub(head) / pair;
                (bytes / log_bytes * self.ordinary.entries + rest) * pair
            }
            Form::Variable => {
                let rest = (bytes % need.log_bytes).saturating_sub(head + need.end_bytes);
                bytes / need.log_bytes * need.log_bytes + rest
            }
        };
        Ok(self.space.has_room(need.run_bytes, need.wanted, holds)?)
    }

    /// Takes room for a log in which an object of `words` words fits; returns it with the most
    /// objects that the log may hold.
    ///
    /// # Errors
    /// [`Error::Full`]; nothing is taken then.
    pub(super) fn take_log(
        &self,
        state: &State,
        purpose: Purpose,
        words: u64,
    ) -> Result<(Span, u64)> {
        let (mut entries, mut object_words) = self.room(state, purpose, words);
        let needed = layout::log_bytes(entries, object_words);
        if purpose.keeps_reserve() {
            let need = self.reserve.lock()?.need;
            // The medium grows here, while no other area waits for it.
            self.is_free(self.with_spare(need))?;
        }
        // What one area finds free, another must not take before it is looked at again.
        let mut reserve = self.reserve.lock()?;
        if purpose == Purpose::Write && reserve.is_compact {
            for _ in 0..HALVED {
                let smaller = self.smaller(entries, object_words, words);
                let is_enough = |it: &(u64, u64)| it.0 >= FIRST_ENTRIES;
                (entries, object_words) =
                    smaller.filter(is_enough).unwrap_or((entries, object_words));
            }
        }
        if purpose.keeps_reserve() {
            // Until the log is full, nobody asks again.
            let more = match words > self.ordinary.object_words {
                true => More { items: 1, words: 0, long_words: words, logs: 1 },
                false => More { items: entries, words: object_words, long_words: 0, logs: 1 },
            };
            reserve.add_need(self.need(state, more));
        }
        let kept = match purpose {
            Purpose::Write | Purpose::Move => Some(self.with_spare(reserve.need)),
            Purpose::Spare => Some(reserve.need),
            Purpose::Collect | Purpose::Rescue => None,
        };
        let is_kept = || kept.map_or(Ok(true), |need| self.is_free(need));
        // Ends: each round makes the log shorter.
        loop {
            let bytes = layout::log_bytes(entries, object_words);
            match self.space.take(bytes, LINE) {
                Ok(taken) if taken.span.end_byte() <= layout::MOST_BYTES && is_kept()? => {
                    return Ok((taken.span, entries));
                }
                Ok(taken) => self.space.give(taken.span),
                Err(everhash_pmem::Error::Full { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let smaller = match (purpose, self.form) {
                // What moves step by step waits for as much room as it wants.
                (Purpose::Move, _) => None,
                (Purpose::Collect, _) => self.longest_room(state, bytes, words)?,
                _ => self.smaller(entries, object_words, words),
            };
            (entries, object_words) = smaller.ok_or(Error::Full { needed })?;
        }
    }

    /// Lets writes fill the newest log, which was taken for removals or by a collection, or before
    /// the table was opened.
    ///
    /// # Errors
    /// [`Error::Full`] if the reserve were not whole once it is full.
    #[cold]
    pub(super) fn admit_writes(&self, state: &mut State) -> Result<()> {
        let need = self.need_of_rest(state);
        let kept = self.with_spare(self.reserve.lock()?.need.max(need));
        // The medium grows here, while no other area waits for it.
        self.is_free(kept)?;
        let mut reserve = self.reserve.lock()?;
        let kept = self.with_spare(reserve.need.max(need));
        if !self.is_free(kept)? {
            return Err(Error::Full { needed: kept.wanted + kept.run_bytes });
        }
        reserve.add_need(need);
        if let Some(log) = &mut state.open {
            log.is_for_writes = true;
        }
        Ok(())
    }

    /// Returns the smallest log in which an object of `words` words fits.
    pub(super) fn least_room(&self, words: u64) -> (u64, u64) {
        let entries = LEAST_ENTRIES.min(self.ordinary.entries);
        (entries, (entries * self.objects.least_words()).max(words))
    }

    /// Notes that a removal has found no room.
    pub(super) fn note_short(&self) -> Result<()> {
        self.reserve.lock()?.is_short = true;
        Ok(())
    }

    /// Returns whether a removal has found no room since the last call.
    pub(super) fn take_short(&self) -> Result<bool> {
        Ok(core::mem::take(&mut self.reserve.lock()?.is_short))
    }

    /// Returns the next smaller log in which an object of `words` words fits, if there is one.
    fn smaller(&self, entries: u64, object_words: u64, words: u64) -> Option<(u64, u64)> {
        let least = self.objects.least_words();
        let few = entries.min(LEAST_ENTRIES);
        let smaller = ((entries / 2).max(few), (object_words / 2).max(few * least).max(words));
        (smaller < (entries, object_words)).then_some(smaller)
    }

    /// Returns the longest log below `most` bytes that there is room for, if an object of `words`
    /// words fits there.
    fn longest_room(&self, state: &State, most: u64, words: u64) -> Result<Option<(u64, u64)>> {
        let free = self.space.longest_free_bytes()?.min(most.saturating_sub(LINE));
        let all = free.saturating_sub(LogHead::BYTES as u64) / WORD;
        let (entries, object_words) = self.divide(state, all, words.max(1));
        let fits = entries > 0 && object_words >= words.max(self.objects.least_words());
        Ok(fits.then_some((entries, object_words)))
    }

    /// Notes what collecting an area needs that was just recovered.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside; in the other functions too.
    pub(super) fn note_need(&self, state: &State) -> Result<()> {
        self.reserve.lock()?.add_need(self.need_of_rest(state));
        Ok(())
    }

    /// Returns what collecting an area needs once its newest log is full.
    fn need_of_rest(&self, state: &State) -> Need {
        let rest = |log: &OpenLog| [log.entries - log.count, log.span.words - log.fill];
        let [items, words] = state.open.as_ref().map_or([0, 0], rest);
        self.need(state, More { items, words, long_words: 0, logs: 1 })
    }

    /// Measures anew what the largest area needs: less, once pairs were removed.
    pub(super) fn measure_need(&self) -> Result<()> {
        self.reserve.lock()?.measured = Need::default();
        for area in &self.areas {
            let need = self.need_of_rest(&*self.lock(area)?);
            let mut reserve = self.reserve.lock()?;
            reserve.measured = reserve.measured.max(need);
        }
        let mut reserve = self.reserve.lock()?;
        reserve.need = reserve.measured;
        Ok(())
    }

    /// Returns whether collecting areas without garbage may bring free room together, and notes
    /// that it is done.
    pub(super) fn begin_compaction(&self) -> Result<bool> {
        let mut reserve = self.reserve.lock()?;
        Ok(!core::mem::replace(&mut reserve.is_compact, true))
    }

    /// Returns the room that is kept free. Unit: bytes.
    pub(super) fn reserve_bytes(&self) -> Result<u64> {
        let need = self.with_spare(self.reserve.lock()?.need);
        Ok(need.wanted + need.run_bytes)
    }

    /// Gives the logs up to `last` another use. No view leads to them, and no durable word; where
    /// areas share epochs, they wait for the next one.
    pub(super) fn give_logs(&self, state: &mut State, last: u64) -> Result<()> {
        let (mut spans, mut count) = (Vec::new(), 0);
        while let Some(log) = state.logs.pop_front_if(|log| log.number <= last) {
            state.stored -= log.count;
            count += log.count;
            *self.bytes_of(state, log.span) -= log.span.bytes();
            spans.push(log.span);
        }
        if count > state.stored {
            // There was garbage among them.
            self.reserve.lock()?.is_compact = false;
        }
        if self.is_grouped {
            self.add_housekeeping(spans.iter().map(|span| span.bytes()).sum());
            self.reserve.lock()?.retired.append(&mut spans);
            return self.bound_retired();
        }
        self.give_spans(spans);
        Ok(())
    }

    /// Gives logs another use.
    pub(super) fn give_spans(&self, spans: Vec<Span>) {
        spans.into_iter().for_each(|span| self.space.give(span));
    }

    /// Returns where the room is counted that an area's logs take: ordinary ones, or longer ones.
    pub(super) fn bytes_of<'s>(&self, state: &'s mut State, log: Span) -> &'s mut u64 {
        match log.bytes() > self.ordinary.bytes {
            true => &mut state.long_bytes,
            false => &mut state.log_bytes,
        }
    }
}
