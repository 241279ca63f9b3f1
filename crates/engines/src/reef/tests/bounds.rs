//! How much power loss may take back: bytes and age, counted and not timed.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Form, Inline, Opening, Table, WordTable, create, open};
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::file::system::Call;
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Boot, FileMedium, FileOptions, Image, Lock, Media, Region, Std};

use super::busy_system::Busy;
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Bytes of the object of a pair of words.
const PAIR_BYTES: u64 = 24;

/// Segments of many objects, which end no epoch by being full.
const SETTINGS: ReefSettings = ReefSettings {
    buckets: 1024,
    segment_bytes: 64 << 10,
    flush_interval_ms: 5000,
    flush_bytes: 1 << 20,
    ..ReefSettings::tiny()
};

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// A table on a medium that remembers what is durable.
struct Mortal {
    region: Region<Traced>,
    table: ReefTable<Traced>,
    memory: Memory,
}

impl Mortal {
    fn new(model: Model, settings: &ReefSettings) -> Mortal {
        let region = Region::new(Traced::<Std>::new(model, 0, 8 << 20));
        let opening = Opening::default();
        let table = create::<Reef, _>(region.clone(), &opening, settings, &Inline).unwrap();
        Mortal { region, table, memory: Memory::zero(model, 0) }
    }

    fn insert(&self, numbers: Range<u64>) {
        for number in numbers {
            assert!(self.table.insert(&key(number), &number.to_le_bytes()).unwrap());
        }
    }

    /// Makes an upkeep at a moment that is made up; returns when the next one is wanted.
    fn maintain(&self, ms: u64) -> Option<Duration> {
        self.table.maintain(Duration::from_millis(ms), 1).unwrap().deadline
    }

    /// Returns how many pairs are left if the power fails now and nothing that is pending is kept.
    fn survivors(&mut self) -> u64 {
        for event in self.region.media().take_log().events() {
            self.memory.apply(event);
        }
        let words = self.memory.durable();
        let bytes = words.len() as u64 * 8;
        let image =
            Image::<Std>::of(words, bytes, bytes).with_guarantees(self.memory.model().guarantees());
        let boot = Boot([1, 2]);
        open::<Reef, _>(Region::new(image), boot, &Inline).unwrap().len().unwrap()
    }
}

#[test]
fn p03_no_more_bytes_are_lost_than_was_allowed() {
    // Fails if writers do not end an epoch themselves, with no upkeep at all, or too late.
    for model in [Model::Adr, Model::File] {
        for flush_bytes in [16 << 10, 2 << 10] {
            let mut mortal = Mortal::new(model, &ReefSettings { flush_bytes, ..SETTINGS });
            let mut most = 0;
            for number in 0..2000 {
                mortal.insert(number..number + 1);
                if number % 13 == 0 {
                    most = most.max(number + 1 - mortal.survivors());
                }
            }
            println!("{model}: of {flush_bytes} bytes that may be lost, {}", most * PAIR_BYTES);
            assert!(most * PAIR_BYTES <= flush_bytes + PAIR_BYTES, "{model}: {most} pairs");
            assert!(
                most * PAIR_BYTES > flush_bytes / 8,
                "{model}: {most} pairs, which is no batch"
            );
        }
    }
}

#[test]
fn p03_nothing_older_than_the_interval_is_lost() {
    // Fails if a write that upkeep has seen waits longer than the interval: if its age is not
    // looked at, or if writes that come after it make it young again.
    for model in [Model::Adr, Model::File] {
        let mut mortal = Mortal::new(model, &SETTINGS);
        mortal.insert(0..20);
        let deadline = mortal.maintain(10_000).unwrap();
        assert!(deadline <= Duration::from_millis(12_500), "half an interval later");
        assert!(mortal.survivors() < 20, "{model}: durable at once, which is no batch");
        mortal.insert(20..25);
        mortal.maintain(11_000);
        assert!(mortal.survivors() < 20, "{model}: the upkeep in between is no sync");
        mortal.insert(25..30);
        mortal.maintain(deadline.as_millis() as u64);
        assert_eq!(mortal.survivors(), 30, "{model}");
        // The next write is young, whenever it comes.
        mortal.insert(30..31);
        let deadline = mortal.maintain(60_000).unwrap();
        assert_eq!(mortal.survivors(), 30, "{model}");
        mortal.maintain(deadline.as_millis() as u64);
        assert_eq!(mortal.survivors(), 31, "{model}");
    }
}

