//! The operations (3.1.4): every write appends one object to the head of its chain.
//!
//! All writes look for the key first: the contract wants to know whether it was there (the paper
//! looks for inserts only).

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::borrow::Cow;

use everhash_index::{Error, Form, Result, Upkeep};
use everhash_pmem::{Access, Addr, AtomicWord, Media, WORD, word_of};

use super::concurrency::View;
use super::directory::{Directory, directory_of};
use super::layout::{Kind, Link};
use super::logs::{Object, Purpose, corrupt};
use super::object::Found;
use super::state::{Area, GuardOf, State, Walsh};

/// Objects of a chain between two looks at the view: a reader without a lock may follow links
/// that mean nothing any more.
///
/// Unit: objects. Source: ours; ten times the longest chain that is usual.
const LOOK_AGAIN: u64 = 128;

/// How often room is made for a write at most.
///
/// Source: ours; what the first round frees may be what the second needs to free more.
const ROUNDS: u32 = 3;

/// The newest object of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) found: Found,
    at: Addr,
}

impl Version {
    fn is_live(&self) -> bool {
        self.found.link.kind != Kind::Removed
    }
}

/// What a write appends.
#[derive(Clone, Copy)]
struct NewVersion<'v> {
    hash: u64,
    kind: Kind,
    key: &'v [u8],
    value: &'v [u8],
}

/// A key that is looked for: how an object is compared with it, and how to find out that the search
/// has become idle.
struct Wanted<P, C> {
    hash: u64,
    probe: P,
    is_current: C,
}

/// What a write does, once it knows what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step<'v> {
    Keep,
    Put(Cow<'v, [u8]>),
    Remove,
}

/// As [`Step`], of a pair of words. What is absent cannot be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WordStep {
    Keep,
    Put(u64),
    Remove,
}

impl<M: Media> Walsh<M> {
    /// Looks for the newest object of a key in one chain.
    #[inline(always)]
    fn search_chain<P: FnMut(Addr) -> Result<(Found, bool)>, C: Fn() -> bool>(
        &self,
        directory: Directory,
        wanted: &mut Wanted<P, C>,
    ) -> Result<Option<Version>> {
        if !directory.may_hold(wanted.hash) {
            return Ok(None);
        }
        let mut at = directory.head;
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
        Err(corrupt(directory.head, "a chain of objects ends"))
    }

