//! Backup: a consistent copy of a database that is in use.

use std::path::Path;

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
        // Nothing of the copy is promised before it has its name: one sync at the end is enough.
        let new = New::begin(&options, target, Durability::Process)?;
        let of_target = |error| Error::of(target, error);
        let mut failed = None;
        let mut count = 0;
        self.core().still(|table| {
            let mut next = Some(everhash_index::Cursor::default());
            while let (Some(cursor), None) = (next, &failed) {
                next = table.scan(cursor, &mut |key, value| {
                    // A scan may come by a key twice, even when nobody writes.
                    match new.table.insert(key, value) {
                        Ok(added) => count += u64::from(added),
                        Err(error) => failed = Some(error),
                    }
                })?;
            }
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(of_target(error));
        }
        new.table.close().map_err(of_target)?;
        new.file.media().publish().map_err(|error| Error::of_medium(target, error))?;
        Ok(count)
    }
}
