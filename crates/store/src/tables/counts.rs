//! How many pairs each table has: kept from the first question on.
//!
//! Nothing of it lies in the file, so that no write stores more and no crash leaves a wrong number.
//! The first [`Db::len`] of a table counts the pairs of all tables in a snapshot; from its instant
//! on every write that adds or removes a pair says so, inside the gate. A program that never asks
//! pays for one flag.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering, fence};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use everhash_index::Cursor;
use everhash_pmem::{Primitives, Std};

use super::prefix;
use super::{Space, Tables};
use crate::snapshot::{Place, Snapshot};
use crate::{Db, Error, Result};

/// The most counters that share the changes of one table. Source: ours; a quarter of a page.
const MAX_LANES: usize = 16;

/// The counts of all tables.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Whether changes are counted. Only changes, from false to true, while no write is under way.
    begun: AtomicBool,
    /// That of the default table.
    default: Count,
    /// Held by the one that counts the pairs.
    counting: Mutex<()>,
}

/// The number of pairs of one table.
#[derive(Debug, Default)]
pub(crate) struct Count {
    state: AtomicU8,
    lanes: OnceLock<Box<[Lane]>>,
}

/// A counter alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane(AtomicI64);

/// Nothing is known: [`Count::state`].
const UNKNOWN: u8 = 0;

/// The pairs of an instant are being counted, and changes from then on are known.
const COUNTING: u8 = 1;

/// The sum of the lanes is the number of pairs.
const KNOWN: u8 = 2;

impl Count {
    /// Returns the number of pairs, if it is known.
    fn get(&self) -> Option<u64> {
        if self.state.load(Ordering::Acquire) != KNOWN {
            return None;
        }
        let sum: i64 = self.lanes().iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum();
        // With the one in `restart`: whoever sees a lane that begins anew sees that the number is
        // not known any more, too.
        fence(Ordering::Acquire);
        if self.state.load(Ordering::Relaxed) != KNOWN {
            return None;
        }
        // Below 0 only beside writes: a removal was seen, and not the addition before it.
        Some(u64::try_from(sum).unwrap_or(0))
    }

    /// Notes that pairs came or went. Inside the gate.
    pub(crate) fn change(&self, by: i64) {
        if by != 0 {
            let lanes = self.lanes();
            lanes[Std::thread() as usize % lanes.len()].0.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Forgets what was known, and begins anew. While no write is under way.
    fn restart(&self, state: u8) {
        fence(Ordering::Release);
        self.lanes().iter().for_each(|lane| lane.0.store(0, Ordering::Relaxed));
        self.state.store(state, Ordering::Release);
    }

    /// Begins to count, unless the number is known: it stays so then, and whoever asks meanwhile is
    /// told. Returns whether it began. While no write is under way.
    fn begin(&self) -> bool {
        let begins = self.state.load(Ordering::Relaxed) != KNOWN;
        if begins {
            self.restart(COUNTING);
        }
        begins
    }

    /// Notes how many pairs there were when it began, unless it is in doubt by now.
    fn settle(&self, pairs: u64) {
        self.lanes()[0].0.fetch_add(pairs.cast_signed(), Ordering::Relaxed);
        let known = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.state.compare_exchange(COUNTING, KNOWN, known.0, known.1);
    }

    fn lanes(&self) -> &[Lane] {
        self.lanes.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
            let lanes = processors.next_power_of_two().min(MAX_LANES);
            (0..lanes).map(|_| Lane::default()).collect()
        })
    }
}

/// Takes a count for unknown if the write fails or panics that it accompanies: perhaps it was done.
pub(crate) struct Watch<'c> {
    count: Option<&'c Count>,
}

impl Watch<'_> {
    /// Notes that the write is done, and how many pairs came or went.
    pub(crate) fn done(mut self, change: i64) {
        if let Some(count) = self.count.take() {
            count.change(change);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.count.take() {
            count.state.store(UNKNOWN, Ordering::Release);
        }
    }
}

/// The counts of the tables that a batch writes.
pub(crate) struct BatchCount<'c> {
    /// Each with the number of its table; empty if changes are not counted.
    watches: Vec<(u64, Watch<'c>, i64)>,
}

impl BatchCount<'_> {
    /// Returns whether the writes of two stored keys can be counted together.
    pub(crate) fn are_together(&self, one: &[u8], other: &[u8]) -> bool {
        self.watches.is_empty() || number(one) == number(other)
    }

    /// Notes that pairs came or went in the table of a stored key.
    pub(crate) fn change(&mut self, stored: &[u8], by: i64) {
        let number = number(stored);
        if let Some((_, _, sum)) = self.watches.iter_mut().find(|(own, ..)| *own == number) {
            *sum += by;
        }
    }

    /// Notes that the batch is done.
    pub(crate) fn done(self) {
        for (_, watch, sum) in self.watches {
            watch.done(sum);
        }
    }
}

/// Returns the number of the table of a stored key.
fn number(stored: &[u8]) -> u64 {
    prefix::split(stored).map_or(prefix::DEFAULT, |(number, _)| number)
}

impl Counts {
    /// Returns the count of a table, if its changes are counted. Inside the gate.
    #[inline(always)]
    pub(crate) fn of<'c>(&'c self, space: Option<&'c Space>) -> Option<&'c Count> {
        if !self.begun.load(Ordering::Relaxed) {
            return None;
        }
        match space {
            None => Some(&self.default),
            // What such a table has depends on the time.
            Some(space) => (!space.ends()).then_some(&space.count),
        }
    }

