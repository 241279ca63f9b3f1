//! The faces of an open table: byte strings for all forms, and words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    Change, Checked, Cursor, Error, Form, Result, Stats, Table, Upkeep, WordTable, admit, admit_key,
};
use everhash_pmem::{AtomicWord, Lock, Media, pool};

use super::bucket::{HashedKey, PairCodec};
use super::ops::sites;
use super::state::Tiered;
use crate::common::edit::{Edit, has_form, modify_calmly};
use crate::common::forms::table_of_forms;
use crate::common::slot_codec::{Bytes, Words};

/// How far a batch of reads fetches lines ahead of the key that it looks up.
///
/// Unit: keys. Source: ours; each fetches up to eight lines, and a core has about a dozen on their
/// way at once, of which many are neighbours.
const AHEAD: usize = 4;

/// An open table, of the form that its pool has.
pub enum TieredTable<M: Media> {
    /// 8-byte keys and values.
    Words(Tiered<M, Words>),
    /// Byte strings, of one length or of many.
    Bytes(Tiered<M, Bytes>),
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
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

    /// Looks for `count` keys, and says of each what was found; a record's value is left in
    /// `bytes`. A key that has no form of the pool's is `None`, and not there.
    ///
    /// While one key is looked up, the lines of the next ones are on their way.
    fn get_all<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<C::Key<'k>>,
        bytes: &mut Vec<u8>,
        mut found: impl FnMut(usize, Option<C::Pair>, &mut Vec<u8>),
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut hashes = [0; AHEAD];
        for step in 0..count + AHEAD {
            if let Some(position) = step.checked_sub(AHEAD) {
                let hash = hashes[step % AHEAD];
                let pair = match key(position) {
                    Some(key) => self.get_hashed(&pm, HashedKey { hash, key }, bytes)?,
                    None => None,
                };
                found(position, pair, bytes);
            }
            if step < count
                && let Some(key) = key(step)
            {
                let hash = self.hashed(key).hash;
                self.prefetch(&pm, hash);
                hashes[step % AHEAD] = hash;
            }
        }
        Ok(())
    }
}

impl<M: Media, C: PairCodec> Table for Tiered<M, C> {
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
        modify_calmly(self.form, key, change, |change| Tiered::modify(self, C::key(key), change))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found =
            if has_form(self.form, key) { Tiered::get(self, C::key(key), value)? } else { None };
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
        Ok(Tiered::len(self))
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Tiered::scan(self, cursor, visit)
    }

    fn clear(&self) -> Result<()> {
        Tiered::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, _now: Duration, budget: u32) -> Result<Upkeep> {
        Tiered::maintain(self, budget, |pm| self.drain_next(pm))
    }

    fn check(&self) -> Result<Checked> {
        (self.judge)(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap) = (self.space.usage()?, self.heap.usage()?);
        let view = self.layers.view();
        let [top_writes, lower_writes] = self.groups.writes();
        Ok(Stats {
            items: Tiered::len(self),
            slots: self.slots(&view),
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            dram_bytes: size_of::<Self>() as u64 + self.groups.dram_bytes() + heap.dram_bytes,
            growth_steps: self.growth.lock()?.steps,
            own: vec![
                ("layers", view.count() as u64),
                ("buckets", view.buckets()),
                ("groups", self.groups.count()),
                ("moved", self.moved.load(Ordering::Relaxed)),
                ("overflowed", self.overflowed.load(Ordering::Relaxed)),
                ("top_writes", top_writes),
                ("lower_writes", lower_writes),
            ],
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // What a write that failed has left may be visible and not durable: such a pool is not
        // closed cleanly, and the next open recovers it.
        if self.pool.writable() && self.groups.is_poisoned() {
            return Err(Error::Poisoned);
        }
        Ok(self.pool.close()?)
    }
}

impl<M: Media> WordTable for Tiered<M, Words> {
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
        Ok(Tiered::get(self, key, &mut Vec::new())?.map(|pair| pair[1]))
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.write(key, Edit::Remove)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let count = keys.len().min(values.len());
        self.get_all(
            count,
            |position| Some(keys[position]),
            &mut Vec::new(),
            |position, pair, _| {
                values[position] = pair.map(|pair| pair[1]);
            },
        )
    }
}

table_of_forms!(TieredTable: Words, Bytes);
