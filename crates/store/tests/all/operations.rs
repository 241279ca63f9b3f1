//! The operations, alone and from many threads at once.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::sync::atomic::{AtomicBool, Ordering};

use std::ops::ControlFlow;

use everhash_store::{Change, Cursor, Db, Durability, Error, ErrorKind, Form, Swap, WriteBatch};

fn relaxed() -> (tempfile::TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().durability(Durability::Process);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    (directory, db)
}

#[test]
fn every_operation_means_what_it_says() {
    // Fails if an operation stored, answered or refused something else than its name says.
    let (_directory, db) = relaxed();
    assert!(db.is_empty().unwrap());
    assert!(db.put_if_absent(b"a", b"1").unwrap() && !db.put_if_absent(b"a", b"2").unwrap());
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(db.update(b"a", b"2").unwrap() && !db.update(b"b", b"2").unwrap());
    assert!(db.put(b"a", b"3").unwrap() && !db.put(b"b", b"").unwrap());
    assert!(db.contains_key(b"b").unwrap() && !db.contains_key(b"c").unwrap());
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b""[..]));
    let keys = [&b"a"[..], b"c", b"b", b"a"];
    let values = [Some(b"3".to_vec()), None, Some(vec![]), Some(b"3".to_vec())];
    assert_eq!(db.get_many(&keys).unwrap(), values);
    assert_eq!(db.put_many(&[("c", "1"), ("a", "4"), ("c", "2")]).unwrap(), 1);
    assert_eq!(db.get(b"c").unwrap().as_deref(), Some(&b"2"[..]));
    db.modify(b"c", |_| (Change::Remove, ())).unwrap();
    db.modify(b"a", |_| (Change::Keep, ())).unwrap();
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
fn many_values_are_lent_in_the_order_of_their_keys() {
    // Fails if a value is lent for another key than its own, more or less often than once, or out
    // of order; or if the database cannot be used while one is.
    let (_directory, db) = relaxed();
    for table in [db.clone(), db.table_or_create("numbers").unwrap()] {
        let value = |key: u32| vec![key as u8; key as usize % 300];
        let stays = |key: u32| !key.is_multiple_of(3);
        for key in (0..200u32).filter(|key| stays(*key)) {
            table.put(key.to_le_bytes(), value(key)).unwrap();
        }
        let keys: Vec<u32> = (0..100).map(|place| place * 37 % 150).collect();
        let stored: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
        let mut lent = Vec::new();
        let read = |place, found: Option<&[u8]>| {
            let key: u32 = keys[place];
            assert_eq!(found.map(<[u8]>::to_vec), stays(key).then(|| value(key)));
            table.put(key.to_le_bytes(), "changed").unwrap();
            let nested = |_, now: Option<&[u8]>| assert_eq!(now.unwrap(), b"changed");
            table.get_many_with(&[key.to_le_bytes()], nested).unwrap();
            assert_eq!(found.map(<[u8]>::to_vec), stays(key).then(|| value(key)));
            table.put(key.to_le_bytes(), value(key)).unwrap();
            if !stays(key) {
                table.remove(key.to_le_bytes()).unwrap();
            }
            lent.push(place);
        };
        table.get_many_with(&stored, read).unwrap();
        assert_eq!(lent, Vec::from_iter(0..100));
        table.get_many_with::<&str>(&[], |_, _| panic!("no key")).unwrap();
    }
}

