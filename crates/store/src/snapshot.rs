//! Snapshots: all pairs as they were at one instant, beside writes.

mod kept;

use std::collections::VecDeque;
use std::sync::Arc;

use everhash_index::{Cursor, Table};

use kept::{Found, STRIPES};
pub(crate) use kept::{Kept, Save, Snapshots};

use crate::error::Shown;
use crate::expiring::{WallTime, live};
use crate::{Db, Error, Pair, Result};

/// The pairs of a database, or of one of its tables, as they were at one instant; see
/// [`Db::snapshot`]. Clones are of the same instant.
#[derive(Clone)]
pub struct Snapshot {
    /// The handle of the table that it sees.
    db: Db,
    live: Arc<Live>,
}

/// Ends with the last clone.
struct Live {
    db: Db,
    kept: Arc<Kept>,
    /// When it was taken, by the clock on the wall.
    at: WallTime,
}

/// How far a snapshot was read: first the table, then what writes have changed meanwhile.
pub(crate) enum Place {
    Table(Cursor),
    Kept(usize),
    End,
}

impl Db {
    /// Returns all pairs as they are at this instant, whatever is written afterwards.
    ///
    /// Writes wait for those that are under way at the instant, and not for what is read later.
    /// While a snapshot is held, the first write to a key after the instant copies the old value
    /// into memory, up to [`Options::snapshot_bytes`](crate::Options::snapshot_bytes) for each
    /// snapshot. Beyond that reading it fails with [`Error::SnapshotFull`]; writes never do. Pairs
    /// of dropped tables are not removed meanwhile.
    ///
    /// A snapshot can be sent to another thread. It is a handle to the database, which stays open
    /// until it is dropped.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// let db = everhash_store::Db::create(&path)?;
    /// db.put("tree", "oak")?;
    /// let snapshot = db.snapshot()?;
    /// db.put("tree", "elm")?;
    /// db.put("bird", "owl")?;
    /// assert_eq!(snapshot.get("tree")?.as_deref(), Some(&b"oak"[..]));
    /// assert_eq!(snapshot.iter().count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_and(|_| ()).map(|(snapshot, ())| snapshot)
    }

    /// Takes a snapshot, and runs something at its instant.
    pub(crate) fn snapshot_and<R>(
        &self,
        run: impl FnOnce(&dyn Table) -> R,
    ) -> Result<(Snapshot, R)> {
        // Nothing but the question whether the table is there.
        self.read(|_| Ok(()))?;
        let limit = self.options_of_open().snapshot_bytes;
        let (kept, (result, at, is_dropped)) = self.core().snapshot(limit, |table| {
            let is_dropped = self.space().is_some_and(|space| space.is_dropped());
            (run(table), self.core().wall(), is_dropped)
        });
        let live = Arc::new(Live { db: self.clone(), kept, at });
        match self.space().filter(|_| is_dropped) {
            // After the question above: some of its pairs may be gone.
            Some(space) => Err(self.no_table(&space.name)),
            None => Ok((Snapshot { db: self.clone(), live }, result)),
        }
    }
}

