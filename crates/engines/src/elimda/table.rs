//! The faces of an open table: byte strings for all forms, words for one.

use core::time::Duration;

use everhash_index::{
    BareTable, Change, Checked, Cursor, Error, Form as PairForm, Result, Stats, Table, Upkeep,
    WordTable, admit,
};
use everhash_pmem::{Addr, Lock, Media, Span, pool};

use super::cache_allocation::CacheAllocation;
use super::collectors::Collectors;
use super::form::{Form, Item};
use super::layout::{self, Kind};
use super::ops::sites;
use super::reversed_search::Wanted;
use super::state::{ElimDa, LaneOf};
use crate::common::edit::Edit;
use crate::common::forms::table_of_forms;
use crate::common::room::had_room;
use crate::common::slot_codec::{Bytes, DoubleWords, Words, live_bytes};
use crate::common::slot_table::SlotTable;

/// How far a batch of reads asks for the lines of a bucket in DRAM ahead of the key that it
/// compares; half as far ahead it asks for those of the device that the bucket leads to.
///
/// Unit: keys. Source: ours; a core has about a dozen lines on their way at once, and a bucket has
/// about as many.
const AHEAD: usize = 8;

/// An open table, of the form that its pool has.
pub enum ElimDaTable<M: Media> {
    /// 8-byte keys and values.
    Words(ElimDa<M, Words>),
    /// 16-byte keys and values.
    DoubleWords(ElimDa<M, DoubleWords>),
    /// Byte strings.
    Bytes(ElimDa<M, Bytes>),
}

/// Is told what a read of many keys found: the key's position, its item, and its value if that is
/// a byte string.
type Found<'f> = dyn FnMut(usize, Option<&Item>, &mut Vec<u8>) + 'f;

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Reads many keys as a pipeline: while one is compared, the lines of the next ones are on
    /// their way.
    fn get_pipelined<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<F::Key<'k>>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut waiting = [const { None }; AHEAD];
        let mut value = Vec::new();
        for place in 0..count + AHEAD {
            if let Some(done) = place.checked_sub(AHEAD) {
                let item = match waiting[done % AHEAD].take() {
                    Some((wanted, located)) => self.get_in(&pm, located, wanted, &mut value)?,
                    None => None,
                };
                found(done, item.as_ref(), &mut value);
            }
            if let Some(near) = place.checked_sub(AHEAD / 2)
                && let Some((wanted, located)) = &waiting[near % AHEAD]
            {
                self.prefetch_item(&pm, located, wanted.hash);
            }
            if place < count
                && let Some(key) = key(place)
            {
                let hash = F::hash(&self.hasher, key);
                let located = self.locate(hash);
                located.prefetch();
                waiting[place % AHEAD] = Some((Wanted { hash, key }, located));
            }
        }
        Ok(())
    }
}

impl<M: Media, F: Form> Table for ElimDa<M, F> {
    fn form(&self) -> PairForm {
        F::FORM
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_bytes(key, value, Edit::Insert)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_bytes(key, value, Edit::Put)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_bytes(key, value, Edit::Update)
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.modify_bytes(key, change)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.get_bytes(key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.remove_bytes(key)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.get_bytes(key, &mut Vec::new())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let key = |place: usize| self.key_of(keys[place]);
        self.get_pipelined(keys.len(), key, &mut |place, item, value| {
            if let Some(Ok(pair)) = item.map(|item| F::pair(item, Addr::NULL)) {
                F::found_value(pair, value);
            }
            found(place, item.map(|_| value.as_slice()));
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(ElimDa::len(self))
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        ElimDa::scan(self, cursor, visit)
    }

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        Ok(self.scan_behind(cursor))
    }

    fn clear(&self) -> Result<()> {
        ElimDa::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        ElimDa::maintain(self, now, budget)
    }

    fn check(&self) -> Result<Checked> {
        (self.judge)(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap) = (self.space.usage()?, self.heap.usage()?);
        let (segments, geometry) = (self.segments(), &self.geometry);
        let (mut blocks, mut free_blocks) = (0, 0);
        for lane in &self.lanes {
            let (used, free) = lane.lock()?.blocks();
            blocks += used;
            free_blocks += free;
        }
        let table = self.segment_table.lock()?;
        let collecting_logs = self.appending().map_or(0, |_| geometry.all_logs());
        let offered = || CacheAllocation::of_machine().most_ways();
        let cache_ways = self.appending().map_or(0, |_| offered()).into();
        let items = ElimDa::len(self);
        Ok(Stats {
            items,
            slots: segments * geometry.most_items(),
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            live_bytes: live_bytes(self.form(), items, &heap),
            dead_bytes: None,
            dram_bytes: size_of::<Self>() as u64
                + self.table.dram_bytes(segments)
                + self.collectors.as_ref().map_or(0, Collectors::dram_bytes)
                + heap.dram_bytes,
            growth_steps: table.splits,
            own: vec![
                ("segments", segments),
                ("rebuilds", table.rebuilds),
                ("global_depth", self.table.depth().into()),
                ("dram_slots", segments * geometry.buckets * geometry.dram_slots()),
                ("log_blocks", blocks),
                ("free_log_blocks", free_blocks),
                ("log_slots", blocks * geometry.block_slots()),
                ("collecting_logs", collecting_logs),
                ("cache_ways_on_offer", cache_ways),
                ("access_unit_bytes", geometry.access_words() * 8),
            ],
        })
    }

    fn bare(&self) -> Option<&dyn BareTable> {
        Some(self)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if !self.pool.writable() {
            return Ok(self.pool.close()?);
        }
        // What a write that failed has left may be visible and not durable: such a pool is not
        // closed cleanly, and the next open recovers it.
        let is_poisoned = |lane: &LaneOf<M>| lane.try_lock().is_err();
        if self.table.is_poisoned() || self.lanes.iter().any(is_poisoned) {
            return Err(Error::Poisoned);
        }
        let pm = self.pool.access();
        // Without room the items of collecting logs stay where they are.
        had_room(self.drain(&pm))?;
        // They count only once the header says that the pool is closed.
        pm.store(layout::ITEMS, layout::seal(ElimDa::len(&*self), layout::ITEMS, Kind::Items))?;
        pm.store(layout::UNITS, layout::seal(self.units(), layout::UNITS, Kind::Units))?;
        pm.persist(Span::new(layout::ITEMS, 2), sites::ITEMS)?;
        Ok(self.pool.close()?)
    }
}

impl<M: Media, F: Form> BareTable for ElimDa<M, F> {
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        admit(F::FORM, key, value)?;
        ElimDa::insert_blind(self, F::key(key), F::value(value))
    }

    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Table::update(self, key, value).map(drop)
    }

    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        Table::remove(self, key).map(drop)
    }
}

impl<M: Media> WordTable for ElimDa<M, Words> {
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
        (self.lookup)(self, key)
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.write(key, Edit::Remove)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let count = keys.len().min(values.len());
        self.get_each_word(&keys[..count], &mut values[..count])
    }
}

table_of_forms!(ElimDaTable: Words, DoubleWords, Bytes);
