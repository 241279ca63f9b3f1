//! Sweeps: what they end, and when they come.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Error, Form, Inline, Opening, Table, Upkeep, create};
use everhash_pmem::{Image, Region};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::settle;

use super::copies::copies;
use super::growth::{draining, maintain, of_words, opened};
use super::mechanisms::{of_the_paper, own, two_layers};
use crate::common::leftovers::Seen;
use crate::tiered::layout;
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
