//! The operations, alone and from many threads at once.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::sync::atomic::{AtomicBool, Ordering};

use everhash_store::{Change, Db, Durability, Error, Form, Swap};

fn relaxed() -> (tempfile::TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().durability(Durability::Process);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    (directory, db)
}

#[test]
fn every_operation_means_what_it_says() {
    let (_directory, db) = relaxed();
    assert!(db.is_empty().unwrap());
    assert!(db.insert(b"a", b"1").unwrap() && !db.insert(b"a", b"2").unwrap());
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(db.update(b"a", b"2").unwrap() && !db.update(b"b", b"2").unwrap());
    assert!(db.put(b"a", b"3").unwrap() && !db.put(b"b", b"").unwrap());
    assert!(db.contains(b"b").unwrap() && !db.contains(b"c").unwrap());
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b""[..]));
    let keys = [&b"a"[..], b"c", b"b", b"a"];
    let values = [Some(b"3".to_vec()), None, Some(vec![]), Some(b"3".to_vec())];
    assert_eq!(db.get_many(&keys).unwrap(), values);
    assert_eq!(db.put_many(&[("c", "1"), ("a", "4"), ("c", "2")]).unwrap(), 1);
    assert_eq!(db.get(b"c").unwrap().as_deref(), Some(&b"2"[..]));
    db.modify(b"c", |_| Change::Remove).unwrap();
    db.modify(b"a", |_| Change::Keep).unwrap();
    let mut value = b"old contents".to_vec();
    assert!(!db.get_into(b"c", &mut value).unwrap());
    assert!(db.get_into(b"a", &mut value).unwrap());
    assert_eq!(value, b"4");
    assert_eq!(db.fetch_update(b"a", |_| None).unwrap(), Some(b"4".to_vec()));
    assert_eq!(db.len().unwrap(), 1);
    assert!(db.remove(b"b").unwrap() && !db.remove(b"b").unwrap());
    db.put(b"d", b"4").unwrap();
    db.clear().unwrap();
    assert!(db.is_empty().unwrap());
    assert!(db.words().is_none());
}

#[test]
fn a_swap_happens_only_from_the_expected_value() {
    // Fails if "absent" and "empty" were taken for one another.
    let (_directory, db) = relaxed();
    let (one, two) = (Some(&b"1"[..]), Some(&b"2"[..]));
    assert_eq!(db.compare_and_swap(b"k", Some(b""), one).unwrap(), Swap::Differs(None));
    assert_eq!(db.compare_and_swap(b"k", None, one).unwrap(), Swap::Done);
    assert_eq!(db.compare_and_swap(b"k", None, two).unwrap(), Swap::Differs(Some(b"1".to_vec())));
    assert_eq!(db.compare_and_swap(b"k", one, two).unwrap(), Swap::Done);
    assert_eq!(db.compare_and_swap(b"k", two, None).unwrap(), Swap::Done);
    assert!(!db.contains(b"k").unwrap());
}

#[test]
fn words_are_the_same_pairs_in_little_endian_order() {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().form(Form::WORDS).durability(Durability::Process);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let words = db.words().unwrap();
    assert!(words.insert(1, 10).unwrap() && !words.insert(1, 11).unwrap());
    assert!(words.update(1, 12).unwrap() && words.put(1, 0x0102).unwrap());
    assert_eq!(db.get(&1u64.to_le_bytes()).unwrap().unwrap(), [2, 1, 0, 0, 0, 0, 0, 0]);
    let mut values = [None; 2];
    words.get_many(&[2, 1], &mut values).unwrap();
    assert_eq!(values, [None, Some(0x0102)]);
    assert!(words.remove(1).unwrap() && words.get(1).unwrap().is_none());
    assert!(matches!(db.put(b"short", b"12345678"), Err(Error::Pair(_))));
}

