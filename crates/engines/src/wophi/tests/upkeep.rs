//! Chains, pre-allocated buckets, growth and wear over a longer life.

use std::time::Duration;

use everhash_index::{
    Cursor, Engine, Error, Form, Inline, Opening, Settings, Stats, Table, create, open,
    open_read_only,
};
use everhash_pmem::crash::{Model, What};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{
    Boot, FileDurability, FileMedium, FileOptions, Image, LINE, Media, Region, Std,
};
use everhash_testkit::settle;

use crate::wophi::{Wophi, WophiSettings, WophiTable, bytes_needed};

fn make(settings: &WophiSettings, capacity: u64) -> (Region<Image>, WophiTable<Image>) {
    let region = Region::new(Image::<Std>::new(0, capacity));
    let table = create::<Wophi, _>(region.clone(), &Opening::default(), settings, &Inline).unwrap();
    (region, table)
}

fn own(stats: &Stats, name: &str) -> u64 {
    stats.own.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("no {name}")).1
}

pub(super) fn figure(table: &impl Table, name: &str) -> u64 {
    own(&table.stats().unwrap(), name)
}

/// Calls `maintain` until it has nothing left to do.
pub(super) fn maintain(table: &impl Table, budget: u32) {
    settle(table, Duration::ZERO, budget).unwrap();
}

/// Inserts pairs of words until a growth has begun; returns how many those are.
pub(super) fn insert_until_it_grows(table: &impl Table) -> u64 {
    let words = table.words().unwrap();
    let mut count = 0;
    while figure(table, "growing") == 0 {
        assert!(words.insert_word(count, count).unwrap());
        count += 1;
    }
    count
}

fn crowded(pab_divisor: u64) -> WophiSettings {
    let tiny = WophiSettings::tiny();
    WophiSettings { initial_buckets: 64, stripes: 8, grow_percent: 1000, pab_divisor, ..tiny }
}

#[test]
fn a_scan_shows_a_pair_once_while_the_table_grows() {
    // Fails if a growth moves a pair to where a scan has been, which misses it then, or to where it
    // is still to come, which shows it twice.
    let (_, table) = make(&WophiSettings::tiny(), 8 << 20);
    let words = table.words().unwrap();
    let count = 1000 + insert_until_it_grows(&table);
    (0..count).for_each(|key| assert!(words.put_word(key, key).is_ok()));
    let (mut times, mut fresh) = (vec![0; count as usize], count);
    let (before, mut next) = (table.stats().unwrap().device_bytes, Some(Cursor::default()));
    while let Some(cursor) = next {
        let mut see = |key: &[u8], _: &[u8]| {
            let key = u64::from_le_bytes(key.try_into().unwrap());
            if let Some(times) = times.get_mut(key as usize) {
                *times += 1;
            }
        };
        next = table.scan(cursor, &mut see).unwrap();
        // To twice its length and more; then the scan comes to its end.
        for _ in 0..if fresh < 5 * count { count / 4 } else { 0 } {
            assert!(words.insert_word(fresh, fresh).unwrap());
            fresh += 1;
        }
    }
    assert!(table.stats().unwrap().device_bytes > 2 * before);
    assert!(times.iter().all(|times| *times == 1), "{times:?}");
}

