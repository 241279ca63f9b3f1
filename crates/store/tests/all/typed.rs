//! Tables whose keys and values have types.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::place;
use everhash_store::{Db, Durability, Error, ErrorKind, Field, Form, Options, Table};

fn options() -> Options {
    Db::options().durability(Durability::Process)
}

/// Puts, reads, changes and removes pairs of any types.
fn keeps<K: Field + PartialEq + Clone, V: Field + PartialEq + Clone>(pairs: &[(K, V)], form: Form) {
    let (_directory, path) = place();
    let table: Table<K, V> = Table::create(options(), &path).unwrap();
    assert_eq!(table.db().info().form, form);
    for (key, value) in pairs {
        assert!(table.put_if_absent(key, value).unwrap());
        assert!(table.put(key, value).unwrap() && table.update(key, value).unwrap());
    }
    table.close().unwrap();
    let table: Table<K, V> = Table::open(options(), &path).unwrap();
    let keys: Vec<_> = pairs.iter().map(|(key, _)| key.clone()).collect();
    let values = table.get_many(&keys).unwrap();
    for ((key, value), read) in pairs.iter().zip(values) {
        assert!(read.is_some_and(|read| read == *value));
        assert!(table.get(key).unwrap().is_some_and(|read| read == *value));
        assert!(table.contains_key(key).unwrap());
    }
    let all: Vec<_> = table.iter().map(Result::unwrap).collect();
    assert_eq!(all.len(), pairs.len());
    assert!(all.iter().all(|pair| pairs.contains(pair)));
    let (first, value) = &pairs[0];
    let before = table.fetch_update(first, |before| {
        assert!(before == Some(value));
        None
    });
    assert!(before.unwrap().is_some_and(|before| before == *value));
    assert!(!table.remove(first).unwrap() && table.get(first).unwrap().is_none());
    assert_eq!(table.len().unwrap(), pairs.len() as u64 - 1);
    assert!(!table.is_empty().unwrap());
}

#[test]
fn integers_are_words_and_keep_their_sign() {
    // Fails if a number came back with another sign or width, or took the form of byte strings.
    keeps(&[(1u8, i8::MIN), (255, -1), (0, 127)], Form::WORDS);
    keeps(&[(u64::MAX, i64::MIN), (0, 0), (1, -1)], Form::WORDS);
    keeps(&[(-5i32, 7u16), (5, u16::MAX)], Form::WORDS);
}

#[test]
fn strings_and_bytes_are_as_they_are() {
    // Fails if text or an array came back with other bytes.
    keeps(&[("a".to_owned(), vec![1u8, 2]), (String::new(), vec![])], Form::Variable);
    keeps(&[([7u8; 16], 3u32), ([8; 16], 4)], Form::Variable);
}

#[test]
fn other_types_are_refused() {
    // Fails if a number were cut, or if bytes were shown as a text that they are not.
    let (_directory, path) = place();
    let wide: Table<u64, u64> = Table::create(options(), &path).unwrap();
    wide.put(&1, &256).unwrap();
    wide.close().unwrap();
    let text = Table::<String, String>::open(options(), &path);
    assert!(matches!(text.unwrap_err(), Error::Mismatch { .. }));
    let narrow = Table::<u64, u8>::of(Db::open(&path).unwrap()).unwrap();
    assert!(matches!(narrow.get(&1), Err(Error::Typed { wanted: "u8", .. })));
    let change = narrow.fetch_update(&1, |_| Some(1));
    assert_eq!(change.unwrap_err().kind(), ErrorKind::InvalidPair);
    narrow.put(&2, &255).unwrap();
    assert_eq!(narrow.get(&2).unwrap(), Some(255));
    let (_directory, path) = place();
    let raw: Table<String, Vec<u8>> = Table::create(options(), &path).unwrap();
    raw.put(&"key".to_owned(), &vec![0xff]).unwrap();
    let text = Table::<String, String>::of(raw.db().clone()).unwrap();
    assert!(matches!(text.get(&"key".to_owned()), Err(Error::Typed { .. })));
}