impl Snapshot {
    /// Returns the value that a key had, or `None` if it was absent.
    ///
    /// # Errors
    /// [`Error::SnapshotFull`], and see [`Db`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.db.sought(key.as_ref(), |stored| {
            let mut value = Vec::new();
            let found = self.db.core().read(|table| table.get(stored, &mut value))?;
            // Afterwards: whoever changed what was read had kept the old value before.
            let value = match self.live.kept.find(stored) {
                Found::Unchanged => found.then_some(value),
                Found::Was(old) => old,
                Found::Full => return Err(self.full()),
            };
            match self.ends() {
                true => Ok(value.and_then(|value| Some(self.value(&value)?.to_vec()))),
                false => Ok(value),
            }
        })
    }

    /// Returns whether a key was present.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns a snapshot of the table `name`, of the same instant. It must be there still; one
    /// that was made later was empty.
    ///
    /// # Errors
    /// As [`Db::table`].
    pub fn table(&self, name: &str) -> Result<Snapshot> {
        Ok(Snapshot { db: self.db.table_of_any_kind(name)?, live: Arc::clone(&self.live) })
    }

    /// Returns the value of a pair of this table as it was given; `None` if it had ended.
    fn value<'v>(&self, stored: &'v [u8]) -> Option<&'v [u8]> {
        if self.ends() { live(stored, self.live.at) } else { Some(stored) }
    }

    /// Returns a pair of this table as it was given; `None` for one of another table.
    pub(crate) fn pair<'p>(
        &self,
        stored: &'p [u8],
        value: &'p [u8],
    ) -> Option<(&'p [u8], &'p [u8])> {
        self.db.seen(stored).zip(self.value(value))
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.db.path()
    }

    /// Refuses a child of the process that took it.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.db.core().check_process()
    }

    fn ends(&self) -> bool {
        self.db.space().is_some_and(|space| space.ends())
    }

    /// Returns every pair, in no order. While the table grows, or when a key is written meanwhile,
    /// a pair may come twice, with the same value.
    pub fn iter(&self) -> SnapshotPairs {
        let place = Place::Table(Cursor::default());
        SnapshotPairs { snapshot: self.clone(), place, read: VecDeque::new() }
    }

    /// Calls `visit` for some pairs from `place` on, with their keys as they lie in the file.
    pub(crate) fn step(
        &self,
        place: &mut Place,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        // In a child of the process a thread of its parent may have held the locks.
        self.check_process()?;
        match *place {
            Place::Table(cursor) => {
                let mut group = Vec::new();
                let next = self.db.core().read(|table| {
                    table.scan(cursor, &mut |key, value| group.push((key.to_vec(), value.to_vec())))
                })?;
                for (key, value) in &group {
                    match self.live.kept.find(key) {
                        Found::Unchanged => visit(key, value),
                        // It comes with what was kept.
                        Found::Was(_) => {}
                        Found::Full => return Err(self.full()),
                    }
                }
                *place = next.map_or(Place::Kept(0), Place::Table);
            }
            Place::Kept(stripe) if stripe < STRIPES => {
                let pairs = self.live.kept.pairs(stripe).ok_or_else(|| self.full())?;
                for (key, value) in &pairs {
                    visit(key, value);
                }
                *place = Place::Kept(stripe + 1);
            }
            Place::Kept(_) | Place::End => *place = Place::End,
        }
        Ok(())
    }

    #[cold]
    fn full(&self) -> Error {
        let limit = self.live.kept.limit();
        Error::SnapshotFull { path: Shown(self.db.path().to_owned()), limit }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let core = self.db.core();
        // In a child of the process a thread of its parent may have held the locks.
        if core.is_here() {
            core.forget_snapshot(&self.kept);
        }
    }
}

/// Every pair of a snapshot, in no order; see [`Snapshot::iter`].
pub struct SnapshotPairs {
    snapshot: Snapshot,
    place: Place,
    read: VecDeque<Pair>,
}

impl Iterator for SnapshotPairs {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        while self.read.is_empty() {
            if matches!(self.place, Place::End) {
                return None;
            }
            let (snapshot, read) = (&self.snapshot, &mut self.read);
            let step = snapshot.step(&mut self.place, |stored, value| {
                let Some((key, value)) = snapshot.pair(stored, value) else { return };
                read.push_back((key.to_vec(), value.to_vec()));
            });
            if let Err(error) = step {
                self.read.clear();
                self.place = Place::End;
                return Some(Err(error));
            }
        }
        self.read.pop_front().map(Ok)
    }
}

impl IntoIterator for &Snapshot {
    type Item = Result<Pair>;
    type IntoIter = SnapshotPairs;

    fn into_iter(self) -> SnapshotPairs {
        self.iter()
    }
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for SnapshotPairs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SnapshotPairs").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}
