//! What comes of blind writes whose caller was wrong.

use everhash_index::{BareTable, Error, Form, Table};
use everhash_testkit::session::Session;

use crate::walsh::Walsh;

const KEYS: u64 = 300;

fn bare(session: &Session<Walsh>) -> &dyn BareTable {
    session.table().bare().unwrap()
}

fn get(session: &Session<Walsh>, key: u64) -> Option<u64> {
    let words = session.table().words().unwrap();
    words.get_word(key).unwrap()
}

#[test]
fn a_wrong_caller_is_answered_right_and_counted_wrong() {
    // Fails if a blind write for a key in the wrong state damages anything but the count, if the
    // count is taken for damage, or if it stays wrong when chains are rehashed and read anew.
    let mut session = Session::<Walsh>::tiny(Form::WORDS, 8 << 20).unwrap();
    for key in 0..KEYS {
        let (key, value) = (key.to_le_bytes(), (key + 1).to_le_bytes());
        bare(&session).remove_blind(&key).unwrap();
        bare(&session).update_blind(&key, &value).unwrap();
    }
    let right = |session: &Session<Walsh>| {
        assert!((0..KEYS).all(|key| get(session, key) == Some(key + 1)));
        assert_eq!(get(session, KEYS), None);
        assert_eq!(session.table().check().unwrap().items, KEYS, "found by the check");
    };
    right(&session);
    let stats = session.table().stats().unwrap();
    assert!(stats.growth_steps > 0, "a count near nothing would never let directories double");
    assert!(stats.items > KEYS / 2, "{} counted after rehashes", stats.items);
    session.reopen().unwrap();
    right(&session);
    session.kill().unwrap();
    right(&session);
    session.table().clear().unwrap();
    assert_eq!(session.table().len().unwrap(), 0);
    for key in 0..KEYS {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    assert_eq!(session.table().len().unwrap(), KEYS, "exact again");
    session.table().check().unwrap();
}

#[test]
fn a_blind_write_of_another_form_changes_nothing() {
    // Fails if a bare form appends a key or a value that no pair of the table has.
    for (form, bytes) in [(Form::WORDS, 8), (Form::DOUBLE_WORDS, 16)] {
        let session = Session::<Walsh>::tiny(form, 1 << 20).unwrap();
        let (right, short, long) = (vec![1; bytes], vec![1; bytes - 1], vec![1; bytes + 1]);
        for (key, value) in [(&short, &right), (&long, &right), (&right, &short), (&right, &long)] {
            let written = bare(&session).update_blind(key, value);
            assert!(matches!(written, Err(Error::WrongForm { .. })), "{form}: {written:?}");
        }
        bare(&session).remove_blind(&short).unwrap();
        bare(&session).remove_blind(&long).unwrap();
        let stats = session.table().stats().unwrap();
        assert!(stats.own.contains(&("objects", 0)), "{form}: {:?}", stats.own);
    }
}
