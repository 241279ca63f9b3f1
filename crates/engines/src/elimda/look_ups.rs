//! Look-ups of words, compiled for each hash function: what nearly every one of them takes, in few
//! instructions. What is rare is left to the search of all forms, which begins anew.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtOnce, Media, Stamp};

use super::layout;
use super::reversed_search::Wanted;
use super::state::{ElimDa, Located, WordLookup};
use crate::common::hash::{KeyedHash, WordHash, with_hash};
use crate::common::slot_codec::Words;

/// Keys that are looked up together: the lines of all of them are fetched at once.
///
/// Unit: keys. Source: ours; about twice as many cache misses can a present core have outstanding,
/// and what they need fits into the first cache.
const TOGETHER: usize = 32;

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        ElimDa::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

/// A key of a batch that is being looked up.
struct Waiting<'t, M: Media> {
    hash: u64,
    located: Located<'t, M>,
    /// Taken before anything is read, if the bucket is the right one and nobody changes it.
    stamp: Option<Stamp>,
    /// Where the first item on the device lies whose fingerprint is that of the key.
    seeming: Option<Addr>,
}

impl<M: Media> ElimDa<M, Words> {
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H>(key) {
            Some(found) => Ok(found),
            None => self.get_word_again(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash>(&self, key: u64) -> Option<Option<u64>> {
        let by = H::of(&self.hasher)?;
        let (pm, hash) = (self.pool.access(), by.word(key));
        self.try_word(&pm, &self.locate(hash), hash, key, by.at_once())
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash. Waits for
    /// writers, and names what is broken.
    #[cold]
    #[inline(never)]
    fn get_word_again(&self, key: u64) -> Result<Option<u64>> {
        let (pm, hash) = (self.pool.access(), self.hasher.word(key));
        let found = self.get_wanted(&pm, Wanted { hash, key }, &mut Vec::new())?;
        Ok(found.map(|item| item[1]))
    }

    /// Looks for a key once; `None` if a writer came between, or if anything is broken.
    #[inline(always)]
    fn try_word(
        &self,
        pm: &Access<'_, M>,
        located: &Located<'_, M>,
        hash: u64,
        key: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<u64>> {
        pm.dram(4);
        let bucket = &located.bucket;
        let stamp = bucket.try_stamp()?;
        if !bucket.covers(hash) {
            return None;
        }
        let found = match self.word_in_units(pm, located, hash, key, at_once)? {
            Some(value) => Some(value),
            None => match bucket.dram_candidates(0, layout::fingerprint(hash)) {
                0 if bucket.has_one_part() && self.collectors.is_none() => None,
                _ => self.word_behind_units(hash, key)?,
            },
        };
        bucket.accepts(stamp).then_some(found)
    }

    #[inline(always)]
    fn word_in_units(
        &self,
        pm: &Access<'_, M>,
        located: &Located<'_, M>,
        hash: u64,
        key: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<u64>> {
        let Located { segment, bucket, .. } = located;
        for candidate in bucket.candidates_by(layout::fingerprint(hash), at_once) {
            let item = pm.try_block::<2>(self.candidate_at(segment, candidate))?;
            let (found, value) = layout::pair_in(&item);
            if found == key {
                return Some(Some(value));
            }
        }
        Some(None)
    }

    /// Looks for a key in the D-bucket, and in the collecting logs. Locates the bucket again, which
    /// is seldom: so the common case need not keep more than the hash.
    #[inline(never)]
    fn word_behind_units(&self, hash: u64, key: u64) -> Option<Option<u64>> {
        let (pm, Located { bucket, .. }) = (self.pool.access(), self.locate(hash));
        for first in bucket.dram_parts() {
            let mut candidates = bucket.dram_candidates(first, layout::fingerprint(hash));
            while candidates != 0 {
                let (item, _) = bucket.item(first + candidates.trailing_zeros() as usize);
                candidates &= candidates - 1;
                if item[0] == key {
                    return Some(Some(item[1]));
                }
            }
        }
        let found = self.search_collected(&pm, Wanted { hash, key }, &mut Vec::new()).ok()?;
        Some(found.map(|found| found.item[1]))
    }

    /// Looks many keys up.
    pub(super) fn get_each_word(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        with_hash!(self.hasher, hash => self.get_each_word_by(hash, keys, values))
    }

    fn get_each_word_by<H: WordHash>(
        &self,
        by: &H,
        keys: &[u64],
        values: &mut [Option<u64>],
    ) -> Result<()> {
        let (keys, last_keys) = keys.as_chunks::<TOGETHER>();
        let (values, last_values) = values.split_at_mut(keys.len() * TOGETHER);
        for (keys, values) in keys.iter().zip(values.as_chunks_mut().0) {
            self.get_words_together(by, keys, values)?;
        }
        for (key, value) in last_keys.iter().zip(last_values) {
            *value = (self.lookup)(self, *key)?;
        }
        Ok(())
    }

    /// Asks for the heads of all buckets, then for the fingerprints that these say are in use, then
    /// for the lines of the device to which they lead.
    fn get_words_together<H: WordHash>(
        &self,
        by: &H,
        keys: &[u64; TOGETHER],
        values: &mut [Option<u64>; TOGETHER],
    ) -> Result<()> {
        let (pm, at_once) = (self.pool.access(), by.at_once());
        let mut all = [const { None }; TOGETHER];
        for (waiting, key) in all.iter_mut().zip(keys) {
            let hash = by.word(*key);
            let located = self.locate(hash);
            located.bucket.prefetch_head();
            *waiting = Some(Waiting { hash, located, stamp: None, seeming: None });
        }
        all.iter_mut().flatten().for_each(Waiting::begin);
        for waiting in all.iter_mut().flatten() {
            pm.dram(4);
            waiting.seeming = self.seeming(&pm, waiting, at_once);
        }
        for ((waiting, key), value) in all.iter().flatten().zip(keys).zip(values) {
            *value = match self.word_there(&pm, waiting, *key) {
                Some(value) => Some(value),
                None => match self.try_word(&pm, &waiting.located, waiting.hash, *key, at_once) {
                    Some(found) => found,
                    None => self.get_word_again(*key)?,
                },
            };
        }
        Ok(())
    }

    /// Returns where the first item on the device with the fingerprint of a key lies, and asks for
    /// its line.
    #[inline(always)]
    fn seeming(
        &self,
        pm: &Access<'_, M>,
        waiting: &Waiting<'_, M>,
        at_once: Option<AtOnce>,
    ) -> Option<Addr> {
        waiting.stamp?;
        let Located { segment, bucket, .. } = &waiting.located;
        let fingerprint = layout::fingerprint(waiting.hash);
        let candidate = bucket.candidates_by(fingerprint, at_once).next()?;
        let at = self.candidate_at(segment, candidate);
        pm.prefetch(at);
        Some(at)
    }

    /// Returns the value of a key if it is where it seemed to be, and has been there all the time.
    #[inline(always)]
    fn word_there(&self, pm: &Access<'_, M>, waiting: &Waiting<'_, M>, key: u64) -> Option<u64> {
        let (stamp, at) = (waiting.stamp?, waiting.seeming?);
        let (found, value) = layout::pair_in(&pm.try_block::<2>(at)?);
        let accepted = waiting.located.bucket.accepts(stamp);
        (found == key && accepted).then_some(value)
    }
}

impl<M: Media> Waiting<'_, M> {
    /// Begins to look for the key in the units of its bucket: asks for their fingerprints.
    #[inline(always)]
    fn begin(&mut self) {
        let bucket = &self.located.bucket;
        bucket.prefetch_in_use();
        self.stamp = bucket.try_stamp().filter(|_| bucket.covers(self.hash));
    }
}
