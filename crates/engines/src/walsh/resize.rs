//! Partial resizing and garbage collection (3.2), in four phases (3.3.2).
//!
//! | phase | what happens | lock |
//! |---|---|---|
//! | 1 | a new log; an info says which logs are old; the directories are set aside | one hold |
//! | 2, 3 | chain by chain, the newest version of each key is appended anew | a hold per step |
//! | 4 | the new logs are flushed; an info drops the old ones; their space is free | one hold |
//!
//! A crash between the infos of phases 1 and 4 leaves an area that is still being rehashed: both
//! sets of directories are rebuilt, from the logs up to the border and from those behind it, and
//! the rehash begins again. Moving a key twice is harmless: a version that the new chain already
//! holds stays, even if it is a tombstone.

mod turns;

use core::ops::Range;
use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Media, WORD};

use super::directory::{Side, Slot, directory_of};
use super::layout::{Directory, Kind, Link, MOST_LEVEL, Tag};
use super::logs::{Object, corrupt};
use super::moving::Moving;
use super::object::Content;
use super::reserve::Purpose;
use super::state::{Area, Counted, Log, NewInfo, OpenLog, Rehash, State, Walsh};
pub use turns::Effort;

/// Where a rehash persists, and where a crash is worth trying.
pub mod sites {
    everhash_pmem::sites! {
        /// The directories are set aside.
        SET_ASIDE = "walsh/rehash/set-aside";
        /// Every chain was moved.
        MOVED = "walsh/rehash/moved";
    }
}

/// Directories that a step rehashes at most while it holds the lock.
///
/// Unit: directories. Source: ours; about sixty objects, some microseconds.
pub(super) const MOST_STEP: u64 = 16;

/// Bytes of objects after which a step ends: with long values it moves fewer chains.
///
/// Unit: bytes. Source: ours; some tens of microseconds. Chains of words never come near it.
const MOST_STEP_BYTES: u64 = 64 << 10;

/// Bytes of objects that were moved before, after which a step ends. After a recovery a rehash
/// begins again; its first step goes past what it has moved, however many directories that are.
///
/// Unit: bytes. Source: ours; tens of milliseconds for short pairs, once. Otherwise a rehash does
/// not end where each process is killed after a few writes.
const MOST_PASSED_BYTES: u64 = 16 << 20;

/// Empty directories that a step skips for each chain that it may move. An area with few long
/// values has many empty directories, and each write should advance its rehash.
///
/// Unit: directories. Source: ours; less work than a chain is.
const EMPTY_OF_STEP: u64 = 16;

/// The load, as a part of the threshold, up to which an area is only collected and not doubled.
/// Above it, garbage would build up again at once, and the area would be collected all the time.
///
/// Source: ours; with 3 of 4, a collection is paid for by one write per directory at least.
const LIVE_OF_THRESHOLD: (u64, u64) = (3, 4);

/// Receives the key, the value and the kind of an object.
pub(super) type Visit<'v> = dyn FnMut(&[u8], &[u8], Kind) + 'v;

impl<M: Media> Walsh<M> {
    /// Phase 1; returns whether there was room for it.
    pub(super) fn begin(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
    ) -> Result<bool> {
        was_there_room(self.set_aside(pm, area, state, purpose))
    }

    /// Phases 2 and 3 for some directories, and phase 4 after the last; returns whether there was
    /// room for them.
    pub(super) fn step(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        count: u64,
    ) -> Result<bool> {
        was_there_room(self.move_chains(pm, area, state, purpose, count))
    }

    /// Sets the directories aside. The number of live pairs decides whether the new ones double.
    fn set_aside(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
    ) -> Result<()> {
        let old = state.view.level();
        let (part, whole) = LIVE_OF_THRESHOLD;
        let most = self.limit(area, state) * part / whole;
        let level = if state.items > most { (old + 1).min(MOST_LEVEL) } else { old };
        self.open_border(pm, area, state, purpose)?;
        // The new log must be reachable before an info names a border in front of it.
        self.flush(pm, area, state)?;
        let border = state.open.as_ref().map_or(1, |log| log.number);
        let end = border.wrapping_sub(1);
        // The oldest log stays.
        let new = NewInfo { end, levels: [level, old], ..state.info };
        self.write_info(pm, area, state, &new)?;
        pm.mark(sites::SET_ASIDE);
        let view = state.view.next(level, Some(old));
        state.chained = 0;
        state.rehash = Some(Rehash::begun(end, state.counted()));
        area.show(state, view);
        Ok(())
    }

