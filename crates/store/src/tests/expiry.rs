//! Pairs that end, by a clock that the tests set.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everhash_index::{Change, Form, MAX_VALUE_BYTES};

use super::faulty;
use crate::expiring::Wall;
use crate::{
    Db, Durability, Error, ErrorKind, Expiring, ExpiringTable, Expiry, Options, WriteBatch, engines,
};

/// When every test begins. Unit: milliseconds since 1970.
const BEGIN: u64 = 1_000_000_000_000;

#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Clock {
        Clock(Arc::new(AtomicU64::new(BEGIN)))
    }

    fn pass(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn options(&self, engine: &str) -> Options {
        let options = Db::options().engine(engine).durability(Durability::Process);
        Options { wall: Wall::Set(Arc::clone(&self.0)), ..options.background(false) }
    }
}

fn at(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn sessions(clock: &Clock, engine: &str, path: &Path) -> (Db, Expiring) {
    let db = clock.options(engine).create_if_missing(true).open(path).unwrap();
    let table = db.expiring_table_or_create("sessions").unwrap();
    (db, table)
}

/// Does one round of maintenance; returns how many pairs the file has then.
fn items_after_upkeep(db: &Db) -> u64 {
    for _ in 0..100_000 {
        if !db.maintain().unwrap() {
            return db.stats().unwrap().items;
        }
    }
    panic!("maintenance does not end");
}

#[test]
fn a_pair_that_has_ended_is_absent_to_every_operation() {
    // Fails if one operation forgot the time, or took a pair that has ended for one before it.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    let end = || {
        assert!(!table.put("key", "value", ms(10)).unwrap());
        assert!(table.contains_key("key").unwrap());
        clock.pass(10);
    };
    end();
    assert_eq!(table.get("key").unwrap(), None);
    assert!(!table.contains_key("key").unwrap());
    assert_eq!(table.expiry("key").unwrap(), None);
    assert_eq!(table.get_many(&["key"]).unwrap(), [None]);
    assert!(table.get_with("key", |value| value.is_none()).unwrap());
    assert_eq!((table.iter().count(), table.len().unwrap()), (0, 0));
    assert!(table.is_empty().unwrap());
    assert!(!table.update("key", "other", Expiry::Never).unwrap());
    assert!(!table.set_expiry("key", Expiry::Never).unwrap());
    let absent = |value: Option<&[u8]>| (Change::Keep, Expiry::Never, value.is_none());
    assert!(table.modify("key", absent).unwrap());
    assert!(!table.remove("key").unwrap());
    end();
    assert_eq!(table.take("key").unwrap(), None);
    end();
    assert!(table.put_if_absent("key", "new", Expiry::Unchanged).unwrap());
    assert_eq!(table.expiry("key").unwrap(), Some(Expiry::Never));
    assert!(table.remove("key").unwrap());
    end();
    assert_eq!(table.sweep().unwrap(), 1);
    // What had a time and ended gives none to the next pair.
    end();
    assert!(!table.put("key", "next", Expiry::Unchanged).unwrap());
    clock.pass(1 << 40);
    assert_eq!(table.take("key").unwrap().unwrap(), b"next");
}

/// Compares all pairs of a table with those of a model that have not ended.
fn same(table: &Expiring, model: &BTreeMap<u8, (u64, u64)>, now: u64) {
    let pairs: BTreeMap<u8, Vec<u8>> =
        table.iter().map(|pair| pair.map(|(k, v)| (k[0], v)).unwrap()).collect();
    let expected: BTreeMap<u8, Vec<u8>> = model
        .iter()
        .filter(|(_, (_, end))| *end > now)
        .map(|(key, (value, _))| (*key, value.to_le_bytes().to_vec()))
        .collect();
    assert_eq!(pairs, expected, "{}", table.db().info().engine.name);
    assert_eq!(table.len().unwrap(), expected.len() as u64);
}

