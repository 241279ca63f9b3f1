//! Sweeps: what they end, and when they come.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Error, Form, Inline, Opening, Table, Upkeep, create};
use everhash_pmem::{Image, Region};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::random::Random;
use everhash_testkit::settle;

use super::copies::copies;
use super::growth::{draining, maintain, of_words, opened};
use super::mechanisms::{of_the_paper, own, two_layers};
use crate::common::leftovers::Seen;
use crate::common::slot_codec::Words;
use crate::tiered::layout;
use crate::tiered::state::Tiered as Open;
use crate::tiered::{Tiered, TieredSettings};

/// Makes a table that does not grow. Returns it and the number of its keys, which are 0, 1, ...:
/// half as many as it has slots.
fn half_full() -> (Measured<Tiered>, u64) {
    let small = TieredSettings { top_pages: 8, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &small, MEMORY).unwrap();
    of_words(&measured).grow_at.store(u64::MAX, Ordering::Relaxed);
    let count = small.slots() / 2;
    (0..count).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
    (measured, count)
}

/// Fills a medium that has room for little more than a table. Returns the table and the number of
/// its keys, which are 0, 1, ...
fn full(settings: &TieredSettings) -> (Measured<Tiered>, u64) {
    let capacity = settings.bytes_needed(MEMORY).unwrap() + (64 << 10);
    let media = Arc::new(Image::new(0, capacity).with_guarantees(MEMORY).counted());
    let (opening, region) = (Opening::default(), Region::new(Arc::clone(&media)));
    let table = create::<Tiered, _>(region, &opening, settings, &Inline).unwrap();
    let measured = Measured { media, table, form: Form::WORDS };
    let put = |key: &u64| measured.words().insert_word(*key, *key);
    let count = (0..).find(|key| put(key).is_err()).unwrap();
    (measured, count)
}

/// Returns how many of the first `count` keys have left a deletion behind.
fn deletions(measured: &Measured<Tiered>, count: u64) -> usize {
    let table = of_words(measured);
    let is_deleted = |hash| copies(table, hash).iter().any(|copy| layout::is_deleted(copy.state));
    (0..count).filter(|key| is_deleted(table.hasher.word(*key))).count()
}

#[test]
fn maintain_ends_deletions_and_gives_overflow_lines_back() {
    // Fails if the sweep passes over a page, a layer or a line: what no write comes by stays for
    // ever then.
    for (layers, fingerprints) in [(2, 0), (2, 1), (3, 2)] {
        let small = TieredSettings { top_pages: 2, layers, fingerprints, ..of_the_paper() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &small, MEMORY).unwrap();
        let table = of_words(&measured);
        // No growth, and chains of some overflow lines each.
        table.grow_at.store(u64::MAX, Ordering::Relaxed);
        let count = small.slots() * 3 / 2;
        (0..count).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
        let lines = own(&measured.table, "overflowed");
        let removed = (0..count).filter(|key| key % 16 != 0);
        removed.for_each(|key| assert!(measured.words().remove_word(key).unwrap()));
        let hashes = || (0..count).map(|key| (key, table.hasher.word(key)));
        let tombstones = deletions(&measured, count);
        assert!(tombstones > 50 && lines > 20, "{tombstones} tombstones, {lines} overflow lines");
        maintain(&measured);
        for (key, hash) in hashes() {
            let expected = (key % 16 == 0).then_some(key);
            assert_eq!(measured.words().get_word(key).unwrap(), expected);
            let left = copies(table, hash);
            // Shadows of keys that are there, and nothing of those that are not.
            assert_eq!(left.is_empty(), expected.is_none(), "{key}: {left:?}");
        }
        let (checked, stats) = (measured.table.check().unwrap(), measured.table.stats().unwrap());
        assert_eq!(checked.items, count.div_ceil(16));
        // Beside the pairs, the lines of the heap: those that are left have a pair each.
        let left = (stats.live_bytes - 16 * checked.items) / 64;
        println!("{layers} layers: {lines} overflow lines, {left} left");
        assert!(left <= lines / 4, "{left} of {lines}");
        // Deletions that the sweep ended do not come back.
        assert_eq!(opened(&measured.media.words()), (count.div_ceil(16), layers as usize));
    }
}

#[test]
fn a_sweep_goes_on_behind_damage_and_names_it() {
    // Fails if one damaged line keeps deletions of the whole table for ever, or if nobody is told.
    let (measured, count) = half_full();
    let table = of_words(&measured);
    (0..count).for_each(|key| assert!(measured.words().remove_word(key).unwrap()));
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let (pm, line) = (region.access(), table.layers.view().place(1).bucket(0));
    let head = line.plus(layout::Line::HEAD as u64);
    pm.store(head, !pm.load(head).unwrap()).unwrap();
    let is_damaged =
        |hash, second| table.layers.view().place(1).index(layout::position(hash, second)) == 0;
    let mut hashes: Vec<u64> = (0..count).map(|key| table.hasher.word(key)).collect();
    hashes.retain(|hash| ![false, true].into_iter().any(|second| is_damaged(*hash, second)));
    let left = || hashes.iter().filter(|hash| !copies(table, **hash).is_empty()).count();
    let before = left();
    let call = |second| Table::maintain(&measured.table, Duration::from_secs(second), 1000);
    let told = (0..64).filter_map(|second| call(second).err()).collect::<Vec<_>>();
    assert!(told.iter().all(|error| matches!(error, Error::Corrupt { .. })), "{told:?}");
    println!("{} of {before} deletions are left beside the damage, {} told", left(), told.len());
    assert!(!told.is_empty() && left() <= before / 2, "{} of {before}", left());
}

