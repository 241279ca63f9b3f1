//! Which operations may run concurrently. Locks and sequences lie in DRAM; a crash leaves none.
//!
//! A stripe is a lock, a sequence and a counter for every chain whose main bucket has the same
//! low bits. The number of stripes is at most the initial number of buckets, so a bucket and the
//! one it splits into always share a stripe.
//!
//! | beside | reader | writer, same stripe | writer, other stripe | split of the stripe |
//! |---|---|---|---|---|
//! | reader | yes | repeats | yes | repeats |
//! | writer | | waits | yes | waits |
//! | split | | | | waits; stripes are locked in ascending order |
//!
//! The sequence is odd from before the first store that readers could see until after its fence.
//! A reader repeats until no write came between; its whole walk is validated, hit or miss. So it
//! accepts no value that a crash could take back, no torn pair, and no slot, bucket or record that
//! was given to another key meanwhile. Reuse does not wait for readers.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{
    Access, AtomicWord, Change, Latch, LatchGuard, Lock, Masked, Media, Primitives, Sequence, Stamp,
};

/// A stripe, alone in its pair of lines: a writer of the next stripe must not slow a reader down.
///
/// Source of 128: the adjacent-line prefetch of x86 fetches pairs of lines.
#[repr(align(128))]
pub struct Stripe<P: Primitives> {
    sequence: Sequence<P>,
    /// The lock, with the items that were counted and not yet reported to the table's estimate.
    lock: Latch<P, Cell<i64>>,
    /// Items that were added minus those that were removed, modulo 2^64. Stored under the lock.
    items: P::AtomicU64,
}

/// A locked stripe.
pub struct Held<'t, M: Media> {
    stripe: &'t Stripe<M::Sync>,
    pm: &'t Access<'t, M>,
    drift: LatchGuard<'t, M::Sync, Cell<i64>>,
}

/// All stripes of a table.
pub struct Stripes<P: Primitives> {
    stripes: Masked<Stripe<P>>,
}

impl<P: Primitives> Stripes<P> {
    /// Makes `count` stripes, a power of two.
    pub fn new(count: u64) -> Self {
        let stripe = |_| Stripe {
            sequence: Sequence::new(),
            lock: Lock::new(Cell::new(0)),
            items: AtomicWord::new(0),
        };
        Stripes { stripes: Masked::new((0..count).map(stripe).collect()) }
    }

    /// Returns the number of stripes.
    pub fn count(&self) -> u64 {
        self.stripes.all().len() as u64
    }

    /// Returns the stripe of a hash, or of a bucket.
    #[inline(always)]
    pub fn of(&self, hash: u64) -> &Stripe<P> {
        self.stripes.of(hash)
    }

    /// Returns the stripes of `count` buckets from `first` on, each once, in the order in which
    /// they are locked. `count` is a power of two and divides `first`.
    pub fn of_group(&self, first: u64, count: u64) -> &[Stripe<P>] {
        let stripes = self.stripes.all();
        let count = stripes.len().min(count as usize);
        let start = first as usize & (stripes.len() - 1) & !(count - 1);
        &stripes[start..start + count]
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        size_of_val(self.stripes.all()) as u64
    }

    /// Returns whether a change of some stripe failed: what it stored may be incomplete, or not
    /// durable.
    pub fn is_poisoned(&self) -> bool {
        self.stripes.all().iter().any(|stripe| stripe.sequence.read().is_err())
    }

    /// Returns the sum of all counters.
    pub fn items(&self) -> u64 {
        let counts = self.stripes.all().iter().map(|stripe| stripe.items.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

impl<P: Primitives> Stripe<P> {
    /// Waits until no change is in progress, and returns the stamp with which a reader begins.
    ///
    /// What is loaded from then on may be torn: it counts, errors included, only if
    /// [`Stripe::accepts`] the stamp afterwards. If not, a write came between, and the reader
    /// begins again. `attempt` counts the waits of one reader.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a write that failed.
    #[inline(always)]
    pub fn stamp(&self, attempt: &mut u32) -> Result<Stamp> {
        // Ends: each further round waits for a writer, which ends its change or poisons.
        loop {
            if let Some(stamp) = self.sequence.read()? {
                return Ok(stamp);
            }
            P::pause(*attempt);
            *attempt = attempt.saturating_add(1);
        }
    }

    /// As [`Stripe::stamp`], with `None` while a change is in progress, and if one failed.
    #[inline(always)]
    pub fn try_stamp(&self) -> Option<Stamp> {
        self.sequence.try_read()
    }

    /// Returns whether no write came between since `stamp`.
    #[inline(always)]
    pub fn accepts(&self, stamp: Stamp) -> bool {
        self.sequence.validate(stamp)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if a change failed, or a holder panicked: what a change
    /// stored is visible, and may be incomplete or not durable, so no write may build on it.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(&'t self, pm: &'t Access<'_, M>) -> Result<Held<'t, M>> {
        let drift = self.lock.lock()?;
        pm.dram(1);
        pm.locked(self.name());
        let held = Held { stripe: self, pm, drift };
        self.sequence.read()?;
        Ok(held)
    }

    /// Returns a number that no other lock of the process has.
    #[inline(always)]
    fn name(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}

impl<M: Media> Held<'_, M> {
    /// Begins a change: no reader accepts anything until it ends; after a failure, none ever does.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self) -> Result<Change<'_, M::Sync>> {
        Ok(self.stripe.sequence.begin()?)
    }

    /// Returns the items that were counted, modulo 2^64.
    pub fn items(&self) -> u64 {
        self.stripe.items.load(Ordering::Relaxed)
    }

    /// Counts items that were added, or removed if negative. Returns what the estimate is to be
    /// changed by, when that is `limit` or more.
    #[inline(always)]
    pub fn count(&mut self, added: i64, limit: i64) -> Option<i64> {
        let items = &self.stripe.items;
        // A plain store: only the holder of the lock stores.
        items.store(items.load(Ordering::Relaxed).wrapping_add_signed(added), Ordering::Relaxed);
        let drifted = self.drift.get() + added;
        let report = drifted.abs() >= limit;
        self.drift.set(if report { 0 } else { drifted });
        report.then_some(drifted)
    }
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pm.unlocking(self.stripe.name());
    }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::Std;

    use super::*;

    #[test]
    fn a_group_has_the_stripes_of_its_buckets() {
        // Fails if a split locks other stripes than those of the writers in its way, or one twice.
        for stripes in [1, 4, 16] {
            let stripes = Stripes::<Std>::new(stripes);
            for count in [1, 2, 8, 32] {
                for first in (0..64).step_by(count) {
                    let group = stripes.of_group(first, count as u64).iter();
                    let found: Vec<_> = group.map(core::ptr::from_ref).collect();
                    let buckets = first..first + count as u64;
                    let mut wanted: Vec<_> =
                        buckets.map(|bucket| core::ptr::from_ref(stripes.of(bucket))).collect();
                    wanted.sort_unstable();
                    wanted.dedup();
                    assert_eq!(found, wanted, "{count} buckets from {first} on");
                }
            }
        }
    }
}