#[test]
fn every_engine_keeps_times_as_a_map_with_a_clock_does() {
    // Fails if a time is lost or changed: by a replacement, upkeep, a close, or a killed process.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let clock = Clock::new();
        let (mut db, mut table) = sessions(&clock, engine.name, &path);
        let mut model: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
        let mut random = 7u64;
        for step in 0..4000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, after) = ((random >> 33) as u8 % 40, random >> 45 & 63);
            let now = clock.now();
            model.retain(|_, (_, end)| *end > now);
            let value = step.to_le_bytes();
            let before = model.get(&key).copied();
            match random >> 58 {
                0..20 => {
                    assert_eq!(table.put([key], value, ms(after)).unwrap(), before.is_some());
                    model.insert(key, (step, now + after));
                }
                20..28 => {
                    let updated = table.update([key], value, Expiry::Unchanged).unwrap();
                    assert_eq!(updated, before.is_some());
                    if let Some((_, end)) = before {
                        model.insert(key, (step, end));
                    }
                }
                28..34 => {
                    let set = table.set_expiry([key], at(now + after)).unwrap();
                    assert_eq!(set, before.is_some());
                    if let Some((value, _)) = before {
                        model.insert(key, (value, now + after));
                    }
                }
                34..38 => {
                    let added = table.put_if_absent([key], value, Expiry::Never).unwrap();
                    assert_eq!(added, before.is_none());
                    model.entry(key).or_insert((step, u64::MAX));
                }
                38..42 => {
                    assert_eq!(table.remove([key]).unwrap(), before.is_some());
                    model.remove(&key);
                }
                42..60 => clock.pass(after / 8),
                60..62 => drop(db.maintain().unwrap()),
                62 => {
                    drop(table);
                    db.close().unwrap();
                    (db, table) = sessions(&clock, engine.name, &path);
                }
                _ => same(&table, &model, clock.now()),
            }
        }
        for (key, (value, end)) in model {
            let there = end > clock.now();
            assert_eq!(table.get([key]).unwrap(), there.then(|| value.to_le_bytes().to_vec()));
            let expected = if end == u64::MAX { Expiry::Never } else { Expiry::At(at(end)) };
            assert_eq!(table.expiry([key]).unwrap(), there.then_some(expected));
        }
    }
}

#[test]
fn maintenance_gives_the_storage_of_ended_pairs_back_and_of_no_others() {
    // Fails if nothing is removed, if a pair without a time is taken for one that ended, or if a
    // look through the file never ends or is never repeated.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let clock = Clock::new();
    let (db, table) = sessions(&clock, "reef", &path);
    let plain = db.create_table("plain").unwrap();
    for number in 0..1000u32 {
        let key = number.to_le_bytes();
        // Read as times, these values of tables without times lie in the past.
        db.put(key, 1u64.to_le_bytes()).unwrap();
        plain.put(key, 1u64.to_le_bytes()).unwrap();
        let expiry = if number % 2 == 0 { ms(50).into() } else { Expiry::Never };
        table.put(key, "value", expiry).unwrap();
    }
    let catalogue = 4;
    assert_eq!(items_after_upkeep(&db), 3000 + catalogue);
    clock.pass(50);
    // The next look is not due yet; a new process looks at once.
    assert_eq!(items_after_upkeep(&db), 3000 + catalogue);
    assert_eq!(table.len().unwrap(), 500);
    drop((table, plain));
    db.close().unwrap();
    let (db, table) = sessions(&clock, "reef", &path);
    // While a snapshot is held, nothing is removed under it.
    let snapshot = db.snapshot().unwrap();
    assert_eq!(items_after_upkeep(&db), 3000 + catalogue);
    drop(snapshot);
    assert_eq!(items_after_upkeep(&db), 2500 + catalogue);
    assert_eq!(table.len().unwrap(), 500);
    assert_eq!(db.table("plain").unwrap().len().unwrap(), 1000);
}

#[test]
fn a_time_at_or_before_the_first_one_has_passed() {
    // Fails if a time of zero, which in a file stands for never, is kept as it is.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    for time in [UNIX_EPOCH, UNIX_EPOCH - ms(1), UNIX_EPOCH + Duration::from_nanos(1)] {
        table.put("key", "value", time).unwrap();
        assert_eq!((table.get("key").unwrap(), table.expiry("key").unwrap()), (None, None));
    }
}

