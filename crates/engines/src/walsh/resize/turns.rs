//! Turns: one area is rehashed at a time (3.2.1), a step of it with every write.
//!
//! Every write, to whatever area, does one step for the area whose turn it is. So no writer waits
//! for a whole rehash, and other areas that are due wait for their turn. Two generations of logs
//! exist for one area at a time, however many areas grow alike. An area that cannot wait, because
//! many threads write to it, also gets steps from its own writers.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, AtomicWord, Lock, Media};

use super::MOST_STEP;
use crate::walsh::reserve::Purpose;
use crate::walsh::state::{Area, GuardOf, Left, State, Walsh};

/// The part of a block of directories that one step rehashes.
///
/// Unit: none. Source: ours; with the smallest blocks a step is one directory, so that every judge
/// meets an unfinished rehash.
const STEP_OF_BLOCK: u64 = 2;

/// The length of an area's chains, as a multiple of the allowed length, above which its own writers
/// rehash it without waiting for its turn.
///
/// Unit: none. Source: ours (twice the paper's threshold, before searches are much slower).
const OUTRUN_CHAINS: u64 = 2;

/// The same limit for the objects in its logs.
///
/// Unit: none. Source: ours; a rehash is due at two. The limit bounds the logs, and with them the
/// time of a recovery.
const OUTRUN_LOGS: u64 = 4;

/// The length of an area's logs, as a multiple of its live bytes, above which its writers collect
/// it.
///
/// Unit: none. Source: ours; at most two thirds are garbage then, and a collection moves at most
/// half as many bytes as were written since the one before.
const DUE_BYTES: u64 = 3;

/// The same limit for upkeep, for which no writer waits.
const UPKEEP_BYTES: u64 = 2;

/// The same limit, above which the writers of an area do not wait for its turn.
const OUTRUN_BYTES: u64 = 5;

/// Garbage that is not worth a collection.
///
/// Unit: logs. Source: ours; one that is being filled, the one before it, and some for the rounding
/// of a small area.
const FREE_LOGS: u64 = 4;

/// Passes over all areas to make room: one collection may need what another has freed.
///
/// Unit: none. Source: ours; a pass that collects nothing is the last.
const PASSES: u32 = 3;

/// The part of a limit by which the limits of the first and the last area differ.
///
/// Unit: none. Source: ours; areas grow alike, and without a difference all become due within a few
/// writes: 64 rehashes then follow one another. With a larger part some areas would have longer
/// chains than the paper's.
const STAGGER: u64 = 16;

/// How much is done to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Areas are collected that have enough garbage.
    Garbage,
    /// The other areas, too, once, so that free space becomes contiguous.
    Compact,
    /// All areas whose collection frees any room.
    Everything,
}

impl<M: Media> Walsh<M> {
    /// Returns how many old directories one step rehashes.
    fn step_directories(&self) -> u64 {
        (self.settings.block_directories / STEP_OF_BLOCK).clamp(1, MOST_STEP)
    }

    /// Returns whether an area needs maintenance after a write: a rehash is due or running.
    #[inline(always)]
    pub(crate) fn needs_maintenance(&self, area: &Area<M>, state: &State) -> bool {
        state.rehash.is_some() || self.is_due(area, state)
    }

    /// Returns how many objects the chains of an area may have: what the threshold allows, averaged
    /// over all areas.
    #[inline(always)]
    pub(super) fn limit(&self, area: &Area<M>, state: &State) -> u64 {
        let limit = self.settings.threshold << state.view.level();
        let (areas, share) = (self.areas.len() as u64, limit / STAGGER);
        // Their number is a power of two, and every write asks.
        let level = areas.trailing_zeros();
        limit - ((share * (areas - 1)) >> (level + 1)) + ((share * area.number) >> level)
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
        if now.log_bytes <= now.live_bytes.saturating_mul(times) + FREE_LOGS * self.ordinary.bytes {
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
            // Without the four phases: everything while the lock is held.
            while self.advance(pm, area, &mut state, true)? {}
            return Ok(());
        }
        // A rehash that began without a turn continues without one: no other writer helps.
        if self.take_turn(area) || state.rehash.is_some() || self.is_outrun(&state) {
            let is_due = self.is_due(area, &state);
            return self.advance(pm, area, &mut state, is_due).map(drop);
        }
        drop(state);
        self.help(pm).map(drop)
    }

