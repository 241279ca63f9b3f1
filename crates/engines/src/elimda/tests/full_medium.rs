//! Full media: what is removed there makes room again.

use everhash_index::{Error, Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::session::Session;

use crate::elimda::{ElimDa, ElimDaSettings, bytes_needed};

/// How many inserts in a row are refused by a medium that is full.
const REFUSALS: u64 = 100;

/// Inserts keys from `first` on until the medium is full. Returns how many were taken, and the key
/// behind the last one.
fn fill(session: &Session<ElimDa>, first: u64) -> (u64, u64) {
    let (mut added, mut refused, mut key) = (0, 0, first);
    while refused < REFUSALS {
        match session.table().insert(&key.to_le_bytes(), &[1; 8]) {
            Ok(is_new) => {
                assert!(is_new, "{key}");
                (added, refused) = (added + 1, 0);
            }
            Err(Error::Full { .. }) => refused += 1,
            Err(other) => panic!("{key}: {other:?}"),
        }
        key += 1;
    }
    (added, key)
}

/// Removes keys, those that were refused included.
fn remove(session: &Session<ElimDa>, keys: core::ops::Range<u64>) {
    for key in keys {
        session.table().remove(&key.to_le_bytes()).unwrap();
    }
    assert_eq!(session.table().len().unwrap(), 0);
}

#[test]
fn a_full_medium_that_is_emptied_and_opened_takes_as_many_pairs_again() {
    // Fails if what an open takes in hand is not what a full table needs: without space for a
    // rebuild no unit of it becomes free, however many blocks there are.
    for model in [Model::Adr, Model::Eadr] {
        // Of this length something is left that is too short for a segment, and long enough for
        // some blocks.
        let medium = Image::new(0, 2 << 20).with_guarantees(model.guarantees());
        let settings = ElimDaSettings::sized_for(Form::WORDS, 2000);
        let mut session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
        let (mut first, mut taken) = (0, Vec::new());
        for _ in 0..3 {
            let (added, end) = fill(&session, first);
            taken.push(added);
            remove(&session, first..end);
            session.reopen().unwrap();
            first = end;
        }
        println!("{model}: {taken:?}");
        for added in &taken[1..] {
            assert!(added * 5 >= taken[0] * 4, "{model}: {taken:?}");
        }
    }
}

#[test]
fn the_smallest_medium_goes_on_once_its_pairs_are_removed() {
    // Fails if the bytes that a table needs leave out what a full one needs to go on: space for a
    // rebuild, and a block for each lane whose only block is full.
    let settings = ElimDaSettings {
        collecting_logs: 0,
        buckets: 16,
        access_units: 1,
        ..ElimDaSettings::sized_for(Form::WORDS, 2000)
    };
    let bytes = bytes_needed(&settings.geometry(Form::WORDS).unwrap());
    let create = |bytes| {
        let medium = Image::new(0, bytes).with_guarantees(Model::Adr.guarantees());
        Session::<ElimDa>::create(medium, Form::WORDS, &settings)
    };
    let session = create(bytes).unwrap();
    let (before, end) = fill(&session, 0);
    remove(&session, 0..end);
    let (after, _) = fill(&session, end);
    println!("{bytes} bytes: {before}, then {after}");
    assert!(before > 2000 && after * 5 >= before * 4, "{before}, then {after}");
    let smaller = create(bytes - 4096);
    assert!(matches!(smaller.err(), Some(Error::Full { .. })));
}
