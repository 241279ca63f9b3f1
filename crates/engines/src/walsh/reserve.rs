//! Room for logs, and the reserve: what is kept back of it so that removing and collecting work on
//! a medium without room.
//!
//! Pairs are added, and areas rehashed step by step, only while the reserve is whole. A collection
//! that runs to its end under the area's lock may use all of it: the logs that it frees make it
//! whole again. Removals use what is beyond the largest area's need, and then as much as leaves
//! what their own area needs.
//!
//! What a collection frees may lie in pieces. Then the areas whose logs were cut from the reserve
//! are collected once more: logs shrink to the holes there are, and the reserve is free again.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{LINE, Lock, Media, Span, WORD};

use super::layout;
use super::state::{State, Walsh};

/// For what a log is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For more pairs; not from the reserve.
    Add,
    /// To move pairs a step at a time; not from the reserve.
    Move,
    /// To remove a pair.
    Remove,
    /// To move all pairs of an area under its lock.
    Collect,
}

/// Ordinary logs of the reserve for removals, beyond those that collecting needs.
///
/// Unit: logs. Source: ours; a removal that finds none collects its area, which makes room if there
/// is garbage. Two are what recovery may count too much, and the others are for removing.
const REMOVE_LOGS: usize = 5;

/// Objects of the smallest logs: those of a removal that finds no more room.
///
/// Unit: objects. Source: ours; the head of a log takes as much room as two of them.
const LEAST_ENTRIES: u64 = 4;

/// What collecting an area needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// Ordinary logs.
    pub(super) logs: usize,
    /// Room for logs that are longer. Unit: bytes.
    pub(super) long_bytes: u64,
}

impl Need {
    fn max(self, other: Need) -> Need {
        let long_bytes = self.long_bytes.max(other.long_bytes);
        Need { logs: self.logs.max(other.logs), long_bytes }
    }
}

/// Room that is kept back, and logs that wait for the next epoch.
#[derive(Debug, Default)]
pub struct Reserve {
    /// Spans as long as an ordinary log.
    pub(super) logs: Vec<Span>,
    /// What is left of those that shorter logs were cut from.
    pieces: Vec<Span>,
    /// For longer logs.
    long: Option<Span>,
    /// What collecting the largest area needs.
    need: Need,
    /// Areas whose logs were cut from the reserve since it was whole.
    users: Vec<u64>,
    /// Whether an area is being collected: nobody else may use the reserve.
    is_collecting: bool,
    /// Logs to which the present epoch may lead, and no later one.
    pub(super) limbo: Vec<Span>,
}

impl Reserve {
    fn long_bytes(&self) -> u64 {
        self.long.map_or(0, Span::bytes)
    }

    /// Cuts a span of `bytes` bytes, whole lines, for an area; `ordinary` is the length of a log.
    fn cut(&mut self, area: u64, bytes: u64, ordinary: u64) -> Option<Span> {
        let whole = if bytes > ordinary {
            self.long.take_if(|long| long.bytes() >= bytes)?
        } else {
            let piece = self.pieces.iter().position(|piece| piece.bytes() >= bytes);
            piece.map(|piece| self.pieces.swap_remove(piece)).or_else(|| self.logs.pop())?
        };
        let span = Span::of_bytes(whole.start, bytes);
        let rest = Span::new(span.start.plus(span.words), whole.words - span.words);
        match rest.words {
            0 => {}
            _ if bytes > ordinary => self.long = Some(rest),
            _ => self.pieces.push(rest),
        }
        if !self.users.contains(&area) {
            self.users.push(area);
        }
        Some(span)
    }
}

impl<M: Media> Walsh<M> {
    /// Returns what collecting an area needs once an object of `words` words was added.
    pub(super) fn need(&self, state: &State, words: u64) -> Need {
        let ordinary = self.object_words() * WORD;
        let is_long = words * WORD > ordinary;
        let added = words * WORD;
        let room = match self.form {
            // They close three quarters full, or with a few objects more than are usual there.
            Form::Variable => (ordinary / 9 * 4).max(WORD),
            Form::Fixed { .. } => self.entries() * self.objects.least_words() * WORD,
        };
        let short = state.item_bytes.min(state.log_bytes) + if is_long { 0 } else { ordinary };
        let logs = (short / room) as usize + 2;
        // The head of a log, a record, and less than a line.
        let heads = (state.item_bytes / ordinary + 1) * 3 * LINE;
        let long = state.long_bytes.min(state.item_bytes + heads);
        let long_bytes = long + if is_long { added + 3 * LINE } else { 0 };
        Need { logs, long_bytes }
    }

