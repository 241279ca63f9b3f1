//! Maintenance goes on whatever happens, and where it cannot, the next call says so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everhash_index::{Durability as Mode, Error as IndexError, Upkeep};

use super::faulty::{self, Faults};
use super::{Device, on};
use crate::maintenance::Syncs;
use crate::place::New;
use crate::{Change, Db, Durability, Error, ErrorKind, Options, engines};

const LONG: Duration = Duration::from_secs(20);

/// Waits until `done`, and fails after a long time.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs something that panics.
fn panics(run: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

#[test]
fn p12_a_callback_that_panics_poisons_nothing() {
    // Fails if a panic of the caller's own code went through the locks of an engine: the key, and
    // all that shares its lock, would be lost until the database is opened again.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let options = Db::options().engine(engine.name).durability(Durability::Process);
        let db = options.create(&path).unwrap();
        db.put(b"there", b"1").unwrap();
        for key in [&b"there"[..], b"absent"] {
            panics(|| drop(db.modify(key, |_| -> (Change, ()) { panic!("by the caller") })));
            panics(|| drop(db.fetch_update(key, |_| panic!("by the caller"))));
        }
        panics(|| drop(db.scan(|_, _| panic!("by the caller"))));
        assert_eq!(db.get(b"there").unwrap().as_deref(), Some(&b"1"[..]), "{}", engine.name);
        assert_eq!(db.get(b"absent").unwrap(), None);
        db.modify(b"there", |_| (Change::Put(b"2".to_vec()), ())).unwrap();
        db.modify(b"absent", |_| (Change::Put(b"3".to_vec()), ())).unwrap();
        db.maintain().unwrap();
        db.sync().unwrap();
        assert_eq!(db.check().unwrap().items, 2);
        db.close().unwrap();
        assert_eq!(Db::open_read_only(&path).unwrap().len().unwrap(), 2);
    }
}

#[test]
fn a_callback_that_has_panicked_is_not_called_again() {
    // Fails if it were asked for what is read together with the first pair: what it refers to is as
    // the panic left it.
    let (_directory, faults, db) = faulty::quiet(false);
    db.put(b"key", b"value").unwrap();
    faults.scans_twice.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut calls = 0;
    panics(|| {
        let keep = |_: &[u8], _: &[u8]| {
            calls += 1;
            panic!("by the caller")
        };
        drop(db.retain(keep));
    });
    assert_eq!((calls, db.len().unwrap()), (1, 1));
}

#[test]
fn batches_end_after_a_callback_has_panicked() {
    // Fails if the panic ended the maintenance, and with it the syncs that were promised.
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(Device::default());
    let options = on(&device, Durability::Batch).setting("flush_interval_ms", 20);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    panics(|| drop(db.modify(b"key", |_| -> (Change, ()) { panic!("by the caller") })));
    let before = device.syncs();
    let mut number = 0u32;
    wait_until("batches end", || {
        number += 1;
        db.put(number.to_be_bytes(), b"value").unwrap();
        device.syncs() >= before + 20
    });
    db.sync().unwrap();
    db.close().unwrap();
}

#[test]
fn p12_a_panic_inside_an_engine_never_ends_durability_in_silence() {
    // Fails if writes went on being accepted although nobody syncs them any more.
    for (engine, durability) in engines().iter().flat_map(|engine| {
        let interval = Durability::Interval(Duration::from_millis(10));
        [(engine, interval), (engine, Durability::Batch)]
    }) {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(Device::default());
        let mut options = on(&device, durability).engine(engine.name);
        if engine.capabilities.durability[0] == Mode::Batch {
            options = options.setting("flush_interval_ms", 20);
        }
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        db.put(b"key", b"value").unwrap();
        let inside = |_: Option<&[u8]>| -> Change { panic!("inside the engine") };
        panics(|| drop(db.core().write(|_| Ok(()), |table| table.modify(b"key", &mut { inside }))));
        let before = device.syncs();
        let mut number = 0u32;
        wait_until("syncs go on, or the handle says that they do not", || {
            number += 1;
            match db.put(number.to_be_bytes(), b"value") {
                Ok(_) => device.syncs() >= before + 10,
                Err(Error::Dead { cause, .. }) => !cause.is_empty(),
                // The part that the panic left in doubt; the others go on.
                Err(error @ Error::File { .. }) if error.kind() == ErrorKind::Stopped => false,
                Err(error) => panic!("{}: {error}", engine.name),
            }
        });
        // What is in doubt is recovered by the next open, which a close must not hide.
        let path = db.path().to_owned();
        drop(db);
        let db = Db::open(&path).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]), "{}", engine.name);
        db.check().unwrap();
    }
}

