//! What fails, and what it leaves: hostile notes, panics, and errors after a commit.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use everhash_index::{Change, Error, Form, Inline, Opening, Table, create, open};
use everhash_pmem::{Addr, Image, Pool, Region, Shutdown, Std};
use everhash_testkit::measured::{MEMORY, Measured};

use crate::common::slot_codec::Words;
use crate::turbo::layout::{self, Bucket, Descriptor, Lane, Place, ROOT, Root};
use crate::turbo::shard::read_place;
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

const LANES: u64 = 64;
const ONE_SHARD: fn(u64) -> TurboSettings = |buckets_per_shard| TurboSettings {
    shards: 1,
    buckets_per_shard,
    lanes: LANES,
    ..TurboSettings::default()
};

/// A pool of one shard that a process left whose lanes all name the shard.
fn with_all_lanes_noted(buckets: u64) -> Arc<Image> {
    let measured = Measured::<Turbo>::new(Form::WORDS, &ONE_SHARD(buckets), MEMORY).unwrap();
    (0..10).for_each(|key| assert!(measured.words().insert_word(key, 1).unwrap()));
    let Measured { media, table, .. } = measured;
    drop(table);
    let region: Region<Image> = Region::new(Arc::clone(&media));
    let pm = region.access();
    let directory = Addr::new(pm.load(ROOT.plus(Root::DIRECTORY as u64)).unwrap());
    for lane in 0..LANES {
        pm.store(layout::lane_at(directory, 1, lane).plus(Lane::NOTE as u64), 1).unwrap();
    }
    media
}

#[test]
fn p07_lanes_that_all_name_one_shard_flush_it_once() {
    // Fails if the work of recovery is the product of the lanes and of a shard's buckets.
    let media = with_all_lanes_noted(1024);
    let before = media.traffic();
    let region: Region<Image> = Region::new(Arc::clone(&media));
    let table = open::<Turbo, _>(region, Opening::default().boot, &Inline).unwrap();
    let flushed = (media.traffic() - before).lines_flushed;
    println!("lines flushed by the recovery of 1024 buckets that 64 lanes name: {flushed}");
    assert!((1024..1100).contains(&flushed));
    assert_eq!(table.len().unwrap(), 10);
}

#[test]
fn p05_recovery_flushes_the_bucket_that_each_lane_names() {
    // Fails if recovery leaves out a lane: what its writer left visible, and not durable, would be
    // read, and be taken back by the next power failure.
    let flushed = |noted: u64| {
        let media = with_all_lanes_noted(LANES);
        let region: Region<Image> = Region::new(Arc::clone(&media));
        let pm = region.access();
        let directory = Addr::new(pm.load(ROOT.plus(Root::DIRECTORY as u64)).unwrap());
        let place = read_place(&pm, layout::descriptor_at(directory, 0)).unwrap();
        for lane in 0..LANES {
            let note = if lane < noted { place.bucket(lane).byte() } else { 0 };
            let at = layout::lane_at(directory, 1, lane).plus(Lane::NOTE as u64);
            pm.store(at, note).unwrap();
        }
        let before = media.traffic();
        drop(open::<Turbo, _>(region.clone(), Opening::default().boot, &Inline).unwrap());
        (media.traffic() - before).lines_flushed
    };
    let none = flushed(0);
    assert_eq!([1, LANES - 1, LANES].map(flushed), [1, LANES - 1, LANES].map(|it| none + it));
}

#[test]
fn p07_a_shard_that_is_longer_than_the_medium_is_refused_before_it_is_flushed() {
    // Fails if the length in a descriptor is used before it is bounded: 64 lanes that name a shard
    // of 2^24 buckets are 2^30 flushes.
    let media = with_all_lanes_noted(16);
    let region: Region<Image> = Region::new(Arc::clone(&media));
    let pm = region.access();
    let directory = Addr::new(pm.load(ROOT.plus(Root::DIRECTORY as u64)).unwrap());
    let at = layout::descriptor_at(directory, 0);
    let version = pm.load(at.plus(Descriptor::VERSION as u64)).unwrap();
    let set = layout::set_at(at, layout::decode_version(version, at).unwrap());
    let place = Place::decode(pm.load(set).unwrap(), set).unwrap();
    pm.store(set, Place { log: 24, ..place }.encode(set)).unwrap();
    let before = media.traffic();
    let opened = open::<Turbo, _>(region.clone(), Opening::default().boot, &Inline).map(drop);
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    assert!((media.traffic() - before).lines_flushed < 100);
}