#[test]
fn a_time_beyond_all_clocks_does_not_come() {
    // Fails if a sum or a number of milliseconds were cut: a pair that is to stay for ever would
    // have ended when it is written.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    // The second is a little more milliseconds than fit, the third as many as fit.
    for seconds in [u64::MAX, u64::MAX / 1000 + 1, u64::MAX / 1000] {
        table.put("key", "value", Duration::from_secs(seconds)).unwrap();
        clock.pass(1 << 40);
        assert!(table.contains_key("key").unwrap(), "{seconds}");
    }
}

#[test]
fn a_change_that_leaves_the_time_as_it_is_keeps_it() {
    // Fails if a counter of a limited time, which each request changes, never ended.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    table.put("key", "1", ms(10)).unwrap();
    clock.pass(5);
    let change = |_: Option<&[u8]>| (Change::Put(b"2".to_vec()), Expiry::Unchanged, ());
    table.modify("key", change).unwrap();
    assert_eq!(table.get("key").unwrap().unwrap(), b"2");
    assert_eq!(table.expiry("key").unwrap(), Some(Expiry::At(at(BEGIN + 10))));
}

#[test]
fn a_pair_that_ends_before_an_iterator_comes_to_it_is_absent() {
    // Fails if an iterator that somebody keeps showed pairs of the time when it was made.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    table.put("key", "value", ms(10)).unwrap();
    let mut pairs = table.iter();
    clock.pass(10);
    assert!(pairs.next().is_none());
}

#[test]
fn the_thread_removes_ended_pairs_of_a_database_at_rest() {
    // Fails if the thread sleeps until somebody writes.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let clock = Clock::new();
    let (db, table) = sessions(&clock, "reef", &path);
    let pairs: Vec<_> = (0..100u8).map(|number| ([number], "value")).collect();
    assert_eq!(table.put_many(&pairs, ms(5)).unwrap(), 100);
    drop(table);
    db.close().unwrap();
    clock.pass(5);
    let options = Options { background: true, ..clock.options("reef") };
    let db = options.open(&path).unwrap();
    let begun = std::time::Instant::now();
    while db.stats().unwrap().items > 3 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody removes them");
        std::thread::sleep(ms(1));
    }
}

#[test]
fn a_snapshot_shows_what_had_not_ended_when_it_was_taken() {
    // Fails if a backup or a long reader loses pairs because time passes, or takes another instant.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    table.put("gone", "0", ms(9)).unwrap();
    table.put("short", "1", ms(10)).unwrap();
    table.put("long", "2", ms(1000)).unwrap();
    clock.pass(9);
    let snapshot = db.snapshot().unwrap().table("sessions").unwrap();
    clock.pass(5);
    table.put("short", "3", Expiry::Never).unwrap();
    for snapshot in [&snapshot, &snapshot.clone()] {
        assert_eq!(snapshot.get("gone").unwrap(), None);
        assert_eq!(snapshot.get("short").unwrap().unwrap(), b"1");
        let mut values: Vec<_> = snapshot.iter().map(|pair| pair.unwrap().1).collect();
        values.sort();
        assert_eq!(values, [b"1", b"2"]);
    }
    let now = table.snapshot().unwrap();
    assert_eq!(now.get("short").unwrap().unwrap(), b"3");
    // A copy of the file has the times, too.
    let copy = directory.path().join("copy.ehdb");
    db.backup(&copy, &clock.options("reef")).unwrap();
    let (_copied, copied) = sessions(&clock, "reef", &copy);
    assert_eq!(copied.expiry("short").unwrap(), Some(Expiry::Never));
    assert_eq!(copied.expiry("long").unwrap(), Some(Expiry::At(at(BEGIN + 1000))));
}

