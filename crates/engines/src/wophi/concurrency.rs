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

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{AtomicWord, Change, Lock, Primitives, Sequence};

/// A stripe, alone in its pair of lines: the neighbour's writer must not slow a reader down.
///
/// Source of 128: the adjacent-line prefetch of x86 fetches pairs of lines.
#[repr(align(128))]
pub struct Stripe<P: Primitives> {
    sequence: Sequence<P>,
    /// Items that were added minus those that were removed, modulo 2^64.
    items: P::AtomicU64,
    lock: P::Mutex<Drift>,
}

/// What a stripe has not yet reported to the table's estimate. Unit: items.
#[derive(Default)]
pub struct Drift(i64);

/// A locked stripe.
pub struct Held<'t, P: Primitives> {
    stripe: &'t Stripe<P>,
    drift: <P::Mutex<Drift> as Lock<Drift>>::Guard<'t>,
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
            items: AtomicWord::new(0),
            lock: Lock::new(Drift::default()),
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

    /// Returns the sum of all counters.
    pub fn items(&self) -> u64 {
        let counts = self.stripes.iter().map(|stripe| stripe.items.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

impl<P: Primitives> Stripe<P> {
    /// Repeats `read` until no write came between, and returns what it found then.
    ///
    /// What `read` loads may be half done; an error counts only if no write came between.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a write that failed; those of `read`.
    #[inline(always)]
    pub fn read<R>(&self, mut read: impl FnMut() -> Result<R>) -> Result<R> {
        // Ends: each further round waits for a writer, who ends or poisons.
        for attempt in 0u32.. {
            if let Some(stamp) = self.sequence.read()? {
                let found = read();
                if self.sequence.validate(stamp) {
                    return found;
                }
            }
            P::pause(attempt);
        }
        Err(Error::Poisoned)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a holder panicked.
    #[inline(always)]
    pub fn hold(&self) -> Result<Held<'_, P>> {
        Ok(Held { stripe: self, drift: self.lock.lock()? })
    }
}

impl<P: Primitives> Held<'_, P> {
    /// Keeps readers away, until the change ends or, if it fails, for ever.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self) -> Result<Change<'_, P>> {
        Ok(self.stripe.sequence.begin()?)
    }

    /// Counts items that were added, or removed if negative. Returns what the estimate is to be
    /// changed by, when that is `limit` or more.
    #[inline(always)]
    pub fn count(&mut self, added: i64, limit: i64) -> Option<i64> {
        let items = self.stripe.items.load(Ordering::Relaxed);
        self.stripe.items.store(items.wrapping_add_signed(added), Ordering::Relaxed);
        self.drift.0 += added;
        (self.drift.0.abs() >= limit).then(|| core::mem::take(&mut self.drift.0))
    }
}
