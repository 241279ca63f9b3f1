//! Iteration over all pairs.

use std::collections::VecDeque;

use everhash_index::Cursor;

use crate::{Db, Result};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Every pair of a database, in no order; see [`Db::iter`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// let db = everhash_store::Db::create(&path)?;
/// db.put(b"a", b"1")?;
/// for pair in &db {
///     let (key, value) = pair?;
///     assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pairs<'a> {
    db: &'a Db,
    next: Option<Cursor>,
    read: VecDeque<Pair>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn of(db: &'a Db) -> Pairs<'a> {
        Pairs { db, next: Some(Cursor::default()), read: VecDeque::new() }
    }
}

impl Iterator for Pairs<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        while self.read.is_empty() {
            // Gone while the table is read, so that nothing comes after an error.
            let cursor = self.next.take()?;
            let read = &mut self.read;
            let more = self.db.core().read(|table| {
                table.scan(cursor, &mut |key, value| {
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

impl<'a> IntoIterator for &'a Db {
    type Item = Result<Pair>;
    type IntoIter = Pairs<'a>;

    fn into_iter(self) -> Pairs<'a> {
        self.iter()
    }
}

impl core::fmt::Debug for Pairs<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pairs").field("next", &self.next).finish_non_exhaustive()
    }
}