#[test]
fn emptied_buckets_leave_their_chains_and_are_used_again() {
    // Fails if a chain keeps empty buckets for ever, or if one is lost when it leaves.
    let (region, table) = make(&crowded(1), 1 << 20);
    let words = table.words().unwrap();
    (0..500u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let (used, all) = (figure(&table, "chained_buckets"), figure(&table, "pab_buckets"));
    assert!(used > all, "{used} of {all}: direct allocations are part of this test");
    let before = table.stats().unwrap().used_bytes - (used - all) * LINE;
    (0..500u64).for_each(|key| assert!(words.remove_word(key).unwrap()));
    maintain(&table, 7);
    // A stock that ran dry was refilled before the sweep gave anything back.
    let refilled = figure(&table, "pab_free") - all;
    assert!(refilled <= all / 16, "{refilled}");
    assert_eq!(figure(&table, "chained_buckets"), 0);
    assert_eq!(table.stats().unwrap().used_bytes, before + refilled * LINE);
    let bytes = region.media().bytes();
    (0..500u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert_eq!(region.media().bytes(), bytes, "the second life needed more space");
    assert_eq!(table.check().unwrap().items, 500);
}

#[test]
fn a_full_medium_has_emptied_buckets_again_without_rest() {
    // Fails if a pair that found no room has to wait, as other upkeep does, until nobody removes
    // pairs any more; or if a removal has all chains searched.
    let settings = WophiSettings { initial_buckets: 1024, ..crowded(64) };
    let (_, table) = make(&settings, bytes_needed(Form::WORDS, &settings) + 30 * LINE);
    let words = table.words().unwrap();
    let refused = (0..).find(|key| words.insert_word(*key, *key).is_err()).unwrap();
    let keep_up = || while table.maintain(Duration::from_secs(10), 100).unwrap().more {};
    let is_put = || words.insert_word(refused, 0).map_err(|error| assert!(error.is_full())).is_ok();
    for key in 0..refused {
        // What was refused before is forgotten.
        keep_up();
        assert!(words.remove_word(key).unwrap());
        let chained = figure(&table, "chained_buckets");
        keep_up();
        assert_eq!(figure(&table, "chained_buckets"), chained, "nobody needs room yet");
        assert!(!is_put(), "its own chain has room, or a sweep came: {key}");
        keep_up();
        if is_put() {
            return;
        }
    }
    panic!("no room without rest");
}

#[test]
fn a_bucket_in_the_middle_leaves_and_its_neighbours_stay() {
    // Fails if unlinking loses the rest of a chain.
    let (_, table) = make(&crowded(1), 1 << 20);
    let words = table.words().unwrap();
    (0..1000u64).for_each(|key| assert!(words.insert_word(key, !key).unwrap()));
    let before = figure(&table, "chained_buckets");
    let gone = |key: &u64| !key.is_multiple_of(5);
    (0..1000u64).filter(gone).for_each(|key| assert!(words.remove_word(key).unwrap()));
    maintain(&table, 50);
    assert!(figure(&table, "chained_buckets") < before / 2);
    for key in 0..1000 {
        let expected = (!gone(&key)).then_some(!key);
        assert_eq!(words.get_word(key).unwrap(), expected);
    }
    assert_eq!(table.check().unwrap().items, 200);
}

#[test]
fn buckets_that_run_out_are_allocated_directly_and_counted() {
    // Fails if a full chain is an error, or if running dry goes unnoticed; or if `maintain` does
    // not keep a stock.
    let (_, table) = make(&crowded(64), 1 << 20);
    let words = table.words().unwrap();
    (0..400u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let direct = figure(&table, "direct_allocations");
    assert!(direct > 50, "{direct}");
    for key in 400..800u64 {
        maintain(&table, 100);
        assert!(words.insert_word(key, key).unwrap());
    }
    assert_eq!(figure(&table, "direct_allocations"), direct, "a write had to allocate");
}

#[test]
fn maintenance_alone_completes_a_growth() {
    // Fails if a growth that begins and meets no further insert stays half done for ever.
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let (_, table) = make(&settings, 1 << 20);
    let key = insert_until_it_grows(&table);
    maintain(&table, 4);
    assert_eq!((figure(&table, "growing"), figure(&table, "main_buckets")), (0, 128));
    assert_eq!(table.check().unwrap().items, key);
}

#[test]
fn growth_that_finds_no_room_is_no_error_as_long_as_chains_have() {
    // Fails if an insert fails because the table cannot double, or if it never tries again.
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let needed = bytes_needed(Form::WORDS, &settings);
    let (_, table) = make(&settings, needed + 20 * LINE);
    let words = table.words().unwrap();
    let mut items = 0u64;
    let full = loop {
        match words.insert_word(items, items) {
            Ok(added) => assert!(added),
            Err(error) => break error,
        }
        items += 1;
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert!(items > 200, "{items}: 192 main slots, 16 and 20 buckets of three");
    assert_eq!(table.stats().unwrap().growth_steps, 0);
    (0..items).for_each(|key| assert_eq!(words.get_word(key).unwrap(), Some(key)));
    assert!(words.remove_word(7).unwrap() && words.insert_word(7, 8).unwrap());
}

#[test]
fn a_growth_that_a_crash_interrupts_goes_on() {
    // Fails if recovery forgets a growth, redoes what is done, or loses its place.
    // The second table is read by several jobs, each of which meets buckets that were not split.
    for initial_buckets in [1024, 8192] {
        let settings = WophiSettings { initial_buckets, stripes: 8, ..WophiSettings::tiny() };
        let (region, table) = make(&settings, 8 << 20);
        let key = insert_until_it_grows(&table);
        (0..100).for_each(|_| assert!(table.maintain(Duration::ZERO, 8).is_ok()));
        drop(table);
        let table = open::<Wophi, _>(region.clone(), Opening::default().boot, &Threads).unwrap();
        assert_eq!(figure(&table, "growing"), 1);
        let words = table.words().unwrap();
        (0..key).for_each(|key| assert_eq!(words.get_word(key).unwrap(), Some(key)));
        let before = table.len().unwrap();
        maintain(&table, 64);
        let buckets = figure(&table, "main_buckets");
        assert_eq!((figure(&table, "growing"), buckets), (0, 2 * initial_buckets));
        assert_eq!((table.len().unwrap(), before), (key, key));
        (0..key).for_each(|key| assert_eq!(words.get_word(key).unwrap(), Some(key)));
        let mut visited = 0;
        Wophi::check(&region, Boot::default(), &mut |_, _| visited += 1).unwrap();
        assert_eq!(visited, key);
    }
}

/// Runs every job on a thread of its own.
struct Threads;

impl everhash_index::Executor for Threads {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            (0..count).for_each(|number| drop(scope.spawn(move || job(number))));
        });
    }

    fn width(&self) -> usize {
        4
    }
}

#[test]
fn recovery_on_many_threads_finds_what_recovery_on_one_finds() {
    // Fails if jobs lose what others claimed, or count twice.
    for form in super::FORMS {
        let settings =
            WophiSettings { initial_buckets: 8192, stripes: 64, ..WophiSettings::default() };
        let region = Region::new(Image::<Std>::new(0, 32 << 20));
        let opening = Opening { form, ..Opening::default() };
        let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        for i in 0..20_000u64 {
            let key = i.to_le_bytes().repeat(if form == Form::DOUBLE_WORDS { 2 } else { 1 });
            assert!(table.insert(&key, &key).unwrap());
        }
        let used = |table: &WophiTable<Image>| {
            let stats = table.stats().unwrap();
            (stats.items, stats.used_bytes, own(&stats, "chained_buckets"), own(&stats, "pab_free"))
        };
        let before = used(&table);
        drop(table);
        let one = open::<Wophi, _>(region.clone(), opening.boot, &Inline).unwrap();
        assert_eq!(used(&one), before, "{form}");
        drop(one);
        let many = open::<Wophi, _>(region, opening.boot, &Threads).unwrap();
        assert_eq!(used(&many), before, "{form}");
    }
}

#[test]
fn what_threads_split_and_chain_stays_beside_memory_that_is_prepared() {
    // Fails if zeros are written where a bucket is in use: while groups split beside one another,
    // or when a growth goes on that the end of the process has interrupted.
    const THREADS: u64 = 4;
    const PAIRS: u64 = 5_000;
    let path = std::env::temp_dir().join(format!("wophi-growing-{}", std::process::id()));
    let options = FileOptions { durability: FileDurability::Process, ..FileOptions::default() };
    let settings = WophiSettings { stripes: 64, ..WophiSettings::tiny() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    drop(create::<Wophi, _>(region.clone(), &Opening::default(), &settings, &Inline).unwrap());
    region.media().publish().unwrap();
    drop(region);
    for round in 0..4 {
        let region = Region::new(FileMedium::open(&path, &options).unwrap());
        let table = open::<Wophi, _>(region, Opening::default().boot, &Inline).unwrap();
        let words = table.words().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for key in (thread..PAIRS).step_by(THREADS as usize) {
                        assert!(words.insert_word(round * PAIRS + key, key).unwrap());
                    }
                });
            }
        });
        for key in 0..(round + 1) * PAIRS {
            assert_eq!(words.get_word(key).unwrap(), Some(key % PAIRS), "{key}");
        }
        assert_eq!(table.check().unwrap().items, (round + 1) * PAIRS);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn slots_in_turn_spread_the_wear() {
    // Fails if using slots in turn stops sparing the line that the first free slot is in.
    println!(
        "write-backs per line, one key put in and taken out 3000 times in a chain that is \
              not empty (maximum, mean of the lines that were written):"
    );
    let mut most = Vec::new();
    for rotate in [0, 1] {
        let region = Region::new(Traced::<Std>::new(Model::Adr, 0, 64 << 10));
        let mut settings = WophiSettings { initial_buckets: 1, stripes: 1, ..crowded(1) };
        settings.set("rotate", rotate).unwrap();
        let opening = Opening { form: Form::DOUBLE_WORDS, ..Opening::default() };
        let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        let key = |i: u64| i.to_le_bytes().repeat(2);
        // Slot 0 stays taken, so that the other lines are what the choice is about.
        assert!(table.insert(&key(0), &key(0)).unwrap());
        region.media().take_log();
        for _ in 0..3000 {
            assert!(table.insert(&key(99), &key(99)).unwrap());
            assert!(table.remove(&key(99)).unwrap());
        }
        let mut writes = vec![0u64; (region.media().bytes() / LINE) as usize];
        for event in region.media().take_log().events() {
            if let What::Flush { line, count } = event.what {
                (line..line + count).for_each(|line| writes[line as usize] += 1);
            }
        }
        // The token's line is written by every commit, whatever slot it is about.
        let token_line = writes.iter().copied().max().unwrap();
        let others = writes.iter().copied().filter(|count| (1..token_line).contains(count));
        let (count, sum, max) =
            others.fold((0, 0, 0), |(n, sum, max), c| (n + 1, sum + c, c.max(max)));
        println!(
            "  rotate {rotate}: token line {token_line}, other lines {max}, {:.0}",
            sum as f64 / f64::from(count)
        );
        most.push(max);
    }
    assert!(most[1] * 5 < most[0] * 4, "{most:?}");
}

