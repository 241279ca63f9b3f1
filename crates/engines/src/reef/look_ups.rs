//! Look-ups of one key, without a latch: each loads a word of the directory, reads the object, and
//! loads the word again. The key's home bucket decides nearly all of them.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtOnce, AtomicWord, Media};

use super::directory::Fitting;
use super::objects::Look;
use super::state::{Reef, WordLookup};
use crate::common::hash::{KeyedHash, WordHash, with_hash};

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        Reef::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

impl<M: Media> Reef<M> {
    /// Returns the value of a key in a pool of words.
    ///
    /// What is rare is left to another function, with what this was called with: so the common case
    /// keeps little.
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H>(key) {
            Some(found) => Ok(found),
            None => self.get_word_again(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash>(&self, key: u64) -> Option<Option<u64>> {
        let hash = H::of(&self.hasher)?;
        self.try_get_word_hashed(hash.word(key), key, hash.at_once())
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    fn get_word_again(&self, key: u64) -> Result<Option<u64>> {
        self.get_word_hashed(self.hasher.word(key), key)
    }

    /// Looks for a key in its home bucket, without a latch, where nearly every search ends. `None`
    /// means that [`Reef::get_word_hashed`] must answer: from another bucket, beside a writer, or
    /// by an error.
    #[inline(always)]
    pub(super) fn try_get_word_hashed(
        &self,
        hash: u64,
        key: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<u64>> {
        let pm = self.pool.access();
        let Some(found) = self.search_home(&pm, hash, at_once)? else { return Some(None) };
        let value = self.word_at(&pm, found.place(), key)?;
        found.is_unchanged().then_some(Some(value))
    }

    /// As [`Reef::try_get_word_hashed`] for a key of any form: reads its value into `value`, and
    /// returns whether there is one.
    #[inline(always)]
    fn try_get_hashed(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let pm = self.pool.access();
        let Some(found) = self.search_home(&pm, hash, self.arena.at_once)? else {
            return Some(false);
        };
        let is_there = self.value_at(&pm, found.place(), key, value) && found.is_unchanged();
        is_there.then_some(true)
    }

    /// As [`Shard::search_home`], of a table that is alive.
    #[inline(always)]
    fn search_home(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<Fitting<'_, M::Sync>>> {
        pm.dram(1);
        if self.dead.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.shard(hash).0.search_home(hash, at_once)
    }

    /// Returns the value of the pair of words at a place if it is that of a key.
    #[inline(always)]
    pub(super) fn word_at(&self, pm: &Access<'_, M>, at: Addr, key: u64) -> Option<u64> {
        self.objects.word_of(pm, (at, self.units.seal(at)), key)
    }

    /// As [`Reef::word_at`] for a key of any form: reads its value into `value`, and returns
    /// whether it is there.
    #[inline(always)]
    pub(super) fn value_at(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> bool {
        let looked = self.objects.look(pm, (at, self.units.seal(at)), key, Some(value));
        matches!(looked, Ok(Look::Equal(_)))
    }

    /// Reads a value into `value`; returns whether there is one.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Poisoned`].
    #[inline(always)]
    pub(super) fn get_hashed(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self.try_get_hashed(hash, key, value) {
            Some(is_there) => Ok(is_there),
            None => self.get_along_leaf(hash, key, value),
        }
    }

    /// As [`Reef::get_hashed`], wherever in its leaf the key lies.
    #[cold]
    #[inline(never)]
    fn get_along_leaf(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let pm = self.pool.access();
        let mut look = |at| self.objects.look(&pm, (at, self.units.seal(at)), key, Some(value));
        self.find(&pm, hash, &mut look)
    }

    /// Returns the value of a key in a pool of words, wherever in its leaf it lies.
    ///
    /// # Errors
    /// As [`Reef::get_hashed`].
    #[inline(never)]
    pub(super) fn get_word_hashed(&self, hash: u64, key: u64) -> Result<Option<u64>> {
        let (pm, mut value) = (self.pool.access(), 0);
        let found = self.find(&pm, hash, &mut |at| {
            let (look, found) = self.objects.look_word(&pm, (at, self.units.seal(at)), key)?;
            value = found;
            Ok(look)
        })?;
        Ok(found.then_some(value))
    }

    /// Looks for a key without a latch.
    #[inline(always)]
    fn find(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        look: &mut impl FnMut(Addr) -> Result<Look>,
    ) -> Result<bool> {
        self.alive()?;
        pm.dram(1);
        let (shard, _) = self.shard(hash);
        self.touch_to_read(pm, shard, hash)?;
        shard.find(hash, look)
    }
}
