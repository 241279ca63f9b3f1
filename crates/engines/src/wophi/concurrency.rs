//! Who may run beside whom. Locks and sequences lie in DRAM; a crash leaves none.
//!
//! A stripe is a lock, a sequence and a counter for every chain whose main bucket has the same
//! low bits. The number of stripes is at most the initial number of buckets, so a bucket and the
//! one it splits into share a stripe for ever.
//!
//! | beside | reader | writer, same stripe | writer, other stripe | split of the stripe |
//! |---|---|---|---|---|
//! | reader | yes | repeats | yes | repeats |
//! | writer | | waits | yes | waits |
//! | split | | | | waits; stripes are locked in ascending order |
//!
//! The sequence is odd from before the first store that readers could see until after its fence.
//! A reader repeats until none of that came between; its whole walk is validated, hit or miss.
//! So it sees no value that a crash could take back, no torn pair, and no slot, bucket or record
//! that was given to another key meanwhile. Nothing that is reused needs to wait for readers.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, AtomicWord, Change, Media, Primitives, Sequence, Stamp};

/// The lock of a stripe: nobody holds it, somebody does, or a holder panicked.
///
/// A word of our own and not a mutex: its release is a plain store. A mutex releases with a locked
/// instruction, behind which no load starts before the write-back is over; so the bucket of the
/// next operation could not be fetched while the line of this one is on its way to the medium.
const FREE: u64 = 0;
const HELD: u64 = 1;
const POISONED: u64 = 2;

/// A stripe, alone in its pair of lines: the neighbour's writer must not slow a reader down.
///
/// Source of 128: the adjacent-line prefetch of x86 fetches pairs of lines.
#[repr(align(128))]
pub struct Stripe<P: Primitives> {
    sequence: Sequence<P>,
    lock: P::AtomicU64,
    /// Items that were added minus those that were removed, modulo 2^64. Stored under the lock.
    items: P::AtomicU64,
    /// What was counted and not yet reported to the table's estimate, modulo 2^64. Used under the
    /// lock.
    drift: P::AtomicU64,
}

/// A locked stripe.
pub struct Held<'t, M: Media> {
    stripe: &'t Stripe<M::Sync>,
    pm: &'t Access<'t, M>,
    /// Whether the thread was panicking already when it took the lock.
    panicking: bool,
    /// Whether a change has begun: a panic before leaves everything as it was.
    changed: Cell<bool>,
}

/// All stripes of a table.
pub struct Stripes<P: Primitives> {
    stripes: Box<[Stripe<P>]>,
}

impl<P: Primitives> Stripes<P> {
    /// Makes `count` stripes, a power of two.
    pub fn new(count: u64) -> Self {
        let stripe = |_| Stripe {
            sequence: Sequence::new(),
            lock: AtomicWord::new(FREE),
            items: AtomicWord::new(0),
            drift: AtomicWord::new(0),
        };
        Stripes { stripes: (0..count).map(stripe).collect() }
    }

    /// Returns the number of stripes.
    pub fn count(&self) -> u64 {
        self.stripes.len() as u64
    }

    /// Returns the stripe of a hash, or of a bucket.
    #[inline(always)]
    pub fn of(&self, hash: u64) -> &Stripe<P> {
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    /// Returns the stripes of `count` buckets from `first` on, each once, in the order in which
    /// they are locked. `count` is a power of two and divides `first`.
    pub fn of_group(&self, first: u64, count: u64) -> &[Stripe<P>] {
        let count = self.stripes.len().min(count as usize);
        let start = first as usize & (self.stripes.len() - 1) & !(count - 1);
        &self.stripes[start..start + count]
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.stripes) as u64
    }

    /// Returns whether a change of some stripe failed: what it stored may be half done, or not
    /// durable.
    pub fn is_poisoned(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.sequence.read().is_err())
    }

    /// Returns the sum of all counters.
    pub fn items(&self) -> u64 {
        let counts = self.stripes.iter().map(|stripe| stripe.items.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

impl<P: Primitives> Stripe<P> {
    /// Waits until no write is under way, and returns what a reader begins with.
    ///
    /// What is loaded from then on may be half done: it counts, errors included, only if
    /// [`Stripe::accepts`] the stamp afterwards. If not, the reader begins again: a writer has done
    /// something meanwhile. `attempt` counts the waits of one reader.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a write that failed.
    #[inline(always)]
    pub fn stamp(&self, attempt: &mut u32) -> Result<Stamp> {
        // Ends: each further round waits for a writer, who ends or poisons.
        loop {
            if let Some(stamp) = self.sequence.read()? {
                return Ok(stamp);
            }
            P::pause(*attempt);
            *attempt = attempt.saturating_add(1);
        }
    }

    /// Returns what a reader begins with, or `None` if that needs patience.
    #[inline(always)]
    pub fn glimpse(&self) -> Option<Stamp> {
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
    /// [`Error::Poisoned`] if a change failed, or panicked: what it stored is visible, and perhaps
    /// half done or not durable, so nothing may be decided by it.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(&'t self, pm: &'t Access<'_, M>) -> Result<Held<'t, M>> {
        let mut attempt = 0;
        // Ends: each further round waits for a holder, who lets go or poisons.
        while let Err(found) =
            self.lock.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        {
            if found == POISONED {
                return Err(Error::Poisoned);
            }
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
        pm.dram(1);
        pm.locked(self.name());
        let held = Held {
            stripe: self,
            pm,
            panicking: std::thread::panicking(),
            changed: Cell::new(false),
        };
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
    /// Keeps readers away, until the change ends or, if it fails, for ever.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self) -> Result<Change<'_, M::Sync>> {
        self.changed.set(true);
        Ok(self.stripe.sequence.begin()?)
    }

    /// Counts items that were added, or removed if negative. Returns what the estimate is to be
    /// changed by, when that is `limit` or more.
    #[inline(always)]
    pub fn count(&mut self, added: i64, limit: i64) -> Option<i64> {
        let Stripe { items, drift, .. } = self.stripe;
        items.store(items.load(Ordering::Relaxed).wrapping_add_signed(added), Ordering::Relaxed);
        let drifted = drift.load(Ordering::Relaxed) as i64 + added;
        let report = drifted.abs() >= limit;
        drift.store(if report { 0 } else { drifted as u64 }, Ordering::Relaxed);
        report.then_some(drifted)
    }
}

/// Must come before the first store to a slot, bucket or record that may have been in use before.
///
/// Pairs with the fence of [`Stripe::accepts`]: a reader that is left in it from then, and sees
/// what is stored next, also sees that the sequence of its stripe has changed. The fence of the
/// thread that freed it is not enough, because another thread may store. No instruction on x86.
#[inline(always)]
pub fn before_reuse<P: Primitives>() {
    P::fence(Ordering::Release);
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pm.unlocking(self.stripe.name());
        let panicked = self.changed.get() && !self.panicking && std::thread::panicking();
        let state = if panicked { POISONED } else { FREE };
        self.stripe.lock.store(state, Ordering::Release);
    }
}
