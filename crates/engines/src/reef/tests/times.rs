//! How fast the operations are on a file: for a quiet machine, and so not among the default tests.

use std::time::{Duration, Instant};

use everhash_index::{Form, Inline, Opening, Table, create, open};
use everhash_pmem::{Boot, FileDurability, FileMedium, FileOptions, Media, Region};

use crate::reef::{Reef, ReefSettings, ReefTable};

/// Pairs of the table: 16 bytes and 100 bytes.
const PAIRS: u64 = 1_000_000;

/// Returns the key of a number: in no order.
fn key(number: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Prints how many operations a second some work did, of a processor and of a clock.
fn timed(what: &str, count: u64, work: impl FnOnce()) {
    // The first number of this file is nanoseconds on a processor.
    let on_processor = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let (before, begun) = (on_processor(), Instant::now());
    work();
    let (processor, clock) = (on_processor() - before, begun.elapsed());
    let rate = |time: Duration| count as f64 / time.as_secs_f64() / 1e6;
    println!("{what}: {:.2} M/s of a processor, {:.2} M/s", rate(processor), rate(clock));
}

fn size(table: &ReefTable<FileMedium>, what: &str) {
    let stats = table.stats().unwrap();
    let live = stats.items as f64 * 136.0;
    let [used, file] = [stats.used_bytes, stats.device_bytes].map(|bytes| bytes as f64 / live);
    let dram = stats.dram_bytes / stats.items;
    println!("{what}: used {used:.2}, file {file:.2} of live objects; {dram} B of DRAM a pair");
    println!("  {:?}", stats.own);
}

fn operations(table: &ReefTable<FileMedium>) {
    let value = [5; 100];
    timed("load, 1000 at a time", PAIRS, || {
        for first in (0..PAIRS).step_by(1000) {
            let keys: Vec<_> = (first..first + 1000).map(key).collect();
            let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
            assert_eq!(table.put_many(&pairs).unwrap(), 1000);
        }
    });
    size(table, "after the load");
    let any = |number: u64| number.wrapping_mul(7_919) % PAIRS;
    let mut found = Vec::new();
    timed("get", PAIRS, || {
        (0..PAIRS).for_each(|number| assert!(table.get(&key(any(number)), &mut found).unwrap()));
    });
    timed("get, absent", PAIRS, || {
        (0..PAIRS).for_each(|number| {
            assert!(!table.get(&key(PAIRS + any(number)), &mut found).unwrap());
        });
    });
    timed("get, 32 at a time", PAIRS, || {
        for first in (0..PAIRS).step_by(32) {
            let keys: Vec<_> = (first..first + 32).map(|number| key(any(number))).collect();
            let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            table.get_many(&keys, &mut |_, value| assert!(value.is_some())).unwrap();
        }
    });
    let mut longest = Duration::ZERO;
    timed("put, present keys", 3 * PAIRS, || {
        for number in 0..3 * PAIRS {
            let begun = Instant::now();
            assert!(table.put(&key(any(number)), &value).unwrap());
            longest = longest.max(begun.elapsed());
        }
    });
    println!("  longest put {longest:?}");
    size(table, "after three overwrites of each");
}

#[test]
#[ignore = "measures: wants a quiet machine"]
fn the_operations_on_a_file() {
    // Fails if an answer is wrong; the figures are for the reader.
    for durability in [FileDurability::Process, FileDurability::Immediate] {
        println!("{durability:?}");
        let name = format!("reef-times-{}-{durability:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = FileOptions { durability, ..FileOptions::default() };
        let opening = Opening { form: Form::Variable, ..Opening::default() };
        let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
        let settings = ReefSettings::default();
        let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        region.media().publish().unwrap();
        operations(&table);
        let bytes = region.media().bytes();
        drop((table, region));
        for boot in [2, 3] {
            let region = Region::new(FileMedium::open(&path, &options).unwrap());
            timed("open, killed and then closed", PAIRS, || {
                let table = open::<Reef, _>(region, Boot([1, boot]), &Inline).unwrap();
                assert_eq!(table.len().unwrap(), PAIRS);
                Box::new(table).close().unwrap();
            });
        }
        println!("{} MiB", bytes >> 20);
        std::fs::remove_file(&path).unwrap();
    }
}
