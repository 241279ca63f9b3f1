//! Resizing, step by step (Tiered Hashing 3.8): what a layer takes while it is drained, what drops
//! it, and what is left to `maintain`.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use everhash_index::{Error, Form, Inline, Opening, Table, open};
use everhash_pmem::{Image, Region, Std, WORD};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::settle;

use super::copies::{copies, room};
use super::mechanisms::{of_the_paper, own, two_layers};
use crate::common::slot_codec::Words;
use crate::tiered::layout::{self, Listed, PLACES, ROOT, Root};
use crate::tiered::state::{Tiered as Open, line_class};
use crate::tiered::{Tiered, TieredSettings, TieredTable, check};

pub(super) fn of_words(measured: &Measured<Tiered>) -> &Open<Image, Words> {
    let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
    table
}

/// Makes a table that has just begun to drain its top layer. Returns it and the number of its
/// keys, which are 0, 1, ... and have themselves as values.
pub(super) fn draining(changes: TieredSettings) -> (Measured<Tiered>, u64) {
    let settings = TieredSettings { grow_percent: 80, ..changes };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let mut count = 0;
    while !of_words(&measured).layers.draining() {
        assert!(measured.words().insert_word(count, count).unwrap());
        count += 1;
    }
    (measured, count)
}

/// Returns which pages of the top layer a thread has begun to drain.
pub(super) fn begun(table: &Open<Image, Words>) -> u64 {
    table.growth.lock().unwrap().next
}

/// Maintains a table until there is nothing to do.
pub(super) fn maintain(measured: &Measured<Tiered>) {
    settle(&measured.table, Duration::ZERO, 1000).unwrap();
}

#[test]
fn a_layer_that_is_drained_takes_updates_and_no_new_keys() {
    // Fails if a new key, or a newer copy of one further down, goes to the layer that is drained;
    // or if a key that is there is updated anywhere else: the older copy would be the topmost one.
    for fingerprints in 0..=2 {
        let small = TieredSettings { top_pages: 16, fingerprints, ..two_layers() };
        let (measured, count) = draining(small);
        let (table, words) = (of_words(&measured), measured.words());
        let (mut added, mut updated, mut below) = (0, 0, 0);
        for index in 0..count {
            // The oldest keys have sunk, and the newest ones have not.
            let key = if index % 2 == 0 { index } else { count - index };
            let (new, pages) = ((1 << 32) + index, begun(table));
            let hash = table.hasher.word(new);
            let rooms = [false, true].map(|second| room(table, 0, (hash, second)));
            assert!(words.insert_word(new, new).unwrap());
            if !table.layers.draining() {
                break;
            }
            let taken = copies(table, hash);
            assert!(taken.len() == 1 && taken[0].rank > 0, "{new} is new: {taken:?}");
            added += u64::from(rooms.iter().any(|(open, shadows)| open.len() + shadows.len() > 0));
            let before = copies(table, table.hasher.word(key));
            assert!(words.update_word(key, !key).unwrap());
            if !table.layers.draining() {
                break;
            }
            let after = copies(table, table.hasher.word(key));
            assert!(after[0].rank >= 1 || before[0].rank == 0, "{key} rose to {after:?}");
            if begun(table) != pages {
                // The page of the key may have been drained behind the write.
                continue;
            }
            if before[0].rank == 0 {
                assert_eq!((after[0].at, after[0].words), (before[0].at, [key, !key]));
                assert!(layout::is_valid(after[0].state));
                updated += 1;
            } else {
                below += 1;
            }
        }
        println!("{added} new keys past room, {updated} updates in the layer, {below} below it");
        assert!(added > 100 && updated > 100 && below > 100);
        maintain(&measured);
        assert_eq!(measured.table.check().unwrap().items, measured.table.len().unwrap());
    }
}

