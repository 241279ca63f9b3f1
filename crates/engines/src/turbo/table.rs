//! The faces of an open table: byte strings for all forms, and words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    Change, Checked, Cursor, Error, Form, Result, Stats, Table, Upkeep, WordTable, admit, admit_key,
};
use everhash_pmem::{AtomicWord, Lock, Media, Span, pool};

use super::bucket::Pair;
use super::check;
use super::layout::{self, ROOT, Root};
use super::shard::Shard;
use super::state::Turbo;
use super::variable_size_items::PairCodec;
use crate::common::edit::{Edit, has_form, modify_calmly};
use crate::common::forms::table_of_forms;
use crate::common::slot_codec::{Bytes, Words};

/// Where the faces persist something.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything, on media whose fences wait for nothing.
        SYNC = "turbo/sync/all";
        /// The number of items, before the header says that the pool is closed.
        ITEMS = "turbo/close/items";
    }
}

/// An open table, of the form that its pool has.
pub enum TurboTable<M: Media> {
    /// 8-byte keys and values.
    Words(Turbo<M, Words>),
    /// Byte strings, of one length or of many.
    Bytes(Turbo<M, Bytes>),
}

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Admits a pair, and does with it what `edit` makes of its value.
    fn admit_and_write<'v>(
        &self,
        key: &[u8],
        value: &'v [u8],
        edit: fn(C::Value<'v>) -> Edit<C::Value<'v>>,
    ) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(C::key(key), edit(C::value(value)))
    }
}

impl<M: Media, C: PairCodec> Table for Turbo<M, C> {
    fn form(&self) -> Form {
        self.form
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit_and_write(key, value, Edit::Insert)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit_and_write(key, value, Edit::Put)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit_and_write(key, value, Edit::Update)
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        admit_key(self.form, key)?;
        modify_calmly(self.form, key, change, |change| Turbo::modify(self, C::key(key), change))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found =
            if has_form(self.form, key) { Turbo::get(self, C::key(key), value)? } else { None };
        match found {
            Some(pair) => C::found_value(pair, value),
            // A record of another key with the same hash may have been read.
            None => value.clear(),
        }
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        if has_form(self.form, key) { self.write(C::key(key), Edit::Remove) } else { Ok(false) }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Table::get(self, key, &mut Vec::new())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let key = |position: usize| {
            let key = keys[position];
            has_form(self.form, key).then(|| C::key(key))
        };
        self.get_all(keys.len(), key, &mut Vec::new(), |position, pair, value| {
            if let Some(pair) = pair {
                C::found_value(pair, value);
            }
            found(position, pair.map(|_| value.as_slice()));
        })
    }

    fn len(&self) -> Result<u64> {
        Turbo::len(self)
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Turbo::scan(self, cursor, visit)
    }

    fn clear(&self) -> Result<()> {
        Turbo::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, _now: Duration, budget: u32) -> Result<Upkeep> {
        Turbo::maintain(self, budget)
    }

    fn check(&self) -> Result<Checked> {
        check::check(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap) = (self.space.usage()?, self.heap.usage()?);
        let buckets = self.buckets();
        let doublings = self.doublings.load(Ordering::Relaxed);
        Ok(Stats {
            items: Turbo::len(self)?,
            slots: buckets * self.settings.bucket_slots,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            dram_bytes: size_of::<Self>() as u64
                + self.directory.dram_bytes()
                + self.lanes.dram_bytes()
                + heap.dram_bytes,
            growth_steps: doublings,
            own: vec![
                ("shards", self.settings.shards),
                ("buckets", buckets),
                ("doublings", doublings),
                ("collections", self.collections.load(Ordering::Relaxed)),
                ("shards_to_collect", self.due.lock()?.len() as u64),
            ],
        })
    }

    /// Also stores the number of items, which the next open believes if nothing came between.
    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() {
            // What a write that failed has left may be visible and not durable: such a pool is not
            // closed cleanly, and the next open recovers it.
            if self.directory.shards().iter().any(Shard::is_poisoned) {
                return Err(Error::Poisoned);
            }
            let items = Turbo::len(&*self)?;
            let at = ROOT.plus(Root::ITEMS as u64);
            let pm = self.pool.access();
            pm.write_words(at, &[items, layout::items_check(items)])?;
            pm.persist(Span::new(at, 2), sites::ITEMS)?;
        }
        Ok(self.pool.close()?)
    }
}

impl<M: Media> WordTable for Turbo<M, Words> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Edit::Insert(value))
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Edit::Put(value))
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Edit::Update(value))
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        let wanted = self.hashed(key);
        let found = match self.try_fast_get(wanted, false) {
            Some(found) => found,
            None => self.get_along_path(wanted, &mut Vec::new())?,
        };
        Ok(found.map(|pair| pair[1]))
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.write(key, Edit::Remove)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let count = keys.len().min(values.len());
        let mut put = |position: usize, pair: Option<Pair>, _: &mut Vec<u8>| {
            values[position] = pair.map(|pair| pair[1]);
        };
        self.get_all(count, |position| Some(keys[position]), &mut Vec::new(), &mut put)
    }
}

table_of_forms!(TurboTable: Words, Bytes);
