//! The face of an open table: byte strings for all forms, words for one, the paper's bare forms.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    BareTable, Checked, Cursor, Error, Result, Stats, Table, Upkeep, WordTable, admit,
};
use everhash_pmem::{AtomicWord, Block, LINE, Lock, Media, pool};

use super::bucket::{BucketCodec, find_value, key_words};
use super::check;
use super::state::{Wophi, WordLookup};
use crate::common::forms::table_of_forms;
use crate::common::hash::{KeyedHash, WordHash, with_hash};
use crate::common::slot_codec::{Bytes, DoubleWords, Words, live_bytes};
use crate::common::slot_table::{SlotTable, methods_of_slot_table, writes_of_word_table};

/// Where the face persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything, on media whose fences wait for nothing.
        SYNC = "wophi/sync/all";
    }
}

/// Keys that are looked up together: their lines are prefetched before the first is compared.
///
/// Unit: keys. Source: ours; a core of today fetches twelve lines at once.
const BATCH: usize = 16;

/// An open table, of the form that its pool has.
pub enum WophiTable<M: Media> {
    /// 8-byte keys and values.
    Words(Wophi<M, Words>),
    /// 16-byte keys and values.
    DoubleWords(Wophi<M, DoubleWords>),
    /// Byte strings.
    Bytes(Wophi<M, Bytes>),
}

impl<M: Media, C: BucketCodec> Table for Wophi<M, C> {
    methods_of_slot_table!();

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let pm = self.pool.access();
        let mut value = Vec::new();
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let keys: Vec<_> = keys.iter().map(|key| self.key_of(key)).collect();
            let hashes: Vec<_> =
                keys.iter().map(|key| key.map(|key| C::hash(&self.hasher, key))).collect();
            hashes.iter().flatten().for_each(|hash| self.prefetch(&pm, *hash));
            for (place, (key, hash)) in keys.into_iter().zip(hashes).enumerate() {
                let pair = match (key, hash) {
                    (Some(key), Some(hash)) => self.get_hashed(&pm, hash, key, &mut value)?,
                    _ => None,
                };
                if let Some(pair) = pair {
                    C::found_value(pair, &mut value);
                }
                found(batch * BATCH + place, pair.map(|_| value.as_slice()));
            }
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(Wophi::len(self))
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Wophi::scan(self, cursor, visit)
    }

    fn scan_past(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        Ok(self.scan_behind(cursor))
    }

    fn clear(&self) -> Result<()> {
        Wophi::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        Wophi::maintain(self, now, budget)
    }

    fn check(&self) -> Result<Checked> {
        check::check(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap, pab) = (self.space.usage()?, self.heap.usage()?, self.pab.usage()?);
        let view = self.main.view();
        let buckets = self.main.count(view.level);
        let steps = self.growth.lock()?.steps;
        let items = Wophi::len(self);
        Ok(Stats {
            items,
            slots: buckets * C::SLOTS as u64,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
            live_bytes: live_bytes(self.form(), items, &heap),
            dead_bytes: Some(0),
            dram_bytes: size_of::<Self>() as u64
                + self.stripes.dram_bytes()
                + pab.dram_bytes
                + heap.dram_bytes,
            growth_steps: steps,
            own: vec![
                ("main_buckets", buckets),
                ("growing", view.growing.into()),
                ("pab_buckets", pab.arrays),
                ("pab_free", pab.free),
                ("chained_buckets", pab.used),
                ("chained_permille", pab.used * 1000 / buckets),
                ("longest_chain", self.longest_chain.load(Ordering::Relaxed)),
                ("direct_allocations", pab.direct),
                ("bucket_bytes", C::LINES * LINE),
            ],
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() && self.stripes.is_poisoned() {
            // Recovery repairs what a failed change left: such a pool is not closed cleanly.
            return Err(Error::Poisoned);
        }
        Ok(self.pool.close()?)
    }

    fn bare(&self) -> Option<&dyn BareTable> {
        Some(self)
    }
}

impl<M: Media, C: BucketCodec> BareTable for Wophi<M, C> {
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        admit(self.form, key, value)?;
        Wophi::insert_blind(self, C::key(key), C::value(value))
    }

    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Table::update(self, key, value).map(drop)
    }

    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        Table::remove(self, key).map(drop)
    }
}

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        Wophi::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

impl<M: Media> Wophi<M, Words> {
    /// The rest is left to another function, with what this was called with: so the common case
    /// keeps little.
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H>(key) {
            Some(found) => Ok(found),
            None => self.get_word_along_chain(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash>(&self, key: u64) -> Option<Option<u64>> {
        let hash = H::of(&self.hasher)?;
        self.try_fast_get(&self.pool.access(), hash.word(key), |bucket| {
            let equal = match hash.at_once() {
                Some(proof) => bucket.head().equal_words_at_once(proof, key),
                None => key_words(bucket.head(), key),
            };
            Some(find_value(bucket, equal))
        })
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    fn get_word_along_chain(&self, key: u64) -> Result<Option<u64>> {
        let (pm, hash) = (self.pool.access(), self.hasher.word(key));
        Ok(self.get_along_chain(&pm, hash, key, &mut Vec::new())?.map(|pair| pair[1]))
    }
}

impl<M: Media> WordTable for Wophi<M, Words> {
    writes_of_word_table!();

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        (self.lookup)(self, key)
    }

    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let pm = self.pool.access();
        let mut hashes = [0; BATCH];
        for (keys, values) in keys.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hasher.word(*key);
                self.prefetch(&pm, *hash);
            }
            for ((key, hash), value) in keys.iter().zip(&hashes).zip(values) {
                let pair = self.get_hashed(&pm, *hash, *key, &mut Vec::new())?;
                *value = pair.map(|pair| pair[1]);
            }
        }
        Ok(())
    }
}

table_of_forms!(WophiTable: Words, DoubleWords, Bytes);