    /// Does a step for the area whose turn it is, if there is one and no other thread does; returns
    /// whether it did.
    #[inline(always)]
    pub(crate) fn help(&self, pm: &Access<'_, M>) -> Result<bool> {
        match self.turn.load(Ordering::Relaxed) {
            0 => Ok(false),
            turn => self.help_area(pm, &self.areas[turn as usize - 1]),
        }
    }

    #[cold]
    fn help_area(&self, pm: &Access<'_, M>, area: &Area<M>) -> Result<bool> {
        if area.is_awaited() {
            return Ok(false);
        }
        // If that area is poisoned, its own writers get the error.
        let Ok(Some(mut state)) = area.state.try_lock() else { return Ok(false) };
        self.alive()?;
        pm.locked(area.number);
        let outcome = self.advance(pm, area, &mut state, false);
        pm.unlocking(area.number);
        outcome.map(|_| true)
    }

    /// Gives an area the turn if no other has it; returns whether the area has it. The caller holds
    /// the area's lock.
    fn take_turn(&self, area: &Area<M>) -> bool {
        let taken =
            self.turn.compare_exchange(0, area.number + 1, Ordering::Relaxed, Ordering::Relaxed);
        taken.map_or_else(|turn| turn == area.number + 1, |_| true)
    }

    /// Ends an area's turn, if it has it. The caller holds the area's lock.
    pub(crate) fn end_turn(&self, area: &Area<M>) {
        let (relaxed, turn) = (Ordering::Relaxed, area.number + 1);
        // Only the area that has the turn ends it.
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

    /// Continues a rehash, or collects an area that is more than half garbage, if the area has the
    /// turn.
    pub(crate) fn maintain_area(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
    ) -> Result<Left> {
        if self.settings.resize == 0 {
            return Ok(Left::Nothing);
        }
        let garbage = state.stored - state.items.min(state.stored);
        let is_worth = garbage > state.items.saturating_add(2 * self.settings.log_entries);
        let begins = is_worth || self.has_garbage(state, UPKEEP_BYTES) || self.is_due(area, state);
        if state.rehash.is_none() && !begins {
            return Ok(Left::Nothing);
        }
        if !self.take_turn(area) {
            return Ok(Left::Held);
        }
        let remains = self.advance(pm, area, state, begins)?;
        Ok(if remains { Left::Steps } else { Left::Nothing })
    }

    /// Returns whether collecting an area makes room: a rehash is to be ended, or an eighth is
    /// garbage.
    pub(crate) fn is_collectable(&self, state: &State) -> bool {
        let most = self.settings.log_entries.min(state.items / 8 + 2);
        let garbage = state.stored.saturating_sub(state.items);
        // Long objects are few: their bytes count.
        let is_long =
            garbage > 0 && state.long_bytes > state.item_bytes / 8 * 9 + self.ordinary.bytes;
        state.rehash.is_some() || garbage >= most || is_long
    }

    /// Begins to collect an area under its lock, if there is room for the whole collection, or
    /// `probably` is; returns whether a collection or an earlier rehash can now run to its end.
    ///
    /// The caller holds `rescue`.
    pub(crate) fn begin_to_collect(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        probably: bool,
    ) -> Result<bool> {
        if self.settings.resize == 0 || state.open.is_none() {
            return Ok(false);
        }
        self.count_anew(pm, area, state)?;
        if !self.has_room_to_collect(state, probably)? {
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

    /// Makes room: frees what waits for an epoch, and collects areas. Returns whether there was
    /// anything to try.
    ///
    /// The caller holds `rescue`, and no lock of an area.
    pub(crate) fn make_room(&self, effort: Effort) -> Result<bool> {
        if effort == Effort::Compact && !self.begin_compaction()? {
            return Ok(false);
        }
        let pm = self.pool.access();
        self.end_retired()?;
        for _ in 0..PASSES {
            let mut any = false;
            for area in &self.areas {
                let mut state = self.lock(area)?;
                let is_wanted = match effort {
                    Effort::Garbage => self.is_collectable(&state),
                    // It may leave less room than there was.
                    Effort::Compact => self.is_collectable(&state) || self.is_reserve_whole()?,
                    Effort::Everything => {
                        self.count_anew(&pm, area, &mut state)?;
                        self.frees_room(&state)
                    }
                };
                let probably = effort == Effort::Everything;
                if is_wanted
                    && self.begin_to_collect(&pm, area, &mut state, probably)?
                    && self.end_to_collect(&pm, area, &mut state)?
                {
                    any = true;
                    drop(state);
                    self.end_retired()?;
                }
            }
            if effort == Effort::Compact || !any {
                break;
            }
        }
        self.measure_need()?;
        Ok(true)
    }
}