#[test]
fn a_table_has_times_or_has_none() {
    // Fails if a handle of the wrong kind shows times as parts of values, or takes them away.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    db.create_table("plain").unwrap();
    for error in [
        db.table("sessions").unwrap_err(),
        db.table_or_create("sessions").unwrap_err(),
        db.expiring_table("plain").unwrap_err(),
        db.expiring_table_or_create("plain").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        println!("{error}");
        assert!(error.to_string().contains("expiry times"), "{error}");
    }
    assert_eq!(db.create_table("sessions").unwrap_err().kind(), ErrorKind::TableExists);
    assert_eq!(db.expiring_table("none").unwrap_err().kind(), ErrorKind::NoTable);
    assert_eq!((table.name(), db.tables().unwrap().len()), ("sessions", 2));
    assert_eq!(table.db().table_name(), None);
    let value = vec![0; MAX_VALUE_BYTES - 7];
    assert!(!table.put("key", &value[1..], Expiry::Never).unwrap());
    assert!(table.remove("key").unwrap());
    let refused = table.put("key", &value, Expiry::Never).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPair);
    assert!(refused.to_string().contains(&(MAX_VALUE_BYTES - 8).to_string()), "{refused}");
    let mut batch = WriteBatch::new();
    batch.put("a", "0").put_expiring_in(&table, "a", "1", ms(10)).unwrap();
    batch.put_expiring_in(&table, "b", "1", ms(10)).unwrap().remove_expiring_in(&table, "b");
    db.write(&batch).unwrap();
    assert_eq!(table.get("a").unwrap().unwrap(), b"1");
    assert_eq!(table.len().unwrap(), 1);
    clock.pass(10);
    assert!(!table.contains_key("a").unwrap() && db.contains_key("a").unwrap());
    assert!(db.drop_table("sessions").unwrap());
    assert_eq!(table.get("a").unwrap_err().kind(), ErrorKind::NoTable);
    let fixed = clock.options("reef").form(Form::WORDS);
    let fixed = fixed.create(directory.path().join("words.ehdb")).unwrap();
    assert_eq!(fixed.expiring_table_or_create("a").unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn retain_keeps_times_and_is_not_asked_for_what_has_ended() {
    // Fails if a value is shown with its time, if a pair that stays loses its time, or if one that
    // has ended is counted.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    for (key, value, ends) in [("a", "1", 10), ("b", "2", 20), ("c", "3", 20), ("d", "2", 10)] {
        assert!(!table.put(key, value, ms(ends)).unwrap());
    }
    clock.pass(10);
    let mut asked = Vec::new();
    let removed = table.retain(|key, value| {
        asked.push(key.to_vec());
        value != b"2"
    });
    assert_eq!(removed.unwrap(), 1);
    asked.sort();
    asked.dedup();
    assert_eq!(asked, [b"b", b"c"]);
    assert_eq!(table.get("c").unwrap().as_deref(), Some(&b"3"[..]));
    clock.pass(10);
    assert_eq!(table.len().unwrap(), 0);
}

#[test]
fn every_typed_operation_with_times_does_what_the_one_without_types_does() {
    // Fails if one is passed on to another one, or always answers alike.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, raw) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    let table: ExpiringTable<u32, String> = ExpiringTable::of(raw.clone());
    let (one, two) = ("one".to_owned(), "two".to_owned());
    assert!(table.is_empty().unwrap() && !table.contains_key(&1).unwrap());
    assert!(!table.update(&1, &one, ms(10)).unwrap() && !table.remove(&1).unwrap());
    assert!(!table.set_expiry(&1, ms(10)).unwrap() && table.expiry(&1).unwrap().is_none());
    assert!(table.put_if_absent(&1, &one, ms(10)).unwrap());
    assert!(!table.put_if_absent(&1, &two, ms(20)).unwrap());
    assert_eq!(table.get(&1).unwrap().as_deref(), Some("one"));
    assert_eq!(table.expiry(&1).unwrap(), Some(Expiry::At(at(BEGIN + 10))));
    assert!(table.put(&1, &two, ms(30)).unwrap() && table.contains_key(&1).unwrap());
    assert!(!table.is_empty().unwrap());
    assert_eq!((table.get(&1).unwrap(), table.len().unwrap()), (Some(two.clone()), 1));
    assert_eq!(table.expiry(&1).unwrap(), Some(Expiry::At(at(BEGIN + 30))));
    assert!(table.set_expiry(&1, Expiry::Never).unwrap());
    assert_eq!(table.expiry(&1).unwrap(), Some(Expiry::Never));
    assert_eq!(table.put_many(&[(1, one), (2, two)], ms(5)).unwrap(), 1);
    assert_eq!(table.get_many(&[2, 3]).unwrap(), [Some("two".to_owned()), None]);
    assert_eq!(table.expiring().len().unwrap(), 2);
    clock.pass(5);
    assert!(table.is_empty().unwrap() && table.iter().next().is_none());
}

