//! The pairs of dropped tables: removed a few at a time, by maintenance.
//!
//! A round begins with a sync, so that no pair goes before the drop is durable, and ends with one,
//! so that the catalogue forgets a table only when its pairs are gone for good. A crash in between
//! leaves the table in the catalogue as dropped, and the next open begins anew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use everhash_index::{Cursor, Table};

use super::prefix;
use crate::look::{Look, look};

/// Which tables are to be purged, and how far that is.
#[derive(Debug, Default)]
pub(crate) struct Purge {
    /// Whether there is anything to do.
    wanted: AtomicBool,
    /// The numbers for the next round: held for a moment only, so that a drop does not wait for a
    /// round.
    waiting: Mutex<Vec<u64>>,
    /// The round that is under way; held while a part of it is done.
    round: Mutex<Option<Round>>,
}

#[derive(Debug)]
pub(crate) struct Round {
    /// Sorted.
    pub(crate) numbers: Vec<u64>,
    /// Where to go on; `None`: all pairs were seen.
    pub(crate) next: Option<Cursor>,
    /// Whether damage was passed over, in which a pair of theirs may lie.
    pub(crate) is_damaged: bool,
}

impl Purge {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Adds tables that were dropped.
    pub(crate) fn add(&self, numbers: &[u64]) {
        if !numbers.is_empty() {
            let mut waiting = lock(&self.waiting);
            waiting.extend_from_slice(numbers);
            self.wanted.store(true, Ordering::Release);
        }
    }

    /// Returns the numbers for a round that begins with a sync.
    pub(crate) fn take_waiting(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    pub(crate) fn round(&self) -> MutexGuard<'_, Option<Round>> {
        lock(&self.round)
    }

    /// Notes that a round has ended.
    pub(crate) fn ended(&self) {
        let waiting = lock(&self.waiting);
        self.wanted.store(!waiting.is_empty(), Ordering::Release);
    }
}

/// What these locks guard is whole whenever they are free.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Round {
    pub(crate) fn new(mut numbers: Vec<u64>) -> Round {
        numbers.sort_unstable();
        Round { numbers, next: Some(Cursor::default()), is_damaged: false }
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
