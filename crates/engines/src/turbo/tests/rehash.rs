//! The sweep of a rehash by itself: what it writes, and what it leaves when it gives up.

use std::collections::BTreeMap;

use everhash_index::{Inline, Opening, Table, create};
use everhash_pmem::crash::{Event, Explorer, How, Memory, Model, What};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Image, Media, Region, Site, Span, Std};

use crate::common::slot_codec::Words;
use crate::turbo::bucket::{Bucket, slots_of};
use crate::turbo::layout::{self, Place, ROOT, Root};
use crate::turbo::rehash::{STRETCH, Swept, sweep};
use crate::turbo::search_path::Reach;
use crate::turbo::shard::{self, read_place};
use crate::turbo::state::Turbo as Inner;
use crate::turbo::{Turbo, TurboSettings, TurboTable};

const SITE: Site = Site::new("turbo/test/store");

/// A table of one shard of 64 buckets, so full that pairs lie behind their homes, and some of them
/// beyond the end.
fn table<M: Media>(region: Region<M>) -> TurboTable<M> {
    let settings = TurboSettings { shards: 1, buckets_per_shard: 64, ..TurboSettings::default() };
    let table = create::<Turbo, _>(region, &Opening::default(), &settings, &Inline).unwrap();
    let words = table.words().unwrap();
    (0..720).for_each(|key| assert!(words.insert_word(key, !key).unwrap()));
    (0..720).step_by(9).for_each(|key| assert!(words.remove_word(key).unwrap()));
    table
}

fn inner<M: Media>(table: &TurboTable<M>) -> &Inner<M, Words> {
    let TurboTable::Words(inner) = table else { panic!("8/8 has words") };
    inner
}

/// Sweeps the only shard to a new place of 2^`log` buckets, and returns that.
fn swept<M: Media>(table: &TurboTable<M>, log: u32, reach: Reach, stretch: u64) -> (Swept, Place) {
    let (inner, pm) = (inner(table), inner(table).pool.access());
    let from = inner.directory.shards()[0].place();
    let span = inner.space.take(Place { log, ..from }.bytes(), 256).unwrap().span;
    let to = Place { start: span.start, log };
    let any = |_, _| true;
    let swept = sweep::<_, Words>(&pm, &inner.hasher, any, reach, (from, to), stretch).unwrap();
    inner.space.give(span);
    (swept, to)
}

/// Returns whether a key lies in another bucket than its home.
fn is_displaced<M: Media>(table: &TurboTable<M>, key: u64) -> bool {
    let (inner, pm) = (inner(table), inner(table).pool.access());
    let (hash, from) = (inner.hashed(key).hash, inner.directory.shards()[0].place());
    let bucket = Bucket::of(&pm, from, layout::home_of(hash, from.log)).unwrap();
    let view = bucket.view_of(bucket.meta_word()).unwrap();
    !slots_of(view.matching(layout::tag_of(hash)))
        .any(|slot| bucket.pair(&view, slot).unwrap()[0] == key)
}

/// Demands that a sweep of the only shard to 2^`log` buckets moves all these pairs, and writes the
/// same whatever the stretch.
fn sweeps_alike<M: Media>(table: &TurboTable<M>, log: u32, expected: &BTreeMap<u64, u64>) {
    let (inner, pm) = (inner(table), inner(table).pool.access());
    let mut images = Vec::new();
    for stretch in [1, 8, 32, STRETCH, 1 << 20] {
        let (done, to) = swept(table, log, inner.reach(), stretch);
        assert_eq!(done, Swept::Whole, "2^{log} buckets");
        let mut words = vec![0; (to.bytes() / 8) as usize];
        pm.read_words(to.start, &mut words).unwrap();
        images.push((to, words));
    }
    assert!(images.iter().all(|image| *image == images[0]), "2^{log} buckets");
    let mut pairs = BTreeMap::new();
    for index in 0..1 << log {
        let bucket = Bucket::of(&pm, images[0].0, index).unwrap();
        let view = bucket.view_of(bucket.meta_word()).unwrap();
        let pair = |slot| bucket.pair(&view, slot).unwrap();
        pairs.extend(slots_of(view.meta.live()).map(pair).map(<(u64, u64)>::from));
    }
    assert_eq!(&pairs, expected, "2^{log} buckets");
}

#[test]
fn a_sweep_writes_the_same_shard_whatever_the_stretch() {
    // Fails if a pair is lost between two stretches, at the end of the shard, or in another bucket
    // than the one that is filled next on its path.
    let table = table(Region::new(Image::<Std>::new(0, 1 << 20)));
    assert_eq!(inner(&table).directory.shards()[0].place().log, 6);
    let keys = || (0..720).filter(|key| key % 9 != 0);
    let displaced = keys().filter(|key| is_displaced(&table, *key));
    assert!(displaced.count() > 30, "pairs behind their homes are what stretches must not lose");
    let expected = keys().map(|key| (key, !key)).collect();
    [6, 7, 8].into_iter().for_each(|log| sweeps_alike(&table, log, &expected));
}

