//! Sequences under loom: no reader accepts what is torn or not yet durable, on weak memory either.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use everhash_pmem::{AtomicWord, Error, Sequence};
use everhash_testkit::primitives::{Loom, LoomWord, read_beside, without_fences};

/// Two words that belong together, and whether the present pair is durable.
struct Pair {
    sequence: Sequence<Loom>,
    words: [LoomWord; 2],
    durable: LoomWord,
}

impl Pair {
    fn new() -> Self {
        Pair {
            sequence: Sequence::new(),
            words: [LoomWord::new(0), LoomWord::new(0)],
            durable: LoomWord::new(0),
        }
    }

    fn write(&self, value: u64) {
        let change = self.sequence.begin().unwrap();
        self.words.iter().for_each(|word| word.store(value, Relaxed));
        self.durable.store(value, Relaxed);
        change.end();
    }

    /// Reads once, and returns what was accepted.
    fn read(&self) -> Option<u64> {
        let stamp = self.sequence.read().unwrap()?;
        let [one, two] = [0, 1].map(|i| self.words[i].load(Relaxed));
        if !self.sequence.validate(stamp) {
            return None;
        }
        assert_eq!(one, two, "torn");
        assert!(self.durable.load(Relaxed) >= one, "accepted before it was durable");
        Some(one)
    }
}

/// Returns what a reader accepted beside a writer that makes two changes.
fn read_beside_changes() -> BTreeSet<Option<u64>> {
    let change = |pair: &Pair| {
        pair.write(1);
        pair.write(2);
        assert_eq!(pair.read(), Some(2));
    };
    read_beside(200, Pair::new, Pair::read, change, None)
}

#[test]
fn a_reader_never_accepts_a_torn_or_undurable_pair() {
    // Fails if a fence is missing; and if readers accept nothing, or are never refused, for then
    // nothing was tested.
    let accepted = read_beside_changes();
    assert_eq!(accepted, BTreeSet::from([None, Some(0), Some(1), Some(2)]));
}

#[test]
fn readers_of_a_failed_change_get_an_error_and_do_not_wait() {
    // Fails (loom reports a loop without progress) if a reader waits for a change that never ends.
    loom::model(|| {
        let pair = Arc::new(Pair::new());
        let writer = Arc::clone(&pair);
        let writer = loom::thread::spawn(move || {
            let _change = writer.sequence.begin().unwrap();
            writer.words[0].store(9, Relaxed);
        });
        let found = pair.sequence.read_with(|| Ok(pair.words[0].load(Relaxed)));
        assert!(matches!(found, Ok(0) | Err(Error::Poisoned)), "{found:?}");
        writer.join().unwrap();
        assert!(matches!(pair.sequence.read(), Err(Error::Poisoned)));
        assert!(matches!(pair.sequence.begin(), Err(Error::Poisoned)));
    });
}

#[test]
fn a_missing_fence_is_caught_on_either_side() {
    // Fails if the model is too small to show what the fences are for.
    assert!(without_fences(|order| order == Release, read_beside_changes).is_err());
    assert!(without_fences(|order| order == Acquire, read_beside_changes).is_err());
}
