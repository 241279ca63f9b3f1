//! What only shows from inside: failing devices, counted syncs, and forked processes.

mod copies;
mod counts;
mod expiry;
pub(crate) mod faulty;
mod iteration;
mod maintenance;
mod names;
mod tables;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use everhash_pmem::media::file::system::{Call, System};
use everhash_pmem::{FileMedium, Origin, Region};

use crate::core::Core;
use crate::maintenance::{Maintenance, Syncs};
use crate::place::{Identity, New, file_options, status};
use crate::{Db, Durability, Error, ErrorKind, Options};

/// A system that counts syncs, and refuses them from the time it is told to.
#[derive(Debug, Default)]
struct Device {
    syncs: AtomicU32,
    /// The error number of every sync; 0 for none.
    fails_with: AtomicI32,
}

impl System for Device {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        if call == Call::Sync {
            self.syncs.fetch_add(1, Ordering::SeqCst);
            let number = self.fails_with.load(Ordering::SeqCst);
            if number != 0 {
                return Err(io::Error::from_raw_os_error(number));
            }
        }
        run()
    }
}

impl Device {
    fn syncs(&self) -> u32 {
        self.syncs.load(Ordering::SeqCst)
    }
}

fn on(device: &Arc<Device>, durability: Durability) -> Options {
    let options = Db::options().durability(durability);
    Options { system: Arc::<Device>::clone(device), ..options }
}

#[test]
fn p09_after_a_failed_sync_the_handle_is_dead() {
    // Fails if a later sync that happens to succeed were taken for success, or if a close after
    // the failure marked the file as clean.
    const EIO: i32 = 5;
    for durability in [Durability::Immediate, Durability::Process] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let device = Arc::new(Device::default());
        let db = on(&device, durability).create(&path).unwrap();
        db.put(b"before", b"1").unwrap();
        db.sync().unwrap();
        device.fails_with.store(EIO, Ordering::SeqCst);
        if durability == Durability::Process {
            db.put(b"during", b"2").unwrap();
            assert!(matches!(db.sync(), Err(Error::File { .. })));
        } else {
            assert!(matches!(db.put(b"during", b"2"), Err(Error::File { .. })));
        }
        device.fails_with.store(0, Ordering::SeqCst);
        assert!(matches!(db.put(b"after", b"3"), Err(Error::Dead { .. })));
        assert!(matches!(db.sync(), Err(Error::Dead { .. })));
        assert!(matches!(db.get(b"before"), Err(Error::Dead { .. })));
        assert!(matches!(db.snapshot(), Err(Error::Dead { .. })));
        assert!(matches!(db.close(), Err(Error::Dead { .. })));
        assert!(matches!(Db::open_read_only(&path), Err(Error::NeedsRecovery { .. })));
        let db = Db::open(&path).unwrap();
        assert!(db.info().recovered);
        assert_eq!(db.get(b"before").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get(b"after").unwrap(), None);
    }
}

#[test]
fn p09_a_write_whose_sync_failed_says_so_where_the_engine_batches() {
    // Fails if only the engine's own errors are those of a write.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    Db::options().durability(Durability::Batch).create(&path).unwrap().close().unwrap();
    let device = Arc::new(Device::default());
    let db = on(&device, Durability::Immediate).open(&path).unwrap();
    let before = device.syncs();
    db.put(b"before", b"1").unwrap();
    assert!(device.syncs() > before);
    device.fails_with.store(5, Ordering::SeqCst);
    assert!(db.put(b"during", b"2").is_err());
    assert!(matches!(db.put(b"after", b"3"), Err(Error::Dead { .. })));
}

#[test]
fn immediate_writes_wait_for_the_device_and_relaxed_ones_do_not() {
    // Fails if the chosen durability did not reach the file.
    let syncs_of_ten_puts = |durability| {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(Device::default());
        // An engine that has its place from the start: a file that grows is synced, too.
        let options = on(&device, durability).engine("wophi").background(false);
        let options = options.expected_items(100);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        db.put(b"first", b"").unwrap();
        let before = device.syncs();
        for number in 0..10u8 {
            db.put([number], b"value").unwrap();
        }
        device.syncs() - before
    };
    assert!(syncs_of_ten_puts(Durability::Immediate) >= 10);
    assert_eq!(syncs_of_ten_puts(Durability::Process), 0);
    assert_eq!(syncs_of_ten_puts(Durability::Interval(Duration::from_secs(3600))), 0);
}

