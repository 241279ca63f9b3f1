//! What a crash inside a split leaves, made by hand: the upper half beside the old segment.

use core::ops::Range;
use std::sync::Arc;

use everhash_index::{Error, Form, Table};
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Addr, Image, LINE, Media};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::each_crash::after_each_crash;
use crate::elimda::layout::{self, Kind, Prefix};
use crate::elimda::recovery::sites;
use crate::elimda::resize::depth_fits;
use crate::elimda::{ElimDa, ElimDaSettings};

/// Returns a pool of 200 pairs with such an upper half, and where the slot lies that names it.
fn interrupted_split() -> (Session<ElimDa>, Addr) {
    beside_a_segment(|prefix| prefix.half(true))
}

/// Returns a pool of 200 pairs with a part of a segment beside it, and where the slot lies that
/// names the part.
fn beside_a_segment(part: fn(Prefix) -> Prefix) -> (Session<ElimDa>, Addr) {
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    for key in 0..200u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    session.reopen().unwrap();
    let initial = ElimDaSettings::tiny().initial_segments;
    let region = session.region().clone();
    let pm = region.access();
    let extent = |extent| {
        layout::open_link(
            pm.load(layout::extent_link(extent)).unwrap(),
            layout::extent_link(extent),
            Kind::Extent,
        )
    };
    let old = extent(0).unwrap();
    let segment = layout::open_link(pm.load(old).unwrap(), old, Kind::Slot).unwrap();
    let prefix = Prefix::open(pm.load(segment).unwrap(), segment).unwrap();
    let last = (0..layout::EXTENTS).rev().find(|place| extent(*place).is_some()).unwrap();
    let slots = layout::extent_slots(initial, last);
    let slot = (0..slots).map(|index| extent(last).unwrap().plus(index));
    let slot = slot.rev().find(|slot| pm.load(*slot).unwrap() == 0).unwrap();
    // Free space that nothing has been written to.
    let end = region.media().bytes().next_multiple_of(LINE);
    region.media().grow(end + 4096).unwrap();
    let upper = Addr::new(end);
    pm.store(upper, part(prefix).seal(upper)).unwrap();
    pm.store(slot, layout::seal(upper.byte(), slot, Kind::Slot)).unwrap();
    (session, slot)
}

#[test]
fn an_upper_half_whose_old_segment_counts_is_taken_out_of_the_table() {
    // Fails if the slot goes on naming space that is free, and soon holds something else.
    let (mut session, slot) = interrupted_split();
    session.kill().unwrap();
    assert_eq!(session.region().access().load(slot).unwrap(), 0);
    assert_eq!(session.table().check().unwrap().items, 200);
}

#[test]
fn no_other_part_of_a_segment_is_taken_for_its_upper_half() {
    // Fails if a segment beside one that covers its hashes is dropped, or counts, though no split
    // leaves it: pairs are missing from one of the two.
    for part in [
        |prefix: Prefix| prefix.half(true).half(true),
        |prefix: Prefix| prefix.half(false),
        |prefix: Prefix| prefix,
    ] {
        let (mut session, slot) = beside_a_segment(part);
        assert!(matches!(session.table().check(), Err(Error::Corrupt { .. })));
        let refused = session.kill();
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert_ne!(session.region().access().load(slot).unwrap(), 0);
    }
}

#[test]
fn the_directory_is_in_proportion_to_the_segments() {
    // Fails if a hostile pool, or keys with nearly one hash, make a directory without bound.
    assert!(depth_fits(12, 1) && !depth_fits(13, 1));
    assert!(depth_fits(13, 128) && !depth_fits(14, 128));
    assert!(depth_fits(40, 1 << 34) && !depth_fits(40, 1 << 33) && !depth_fits(41, 1 << 40));
}

#[test]
fn a_split_drops_what_blind_inserts_added_twice_and_the_first_one_stays() {
    // Fails if a split moves both, if it drops the older one or another key's, or if what it
    // dropped comes back: after a removal, a killed process or a power loss.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        for model in [Model::Adr, Model::Eadr] {
            let medium = Image::new(0, 4 << 20).with_guarantees(model.guarantees());
            let mut session =
                Session::<ElimDa>::create(medium, form, &ElimDaSettings::tiny()).unwrap();
            let shape = Shape::tiny(form);
            let blind = |session: &Session<ElimDa>, key, value| {
                let bare = session.table().bare().unwrap();
                bare.insert_blind(&shape.key(key), &shape.value(value)).unwrap();
            };
            for value in 1..4 {
                (0..120).for_each(|key| blind(&session, key, value));
            }
            // Every segment splits, also with these pairs in units.
            (1000..3000).for_each(|key| blind(&session, key, 9));
            session.table().sync().unwrap();
            let all = 120 + 2000;
            assert_eq!(session.table().len().unwrap(), all, "{form}, {model}");
            for ending in 0..3 {
                match ending {
                    0 => session.kill().unwrap(),
                    1 => session.outage().unwrap(),
                    _ => session.reopen().unwrap(),
                }
                assert_eq!(session.table().check().unwrap().items, all, "{form}, {model}");
                let mut value = Vec::new();
                for key in ending * 40..120 {
                    assert!(session.table().get(&shape.key(key), &mut value).unwrap());
                    assert_eq!(value, shape.value(1), "{key}, {form}, {model}");
                }
            }
            for key in 0..120 {
                assert!(session.table().remove(&shape.key(key)).unwrap());
                assert!(!session.table().contains(&shape.key(key)).unwrap(), "{key}, {form}");
            }
            assert_eq!(session.table().check().unwrap().items, 2000);
            let stats = session.table().stats().unwrap();
            assert!(stats.live_bytes < stats.used_bytes);
        }
    }
}

