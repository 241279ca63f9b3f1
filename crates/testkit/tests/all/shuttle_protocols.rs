//! Space, heap, epochs and sequences under shuttle: larger programs than loom can bear.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use everhash_pmem::{
    Addr, AtomicWord, Class, Epochs, Error, Heap, Image, Media, Region, Sequence, Space, Span,
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
fn records_are_reused_only_after_their_readers() {
    // Fails if a reader finds another record's stamp in the one that it followed a link to. Meant
    // for few, late switches: a random schedule would never let a reader sleep for long enough.
    shuttle::check_pct(
        || {
            let heap = Arc::new(Heap::new(space(1024, 1024), 256));
            let class = Class::of(16).unwrap();
            let write = move |heap: &Heap<Medium>, stamp: u64| {
                let at = heap.take(class).unwrap();
                heap.space().region().access().write_words(at, &[stamp, stamp]).unwrap();
                at.byte()
            };
            let link = Arc::new(ShuttleWord::new(write(&heap, 1)));
            let epochs = Arc::new(Epochs::<Shuttle, Addr>::new(2));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let (heap, link, epochs) = (heap.clone(), link.clone(), epochs.clone());
                    thread::spawn(move || {
                        for _ in 0..2 {
                            let _pinned = epochs.pin();
                            let at = Addr::new(link.load(Acquire));
                            let pm = heap.space().region().access();
                            let one = pm.load(at).unwrap();
                            thread::yield_now();
                            assert_eq!(pm.load(at.plus(1)).unwrap(), one, "reused under a reader");
                        }
                    })
                })
                .collect();
            for stamp in 2..6 {
                let old = link.load(Relaxed);
                link.store(write(&heap, stamp), Release);
                epochs.retire(Addr::new(old));
                epochs.collect(|at| heap.give(at, class));
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            epochs.collect(|at| heap.give(at, class));
            assert_eq!(heap.usage().unwrap().small_records, 1, "the linked one, and no other");
        },
        3000,
        3,
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
