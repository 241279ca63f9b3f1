//! Epochs: where only a sync makes anything durable, one sync serves all areas (ours).
//!
//! On an ordinary file a batch has no cheap fence, and a sync for each area would be hundreds. So
//! areas flush nothing there. A *cut* takes the locks of all areas and notes in each record, beside
//! the words that change with every write, the newest log and the info of this moment. One sync
//! makes everything durable that the cut speaks of, and one word in the root, synced too, makes the
//! cut true: after a power loss the whole table is as it was at one instant.
//!
//! | word | recovery uses it after |
//! |---|---|
//! | visible tail, infos | a killed process: every store is visible |
//! | the cut of the epoch that the root names | power loss, a clean close |
//!
//! Cuts go to two places in turn, so that the one that counts is never being written. Logs that a
//! rehash gives back wait for the next epoch: the present one may still lead to them.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::Result;
use everhash_pmem::{Access, AtomicWord, Lock, Media, Span};

use super::layout::{self, AreaRecord, EPOCH, Info};
use super::state::{CommitEpochs, GuardOf, Walsh, WordOf};

/// The part of `flush_bytes` at which a writer commits an epoch: while one half waits for the
/// device, the other half may be written. Upkeep commits at half of that.
const WRITERS_SHARE: u64 = 2;

/// How many times as many bytes of housekeeping as of writes may wait for an epoch.
///
/// Source: ours; a power loss takes none of them back, so that only the duration of a sync and the
/// logs that wait to be free are to be bounded.
const HOUSEKEEPING: u64 = 8;

/// The part of the room in use that waits for an epoch at most, where epochs are the caller's
/// business.
///
/// Source: ours; all that waits is room that nobody can use. With a half of it, a file had up to
/// twice the bytes of its logs.
const RELAXED_SHARE: u64 = 8;

/// Where epochs are persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything that a cut speaks of.
        CUT = "walsh/epoch/cut";
        /// The word that makes the cut true, or says that areas speak for themselves.
        WORD = "walsh/epoch/word";
    }
}

