//! The mechanisms one by one, where the judges see only that the answers are right.

use std::sync::Arc;

use everhash_index::{
    Cursor, Error, Form, Inline, Opening, Table, WordTable, create, open, open_read_only,
};
use everhash_pmem::{Image, Media, Region, Std};

use everhash_testkit::measured::{MEMORY, Measured};

use crate::common::slot_codec::{Bytes, HashedKey, Words};
use crate::turbo::bucket::Bucket;
use crate::turbo::layout::{self, Place};
use crate::turbo::search_path::search;
use crate::turbo::state::Turbo as Inner;
use crate::turbo::{Turbo, TurboSettings, TurboTable};

fn image(form: Form, settings: &TurboSettings) -> (Region<Image>, TurboTable<Image>) {
    let region = Region::new(Image::<Std>::new(0, 16 << 20));
    let opening = Opening { form, ..Opening::default() };
    let table = create::<Turbo, _>(region.clone(), &opening, settings, &Inline).unwrap();
    (region, table)
}

fn of_words(table: &TurboTable<Image>) -> &Inner<Image, Words> {
    let TurboTable::Words(inner) = table else { panic!("8/8 has words") };
    inner
}

fn number(table: &dyn Table, name: &str) -> u64 {
    let own = table.stats().unwrap().own;
    own.iter().find(|(known, _)| *known == name).expect("it is counted").1
}

/// Valid and deleted slots of every bucket of shard 0.
fn bitmaps(table: &TurboTable<Image>) -> Vec<(u32, u32)> {
    let (inner, pm) = (of_words(table), of_words(table).pool.access());
    let place = inner.directory.shards()[0].place();
    let bitmaps = |index| {
        let bucket = Bucket::of(&pm, place, index).unwrap();
        let meta = bucket.view_of(bucket.meta_word()).unwrap().meta;
        (meta.valid(), meta.delete())
    };
    (0..place.buckets()).map(bitmaps).collect()
}

const ONE_SHARD: fn() -> TurboSettings =
    || TurboSettings { shards: 1, buckets_per_shard: 16, ..TurboSettings::default() };

#[test]
fn every_bucket_keeps_a_slot_for_updates() {
    // Fails if an insert takes the reserved slot (3.3): an update would then find none.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    let words = table.words().unwrap();
    let mut keys = 0..;
    while number(&table, "doublings") == 0 {
        words.insert_word(keys.next().unwrap(), 1).unwrap();
        assert!(bitmaps(&table).iter().all(|(valid, _)| valid.count_ones() <= 13));
        let last = keys.start - 1;
        assert!(words.update_word(last, 2).unwrap() && words.get_word(last).unwrap() == Some(2));
    }
    assert!(keys.start > 150, "{} pairs in 16 buckets", keys.start);
}

#[test]
fn an_insert_takes_the_first_deleted_slot_of_its_path() {
    // Fails if deleted slots are passed over (3.2): they would be used up by churn alone.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    let words = table.words().unwrap();
    (0..120).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    let filled = bitmaps(&table);
    for key in 0..120 {
        assert!(words.remove_word(key).unwrap());
        assert_eq!(bitmaps(&table).iter().filter(|(_, delete)| *delete != 0).count(), 1);
        assert!(words.insert_word(key, 2).unwrap());
        assert_eq!(bitmaps(&table), filled, "the slot of key {key} is in use again");
    }
}

