//! The database: what a program embeds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use everhash_index::{Checked, Form, HashKind, Stats};

use crate::catalog::EngineInfo;
use crate::core::Core;
use crate::error::Shown;
use crate::maintenance::MaintenanceThread;
use crate::metrics::Publisher;
use crate::place::{Identity, absolute};
use crate::tables::{Space, Tables, next_id};
use crate::{Durability, Error, Options, Result, Words};

/// An open database: a map from byte strings to byte strings in one file.
///
/// Cheap to clone and to share between threads; all operations on one key are linearizable. The
/// last handle that is dropped closes the database; [`Db::close`] does the same and reports
/// failures.
///
/// Every operation can fail with [`Error::Dead`] after a failure that put durability in doubt,
/// with [`Error::Forked`] in a child of the process, and with [`Error::File`] on a damaged file.
/// Every write can also fail with [`Error::ReadOnly`], with [`Error::Pair`] for a pair that is too
/// long or, where all pairs have one fixed length, has another one, and with [`Error::File`] on a
/// full disk. A write that fails with one of the first two has changed nothing. After any other
/// error it took effect as a whole or not at all, and reading the key shows which: an engine can
/// fail after it has stored the pair, when it syncs or grows.
///
/// A key that no pair can have, such as one that is too long, is absent: reads, removals and other
/// changes take it for that, and only putting it is an error.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
    /// The table that it sees; `None`: the default table.
    space: Option<Arc<Space>>,
}

struct Handle {
    /// Taken when the handle is dropped, and not before.
    core: Option<Arc<Core>>,
    thread: Option<MaintenanceThread>,
    publisher: Option<Publisher>,
    info: Info,
    /// By which it was opened, for when it is opened again.
    options: Options,
    /// Its path whatever the working directory of the process becomes.
    absolute: PathBuf,
    /// Which file it is, as far as that is known.
    identity: OnceLock<Identity>,
    /// The number of this open database in the process.
    id: u64,
}

/// What a database is.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The engine.
    pub engine: &'static EngineInfo,
    /// The form of the pairs.
    pub form: Form,
    /// The hash function that spreads the keys.
    pub hash: HashKind,
    /// When a write survives power loss.
    pub durability: Durability,
    /// Whether the database was not closed cleanly before, so that opening recovered it.
    pub recovered: bool,
    /// Whether this handle may write.
    pub writable: bool,
}

