//! An engine that is right but for one answer: what no figure may be measured of.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::time::Instant;

use everhash_index::{
    Capabilities, Change, Checked, Cursor, Engine, Error, Executor, Form, Result, Setting,
    Settings, Stats, Table, Upkeep, WordTable,
};
use everhash_pmem::pool::ROOT;
use everhash_pmem::{Addr, Boot, Media, Pool, Region, Shutdown, Site};
use everhash_testkit::reference::{NoSettings, Reference, ReferenceTable};

/// A get of a word finds another one.
pub const GET: u64 = 1;
/// Many gets of words find another one.
pub const GET_MANY: u64 = 2;
/// There is a pair more than there is.
pub const LEN: u64 = 3;
/// A get of a word finds something where there is nothing.
pub const ABSENT: u64 = 4;
/// An insert of a word says that it was there.
pub const INSERT: u64 = 5;
/// An update of a word says that it was not.
pub const UPDATE: u64 = 6;
/// A removal of a word does.
pub const REMOVE: u64 = 7;
/// A get of bytes finds other ones.
pub const GET_BYTES: u64 = 8;
/// It finds something where there is nothing.
pub const ABSENT_BYTES: u64 = 9;
/// Many gets of bytes find nothing.
pub const GET_MANY_BYTES: u64 = 10;
/// Many inserts add one pair fewer.
pub const INSERT_MANY: u64 = 11;
/// A close fails.
pub const CLOSE: u64 = 12;
/// A sync does.
pub const SYNC: u64 = 13;
/// There is no table after a loss of power.
pub const POWER: u64 = 14;
/// Upkeep fails.
pub const MAINTAIN: u64 = 15;

/// Where a pool keeps which answer is wrong: behind what the reference has there.
const WRONG: Addr = ROOT.plus(440);

/// The engine. What is wrong is a setting, so that it is compiled once.
pub struct Broken;

/// Which answer is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrong(u64);

impl Settings for Wrong {
    const ALL: &'static [Setting] =
        &[Setting { name: "wrong", default: 0, meaning: "the answer that is wrong" }];

    fn get(&self, name: &str) -> Option<u64> {
        (name == "wrong").then_some(self.0)
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        if name != "wrong" {
            return Err(Self::unknown(name));
        }
        self.0 = value;
        Ok(())
    }
}

/// An open table, the answer of it that is wrong, and whether its upkeep was called.
pub struct BrokenTable<M: Media>(ReferenceTable<M>, u64, AtomicBool);

impl Engine for Broken {
    const NAME: &'static str = Reference::NAME;
    const CAPABILITIES: Capabilities = Reference::CAPABILITIES;
    const SITES: &'static [&'static [Site]] = Reference::SITES;
    type Settings = Wrong;
    type Table<M: Media> = BrokenTable<M>;

    fn tiny(_form: Form) -> Wrong {
        Wrong::default()
    }

    fn sized_for(_form: Form, _items: u64) -> Wrong {
        Wrong::default()
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &Wrong) -> Result<()> {
        pool.access().store(WRONG, settings.0)?;
        Reference::format(pool, &NoSettings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<BrokenTable<M>> {
        let wrong = pool.access().load(WRONG)?;
        if wrong == POWER && pool.previous_shutdown() == Shutdown::Power {
            return Err(Error::Poisoned);
        }
        Ok(BrokenTable(Reference::open(pool, executor)?, wrong, AtomicBool::new(false)))
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        Reference::check(region, boot, visit)
    }
}

impl<M: Media> Table for BrokenTable<M> {
    fn form(&self) -> Form {
        self.0.form()
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.insert(key, value)
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.put(key, value)
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.update(key, value)
    }
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.0.modify(key, change)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.get(key, value)?;
        if found && self.1 == GET_BYTES {
            value[0] ^= 1;
        }
        Ok(found || self.1 == ABSENT_BYTES)
    }
    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let is_lost = self.1 == GET_MANY_BYTES;
        self.0.get_many(keys, &mut |position, value| found(position, value.filter(|_| !is_lost)))
    }
    fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        self.0.insert_many(pairs).map(|added| added - u64::from(self.1 == INSERT_MANY))
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.0.remove(key)
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.0.contains(key)
    }
    fn len(&self) -> Result<u64> {
        self.0.len().map(|count| count + u64::from(self.1 == LEN))
    }
    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        self.0.scan(cursor, visit)
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
    fn sync(&self) -> Result<()> {
        if self.1 == SYNC { Err(Error::Poisoned) } else { self.0.sync() }
    }
    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        self.2.store(true, Ordering::Relaxed);
        if self.1 == MAINTAIN { Err(Error::Poisoned) } else { self.0.maintain(now, budget) }
    }
    fn check(&self) -> Result<Checked> {
        self.0.check()
    }
    fn stats(&self) -> Result<Stats> {
        self.0.stats()
    }
    fn close(self: Box<Self>) -> Result<()> {
        if self.1 == CLOSE { Err(Error::Poisoned) } else { Box::new(self.0).close() }
    }
    fn words(&self) -> Option<&dyn WordTable> {
        self.0.words().map(|_| self as &dyn WordTable)
    }
}

impl<M: Media> WordTable for BrokenTable<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        // Upkeep has a thread of its own, which may begin late.
        let begun = Instant::now();
        while self.1 == MAINTAIN && !self.2.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody looks after the table");
            std::thread::sleep(Duration::from_millis(1));
        }
        WordTable::insert_word(&self.0, key, value).map(|absent| absent && self.1 != INSERT)
    }
    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::put_word(&self.0, key, value)
    }
    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::update_word(&self.0, key, value).map(|there| there && self.1 != UPDATE)
    }
    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        let found = WordTable::get_word(&self.0, key)?;
        let found = found.map(|value| value + u64::from(self.1 == GET));
        Ok(found.or((self.1 == ABSENT).then_some(7)))
    }
    fn remove_word(&self, key: u64) -> Result<bool> {
        WordTable::remove_word(&self.0, key).map(|there| there && self.1 != REMOVE)
    }
    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        WordTable::get_words(&self.0, keys, values)?;
        if let (Some(Some(first)), true) = (values.first_mut(), self.1 == GET_MANY) {
            *first += 1;
        }
        Ok(())
    }
}