    /// Moves the chains of some of the old directories.
    fn move_chains(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        count: u64,
    ) -> Result<()> {
        let Some(rehash) = state.rehash else { return Ok(()) };
        let old = state.view.old().unwrap_or(0);
        let most =
            |next: u64| next.saturating_add(count.saturating_mul(EMPTY_OF_STEP)).min(1 << old);
        let mut end = if rehash.is_again { 1 << old } else { most(rehash.next) };
        let (mut moving, mut chains, mut bytes, mut passed) = (Moving::default(), 0, 0, 0);
        let mut directory = rehash.next;
        while directory < end
            && chains < count
            && bytes <= MOST_STEP_BYTES
            && passed <= MOST_PASSED_BYTES
        {
            if directory % MOST_STEP == 0 || directory == rehash.next {
                self.fetch_chains(pm, area, state, directory..end.min(directory + MOST_STEP));
            }
            let (found, moved) =
                self.move_chain(pm, area, state, purpose, directory, &mut moving)?;
            directory += 1;
            let Some(rehash) = &mut state.rehash else { break };
            rehash.next = directory;
            rehash.found = rehash.found.plus(found);
            rehash.left = rehash.left.map(|left| left.minus(moved));
            if rehash.is_again && moved.items == 0 {
                passed += found.item_bytes;
                continue;
            }
            if rehash.is_again {
                (rehash.is_again, end) = (false, most(directory));
            }
            chains += u64::from(found.items > 0);
            bytes += found.item_bytes;
        }
        match directory < 1 << old {
            true => Ok(()),
            false => self.finish(pm, area, state, rehash.end),
        }
    }

    /// Prefetches the objects of some old chains, all chains side by side, so that their cache
    /// misses overlap.
    fn fetch_chains(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &State,
        directories: Range<u64>,
    ) {
        let set_aside = &area.sides[1 - state.view.side()];
        let mut heads = [Addr::NULL; MOST_STEP as usize];
        for (head, directory) in heads.iter_mut().zip(directories) {
            *head = self.blocks.read(set_aside, directory).head();
            pm.prefetch(*head);
        }
        // The last objects of unusually long chains are not prefetched.
        for _ in 0..2 * self.settings.threshold {
            for head in heads.iter_mut().filter(|head| !head.is_null()) {
                // The walk that follows validates the link.
                *head = pm.load(*head).map_or(Addr::NULL, Link::next_of);
                pm.prefetch(*head);
            }
        }
    }

    /// Appends the newest version of each key of an old chain, unless the new chain has a newer
    /// one. Objects of one new chain are appended next to each other, so that a search often finds
    /// the second object in the cache line of the first. Returns the live pairs of the old chain,
    /// and those of them that were moved.
    fn move_chain(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        directory: u64,
        moving: &mut Moving,
    ) -> Result<(Counted, Counted)> {
        let set_aside = &area.sides[1 - state.view.side()];
        self.take_chain(pm, set_aside, directory, moving)?;
        let (mut found, mut moved) = (Counted::default(), Counted::default());
        // Doubling splits a chain by the lowest bit of the directory number.
        for half in 0..2 {
            for (hash, content) in moving.live() {
                let number = directory_of(hash, state.view.level());
                if number % 2 == half {
                    let words = self.objects.words(&content);
                    found.add(words);
                    if self.move_pair(pm, area, state, purpose, (hash, number), content)? {
                        moved.add(words);
                    }
                }
            }
        }
        Ok((found, moved))
    }

    /// Reads the newest version of each key of a chain.
    #[inline(always)]
    fn take_chain(
        &self,
        pm: &Access<'_, M>,
        side: &Side<M::Sync>,
        directory: u64,
        moving: &mut Moving,
    ) -> Result<()> {
        moving.clear();
        let head = self.blocks.read(side, directory).head();
        self.along(head, |at| moving.take(self, pm, at))
    }

    /// Appends a pair to its new chain, unless its key is there; returns whether it does.
    #[inline(always)]
    fn move_pair(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        purpose: Purpose,
        (hash, number): (u64, u64),
        content: Content<'_>,
    ) -> Result<bool> {
        let slot = self.blocks.slot(&area.sides[state.view.side()], number);
        let present = slot.map_or_else(Directory::default, Slot::read);
        if self.is_there(pm, present.start(hash), &content)? {
            return Ok(false);
        }
        let link = Link { next: present.head(), kind: Kind::Moved, tag: Tag::of(hash) };
        let at = self.append(pm, area, state, purpose, &Object { hash, link, content })?;
        self.make_head(area, state, slot, present.with(hash, at), (hash, at))?;
        state.chained += 1;
        Ok(true)
    }

    /// Returns whether a chain has an object of a key.
    #[inline(always)]
    fn is_there(&self, pm: &Access<'_, M>, start: Addr, content: &Content<'_>) -> Result<bool> {
        let mut is_there = false;
        if !start.is_null() {
            content.with_key(|key| {
                self.walk(pm, start, &mut |other, _, _| is_there |= other == key)
            })?;
        }
        Ok(is_there)
    }