    /// Looks for the newest object of a key: in the newest directories, then in those set aside.
    #[inline(always)]
    fn search<P: FnMut(Addr) -> Result<(Found, bool)>, C: Fn() -> bool>(
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

    /// Looks for the newest object of a key under the area's lock.
    fn search_locked(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &State,
        hash: u64,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        let probe = |at| self.objects.probe(pm, at, key, value);
        self.search(pm, area, state.view, Wanted { hash, probe, is_current: || true })
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
        let live = self.get_with(pm, hash, |at| self.objects.probe(pm, at, key, value))?;
        if !live {
            value.clear();
        }
        Ok(live)
    }

    /// As [`Walsh::get_hashed`], of a pair of words: without a branch that is not needed where
    /// nothing is rehashed.
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
            if let Some(found) = self.find_word(pm, directory, hash, key)
                && area.view.shows(view)
            {
                return Ok(found);
            }
        }
        self.get_word_patiently(pm, hash, key)
    }

    /// Looks for a pair of words in one chain, as far as that is easy: `None` says that it is not.
    #[inline(always)]
    fn find_word(
        &self,
        pm: &Access<'_, M>,
        directory: Directory,
        hash: u64,
        key: u64,
    ) -> Option<Option<u64>> {
        if !directory.may_hold(hash) {
            return Some(None);
        }
        let (mut at, mut value) = (directory.head, 0);
        for _ in 0..LOOK_AGAIN {
            let (found, equal) = self.objects.probe_word(pm, at, key, &mut value).ok()?;
            if equal {
                return Some((found.link.kind != Kind::Removed).then_some(value));
            }
            at = found.link.next;
            if at.is_null() {
                return Some(None);
            }
        }
        None
    }

    /// Reads a pair of words, whatever happens to its area.
    #[cold]
    pub(super) fn get_word_patiently(
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

    /// Returns the hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        match self.form {
            Form::WORDS if key.len() == 8 => self.hasher.word(word_of(key)),
            _ => self.hasher.bytes(key),
        }
    }

    /// Lets `decide` see a key's value and say what becomes of it: one step for everybody else.
    pub(super) fn edit<'v, T>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Result<(T, Step<'v>)>,
    ) -> Result<T> {
        let hash = self.hash(key);
        let area = self.area(hash);
        let pm = self.pool.access();
        let state = self.lock(area)?;
        pm.locked(area.number);
        let mut present = Vec::new();
        let version = self.search_locked(&pm, area, &state, hash, key, &mut present)?;
        let live = version.is_some_and(|version| version.is_live());
        let (answer, step) = decide(live.then_some(present.as_slice()))?;
        let (kind, value) = match &step {
            Step::Keep => return Ok(answer),
            Step::Remove if !live => return Ok(answer),
            // In a tombstone the place of the value is zero.
            Step::Remove => (Kind::Removed, [].as_slice()),
            Step::Put(value) => (if live { Kind::Replaced } else { Kind::Added }, value.as_ref()),
        };
        self.write_and_tend(&pm, area, state, &NewVersion { hash, kind, key, value }, version)?;
        Ok(answer)
    }

    /// As [`Walsh::edit`] for a pair of words, without slices: `decide` returns the answer and what
    /// becomes of the key.
    #[inline(always)]
    fn edit_word<T>(
        &self,
        key: u64,
        decide: impl FnOnce(Option<u64>) -> (T, WordStep),
    ) -> Result<T> {
        let hash = self.hasher.word(key);
        let area = self.area(hash);
        let pm = self.pool.access();
        let state = self.lock(area)?;
        pm.locked(area.number);
        let mut present = 0;
        let probe = |at| self.objects.probe_word(&pm, at, key, &mut present);
        let wanted = Wanted { hash, probe, is_current: || true };
        let version = self.search(&pm, area, state.view, wanted)?;
        let live = version.is_some_and(|version| version.is_live());
        let (answer, step) = decide(live.then_some(present));
        let (kind, value) = match step {
            WordStep::Keep => return Ok(answer),
            // In a tombstone the place of the value is zero.
            WordStep::Remove => (Kind::Removed, 0),
            WordStep::Put(value) => (if live { Kind::Replaced } else { Kind::Added }, value),
        };
        let (key, value) = (key.to_le_bytes(), value.to_le_bytes());
        let new = NewVersion { hash, kind, key: &key, value: &value };
        self.write_and_tend(&pm, area, state, &new, version)?;
        Ok(answer)
    }

    /// Writes a version, in the room of the area's own garbage if there is no other, and does what
    /// is due then.
    fn write_and_tend<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        mut state: GuardOf<'a, M>,
        new: &NewVersion<'_>,
        before: Option<Version>,
    ) -> Result<()> {
        if let Err(error) = self.write(pm, area, &mut state, new, before) {
            if !matches!(error, Error::Full { .. }) || !self.collect(pm, area, &mut state)? {
                return Err(error);
            }
            let (hash, key) = (new.hash, new.key);
            let before = self.search_locked(pm, area, &state, hash, key, &mut Vec::new())?;
            self.write(pm, area, &mut state, new, before)?;
        }
        pm.unlocking(area.number);
        self.rehash_if_due(pm, area, state)?;
        self.bound_pending()
    }

    /// Appends a version of a key and makes it the head of its chain.
    fn write(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        new: &NewVersion<'_>,
        before: Option<Version>,
    ) -> Result<()> {
        let NewVersion { hash, kind, key, value } = *new;
        let purpose = if kind == Kind::Removed { Purpose::Remove } else { Purpose::Add };
        let side = &area.sides[state.view.side()];
        let directory = directory_of(hash, state.view.level());
        let head = self.blocks.read(side, directory).head;
        // A key that is written again and again must not lengthen its chain: the version at the
        // head is passed over.
        let again = before.filter(|version| version.at == head);
        let next = again.map_or(head, |version| version.found.link.next);
        let object = Object { hash, link: Link { next, kind }, key, value };
        let at = self.append(pm, area, state, purpose, &object)?;
        if self.settings.durability == 1 {
            // Readers see it when it is durable, and not before.
            self.secure(pm, state)?;
        }
        self.blocks.push(side, directory, at, hash)?;
        let not_durable = state.open.as_ref().map_or(0, |log| log.fill - log.durable_fill) * WORD;
        if not_durable * self.areas.len() as u64 > self.settings.flush_bytes {
            // More than the area's share of what may be lost.
            self.flush(pm, area, state)?;
        }
        state.chained += u64::from(again.is_none());
        state.items = state.items.wrapping_add_signed(kind.items());
        if kind != Kind::Removed {
            state.item_bytes += self.objects.words(key, value) * WORD;
        }
        if let Some(version) = before.filter(Version::is_live) {
            state.item_bytes = state.item_bytes.saturating_sub(version.found.words * WORD);
        }
        Ok(())
    }

    pub(super) fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.with_room(|| {
            self.edit(key, |present| match present {
                Some(_) => Ok((false, Step::Keep)),
                None => Ok((true, Step::Put(Cow::Borrowed(value)))),
            })
        })
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.with_room(|| {
            self.edit(key, |present| Ok((present.is_some(), Step::Put(Cow::Borrowed(value)))))
        })
    }

    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.with_room(|| {
            self.edit(key, |present| match present {
                Some(_) => Ok((true, Step::Put(Cow::Borrowed(value)))),
                None => Ok((false, Step::Keep)),
            })
        })
    }

    pub(super) fn remove(&self, key: &[u8]) -> Result<bool> {
        self.with_room(|| self.edit(key, |present| Ok((present.is_some(), Step::Remove))))
    }

    pub(super) fn insert_pair(&self, key: u64, value: u64) -> Result<bool> {
        self.with_room(|| {
            self.edit_word(key, |present| match present {
                Some(_) => (false, WordStep::Keep),
                None => (true, WordStep::Put(value)),
            })
        })
    }

    pub(super) fn put_pair(&self, key: u64, value: u64) -> Result<bool> {
        self.with_room(|| self.edit_word(key, |present| (present.is_some(), WordStep::Put(value))))
    }

    pub(super) fn update_pair(&self, key: u64, value: u64) -> Result<bool> {
        self.with_room(|| {
            self.edit_word(key, |present| match present {
                Some(_) => (true, WordStep::Put(value)),
                None => (false, WordStep::Keep),
            })
        })
    }

    pub(super) fn remove_pair(&self, key: u64) -> Result<bool> {
        self.with_room(|| {
            self.edit_word(key, |present| match present {
                Some(_) => (true, WordStep::Remove),
                None => (false, WordStep::Keep),
            })
        })
    }

    /// Tries again when other areas have given back what they do not need.
    fn with_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..ROUNDS {
            match write() {
                Err(full @ Error::Full { .. }) => {
                    let mut any = self.collect_others()?;
                    any |= self.end_limbo()?;
                    if !any {
                        return Err(full);
                    }
                }
                outcome => return outcome,
            }
        }
        write()
    }

    /// Removes every pair: area by area, each in one step.
    pub(super) fn clear(&self) -> Result<()> {
        let pm = self.pool.access();
        for area in &self.areas {
            let mut state = self.lock(area)?;
            self.clear_area(&pm, area, &mut state)?;
        }
        Ok(())
    }

    /// Makes every write that returned before durable, also while areas are rehashed: what a
    /// rehash moves is durable before it forgets where it came from.
    pub(super) fn sync(&self) -> Result<()> {
        if self.is_grouped {
            return self.commit_epoch();
        }
        let pm = self.pool.access();
        for area in &self.areas {
            let mut state = self.lock(area)?;
            match self.settings.durability {
                1 => self.secure(&pm, &mut state)?,
                _ => self.flush(&pm, area, &mut state)?,
            }
        }
        match self.is_relaxed {
            true => self.vital(pm.sync(super::logs::sites::SYNC)),
            // The fences have waited for everything.
            false => Ok(()),
        }
    }

    /// Flushes what is old, and goes on with rehashes.
    pub(super) fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        // What was written just after a visit is seen at the next one, half an interval later.
        let half = Duration::from_millis(self.settings.flush_interval_ms) / 2;
        let is_dirty = match self.is_grouped {
            true => !self.is_relaxed && self.age_epoch(now, half)?,
            false => self.age_areas(now, half)?,
        };
        let pm = self.pool.access();
        let count = self.areas.len() as u64;
        let mut more = false;
        let first = self.upkeep.fetch_add(u64::from(budget.max(1)), Ordering::Relaxed);
        for number in first..first + u64::from(budget.max(1)).min(count) {
            let area = &self.areas[(number % count) as usize];
            let mut state = self.lock(area)?;
            more |= self.tend(&pm, area, &mut state)?;
        }
        Ok(Upkeep { deadline: is_dirty.then_some(now + half), more })
    }

    /// Flushes the areas whose writes are older than `age` at `now`; returns whether there are
    /// writes that are not durable.
    fn age_areas(&self, now: Duration, age: Duration) -> Result<bool> {
        let pm = self.pool.access();
        let mut any = false;
        for area in &self.areas {
            let mut state = self.lock(area)?;
            let is_dirty = state.open.as_ref().is_some_and(|log| log.durable < log.count);
            match state.seen {
                Some(seen) if now.saturating_sub(seen) >= age => {
                    self.flush(&pm, area, &mut state)?;
                    continue;
                }
                None if is_dirty => state.seen = Some(now),
                _ => {}
            }
            any |= is_dirty;
        }
        Ok(any)
    }
}
