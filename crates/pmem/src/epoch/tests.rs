//! Epochs under real threads. Every interleaving of small programs is tried in `testkit`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use super::*;
use crate::Std;

fn collected(epochs: &Epochs<Std, u64>) -> Vec<u64> {
    let mut values = Vec::new();
    let count = epochs.collect(|value| values.push(value));
    assert_eq!(count, values.len());
    values
}

#[test]
fn a_value_waits_for_every_reader_that_may_have_seen_it_and_for_no_other() {
    // Fails if a value is handed out under a reader, or if a later reader holds it up.
    let epochs = Epochs::<Std, u64>::new(3);
    let [first, second] = [epochs.pin(), epochs.pin()];
    assert_eq!(epochs.retire(1), 1);
    assert_eq!(collected(&epochs), []);
    drop(first);
    for _ in 0..5 {
        assert_eq!(collected(&epochs), []);
    }
    let mut later = epochs.pin();
    assert_eq!(epochs.retire(2), 2);
    drop(second);
    // Readers come and go without a gap: the first value is free all the same.
    let mut found = Vec::new();
    for _ in 0..GRACE {
        found.extend(collected(&epochs));
        later = epochs.pin();
    }
    assert_eq!(found, [1, 2]);
    assert_eq!(epochs.waiting(), 0);
    drop(later);
}

#[test]
fn without_readers_one_collection_frees_all() {
    // Fails if values linger after the last reader has gone: a table that nobody reads would grow.
    let epochs = Epochs::<Std, u64>::new(2);
    for round in 0..10 {
        (0..100).for_each(|value| assert_eq!(epochs.retire(value), value as usize + 1));
        assert_eq!(collected(&epochs), (0..100).collect::<Vec<_>>(), "round {round}");
    }
}

#[test]
fn no_reader_meets_a_reused_value() {
    // Fails if a value is handed out too early: the reader would find another generation in it.
    const SLOTS: usize = 8;
    let epochs = Arc::new(Epochs::<Std, u64>::new(2));
    let links: Arc<Vec<AtomicU64>> = Arc::new((0..SLOTS as u64).map(AtomicU64::new).collect());
    // Even: linked or waiting; odd: free.
    let generations: Arc<Vec<AtomicU64>> =
        Arc::new((0..256).map(|value| AtomicU64::new((value >= SLOTS) as u64)).collect());
    let done = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (epochs, links) = (Arc::clone(&epochs), Arc::clone(&links));
            let (generations, done) = (Arc::clone(&generations), Arc::clone(&done));
            let reads = Arc::clone(&reads);
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _pinned = epochs.pin();
                    let value = links[reads.fetch_add(1, Ordering::Relaxed) as usize % SLOTS]
                        .load(Ordering::Acquire) as usize;
                    let seen = generations[value].load(Ordering::Relaxed);
                    assert_eq!(seen % 2, 0, "value {value} is free under a reader");
                    std::hint::spin_loop();
                    assert_eq!(generations[value].load(Ordering::Relaxed), seen);
                }
            })
        })
        .collect();
    let mut free: Vec<u64> = (SLOTS as u64..256).collect();
    let (mut round, mut reused) = (0, 0);
    let enough = |reused| reused >= 20_000 && reads.load(Ordering::Relaxed) >= 20_000;
    // A reader ends early by a failed assertion only.
    while !enough(reused) && !readers.iter().any(|reader| reader.is_finished()) {
        let Some(value) = free.pop() else {
            let found = epochs.collect(|value| {
                generations[value as usize].fetch_add(1, Ordering::Relaxed);
                free.push(value);
            });
            if found == 0 {
                std::thread::yield_now();
            }
            reused += found;
            continue;
        };
        generations[value as usize].fetch_add(1, Ordering::Relaxed);
        let old = links[round % SLOTS].swap(value, Ordering::AcqRel);
        epochs.retire(old);
        round += 1;
    }
    done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    println!("{} reads beside {reused} values reused", reads.load(Ordering::Relaxed));
}

#[test]
fn pinning_takes_nanoseconds() {
    // Fails if a pin takes a lock or allocates: that would be a hundred times as long.
    let epochs = Epochs::<Std, u64>::new(8);
    let count = 2_000_000u32;
    let start = Instant::now();
    (0..count).for_each(|_| drop(std::hint::black_box(epochs.pin())));
    let each = start.elapsed() / count;
    println!("pin and unpin: {each:?}");
    assert!(each.as_micros() < 2);
}
