//! Epoch-based reclamation: retired values are reused when no reader can reach them any more.
//!
//! A reader pins before it follows addresses and unpins after. A writer unlinks a value, makes the
//! unlinking durable, and retires the value. The value is reclaimed when every reader that may have
//! found it has unpinned. No threads, no clock, no global state, and nothing on the medium: after a
//! crash there are no readers, and an unlinked value is free.
//!
//! # Why it is right
//!
//! Readers count themselves under the parity of the epoch they saw. The epoch steps from `e` to
//! `e + 1` only after a scan that found no reader under the parity of `e + 1`. A value that was
//! retired in epoch `r` is reclaimed from epoch `r + 3` on. Let reader R have found the value
//! linked, and let W be the writer that retires it. There are three kinds of sequentially
//! consistent fences, in one total order:
//!
//! 1. R counts itself, fences, and then finds the value; W unlinks it, fences, and then loads `r`.
//!    Had W's fence come first, R would have found the unlinking. So R's fence comes before W's.
//! 2. Every step fences before its scan. If the fence of the step to `r + 2` came before W's, W
//!    would have loaded the `r + 1` that was stored before it, at least. So it comes after W's
//!    fence, thus after R's, and its scan and that of the step to `r + 3` see R's count.
//! 3. One of these two scans looks at R's parity, whichever that is, and waits until R unpins. R
//!    unpins with a release that the scan acquires: R's loads happen before the value is reused.
//!
//! A reader that sleeps between loading the epoch and counting itself may count under any parity;
//! step 3 does not care. New readers count under the present epoch, which the next scan does not
//! look at, so they cannot hold up a step forever.

#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use crate::{AtomicWord, Lock, Primitives};

/// The number of epoch steps after which a retired value is reclaimed.
///
/// Unit: epochs. Source: point 2 above.
const GRACE: u64 = 3;

/// Pinned readers, and retired values of type `T` that wait for them.
///
/// ```
/// use everhash_pmem::{Addr, Epochs, Std};
///
/// let epochs = Epochs::<Std, Addr>::new(4);
/// let reader = epochs.pin();
/// epochs.retire(Addr::new(4096)); // unlinked before, durably
/// let mut free = Vec::new();
/// epochs.collect(|at| free.push(at));
/// assert!(free.is_empty()); // the reader may be there
/// drop(reader);
/// epochs.collect(|at| free.push(at));
/// assert_eq!(free, [Addr::new(4096)]);
/// ```
pub struct Epochs<P: Primitives, T: Send> {
    epoch: P::AtomicU64,
    /// The right to step the epoch.
    stepping: P::Mutex<()>,
    stripes: Box<[Stripe<P, T>]>,
}

/// What the threads of one stripe share, on cache lines of its own: two, because processors
/// prefetch pairs of lines.
#[repr(align(128))]
struct Stripe<P: Primitives, T: Send> {
    /// Pinned readers by the parity of the epoch that they saw.
    readers: [P::AtomicU64; 2],
    /// Retired values with their epochs, oldest first.
    waiting: P::Mutex<VecDeque<(u64, T)>>,
}

/// A pinned reader: nothing retired after it was made is reclaimed while it lives.
#[must_use = "a reader is protected while the guard lives"]
pub struct Pinned<'a, P: Primitives> {
    readers: &'a P::AtomicU64,
}

impl<P: Primitives, T: Send> Epochs<P, T> {
    /// Makes epochs without readers, for threads spread over `stripes` stripes.
    ///
    /// As many stripes as threads that run at once let each of them keep its cache line; the
    /// memory is 128 to 256 bytes a stripe, whatever the number of readers.
    ///
    /// # Panics
    /// If `stripes` is zero.
    pub fn new(stripes: u32) -> Self {
        assert!(stripes > 0, "readers need a stripe");
        let stripe = |_| Stripe {
            readers: [AtomicWord::new(0), AtomicWord::new(0)],
            waiting: Lock::new(VecDeque::new()),
        };
        Epochs {
            epoch: AtomicWord::new(0),
            stepping: Lock::new(()),
            stripes: (0..stripes).map(stripe).collect(),
        }
    }

    /// Makes the calling thread a reader. Wait-free: a load, an addition and a fence; dropping the
    /// guard is a subtraction.
    ///
    /// A thread may pin again while it is pinned. A pinned thread must not wait for
    /// [`Epochs::collect`] to reclaim something.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, P> {
        // A stale epoch does no harm, see above.
        let epoch = self.epoch.load(Ordering::Relaxed);
        let readers = &self.stripe().readers[(epoch & 1) as usize];
        readers.fetch_add(1, Ordering::Relaxed);
        P::fence(Ordering::SeqCst);
        Pinned { readers }
    }

    /// Retires `value`: keeps it until every reader that may have found it has unpinned. The caller
    /// has unlinked it, and the unlinking is durable.
    ///
    /// Returns the number of retired values in the caller's stripe. A writer that collects when
    /// there are too many bounds the memory, as long as no reader stays pinned forever. If the
    /// stripe is poisoned, the value is dropped: its space is free after the next open.
    pub fn retire(&self, value: T) -> usize {
        P::fence(Ordering::SeqCst);
        let Ok(mut waiting) = self.stripe().waiting.lock() else { return 0 };
        // Under the lock, so that the queue is in the order of the epochs.
        let epoch = self.epoch.load(Ordering::Relaxed);
        waiting.push_back((epoch, value));
        waiting.len()
    }

    /// Reclaims every value that no reader can reach: calls `reuse` with it. Returns their number.
    ///
    /// Never waits, neither for readers nor for another collecting thread. `reuse` runs without a
    /// lock.
    pub fn collect(&self, mut reuse: impl FnMut(T)) -> usize {
        self.step();
        // Acquires what the steps acquired: the last loads of the readers that have unpinned.
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut count = 0;
        for stripe in &self.stripes {
            let Ok(mut waiting) = stripe.waiting.lock() else { continue };
            let free = waiting.partition_point(|(retired, _)| retired + GRACE <= epoch);
            let values: Vec<(u64, T)> = waiting.drain(..free).collect();
            drop(waiting);
            count += values.len();
            values.into_iter().for_each(|(_, value)| reuse(value));
        }
        count
    }

    /// Returns the number of retired values that are not reclaimed yet.
    pub fn waiting(&self) -> usize {
        self.stripes.iter().filter_map(|s| s.waiting.lock().ok()).map(|waiting| waiting.len()).sum()
    }

    /// Steps the epoch as far as pinned readers let it: by `GRACE` if there are none.
    fn step(&self) {
        let Ok(Some(_stepping)) = self.stepping.try_lock() else { return };
        for _ in 0..GRACE {
            P::fence(Ordering::SeqCst);
            // Only the holder of the lock stores it.
            let next = self.epoch.load(Ordering::Relaxed) + 1;
            let parity = (next & 1) as usize;
            if self.stripes.iter().any(|s| s.readers[parity].load(Ordering::Acquire) != 0) {
                return;
            }
            self.epoch.store(next, Ordering::Release);
        }
    }

    fn stripe(&self) -> &Stripe<P, T> {
        &self.stripes[P::thread() as usize % self.stripes.len()]
    }
}

impl<P: Primitives> Drop for Pinned<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::Release);
    }
}