    /// Takes room for a log in which an object of `words` words fits; returns it with the most
    /// objects that the log may hold.
    ///
    /// # Errors
    /// [`Error::Full`]; nothing is taken then.
    pub(super) fn take_log(
        &self,
        area: u64,
        state: &State,
        purpose: Purpose,
        words: u64,
    ) -> Result<(Span, u64)> {
        let is_whole = self.fill_reserve(state, purpose, words)?;
        let (entries, object_words) = self.room(state, purpose, words);
        let bytes = layout::log_bytes(entries, object_words);
        if !is_whole && matches!(purpose, Purpose::Add | Purpose::Move) {
            return Err(Error::Full { needed: bytes });
        }
        let (mut entries, mut object_words) = (entries, object_words);
        // Ends: each round halves the objects of the log.
        loop {
            let bytes = layout::log_bytes(entries, object_words);
            match self.space.take(bytes, LINE) {
                Ok(taken) => return Ok((taken.span, entries)),
                Err(everhash_pmem::Error::Full { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            match self.smaller(entries, object_words, words) {
                // What moves step by step waits for ordinary logs.
                Some(smaller) if purpose != Purpose::Move => (entries, object_words) = smaller,
                _ => break,
            }
        }
        let (most, most_words) = self.room(state, purpose, words);
        let taken = match purpose {
            Purpose::Add | Purpose::Move => None,
            Purpose::Collect => self.take_reserved(area, most, most_words, Need::default())?,
            Purpose::Remove => {
                let all = self.spare.lock()?.need;
                let most = self.take_reserved(area, most, most_words, all)?;
                let own = self.need(state, 0);
                most.map_or_else(
                    || self.take_reserved(area, entries, object_words, own),
                    |log| Ok(Some(log)),
                )?
            }
        };
        taken.ok_or(Error::Full { needed: bytes })
    }

    /// Returns the next smaller log in which an object of `words` words fits, if there is one.
    fn smaller(&self, entries: u64, object_words: u64, words: u64) -> Option<(u64, u64)> {
        let least = self.objects.least_words();
        let few = entries.min(LEAST_ENTRIES);
        let smaller = ((entries / 2).max(few), (object_words / 2).max(few * least).max(words));
        (smaller < (entries, object_words)).then_some(smaller)
    }

    /// Cuts a log from the reserve, if that leaves `kept`.
    fn take_reserved(
        &self,
        area: u64,
        entries: u64,
        object_words: u64,
        kept: Need,
    ) -> Result<Option<(Span, u64)>> {
        let (bytes, ordinary) = (layout::log_bytes(entries, object_words), self.log_bytes());
        let mut reserve = self.spare.lock()?;
        let is_left = match bytes > ordinary {
            // The log of a tombstone is no longer than that of the pair which it removes, and
            // which need not be moved any more.
            true => reserve.long_bytes() >= bytes.max(kept.long_bytes),
            false if reserve.pieces.iter().any(|piece| piece.bytes() >= bytes) => true,
            false => reserve.logs.len() > kept.logs,
        };
        if !is_left {
            return Ok(None);
        }
        Ok(reserve.cut(area, bytes, ordinary).map(|span| (span, entries)))
    }

    /// Fills the reserve as far as there is room; returns whether it is whole.
    fn fill_reserve(&self, state: &State, purpose: Purpose, words: u64) -> Result<bool> {
        if purpose == Purpose::Collect {
            return Ok(true);
        }
        let mut reserve = self.spare.lock()?;
        if purpose == Purpose::Add {
            reserve.need = reserve.need.max(self.need(state, words));
        }
        self.fill(&mut reserve)
    }

    /// Fills the reserve as far as there is room; returns whether it is whole.
    fn fill(&self, reserve: &mut Reserve) -> Result<bool> {
        let wanted = reserve.need.logs + REMOVE_LOGS;
        if reserve.is_collecting {
            return Ok(false);
        }
        if reserve.logs.len() < wanted {
            // Neighbours of what was freed, perhaps.
            reserve.pieces.drain(..).for_each(|piece| self.space.give(piece));
        }
        while reserve.logs.len() < wanted {
            match self.take_if_room(self.log_bytes())? {
                Some(span) => reserve.logs.push(span),
                None => return Ok(false),
            }
        }
        self.fill_long(reserve)
    }

    /// As [`Walsh::fill`], of the room for long logs: one span, as long as all of them.
    fn fill_long(&self, reserve: &mut Reserve) -> Result<bool> {
        let wanted = reserve.need.long_bytes.next_multiple_of(LINE);
        let before = reserve.long_bytes();
        if before >= wanted {
            return Ok(true);
        }
        // What lies beside it may be free.
        reserve.long.take().into_iter().for_each(|old| self.space.give(old));
        // A quarter more: a growing table does not take another one with each pair.
        let mut bytes = (wanted + wanted / 4).next_multiple_of(LINE);
        // Ends: with each round less is wanted.
        while reserve.long.is_none() && bytes >= LINE {
            reserve.long = self.take_if_room(bytes)?;
            bytes = match bytes {
                ample if ample > wanted => wanted,
                exact if exact > before => before,
                less => less / 2 / LINE * LINE,
            };
        }
        Ok(reserve.long_bytes() >= wanted)
    }

    fn take_if_room(&self, bytes: u64) -> Result<Option<Span>> {
        match self.space.take(bytes, LINE) {
            Ok(taken) => Ok(Some(taken.span)),
            Err(everhash_pmem::Error::Full { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes what collecting an area needs that was just recovered.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside; in the other functions too.
    pub(super) fn note_need(&self, state: &State) -> Result<()> {
        let mut reserve = self.spare.lock()?;
        reserve.need = reserve.need.max(self.need(state, 0));
        Ok(())
    }

    /// Lets a collection of an area use the reserve; returns whether it may.
    ///
    /// It may not beside another one, and only if the reserve is enough for all of it; for the
    /// `last` resort the holes beside it count too. A collection that stops half way would use up
    /// what another one needs.
    pub(super) fn lend_reserve(&self, area: u64, state: &State, last: bool) -> Result<bool> {
        let need = self.need(state, 0);
        let mut reserve = self.spare.lock()?;
        if reserve.is_collecting {
            return Ok(false);
        }
        self.fill(&mut reserve)?;
        let ordinary = self.log_bytes();
        let room = reserve.logs.len() as u64 * ordinary + reserve.long_bytes();
        let needed = need.logs as u64 * ordinary + need.long_bytes;
        let is_enough = reserve.logs.len() >= need.logs && reserve.long_bytes() >= need.long_bytes;
        if is_enough || last && room + self.space.usage()?.free_bytes >= needed {
            reserve.is_collecting = true;
            // It uses the reserve again only if it takes a log from it again.
            reserve.users.retain(|user| *user != area);
        }
        Ok(reserve.is_collecting)
    }

    /// Ends a collection's use of the reserve.
    pub(super) fn return_reserve(&self) -> Result<()> {
        self.spare.lock()?.is_collecting = false;
        Ok(())
    }

    /// Makes the reserve whole: frees what waits for an epoch, and collects the areas that used it.
    /// No lock of an area is held.
    pub(super) fn restore_reserve(&self) -> Result<()> {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        // Ends: each round takes one more area, no area more often than twice.
        loop {
            self.end_limbo()?;
            self.measure_need()?;
            let mut reserve = self.spare.lock()?;
            if self.fill(&mut reserve)? {
                reserve.users.clear();
                return Ok(());
            }
            // The last one first: it left what it needs itself.
            let last = |done: &[u64]| {
                reserve.users.iter().rev().find(|user| !done.contains(user)).copied()
            };
            let (again, user) = match last(&once) {
                Some(user) => (false, Some(user)),
                None => (true, last(&twice)),
            };
            drop(reserve);
            let (again, user) = match user {
                Some(user) => (again, user),
                // After an open nothing says which areas used the reserve before.
                None => match self.fullest_of_garbage(&once)? {
                    Some(area) => (false, area),
                    None => return Ok(()),
                },
            };
            if again { &mut twice } else { &mut once }.push(user);
            let area = &self.areas[user as usize];
            let mut state = self.lock(area)?;
            self.collect(&self.pool.access(), area, &mut state, again)?;
        }
    }

    /// Returns the area with the most objects that are garbage, if any has some.
    fn fullest_of_garbage(&self, done: &[u64]) -> Result<Option<u64>> {
        let mut fullest = None;
        for area in self.areas.iter().filter(|area| !done.contains(&area.number)) {
            let state = self.lock(area)?;
            let garbage = state.stored.saturating_sub(state.items);
            fullest = fullest.max((garbage > 0).then_some((garbage, area.number)));
        }
        Ok(fullest.map(|(_, area)| area))
    }

    /// Finds out anew what the largest area needs: less, once pairs were removed.
    fn measure_need(&self) -> Result<()> {
        let mut need = Need::default();
        for area in &self.areas {
            need = need.max(self.need(&*self.lock(area)?, 0));
        }
        self.spare.lock()?.need = need;
        Ok(())
    }

    /// Gives the logs up to `last` another use. No view leads to them, and no durable word; where
    /// areas share epochs, they wait for the next one.
    pub(super) fn give_logs(&self, state: &mut State, last: u64) -> Result<()> {
        let mut spans = Vec::new();
        while let Some(log) = state.logs.pop_front_if(|log| log.number <= last) {
            state.stored -= log.count;
            *self.bytes_of(state, log.span) -= log.span.bytes();
            spans.push(log.span);
        }
        if self.is_grouped {
            self.add_housekeeping(spans.iter().map(|span| span.bytes()).sum());
            self.spare.lock()?.limbo.append(&mut spans);
            return self.bound_limbo();
        }
        self.give_spans(spans)
    }

    /// Gives logs another use: some are kept for a medium without room.
    pub(super) fn give_spans(&self, spans: Vec<Span>) -> Result<()> {
        let ordinary = self.log_bytes();
        let mut reserve = self.spare.lock()?;
        let wanted = reserve.need.logs + REMOVE_LOGS;
        for span in spans {
            match reserve.logs.len() < wanted && span.bytes() == ordinary {
                true => reserve.logs.push(span),
                false => self.space.give(span),
            }
        }
        Ok(())
    }

    /// Returns where the room is counted that an area's logs take: ordinary ones, or longer ones.
    pub(super) fn bytes_of<'s>(&self, state: &'s mut State, log: Span) -> &'s mut u64 {
        match log.bytes() > self.log_bytes() {
            true => &mut state.long_bytes,
            false => &mut state.log_bytes,
        }
    }
}