    /// Returns whether changes are counted.
    #[inline(always)]
    pub(crate) fn have_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Notes that a table was made, and is empty. Under the lock of the catalogue, under which
    /// counting begins.
    pub(super) fn made(&self, space: &Space) {
        if self.have_begun() {
            space.count.restart(KNOWN);
        }
    }
}

/// What was seen of a snapshot.
#[derive(Default)]
struct Seen {
    all: u64,
    default: u64,
    named: HashMap<u64, u64>,
}

impl Seen {
    /// Counts every pair of a snapshot for which `is_first` holds.
    fn of(snapshot: &Snapshot, mut is_first: impl FnMut(&[u8]) -> bool) -> Result<Seen> {
        let (mut seen, mut place) = (Seen::default(), Place::Table(Cursor::default()));
        while !matches!(place, Place::End) {
            snapshot.step(&mut place, |stored, _| {
                if !is_first(stored) {
                    return;
                }
                seen.all += 1;
                match number(stored) {
                    prefix::DEFAULT => seen.default += 1,
                    number => *seen.named.entry(number).or_default() += 1,
                }
            })?;
        }
        Ok(seen)
    }

    /// Counts every key once. Two hashes of 64 bits tell keys apart.
    fn each_once(snapshot: &Snapshot) -> Result<Seen> {
        let hashes = [RandomState::new(), RandomState::new()];
        let mut known = HashSet::new();
        Seen::of(snapshot, |key| known.insert([hashes[0].hash_one(key), hashes[1].hash_one(key)]))
    }
}

impl Tables {
    /// Counts the pairs of all tables whose number is not known, as of one instant.
    fn count_all(&self, db: &Db) -> Result<()> {
        let (spaces, default) = (Cell::<Vec<Arc<Space>>>::default(), Cell::new(false));
        let (snapshot, all) = {
            // Held so that every table is counted, or made after counting began.
            let catalogue = self.catalogue();
            db.default_table().snapshot_and(|table| {
                let begins = |space: &&Arc<Space>| !space.ends() && space.count.begin();
                spaces.set(catalogue.spaces().filter(begins).cloned().collect());
                default.set(self.counts.default.begin());
                self.counts.begun.store(true, Ordering::Relaxed);
                table.len()
            })?
        };
        let all = all.map_err(|error| Error::of(db.path(), error))?;
        let mut seen = Seen::of(&snapshot, |_| true)?;
        if seen.all != all {
            // A table that grows shows some keys twice.
            seen = Seen::each_once(&snapshot)?;
        }
        drop(snapshot);
        if default.get() {
            self.counts.default.settle(seen.default);
        }
        for space in spaces.take() {
            space.count.settle(seen.named.get(&space.number).copied().unwrap_or(0));
        }
        Ok(())
    }
}

impl Db {
    /// Returns the number of pairs of this table, which is one of several.
    pub(crate) fn kept_len(&self) -> Result<u64> {
        // Nothing but the question whether the table is there.
        self.read(|_| Ok(()))?;
        let tables = self.tables_of()?;
        let count = self.space().map_or(&tables.counts.default, |space| &space.count);
        if let Some(known) = count.get() {
            return Ok(known);
        }
        let counting = tables.counts.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = count.get() {
            return Ok(known);
        }
        match tables.count_all(self) {
            // More was written meanwhile than the snapshot has room for.
            Err(Error::SnapshotFull { .. }) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        drop(counting);
        // In doubt again after a write that failed, and then the pairs as they are seen.
        count.get().map_or_else(|| self.counted(|_| true), Ok)
    }

    /// Returns the number of pairs of this table, if it is known without counting them.
    pub(crate) fn known_len(&self) -> Option<u64> {
        let counts = &self.core().tables()?.counts;
        self.space().map_or(&counts.default, |space| &space.count).get()
    }

    /// Begins to count the changes of a batch that writes these tables and the default one. Inside
    /// the gate.
    pub(crate) fn count_batch<'c>(&'c self, spaces: &'c [Arc<Space>]) -> BatchCount<'c> {
        let mut watches: Vec<(u64, Watch<'c>, i64)> = Vec::new();
        if let Some(counts) = self.core().tables().map(|tables| &tables.counts) {
            let default = (prefix::DEFAULT, counts.of(None));
            let named = spaces.iter().map(|space| (space.number, counts.of(Some(space))));
            for (number, count) in named.chain([default]) {
                if count.is_some() && !watches.iter().any(|(known, ..)| *known == number) {
                    watches.push((number, Watch { count }, 0));
                }
            }
        }
        BatchCount { watches }
    }

    /// Runs a write of this table, inside the gate; `change` says how many pairs came or went.
    #[inline]
    pub(crate) fn counting<T>(
        &self,
        run: impl FnOnce() -> everhash_index::Result<T>,
        change: impl FnOnce(&T) -> i64,
    ) -> everhash_index::Result<T> {
        let space = self.space().map(|space| &**space);
        let Some(count) = self.core().tables().and_then(|tables| tables.counts.of(space)) else {
            return run();
        };
        let watch = Watch { count: Some(count) };
        let done = run()?;
        watch.done(change(&done));
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_while_pairs_are_counted_leaves_their_number_in_doubt() {
        // Fails if the count said that the write was not done, and it was.
        let count = Count::default();
        assert!(count.begin());
        drop(Watch { count: Some(&count) });
        count.settle(5);
        assert_eq!(count.get(), None);
        assert!(count.begin());
        Watch { count: Some(&count) }.done(2);
        count.settle(5);
        assert_eq!(count.get(), Some(7));
    }
}
