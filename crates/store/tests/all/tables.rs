//! Many tables in one file: apart from one another, and gone as a whole.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::place;
use everhash_store::{
    Change, Db, Durability, ErrorKind, Expiry, Form, MAX_KEY_BYTES, MAX_VALUE_BYTES, Swap, Table,
    WriteBatch, admit, admit_in_table, engines,
};

/// The records that the catalogue of up to 32 tables has, without the flag of each.
const CATALOGUE: u64 = 2;

fn relaxed(engine: &str, path: &Path) -> Db {
    let options = Db::options().engine(engine).durability(Durability::Process);
    options.background(false).create(path).unwrap()
}

/// Does all maintenance; returns how many calls that took.
fn maintain(db: &Db) -> u64 {
    let mut calls = 1;
    while db.maintain().unwrap() {
        calls += 1;
        assert!(calls < 1_000_000, "maintenance does not end");
    }
    calls
}

fn sorted(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs: Vec<_> = db.iter().map(Result::unwrap).collect();
    pairs.sort();
    pairs.dedup();
    pairs
}

#[test]
fn every_operation_keeps_to_its_table() {
    // Fails if one operation forgot the prefix of its table, or a scan showed it or another table:
    // the same keys have other values in each.
    // The last keys begin as the file's own prefixes do, and must be as good as any.
    let keys: [&[u8]; 6] =
        [b"", b"a", b"bb", &[0xff, 0xeb, 0x7a], &[0xff, 0xeb, 0x7a, 0, 0, 0, 0, 1], &[7; 300]];
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let [red, blue] = ["red", "blue"].map(|name| db.create_table(name).unwrap());
        let all = [(&db, "0"), (&red, "1"), (&blue, "2")];
        for (table, value) in all {
            assert!(table.is_empty().unwrap() && table.len().unwrap() == 0);
            for key in keys {
                assert!(table.put_if_absent(key, "old").unwrap());
                assert!(!table.put_if_absent(key, "no").unwrap());
                assert!(table.put(key, "older").unwrap() && table.update(key, value).unwrap());
            }
        }
        for (table, value) in all {
            let value = value.as_bytes();
            assert_eq!(table.len().unwrap(), 6, "{}", engine.name);
            let expected: Vec<_> = keys.map(|key| (key.to_vec(), value.to_vec())).into();
            let mut expected = expected;
            expected.sort();
            assert_eq!(sorted(table), expected, "{}", engine.name);
            assert!(table.get_many(&keys).unwrap().iter().all(|v| v.as_deref() == Some(value)));
            for key in keys {
                assert_eq!(table.get(key).unwrap().as_deref(), Some(value));
                assert_eq!(table.size_of(key).unwrap(), Some(1));
                let swap = table.compare_and_swap(key, Some(value), Some(b"swapped")).unwrap();
                assert_eq!(swap, Swap::Done);
                let before = table.modify(key, |v| (Change::Keep, v.map(<[u8]>::to_vec))).unwrap();
                assert_eq!(before.unwrap(), b"swapped");
                assert_eq!(table.replace(key, value).unwrap().unwrap(), b"swapped");
            }
        }
        assert_eq!(red.remove_many(&keys[..2]).unwrap(), 2);
        assert_eq!(red.retain(|key, _| key != b"bb").unwrap(), 1);
        assert!(red.remove(keys[3]).unwrap() && !red.contains_key(keys[3]).unwrap());
        assert_eq!(red.take(keys[4]).unwrap().unwrap(), b"1");
        assert_eq!(red.put_many(&[("new", "1"), ("newer", "2")]).unwrap(), 2);
        assert_eq!(red.put_many_if_absent(&[("new", "3"), ("newest", "3")]).unwrap(), 1);
        assert_eq!((red.len().unwrap(), db.len().unwrap(), blue.len().unwrap()), (4, 6, 6));
        blue.clear().unwrap();
        assert!(blue.is_empty().unwrap() && !db.is_empty().unwrap());
        db.clear().unwrap();
        assert_eq!((red.len().unwrap(), db.len().unwrap(), blue.len().unwrap()), (4, 0, 0));
        assert!(red.put([7; MAX_KEY_BYTES - 8], "").is_ok());
        let error = red.put([7; MAX_KEY_BYTES - 7], "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPair);
        db.check().unwrap();
    }
}