#[test]
fn an_interrupted_record_is_free_and_a_damaged_one_is_an_error() {
    // Fails if recovery believes, or reads, a record that no slot leads to; or if a record that a
    // slot leads to is taken for an interrupted insert when it is damaged.
    let region = Region::new(Image::<Std>::new(0, 64 << 10));
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let table =
        create::<Wophi, _>(region.clone(), &opening, &WophiSettings::tiny(), &Inline).unwrap();
    let (key, text) = (b"an eight", u64::from_le_bytes(*b"of eight"));
    let value = text.to_le_bytes().repeat(9);
    assert!(table.insert(key, &value).unwrap());
    drop(table);
    let words = region.media().words();
    let place = words.iter().position(|word| *word == text);
    let place = place.expect("key and value lie on the medium as whole words");
    let mut damaged = words.clone();
    damaged[place] ^= 1;
    let length = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&damaged, length, length));
    let table = open::<Wophi, _>(region.clone(), opening.boot, &Inline).unwrap();
    let found = table.get(key, &mut Vec::new());
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    assert!(matches!(table.check(), Err(Error::Corrupt { .. })));
    // Without a slot the same words are free space, and nobody looks at them.
    table.clear().unwrap();
    drop(table);
    let table = open::<Wophi, _>(region, opening.boot, &Inline).unwrap();
    assert_eq!(table.check().unwrap().items, 0);
    assert!(!table.get(key, &mut Vec::new()).unwrap());
    assert!(table.insert(key, &value).unwrap());
}

