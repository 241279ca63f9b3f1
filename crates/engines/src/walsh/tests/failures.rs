//! Media that fail: what a sync that failed has not made durable, nobody may count on.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Change, Cursor, Design, Error, Form, Inline, Result, Table, WordTable, open};
use everhash_pmem::{Image, Region, Std};
use everhash_testkit::model::{Pairs, check_pool};
use everhash_testkit::session::Session;

use super::full::FILE;
use super::refusing::Refusing;
use crate::walsh::{Walsh, WalshSettings};

/// Writes pairs until the medium fails; returns those whose writes returned, and the key of the
/// write that did not.
fn write_until_failure(table: &impl Table, durability: u64) -> (Pairs, Vec<u8>) {
    let mut pairs = Pairs::new();
    for number in 0..2000u64 {
        let (key, value) = ((number * 7 % 90).to_le_bytes(), number.to_le_bytes());
        let outcome = match number % 9 {
            0 => table.remove(&key).map(|_| drop(pairs.remove(&key[..]))),
            8 if durability == 0 => table.sync(),
            _ => table.put(&key, &value).map(|_| drop(pairs.insert(key.to_vec(), value.to_vec()))),
        };
        match outcome {
            Ok(()) => {}
            Err(Error::Poisoned) => return (pairs, key.to_vec()),
            Err(error) => panic!("{number}: {error}"),
        }
    }
    panic!("the medium has not failed")
}

/// Every kind of write, of a key.
fn writes(table: &impl Table, key: &[u8]) -> [(&'static str, Result<()>); 10] {
    let value = &[3; 8][..];
    [
        ("put", table.put(key, value).map(drop)),
        ("insert", table.insert(&[9; 8], value).map(drop)),
        ("update", table.update(key, value).map(drop)),
        ("remove", table.remove(key).map(drop)),
        ("modify", table.modify(key, &mut |_| Change::Put(value.to_vec()))),
        ("put_many", table.put_many(&[(key, value)]).map(drop)),
        ("clear", table.clear()),
        ("sync", table.sync()),
        ("insert_many", table.insert_many(&[(&[9; 8], value)]).map(drop)),
        ("maintain", table.maintain(Duration::ZERO, 100).map(drop)),
    ]
}

#[test]
fn p12_after_a_sync_that_failed_no_write_returns_and_no_answer_is_wrong() {
    // Fails if a write returns that nothing will make durable, if a read is answered wrong beside
    // it, or if a write that returned before is lost when the process ends.
    for (form, durability) in
        [(Form::WORDS, 0), (Form::WORDS, 1), (Form::Variable, 0), (Form::Variable, 1)]
    {
        for fence in (0..60).step_by(3) {
            let medium = Arc::new(Refusing::new(FILE, [u64::MAX, u64::MAX]));
            let settings = WalshSettings { durability, ..WalshSettings::tiny() };
            let mut session: Session<Walsh, Refusing> =
                Session::create(Arc::clone(&medium), form, &settings).unwrap();
            medium.fences.store(fence, Ordering::Relaxed);
            let (table, told) = (session.table(), format!("{form}, {durability}, {fence}"));
            let (mut pairs, unsure) = write_until_failure(table, durability);
            pairs.remove(&unsure);
            let words = medium.image.words();
            let (mut value, mut answered) = (Vec::new(), 0);
            for key in (0..90u64).map(u64::to_le_bytes).filter(|key| key[..] != unsure[..]) {
                match table.get(&key, &mut value) {
                    Ok(found) => {
                        answered += 1;
                        let right = pairs.get(&key[..]);
                        assert_eq!(found.then_some(&value), right, "{told}");
                    }
                    Err(error) => assert!(matches!(error, Error::Poisoned), "{told}: {error}"),
                }
            }
            println!("{told}: {answered} of 89 reads answered, {} pairs", pairs.len());
            for (name, outcome) in writes(table, &unsure) {
                assert!(matches!(outcome, Err(Error::Poisoned)), "{told}, {name}: {outcome:?}");
            }
            let scanned = table.scan(Cursor::default(), &mut |_, _| {});
            assert!(matches!(scanned, Ok(_) | Err(Error::Poisoned)), "{told}: {scanned:?}");
            assert!(matches!(session.close(), Err(Error::Poisoned)), "{told}");
            // The process has ended: what it stored is there.
            let bytes = words.len() as u64 * 8;
            let region =
                Region::new(Image::<Std>::of(&words, bytes, 4 << 20).with_guarantees(FILE));
            let opening = everhash_index::Opening::default();
            let table = open::<Walsh, _>(region.clone(), opening.boot, &Inline).unwrap();
            Box::new(table).close().unwrap();
            let mut found = check_pool(&Design::of::<Walsh>(), &region).unwrap();
            found.remove(&unsure);
            assert!(found == pairs, "{told}: a write that returned is lost");
        }
    }
}

#[test]
fn after_a_sync_that_failed_every_read_says_so() {
    // Fails if a way to read passes over an earlier failure: what it finds may not be durable, and
    // no sync will say so.
    let medium = Arc::new(Refusing::new(FILE, [u64::MAX, u64::MAX]));
    let settings = WalshSettings::tiny();
    let session: Session<Walsh, Refusing> =
        Session::create(Arc::clone(&medium), Form::WORDS, &settings).unwrap();
    let table = session.table();
    table.put_word(1, 1).unwrap();
    medium.fences.store(0, Ordering::Relaxed);
    assert!(matches!(table.sync(), Err(Error::Poisoned)));
    let (bytes, mut values) = (1u64.to_le_bytes(), [None]);
    let reads = [
        ("get", table.get(&bytes, &mut Vec::new()).map(drop)),
        ("contains", table.contains(&bytes).map(drop)),
        ("get_many", table.get_many(&[&bytes], &mut |_, _| {})),
        ("get_word", table.get_word(1).map(drop)),
        ("get_words", table.get_words(&[1], &mut values)),
        ("scan", table.scan(Cursor::default(), &mut |_, _| {}).map(drop)),
    ];
    for (name, outcome) in reads {
        assert!(matches!(outcome, Err(Error::Poisoned)), "{name}: {outcome:?}");
    }
}