#[test]
fn a_key_that_is_too_long_is_absent_from_every_table() {
    // Fails if a look-up or removal by a key that no pair can have were an error in some tables
    // and an answer in others: a program asks by keys that came from elsewhere.
    let marked = [&[0xff, 0xeb, 0x7a][..], &[7; MAX_KEY_BYTES - 8]].concat();
    let longer = [7; MAX_KEY_BYTES + 1];
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let table = db.create_table("table").unwrap();
        let expiring = db.expiring_table_or_create("expiring").unwrap();
        let snapshot = db.snapshot().unwrap();
        for (table, key) in [(&db, &longer[..]), (&db, &marked), (&table, &longer[..MAX_KEY_BYTES])]
        {
            assert_eq!(table.get(key).unwrap(), None, "{}", engine.name);
            assert!(!table.contains_key(key).unwrap() && !table.remove(key).unwrap());
            assert_eq!(table.get_many(&[key, b"a"]).unwrap(), [None, None]);
            assert_eq!(table.remove_many(&[key, b"a"]).unwrap(), 0);
            assert_eq!(table.take(key).unwrap(), None);
            assert!(!table.update(key, "").unwrap());
            assert_eq!(table.fetch_update(key, |value| value.map(<[u8]>::to_vec)).unwrap(), None);
            let swap = |expected, new| table.compare_and_swap(key, expected, new);
            assert_eq!(swap(Some(b""), Some(b"")).unwrap(), Swap::Differs(None));
            assert_eq!(swap(None, None).unwrap(), Swap::Done);
            let mut batch = WriteBatch::new();
            batch.remove(key).remove_in(table, key);
            table.write(&batch).unwrap();
            let pairs = [(key, "")];
            for refused in [
                table.put(key, "").map(drop),
                table.put_if_absent(key, "").map(drop),
                table.replace(key, "").map(drop),
                table.put_many(&pairs).map(drop),
                table.write(batch.put(key, "")),
                table.fetch_update(key, |_| Some(Vec::new())).map(drop),
                swap(None, Some(b"")).map(drop),
            ] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidPair);
                // As the caller gave it, and not as it lies in the file.
                assert!(refused.to_string().contains(&key.len().to_string()), "{refused}");
            }
            assert!(table.is_empty().unwrap());
        }
        for never in [expiring.remove(longer).unwrap(), expiring.take(longer).unwrap().is_some()] {
            assert!(!never);
        }
        assert!(!expiring.set_expiry(longer, Expiry::Never).unwrap());
        let refused = expiring.put(longer, "", Expiry::Never).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidPair);
        assert_eq!(snapshot.get(&marked).unwrap(), None);
        assert_eq!(snapshot.table("table").unwrap().get(longer).unwrap(), None);
        assert_eq!(expiring.get(longer).unwrap(), None);
        assert_eq!(expiring.expiry(longer).unwrap(), None);
    }
}

#[test]
fn a_change_of_a_key_that_is_too_long_is_refused_as_any_write_is() {
    // Fails if a change that comes to nothing were an answer where nothing may be written, or where
    // there is no table any more.
    let longer = [7; MAX_KEY_BYTES + 1];
    let (_directory, path) = place();
    let db = relaxed("reef", &path);
    let dropped = db.create_table("dropped").unwrap();
    db.drop_table("dropped").unwrap();
    let kinds = |table: &Db| {
        let refused = [table.update(longer, "").map(drop), table.take(longer).map(drop)];
        refused.map(|refused| refused.unwrap_err().kind())
    };
    assert_eq!(kinds(&dropped), [ErrorKind::NoTable; 2]);
    drop(dropped);
    db.close().unwrap();
    assert_eq!(kinds(&Db::open_read_only(&path).unwrap()), [ErrorKind::ReadOnly; 2]);
}