#[test]
fn an_engine_that_batches_syncs_no_more_often_than_was_chosen() {
    // Fails if its own epochs ended with a sync where the caller wants to choose the time, or if
    // a batch were a batch of one.
    const PUTS: u32 = 5000;
    let syncs_of_puts = |durability, count: u32| {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(Device::default());
        let options = on(&device, durability).engine("walsh").background(false);
        // Small enough for thousands of epochs.
        let options = options.setting("flush_bytes", 128).expected_items(100);
        let options = match durability {
            Durability::Batch => options.setting("flush_bytes", 256 << 10),
            _ => options,
        };
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let before = device.syncs();
        for number in 0..count {
            db.put(number.to_be_bytes(), b"value").unwrap();
        }
        let during = device.syncs() - before;
        db.sync().unwrap();
        (during, device.syncs() - before - during)
    };
    assert_eq!(syncs_of_puts(Durability::Process, PUTS), (0, 2));
    let (during, at_sync) = syncs_of_puts(Durability::Batch, PUTS);
    assert!((1..PUTS / 50).contains(&during) && at_sync == 2, "{during} syncs, then {at_sync}");
    assert!(syncs_of_puts(Durability::Immediate, 20).0 >= 20);
}

#[test]
fn an_interval_ends_with_one_sync_and_idleness_with_none() {
    // Fails if the background thread forgot a write, or synced for ever when nobody writes.
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(Device::default());
    let interval = Duration::from_millis(30);
    // An engine whose sync is one of the device; an epoch is two.
    let options = on(&device, Durability::Interval(interval)).engine("wophi");
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    // The first write may grow the file, which is a sync of its own.
    db.put(b"key", b"first").unwrap();
    std::thread::sleep(5 * interval);
    for round in 0..3 {
        let before = device.syncs();
        let started = Instant::now();
        db.put(b"key", [round]).unwrap();
        while device.syncs() == before {
            assert!(started.elapsed() < Duration::from_secs(20), "no sync in round {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(started.elapsed() >= interval, "the interval is there to gather writes");
        let after = device.syncs();
        std::thread::sleep(5 * interval);
        assert_eq!(device.syncs(), after, "nobody wrote");
    }
}

#[test]
fn a_failure_of_a_background_sync_is_not_lost() {
    // Fails if only the thread knew that its sync failed, and writes went on.
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(Device::default());
    let options = on(&device, Durability::Interval(Duration::from_millis(5)));
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    device.fails_with.store(5, Ordering::SeqCst);
    let started = Instant::now();
    while !matches!(db.put(b"key", b"value"), Err(Error::Dead { .. })) {
        assert!(started.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a database, and returns the handle to it that a child of the process would have.
fn of_a_parent(path: &Path) -> Db {
    let new = New::begin(&Db::options(), path, Durability::Immediate, true).unwrap();
    new.file.media().publish().unwrap();
    let elsewhere = Origin::of_process(std::process::id() + 1);
    let (shared, maintenance) = (Arc::from(path), Maintenance::new(Syncs::Never));
    let core = Core::new(new.table, shared, elsewhere, true, true, maintenance);
    let db = Db::of(core, new.info, &Db::options()).unwrap();
    db.identified(Identity::of(path).ok())
}

#[test]
fn a_forked_child_does_not_delete_or_replace_what_its_parent_has_open() {
    // Fails if the file went, or another one had its name, while the parent writes to it.
    let directory = tempfile::tempdir().unwrap();
    let rewrites: [fn(Db) -> crate::Result<()>; 3] =
        [Db::discard, |db| db.compact().map(drop), |db| db.truncate().map(drop)];
    for (number, rewrite) in rewrites.into_iter().enumerate() {
        let path = directory.path().join(format!("{number}.ehdb"));
        let db = of_a_parent(&path);
        let before = Identity::of(&path).unwrap();
        assert!(matches!(rewrite(db), Err(Error::Forked { .. })), "{number}");
        assert_eq!(Identity::of(&path).unwrap(), before, "{number}");
    }
}

#[test]
fn a_forked_child_is_refused_and_leaves_the_file_alone() {
    // Fails if a child's copy of the handle wrote, or closed what its parent has open.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = of_a_parent(&path);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(db.put(b"key", b"value"), Err(Error::Forked { .. })));
    assert!(matches!(db.get(b"key"), Err(Error::Forked { .. })));
    assert!(matches!(db.sync(), Err(Error::Forked { .. })));
    // By locks of the store, which another thread may have held when the process forked.
    assert!(matches!(db.tables(), Err(Error::Forked { .. })));
    assert!(matches!(db.drop_table("table"), Err(Error::Forked { .. })));
    assert!(matches!(db.backup("/nowhere/copy", &Db::options()), Err(Error::Forked { .. })));
    // Figures cannot be refused; what lies behind a lock is left out.
    db.core().maintenance.keep(&path, "a failure".to_owned());
    let metrics = db.metrics();
    assert!(metrics.stats.is_none() && !metrics.maintenance_failed && !metrics.stopped);
    assert!(matches!(db.close(), Err(Error::Forked { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(matches!(Db::open(&path), Err(Error::AlreadyOpen { .. })), "the lock is the parent's");
}

#[test]
fn a_value_is_read_while_its_thread_ends() {
    // Fails if a destructor of the thread that looks into the database ended the process, because
    // the buffer of the thread was destroyed before.
    struct Last(Db, std::sync::mpsc::Sender<Option<usize>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.1.send(self.0.size_of("key").unwrap()).unwrap();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let directory = tempfile::tempdir().unwrap();
    let db = Db::create(directory.path().join("pairs.ehdb")).unwrap();
    db.put("key", "value").unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Before the buffer, and so it is destroyed after it.
        LAST.set(Some(Last(db.clone(), said)));
        assert_eq!(db.size_of("key").unwrap(), Some(5));
    })
    .join()
    .unwrap();
    assert_eq!(heard.recv().unwrap(), Some(5));
}

#[test]
fn no_choice_is_too_large() {
    // Fails if a sum of a size that no file reaches overflowed, in a program that is tested by a
    // panic, in others by a table that is too small; if a number is refused that would do, or the
    // one that is said to do; or if what is refused leaves a file.
    for engine in crate::engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let options = Db::options().engine(engine.name).durability(Durability::Process);
        let small = options.clone().capacity_bytes(1 << 24);
        let refused = small.clone().expected_items(u64::MAX).create(&path).map(drop);
        let Err(Error::TooManyExpected { most, .. }) = refused else {
            panic!("{}: {refused:?}", engine.name)
        };
        let one_more = small.clone().expected_items(most + 1).create(&path);
        assert_eq!(one_more.err().map(|it| it.kind()), Some(ErrorKind::InvalidOption));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let db = small.clone().expected_items(most).create(&path).unwrap();
        // A copy takes what can be had, and not what was wished for.
        let copy = directory.path().join("copy");
        db.backup(&copy, &small.expected_items(u64::MAX)).unwrap();
        db.discard().unwrap();
        std::fs::remove_file(copy).unwrap();
        let options = options.threads(usize::MAX).capacity_bytes(u64::MAX);
        let db = options.create(&path).unwrap();
        for number in 0..300u32 {
            db.put(number.to_be_bytes(), "value").unwrap();
        }
        let killed = directory.path().join("killed");
        std::fs::copy(&path, &killed).unwrap();
        db.close().unwrap();
        for path in [&path, &killed] {
            assert_eq!(options.open(path).unwrap().len().unwrap(), 300, "{}", engine.name);
        }
    }
}

#[test]
fn a_hash_function_of_a_newer_program_is_unsupported() {
    // Fails if its keys were looked for by another hash function: all would be absent.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    Db::create(&path).unwrap().close().unwrap();
    let options = Db::options();
    let file = FileMedium::open(&path, &file_options(&options, options.durability)).unwrap();
    let file = Region::new(file);
    let mut status = status(&path, &file).unwrap();
    status.identity.hash_kind = 200;
    let error = Db::open_file(&options, &path, file.clone(), &status, status.boot).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("hash function 200"), "{error}");
}

#[test]
fn a_long_call_lies_below_no_bound_of_the_histogram() {
    // Fails if a call of a minute were shown as one of 17 s at most.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().count_calls(true).background(false);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let counters = db.core().counters().unwrap();
    counters.count(crate::metrics::Kind::Sync, Duration::from_secs(60), false);
    let text = db.metrics().to_string();
    let buckets =
        text.lines().filter(|line| line.contains("_bucket{") && line.contains("\"sync\""));
    let (last, bounded): (Vec<_>, Vec<_>) = buckets.partition(|line| line.contains("+Inf"));
    assert!(bounded.len() > 20 && bounded.iter().all(|line| line.ends_with(" 0")), "{text}");
    assert!(last[0].ends_with(" 1"), "{text}");
}

#[test]
fn figures_tell_of_a_device_that_failed() {
    // Fails if whoever watches the figures saw a database at work that refuses every call.
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(Device::default());
    let options = on(&device, Durability::Process).count_calls(true).background(false);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    db.put(b"key", b"value").unwrap();
    let before = db.metrics();
    assert!(!before.stopped && before.stats.is_some());
    device.fails_with.store(5, Ordering::SeqCst);
    db.sync().unwrap_err();
    let after = db.metrics();
    assert!(after.stopped && after.stats.is_none());
    assert_eq!(after.calls.as_ref().unwrap().failed, before.calls.unwrap().failed + 1);
    let text = after.to_string();
    let is_said = |line: &str| line.starts_with("everhash_stopped{") && line.ends_with(" 1");
    assert!(text.lines().any(is_said) && !text.contains("everhash_pairs"), "{text}");
}

#[test]
fn times_in_the_histogram_are_in_seconds() {
    // Fails if a bound or a sum had another unit: what Prometheus computes of them would be off.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().count_calls(true).background(false);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let counters = db.core().counters().unwrap();
    counters.count(crate::metrics::Kind::Sync, Duration::from_micros(3), false);
    let text = db.metrics().to_string();
    let figure = |part: &str| {
        let is_it = |line: &&str| line.contains("\"sync\"") && line.contains(part);
        text.lines().find(is_it).and_then(|line| line.rsplit_once(' ')).unwrap().1
    };
    assert!(text.contains("le=\"0.000000128\""), "the first bound");
    assert_eq!(figure("le=\"0.000002048\""), "0");
    assert_eq!(figure("le=\"0.000004096\""), "1");
    assert_eq!((figure("_sum{"), figure("_count{")), ("0.000003", "1"));
}

#[test]
fn an_error_of_the_system_has_the_kind_that_a_program_acts_on() {
    // Fails if a program took a file that it may not write for a broken device, or the other way
    // round.
    const EROFS: i32 = 30;
    const EACCES: i32 = 13;
    const EIO: i32 = 5;
    let of = |number| {
        let source = io::Error::from_raw_os_error(number);
        Error::of_system(std::path::Path::new("pairs.ehdb"), "testing", source)
    };
    assert_eq!(of(EROFS).kind(), ErrorKind::PermissionDenied);
    assert_eq!(of(EACCES).kind(), ErrorKind::PermissionDenied);
    assert_eq!(of(EIO).kind(), ErrorKind::Io);
    assert_eq!(of(EIO).io_error().and_then(io::Error::raw_os_error), Some(EIO));
    for poisoned in [everhash_index::Error::Poisoned, everhash_pmem::Error::Poisoned.into()] {
        let error = Error::of(std::path::Path::new("pairs.ehdb"), poisoned);
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
    }
    let random = Error::Random { source: io::Error::from_raw_os_error(EIO) };
    assert_eq!(random.kind(), ErrorKind::Io);
    assert_eq!(random.io_error().and_then(io::Error::raw_os_error), Some(EIO));
}