#[test]
fn a_table_with_times_has_types() {
    // Fails if an operation forgot the time or the type, or if a value that is none of its type
    // were shown or replaced.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (db, raw) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    let table: ExpiringTable<u32, String> = ExpiringTable::of(raw.clone());
    let text = |text: &str| text.to_owned();
    assert!(!table.put(&1, &text("one"), ms(10)).unwrap());
    assert!(table.put_if_absent(&2, &text("two"), Expiry::Never).unwrap());
    assert_eq!(table.put_many(&[(3, text("three")), (4, text("four"))], ms(20)).unwrap(), 2);
    assert!(table.update(&3, &text("drei"), Expiry::Unchanged).unwrap());
    assert_eq!(table.expiry(&3).unwrap(), Some(Expiry::At(at(BEGIN + 20))));
    assert_eq!(table.get(&1).unwrap().as_deref(), Some("one"));
    assert_eq!(table.len().unwrap(), 4);
    clock.pass(10);
    assert!(!table.contains_key(&1).unwrap() && table.get(&1).unwrap().is_none());
    assert_eq!(table.get_many(&[1, 2]).unwrap(), [None, Some(text("two"))]);
    // What has ended is absent to the change, too; a new value may keep the time it had.
    let new = |before: Option<&String>| {
        assert!(before.is_none());
        Some((text("eins"), ms(5).into()))
    };
    assert_eq!(table.fetch_update(&1, new).unwrap(), None);
    let same_time = |before: Option<&String>| Some((before?.clone() + "!", Expiry::Unchanged));
    assert_eq!(table.fetch_update(&3, same_time).unwrap().unwrap(), "drei");
    assert_eq!(table.fetch_update(&4, |_| None).unwrap().unwrap(), "four");
    assert!(table.set_expiry(&2, ms(1)).unwrap());
    let mut pairs: Vec<_> = table.iter().map(Result::unwrap).collect();
    pairs.sort();
    assert_eq!(pairs, [(1, text("eins")), (2, text("two")), (3, text("drei!"))]);
    clock.pass(5);
    assert_eq!(table.iter().map(|pair| pair.unwrap().0).collect::<Vec<_>>(), [3]);
    assert!(table.remove(&3).unwrap() && table.is_empty().unwrap());
    raw.put(5u64.to_le_bytes(), [0xff], Expiry::Never).unwrap();
    assert!(matches!(table.get(&5), Err(Error::Typed { .. })));
    assert!(matches!(table.fetch_update(&5, |_| None), Err(Error::Typed { .. })));
    assert!(matches!(table.clone().iter().next(), Some(Err(Error::Typed { .. }))));
    assert_eq!(table.expiring().get(5u64.to_le_bytes()).unwrap().unwrap(), [0xff]);
    drop(db);
}

#[test]
fn a_pair_that_ends_while_a_write_waits_for_its_key_is_absent_for_it() {
    // Fails if the write looked at the clock before it waited: others were told that the key is
    // absent, and the pair would be back.
    let (_directory, faults, db) = faulty::quiet(false);
    let table = db.expiring_table_or_create("sessions").unwrap();
    table.put("key", "value", ms(30)).unwrap();
    faults.waits.store(60, Ordering::SeqCst);
    assert!(!table.set_expiry("key", Expiry::Never).unwrap());
    assert_eq!(table.get("key").unwrap(), None);
}

