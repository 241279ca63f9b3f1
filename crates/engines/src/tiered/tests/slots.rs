//! Shadow reading and lazy writes, slot by slot (Tiered Hashing 3.4, 3.5): which copy of a key a
//! read takes, and which slot a write takes.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Cursor, Error, Form, Inline, Opening, Table, open};
use everhash_pmem::{Image, RecordWord, Region, Std, WORD};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::random::Random;
use everhash_testkit::settle;

use super::copies::{Spot, copies, room};
use super::mechanisms::{of_the_paper, two_layers};
use crate::tiered::bucket::PairCodec;
use crate::tiered::concurrency::Group;
use crate::tiered::layout::{self, Line, is_deleted, is_second, is_shadow, is_valid};
use crate::tiered::state::Tiered as Open;
use crate::tiered::{Tiered, TieredSettings, TieredTable, check};

/// Makes a table of keys 0, 1, ... with themselves as values, up to a load at which many pairs have
/// moved. Returns it and the number of keys.
pub(super) fn filled(form: Form, changes: TieredSettings) -> (Measured<Tiered>, u64) {
    let settings = TieredSettings { top_pages: 8, ..changes };
    let measured = Measured::<Tiered>::new(form, &settings, MEMORY).unwrap();
    let count = settings.slots() * 45 / 100;
    for key in 0..count {
        assert!(measured.table.insert(&key.to_le_bytes(), &key.to_le_bytes()).unwrap());
    }
    (measured, count)
}

/// Calls `$body` with the table of either form.
macro_rules! with_table {
    ($table:expr, $inner:ident => $body:expr) => {
        match $table {
            TieredTable::Words($inner) => $body,
            TieredTable::Bytes($inner) => $body,
        }
    };
}

fn hash_of<C: PairCodec>(table: &Open<Image, C>, key: u64) -> u64 {
    C::hash(&table.hasher, C::key(&key.to_le_bytes()))
}

fn copies_of(table: &TieredTable<Image>, key: u64) -> Vec<Spot> {
    with_table!(table, table => copies(table, hash_of(table, key)))
}

/// Returns what every kind of read says of a key that is there: the values that differ from it.
fn misread(measured: &Measured<Tiered>, key: u64) -> usize {
    let (table, bytes) = (&measured.table, key.to_le_bytes());
    let mut value = Vec::new();
    let mut wrong =
        usize::from(!matches!(table.get(&bytes, &mut value), Ok(true) if value == bytes));
    let mut batched = false;
    let read = table.get_many(&[&bytes], &mut |_, found| batched = found == Some(&bytes[..]));
    wrong += usize::from(read.is_err() || !batched);
    if let Some(words) = table.words() {
        wrong += usize::from(!matches!(words.get_word(key), Ok(Some(found)) if found == key));
        let mut found = [None];
        let read = words.get_words(&[key], &mut found);
        wrong += usize::from(read.is_err() || found != [Some(key)]);
    }
    wrong
}

#[test]
fn a_read_is_answered_by_the_shadow() {
    // Fails if a reader passes over a shadow and goes on to the copy below: that copy is damaged
    // here, for one key at a time. Without shadow reading every read goes there.
    for form in [Form::WORDS, Form::Variable] {
        for (fingerprints, shadow_reading) in [(0, 1), (1, 1), (2, 1), (0, 0), (2, 0)] {
            let changes = TieredSettings { fingerprints, shadow_reading, ..of_the_paper() };
            let (measured, count) = filled(form, changes);
            let reads = if form == Form::WORDS { 4 } else { 2 };
            let (region, mut shadows) = (Region::<Image>::new(Arc::clone(&measured.media)), 0);
            let pm = region.access();
            for key in 0..count {
                let copies = copies_of(&measured.table, key);
                let [above, below] = copies[..] else { continue };
                assert_eq!(misread(&measured, key), 0, "{key}");
                if !is_shadow(above.state) {
                    continue;
                }
                assert_eq!((above.words, is_valid(below.state)), (below.words, true));
                pm.store(below.at, !below.words[1]).unwrap();
                let wrong = misread(&measured, key);
                pm.store(below.at, below.words[1]).unwrap();
                let expected = if shadow_reading == 1 { 0 } else { reads };
                assert_eq!(wrong, expected, "{form}, {fingerprints}, {shadow_reading}: {key}");
                shadows += 1;
            }
            println!("{form}, fingerprints {fingerprints}: {shadows} of {count} keys are shadows");
            assert!(shadows > 100, "{shadows}");
        }
    }
}

