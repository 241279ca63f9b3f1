//! The faces of an open table: byte strings for all forms, words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    AtomicTable, Change, Checked, Cursor, Durability, Form, Result, Stats, Table, Upkeep,
    WordTable, admit, admit_key,
};
use everhash_pmem::{AtomicWord, Lock, Media, WORD, pool};

use super::check;
use super::setup::BUCKET_SLOTS;
use super::state::Reef;
use crate::common::edit::{Edit, has_form};

impl<M: Media> Table for Reef<M> {
    fn form(&self) -> Form {
        self.form
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(self.hash(key), key, Edit::Insert(value))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(self.hash(key), key, Edit::Put(value))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(self.hash(key), key, Edit::Update(value))
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        admit_key(self.form, key)?;
        self.modify_hashed(self.form, self.hash(key), key, change)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if !has_form(self.form, key) {
            value.clear();
            return Ok(false);
        }
        let found = self.get_hashed(self.hash(key), key, value)?;
        if !found {
            value.clear();
        }
        Ok(found)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        match has_form(self.form, key) {
            true => self.write(self.hash(key), key, Edit::Remove),
            false => Ok(false),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Table::get(self, key, &mut Vec::new())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.get_each(keys, found)
    }

    fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        self.write_each(pairs, Edit::Insert, true)
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        self.write_each(pairs, Edit::Put, false)
    }

    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.remove_each(keys)
    }

    fn len(&self) -> Result<u64> {
        self.count_pairs()
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        self.scan_from(cursor, visit)
    }

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        self.scan_behind(cursor)
    }

    fn clear(&self) -> Result<()> {
        self.clear_all()
    }

    fn sync(&self) -> Result<()> {
        self.sync_all()
    }

    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        self.upkeep(now, budget)
    }

    fn check(&self) -> Result<Checked> {
        check::check_open(self.pool.region())
    }

    fn durability(&self) -> Durability {
        [Durability::Batch, Durability::Immediate][usize::from(self.is_immediate)]
    }

    fn stats(&self) -> Result<Stats> {
        let space = self.space.usage()?;
        let mut stats = Stats {
            items: self.len()?,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            dram_bytes: self.units.dram_bytes(),
            growth_steps: space.growth_steps,
            ..Stats::default()
        };
        stats.dram_bytes += self.arena.dram_bytes()? + size_of_val(self.shards.all()) as u64;
        for shard in self.shards.all() {
            stats.slots += BUCKET_SLOTS * shard.buckets(&*shard.latch.lock()?);
        }
        let (mut segments, mut filled, mut dead) = (0, 0, 0);
        for stream in &self.streams {
            let stream = stream.0.lock()?;
            segments += stream.sealed.len() as u64 + u64::from(stream.open.is_some());
            let sealed = stream.sealed.values().filter(|segment| !segment.is_empty);
            let open = stream.open.iter().map(|open| (open.span, open.fill, open.tombstones));
            for (span, fill, tombstones) in
                sealed.map(|it| (it.span, it.fill, it.tombstones)).chain(open)
            {
                filled += fill;
                dead += self.units.garbage(span.start).saturating_add(tombstones).min(fill);
            }
        }
        (stats.live_bytes, stats.dead_bytes) = ((filled - dead) * WORD, Some(dead * WORD));
        stats.own = vec![
            ("segments", segments),
            ("segment_bytes", self.segment_bytes()),
            ("collected", self.collections.load(Ordering::Relaxed)),
            ("epoch", self.epochs.lock()?.number),
            ("hole_bytes", space.hole_bytes),
        ];
        Ok(stats)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() {
            self.settle()?;
        }
        Ok(self.pool.close()?)
    }

    fn atomic(&self) -> Option<&dyn AtomicTable> {
        Some(self)
    }

    fn words(&self) -> Option<&dyn WordTable> {
        (self.form == Form::WORDS).then_some(self)
    }
}

impl<M: Media> WordTable for Reef<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        let (hash, key) = (self.hasher.word(key), key.to_le_bytes());
        self.write(hash, &key, Edit::Insert(&value.to_le_bytes()))
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        let (hash, key) = (self.hasher.word(key), key.to_le_bytes());
        self.write(hash, &key, Edit::Put(&value.to_le_bytes()))
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        let (hash, key) = (self.hasher.word(key), key.to_le_bytes());
        self.write(hash, &key, Edit::Update(&value.to_le_bytes()))
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        (self.lookup)(self, key)
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.write(self.hasher.word(key), &key.to_le_bytes(), Edit::Remove)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        self.get_each_word(keys, values)
    }
}
