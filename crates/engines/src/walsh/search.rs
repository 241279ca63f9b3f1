//! Looking for a key (3.1.4): its directory, which says where to begin, and then the chain.
//!
//! Pairs of words have a fast path of their own: the fewer instructions a get has, the more of the
//! next get overlaps with it. Every object traversed is verified, also by a hit: if the newest
//! object of a key is damaged, an older one must not be taken for it.

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, Media, WORD, word_of};

use super::concurrency::View;
use super::directory::{Slot, directory_of};
use super::layout::{Directory, Link};
use super::logs::corrupt;
use super::object::{Found, WordPair};
use super::state::{Area, Walsh, WordLookup};
use crate::common::hash::{KeyedHash, WordHash, with_hash};

/// Objects of a chain between two checks of the view: a reader without a lock may follow links of a
/// log that has been reused.
///
/// Unit: objects. Source: ours; ten times the longest chain that is usual.
const LOOK_AGAIN: u64 = 128;

/// The longest chain that the fast path follows, which does not look at the view between.
///
/// Unit: objects. Source: ours; twice the threshold.
const QUICK: usize = 8;

/// The newest object of a key.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub(super) found: Found,
    pub(super) at: Addr,
}

impl Version {
    /// Returns whether the key is present.
    #[inline(always)]
    pub fn is_live(&self) -> bool {
        self.found.link.kind.is_live()
    }
}

/// A key that is looked for: how an object is compared with it, and how to find out that the search
/// has become idle.
pub struct Wanted<P, C> {
    pub(super) hash: u64,
    pub(super) probe: P,
    pub(super) is_current: C,
}

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        Walsh::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

