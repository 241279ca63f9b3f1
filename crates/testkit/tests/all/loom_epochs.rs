//! Epochs under loom: no reader meets a value that was handed out, on weak memory either.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use everhash_pmem::{AtomicWord, Epochs};
use everhash_testkit::primitives::{Loom, LoomWord, without_fences};
use loom::cell::UnsafeCell;

/// A value that is linked, and how often it was handed out for reuse.
struct Shared {
    epochs: Epochs<Loom, u64>,
    link: LoomWord,
    reused: LoomWord,
    /// The value's contents: loom reports a reader whose loads are not over when they change. The
    /// lock makes it shareable; loom does not know it, so it orders nothing.
    contents: Mutex<UnsafeCell<()>>,
}

impl Shared {
    /// `steps` collections came before the model, so that both parities are met.
    fn new(steps: usize) -> Self {
        let epochs = Epochs::new(1);
        for _ in 0..steps {
            epochs.collect(|_| {});
        }
        Shared {
            epochs,
            link: LoomWord::new(1),
            reused: LoomWord::new(0),
            contents: Mutex::new(UnsafeCell::new(())),
        }
    }

    /// Returns whether the value was found.
    fn read(&self) -> bool {
        let _pinned = self.epochs.pin();
        let found = self.link.load(Acquire) == 1;
        if found {
            assert_eq!(self.reused.load(Relaxed), 0, "reused under a reader");
            self.contents.try_lock().unwrap().with(|_| ());
        }
        found
    }

    fn unlink(&self) {
        self.link.store(0, Release);
        self.epochs.retire(1);
    }

    fn collect(&self) -> usize {
        self.epochs.collect(|_| {
            self.reused.store(1, Relaxed);
            self.contents.try_lock().unwrap().with_mut(|_| ());
        })
    }
}

fn model(preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(body);
}

/// One reader beside a writer that unlinks and collects twice, in every interleaving. Returns
/// whether the reader found the value, and whether the writer got it back.
fn one_reader(steps: usize) -> BTreeSet<(bool, bool)> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&outcomes);
    model(None, move || {
        let shared = Arc::new(Shared::new(steps));
        let reader = Arc::clone(&shared);
        let reader = loom::thread::spawn(move || reader.read());
        shared.unlink();
        let count = shared.collect() + shared.collect();
        let found = reader.join().unwrap();
        all.lock().unwrap().insert((found, count == 1));
        assert_eq!(count + shared.collect(), 1, "a value is handed out once, and not lost");
    });
    outcomes.lock().unwrap().clone()
}

#[test]
fn no_reader_meets_a_value_that_was_handed_out() {
    // Fails if a fence of the protocol is missing or too weak; and if some outcome was never met,
    // for then too little was tested.
    for steps in [0, 1] {
        let outcomes = one_reader(steps);
        let every = [(false, false), (false, true), (true, false), (true, true)];
        assert_eq!(outcomes, BTreeSet::from(every));
    }
}

#[test]
fn two_threads_that_collect_hand_a_value_out_once() {
    // Fails if the steps of two collectors mix, so that a reader is passed over.
    model(Some(4), || {
        let shared = Arc::new(Shared::new(1));
        let reader = Arc::clone(&shared);
        let reader = loom::thread::spawn(move || reader.read());
        let collector = Arc::clone(&shared);
        let collector = loom::thread::spawn(move || collector.collect());
        shared.unlink();
        let count = shared.collect();
        reader.join().unwrap();
        assert!(count + collector.join().unwrap() <= 1);
    });
}

#[test]
fn epochs_without_fences_are_caught() {
    // Fails if the model is too small to show what the fences are for.
    assert!(without_fences(|_| true, || one_reader(0)).is_err());
}