impl<M: Media> Walsh<M> {
    /// Makes every write that returned durable, for all areas at once: two syncs, or none if
    /// nothing was written.
    ///
    /// A crash inside leaves the epoch before or this one.
    pub(super) fn commit_epoch(&self) -> Result<()> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        match self.is_dirty() {
            false => Ok(()),
            true => self.commit_next(&mut epochs),
        }
    }

    /// Returns whether anything was stored since the last cut.
    fn is_dirty(&self) -> bool {
        let bytes = |word: &WordOf<M>| word.load(Ordering::Relaxed);
        bytes(&self.pending) + bytes(&self.housekeeping) > 0
    }

    /// Returns whether more than a `divisor`-th of what may wait for an epoch does.
    #[inline(always)]
    fn is_epoch_due(&self, divisor: u64) -> bool {
        let most = self.settings.flush_bytes / divisor;
        self.pending.load(Ordering::Relaxed) > most
            || self.housekeeping.load(Ordering::Relaxed) > most.saturating_mul(HOUSEKEEPING)
    }

    /// Makes the present state the next epoch, whatever was written.
    pub(super) fn commit_next(&self, epochs: &mut CommitEpochs) -> Result<()> {
        let (pm, next) = (self.pool.access(), epochs.number + 1);
        let freed = self.cut(&pm, next)?;
        self.poison_on_error(pm.sync(sites::CUT))?;
        self.write_epoch(&pm, next)?;
        (epochs.number, epochs.seen) = (next, None);
        self.give_spans(freed);
        Ok(())
    }

    /// Stores which epoch counts, 0 for none, and waits until that is durable.
    pub(super) fn write_epoch(&self, pm: &Access<'_, M>, number: u64) -> Result<()> {
        self.poison_on_error(pm.commit_word(EPOCH, layout::encode_epoch(number), sites::WORD))?;
        if self.is_grouped {
            return self.poison_on_error(pm.sync(sites::WORD));
        }
        self.poison_on_error(pm.persist(Span::new(EPOCH, 1), sites::WORD))
    }

    /// Notes in every area's record what it holds at this instant; returns the logs that no later
    /// epoch leads to.
    fn cut(&self, pm: &Access<'_, M>, epoch: u64) -> Result<Vec<Span>> {
        // Always in this order, and nobody else takes a second one.
        let states: Result<Vec<GuardOf<'_, M>>> =
            self.areas.iter().map(|area| self.lock(area)).collect();
        let states = states?;
        for (area, state) in self.areas.iter().zip(&states) {
            let at = area.record.plus(epoch_place(epoch));
            let mut info = state.info.words(state.sequence);
            info[Info::TAIL] = state.newest().encode(at.plus(Info::TAIL as u64));
            self.poison_on_error(pm.write_words(at, &layout::seal_head(info, at, self.seed)))?;
        }
        self.pending.store(0, Ordering::Relaxed);
        self.housekeeping.store(0, Ordering::Relaxed);
        // Before a lock is free again: what is given back from now on is for the epoch after.
        Ok(core::mem::take(&mut self.reserve.lock()?.retired))
    }

    /// Gives the logs another use that wait for the next epoch; returns whether there were any.
    ///
    /// The epoch is committed, unless epochs are the caller's business: then the last one may no
    /// longer be whole, which is what relaxed durability says.
    pub(super) fn end_retired(&self) -> Result<bool> {
        if self.reserve.lock()?.retired.is_empty() {
            return Ok(false);
        }
        match self.is_relaxed {
            true => self.free_retired()?,
            false => self.commit_epoch()?,
        }
        Ok(true)
    }

    /// Without epochs of its own, a table whose logs mostly wait for one waits no longer.
    pub(super) fn bound_retired(&self) -> Result<()> {
        if !self.is_relaxed {
            return Ok(());
        }
        let waiting: u64 = self.reserve.lock()?.retired.iter().map(|span| span.bytes()).sum();
        match waiting > self.space.usage()?.used_bytes / RELAXED_SHARE {
            true => self.free_retired(),
            false => Ok(()),
        }
    }

    fn free_retired(&self) -> Result<()> {
        let spans = core::mem::take(&mut self.reserve.lock()?.retired);
        self.give_spans(spans);
        Ok(())
    }

    /// Commits an epoch if there is more that is not durable than may be lost.
    #[inline(always)]
    pub(super) fn bound_pending(&self) -> Result<()> {
        match self.is_grouped && !self.is_relaxed {
            true => self.bound_epoch(),
            false => Ok(()),
        }
    }

    fn bound_epoch(&self) -> Result<()> {
        if !self.is_epoch_due(WRITERS_SHARE) {
            return Ok(());
        }
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        match self.is_epoch_due(WRITERS_SHARE) {
            false => Ok(()),
            true => self.commit_next(&mut epochs),
        }
    }

    /// Commits an epoch if a write is older than `age` at `now`, or if writers would soon have to;
    /// returns whether there are writes that wait for one.
    pub(super) fn age_epoch(&self, now: Duration, age: Duration) -> Result<bool> {
        let mut epochs = self.epochs.lock()?;
        let is_old = epochs.seen.is_some_and(|seen| now.saturating_sub(seen) >= age);
        if !self.is_dirty() {
            epochs.seen = None;
        } else if is_old || self.is_epoch_due(2 * WRITERS_SHARE) {
            self.commit_next(&mut epochs)?;
        } else {
            epochs.seen = epochs.seen.or(Some(now));
        }
        Ok(self.is_dirty())
    }

    /// Notes that a write of so many bytes is not durable.
    #[inline(always)]
    pub(super) fn add_pending(&self, bytes: u64) {
        if self.is_grouped {
            self.pending.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that so many bytes wait for an epoch that a power loss would not take back.
    #[inline(always)]
    pub(super) fn add_housekeeping(&self, bytes: u64) {
        if self.is_grouped {
            self.housekeeping.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Returns where the cut of an epoch lies in an area's record. Unit: words.
pub const fn epoch_place(epoch: u64) -> u64 {
    match epoch % 2 {
        1 => AreaRecord::EPOCH_A as u64,
        _ => AreaRecord::EPOCH_B as u64,
    }
}