#[test]
fn an_interval_ends_although_maintenance_fails_panics_or_has_always_more_to_do() {
    // Fails if the thread that syncs ended, or never came to its sync, or if a close says what does
    // not help.
    let more = |_| Some(Ok(Upkeep { deadline: None, more: true }));
    let poisoned = |_| Some(Err(IndexError::Poisoned));
    let damaged = |_| Some(Err(IndexError::Corrupt { at: 8, broken: "a test is sound" }));
    let full = |_| Some(Err(IndexError::Full { needed: 64 }));
    let panicked = |_| panic!("inside the engine");
    let late = |_| Some(Ok(Upkeep { deadline: Some(Duration::MAX), more: false }));
    let checks = Some("; check the database");
    for (maintain, advice) in [
        (more as fn(u32) -> _, None),
        (late, None),
        (poisoned, checks),
        (damaged, checks),
        (panicked, checks),
        // A check would not help.
        (full, Some("; free space, or raise the limit")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let faults = Faults::new(maintain, |_| None);
        let syncs = Syncs::Every(Duration::from_millis(5));
        let db = faulty::database(&path, &faults, syncs, true);
        for number in 0..3u32 {
            let before = faults.syncs();
            db.put(number.to_be_bytes(), b"value").unwrap();
            wait_until("the interval ends", || faults.syncs() > before);
        }
        match (db.close(), advice) {
            (Ok(()), None) => {}
            (Err(Error::Maintenance { cause, .. }), Some(advice)) => {
                assert!(cause.len() > advice.len() && cause.ends_with(advice), "{cause}");
            }
            (other, _) => panic!("{other:?}"),
        }
        // Closed cleanly in both cases.
        assert_eq!(Db::open_read_only(&path).unwrap().len().unwrap(), 3);
    }
}

#[test]
fn a_failure_that_is_overcome_is_not_reported_at_the_end() {
    // Fails if a full disk of an hour ago made a close fail.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|number| (number == 0).then_some(Err(IndexError::Poisoned)), |_| None);
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, Syncs::Never, true);
    wait_until("maintenance goes on", || {
        db.put(b"key", b"value").unwrap();
        faults.maintenances() >= 3
    });
    db.close().unwrap();
}

#[test]
fn a_maintenance_thread_that_ends_is_reported_by_every_later_call() {
    // Fails if a thread that panicked left writes that wait for a sync for ever.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| panic!("in a sync"));
    let syncs = Syncs::Every(Duration::from_millis(5));
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, true);
    db.put(b"key", b"value").unwrap();
    wait_until("the end of the thread is reported", || match db.put(b"key", b"value") {
        Ok(_) => false,
        Err(Error::Dead { cause, .. }) => cause.contains("in a sync"),
        Err(error) => panic!("{error}"),
    });
    assert!(matches!(db.get(b"key"), Err(Error::Dead { .. })));
    assert!(matches!(db.close(), Err(Error::Dead { .. })));
}

#[test]
fn maintenance_between_writes_goes_on_after_a_panic() {
    // Fails if the panic reached the writer, whose write is done, if the lock that it poisoned kept
    // all later maintenance away, or if nobody hears of it because that succeeded.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(
        |number| match number {
            0 => panic!("inside the engine"),
            _ => None,
        },
        |_| None,
    );
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, Syncs::Never, false);
    wait_until("maintenance goes on", || {
        db.put(b"key", b"value").unwrap();
        faults.maintenances() >= 5
    });
    match db.close() {
        Err(Error::Maintenance { cause, .. }) => assert!(cause.contains("inside the engine")),
        other => panic!("{other:?}"),
    }
}