#[test]
fn a_shard_that_doubling_does_not_help_doubles_again_and_ends_with_an_error() {
    // Fails if a skewed shard loops, or is called full while a larger one would do.
    let narrow = TurboSettings {
        buckets_per_shard: 1,
        max_buckets: 1 << 10,
        scope: 1,
        bucket_slots: 2,
        ..ONE_SHARD()
    };
    let (_region, table) = image(Form::WORDS, &narrow);
    let words = table.words().unwrap();
    let (mut sizes, mut present) = (vec![1], Vec::new());
    let refused = (0..200).find(|key| match words.insert_word(*key, !key) {
        Ok(added) => {
            assert!(added);
            present.push(*key);
            sizes.push(number(&table, "buckets"));
            false
        }
        Err(error) => {
            assert!(matches!(error, Error::Limit { .. }), "{error}");
            true
        }
    });
    assert!(refused.is_some(), "one pair a bucket, and 1024 buckets: two keys shall meet");
    assert!(sizes.windows(2).any(|pair| pair[1] >= 4 * pair[0]), "{sizes:?}");
    for key in &present {
        assert_eq!(words.get_word(*key).unwrap(), Some(!key));
    }
    // It goes on working for everybody else.
    assert!(words.remove_word(present[0]).unwrap() && words.insert_word(present[0], 7).unwrap());
    assert_eq!(table.check().unwrap().items, present.len() as u64);
}

#[test]
fn a_shard_at_the_limit_of_its_settings_names_it() {
    // Fails if whoever chose too few buckets were told that the device is full, or if a refused
    // pair cost one that is there.
    let small = TurboSettings { buckets_per_shard: 1, max_buckets: 1, ..ONE_SHARD() };
    let (_region, table) = image(Form::WORDS, &small);
    let words = table.words().unwrap();
    let (count, refused) =
        (0..100).find_map(|key| words.insert_word(key, !key).err().map(|it| (key, it))).unwrap();
    assert!(matches!(refused, Error::Limit { name: "max_buckets", limit: 1, .. }), "{refused}");
    let said = refused.to_string();
    assert!(refused.is_full() && said.contains("max_buckets = 1; copy the pairs"), "{said}");
    (0..count).for_each(|key| assert_eq!(words.get_word(key).unwrap(), Some(!key)));
    assert!(words.remove_word(0).unwrap() && words.insert_word(0, 7).unwrap());
}

#[test]
fn a_shard_of_deleted_slots_keeps_its_size_when_it_overflows() {
    // Fails if deleted slots alone double a shard.
    let (_region, table) = image(Form::WORDS, &TurboSettings { scope: 2, ..ONE_SHARD() });
    let (inner, words) = (of_words(&table), table.words().unwrap());
    let of_home = |home: u64, count| {
        let is_there = move |key: &u64| layout::home_of(inner.hashed(*key).hash, 4) == home;
        (0..).filter(is_there).take(count)
    };
    // Half of the first overflow into bucket 2, and so the others into bucket 3.
    let keys = of_home(1, 26).chain(of_home(2, 13));
    keys.for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    of_home(1, 13).for_each(|key| assert!(words.remove_word(key).unwrap()));
    let last = of_home(2, 14).last().expect("there are as many as asked for");
    assert!(words.insert_word(last, 1).unwrap(), "it has room when the others are at home");
    let counted = ["buckets", "doublings", "collections"].map(|name| number(&table, name));
    assert_eq!(counted, [16, 0, 1]);
    assert_eq!(table.check().unwrap().items, 27);
}

/// Fills a shard of 16 buckets, the most it may have, but for one bucket whose keys lie behind it,
/// and `more` slots of another one. Returns the table, and keys that find no room.
fn full_but_for_deleted(more: usize) -> (Region<Image>, TurboTable<Image>, Vec<u64>) {
    let settings = TurboSettings { max_buckets: 16, scope: 2, ..ONE_SHARD() };
    let (region, table) = image(Form::WORDS, &settings);
    let (inner, words) = (of_words(&table), table.words().unwrap());
    let of_home = |home: u64| {
        let is_there = move |key: &u64| layout::home_of(inner.hashed(*key).hash, 4) == home;
        (0..).filter(is_there)
    };
    // Half of the first overflow into bucket 2, and so the others into bucket 3.
    let rest = (4..17).flat_map(|home| of_home(home % 16).take(13));
    let keys = of_home(1).take(26).chain(of_home(2).take(13)).chain(rest);
    keys.for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    let ended = of_home(1).take(13).chain(of_home(8).take(more));
    ended.for_each(|key| assert!(words.remove_word(key).unwrap()));
    let refused = of_home(2).skip(13).take(14).collect();
    (region, table, refused)
}

