//! What is left of a table behind a write that failed half-way, and behind growth for which there
//! is no room.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use everhash_index::{Error, Form, Table};
use everhash_testkit::measured::{MEMORY, Measured};

use super::growth::{begun, draining, maintain, of_words};
use super::mechanisms::two_layers;
use crate::tiered::layout;
use crate::tiered::state::line_class;
use crate::tiered::{Tiered, TieredSettings, TieredTable};

/// Makes a table with four groups, and with some keys: 0, 1, ...
fn four_groups() -> (Measured<Tiered>, u64) {
    let settings = TieredSettings { top_pages: 4, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    (0..400).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
    (measured, 400)
}

/// Leaves a change of the first group half-way, as a write does that fails.
fn poison_first_group(measured: &Measured<Tiered>) {
    let table = of_words(measured);
    let (pm, view) = (table.pool.access(), table.layers.view());
    let (held, _) = table.hold_bucket(&pm, view.place(0), 0).unwrap();
    drop(held.change(false).unwrap());
}

#[test]
fn no_write_holds_a_group_in_which_one_failed() {
    // Fails if a write looks for poison only in the group that it changes: of the other one it
    // reads what the write that failed has left.
    let (measured, count) = four_groups();
    poison_first_group(&measured);
    let mut met = [0; 4];
    for key in 0..2 * count {
        let positions = layout::positions(of_words(&measured).hasher.word(key));
        let [first, second] = positions.map(|position| layout::bucket_of(position, 2) == 0);
        let outcome = measured.words().put_word(key, 1);
        let is_refused = matches!(outcome, Err(Error::Poisoned));
        assert!(outcome.is_ok() || is_refused, "{key}: {outcome:?}");
        assert_eq!(is_refused, first || second, "{key}");
        met[usize::from(first) + 2 * usize::from(second)] += 1;
    }
    assert!(met.iter().all(|times| *times > 20), "{met:?}");
}

#[test]
fn a_table_is_not_closed_cleanly_behind_a_failure() {
    // Fails if what a write has left half-way, or a thread that panicked while it held a group, is
    // taken by the next open for what was closed in order.
    let (measured, _) = four_groups();
    poison_first_group(&measured);
    assert!(matches!(Box::new(measured.table).close(), Err(Error::Poisoned)));
    let (measured, _) = four_groups();
    let table = of_words(&measured);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let (pm, view) = (table.pool.access(), table.layers.view());
        let _held = table.hold_bucket(&pm, view.place(0), 0).unwrap();
        resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err() && table.groups.is_poisoned());
    assert!(matches!(Box::new(measured.table).close(), Err(Error::Poisoned)));
}

#[test]
fn a_write_without_room_leaves_no_record_behind() {
    // Fails if the record of a pair, for which there was no slot, stays in use: a table that is
    // full would leak with each attempt.
    let settings = TieredSettings { top_pages: 1, page_bytes: 256, ..TieredSettings::tiny() };
    let measured = Measured::<Tiered>::new(Form::Variable, &settings, MEMORY).unwrap();
    let TieredTable::Bytes(table) = &measured.table else { panic!("byte strings") };
    table.grow_at.store(u64::MAX, Ordering::Relaxed);
    let put = |key: u64| measured.table.insert(&key.to_le_bytes(), &[1; 8]);
    (0..100).for_each(|key| assert!(put(key).unwrap()));
    // There is room for records, and for no other overflow line.
    (0..8).for_each(|key| assert!(measured.table.remove(&u64::to_le_bytes(key)).unwrap()));
    measured.media.refusals().takes.plan(0, u64::MAX);
    while table.heap.take(line_class()).is_ok() {}
    let used = || table.heap.usage().unwrap().record_bytes;
    let (mut refused, mut before) = (0, used());
    for key in 1000..1100 {
        match put(key) {
            Ok(_) => before = used(),
            Err(error) => {
                assert!(error.is_full() && used() == before, "{key}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn a_page_that_cannot_be_drained_keeps_its_layer_and_is_no_error() {
    // Fails if a layer is dropped with pairs in it, because a page that a drain had to give up is
    // forgotten or not waited for; or if upkeep, or a write, reports that as an error of its own.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let table = of_words(&measured);
    assert_eq!(begun(table), 0);
    poison_first_group(&measured);
    let pm = table.pool.access();
    assert!(!table.drain_next(&pm).unwrap(), "its group is poisoned");
    (1..4).for_each(|page| assert!(table.drain_next(&pm).unwrap(), "{page}"));
    for _ in 0..3 {
        assert!(!table.drain_next(&pm).unwrap());
        assert!(table.layers.draining(), "the first page is still full");
        let upkeep = measured.table.maintain(Duration::ZERO, 1000);
        upkeep.expect("a page behind a failure is no error of upkeep");
    }
    assert_eq!(table.growth.lock().unwrap().again, [0]);
    assert_eq!(measured.table.check().unwrap().items, count);
}

#[test]
fn a_drain_without_room_is_tried_again() {
    // Fails if a page whose pairs need an overflow line, for which there is no room, is forgotten;
    // or if that is an error of upkeep.
    let small = TieredSettings { top_pages: 1, page_bytes: 256, line_slots: 1, ..two_layers() };
    let (measured, _) = draining(TieredSettings { movement: 0, ..small });
    let table = of_words(&measured);
    // The layers below the top one are full: what is drained from now on overflows.
    let count = fill_below(&measured);
    measured.media.refusals().takes.plan(0, u64::MAX);
    while table.heap.take(line_class()).is_ok() {}
    let pm = table.pool.access();
    assert!(!table.drain_next(&pm).unwrap(), "there is no room");
    let upkeep = measured.table.maintain(Duration::ZERO, 1000);
    upkeep.expect("no room for a drain is no error of upkeep");
    assert!(table.layers.draining());
    measured.media.refusals().takes.plan(0, 0);
    maintain(&measured);
    assert!(!table.layers.draining());
    let checked = measured.table.check().unwrap();
    assert_eq!((checked.items, measured.table.len().unwrap()), (count, count));
}

/// Puts pairs into a table whose top layer is drained, until all layers below are full; returns how
/// many pairs there are.
fn fill_below(measured: &Measured<Tiered>) -> u64 {
    let table = of_words(measured);
    let (pm, view) = (table.pool.access(), table.layers.view());
    table.grow_at.store(u64::MAX, Ordering::Relaxed);
    let is_full = || {
        (1..view.count()).all(|rank| {
            (0..view.place(rank).buckets()).all(|index| {
                let mut lines = table.lines_of(&pm, &view, rank, index);
                let mut free = 0;
                while let Some((line, _)) = lines.advance().unwrap() {
                    free += line.head.free(table.settings.line_slots);
                }
                free == 0
            })
        })
    };
    let hash = |key: u64| table.hasher.word(key);
    let drains = |key: u64| hash(key) & 1 == 0;
    let mut key = 1 << 32;
    while !is_full() {
        key += 1;
        // A write whose turn it is would drain a page.
        if !drains(key) {
            assert!(measured.words().insert_word(key, key).unwrap());
        }
    }
    table.len()
}
