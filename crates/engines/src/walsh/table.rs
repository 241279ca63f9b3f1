//! The faces of an open table: byte strings for all forms, words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::borrow::Cow;

use everhash_index::{
    BareTable, Change, Checked, Cursor, Durability, Error, Form, Result, Stats, Table, Upkeep,
    WordTable, admit, admit_key,
};
use everhash_pmem::{Access, Addr, AtomicWord, Media, WORD, pool};

use super::batches::{BytesBatch, WordBatch};
use super::check;
use super::ops::Step;
use super::state::{OpenLog, Walsh};
use crate::common::edit::{Edit, has_form, modify_calmly};

impl<M: Media> Walsh<M> {
    /// Returns whether a key has the form of the pool.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        has_form(self.form, key)
    }

    /// Returns the hashes of the keys of a chain from an object on.
    fn hashes_from(&self, pm: &Access<'_, M>, at: Addr) -> Result<Vec<u64>> {
        let mut hashes = Vec::new();
        self.walk(pm, at, &mut |key, _, _| hashes.push(self.hasher.bytes(key)))?;
        Ok(hashes)
    }

    /// Demands of every directory that it leads to every key of its chain.
    fn check_directories(&self) -> Result<()> {
        let pm = self.pool.access();
        for area in &self.areas {
            let state = self.lock(area)?;
            let sides = [
                (state.view.side(), Some(state.view.level())),
                (1 - state.view.side(), state.view.old()),
            ];
            for (side, level) in sides {
                for number in 0..level.map_or(0, |level| 1u64 << level) {
                    let directory = self.blocks.read(&area.sides[side], number);
                    let hashes = self.hashes_from(&pm, directory.head())?;
                    let behind = self.hashes_from(&pm, directory.behind())?;
                    let starts = |hash: &u64| !directory.start(*hash).is_null();
                    let begins = hashes.first().is_none_or(|newest| {
                        directory.start(*newest) == directory.head()
                            && behind.ends_with(&hashes[1..])
                    });
                    if !begins || !hashes.iter().all(starts) {
                        let broken = "a directory leads to every key of its chain";
                        return Err(Error::Corrupt { at: directory.head().byte(), broken });
                    }
                }
            }
        }
        Ok(())
    }
}

impl<M: Media> Table for Walsh<M> {
    fn form(&self) -> Form {
        self.form
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.edit_bytes((self.hash(key), key), Edit::Insert(value))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.edit_bytes((self.hash(key), key), Edit::Put(value))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.edit_bytes((self.hash(key), key), Edit::Update(value))
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        admit_key(self.form, key)?;
        modify_calmly(self.form, key, change, |change| {
            self.edit((self.hash(key), key), |present| {
                Ok(match change(present)? {
                    Change::Keep => Step::Keep,
                    Change::Put(value) => Step::Put(Cow::Owned(value)),
                    Change::Remove => Step::Remove,
                })
            })
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if !self.may_hold(key) {
            value.clear();
            return Ok(false);
        }
        self.get_hashed(&self.pool.access(), self.hash(key), key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        match self.may_hold(key) {
            true => self.edit_bytes((self.hash(key), key), Edit::Remove),
            false => Ok(false),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Table::get(self, key, &mut Vec::new())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let pm = self.pool.access();
        // Keys of another form than the pool's are nowhere.
        let strange = keys.iter().enumerate().filter(|(_, key)| !self.may_hold(key));
        strange.for_each(|(place, _)| found(place, None));
        let places: Vec<usize> = (0..keys.len()).filter(|n| self.may_hold(keys[*n])).collect();
        let keys: Vec<&[u8]> = places.iter().map(|place| keys[*place]).collect();
        let found = |place: usize, value: Option<&[u8]>| found(places[place], value);
        let mut batch = BytesBatch { table: self, pm: &pm, keys: &keys, value: Vec::new(), found };
        self.search_together(&pm, keys.len(), &mut batch)
    }

    fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        let insert = |table: &Self, key, value| table.edit_word(key, Edit::Insert(value));
        self.write_each(pairs, insert, |table, key, value| {
            table.edit_bytes(key, Edit::Insert(value))
        })
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        let put = |table: &Self, key: (u64, &[u8]), value: &[u8]| {
            Ok(!table.edit_bytes(key, Edit::Put(value))?)
        };
        let put_pair = |table: &Self, key, value| Ok(!table.edit_word(key, Edit::Put(value))?);
        self.write_each(pairs, put_pair, put)
    }

    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.remove_each(keys)
    }

    fn len(&self) -> Result<u64> {
        self.areas.iter().map(|area| Ok(self.lock(area)?.items)).sum()
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Walsh::scan(self, cursor, visit)
    }

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        self.scan_behind(cursor)
    }

    fn clear(&self) -> Result<()> {
        Walsh::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Walsh::sync(self)
    }

    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        Walsh::maintain(self, now, budget)
    }