#[test]
fn a_shard_at_its_largest_size_is_collected_before_it_refuses_a_pair() {
    // Fails if a shard that cannot double refuses a pair for which its deleted slots have room,
    // because more than 55 % of the others are in use; or if a pair is lost on the way.
    let (_region, table, keys) = full_but_for_deleted(1);
    let (words, before) = (table.words().unwrap(), table.len().unwrap());
    assert!(before * 100 > 224 * 80, "{before} pairs in 16 buckets of 14");
    for key in &keys[..13] {
        assert!(words.insert_word(*key, 1).unwrap(), "its bucket is empty when others are at home");
    }
    let counted = ["buckets", "doublings", "collections"].map(|name| number(&table, name));
    assert_eq!(counted, [16, 0, 1]);
    // None is deleted any more: there is nothing to collect.
    for _ in 0..10 {
        let refused = words.insert_word(keys[13], 1);
        assert!(matches!(refused, Err(Error::Limit { name: "max_buckets", limit: 16, .. })));
    }
    assert_eq!(number(&table, "collections"), 1);
    assert_eq!(table.check().unwrap().items, before + 13);
}

#[test]
fn a_shard_at_its_largest_size_is_not_collected_for_a_few_deleted_slots() {
    // Fails if a shard is rehashed for every pair while it has a deleted slot: 13 of 224 are fewer
    // than one in 16.
    let (_region, table, keys) = full_but_for_deleted(0);
    let (inner, words) = (of_words(&table), table.words().unwrap());
    let refused = words.insert_word(keys[0], 1);
    assert!(matches!(refused, Err(Error::Limit { name: "max_buckets", limit: 16, .. })));
    assert_eq!(number(&table, "collections"), 0);
    // Pairs that come and go: a collection for one in 16 slots at most.
    let mut present: Vec<u64> = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let visit = &mut |key: &[u8], _: &[u8]| {
            present.push(u64::from_le_bytes(key.try_into().expect("8/8 has words")));
        };
        next = table.scan(cursor, visit).unwrap();
    }
    let (mut removed, mut refusals) = (13, 0);
    for (round, key) in (1 << 20..).take(2000).enumerate() {
        let at = layout::home_of(inner.hashed(key).hash, 20) as usize % present.len();
        if words.insert_word(key, 1).is_ok() {
            present.push(key);
        } else {
            refusals += 1;
        }
        if round % 2 == 0 {
            assert!(words.remove_word(present.swap_remove(at)).unwrap());
            removed += 1;
        }
    }
    let collections = number(&table, "collections");
    assert!(refusals > 100 && collections > 0, "{refusals}, {collections}");
    assert!(collections * 14 <= removed, "{collections} for {removed} removals");
    assert_eq!(table.check().unwrap().items, present.len() as u64);
}

#[test]
fn a_long_search_through_deleted_slots_collects_them() {
    // Fails if only overflow collects: searches stay long where slots are used again and again.
    let collections = [2, 1 << 20].map(|gc_probes| {
        let (_region, table) = image(Form::WORDS, &TurboSettings { gc_probes, ..ONE_SHARD() });
        let words = table.words().unwrap();
        for round in 0..40 {
            (0..100).for_each(|key| assert!(words.insert_word(round << 32 | key, 1).unwrap()));
            (0..100).for_each(|key| assert!(words.remove_word(round << 32 | key).unwrap()));
        }
        number(&table, "collections")
    });
    println!("collections from 2 probes on, and by overflow alone: {collections:?}");
    assert!(collections[0] > 0 && collections[1] == 0);
}

#[test]
fn p14_two_keys_of_one_hash_are_two_keys() {
    // Fails if a record is believed to have the key because the hash is equal.
    let (_region, table) = image(Form::Variable, &ONE_SHARD());
    table.insert(b"one", b"value").unwrap();
    let TurboTable::Bytes(inner) = &table else { panic!("byte strings have records") };
    let pm = inner.pool.access();
    let place = inner.directory.shards()[0].place();
    let hash = inner.hashed(b"one").hash;
    let mut found = [b"one".as_slice(), b"two", b"on", b"one "].map(|key| {
        let wanted = HashedKey::<Bytes> { hash, key };
        search(&pm, place, inner.reach(), wanted, &mut Vec::new()).unwrap().found.is_some()
    });
    found.reverse();
    assert_eq!(found, [false, false, false, true]);
}

