//! What a check of a sound table counts, and where it draws lines.

use everhash_index::{Error, Inline, Opening, Table, create, open};
use everhash_pmem::{HeapUsage, Image, Media, Region, Std};

use super::damage::pair;
use crate::turbo::layout::{self, BUCKET_WORDS, Bucket, Meta};
use crate::turbo::{Turbo, TurboSettings, TurboTable};

fn heap_usage<M: Media>(table: &TurboTable<M>) -> HeapUsage {
    match table {
        TurboTable::Words(inner) => inner.heap.usage().unwrap(),
        TurboTable::Bytes(inner) => inner.heap.usage().unwrap(),
    }
}

#[test]
fn a_check_reaches_all_that_is_in_use_and_nothing_else() {
    // Fails if a check leaves out a shard or a record, of which it does not know then that it lies
    // in one place only; or if the table has space in use to which nothing leads.
    for form in super::FORMS {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form, ..Opening::default() };
        // In pages of that length every record is a part of one.
        let settings = TurboSettings { page_bytes: 4096, ..TurboSettings::tiny() };
        let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        let holds_true = |table: &TurboTable<Image>| {
            let heap = heap_usage(table);
            let free_in_pages = heap.pages * settings.page_bytes - heap.record_bytes;
            let reached = table.check().unwrap().reachable_bytes;
            assert_eq!(table.stats().unwrap().used_bytes, reached + free_in_pages, "{form}");
            reached
        };
        let empty = holds_true(&table);
        for (key, value) in (0..200).map(|number| pair(form, number)) {
            table.put(&key, &value).unwrap();
        }
        let full = holds_true(&table);
        assert!(full > empty + 200 * 16, "{form}: {empty} bytes, then {full}");
        for (key, _) in (0..80).map(|number| pair(form, number)) {
            assert!(table.remove(&key).unwrap());
        }
        holds_true(&table);
        drop(table);
        holds_true(&open::<Turbo, _>(region, opening.boot, &Inline).unwrap());
    }
}

#[test]
fn a_key_lies_in_the_last_bucket_of_its_scope_and_in_none_behind() {
    // Fails if a search, a check or a rehash takes the scope for one bucket more or less.
    let settings = TurboSettings {
        shards: 1,
        buckets_per_shard: 8,
        max_buckets: 8,
        gc_probes: 1 << 20,
        ..TurboSettings::tiny()
    };
    assert_eq!((settings.scope, settings.bucket_slots), (2, 4));
    // Of the last home, the scope ends in the first bucket.
    for home in [3, 7] {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let table =
            create::<Turbo, _>(region.clone(), &Opening::default(), &settings, &Inline).unwrap();
        let TurboTable::Words(inner) = &table else { panic!("8/8 has words") };
        let words = table.words().unwrap();
        let place = inner.directory.shards()[0].place();
        let of_home = |home: u64| {
            let is_its = move |key: &u64| {
                layout::home_of(inner.hashed(*key).hash, place.log) == home % place.buckets()
            };
            (0..).filter(is_its)
        };
        // Three in each of two buckets, beside the slot for updates.
        let keys: Vec<u64> = of_home(home).take(7).collect();
        keys[..6].iter().for_each(|key| assert!(words.insert_word(*key, !key).unwrap()));
        let refused = words.insert_word(keys[6], 1);
        assert!(matches!(refused, Err(Error::Limit { limit: 8, .. })), "{refused:?}");
        keys[..6].iter().for_each(|key| assert_eq!(words.get_word(*key).unwrap(), Some(!key)));
        assert_eq!(table.check().unwrap().items, 6);
        // Both are full: nothing but the scope keeps a search from the next one.
        let at = place.bucket((home + 2) % place.buckets());
        let pm = region.access();
        let forge = |key: u64| {
            let mut image = [0; BUCKET_WORDS];
            let check = layout::check_of([key, 1], at, 0);
            let tag = layout::tag_of(inner.hashed(key).hash);
            let [low, high, checks] = layout::with_slot([0; 3], 0, tag, check);
            image[Bucket::META] = Meta::first(1).encode([low, high], at);
            image[Bucket::TAGS..=Bucket::CHECKS].copy_from_slice(&[low, high, checks]);
            image[Bucket::SLOTS..][..2].copy_from_slice(&[key, 1]);
            pm.write_words(at, &image).unwrap();
        };
        let collect = || {
            let held = inner.directory.shards()[0].hold(&pm).unwrap();
            inner.collect(&pm, &held, 0)
        };
        forge(keys[6]);
        let checked = table.check();
        let is_it = matches!(checked, Err(Error::Corrupt { at: byte, broken })
            if byte == at.byte() && broken == "a key lies on its path");
        assert!(is_it, "{checked:?}");
        let collected = collect();
        assert!(matches!(collected, Err(Error::Corrupt { .. })), "{collected:?}");
        // A key of the bucket before may lie there.
        let next = of_home(home + 1).next().expect("there is a key for each home");
        forge(next);
        assert_eq!(table.check().unwrap().items, 7);
        assert_eq!(words.get_word(next).unwrap(), Some(1));
        // A rehash begins with bucket 0: those that overflowed into it come before their others.
        if home + 2 < place.buckets() {
            collect().unwrap();
            assert_eq!(table.check().unwrap().items, 7);
            assert_eq!(words.get_word(next).unwrap(), Some(1));
        }
    }
}
