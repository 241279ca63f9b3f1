//! What a check of a sound table counts, and where it draws lines.

use everhash_index::{Engine, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::{Access, Addr, HeapUsage, Image, Media, Region, Std};

use super::damage::pair;
use crate::common::settings;
use crate::turbo::layout::{self, BUCKET_WORDS, Bucket, Meta, Place, Root, SLOTS};
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
fn recovery_claims_the_records_of_every_shard() {
    // Fails if a shard at the end of a job of recovery is left out: its records would be free, and
    // other pairs would be written over them.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let settings = TurboSettings { shards: 200, ..TurboSettings::tiny() };
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    for (key, value) in (0..1000).map(|number| pair(opening.form, number)) {
        assert!(table.insert(&key, &value).unwrap());
    }
    let before = heap_usage(&table).record_bytes;
    drop(table);
    let table = open::<Turbo, _>(region, opening.boot, &Inline).unwrap();
    assert_eq!(heap_usage(&table).record_bytes, before);
}

/// Asserts that a rebuild which finds no room for a pair gives back the space that it took.
fn keeps_no_space(table: &TurboTable<Image>, collect: &dyn Fn() -> Result<()>) {
    let used = || table.stats().unwrap().used_bytes;
    let (before, collected) = (used(), collect());
    assert!(matches!(collected, Err(Error::Limit { .. })), "{collected:?}");
    assert_eq!(used(), before);
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
        } else {
            keeps_no_space(&table, &collect);
        }
    }
}

/// Writes a bucket of words as an engine would have left it: each key, with the value 1, in its
/// slot, and other slots that are deleted.
fn write_bucket(pm: &Access<'_, Image>, at: Addr, pairs: &[(usize, u64, u8)], deleted: u32) {
    let (mut words, mut live) = ([0; 3], 0);
    let mut image = [0; BUCKET_WORDS];
    for (slot, key, tag) in pairs {
        words = layout::with_slot(words, *slot, *tag, layout::check_of([*key, 1], at, *slot));
        image[Bucket::SLOTS + 2 * slot..][..2].copy_from_slice(&[*key, 1]);
        live |= 1 << slot;
    }
    image[Bucket::META] =
        Meta::first(0).next(live | deleted, deleted).encode([words[0], words[1]], at);
    image[Bucket::TAGS..=Bucket::CHECKS].copy_from_slice(&words);
    pm.write_words(at, &image).unwrap();
}

#[test]
fn a_check_names_each_rule_that_the_pairs_of_a_bucket_break() {
    // Fails if a check passes over a pair that no search finds, or that only some do, in words
    // whose checks all match; or if a salvage loses a sound pair beside it.
    let settings = TurboSettings { buckets_per_shard: 8, scope: 3, ..TurboSettings::tiny() };
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening::default();
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let TurboTable::Words(inner) = &table else { panic!("8/8 has words") };
    let place = inner.directory.shards()[0].place();
    let of = |shard: u64, home: u64| {
        let hash = move |key: u64| inner.hashed(key).hash;
        let is_its = move |key: &u64| {
            inner.directory.index_of(hash(*key)) == shard
                && layout::home_of(hash(*key), place.log) == home
        };
        (0..).filter(is_its).map(move |key| (key, layout::tag_of(hash(key))))
    };
    let own: Vec<(u64, u8)> = of(0, 2).take(6).collect();
    let other = of(1, 2).next().expect("there is one for each shard and home");
    let pair = |slot: usize, number: usize| (slot, own[number].0, own[number].1);
    let full = [pair(0, 0), pair(1, 1), pair(2, 2)];
    let path = "a key lies on its path";
    let room = "one slot of every bucket is empty";
    // What lies in the home bucket and in the next but one, and the slots deleted in the first.
    type Case<'c> = (Vec<(usize, u64, u8)>, u32, Option<(usize, u64, u8)>, Option<&'c str>);
    let cases: [Case<'_>; 11] = [
        (full.to_vec(), 0, None, None),
        (vec![pair(4, 0)], 0, None, Some(room)),
        (vec![pair(0, 0)], 1 << 4, None, Some(room)),
        (full.into_iter().chain([pair(3, 3)]).collect(), 0, None, Some(room)),
        (full[..2].to_vec(), 0b1100, None, Some(room)),
        (vec![(0, own[0].0, own[0].1 ^ 1)], 0, None, Some("a tag is that of its key")),
        (vec![(0, other.0, other.1)], 0, None, Some(path)),
        (vec![pair(0, 0), pair(1, 0)], 0, None, Some("a key is there once")),
        (full.to_vec(), 0, Some(pair(0, 2)), Some("a key is there once")),
        (full[..2].to_vec(), 0, Some(pair(0, 4)), Some(path)),
        (full[..2].to_vec(), 0b100, Some(pair(0, 4)), None),
    ];
    let pm = region.access();
    for (number, (pairs, deleted, behind, broken)) in cases.into_iter().enumerate() {
        let behind: Vec<_> = behind.into_iter().collect();
        for (bucket, pairs, deleted) in [(2, &pairs, deleted), (3, &behind, 0)] {
            write_bucket(&pm, place.bucket(bucket), pairs, deleted);
        }
        let found = match table.check() {
            Err(Error::Corrupt { broken, .. }) => Some(broken),
            checked => {
                assert_eq!(checked.unwrap().items as usize, pairs.len() + behind.len());
                None
            }
        };
        assert_eq!(found, broken, "case {number}");
    }
    // The check of a slot, which no META says anything of.
    write_bucket(&pm, place.bucket(2), &full, 0);
    write_bucket(&pm, place.bucket(3), &[], 0);
    let value = place.bucket(2).plus((Bucket::SLOTS + 1) as u64);
    pm.store(value, 3).unwrap();
    let checked = table.check();
    let is_it = matches!(checked, Err(Error::Corrupt { broken, .. })
        if broken == "the check of a slot matches");
    assert!(is_it, "{checked:?}");
    let (mut keys, mut reports) = (Vec::new(), 0);
    let visit = &mut |key: &[u8], _: &[u8]| keys.push(key.to_vec());
    Turbo::salvage(&region, opening.boot, visit, &mut |_| reports += 1).unwrap();
    assert_eq!(
        (keys, reports),
        (own[1..3].iter().map(|it| it.0.to_le_bytes().to_vec()).collect(), 1)
    );
}