#[test]
fn names_say_what_there_is() {
    // Fails if an absent table were made by opening it, if one name had two tables, or if an error
    // did not name the table.
    let (_directory, path) = place();
    let db = relaxed("walsh", &path);
    assert!(db.tables().unwrap().is_empty() && db.table_name().is_none());
    let error = db.table("birds").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoTable);
    assert!(error.to_string().contains("'birds'"), "{error}");
    assert!(!db.drop_table("birds").unwrap());
    let birds = db.create_table("birds").unwrap();
    assert_eq!(db.create_table("birds").unwrap_err().kind(), ErrorKind::TableExists);
    birds.put("owl", "night").unwrap();
    assert!(db.table_or_create("birds").unwrap().contains_key("owl").unwrap());
    let trees = birds.create_table("trees").unwrap();
    assert_eq!(trees.table_name(), Some("trees"));
    assert_eq!(db.tables().unwrap(), ["birds", "trees"]);
    for wrong in ["", &"n".repeat(256)] {
        assert_eq!(db.create_table(wrong).unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    drop(db.create_table(&"n".repeat(255)).unwrap());
    assert!(matches!(trees.close(), Err(everhash_store::Error::InUse { .. })));
    drop(birds);
    db.close().unwrap();
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.tables().unwrap().len(), 3);
    assert!(db.table("birds").unwrap().contains_key("owl").unwrap());
    assert_eq!(db.create_table("new").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.drop_table("birds").unwrap_err().kind(), ErrorKind::ReadOnly);
    let (_directory, path) = place();
    let words = Db::options().form(Form::WORDS).create(path).unwrap();
    assert_eq!(words.create_table("birds").unwrap_err().kind(), ErrorKind::InvalidOption);
}

/// Returns a copy of the file as a killed process leaves it.
fn killed(path: &Path) -> PathBuf {
    let copy = path.with_extension("killed");
    std::fs::copy(path, &copy).unwrap();
    copy
}

#[test]
fn a_dropped_table_is_gone_at_once_and_its_pairs_by_and_by() {
    // Fails if a dropped table, or its pairs in one of the same name, came back; if removing its
    // pairs took one long step; or if a crash in the middle left them there for ever.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        for name in ["kept", "dropped"] {
            let table = db.create_table(name).unwrap();
            for number in 0..3000u32 {
                table.put(number.to_be_bytes(), name).unwrap();
            }
        }
        maintain(&db);
        let dropped = db.table("dropped").unwrap();
        assert!(db.drop_table("dropped").unwrap());
        for error in [
            dropped.get("key").unwrap_err(),
            dropped.put("key", "value").unwrap_err(),
            dropped.remove("key").unwrap_err(),
            dropped.len().unwrap_err(),
            dropped.iter().next().unwrap().unwrap_err(),
            db.table("dropped").unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NoTable, "{}", engine.name);
        }
        let again = db.create_table("dropped").unwrap();
        assert!(again.is_empty().unwrap());
        again.put("new", "pair").unwrap();
        // In the middle of the round: a part of the pairs is gone.
        let mut images = vec![killed(&path)];
        while db.stats().unwrap().items == 6003 + CATALOGUE {
            assert!(db.maintain().unwrap(), "{}: there is more to do", engine.name);
        }
        let middle = db.stats().unwrap().items;
        assert!(middle > 3003 + CATALOGUE, "{}: all went in one step", engine.name);
        let image = path.with_extension("middle");
        std::fs::copy(&path, &image).unwrap();
        images.push(image);
        maintain(&db);
        assert_eq!(db.stats().unwrap().items, 3003 + CATALOGUE, "{}", engine.name);
        drop((again, dropped));
        db.close().unwrap();
        images.push(path);
        for image in images {
            let options = Db::options().durability(Durability::Process).background(false);
            let db = options.open(&image).unwrap();
            assert_eq!(db.tables().unwrap(), ["dropped", "kept"]);
            maintain(&db);
            assert_eq!(db.stats().unwrap().items, 3003 + CATALOGUE, "{}", engine.name);
            assert_eq!(sorted(&db.table("dropped").unwrap()), [(b"new".into(), b"pair".into())]);
            assert_eq!(db.table("kept").unwrap().len().unwrap(), 3000);
            db.check().unwrap();
        }
    }
}

