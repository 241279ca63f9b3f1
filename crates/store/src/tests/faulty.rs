//! A table whose maintenance and syncs do what a test wants, and everything else what it should.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everhash_index::{Change, Checked, Cursor, Error, Form, Result, Stats, Table, Upkeep};
use everhash_pmem::Origin;

use crate::core::Core;
use crate::expiring::Wall;
use crate::maintenance::{Maintenance, Syncs};
use crate::place::New;
use crate::tables::Tables;
use crate::{Db, Durability, Options};

/// What a call does, by its number from 0 on, instead of asking the table.
type Instead<T> = fn(u32) -> Option<Result<T>>;

/// A call that changes what is stored or what is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// With the key as it lies in the file.
    Put(Vec<u8>),
    Remove,
    Sync,
}

/// What a call meets that finds damage.
pub(crate) const DAMAGE: Error = Error::Corrupt { at: 8, broken: "a test is sound" };

/// The end of keys that cannot be removed, and why.
type Stuck = (&'static [u8], fn() -> Error);

/// What goes wrong, and how often it was called.
pub(crate) struct Faults {
    pub(crate) maintain: Instead<Upkeep>,
    pub(crate) sync: Instead<()>,
    /// Whether a check finds damage.
    pub(crate) is_damaged: AtomicBool,
    pub(crate) maintained: AtomicU32,
    pub(crate) synced: AtomicU32,
    pub(crate) events: Mutex<Vec<Event>>,
    /// Written into the table right after the next scan.
    pub(crate) after_scan: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    /// Whether a scan shows each pair twice, as one beside growth may.
    pub(crate) scans_twice: AtomicBool,
    /// What the next puts and removals meet, one after the other, and whether they are done
    /// before; `None`: nothing.
    pub(crate) writes: Mutex<VecDeque<Option<(bool, Error)>>>,
    /// What the next look-up meets.
    pub(crate) get: Mutex<Option<Error>>,
    /// What the next scans meet, one after the other; `None`: nothing.
    pub(crate) scans: Mutex<VecDeque<Option<Error>>>,
    /// What the next scan meets when it has shown its pairs.
    pub(crate) scan_ends: Mutex<Option<fn() -> Error>>,
    /// Run right after the next scan.
    pub(crate) meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) stuck: Mutex<Option<Stuck>>,
    /// How long each change of a pair that reads it waits for its key. Unit: milliseconds.
    pub(crate) waits: AtomicU64,
    /// How often it was tried to remove one.
    pub(crate) tried: AtomicU32,
}

impl Faults {
    pub(crate) fn new(maintain: Instead<Upkeep>, sync: Instead<()>) -> Arc<Faults> {
        let (maintained, synced) = (AtomicU32::new(0), AtomicU32::new(0));
        let (is_damaged, scans_twice) = <(AtomicBool, AtomicBool)>::default();
        let (events, after_scan) = (Mutex::default(), Mutex::default());
        let (scans, stuck, tried) = <(Mutex<_>, Mutex<_>, AtomicU32)>::default();
        Arc::new(Faults {
            maintain,
            sync,
            is_damaged,
            maintained,
            synced,
            events,
            after_scan,
            scans_twice,
            writes: Mutex::default(),
            get: Mutex::default(),
            scans,
            scan_ends: Mutex::default(),
            meanwhile: Mutex::default(),
            stuck,
            waits: AtomicU64::new(0),
            tried,
        })
    }

    /// Refuses to remove some keys.
    fn remove(&self, key: &[u8]) -> Result<()> {
        match *self.stuck.lock().unwrap() {
            Some((end, why)) if key.ends_with(end) => {
                self.tried.fetch_add(1, Ordering::SeqCst);
                Err(why())
            }
            _ => Ok(()),
        }
    }

    /// Lets the next put or removal that is to meet nothing fail, after it was done or before.
    pub(crate) fn fail_write(&self, is_done: bool, error: Error) {
        self.writes.lock().unwrap().push_back(Some((is_done, error)));
    }

