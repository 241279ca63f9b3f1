//! What a write that fails leaves of the number of pairs: it is counted before its fence.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use everhash_index::{Error, Form, Inline, Opening, Table, WordTable, create};
use everhash_pmem::{Access, Addr, Image, Lock, Pool, Region, Shutdown, Std};

use crate::common::slot_codec::Words;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

const KEYS: u64 = 20;

/// A table of [`KEYS`] pairs, in two buckets and two lanes.
fn table() -> (Region<Image>, ElimDaTable<Image>) {
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ElimDaSettings::tiny();
    let table = create::<ElimDa, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let words = table.words().unwrap();
    (0..KEYS).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    (region, table)
}

fn of_words(table: &ElimDaTable<Image>) -> &Inner<Image, Words> {
    let ElimDaTable::Words(inner) = table else { panic!("8/8 has words") };
    inner
}

/// A key that is absent, and whose bucket is this one and has room.
fn absent(table: &Inner<Image, Words>, bucket: u64) -> u64 {
    let fits = |key: &u64| {
        let at = table.locate(table.hasher.word(*key));
        at.index == bucket && !at.bucket.is_full()
    };
    (KEYS..1000).find(fits).unwrap()
}

/// A key whose pair is in the D-bucket, and the line of the log that holds it.
fn logged(table: &Inner<Image, Words>) -> (u64, Addr) {
    let line = |key: &u64| {
        let at = table.locate(table.hasher.word(*key));
        let mut items = (0..at.bucket.items()).map(|place| at.bucket.item(place));
        let (_, order) = items.find(|(item, _)| item[0] == *key)?;
        let lane = table.lanes[table.geometry.lane_of(at.index) as usize].lock().unwrap();
        let block = lane.block(&table.geometry, order).at;
        Some((*key, table.geometry.log_slot(order).line_at(block)))
    };
    (0..KEYS).find_map(|key| line(&key)).unwrap()
}

#[test]
fn a_write_that_finds_the_log_damaged_leaves_the_number_of_pairs() {
    // Fails if a write that comes to its commit, and not beyond, is counted: an error of the medium
    // does.
    let (region, table) = table();
    let (pm, inner) = (region.access(), of_words(&table));
    let damage = |pm: &Access<'_, Image>, line| {
        let state = pm.load(line).unwrap();
        pm.store(line, state ^ 1 << 50).unwrap();
    };
    let (key, line) = logged(inner);
    damage(&pm, line);
    let removed = inner.remove_word(key);
    assert!(matches!(removed, Err(Error::Corrupt { .. })), "{removed:?}");
    assert_eq!((inner.len(), inner.get_word(key).unwrap()), (KEYS, Some(key)));
    damage(&pm, line);

    let is_full =
        |bucket: &u64| inner.lanes[*bucket as usize].lock().unwrap().is_full(&inner.geometry);
    let bucket = (0..2).find(|bucket| !is_full(bucket)).unwrap();
    let key = absent(inner, bucket);
    let next = {
        let lane = inner.lanes[bucket as usize].lock().unwrap();
        let block = lane.blocks.back().unwrap().at;
        inner.geometry.log_slot(lane.next).line_at(block)
    };
    let state = pm.load(next).unwrap();
    pm.store(next, 5).unwrap();
    let inserted = inner.insert_word(key, 1);
    assert!(matches!(inserted, Err(Error::Corrupt { .. })), "{inserted:?}");
    pm.store(next, state).unwrap();
    assert_eq!((inner.len(), inner.get_word(key).unwrap()), (KEYS, None));
    assert!(inner.insert_word(key, 1).unwrap() && inner.remove_word(key).unwrap());
    assert_eq!((inner.len(), table.check().unwrap().items), (KEYS, KEYS));
}

#[test]
fn a_bucket_that_a_failed_change_left_takes_no_write() {
    // Fails if a write to it is counted, or if it becomes durable before it is refused: then each
    // further try adds a pair that the next open finds.
    let (region, table) = table();
    let inner = of_words(&table);
    let pm = region.access();
    let segment = inner.locate(0).segment;
    let held = segment.lock(0).hold(&pm).unwrap();
    drop(held.change().unwrap());
    drop(held);
    let is_there = |key: &u64| {
        let at = inner.locate(inner.hasher.word(*key));
        at.index == 0 && at.segment.at() == segment.at()
    };
    let appended = |lane: usize| inner.lanes[lane].lock().unwrap().next;
    let before = appended(0);
    for key in (0..1000).filter(is_there).take(20) {
        let all = [
            inner.insert_word(key, 1),
            inner.put_word(key, 1),
            inner.update_word(key, 1),
            inner.remove_word(key),
        ];
        let refused = all.iter().all(|outcome| matches!(outcome, Err(Error::Poisoned)));
        assert!(refused && matches!(inner.get_word(key), Err(Error::Poisoned)), "{all:?}");
    }
    assert_eq!((inner.len(), appended(0)), (KEYS, before));
    let key = absent(inner, 1);
    assert!(inner.insert_word(key, 1).unwrap() && inner.remove_word(key).unwrap());
    drop(table);
    let opened = everhash_index::open::<ElimDa, _>(region, Opening::default().boot, &Inline);
    let opened = opened.unwrap();
    assert_eq!((opened.len().unwrap(), opened.check().unwrap().items), (KEYS, KEYS));
}

