//! What is done for all areas: clearing them, making them durable, and looking after them.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Result, Upkeep};
use everhash_pmem::{AtomicWord, Media};

use super::state::Walsh;

impl<M: Media> Walsh<M> {
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
            drop(state);
            self.help(&pm)?;
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