    /// Does a put or a removal, or what it is to meet.
    fn write(&self, write: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let meets = self.writes.lock().unwrap().pop_front().flatten();
        match meets {
            Some((true, error)) => write().and(Err(error)),
            Some((false, error)) => Err(error),
            None => write(),
        }
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    pub(crate) fn syncs(&self) -> u32 {
        self.synced.load(Ordering::SeqCst)
    }

    pub(crate) fn maintenances(&self) -> u32 {
        self.maintained.load(Ordering::SeqCst)
    }
}

/// Makes a database on such a table.
pub(crate) fn database(path: &Path, faults: &Arc<Faults>, syncs: Syncs, background: bool) -> Db {
    let options = Options::default().engine("wophi").expected_items(100);
    let new = New::begin(&options, path, Durability::Process, false).unwrap();
    new.file.media().publish().unwrap();
    let table = Box::new(Faulty { table: new.table, faults: Arc::clone(faults) });
    let maintenance = Maintenance::new(syncs);
    let tables = Tables::load(&*table).unwrap();
    let core = Core::new(table, Arc::from(path), Origin::here(), true, false, maintenance);
    let core = core.with(Some(tables), Wall::System);
    Db::of(core, new.info, &Db::options().background(background)).unwrap()
}

/// Makes one that nothing is wrong with until a test says so, and that is never synced by itself.
pub(crate) fn quiet(background: bool) -> (tempfile::TempDir, Arc<Faults>, Db) {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let path = directory.path().join("pairs.ehdb");
    let db = database(&path, &faults, Syncs::Never, background);
    (directory, faults, db)
}

struct Faulty {
    table: Box<dyn Table>,
    faults: Arc<Faults>,
}

impl Table for Faulty {
    fn form(&self) -> Form {
        self.table.form()
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.table.insert(key, value)
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.faults.note(Event::Put(key.to_vec()));
        self.faults.write(|| self.table.put(key, value))
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.table.update(key, value)
    }
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        std::thread::sleep(Duration::from_millis(self.faults.waits.load(Ordering::SeqCst)));
        let mut value = Vec::new();
        // Only where it matters: most changes may be asked once.
        let is_stuck = self.faults.stuck.lock().unwrap().is_some();
        let is_there = is_stuck && self.table.get(key, &mut value)?;
        if is_there && matches!(change(Some(&value)), Change::Remove) {
            self.faults.remove(key)?;
        }
        self.table.modify(key, change)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if let Some(error) = self.faults.get.lock().unwrap().take() {
            return Err(error);
        }
        self.table.get(key, value)
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.faults.note(Event::Remove);
        self.faults.remove(key)?;
        self.faults.write(|| self.table.remove(key))
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.table.contains(key)
    }
    fn len(&self) -> Result<u64> {
        self.table.len()
    }
    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        if let Some(error) = self.faults.scans.lock().unwrap().pop_front().flatten() {
            return Err(error);
        }
        let visits = 1 + u32::from(self.faults.scans_twice.load(Ordering::SeqCst));
        let next = self.table.scan(cursor, &mut |key, value| {
            (0..visits).for_each(|_| visit(key, value));
        });
        if let Some((key, value)) = self.faults.after_scan.lock().unwrap().take() {
            self.table.put(&key, &value)?;
        }
        if let Some(run) = self.faults.meanwhile.lock().unwrap().take() {
            run();
        }
        let end = self.faults.scan_ends.lock().unwrap().take();
        end.map_or(next, |end| Err(end()))
    }
    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        self.table.scan_past(cursor)
    }
    fn clear(&self) -> Result<()> {
        self.table.clear()
    }
    fn sync(&self) -> Result<()> {
        self.faults.note(Event::Sync);
        let number = self.faults.synced.fetch_add(1, Ordering::SeqCst);
        (self.faults.sync)(number).unwrap_or_else(|| self.table.sync())
    }
    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        let number = self.faults.maintained.fetch_add(1, Ordering::SeqCst);
        (self.faults.maintain)(number).unwrap_or_else(|| self.table.maintain(now, budget))
    }
    fn check(&self) -> Result<Checked> {
        if self.faults.is_damaged.load(Ordering::SeqCst) {
            return Err(DAMAGE);
        }
        self.table.check()
    }
    fn stats(&self) -> Result<Stats> {
        self.table.stats()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.table.close()
    }
}