#[test]
fn a_table_is_dropped_where_nothing_can_be_put() {
    // Fails if dropping a table, by which room is to be made, took room itself.
    for engine in engines() {
        let (_directory, path) = place();
        let options = Db::options().engine(engine.name).durability(Durability::Process);
        let db = options.background(false).capacity_bytes(2 << 20).create(&path).unwrap();
        let (kept, dropped) = (db.create_table("kept").unwrap(), db.create_table("old").unwrap());
        kept.put("key", "value").unwrap();
        // Until not even the shortest pair is taken, wherever its key belongs.
        let mut numbers = 0u64..;
        for value in [&[7; 4096][..], &[7; 256], &[]] {
            let mut refused = 0;
            while refused < 1000 {
                let key = numbers.next().unwrap().to_be_bytes();
                if let Err(error) = dropped.put(key, value) {
                    assert!(error.is_full(), "{}: {error}", engine.name);
                    refused += 1;
                }
            }
        }
        assert!(db.drop_table("old").unwrap(), "{}", engine.name);
        maintain(&db);
        assert_eq!(db.stats().unwrap().items, 2 + CATALOGUE, "{}", engine.name);
        let again = db.create_table("old").unwrap();
        let fits = |number: &u64| again.put(number.to_be_bytes(), vec![7; 256]).is_ok();
        assert!((0..500).all(|number| fits(&number)), "{}", engine.name);
        assert_eq!(kept.len().unwrap(), 1);
        db.check().unwrap();
    }
}

#[test]
fn a_number_is_never_given_twice() {
    // Fails if a table that is made after a crash got the number of one whose pairs are there: the
    // catalogue of the crashed file is taken back to before the second table, as power loss may.
    let (_directory, path) = place();
    let db = relaxed("wophi", &path);
    let numbers = |rounds: u32| {
        for _ in 0..rounds {
            db.create_table("short").unwrap().put("key", "value").unwrap();
            assert!(db.drop_table("short").unwrap());
        }
    };
    numbers(40);
    maintain(&db);
    numbers(1100);
    // Every one of them found itself empty, beside the pairs of those before.
    let last = db.create_table("short").unwrap();
    assert!(last.is_empty().unwrap());
    last.put("key", "value").unwrap();
    let image = killed(&path);
    let db = Db::options().background(false).open(image).unwrap();
    let new = db.create_table("new").unwrap();
    assert!(new.is_empty().unwrap());
    maintain(&db);
    assert!(new.is_empty().unwrap());
    assert_eq!(db.table("short").unwrap().len().unwrap(), 1);
}

