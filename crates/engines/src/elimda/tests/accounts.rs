//! Every byte in use belongs to something: an opening finds as much in use as the table had that
//! was working, and when all is removed no slot of a log, and no record, stays in use.

use core::time::Duration;

use everhash_index::{Change, Form, Inline, Opening, Table, open};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, Image, LINE, Lock, Region, Std, WORD};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::elimda::form::Form as Pairs;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// What is in use.
#[derive(PartialEq, Eq, Debug)]
struct InUse {
    /// Beside the blocks and the segments that are kept in reserve. Unit: bytes.
    space: u64,
    /// Unit: bytes.
    records: u64,
}

fn of<F: Pairs>(table: &Inner<Image, F>) -> InUse {
    let lanes = table.lanes.iter().map(|lane| lane.lock().unwrap().free.len() as u64);
    let blocks = lanes.sum::<u64>() * table.geometry.block(Addr::NULL).bytes();
    let spares = table.segment_table.lock().unwrap().spares.len() as u64;
    let segments = spares * table.geometry.segment(Addr::NULL).bytes();
    let (space, heap) = (table.space.usage().unwrap(), table.heap.usage().unwrap());
    InUse { space: space.used_bytes - blocks - segments, records: heap.record_bytes }
}

fn in_use(table: &ElimDaTable<Image>) -> InUse {
    match table {
        ElimDaTable::Words(table) => of(table),
        ElimDaTable::DoubleWords(table) => of(table),
        ElimDaTable::Bytes(table) => of(table),
    }
}

/// Returns how many blocks of the log hold something, beside the open ones.
fn needed_blocks(table: &ElimDaTable<Image>) -> usize {
    fn of<F: Pairs>(table: &Inner<Image, F>) -> usize {
        let needed = |lane: &crate::elimda::state::LaneOf<Image>| {
            lane.lock().unwrap().blocks.iter().filter(|block| !block.is_dead()).count()
        };
        table.lanes.iter().map(needed).sum()
    }
    match table {
        ElimDaTable::Words(table) => of(table),
        ElimDaTable::DoubleWords(table) => of(table),
        ElimDaTable::Bytes(table) => of(table),
    }
}

/// Opens a copy of what is on the medium, in the same boot; returns what is in use there.
fn opened(session: &Session<ElimDa>, model: Model) -> InUse {
    let words = session.region().media().words();
    let image = Image::<Std>::of(&words, words.len() as u64 * WORD, 4 << 20);
    let region = Region::new(image.with_guarantees(model.guarantees()));
    in_use(&open::<ElimDa, _>(region, Opening::default().boot, &Inline).unwrap())
}

#[test]
fn an_open_finds_as_much_in_use_as_there_was() {
    // Fails if a record, a block, a segment or the area of the collecting logs is lost when its
    // pairs are replaced, removed, moved or cleared, or when an open leaves the logs.
    for (form, model) in
        super::FORMS.into_iter().flat_map(|form| [(form, Model::Adr), (form, Model::Eadr)])
    {
        let image = Image::<Std>::new(0, 4 << 20).with_guarantees(model.guarantees());
        let mut session = Session::<ElimDa>::create(image, form, &ElimDaSettings::tiny()).unwrap();
        let (shape, mut random) = (Shape::tiny(form), Random::new(5));
        for step in 0..3000u32 {
            let (table, key) = (session.table(), shape.key(random.below(90) as u16));
            let value = shape.value(step);
            match random.below(64) {
                0 => table.clear().unwrap(),
                1..4 => drop(table.maintain(Duration::from_secs(step.into()), 8).unwrap()),
                4..20 => drop(table.remove(&key).unwrap()),
                20..28 => table.modify(&key, &mut |_| Change::Put(value.clone())).unwrap(),
                28..32 => table.modify(&key, &mut |_| Change::Keep).unwrap(),
                32..36 => table.modify(&key, &mut |_| Change::Remove).unwrap(),
                36..44 => drop(table.insert(&key, &value).unwrap()),
                _ => drop(table.put(&key, &value).unwrap()),
            }
            if step % 50 == 49 {
                let (before, after) = (in_use(session.table()), opened(&session, model));
                assert_eq!(before.records, after.records, "{form}, {model}, step {step}");
                let least = after.space.min(before.space);
                let more = before.space - least;
                assert!(more <= 4 << 10, "{form}, {model}, step {step}: {before:?}, {after:?}");
            }
        }
        for key in 0..90 {
            session.table().remove(&shape.key(key)).unwrap();
        }
        assert_eq!(needed_blocks(session.table()), 0, "{form}, {model}: slots of the log are lost");
        assert_eq!(in_use(session.table()).records, 0, "{form}, {model}: records are lost");
        session.reopen().unwrap();
        assert_eq!(session.table().len().unwrap(), 0);
    }
}

#[test]
fn an_open_that_leaves_the_collecting_logs_keeps_nothing_of_them() {
    // Fails if the area of the logs, or the slots of the log whose items go along with theirs, stay
    // in use when all of it is in the device table.
    for form in super::FORMS {
        let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
        let session = Session::<ElimDa>::create(eadr, form, &ElimDaSettings::tiny()).unwrap();
        let shape = Shape::tiny(form);
        for key in 0..60 {
            assert!(session.table().insert(&shape.key(key), &shape.value(1)).unwrap());
        }
        let words = session.region().media().words();
        let image = Image::<Std>::of(&words, words.len() as u64 * WORD, 1 << 20);
        let image = image.with_guarantees(Model::Adr.guarantees());
        let session = Session::<ElimDa>::open(image, form).unwrap();
        assert_eq!(in_use(session.table()), opened(&session, Model::Adr), "{form}");
        (0..60).for_each(|key| assert!(session.table().remove(&shape.key(key)).unwrap()));
        assert_eq!(needed_blocks(session.table()), 0, "{form}");
        assert_eq!(session.table().check().unwrap().items, 0, "{form}");
    }
}

