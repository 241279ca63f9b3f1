//! A database that is written anew in place of the old one: with its pairs, or with none.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use everhash_pmem::FileMedium;
use everhash_pmem::media::file::system::{Call, System};

use crate::backup::NewCopy;
use crate::error::Shown;
use crate::{Db, Error, Options, Result};

/// How long a file name may be to become a part of the name of the new file, which is longer by up
/// to 33 bytes while it is filled.
///
/// Unit: bytes. Source: ours; file systems allow 255 bytes, and with encrypted names 143.
const LONG_NAME_BYTES: usize = 100;

impl Db {
    /// Gives back the storage that the database does not need: writes its pairs into a new file,
    /// which takes the place of the old one when it is complete and durable, and opens that. Needs
    /// room for both.
    ///
    /// The new file has the same engine, form, hash function and permissions, the same owner and
    /// group where the process may give files to them, and the settings with which this handle was
    /// opened. It is immediate if the old one was made with
    /// [`Durability::Immediate`](crate::Durability::Immediate). A crash leaves the old file or the
    /// new one, and perhaps `.NAME.compact` or `..NAME.compact.PID-NUMBER.new` beside it, which may
    /// be deleted and which the next call deletes. Where the name has more than 100 bytes,
    /// `everhash-INODE` stands for it, with the inode number of the old file.
    ///
    /// The new file can be longer than the old one if that was made with settings for smaller
    /// tables than the usual ones.
    ///
    /// Another hard link to the old file stays one: it keeps the old pairs, and their storage. What
    /// is returned is a handle of the same table as this one.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// # use everhash_store::Db;
    /// let db = Db::create(&path)?;
    /// for number in 0..10_000u32 {
    ///     db.put(number.to_le_bytes(), [7; 100])?;
    /// }
    /// db.retain(|key, _| key[0] == 0)?;
    /// let before = db.stats()?.device_bytes;
    /// let db = db.compact()?;
    /// assert_eq!(db.len()?, 40);
    /// assert!(db.stats()?.device_bytes < before / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InUse`] if there are other handles, [`Error::ReadOnly`] if this one may not write,
    /// [`Error::NoTable`] if its table was dropped, [`Error::Renamed`] if the path by which it was
    /// opened means another file by now, those of [`Db::backup`], and those of [`Options::open`]
    /// for the new file. If there is no error of the last kind the database is as it was, with one
    /// exception: if the directory cannot be synced at the end, the error says so, and the name is
    /// that of the new file, unless power is lost. In every case but that of [`Error::InUse`] it
    /// is closed.
    pub fn compact(self) -> Result<Db> {
        let table = self.space().cloned();
        if let Some(dropped) = table.as_ref().filter(|table| table.is_dropped()) {
            return Err(self.no_table(&dropped.name));
        }
        let db = self.rewritten(true)?;
        match table {
            // Nobody else had a handle by which it could have been dropped.
            Some(table) => db.table_of_any_kind(&table.name),
            None => Ok(db),
        }
    }

    /// Removes every pair and every table in O(1), however many there are, and gives back their
    /// storage: an empty file takes the place of the old one, as in [`Db::compact`], as short as
    /// its engine makes one. What is returned is the handle of the default table, which is the only
    /// one left.
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn truncate(self) -> Result<Db> {
        self.rewritten(false)
    }

    fn rewritten(self, with_pairs: bool) -> Result<Db> {
        let (db, path) = self.alone()?;
        spanned!(info, "rewrite", path.0);
        let info = *db.info();
        // An empty file is the shortest one that there is: many a table of the usual size is longer
        // than the file that is to give back its storage.
        let expected = if with_pairs { db.core().read(|table| table.len())? } else { 0 };
        let options = Options {
            engine: Some(info.engine.name.to_owned()),
            form: Some(info.form),
            hash: Some(info.hash),
            expected_items: Some(expected),
            ..db.options_of_open().clone()
        };
        let failed = |error| Error::of_system(&path.0, "replacing it", error);
        // Its own name: a rename would put the new file in the place of a symbolic link.
        let old = db.own_file()?;
        let new = beside(&old).map_err(failed)?;
        // Left by a process that did not come to its end: nobody else writes this database anew
        // while `db` holds its lock. A file of somebody else stays, and is in the way.
        if FileMedium::begins_pool(&new).unwrap_or(false) {
            let _ = fs::remove_file(&new);
        }
        let of_new = |error| named(error, &new, &path);
        let mut copy = NewCopy::begin(&options, &new, db.keeps_immediate()).map_err(of_new)?;
        if with_pairs {
            let needed = db.needed();
            db.core().still(|table| copy.add_all(table, &needed))?;
        }
        copy.finish().map_err(of_new)?;
        // Nobody else opens the old file before it is gone: `db` holds its lock. The name may have
        // been given to another file while the pairs were copied.
        let named = db.own_file().map(drop);
        let system = &*options.system;
        let replaced = named.and_then(|()| replace(&old, &new, system).map_err(failed));
        let directory = replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
        system.call(Call::SyncDirectory, &mut || directory.sync_all().map(|()| 0)).map_err(
            |error| {
                let doing = "sync the directory in which the new file has the name already";
                Error::of_system(&path.0, doing, error)
            },
        )?;
        let options = Options { create_if_missing: false, ..db.options_of_open().clone() };
        let again = db.path_of_open();
        drop(db);
        Db::open_with(&options, &again)
    }
}

/// Names the database `path` in an error of its new file, of whose name the caller knows nothing.
/// What is in the way of that file is named as it is.
fn named(error: Error, new: &Path, path: &Shown) -> Error {
    match error {
        Error::File { path: found, source } if found.0 == new => {
            Error::File { path: path.clone(), source }
        }
        Error::Denied { path: found, doing } if found.0 == new => {
            Error::Denied { path: path.clone(), doing }
        }
        other => other,
    }
}

/// Gives the file `new` the owner, the permissions and the name of the file `old`; returns their
/// directory, which is to be synced.
fn replace(old: &Path, new: &Path, system: &dyn System) -> io::Result<File> {
    let found = fs::metadata(old)?;
    // Where the process may: who is not the administrator keeps the group at most. Before the
    // permissions, of which a change of the owner takes some away.
    let _ = chown(new, None, Some(found.gid()));
    let _ = chown(new, Some(found.uid()), None);
    fs::set_permissions(new, found.permissions())?;
    // Before the rename: whatever fails up to there leaves the old file as it was.
    let directory = old.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut opened = None;
    system.call(Call::OpenDirectory, &mut || {
        opened = Some(File::open(directory.unwrap_or(Path::new(".")))?);
        Ok(0)
    })?;
    let opened = opened.ok_or_else(|| io::Error::other("the call brought no result"))?;
    fs::rename(new, old)?;
    Ok(opened)
}

/// Returns the name of the new file: always the same for one old file, so that one which a killed
/// process left is found by the next one.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let own = path.file_name().unwrap_or_default();
    let mut name = OsString::from(".");
    if own.len() <= LONG_NAME_BYTES {
        name.push(own);
    } else {
        // No other file of the directory has the inode. Of long names that are cut, two could.
        name.push(format!("everhash-{}", fs::metadata(path)?.ino()));
    }
    name.push(".compact");
    Ok(path.with_file_name(name))
}
