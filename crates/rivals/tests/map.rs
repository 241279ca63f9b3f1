//! The rivals against a map, against a crash, and what each write of theirs costs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashMap;

use everhash_pmem::media::emulated::Emulated;
use everhash_pmem::media::flash::Flash;
use everhash_pmem::media::virtual_time::Timing;
use everhash_pmem::profile::{FlashDevice, Profile};
use everhash_pmem::{Image, Media, Region, Std};
use everhash_rivals::memory::{self, Cceh, Clevel, Dash, Probing};
use everhash_rivals::{Cuckoo, Inserted, Level, Linear, Order, PAGE_SLOTS, Rival, bytes_needed};
use everhash_testkit::random::Random;

const ORDERS: [Order; 3] = [Order::OneFlush, Order::Logged, Order::TokenLast];

/// The pages of each table.
const PAGES: u64 = 3;

fn cuckoo<M: Media + 'static>(region: &Region<M>, order: Order) -> Box<dyn Rival> {
    Box::new(Cuckoo::format(region.clone(), PAGES, order).unwrap())
}

fn linear<M: Media + 'static>(region: &Region<M>, order: Order) -> Box<dyn Rival> {
    Box::new(Linear::format(region.clone(), PAGES, order).unwrap())
}

fn level<M: Media + 'static>(region: &Region<M>, order: Order) -> Box<dyn Rival> {
    Box::new(Level::format(region.clone(), PAGES / 3, order, true).unwrap())
}

/// Every scheme on a medium of its own.
fn each<M: Media + 'static>(order: Order, medium: impl Fn() -> Region<M>) -> [Subject<M>; 3] {
    [("cuckoo", cuckoo as fn(&_, _) -> _), ("linear", linear), ("level", level)].map(
        |(name, make)| {
            let region = medium();
            let table = make(&region, order);
            Subject { name, region, table }
        },
    )
}

struct Subject<M: Media> {
    name: &'static str,
    region: Region<M>,
    table: Box<dyn Rival>,
}

fn image() -> Region<Image<Std>> {
    Region::new(Image::new(0, bytes_needed(64 * PAGES)))
}

/// Does one operation on both, and compares what they say. Returns whether the table is full.
fn step(
    table: &mut dyn Rival,
    map: &mut HashMap<u64, u64>,
    random: &mut Random,
    keys: u64,
) -> bool {
    let (key, value) = (random.below(keys), random.next());
    match random.below(8) {
        0..4 => match table.insert(key, value).unwrap() {
            Inserted::New => assert_eq!(map.insert(key, value), None),
            Inserted::Present => assert!(map.contains_key(&key)),
            Inserted::Full => {
                assert!(!map.contains_key(&key));
                return true;
            }
        },
        4 => {
            let is_there = map.get_mut(&key).map(|old| *old = value).is_some();
            assert_eq!(table.update(key, value).unwrap(), is_there);
        }
        5 => assert_eq!(table.remove(key).unwrap(), map.remove(&key).is_some()),
        _ => assert_eq!(table.get(key).unwrap(), map.get(&key).copied()),
    }
    false
}

fn compare(table: &dyn Rival, map: &HashMap<u64, u64>, keys: u64) {
    for key in 0..keys {
        assert_eq!(table.get(key).unwrap(), map.get(&key).copied(), "{key}");
    }
}

#[test]
fn every_answer_is_that_of_a_map() {
    // Fails if a pair is lost, doubled or resurrected by a move, a mark, a token or a full table.
    for order in ORDERS {
        for Subject { name, mut table, .. } in each(order, image) {
            let (mut map, mut random, mut full) = (HashMap::new(), Random::new(3), 0);
            let keys = 2 * table.slots();
            for _ in 0..40_000 {
                full += u64::from(step(&mut *table, &mut map, &mut random, keys));
            }
            compare(&*table, &map, keys);
            // With half as many keys gone as come, every scheme meets its end.
            assert!(full > 0, "{name} {order:?}");
        }
    }
}