#[test]
fn nothing_is_written_into_a_table_after_its_pairs_were_removed() {
    // Fails if a write that found the table alive could land behind the removal: a pair of no
    // table would lie in the file for ever.
    let (_directory, path) = place();
    let db = relaxed("wophi", &path);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let Ok(table) = db.table("target") else { continue };
                    let refused = |error: everhash_store::Error| error.kind();
                    let written = table.put(number.to_be_bytes(), "value").map_err(refused);
                    assert!(matches!(written, Ok(_) | Err(ErrorKind::NoTable)), "{written:?}");
                }
            });
        }
        for _ in 0..200 {
            let table = db.create_table("target").unwrap();
            while table.is_empty().unwrap() {
                std::thread::yield_now();
            }
            assert!(db.drop_table("target").unwrap());
            if db.stats().unwrap().items > 20_000 {
                maintain(&db);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    maintain(&db);
    assert!(db.tables().unwrap().is_empty());
    // An empty page stays, and more of them if there were more tables at a time.
    let left = db.stats().unwrap().items;
    assert!((2..=8).contains(&left), "{left} records");
}

#[test]
fn a_batch_spans_tables() {
    // Fails if a write went to another table than it names, or if a batch were done in part
    // because one of its tables is gone.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let [red, blue] = ["red", "blue"].map(|name| db.create_table(name).unwrap());
        let mut batch = WriteBatch::new();
        batch.put("a", "0").put_in(&red, "a", "1").put_in(&blue, "a", "2").put_in(&red, "b", "3");
        batch.put_in(&db, "c", "4").remove_in(&blue, "absent").remove("absent");
        red.write(&batch).unwrap();
        let pair = |key: &str, value: &str| (key.into(), value.into());
        assert_eq!(sorted(&red), [pair("a", "1"), pair("b", "3")], "{}", engine.name);
        assert_eq!(sorted(&blue), [pair("a", "2")]);
        assert_eq!(sorted(&db), [pair("c", "4")]);
        db.drop_table("blue").unwrap();
        let error = db.write(&batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoTable);
        assert!(!db.contains_key("a").unwrap());
        let (_other_directory, other) = place();
        let other = relaxed(engine.name, &other);
        batch.clear();
        batch.put_in(&red, "a", "9");
        assert_eq!(other.write(&batch).unwrap_err().kind(), ErrorKind::NoTable);
    }
}

#[test]
fn a_table_has_types() {
    // Fails if integers, which are words in a database of their own, could not lie in a table.
    let (_directory, path) = place();
    let db = relaxed("walsh", &path);
    let squares: Table<u64, u64> = Table::of(db.create_table("squares").unwrap()).unwrap();
    let names: Table<u32, String> = Table::of(db.create_table("names").unwrap()).unwrap();
    squares.put(&7, &49).unwrap();
    names.put(&7, &"seven".to_owned()).unwrap();
    assert_eq!(squares.get_many(&[7, 8]).unwrap(), [Some(49), None]);
    assert_eq!(squares.fetch_update(&7, |v| v.map(|v| v + 1)).unwrap(), Some(49));
    assert_eq!(squares.iter().map(Result::unwrap).collect::<Vec<_>>(), [(7, 50)]);
    assert_eq!(names.get(&7).unwrap().as_deref(), Some("seven"));
    assert!(Table::<u64, u64>::of(db).is_err(), "the default table has its own form");
}

#[test]
fn copies_have_the_tables_and_not_the_dropped_ones() {
    // Fails if a backup or a compacted file lost a table, counted its records as pairs, or took
    // the pairs of dropped tables along.
    let (directory, path) = place();
    let db = relaxed("walsh", &path);
    for name in ["kept", "dropped"] {
        let table = db.create_table(name).unwrap();
        let pairs: Vec<_> = (0..500u32).map(|n| (n.to_be_bytes(), [1; 50])).collect();
        table.put_many(&pairs).unwrap();
    }
    db.put("default", "pair").unwrap();
    db.drop_table("dropped").unwrap();
    let copy = directory.path().join("copy.ehdb");
    assert_eq!(db.backup(&copy, &Db::options()).unwrap(), 501);
    let looks_right = |db: &Db| {
        assert_eq!(db.tables().unwrap(), ["kept"]);
        assert_eq!(db.stats().unwrap().items, 502 + CATALOGUE);
        assert_eq!(db.table("kept").unwrap().len().unwrap(), 500);
        assert_eq!(sorted(db), [(b"default".into(), b"pair".into())]);
    };
    looks_right(&Db::options().background(false).open(&copy).unwrap());
    let db = db.compact().unwrap();
    looks_right(&db);
    let db = db.truncate().unwrap();
    assert!(db.tables().unwrap().is_empty() && db.is_empty().unwrap());
    assert!(db.create_table("kept").unwrap().is_empty().unwrap());
}

