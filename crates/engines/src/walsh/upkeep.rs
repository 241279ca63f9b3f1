//! What is done for all areas: clearing them, making them durable, and looking after them.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Result, Upkeep};
use everhash_pmem::{AtomicWord, Media};

use super::state::{Left, Walsh};

/// How many times as much room as was taken between two calls is made for the next ones.
///
/// Unit: none. Source: ours; the calls come every 10 ms while there are writes, and a call that
/// makes a batch durable takes ten times as long.
const AHEAD: u64 = 32;

/// When upkeep comes again after it could do nothing because others held the areas: at once, it
/// would take a processor from those that it waits for.
///
/// Unit: time. Source: ours; as seldom as it comes while there are writes.
const HELD: Duration = Duration::from_millis(10);

impl<M: Media> Walsh<M> {
    /// Removes every pair: area by area, each in one step.
    pub(super) fn clear(&self) -> Result<()> {
        let pm = self.pool.access();
        for area in &self.areas {
            let mut state = self.lock_to_write(area)?;
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
            true => self.poison_on_error(pm.sync(super::logs::sites::SYNC)),
            // The fences have waited for everything.
            false => Ok(()),
        }
    }

    /// Flushes what is old, and goes on with rehashes.
    pub(super) fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        if !self.pool.writable() {
            return Ok(Upkeep::default());
        }
        self.reserve_ahead()?;
        // What was written just after a visit is seen at the next one, half an interval later.
        let half = Duration::from_millis(self.settings.flush_interval_ms) / 2;
        let is_dirty = match self.is_grouped {
            true => !self.is_relaxed && self.age_epoch(now, half)?,
            false => self.age_areas(now, half)?,
        };
        let left = self.maintain_areas(budget.max(1))?;
        let waits = [is_dirty.then_some(half), (left == Left::Held).then_some(HELD)];
        let deadline = waits.into_iter().flatten().min().map(|time| now.saturating_add(time));
        Ok(Upkeep { deadline, more: left == Left::Steps })
    }

    /// Goes on with the rehashes of up to `budget` areas, and begins those that are due. All areas
    /// are looked at, because nobody calls again once none has anything to do.
    fn maintain_areas(&self, budget: u32) -> Result<Left> {
        let pm = self.pool.access();
        let count = self.areas.len() as u64;
        let (mut steps, mut is_held) = (0, false);
        for _ in 0..count {
            let number = self.upkeep.fetch_add(1, Ordering::Relaxed) % count;
            let area = &self.areas[number as usize];
            let left = match area.is_awaited() {
                // Writers that wait for an area go first.
                true => Left::Held,
                false => self.maintain_area(&pm, area, &mut *self.lock(area)?)?,
            };
            if left == Left::Nothing {
                continue;
            }
            match self.help(&pm)? || left == Left::Steps {
                true => steps += 1,
                false => is_held = true,
            }
            if steps == budget {
                break;
            }
        }
        Ok(match (steps, is_held) {
            (0, false) => Left::Nothing,
            (0, true) => Left::Held,
            _ => Left::Steps,
        })
    }

    /// Lets the medium grow before a write has to wait for that: by what the next logs take if they
    /// come as fast as those since the last call. A full medium is no error here.
    fn reserve_ahead(&self) -> Result<()> {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.fetch_sub(taken, Ordering::Relaxed);
        let usage = self.space.usage()?;
        // The medium grows by a quarter at a time: more would be twice that.
        let ahead = (taken * AHEAD).min(usage.used_bytes / 4) + self.reserve_bytes()?;
        if taken == 0 || usage.free_bytes >= ahead {
            return Ok(());
        }
        match self.space.reserve_ahead(ahead) {
            Err(everhash_pmem::Error::Full { .. }) => Ok(()),
            outcome => Ok(outcome?),
        }
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
