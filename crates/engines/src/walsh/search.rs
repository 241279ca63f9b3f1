//! Looking for a key (3.1.4): its directory, which says where to begin, and then the chain.
//!
//! Pairs of words have a fast path of their own: the fewer instructions a get has, the more of the
//! next get overlaps with it. Every object traversed is verified, also by a hit: if the newest
//! object of a key is damaged, an older one must not be taken for it.

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, Media, WORD, word_of};

use super::concurrency::View;
use super::directory::{Slot, directory_of};
use super::layout::Directory;
use super::logs::corrupt;
use super::object::{Found, WordKey};
use super::state::{Area, Walsh};

/// Objects of a chain between two checks of the view: a reader without a lock may follow links of a
/// log that has been reused.
///
/// Unit: objects. Source: ours; ten times the longest chain that is usual.
const LOOK_AGAIN: u64 = 128;

/// The longest chain that the fast path follows before it verifies the objects traversed.
///
/// Unit: objects. Source: ours; twice the threshold, and what it keeps of them fits a few lines.
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

    /// Looks for a pair of words in one chain by the fast path; `None` if the chain is long, or an
    /// object in it does not verify.
    #[inline(always)]
    fn try_fast_find(
        &self,
        pm: &Access<'_, M>,
        directory: Directory,
        hash: u64,
        key: u64,
    ) -> Option<Option<(Version, u64)>> {
        let mut at = directory.start(hash);
        if at.is_null() {
            return Some(None);
        }
        let mut passed = [WordKey::default(); QUICK];
        for count in 0..QUICK {
            let read = self.objects.read_word(pm, at).ok()?;
            if read.key == key {
                let (found, value) = self.objects.open_word(pm, &read).ok()?;
                let is_newest = self.are_sound(pm, &passed[..count]);
                return is_newest.then_some(Some((Version { found, at }, value)));
            }
            passed[count] = read;
            let Some(next) = read.next() else {
                return self.are_sound(pm, &passed[..=count]).then_some(None);
            };
            at = next;
        }
        None
    }

    /// Returns whether the objects that a search met are of the keys that they name. Only now, when
    /// the loads that the search waits for are under way or over.
    #[inline(always)]
    fn are_sound(&self, pm: &Access<'_, M>, passed: &[WordKey]) -> bool {
        passed.iter().all(|read| self.objects.checked(pm, read).is_some())
    }

    /// Looks for the newest object of a pair of words without the area's lock; `None` as
    /// [`Walsh::try_fast_find`].
    #[inline(never)]
    pub(super) fn search_word_ahead(
        &self,
        pm: &Access<'_, M>,
        directory: Directory,
        (hash, key): (u64, u64),
    ) -> Option<Option<Version>> {
        self.try_fast_find(pm, directory, hash, key).map(|found| found.map(|(version, _)| version))
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

    /// As [`Walsh::get_hashed`], of a pair of words.
    #[inline(always)]
    pub(super) fn get_word_hashed(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: u64,
    ) -> Result<Option<u64>> {
        self.alive()?;
        let area = self.area(hash);
        let view = area.view.latest();
        if view.is_plain() {
            let side = &area.sides[view.side()];
            let directory = self.blocks.read(side, directory_of(hash, view.level()));
            pm.dram(1);
            if let Some(found) = self.try_fast_find(pm, directory, hash, key)
                && area.view.shows(view)
            {
                return Ok(found.filter(|(version, _)| version.is_live()).map(|(_, value)| value));
            }
        }
        self.get_word_retrying(pm, hash, key)
    }

    /// Reads a pair of words by the general path, which retries and then takes the lock.
    #[cold]
    pub(super) fn get_word_retrying(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: u64,
    ) -> Result<Option<u64>> {
        let mut value = 0;
        let live =
            self.get_with(pm, hash, |at| self.objects.probe_word(pm, at, key, &mut value))?;
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