#[test]
fn a_shadow_is_the_room_that_the_next_write_takes() {
    // Fails if a new key goes to a lower layer, or to an overflow line, while a slot of its bucket
    // in the top layer holds a shadow; if it takes a shadow where a slot is open; or if it goes to
    // the fuller one of its two buckets.
    for fingerprints in 0..=2 {
        let (measured, count) =
            filled(Form::WORDS, TieredSettings { fingerprints, ..of_the_paper() });
        let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
        let mut met = [0; 3];
        for key in 1 << 32..(1 << 32) + count / 3 {
            let hash = hash_of(table, key);
            let rooms = [false, true].map(|second| room(table, 0, (hash, second)));
            let free = [0, 1].map(|second: usize| rooms[second].0.len() + rooms[second].1.len());
            assert!(measured.words().insert_word(key, key).unwrap());
            let taken = copies(table, hash);
            let [taken] = taken[..] else { panic!("{key} has copies {taken:?}") };
            if free == [0, 0] {
                assert!(taken.rank > 0, "{key}");
                met[0] += 1;
                continue;
            }
            let roomier = usize::from(free[1] > free[0]);
            assert_eq!((taken.rank, is_second(taken.state)), (0, roomier == 1), "{key}");
            let (open, shadows) = &rooms[roomier];
            let among = if open.is_empty() { shadows } else { open };
            let before = among.iter().find(|spot| spot.at == taken.at);
            let before = before.unwrap_or_else(|| panic!("{key} took {taken:?}, not {among:?}"));
            met[if open.is_empty() { 1 } else { 2 }] += 1;
            if open.is_empty() {
                // Its own copy lies further down.
                let other = before.words;
                assert_eq!(measured.words().get_word(other[0]).unwrap(), Some(other[1]));
            }
        }
        println!("below, over a shadow, in an open slot: {met:?}");
        assert!(met[1] > 50 && met.iter().sum::<u64>() == count / 3, "{met:?}");
    }
}