/// Puts 300 pairs on a thread of its own; returns whether it came to an end.
fn puts_end(db: Db) -> bool {
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for number in 0..300u32 {
            db.put(number.to_be_bytes(), b"value").unwrap();
        }
        db.close().unwrap();
        said.send(()).unwrap();
    });
    heard.recv_timeout(LONG / 2).is_ok()
}

#[test]
fn maintenance_between_writes_may_write_itself() {
    // Fails if a writer that does the maintenance waits for itself, when what it removes for the
    // store is to wake the thread that there is not: pairs that end, and those of dropped tables.
    let directory = tempfile::tempdir().unwrap();
    for dropped in [false, true] {
        let path = directory.path().join(format!("{dropped}.ehdb"));
        let db = Db::options().background(false).create(&path).unwrap();
        if dropped {
            db.create_table("table").unwrap().put(b"key", b"value").unwrap();
            db.drop_table("table").unwrap();
        } else {
            drop(db.expiring_table_or_create("table").unwrap());
        }
        db.close().unwrap();
        let db = Db::options().background(false).open(&path).unwrap();
        assert!(puts_end(db), "dropped: {dropped}");
    }
}

#[test]
fn a_repaired_database_that_is_damaged_is_not_closed_as_a_sound_one() {
    // Fails if the check that comes after the recovery found damage, and the next open is told
    // that there is nothing to look for.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.ehdb");
    let faults = Faults::new(|_| None, |_| None);
    let db = faulty::database(&path, &faults, Syncs::Never, false);
    db.put(b"key", b"value").unwrap();
    faults.is_damaged.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(Db::close_if_sound(db).unwrap_err().is_damage());
    assert!(matches!(Db::open_read_only(&path), Err(Error::NeedsRecovery { .. })));
}

#[test]
fn no_interval_is_too_short_or_too_long() {
    // Fails if an end of an interval that no clock can name were a panic in the thread.
    let nanosecond = Duration::from_nanos(1);
    let many = [Duration::ZERO, nanosecond, Duration::MAX - nanosecond, Duration::MAX];
    for (interval, background) in many.into_iter().flat_map(|i| [(i, true), (i, false)]) {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(Device::default());
        let options = on(&device, Durability::Interval(interval)).background(background);
        let options = options.engine("wophi").expected_items(1000);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let put_all = || {
            for number in 0..600u32 {
                db.put(number.to_be_bytes(), b"value").unwrap();
            }
        };
        // A file that grows is synced whatever the interval: that is over then.
        put_all();
        std::thread::sleep(Duration::from_millis(30));
        let before = device.syncs();
        put_all();
        if interval <= nanosecond {
            wait_until("the interval ends", || device.syncs() > before);
        } else {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(device.syncs(), before);
        }
        db.close().unwrap();
    }
}

#[test]
fn a_clock_that_jumps_harms_no_engine() {
    // Fails if an engine computed a time that no clock can name, or waited for a time before.
    let hour = Duration::from_secs(3600);
    let jumps = [Duration::ZERO, hour, Duration::from_secs(1), Duration::MAX, Duration::ZERO, hour];
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let options = Db::options().engine(engine.name).expected_items(100);
        let new = New::begin(&options, &path, Durability::Batch, false).unwrap();
        for (number, now) in jumps.into_iter().enumerate() {
            new.table.put(&[number as u8], b"value").unwrap();
            new.table.maintain(now, 64).unwrap();
            new.table.maintain(now.saturating_add(hour), 64).unwrap();
        }
        new.table.check().unwrap();
        new.table.close().unwrap();
    }
}

/// A system whose disk is full from the n-th allocation on.
#[derive(Debug)]
struct FullDisk {
    left: std::sync::atomic::AtomicU32,
}

