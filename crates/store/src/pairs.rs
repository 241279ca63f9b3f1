//! Iteration over all pairs.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use everhash_index::{Change, Cursor};

use crate::callback::Callback;
use crate::{Db, Result};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Every pair of a database, in no order; see [`Db::iter`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// let db = everhash_store::Db::create(&path)?;
/// db.put("a", "1")?;
/// for pair in &db {
///     let (key, value) = pair?;
///     assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pairs {
    db: Db,
    next: Option<Cursor>,
    read: VecDeque<Pair>,
}

impl Db {
    /// Returns every pair, in no order.
    ///
    /// Safe beside writes, and no snapshot: a key that is present throughout comes at least once,
    /// one that is written meanwhile perhaps not at all, and while the table grows, which it may
    /// do by itself after a write or an opening, a key may come twice.
    ///
    /// The iterator is a handle to the database: it stays open until the iterator is dropped.
    pub fn iter(&self) -> Pairs {
        self.clone().into_pairs()
    }

    /// As [`Db::iter`], with this handle.
    pub fn into_pairs(self) -> Pairs {
        Pairs { db: self, next: Some(Cursor::default()), read: VecDeque::new() }
    }

    /// Returns every key, in no order; like [`Db::iter`].
    pub fn keys(&self) -> impl Iterator<Item = Result<Vec<u8>>> + use<> {
        self.iter().map(|pair| pair.map(|(key, _)| key))
    }

    /// Calls `visit` for every pair, in no order; like [`Db::iter`], without an allocation per
    /// pair. `visit` must not use the database.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn scan(&self, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let visit = |key: &[u8], value: &[u8]| {
            visit(key, value);
            ControlFlow::Continue(())
        };
        self.scan_from(Cursor::default(), visit).map(drop)
    }

    /// Calls `visit` for the pairs from `cursor` on, in no order, until it breaks; returns where to
    /// go on, `None` at the end. Begin with [`Cursor::default`]; a cursor is valid while the
    /// database is open. `visit` must not use the database.
    ///
    /// Pairs come in groups, and a cursor stands before a group: pairs of the group in which
    /// `visit` breaks come again. A `visit` that breaks after a number of pairs counts only those
    /// that it has not seen before: otherwise it never gets behind a group with more pairs than
    /// that. How many a group has, depends on the engine and on what was written: some hundreds,
    /// where many were written meanwhile.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn scan_from(
        &self,
        cursor: Cursor,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Cursor>> {
        let mut callback = Callback::default();
        let result = self.read(|table| {
            let mut next = Some(cursor);
            let mut flow = ControlFlow::Continue(());
            while let Some(cursor) = next {
                next = table.scan(cursor, &mut |stored, value| {
                    let Some(key) = self.seen(stored) else { return };
                    if flow.is_continue() {
                        flow = callback.call(ControlFlow::Break(()), || visit(key, value));
                    }
                })?;
                if flow.is_break() {
                    return Ok(Some(cursor));
                }
            }
            Ok(next)
        });
        callback.resume();
        result
    }

    /// Removes every pair for which `keep` returns false; returns how many were removed.
    ///
    /// `keep` is called for each pair as it is found, and once more, while its key is locked, for
    /// each pair that is to go: it must not use the database. A pair that is written meanwhile may
    /// stay; like [`Db::iter`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn retain(&self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<u64> {
        let mut removed = 0;
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next {
            let mut callback = Callback::default();
            let mut doomed = Vec::new();
            next = self.read(|table| {
                table.scan(cursor, &mut |stored, value| {
                    let Some(key) = self.seen(stored) else { return };
                    if !callback.call(true, || keep(key, value)) {
                        doomed.push(key.to_vec());
                    }
                })
            })?;
            callback.resume();
            for key in doomed {
                removed += u64::from(self.modify(&key, |value| match value {
                    Some(value) if !keep(&key, value) => (Change::Remove, true),
                    _ => (Change::Keep, false),
                })?);
            }
        }
        Ok(removed)
    }
}

impl Iterator for Pairs {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        while self.read.is_empty() {
            // Gone while the table is read, so that nothing comes after an error.
            let cursor = self.next.take()?;
            let (db, read) = (&self.db, &mut self.read);
            let more = db.read(|table| {
                table.scan(cursor, &mut |stored, value| {
                    let Some(key) = db.seen(stored) else { return };
                    read.push_back((key.to_vec(), value.to_vec()));
                })
            });
            match more {
                Ok(next) => self.next = next,
                Err(error) => {
                    self.read.clear();
                    return Some(Err(error));
                }
            }
        }
        self.read.pop_front().map(Ok)
    }
}

impl IntoIterator for &Db {
    type Item = Result<Pair>;
    type IntoIter = Pairs;

    fn into_iter(self) -> Pairs {
        self.iter()
    }
}

impl IntoIterator for Db {
    type Item = Result<Pair>;
    type IntoIter = Pairs;

    fn into_iter(self) -> Pairs {
        self.into_pairs()
    }
}

impl core::fmt::Debug for Pairs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pairs").field("next", &self.next).finish_non_exhaustive()
    }
}
