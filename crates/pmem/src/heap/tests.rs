//! The heap against a set of words, through crashes that keep any subset of the records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::page::Page;
use super::*;
use crate::{Image, Region, Std};

const FROM: Addr = Addr::new(192);
const PAGE: u64 = 1024;

fn class(bytes: u64) -> Class {
    Class::of(bytes).unwrap()
}

fn fresh(bytes: u64, capacity: u64) -> Heap<Image<Std>> {
    let region = Region::new(Image::new(bytes, capacity));
    Heap::new(Arc::new(Space::fresh(region, FROM)), PAGE)
}

fn reopened(region: &Region<Image<Std>>) -> Heap<Image<Std>> {
    Heap::new(Arc::new(Space::new(region.clone(), FROM)), PAGE)
}

fn is_damage_at(found: Result<()>, at: Addr) -> bool {
    matches!(found, Err(Error::Corrupt { at: found, .. }) if found == at.byte())
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Give(usize),
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![1u64..130, 1u64..40, 1u64..2000].prop_map(Step::Take),
        4 => any::<usize>().prop_map(Step::Give),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// The judge: which record holds which stamp in all of its words.
#[derive(Default)]
struct Model {
    live: BTreeMap<Addr, (Class, u64)>,
    stamps: u64,
}

impl Model {
    fn apply(&mut self, heap: &mut Heap<Image<Std>>, step: &Step) {
        match *step {
            Step::Take(bytes) => {
                if let Ok(at) = heap.take(class(bytes)) {
                    self.stamps += 1;
                    let stamp = vec![self.stamps; (class(bytes).bytes() / WORD) as usize];
                    heap.space().region().access().write_words(at, &stamp).unwrap();
                    assert!(self.live.insert(at, (class(bytes), self.stamps)).is_none());
                }
            }
            Step::Give(which) => {
                if let Some(&at) = self.live.keys().nth(which % self.live.len().max(1)) {
                    let (class, _) = self.live.remove(&at).expect("found just now");
                    heap.give(at, class);
                }
            }
            Step::Crash(mut dice) => {
                // The crash forgets the heap; what is still linked is any subset, in any order.
                self.live.retain(|_, _| {
                    dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    dice >> 63 == 0
                });
                *heap = reopened(heap.space().region());
                let mut order: Vec<_> = self.live.iter().collect();
                order.sort_by_key(|(at, _)| at.byte().wrapping_mul(dice | 1));
                for (at, (class, _)) in order {
                    heap.claim(*at, *class).unwrap();
                    assert!(is_damage_at(heap.claim(*at, *class), *at), "claimed twice");
                }
            }
        }
        self.agrees(heap);
    }

    /// Whether every live record is whole and nothing else is in use.
    fn agrees(&self, heap: &Heap<Image<Std>>) {
        let pm = heap.space().region().access();
        let (mut small, mut large_bytes, mut pages) = (0, 0, BTreeSet::new());
        for (at, (class, stamp)) in &self.live {
            let mut words = vec![0; (class.bytes() / WORD) as usize];
            pm.read_words(*at, &mut words).unwrap();
            assert!(words.iter().all(|word| word == stamp), "{at:?} was handed out twice");
            if class.bytes() * LEAST_SLOTS <= PAGE {
                small += 1;
                pages.insert((at.byte() - FROM.byte()) / PAGE);
            } else {
                large_bytes += class.bytes().next_multiple_of(LINE);
            }
        }
        let usage = heap.usage().unwrap();
        assert_eq!((usage.small_records, usage.pages), (small, pages.len() as u64));
        let record_bytes: u64 = self.live.values().map(|(class, _)| class.bytes()).sum();
        assert_eq!(usage.record_bytes, record_bytes);
        let used = pages.len() as u64 * PAGE + large_bytes;
        assert_eq!(heap.space().usage().unwrap().used_bytes, used, "a page or a span leaked");
    }
}

proptest! {
    #[test]
    fn a_crash_frees_exactly_what_is_not_claimed(steps in prop::collection::vec(step(), 1..150)) {
        // Fails if a record is handed out twice, is lost by a crash, or stays in use after it.
        let mut heap = fresh(2048, 16 << 10);
        let mut model = Model::default();
        for step in &steps {
            model.apply(&mut heap, step);
        }
    }

    #[test]
    fn hostile_claims_end_in_errors(
        claims in prop::collection::vec((0u64..3000, 0..Class::COUNT as u64), 1..60),
        wild in any::<u64>(),
    ) {
        // Fails if any pointer panics, or if two claims that share a word are both accepted.
        let heap = reopened(fresh(16 << 10, 16 << 10).space().region());
        let mut words = BTreeSet::new();
        for (word, index) in claims {
            let (at, class) = (Addr::NULL.plus(word), Class::from_index(index).unwrap());
            if heap.claim(at, class).is_ok() {
                let span = Span::of_bytes(at, class.bytes());
                prop_assert!(span.start >= FROM && span.end_byte() <= 16 << 10);
                for offset in 0..span.words {
                    prop_assert!(words.insert(span.start.plus(offset)), "{at:?} overlaps");
                }
            }
            let wild = Addr::new(wild / WORD * WORD);
            prop_assert!(wild.byte() < 16 << 10 || is_damage_at(heap.claim(wild, class), wild));
        }
    }
}

#[test]
fn a_page_holds_one_class_and_its_records_lie_at_slots() {
    // Fails if a pointer with a damaged class or address passes.
    let heap = reopened(fresh(16 << 10, 16 << 10).space().region());
    let at = |offset| Addr::new(FROM.byte() + offset);
    heap.claim(at(0), class(48)).unwrap();
    heap.claim(at(48), class(48)).unwrap();
    assert!(is_damage_at(heap.claim(at(144), class(16)), at(144)), "another class");
    assert!(is_damage_at(heap.claim(at(128), class(200)), at(128)), "a span inside a page");
    assert!(is_damage_at(heap.claim(at(56), class(48)), at(56)), "between slots");
    assert!(is_damage_at(heap.claim(at(1008), class(48)), at(1008)), "behind the last slot");
    assert!(is_damage_at(heap.claim(at(15 * 1024), class(48)), at(15 * 1024)), "behind the end");
    assert!(is_damage_at(heap.claim(Addr::NULL, class(48)), Addr::NULL), "before the space");
    heap.claim(at(2048), class(200)).unwrap();
    assert!(is_damage_at(heap.claim(at(2048 + 512), class(16)), at(2048 + 512)), "page over span");
    assert!(is_damage_at(heap.claim(at(4096 + 1008), class(48)), at(4096 + 1008)), "a new page");
    assert_eq!(heap.usage().unwrap().small_records, 2);
    // A refused claim leaves nothing behind that would keep a page in use.
    heap.give(at(0), class(48));
    heap.give(at(48), class(48));
    heap.give(at(2048), class(200));
    assert_eq!(heap.space().usage().unwrap().used_bytes, 0);
}

#[test]
#[should_panic(expected = "a record is given once")]
fn a_record_given_twice_is_a_bug_of_ours() {
    // Fails if a double give frees somebody else's record.
    let heap = fresh(4096, 4096);
    let [one, _two] = [0, 1].map(|_| heap.take(class(16)).unwrap());
    heap.give(one, class(16));
    heap.give(one, class(16));
}

#[test]
#[should_panic(expected = "a record is given once")]
fn a_place_within_a_record_is_none() {
    // Fails if the record around a wrong address is freed while it is in use.
    let heap = fresh(4096, 4096);
    heap.give(heap.take(class(16)).unwrap().plus(1), class(16));
}

#[test]
fn what_records_take_is_counted_whether_they_lie_in_pages_or_not() {
    // Fails if a record is counted that is free, or not as long as its class, or if one that was
    // claimed does not count.
    let heap = fresh(1 << 14, 1 << 14);
    let count = |heap: &Heap<Image<Std>>| {
        let usage = heap.usage().unwrap();
        (usage.small_records, usage.record_bytes, usage.pages)
    };
    // 128 bytes are the longest of which eight lie in a page.
    let lengths = [16, 40, 128, 129, 1024];
    let records = lengths.map(|bytes| (heap.take(class(bytes)).unwrap(), class(bytes)));
    let all = (3, 16 + 40 + 128 + 160 + 1024, 3);
    assert_eq!(count(&heap), all);
    let again = reopened(heap.space().region());
    records.iter().for_each(|(at, class)| again.claim(*at, *class).unwrap());
    assert_eq!(count(&again), all);
    let dram = |heap: &Heap<Image<Std>>| heap.usage().unwrap().dram_bytes;
    let one = fresh(2048, 2048);
    one.take(class(128)).unwrap();
    assert!(dram(&one) > 0 && dram(&again) == 3 * dram(&one), "each has a word of bits");
    records.iter().for_each(|(at, class)| again.give(*at, *class));
    assert_eq!(count(&again), (0, 0, 0));
}

#[test]
fn a_full_device_is_an_error_and_a_give_makes_room() {
    // Fails if the last slots cannot be had, or if a refused take leaks.
    let heap = fresh(1024, 8192);
    let mut taken = Vec::new();
    while let Ok(at) = heap.take(class(64)) {
        taken.push(at);
    }
    assert_eq!(taken.len() as u64, (8192 - FROM.byte()) / PAGE * (PAGE / 64));
    assert!(matches!(heap.take(class(64)), Err(Error::Full { needed: 64 })));
    let one = taken.swap_remove(5);
    heap.give(one, class(64));
    assert_eq!(heap.take(class(64)).unwrap(), one);
}

#[test]
fn scattered_room_is_used_when_a_page_has_enough_of_it_or_the_medium_has_no_other() {
    // Fails if a slot is taken as soon as it is given, from a page that other threads change; if
    // what was scattered is not found where nothing else is, before an error or again and again; or
    // if it stays so when there are pages again.
    let region = Region::new(Image::<Std>::new(4096, FROM.byte() + (3 << 14)));
    let space = Arc::new(Space::fresh(region, FROM));
    let (heap, class) = (Heap::new(Arc::clone(&space), 1 << 14), class(16));
    let page = |at: Addr| (at.byte() - FROM.byte()) >> 14;
    let take = || page(heap.take(class).unwrap());
    let taken: Vec<_> = (0..1024).map(|_| heap.take(class).unwrap()).collect();
    taken[..31].iter().for_each(|at| heap.give(*at, class));
    assert_eq!(take(), 1);
    heap.give(taken[31], class);
    let in_first = |count: usize| (0..count).filter(|_| take() == 0).count();
    // The other page has 1023 slots.
    assert_eq!((in_first(32 + 1023), take()), (32, 2));
    (0..1023).for_each(|_| assert_eq!(take(), 2));
    taken[40..50].iter().for_each(|at| heap.give(*at, class));
    assert_eq!(in_first(10), 10);
    heap.give(taken[50], class);
    assert!(matches!(heap.shelf(class).take(&mut 0), Ok(Taken::Slot((0, _)))));
    assert!(matches!(heap.take(class), Err(Error::Full { .. })));
}

#[test]
fn a_page_that_is_full_when_it_is_claimed_has_no_room() {
    // Fails (by a panic of a later take) if recovery leaves it among the pages to take from.
    let before = fresh(4096, 4096);
    let records: Vec<_> = (0..8).map(|_| before.take(class(128)).unwrap()).collect();
    let heap = reopened(before.space().region());
    records.iter().for_each(|at| heap.claim(*at, class(128)).unwrap());
    let next = heap.take(class(128)).unwrap();
    assert!(next.byte() >= FROM.byte() + PAGE, "{next:?}");
}

#[test]
fn pages_are_numbered_from_the_beginning_of_the_space() {
    // Fails if a page has another number when it is taken than when a record in it is given back:
    // that would be told only where the space begins far behind the beginning of the medium.
    for from in [FROM.byte(), PAGE / 2, PAGE - 64, 5 * PAGE + 64] {
        let region = Region::new(Image::<Std>::new(16 * PAGE, 16 * PAGE));
        let heap = Heap::new(Arc::new(Space::fresh(region, Addr::new(from))), PAGE);
        let taken: Vec<_> = (0..20).map(|_| heap.take(class(128)).unwrap()).collect();
        taken.iter().for_each(|at| heap.give(*at, class(128)));
        assert_eq!(heap.usage().unwrap().pages, 0, "from {from}");
    }
}

#[test]
fn a_full_page_gives_no_slot() {
    // Fails if bits behind the last slot, where a page has no whole number of words, count as free.
    for slots in [1, 63, 64, 65, 100] {
        let mut page = Page::new(slots);
        let taken: Vec<u32> = std::iter::from_fn(|| page.take()).collect();
        assert_eq!(taken, (0..slots).collect::<Vec<_>>());
        assert!(page.is_full());
    }
}

#[test]
fn a_page_length_that_no_heap_has_is_a_bug_of_ours() {
    // Fails if records overlap, or if the number of a slot does not fit.
    for bytes in [0, 128, 1000, 1 << 33] {
        let space = Arc::clone(fresh(1024, 1024).space());
        let made = std::panic::AssertUnwindSafe(|| Heap::new(space, bytes).page_bytes);
        assert!(std::panic::catch_unwind(made).is_err(), "{bytes}");
    }
}

#[test]
fn what_is_scattered_rests_again_once_the_part_has_another_page() {
    // Fails if slots are taken one by one for ever, because the space was full once.
    let region = Region::new(Image::<Std>::new(1 << 14, FROM.byte() + 17 * (1 << 14)));
    let space = Arc::new(Space::fresh(region, FROM));
    let (heap, class) = (Heap::new(Arc::clone(&space), 1 << 14), class(128));
    let taken: Vec<_> = (0..16 * 128).map(|_| heap.take(class).unwrap()).collect();
    // The page behind those, which belongs to the part of the first, is another one's.
    let other = space.take(1 << 14, LINE).unwrap().span;
    heap.give(taken[0], class);
    assert_eq!(heap.take(class).unwrap(), taken[0]);
    assert!(matches!(heap.take(class), Err(Error::Full { .. })));
    space.give(other);
    assert_eq!(heap.take(class).unwrap(), other.start);
    heap.give(taken[1], class);
    assert_ne!(heap.take(class).unwrap(), taken[1]);
}

#[test]
fn a_thread_uses_the_page_that_another_one_has_just_added() {
    // Fails if each thread that found no room adds a page: all but one of them would be empty.
    let heap = fresh(4096, 4096);
    let (class, shelf) = (class(64), heap.shelf(class(64)));
    std::thread::scope(|scope| {
        let added = shelf.adding.lock().unwrap();
        let waiting = scope.spawn(|| heap.take(class));
        std::thread::sleep(Duration::from_millis(30));
        let number = heap.take_page(class).unwrap();
        shelf.change(number, |pages| pages.add(number, heap.slots(class))).unwrap();
        drop(added);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!((heap.usage().unwrap().pages, heap.usage().unwrap().small_records), (1, 2));
}

#[test]
fn threads_whose_numbers_follow_one_another_begin_far_apart() {
    // Fails if two threads take from one page until they meet at its lock.
    let heap = fresh(1024, 1024);
    let starts: Vec<_> = heap.starts.iter().map(|start| start.load(Ordering::Relaxed)).collect();
    let parts = shelf::PARTS as u64;
    assert!(starts.windows(2).all(|two| two[0].abs_diff(two[1]) >= parts / 4), "{starts:?}");
    assert!((0..parts).all(|part| starts.contains(&part)), "{starts:?}");
}

#[test]
fn a_new_page_holds_a_record_though_a_lower_one_has_room_by_then() {
    // Fails if a page is left without a record: nobody gives it back, for no give empties it.
    let mut pages = shelf::Pages::default();
    pages.add(0, 8);
    assert_eq!((pages.add(1, 8), pages.all[&1].used()), (0, 1));
    // From then on, the lowest page with room is used.
    assert_eq!(pages.take(), Some((0, 1)));
}

#[test]
fn a_thread_takes_where_nobody_is_and_goes_on_there() {
    // Fails if a take waits for a part although another one has room, or meets the same thread
    // again at the next take.
    let heap = fresh(4096, 4096);
    let class = class(64);
    let taken: Vec<_> = (0..17).map(|_| heap.take(class).unwrap()).collect();
    let page = |at: Addr| (at.byte() - FROM.byte()) / PAGE;
    assert_eq!((page(taken[0]), page(taken[16])), (0, 1));
    taken[..3].iter().for_each(|at| heap.give(*at, class));
    // Alone, a thread fills the first part with room.
    assert_eq!(page(heap.take(class).unwrap()), 0);
    let shelf = heap.shelf(class);
    assert_eq!(page(shelf.change(0, |_| heap.take(class).unwrap()).unwrap()), 1);
    assert_eq!(page(heap.take(class).unwrap()), 1);
    // With another page to add, room in any part comes first.
    assert_eq!(shelf.take_waiting().unwrap().unwrap().0, 0);
    let rest = (0..13 + 1).map(|_| page(heap.take(class).unwrap())).collect::<BTreeSet<_>>();
    assert_eq!((rest, heap.usage().unwrap().pages), (BTreeSet::from([0, 1]), 2));
    assert_eq!(shelf.take(&mut 0).unwrap(), Taken::NoRoom);
    assert!(shelf.take_waiting().unwrap().is_none());
}

#[test]
fn a_thread_that_finds_all_room_held_adds_a_page_and_goes_on_there() {
    // Fails if it waits while the medium has pages, or shares the page of the other thread again at
    // the next take.
    let heap = fresh(4096, 4096);
    let class = class(64);
    let page = |at: Addr| (at.byte() - FROM.byte()) / PAGE;
    assert_eq!(page(heap.take(class).unwrap()), 0);
    let shelf = heap.shelf(class);
    assert_eq!(page(shelf.change(0, |_| heap.take(class).unwrap()).unwrap()), 1);
    assert_eq!(page(heap.take(class).unwrap()), 1);
}

#[test]
fn a_thread_waits_for_held_room_if_the_medium_has_no_other_page() {
    // Fails if it says that the medium is full although a slot is free: the other thread holds the
    // only part with room for long enough that it would have said so.
    let heap = fresh(2048, 2048);
    let class = class(64);
    let _first = heap.take(class).unwrap();
    std::thread::scope(|scope| {
        let take = || scope.spawn(|| heap.take(class));
        let waiting = heap.shelf(class).change(0, |_| {
            let waiting = take();
            std::thread::sleep(Duration::from_millis(30));
            waiting
        });
        waiting.unwrap().join().unwrap().unwrap();
    });
}

#[test]
fn threads_never_share_a_record() {
    // Fails if two threads are handed the same words: each writes its name and reads it back.
    let heap = Arc::new(fresh(4096, 1 << 20));
    let workers: Vec<_> = (1..=4u64)
        .map(|name| {
            let heap = Arc::clone(&heap);
            std::thread::spawn(move || {
                let pm = heap.space().region().access();
                let mut held = Vec::new();
                for round in 0..20_000u64 {
                    let dice = round.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ name) >> 33;
                    if held.len() < 60 && dice % 8 < 5 {
                        let class = class(1 + dice % 4 * 50);
                        let at = heap.take(class).unwrap();
                        let words = vec![name; (class.bytes() / WORD) as usize];
                        pm.write_words(at, &words).unwrap();
                        held.push((at, class, words));
                    } else if !held.is_empty() {
                        let (at, class, words) = held.swap_remove(dice as usize % held.len());
                        let mut found = vec![0; words.len()];
                        pm.read_words(at, &mut found).unwrap();
                        assert_eq!(found, words);
                        heap.give(at, class);
                    }
                }
                held.into_iter().for_each(|(at, class, _)| heap.give(at, class));
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(heap.usage().unwrap(), HeapUsage::default());
    assert_eq!(heap.space().usage().unwrap().used_bytes, 0);
}

#[test]
fn a_million_records_cost_a_bit_each_and_few_nanoseconds() {
    // Fails if the map of a page is larger than promised.
    let region = Region::new(Image::<Std>::new(4096, 256 << 20));
    let heap = Heap::new(Arc::new(Space::fresh(region, FROM)), Heap::<Image<Std>>::PAGE_BYTES);
    let count = 1_000_000u32;
    for bytes in [16, 64, 128] {
        let start = Instant::now();
        let taken: Vec<_> = (0..count).map(|_| heap.take(class(bytes)).unwrap()).collect();
        let took = start.elapsed() / count;
        let usage = heap.usage().unwrap();
        let start = Instant::now();
        taken.iter().for_each(|at| heap.give(*at, class(bytes)));
        let gave = start.elapsed() / count;
        let bits = usage.dram_bytes as f64 * 8.0 / f64::from(count);
        println!(
            "1 M records of {bytes} B: take {took:?}, give {gave:?}, {bits:.2} bits of DRAM each"
        );
        // Beside the bit, a page costs a page structure and two keys.
        let page_bits = (usage.pages * (size_of::<Page>() as u64 + 16 + 8) * 8) as f64;
        assert!((1.0..=1.0 + page_bits / f64::from(count)).contains(&bits), "{bits}");
    }
}