#[test]
fn a_value_can_be_read_in_part_and_taken() {
    // Fails if a bound of a range is off by one, or if the buffer that a thread keeps shows what an
    // earlier value left there.
    let (_directory, db) = relaxed();
    db.put("long", "0123456789").unwrap();
    db.put("empty", "").unwrap();
    let part = |range| db.get_range("long", range).unwrap().unwrap();
    assert_eq!(part(2..5), b"234");
    assert_eq!(part(8..50), b"89");
    assert_eq!(part(20..50), b"");
    assert_eq!(db.get_range("long", 3..=4).unwrap().unwrap(), b"34");
    let behind = (std::ops::Bound::Excluded(2), std::ops::Bound::Unbounded);
    assert_eq!(db.get_range("long", behind).unwrap().unwrap(), b"3456789");
    assert_eq!(db.get_range("long", ..).unwrap().unwrap(), b"0123456789");
    assert_eq!(db.get_range("long", 8..=usize::MAX).unwrap().unwrap(), b"89");
    assert_eq!(db.get_range("empty", 0..1).unwrap(), Some(vec![]));
    assert_eq!(db.get_range("absent", ..).unwrap(), None);
    assert_eq!(db.size_of("long").unwrap(), Some(10));
    assert_eq!(db.size_of("empty").unwrap(), Some(0));
    assert_eq!(db.size_of("absent").unwrap(), None);
    // The buffer is the thread's: what reads may read again.
    let nested = db.get_with("long", |outer| {
        let inner = db.get_with("empty", |inner| inner.map(<[u8]>::len)).unwrap();
        (outer.map(<[u8]>::len), inner)
    });
    assert_eq!(nested.unwrap(), (Some(10), Some(0)));
    assert_eq!(db.replace("long", "new").unwrap().as_deref(), Some(&b"0123456789"[..]));
    assert_eq!(db.replace("fresh", "1").unwrap(), None);
    assert_eq!(db.take("long").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.take("long").unwrap(), None);
    assert_eq!(db.len().unwrap(), 2);
}

#[test]
fn a_change_that_fails_changes_nothing() {
    // Fails if a closure that returns an error changed or removed the pair.
    let (_directory, db) = relaxed();
    db.put("count", "7").unwrap();
    let refused = db.try_modify("count", |value| {
        assert_eq!(value, Some(&b"7"[..]));
        Err::<(Change, ()), _>("too many")
    });
    assert_eq!(refused.unwrap(), Err("too many"));
    assert_eq!(db.get("count").unwrap().unwrap(), b"7");
    let raised = db.try_modify("count", |_| Ok::<_, ()>((Change::Put(b"8".to_vec()), 8)));
    assert_eq!(raised.unwrap(), Ok(8));
    assert_eq!(db.get("count").unwrap().unwrap(), b"8");
}

#[test]
fn a_batch_does_its_writes_in_their_order() {
    // Fails if removals were done before or behind all puts, or if a key got another's value.
    let (_directory, db) = relaxed();
    db.put("old", "0").unwrap();
    let mut batch = WriteBatch::new();
    batch.remove("old").put("a", "1").remove("a").put("a", "2").put("", "none").put("b", "");
    batch.remove("b").remove("absent").put("old", "3");
    assert_eq!(batch.len(), 9);
    db.write(&batch).unwrap();
    let values = [Some(b"2".to_vec()), Some(b"none".to_vec()), None, Some(b"3".to_vec())];
    assert_eq!(db.get_many(&["a", "", "b", "old"]).unwrap(), values);
    batch.clear();
    assert!(batch.is_empty());
    db.write(&batch).unwrap();
    assert_eq!(db.remove_many(&["a", "b", "a", "old"]).unwrap(), 2);
    assert_eq!(db.len().unwrap(), 1);
}

#[test]
fn a_batch_of_reef_is_done_as_a_whole() {
    // Fails if a batch whose last write is refused leaves the writes before it, or if one that was
    // done is not there as a whole after the process ended.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::options().engine("reef").durability(Durability::Process).create(&path).unwrap();
    db.put("old", "0").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").remove("old").put("b", "2").put("a", "3");
    let mut refused = batch.clone();
    refused.put(vec![0; 1 << 20], "longer than any key");
    assert!(db.write(&refused).is_err());
    assert!(db.len().unwrap() == 1 && db.contains_key("old").unwrap());
    db.write(&batch).unwrap();
    drop(db);
    let db = Db::open(&path).unwrap();
    let values = [Some(b"3".to_vec()), Some(b"2".to_vec()), None];
    assert_eq!(db.get_many(&["a", "b", "old"]).unwrap(), values);
}

