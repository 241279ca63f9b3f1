//! Pairs that have ended: removed a few at a time, by maintenance.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use everhash_index::{Change, Cursor, Upkeep};

use super::record::has_ended;
use crate::core::Core;
use crate::look::look;
use crate::tables::prefix;
use crate::{Error, Result};

/// The shortest time between the beginnings of two rounds.
///
/// Source: ours; what has ended is invisible, and only its storage waits.
const PERIOD: Duration = Duration::from_secs(30);

/// How many times as long as a round took the next one waits at least: what looking through a file
/// costs is bounded, however large it is. Source: ours; a twentieth of the time.
const REST: u32 = 19;

/// The looks through the file.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Whether a table was seen whose pairs end.
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

impl Sweep {
    /// Notes that there is a table whose pairs end.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Does a bounded part of a round.
    pub(crate) fn step(&self, core: &Core, budget: u32) -> Result<Upkeep> {
        // A snapshot would have to keep everything that is removed.
        if !self.wanted.load(Ordering::Acquire) || core.has_snapshots() {
            return Ok(Upkeep::default());
        }
        let mut round = match self.round.try_lock() {
            Ok(round) => round,
            Err(TryLockError::Poisoned(round)) => PoisonError::into_inner(round),
            Err(TryLockError::WouldBlock) => return Ok(Upkeep::default()),
        };
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
        let look = core.write_own(|_| Ok(()), |table| look(table, cursor, budget, is_meant))?;
        for stored in look.keys {
            // Looked at once more: it may have been written again.
            let change = &mut |record: Option<&[u8]>| match record {
                Some(record) if has_ended(record, wall) => Change::Remove,
                _ => Change::Keep,
            };
            core.write_own(|save| save(&stored), |table| table.modify(&stored, change))?;
        }
        round.next = look.next;
        if look.next.is_none() {
            let now = core.now();
            let took = now.saturating_sub(round.begun);
            round.due = now.saturating_add((took * REST).max(PERIOD));
        }
        match (look.damage, look.next) {
            (Some(damage), _) => Err(Error::of(core.path(), damage)),
            (None, Some(_)) => Ok(Upkeep { more: true, ..Upkeep::default() }),
            (None, None) => waits(round.due),
        }
    }
}
