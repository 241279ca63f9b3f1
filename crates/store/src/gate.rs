//! The gate: lets writers through side by side, until somebody needs them all to stand still.
//!
//! A check and a backup want a table on which no write is under way. Writers therefore announce
//! themselves, each thread on a counter of its own, so that they do not disturb one another.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use everhash_pmem::{Primitives, Std};

/// How many counters there are: with fewer threads than that, each has one to itself.
///
/// Source: ours; more threads than this do not write at a time on the machines we know.
const STRIPES: usize = 32;

/// A counter alone on its cache lines: two, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Stripe(AtomicU64);

/// Lets writers through until it is shut.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    stripes: [Stripe; STRIPES],
    /// Work that changes no pair.
    upkeep: Stripe,
    shutter: Mutex<()>,
    opened: Condvar,
    waiting: Mutex<()>,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    stripe: &'a Stripe,
}

/// The proof that no write is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stillness<'a> {
    gate: &'a Gate,
    _only_one: MutexGuard<'a, ()>,
}

impl Stripe {
    fn wait_until_left(&self) {
        let mut attempt = 0;
        while self.0.load(Ordering::SeqCst) != 0 {
            Std::pause(attempt);
            attempt += 1;
        }
    }
}

impl Gate {
    /// Waits until the gate is open, and passes.
    #[inline]
    pub(crate) fn enter(&self) -> Pass<'_> {
        self.pass(&self.stripes[Std::thread() as usize % STRIPES])
    }

    /// As [`Gate::enter`], for work that changes no pair.
    pub(crate) fn enter_for_upkeep(&self) -> Pass<'_> {
        self.pass(&self.upkeep)
    }

    #[inline(always)]
    fn pass<'a>(&'a self, stripe: &'a Stripe) -> Pass<'a> {
        loop {
            // Sequentially consistent, as is `shut` below: either this thread sees that the gate
            // is shut, or the one that shuts it sees this count.
            stripe.0.fetch_add(1, Ordering::SeqCst);
            if !self.shut.load(Ordering::SeqCst) {
                return Pass { stripe };
            }
            stripe.0.fetch_sub(1, Ordering::Release);
            self.wait();
        }
    }

    /// Shuts the gate and waits until everybody has left.
    pub(crate) fn shut(&self) -> Stillness<'_> {
        let still = self.shut_for_writes();
        self.upkeep.wait_until_left();
        still
    }

    /// Shuts the gate and waits until every writer has left: the pairs stand still, whatever
    /// upkeep is under way.
    pub(crate) fn shut_for_writes(&self) -> Stillness<'_> {
        let only_one = ignore_panic(self.shutter.lock());
        self.shut.store(true, Ordering::SeqCst);
        for stripe in &self.stripes {
            stripe.wait_until_left();
        }
        Stillness { gate: self, _only_one: only_one }
    }

    #[cold]
    fn wait(&self) {
        let mut waiting = ignore_panic(self.waiting.lock());
        while self.shut.load(Ordering::SeqCst) {
            waiting = ignore_panic(self.opened.wait(waiting));
        }
    }
}

/// The locks here guard nothing that could be half done.
fn ignore_panic<T>(lock: Result<T, PoisonError<T>>) -> T {
    lock.unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        // Sequentially consistent: what was stored comes before the writer asks whether somebody
        // has to be woken to sync it.
        self.stripe.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Stillness<'_> {
    fn drop(&mut self) {
        let _waiting = ignore_panic(self.gate.waiting.lock());
        self.gate.shut.store(false, Ordering::SeqCst);
        self.gate.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_writes_while_the_gate_is_shut() {
        // Fails if a writer could slip in between the closing of the gate and the count: two
        // counters that every write raises one after the other would then be seen apart.
        let gate = Gate::default();
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _pass = gate.enter();
                        first.fetch_add(1, Ordering::Relaxed);
                        std::hint::spin_loop();
                        second.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2000 {
                let still = gate.shut();
                let seen = first.load(Ordering::Relaxed);
                assert_eq!(seen, second.load(Ordering::Relaxed));
                std::thread::yield_now();
                assert_eq!(seen, first.load(Ordering::Relaxed));
                drop(still);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(first.into_inner() > 0);
    }

    #[test]
    fn a_panicking_writer_leaves_the_gate_usable() {
        // Fails if a write that panics were counted for ever: a check would wait for ever.
        let gate = Gate::default();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _pass = gate.enter();
            panic!("in the middle of a write");
        }));
        assert!(result.is_err());
        drop(gate.shut());
        drop(gate.enter());
    }

    #[test]
    fn a_shut_gate_waits_for_upkeep_and_one_that_is_shut_for_writes_does_not() {
        // Fails if a check ran beside the engine's maintenance, or if a snapshot waited for it.
        let gate = Gate::default();
        let pass = gate.enter_for_upkeep();
        drop(gate.shut_for_writes());
        let has_left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let shut = scope.spawn(|| {
                let _still = gate.shut();
                has_left.load(Ordering::SeqCst)
            });
            std::thread::sleep(core::time::Duration::from_millis(50));
            has_left.store(true, Ordering::SeqCst);
            drop(pass);
            assert!(shut.join().unwrap(), "it did not wait");
        });
    }
}