#[test]
fn a_crash_while_a_split_drops_duplicates_leaves_the_first_pair_of_each_key() {
    // Fails if an item ends before the older one of its key is durable where it was moved to, or
    // if the newer one is all that a crash leaves.
    for form in [Form::WORDS, Form::Variable] {
        for model in [Model::Adr, Model::File] {
            let medium = Arc::new(Traced::new(model, 0, 1 << 20));
            let tiny = ElimDaSettings::tiny();
            let session =
                Session::<ElimDa, Traced>::create(Arc::clone(&medium), form, &tiny).unwrap();
            let shape = Shape::tiny(form);
            let blind = |keys: Range<u16>, value| {
                for key in keys {
                    let bare = session.table().bare().unwrap();
                    bare.insert_blind(&shape.key(key), &shape.value(value)).unwrap();
                }
            };
            (1..4).for_each(|value| blind(0..30, value));
            session.table().sync().unwrap();
            let (before, length) = (medium.visible(), session.table().len().unwrap());
            medium.take_log();
            blind(1000..1060, 9);
            assert!(session.table().len().unwrap() < length + 60, "no split dropped any");
            let log = medium.take_log();
            after_each_crash(model, form, before, &log, |after| {
                let mut value = Vec::new();
                for key in 0..30 {
                    assert!(after.table().get(&shape.key(key), &mut value).unwrap());
                    assert_eq!(value, shape.value(1), "{key}, {form}, {model}");
                }
            });
        }
    }
}

#[test]
fn the_slot_of_such_a_half_is_free_durably_before_the_table_is_open() {
    // Fails if the slot is cleared and not made durable: its space may hold something else when the
    // power fails, and the slot names it again. Without the flush it does.
    let (session, slot) = interrupted_split();
    let words = session.region().media().words();
    let durable = |change: Option<Change>| {
        let medium = Traced::new(Model::Adr, 0, 1 << 20);
        medium.restart(&words);
        medium.set_mutant(change.map(|change| Mutant { site: sites::DROPPED, change }));
        let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        assert_eq!(session.region().access().load(slot).unwrap(), 0);
        let mut memory = Memory::of(Model::Adr, words.clone());
        for event in session.region().media().take_log().events() {
            memory.apply(event);
        }
        memory.durable()[slot.word() as usize]
    };
    assert_eq!(durable(None), 0);
    assert_ne!(durable(Some(Change::DropFlush)), 0);
}

/// Calls `maintain` until it has looked at every segment.
fn maintain(session: &Session<ElimDa>) {
    while session.table().maintain(Default::default(), 1000).unwrap().more {}
}

#[test]
fn upkeep_of_a_table_that_nobody_writes_grows_it_once_at_most() {
    // Fails if a segment is split ahead of need whose halves have as few units left: they are split
    // in the next round, and so on, without a pair more.
    for (buckets, segment_units, bucket_units, access_units) in [
        (1, 1, 1, 1),
        (2, 2, 2, 2),
        (4, 16, 16, 16),
        (16, 16, 4, 1),
        (64, 64, 4, 1),
        (16, 24, 6, 1),
    ] {
        let settings = ElimDaSettings {
            buckets,
            segment_units,
            bucket_units,
            access_units,
            lanes: 1,
            initial_segments: 1,
            ..ElimDaSettings::default()
        };
        let medium = Image::new(0, 64 << 20).with_guarantees(Model::Adr.guarantees());
        let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
        for key in 0..200 * buckets {
            assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
        }
        let used = |session: &Session<ElimDa>| {
            let stats = session.table().stats().unwrap();
            (stats.growth_steps, stats.used_bytes)
        };
        let before = used(&session);
        maintain(&session);
        let after = used(&session);
        println!("{buckets} buckets, {segment_units} units: {before:?}, then {after:?}");
        for round in 1..6 {
            maintain(&session);
            assert_eq!(used(&session), after, "{buckets} buckets, round {round}");
        }
        assert_eq!(session.table().check().unwrap().items, 200 * buckets);
    }
}

#[test]
fn upkeep_splits_a_segment_before_an_insert_has_to() {
    // Fails if upkeep never grows a table: inserts would wait for splits.
    let settings = ElimDaSettings { initial_segments: 1, ..ElimDaSettings::default() };
    let medium = Image::new(0, 16 << 20).with_guarantees(Model::Adr.guarantees());
    let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let steps = || session.table().stats().unwrap().growth_steps;
    for key in 0..20_000u64 {
        let before = steps();
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
        assert_eq!(steps(), before, "the insert of {key} has split a segment");
        if key % 50 == 0 {
            maintain(&session);
        }
    }
    assert!(steps() > 2, "{}", steps());
}