    fn check(&self) -> Result<Checked> {
        self.check_directories()?;
        check::check_open(self.pool.region())
    }

    fn durability(&self) -> Durability {
        [Durability::Batch, Durability::Immediate][usize::from(self.settings.durability == 1)]
    }

    fn durability_partition(&self, key: &[u8]) -> u64 {
        match self.is_grouped {
            // One epoch for all areas.
            true => 0,
            false => self.area(self.hasher.bytes(key)).number,
        }
    }

    fn stats(&self) -> Result<Stats> {
        let space = self.space.usage()?;
        let mut stats = Stats {
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            dram_bytes: size_of::<Self>() as u64 + self.blocks.dram_bytes()?,
            growth_steps: self.rehashes.load(Ordering::Relaxed),
            ..Stats::default()
        };
        let (mut directories, mut stored, mut logs, mut loaded) = (0, 0, 0, 0);
        let mut object_bytes = 0;
        for area in &self.areas {
            let state = self.lock(area)?;
            stats.items += state.items;
            stats.dram_bytes += size_of_val(area) as u64 + state.logs.dram_bytes();
            directories += 1u64 << state.view.level();
            stored += state.stored;
            let extent = state.extent();
            stats.live_bytes += extent.live_bytes;
            let unused = |log: &OpenLog| log.span.bytes().saturating_sub(log.fill * WORD);
            object_bytes += extent.log_bytes;
            object_bytes -= state.open.as_ref().map_or(0, unused);
            loaded += u64::from(state.saved.is_some());
            logs += state.logs.len() as u64 + u64::from(state.open.is_some());
        }
        stats.dead_bytes = Some(object_bytes.saturating_sub(stats.live_bytes));
        stats.slots = directories * self.settings.threshold;
        stats.own = vec![
            ("directories", directories),
            ("objects", stored),
            ("logs", logs),
            ("log_bytes", self.ordinary.bytes),
            ("rehashes", self.rehashes.load(Ordering::Relaxed)),
            ("areas_loaded", loaded),
            ("reserve_bytes", self.reserve_bytes()?),
        ];
        Ok(stats)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() {
            Walsh::sync(&self)?;
            self.move_tails()?;
            self.save()?;
            // Stores that a recovery would have done again are not: a clean opening does none.
            self.pool.access().sync(super::logs::sites::SYNC)?;
        }
        Ok(self.pool.close()?)
    }

    fn words(&self) -> Option<&dyn WordTable> {
        (self.form == Form::WORDS).then_some(self)
    }

    fn bare(&self) -> Option<&dyn BareTable> {
        Some(self)
    }
}

impl<M: Media> WordTable for Walsh<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        self.edit_word((self.hasher.word(key), key), Edit::Insert(value))
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        self.edit_word((self.hasher.word(key), key), Edit::Put(value))
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        self.edit_word((self.hasher.word(key), key), Edit::Update(value))
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        (self.lookup)(self, key)
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.edit_word((self.hasher.word(key), key), Edit::Remove)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let pm = self.pool.access();
        let mut batch = WordBatch { table: self, pm: &pm, keys, values, value: 0 };
        self.search_together(&pm, keys.len(), &mut batch)
    }
}
