//! Which operations may run concurrently. Locks, notes of what is pending and counters lie in DRAM;
//! a crash leaves none.
//!
//! | beside | reader | writer, same bucket | writer, same shard | resize of the shard |
//! |---|---|---|---|---|
//! | reader | yes | repeats | yes | yes, and repeats once when it ends |
//! | writer | | waits | waits | waits |
//!
//! A writer holds its shard's lock. Before the store that publishes a change it marks the bucket as
//! pending, until after the fence: what a reader returns was durable when it looked.
//!
//! A reader takes no lock. In each bucket it loads META, then the rest, then META and the pending
//! bucket again, and at the end the number of moves of the shard; a miss is validated like a hit.
//! A bucket that is consistent and durable when read is enough: a key changes its bucket only by a
//! removal and another insert, so there was a moment without a key that a reader found nowhere.
//!
//! The fences are those of a seqlock over atomic data: a release fence before a writer stores into
//! a slot, or into space that was in use before, and an acquire fence before the reader's second
//! look. A reader that saw such a store sees that META, or the number of moves, has changed.
//! Therefore slots, records and the space of shards are reused at once: nothing waits for readers.

mod lanes;
#[cfg(test)]
mod tests;

use core::cell::Cell;
use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, AtomicWord, Latch, LatchGuard, Lock, Media, Primitives};

use super::layout::{Meta, Place};

pub use lanes::Lanes;

/// No bucket is pending.
const SETTLED: u64 = 0;
/// Every bucket is pending.
const ALL: u64 = u64::MAX - 1;
/// A write failed after its commit store: what is durable is unknown.
const POISON: u64 = u64::MAX;

/// What the DRAM directory knows of a shard, on a line of its own (TurboHash 3.1).
#[repr(align(64))]
pub struct Shard<P: Primitives> {
    /// Where its buckets lie: [`Place::packed`].
    place: P::AtomicU64,
    /// How often `place` has changed, or the sequence number of a bucket has wrapped around.
    moves: P::AtomicU64,
    /// The bucket whose META may be visible and not durable, counted from 1.
    pending: P::AtomicU64,
    /// Items that were added minus those that were removed, since the pool was opened; modulo 2^64.
    items: P::AtomicU64,
    lock: Latch<P, Garbage>,
}

/// What is counted of a shard's deleted slots, under its lock.
#[derive(Default)]
struct Garbage {
    /// How many there are, without those from before the pool was opened; below zero if some of
    /// those are in use again.
    deleted: Cell<i64>,
    /// Whether the shard is queued for maintenance to collect.
    is_due: Cell<bool>,
}

/// A shard that is locked for a write.
pub struct Held<'t, M: Media> {
    shard: &'t Shard<M::Sync>,
    pm: &'t Access<'t, M>,
    lock: LatchGuard<'t, M::Sync, Garbage>,
}

/// A bucket whose META may be visible and not durable: no reader accepts it. Dropped without
/// [`Pending::end`], by an error or a panic, it poisons the shard.
#[must_use = "readers wait until it ends"]
pub struct Pending<'a, P: Primitives> {
    pending: &'a P::AtomicU64,
    outcome: u64,
}

/// The number of moves of a shard when a read began.
#[derive(Clone, Copy)]
pub struct Visit {
    moves: u64,
}

/// What a reader found, if it was consistent and durable.
pub enum Look<R> {
    /// It was.
    Whole(R),
    /// A write came between.
    Disturbed,
}

impl<P: Primitives> Shard<P> {
    /// Makes the DRAM side of a shard that lies at `place`.
    pub fn new(place: Place) -> Self {
        Shard {
            place: AtomicWord::new(place.packed()),
            moves: AtomicWord::new(0),
            pending: AtomicWord::new(SETTLED),
            items: AtomicWord::new(0),
            lock: Lock::new(Garbage::default()),
        }
    }

    /// Repeats `look` until no write came between, and returns what it found then.
    ///
    /// What `look` loads may be torn, or lie where the shard lay before. Its error counts only if
    /// the shard has not moved.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a write that failed; those of `look`.
    #[inline(always)]
    pub fn read<R>(&self, mut look: impl FnMut(Place) -> Result<Look<R>>) -> Result<R> {
        // Ends: each further round means that a write came between, which ends or poisons.
        for attempt in 0u32.. {
            let (place, visit) = self.enter();
            let found = look(place);
            P::fence(Ordering::Acquire);
            if self.is_there_still(visit) {
                match found {
                    Ok(Look::Whole(found)) => return Ok(found),
                    Ok(Look::Disturbed) => {}
                    Err(error) => return Err(error),
                }
            }
            P::pause(attempt);
        }
        Err(Error::Poisoned)
    }

    /// Returns where the shard lies, and what [`Shard::is_there_still`] compares.
    #[inline(always)]
    pub fn enter(&self) -> (Place, Visit) {
        let (packed, visit) = self.enter_packed();
        (Place::of_packed(packed), visit)
    }