#[test]
fn p01_an_immediate_clear_survives_power_loss() {
    // Fails if a clear returns before the heads are durable that say that no earlier segment
    // counts: every pair would be back, and what was written since would be gone.
    for model in [Model::Adr, Model::File] {
        let mut mortal = Mortal::new(model, &ReefSettings { durability: 1, ..SETTINGS });
        mortal.insert(0..50);
        assert_eq!(mortal.survivors(), 50, "{model}");
        mortal.table.clear().unwrap();
        assert_eq!(mortal.survivors(), 0, "{model}");
        mortal.insert(50..60);
        assert_eq!(mortal.survivors(), 10, "{model}");
    }
}

/// Makes a table of words on a file, whose name is gone at once.
fn on_file(name: &str, settings: &ReefSettings) -> (Arc<Busy>, Arc<ReefTable<FileMedium>>) {
    let path = std::env::temp_dir().join(format!("reef-{name}-{}", std::process::id()));
    // Behind the cut of an epoch.
    let system = Arc::new(Busy::before(Call::Sync));
    let options = FileOptions { system: Arc::<Busy>::clone(&system), ..FileOptions::default() };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, settings, &Inline).unwrap();
    region.media().publish().unwrap();
    std::fs::remove_file(&path).unwrap();
    (system, Arc::new(table))
}

/// Returns whether all is durable that was written.
fn is_durable<M: Media>(table: &ReefTable<M>) -> bool {
    table.streams.iter().all(|stream| {
        let stream = stream.0.lock().unwrap();
        stream.position() == stream.durable
    })
}

#[test]
fn p03_what_is_written_during_a_sync_is_as_old_as_the_sync() {
    // Fails if the age of what came after the cut of an epoch is counted from the first visit after
    // its sync, however long that took: by upkeep, or by a writer.
    for by_writer in [false, true] {
        let (system, table) = on_file("in-sync", &SETTINGS);
        let maintain = |ms| table.maintain(Duration::from_millis(ms), 1).unwrap();
        (0..20).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
        maintain(1000);
        let (other, mut key) = (Arc::clone(&table), 20);
        let work = move || {
            assert!(other.insert_word(key, key).unwrap());
            key += 1;
        };
        system.begin(work);
        let until = match by_writer {
            // Seen by the upkeep before, as far as anybody knows.
            true => {
                table.sync().unwrap();
                3500
            }
            false => {
                maintain(3500);
                6000
            }
        };
        system.end();
        assert!(!is_durable(&table), "one more was written, by writer: {by_writer}");
        maintain(until - 500);
        assert!(!is_durable(&table), "it is young, by writer: {by_writer}");
        maintain(until);
        assert!(is_durable(&table), "by writer: {by_writer}");
    }
}

#[test]
fn p03_a_long_checkpoint_ends_epochs_meanwhile() {
    // Fails if what is written while a checkpoint is waits until all of it is durable.
    let settings = ReefSettings { shards: 64, flush_bytes: 16 << 10, ..SETTINGS };
    let (system, table) = on_file("long", &settings);
    (0..20_000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let (ends, bytes) = (table.ends(&[]).unwrap(), table.checkpoint_bytes().unwrap());
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    system.begin(move || _ = counted.fetch_add(1, Relaxed));
    table.replace_checkpoint(bytes, ends).unwrap();
    let syncs = syncs.load(Relaxed);
    println!("{syncs} syncs for a checkpoint of {bytes} bytes");
    assert!(table.epochs.lock().unwrap().checkpoint.is_some());
    assert!((bytes / (32 << 10)..=bytes / (16 << 10) + 1).contains(&syncs), "{syncs} syncs");
}

#[test]
fn the_room_of_a_checkpoint_is_no_other_before_the_record_that_does_not_name_it() {
    // Fails if somebody else may store there while power loss still leads to it: all objects would
    // be read, and on a full medium the record may lead to anything.
    let (system, table) = on_file("named", &SETTINGS);
    let replace = || {
        let (ends, bytes) = (table.ends(&[]).unwrap(), table.checkpoint_bytes().unwrap());
        table.replace_checkpoint(bytes, ends).unwrap();
    };
    (0..100).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    replace();
    let (other, seen) = (Arc::clone(&table), Arc::new(AtomicU64::new(0)));
    let spares = Arc::clone(&seen);
    system.begin(move || {
        let spare = *other.spare.lock().unwrap();
        spares.fetch_add(1 + 100 * u64::from(spare.is_some()), Relaxed);
    });
    replace();
    system.end();
    assert!((1..100).contains(&seen.load(Relaxed)), "{seen:?}");
    assert!(table.spare.lock().unwrap().is_some());
}