#[test]
fn a_table_made_beside_a_clear_is_there_after_the_next_open() {
    // Fails if a clear that began when there was no table removed the record of one that another
    // thread makes meanwhile.
    let (directory, _) = place();
    for round in 0..200 {
        let path = directory.path().join(format!("{round}.ehdb"));
        let db = relaxed("wophi", &path);
        db.put("key", "value").unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                db.clear().unwrap();
            });
            barrier.wait();
            db.create_table("red").unwrap().put("key", "value").unwrap();
        });
        assert!(db.is_empty().unwrap());
        db.close().unwrap();
        let options = Db::options().durability(Durability::Process).background(false);
        let db = options.open(&path).unwrap();
        assert_eq!(db.tables().unwrap(), ["red"], "round {round}");
        assert_eq!(db.table("red").unwrap().len().unwrap(), 1, "round {round}");
        drop(db);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn words_that_begin_like_a_prefix_are_words_like_others() {
    // Fails if a database of one length, which has no tables, hid pairs as those of a table.
    let keys = [0u8, 1, 16].map(|number| [0xff, 0xeb, 0x7a, 0, 0, 0, 0, number]);
    for engine in engines().iter().filter(|engine| engine.capabilities.holds(Form::WORDS)) {
        let (directory, path) = place();
        let [backup, salvaged] = ["backup", "salvaged"].map(|name| directory.path().join(name));
        let options = Db::options().engine(engine.name).form(Form::WORDS);
        let db = options.durability(Durability::Process).create(&path).unwrap();
        for key in keys {
            assert!(!db.put(key, key).unwrap(), "{}", engine.name);
        }
        assert_eq!((db.len().unwrap(), db.iter().count()), (3, 3), "{}", engine.name);
        assert_eq!(db.snapshot().unwrap().iter().count(), 3);
        assert_eq!(db.backup(&backup, &Db::options()).unwrap(), 3, "{}", engine.name);
        db.close().unwrap();
        let found = Db::salvage(&path, &salvaged, &Db::options()).unwrap();
        assert_eq!(found.items, 3, "{}", engine.name);
        for copy in [&backup, &salvaged] {
            let db = Db::open(copy).unwrap();
            for key in keys {
                assert_eq!(db.get(key).unwrap().unwrap(), key, "{}", engine.name);
            }
            assert_eq!(db.retain(|key, _| key[7] != 1).unwrap(), 1);
            assert_eq!(db.len().unwrap(), 2);
        }
    }
}

#[test]
fn a_batch_that_was_cleared_names_no_table() {
    // Fails if a batch that is used again were refused because of a table of its former life.
    let (_directory, path) = place();
    let db = relaxed("wophi", &path);
    let red = db.create_table("red").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&red, "a", "1");
    db.write(&batch).unwrap();
    batch.clear();
    assert!(db.drop_table("red").unwrap());
    batch.put("a", "2");
    db.write(&batch).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"2");
}

#[test]
fn what_is_admitted_is_what_can_be_put() {
    // Fails if an import made a database for a pair that it then refuses, or refused one that there
    // is room for: keys that begin like the prefix of a table get one of their own.
    let (_directory, path) = place();
    let db = relaxed("wophi", &path);
    let table = db.create_table("table").unwrap();
    let ending = db.expiring_table_or_create("ending").unwrap();
    for begin in [[0xff, 0xeb, 0x7a], [7; 3]] {
        for length in MAX_KEY_BYTES - 9..=MAX_KEY_BYTES + 1 {
            let key = [&begin[..], &vec![1; length - 3]].concat();
            let admitted = admit(Form::Variable, &key, b"value").is_ok();
            assert_eq!(admitted, db.put(&key, "value").is_ok(), "{begin:?} {length}");
            let admitted = admit_in_table(&key, b"value", false).is_ok();
            assert_eq!(admitted, table.put(&key, "value").is_ok(), "{length}");
        }
    }
    for length in [MAX_VALUE_BYTES - 8, MAX_VALUE_BYTES - 7, MAX_VALUE_BYTES, MAX_VALUE_BYTES + 1] {
        let value = vec![1; length];
        let admitted = admit(Form::Variable, b"key", &value).is_ok();
        assert_eq!(admitted, db.put("key", &value).is_ok(), "{length}");
        let admitted = admit_in_table(b"key", &value, true).is_ok();
        assert_eq!(admitted, ending.put("key", &value, Expiry::Never).is_ok(), "{length}");
        let admitted = admit_in_table(b"key", &value, false).is_ok();
        assert_eq!(admitted, table.put("key", &value).is_ok(), "{length}");
    }
}

