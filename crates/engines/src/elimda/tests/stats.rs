//! What a table says of itself in numbers.

use everhash_index::{Form, Stats, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, Image, Lock, Media, pool};
use everhash_testkit::session::Session;

use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

fn own(stats: &Stats, name: &str) -> u64 {
    stats.own.iter().find(|(own, _)| *own == name).unwrap().1
}

fn create(form: Form, model: Model, settings: &ElimDaSettings) -> Session<ElimDa> {
    let medium = Image::new(0, 4 << 20).with_guarantees(model.guarantees());
    Session::create(medium, form, settings).unwrap()
}

#[test]
fn the_numbers_of_a_table_are_those_of_its_parts() {
    // Fails if a number is that of something else, or leaves a part out.
    let settings = ElimDaSettings { access_units: 2, ..ElimDaSettings::tiny() };
    let session = create(Form::WORDS, Model::Adr, &settings);
    let words = session.table().words().unwrap();
    (0..150).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    (10..150).for_each(|key| assert!(words.remove_word(key).unwrap()));
    // Units fill with pairs that are gone soon.
    for keys in (1000..2200).step_by(60).map(|first| first..first + 60) {
        keys.clone().for_each(|key| assert!(words.insert_word(key, key).unwrap()));
        keys.for_each(|key| assert!(words.remove_word(key).unwrap()));
    }
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let stats = session.table().stats().unwrap();
    let segments = table.segments();
    let geometry = table.geometry;
    let (splits, rebuilds) = {
        let table = table.segment_table.lock().unwrap();
        (table.splits, table.rebuilds)
    };
    assert!(splits > 0 && rebuilds > 0 && segments == splits + 1, "{splits}, {rebuilds}");
    assert_eq!((stats.items, stats.slots), (10, segments * 8 * 3));
    assert_eq!(stats.growth_steps, splits);
    let numbers = ["segments", "rebuilds", "dram_slots", "access_unit_bytes", "collecting_logs"];
    let wanted = [segments, rebuilds, segments * 2 * 6, 128, 0];
    assert_eq!(numbers.map(|name| own(&stats, name)), wanted);
    assert_eq!(own(&stats, "global_depth"), u64::from(table.table.depth()));
    assert!(own(&stats, "global_depth") >= 1);
    assert_eq!(stats.device_bytes, session.region().media().bytes());
    // All of it, the header and the root included: as much as the judge reaches, and what is free
    // in hand.
    let reached = session.table().check().unwrap().reachable_bytes;
    let free = own(&stats, "free_log_blocks") * geometry.block(Addr::NULL).bytes()
        + 2 * geometry.segment(Addr::NULL).bytes();
    assert!((reached..=reached + free).contains(&stats.used_bytes), "{reached}: {stats:?}");
    assert!(stats.used_bytes > pool::DATA.byte() + segments * geometry.segment(Addr::NULL).bytes());
    let (mut blocks, mut free) = (0, 0);
    for lane in &table.lanes {
        let lane = lane.lock().unwrap();
        blocks += lane.blocks.len() as u64;
        free += lane.free.len() as u64;
    }
    assert!(blocks > 2 && free > 0, "{blocks}, {free}");
    let numbers = ["log_blocks", "free_log_blocks", "log_slots"].map(|name| own(&stats, name));
    assert_eq!(numbers, [blocks, free, blocks * geometry.block_slots()]);
    let with_logs = create(Form::WORDS, Model::Eadr, &ElimDaSettings::tiny());
    assert_eq!(own(&with_logs.table().stats().unwrap(), "collecting_logs"), 3);
}

#[test]
fn the_slots_of_a_table_without_relocation_are_those_of_its_d_buckets() {
    // Fails if units count that no pair can go to.
    let settings = ElimDaSettings { bucket_units: 0, ..ElimDaSettings::tiny() };
    let stats = create(Form::WORDS, Model::Adr, &settings).table().stats().unwrap();
    assert_eq!((own(&stats, "segments"), stats.slots), (1, 2 * 3));
}

#[test]
fn dram_is_counted_part_by_part() {
    // Fails if the words of buckets, the collecting logs, the directory or the heap of records take
    // nothing.
    let tiny = ElimDaSettings::tiny();
    let dram = |session: &Session<ElimDa>| session.table().stats().unwrap().dram_bytes;
    let of = |model, settings: &ElimDaSettings| dram(&create(Form::WORDS, model, settings));
    // A word each, at least.
    let logs = of(Model::Eadr, &ElimDaSettings { collecting_logs: 1024, ..tiny })
        - of(Model::Adr, &ElimDaSettings { collecting_logs: 1024, ..tiny });
    assert!(logs >= 1024 * 8, "{logs}");
    // Fingerprints of six units, two words an item.
    let [few, many] = [1, 64]
        .map(|initial_segments| of(Model::Adr, &ElimDaSettings { initial_segments, ..tiny }));
    assert!(many - few >= 63 * 2 * 8 * (6 * 4 + 3 * 2), "{few}, {many}");
    // Slots of segments take the same each, and the directory more than its share.
    let slots = |initial_segments| {
        let settings = ElimDaSettings { initial_segments, ..tiny };
        let session = create(Form::WORDS, Model::Adr, &settings);
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        table.table.dram_bytes(0)
    };
    assert!(slots(64) > 64 * slots(1));
    let records = create(Form::Variable, Model::Adr, &tiny);
    let before = dram(&records);
    for key in 0..10u8 {
        assert!(records.table().insert(&[key], &[1; 8]).unwrap());
    }
    assert!(dram(&records) > before);
}

#[test]
fn a_batch_ends_with_the_shorter_of_keys_and_values() {
    // Fails if more keys than values are read, or if a value without a key is changed.
    let session = create(Form::WORDS, Model::Adr, &ElimDaSettings::tiny());
    let words = session.table().words().unwrap();
    assert!(words.insert_word(1, 10).unwrap() && words.insert_word(2, 20).unwrap());
    for count in [1, 33, 64] {
        let (keys, mut values) = (vec![1; count + 40], vec![None; count]);
        words.get_words(&keys, &mut values).unwrap();
        assert_eq!(values, vec![Some(10); count]);
        let mut values = vec![Some(7); count + 40];
        words.get_words(&keys[..count], &mut values).unwrap();
        assert_eq!(values[..count], vec![Some(10); count]);
        assert_eq!(values[count..], [Some(7); 40]);
    }
}

#[test]
fn a_blind_insert_of_another_form_is_refused() {
    // Fails if a key or a value of another length than the form has is cut, or ends in a panic.
    for form in [Form::WORDS, Form::DOUBLE_WORDS] {
        let session = create(form, Model::Adr, &ElimDaSettings::tiny());
        let bare = session.table().bare().unwrap();
        let bytes = if form == Form::WORDS { 8 } else { 16 };
        for (key, value) in [(bytes - 1, bytes), (bytes, bytes - 1), (bytes + 1, bytes + 1)] {
            assert!(bare.insert_blind(&vec![1; key], &vec![1; value]).is_err());
        }
        assert_eq!(session.table().len().unwrap(), 0);
    }
}