#[test]
fn every_kind_of_read_finds_every_key_while_a_layer_is_drained() {
    // Fails if a search of one or of many keys passes over one of the layers, of which there is one
    // more than usual, or takes an older copy for the pair of a key.
    for (layers, fingerprints) in [(2, 0), (2, 1), (3, 2)] {
        let small = TieredSettings { top_pages: 16, layers, fingerprints, ..of_the_paper() };
        let (measured, count) = draining(small);
        let (table, words) = (of_words(&measured), measured.words());
        let updated = |key: u64| key.is_multiple_of(50);
        let value = |key: u64| (key < count).then_some(if updated(key) { !key } else { key });
        for key in (0..count).filter(|key| updated(*key)) {
            assert!(words.update_word(key, !key).unwrap());
        }
        let keys: Vec<u64> = (0..2 * count).collect();
        let mut stages = 0;
        while table.layers.draining() {
            let mut found = vec![Some(1); keys.len()];
            words.get_words(&keys, &mut found).unwrap();
            let bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
            let slices: Vec<&[u8]> = bytes.iter().map(|key| &key[..]).collect();
            let mut seen = 0;
            let visit = &mut |position: usize, found: Option<&[u8]>| {
                let expected = value(keys[position]).map(u64::to_le_bytes);
                assert_eq!(found, expected.as_ref().map(|value| &value[..]), "{position}");
                seen += 1;
            };
            measured.table.get_many(&slices, visit).unwrap();
            assert_eq!(seen, keys.len());
            for (key, found) in keys.iter().zip(found) {
                assert_eq!((words.get_word(*key).unwrap(), found), (value(*key), value(*key)));
            }
            Table::maintain(&measured.table, Duration::ZERO, 1).unwrap();
            stages += 1;
        }
        println!("{layers} layers: looked at {stages} times");
        assert!(stages >= 8, "{stages}");
    }
}

#[test]
fn draining_takes_its_time() {
    // Fails if each write drains a page from when a layer was added: the writes of that moment
    // would take many times as long, one after the other. It may take as many writes as there are
    // pages and slots of a page, and is done long before the next layer is due.
    let (measured, count) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let table = of_words(&measured);
    let (pages, slots) = (16, table.settings.slots_of_log(table.page_log()));
    let mut key = count;
    while table.layers.draining() {
        assert!(measured.words().insert_word(key, key).unwrap());
        key += 1;
    }
    let writes = key - count;
    println!("{writes} writes for {pages} pages of {slots} slots");
    assert!((pages * slots / 4..pages * slots * 2).contains(&writes), "{writes}");
    assert_eq!(table.growth.lock().unwrap().steps, 1);
}

#[test]
fn a_second_growth_waits_for_the_first() {
    // Fails if a layer is added while another one is drained, however due that is; or if none is
    // added afterwards.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let table = of_words(&measured);
    let mut key = count;
    while table.layers.draining() {
        // Overdue: with each insert the table could begin to grow again.
        table.grow_at.store(1, Ordering::Relaxed);
        assert!(measured.words().insert_word(key, key).unwrap());
        key += 1;
        let layers = table.layers.view().count();
        assert_eq!((table.growth.lock().unwrap().steps, layers <= 3), (1, true), "{layers} layers");
    }
    assert!(key - count >= 4, "a page of the drained layer for each insert, and four pages");
    assert_eq!(own(&measured.table, "layers"), 2);
    table.grow_at.store(1, Ordering::Relaxed);
    while table.growth.lock().unwrap().steps == 1 {
        assert!(measured.words().insert_word(key, key).unwrap() && key < count + 10_000);
        key += 1;
    }
    maintain(&measured);
    assert_eq!(measured.table.check().unwrap().items, key);
}

/// Opens a copy of some words; returns how many pairs there are, and how many layers.
pub(super) fn opened(words: &[u64]) -> (u64, usize) {
    let bytes = words.len() as u64 * WORD;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes));
    let table = open::<Tiered, _>(region, Opening::default().boot, &Inline).unwrap();
    let TieredTable::Words(inner) = &table else { panic!("the form is words") };
    assert_eq!(table.check().unwrap().items, table.len().unwrap());
    (table.len().unwrap(), inner.layers.view().count())
}

/// Waits until something holds, for far longer than that needs; returns whether it does.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    holds()
}