impl<M: Media> Walsh<M> {
    /// Returns the hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        match self.form {
            Form::WORDS if key.len() == 8 => self.hasher.word(word_of(key)),
            _ => self.hasher.bytes(key),
        }
    }

    /// Returns where the newest directory of a hash lies in its area, if its block is there.
    #[inline(always)]
    pub(super) fn slot(&self, area: &Area<M>, hash: u64, view: View) -> Option<Slot<'_, M::Sync>> {
        self.blocks.slot(&area.sides[view.side()], directory_of(hash, view.level()))
    }

    /// Looks for the newest object of a key in one chain.
    #[inline(always)]
    fn search_chain<P: FnMut(Addr) -> Result<(Found, bool)>, C: Fn() -> bool>(
        &self,
        directory: Directory,
        wanted: &mut Wanted<P, C>,
    ) -> Result<Option<Version>> {
        let mut at = directory.start(wanted.hash);
        // A chain has no more objects than the medium has words.
        for step in 1..=self.pool.region().media().bytes() / WORD {
            if at.is_null() {
                return Ok(None);
            }
            let (found, equal) = (wanted.probe)(at)?;
            if equal {
                return Ok(Some(Version { found, at }));
            }
            if step % LOOK_AGAIN == 0 && !(wanted.is_current)() {
                return Ok(None);
            }
            at = found.link.next;
        }
        Err(corrupt(directory.head(), "a chain of objects ends"))
    }

    /// Looks for the newest object of a key: in the newest directories, then in those set aside.
    #[inline(always)]
    pub(super) fn search<P: FnMut(Addr) -> Result<(Found, bool)>, C: Fn() -> bool>(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        mut wanted: Wanted<P, C>,
    ) -> Result<Option<Version>> {
        let side = &area.sides[view.side()];
        let directory = self.blocks.read(side, directory_of(wanted.hash, view.level()));
        pm.dram(1);
        let found = self.search_chain(directory, &mut wanted)?;
        let (None, Some(old)) = (found, view.old()) else { return Ok(found) };
        let side = &area.sides[1 - view.side()];
        let directory = self.blocks.read(side, directory_of(wanted.hash, old));
        self.search_chain(directory, &mut wanted)
    }

    /// Looks for a pair of words in what is left of a chain by the fast path: returns its newest
    /// object with the link and where it lies, or `None` if the chain is long, or an object in it
    /// does not verify.
    #[inline(always)]
    fn try_fast_find(
        &self,
        pm: &Access<'_, M>,
        mut at: Addr,
        key: u64,
    ) -> Option<Option<(Addr, Link, WordPair)>> {
        for _ in 0..QUICK {
            if at.is_null() {
                return Some(None);
            }
            // The load that the search waits for next does not wait for the check.
            let (link, pair) = self.objects.try_open_word(pm, at)?;
            if pair.key == key {
                return Some(Some((at, link, pair)));
            }
            at = link.next;
        }
        None
    }

    /// Looks for the newest object of a pair of words without the area's lock; `None` as
    /// [`Walsh::try_fast_find`].
    #[inline(never)]
    pub(super) fn search_word_ahead(
        &self,
        pm: &Access<'_, M>,
        start: Addr,
        key: u64,
    ) -> Option<Option<Version>> {
        let words = self.objects.pair_words();
        let version = |(at, link, _)| Version { found: Found { link, words }, at };
        self.try_fast_find(pm, start, key).map(|found| found.map(version))
    }

    /// Looks for the newest object of a pair of words under the area's lock.
    pub(super) fn search_word(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        (hash, key): (u64, u64),
    ) -> Result<Option<Version>> {
        let probe = |at| self.objects.probe_word(pm, at, key, &mut 0);
        self.search(pm, area, view, Wanted { hash, probe, is_current: || true })
    }

    /// Looks for the newest object of a key, without a look at its value.
    pub(super) fn search_key(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        (hash, key): (u64, &[u8]),
    ) -> Result<Option<Version>> {
        let mut key_there = Vec::new();
        let probe = |at| self.objects.probe_key(pm, at, (hash, key), &mut key_there);
        self.search(pm, area, view, Wanted { hash, probe, is_current: || area.view.shows(view) })
    }

    /// Looks for the newest object of a key, and keeps its value.
    pub(super) fn search_pair(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        (hash, key): (u64, &[u8]),
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        let probe = |at| self.objects.probe(pm, at, (hash, key), value);
        self.search(pm, area, view, Wanted { hash, probe, is_current: || area.view.shows(view) })
    }

    /// Reads a key; lock-free unless the area's logs are given another use again and again.
    #[inline]
    pub(super) fn get_hashed(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let live = self.get_with(pm, hash, |at| self.objects.probe(pm, at, (hash, key), value))?;
        if !live {
            value.clear();
        }
        Ok(live)
    }

    /// As [`Walsh::get_hashed`], of a pair of words. What the first object does not decide is left
    /// to other functions: so the common case keeps little.
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        let Some(hash) = H::of(&self.hasher) else { return self.get_word_retrying(key) };
        let hash = hash.word(key);
        let area = self.area(hash);
        let view = area.view.latest();
        if !view.is_plain() || self.is_dead() {
            return self.get_word_retrying(key);
        }
        let pm = self.pool.access();
        let side = &area.sides[view.side()];
        let directory = self.blocks.read(side, directory_of(hash, view.level()));
        pm.dram(1);
        let start = directory.start(hash);
        if start.is_null() {
            return if area.view.shows(view) { Ok(None) } else { self.get_word_retrying(key) };
        }
        match self.objects.try_open_word(&pm, start) {
            Some((link, pair)) if pair.key != key => {
                self.get_word_along_chain(key, hash, link.next, view)
            }
            Some((link, pair)) if area.view.shows(view) => {
                Ok(link.kind.is_live().then_some(pair.value))
            }
            _ => self.get_word_retrying(key),
        }
    }

    /// Goes on with a get at an object of a chain, under `view`.
    #[inline(never)]
    fn get_word_along_chain(
        &self,
        key: u64,
        hash: u64,
        at: Addr,
        view: View,
    ) -> Result<Option<u64>> {
        match self.try_fast_find(&self.pool.access(), at, key) {
            Some(found) if self.area(hash).view.shows(view) => {
                let live = found.filter(|(_, link, _)| link.kind.is_live());
                Ok(live.map(|(.., pair)| pair.value))
            }
            _ => self.get_word_retrying(key),
        }
    }

    /// Reads a pair of words by the general path, which retries and then takes the lock. It hashes
    /// the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    pub(super) fn get_word_retrying(&self, key: u64) -> Result<Option<u64>> {
        let (pm, mut value) = (self.pool.access(), 0);
        let probe = |at| self.objects.probe_word(&pm, at, key, &mut value);
        let live = self.get_with(&pm, self.hasher.word(key), probe)?;
        Ok(live.then_some(value))
    }

    /// Looks for a key with `probe`, which keeps the value of the object that it finds; returns
    /// whether the key is present.
    #[inline(always)]
    fn get_with(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        mut probe: impl FnMut(Addr) -> Result<(Found, bool)>,
    ) -> Result<bool> {
        self.alive()?;
        let area = self.area(hash);
        let found = area.view.read_with(|view| {
            let is_current = || area.view.shows(view);
            self.search(pm, area, view, Wanted { hash, probe: &mut probe, is_current })
        });
        let found = match found {
            Some(found) => found?,
            None => {
                let state = self.lock(area)?;
                self.search(pm, area, state.view, Wanted { hash, probe, is_current: || true })?
            }
        };
        Ok(found.is_some_and(|version| version.is_live()))
    }
}
