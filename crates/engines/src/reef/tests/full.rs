//! A medium without room: removing, clearing and collecting go on.

use everhash_index::{Error, Form, Table, WordTable};
use everhash_testkit::session::Session;

use crate::reef::Reef;

/// Fills a table of words; returns how many pairs fit.
fn filled(bytes: u64) -> (Session<Reef>, u64) {
    let session = Session::<Reef>::tiny(Form::WORDS, bytes).unwrap();
    for number in 0.. {
        match session.table().insert_word(number, !number) {
            Ok(true) => {}
            Err(Error::Full { .. }) => return (session, number),
            other => panic!("{number}: {other:?}"),
        }
    }
    unreachable!("a medium has an end")
}

#[test]
fn a_full_table_removes_every_pair_and_takes_as_many_again() {
    // Fails if removing needs room that only removing could make, or if tombstones pile up.
    for bytes in [64 << 10, 128 << 10] {
        let (session, count) = filled(bytes);
        println!("{bytes} bytes: {count} pairs, {:?}", session.table().stats().unwrap());
        let table = session.table();
        for number in 0..count {
            let removed = table.remove_word(number);
            assert!(
                matches!(removed, Ok(true)),
                "{number} of {count}: {removed:?}, {:?}",
                table.stats()
            );
        }
        for number in 0..count * 9 / 10 {
            let added = table.insert_word(number, number);
            assert!(
                matches!(added, Ok(true)),
                "{number} of {count} again: {added:?}, {:?}",
                table.stats()
            );
        }
        table.clear().unwrap();
        assert_eq!(table.len().unwrap(), 0);
    }
}

#[test]
fn a_full_table_can_be_cleared() {
    // Fails if clearing needs more than what is kept back.
    let (session, count) = filled(64 << 10);
    session.table().clear().unwrap();
    assert_eq!(session.table().len().unwrap(), 0);
    (0..count / 2).for_each(|number| assert!(session.table().insert_word(number, 1).unwrap()));
}