#[test]
fn a_rehash_does_not_touch_the_records() {
    // Fails if the hash of a key is made anew from its record, which the slot has.
    let loads = [16, 2000].map(|value_bytes| {
        let measured = Measured::<Turbo>::new(Form::Variable, &ONE_SHARD(), MEMORY).unwrap();
        let value = vec![7; value_bytes];
        (0..100u64).for_each(|key| {
            assert!(measured.table.insert(&key.to_le_bytes(), &value).unwrap());
        });
        let TurboTable::Bytes(inner) = &measured.table else { panic!("it has records") };
        let traffic = measured.traffic(|| {
            let pm = inner.pool.access();
            inner.collect(&pm, &inner.directory.shards()[0].hold(&pm).unwrap(), 0).unwrap();
        });
        traffic.words_loaded
    });
    println!("words loaded by a rehash, records of 16 and of 2000 bytes: {loads:?}");
    assert_eq!(loads[0], loads[1]);
}

#[test]
fn nothing_leaks_and_nothing_is_lost_by_growth_and_updates() {
    // Fails if old shards or records are not given back, or if a later open finds more
    // in use, or less, than the table that had been working.
    for form in [Form::WORDS, Form::Variable] {
        let (region, table) = image(form, &TurboSettings::tiny());
        let bytes = |number: u64, round: u64| match form {
            Form::WORDS => vec![round as u8; 8],
            _ => vec![round as u8; 8 + (number as usize * 37) % 200],
        };
        let put = |table: &TurboTable<Image>, round: u64| {
            for number in 0..300u64 {
                table.put(&number.to_le_bytes(), &bytes(number, round)).unwrap();
            }
        };
        put(&table, 0);
        let used = table.stats().unwrap().used_bytes;
        (1..20).for_each(|round| put(&table, round));
        let later = table.stats().unwrap().used_bytes;
        drop(table);
        let opening = Opening::default();
        let table = open::<Turbo, _>(region, opening.boot, &Inline).unwrap();
        let reopened = table.stats().unwrap().used_bytes;
        println!("{form}: bytes in use {used}, after 20 rounds {later}, reopened {reopened}");
        // A record is written before the old one is given back: one of each class may stay open.
        assert!(later <= used + used / 8, "{used} grew to {later}");
        assert!(reopened <= later && reopened + reopened / 8 >= later);
        assert_eq!(table.len().unwrap(), 300);
    }
}

#[test]
fn the_number_of_items_is_stored_at_a_clean_close_and_counted_after_a_crash() {
    // Fails if `len` reads every bucket after each open, or believes a number of before.
    let mut loads = Vec::new();
    for close in [true, false] {
        let measured = Measured::<Turbo>::new(Form::WORDS, &ONE_SHARD(), MEMORY).unwrap();
        (0..100).for_each(|key| assert!(measured.words().insert_word(key, 1).unwrap()));
        let Measured { media, table, .. } = measured;
        if close {
            Box::new(table).close().unwrap();
        } else {
            drop(table);
        }
        let region: Region<Image> = Region::new(Arc::clone(&media));
        let table = open::<Turbo, _>(region, Opening::default().boot, &Inline).unwrap();
        let before = media.traffic();
        assert_eq!(table.len().unwrap(), 100);
        loads.push((media.traffic() - before).words_loaded);
    }
    println!("words loaded by len after a close, and after a crash: {loads:?}");
    assert!(loads[0] == 0 && loads[1] >= 16);
}