#[test]
fn a_key_of_another_form_is_refused_for_its_form() {
    // Fails if an import into a database of words were told that a key is too long, and by how
    // much, because it begins like the prefix of a table: those have none.
    let (_directory, path) = place();
    let db = Db::options().form(Form::WORDS).create(path).unwrap();
    let key = [&[0xff, 0xeb, 0x7a][..], &[1; MAX_KEY_BYTES]].concat();
    let refused = admit(Form::WORDS, &key, b"12345678").unwrap_err();
    assert_eq!(refused.to_string(), db.put(&key, "12345678").unwrap_err().to_string());
}

#[test]
fn a_batch_by_the_handle_of_a_dropped_table_is_refused() {
    // Fails if only the tables that a batch names are looked at: its pairs would lie in the file
    // for ever, and be those of no table.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let table = db.create_table("table").unwrap();
        table.put("key", "value").unwrap();
        let mut batch = WriteBatch::new();
        batch.put("a", "1").remove("key");
        db.drop_table("table").unwrap();
        maintain(&db);
        assert_eq!(table.write(&batch).unwrap_err().kind(), ErrorKind::NoTable, "{}", engine.name);
        assert_eq!(db.stats().unwrap().items, CATALOGUE, "{}", engine.name);
    }
}

#[test]
fn the_first_table_is_no_pair_of_the_default_table_at_any_moment() {
    // Fails if the catalogue's record were counted before it is known that there is a catalogue.
    for _ in 0..20 {
        let (_directory, path) = place();
        let db = relaxed("wophi", &path);
        let is_made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_made.load(Ordering::Relaxed) {
                    assert!(db.is_empty().unwrap());
                    assert_eq!(db.len().unwrap(), 0);
                }
            });
            let made = db.create_table("table");
            is_made.store(true, Ordering::Relaxed);
            made.unwrap();
        });
    }
}

#[test]
fn a_scan_beside_the_drop_of_its_table_says_so() {
    // Fails if what was seen until then were taken for the whole table.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let table = db.create_table("table").unwrap();
        for number in 0..5000u32 {
            table.put(number.to_be_bytes(), "value").unwrap();
        }
        let mut seen = 0;
        let scanned = table.scan(|_, _| {
            seen += 1;
            if seen == 1 {
                std::thread::scope(|scope| scope.spawn(|| db.drop_table("table")).join().unwrap())
                    .unwrap();
            }
        });
        assert_eq!(scanned.unwrap_err().kind(), ErrorKind::NoTable, "{}", engine.name);
    }
}

#[test]
fn many_pairs_of_which_one_is_refused_change_nothing() {
    // Fails if those before it were stored: the error says that nothing was.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name, &path);
        let long = vec![1; MAX_VALUE_BYTES + 1];
        let pairs = [("a", &b"1"[..]), ("b", &long)];
        db.put_many(&pairs).unwrap_err();
        db.put_many_if_absent(&pairs).unwrap_err();
        let mut batch = WriteBatch::new();
        batch.put("a", "1").put("b", &long);
        assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::InvalidPair, "{}", engine.name);
        assert_eq!(db.len().unwrap(), 0, "{}", engine.name);
    }
}
