//! Full media: what is removed there makes room again, and only a new item needs some.

use everhash_index::{Change, Error, Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

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

#[test]
fn modify_keeps_and_removes_on_a_full_medium() {
    // Fails if room for a value is demanded before it is known that there is a new one: what asks
    // for the pairs to be removed could not remove them. Fails also if the change is asked for
    // twice, or if a put that is refused changes anything.
    for model in [Model::Adr, Model::Eadr, Model::File] {
        for form in super::FORMS {
            modify_on_a_full_medium(model, form);
        }
    }
}

fn modify_on_a_full_medium(model: Model, form: Form) {
    let medium = Image::new(0, 64 << 10).with_guarantees(model.guarantees());
    let session = Session::<ElimDa>::create(medium, form, &ElimDaSettings::tiny()).unwrap();
    let (table, shape) = (session.table(), Shape::tiny(form));
    let insert = |key: u16| match table.insert(&shape.key(key), &shape.value(1)) {
        Err(Error::Full { .. }) => false,
        added => added.unwrap(),
    };
    let modify = |key: u16, change: Change| {
        let (mut change, mut found) = (Some(change), None);
        let done = table.modify(&shape.key(key), &mut |value| {
            found = value.map(<[u8]>::to_vec);
            change.take().expect("it is asked for once")
        });
        (done, found, change.is_none())
    };
    let (present, absent): (Vec<_>, Vec<_>) = (0..5000).partition(|key| insert(*key));
    assert!(present.len() > 100 && absent.len() > 1000, "{model}, {form}: it is not full");
    let absent = &absent[absent.len() - 50..];
    let mut refused = 0;
    for key in absent {
        let (kept, found, asked) = modify(*key, Change::Keep);
        assert!(kept.is_ok() && asked && found.is_none(), "{model}, {form}, {key}: {kept:?}");
        let (removed, found, asked) = modify(*key, Change::Remove);
        assert!(removed.is_ok() && asked && found.is_none(), "{model}, {form}, {key}");
        let (put, ..) = modify(*key, Change::Put(shape.value(2)));
        let is_there = table.get(&shape.key(*key), &mut Vec::new()).unwrap();
        assert_eq!(put.is_ok(), is_there, "{model}, {form}, {key}");
        match put {
            Ok(()) => assert!(table.remove(&shape.key(*key)).unwrap()),
            Err(Error::Full { .. }) => refused += 1,
            Err(other) => panic!("{model}, {form}, {key}: {other:?}"),
        }
    }
    assert!(refused > 0, "{model}, {form}: it is not full");
    let value = |key: u16| {
        let mut value = Vec::new();
        table.get(&shape.key(key), &mut value).unwrap().then_some(value)
    };
    for key in &present {
        let (kept, found, _) = modify(*key, Change::Keep);
        assert!(kept.is_ok(), "{model}, {form}, {key}: {kept:?}");
        assert_eq!(found, Some(shape.value(1)), "{model}, {form}, {key}");
        let (put, ..) = modify(*key, Change::Put(shape.value(3)));
        let wanted = if put.is_ok() { 3 } else { 1 };
        assert_eq!(value(*key), Some(shape.value(wanted)), "{model}, {form}, {key}");
        assert!(matches!(put, Ok(()) | Err(Error::Full { .. })), "{put:?}");
        let (put, ..) = modify(*key, Change::Put(shape.value(1)));
        assert!(value(*key).is_some(), "{model}, {form}, {key}: {put:?}");
    }
    assert_eq!(table.check().unwrap().items, present.len() as u64, "{model}, {form}");
    for key in &present {
        let (removed, found, _) = modify(*key, Change::Remove);
        assert!(removed.is_ok() && found.is_some(), "{model}, {form}, {key}: {removed:?}");
    }
    assert_eq!((table.len().unwrap(), table.check().unwrap().items), (0, 0), "{model}, {form}");
    let again = (5000..10_000).filter(|key| insert(*key)).count();
    assert!(again * 2 > present.len(), "{model}, {form}: {again} of {}", present.len());
}