#[test]
fn a_sweep_goes_on_behind_a_group_in_which_a_write_failed() {
    // Fails if a page that nobody may change ends the sweep, or if upkeep fails for it.
    let (measured, count) = half_full();
    let table = of_words(&measured);
    (0..count).for_each(|key| assert!(measured.words().remove_word(key).unwrap()));
    let (pm, view) = (table.pool.access(), table.layers.view());
    let (held, _) = table.hold_bucket(&pm, view.place(0), 0).unwrap();
    drop(held.change(false).unwrap());
    drop(held);
    let before = deletions(&measured, count);
    for second in 0..64 {
        Table::maintain(&measured.table, Duration::from_secs(second), 1000).unwrap();
    }
    let log = view.live().groups_log();
    for hash in (0..count).map(|key| table.hasher.word(key)) {
        for copy in copies(table, hash) {
            let position = layout::position(hash, layout::is_second(copy.state));
            let is_swept = layout::bucket_of(position, log) != 0;
            assert!(!is_swept || !layout::is_deleted(copy.state), "{copy:?}");
        }
    }
    let left = deletions(&measured, count);
    assert!(left > 0 && left < before / 4, "{left} of {before}");
}

#[test]
fn a_call_of_upkeep_sweeps_as_many_pages_as_it_may() {
    // Fails if one call sweeps the whole table: its caller could not stop in time.
    let (measured, _) = half_full();
    let table = of_words(&measured);
    let buckets = 1 << table.page_log();
    table.unswept.add(1 << 20);
    let mut expected = 0;
    for (budget, pages) in [(1, 1), (buckets, 1), (buckets + 1, 2), (3 * buckets, 3)] {
        expected += pages;
        assert!(Table::maintain(&measured.table, Duration::ZERO, budget).unwrap().more);
        assert_eq!(table.sweep.lock().unwrap().next, expected, "{budget}");
    }
}

