//! Limits that a table meets late: the numbers of blocks, the length of the log, and a bucket that
//! has all units it may have.

use everhash_index::{Change, Error, Form, Table, WordTable};
use everhash_pmem::crash::Model;
use everhash_pmem::{Image, Lock};
use everhash_testkit::session::Session;

use crate::common::slot_codec::{DoubleWords, Words};
use crate::elimda::form::Form as Pairs;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

fn create(form: Form, settings: &ElimDaSettings) -> Session<ElimDa> {
    let medium = Image::new(0, 4 << 20).with_guarantees(Model::Adr.guarantees());
    Session::create(medium, form, settings).unwrap()
}

fn of_words(session: &Session<ElimDa>) -> &Inner<Image, Words> {
    let ElimDaTable::Words(inner) = session.table() else { panic!("8/8 has words") };
    inner
}

fn of_double_words(session: &Session<ElimDa>) -> &Inner<Image, DoubleWords> {
    let ElimDaTable::DoubleWords(inner) = session.table() else { panic!("16/16 has two words") };
    inner
}

/// The keys of a bucket.
fn keys_of(table: &Inner<Image, Words>, bucket: u64) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| table.geometry.bucket_of(table.hasher.word(*key)) == bucket)
}

#[test]
fn a_lane_whose_block_numbers_are_used_up_says_so() {
    // Fails if a block gets a number whose order numbers no watermark can hold: the next open would
    // refuse the pool, with all its pairs.
    let mut session = create(Form::WORDS, &ElimDaSettings::tiny());
    let table = of_words(&session);
    let keys: Vec<u64> = keys_of(table, 0).take(3).collect();
    let last = layout_last_number(table);
    {
        let mut lane = table.lanes[0].lock().unwrap();
        lane.first = last;
        lane.next = (last + 1) * table.geometry.block_slots();
    }
    for key in &keys {
        let refused = table.insert_word(*key, 1);
        assert!(matches!(refused, Err(Error::Limit { limit, .. }) if limit == last), "{refused:?}");
    }
    assert_eq!(table.len(), 0);
    let other = keys_of(table, 1).next().unwrap();
    assert!(table.insert_word(other, 1).unwrap());
    session.kill().unwrap();
    assert_eq!(session.table().len().unwrap(), 1);
}

/// Returns the highest number that a block may have.
fn layout_last_number(table: &Inner<Image, Words>) -> u64 {
    let (mut low, mut high) = (1, 1 << 48);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if table.geometry.is_number(middle) { low = middle } else { high = middle }
    }
    low
}

#[test]
fn every_write_that_finds_its_lane_long_relocates_what_is_in_the_way() {
    // Fails if a kind of write lets the log grow: one old pair keeps the oldest block, and with it
    // all behind it.
    let settings = ElimDaSettings { lanes: 1, ..ElimDaSettings::tiny() };
    let pair = |number: u64| [number.to_le_bytes(), number.to_le_bytes()].concat();
    type Write = fn(&dyn Table, &[u8], &[u8]);
    let writes: [(&str, Write); 4] = [
        ("insert", |table, key, value| {
            assert!(table.remove(key).unwrap() && table.insert(key, value).unwrap());
        }),
        ("put", |table, key, value| assert!(table.put(key, value).unwrap())),
        ("update", |table, key, value| assert!(table.update(key, value).unwrap())),
        ("modify", |table, key, value| {
            table.modify(key, &mut |_| Change::Put(value.to_vec())).unwrap();
        }),
    ];
    for (name, write) in writes {
        let session = create(Form::DOUBLE_WORDS, &settings);
        let (table, inner) = (session.table(), of_double_words(&session));
        let bucket = |number: u64| {
            let item = [number, number, 0, 0];
            inner.geometry.bucket_of(DoubleWords::item_hash(&inner.hasher, &item))
        };
        let [old, busy] = [0, 1].map(|wanted| (0..).find(|it| bucket(*it) == wanted).unwrap());
        for number in [old, busy] {
            assert!(table.insert(&pair(number), &pair(1)).unwrap());
        }
        for value in 0..200 {
            write(table, &pair(busy), &pair(value));
        }
        let blocks = inner.lanes[0].lock().unwrap().blocks.len() as u64;
        assert!(blocks <= inner.most_blocks() + 1, "{name}: {blocks} of {}", inner.most_blocks());
        assert_eq!((inner.len(), table.check().unwrap().items), (2, 2), "{name}");
    }
}

#[test]
fn the_log_may_be_as_long_as_the_settings_say() {
    // Fails if the share of the log is not what was asked for.
    let blocks = |log_percent| {
        let settings =
            ElimDaSettings { log_percent, initial_segments: 8, ..ElimDaSettings::tiny() };
        of_words(&create(Form::WORDS, &settings)).most_blocks()
    };
    // 24 slots of D-buckets a lane, and 7 a block.
    assert_eq!([100, 350, 700].map(blocks), [2 + 3, 2 + 12, 2 + 24]);
}

#[test]
fn a_bucket_that_has_all_its_units_splits_its_segment() {
    // Fails if the segment is rebuilt instead, since others of its units are free: the bucket would
    // have no more room than before, and its next insert would be refused.
    let settings = ElimDaSettings { segment_units: 16, bucket_units: 8, ..ElimDaSettings::tiny() };
    let session = create(Form::WORDS, &settings);
    let table = of_words(&session);
    for key in keys_of(table, 0).take(200) {
        assert!(table.insert_word(key, 1).unwrap(), "{key}");
    }
    assert!(table.segments() > 4);
    assert_eq!(table.check().unwrap().items, 200);
}

#[test]
fn a_table_without_relocation_grows_only_when_a_bucket_is_full() {
    // Fails if a long log makes it split segments whose buckets have room.
    let settings = ElimDaSettings { bucket_units: 0, ..ElimDaSettings::tiny() };
    let session = create(Form::WORDS, &settings);
    let table = of_words(&session);
    assert!(table.insert_word(0, 1).unwrap());
    for round in 1..300 {
        let key = 1 + round % 2;
        table.remove_word(key).unwrap();
        assert!(table.insert_word(key, round).unwrap());
    }
    assert_eq!((table.segments(), table.len()), (1, 3));
}