#[test]
fn each_scheme_is_full_at_the_load_that_is_known_of_it() {
    // Fails if cuckoo hashing stops before it has moved pairs, probing before it has been around,
    // or Level Hashing without its move: 4 slots and 2 buckets reach 97 % (Dietzfelbinger and
    // Weidling, 2007), probing 100 %, and Level Hashing about 90 % (OSDI 2018).
    for (subject, least) in each(Order::OneFlush, image).into_iter().zip([93, 100, 80]) {
        let mut table = subject.table;
        let load = (0..).take_while(|key| table.insert(*key, 0).unwrap() == Inserted::New).count();
        let percent = 100 * load as u64 / table.slots();
        assert!((least..=100).contains(&percent), "{}: {percent} %", subject.name);
    }
}

#[test]
fn a_probe_comes_back_to_the_slots_before_its_first_one() {
    // Fails if a table has a free slot and says that it has none: that of the bucket in which the
    // probe began, before the slot that it began with.
    for seed in 0..200 {
        let region = Region::new(Image::<Std>::new(0, bytes_needed(1)));
        let mut table = Linear::format(region, 1, Order::OneFlush).unwrap();
        for key in 0..table.slots() {
            assert_eq!(table.insert(seed << 32 | key, 0).unwrap(), Inserted::New, "{seed}");
        }
        assert_eq!(table.insert(seed << 32 | table.slots(), 0).unwrap(), Inserted::Full);
    }
}

#[test]
fn levels_are_streams_of_their_own_where_they_are_asked_to_be() {
    // Fails if the figures of Level Hashing with streams were those of one without.
    for streams in [false, true] {
        let region = flash();
        let order = Order::TokenLast;
        let mut table = Level::format(region.clone(), PAGES / 3, order, streams).unwrap();
        let before = region.media().streams()[1].host_writes;
        while table.insert(region.media().counters().fences, 0).unwrap() == Inserted::New {}
        assert_eq!(region.media().streams()[1].host_writes > before, streams);
    }
}

/// Returns the load at which a table has more slots than before, so many times. Unit: percent.
fn loads(table: &mut dyn Rival, times: usize) -> Vec<u64> {
    let (mut key, mut found) = (0, Vec::new());
    while found.len() < times {
        let slots = table.slots();
        assert_eq!(table.insert(key, key).unwrap(), Inserted::New);
        if table.slots() > slots {
            found.push(100 * key / slots);
        }
        key += 1;
    }
    found
}

#[test]
fn each_index_on_memory_grows_at_its_load() {
    // Fails if a probe ended early or late, if a pair that can make room did not move, or if
    // the stash or a level were left out: all answers are right then, and every figure is another.
    // Unit: percent, of the first growths of a table with these keys.
    let expected: [[u64; 6]; 7] = [
        [53, 53, 35, 42, 45, 43],
        [75, 74, 56, 67, 66, 55],
        [97, 91, 65, 93, 74, 63],
        [97, 91, 65, 93, 74, 63],
        [100, 100, 100, 99, 98, 99],
        [100, 95, 90, 92, 89, 93],
        [100, 95, 90, 92, 89, 93],
    ];
    let tables = on_memory(|| Region::new(Image::<Std>::new(0, 32 << 20)));
    for (Subject { name, mut table, .. }, expected) in tables.into_iter().zip(expected) {
        assert_eq!(loads(&mut *table, 6), expected, "{name}");
    }
    // And Level Hashing on pages, which grows when it is told to.
    let mut table = Level::format(image(), 1, Order::OneFlush, false).unwrap();
    let (mut key, mut found) = (0, Vec::new());
    while found.len() < 3 {
        match table.insert(key, key).unwrap() {
            Inserted::New => key += 1,
            _ => {
                found.push(100 * key / table.slots());
                assert!(table.grow().unwrap());
            }
        }
    }
    assert_eq!(found, [98, 98, 96]);
}