#[test]
fn a_number_of_items_that_an_earlier_close_stored_is_not_believed_after_a_crash() {
    // Fails if the sound number that the last close left counts for a process that was killed.
    let (region, table) = image(Form::WORDS, &ONE_SHARD());
    (0..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, 1).unwrap()));
    Box::new(table).close().unwrap();
    let boot = Opening::default().boot;
    let table = open::<Turbo, _>(region.clone(), boot, &Inline).unwrap();
    (100..107).for_each(|key| assert!(table.words().unwrap().insert_word(key, 1).unwrap()));
    drop(table);
    let table = open::<Turbo, _>(region, boot, &Inline).unwrap();
    assert_eq!(table.len().unwrap(), 107);
}

#[test]
fn upkeep_collects_a_shard_as_often_as_a_quarter_is_deleted() {
    // Fails if a shard that was collected is due for ever, or never again; or if slots that are in
    // use again, or were cleared, count as deleted.
    let settings = TurboSettings { gc_probes: 1 << 20, ..ONE_SHARD() };
    let (_region, table) = image(Form::WORDS, &settings);
    let words = table.words().unwrap();
    let insert = |keys: core::ops::Range<u64>| {
        keys.for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    };
    let remove = |keys: core::ops::Range<u64>| {
        keys.for_each(|key| assert!(words.remove_word(key).unwrap()));
    };
    let collections = || {
        while table.maintain(core::time::Duration::ZERO, 1000).unwrap().more {}
        number(&table, "collections")
    };
    // A quarter of 224 slots is 56.
    insert(0..90);
    for _ in 0..100 {
        remove(0..1);
        insert(0..1);
    }
    assert_eq!(collections(), 0, "slots that are in use again");
    remove(0..50);
    table.clear().unwrap();
    insert(0..20);
    remove(0..20);
    assert_eq!(collections(), 0, "slots that were cleared");
    for round in 1..4 {
        insert(100..190);
        remove(100..190);
        assert_eq!(collections(), round, "a quarter is deleted, and more");
        insert(0..5);
        remove(0..5);
        assert_eq!(collections(), round, "hardly any slot is deleted");
    }
}

#[test]
fn a_scan_goes_on_while_a_writer_holds_its_shard() {
    // Fails if a scan waits for the lock of a shard: a visitor would stop writers, and they
    // the visitor. The holder is this thread, so that the test would not end.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    (0..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, 1).unwrap()));
    let (inner, pm) = (of_words(&table), of_words(&table).pool.access());
    let _held = inner.directory.shards()[0].hold(&pm).unwrap();
    let (mut next, mut visited) = (Some(everhash_index::Cursor::default()), 0);
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |_, _| visited += 1).unwrap();
    }
    assert_eq!(visited, 100);
}

#[test]
fn a_batch_of_any_length_has_the_answers_of_single_gets() {
    // Fails if a group of a batch is cut off, or answered for another.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    let words: &dyn WordTable = table.words().unwrap();
    (0..500).step_by(3).for_each(|key| assert!(words.insert_word(key, !key).unwrap()));
    for count in 0..60 {
        let keys: Vec<u64> = (0..count).map(|i| (i * 7 + count) % 500).collect();
        let mut values = vec![Some(1); keys.len()];
        words.get_words(&keys, &mut values).unwrap();
        let singly = keys.iter().map(|key| words.get_word(*key).unwrap());
        assert!(values.iter().copied().eq(singly), "{count} keys");
    }
}

#[test]
fn a_key_at_the_end_of_a_shard_goes_on_at_its_beginning() {
    // Fails if the path ends with the last bucket: it would double a shard that has room.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    let inner = of_words(&table);
    let home = |key: &u64| layout::home_of(inner.hashed(*key).hash, 4);
    let last: Vec<u64> = (0..100_000).filter(|key| home(key) == 15).take(20).collect();
    let words = table.words().unwrap();
    last.iter().for_each(|key| assert!(words.insert_word(*key, 1).unwrap()));
    let filled: Vec<u32> = bitmaps(&table).iter().map(|(valid, _)| valid.count_ones()).collect();
    assert_eq!((filled[15], filled[0]), (13, 7));
    assert!(last.iter().all(|key| words.get_word(*key).unwrap() == Some(1)));
    let place: Place = inner.directory.shards()[0].place();
    assert_eq!(place.buckets(), 16);
}

