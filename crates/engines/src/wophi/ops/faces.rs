//! The faces of an open table: byte strings for all forms, words for one, the paper's bare forms.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    BareTable, Change, Checked, Cursor, Error, Form as PairForm, Result, Stats, Table, Upkeep,
    WordTable, admit, admit_key,
};
use everhash_pmem::{AtomicWord, LINE, Lock, Media, pool};

use super::sites;
use crate::common::forms::table_of_forms;
use crate::wophi::form::{Bytes, DoubleWords, Form, Words};
use crate::wophi::state::Wophi;

/// Keys that are looked for together: their lines are on the way while the first is compared.
///
/// Unit: keys. Source: ours; twelve lines can be on the way to a core of the present.
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

/// Turns bytes that were admitted into a key or a value.
fn admitted<T>(part: Option<T>) -> T {
    part.expect("the form was checked")
}

impl<M: Media, F: Form> Table for Wophi<M, F> {
    fn form(&self) -> PairForm {
        F::FORM
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(F::FORM, key, value)?;
        Wophi::insert(self, admitted(F::key(key)), admitted(F::value(value)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(F::FORM, key, value)?;
        Wophi::put(self, admitted(F::key(key)), admitted(F::value(value)))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(F::FORM, key, value)?;
        Wophi::update(self, admitted(F::key(key)), admitted(F::value(value)))
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        admit_key(F::FORM, key)?;
        Wophi::modify(self, admitted(F::key(key)), |present| {
            let change = change(present);
            if let Change::Put(value) = &change {
                admit(F::FORM, key, value)?;
            }
            Ok(change)
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = match F::key(key) {
            Some(key) => Wophi::get(self, key, value)?,
            None => None,
        };
        match &found {
            Some(pair) => F::found_value(pair, value),
            // A record of another key with the same hash may have been read.
            None => value.clear(),
        }
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        match F::key(key) {
            Some(key) => Wophi::remove(self, key),
            None => Ok(false),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Table::get(self, key, &mut Vec::new())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let pm = self.pool.access();
        let mut value = Vec::new();
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let keys: Vec<_> = keys.iter().map(|key| F::key(key)).collect();
            let hashes: Vec<_> =
                keys.iter().map(|key| key.map(|key| F::hash(&self.hasher, key))).collect();
            hashes.iter().flatten().for_each(|hash| self.prefetch(&pm, *hash));
            for (place, (key, hash)) in keys.into_iter().zip(hashes).enumerate() {
                let pair = match (key, hash) {
                    (Some(key), Some(hash)) => self.get_hashed(&pm, hash, key, &mut value)?,
                    _ => None,
                };
                if let Some(pair) = &pair {
                    F::found_value(pair, &mut value);
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

    fn clear(&self) -> Result<()> {
        Wophi::clear(self)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool.access().sync(sites::SYNC)?)
    }

    fn maintain(&self, _now: Duration, budget: u32) -> Result<Upkeep> {
        Wophi::maintain(self, budget)
    }

    fn check(&self) -> Result<Checked> {
        (self.judge)(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let (space, heap, pab) = (self.space.usage()?, self.heap.usage()?, self.pab.usage()?);
        let view = self.main.view();
        let buckets = self.main.count(view.level);
        let steps = self.growth.lock()?.steps;
        Ok(Stats {
            items: Wophi::len(self),
            slots: buckets * F::SLOTS as u64,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + space.used_bytes,
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
                ("bucket_bytes", F::LINES * LINE),
            ],
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.pool.writable() && self.stripes.is_poisoned() {
            // What a failed change has left behind is for recovery: the pool stays as it is.
            return Err(Error::Poisoned);
        }
        Ok(self.pool.close()?)
    }

    fn bare(&self) -> Option<&dyn BareTable> {
        Some(self)
    }
}

impl<M: Media, F: Form> BareTable for Wophi<M, F> {
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        admit(F::FORM, key, value)?;
        Wophi::insert_blind(self, admitted(F::key(key)), admitted(F::value(value)))
    }

    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Table::update(self, key, value).map(drop)
    }

    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        Table::remove(self, key).map(drop)
    }
}

impl<M: Media> Wophi<M, Words> {
    #[cold]
    #[inline(never)]
    fn get_word_patiently(&self, hash: u64, key: u64) -> Result<Option<u64>> {
        let pm = self.pool.access();
        Ok(self.get_patiently(&pm, hash, key, &mut Vec::new())?.map(|pair| pair[1]))
    }
}

impl<M: Media> WordTable for Wophi<M, Words> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        self.insert(key, value)
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        self.put(key, value)
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        self.update(key, value)
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        let (pm, hash) = (self.pool.access(), self.hasher.word(key));
        match self.glance(&pm, hash, key, &mut Vec::new()) {
            Some(found) => Ok(found.map(|pair| pair[1])),
            // Out of line, with nothing of the above: so the common case needs no frame.
            None => self.get_word_patiently(hash, key),
        }
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.remove(key)
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
