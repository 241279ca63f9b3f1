//! Pairs that have ended: removed a few at a time, by maintenance.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use everhash_index::{Change, Cursor, Table, Upkeep};

use super::record::has_ended;
use crate::core::Core;
use crate::look::{look, next_round};
use crate::maintenance::Parts;
use crate::tables::prefix;
use crate::{Error, Result};

/// The looks through the file.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Whether there is a table whose pairs end.
    wanted: AtomicBool,
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    /// Where to go on; `None`: no round is under way.
    next: Option<Cursor>,
    begun: Duration,
    /// When the next one begins.
    due: Duration,
}

impl Round {
    /// Notes where to go on, or that the round has ended.
    fn went_on(&mut self, next: Option<Cursor>, now: Duration) {
        self.next = next;
        if next.is_none() {
            self.due = next_round(self.begun, now);
        }
    }
}

impl Sweep {
    /// Notes whether there is a table whose pairs end. Under the lock of the catalogue, so that the
    /// last word is that of the last change.
    pub(crate) fn want(&self, is_wanted: bool) {
        self.wanted.store(is_wanted, Ordering::Release);
    }

    /// Does a bounded part of a round.
    pub(crate) fn step(&self, core: &Core, budget: u32) -> Result<Upkeep> {
        // A snapshot would have to keep everything that is removed.
        if !self.wanted.load(Ordering::Acquire) || core.has_snapshots() {
            return Ok(Upkeep::default());
        }
        // Waits for a part that another thread does: whoever passed it by would know of nothing
        // left to do, and the thread of the database would sleep until the next write.
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let now = core.now();
        let waits = |due| Ok(Upkeep { deadline: Some(due), ..Upkeep::default() });
        let cursor = match round.next {
            Some(cursor) => cursor,
            None if now < round.due => return waits(round.due),
            None => {
                round.begun = now;
                Cursor::default()
            }
        };
        let wall = core.wall();
        let is_meant = |stored: &[u8], record: &[u8]| {
            let ends = prefix::split(stored).is_some_and(|(number, _)| prefix::ends(number));
            ends && has_ended(record, wall)
        };
        let look =
            core.write_own_lazily(|_| Ok(()), |table| look(table, cursor, budget, is_meant))?;
        let mut parts = Parts::default();
        for stored in look.keys {
            // Looked at once more: it may have been written again.
            let change = &mut |record: Option<&[u8]>| match record {
                Some(record) if has_ended(record, wall) => Change::Remove,
                _ => Change::Keep,
            };
            // A pair that cannot be removed keeps no other. The next round comes to it again.
            let modify = |table: &dyn Table| table.modify(&stored, change);
            parts.done(core.write_own_lazily(|save| save(&stored), modify));
        }
        if let Some(damage) = look.damage {
            parts.failed(Error::of(core.path(), damage));
        }
        round.went_on(look.next, core.now());
        let deadline = look.next.is_none().then_some(round.due);
        parts.add(Ok(Upkeep { more: look.next.is_some(), deadline }));
        parts.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;

    #[test]
    fn a_round_is_followed_by_a_rest_that_is_many_times_as_long() {
        // Fails if a large file were read again and again, or if the rest were counted from where
        // the last part of the round began.
        let second = Duration::from_secs(1);
        let mut round = Round { next: None, begun: 100 * second, due: 100 * second };
        round.went_on(Some(Cursor::default()), 105 * second);
        assert_eq!((round.next, round.due), (Some(Cursor::default()), 100 * second));
        round.went_on(None, 110 * second);
        assert_eq!((round.next, round.due), (None, (110 + 190) * second));
    }

    #[test]
    fn who_meets_another_at_a_sweep_knows_when_the_next_one_is_due() {
        // Fails if the thread of a database that meets a call of `maintain` slept until somebody
        // writes: the storage of what ends would not come back.
        let directory = tempfile::tempdir().unwrap();
        let db = Db::options().background(false).create(directory.path().join("pairs.ehdb"));
        let (db, sweep) = (db.unwrap(), Sweep::default());
        sweep.want(true);
        let other = sweep.round.lock().unwrap();
        let upkeep = std::thread::scope(|scope| {
            let meets = scope.spawn(|| sweep.step(db.core(), 256).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
            meets.join().unwrap()
        });
        assert!(upkeep.more || upkeep.deadline.is_some());
    }
}
