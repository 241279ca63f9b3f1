//! The paper's figures that are counts, and ours; and what the switches for ablations take away.
//! Each test prints its numbers.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Form, Table, Upkeep, WordTable};
use everhash_pmem::Lock;
use everhash_testkit::measured::{MEMORY, Measured};

use crate::walsh::{Walsh, WalshSettings};

/// The paper's areas, but eight of them: what an area does depends on its own pairs.
fn paper() -> WalshSettings {
    let defaults = WalshSettings::default();
    WalshSettings { areas: 8, directories: defaults.directories / 64, ..defaults }
}

/// As many pairs for each area as ten million are for 512 of them.
const PAPER_ITEMS: u64 = 8 * 10_000_000 / 512;

/// What the figures ask of a table.
trait Figures {
    fn insert(&self, numbers: core::ops::Range<u64>);

    /// Returns the most lines that one insert among `count` flushes.
    fn most_lines(&self, count: u64) -> u64;

    fn rehashes(&self) -> u64;
}

impl Figures for Measured<Walsh> {
    fn insert(&self, numbers: core::ops::Range<u64>) {
        for number in numbers {
            assert!(self.table.insert_word(number, !number).unwrap());
        }
    }

    fn most_lines(&self, count: u64) -> u64 {
        let one = |number| self.traffic(|| self.insert(number..number + 1)).lines_flushed;
        (0..count).map(one).max().unwrap()
    }

    fn rehashes(&self) -> u64 {
        self.table.stats().unwrap().growth_steps
    }
}

fn table_of(settings: &WalshSettings) -> Measured<Walsh> {
    Measured::new(Form::WORDS, settings, MEMORY).unwrap()
}

#[test]
fn areas_double_as_often_as_in_the_paper() {
    // Fails if chains are allowed to be longer or shorter than four on average: ten million inserts
    // are 2,048 rehashes of 512 areas (4.3), four of each.
    let measured = table_of(&paper());
    measured.insert(0..PAPER_ITEMS);
    println!("{} rehashes of 8 areas, the paper: 4 of each", measured.rehashes());
    assert_eq!(measured.rehashes(), 4 * 8);
    assert_eq!(measured.table.check().unwrap().items, PAPER_ITEMS);
}

#[test]
fn an_absent_key_is_hardly_ever_looked_for_on_the_medium() {
    // Fails if a filter lets too many searches through (Fig. 6d), or if a present key takes more
    // reads than its chain is long.
    let settings = WalshSettings { directories: PAPER_ITEMS.next_power_of_two() / 4, ..paper() };
    let measured = table_of(&settings);
    measured.insert(0..PAPER_ITEMS);
    let read = |numbers: core::ops::Range<u64>, expected: bool| {
        let count = (numbers.end - numbers.start) as f64;
        let traffic = measured.traffic(|| {
            numbers.for_each(|number| {
                assert_eq!(measured.table.get_word(number).unwrap().is_some(), expected);
            });
        });
        // An object of a pair of words has three words.
        traffic.words_loaded as f64 / 3.0 / count
    };
    let present = read(0..PAPER_ITEMS, true);
    let absent = read(1 << 40..(1 << 40) + 100_000, false);
    let chain = PAPER_ITEMS as f64 / settings.directories as f64;
    println!("objects read: present {present:.2}, absent {absent:.4}; chains of {chain:.2}");
    assert!(present < 1.05 + chain / 2.0);
    assert!(absent <= 0.03);
}

#[test]
fn directories_take_as_little_memory_as_they_should() {
    // Fails if blocks are lost or taken too early (Fig. 9): sixteen bytes for two to four objects,
    // which is 5.8 on average here, and beside them an index, a list of logs, and blocks that wait
    // for their use. Threshold 8 takes half.
    let measure = |threshold| {
        let wide = WalshSettings { areas: 64, directories: 64 * 512, threshold, ..paper() };
        let measured = table_of(&wide);
        let mut per_object = Vec::new();
        let step = PAPER_ITEMS / 10;
        for part in 0..8 * 10 {
            measured.insert(part * step..(part + 1) * step);
            // Before, what every area has whatever it holds counts for too much.
            if part >= 20 {
                let bytes = measured.table.stats().unwrap().dram_bytes;
                per_object.push(bytes as f64 / ((part + 1) * step) as f64);
            }
        }
        let mean = per_object.iter().sum::<f64>() / per_object.len() as f64;
        let most = per_object.iter().copied().fold(0.0, f64::max);
        println!("threshold {threshold}: {mean:.2} bytes of DRAM an object, at most {most:.2}");
        (mean, most)
    };
    let (mean, most) = measure(4);
    assert!(mean <= 6.2 && most <= 8.2, "{mean} {most}");
    let (mean_of_eight, most_of_eight) = measure(8);
    assert!(mean_of_eight <= 0.52 * mean && most_of_eight <= 0.52 * most);
}

#[test]
fn larger_logs_are_flushed_less_often() {
    // Fails if a write waits for the medium where its batch should (Fig. 15): fences follow the
    // number of entries, and bytes do not.
    let mut before = f64::INFINITY;
    for entries in [32, 64, 128, 256, 512] {
        let log_bytes = entries * 24;
        let directories = 1 << 16;
        let settings = WalshSettings { log_entries: entries, log_bytes, directories, ..paper() };
        let measured = table_of(&settings);
        let traffic = measured.traffic(|| measured.insert(0..100_000));
        let fences = traffic.fences as f64 / 100_000.0;
        let bytes = traffic.bytes_flushed() as f64 / 100_000.0;
        println!("{entries} entries: {fences:.4} fences and {bytes:.1} bytes an insert");
        assert!(fences < 0.6 * before && bytes < 40.0);
        before = fences;
    }
}

