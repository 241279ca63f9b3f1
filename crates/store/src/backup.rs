//! Backup: a consistent copy of a database that is in use.

use std::path::Path;

use everhash_index::{Cursor, Table};

use crate::place::New;
use crate::{Db, Durability, Error, Options, Result};

impl Db {
    /// Copies all pairs into a new database `target`, as of one moment: writes wait until the copy
    /// is read, reads do not. Returns the number of pairs.
    ///
    /// The copy has the same engine, form and hash function, the settings in `options`, and a hash
    /// key of its own. It appears under its name when it is complete and durable, closed cleanly.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let (path, copy) = (directory.path().join("a.ehdb"), directory.path().join("b.ehdb"));
    /// use everhash_store::Db;
    ///
    /// let db = Db::create(&path)?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.backup(&copy, &Db::options())?, 1);
    /// assert_eq!(Db::open_read_only(&copy)?.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AlreadyExists`](Error::AlreadyExists) and the other errors of [`Options::create`]; see
    /// also [`Db`]. There is no file `target` then.
    pub fn backup(&self, target: impl AsRef<Path>, options: &Options) -> Result<u64> {
        let target = target.as_ref();
        let info = self.info();
        let options = Options {
            engine: Some(info.engine.name.to_owned()),
            form: Some(info.form),
            hash: Some(info.hash),
            ..options.clone()
        };
        spanned!(info, "backup", target);
        let mut copy = NewCopy::begin(&options, target)?;
        self.core().still(|table| copy.add_all(table))?;
        copy.finish()
    }
}

/// A new database that is filled with the pairs of another one, and appears when it is complete.
pub(crate) struct NewCopy<'p> {
    new: New,
    target: &'p Path,
    count: u64,
    failure: Option<everhash_index::Error>,
}

impl<'p> NewCopy<'p> {
    pub(crate) fn begin(options: &Options, target: &'p Path) -> Result<Self> {
        // Nothing of the copy is promised before it has its name: one sync at the end is enough.
        let new = New::begin(options, target, Durability::Process)?;
        Ok(NewCopy { new, target, count: 0, failure: None })
    }

    /// Adds a pair, unless its key is there already or an earlier pair could not be added.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        match self.new.table.insert(key, value) {
            Ok(added) => self.count += u64::from(added),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Adds every pair of a table to which nobody writes.
    pub(crate) fn add_all(&mut self, table: &dyn Table) -> everhash_index::Result<()> {
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next.filter(|_| self.failure.is_none()) {
            // A scan may visit a key twice, even without writes.
            next = table.scan(cursor, &mut |key, value| self.add(key, value))?;
        }
        Ok(())
    }

    /// Makes the copy durable and gives it its name; returns the number of pairs.
    pub(crate) fn finish(self) -> Result<u64> {
        let of_target = |error| Error::of(self.target, error);
        self.failure.map_or(Ok(()), Err).map_err(of_target)?;
        self.new.table.close().map_err(of_target)?;
        let published = self.new.file.media().publish();
        published.map_err(|error| Error::of_medium(self.target, error))?;
        Ok(self.count)
    }
}
