//! A spin lock for short critical sections; its release is a plain store.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

use crate::{AtomicWord, Lock, LockPoisoned, Primitives};

/// The latch is free.
const FREE: u64 = 0;
/// A thread holds the latch.
const HELD: u64 = 1;
/// A holder panicked.
const POISONED: u64 = 2;

/// A spin lock for critical sections of microseconds; its release is a plain store.
///
/// A mutex releases with a locked instruction, and no later load starts before all stores and
/// write-backs of the holder are over; the next operation could then fetch nothing meanwhile.
/// Waiters spin, then back off; no thread is woken up.
///
/// The value lies right behind the lock word: its beginning shares a cache line with the lock.
///
/// ```
/// use everhash_pmem::{Latch, Lock, Std};
///
/// let latch = Latch::<Std, _>::new(vec![1]);
/// latch.lock()?.push(2);
/// assert_eq!(*latch.lock()?, [1, 2]);
/// # Ok::<(), everhash_pmem::LockPoisoned>(())
/// ```
#[repr(C)]
pub struct Latch<P: Primitives, T> {
    word: P::AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread alone that turned the word from free to held, which
// is an acquire, and the word becomes free again by a release; so it is moved between threads, and
// never shared.
unsafe impl<P: Primitives, T: Send> Sync for Latch<P, T> {}

/// A guard: the thread holds the [`Latch`] while it lives.
pub struct LatchGuard<'l, P: Primitives, T> {
    latch: &'l Latch<P, T>,
    /// Whether the thread was already panicking when it acquired the latch.
    panicking: bool,
    /// Keeps the guard on its thread (not `Send`).
    stays: core::marker::PhantomData<*const T>,
}

impl<P: Primitives, T> Latch<P, T> {
    #[inline(always)]
    fn take(&self) -> Result<(), u64> {
        let taken = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.map(|_| ())
    }

    #[inline(always)]
    fn guard(&self) -> LatchGuard<'_, P, T> {
        let panicking = std::thread::panicking();
        LatchGuard { latch: self, panicking, stays: core::marker::PhantomData }
    }

    #[cold]
    fn wait(&self, mut found: u64) -> Result<(), LockPoisoned> {
        let mut attempt = 0;
        // Ends: each further round waits for a holder, which releases or poisons.
        while found != POISONED {
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
            match self.take() {
                Ok(()) => return Ok(()),
                Err(next) => found = next,
            }
        }
        Err(LockPoisoned)
    }
}

impl<P: Primitives, T: Send> Lock<T> for Latch<P, T> {
    type Guard<'a>
        = LatchGuard<'a, P, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Latch { word: AtomicWord::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    fn lock(&self) -> Result<LatchGuard<'_, P, T>, LockPoisoned> {
        if let Err(found) = self.take() {
            self.wait(found)?;
        }
        Ok(self.guard())
    }

    fn try_lock(&self) -> Result<Option<LatchGuard<'_, P, T>>, LockPoisoned> {
        match self.take() {
            Ok(()) => Ok(Some(self.guard())),
            Err(POISONED) => Err(LockPoisoned),
            Err(_) => Ok(None),
        }
    }
}

impl<P: Primitives, T> Deref for LatchGuard<'_, P, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock as long as the guard lives, and `&self` keeps
        // `deref_mut` away.
        unsafe { &*self.latch.value.get() }
    }
}

impl<P: Primitives, T> DerefMut for LatchGuard<'_, P, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` keeps every other reference away.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<P: Primitives, T> Drop for LatchGuard<'_, P, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let panicked = !self.panicking && std::thread::panicking();
        self.latch.word.store(if panicked { POISONED } else { FREE }, Ordering::Release);
    }
}

impl<P: Primitives, T> fmt::Debug for Latch<P, T> {
    /// Prints no value: that would need the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Std;

    #[test]
    fn holders_never_meet() {
        // Fails if two threads hold the lock at once, or if one sees half of what another did.
        let latch = Latch::<Std, _>::new([0u64; 16]);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut words = latch.lock().unwrap();
                        assert!(words.iter().all(|word| *word == words[0]));
                        words.iter_mut().for_each(|word| *word += 1);
                    }
                });
            }
        });
        assert_eq!(latch.lock().unwrap()[0], 60_000);
    }

    #[test]
    fn a_lock_whose_holder_panicked_is_never_taken_again() {
        // Fails if half of a change is shown, or if its waiters wait forever.
        let latch = Latch::<Std, _>::new(5);
        {
            let guard = latch.lock().unwrap();
            assert!(matches!(latch.try_lock(), Ok(None)) && *guard == 5);
        }
        let holder = || {
            let _guard = latch.lock().unwrap();
            panic!("as a caller's closure might");
        };
        assert!(std::thread::scope(|scope| scope.spawn(holder).join()).is_err());
        assert_eq!(latch.lock().map(drop), Err(LockPoisoned));
        assert!(matches!(latch.try_lock(), Err(LockPoisoned)));
    }

    #[test]
    fn a_lock_that_is_taken_and_released_while_a_thread_unwinds_stays_usable() {
        // Fails if a destructor that runs because of a panic elsewhere made a table unusable.
        struct Locks<'l>(&'l Latch<Std, u32>);
        impl Drop for Locks<'_> {
            fn drop(&mut self) {
                *self.0.lock().unwrap() += 1;
            }
        }
        let latch = Latch::<Std, _>::new(5);
        let unwinds = || {
            let _locks = Locks(&latch);
            panic!("elsewhere");
        };
        assert!(std::thread::scope(|scope| scope.spawn(unwinds).join()).is_err());
        assert_eq!(latch.lock().map(|value| *value), Ok(6));
    }
}