impl everhash_pmem::media::file::system::System for FullDisk {
    fn call(
        &self,
        call: everhash_pmem::media::file::system::Call,
        run: &mut dyn FnMut() -> std::io::Result<u64>,
    ) -> std::io::Result<u64> {
        use std::sync::atomic::Ordering;
        const ENOSPC: i32 = 28;
        if call == everhash_pmem::media::file::system::Call::Allocate {
            let one = |left: u32| left.checked_sub(1);
            if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
                return Err(std::io::Error::from_raw_os_error(ENOSPC));
            }
        }
        run()
    }
}

#[test]
fn p10_a_backup_to_a_full_disk_fails_and_leaves_no_file() {
    // Fails if a copy that lacks pairs counted as a backup.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().engine(engine.name).durability(Durability::Process);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let pairs: Vec<_> = (0..4000u32).map(|number| (number.to_be_bytes(), [7; 100])).collect();
        db.put_many(&pairs).unwrap();
        let copy = directory.path().join("copy.ehdb");
        let mut refused = 0;
        for left in 0.. {
            assert!(left < 10_000, "the copy takes its space in a few pieces");
            let system = Arc::new(FullDisk { left: left.into() });
            let options = Options { system, ..Db::options() };
            match db.backup(&copy, &options) {
                Ok(count) => {
                    assert_eq!(count, 4000);
                    break;
                }
                Err(error) => assert!(error.is_full(), "{}: {error}", engine.name),
            }
            refused += 1;
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
            assert_eq!(db.len().unwrap(), 4000);
        }
        assert!(refused > 1, "{}: {refused}", engine.name);
        assert_eq!(Db::open_read_only(&copy).unwrap().check().unwrap().items, 4000);
    }
}

#[test]
fn of_two_deadlines_the_first_one_counts() {
    // Fails if a batch ended only when pairs that have ended are looked for the next time.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine("reef").background(false);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let table = db.expiring_table_or_create("sessions").unwrap();
    table.put("key", "value", crate::Expiry::Never).unwrap();
    let mut upkeep = db.core().maintain().unwrap();
    while upkeep.more {
        upkeep = db.core().maintain().unwrap();
    }
    // Half of the 5 s of a batch; the sweep is due after 30 s.
    let limit = db.core().now() + Duration::from_secs(5);
    assert!(upkeep.deadline.is_some_and(|at| at <= limit), "{upkeep:?} at {limit:?}");
}

#[test]
fn a_damaged_engine_keeps_nothing_of_a_dropped_table() {
    // Fails if the store's own maintenance waits for that of the engine, which fails for as long as
    // a part of it is damaged: the file would grow by every pair that has ended.
    let directory = tempfile::tempdir().unwrap();
    let damaged = |_| Some(Err(IndexError::Corrupt { at: 8, broken: "a test is sound" }));
    let faults = Faults::new(damaged, |_| None);
    let path = directory.path().join("pairs.ehdb");
    let db = faulty::database(&path, &faults, Syncs::Never, false);
    db.create_table("table").unwrap().put(b"key", b"value").unwrap();
    db.drop_table("table").unwrap();
    for _ in 0..100 {
        assert_eq!(db.core().maintain().unwrap_err().kind(), ErrorKind::Damaged);
    }
    assert!(faults.events.lock().unwrap().contains(&faulty::Event::Remove));
}

#[test]
fn an_engine_that_panics_keeps_nothing_of_a_dropped_table() {
    // Fails if the panic took the store's own maintenance with it, although what the panic left in
    // doubt refuses writes and everything else takes them.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| panic!("inside the engine"), |_| None);
    let path = directory.path().join("pairs.ehdb");
    let db = faulty::database(&path, &faults, Syncs::Never, false);
    db.create_table("table").unwrap().put(b"key", b"value").unwrap();
    db.drop_table("table").unwrap();
    for _ in 0..10 {
        panics(|| drop(db.maintain()));
    }
    assert!(faults.events.lock().unwrap().contains(&faulty::Event::Remove));
    // Whoever called.
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Maintenance);
}

/// Makes a database whose engine finds no room whenever it does its maintenance.
fn on_full_disk(syncs: Syncs, thread: bool) -> (tempfile::TempDir, Arc<Faults>, Db) {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| Some(Err(IndexError::Full { needed: 64 })), |_| None);
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, thread);
    (directory, faults, db)
}

