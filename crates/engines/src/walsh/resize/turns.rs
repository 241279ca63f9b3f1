//! Turns: one area is rehashed at a time (3.2.1), a step of it with every write.
//!
//! The area whose turn it is gets a step from whoever writes, to whatever area: no writer waits for
//! a whole rehash, and the others that are due wait for their turn. So there is room for two
//! generations of one area only, however many have grown alike. An area that cannot wait, because
//! many threads write to it, gets steps from its own writers beside that.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, AtomicWord, Lock, Media};

use super::MOST_STEP;
use crate::walsh::reserve::Purpose;
use crate::walsh::state::{Area, GuardOf, State, Walsh};

/// Part of a block of directories whose chains are moved under one hold of the lock.
///
/// Unit: none. Source: ours; with the smallest blocks a step is one directory, so that every judge
/// meets a rehash half done.
const STEP_OF_BLOCK: u64 = 2;

/// Objects in the chains of an area, as a multiple of those that they may have, from which on its
/// own writers rehash it without waiting for its turn.
///
/// Unit: none. Source: ours (twice the paper's threshold, before searches are much slower).
const OUTRUN_CHAINS: u64 = 2;

/// The same for the objects in its logs.
///
/// Unit: none. Source: ours; a rehash is due at two. With it neither logs nor what recovery reads
/// of them can grow without bound.
const OUTRUN_LOGS: u64 = 4;

/// Length of an area's logs, as a multiple of what its live pairs need, from which on its writers
/// collect it.
///
/// Unit: none. Source: ours; so at most two thirds are garbage, and collecting moves at most half
/// as many bytes as were written since the last time.
const DUE_BYTES: u64 = 3;

/// The same for upkeep, which nobody waits for.
const UPKEEP_BYTES: u64 = 2;

/// The same from which on the writers of an area do not wait for its turn.
const OUTRUN_BYTES: u64 = 5;

/// Ordinary logs of garbage that are not worth a collection.
///
/// Unit: logs. Source: ours; one that is being filled, the one before it, and some for the rounding
/// of a small area.
const FREE_LOGS: u64 = 4;

/// How often all areas are looked at to make room: what one collection frees, another may need.
///
/// Unit: none. Source: ours; a pass that collects nothing is the last.
const PASSES: u32 = 3;

/// Part of the limit by which those of the first and the last area differ.
///
/// Unit: none. Source: ours; areas grow alike, and without it all are due within a few writes of
/// each other: searches and writes then meet 64 rehashes in a row. With a larger part the chains of
/// some areas would be longer than the paper's.
const STAGGER: u64 = 16;

impl<M: Media> Walsh<M> {
    /// Returns how many old directories are rehashed under one hold of the lock.
    fn step_directories(&self) -> u64 {
        (self.settings.block_directories / STEP_OF_BLOCK).clamp(1, MOST_STEP)
    }

    /// Returns whether a write has to look after its area: a rehash is due, or under way.
    #[inline(always)]
    pub(crate) fn needs_maintenance(&self, area: &Area<M>, state: &State) -> bool {
        state.rehash.is_some() || self.is_due(area, state)
    }

    /// Returns how many objects the chains of an area may have: on the average of all areas as many
    /// as the threshold allows.
    #[inline(always)]
    pub(super) fn limit(&self, area: &Area<M>, state: &State) -> u64 {
        let limit = self.settings.threshold << state.view.level();
        let (areas, share) = (self.areas.len() as u64, limit / STAGGER);
        limit - share * (areas - 1) / (2 * areas) + share * area.number / areas
    }

    /// Returns whether an area's chains are too long, or its logs too full of garbage.
    #[inline(always)]
    fn is_due(&self, area: &Area<M>, state: &State) -> bool {
        let limit = self.limit(area, state);
        self.settings.resize > 0
            && (state.chained > limit
                || state.stored > 2 * limit
                || self.has_garbage(state, DUE_BYTES))
    }

    /// Returns whether an area's logs are longer than so many times what is alive, and a quarter
    /// of either has changed since the last rehash: what that left cannot be collected.
    #[inline(always)]
    fn has_garbage(&self, state: &State, times: u64) -> bool {
        let now = state.extent();
        if now.log_bytes <= now.live_bytes.saturating_mul(times) + FREE_LOGS * self.log_bytes() {
            return false;
        }
        let has_changed = |now: u64, before: u64| now.abs_diff(before) > before / 4;
        has_changed(now.log_bytes, state.rehashed.log_bytes)
            || has_changed(now.live_bytes, state.rehashed.live_bytes)
    }

    fn is_outrun(&self, state: &State) -> bool {
        let limit = self.settings.threshold << state.view.level();
        state.chained > OUTRUN_CHAINS * limit
            || state.stored > OUTRUN_LOGS * limit
            || self.has_garbage(state, OUTRUN_BYTES)
    }

