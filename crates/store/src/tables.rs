//! Many tables in one file.

pub(crate) mod catalogue;
mod counts;
pub(crate) mod prefix;
mod purge;

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everhash_index::{Cursor, Table, Upkeep};

pub(crate) use catalogue::Space;
pub(crate) use catalogue::Traces;
use catalogue::{Catalogue, MAX_NAME_BYTES, Record, flag, flag_key};
pub(crate) use counts::BatchCount;
use counts::{Count, Counts};
use purge::{Outcome, Purge, Round};

use crate::core::Core;
use crate::error::Shown;
use crate::expiring::sweep::Sweep;
use crate::maintenance::Parts;
use crate::snapshot::Save;
use crate::{Db, Error, Result};

/// The tables of an open database of byte strings.
#[derive(Debug)]
pub(crate) struct Tables {
    /// The number of this open database in the process.
    id: u64,
    /// Whether a table was ever made.
    used: AtomicBool,
    /// Locked before the gate is entered, and never by one who has.
    catalogue: Mutex<Catalogue>,
    purge: Purge,
    sweep: Sweep,
    counts: Counts,
}

/// Returns a number for a database that is opened; no other one in the process has it.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Tables {
    pub(crate) fn load(table: &dyn Table) -> everhash_index::Result<Tables> {
        let id = next_id();
        let catalogue = Catalogue::load(table, id)?;
        let purge = Purge::default();
        purge.add(&catalogue.dropped());
        let used = AtomicBool::new(catalogue.was_used());
        let sweep = Sweep::default();
        sweep.want(catalogue.has_ending());
        let counts = Counts::default();
        Ok(Tables { id, used, catalogue: Mutex::new(catalogue), purge, sweep, counts })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a bounded part of removing pairs: those that have ended, and those of dropped tables.
    pub(crate) fn maintain(&self, core: &Core, budget: u32) -> Result<Upkeep> {
        let mut parts = Parts::default();
        parts.add(self.sweep.step(core, budget));
        parts.add(self.purge(core, budget));
        parts.end()
    }

    /// Does a bounded part of removing the pairs of dropped tables.
    fn purge(&self, core: &Core, budget: u32) -> Result<Upkeep> {
        const MORE: Upkeep = Upkeep { deadline: None, more: true };
        if !self.purge.is_wanted() || core.has_snapshots() {
            return Ok(Upkeep::default());
        }
        let mut under_way = self.purge.round();
        let Some(round) = &mut *under_way else {
            // Taken before the sync, which makes their drops durable.
            let numbers = match self.purge.take_waiting(core.now()) {
                Ok(numbers) => numbers,
                Err(due) => return Ok(Upkeep { deadline: Some(due), more: false }),
            };
            // If that fails the handle has stopped, and the next open begins anew.
            core.sync()?;
            *under_way = Some(Round::new(numbers, core.now()));
            return Ok(MORE);
        };
        if let Some(cursor) = round.next {
            return purge_some(core, round, cursor, budget).map(|()| MORE);
        }
        core.sync()?;
        if matches!(round.outcome(), Outcome::Gone) {
            let mut catalogue = self.catalogue();
            for (page, record) in catalogue.without_dropped(&round.numbers) {
                match put(core, &record) {
                    Ok(()) => catalogue.forget(page, &round.numbers),
                    // Until a later round it is listed, which is all that is lost.
                    Err(error) if error.is_full() => round.left(&error),
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some(round) = under_way.take() {
            self.purge.ended(round, core.now());
        }
        Ok(if self.purge.is_wanted() { MORE } else { Upkeep::default() })
    }

    /// Returns the table `name`, and whether it was made.
    fn make(&self, core: &Core, name: &str, ends: bool) -> Result<(Arc<Space>, bool)> {
        let mut catalogue = self.catalogue();
        if let Some(space) = catalogue.find(name) {
            return Ok((Arc::clone(space), false));
        }
        core.admit_writes()?;
        let failed = |error| Error::of(core.path(), error);
        // Before the first record, which is no pair of the default table.
        self.used.store(true, Ordering::Release);
        if let Some(reservation) = catalogue.reservation().map_err(failed)? {
            put(core, &reservation.header())?;
            core.sync()?;
            catalogue.reserved(&reservation);
        }
        let (space, (page, list)) = catalogue.prepare(name, self.id, ends);
        let flag = flag(space.number);
        put(core, &flag)?;
        let (is_made, put) = write_or_ask(core, &page, Some(&list));
        if is_made {
            self.counts.made(&space);
            catalogue.made(&space);
            if ends {
                self.sweep.want(true);
                core.maintenance.wake_if_asleep();
            }
        } else {
            // A flag that stays is in nobody's way: its number is not given again.
            let _ = write(core, &flag.0, None);
        }
        put.map(|()| (space, true))
    }

    fn drop_table(&self, core: &Core, name: &str) -> Result<bool> {
        let mut catalogue = self.catalogue();
        let Some(space) = catalogue.find(name).cloned() else { return Ok(false) };
        let (is_dropped, removed) = write_or_ask(core, &flag_key(space.number), None);
        if !is_dropped {
            return removed.map(|()| false);
        }
        catalogue.was_dropped(&space);
        self.sweep.want(catalogue.has_ending());
        drop(catalogue);
        // A write that saw the table alive has ended before its pairs are removed.
        drop(core.shut());
        self.purge.add(&[space.number]);
        // The removal has woken it, perhaps before there was anything to do.
        core.maintenance.wake_if_asleep();
        removed.map(|()| true)
    }
}

/// Removes some pairs of the tables that a round is about, and goes on behind those that cannot be
/// removed.
fn purge_some(core: &Core, round: &mut Round, cursor: Cursor, budget: u32) -> Result<()> {
    let look = core.write_own_lazily(|_| Ok(()), |table| round.look(table, cursor, budget))?;
    let mut parts = Parts::default();
    for stored in look.keys {
        // Each passes the gate alone: where a removal waits for the device, others would wait for
        // all of them. Snapshots see the table; nothing is kept for them.
        let remove = |table: &dyn Table| match core.has_snapshots() {
            true => Ok(false),
            false => table.remove(&stored).map(|_| true),
        };
        match core.write_own_lazily(|_| Ok(()), remove) {
            Ok(true) => {}
            // The same look comes again once the snapshot is gone.
            Ok(false) => return parts.end().map(drop),
            Err(error) => {
                round.left(&error);
                parts.failed(error);
            }
        }
    }
    round.next = look.next;
    if let Some(damage) = look.damage {
        let damage = Error::of(core.path(), damage);
        round.left(&damage);
        parts.failed(damage);
    }
    parts.end().map(drop)
}

fn put(core: &Core, (key, value): &Record) -> Result<()> {
    write(core, key, Some(value))
}

/// Puts a record of the catalogue, or removes it.
fn write(core: &Core, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let write = |table: &dyn Table| match value {
        Some(value) => table.put(key, value),
        None => table.remove(key),
    };
    core.write_own(|save| save(key), write).map(drop)
}

/// As [`write`]; returns whether the file is so now, and the failure of the write.
///
/// An engine can fail after it has stored a pair, so that the file is asked. If that is impossible
/// the handle stops: with a table in memory that the file has not, every pair that is put there
/// would be lost by the next open.
fn write_or_ask(core: &Core, key: &[u8], value: Option<&[u8]>) -> (bool, Result<()>) {
    let Err(failure) = write(core, key, value) else { return (true, Ok(())) };
    let mut found = Vec::new();
    match core.read(|table| table.get(key, &mut found)) {
        Ok(is_there) => (is_there.then_some(&found[..]) == value, Err(failure)),
        Err(error) => {
            // A damaged catalogue says nothing, and lets nobody open the file.
            if !error.is_damage() {
                core.stop(format!("its catalogue of tables is in doubt: {}", failure.cause()));
            }
            (false, Err(failure))
        }
    }
}

/// Tables: named maps within one file, which share its lock, its syncs and its maintenance.
///
/// [`Db::table`] and its siblings return a handle of the same type that sees the pairs of one table
/// only: all operations on pairs are about them. What concerns the file ([`Db::sync`],
/// [`Db::check`], [`Db::stats`], [`Db::backup`], [`Db::maintain`], [`Db::close`]) concerns all of
/// it. A database as it is opened is the handle of the default table, which has no name.
///
/// A table is 8 bytes before each of its keys. Making and dropping one takes a time that does not
/// depend on any number of pairs. Reading a table as a whole ([`Db::iter`], [`Db::scan`],
/// [`Db::retain`] and [`Db::clear`]) reads all pairs of the file, and so does the first
/// [`Db::len`] after an open.
impl Db {
    /// Returns a handle to the table `name`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// use everhash_store::{Db, ErrorKind};
    ///
    /// let db = Db::create(&path)?;
    /// let birds = db.create_table("birds")?;
    /// birds.put("owl", "night")?;
    /// assert_eq!(db.table("birds")?.get("owl")?.as_deref(), Some(&b"night"[..]));
    /// assert!(!db.contains_key("owl")?);
    /// assert!(db.drop_table("birds")?);
    /// assert_eq!(db.table("birds").unwrap_err().kind(), ErrorKind::NoTable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoTable`] if there is none, [`Error::TableKind`] if its pairs have expiry times
    /// ([`Db::expiring_table`]), [`Error::NoTables`] if pairs have a fixed form.
    pub fn table(&self, name: &str) -> Result<Db> {
        self.table_of_kind(name, false)
    }

    /// Returns a handle to a table whose pairs have expiry times, or have not.
    pub(crate) fn table_of_kind(&self, name: &str, ends: bool) -> Result<Db> {
        let found = self.table_of_any_kind(name)?;
        found.of_kind(ends)
    }

    /// Returns a handle to a table, whose values may have a time before them.
    pub(crate) fn table_of_any_kind(&self, name: &str) -> Result<Db> {
        let found = self.tables_of()?.catalogue().find(name).cloned();
        found.map(|space| self.at(space)).ok_or_else(|| self.no_table(name))
    }

    fn of_kind(self, ends: bool) -> Result<Db> {
        match self.space() {
            Some(space) if space.ends() != ends => Err(Error::TableKind {
                path: self.shown(),
                name: space.name.to_string(),
                expiring: space.ends(),
            }),
            _ => Ok(self),
        }
    }

    /// Makes the table `name`, and returns a handle to it.
    ///
    /// # Errors
    /// [`Error::TableExists`] if there is one, and those of [`Db::table_or_create`].
    pub fn create_table(&self, name: &str) -> Result<Db> {
        match self.make_any(name, false)? {
            (table, true) => Ok(table),
            (_, false) => Err(Error::TableExists { path: self.shown(), name: name.to_owned() }),
        }
    }

    /// Returns a handle to the table `name`, which is made if it is not there. Names have 1 to 255
    /// bytes. A new table is as durable as a put that returned at the same time. As after a put
    /// that failed on a full disk, [`Db::tables`] shows whether a failed call has made it.
    ///
    /// # Errors
    /// [`Error::TableName`] for a name that is empty or too long, [`Error::TableKind`] if its pairs
    /// have expiry times, [`Error::NoTables`] if pairs have a fixed form, and see [`Db`].
    pub fn table_or_create(&self, name: &str) -> Result<Db> {
        self.make_table(name, false)
    }

    pub(crate) fn make_table(&self, name: &str, ends: bool) -> Result<Db> {
        self.make_any(name, ends)?.0.of_kind(ends)
    }

    /// Returns a handle to the table `name`, whatever its kind, and whether it was made.
    fn make_any(&self, name: &str, ends: bool) -> Result<(Db, bool)> {
        let tables = self.tables_of()?;
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(Error::TableName { path: self.shown(), bytes: name.len() });
        }
        let (space, made) = tables.make(self.core(), name, ends)?;
        Ok((self.at(space), made))
    }

    /// Returns the names of all tables, sorted.
    ///
    /// # Errors
    /// [`Error::NoTables`] if pairs have a fixed form.
    pub fn tables(&self) -> Result<Vec<String>> {
        Ok(self.tables_of()?.catalogue().names().map(str::to_owned).collect())
    }

    /// Drops a table and all its pairs; returns whether there was one.
    ///
    /// Takes O(1), however many pairs there are, and no room, so that it works on a full disk, too.
    /// The pairs are gone at once; their storage is given back to the database by and by, by its
    /// maintenance or [`Db::maintain`], which reads all pairs of the file for that once. Handles to
    /// the table fail with [`Error::NoTable`] from here on.
    ///
    /// # Errors
    /// [`Error::NoTables`] if pairs have a fixed form, and see [`Db`]. The table is then there with
    /// all its pairs, or dropped, in the file as for every handle: [`Db::tables`] shows which.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        self.tables_of()?.drop_table(self.core(), name)
    }

    /// Returns the name of the table that this handle sees; `None` for the default table.
    pub fn table_name(&self) -> Option<&str> {
        self.space().map(|space| &*space.name)
    }

    pub(crate) fn tables_of(&self) -> Result<&Tables> {
        // In a child of the process its locks may be held by threads that are not there.
        self.core().check_process()?;
        let form = self.info().form;
        self.core().tables().ok_or_else(|| Error::NoTables { path: self.shown(), form })
    }

    #[cold]
    pub(crate) fn no_table(&self, name: &str) -> Error {
        Error::NoTable { path: self.shown(), name: name.to_owned() }
    }

    fn shown(&self) -> Shown {
        Shown(self.path().to_owned())
    }
}

/// Keys and pairs of the handle's own table.
impl Db {
    /// Calls `run` with a key as it lies in the file.
    #[inline]
    pub(crate) fn stored<R>(&self, key: &[u8], run: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        match self.number_before(key) {
            None => run(key),
            Some(number) => {
                prefix::admit(key)?;
                prefix::with(number, key, run)
            }
        }
    }

    /// Calls `run` with a key as it would lie in the file: one that is too long to lie there is
    /// absent, as it is without a prefix.
    #[inline]
    pub(crate) fn sought<R>(&self, key: &[u8], run: impl FnOnce(&[u8]) -> R) -> R {
        match self.number_before(key) {
            None => run(key),
            Some(number) => prefix::with(number, key, run),
        }
    }

    /// Refuses a key that no pair of this table can have.
    #[inline]
    pub(crate) fn admit_key(&self, key: &[u8]) -> everhash_index::Result<()> {
        match self.number_before(key) {
            None => everhash_index::admit_key(self.info().form, key),
            Some(_) => prefix::admit_key(key),
        }
    }

    /// Returns a key as it lies in the file.
    pub(crate) fn stored_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        match self.number_before(key) {
            None => Ok(Cow::Borrowed(key)),
            Some(number) => prefix::before(number, key),
        }
    }

    /// Returns a key as it would lie in the file; as [`Db::sought`].
    pub(crate) fn sought_key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match self.number_before(key) {
            None => Cow::Borrowed(key),
            Some(number) => Cow::Owned(prefix::joined(number, key)),
        }
    }

    #[inline(always)]
    fn number_before(&self, key: &[u8]) -> Option<u64> {
        match self.space() {
            Some(space) => Some(space.number),
            None if !prefix::begins_like_one(key) => None,
            None => self.core().tables().map(|_| prefix::DEFAULT),
        }
    }

    /// Returns the key of a pair of this table as it was given; `None` for a pair of another one.
    #[inline]
    pub(crate) fn seen<'k>(&self, stored: &'k [u8]) -> Option<&'k [u8]> {
        let own = self.space().map_or(prefix::DEFAULT, |space| space.number);
        if self.space().is_none() && !prefix::begins_like_one(stored) {
            return Some(stored);
        }
        match prefix::split(stored).filter(|_| self.core().tables().is_some()) {
            Some((number, key)) => (number == own).then_some(key),
            None => self.space().is_none().then_some(stored),
        }
    }

    /// Runs a read of this table.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        let dropped = || self.space().filter(|space| space.is_dropped());
        if let Some(space) = dropped() {
            return Err(self.no_table(&space.name));
        }
        let result = self.core().read(run);
        match dropped() {
            // Its pairs go from then on: what was read may be a part of them.
            Some(space) => Err(self.no_table(&space.name)),
            None => result,
        }
    }

    /// Runs a write of this table; `change` says how many pairs came or went.
    #[inline]
    pub(crate) fn write_with<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
        change: impl FnOnce(&T) -> i64,
    ) -> Result<T> {
        let run = |table: &dyn Table| self.counting(|| run(table), change);
        match self.space() {
            None => self.core().write(touch, run),
            Some(space) => self.write_unless_dropped(std::slice::from_ref(space), touch, run),
        }
    }

    /// Runs a write of some tables.
    pub(crate) fn write_unless_dropped<T>(
        &self,
        spaces: &[Arc<Space>],
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        let own = self.core().tables().map(|tables| tables.id);
        if let Some(space) = spaces.iter().find(|space| Some(space.database) != own) {
            return Err(self.no_table(&space.name));
        }
        // Asked inside the gate, so that nothing is written after the pairs were removed.
        let mut gone = None;
        let written = self.core().write(touch, |table| {
            gone = spaces.iter().find(|space| space.is_dropped());
            if gone.is_some() { Ok(None) } else { run(table).map(Some) }
        })?;
        written.ok_or_else(|| self.no_table(gone.map_or("", |space| &space.name)))
    }

    /// Returns whether all pairs of the file are of this table.
    pub(crate) fn is_all(&self) -> bool {
        let used = |tables: &Tables| tables.used.load(Ordering::Acquire);
        self.space().is_none() && !self.core().tables().is_some_and(used)
    }

    /// Removes all pairs of the file at once, if it has no table; returns whether it did.
    pub(crate) fn clear_at_once(&self) -> Result<bool> {
        // In a child of the process its lock may be held by a thread that is not there.
        self.core().check_process()?;
        // Held so that nobody makes a table meanwhile, whose record would go.
        let _catalogue = self.core().tables().map(Tables::catalogue);
        if !self.is_all() {
            return Ok(false);
        }
        self.core().write_locked(|table| {
            // A snapshot would have to keep everything at once: then the pairs go one by one.
            if self.core().has_snapshots() { Ok(false) } else { table.clear().map(|()| true) }
        })
    }

    /// Counts the pairs of this table whose values count, by reading the whole file.
    pub(crate) fn counted(&self, counts: impl Fn(&[u8]) -> bool) -> Result<u64> {
        // A scan may show a key twice: two hashes of 64 bits tell.
        let hashes = [RandomState::new(), RandomState::new()];
        let mut seen = std::collections::HashSet::new();
        self.scan(|key, value| {
            if counts(value) {
                seen.insert([hashes[0].hash_one(key), hashes[1].hash_one(key)]);
            }
        })?;
        Ok(seen.len() as u64)
    }

    /// Returns whether this table has no pair.
    pub(crate) fn has_none(&self) -> Result<bool> {
        if let Some(known) = self.known_len() {
            return self.read(|_| Ok(known == 0));
        }
        let stop = |_: &[u8], _: &[u8]| core::ops::ControlFlow::Break(());
        Ok(self.scan_from(Cursor::default(), stop)?.is_none())
    }

    /// Returns which stored pairs a copy of the file needs: not those of dropped tables.
    pub(crate) fn needed(&self) -> impl Fn(&[u8]) -> bool + use<> {
        let catalogue = self.core().tables().map(Tables::catalogue);
        let dropped = catalogue.map(|catalogue| catalogue.dropped()).unwrap_or_default();
        let dropped: std::collections::HashSet<_> = dropped.into_iter().collect();
        move |stored| {
            dropped.is_empty()
                || !prefix::split(stored).is_some_and(|(number, _)| dropped.contains(&number))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use everhash_pmem::Origin;

    use super::*;
    use crate::ErrorKind;
    use crate::maintenance::{Maintenance, Syncs};
    use crate::place::New;

    #[test]
    fn a_snapshot_that_meets_the_drop_of_its_table_is_refused() {
        // Fails if one were given out whose instant lies behind the drop: some of its pairs may be
        // gone by then.
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().background(false);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let table = db.create_table("table").unwrap();
        let space = Arc::clone(table.space().unwrap());
        let still = db.core().shut();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| table.snapshot().map(drop).map_err(|error| error.kind()));
            // Until it has seen that the table is there, and waits for its instant.
            std::thread::sleep(Duration::from_millis(50));
            db.core().tables().unwrap().catalogue().was_dropped(&space);
            drop(still);
            assert_eq!(taken.join().unwrap(), Err(ErrorKind::NoTable));
        });
    }

    #[test]
    fn a_child_waits_for_no_thread_of_its_parent() {
        // Fails if a call waited for the lock of the catalogue, which a thread of the parent held
        // when the process forked: in the child nobody ever lets go of it.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let new = New::begin(&Db::options(), &path, crate::Durability::Process, false).unwrap();
        let tables = Tables::load(&*new.table).unwrap();
        let (parent, maintenance) =
            (Origin::of_process(std::process::id() + 1), Maintenance::new(Syncs::Never));
        let core = Core::new(new.table, Arc::from(&*path), parent, true, false, maintenance);
        let core = core.with(Some(tables), crate::expiring::Wall::System);
        let db = Db::of(core, new.info, &Db::options().background(false)).unwrap();
        let held = db.core().tables().unwrap().catalogue();
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let child = scope.spawn(|| {
                let calls: [fn(&Db) -> Result<()>; 8] = [
                    |db| db.clear(),
                    |db| db.len().map(drop),
                    |db| db.is_empty().map(drop),
                    |db| db.table("table").map(drop),
                    |db| db.create_table("table").map(drop),
                    |db| db.snapshot().map(drop),
                    |db| db.checkpoint("/nowhere/copy").map(drop),
                    |db| db.maintain().map(drop),
                ];
                let kinds = calls.map(|call| call(&db).map_err(|error| error.kind()));
                say.send(()).unwrap();
                kinds
            });
            let answer = said.recv_timeout(Duration::from_secs(20));
            drop(held);
            assert!(answer.is_ok(), "it waits");
            assert_eq!(child.join().unwrap(), [Err(ErrorKind::Forked); 8]);
        });
    }
}