#[test]
fn a_dropped_table_goes_in_a_few_attempts_although_the_engine_s_part_fails() {
    // Fails if each attempt, of which there is one a second, looks at some hundred pairs only.
    let (_directory, faults, db) = on_full_disk(Syncs::Never, false);
    let table = db.create_table("table").unwrap();
    (0..5000u32).for_each(|key| assert!(!table.put(key.to_be_bytes(), b"value").unwrap()));
    drop(table);
    db.drop_table("table").unwrap();
    for _ in 0..4 {
        db.maintain().unwrap_err();
    }
    let events = faults.events.lock().unwrap();
    let removed = events.iter().filter(|event| **event == faulty::Event::Remove).count();
    assert!(removed >= 5000, "{removed} pairs");
}

#[test]
fn damage_that_maintenance_passed_over_is_reported_until_a_check_finds_none() {
    // Fails if the next part of the file, which is sound, made the close say nothing.
    for is_checked in [false, true] {
        let (_directory, faults, db) = faulty::quiet(false);
        db.create_table("table").unwrap().put(b"key", b"value").unwrap();
        db.drop_table("table").unwrap();
        faults.scans.lock().unwrap().push_back(Some(faulty::DAMAGE));
        let mut met = None;
        wait_until("maintenance goes on behind the damage", || {
            db.put(b"key", b"value").unwrap();
            let now = faults.maintenances();
            if db.metrics().maintenance_failed {
                met = met.or(Some(now));
            }
            met.is_some_and(|met| now >= met + 2)
        });
        assert!(db.metrics().maintenance_failed);
        faults.is_damaged.store(true, std::sync::atomic::Ordering::SeqCst);
        db.check().unwrap_err();
        assert!(db.metrics().maintenance_failed);
        if is_checked {
            faults.is_damaged.store(false, std::sync::atomic::Ordering::SeqCst);
            db.check().unwrap();
            assert!(!db.metrics().maintenance_failed);
        }
        match (is_checked, db.close()) {
            (true, Ok(())) => {}
            (false, Err(Error::Maintenance { cause, .. })) => {
                assert!(cause.contains("damaged at byte 8"), "{cause}");
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_found_before_a_part_that_cannot_be_read_is_removed() {
    // Fails if one look lost what it had found when it met the part: the pairs before it would be
    // found again and again, and would stay.
    for met in [faulty::DAMAGE, IndexError::Poisoned] {
        let (_directory, faults, db) = faulty::quiet(false);
        let table = db.create_table("table").unwrap();
        (0..1000u32).for_each(|number| assert!(!table.put(number.to_le_bytes(), "value").unwrap()));
        drop(table);
        assert!(db.drop_table("table").unwrap());
        let before = db.stats().unwrap().items;
        faults.scans.lock().unwrap().extend([None, None, None, Some(met)]);
        while !faults.scans.lock().unwrap().is_empty() {
            assert!(db.maintain().unwrap());
        }
        let left = db.stats().unwrap().items;
        assert!(left < before, "{left} pairs of {before}");
    }
}

#[test]
fn a_part_in_doubt_ends_a_round_and_stops_no_later_one() {
    // Fails if maintenance came back to the part for ever: what lies before it, and ends later,
    // would stay until the next open.
    let (_directory, faults, db) = faulty::quiet(false);
    db.create_table("table").unwrap().put("key", "value").unwrap();
    assert!(db.drop_table("table").unwrap());
    faults.scans.lock().unwrap().extend((0..10).map(|_| Some(IndexError::Poisoned)));
    let errors: Vec<_> = (0..10).filter_map(|_| db.maintain().err()).collect();
    assert!(errors.len() == 1 && errors[0].kind() == ErrorKind::Stopped, "{errors:?}");
    // What was dropped meanwhile is purged, and what was not come to is purged after an open.
    faults.scans.lock().unwrap().clear();
    db.create_table("other").unwrap().put("key", "value").unwrap();
    let before = db.stats().unwrap().items;
    assert!(db.drop_table("other").unwrap());
    while db.maintain().unwrap() {}
    assert!(db.stats().unwrap().items < before);
}

#[test]
fn damage_is_reported_before_a_failure_that_passes() {
    // Fails if a full disk hid that a part of the file is damaged, which is met once and passed
    // over.
    let (_directory, faults, db) = on_full_disk(Syncs::Never, false);
    db.create_table("table").unwrap().put(b"key", b"value").unwrap();
    db.drop_table("table").unwrap();
    faults.scans.lock().unwrap().push_back(Some(faulty::DAMAGE));
    assert!(db.maintain().unwrap_err().is_damage());
    assert!(db.maintain().unwrap_err().is_full());
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Maintenance);
}

#[test]
fn maintenance_that_fails_is_tried_more_and_more_seldom_and_soon_again_once_it_succeeds() {
    // Fails if a full disk cost ten attempts a second for ever, or if one failure of an hour ago
    // made the next one wait.
    let began = Instant::now();
    let (_directory, faults, db) = on_full_disk(Syncs::ByEngine, true);
    db.put(b"key", b"value").unwrap();
    wait_until("what is written is synced", || faults.syncs() > 0);
    std::thread::sleep(Duration::from_millis(100));
    // Nobody writes any more.
    let syncs = faults.syncs();
    std::thread::sleep(Duration::from_millis(750));
    assert_eq!(faults.syncs(), syncs);
    let attempts = faults.maintenances();
    // After 0, 100, 300, 700 ms, and then after a second each.
    let most = 4 + began.elapsed().saturating_sub(Duration::from_millis(700)).as_secs() as u32 + 1;
    assert!((2..=most).contains(&attempts), "{attempts} attempts, at most {most}");
    // A write is synced all the same.
    db.put(b"key", b"other").unwrap();
    wait_until("what is written is synced", || faults.syncs() > syncs);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Maintenance);
}

#[test]
fn intervals_end_in_time_although_maintenance_waits_after_failures() {
    // Fails if a sync came only with the next attempt, or if each sync were an attempt.
    let (_directory, faults, db) = on_full_disk(Syncs::Every(Duration::from_millis(5)), true);
    let began = Instant::now();
    for number in 0..40u32 {
        let before = faults.syncs();
        db.put(number.to_be_bytes(), b"value").unwrap();
        wait_until("the interval ends", || faults.syncs() > before);
    }
    let (took, attempts) = (began.elapsed(), faults.maintenances());
    assert!(took < Duration::from_secs(4), "{took:?} for 40 intervals of 5 ms");
    let most = 5 + took.as_secs() as u32;
    assert!(attempts <= most, "{attempts} attempts, at most {most}");
}

#[test]
fn without_a_thread_failing_maintenance_is_not_tried_by_every_writer() {
    // Fails if a full disk cost an attempt and a sync for every 128th write.
    let (_directory, faults, db) = on_full_disk(Syncs::ByEngine, false);
    let began = Instant::now();
    for number in 0..32 * 128u32 {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    let most = 2 + (began.elapsed().as_millis() / 100) as u32;
    let (attempts, syncs) = (faults.maintenances(), faults.syncs());
    assert!((1..=most).contains(&attempts), "{attempts} attempts, at most {most}");
    assert_eq!(attempts, syncs);
}

#[test]
fn a_damaged_pair_keeps_no_other_of_a_dropped_table_or_that_has_ended() {
    // Fails if what lies behind a pair that cannot be read is never looked at, if what was found
    // before it is forgotten, or if nobody hears of the damage: whether the value is damaged, or
    // its length, so that it ends behind the file.
    [false, true].into_iter().for_each(remove_beside_damage);
}

/// Drops a table beside a pair whose value is damaged, or the length of that, and lets others end.
fn remove_beside_damage(of_length: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let options = Db::options().engine("reef").durability(Durability::Process);
    let db = options.create(&path).unwrap();
    let (kept, dropped) = (db.create_table("kept").unwrap(), db.create_table("dropped").unwrap());
    let ending = db.expiring_table_or_create("ending").unwrap();
    let items = db.stats().unwrap().items;
    kept.put("key", [b'K'; 40]).unwrap();
    for number in 0..1000u32 {
        dropped.put(number.to_be_bytes(), "value").unwrap();
        let soon = crate::Expiry::After(Duration::from_millis(1));
        ending.put(number.to_be_bytes(), "value", soon).unwrap();
    }
    // The first look of an open database is not that of the one before.
    drop((kept, dropped, ending));
    db.close().unwrap();
    let db = Db::options().durability(Durability::Process).background(false).open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let value = bytes.windows(40).position(|window| window == [b'K'; 40]).unwrap();
    // The length of a value is the upper half of a word in front of its key.
    let is_length = |at: &usize| bytes[*at..at + 4] == 40u32.to_le_bytes();
    let length = (value - 32..value).step_by(4).find(is_length).unwrap();
    let (at, damaged) =
        if of_length { (length, (16u32 << 20).to_le_bytes()) } else { (value, *b"kKKK") };
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &damaged, at as u64).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    db.drop_table("dropped").unwrap();
    let mut damage = 0;
    for _ in 0..200 {
        if let Err(error) = db.core().maintain() {
            assert_eq!(error.kind(), ErrorKind::Damaged);
            damage += 1;
        }
    }
    assert!(damage > 0);
    // A pair more, and a flag less.
    assert_eq!(db.stats().unwrap().items, items + 1 - 1);
}

#[test]
fn without_a_thread_what_failed_maintenance_left_is_synced_and_reported() {
    // Fails if batches never ended where the engine cannot end them, or if the close hid it.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| Some(Err(IndexError::Poisoned)), |_| None);
    let path = directory.path().join("p.ehdb");
    let db = faulty::database(&path, &faults, Syncs::ByEngine, false);
    for number in 0..128u32 {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    assert_eq!((faults.maintenances(), faults.syncs()), (1, 1));
    assert!(db.metrics().maintenance_failed);
    assert!(matches!(db.close(), Err(Error::Maintenance { .. })));
}

/// Says to the process of the next test that no thread can be started there.
const NO_THREADS: &str = "EVERHASH_TEST_NO_THREADS";

#[test]
fn where_the_system_refuses_a_thread_writers_do_the_maintenance() {
    // Fails if they count on a thread that is not there: nothing would be synced any more.
    if std::env::var_os(NO_THREADS).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--test-threads=1", "--nocapture"])
            .arg("tests::maintenance::where_the_system_refuses_a_thread_writers_do_the_maintenance")
            .env(NO_THREADS, "")
            // No machine has room for such a stack.
            .env("RUST_MIN_STACK", (1u64 << 60).to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| {}).is_err());
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let syncs = Syncs::Every(Duration::ZERO);
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, true);
    for number in 0..128u32 {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    assert_eq!((faults.maintenances(), faults.syncs()), (1, 1));
    db.close().unwrap();
}

#[test]
fn without_a_thread_the_end_of_an_interval_begins_the_next() {
    // Fails if every 128th write waited for the device once the first interval is over.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let interval = Duration::from_millis(200);
    let path = directory.path().join("p.ehdb");
    let db = faulty::database(&path, &faults, Syncs::Every(interval), false);
    std::thread::sleep(interval);
    let begun = Instant::now();
    for number in 0..32 * 128u32 {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    let most = 1 + begun.elapsed().as_millis() / interval.as_millis();
    let syncs = u128::from(faults.syncs());
    assert!((1..=most).contains(&syncs), "{syncs} syncs, at most {most}");
}

#[test]
fn a_clear_is_synced_when_its_interval_ends() {
    // Fails if only other writes woke the thread: power loss would bring everything back that was
    // cleared before a silence.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let syncs = Syncs::Every(Duration::from_millis(5));
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, true);
    db.put(b"key", b"value").unwrap();
    wait_until("the interval ends", || faults.syncs() > 0);
    // Longer than the thread looks after what was written.
    std::thread::sleep(Duration::from_millis(100));
    let before = faults.syncs();
    db.clear().unwrap();
    wait_until("the interval ends", || faults.syncs() > before);
    assert!(db.is_empty().unwrap());
}

#[test]
fn a_new_table_is_synced_when_its_interval_ends() {
    // Fails if only a write of a pair woke the thread: power loss would take a table back that was
    // made before a silence.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let syncs = Syncs::Every(Duration::from_millis(5));
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, true);
    // Its number is reserved by a sync, and those of the next ones with it.
    db.create_table("first").unwrap();
    wait_until("the interval ends", || faults.syncs() > 1);
    // Longer than the thread looks after what was written.
    std::thread::sleep(Duration::from_millis(100));
    let before = faults.syncs();
    db.create_table("second").unwrap();
    wait_until("the interval ends", || faults.syncs() > before);
}

#[test]
fn a_panic_beside_the_engine_s_part_is_reported_at_the_end() {
    // Fails if the next attempt, which succeeds, made the close say nothing.
    let (_directory, faults, db) = faulty::quiet(false);
    db.create_table("table").unwrap().put("key", "value").unwrap();
    assert!(db.drop_table("table").unwrap());
    *faults.scan_ends.lock().unwrap() = Some(|| panic!("inside a look"));
    let writes = || {
        for number in 0..128u32 {
            db.put(number.to_be_bytes(), b"value").unwrap();
        }
    };
    // The round begins with the first of them.
    wait_until("a look panics", || {
        writes();
        faults.scan_ends.lock().unwrap().is_none()
    });
    let attempts = faults.maintenances();
    wait_until("it is tried again", || {
        writes();
        faults.maintenances() > attempts
    });
    let error = db.close().unwrap_err().to_string();
    assert!(error.contains("a panic: inside a look"), "{error}");
}

#[test]
fn a_check_runs_beside_no_write_and_no_maintenance() {
    // Fails if what is half done were taken for damage.
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    static IS_BUSY: AtomicBool = AtomicBool::new(false);
    fn work() {
        IS_BUSY.store(true, Ordering::SeqCst);
        HAS_BEGUN.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        IS_BUSY.store(false, Ordering::SeqCst);
    }
    let directory = tempfile::tempdir().unwrap();
    let maintain = |_| {
        work();
        None
    };
    let faults = Faults::new(maintain, |_| None);
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, Syncs::Never, false);
    let write = |db: &Db| db.modify("key", |_| (Change::Keep, work()));
    for run in [write, |db: &Db| db.maintain().map(drop)] {
        HAS_BEGUN.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| run(&db));
            wait_until("it begins", || HAS_BEGUN.load(Ordering::SeqCst));
            let is_beside = db.core().still(|_| Ok(IS_BUSY.load(Ordering::SeqCst)));
            assert!(!is_beside.unwrap());
            busy.join().unwrap().unwrap();
        });
    }
    // Nor does one begin beside it.
    std::thread::scope(|scope| {
        let seen = db.core().still(|table| {
            scope.spawn(|| db.put("key", "value").unwrap());
            std::thread::sleep(Duration::from_millis(50));
            table.len()
        });
        assert_eq!(seen.unwrap(), 0);
    });
}

#[test]
fn a_deadline_is_kept_though_nobody_writes() {
    // Fails if the thread slept beyond it: the last batch of an engine would wait for the next
    // write.
    const FIRST: Upkeep = Upkeep { deadline: Some(Duration::from_millis(200)), more: false };
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|number| (number == 0).then_some(Ok(FIRST)), |_| None);
    let _db = faulty::database(&directory.path().join("p.ehdb"), &faults, Syncs::Never, true);
    wait_until("it comes", || faults.maintenances() > 1);
}

#[test]
fn an_interval_ends_while_there_are_writes_without_a_pause() {
    // Fails if each write began it anew: nothing would be synced for as long as somebody writes.
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::new(|_| None, |_| None);
    let syncs = Syncs::Every(Duration::from_millis(50));
    let db = faulty::database(&directory.path().join("p.ehdb"), &faults, syncs, true);
    let mut number = 0u32;
    wait_until("intervals end", || {
        number += 1;
        db.put(number.to_be_bytes(), b"value").unwrap();
        faults.syncs() >= 2
    });
}