#[test]
fn whatever_empties_a_bucket_makes_it_leave_its_chain() {
    // Fails if a clear, a split, or an update that moves a pair to another bucket empties buckets
    // for which nobody looks before the next open.
    let splits = WophiSettings { grow_percent: 300, ..crowded(1) };
    let key = |number: u64| number.to_le_bytes().repeat(2);
    type Emptying = fn(&WophiTable<Image>, &[u8]);
    let cases: [(&str, WophiSettings, Emptying); 3] = [
        ("clear", crowded(1), |table, _| table.clear().unwrap()),
        ("update", crowded(1), |table, key| {
            (0..6u8).for_each(|value| assert!(table.update(key, &[value; 16]).unwrap()));
        }),
        ("split", splits, |_, _| {}),
    ];
    for (what, settings, act) in cases {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form: Form::DOUBLE_WORDS, ..Opening::default() };
        let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        (0..900).for_each(|number| assert!(table.insert(&key(number), &key(number)).unwrap()));
        if what == "update" {
            // Of each chain a few pairs are left, and none has room beside itself.
            let removed = (0..900).filter(|number| number % 7 != 0);
            removed.for_each(|number| assert!(table.remove(&key(number)).unwrap()));
            maintain(&table, 1000);
        }
        (0..900).step_by(7).for_each(|number| act(&table, &key(number)));
        maintain(&table, 1000);
        let chained = figure(&table, "chained_buckets");
        drop(table);
        let again = open::<Wophi, _>(region, opening.boot, &Inline).unwrap();
        maintain(&again, 1000);
        assert_eq!(figure(&again, "chained_buckets"), chained, "{what}: an open finds empty ones");
    }
}

