//! Loom's primitives: every schedule, and every value of a weakly ordered load, of tiny programs.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::TryLockError;

use everhash_pmem::{AtomicWord, Lock, LockPoisoned, Primitives};
use loom::sync::{Mutex, MutexGuard, atomic};

/// The primitives of the loom model checker, perhaps with words of another kind. Usable inside
/// `loom::model` only.
///
/// Loom takes a sequentially consistent load or store for an acquire or release one, so that code
/// which needs more has to say so with a fence. It keeps the seven newest stores of an atomic and
/// at most five threads. A lock whose holder panicked ends the model instead of being poisoned.
pub struct Loom<W = LoomWord>(PhantomData<fn() -> W>);

thread_local! {
    /// Which fences are left out. All threads of a model run on one thread of the system.
    static LEFT_OUT: Cell<fn(Ordering) -> bool> = const { Cell::new(|_| false) };
}

/// Runs models without the fences of some orders, and returns what they return: an error if one
/// ended with a panic, which is how a mutant is caught. No more is compiled for it than for the
/// models themselves.
pub fn without_fences<R>(
    left_out: fn(Ordering) -> bool,
    run: impl FnOnce() -> R,
) -> std::thread::Result<R> {
    LEFT_OUT.set(left_out);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    LEFT_OUT.set(|_| false);
    outcome
}

impl<W: AtomicWord + 'static> Primitives for Loom<W> {
    type AtomicU64 = W;
    type Mutex<T: Send> = LoomMutex<T>;

    fn fence(order: Ordering) {
        if !LEFT_OUT.get()(order) {
            atomic::fence(order);
        }
    }

    /// Lets another thread run. Without it, loom would follow a waiting loop for ever.
    fn pause(_attempt: u32) {
        loom::thread::yield_now();
    }

    /// Returns the number of the thread, counted from 0 in each execution.
    fn thread() -> u32 {
        // Loom shows the number in `Debug` only; a counter of our own would be one more atomic for
        // it to branch on.
        let shown = format!("{:?}", loom::thread::current().id());
        let digits = shown.trim_matches(|sign: char| !sign.is_ascii_digit());
        digits.parse().expect("loom shows a thread as ThreadId(number)")
    }
}

/// A 64-bit atomic that loom explores.
#[derive(Debug)]
pub struct LoomWord(atomic::AtomicU64);

impl AtomicWord for LoomWord {
    fn new(value: u64) -> Self {
        LoomWord(atomic::AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// A lock that loom explores.
#[derive(Debug)]
pub struct LoomMutex<T>(Mutex<T>);

impl<T: Send> Lock<T> for LoomMutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        LoomMutex(Mutex::new(value))
    }

    fn lock(&self) -> Result<MutexGuard<'_, T>, LockPoisoned> {
        self.0.lock().map_err(|_| LockPoisoned)
    }

    fn try_lock(&self) -> Result<Option<MutexGuard<'_, T>>, LockPoisoned> {
        match self.0.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(LockPoisoned),
        }
    }
}
