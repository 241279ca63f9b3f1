//! Many keys at a time: the lines of the directory are fetched for all of them, then the objects,
//! then each key is looked for or written as if it were alone.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, LINE, Media, WORD};

use super::directory::Link;
use super::state::Reef;
use crate::common::edit::{Edit, has_form};

/// Keys whose lines are fetched together.
///
/// Unit: keys. Source: ours; about twice as many cache misses can a present core have outstanding,
/// and what they need fits into the first cache.
const TOGETHER: usize = 32;

impl<M: Media> Reef<M> {
    /// Fetches what the searches for these hashes will look at.
    #[inline(always)]
    fn fetch(&self, pm: &Access<'_, M>, hashes: &[u64]) {
        let mut leaves = [Link::default(); TOGETHER];
        for (leaf, hash) in leaves.iter_mut().zip(hashes) {
            *leaf = self.shard(*hash).0.prefetch(*hash);
        }
        for (leaf, hash) in leaves.iter().zip(hashes) {
            if let Some(place) = self.shard(*hash).0.candidate(*leaf, *hash) {
                self.fetch_object(pm, place);
            }
        }
    }

    /// Fetches an object: as many lines as one of a usual length has.
    #[inline(always)]
    pub(super) fn fetch_object(&self, pm: &Access<'_, M>, place: Addr) {
        let lines = match self.form {
            Form::Fixed { .. } => 2,
            Form::Variable => 3,
        };
        (0..lines).for_each(|line| pm.prefetch(place.plus(line * (LINE / WORD))));
    }

    /// Reads many keys; calls `found` for each.
    pub(super) fn get_each(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let (pm, mut value) = (self.pool.access(), Vec::new());
        for (part, keys) in keys.chunks(TOGETHER).enumerate() {
            let mut hashes = [0; TOGETHER];
            let hashes = &mut hashes[..keys.len()];
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.hash(key));
            self.fetch(&pm, hashes);
            for (place, (hash, key)) in hashes.iter().zip(keys).enumerate() {
                let is_there =
                    has_form(self.form, key) && self.get_hashed(*hash, key, &mut value)?;
                found(part * TOGETHER + place, is_there.then_some(value.as_slice()));
            }
        }
        Ok(())
    }

    /// Reads many keys of a pool of words.
    pub(super) fn get_each_word(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let pm = self.pool.access();
        for (keys, values) in keys.chunks(TOGETHER).zip(values.chunks_mut(TOGETHER)) {
            let mut hashes = [0; TOGETHER];
            let hashes = &mut hashes[..keys.len()];
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.hasher.word(*key));
            self.fetch(&pm, hashes);
            for ((hash, key), value) in hashes.iter().zip(keys).zip(values) {
                *value = self.get_word_hashed(*hash, *key)?;
            }
        }
        Ok(())
    }

    /// Writes many pairs in order; returns how many writes answered `counted`.
    pub(super) fn write_each<'p>(
        &self,
        pairs: &[(&'p [u8], &'p [u8])],
        edit: impl Fn(&'p [u8]) -> Edit<&'p [u8]>,
        counted: bool,
    ) -> Result<u64> {
        let (pm, mut count) = (self.pool.access(), 0);
        for pairs in pairs.chunks(TOGETHER) {
            let mut hashes = [0; TOGETHER];
            let hashes = &mut hashes[..pairs.len()];
            hashes.iter_mut().zip(pairs).for_each(|(hash, (key, _))| *hash = self.hash(key));
            self.fetch(&pm, hashes);
            for (hash, (key, value)) in hashes.iter().zip(pairs) {
                admit(self.form, key, value)?;
                count += u64::from(self.write(*hash, key, edit(value))? == counted);
            }
        }
        Ok(count)
    }

    /// Removes many keys in order; returns how many were there.
    pub(super) fn remove_each(&self, keys: &[&[u8]]) -> Result<u64> {
        let (pm, mut removed) = (self.pool.access(), 0);
        for keys in keys.chunks(TOGETHER) {
            let mut hashes = [0; TOGETHER];
            let hashes = &mut hashes[..keys.len()];
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.hash(key));
            self.fetch(&pm, hashes);
            for (hash, key) in hashes.iter().zip(keys).filter(|(_, key)| has_form(self.form, key)) {
                removed += u64::from(self.write(*hash, key, Edit::Remove)?);
            }
        }
        Ok(removed)
    }
}
