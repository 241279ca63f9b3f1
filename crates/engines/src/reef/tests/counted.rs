//! Primitives that count the loads and stores of each thread of words of the directory.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use everhash_pmem::{AtomicWord, Primitives, Std};

thread_local! {
    static LOADS: Cell<u64> = const { Cell::new(0) };
    static STORES: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many words this thread has loaded.
pub fn loads() -> u64 {
    LOADS.get()
}

/// Returns how many words this thread has stored.
pub fn stores() -> u64 {
    STORES.get()
}

/// Primitives of [`Std`], whose loads and stores are counted.
pub struct Counted;

/// A word.
pub struct CountedWord(AtomicU64);

impl Primitives for Counted {
    type AtomicU64 = CountedWord;
    type Mutex<T: Send> = std::sync::Mutex<T>;

    fn fence(order: Ordering) {
        Std::fence(order);
    }

    fn pause(attempt: u32) {
        Std::pause(attempt);
    }

    fn thread() -> u32 {
        Std::thread()
    }
}

impl AtomicWord for CountedWord {
    fn new(value: u64) -> Self {
        CountedWord(AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        LOADS.set(LOADS.get() + 1);
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        STORES.set(STORES.get() + 1);
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
