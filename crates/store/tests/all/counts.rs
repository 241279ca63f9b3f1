//! How many pairs a table has: kept, and right whatever happens.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::place;
use everhash_store::{Change, Db, Durability, ErrorKind, Expiry, Options, Swap, WriteBatch};
use everhash_store::{MAX_KEY_BYTES, engines};

fn options(engine: &str) -> Options {
    Db::options().engine(engine).durability(Durability::Process).background(false)
}

/// Numbers that look random, always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % below
    }
}

/// The tables that the test below writes; `None` is the default one.
const NAMES: [Option<&str>; 3] = [None, Some("red"), Some("blue")];

/// What each of them has.
type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 3];

fn at(db: &Db, table: usize) -> Db {
    NAMES[table].map_or_else(|| db.clone(), |name| db.table(name).unwrap())
}

/// Keys of which some begin like the prefix of a table.
fn key(numbers: &mut Numbers) -> Vec<u8> {
    let number = numbers.next(60) as u8;
    if number < 8 { vec![0xff, 0xeb, 0x7a, number] } else { vec![number] }
}

/// Does a write of some kind, and the same to the model.
fn write(file: &Db, model: &mut Model, numbers: &mut Numbers) {
    let table = numbers.next(3) as usize;
    let (db, own, key) = (at(file, table), &mut model[table], key(numbers));
    let value = vec![numbers.next(3) as u8];
    match numbers.next(16) {
        0 | 1 => assert_eq!(db.put(&key, &value).unwrap(), own.insert(key, value).is_some()),
        2 => {
            assert_eq!(db.put_if_absent(&key, &value).unwrap(), !own.contains_key(&key));
            own.entry(key).or_insert(value);
        }
        3 => {
            let is_there = db.update(&key, &value).unwrap();
            assert_eq!(is_there, own.get_mut(&key).map(|old| *old = value).is_some());
        }
        4 => assert_eq!(db.replace(&key, &value).unwrap(), own.insert(key, value)),
        5 | 6 => assert_eq!(db.remove(&key).unwrap(), own.remove(&key).is_some()),
        7 => assert_eq!(db.take(&key).unwrap(), own.remove(&key)),
        8 => {
            let swap = db.compare_and_swap(&key, own.get(&key).map(Vec::as_slice), None).unwrap();
            assert_eq!(swap, Swap::Done);
            own.remove(&key);
        }
        9 => {
            let panic = || db.modify(&key, |_| std::panic::resume_unwind(Box::new("mine")));
            let panic = std::panic::AssertUnwindSafe(panic);
            let _: Result<everhash_store::Result<()>, _> = std::panic::catch_unwind(panic);
            db.modify(&key, |_| (Change::Keep, ())).unwrap();
        }
        10 => {
            let pairs: Vec<_> = (0..9).map(|_| (self::key(numbers), value.clone())).collect();
            db.put_many(&pairs).unwrap();
            own.extend(pairs);
        }
        11 => {
            let pairs: Vec<_> = (0..9).map(|_| (self::key(numbers), value.clone())).collect();
            db.put_many_if_absent(&pairs).unwrap();
            for (key, value) in pairs {
                own.entry(key).or_insert(value);
            }
        }
        12 => {
            let keys: Vec<_> = (0..9).map(|_| self::key(numbers)).collect();
            db.remove_many(&keys).unwrap();
            keys.iter().for_each(|key| drop(own.remove(key)));
        }
        13 => {
            db.retain(|key, _| key.last() != Some(&3)).unwrap();
            own.retain(|key, _| key.last() != Some(&3));
        }
        14 if numbers.next(8) == 0 => {
            db.clear().unwrap();
            own.clear();
        }
        _ => batch(file, table, model, numbers),
    }
}

/// Writes a batch over several tables, one of which has expiry times.
fn batch(db: &Db, own: usize, model: &mut Model, numbers: &mut Numbers) {
    let sessions = db.expiring_table_or_create("sessions").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_expiring_in(&sessions, "key", "value", Expiry::Never).unwrap();
    for _ in 0..numbers.next(12) {
        let (key, value) = (key(numbers), vec![numbers.next(3) as u8]);
        // The fourth is the table of the handle.
        let target = numbers.next(4) as usize;
        let pairs = &mut model[if target == 3 { own } else { target }];
        let named = (target < 3).then(|| at(db, target));
        if numbers.next(3) == 0 {
            match &named {
                Some(table) => batch.remove_in(table, &key),
                None => batch.remove(&key),
            };
            pairs.remove(&key);
        } else {
            match &named {
                Some(table) => batch.put_in(table, &key, &value),
                None => batch.put(&key, &value),
            };
            pairs.insert(key, value);
        }
    }
    at(db, own).write(&batch).unwrap();
}

fn same(db: &Db, model: &Model) {
    for (table, own) in model.iter().enumerate() {
        let (engine, table) = (db.info().engine.name, at(db, table));
        assert_eq!(table.len().unwrap(), own.len() as u64, "{engine}, {:?}", table.table_name());
        assert_eq!(table.is_empty().unwrap(), own.is_empty());
    }
}