#[test]
fn an_overflow_line_whose_last_pair_is_removed_is_left_for_a_sweep() {
    // Fails if only deletions count as what is left behind: lines that hold nothing stay then.
    let settings = TieredSettings { page_bytes: 512, ..TieredSettings::tiny() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let table = of_words(&measured);
    table.grow_at.store(u64::MAX, Ordering::Relaxed);
    (0..100).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
    maintain(&measured);
    let lines = || table.heap.usage().unwrap().small_records;
    let view = table.layers.view();
    let overflows = |key: &u64| {
        let copies = copies(table, table.hasher.word(*key));
        let is_inside = |at: u64| {
            view.all().iter().any(|place| at.wrapping_sub(place.start().byte()) < place.bytes())
        };
        copies.len() == 1 && !is_inside(copies[0].at.byte())
    };
    let alone: Vec<u64> = (0..100).filter(overflows).collect();
    assert!(alone.len() > 20, "{}", alone.len());
    for key in alone {
        let before = lines();
        assert!(measured.words().remove_word(key).unwrap());
        maintain(&measured);
        assert!(lines() < before, "{key}: {before}");
    }
}

#[test]
fn a_sweep_leaves_nothing_to_sweep() {
    // Fails if deletions, or overflow lines without a valid pair, stay behind when nobody writes
    // any more: those of a layer that was the bottom one, too, and of one that was dropped.
    for (layers, fingerprints, line_slots) in [(2, 0, 1), (3, 2, 2), (3, 1, 1)] {
        let small = TieredSettings { layers, fingerprints, line_slots, ..TieredSettings::tiny() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &small, MEMORY).unwrap();
        let (table, words) = (of_words(&measured), measured.words());
        let (mut random, mut swept) = (Random::new(layers), 0);
        let mut now = Duration::ZERO;
        for round in 0..40 {
            for _ in 0..50 {
                let key = random.below(40 + 10 * round);
                if random.below(9) < round % 8 {
                    words.remove_word(key).unwrap();
                } else {
                    words.put_word(key, random.next()).unwrap();
                }
            }
            let before = left_behind(table);
            // What has moved out of an overflow line calls for no sweep.
            table.unswept.add(1);
            now = settle(&measured.table, now, 1000).unwrap();
            assert_eq!(left_behind(table), [0, 0], "round {round} of {layers}, {before:?}");
            swept += before.iter().sum::<usize>();
        }
        assert!(swept > 100 && own(&measured.table, "layers") == layers, "{swept}");
    }
}

#[test]
fn a_layer_that_is_dropped_leaves_a_sweep() {
    // Fails if overflow lines stay that are empty because of what was drained.
    let (measured, _) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let (table, pm) = (of_words(&measured), of_words(&measured).pool.access());
    let begins = || table.unswept.begin(&mut Seen::default(), Duration::ZERO, 1).is_none();
    assert!(begins(), "an open does not know what there is");
    while table.layers.draining() {
        assert!(!begins() && table.drain_next(&pm).unwrap());
    }
    assert!(begins() && !begins());
}

/// Returns how many deletions a table has, and how many overflow lines without a valid pair.
fn left_behind(table: &Open<Image, Words>) -> [usize; 2] {
    let (view, pm) = (table.layers.view(), table.pool.access());
    let mut left = [0; 2];
    for (rank, place) in view.all().iter().enumerate() {
        for index in 0..place.buckets() {
            let mut lines = table.lines_of(&pm, &view, rank, index);
            while let Some((line, number)) = lines.advance().unwrap() {
                let is_deleted = |slot: &usize| layout::is_deleted(line.head.state(*slot));
                left[0] += line.head.valid().filter(is_deleted).count();
                left[1] += usize::from(number > 1 && line.head.valid().next().is_none());
            }
        }
    }
    left
}

#[test]
fn a_sweep_waits_for_many_deletions_or_for_rest() {
    // Fails if each deletion has the whole table swept: one thread that removed pairs took a
    // second processor with that. Or if those that are few are never swept.
    let (measured, count) = half_full();
    let upkeep = |ms| measured.table.maintain(Duration::from_millis(ms), 1 << 20).unwrap();
    let at = |ms| Upkeep { deadline: Some(Duration::from_millis(ms)), more: false };
    let sweeps = Upkeep { deadline: None, more: true };
    // An open does not know what there is.
    assert_eq!([upkeep(0), upkeep(999), upkeep(1000)], [at(1000), at(1000), sweeps]);
    let mut keys = 0..count;
    let mut leave = |many: usize| {
        for key in keys.by_ref() {
            assert!(measured.words().remove_word(key).unwrap());
            if deletions(&measured, count) == many {
                return;
            }
        }
        panic!("too few pairs leave a deletion");
    };
    leave(1);
    assert_eq!([upkeep(2000), upkeep(2999)], [at(3000), at(3000)]);
    leave(2);
    assert_eq!([upkeep(2999), upkeep(3998)], [at(3999), at(3999)]);
    assert_eq!(deletions(&measured, count), 2);
    assert_eq!([upkeep(3999), upkeep(3999)], [sweeps, Upkeep::default()]);
    assert_eq!(deletions(&measured, count), 0);
    // A sixteenth of the slots.
    let enough = count as usize / 8;
    leave(enough - 1);
    assert_eq!(upkeep(5000), at(6000));
    leave(enough);
    assert_eq!(upkeep(5000), sweeps);
    assert_eq!(deletions(&measured, count), 0);
}

#[test]
fn a_full_medium_has_the_room_of_removed_pairs_again_without_rest() {
    // Fails if a pair that found no room has to wait, as other upkeep does, until nobody removes
    // pairs any more.
    let small = TieredSettings { top_pages: 8, ..two_layers() };
    let (measured, count) = full(&small);
    settle(&measured.table, Duration::ZERO, 1 << 20).unwrap();
    let upkeep = || measured.table.maintain(Duration::from_secs(10), 1 << 20).unwrap();
    let leaves = |key: &u64| {
        assert!(measured.words().remove_word(*key).unwrap());
        deletions(&measured, count) > 0
    };
    (0..count).find(leaves).expect("some removal leaves a deletion");
    assert!(upkeep().deadline.is_some(), "nobody needs room yet");
    let put = |key| measured.words().insert_word(key, key);
    // Others may find the slot of a pair that left none.
    let refused = (count..2 * count).find_map(|key| put(key).err()).unwrap();
    assert!(refused.is_full(), "{refused}");
    assert_eq!(upkeep(), Upkeep { deadline: None, more: true });
    assert_eq!(deletions(&measured, count), 0);
}

#[test]
fn a_drain_that_uses_up_a_call_of_upkeep_forgets_no_deletion() {
    // Fails if a call that has no budget left for the sweep counts what was left behind as swept.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let (table, many) = (of_words(&measured), 1 << 20);
    table.unswept.add(many);
    assert!(table.maintain(Duration::ZERO, 1, |pm| table.drain_next(pm)).unwrap().more);
    let sweep = table.unswept.begin(&mut Seen::default(), Duration::ZERO, many);
    assert_eq!(sweep, None, "none begins, for nothing was left");
    (0..count).for_each(|key| assert!(measured.words().remove_word(key).unwrap()));
    assert!(deletions(&measured, count) > 10);
    settle(&measured.table, Duration::ZERO, 1).unwrap();
    assert_eq!(deletions(&measured, count), 0);
}
