//! Look-ups of words, alone and many at a time: they answer as those of byte strings do.

use everhash_index::{Form, HashKind, Inline, Opening, Table, WordTable, create};
use everhash_pmem::{Domain, Guarantees, Image, Region, Std};
use everhash_testkit::measured::MEMORY;

use crate::elimda::{ElimDa, ElimDaSettings};

/// More pairs than one segment holds with the default settings.
const PAIRS: u64 = 6000;

/// What a key has once all is written: every third one is removed, every seventh inserted again,
/// and every fifth updated.
fn expected(key: u64) -> Option<u64> {
    match key {
        PAIRS.. => None,
        _ if key.is_multiple_of(7) => Some(key + 2),
        _ if key.is_multiple_of(3) => None,
        _ if key.is_multiple_of(5) => Some(key + 1),
        _ => Some(key),
    }
}

fn write(words: &dyn WordTable) {
    for key in 0..PAIRS {
        assert!(words.insert_word(key, key).unwrap());
    }
    for key in (0..PAIRS).step_by(5) {
        assert!(words.update_word(key, key + 1).unwrap());
    }
    for key in 0..PAIRS {
        if key.is_multiple_of(3) || key.is_multiple_of(7) {
            assert!(words.remove_word(key).unwrap());
        }
        if key.is_multiple_of(7) {
            assert!(words.insert_word(key, key + 2).unwrap());
        }
    }
}

/// Compares each way to look a key up with what is expected.
fn compare(settings: &ElimDaSettings, guarantees: Guarantees, hash: HashKind) {
    let medium = Image::<Std>::new(0, 8 << 20).with_guarantees(guarantees);
    let opening = Opening { form: Form::WORDS, hash, ..Opening::default() };
    let table = create::<ElimDa, _>(Region::new(medium), &opening, settings, &Inline).unwrap();
    let words = table.words().unwrap();
    write(words);
    let keys: Vec<u64> = (0..PAIRS + 1000).collect();
    let mut values = vec![Some(1); keys.len()];
    words.get_words(&keys, &mut values).unwrap();
    for (key, value) in keys.into_iter().zip(values) {
        assert_eq!(value, expected(key), "{key}, many at a time: {hash:?}, {settings:?}");
        assert_eq!(words.get_word(key).unwrap(), expected(key), "{key}: {hash:?}, {settings:?}");
        let found = table.get(&key.to_le_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(found, expected(key).is_some(), "{key}, as bytes: {hash:?}, {settings:?}");
    }
}

#[test]
fn words_are_found_as_byte_strings_are() {
    // Fails if an item that has ended is found, or one behind it is not; if a unit, a part of a
    // long D-bucket, a collecting log or the rest of a batch is passed over.
    let settings = ElimDaSettings { initial_segments: 1, ..ElimDaSettings::default() };
    let long = ElimDaSettings { access_units: 4, ..settings };
    let single = ElimDaSettings { unit_slots: 1, access_units: 1, ..settings };
    let no_units = ElimDaSettings { bucket_units: 0, ..settings };
    let durable_caches = Guarantees { domain: Domain::Eadr, ..MEMORY };
    for hash in [HashKind::Sip13, HashKind::Xxh3, HashKind::Rapid] {
        compare(&settings, MEMORY, hash);
        compare(&ElimDaSettings { collecting_logs: 16, ..settings }, durable_caches, hash);
    }
    for settings in [long, single, no_units] {
        compare(&settings, MEMORY, HashKind::Sip13);
    }
}