    /// Does what is due after a write to an area that needs maintenance.
    #[cold]
    pub(crate) fn maintain_after_write<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        mut state: GuardOf<'a, M>,
    ) -> Result<()> {
        if self.settings.resize == 1 {
            // Without the four phases: all under one hold of the lock.
            while self.advance(pm, area, &mut state, true)? {}
            return Ok(());
        }
        // What began without a turn goes on without one: nobody else helps.
        if self.take_turn(area) || state.rehash.is_some() || self.is_outrun(&state) {
            let is_due = self.is_due(area, &state);
            return self.advance(pm, area, &mut state, is_due).map(drop);
        }
        drop(state);
        self.help(pm)
    }

    /// Does a step of the rehash whose turn it is, if there is one and nobody else is at it.
    #[inline(always)]
    pub(crate) fn help(&self, pm: &Access<'_, M>) -> Result<()> {
        match self.turn.load(Ordering::Relaxed) {
            0 => Ok(()),
            turn => self.help_area(pm, &self.areas[turn as usize - 1]),
        }
    }

    #[cold]
    fn help_area(&self, pm: &Access<'_, M>, area: &Area<M>) -> Result<()> {
        // If it is poisoned, its own writers hear of it.
        let Ok(Some(mut state)) = area.state.try_lock() else { return Ok(()) };
        self.alive()?;
        pm.locked(area.number);
        let outcome = self.advance(pm, area, &mut state, false);
        pm.unlocking(area.number);
        outcome.map(drop)
    }

    /// Lets it be an area's turn if it is no other's; returns whether it is. The caller holds the
    /// area's lock.
    fn take_turn(&self, area: &Area<M>) -> bool {
        let taken =
            self.turn.compare_exchange(0, area.number + 1, Ordering::Relaxed, Ordering::Relaxed);
        taken.map_or_else(|turn| turn == area.number + 1, |_| true)
    }

    /// Ends an area's turn, if it has it. The caller holds the area's lock.
    pub(crate) fn end_turn(&self, area: &Area<M>) {
        let (relaxed, turn) = (Ordering::Relaxed, area.number + 1);
        // Another's turn is not this one's to end.
        let _ = self.turn.compare_exchange(turn, 0, relaxed, relaxed);
    }

    /// Begins a rehash, if `begins` and none is under way, and does a step of it; returns whether
    /// steps remain. Pauses when space is exhausted, and ends the area's turn: every step leaves
    /// the reserve whole, so that the area can be collected whatever the next one begins.
    fn advance(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        begins: bool,
    ) -> Result<bool> {
        let has_room = match state.rehash {
            None if begins => self.begin(pm, area, state, Purpose::Move),
            _ => Ok(true),
        };
        let outcome = match has_room {
            Ok(true) => self.step(pm, area, state, Purpose::Move, self.step_directories()),
            outcome => outcome,
        };
        let remains = matches!(outcome, Ok(true)) && state.rehash.is_some();
        if !remains {
            self.end_turn(area);
        }
        outcome.map(|_| remains)
    }

    /// Goes on with a rehash, or collects an area of which more than half is garbage, if it is its
    /// turn; returns whether there is more to do.
    pub(crate) fn maintain_area(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<bool> {
        if self.settings.resize == 0 {
            return Ok(false);
        }
        let garbage = state.stored - state.items.min(state.stored);
        let is_worth = garbage > state.items.saturating_add(2 * self.settings.log_entries);
        let begins = is_worth || self.has_garbage(state, UPKEEP_BYTES) || self.is_due(area, state);
        match state.rehash.is_some() || begins {
            true if self.take_turn(area) => self.advance(pm, area, state, begins),
            is_wanted => Ok(is_wanted),
        }
    }

    /// Returns whether collecting an area makes room: a rehash is to be ended, or an eighth is
    /// garbage.
    pub(crate) fn is_collectable(&self, state: &State) -> bool {
        let most = self.settings.log_entries.min(state.items / 8 + 2);
        let garbage = state.stored.saturating_sub(state.items);
        // Long objects are few: what counts is their room.
        let is_long = garbage > 0 && state.long_bytes > state.item_bytes / 8 * 9 + self.log_bytes();
        state.rehash.is_some() || garbage >= most || is_long
    }

    /// Begins to collect an area under its lock, with all the room there is; returns whether it
    /// did, or has been rehashed before and can be so to the end. It begins only if there is room
    /// for all of it.
    ///
    /// The caller holds `rescue`.
    pub(crate) fn begin_to_collect(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<bool> {
        if self.settings.resize == 0 || state.open.is_none() || !self.has_room_to_collect(state)? {
            return Ok(false);
        }
        match state.rehash {
            None => self.begin(pm, area, state, Purpose::Collect),
            Some(_) => Ok(true),
        }
    }

    /// Ends what [`Walsh::begin_to_collect`] has begun; returns whether there was room for it.
    pub(crate) fn end_to_collect(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<bool> {
        while state.rehash.is_some() {
            if !self.step(pm, area, state, Purpose::Collect, u64::MAX >> 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes room: frees what waits for an epoch, and collects every area that has garbage enough;
    /// to `compact`, the other areas too, once, so that free room comes together. Returns whether
    /// there was anything to try.
    ///
    /// The caller holds `rescue`, and no lock of an area.
    pub(crate) fn make_room(&self, compact: bool) -> Result<bool> {
        if compact && !self.begin_compaction()? {
            return Ok(false);
        }
        let pm = self.pool.access();
        self.end_retired()?;
        for _ in 0..PASSES {
            let mut any = false;
            for area in &self.areas {
                let mut state = self.lock(area)?;
                if (compact || self.is_collectable(&state))
                    && self.begin_to_collect(&pm, area, &mut state)?
                    && self.end_to_collect(&pm, area, &mut state)?
                {
                    any = true;
                    drop(state);
                    self.end_retired()?;
                }
            }
            if compact || !any {
                break;
            }
        }
        self.measure_need()?;
        Ok(true)
    }
}
