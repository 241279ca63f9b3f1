//! A table that shrank gives storage back that it does not need, at rest and beside writers.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use everhash_index::{Form, Inline, Opening, Table, WordTable, create, open};
use everhash_pmem::media::file::system::{Call, Os, System};
use everhash_pmem::{Boot, FileDurability, FileMedium, FileOptions, Image, Region};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;

use super::space::storage;
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Pairs of the table.
const PAIRS: u64 = 100_000;

/// Length of a segment. Unit: bytes.
const SEGMENT: u64 = 16 << 10;

/// Returns the most storage for `pairs` pairs: 1.3 times their objects, and the segments that are
/// open, kept back, or allowed to be half empty.
fn most(pairs: u64) -> u64 {
    pairs * 24 * 13 / 10 + 24 * SEGMENT
}

/// Calls upkeep as a store does, until it has nothing to do; `seconds` is the time.
fn rest(table: &ReefTable<FileMedium>, seconds: &mut u64) {
    for _ in 0..1000 {
        *seconds += 1;
        let upkeep = table.maintain(Duration::from_secs(*seconds), 1000).unwrap();
        if upkeep.deadline.is_none() && !upkeep.more {
            return;
        }
    }
    panic!("upkeep has no end");
}

/// A file system that does not say where a file has holes.
#[derive(Debug)]
struct Silent;

impl System for Silent {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        if call == Call::Extents { Err(io::ErrorKind::Unsupported.into()) } else { run() }
    }
}

#[test]
fn a_table_at_rest_gives_storage_back_and_takes_it_again() {
    // Fails if a table that shrank keeps the storage of its file, if a pair goes with it, or if
    // what is written later finds none.
    rests(Arc::new(Os));
    rests(Arc::new(Silent));
}

/// Fills a table, empties most of it, opens it again and fills it, at rest between these.
fn rests(system: Arc<dyn System>) {
    let path = std::env::temp_dir().join(format!("reef-rest-{}", std::process::id()));
    let durability = FileDurability::Process;
    let options = FileOptions { durability, system, ..FileOptions::default() };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ReefSettings { segment_bytes: SEGMENT, ..ReefSettings::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    region.media().publish().unwrap();
    let stored = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let mut seconds = 0;
    for round in 0..5 {
        (0..PAIRS).for_each(|key| assert_eq!(table.put_word(key, key ^ round).unwrap(), round > 0));
    }
    rest(&table, &mut seconds);
    assert!(stored() < most(PAIRS), "{} bytes, {}", stored(), most(PAIRS));
    (PAIRS / 10..PAIRS).for_each(|key| assert!(table.remove_word(key).unwrap()));
    rest(&table, &mut seconds);
    let few = stored();
    assert!(few < most(PAIRS / 10), "{few} bytes, {}", most(PAIRS / 10));
    drop((table, region));
    let region = Region::new(FileMedium::open(&path, &options).unwrap());
    let table = open::<Reef, _>(region.clone(), Boot([1, 2]), &Inline).unwrap();
    // Without upkeep, too: else each short process takes the storage of all that was removed.
    assert!(stored() < most(PAIRS / 10), "{} bytes at opening, {few} before", stored());
    rest(&table, &mut seconds);
    assert!(stored() < most(PAIRS / 10), "{} bytes after opening, {few} before", stored());
    (PAIRS..2 * PAIRS).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    for key in (0..PAIRS / 10).chain(PAIRS..2 * PAIRS) {
        let value = if key < PAIRS { key ^ 4 } else { key };
        assert_eq!(table.get_word(key).unwrap(), Some(value), "{key}");
    }
    assert_eq!(table.len().unwrap(), PAIRS / 10 + PAIRS);
    drop((table, region));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_table_that_shrank_gives_storage_back_though_somebody_writes() {
    // Fails if storage is given back at rest only: a file would stay as long as it ever was as long
    // as anybody writes. Or if it is given back where pairs are only overwritten: each segment that
    // is collected would be a hole, and the next one filled with storage again.
    let region = Region::new(Image::new(1 << 16, 64 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ReefSettings { segment_bytes: SEGMENT, ..ReefSettings::default() };
    let table: ReefTable<Image> = create::<Reef, _>(region, &opening, &settings, &Inline).unwrap();
    let (mut random, mut now) = (Random::new(1), Duration::ZERO);
    // Overwrites some of the first `pairs` pairs, beside upkeep; returns holes and other storage.
    let mut overwrite = |pairs: u64| {
        for number in 0..4 * PAIRS {
            assert!(table.put_word(random.below(pairs), number).unwrap());
            if number.is_multiple_of(100) {
                now += Duration::from_millis(10);
                table.maintain(now, 1000).unwrap();
            }
        }
        storage(&table)
    };
    (0..PAIRS).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let (holes, full) = overwrite(PAIRS);
    assert_eq!(holes, 0, "of {full} bytes");
    (PAIRS / 10..PAIRS).for_each(|key| assert!(table.remove_word(key).unwrap()));
    let (_, few) = overwrite(PAIRS / 10);
    assert!(few < 2 * most(PAIRS / 10) && 2 * few < full, "{few} bytes, {full} before");
    assert_eq!(table.check().unwrap().items, PAIRS / 10);
}

#[test]
fn upkeep_comes_again_after_the_last_write_whoever_made_it_durable() {
    // Fails if nobody looks at a table at rest whose user has called sync: its garbage would stay.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..20).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    (0..3).for_each(|_| table.sync().unwrap());
    let deadline = |seconds| table.maintain(Duration::from_secs(seconds), 1000).unwrap().deadline;
    assert!(deadline(10).is_some(), "it is not at rest yet");
    assert_eq!(deadline(20), None);
}

#[test]
fn storage_is_given_back_a_little_at_a_time() {
    // Fails if one step holds up the faults of writers for long, or if steps follow one another.
    let session = Session::<Reef>::create(
        Image::new(0, 128 << 20),
        Form::WORDS,
        &ReefSettings { segment_bytes: SEGMENT, ..ReefSettings::default() },
    );
    let session = session.unwrap();
    let table = session.table();
    let span = table.space.take(64 << 20, table.unit_bytes).unwrap().span;
    table.space.give(span);
    // Beside writers.
    let mut key = 0;
    let mut given = |ms| {
        assert!(table.insert_word(key, key).unwrap());
        key += 1;
        let before = storage(table).0;
        table.maintain(Duration::from_millis(ms), 1000).unwrap();
        storage(table).0 - before
    };
    let first = given(1000);
    assert!((128 << 10..1 << 20).contains(&first), "{first} bytes");
    assert_eq!(given(1009), 0);
    assert!(given(1010) > 0);
    // At rest.
    table.sync().unwrap();
    let mut seconds = 100;
    let mut step = || {
        let before = storage(table).0;
        seconds += 100;
        let more = table.maintain(Duration::from_secs(seconds), 1000).unwrap().more;
        (storage(table).0 - before, more)
    };
    let steps: Vec<_> = (0..10).map(|_| step()).collect();
    assert!(steps.iter().all(|(bytes, _)| *bytes <= 17 << 20), "{steps:?}");
    assert!(steps.iter().filter(|(bytes, more)| *bytes > 0 && *more).count() > 2, "{steps:?}");
    assert!(!steps[9].1, "{steps:?}");
}
