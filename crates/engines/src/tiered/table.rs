//! The faces of an open table: byte strings for all forms, and words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Checked, Cursor, Error, Result, Stats, Table, Upkeep, WordTable};
use everhash_pmem::{AtomicWord, Lock, Media, pool};

use super::bucket::{PairCodec, Words as Pair};
use super::check;
use super::ops::sites;
use super::state::{ShortLookup, Tiered, WordLookup};
use crate::common::forms::table_of_forms;
use crate::common::hash::{KeyedHash, WordHash, with_hash};
use crate::common::slot_codec::{Bytes, HashedKey, Words, live_bytes};
use crate::common::slot_table::{SlotTable, methods_of_slot_table, writes_of_word_table};

/// An open table, of the form that its pool has.
pub enum TieredTable<M: Media> {
    /// 8-byte keys and values.
    Words(Tiered<M, Words>),
    /// Byte strings, of one length or of many.
    Bytes(Tiered<M, Bytes>),
}

impl<M: Media, C: PairCodec> Table for Tiered<M, C> {
    methods_of_slot_table!();

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let key = |position: usize| self.key_of(keys[position]);
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

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        Ok(self.scan_behind(cursor))
    }

    fn clear(&self) -> Result<()> {
        Tiered::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        Tiered::maintain(self, now, budget, |pm| self.drain_next(pm))
    }

    fn check(&self) -> Result<Checked> {
        check::check(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap) = (self.space.usage()?, self.heap.usage()?);
        let view = self.layers.view();
        let [top_writes, lower_writes] = self.groups.writes();
        let items = Tiered::len(self);
        Ok(Stats {
            items,
            slots: self.slots(&view),
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            live_bytes: live_bytes(self.form(), items, &heap),
            dead_bytes: Some(0),
            dram_bytes: size_of::<Self>() as u64
                + self.groups.dram_bytes()
                + self.fingerprints.dram_bytes()
                + heap.dram_bytes,
            growth_steps: self.growth.lock()?.steps,
            own: vec![
                ("layers", view.count() as u64),
                ("buckets", view.buckets()),
                ("groups", 1 << self.layers.live().groups_log()),
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

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash, short: ShortLookup) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H, short: ShortLookup) -> WordLookup<M> {
        match short {
            ShortLookup::InLines => Tiered::get_word_by::<H, false>,
            ShortLookup::InDram => Tiered::get_word_by::<H, true>,
            ShortLookup::None => Tiered::get_word_anywhere,
        }
    }
    with_hash!(hasher, hash => by(hash, short))
}

impl<M: Media> Tiered<M, Words> {
    /// The rest is left to another function, with what this was called with: so the common case
    /// keeps little.
    fn get_word_by<H: WordHash, const IN_DRAM: bool>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H, IN_DRAM>(key) {
            Some(found) => Ok(found.map(|pair| pair[1])),
            None => self.get_word_anywhere(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash, const IN_DRAM: bool>(&self, key: u64) -> Option<Option<Pair>> {
        let hash = H::of(&self.hasher)?.word(key);
        self.try_get::<IN_DRAM>(&self.pool.access(), HashedKey { hash, key }, false)
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    fn get_word_anywhere(&self, key: u64) -> Result<Option<u64>> {
        let pm = self.pool.access();
        Ok(self.get_hashed(&pm, self.hashed(key), &mut Vec::new())?.map(|pair| pair[1]))
    }
}

impl<M: Media> WordTable for Tiered<M, Words> {
    writes_of_word_table!();

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        (self.lookup)(self, key)
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
