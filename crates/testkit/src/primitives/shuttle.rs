//! Shuttle's primitives: random schedules of large programs.

use core::sync::atomic::Ordering;
use std::sync::TryLockError;

use everhash_pmem::{AtomicWord, Lock, LockPoisoned, Primitives};
use shuttle::sync::{Mutex, MutexGuard, atomic};

/// The primitives of the shuttle scheduler. Usable inside `shuttle::check_*` only.
///
/// Shuttle runs every atomic as if it were sequentially consistent, whatever order was asked: it
/// finds wrong interleavings, and never a missing fence. For those there is
/// [`Loom`](super::Loom).
#[derive(Debug, Clone, Copy, Default)]
pub struct Shuttle;

impl Primitives for Shuttle {
    type AtomicU64 = ShuttleWord;
    type Mutex<T: Send> = ShuttleMutex<T>;

    /// Nothing: every atomic is sequentially consistent, and a point of the schedule by itself.
    fn fence(_order: Ordering) {}

    /// Lets another task run, so that the scheduler does not starve whom the caller waits for.
    fn pause(_attempt: u32) {
        shuttle::thread::yield_now();
    }

    /// Returns the number of the task, counted from 0 in each execution; 0 outside of any.
    fn thread() -> u32 {
        shuttle::current::get_current_task().map_or(0, |task| usize::from(task) as u32)
    }
}

/// A 64-bit atomic that shuttle schedules.
#[derive(Debug)]
pub struct ShuttleWord(atomic::AtomicU64);

// Orders are dropped on purpose: shuttle treats all alike, and prints a warning for weaker ones.
impl AtomicWord for ShuttleWord {
    fn new(value: u64) -> Self {
        ShuttleWord(atomic::AtomicU64::new(value))
    }

    fn load(&self, _order: Ordering) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn store(&self, value: u64, _order: Ordering) {
        self.0.store(value, Ordering::SeqCst);
    }

    fn fetch_add(&self, value: u64, _order: Ordering) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst)
    }

    fn fetch_sub(&self, value: u64, _order: Ordering) -> u64 {
        self.0.fetch_sub(value, Ordering::SeqCst)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
}

/// A lock that shuttle schedules.
#[derive(Debug)]
pub struct ShuttleMutex<T>(Mutex<T>);

impl<T: Send> Lock<T> for ShuttleMutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        ShuttleMutex(Mutex::new(value))
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
