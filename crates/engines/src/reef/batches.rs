//! Many keys at a time: the lines of the directory are fetched for all of them, then the objects,
//! then each key is looked for or written as if it were alone.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, AtOnce, LINE, Media, Span, WORD};

use super::directory::{Fitting, Home};
use super::layout::FixedHead;
use super::setup::fixed_words;
use super::state::Reef;
use crate::common::edit::{Edit, has_form};
use crate::common::hash::{WordHash, with_hash};

/// Keys whose lines are fetched together.
///
/// Unit: keys. Source: ours; about twice as many cache misses can a present core have outstanding,
/// and what they need fits into the first cache.
const TOGETHER: usize = 32;

/// How long an object of a usual length is.
///
/// Unit: lines. Source: ours; of 16-byte keys and 100-byte values most reach into a third one.
const USUAL_LINES: u64 = 3;

impl<M: Media> Reef<M> {
    /// Fetches what the searches for these hashes will look at: their homes, and then the objects
    /// to which these lead. Returns the words that do.
    #[inline(always)]
    fn fetch(
        &self,
        pm: &Access<'_, M>,
        hashes: &[u64],
        at_once: Option<AtOnce>,
    ) -> [Option<Fitting<'_, M::Sync>>; TOGETHER] {
        let mut homes = [const { None }; TOGETHER];
        for (home, hash) in homes.iter_mut().zip(hashes) {
            *home = self.shard(*hash).0.home(*hash).map(|(home, _)| home);
            home.iter().for_each(Home::prefetch);
        }
        let mut all = [const { None }; TOGETHER];
        for (found, home) in all.iter_mut().zip(homes.iter().take(hashes.len())) {
            *found = home.as_ref().and_then(|home| home.first(at_once));
            found.iter().for_each(|found| self.fetch_object(pm, found.place()));
        }
        let words = self.fetched_words();
        pm.media().will_read_each(all.iter().flatten().map(|it| Span::new(it.place(), words)));
        all
    }

    /// Returns how long an object is, or of unknown length, how much of it is fetched. Unit: words.
    #[inline(always)]
    fn fetched_words(&self) -> u64 {
        match self.form {
            Form::Fixed { .. } => {
                let (key, value) = fixed_words(self.form);
                (FixedHead::WORDS + key + value) as u64
            }
            Form::Variable => USUAL_LINES * (LINE / WORD),
        }
    }

    /// Fetches an object: as many lines as one of a usual length has.
    #[inline(always)]
    pub(super) fn fetch_object(&self, pm: &Access<'_, M>, place: Addr) {
        match self.form {
            Form::Fixed { .. } => {
                // The lines of its first and its last word, which are often the same.
                pm.prefetch(place);
                pm.prefetch(place.plus(self.fetched_words() - 1));
            }
            Form::Variable => {
                (0..USUAL_LINES).for_each(|line| pm.prefetch(place.plus(line * (LINE / WORD))));
            }
        }
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
            self.alive()?;
            let words = self.fetch(&pm, hashes, self.arena.at_once);
            for (place, ((hash, key), word)) in hashes.iter().zip(keys).zip(&words).enumerate() {
                let is_there = has_form(self.form, key)
                    && (word.as_ref().is_some_and(|word| {
                        self.value_at(&pm, word.place(), key, &mut value) && word.is_unchanged()
                    }) || self.get_hashed(*hash, key, &mut value)?);
                found(part * TOGETHER + place, is_there.then_some(value.as_slice()));
            }
        }
        Ok(())
    }

    /// Reads many keys of a pool of words.
    pub(super) fn get_each_word(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        with_hash!(self.hasher, hash => self.get_each_word_by(hash, keys, values))
    }

    fn get_each_word_by<H: WordHash>(
        &self,
        hasher: &H,
        keys: &[u64],
        values: &mut [Option<u64>],
    ) -> Result<()> {
        let pm = self.pool.access();
        for (keys, values) in keys.chunks(TOGETHER).zip(values.chunks_mut(TOGETHER)) {
            let mut hashes = [0; TOGETHER];
            let hashes = &mut hashes[..keys.len()];
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = hasher.word(*key));
            self.alive()?;
            let words = self.fetch(&pm, hashes, hasher.at_once());
            values.fill(None);
            for (((value, key), hash), word) in values.iter_mut().zip(keys).zip(hashes).zip(&words)
            {
                if let Some(word) = word {
                    let here = self.word_at(&pm, word.place(), *key);
                    *value = here.filter(|_| word.is_unchanged());
                }
                if value.is_none() {
                    *value = self.get_word_alone(hasher, *hash, *key)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the value of a key that is absent, or was not found where it seemed to be.
    fn get_word_alone<H: WordHash>(&self, hasher: &H, hash: u64, key: u64) -> Result<Option<u64>> {
        match self.try_get_word_hashed(hash, key, hasher.at_once()) {
            Some(found) => Ok(found),
            None => self.get_word_hashed(hash, key),
        }
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
            self.fetch(&pm, hashes, self.arena.at_once);
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
            self.fetch(&pm, hashes, self.arena.at_once);
            for (hash, key) in hashes.iter().zip(keys).filter(|(_, key)| has_form(self.form, key)) {
                removed += u64::from(self.write(*hash, key, Edit::Remove)?);
            }
        }
        Ok(removed)
    }
}