#[test]
fn every_switch_takes_away_what_it_names() {
    // Fails if a switch for an ablation (Fig. 12) is ignored: then a comparison compares nothing.
    const ITEMS: u64 = 40_000;
    let areas = |areas| WalshSettings { areas, directories: 512, ..paper() };
    let phased = table_of(&areas(8));
    let locked = table_of(&WalshSettings { resize: 1, ..areas(8) });
    let whole = table_of(&WalshSettings { resize: 1, ..areas(1) });
    let most = [&phased, &locked, &whole].map(|table| table.most_lines(ITEMS));
    println!("most lines of one insert: {most:?} in phases, under the lock, and all areas at once");
    assert!(8 * most[0] < most[1] && 4 * most[1] < most[2]);
    assert_eq!(locked.rehashes(), phased.rehashes(), "under the lock, and as often");
    let never = table_of(&WalshSettings { resize: 0, ..areas(8) });
    let saved = never.traffic(|| never.insert(0..ITEMS));
    assert_eq!(never.rehashes(), 0);
    let per_insert = saved.bytes_flushed() as f64 / ITEMS as f64;
    println!("without rehashes: {per_insert:.1} bytes an insert, and chains of {}", ITEMS / 512);
    assert!(per_insert < 40.0);
    let traffic = never.traffic(|| assert!(never.table.get_word(0).unwrap().is_some()));
    assert!(traffic.words_loaded > 3 * 30, "the oldest key stands at the end of a long chain");
    for measured in [phased, whole, locked, never] {
        assert_eq!(measured.table.check().unwrap().items, ITEMS);
    }
}

#[test]
fn areas_are_rehashed_one_at_a_time() {
    // Fails if all areas, which are due at about the same time, needed room for two generations
    // together, or if an area waited for its turn until its chains are much longer (3.2.1).
    let measured = table_of(&WalshSettings { directories: 512, ..paper() });
    let (mut rehashing, mut longest) = (0, 0.0f64);
    for number in 0..60_000 {
        measured.insert(number..number + 1);
        let views = measured.table.areas.iter().map(|area| area.view.latest());
        let now = views.filter(|view| view.old().is_some()).count();
        assert!(now <= 1, "{now} areas at insert {number}");
        rehashing += now;
        let chains = measured.table.areas.iter().map(|area| {
            let state = area.state.lock().unwrap();
            state.chained as f64 / f64::from(1 << state.view.level())
        });
        longest = longest.max(chains.fold(0.0, f64::max));
    }
    println!(
        "chains of at most {longest:.2} objects on average, rehashing in {rehashing} of 60,000"
    );
    assert!(longest < 4.2 && rehashing > 500);
}

#[test]
fn a_busy_area_does_not_wait_for_its_turn() {
    // Fails if the writers of an area whose chains are twice as long as they may be wait for the
    // area whose turn it is: here that one is locked. They began its rehash then, and did not go on
    // with it before its chains had 13 objects.
    let table = table_of(&WalshSettings { directories: 512, ..paper() }).table;
    let turn_of = |area: usize| table.turn.store(area as u64 + 1, Ordering::Relaxed);
    let held = table.areas[0].state.lock().unwrap();
    turn_of(0);
    let busy = &table.areas[1];
    let mut longest = 0.0f64;
    let keys = (0..u64::MAX).filter(|key| table.area(table.hasher.word(*key)).number == 1);
    for key in keys.take(4000) {
        assert!(table.insert_word(key, !key).unwrap());
        let state = busy.state.lock().unwrap();
        longest = longest.max(state.chained as f64 / f64::from(1 << state.view.level()));
    }
    println!("chains of at most {longest:.2} objects on average without a turn");
    assert!((7.9..8.2).contains(&longest), "{longest}");
    drop(held);
    table.check().unwrap();
}

#[test]
fn upkeep_does_not_spin_while_an_area_is_held() {
    // Fails if upkeep that could do nothing wants to come again at once, which took a quarter of
    // two processors from two writers, or if it does not want to come again at all.
    let settings = WalshSettings { durability: 0, epochs: 1, ..paper() };
    let table = &table_of(&settings).table;
    let area = &table.areas[0];
    let key = (0..).find(|key| table.area(table.hasher.word(*key)).number == 0).unwrap();
    let now = Duration::from_secs(1);
    std::thread::scope(|threads| {
        let held = area.state.lock().unwrap();
        threads.spawn(|| table.insert_word(key, 1).unwrap());
        while !area.is_awaited() {
            std::thread::yield_now();
        }
        let upkeep = table.maintain(now, 64).unwrap();
        drop(held);
        let soon = Some(now + Duration::from_millis(10));
        assert_eq!(upkeep, Upkeep { deadline: soon, more: false });
    });
    assert!(!area.is_awaited());
    assert_eq!(table.get_word(key).unwrap(), Some(1));
}

#[test]
fn a_small_table_has_small_logs() {
    // Fails if every area began with a log for 256 objects: a thousand pairs took 4 MB then.
    let table = table_of(&WalshSettings::default()).table;
    let empty = table.stats().unwrap().used_bytes;
    let per_item = |items: u64| {
        for number in table.len().unwrap()..items {
            assert!(table.insert_word(number, !number).unwrap());
        }
        (table.stats().unwrap().used_bytes - empty) as f64 / items as f64
    };
    // Object and directory record are 32 bytes.
    let [few, some, many] = [1000, 20_000, 200_000].map(per_item);
    println!("device bytes a pair: {few:.0} of 1,000, {some:.1} of 20,000, {many:.1} of 200,000");
    assert!(few < 256.0 && some < 64.0 && many < 48.0);
}