#[test]
fn p15_no_message_shows_a_key_or_a_value() {
    // Fails if an error or a debug text carried what its users want to keep to themselves.
    let (_directory, db) = relaxed();
    let long = "secret".repeat(20_000);
    db.put(b"secret-key", b"secret-value").unwrap();
    let swap = db.compare_and_swap(b"secret-key", None, None).unwrap();
    for text in [
        db.put(long.as_bytes(), b"").unwrap_err().to_string(),
        format!("{:?}", db.put(long.as_bytes(), b"").unwrap_err()),
        format!("{db:?} {:?} {swap:?} {:?}", db.iter(), db.info()),
    ] {
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn counters_from_many_threads_add_up() {
    // Fails if two threads could read and change one key at the same time.
    let (_directory, db) = relaxed();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let db = db.clone();
            scope.spawn(move || {
                for number in 0..4000u32 {
                    let key = (number % 7).to_be_bytes();
                    db.fetch_update(&key, |value| {
                        let count = value.map_or(0, |value| value[0].into());
                        let high = value.map_or(0, |value| u32::from(value[1]));
                        let next: u32 = count + (high << 8) + 1;
                        Some(next.to_le_bytes().to_vec())
                    })
                    .unwrap();
                }
            });
        }
    });
    let sum: u32 =
        db.iter().map(|pair| u32::from_le_bytes(pair.unwrap().1.try_into().unwrap())).sum();
    assert_eq!(sum, 16_000);
    assert_eq!(db.check().unwrap().items, 7);
}

#[test]
fn a_backup_is_of_one_moment() {
    // Fails if the copy were made beside writes: a later key could then be in it without an
    // earlier one, because a scan comes by keys in no order.
    let (directory, db) = relaxed();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = db.clone();
        let stop = &stop;
        scope.spawn(move || {
            for number in 0..1_000_000u32 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                writer.put(&number.to_be_bytes(), &number.to_be_bytes()).unwrap();
            }
        });
        for round in 0..5 {
            let copy = directory.path().join(format!("copy{round}.ehdb"));
            while db.len().unwrap() < (round + 1) * 2000 {
                std::thread::yield_now();
            }
            let count = db.backup(&copy, &Db::options()).unwrap();
            let copied = Db::open_read_only(&copy).unwrap();
            assert_eq!(copied.check().unwrap().items, count);
            assert!(count >= (round + 1) * 2000);
            for number in 0..count as u32 {
                let value = copied.get(&number.to_be_bytes()).unwrap();
                assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]), "of {count}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_backup_never_replaces_a_file() {
    let (directory, db) = relaxed();
    db.put(b"key", b"value").unwrap();
    let copy = directory.path().join("copy.ehdb");
    std::fs::write(&copy, b"precious").unwrap();
    assert!(matches!(db.backup(&copy, &Db::options()), Err(Error::AlreadyExists { .. })));
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");
    assert!(matches!(db.backup(db.path(), &Db::options()), Err(Error::AlreadyExists { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn checks_and_scans_run_beside_writes() {
    // Fails if a check saw a write that is half done, or a scan missed a key that was there
    // throughout. The keys that come and go are bounded: else whoever checks more slowly would
    // have more to check.
    const COMING: u32 = 3000;
    let (_directory, db) = relaxed();
    for number in 0..500u32 {
        db.put(&number.to_be_bytes(), b"stays").unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (db, stop) = (db.clone(), &stop);
            scope.spawn(move || {
                let first = 1000 + thread * 1_000_000;
                for number in (first..first + COMING).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    db.put(&number.to_be_bytes(), b"comes").unwrap();
                    db.remove(&(number - number % 3).to_be_bytes()).unwrap();
                }
            });
        }
        for _ in 0..10 {
            db.check().unwrap();
            let mut seen = [false; 500];
            db.scan(|key, _| {
                let number = u32::from_be_bytes(key.try_into().unwrap()) as usize;
                if let Some(seen) = seen.get_mut(number) {
                    *seen = true;
                }
            })
            .unwrap();
            assert!(seen.iter().all(|seen| *seen));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_database_can_be_shared_and_sent() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Db>();
}