#[test]
fn a_new_key_finds_the_room_of_overflow_lines_too() {
    // Fails if room in an overflow line is not counted or not taken, if a new key goes to the
    // fuller one of its buckets there, or to a shadow though a later line has an open slot.
    for fingerprints in 0..=2 {
        let settings = TieredSettings { top_pages: 2, fingerprints, ..of_the_paper() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
        let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
        let words = measured.words();
        table.grow_at.store(u64::MAX, Ordering::Relaxed);
        let count = settings.slots() * 3 / 2;
        (0..count).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
        (0..count).step_by(2).for_each(|key| assert!(words.remove_word(key).unwrap()));
        let mut met = [0; 2];
        for key in 1 << 32..(1 << 32) + count / 2 {
            let hash = hash_of(table, key);
            let rooms = [0, 1].map(|rank| {
                [false, true].map(|second| {
                    let (open, shadows) = room(table, rank, (hash, second));
                    (open.len() + shadows.len(), if open.is_empty() { shadows } else { open })
                })
            });
            assert!(words.insert_word(key, key).unwrap());
            let taken = copies(table, hash)[0];
            let Some(rank) = rooms.iter().position(|[one, two]| one.0 + two.0 > 0) else {
                assert_eq!(taken.rank, 1, "an overflow line lies below all");
                continue;
            };
            let [one, two] = &rooms[rank];
            let second = two.0 > one.0;
            assert_eq!((taken.rank, is_second(taken.state)), (rank, second), "{key}");
            let among = if second { &two.1 } else { &one.1 };
            assert!(among.iter().any(|spot| spot.at == taken.at), "{key}: {taken:?}");
            met[rank] += 1;
        }
        assert!(met.iter().all(|times| *times > 20), "{met:?}");
    }
}

#[test]
fn no_deletion_reaches_the_bottom() {
    // Fails if a deletion that sinks to where nothing is below it takes a slot there, or keeps that
    // of the copy that it ends: no write comes by to end it.
    for (layers, fingerprints, line_slots) in [(2, 0, 1), (2, 1, 2), (3, 2, 2), (3, 0, 1)] {
        let small = TieredSettings { layers, fingerprints, line_slots, ..TieredSettings::tiny() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &small, MEMORY).unwrap();
        let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
        let (words, mut random) = (measured.words(), Random::new(layers));
        table.grow_at.store(u64::MAX, Ordering::Relaxed);
        let keys = small.slots();
        for _ in 0..4000 {
            let key = random.below(keys);
            if random.once_in(3) {
                words.remove_word(key).unwrap();
            } else {
                words.put_word(key, random.next()).unwrap();
            }
            for copy in copies(table, hash_of(table, key)) {
                let is_bottom = copy.rank as u64 + 1 == layers;
                assert!(!(is_bottom && is_deleted(copy.state)), "{key}: {copy:?}");
            }
        }
        let all = (0..keys).flat_map(|key| copies(table, hash_of(table, key)));
        let is_left = |copy: &Spot| copy.rank as u64 + 1 == layers && is_deleted(copy.state);
        assert_eq!(all.filter(is_left).collect::<Vec<_>>(), []);
    }
}

#[test]
fn a_write_changes_the_sequence_of_the_group_in_which_its_copy_lies() {
    // Fails if a write keeps readers from the other group of its key, while those of its own read
    // what is half written.
    let (measured, count) = filled(Form::WORDS, of_the_paper());
    let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
    let (live, words) = (table.layers.live(), measured.words());
    let mut times = [[0; 2]; 3];
    for (number, key) in (0..count).chain(1 << 32..(1 << 32) + count / 2).enumerate() {
        let hash = hash_of(table, key);
        let groups = table.groups.of(live, layout::positions(hash)).map(Group::sequence);
        if core::ptr::eq(groups[0], groups[1]) {
            continue;
        }
        let stamps = groups.map(|group| group.read().unwrap().unwrap());
        let before = copies(table, hash);
        let kind = match number % 2 {
            _ if before.is_empty() => 0,
            kind => 1 + kind,
        };
        match kind {
            0 => assert!(words.insert_word(key, key).unwrap()),
            1 => assert!(words.update_word(key, 1).unwrap()),
            _ => assert!(words.remove_word(key).unwrap()),
        }
        let after = copies(table, hash);
        let second = is_second(after.first().unwrap_or_else(|| &before[0]).state);
        let changed = [0, 1].map(|group| !groups[group].validate(stamps[group]));
        assert_eq!(changed, [!second, second], "{key}, kind {kind}");
        times[kind][usize::from(second)] += 1;
    }
    println!("{times:?}");
    assert!(times.as_flattened().iter().all(|times| *times > 50), "{times:?}");
    assert!(table.layers.live() == live, "the table has grown");
}

#[test]
fn a_call_of_a_scan_ends_soon() {
    // Fails if one call visits a whole table, empty or full: its caller could not stop in time.
    let measured = Measured::<Tiered>::new(Form::WORDS, &two_layers(), MEMORY).unwrap();
    let calls = || {
        let (mut most, mut calls, mut next) = (0, 0, Some(Cursor::default()));
        while let Some(cursor) = next {
            let mut visited = 0;
            next = measured.table.scan(cursor, &mut |_, _| visited += 1).unwrap();
            (most, calls) = (visited.max(most), calls + 1);
        }
        [calls, most]
    };
    // 128 pages of 32 buckets, 64 of which a call visits.
    assert_eq!(calls(), [64, 0]);
    let count = two_layers().slots() / 2;
    (0..count).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
    let [calls, most] = calls();
    // No column has as many pairs as two buckets have slots, and half of one above.
    assert!(calls > count / (64 + 18) && (64..64 + 18).contains(&most), "{calls}, {most}");
}

/// What a write of a key did to its copies, and how often.
#[derive(Default, Debug)]
struct Met {
    went_up: [u64; 2],
    in_place: [u64; 2],
    below_nothing: u64,
}

/// Updates a key or removes it, and compares its copies before and after with the table in
/// `lazy_updating.rs`.
fn write_lazily(measured: &Measured<Tiered>, key: u64, removes: bool, met: &mut Met) {
    let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
    let hash = hash_of(table, key);
    let before = copies(table, hash);
    let topmost = before[0];
    let second = is_second(topmost.state);
    let roomy = (0..topmost.rank).find_map(|rank| {
        let (open, shadows) = room(table, rank, (hash, second));
        let takes = if open.is_empty() { shadows } else { open };
        (!takes.is_empty()).then_some(takes)
    });
    if removes {
        assert!(measured.words().remove_word(key).unwrap());
        assert_eq!(measured.words().get_word(key).unwrap(), None);
    } else {
        assert!(measured.words().update_word(key, !key).unwrap());
        assert_eq!(measured.words().get_word(key).unwrap(), Some(!key));
    }
    let after = copies(table, hash);
    let word = if removes { topmost.words[1] } else { !key };
    let is_right = |spot: &Spot| {
        let flags = (is_valid(spot.state), is_deleted(spot.state), is_second(spot.state));
        spot.words == [key, word] && flags == (true, removes, second)
    };
    if let Some(takes) = roomy {
        // What was there stays as it was, flags and all, until a move overwrites it.
        assert_eq!(after[1..], before, "{key}: a copy below has changed");
        assert!(is_right(&after[0]) && takes.iter().any(|spot| spot.at == after[0].at), "{key}");
        met.went_up[usize::from(removes)] += 1;
    } else if removes && before.len() == 1 {
        assert!(after.is_empty(), "{key}: {after:?}");
        met.below_nothing += 1;
    } else {
        assert_eq!((after.len(), &after[1..]), (before.len(), &before[1..]), "{key}");
        assert!(after[0].at == topmost.at && is_right(&after[0]), "{key}: {after:?}");
        met.in_place[usize::from(removes)] += 1;
    }
}

#[test]
fn an_update_and_a_deletion_go_up_where_there_is_room_and_else_to_the_topmost_copy() {
    // Fails if a pair of a lower layer is updated in place, or its slot is emptied, though its
    // bucket in a layer above has an open slot or a shadow; if the older copy below changes; or if
    // a write without room above does not go to the topmost copy itself.
    for (layers, fingerprints) in [(2, 0), (2, 2), (3, 0), (3, 1)] {
        let (measured, count) =
            filled(Form::WORDS, TieredSettings { layers, fingerprints, ..of_the_paper() });
        let mut met = Met::default();
        for key in 0..count {
            write_lazily(&measured, key, key % 4 == 3, &mut met);
        }
        println!("{layers} layers: {met:?}");
        assert!(met.went_up.iter().all(|times| *times > 50), "{met:?}");
        assert!(met.in_place.iter().all(|times| *times > 50) && met.below_nothing > 5, "{met:?}");
        assert_eq!(measured.table.check().unwrap().items, measured.table.len().unwrap());
    }
}

#[test]
fn salvage_takes_a_shadow_whose_next_copy_is_damaged() {
    // Fails if the pair is left out that every read answers, because the copy further down, which
    // it was made from, cannot be read.
    let (measured, count) = filled(Form::Variable, of_the_paper());
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let pm = region.access();
    let below = (0..count).find_map(|key| match copies_of(&measured.table, key)[..] {
        [above, below] if is_shadow(above.state) && is_valid(below.state) => Some(below),
        _ => None,
    });
    let below = below.expect("a pair has moved");
    pm.store(below.at, !below.words[1]).unwrap();
    let (mut found, mut reports) = (0, Vec::new());
    check::salvage(&region, &mut |_, _| found += 1, &mut |error| reports.push(error)).unwrap();
    assert_eq!(found, count, "{reports:?}");
    assert!(!reports.is_empty());
}

#[test]
fn a_damaged_record_costs_the_writes_of_no_other_key() {
    // Fails if a write to a page, along which pairs of upper layers would move there, returns the
    // damage that a comparison of their keys with older copies meets.
    let (measured, keys) = updated_with_damage();
    for key in 1 << 32..(1 << 32) + keys.len() as u64 / 2 {
        assert!(measured.table.insert(&u64::to_le_bytes(key), &[1; 8]).unwrap(), "{key}");
    }
}

#[test]
fn a_damaged_line_costs_the_writes_of_no_other_key() {
    // Fails if a write returns the damage that pairs of upper layers meet on their way down to its
    // page.
    let (measured, count) = filled(Form::WORDS, of_the_paper());
    let TieredTable::Words(table) = &measured.table else { panic!("the form is words") };
    let (pm, place) = (table.pool.access(), table.layers.view().place(1));
    // Of the first eight buckets of each page.
    let is_damaged = |index: u64| index % 32 < 8;
    for index in (0..place.buckets()).filter(|index| is_damaged(*index)) {
        let head = place.bucket(index).plus(Line::HEAD as u64);
        pm.store(head, !pm.load(head).unwrap()).unwrap();
    }
    let (mut written, mut lower) = (0, 0);
    for key in 1 << 32..(1 << 32) + count / 2 {
        let positions = layout::positions(hash_of(table, key));
        if positions.iter().any(|position| is_damaged(place.index(*position))) {
            continue;
        }
        assert!(measured.words().insert_word(key, key).unwrap(), "{key}");
        written += 1;
        lower += copies(table, hash_of(table, key))[0].rank;
    }
    assert!(written > 200 && lower > 10, "{written} writes, {lower} of them below");
}

/// Damages the record of one of two copies of some keys, both valid; returns these keys.
fn damage_records(measured: &Measured<Tiered>, keys: &[u64], which: usize) -> Vec<u64> {
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let pm = region.access();
    let has_two = |key: &u64| match copies_of(&measured.table, *key)[..] {
        [above, below]
            if is_valid(above.state)
                && is_valid(below.state)
                && above.words[1] != below.words[1] =>
        {
            let copy = [above, below][which];
            let record = RecordWord::from_medium(copy.at, copy.words[1]).unwrap().unwrap().addr;
            pm.store(record, !pm.load(record).unwrap()).unwrap();
            true
        }
        _ => false,
    };
    keys.iter().copied().filter(has_two).take(20).collect()
}

/// Makes a table of byte strings, updates every pair, and damages the record of the older copy of
/// 20 keys. Returns it and all keys.
fn updated_with_damage() -> (Measured<Tiered>, Vec<u64>) {
    let (measured, count) = filled(Form::Variable, of_the_paper());
    let keys: Vec<u64> = (0..count).collect();
    for key in &keys {
        assert!(measured.table.update(&key.to_le_bytes(), &[7; 8]).unwrap());
    }
    assert_eq!(damage_records(&measured, &keys, 1).len(), 20);
    (measured, keys)
}

/// Visits all pairs, past what is damaged; returns their keys, and how often there was damage.
fn visited(table: &dyn Table) -> (BTreeSet<Vec<u8>>, usize) {
    let (mut keys, mut damage, mut next) = (BTreeSet::new(), 0, Some(Cursor::default()));
    while let Some(cursor) = next {
        let mut visit = |key: &[u8], _: &[u8]| {
            keys.insert(key.to_vec());
        };
        next = match table.scan(cursor, &mut visit) {
            Err(Error::Corrupt { .. }) => {
                damage += 1;
                table.scan_past(cursor).unwrap()
            }
            scanned => scanned.unwrap(),
        };
    }
    (keys, damage)
}

#[test]
fn a_scan_fails_where_a_read_does_and_goes_on_behind_it() {
    // Fails if the record of an older copy, at which no read looks, ends a scan; or if pairs behind
    // a damaged one cannot be visited.
    let (measured, keys) = updated_with_damage();
    let count = keys.len() as u64;
    let (seen, damage) = visited(&measured.table);
    assert_eq!((seen.len() as u64, damage), (count, 0));
    let lost = damage_records(&measured, &keys, 0);
    let (seen, damage) = visited(&measured.table);
    assert!(lost.iter().all(|key| !seen.contains(&key.to_le_bytes()[..])));
    // A column is passed over as a whole.
    println!("{} of {count} pairs beside {damage} columns with damage", seen.len());
    assert!((1..=20).contains(&damage) && seen.len() as u64 > count / 2, "{damage}");
}

/// Opens what a medium holds; returns the number of pairs.
fn opened(measured: &Measured<Tiered>) -> u64 {
    let words = measured.media.words();
    let bytes = words.len() as u64 * WORD;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    open::<Tiered, _>(region, Opening::default().boot, &Inline).unwrap().len().unwrap()
}

#[test]
fn a_damaged_record_keeps_no_layer_from_being_dropped_and_no_pool_from_being_opened() {
    // Fails if a page is not drained because the key of one of its pairs, or of an older copy
    // further down, cannot be read; or if an open refuses all of the pool for that, or counts the
    // key twice. The key itself is answered by its newest copy, or by the damage.
    let (measured, count) = filled(Form::Variable, of_the_paper());
    let TieredTable::Bytes(table) = &measured.table else { panic!("byte strings") };
    let keys: Vec<u64> = (0..count).collect();
    for key in &keys {
        assert!(measured.table.update(&key.to_le_bytes(), &[7; 8]).unwrap());
    }
    // Those that were updated last have not moved yet.
    let (odd, even): (Vec<_>, Vec<_>) = keys.iter().rev().partition(|key| **key % 2 == 1);
    let below = damage_records(&measured, &odd, 1);
    let above = damage_records(&measured, &even, 0);
    assert_eq!((below.len(), above.len()), (20, 20));
    assert_eq!(opened(&measured), count);
    table.grow_at.store(0, Ordering::Relaxed);
    let mut all = count;
    while !table.layers.draining() {
        assert!(measured.table.insert(&all.to_le_bytes(), &[7; 8]).unwrap());
        all += 1;
    }
    let in_top = |key: &&u64| {
        let copies = copies_of(&measured.table, **key);
        copies.len() == 2 && copies[0].rank == 0 && is_valid(copies[0].state)
    };
    let (left, hidden) = (above.iter().filter(in_top), below.iter().filter(in_top));
    assert!(left.count() > 0 && hidden.count() > 0, "all have moved before");
    assert_eq!(opened(&measured), all);
    settle(&measured.table, Duration::ZERO, 1000).unwrap();
    assert!(!table.layers.draining(), "the top layer was never dropped");
    for key in 0..all {
        let mut value = Vec::new();
        match measured.table.get(&key.to_le_bytes(), &mut value) {
            Ok(true) => assert!(value == [7; 8] && !above.contains(&key), "{key}"),
            Err(Error::Corrupt { .. }) => assert!(above.contains(&key), "{key}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    assert_eq!((measured.table.len().unwrap(), opened(&measured)), (all, all));
}