    /// As [`Shard::enter`], with the place as one word: [`Place::packed`].
    #[inline(always)]
    pub fn enter_packed(&self) -> (u64, Visit) {
        let visit = Visit { moves: self.moves.load(Ordering::Acquire) };
        (self.place.load(Ordering::Acquire), visit)
    }

    /// Returns whether the shard has not moved. The caller has fenced (acquire) since it looked.
    #[inline(always)]
    pub fn is_there_still(&self, visit: Visit) -> bool {
        self.moves.load(Ordering::Relaxed) == visit.moves
    }

    /// Returns whether what was loaded from bucket `index` since its META is durable. The caller
    /// has fenced (acquire) since.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a write failed and that stays unknown.
    #[inline(always)]
    pub fn settled(&self, index: u64) -> Result<bool> {
        match self.pending.load(Ordering::Relaxed) {
            SETTLED => Ok(true),
            POISON => Err(Error::Poisoned),
            pending => Ok(pending != ALL && pending != index + 1),
        }
    }

    /// Returns whether what was loaded from any bucket since its META is durable: `false` also for
    /// the other buckets, while one is pending.
    #[inline(always)]
    pub fn is_settled(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == SETTLED
    }

    /// Returns where the shard lies: for hints, and for the holder of its lock.
    #[inline(always)]
    pub fn place(&self) -> Place {
        Place::of_packed(self.place.load(Ordering::Relaxed))
    }

    /// Returns the items that were added less those that were removed, modulo 2^64.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a holder panicked, or if a write failed.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(&'t self, pm: &'t Access<'_, M>) -> Result<Held<'t, M>> {
        let lock = self.lock.lock()?;
        pm.dram(1);
        pm.locked(self.name());
        let held = Held { shard: self, pm, lock };
        if self.pending.load(Ordering::Relaxed) != SETTLED {
            return Err(Error::Poisoned);
        }
        Ok(held)
    }

    /// Returns whether a write to the shard failed after its commit store, or a holder panicked.
    pub fn is_poisoned(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != SETTLED || self.lock.try_lock().is_err()
    }

    /// Returns a number that no other lock of the process has.
    #[inline(always)]
    fn name(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}

impl<M: Media> Held<'_, M> {
    /// Returns where the shard lies.
    #[inline(always)]
    pub fn place(&self) -> Place {
        self.shard.place()
    }

    /// Marks bucket `index` as pending: before the commit store of `meta`, until its fence.
    #[inline(always)]
    pub fn pending(&self, index: u64, meta: Meta) -> Pending<'_, M::Sync> {
        if meta.has_wrapped() {
            self.restart_readers();
        }
        self.begin(index + 1)
    }

    /// Marks all buckets of the shard as pending.
    pub fn pending_all(&self) -> Pending<'_, M::Sync> {
        self.restart_readers();
        self.begin(ALL)
    }

    /// Invalidates every read in progress: the sequence number of a bucket wraps around, and its
    /// META may be what it was when the reader began.
    #[cold]
    fn restart_readers(&self) {
        self.shard.moves.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    fn begin(&self, pending: u64) -> Pending<'_, M::Sync> {
        // Ordered before the commit store, which is a release.
        self.shard.pending.store(pending, Ordering::Relaxed);
        Pending { pending: &self.shard.pending, outcome: POISON }
    }

    /// Directs readers and writers to `place`, where the same pairs lie, durably. The old place may
    /// be reused from now on.
    pub fn moved(&self, place: Place) {
        // In this order: a reader that loaded the new number also loads the new place.
        self.shard.place.store(place.packed(), Ordering::Release);
        self.shard.moves.fetch_add(1, Ordering::Release);
    }

    /// Counts items that were added, or removed if negative.
    #[inline(always)]
    pub fn count(&self, added: i64) {
        let items = &self.shard.items;
        // A plain store: only the holder of the lock stores.
        items.store(items.load(Ordering::Relaxed).wrapping_add_signed(added), Ordering::Relaxed);
    }

    /// Counts slots that were deleted, or taken again if negative.
    #[inline(always)]
    pub fn count_deleted(&self, deleted: i64) {
        self.lock.deleted.set(self.lock.deleted.get() + deleted);
    }

    /// Resets the count of deleted slots.
    pub fn forget_deleted(&self) {
        self.lock.deleted.set(0);
    }

    /// Returns how many deleted slots were counted.
    #[inline(always)]
    pub fn deleted(&self) -> i64 {
        self.lock.deleted.get()
    }

    /// Returns whether the shard is queued for maintenance.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.lock.is_due.get()
    }

    /// Sets whether the shard is queued for maintenance.
    pub fn set_due(&self, due: bool) {
        self.lock.is_due.set(due);
    }
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pm.unlocking(self.shard.name());
    }
}

impl<P: Primitives> Pending<'_, P> {
    /// Ends the pending state: the change is durable.
    #[inline(always)]
    pub fn end(mut self) {
        self.outcome = SETTLED;
    }
}

impl<P: Primitives> Drop for Pending<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pending.store(self.outcome, Ordering::Release);
    }
}