#[test]
fn a_growth_that_uses_up_a_call_of_upkeep_forgets_no_emptied_bucket() {
    // Fails if a call that has no budget left for the sweep counts the emptied buckets as looked
    // at: the groups of this growth use up a call exactly, with the budget that the store gives.
    let settings = WophiSettings { initial_buckets: 256, group_buckets: 8, ..Default::default() };
    let settings = WophiSettings { stripes: 64, ..settings };
    let (_, table) = make(&settings, 1 << 20);
    insert_until_it_grows(&table);
    assert!(figure(&table, "chained_buckets") > 10);
    table.clear().unwrap();
    maintain(&table, 256);
    assert_eq!((figure(&table, "growing"), figure(&table, "chained_buckets")), (0, 0));
}

#[test]
fn buckets_that_a_killed_process_left_empty_leave_their_chains() {
    // Fails if an open forgets the empty buckets that it met, or if nobody notes how long chains
    // get.
    let (region, table) = make(&crowded(1), 1 << 20);
    let words = table.words().unwrap();
    (0..500u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    // The longest chain is as long as the average at least.
    let least = figure(&table, "chained_buckets").div_ceil(64) + 1;
    assert!(figure(&table, "longest_chain") >= least, "{least}");
    (0..500u64).for_each(|key| assert!(words.remove_word(key).unwrap()));
    drop(table);
    let table = open::<Wophi, _>(region, Opening::default().boot, &Inline).unwrap();
    maintain(&table, 7);
    assert_eq!(figure(&table, "chained_buckets"), 0);
}

#[test]
fn an_open_and_a_clear_know_how_full_a_table_is() {
    // Fails if a table that was opened grows late, or if one that was cleared grows again and again
    // for the same pairs.
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let is_larger = |table: &WophiTable<Image>| {
        figure(table, "growing") == 1 || figure(table, "main_buckets") > 64
    };
    let (_, table) = make(&settings, 1 << 20);
    let words = table.words().unwrap();
    let insert = |key: &u64| words.insert_word(*key, *key).unwrap() && is_larger(&table);
    let count = (0..1000u64).find(insert).unwrap();
    let (region, table) = make(&settings, 1 << 20);
    for _ in 0..5 {
        let words = table.words().unwrap();
        (0..count * 3 / 4).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
        table.clear().unwrap();
    }
    assert!(!is_larger(&table), "it grew for pairs that were cleared");
    let words = table.words().unwrap();
    (0..count - 20).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert!(!is_larger(&table));
    drop(table);
    let table = open::<Wophi, _>(region, Opening::default().boot, &Inline).unwrap();
    let words = table.words().unwrap();
    (count..count + 60).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert!(is_larger(&table), "it does not know how many pairs there were");
}

#[test]
fn upkeep_takes_space_ahead_of_the_next_growth_once() {
    // Fails if a growth waits for the device, or if a table at rest takes more and more.
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let (region, table) = make(&settings, 1 << 20);
    let words = table.words().unwrap();
    let maintain = || {
        table.maintain(Duration::ZERO, 100).unwrap();
        region.media().bytes()
    };
    let before = region.media().bytes();
    (0..100).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert_eq!(maintain(), before, "no growth is near");
    (100..142).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert_eq!((figure(&table, "growing"), region.media().bytes()), (0, before));
    let ahead = maintain();
    assert!(ahead >= before + (64 + 16) * LINE, "{before}, then {ahead}");
    assert_eq!(maintain(), ahead);
    (142..160).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert_eq!(table.stats().unwrap().growth_steps, 1);
    assert_eq!(region.media().bytes(), ahead, "the growth had to wait");
}

#[test]
fn upkeep_of_a_table_that_is_only_read_is_refused() {
    // Fails if maintenance goes on with a growth on a medium that may only be read.
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let (region, table) = make(&settings, 1 << 20);
    insert_until_it_grows(&table);
    Box::new(table).close().unwrap();
    let before = region.media().words();
    let table = open_read_only::<Wophi, _>(region.clone(), &Inline).unwrap();
    let refused = table.maintain(Duration::ZERO, 10);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert!(region.media().words() == before);
}

#[test]
fn figures_are_those_of_the_form_and_of_the_chains() {
    // Fails if slots are counted as for another form, or if chains that updates have made longer
    // are not noted.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::DOUBLE_WORDS, ..Opening::default() };
    let settings = WophiSettings { initial_buckets: 1, stripes: 1, ..crowded(1) };
    let table = create::<Wophi, _>(region, &opening, &settings, &Inline).unwrap();
    let key = |number: u64| number.to_le_bytes().repeat(2);
    (0..4).for_each(|number| assert!(table.insert(&key(number), &key(number)).unwrap()));
    assert_eq!((table.stats().unwrap().slots, figure(&table, "longest_chain")), (4, 1));
    // No slot is free beside the old pair.
    assert!(table.update(&key(2), &key(9)).unwrap());
    let figures = ["longest_chain", "chained_buckets", "chained_permille"];
    assert_eq!(figures.map(|name| figure(&table, name)), [2, 1, 1000]);
}

#[test]
fn a_pair_of_another_form_is_refused_by_the_bare_insert_too() {
    // Fails if the insert that does not look for its key takes any length.
    let (_, table) = make(&crowded(1), 1 << 20);
    let bare = table.bare().unwrap();
    for (key, value) in [(&[1; 7][..], &[1; 8][..]), (&[1; 8], &[1; 9])] {
        assert!(bare.insert_blind(key, value).is_err());
    }
    assert_eq!((table.len().unwrap(), table.check().unwrap().items), (0, 0));
}
