//! Pairs of words by their own path, and many keys at a time: the same answers as one by one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use everhash_index::{Form, Table, WordTable};
use everhash_pmem::{Image, Std};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::walsh::{Walsh, WalshSettings};

/// Keys enough for rehashes, and few enough for each to be written often.
const KEYS: u64 = 300;

fn draw(random: &mut u64, below: u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 33) % below
}

fn session(form: Form, settings: &WalshSettings) -> Session<Walsh> {
    Session::create(Image::<Std>::new(0, 4 << 20), form, settings).unwrap()
}

/// Reads every key, in batches of words and in batches of byte strings.
fn read_all(table: &(impl Table + WordTable)) -> BTreeMap<u64, u64> {
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut values = vec![Some(7); keys.len()];
    table.get_words(&keys, &mut values).unwrap();
    let bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
    let mut slices: Vec<&[u8]> = bytes.iter().map(<[u8; 8]>::as_slice).collect();
    // Of another form than the pool's: nowhere, and no reason to mix up the others.
    slices.insert(5, b"no word");
    let mut answers = vec![0; slices.len()];
    let mut found = BTreeMap::new();
    let mut visit = |place: usize, value: Option<&[u8]>| {
        answers[place] += 1;
        if let Some(value) = value {
            assert_ne!(place, 5);
            let key = place as u64 - u64::from(place > 5);
            found.insert(key, u64::from_le_bytes(value.try_into().unwrap()));
        }
    };
    table.get_many(&slices, &mut visit).unwrap();
    assert!(answers.iter().all(|count| *count == 1), "each key is answered once");
    let words = keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
    assert_eq!(words.collect::<BTreeMap<_, _>>(), found);
    found
}

#[test]
fn words_and_batches_are_answered_as_one_key_at_a_time() {
    // Fails if a search among others mistakes its place, its value or its end, or if a pair of
    // words is written differently by its own path: also in the middle of a rehash.
    let session = session(Form::WORDS, &WalshSettings::tiny());
    let table = session.table();
    let (mut expected, mut random, mut halfway) = (BTreeMap::new(), 1, 0);
    for step in 0..20_000u64 {
        let key = draw(&mut random, KEYS);
        let old = expected.get(&key).copied();
        let was_there = old.is_some();
        match draw(&mut random, 6) {
            0 | 1 => {
                assert_eq!(table.put_word(key, step).unwrap(), was_there);
                expected.insert(key, step);
            }
            2 => {
                assert_eq!(table.insert_word(key, step).unwrap(), !was_there);
                expected.entry(key).or_insert(step);
            }
            3 => {
                assert_eq!(table.update_word(key, step).unwrap(), was_there);
                expected.entry(key).and_modify(|value| *value = step);
            }
            4 => {
                assert_eq!(table.remove_word(key).unwrap(), was_there);
                expected.remove(&key);
            }
            _ => assert_eq!(table.get_word(key).unwrap(), old),
        }
        if step % 50 == 0 {
            table.maintain(core::time::Duration::ZERO, 1).unwrap();
            halfway += u32::from(table.areas.iter().any(|a| a.view.latest().old().is_some()));
            assert_eq!(read_all(table), expected, "step {step}");
        }
    }
    assert!(halfway > 20, "{halfway} batches met a rehash");
    assert_eq!(table.check().unwrap().items, expected.len() as u64);
}

#[test]
fn batches_beside_writers_find_whole_values_of_their_own_keys() {
    // Fails if a batch believes an object whose log got another use while it was under way.
    let session = session(Form::WORDS, &WalshSettings::tiny());
    let table = session.table();
    for key in 0..KEYS {
        assert!(table.insert_word(key, key << 32).unwrap());
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let keys: Vec<u64> = (0..KEYS).collect();
                    let mut last = vec![0; keys.len()];
                    let mut values = vec![None; keys.len()];
                    let mut rounds = 0u64;
                    while !ended.load(Ordering::Relaxed) {
                        table.get_words(&keys, &mut values).unwrap();
                        for ((key, value), last) in keys.iter().zip(&values).zip(&mut last) {
                            let value = value.expect("no key is ever removed");
                            assert_eq!(value >> 32, *key);
                            assert!(value >= *last, "an older value than one that was seen");
                            *last = value;
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let mut random = 5;
        for step in 1..150_000u64 {
            let key = draw(&mut random, KEYS);
            assert!(table.update_word(key, key << 32 | step).unwrap());
        }
        ended.store(true, Ordering::Relaxed);
        let rounds: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        println!("{rounds} batches of {KEYS} keys");
        assert!(rounds > 10);
    });
    assert!(table.stats().unwrap().growth_steps > 100, "too few rehashes to disturb a reader");
}

#[test]
fn a_batch_finds_what_lies_at_the_end_of_a_chain_of_any_length() {
    // Fails if a search among others gives a long chain up, and says that a key at its end is
    // absent.
    let one =
        WalshSettings { areas: 1, directories: 1, block_directories: 1, ..WalshSettings::tiny() };
    let session = session(Form::WORDS, &WalshSettings { resize: 0, ..one });
    let table = session.table();
    let expected: BTreeMap<u64, u64> = (0..KEYS).step_by(2).map(|key| (key, key + 1)).collect();
    expected.iter().for_each(|(key, value)| assert!(table.insert_word(*key, *value).unwrap()));
    assert_eq!(read_all(table), expected);
    assert_eq!(table.stats().unwrap().growth_steps, 0, "all keys are in one chain");
}

#[test]
fn a_get_that_finds_nothing_replaces_what_was_in_its_buffer() {
    // Fails if the buffer still holds what its caller read before: of a key that is absent, that
    // was removed, or that no pair of the table has.
    for form in super::FORMS {
        let session = session(form, &WalshSettings::tiny());
        let (table, shape) = (session.table(), Shape::tiny(form));
        assert!(table.insert(&shape.key(1), &shape.value(1)).unwrap());
        assert!(table.remove(&shape.key(1)).unwrap());
        let strange = (form != Form::Variable).then(|| vec![1; 5]);
        for key in [shape.key(1), shape.key(2)].into_iter().chain(strange) {
            let mut value = shape.value(3);
            assert!(!table.get(&key, &mut value).unwrap());
            assert!(value.is_empty(), "{form}: {key:?}");
        }
    }
}