impl Db {
    /// Returns the options with which a database can be made and opened.
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens the database `path`, which must exist.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    /// Makes a new database `path` with the default options and opens it.
    ///
    /// # Errors
    /// As [`Options::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().create(path)
    }

    /// Opens the database `path`, which is made with the default options if it is not there.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().create_if_missing(true).open(path)
    }

    /// Opens the database `path` for reading, beside other readers.
    ///
    /// # Errors
    /// As [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open_read_only(path)
    }

    pub(crate) fn of(core: Core, info: Info, options: &Options) -> Result<Db> {
        let core = Arc::new(core);
        let wanted = options.background && info.writable;
        let thread = if wanted { MaintenanceThread::start(&core) } else { None };
        let mut options = options.clone();
        if let Some((path, _)) = &mut options.metrics_file {
            *path = absolute(path);
        }
        // From here on dropping the handle ends the thread.
        let id = core.tables().map_or_else(next_id, Tables::id);
        let absolute = absolute(core.path());
        let (core, publisher, identity) = (Some(core), None, OnceLock::new());
        let mut handle = Handle { core, thread, publisher, info, options, absolute, identity, id };
        if let (Some((path, every)), Some(core)) = (&handle.options.metrics_file, &handle.core) {
            handle.publisher = Some(Publisher::start(core, info, path, *every)?);
        }
        Ok(Db { handle: Arc::new(handle), space: None })
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        self.handle.core.as_ref().expect("the table is only taken when the last handle goes")
    }

    /// Returns the number of this open database in the process.
    pub(crate) fn id(&self) -> u64 {
        self.handle.id
    }

    pub(crate) fn space(&self) -> Option<&Arc<Space>> {
        self.space.as_ref()
    }

    /// Returns a handle to the default table of the same file.
    pub(crate) fn default_table(&self) -> Db {
        Db { handle: Arc::clone(&self.handle), space: None }
    }

    /// Returns a handle to a table of the same file.
    pub(crate) fn at(&self, space: Arc<Space>) -> Db {
        Db { handle: Arc::clone(&self.handle), space: Some(space) }
    }

    /// Returns the number of pairs. Exact whenever no write is under way.
    ///
    /// Takes O(1), except in a file that has or had named tables ([`Db::table`]): there the first
    /// call after an open counts the pairs of all tables in a snapshot, and from then on every
    /// write keeps the count. A write that fails leaves its table in doubt, and the next call
    /// counts again. If more is written while it counts than [`Options::snapshot_bytes`] has room
    /// for, it reads all pairs once more, with about 40 bytes of memory for each pair of the table,
    /// and the next call does, too.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn len(&self) -> Result<u64> {
        if self.is_all() {
            let all = self.core().read(|table| table.len())?;
            // A table may have been made meanwhile.
            if self.is_all() {
                return Ok(all);
            }
        }
        self.kept_len()
    }

    /// Returns whether there are no pairs.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn is_empty(&self) -> Result<bool> {
        if self.is_all() { Ok(self.len()? == 0) } else { self.has_none() }
    }

    /// Removes every pair; each removal is a step of its own.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn clear(&self) -> Result<()> {
        if self.is_all() && self.clear_at_once()? {
            return Ok(());
        }
        self.retain(|_, _| false).map(drop)
    }

    /// Makes every write that returned before durable.
    ///
    /// # Errors
    /// See [`Db`]. After a failed sync the handle has stopped: every later call fails with
    /// [`Error::Dead`], and opening the database again shows what survived.
    pub fn sync(&self) -> Result<()> {
        self.core().sync()
    }

    /// Does some maintenance now; returns whether there is more to do. Never necessary.
    ///
    /// # Errors
    /// The first failure, or damage if there was any: what else there was to do is done before. A
    /// pair that cannot be removed, of a dropped table or because it has ended, stays until a later
    /// look through the file. Also see [`Db`].
    pub fn maintain(&self) -> Result<bool> {
        Ok(self.core().maintain()?.more)
    }

    /// Checks the whole database. Writes wait meanwhile; reads do not. If it is sound,
    /// [`Db::close`] does not report damage that maintenance met before.
    ///
    /// # Errors
    /// [`Error::File`] with the place of the damage, and see [`Db`].
    pub fn check(&self) -> Result<Checked> {
        self.core().check()
    }

    /// Returns figures.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn stats(&self) -> Result<Stats> {
        self.core().read(|table| table.stats())
    }

    /// Returns what the database is.
    pub fn info(&self) -> &Info {
        &self.handle.info
    }

    /// Returns the path by which the database was opened.
    pub fn path(&self) -> &Path {
        self.core().path()
    }

    /// Returns the operations on 8-byte keys and values, if all pairs have [`Form::WORDS`]. They
    /// need no slices and no allocation.
    pub fn words(&self) -> Option<Words<'_>> {
        Words::of(self)
    }

    /// Closes the database: makes everything durable and marks it as closed cleanly.
    ///
    /// # Errors
    /// [`Error::InUse`] if there are other handles: the last one closes it. [`Error::Dead`] after
    /// a failure that put durability in doubt, and [`Error::File`] if closing failed: the next open
    /// recovers the database then. [`Error::Maintenance`] if the database is closed but its
    /// maintenance had failed: if it failed when last tried, or if it ever met damage or a panic of
    /// the engine and no [`Db::check`] has found the database sound since.
    pub fn close(self) -> Result<()> {
        let path = Shown(self.path().to_owned());
        let others = Arc::strong_count(&self.handle).saturating_sub(1);
        match Arc::into_inner(self.handle) {
            Some(mut handle) => handle.close(),
            None => Err(Error::InUse { path, others }),
        }
    }

    /// Closes the database and deletes its file. What was written is lost. If it was opened by a
    /// symbolic link, the link stays and leads nowhere.
    ///
    /// # Errors
    /// [`Error::InUse`] if there are other handles, [`Error::ReadOnly`] if this one may not write,
    /// [`Error::Forked`] in a child of the process, [`Error::Renamed`] if the path by which it was
    /// opened means another file by now, and [`Error::File`] or [`Error::Denied`] if the file
    /// cannot be deleted. The database is as it was then, and is closed.
    pub fn discard(self) -> Result<()> {
        let (alone, path) = self.alone()?;
        let file = alone.own_file()?;
        // While the lock is held: nobody else has the file open. What fails when the handle is
        // dropped concerns a file that is gone.
        let deleted = std::fs::remove_file(file);
        drop(alone);
        deleted.map_err(|error| Error::of_system(&path.0, "deleting it", error))
    }

    /// Returns this handle and its path if there is no other one and it may write.
    pub(crate) fn alone(self) -> Result<(Db, Shown)> {
        let path = Shown(self.path().to_owned());
        let others = Arc::strong_count(&self.handle).saturating_sub(1);
        let Some(mut handle) = Arc::into_inner(self.handle) else {
            return Err(Error::InUse { path, others });
        };
        if !handle.info.writable {
            return Err(Error::ReadOnly { path });
        }
        if !handle.core.as_ref().is_some_and(|core| core.is_here()) {
            handle.close()?;
        }
        Ok((Db { handle: Arc::new(handle), space: None }, path))
    }

    /// Notes which file it is.
    pub(crate) fn identified(self, identity: Option<Identity>) -> Db {
        if let Some(identity) = identity {
            // Once: a handle opens one file.
            let _ = self.handle.identity.set(identity);
        }
        self
    }

    /// Returns the name of the open file itself, of which a symbolic link is none.
    ///
    /// Another program can give the name to another file right after this.
    ///
    /// # Errors
    /// [`Error::Renamed`] if the path by which the database was opened means another file by now.
    pub(crate) fn own_file(&self) -> Result<PathBuf> {
        let (path, absolute) = (self.path(), &self.handle.absolute);
        let found = std::fs::canonicalize(absolute).and_then(|own| Ok((Identity::of(&own)?, own)));
        let (found, own) = match found {
            Ok((found, own)) => (Some(found), Some(own)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, None),
            Err(error) => return Err(Error::of_system(path, "looking for its name", error)),
        };
        let opened = self.handle.identity.get().copied();
        own.filter(|_| found == opened).ok_or_else(|| {
            let text = |file: Option<Identity>| file.map_or("unknown".into(), |it| it.to_string());
            let found = found.map_or("no file".into(), |found| found.to_string());
            Error::Renamed { path: Shown(path.to_owned()), opened: text(opened), found }
        })
    }

    /// Returns by which path to open the database again: the one by which it was opened, unless
    /// that leads elsewhere from what the working directory is by now.
    pub(crate) fn path_of_open(&self) -> PathBuf {
        let own = &self.handle.absolute;
        let unmoved = absolute(self.path()) == *own;
        if unmoved { self.path().to_owned() } else { own.clone() }
    }

    pub(crate) fn options_of_open(&self) -> &Options {
        &self.handle.options
    }
}

impl Handle {
    fn close(&mut self) -> Result<()> {
        let Some(core) = self.core.take() else { return Ok(()) };
        if !core.is_here() {
            // A child of the process: it has no thread to stop, and closing would take the lock
            // away from its parent and write over what the parent writes.
            let path = Shown(core.path().to_owned());
            std::mem::forget((core, self.thread.take(), self.publisher.take()));
            return Err(Error::Forked { path });
        }
        if let Some(thread) = self.thread.take() {
            thread.stop(&core);
        }
        if let Some(publisher) = self.publisher.take() {
            publisher.stop();
        }
        Arc::into_inner(core).expect("the threads that shared the table have ended").close()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // There is no caller to report an error to. The next open recovers what was not closed.
        let _ = self.close();
    }
}

impl core::fmt::Debug for Db {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_only_read_has_no_thread() {
        // Fails if every reader had one with nothing to do.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let db = Db::create(&path).unwrap();
        assert!(db.handle.thread.is_some());
        db.close().unwrap();
        assert!(Db::open_read_only(&path).unwrap().handle.thread.is_none());
    }
}