#[test]
fn a_pair_that_is_written_again_while_it_is_swept_stays() {
    // Fails if maintenance removed what it saw as ended before, without a second look.
    let (_directory, faults, db) = faulty::quiet(false);
    let table = db.expiring_table_or_create("sessions").unwrap();
    table.put("key", "old", Duration::ZERO).unwrap();
    table.put("other", "old", Duration::ZERO).unwrap();
    let mut stored = Vec::new();
    let see = |key: &[u8], _: &[u8]| {
        if key.ends_with(b"key") {
            stored = key.to_vec();
        }
    };
    db.core()
        .read(|table| {
            let mut see = see;
            table.scan(everhash_index::Cursor(0), &mut see)
        })
        .unwrap();
    let lasts = [&0u64.to_le_bytes()[..], b"new"].concat();
    *faults.after_scan.lock().unwrap() = Some((stored, lasts));
    while db.maintain().unwrap() {}
    assert_eq!(table.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    // The header, the page, and the flag beside it: the other pair was removed.
    assert_eq!(db.stats().unwrap().items, 4);
}

#[test]
fn a_pair_that_cannot_be_removed_keeps_no_other_that_has_ended() {
    // Fails if everything behind it were kept, if it were tried again and again, or if nobody heard
    // of it.
    let (_directory, faults, db) = faulty::quiet(false);
    let table = db.expiring_table_or_create("sessions").unwrap();
    for number in 0..100u8 {
        table.put([number], "value", Duration::ZERO).unwrap();
    }
    let full = || everhash_index::Error::Full { needed: 64 };
    *faults.stuck.lock().unwrap() = Some((&[40], full));
    let errors: Vec<_> = (0..100).filter_map(|_| db.maintain().err()).collect();
    assert_eq!((errors.len(), faults.tried.load(Ordering::SeqCst)), (1, 1), "{errors:?}");
    assert!(errors[0].is_full());
    // The catalogue's header, page and flag, and the pair that is left.
    assert_eq!(db.stats().unwrap().items, 4);
    let upkeep = db.core().maintain().unwrap();
    assert!(upkeep.deadline.is_some_and(|at| at > db.core().now()), "{upkeep:?}");
}

#[test]
fn damage_that_is_met_on_the_way_to_what_has_ended_is_told() {
    // Fails if a part of the file were passed over in silence: nobody would check the database.
    let (_directory, faults, db) = faulty::quiet(false);
    let _table = db.expiring_table_or_create("sessions").unwrap();
    faults.scans.lock().unwrap().push_back(Some(faulty::DAMAGE));
    assert!(db.maintain().unwrap_err().is_damage());
    assert!(!db.maintain().is_err_and(|error| error.is_damage()));
}

#[test]
fn a_round_that_took_no_time_is_not_followed_by_the_next() {
    // Fails if the thread read the whole file again and again for pairs that may have ended.
    let directory = tempfile::tempdir().unwrap();
    let (db, _table) = sessions(&Clock::new(), "wophi", &directory.path().join("pairs.ehdb"));
    let mut upkeep = db.core().maintain().unwrap();
    while upkeep.more {
        upkeep = db.core().maintain().unwrap();
    }
    let deadline = upkeep.deadline.unwrap();
    assert!(deadline > db.core().now() + Duration::from_secs(20), "{deadline:?}");
}

#[test]
fn a_round_that_begins_late_is_followed_by_the_next_in_time() {
    // Fails if it were taken for one that lasted since the database was opened.
    let directory = tempfile::tempdir().unwrap();
    let (db, _table) = sessions(&Clock::new(), "wophi", &directory.path().join("pairs.ehdb"));
    std::thread::sleep(Duration::from_secs(2));
    let mut upkeep = db.core().maintain().unwrap();
    while upkeep.more {
        upkeep = db.core().maintain().unwrap();
    }
    let limit = db.core().now() + Duration::from_secs(35);
    assert!(upkeep.deadline.is_some_and(|at| at < limit), "{upkeep:?} at {limit:?}");
}

#[test]
fn a_table_is_not_empty_while_one_pair_has_not_ended() {
    // Fails if the first pair that is met decides.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    for number in 0..1000u32 {
        table.put(number.to_le_bytes(), "value", ms(1)).unwrap();
    }
    table.put("key", "value", ms(2)).unwrap();
    clock.pass(1);
    assert!(!table.is_empty().unwrap());
    clock.pass(1);
    assert!(table.is_empty().unwrap());
}