#[test]
fn every_engine_counts_the_pairs_of_each_table_through_all_writes() {
    // Fails if one kind of write did not count what it added and removed, or counted it for
    // another table; and if a close, a killed process or a table that is dropped and made again
    // left a wrong number.
    for engine in engines() {
        let (_directory, path) = place();
        let mut db = options(engine.name).create(&path).unwrap();
        let (mut model, mut numbers) = (Model::default(), Numbers(7));
        for round in 0..12 {
            db.table_or_create("red").unwrap();
            db.table_or_create("blue").unwrap();
            for step in 0..60 {
                write(&db, &mut model, &mut numbers);
                // Not always: then the first one has to count.
                if step % 7 == 3 && round % 3 < 2 {
                    same(&db, &model);
                }
            }
            same(&db, &model);
            match round % 4 {
                0 => assert!(db.drop_table("blue").unwrap()),
                1 => {
                    db.close().unwrap();
                    db = options(engine.name).open(&path).unwrap();
                    continue;
                }
                2 => {
                    let image = path.with_extension("killed");
                    std::fs::copy(&path, &image).unwrap();
                    drop(db);
                    std::fs::rename(image, &path).unwrap();
                    db = options(engine.name).open(&path).unwrap();
                    continue;
                }
                _ => while db.maintain().unwrap() {},
            }
            if round % 4 == 0 {
                model[2].clear();
            }
        }
        assert_eq!(db.expiring_table("sessions").unwrap().len().unwrap(), 1);
    }
}

#[test]
fn the_pairs_are_read_once_and_never_again() {
    // Fails if a count were taken anew although nothing is in doubt, or if each table had to be
    // counted by itself.
    let (_directory, path) = place();
    let db = options("reef").count_calls(true).create(&path).unwrap();
    let tables = ["red", "blue"].map(|name| db.create_table(name).unwrap());
    for table in &tables {
        let pairs: Vec<_> = (0..5000u32).map(|number| (number.to_be_bytes(), "value")).collect();
        table.put_many(&pairs).unwrap();
    }
    let reads = |run: &dyn Fn()| {
        let before = db.metrics().calls.unwrap().read.count();
        run();
        db.metrics().calls.unwrap().read.count() - before
    };
    let first = reads(&|| assert_eq!(tables[0].len().unwrap(), 5000));
    assert!(first > 20, "{first} reads count them");
    let later = reads(&|| {
        assert_eq!((tables[0].len().unwrap(), db.len().unwrap()), (5000, 0));
        assert_eq!(tables[1].len().unwrap(), 5000);
        assert!(!tables[1].is_empty().unwrap());
    });
    assert_eq!(later, 4);
    let new = db.create_table("new").unwrap();
    new.put("key", "value").unwrap();
    assert_eq!(reads(&|| assert_eq!(new.len().unwrap(), 1)), 1);
    db.drop_table("new").unwrap();
    assert_eq!(new.len().unwrap_err().kind(), ErrorKind::NoTable);
    let again = db.create_table("new").unwrap();
    assert_eq!(reads(&|| assert_eq!(again.len().unwrap(), 0)), 1);
}

#[test]
fn a_write_that_fails_leaves_no_wrong_count() {
    // Fails if a batch of which a part was written before it failed were not counted.
    for engine in engines() {
        let (_directory, path) = place();
        let db = options(engine.name).capacity_bytes(4 << 20).create(&path).unwrap();
        let table = db.create_table("red").unwrap();
        table.put("first", "value").unwrap();
        assert_eq!(table.len().unwrap(), 1);
        let too_long = vec![7; MAX_KEY_BYTES + 1];
        let pairs = [(b"second".to_vec(), b"value"), (too_long.clone(), b"value")];
        assert_eq!(table.put_many(&pairs).unwrap_err().kind(), ErrorKind::InvalidPair);
        assert!(table.put(&too_long, "value").is_err() && !table.remove(&too_long).unwrap());
        let value = vec![7; 1000];
        let mut error = None;
        for number in (0..20_000u32).step_by(10) {
            let pairs: Vec<_> = (number..number + 10).map(|n| (n.to_be_bytes(), &value)).collect();
            if let Err(full) = table.put_many(&pairs) {
                error = Some(full);
                break;
            }
        }
        assert!(error.is_some(), "{}: the file is full at some time", engine.name);
        let pairs =
            table.iter().map(|pair| pair.unwrap().0).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(table.len().unwrap(), pairs.len() as u64, "{}", engine.name);
    }
}

#[test]
fn a_count_beside_writers_is_between_what_was_there_and_what_will_be() {
    // Fails if the first count missed a pair that was put beside it or counted it twice; with a
    // snapshot that has room for nothing, too.
    for (engine, snapshot_bytes) in [("reef", 64 << 20), ("walsh", 64 << 20), ("reef", 100)] {
        let (_directory, path) = place();
        let db = options(engine).snapshot_bytes(snapshot_bytes).create(&path).unwrap();
        let table = db.create_table("red").unwrap();
        for number in 0..3000u32 {
            table.put(number.to_le_bytes(), "before").unwrap();
        }
        let [begun, ended] = [3000, 3000].map(AtomicU64::new);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 1..=2u32 {
                let (table, begun, ended, stop) = (&table, &begun, &ended, &stop);
                scope.spawn(move || {
                    // An end, so that a slow look through the file catches up.
                    for number in (0..5000u32).take_while(|_| !stop.load(Ordering::SeqCst)) {
                        begun.fetch_add(1, Ordering::SeqCst);
                        table.put([number, thread].map(u32::to_le_bytes).concat(), "new").unwrap();
                        ended.fetch_add(1, Ordering::SeqCst);
                        // Something that the snapshot has to keep, and that changes no count.
                        table.put((number % 3000).to_le_bytes(), "again").unwrap();
                    }
                });
            }
            for _ in 0..30 {
                let before = ended.load(Ordering::SeqCst);
                let len = table.len().unwrap();
                let after = begun.load(Ordering::SeqCst);
                // What is read pair by pair may miss one that is put meanwhile, and only those.
                assert!((before..=after).contains(&len), "{engine}: {before}, {len}, {after}");
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert_eq!(table.len().unwrap(), ended.into_inner(), "{engine}");
    }
}
