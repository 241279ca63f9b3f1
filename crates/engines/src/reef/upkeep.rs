//! Work that should not burden a write: ending epochs, collecting ahead of need, giving storage
//! back.

use core::time::Duration;

use core::sync::atomic::Ordering;
use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{AtomicWord, Lock, Media};

use super::checkpoint::Moment;
use super::collection::{AHEAD, AT_REST, Collected, STEP};
use super::directory::damaged;
use super::state::Reef;

/// How many pairs a step of a collection counts as in the budget of a call.
///
/// Unit: pairs. Source: ours; about as many of usual lengths are in one.
const STEP_PAIRS: u32 = 64;

/// The part of the room in use that may be free and keep its storage while nobody writes.
///
/// Source: ours; with what upkeep leaves in segments, a file at rest has 1.3 times its pairs.
const SPARE: u64 = 16;

/// The part of it that may be while somebody writes.
///
/// Source: ours; where pairs are only overwritten, so much is never free.
const SPARE_OF_WRITERS: u64 = 4;

/// For how long nothing is written to a table at rest, at most.
///
/// Source: ours; what is collected then would have become garbage by itself while somebody writes.
const REST: Duration = Duration::from_secs(1);

/// How much storage a step gives back at most.
///
/// Unit: bytes. Source: ours; the system holds up faults of the file for some milliseconds.
const GIVEN_BACK: u64 = 16 << 20;

/// How often some is given back beside writers.
const GIVING_BACK: Duration = Duration::from_millis(10);

/// Of the storage that writers do not need, this part is given back each time.
///
/// Source: ours; half of it is gone in 28 seconds, and next to nothing of what pairs leave that
/// come and go more often.
const GIVEN_BACK_BESIDE_WRITERS: u64 = 4096;

/// How much that is at least.
///
/// Unit: bytes. Source: ours; a fault of the file waits for a fraction of a millisecond.
const LEAST_GIVEN_BACK: u64 = 256 << 10;

impl<M: Media> Reef<M> {
    /// As [`everhash_index::Table::maintain`].
    pub(super) fn upkeep(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        if !self.pool.writable() {
            return Ok(Upkeep::default());
        }
        let mut left = budget.div_ceil(STEP_PAIRS).max(1);
        let mut more = false;
        // What was written just after a visit is seen at the next one, half an interval later.
        let half = Duration::from_millis(self.settings.flush_interval_ms) / 2;
        let is_at_rest = self.is_at_rest(now, half.min(REST))?;
        for number in 0..self.streams.len() {
            while left > 0 && self.collect_some(number, is_at_rest)? {
                left -= 1;
            }
            more |= left == 0;
        }
        // Before a checkpoint, which takes its time. Once more after the last write, too: what is
        // left to do then is done at rest.
        let waits = self.age_epoch(now, half)? || !is_at_rest;
        let is_done = !waits && !more;
        self.checkpoint_if_due(if is_done { Moment::Rest } else { Moment::Upkeep })?;
        if !is_done {
            self.give_some_storage_back(now)?;
        } else {
            self.give_up_spare()?;
            more = self.give_storage_back()?;
        }
        for stream in &self.streams {
            if let Some(at) = stream.0.lock()?.damaged {
                return Err(damaged(at));
            }
        }
        let deadline = waits.then_some(now.saturating_add(half));
        Ok(Upkeep { deadline, more })
    }

    /// Returns whether nothing was written for `rest`, but what was collected.
    fn is_at_rest(&self, now: Duration, rest: Duration) -> Result<bool> {
        let mut written = 0;
        for stream in &self.streams {
            written += stream.0.lock()?.written();
        }
        let now = now.as_micros() as u64;
        if self.seen_written.load(Ordering::Relaxed) != written {
            self.seen_written.store(written, Ordering::Relaxed);
            self.seen_since.store(now, Ordering::Relaxed);
        }
        let since = self.seen_since.load(Ordering::Relaxed);
        Ok(now.saturating_sub(since) >= rest.as_micros() as u64)
    }

    /// Returns how much more storage is free than this part of the room in use. Unit: bytes.
    fn spare_bytes(&self, part: u64) -> Result<u64> {
        let usage = self.space.usage()?;
        let allowed = self.used.load(Ordering::Relaxed) / part + self.segment_bytes();
        Ok((usage.free_bytes - usage.hole_bytes).saturating_sub(allowed))
    }

    /// Gives some of the storage behind free room back to the device; returns whether there is
    /// more.
    pub(super) fn give_storage_back(&self) -> Result<bool> {
        let has_spare = self.spare_bytes(SPARE)? > 0;
        Ok(has_spare && self.space.release(self.unit_bytes, GIVEN_BACK)? > 0)
    }

    /// As [`Reef::give_storage_back`], beside writers, who may need it again: a table that shrank
    /// gives back what it does not, by and by, though somebody always writes.
    fn give_some_storage_back(&self, now: Duration) -> Result<()> {
        let last = Duration::from_micros(self.given_back_at.load(Ordering::Relaxed));
        if now.saturating_sub(last) < GIVING_BACK {
            return Ok(());
        }
        let spare = self.spare_bytes(SPARE_OF_WRITERS)?;
        if spare > 0 {
            self.given_back_at.store(now.as_micros() as u64, Ordering::Relaxed);
            let some = (spare / GIVEN_BACK_BESIDE_WRITERS).max(LEAST_GIVEN_BACK);
            self.space.release(self.unit_bytes, some)?;
        }
        Ok(())
    }

    /// Collects some of a stream if something may have become garbage since nothing was found.
    fn collect_some(&self, number: usize, is_at_rest: bool) -> Result<bool> {
        let is_due = {
            let stream = self.streams[number].0.lock()?;
            if is_at_rest { stream.tidied != Some(stream.written()) } else { stream.is_due }
        };
        if !is_due {
            return Ok(false);
        }
        match self.collect_stream(number, if is_at_rest { AT_REST } else { AHEAD }, STEP) {
            // Writers will see to it; of damage, the end of the call tells.
            Err(Error::Full { .. } | Error::Corrupt { .. }) => Ok(false),
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
