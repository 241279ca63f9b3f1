//! Writes between the parts of a checkpoint: loading it loses none of them, and what is known of
//! each segment is what was known before.

use std::collections::BTreeMap;
use std::sync::Arc;

use everhash_index::{Form, Inline, Opening, WordTable, create, open};
use everhash_pmem::media::file::system::Call;
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Lock, Media, Region, as_thread};

use super::busy_system::Busy;
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Keys of the table.
const KEYS: u64 = 300;

/// What is known of a segment. Unit: words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    garbage: u64,
    tombstones: u64,
}

/// Returns what is known of each segment that counts: by its stream and its sequence.
fn segments<M: Media>(table: &ReefTable<M>) -> BTreeMap<(usize, u64), Known> {
    let mut all = BTreeMap::new();
    for (number, stream) in table.streams.iter().enumerate() {
        let stream = stream.0.lock().unwrap();
        let sealed = stream.sealed.iter().filter(|(_, it)| !it.is_empty);
        let sealed = sealed.map(|(sequence, it)| (*sequence, it.span.start, it.tombstones));
        let open = stream.open.map(|it| (it.sequence, it.span.start, it.tombstones));
        for (sequence, start, tombstones) in sealed.chain(open) {
            let garbage = table.units.garbage(start);
            all.insert((number, sequence), Known { garbage, tombstones });
        }
    }
    all
}

/// Writes a key as one of two threads, so that they have runs.
fn write(table: &ReefTable<FileMedium>, key: u64, value: u64) {
    as_thread(key as u32 % 2, || {
        if value.is_multiple_of(5) {
            table.remove_word(key).unwrap();
        } else {
            table.put_word(key, value).unwrap();
        }
    });
}

/// Writes a checkpoint, between whose parts other keys are written in each round; kills the
/// process, and looks at what the next one finds.
fn survive(writes: fn(round: u64, key: u64) -> bool) {
    let path = std::env::temp_dir().join(format!("reef-beside-{}", std::process::id()));
    // Before each shard of a checkpoint is written: behind the copy of the shard, and while no
    // latch is held.
    let system = Arc::new(Busy::before(Call::Write));
    let options = FileOptions {
        durability: FileDurability::Process,
        system: Arc::<Busy>::clone(&system),
        ..FileOptions::default()
    };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    // No epoch ends by itself: all that is written stays in segments that exist.
    let settings = ReefSettings {
        flush_bytes: 1 << 20,
        // Long enough for runs.
        segment_bytes: 32 << 10,
        ..ReefSettings::tiny()
    };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let table = Arc::new(table);
    region.media().publish().unwrap();
    (0..KEYS).for_each(|key| write(&table, key, 1));
    (0..KEYS / 4).for_each(|key| write(&table, key, 1 + key));
    let (other, mut round) = (Arc::clone(&table), 0);
    let work = move || {
        for key in (0..KEYS).filter(|key| writes(round, *key)) {
            write(&other, key, 1000 * (1 + round) + key);
        }
        round += 1;
    };
    let ends = table.ends(&[]).unwrap();
    let bytes = table.checkpoint_bytes().unwrap();
    system.begin(work);
    table.replace_checkpoint(bytes + (1 << 12), ends).unwrap();
    system.end();
    assert!(table.epochs.lock().unwrap().checkpoint.is_some());
    let pairs: Vec<_> = (0..KEYS).map(|key| table.get_word(key).unwrap()).collect();
    let before = segments(&table);
    let has = |what: fn(&Known) -> u64| before.values().any(|it| what(it) > 0);
    assert!(has(|it| it.garbage) && has(|it| it.tombstones), "{before:?}");
    drop((table, region));
    let region = Region::new(FileMedium::open(&path, &options).unwrap());
    let table = open::<Reef, _>(region, opening.boot, &Inline).unwrap();
    assert!(table.epochs.lock().unwrap().checkpoint.is_some());
    for (key, value) in (0..).zip(pairs) {
        assert_eq!(table.get_word(key).unwrap(), value, "{key}");
    }
    let after = segments(&table);
    for (place, before) in before {
        let after = after[&place];
        assert_eq!(after.tombstones, before.tombstones, "{place:?}");
        // What was made while the checkpoint was written is counted twice rather than never.
        assert!(after.garbage >= before.garbage, "{place:?}: {before:?}, {after:?}");
    }
    drop(table);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_is_written_between_the_parts_of_a_checkpoint_is_there_when_it_is_loaded() {
    // Fails if the log behind a checkpoint begins later than its first part was copied, or if the
    // segments are listed before the last part is: garbage would be forgotten for ever.
    survive(|round, key| key % 2 == round % 2);
    survive(|round, _| round == 0);
    survive(|round, _| round == 1);
    // Nothing is written meanwhile.
    survive(|_, _| false);
}