#[test]
fn updates_go_on_with_a_resize_and_leave_no_space_behind() {
    // Fails if only inserts rehashed, or if the space of a replaced or refused pair were lost: then
    // a table would be measured as larger than it is.
    let region = Region::new(emulated(&[]));
    let mut table = Clevel::format(region.clone(), 16, 1).unwrap();
    let (mut count, small) = (0, table.slots());
    while table.slots() == small {
        assert_eq!(table.insert(count, 0).unwrap(), Inserted::New);
        count += 1;
    }
    let (large, bytes) = (table.slots(), region.media().bytes());
    (0..1000).for_each(|number| assert!(table.update(number % count, number).unwrap()));
    assert!(table.slots() < large, "the level below stays");
    for number in 0..1000 {
        assert_eq!(table.insert(number % count, 0).unwrap(), Inserted::Present);
    }
    // A context is an object, too, of which a resize needs another one.
    assert!(region.media().bytes() - bytes <= 8 << 10, "{}", region.media().bytes() - bytes);
}

#[test]
fn a_value_in_a_full_bucket_is_logged() {
    // Fails if an update in place, which could be torn, cost as little as one in a free slot.
    let region = Region::new(emulated(&[]));
    let mut table = memory::Level::format(region.clone(), 2).unwrap();
    (0..30).for_each(|key| assert_eq!(table.insert(key, 0).unwrap(), Inserted::New));
    let counted = || {
        let counters = region.media().counters();
        [counters.lines_flushed, counters.fences]
    };
    let mut costs: Vec<_> = (0..30)
        .map(|key| {
            let before = counted();
            assert!(table.update(key, 1).unwrap());
            [counted()[0] - before[0], counted()[1] - before[1]]
        })
        .collect();
    costs.sort_unstable();
    costs.dedup();
    // The pair and its token; or the record, the value, and the end of the record.
    assert_eq!(costs, [[2, 2], [3, 3]]);
}

#[test]
fn level_hashing_grows_and_keeps_its_pairs() {
    // Fails if a pair of the bottom level is left behind, or the new levels disagree on buckets.
    for order in ORDERS {
        let mut table = Level::format(image(), 1, order, false).unwrap();
        let (mut map, mut random, mut growths) = (HashMap::new(), Random::new(5), 0);
        for _ in 0..30_000 {
            if step(&mut table, &mut map, &mut random, 4 * 3 * PAGE_SLOTS) {
                assert!(table.grow().unwrap());
                growths += 1;
            }
        }
        compare(&table, &map, 4 * 3 * PAGE_SLOTS);
        assert!(growths >= 2);
    }
}

fn device() -> FlashDevice {
    let usual = Profile::named("tiered").unwrap().flash().unwrap().clone();
    // The cache holds the whole table, so that the only pages written are those that are flushed.
    FlashDevice { blocks: 64, block_pages: 16, streams: 2, cache_ratio: 1.0, ..usual }
}

fn flash() -> Region<Flash<Std>> {
    Region::new(Flash::new(&device(), Timing::Counting, bytes_needed(PAGES)))
}

#[test]
fn power_loss_keeps_what_was_acknowledged() {
    // Fails if a write returns before its page is flushed.
    for order in ORDERS {
        for Subject { name, region, mut table } in each(order, flash) {
            let (mut map, mut random) = (HashMap::new(), Random::new(9));
            for _ in 0..3_000 {
                step(&mut *table, &mut map, &mut random, PAGES * PAGE_SLOTS);
            }
            let words = region.media().crash(None);
            let left =
                Flash::<Std>::of(&device(), Timing::Counting, 0, &words, bytes_needed(PAGES));
            let left = Region::new(left);
            let opened: Box<dyn Rival> = match name {
                "cuckoo" => Box::new(Cuckoo::open(left, PAGES, order)),
                "linear" => Box::new(Linear::open(left, PAGES, order)),
                _ => Box::new(Level::open(left, PAGES / 3, order)),
            };
            compare(&*opened, &map, PAGES * PAGE_SLOTS);
        }
    }
}

