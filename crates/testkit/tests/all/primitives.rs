//! The schedulers' primitives are what they say: they find what they are there to find.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

use everhash_pmem::{Addr, AtomicWord, Block, Lock, LockPoisoned, Primitives, Region, Site};
use everhash_testkit::primitives::{
    Loom, LoomMedium, RehearsedWord, Shuttle, read_beside, read_beside_rehearsed,
};

type Word<P> = <P as Primitives>::AtomicU64;

/// Adds one by a load and a store, which loses counts between threads.
fn count<P: Primitives>(word: &Word<P>) {
    let seen = word.load(SeqCst);
    word.store(seen + 1, SeqCst);
}

#[test]
fn shuttle_loses_a_count_that_is_not_atomic() {
    // Fails if the word were an ordinary atomic: no schedule would ever come between.
    let found = catch_unwind(|| {
        shuttle::check_random(
            || {
                let word = Arc::new(Word::<Shuttle>::new(0));
                let other = Arc::clone(&word);
                let thread = shuttle::thread::spawn(move || count::<Shuttle>(&other));
                count::<Shuttle>(&word);
                thread.join().unwrap();
                assert_eq!(word.load(SeqCst), 2);
            },
            1000,
        );
    });
    assert!(found.is_err());
}

#[test]
fn shuttle_names_its_threads_and_counts_under_its_lock() {
    // Fails if the lock does not exclude, if two tasks share a number, or if a held lock is taken.
    shuttle::check_random(
        || {
            let lock = Arc::new(<Shuttle as Primitives>::Mutex::<u64>::new(0));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let lock = Arc::clone(&lock);
                    shuttle::thread::spawn(move || {
                        let mut guard = lock.lock().unwrap();
                        let seen = *guard;
                        Shuttle::pause(0);
                        assert!(lock.try_lock().unwrap().is_none());
                        *guard = seen + 1;
                        Shuttle::thread()
                    })
                })
                .collect();
            let names: BTreeSet<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(names.len(), 3);
            assert_eq!(*lock.lock().unwrap(), 3);
        },
        200,
    );
}

#[test]
fn shuttle_reports_a_poisoned_lock() {
    // Fails if a panic with the lock held goes unnoticed.
    shuttle::check_random(
        || {
            let lock = Arc::new(<Shuttle as Primitives>::Mutex::<u64>::new(0));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _guard = lock.lock().unwrap();
                panic!("with the lock held");
            }));
            assert!(caught.is_err());
            assert_eq!(lock.lock().err(), Some(LockPoisoned));
            assert_eq!(lock.try_lock().err(), Some(LockPoisoned));
        },
        1,
    );
}

/// One thread stores data and then a flag; the other sees the flag and returns the data it sees.
fn published<P: Primitives>(flag: &Word<P>, data: &Word<P>) -> Option<u64> {
    (flag.load(Acquire) == 1).then(|| data.load(Relaxed))
}

fn loom_publishes(order: std::sync::atomic::Ordering) -> BTreeSet<Option<u64>> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&seen);
    loom::model(move || {
        let words = Arc::new((Word::<Loom>::new(0), Word::<Loom>::new(0)));
        let other = Arc::clone(&words);
        let thread = loom::thread::spawn(move || {
            other.1.store(7, Relaxed);
            other.0.store(1, order);
            assert_eq!(<Loom>::thread(), 1);
        });
        all.lock().unwrap().insert(published::<Loom>(&words.0, &words.1));
        thread.join().unwrap();
    });
    seen.lock().unwrap().clone()
}

#[test]
fn loom_sees_weak_memory_where_it_is_asked_for_and_nowhere_else() {
    // Fails if an order is lost on the way: the relaxed flag must show stale data, the other not.
    assert_eq!(loom_publishes(Relaxed), BTreeSet::from([None, Some(0), Some(7)]));
    assert_eq!(loom_publishes(Release), BTreeSet::from([None, Some(7)]));
}

#[test]
fn loom_counts_under_its_lock() {
    // Fails if the lock does not exclude.
    loom::model(|| {
        let lock = Arc::new(<Loom as Primitives>::Mutex::<u64>::new(0));
        let other = Arc::clone(&lock);
        let thread = loom::thread::spawn(move || *other.lock().unwrap() += 1);
        if let Some(mut guard) = lock.try_lock().unwrap() {
            *guard += 10;
        } else {
            *lock.lock().unwrap() += 10;
        }
        thread.join().unwrap();
        assert_eq!(*lock.lock().unwrap(), 11);
    });
}

/// Primitives whose words are explored if the writer changed them in the rehearsal.
type Rehearsed = Loom<RehearsedWord>;

/// Makes two words that hold nothing.
fn two_words() -> [Word<Rehearsed>; 2] {
    [0, 1].map(|_| AtomicWord::new(0))
}

#[test]
fn loom_explores_what_the_writer_changed_in_its_rehearsal() {
    // Fails if a changed word is taken for one that rests, or the reader sees the rehearsal.
    let seen = read_beside_rehearsed(
        1,
        two_words,
        |[first, second]| (second.load(Acquire), first.load(Relaxed)),
        |[first, second]| {
            first.store(1, Relaxed);
            second.store(2, Release);
            second.store(2, Release);
        },
    );
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (2, 1)]));
}

#[test]
fn a_writer_that_does_not_keep_to_its_rehearsal_ends_the_model() {
    // Fails if a word that is not explored changes beside the reader: what that would see then is
    // no value that loom has chosen.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let strays = || {
        read_beside_rehearsed(
            1,
            two_words,
            |[first, _]| first.load(Relaxed),
            |words| words[RUNS.fetch_add(1, Relaxed).min(1)].store(1, Relaxed),
        )
    };
    assert!(catch_unwind(strays).is_err());
    assert_eq!(RUNS.load(Relaxed), 2);
}

/// A word of a medium.
const AT: Addr = Addr::new(64);

#[test]
fn a_medium_that_was_sealed_takes_no_store_to_a_word_that_rests() {
    // Fails if a word that is not explored could change while threads run: what a reader sees of
    // it is no value that loom has chosen.
    loom::model(|| {
        let region = Region::new(LoomMedium::<Loom>::new([], [(AT, 0)]).unsealed());
        region.access().store(AT, 1).unwrap();
        region.media().seal();
        assert!(catch_unwind(AssertUnwindSafe(|| region.access().store(AT, 2))).is_err());
        assert_eq!(region.access().load(AT).unwrap(), 1);
    });
}

#[test]
fn whoever_knows_of_a_fence_sees_what_it_made_durable() {
    // Fails if a reader that is right would be accused, because what it accepted seems not to be
    // durable yet.
    const SITE: Site = Site::new("primitives/test");
    let seen = read_beside(
        3,
        || Region::new(LoomMedium::<Loom>::new([(AT, 0)], [])),
        |region| {
            let pm = region.access();
            let flag = pm.block::<1>(AT).unwrap();
            let fenced = Block::<1>::load_relaxed(&flag, 0) == 1;
            fenced.then(|| region.media().durable())
        },
        |region| {
            region.media().will_be_durable(7);
            region.access().fence(SITE).unwrap();
            region.access().commit_word(AT, 1, SITE).unwrap();
        },
        None,
    );
    assert_eq!(seen, BTreeSet::from([None, Some(7)]));
}
