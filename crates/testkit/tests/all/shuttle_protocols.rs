//! Space, heap and sequences under shuttle: larger programs than loom can bear.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use everhash_pmem::{
    Addr, AtomicWord, Class, Error, Heap, Image, Media, Region, Sequence, Space, Span,
};
use everhash_testkit::primitives::{Shuttle, ShuttleWord};
use shuttle::thread;

type Medium = Image<Shuttle>;

const FROM: Addr = Addr::new(64);

fn space(bytes: u64, capacity: u64) -> Arc<Space<Medium>> {
    Arc::new(Space::fresh(Region::new(Medium::new(bytes, capacity)), FROM))
}

#[test]
fn threads_that_grow_the_medium_together_never_share_a_line() {
    // Fails if a line is handed out twice, or if the medium is called full while lines are free:
    // three threads want 15 lines of 15, and the medium has to grow under them.
    shuttle::check_random(
        || {
            let space = space(64, 16 * 64);
            let threads: Vec<_> = [1u64, 2, 2]
                .into_iter()
                .map(|lines| {
                    let space = Arc::clone(&space);
                    thread::spawn(move || {
                        let first = space.take(lines * 64, 64).unwrap().span;
                        let second = space.take(lines * 64, 64).unwrap().span;
                        space.give(first);
                        vec![second, space.take(lines * 64, 64).unwrap().span]
                    })
                })
                .collect();
            let spans: Vec<Span> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
            for (index, span) in spans.iter().enumerate() {
                assert!(spans[..index].iter().all(|other| !other.overlaps(*span)));
            }
            assert_eq!(space.usage().unwrap().used_bytes, 10 * 64);
            assert!(space.region().media().bytes() <= 16 * 64);
        },
        3000,
    );
}

#[test]
fn the_last_page_serves_whoever_is_too_late_for_it() {
    // Fails if a thread is told that the heap is full while the page that another thread has just
    // got has room, or if a record is handed out twice.
    shuttle::check_random(
        || {
            let heap = Arc::new(Heap::new(space(64, 64 + 256), 256));
            let class = Class::of(32).unwrap();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let heap = Arc::clone(&heap);
                    thread::spawn(move || {
                        let first = heap.take(class).unwrap();
                        heap.take(class).unwrap();
                        heap.take(class).unwrap();
                        heap.give(first, class);
                        heap.take(class).unwrap();
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(heap.usage().unwrap().small_records, 6);
            heap.take(class).unwrap();
            heap.take(class).unwrap();
            assert!(matches!(heap.take(class), Err(Error::Full { .. })));
        },
        3000,
    );
}

#[test]
fn readers_wait_for_a_change_and_never_for_a_failed_one() {
    // Fails if a torn pair is accepted, or if a reader is left waiting (shuttle's step limit).
    shuttle::check_random(
        || {
            let shared =
                Arc::new((Sequence::<Shuttle>::new(), [ShuttleWord::new(0), ShuttleWord::new(0)]));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let (sequence, words) = &*shared;
                        let mut last = 0;
                        loop {
                            let read = || Ok([words[0].load(Relaxed), words[1].load(Relaxed)]);
                            let Ok([one, two]) = sequence.read_with(read) else { return last };
                            assert!(one == two && one >= last, "torn, or back in time");
                            last = one;
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            let (sequence, words) = &*shared;
            for value in 1..4 {
                let change = sequence.begin().unwrap();
                words.iter().for_each(|word| word.store(value, Relaxed));
                if value < 3 {
                    change.end();
                }
            }
            readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() < 3));
        },
        3000,
    );
}