#[test]
fn a_pair_can_be_removed_by_what_changes_it() {
    // Fails if a table with expiry times kept what a change takes away.
    let directory = tempfile::tempdir().unwrap();
    let (_db, table) = sessions(&Clock::new(), "reef", &directory.path().join("pairs.ehdb"));
    table.put("key", "value", ms(10)).unwrap();
    let removed =
        table.modify("key", |value| (Change::Remove, Expiry::Unchanged, value.map(<[u8]>::to_vec)));
    assert_eq!(removed.unwrap().unwrap(), b"value");
    assert!(table.is_empty().unwrap());
}

#[test]
fn between_two_rounds_the_next_one_is_known() {
    // Fails if the thread slept until somebody writes, because it was woken once in between.
    let directory = tempfile::tempdir().unwrap();
    let (db, _table) = sessions(&Clock::new(), "wophi", &directory.path().join("pairs.ehdb"));
    while db.maintain().unwrap() {}
    let deadline = db.core().maintain().unwrap().deadline;
    assert!(deadline.is_some_and(|at| at > db.core().now()), "{deadline:?}");
}

#[test]
fn a_pair_that_a_scan_shows_twice_counts_once() {
    // Fails if a table that grows had more pairs for a moment.
    let (_directory, faults, db) = faulty::quiet(false);
    let table = db.expiring_table_or_create("sessions").unwrap();
    let plain = db.create_table("plain").unwrap();
    for number in 0..100u8 {
        table.put([number], "value", Expiry::Never).unwrap();
        plain.put([number], "value").unwrap();
    }
    faults.scans_twice.store(true, Ordering::SeqCst);
    assert_eq!((table.len().unwrap(), plain.len().unwrap(), db.len().unwrap()), (100, 100, 0));
}

#[test]
fn every_way_to_put_takes_the_time_that_it_is_given() {
    // Fails if a pair that was to end stayed for ever, or the other way round.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let (_db, table) = sessions(&clock, "reef", &directory.path().join("pairs.ehdb"));
    let ends = Some(Expiry::At(at(BEGIN + 10)));
    assert!(table.put_if_absent("absent", "1", ms(10)).unwrap());
    table.put("put", "1", at(BEGIN + 10)).unwrap();
    assert_eq!(table.put_many(&[("many", "1")], ms(10)).unwrap(), 1);
    table.put("updated", "1", Expiry::Never).unwrap();
    assert!(table.update("updated", "2", ms(10)).unwrap());
    let change = |_: Option<&[u8]>| (Change::Put(b"1".to_vec()), ms(10).into(), ());
    table.modify("modified", change).unwrap();
    for key in ["absent", "put", "many", "updated", "modified"] {
        assert_eq!(table.expiry(key).unwrap(), ends, "{key}");
        assert!(table.set_expiry(key, Expiry::Never).unwrap());
    }
    clock.pass(10);
    assert_eq!(table.len().unwrap(), 5);
}

#[test]
fn nobody_looks_for_pairs_that_end_where_no_table_has_any() {
    // Fails if the file were read every 30 seconds for ever, because there was such a table once.
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("pairs.ehdb"), Clock::new());
    let (db, table) = sessions(&clock, "wophi", &path);
    drop(db.expiring_table_or_create("others").unwrap());
    drop(db.create_table("plain").unwrap());
    table.put("key", "value", Expiry::Never).unwrap();
    let is_planned = |db: &Db| {
        while db.maintain().unwrap() {}
        db.core().maintain().unwrap().deadline.is_some()
    };
    for (name, is_left) in [("plain", true), ("others", true), ("sessions", false)] {
        assert!(is_planned(&db));
        assert!(db.drop_table(name).unwrap());
        assert_eq!(is_planned(&db), is_left, "after {name}");
    }
    drop((table, db));
    let (db, table) = sessions(&clock, "wophi", &path);
    table.put("key", "value", ms(1)).unwrap();
    clock.pass(1);
    // The catalogue's header, page and flag are left.
    assert_eq!(items_after_upkeep(&db), 3);
    assert!(is_planned(&db));
    // Two that an open finds are two.
    drop(db.expiring_table_or_create("others").unwrap());
    drop((table, db));
    let (db, table) = sessions(&clock, "wophi", &path);
    for (name, is_left) in [("others", true), ("sessions", false)] {
        assert!(db.drop_table(name).unwrap());
        assert_eq!(is_planned(&db), is_left, "after {name}");
    }
    drop(table);
}