#[test]
fn a_write_that_panics_leaves_the_number_of_pairs() {
    // Fails if the count of a write stays that never came to its fence.
    let (_, table) = table();
    let inner = of_words(&table);
    let (removed, _) = logged(inner);
    let bucket = inner.geometry.bucket_of(inner.hasher.word(removed));
    let inserted = absent(inner, 1 - bucket);
    // Nothing finds its block any more.
    inner.lanes.iter().for_each(|lane| lane.lock().unwrap().blocks.clear());
    let writes: [&dyn Fn() -> everhash_index::Result<bool>; 2] =
        [&|| inner.remove_word(removed), &|| inner.insert_word(inserted, 1)];
    for write in writes {
        let outcome = catch_unwind(AssertUnwindSafe(write));
        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(inner.len(), KEYS);
    }
}

#[test]
fn a_write_that_finds_no_room_leaves_the_number_of_pairs() {
    // Fails if a pair is counted for which there was no block of the log, or no unit, or if it is
    // not said that something is needed.
    let (region, table) = table();
    let inner = of_words(&table);
    region.media().refusals().takes.plan(0, u64::MAX);
    let (mut added, mut refused) = (KEYS, 0);
    for key in KEYS..2000 {
        match inner.insert_word(key, key) {
            Ok(new) => added += u64::from(new),
            Err(Error::Full { needed }) => {
                assert!(needed > 0);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(inner.len(), added);
    }
    assert!(refused > 1000);
    assert_eq!(table.check().unwrap().items, added);
    (0..2000).for_each(|key| added -= u64::from(inner.remove_word(key).unwrap()));
    assert_eq!((inner.len(), added), (0, 0));
}

#[test]
fn a_write_is_done_although_another_bucket_of_its_lane_takes_none() {
    // Fails if a bucket that a failed change left makes writes to others return its error: they are
    // done, and a second try of an insert would say that the key was there.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let table = create::<ElimDa, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let (inner, pm) = (of_words(&table), region.access());
    assert!(inner.insert_word(0, 0).unwrap());
    let failed = inner.locate(inner.hasher.word(0));
    drop(failed.segment.lock(failed.index).hold(&pm).unwrap().change().unwrap());
    let is_beside = |key: &u64| {
        let at = inner.locate(inner.hasher.word(*key));
        at.index == failed.index && at.segment.at() != failed.segment.at()
    };
    let mut most_blocks = 0;
    for key in (1..1000).filter(is_beside).take(200) {
        assert!(inner.insert_word(key, key).unwrap());
        let lane = inner.geometry.lane_of(failed.index) as usize;
        let blocks = inner.lanes[lane].lock().unwrap().blocks.len() as u64;
        most_blocks = most_blocks.max(blocks.saturating_sub(inner.most_blocks()));
    }
    assert!(most_blocks > 0, "the lane was never crowded");
}

#[test]
fn a_table_in_which_a_write_failed_is_not_closed_cleanly() {
    // Fails if the next open believes what the failed write left visible.
    type Break = fn(&Inner<Image, Words>, &Access<'_, Image>);
    let failures: [Break; 4] = [
        |inner, pm| drop(inner.locate(0).segment.lock(1).hold(pm).unwrap().change().unwrap()),
        |inner, _| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _lane = inner.lanes[1].lock().unwrap();
                panic!("a write panics");
            }));
            assert!(panicked.is_err());
        },
        // In a segment of the last extent, and without a change.
        |inner, pm| {
            (KEYS..200).for_each(|key| assert!(inner.insert_word(key, key).unwrap()));
            assert!(inner.table.slot_of(u64::MAX) > 0);
            let segment = inner.locate(u64::MAX).segment;
            drop(segment.lock(1).hold(pm).unwrap().change().unwrap());
        },
        |inner, pm| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _held = inner.locate(0).segment.lock(1).hold(pm).unwrap();
                panic!("a write panics");
            }));
            assert!(panicked.is_err());
        },
    ];
    for fail in failures {
        let (region, table) = table();
        fail(of_words(&table), &region.access());
        let closed = Box::new(table).close();
        assert!(matches!(closed, Err(Error::Poisoned)), "{closed:?}");
        let previous = Pool::status(&region, Opening::default().boot).unwrap().previous;
        assert_ne!(previous, Shutdown::Clean);
    }
    let (_, table) = table();
    Box::new(table).close().unwrap();
}

#[test]
fn upkeep_goes_on_behind_a_segment_in_which_a_write_failed() {
    // Fails if that segment ends every round of upkeep: none behind it would be split before it
    // must be.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let table = create::<ElimDa, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let (inner, pm) = (of_words(&table), region.access());
    drop(inner.locate(0).segment.lock(0).hold(&pm).unwrap().change().unwrap());
    let last = inner.locate(u64::MAX).segment;
    let is_due = || last.used_units() == inner.geometry.segment_units;
    let key = (0..10_000).find(|key| {
        let is_in_last = inner.locate(inner.hasher.word(*key)).segment.at() == last.at();
        is_in_last && inner.insert_word(*key, 1).unwrap() && is_due()
    });
    assert!(key.is_some(), "the last segment never filled");
    let changes = || {
        let table = inner.segment_table.lock().unwrap();
        table.splits + table.rebuilds
    };
    assert_eq!(changes(), 0);
    let rounds = (0..20).take_while(|_| table.maintain(Duration::ZERO, 1).unwrap().more).count();
    assert!((3..20).contains(&rounds), "{rounds}");
    assert_eq!(changes(), 1);
}