#[test]
fn an_overflow_collects_up_to_the_load_that_leaves_room_and_doubles_beyond() {
    // Fails if a shard doubles for deleted slots, or is collected again and again because the slots
    // in use leave hardly any room; or if deleted slots count as being in use, or a shard that has
    // none is built anew at the same size.
    for (live, deleted, buckets) in [(123, 30, 16), (124, 30, 32), (100, 0, 32), (90, 1, 16)] {
        let settings = TurboSettings { gc_probes: 1 << 20, ..ONE_SHARD() };
        let (_region, table) = image(Form::WORDS, &settings);
        let (inner, words) = (of_words(&table), table.words().unwrap());
        (0..live + deleted).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
        (live..live + deleted).for_each(|key| assert!(words.remove_word(key).unwrap()));
        let pm = inner.pool.access();
        let held = inner.directory.shards()[0].hold(&pm).unwrap();
        inner.make_room(&pm, &held, 0).unwrap();
        assert_eq!(held.place().buckets(), buckets, "{live} and {deleted} of 224 slots");
        drop(held);
        assert!(bitmaps(&table).iter().all(|(_, delete)| *delete == 0));
        assert_eq!(table.check().unwrap().items, live);
    }
}

#[test]
fn a_shard_has_64_buckets_for_each_of_its_pairs_at_most() {
    // Fails if keys that were chosen to collide make a shard grow to its largest size, or if they
    // are refused for ever when more pairs came.
    let narrow = TurboSettings { buckets_per_shard: 1, scope: 1, bucket_slots: 2, ..ONE_SHARD() };
    let (_region, table) = image(Form::WORDS, &narrow);
    let (inner, words) = (of_words(&table), table.words().unwrap());
    let home = |key: u64, log: u32| layout::home_of(inner.hashed(key).hash, log);
    let collides = |key: &u64| home(*key, 6) == home(0, 6) && home(*key, 7) != home(0, 7);
    let other = (1..).find(collides).expect("one key in 128");
    assert!(words.insert_word(0, 1).unwrap());
    let refused = words.insert_word(other, 1);
    assert!(matches!(refused, Err(Error::Limit { limit: 64, .. })), "{refused:?}");
    assert!(number(&table, "buckets") <= 64);
    let third = (1..).find(|key| home(*key, 6) != home(0, 6)).expect("nearly every key");
    assert!(words.insert_word(third, 1).unwrap() && words.insert_word(other, 1).unwrap());
    assert_eq!((number(&table, "buckets"), table.check().unwrap().items), (128, 3));
}

#[test]
fn a_clear_leaves_no_deleted_slot() {
    // Fails if buckets that had no pair keep their deleted slots: searches go on through them, and
    // nobody counts them any more.
    let (_region, table) = image(Form::WORDS, &ONE_SHARD());
    let words = table.words().unwrap();
    (0..150).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    (0..140).for_each(|key| assert!(words.remove_word(key).unwrap()));
    table.clear().unwrap();
    assert_eq!(bitmaps(&table), [(0, 0); 16]);
}

#[test]
fn upkeep_goes_on_for_as_long_as_a_shard_is_due_and_passes_over_what_it_cannot_collect() {
    // Fails if a call that has used up its budget says that nothing is left, or if a poisoned shard
    // keeps the others from being collected; or if a shard is built anew whose deleted slots are in
    // use again.
    let settings = TurboSettings { shards: 4, gc_probes: 1 << 20, ..ONE_SHARD() };
    let (_region, table) = image(Form::WORDS, &settings);
    let (inner, words) = (of_words(&table), table.words().unwrap());
    (0..400).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    (0..400).for_each(|key| assert!(words.remove_word(key).unwrap()));
    let due = inner.due.lock().unwrap().clone();
    assert_eq!((due.len(), number(&table, "shards_to_collect")), (4, 4));
    // The shard whose turn is second is in use again, and the one of the third turn is poisoned.
    let [_, poisoned, again, _] = due[..] else { panic!("there are four") };
    let is_again = |key: &u64| inner.directory.index_of(inner.hashed(*key).hash) == again;
    let keys = (0..400).filter(is_again);
    keys.for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    let pm = inner.pool.access();
    drop(inner.directory.shards()[poisoned as usize].hold(&pm).unwrap().pending_all());
    let mut counts = Vec::new();
    for _ in 0..3 {
        let more = table.maintain(core::time::Duration::ZERO, 1).unwrap().more;
        counts.push((more, number(&table, "collections")));
    }
    assert_eq!(counts, [(true, 1), (true, 1), (false, 2)]);
    assert_eq!(number(&table, "shards_to_collect"), 0);
}

