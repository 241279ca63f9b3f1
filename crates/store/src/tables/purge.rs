//! The pairs of dropped tables: removed a few at a time, by maintenance.
//!
//! A round begins with a sync, so that no pair goes before the drop is durable, and ends with one,
//! so that the catalogue forgets a table only when its pairs are gone for good. A crash in between
//! leaves the table in the catalogue as dropped, and the next open begins anew.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use everhash_index::{Cursor, Table};

use super::prefix;
use crate::Error;
use crate::look::{Look, look, next_round};

/// Which tables are to be purged, and how far that is.
#[derive(Debug, Default)]
pub(crate) struct Purge {
    /// Whether there is anything to do.
    wanted: AtomicBool,
    /// What the next round is about: held for a moment only, so that a drop does not wait for a
    /// round.
    waiting: Mutex<Waiting>,
    /// The round that is under way; held while a part of it is done.
    round: Mutex<Option<Round>>,
}

#[derive(Debug, Default)]
struct Waiting {
    numbers: Vec<u64>,
    /// When the round begins at the earliest.
    due: Duration,
}

#[derive(Debug)]
pub(crate) struct Round {
    /// Sorted.
    pub(crate) numbers: Vec<u64>,
    /// Where to go on; `None`: all pairs were seen.
    pub(crate) next: Option<Cursor>,
    begun: Duration,
    /// Whether a pair of theirs may be left that only the next open can come to: behind damage that
    /// was passed over, or in a part in doubt.
    is_damaged: bool,
    /// Whether a pair was left, or a page as it was, because of room that there was not.
    lacks_room: bool,
}

/// What becomes of tables whose pairs were all seen.
pub(crate) enum Outcome {
    /// The catalogue forgets them.
    Gone,
    /// The next open begins anew with them.
    Left,
    /// A later round begins anew with them.
    Repeated,
}

impl Purge {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Adds tables that were dropped; the next round begins at once.
    pub(crate) fn add(&self, numbers: &[u64]) {
        self.wait_for(numbers, Duration::ZERO);
    }

    fn wait_for(&self, numbers: &[u64], due: Duration) {
        if !numbers.is_empty() {
            let mut waiting = lock(&self.waiting);
            let is_first = waiting.numbers.is_empty();
            waiting.due = if is_first { due } else { waiting.due.min(due) };
            waiting.numbers.extend_from_slice(numbers);
            self.wanted.store(true, Ordering::Release);
        }
    }

    /// Returns the numbers for a round that begins with a sync, or when it is due.
    pub(crate) fn take_waiting(&self, now: Duration) -> Result<Vec<u64>, Duration> {
        let mut waiting = lock(&self.waiting);
        if now < waiting.due {
            return Err(waiting.due);
        }
        Ok(std::mem::take(&mut waiting.numbers))
    }

    pub(crate) fn round(&self) -> MutexGuard<'_, Option<Round>> {
        lock(&self.round)
    }

    /// Notes that a round has ended.
    pub(crate) fn ended(&self, round: Round, now: Duration) {
        if matches!(round.outcome(), Outcome::Repeated) {
            self.wait_for(&round.numbers, next_round(round.begun, now));
        }
        let waiting = lock(&self.waiting);
        self.wanted.store(!waiting.numbers.is_empty(), Ordering::Release);
    }
}

/// What these locks guard is whole whenever they are free.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Round {
    pub(crate) fn new(mut numbers: Vec<u64>, begun: Duration) -> Round {
        numbers.sort_unstable();
        let next = Some(Cursor::default());
        Round { numbers, next, begun, is_damaged: false, lacks_room: false }
    }

    /// Notes that a pair of theirs may be left, or that they are listed still, because of an error.
    pub(crate) fn left(&mut self, error: &Error) {
        match error.is_full() {
            true => self.lacks_room = true,
            false => self.is_damaged = true,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (self.lacks_room, self.is_damaged) {
            (true, _) => Outcome::Repeated,
            (false, true) => Outcome::Left,
            (false, false) => Outcome::Gone,
        }
    }

    /// Looks from `cursor` on at about `budget` pairs for those of dropped tables.
    pub(crate) fn look(
        &self,
        table: &dyn Table,
        cursor: Cursor,
        budget: u32,
    ) -> everhash_index::Result<Look> {
        look(table, cursor, budget, |stored, _| {
            let number = prefix::split(stored).map(|(number, _)| number);
            number.is_some_and(|number| self.numbers.binary_search(&number).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_is_repeated_waits_for_many_times_as_long_as_it_took() {
        // Fails if maintenance read a large file again and again for a pair that cannot be removed
        // for want of room, or if a round that only met damage were repeated.
        let second = Duration::from_secs(1);
        for (is_damaged, lacks_room) in [(false, true), (true, true), (true, false)] {
            let purge = Purge::default();
            let round = Round::new(vec![17], 100 * second);
            purge.ended(Round { is_damaged, lacks_room, ..round }, 110 * second);
            assert_eq!(purge.is_wanted(), lacks_room);
            if lacks_room {
                let due = (110 + 190) * second;
                assert_eq!(purge.take_waiting(due - second), Err(due));
                assert_eq!(purge.take_waiting(due), Ok(vec![17]));
            }
        }
    }

    #[test]
    fn a_table_that_is_dropped_meanwhile_does_not_wait_for_a_repeated_round() {
        // Fails if its pairs stayed as long as those that could not be removed.
        let purge = Purge::default();
        purge.add(&[18]);
        let round = Round::new(vec![17], Duration::ZERO);
        purge.ended(Round { lacks_room: true, ..round }, Duration::from_secs(10));
        assert_eq!(purge.take_waiting(Duration::from_secs(10)), Ok(vec![18, 17]));
    }
}