#[test]
fn pairs_of_one_key_leave_nothing_in_use_when_all_are_removed() {
    // Fails if a slot of the log or a record stays in use that a split dropped with the second pair
    // of a key, that an open ended beside a newer item, or that it moved out of a collecting log.
    for (form, model) in
        super::FORMS.into_iter().flat_map(|form| [(form, Model::Adr), (form, Model::Eadr)])
    {
        let image = Image::<Std>::new(0, 4 << 20).with_guarantees(model.guarantees());
        let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
        let mut session = Session::<ElimDa>::create(image, form, &settings).unwrap();
        let shape = Shape::tiny(form);
        let blind = |session: &Session<ElimDa>, keys: core::ops::Range<u16>, value| {
            let bare = session.table().bare().unwrap();
            keys.for_each(|key| bare.insert_blind(&shape.key(key), &shape.value(value)).unwrap());
        };
        let clean = |session: &Session<ElimDa>| {
            for key in 0..1200 {
                while session.table().remove(&shape.key(key)).unwrap() {}
            }
            assert_eq!(session.table().len().unwrap(), 0, "{form}, {model}");
            assert_eq!(needed_blocks(session.table()), 0, "{form}, {model}: slots are lost");
            assert_eq!(in_use(session.table()).records, 0, "{form}, {model}: records are lost");
        };
        for round in 0..3 {
            for value in 1..4 {
                blind(&session, 0..40, value);
            }
            if round != 1 {
                session.kill().unwrap();
            }
            blind(&session, 0..12, 4);
            if round == 2 {
                session.outage().unwrap();
            }
            // Many splits, with second pairs in units and in D-buckets.
            blind(&session, 1000..1200, 9);
            clean(&session);
            session.kill().unwrap();
            assert_eq!(session.table().len().unwrap(), 0, "{form}, {model}: a pair came back");
        }
    }
}

#[test]
fn an_older_item_that_an_open_has_ended_stays_ended() {
    // Fails if recovery counts an item of 16-byte pairs beside its newer one, or ends it in DRAM
    // only: when the newer one is removed, the older one comes back.
    let image = Image::<Std>::new(0, 4 << 20).with_guarantees(Model::Adr.guarantees());
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let mut session = Session::<ElimDa>::create(image, Form::DOUBLE_WORDS, &settings).unwrap();
    let shape = Shape::tiny(Form::DOUBLE_WORDS);
    (0..30).for_each(|key| {
        assert!(session.table().insert(&shape.key(key), &shape.value(1)).unwrap());
    });
    let mut doubled = Vec::new();
    for key in 0..30 {
        let bytes = shape.key(key);
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let ElimDaTable::DoubleWords(table) = session.table() else { panic!("two words") };
        let words: Vec<u64> = words.collect();
        let hash = table.hasher.two_words([words[0], words[1]]);
        // The newer one stays in the log.
        if !table.locate(hash).bucket.is_full() {
            let bare = session.table().bare().unwrap();
            bare.insert_blind(&bytes, &shape.value(2)).unwrap();
            doubled.push(key);
        }
    }
    assert!(doubled.len() > 4);
    session.kill().unwrap();
    assert_eq!(session.table().len().unwrap(), 30);
    for key in 0..30 {
        let mut value = Vec::new();
        assert!(session.table().get(&shape.key(key), &mut value).unwrap());
        let newest = 1 + u32::from(doubled.contains(&key));
        assert_eq!(value, shape.value(newest), "{key}");
    }
    for key in &doubled {
        assert!(session.table().remove(&shape.key(*key)).unwrap());
        assert!(!session.table().contains(&shape.key(*key)).unwrap(), "{key}");
    }
    let left = 30 - doubled.len() as u64;
    assert_eq!(session.table().len().unwrap(), left);
    session.kill().unwrap();
    let items = session.table().check().unwrap().items;
    assert_eq!((session.table().len().unwrap(), items), (left, left));
    for key in 0..30 {
        session.table().remove(&shape.key(key)).unwrap();
    }
    assert_eq!((session.table().len().unwrap(), needed_blocks(session.table())), (0, 0));
}

#[test]
fn space_that_held_anything_is_written_whole_before_it_is_used() {
    // Fails if a segment, a block or an extent of the segment table in space that was used before
    // is taken for one in space that is zero: the next open would find what was there.
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    {
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        let pm = session.region().access();
        let spans: Vec<_> = (0..2000).map(|_| table.space.take(LINE, LINE).unwrap().span).collect();
        for span in spans {
            pm.write_words(span.start, &[!0; (LINE / WORD) as usize]).unwrap();
            table.space.give(span);
        }
    }
    let words = session.table().words().unwrap();
    (0..400).for_each(|key| assert!(words.insert_word(key, !key).unwrap()));
    assert!(session.table().stats().unwrap().growth_steps > 10);
    session.kill().unwrap();
    assert_eq!(
        (session.table().len().unwrap(), session.table().check().unwrap().items),
        (400, 400)
    );
}
