//! Work that should not burden a write: ending epochs, collecting ahead of need.

use core::time::Duration;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Lock, Media};

use super::checkpoint::Moment;
use super::collection::{Collected, STEP, UPKEEP};
use super::state::Reef;

/// How many pairs a step of a collection counts as in the budget of a call.
///
/// Unit: pairs. Source: ours; about as many of usual lengths are in one.
const STEP_PAIRS: u32 = 64;

impl<M: Media> Reef<M> {
    /// As [`everhash_index::Table::maintain`].
    pub(super) fn upkeep(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        if !self.pool.writable() {
            return Ok(Upkeep::default());
        }
        let mut left = budget.div_ceil(STEP_PAIRS).max(1);
        let mut more = false;
        for number in 0..self.streams.len() {
            while left > 0 && self.collect_some(number)? {
                left -= 1;
            }
            more |= left == 0;
        }
        self.checkpoint_if_due(Moment::Upkeep)?;
        // What was written just after a visit is seen at the next one, half an interval later.
        let half = Duration::from_millis(self.settings.flush_interval_ms) / 2;
        let is_dirty = self.age_epoch(now, half)?;
        let deadline = is_dirty.then_some(now.saturating_add(half));
        Ok(Upkeep { deadline, more })
    }

    fn collect_some(&self, number: usize) -> Result<bool> {
        match self.collect_stream(number, UPKEEP, STEP) {
            // Writers will see to it.
            Err(Error::Full { .. }) => Ok(false),
            outcome => Ok(outcome? != Collected::Nothing),
        }
    }

    /// Makes everything durable, twice: either commit record is then enough for the next opening.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn settle(&self) -> Result<()> {
        self.checkpoint_if_due(Moment::Close)?;
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        self.commit_next(&mut epochs)?;
        self.commit_next(&mut epochs)
    }
}