#[test]
fn upkeep_takes_space_ahead_of_the_next_resizes_and_of_no_others() {
    // Fails if resizes always wait for the device, or if a table at rest takes more and more.
    let (region, table) = image(Form::WORDS, &ONE_SHARD());
    let words = table.words().unwrap();
    let mut keys = 0..;
    while number(&table, "doublings") < 3 {
        words.insert_word(keys.next().unwrap(), 1).unwrap();
    }
    let maintain = || {
        table.maintain(core::time::Duration::ZERO, 1000).unwrap();
        region.media().bytes()
    };
    let before = region.media().bytes();
    let ahead = maintain();
    assert!(ahead > before, "{before}");
    assert_eq!([maintain(), maintain()], [ahead; 2]);
}

#[test]
fn upkeep_of_a_table_that_is_only_read_is_refused() {
    // Fails if a medium that may only be read is written to by maintenance.
    let (region, table) = image(Form::WORDS, &ONE_SHARD());
    Box::new(table).close().unwrap();
    let table = open_read_only::<Turbo, _>(region, &Inline).unwrap();
    let refused = table.maintain(core::time::Duration::ZERO, 10);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

#[test]
fn a_damaged_number_of_items_is_counted_again() {
    // Fails if a number that does not match its check is taken for the number of pairs.
    let (region, table) = image(Form::WORDS, &ONE_SHARD());
    (0..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, 1).unwrap()));
    Box::new(table).close().unwrap();
    let (pm, at) = (region.access(), layout::ROOT.plus(layout::Root::ITEMS as u64));
    pm.store(at, pm.load(at).unwrap() ^ 1).unwrap();
    let table = open_read_only::<Turbo, _>(region, &Inline).unwrap();
    assert_eq!(table.len().unwrap(), 100);
}

#[test]
fn a_scan_of_a_full_shard_that_is_shorter_than_its_scope_shows_each_pair_once() {
    // Fails if a path goes on past the bucket where it began.
    let (_region, table) =
        image(Form::WORDS, &TurboSettings { buckets_per_shard: 2, max_buckets: 2, ..ONE_SHARD() });
    let words = table.words().unwrap();
    let count = (0..).find(|key| words.insert_word(*key, 1).is_err()).unwrap();
    let (mut next, mut visited) = (Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |_, _| visited += 1).unwrap();
    }
    assert_eq!((count, visited), (26, count));
}

#[test]
fn figures_and_batches_keep_to_what_is_there() {
    // Fails if slots that are not used count as slots, if the directory in DRAM is left out, or if
    // a batch with fewer values than keys ends in a panic.
    let settings = TurboSettings { shards: 100, bucket_slots: 4, ..ONE_SHARD() };
    let (_region, table) = image(Form::WORDS, &settings);
    let stats = table.stats().unwrap();
    assert_eq!(stats.slots, 100 * 16 * 4);
    assert!(stats.dram_bytes > 100 * 64, "{}", stats.dram_bytes);
    let words: &dyn WordTable = table.words().unwrap();
    assert!(words.insert_word(1, 7).unwrap());
    let mut values = [None; 2];
    words.get_words(&[1, 2, 3], &mut values).unwrap();
    assert_eq!(values, [Some(7), None]);
}