#[test]
fn a_scan_goes_on_where_it_broke_and_misses_nothing() {
    // Fails if the pairs of the group in which a scan breaks are lost.
    let (_directory, db) = relaxed();
    for number in 0..2000u32 {
        db.put(number.to_be_bytes(), "value").unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    let (mut next, mut calls) = (Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        calls += 1;
        assert!(calls < 10_000, "the scan does not advance");
        let mut fresh = 0;
        next = db
            .scan_from(cursor, |key, _| {
                fresh += u32::from(seen.insert(key.to_vec()));
                if fresh == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
    }
    assert_eq!(seen.len(), 2000);
    assert!(calls > 10, "no scan broke");
    assert_eq!(db.keys().map(Result::unwrap).collect::<std::collections::BTreeSet<_>>(), seen);
    assert_eq!(db.into_pairs().count(), 2000);
}

#[test]
fn retain_keeps_what_it_is_told_to() {
    // Fails if a pair were kept or removed against the answer, or counted wrongly.
    let (_directory, db) = relaxed();
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), number.to_le_bytes()).unwrap();
    }
    let is_even = |_: &[u8], value: &[u8]| value[0].is_multiple_of(2);
    assert_eq!(db.retain(is_even).unwrap(), 500);
    assert_eq!(db.retain(is_even).unwrap(), 0);
    assert_eq!(db.check().unwrap().items, 500);
    assert!(db.iter().all(|pair| pair.unwrap().1[0] % 2 == 0));
}

#[test]
fn an_error_has_a_kind() {
    // Fails if programs could not tell one cause from another without reading a message.
    let (directory, db) = relaxed();
    let long = vec![0; (16 << 20) + 1];
    let error = db.put("key", long).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPair);
    assert!(error.io_error().is_none());
    let missing = Db::open(directory.path().join("absent")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(Db::open(db.path()).unwrap_err().kind(), ErrorKind::AlreadyOpen);
    let text = directory.path().join("text");
    std::fs::write(&text, "no database").unwrap();
    assert_eq!(Db::open(text).unwrap_err().kind(), ErrorKind::Unsupported);
    let unknown = Db::options().engine("none").create(directory.path().join("new"));
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::InvalidOption);
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
    assert!(!db.contains_key(b"k").unwrap());
    db.put(b"k", b"").unwrap();
    assert_eq!(db.compare_and_swap(b"k", None, one).unwrap(), Swap::Differs(Some(Vec::new())));
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"");
}

#[test]
fn words_are_the_same_pairs_in_little_endian_order() {
    // Fails if a pair had other bytes by words than by byte strings.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().form(Form::WORDS).durability(Durability::Process);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let words = db.words().unwrap();
    assert!(words.put_if_absent(1, 10).unwrap() && !words.put_if_absent(1, 11).unwrap());
    assert!(words.update(1, 12).unwrap() && words.put(1, 0x0102).unwrap());
    assert_eq!(db.get(1u64.to_le_bytes()).unwrap().unwrap(), [2, 1, 0, 0, 0, 0, 0, 0]);
    let mut values = [None; 2];
    words.get_many(&[2, 1], &mut values).unwrap();
    assert_eq!(values, [None, Some(0x0102)]);
    let too_few = std::panic::AssertUnwindSafe(|| words.get_many(&[2, 1, 2], &mut values));
    assert!(std::panic::catch_unwind(too_few).is_err(), "it would read two of three");
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
        // As text, or as a list of its bytes.
        assert!(!text.contains("secret") && !text.contains("115, 101, 99"), "{text}");
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
                    db.fetch_update(key, |value| {
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
                writer.put(number.to_be_bytes(), number.to_be_bytes()).unwrap();
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
                let value = copied.get(number.to_be_bytes()).unwrap();
                assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]), "of {count}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_backup_never_replaces_a_file() {
    // Fails if a mistyped name cost a file, or a failed backup left one.
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
        db.put(number.to_be_bytes(), b"stays").unwrap();
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
                    db.put(number.to_be_bytes(), b"comes").unwrap();
                    db.remove((number - number % 3).to_be_bytes()).unwrap();
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
    // Fails to compile if a handle could not be shared by threads.
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Db>();
}
