//! What is counted: live pairs, after a clear, a rehash, and every way to stop; and the objects of
//! all logs, which must not become more and more.

use core::time::Duration;

use everhash_index::{Error, Form, Table};
use everhash_pmem::{Image, Std};
use everhash_testkit::session::Session;

use crate::walsh::{Walsh, WalshSettings};

/// One area, and more directories than a rehash moves in one step.
const SETTINGS: WalshSettings =
    WalshSettings { areas: 1, directories: 256, ..WalshSettings::tiny() };

fn word(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

#[test]
fn a_rehash_after_a_clear_counts_only_what_came_since() {
    // Fails if the info that begins a rehash forgets that its oldest log was begun for a clear: the
    // head of that log still counts what was cleared. So it was until real threads stopped in the
    // middle of such a rehash.
    let medium = Image::<Std>::new(0, 1 << 20);
    let mut session: Session<Walsh> = Session::create(medium, Form::WORDS, &SETTINGS).unwrap();
    for number in 0..100 {
        assert!(session.table().insert(&word(number), &[1; 8]).unwrap());
    }
    session.table().clear().unwrap();
    // Garbage, for which upkeep begins a rehash.
    for _ in 0..30 {
        session.table().put(&word(7), &[2; 8]).unwrap();
    }
    session.table().maintain(Duration::ZERO, 1).unwrap();
    let halfway = |session: &Session<Walsh>| {
        let found = session.table().check().unwrap();
        assert_eq!((found.items, session.table().len().unwrap()), (1, 1));
        session.table().areas[0].view.latest().old().is_some()
    };
    assert!(halfway(&session), "the rehash ended in one step");
    session.reopen().unwrap();
    assert!(halfway(&session), "closed and opened");
    session.kill().unwrap();
    assert!(halfway(&session), "killed");
    session.outage().unwrap();
    assert!(halfway(&session), "without power");
    while session.table().maintain(Duration::ZERO, 1).unwrap().more {}
    assert!(!halfway(&session), "the rehash goes on");
}

#[test]
fn neither_objects_nor_directory_records_become_more_and_more() {
    // Fails if some mixture of writes, or a stop in the middle of a rehash, leaves logs that no
    // rehash collects: there is a directory record for each object, and recovery reads them all.
    const KEYS: u64 = 200;
    let medium = Image::<Std>::new(0, 4 << 20);
    let settings = WalshSettings { directories: 64, ..SETTINGS };
    let mut session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
    let mut most = (0, 0);
    for round in 0..3000u64 {
        let table = session.table();
        let is_done = match round % 3 {
            0 => (0..20).all(|i| table.put(&word(i % 2), &word(round)).is_ok()),
            1 => (0..20).all(|i| table.put(&word((round + i) % KEYS), &word(i)).is_ok()),
            _ => (0..20).all(|i| table.remove(&word((round * 7 + i) % KEYS)).is_ok()),
        };
        assert!(is_done, "there is room for all of it");
        let stats = table.stats().unwrap();
        let own = |name| stats.own.iter().find(|(found, _)| *found == name).unwrap().1;
        // A rehash begins at twice the threshold, and what it moves comes on top.
        let limit = settings.threshold * own("directories");
        let objects = own("objects");
        assert!(objects <= 4 * limit + 64, "{objects} objects, {limit} is the limit");
        most = (most.0.max(objects), most.1.max(stats.used_bytes));
        match round % 100 {
            30 => session.kill().unwrap(),
            60 => session.outage().unwrap(),
            90 => session.reopen().unwrap(),
            _ => {}
        }
    }
    println!("at most {} objects in {} bytes for {KEYS} keys", most.0, most.1);
    assert!(most.0 <= 16 * KEYS && most.1 <= 200_000, "{most:?}");
}

#[test]
fn a_table_says_how_many_objects_its_chains_may_have() {
    // Fails if the threshold, the directories of an area, or what its growth doubles is left out.
    let settings = WalshSettings { areas: 1, directories: 4, ..WalshSettings::tiny() };
    let medium = Image::<Std>::new(0, 1 << 20);
    let session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    assert_eq!(table.stats().unwrap().slots, 4 * settings.threshold);
    for number in 0..100 {
        assert!(table.insert(&word(number), &[1; 8]).unwrap());
    }
    let level = table.lock(&table.areas[0]).unwrap().view.level();
    assert!(level > 2, "the area has grown");
    assert_eq!(table.stats().unwrap().slots, settings.threshold << level);
}

#[test]
fn keys_of_one_epoch_are_of_one_partition() {
    // Fails if a table says that keys are lost apart which an epoch takes back together, or the
    // other way round.
    for epochs in [0, 1] {
        let settings = WalshSettings { areas: 4, directories: 16, epochs, ..SETTINGS };
        let medium = Image::<Std>::new(0, 1 << 20);
        let session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
        let table = session.table();
        for key in (0..100).map(word) {
            let area = table.area(table.hasher.bytes(&key)).number;
            let expected = if epochs == 1 { 0 } else { area };
            assert_eq!(table.durability_partition(&key), expected);
        }
    }
}

#[test]
fn a_table_that_never_resizes_collects_nothing() {
    // Fails if upkeep, or a write that finds no room, rehashes an area although the setting says
    // that none is.
    let settings = WalshSettings { resize: 0, ..WalshSettings::tiny() };
    let medium = Image::<Std>::new(0, 64 << 10);
    let session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    let mut writes = 0;
    let outcome = loop {
        match table.put(&word(writes % 20), &[1; 8]) {
            Ok(_) => writes += 1,
            failed => break failed,
        }
        assert!(writes < 10_000, "there is room again and again");
        if writes % 50 == 0 {
            while table.maintain(Duration::ZERO, 100).unwrap().more {}
        }
    };
    assert!(matches!(outcome, Err(Error::Full { .. })), "{outcome:?}");
    assert!(writes > 500, "{writes} writes are too little garbage");
    assert_eq!(table.stats().unwrap().growth_steps, 0);
    assert!(table.stats().unwrap().own.contains(&("objects", writes)));
}
