//! The face of an open table: byte strings for all forms, and words for one.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Checked, Cursor, Error, Result, Stats, Table, Upkeep, WordTable};
use everhash_pmem::{AtomicWord, Lock, Media, Span, pool};

use super::bucket::Pair;
use super::check;
use super::layout::{self, ROOT, Root};
use super::search_path::Hints;
use super::shard::Shard;
use super::state::{Turbo, WordLookup};
use super::variable_size_items::PairCodec;
use crate::common::forms::table_of_forms;
use crate::common::hash::{KeyedHash, WordHash, with_hash};
use crate::common::slot_codec::{Bytes, HashedKey, Words, live_bytes};
use crate::common::slot_table::{SlotTable, methods_of_slot_table, writes_of_word_table};

/// Where the face persists something.
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

impl<M: Media, C: PairCodec> Table for Turbo<M, C> {
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
        Turbo::len(self)
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Turbo::scan(self, cursor, visit)
    }

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        self.scan_behind(cursor)
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
        // Figures are for people who look at a table, damaged or not: the rest is right.
        let (items, _) = self.readable_items()?;
        Ok(Stats {
            items,
            slots: buckets * self.settings.bucket_slots,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            live_bytes: live_bytes(self.form(), items, &heap),
            dead_bytes: Some(0),
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

    /// Also stores the number of items, which the next open uses if no crash came between. Where
    /// damage prevents the count it is left to the next one: all is durable, and so the pool is
    /// closed cleanly.
    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() {
            // What a failed write left may be visible and not durable: such a pool is not closed
            // cleanly, and the next open recovers it.
            if self.directory.shards().iter().any(Shard::is_poisoned) {
                return Err(Error::Poisoned);
            }
            let words = match self.readable_items()? {
                (items, None) => [items, layout::items_check(items)],
                (_, Some(_)) => layout::NOT_COUNTED,
            };
            let at = ROOT.plus(Root::ITEMS as u64);
            let pm = self.pool.access();
            pm.write_words(at, &words)?;
            pm.persist(Span::new(at, 2), sites::ITEMS)?;
        }
        Ok(self.pool.close()?)
    }
}

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        Turbo::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

impl<M: Media> Turbo<M, Words> {
    /// The rest is left to another function, with what this was called with: so the common case
    /// keeps little.
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H>(key) {
            Some(found) => Ok(found.map(|pair| pair[1])),
            None => self.get_word_along_path(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash>(&self, key: u64) -> Option<Option<Pair>> {
        let hash = H::of(&self.hasher)?;
        let hints = Hints { is_fetched: false, at_once: hash.at_once() };
        self.try_fast_get(HashedKey { hash: hash.word(key), key }, hints)
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    fn get_word_along_path(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.get_along_path(self.hashed(key), &mut Vec::new())?.map(|pair| pair[1]))
    }
}

impl<M: Media> WordTable for Turbo<M, Words> {
    writes_of_word_table!();

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        (self.lookup)(self, key)
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