#[test]
fn a_sweep_to_fewer_buckets_writes_the_same_shard_whatever_the_stretch() {
    // Fails as that one, where several buckets become one: a stretch of fewer buckets than a scope
    // would let a pair overflow past the first one, which is written already.
    let table = table(Region::new(Image::<Std>::new(0, 1 << 20)));
    let mut expected = BTreeMap::new();
    for key in (0..720).filter(|key| key % 9 != 0) {
        if is_displaced(&table, key) || key % 9 == 1 {
            expected.insert(key, !key);
        } else {
            assert!(table.words().unwrap().remove_word(key).unwrap());
        }
    }
    assert!((110..200).contains(&expected.len()), "{}", expected.len());
    [4, 5].into_iter().for_each(|log| sweeps_alike(&table, log, &expected));
    // So few buckets are several scopes here.
    let narrow = TurboSettings {
        shards: 1,
        buckets_per_shard: 64,
        scope: 2,
        bucket_slots: 8,
        ..TurboSettings::default()
    };
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let table = create::<Turbo, _>(region, &Opening::default(), &narrow, &Inline).unwrap();
    let words = table.words().unwrap();
    (0..80).for_each(|key| assert!(words.insert_word(key, !key).unwrap()));
    let expected = (0..80).map(|key| (key, !key)).collect();
    [4, 5].into_iter().for_each(|log| sweeps_alike(&table, log, &expected));
}

#[test]
fn a_sweep_that_gives_up_leaves_nothing_on_its_way_past_the_caches() {
    // Fails if the place is handed to another writer while stores to it, past the caches, are not
    // yet fenced: the processor gives no order to these and to what follows.
    let region = Region::new(Traced::<Std>::new(Model::Adr, 0, 1 << 20));
    let table = table(region.clone());
    let narrow = Reach { scope: 1, ..inner(&table).reach() };
    let (done, to) = swept(&table, 6, narrow, 1);
    assert_eq!(done, Swept::Overflowed);
    let pm = region.access();
    pm.write_words(to.start, &vec![1; 64 * 32]).unwrap();
    pm.persist(Span::of_bytes(to.start, to.bytes()), SITE).unwrap();
    let log = region.media().take_log();
    let past = |event: &&Event| match event.what {
        What::Store { word, how: How::NonTemporal, .. } => u64::from(word) >= to.start.word(),
        _ => false,
    };
    assert!(log.events().iter().filter(past).count() >= 32, "it gave up before it wrote anything");
    let mut explorer = Explorer::new(Memory::zero(Model::Adr, 0), log.events());
    while explorer.next_point().is_some() {}
}

#[test]
fn each_word_of_a_descriptor_is_written_back_under_its_own_site() {
    // Fails if leaving out what one site does, as the mutants of the judges do, leaves out a part
    // of another site's work, so that a needed instruction is never judged by itself.
    let region = Region::new(Traced::<Std>::new(Model::Adr, 0, 1 << 20));
    let tiny = TurboSettings { shards: 1, ..TurboSettings::tiny() };
    let opening = Opening::default();
    let table = create::<Turbo, _>(region.clone(), &opening, &tiny, &Inline).unwrap();
    region.media().take_log();
    (0..60).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
    let log = region.media().take_log();
    for site in [shard::sites::SET, shard::sites::VERSION] {
        let at_site = || log.events().iter().filter(|event| event.site == Some(site));
        let flushes = at_site().filter(|event| matches!(event.what, What::Flush { .. })).count();
        let fences = at_site().filter(|event| matches!(event.what, What::Fence)).count();
        assert!(fences > 2 && flushes == fences, "{site:?}: {flushes} flushes, {fences} fences");
    }
}

#[test]
fn a_shard_turns_from_one_set_to_the_other_however_often_it_has_moved() {
    // Fails if the version of a descriptor ends with the last number of its byte: from then on each
    // move would overwrite the set in use before it turns, and a crash could leave neither place.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let tiny = TurboSettings { shards: 1, ..TurboSettings::tiny() };
    let table = create::<Turbo, _>(region.clone(), &Opening::default(), &tiny, &Inline).unwrap();
    let (inner, pm) = (inner(&table), region.access());
    let at = Addr::new(pm.load(ROOT.plus(Root::DIRECTORY as u64)).unwrap());
    let version = || layout::decode_version(pm.load(at).unwrap(), at).unwrap();
    for moves in 0..600 {
        assert_eq!(version(), moves as u8);
        let set = layout::set_at(at, version());
        let before = pm.load(set).unwrap();
        let held = inner.directory.shards()[0].hold(&pm).unwrap();
        inner.collect(&pm, &held, 0).unwrap();
        assert_eq!(pm.load(set).unwrap(), before, "the set in use was overwritten: {moves}");
        assert_eq!(read_place(&pm, at).unwrap(), held.place());
    }
}