#[test]
fn a_check_and_an_open_refuse_settings_and_places_that_no_table_has() {
    // Fails if numbers of the root are used that match its checksum and are out of their range; if
    // a hole in the directory of places is not noticed; or if two shards share buckets.
    let settings = TurboSettings { shards: 3, buckets_per_shard: 8, ..TurboSettings::tiny() };
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening::default();
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    (0..20).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
    Box::new(table).close().unwrap();
    let words = region.media().words();
    let refused = |words: &[u64]| {
        let bytes = words.len() as u64 * 8;
        let made = || Region::new(Image::<Std>::of(words, bytes, bytes));
        let opened = open::<Turbo, _>(made(), opening.boot, &Inline).map(drop);
        assert!(opened.is_err());
        match Turbo::check(&made(), opening.boot, &mut |_, _| {}) {
            Err(Error::Corrupt { broken, .. }) => broken,
            checked => panic!("{checked:?}"),
        }
    };
    let root = layout::ROOT.word() as usize;
    for (setting, value) in [
        (Root::SHARDS, 0),
        (Root::SHARDS, layout::MOST_SHARDS + 1),
        (Root::BUCKET_SLOTS, 1),
        (Root::BUCKET_SLOTS, SLOTS as u64 + 1),
        (Root::LANES, 1025),
    ] {
        let mut words = words.clone();
        words[root + setting] = value;
        let checksum = settings::checksum(layout::ROOT, &words[root..root + Root::CHECKSUM]);
        words[root + Root::CHECKSUM] = checksum;
        assert_eq!(refused(&words), "the settings of a table are in range", "{setting}: {value}");
    }
    let directory = Addr::new(words[root + Root::DIRECTORY]);
    let set = |shard| layout::set_at(layout::descriptor_at(directory, shard), 0);
    let place =
        |shard| Place::decode(words[set(shard).word() as usize], set(shard)).expect("it is in use");
    let (first, second) = (place(0), place(1));
    assert_eq!(first.bucket(8), second.start, "neighbours, which an open claims together");
    let end = Addr::new(words.len() as u64 * 8);
    for place in [
        first,
        Place { start: first.bucket(7), ..second },
        Place { log: 4, ..second },
        Place { start: end, ..second },
        Place { start: directory, log: 0 },
    ] {
        // Empty buckets, wherever they lie.
        let mut words = words.clone();
        words[set(1).word() as usize] = place.encode(set(1));
        refused(&words);
    }
}

#[test]
fn an_open_notices_a_record_that_two_slots_lead_to() {
    // Fails if the second claim of a record is passed over: it would be freed with the first of
    // the two pairs, and the other one would lead to whatever comes there.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let settings = TurboSettings { shards: 1, ..TurboSettings::tiny() };
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    table.put(b"a key", b"a value").unwrap();
    let TurboTable::Bytes(inner) = &table else { panic!("byte strings have records") };
    let at = inner.directory.shards()[0].place().bucket(0);
    let tag = layout::tag_of(inner.hashed(b"a key").hash);
    drop(table);
    let pm = region.access();
    let mut image = [0; BUCKET_WORDS];
    pm.read_words(at, &mut image).unwrap();
    let pair = [image[Bucket::SLOTS], image[Bucket::SLOTS + 1]];
    let words = [image[Bucket::TAGS], image[Bucket::TAGS + 1], image[Bucket::CHECKS]];
    let words = layout::with_slot(words, 1, tag, layout::check_of(pair, at, 1));
    image[Bucket::TAGS..=Bucket::CHECKS].copy_from_slice(&words);
    image[Bucket::SLOTS + 2..][..2].copy_from_slice(&pair);
    image[Bucket::META] = Meta::first(0b11).encode([words[0], words[1]], at);
    pm.write_words(at, &image).unwrap();
    let opened = open::<Turbo, _>(region, opening.boot, &Inline).map(drop);
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
}
