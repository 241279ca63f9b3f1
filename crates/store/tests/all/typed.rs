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

/// Calls each operation for an absent key and for a present one.
fn answers<K: Field, V: Field + PartialEq>(key: &K, one: &V, other: &V) {
    let (_directory, path) = place();
    let table: Table<K, V> = Table::create(options(), &path).unwrap();
    let has = |value: &V| table.get(key).unwrap().is_some_and(|found| found == *value);
    assert!(table.is_empty().unwrap() && !table.contains_key(key).unwrap());
    assert!(!table.update(key, one).unwrap() && !table.remove(key).unwrap());
    assert!(table.is_empty().unwrap());
    assert!(table.put_if_absent(key, one).unwrap());
    assert!(!table.put_if_absent(key, other).unwrap() && has(one));
    assert!(table.update(key, other).unwrap() && has(other));
    assert!(table.put(key, one).unwrap() && has(one));
    assert!(table.contains_key(key).unwrap() && !table.is_empty().unwrap());
    assert!(table.remove(key).unwrap() && !table.contains_key(key).unwrap());
    assert!(!table.put(key, other).unwrap() && has(other));
}

#[test]
fn every_typed_operation_does_what_the_one_without_types_does() {
    // Fails if one of them were another one, for words or for byte strings, or answered wrongly.
    answers(&7u64, &1i32, &2);
    answers(&"key".to_owned(), &1u32, &2);
}

#[test]
fn bytes_that_are_no_value_of_a_type_are_an_error_and_no_pair_less() {
    // Fails if a call for many keys, or an iterator, took such a value for an absent one, or if
    // bytes of another length were read as a number or an array that is a part of them.
    let (_directory, path) = place();
    let wide: Table<u16, u64> = Table::create(options(), &path).unwrap();
    wide.put(&1, &256).unwrap();
    let narrow = Table::<u16, u8>::of(wide.db().clone()).unwrap();
    let is_typed = |error: &Error| matches!(error, Error::Typed { wanted: "u8", .. });
    assert!(narrow.get_many(&[1]).is_err_and(|error| is_typed(&error)));
    assert!(narrow.iter().any(|pair| pair.is_err_and(|error| is_typed(&error))));
    let named = narrow.get(&1).unwrap_err().to_string();
    assert!(named.starts_with(path.to_str().unwrap()), "{named}");
    let (_directory, path) = place();
    let bytes: Table<String, Vec<u8>> = Table::create(options(), &path).unwrap();
    let key = "key".to_owned();
    bytes.put(&key, &vec![0; 9]).unwrap();
    let numbers = Table::<String, u8>::of(bytes.db().clone()).unwrap();
    assert!(numbers.get_many(std::slice::from_ref(&key)).is_err_and(|error| is_typed(&error)));
    assert!(numbers.iter().any(|pair| pair.is_err_and(|error| is_typed(&error))));
    assert!(numbers.get(&key).is_err_and(|error| is_typed(&error)));
    let arrays = Table::<String, [u8; 8]>::of(bytes.db().clone()).unwrap();
    assert!(matches!(arrays.get(&key), Err(Error::Typed { wanted: "[u8; 8]", .. })));
}

#[test]
fn a_database_of_another_form_is_refused_with_both_forms() {
    // Fails if the form that was found were shown as the one that was asked for.
    let (_directory, path) = place();
    let db = Db::options().form(Form::WORDS).create(&path).unwrap();
    match Table::<String, String>::of(db).unwrap_err() {
        Error::Mismatch { found, asked, .. } => {
            assert_eq!((found, asked), (Form::WORDS.to_string(), Form::Variable.to_string()));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_typed_table_that_others_hold_is_not_closed() {
    // Fails if a close through the types were a drop: nobody would hear that it closed nothing.
    let (_directory, path) = place();
    let table: Table<u64, u64> = Table::create(options(), &path).unwrap();
    let other = table.clone();
    assert_eq!(table.close().unwrap_err().kind(), ErrorKind::InUse);
    other.close().unwrap();
}