#[test]
fn a_write_costs_the_pages_that_its_order_says() {
    // Fails if a rival is made to look worse than it is by a flush too many, or better by one that
    // is missing: insert, update with a free slot beside, removal.
    for (order, pages) in [
        (Order::OneFlush, [[1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        (Order::Logged, [[2, 2, 1], [2, 2, 1], [2, 2, 1]]),
        (Order::TokenLast, [[2, 2, 1], [2, 2, 1], [2, 2, 1]]),
    ] {
        for (Subject { name, region, mut table }, pages) in
            each(order, flash).into_iter().zip(pages)
        {
            let written = || region.media().counters().ftl.host_writes;
            let mut counts = vec![written()];
            assert_eq!(table.insert(1, 1).unwrap(), Inserted::New);
            counts.push(written());
            assert!(table.update(1, 2).unwrap());
            counts.push(written());
            assert!(table.remove(1).unwrap());
            counts.push(written());
            let steps: Vec<u64> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(steps, pages, "{name} {order:?}");
        }
    }
}

#[test]
fn a_move_costs_the_pages_that_its_order_says() {
    // Fails if a move saves the flush that keeps its pair, or pays one that nothing asks for. Of
    // the inserts that write more than others, the cheapest moved one pair.
    for (order, plain, with_a_move) in
        [(Order::OneFlush, 1, 2), (Order::Logged, 2, 5), (Order::TokenLast, 2, 5)]
    {
        for Subject { name, region, mut table } in each(order, flash) {
            let mut costs = Vec::new();
            for key in 0..PAGES * PAGE_SLOTS {
                let before = region.media().counters().ftl.host_writes;
                if table.insert(key, key).unwrap() == Inserted::Full {
                    break;
                }
                costs.push(region.media().counters().ftl.host_writes - before);
            }
            let least = costs.iter().copied().filter(|cost| *cost > plain).min();
            assert_eq!(costs.iter().copied().min(), Some(plain));
            assert_eq!(least, (name != "linear").then_some(with_a_move), "{name} {order:?}");
        }
    }
}

/// Every index on memory, on a medium of its own. Those that can have longer values have them, too.
fn on_memory<M: Media + 'static>(medium: impl Fn() -> Region<M>) -> [Subject<M>; 7] {
    type Make<M> = fn(Region<M>) -> Box<dyn Rival>;
    let all: [(&'static str, Make<M>); 7] = [
        ("cceh", |at| Box::new(Cceh::format(at, Probing::Published).unwrap())),
        ("cceh of PMDK", |at| Box::new(Cceh::format(at, Probing::Pmdk).unwrap())),
        ("dash", |at| Box::new(Dash::format(at, 1).unwrap())),
        ("dash, long", |at| Box::new(Dash::format(at, 9).unwrap())),
        ("level", |at| Box::new(memory::Level::format(at, 2).unwrap())),
        ("clevel", |at| Box::new(Clevel::format(at, 2, 1).unwrap())),
        ("clevel, long", |at| Box::new(Clevel::format(at, 2, 9).unwrap())),
    ];
    all.map(|(name, make)| {
        let region = medium();
        let table = make(region.clone());
        Subject { name, region, table }
    })
}

#[test]
fn every_answer_of_an_index_on_memory_is_that_of_a_map() {
    // Fails if a pair is lost, doubled or resurrected by a split, a move, the stash, or rehashing.
    for Subject { name, mut table, .. } in on_memory(|| Region::new(Image::<Std>::new(0, 32 << 20)))
    {
        let (mut map, mut random, first) = (HashMap::new(), Random::new(3), table.slots());
        let keys = 8_000;
        for _ in 0..30_000 {
            let is_full = step(&mut *table, &mut map, &mut random, keys);
            assert!(!is_full, "{name}");
        }
        compare(&*table, &map, keys);
        // It has grown, and is at least a third full.
        assert!(table.slots() > first && 3 * map.len() as u64 > table.slots(), "{name}");
    }
}

#[test]
fn a_search_reads_what_its_publication_says() {
    // Fails if a fingerprint or a tag saved no look at a key: a search that finds nothing would
    // read the pairs, too.
    for Subject { name, region, mut table } in on_memory(|| Region::new(emulated(&[]))) {
        (0..2000).for_each(|key| assert_eq!(table.insert(key, 0).unwrap(), Inserted::New));
        let loaded = || region.media().counters().bytes_loaded / 8;
        let before = loaded();
        (2000..4000).for_each(|key| assert_eq!(table.get(key).unwrap(), None));
        let each = (loaded() - before) as f64 / 2000.0;
        let most = match name {
            // Root, lock, depth and entry of the directory; two heads of four words.
            "dash" | "dash, long" => 4.0 + 2.0 * 4.0,
            // Root and three words of the context; place, number and 16 slots of each of two
            // levels; and which of them is above.
            "clevel" | "clevel, long" => 4.0 + 2.0 * 18.0 + 1.0,
            _ => continue,
        };
        // One key in 256 has a fingerprint of another one.
        assert!((most..most + 0.2).contains(&each), "{name}: {each}");
    }
}

/// Memory behind volatile caches that holds `words`.
fn emulated(words: &[u64]) -> Emulated<Std> {
    let profile = Profile::named("elimda-adr").unwrap();
    let bytes = words.len() as u64 * 8;
    Emulated::of(profile.memory().unwrap(), Timing::Counting, 0, words, bytes, 16 << 20)
}

#[test]
fn power_loss_keeps_what_an_index_on_memory_acknowledged() {
    // Fails if a write returns before its lines are flushed, or a split or a resize before its
    // pairs are: none of the lines in the cache is evicted.
    for Subject { name, region, mut table } in on_memory(|| Region::new(emulated(&[]))) {
        let (mut map, mut random, keys) = (HashMap::new(), Random::new(9), 4_000);
        for _ in 0..12_000 {
            step(&mut *table, &mut map, &mut random, keys);
        }
        let left = Region::new(emulated(&region.media().crash(None)));
        let opened: Box<dyn Rival> = match name {
            "cceh" => Box::new(Cceh::open(left, Probing::Published)),
            "cceh of PMDK" => Box::new(Cceh::open(left, Probing::Pmdk)),
            "dash" => Box::new(Dash::open(left, 1).unwrap()),
            "dash, long" => Box::new(Dash::open(left, 9).unwrap()),
            "level" => Box::new(memory::Level::open(left).unwrap()),
            "clevel" => Box::new(Clevel::open(left, 1)),
            _ => Box::new(Clevel::open(left, 9)),
        };
        compare(&*opened, &map, keys);
    }
}

#[test]
fn a_write_on_memory_costs_the_lines_that_its_publication_says() {
    // Fails if an index is made to look worse than it is by a flush too many, or better by one that
    // is missing: lines flushed, fences and words stored of insert, update, search and removal.
    let memory = || Region::new(emulated(&[]));
    let costs = [
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [2, 1, 0, 1],
        // A value of nine words takes two lines and a bit.
        [5, 5, 0, 2],
        [2, 2, 0, 1],
        [3, 4, 0, 2],
        [4, 5, 0, 2],
    ];
    let fences = [
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [2, 1, 0, 1],
        [4, 4, 0, 2],
        [2, 2, 0, 1],
        [3, 4, 0, 2],
        [3, 4, 0, 2],
    ];
    // Words: a lock is one when it is taken and one when it is released, in searches of CCEH, too.
    let stored: [[u64; 4]; 7] = [
        [4, 3, 2, 3],
        [4, 3, 2, 3],
        [7, 5, 0, 4],
        [17, 16, 0, 5],
        [3, 3, 0, 1],
        [4, 5, 0, 2],
        [12, 13, 0, 2],
    ];
    for (((Subject { name, region, mut table }, lines), fences), stored) in
        on_memory(memory).into_iter().zip(costs).zip(fences).zip(stored)
    {
        let counted = || {
            let counters = region.media().counters();
            [counters.lines_flushed, counters.fences, counters.bytes_stored / 8]
        };
        // The first one also makes the store of objects.
        assert_eq!(table.insert(1, 1).unwrap(), Inserted::New);
        let mut counts = vec![counted()];
        assert_eq!(table.insert(2, 1).unwrap(), Inserted::New);
        counts.push(counted());
        assert!(table.update(2, 2).unwrap());
        counts.push(counted());
        assert_eq!(table.get(2).unwrap(), Some(2));
        counts.push(counted());
        assert!(table.remove(2).unwrap());
        counts.push(counted());
        let steps = |what: usize| -> Vec<u64> {
            counts.windows(2).map(|pair| pair[1][what] - pair[0][what]).collect()
        };
        assert_eq!((steps(0), steps(1)), (lines.to_vec(), fences.to_vec()), "{name}");
        assert_eq!(steps(2), stored, "{name}");
    }
}