    /// Counts the live pairs of an area anew if blind writes have made their count a guess, and
    /// what a rehash under way still has to move. For a collection of the area, which takes longer.
    #[cold]
    pub(super) fn count_anew(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<()> {
        if state.is_exact() && state.rehash.is_none_or(|rehash| rehash.left.is_some()) {
            return Ok(());
        }
        let view = state.view;
        let newest = &area.sides[view.side()];
        let (mut moving, mut live) = (Moving::default(), Counted::default());
        for directory in 0..1 << view.level() {
            self.take_chain(pm, newest, directory, &mut moving)?;
            moving.live().for_each(|(_, content)| live.add(self.objects.words(&content)));
        }
        if let Some(rehash) = &mut state.rehash {
            let set_aside = &area.sides[1 - view.side()];
            let (mut found, mut left) = (Counted::default(), Counted::default());
            for directory in rehash.next..1 << view.old().unwrap_or(0) {
                self.take_chain(pm, set_aside, directory, &mut moving)?;
                for (hash, content) in moving.live() {
                    let words = self.objects.words(&content);
                    let present = self.blocks.read(newest, directory_of(hash, view.level()));
                    found.add(words);
                    if !self.is_there(pm, present.start(hash), &content)? {
                        left.add(words);
                    }
                }
            }
            rehash.before = rehash.found.plus(found);
            rehash.left = Some(left);
            live = live.plus(left);
        }
        (state.items, state.item_bytes) = (live.items, live.item_bytes);
        state.is_counted = true;
        Ok(())
    }

    /// Visits the objects of a chain, newest first. The caller holds the area's lock.
    pub(super) fn walk(&self, pm: &Access<'_, M>, head: Addr, visit: &mut Visit<'_>) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.along(head, |at| {
            let found = self.objects.read(pm, at, &mut key, &mut value)?;
            visit(&key, &value, found.link.kind);
            Ok(found.link.next)
        })
    }

    /// Visits the addresses of the objects of a chain; each visit returns the next address.
    #[inline(always)]
    fn along(&self, head: Addr, mut visit: impl FnMut(Addr) -> Result<Addr>) -> Result<()> {
        let mut at = head;
        // A chain has no more objects than the medium has words.
        for _ in 0..self.pool.region().media().bytes() / WORD {
            if at.is_null() {
                return Ok(());
            }
            at = visit(at)?;
        }
        Err(corrupt(head, "a chain of objects ends"))
    }

    /// Phase 4. The copies are durable before the info drops the logs they came from.
    fn finish(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        end: u64,
    ) -> Result<()> {
        self.flush(pm, area, state)?;
        pm.mark(sites::MOVED);
        let view = state.view.settled();
        let new = NewInfo {
            start: end.wrapping_add(1),
            end: 0,
            levels: [view.level(), 0],
            estimated: state.info.estimated,
        };
        self.write_info(pm, area, state, &new)?;
        let set_aside = (1 - state.view.side(), state.view.old().unwrap_or(0));
        area.show(state, view);
        if let Some(rehash) = state.rehash.take() {
            state.recount(&rehash);
        }
        self.give_logs(state, end)?;
        state.rehashed = state.extent();
        self.blocks.clear(&area.sides[set_aside.0], set_aside.1)?;
        self.rehashes.fetch_add(1, Ordering::Relaxed);
        self.end_turn(area);
        Ok(())
    }

    /// Removes every pair of an area without taking space: an info names as the oldest log one that
    /// does not exist yet.
    ///
    /// A crash inside leaves all pairs or none.
    pub(super) fn clear_area(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<()> {
        let Some(OpenLog { number, span, count, .. }) = state.open else { return Ok(()) };
        let view = state.view;
        let new = NewInfo {
            start: number.wrapping_add(1),
            end: 0,
            levels: [view.level(), 0],
            estimated: false,
        };
        self.write_info(pm, area, state, &new)?;
        // The log that the tail names will be reused soon.
        self.forget_logs(pm, area)?;
        // The next side may be the old one: no reader may see it half empty.
        area.show(state, view.closed());
        self.blocks.clear(&area.sides[view.side()], view.level())?;
        self.blocks.clear(&area.sides[1 - view.side()], view.old().unwrap_or(0))?;
        state.logs.push_back(Log { number, span, count });
        (state.open, state.rehash) = (None, None);
        (state.items, state.item_bytes, state.chained) = (0, 0, 0);
        self.end_turn(area);
        area.show(state, view.next(view.level(), None));
        self.give_logs(state, number)
    }
}

/// Returns whether a step of a rehash was done. Lack of space is no error: the step waits for it,
/// and the write that triggered the step is complete.
fn was_there_room(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Err(Error::Full { .. }) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
