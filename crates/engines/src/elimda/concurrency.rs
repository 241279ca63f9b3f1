//! Who may run beside whom. Locks and sequences lie in DRAM; a crash leaves none.
//!
//! Each bucket of a segment has a lock and a sequence: for its D-bucket in DRAM, for its units on
//! the device, and for their fingerprints.
//!
//! | beside | reader | writer, same bucket | writer, other bucket | split or rebuild of the segment |
//! |---|---|---|---|---|
//! | reader | yes | repeats | yes | repeats |
//! | writer | | waits | yes | waits |
//! | split or rebuild | | | | waits; buckets are locked in ascending order |
//!
//! Locks are taken in this order: the flush of a collector; buckets of one segment, ascending; the
//! segment table; one lane. Nobody waits for a bucket while it holds a lane, and nobody holds
//! buckets of two segments.
//!
//! A slot of the log that is reserved keeps its block from being reused until it is filled or given
//! back. Whoever needs that block waits for it, without a lock; whoever has reserved a slot waits
//! for nothing but a lane.
//!
//! An append to a collecting log takes no lock. It first looks at the control word of the log, then
//! for the key in all layers, and hands a slot out by an exchange with that very word: if any other
//! append to the log came between, it begins again. All other changes of an item in a collecting
//! log are made as those of its bucket are: locked, and with an odd sequence.
//! Where a bucket in which a write failed keeps a full log from being emptied, inserts of its
//! collector are made so, too, from then on: no exchange with the word of that log succeeds.
//!
//! A reader takes a stamp of the bucket, looks whether the segment still holds the hash, searches,
//! and validates the stamp. A split changes the directory, and which hashes the segment holds,
//! while the sequences of all its buckets are odd, so that a stamp that was taken before does not
//! validate and one that was taken later belongs to the new state. A segment index is never given
//! to another part of the hashes, and a unit or a record that is reused has changed a sequence
//! first. So readers need no epochs.
//!
//! What is in DRAM is durable: an item enters its D-bucket after its fence. The only stores that a
//! reader could see on the device before their fence are values that are replaced in a unit; the
//! sequence is odd meanwhile.

use everhash_index::Result;
use everhash_pmem::{Access, Change, Latch, LatchGuard, Lock, Media, Primitives, Sequence, Stamp};

/// The sequence of a bucket and its lock.
pub struct BucketLock<P: Primitives> {
    sequence: Sequence<P>,
    lock: Latch<P, ()>,
}

/// A locked bucket.
pub struct Held<'t, M: Media> {
    bucket: &'t BucketLock<M::Sync>,
    pm: &'t Access<'t, M>,
    _lock: LatchGuard<'t, M::Sync, ()>,
}

impl<P: Primitives> BucketLock<P> {
    /// Makes a free lock.
    pub fn new() -> Self {
        BucketLock { sequence: Sequence::new(), lock: Lock::new(()) }
    }

    /// Waits until no change is under way, and returns what a reader begins with. `attempt` counts
    /// the waits of one reader.
    ///
    /// What is loaded from then on may be half done: it counts, errors included, only if
    /// [`BucketLock::accepts`] the stamp afterwards.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a write that failed.
    #[inline(always)]
    pub fn stamp(&self, attempt: &mut u32) -> Result<Stamp> {
        // Ends: each further round waits for a writer, which ends or poisons.
        loop {
            if let Some(stamp) = self.sequence.read()? {
                return Ok(stamp);
            }
            P::pause(*attempt);
            *attempt = attempt.saturating_add(1);
        }
    }

    /// As [`BucketLock::stamp`], without waiting: `None` during a change, and after one that
    /// failed.
    #[inline(always)]
    pub fn try_stamp(&self) -> Option<Stamp> {
        self.sequence.try_read()
    }

    /// Returns whether no change began since `stamp`.
    #[inline(always)]
    pub fn accepts(&self, stamp: Stamp) -> bool {
        self.sequence.validate(stamp)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if a holder panicked, or if a change failed: a write
    /// would become durable there, fail, and be tried again.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(&'t self, pm: &'t Access<'_, M>) -> Result<Held<'t, M>> {
        let lock = self.lock.lock()?;
        self.sequence.read()?;
        pm.dram(1);
        pm.locked(self.name());
        Ok(Held { bucket: self, pm, _lock: lock })
    }

    /// Returns whether a write failed, or panicked, in this bucket.
    pub fn is_poisoned(&self) -> bool {
        self.sequence.read().is_err() || self.lock.try_lock().is_err()
    }

    /// Returns whether somebody has the lock: what a test waits for.
    #[cfg(test)]
    pub fn is_held(&self) -> bool {
        matches!(self.lock.try_lock(), Ok(None))
    }

    /// Returns a number that no other lock of the process has.
    #[inline(always)]
    fn name(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}

impl<M: Media> Held<'_, M> {
    /// Keeps readers away, until the change ends or, if it fails, for ever.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self) -> Result<Change<'_, M::Sync>> {
        Ok(self.bucket.sequence.begin()?)
    }
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pm.unlocking(self.bucket.name());
    }
}