#[test]
fn only_a_write_that_adds_items_begins_a_growth() {
    // Fails if an update or a removal adds a layer: what takes no room would need some.
    let settings = TieredSettings { top_pages: 4, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let (table, words) = (of_words(&measured), measured.words());
    (0..400).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    table.grow_at.store(0, Ordering::Relaxed);
    (0..400).for_each(|key| assert!(words.update_word(key, !key).unwrap()));
    (0..200).for_each(|key| assert!(words.remove_word(key).unwrap()));
    assert!(!table.layers.draining());
    (0..200).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert!(table.layers.draining());
}

#[test]
fn a_table_without_room_for_a_layer_tries_again_later() {
    // Fails if each write asks a full medium for a layer once more, or if none does when there is
    // room again.
    let settings = TieredSettings { top_pages: 4, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let (table, words) = (of_words(&measured), measured.words());
    let (due, slots) = (table.items_to_grow(), settings.slots());
    // With a page for overflow lines.
    table.heap.take(line_class()).unwrap();
    let refusals = &measured.media.refusals().takes;
    refusals.plan(0, u64::MAX);
    (0..due + slots / 20).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert_eq!(table.grow_at.load(Ordering::Relaxed), due + slots / 16 + 1);
    assert!(!table.layers.draining() && refusals.calls() < 10, "{}", refusals.calls());
    refusals.plan(0, 0);
    (due + slots / 20..due + slots / 8)
        .for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    assert!(table.layers.draining());
}

#[test]
fn where_the_next_growth_is_due_each_write_drains_a_page() {
    // Fails if draining keeps its pace when it is late: the next layer would have to wait for it.
    let (measured, _) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let table = of_words(&measured);
    table.grow_at.store(0, Ordering::Relaxed);
    for page in 1..16 {
        assert!(measured.words().update_word(page, page).unwrap());
        assert_eq!(begun(table), page);
    }
}

#[test]
fn a_call_of_upkeep_drains_as_many_pages_as_it_may() {
    // Fails if one call drains the whole layer: its caller could not stop in time.
    let (measured, _) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let table = of_words(&measured);
    let buckets = 1 << table.page_log();
    let mut expected = 0;
    for (budget, pages) in [(1, 1), (buckets, 1), (buckets + 1, 2), (3 * buckets, 3)] {
        expected += pages;
        assert!(Table::maintain(&measured.table, Duration::ZERO, budget).unwrap().more);
        assert_eq!(begun(table), expected, "{budget}");
    }
}

#[test]
fn upkeep_reserves_room_for_a_layer_that_is_nearly_due() {
    // Fails if the write that begins a growth waits for the medium to grow, or if a table that is
    // far from growing, or in the midst of it, takes room for nothing.
    let settings = TieredSettings { top_pages: 64, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let (table, words) = (of_words(&measured), measured.words());
    let due = table.items_to_grow();
    let free = || table.space.usage().unwrap().free_bytes;
    let upkeep = || Table::maintain(&measured.table, Duration::ZERO, 1).unwrap();
    let layer = 4 * 64 * settings.page_bytes;
    (0..due * 6 / 7).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    upkeep();
    assert!(free() < layer);
    (due * 6 / 7..due * 9 / 10).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    upkeep();
    assert!(free() >= layer);
    let growths = measured.media.refusals().growths.calls();
    let mut key = due;
    while !table.layers.draining() {
        assert!(words.insert_word(key, key).unwrap());
        key += 1;
    }
    assert_eq!(measured.media.refusals().growths.calls(), growths);
    let before = free();
    table.grow_at.store(0, Ordering::Relaxed);
    table.maintain(Duration::ZERO, 1, |_| Ok(false)).unwrap();
    assert_eq!(free(), before);
}

#[test]
fn the_thread_that_drains_the_last_page_drops_the_layer() {
    // Fails if a layer is dropped when its last page was handed out and not when all are empty: a
    // thread that has taken a page, and waits for its latch, would lose what is in it. Or if one
    // that finds no page left says that it drained one: upkeep would be called again at once.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let table = of_words(&measured);
    let (pm, view) = (table.pool.access(), table.layers.view());
    let page = begun(table);
    let first = page << table.page_log();
    let drain = || table.drain_next(&table.pool.access()).unwrap();
    let under_way = || table.growth.lock().unwrap().under_way;
    let (is_slow, is_done, has_more, is_there) = std::thread::scope(|scope| {
        let (held, _) = table.hold_bucket(&pm, view.place(0), first).unwrap();
        scope.spawn(drain);
        let is_slow = comes_true(|| under_way() == 1);
        let quick = scope.spawn(|| (page + 1..4).for_each(|_| assert!(drain())));
        let is_done = comes_true(|| quick.is_finished());
        let has_more = drain();
        let is_there = table.layers.draining() && under_way() == 1;
        drop(held);
        (is_slow, is_done, has_more, is_there)
    });
    assert!(is_slow && is_done && is_there, "{is_slow} {is_done} {is_there}");
    assert!(!has_more, "all pages were handed out");
    assert!(!table.layers.draining());
    assert_eq!(measured.table.check().unwrap().items, count);
}

#[test]
fn one_word_of_the_root_drops_the_layer() {
    // Fails if the layer is dropped by more than one word, or before all that was in it is further
    // down: with that word and without it the pool holds the same pairs.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let table = of_words(&measured);
    let (pm, first) = (table.pool.access(), table.layers.view().first());
    let mut before = Vec::new();
    while table.layers.draining() {
        before = measured.media.words();
        assert!(table.drain_next(&pm).unwrap());
    }
    let after = measured.media.words();
    let root = ROOT.word() as usize..ROOT.word() as usize + Root::WORDS;
    let changed: Vec<_> = root.filter(|word| before[*word] != after[*word]).collect();
    let place = layout::place_at(first);
    assert_eq!(changed, [place.word() as usize]);
    assert_eq!(Listed::decode(after[changed[0]], place), Some(Listed::Dropped));
    assert!(PLACES > first + 1);
    let mut kept = after.clone();
    kept[changed[0]] = before[changed[0]];
    assert_eq!((opened(&before), opened(&kept)), ((count, 3), (count, 3)));
    assert_eq!(opened(&after), (count, 2));
}

#[test]
fn maintain_drains_the_pages_that_no_write_comes_to() {
    // Fails if a table that nobody writes to any more keeps its old top layer.
    let (measured, count) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let table = of_words(&measured);
    assert_eq!((begun(table) < 16, table.layers.view().count()), (true, 3));
    let used = measured.table.stats().unwrap().used_bytes;
    maintain(&measured);
    assert_eq!((table.layers.draining(), table.layers.view().count()), (false, 2));
    // 16 pages of 4 KiB.
    assert!(measured.table.stats().unwrap().used_bytes <= used - (16 << 12));
    assert_eq!(measured.table.check().unwrap().items, count);
}

#[test]
fn a_hole_in_the_list_of_layers_is_damage_to_a_check_too() {
    // Fails if a check passes over a word that an open demands: the pool would be called sound, and
    // could not be opened.
    let (measured, _) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    maintain(&measured);
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let (pm, at) = (region.access(), layout::place_at(0));
    let dropped = pm.load(at).unwrap();
    assert_eq!(Listed::decode(dropped, at), Some(Listed::Dropped));
    measured.table.check().unwrap();
    pm.store(at, 0).unwrap();
    let outcome = measured.table.check();
    assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
    // Nobody needs what is lost: a salvage reports it, and finds all pairs.
    let (mut found, mut reports) = (0, 0);
    check::salvage(&region, &mut |_, _| found += 1, &mut |_| reports += 1).unwrap();
    assert_eq!((found, reports), (measured.table.len().unwrap(), 1));
}

#[test]
fn a_hole_that_hides_the_newest_layer_is_damage() {
    // Fails if zero says that a layer was not added yet: while the top layer is drained there are
    // as many layers as usual without the newest one, and its pairs would be gone in silence.
    let (measured, count) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let first = of_words(&measured).layers.view().first();
    assert_eq!(opened(&measured.media.words()), (count, 3));
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    region.access().store(layout::place_at(first + 2), 0).unwrap();
    let boot = Opening::default().boot;
    for outcome in [
        check::check(&region, &mut |_, _| {}).map(drop),
        open::<Tiered, _>(region.clone(), boot, &Inline).map(drop),
    ] {
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
    }
}

#[test]
fn an_open_and_a_clear_know_how_full_a_table_is() {
    // Fails if a table that was opened grows late, or if one that was cleared grows again and again
    // for the same pairs.
    let small = TieredSettings { top_pages: 4, ..two_layers() };
    let (_, count) = draining(small);
    let settings = TieredSettings { grow_percent: 80, ..small };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    for _ in 0..5 {
        (0..count * 3 / 4).for_each(|key| assert!(measured.words().insert_word(key, 1).unwrap()));
        measured.table.clear().unwrap();
    }
    (0..count * 9 / 10).for_each(|key| assert!(measured.words().insert_word(key, 1).unwrap()));
    let steps = |table: &TieredTable<Image>| table.stats().unwrap().growth_steps;
    assert_eq!(steps(&measured.table), 0, "it grew for pairs that were cleared");
    let Measured { media, table, .. } = measured;
    drop(table);
    let again = open::<Tiered, _>(Region::new(media), Opening::default().boot, &Inline).unwrap();
    let words = again.words().unwrap();
    (count..count * 13 / 10).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    assert_eq!(steps(&again), 1, "it does not know how many pairs there were");
}

#[test]
fn there_are_more_groups_when_a_layer_is_dropped() {
    // Fails if a table that has grown keeps the few groups that it was made with: of 64 a write
    // holds two, and two threads wait for one another. Or if what they have counted is forgotten,
    // or if an opening makes another number of them.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    assert_eq!(own(&measured.table, "groups"), 4);
    maintain(&measured);
    assert_eq!(own(&measured.table, "groups"), 8);
    let table = of_words(&measured);
    assert_eq!((table.len(), table.estimated_items()), (count, count));
    let words = measured.words();
    (0..4 * count).for_each(|key| assert_eq!(words.put_word(key, key).unwrap(), key < count));
    maintain(&measured);
    assert_eq!(measured.table.check().unwrap().items, 4 * count);
    let groups = own(&measured.table, "groups");
    assert!(groups >= 16, "{groups}");
    let Measured { media, table, .. } = measured;
    drop(table);
    let region = Region::<Image>::new(media);
    let again = open::<Tiered, _>(region, Opening::default().boot, &Inline).unwrap();
    assert_eq!((own(&again, "groups"), again.len().unwrap()), (groups, 4 * count));
}

#[test]
fn whoever_waited_for_a_group_that_counts_no_more_takes_another() {
    // Fails if a write goes on with the latch of a group from before there were more of them: the
    // next write of the key would not wait for it.
    let (measured, _) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let (table, rounds) = (of_words(&measured), Cell::new(0));
    let held = table.hold(|live| {
        if rounds.replace(rounds.get() + 1) == 0 {
            maintain(&measured);
        }
        Ok(live.groups_log())
    });
    let (log, live) = held.unwrap();
    assert_eq!((rounds.get(), log, live.groups_log()), (2, 3, 3));
}

#[test]
fn of_two_threads_that_insert_a_key_beside_growth_one_does() {
    // Fails if two writers of a key hold latches of different groups while a layer is dropped.
    const KEYS: u64 = 20_000;
    for _ in 0..5 {
        let settings = TieredSettings { top_pages: 2, grow_percent: 80, ..two_layers() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
        let insert_all = || {
            let is_first = |key: &u64| measured.words().insert_word(*key, !*key).unwrap();
            (0..KEYS).filter(is_first).count() as u64
        };
        let inserted = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(insert_all));
            threads.map(|thread| thread.join().unwrap()).iter().sum::<u64>()
        });
        assert_eq!((inserted, measured.table.len().unwrap()), (KEYS, KEYS));
        assert_eq!(measured.table.check().unwrap().items, KEYS);
        assert!(own(&measured.table, "groups") >= 16);
    }
}

#[test]
fn a_group_that_is_poisoned_stays_so_when_a_layer_is_dropped() {
    // Fails if groups are made that know nothing of a write which failed half-way: what it has
    // left would be read.
    let (measured, count) = draining(TieredSettings { top_pages: 4, ..two_layers() });
    let (table, words) = (of_words(&measured), measured.words());
    let (pm, view) = (table.pool.access(), table.layers.view());
    while begun(table) < 3 {
        assert!(table.drain_next(&pm).unwrap());
    }
    let (held, _) = table.hold_bucket(&pm, view.place(0), 0).unwrap();
    drop(held.change(false).unwrap());
    drop(held);
    assert!(table.drain_next(&pm).unwrap());
    assert!(!table.layers.draining() && table.groups.is_poisoned());
    let outcomes = (0..count).map(|key| words.get_word(key));
    let (mut found, mut refused) = (0, 0);
    for (key, outcome) in (0..count).zip(outcomes) {
        match outcome {
            Ok(value) => found += u64::from(value == Some(key)),
            Err(error) => refused += u64::from(matches!(error, Error::Poisoned)),
        }
    }
    assert_eq!(found + refused, count);
    assert!(found > count / 4 && refused > count / 4, "{found} found, {refused} refused");
}
