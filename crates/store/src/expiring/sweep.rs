//! Pairs that have ended: removed a few at a time, by maintenance.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use everhash_index::{Change, Cursor, Table, Upkeep};

use super::record::{WallTime, has_ended};
use crate::Result;
use crate::core::Core;
use crate::tables::prefix;

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
        let (ended, next) =
            core.write_own(|_| Ok(()), |table| look(table, cursor, budget, wall))?;
        for stored in ended {
            // Looked at once more: it may have been written again.
            let change = &mut |record: Option<&[u8]>| match record {
                Some(record) if has_ended(record, wall) => Change::Remove,
                _ => Change::Keep,
            };
            core.write_own(|save| save(&stored), |table| table.modify(&stored, change))?;
        }
        round.next = next;
        if next.is_some() {
            return Ok(Upkeep { more: true, ..Upkeep::default() });
        }
        let now = core.now();
        let took = now.saturating_sub(round.begun);
        round.due = now.saturating_add((took * REST).max(PERIOD));
        waits(round.due)
    }
}

/// Looks at about `budget` pairs; returns the keys of those that have ended, and where to go on.
fn look(
    table: &dyn Table,
    cursor: Cursor,
    budget: u32,
    wall: WallTime,
) -> everhash_index::Result<(Vec<Vec<u8>>, Option<Cursor>)> {
    let (mut seen, mut ended, mut next) = (0, Vec::new(), Some(cursor));
    while let Some(cursor) = next.filter(|_| seen < budget) {
        next = table.scan(cursor, &mut |stored, record| {
            seen += 1;
            let ends = prefix::split(stored).is_some_and(|(number, _)| prefix::ends(number));
            if ends && has_ended(record, wall) {
                ended.push(stored.to_vec());
            }
        })?;
    }
    Ok((ended, next))
}