#[test]
fn p12_a_panic_of_a_change_poisons_nothing_and_one_of_ours_one_shard() {
    // Fails if a panic before anything was stored keeps its shard from others; or if a poisoned
    // shard stops upkeep, other shards or readers, is closed as if all were well, or survives the
    // next open.
    let settings = TurboSettings { shards: 4, ..ONE_SHARD(16) };
    let (region, table) = image(Form::WORDS, &settings);
    let words = table.words().unwrap();
    (0..100).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        table.modify(&0u64.to_le_bytes(), &mut |_| resume_unwind(Box::new("thrown")))
    }));
    assert!(thrown.is_err());
    table.modify(&0u64.to_le_bytes(), &mut |_| Change::Keep).unwrap();
    assert!(words.update_word(0, 7).unwrap());

    let inner = of_words(&table);
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        let pm = inner.pool.access();
        let _held = inner.directory.of(inner.hashed(0).hash).hold(&pm).unwrap();
        resume_unwind(Box::new("thrown"))
    }));
    assert!(thrown.is_err());
    let shard_of = |key: u64| inner.directory.index_of(inner.hashed(key).hash);
    for key in 1..100 {
        let updated = words.update_word(key, 8);
        let is_poisoned = matches!(updated, Err(Error::Poisoned));
        assert_eq!(is_poisoned, shard_of(key) == shard_of(0), "key {key}: {updated:?}");
        assert!(words.get_word(key).unwrap().is_some());
    }
    inner.due.lock().unwrap().push(shard_of(0));
    table.maintain(core::time::Duration::ZERO, 100).unwrap();
    let closed = Box::new(table).close();
    assert!(matches!(closed, Err(Error::Poisoned)), "{closed:?}");
    let table = open::<Turbo, _>(region, Opening::default().boot, &Inline).unwrap();
    assert_eq!((table.len().unwrap(), table.check().unwrap().items), (100, 100));
    assert!(table.words().unwrap().update_word(0, 9).unwrap());
    Box::new(table).close().unwrap();
}

#[test]
fn p12_a_table_with_a_poisoned_shard_is_not_closed_cleanly() {
    // Fails if a close looks at its shards only to count their pairs: of a table that has counted
    // them before, what a failed write left unflushed would pass for durable.
    let by_a_panic = |inner: &Inner<Image, Words>| {
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            let pm = inner.pool.access();
            let _held = inner.directory.shards()[1].hold(&pm).unwrap();
            resume_unwind(Box::new("thrown"))
        }));
        assert!(thrown.is_err());
    };
    let by_a_write = |inner: &Inner<Image, Words>| {
        let pm = inner.pool.access();
        let held = inner.directory.shards()[1].hold(&pm).unwrap();
        drop(held.pending_all());
    };
    let ways: [fn(&Inner<Image, Words>); 2] = [by_a_panic, by_a_write];
    for (number, poison) in ways.into_iter().enumerate() {
        let (region, table) = image(Form::WORDS, &TurboSettings { shards: 4, ..ONE_SHARD(16) });
        (0..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
        assert_eq!(table.len().unwrap(), 100);
        poison(of_words(&table));
        let closed = Box::new(table).close();
        assert!(matches!(closed, Err(Error::Poisoned)), "{number}: {closed:?}");
        let status = Pool::status(&region, Opening::default().boot).unwrap();
        assert_eq!(status.previous, Shutdown::Process, "{number}");
        let table = open::<Turbo, _>(region, Opening::default().boot, &Inline).unwrap();
        assert_eq!(table.len().unwrap(), 100);
        Box::new(table).close().unwrap();
    }
}

#[test]
fn a_write_that_fails_has_changed_nothing() {
    // Fails if the collection that an insert begins after its commit makes an error of it: the
    // pair is there then, and the caller was told that it is not.
    let settings = TurboSettings { gc_probes: 1, ..ONE_SHARD(16) };
    let (region, table) = image(Form::WORDS, &settings);
    let words = table.words().unwrap();
    let inner = of_words(&table);
    let home = |key: u64| layout::home_of(inner.hashed(key).hash, 4);
    let keys: Vec<u64> = (0..).filter(|key| home(*key) == 3).take(12).collect();
    keys.iter().for_each(|key| assert!(words.insert_word(*key, 1).unwrap()));
    keys[1..].iter().for_each(|key| assert!(words.remove_word(*key).unwrap()));
    // A bucket is damaged that is far from the path of these keys.
    let place = inner.directory.shards()[0].place();
    let meta = place.bucket(12).plus(Bucket::META as u64);
    let pm = region.access();
    let whole = pm.load(meta).unwrap();
    pm.store(meta, whole ^ 1 << 30).unwrap();
    for key in &keys[1..] {
        let inserted = words.insert_word(*key, 2);
        let is_there = words.get_word(*key).unwrap().is_some();
        assert_eq!(inserted.is_ok(), is_there, "{inserted:?}");
    }
    pm.store(meta, whole).unwrap();
    assert_eq!(table.check().unwrap().items, 12);
}

#[test]
fn a_rebuild_whose_descriptor_is_damaged_takes_no_space() {
    // Fails if a shard is built that cannot be put in use, and stays on the medium.
    let (region, table) = image(Form::WORDS, &ONE_SHARD(16));
    let words = table.words().unwrap();
    (0..150).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let pm = region.access();
    let directory = Addr::new(pm.load(ROOT.plus(Root::DIRECTORY as u64)).unwrap());
    let version = layout::descriptor_at(directory, 0).plus(Descriptor::VERSION as u64);
    pm.store(version, pm.load(version).unwrap() ^ 1 << 40).unwrap();
    let before = table.stats().unwrap().used_bytes;
    let refused = (150..400).filter(|key| words.insert_word(*key, *key).is_err()).count();
    assert!(refused > 50, "{refused} inserts needed a rebuild");
    assert_eq!(table.stats().unwrap().used_bytes, before);
}
