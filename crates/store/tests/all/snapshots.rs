//! Snapshots: all pairs as of one instant, whatever is written beside.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Map, Steps, map_of, place};
use everhash_store::{
    Change, Db, Durability, ErrorKind, Form, Options, Snapshot, WriteBatch, engines,
};

fn relaxed(engine: &str) -> Options {
    Db::options().engine(engine).durability(Durability::Process)
}

/// Returns all pairs of a snapshot; a pair that comes twice comes with the same value.
fn contents(snapshot: &Snapshot) -> Map {
    map_of(snapshot.into_iter(), b"")
}

/// Does one write of any kind to the database and the model.
fn write(db: &Db, model: &mut Map, steps: &mut Steps) {
    let [key, other] = [0, 1].map(|_| steps.next(400).to_be_bytes().to_vec());
    let value = vec![steps.next(256) as u8; steps.next(60) as usize];
    match steps.next(10) {
        0..3 => {
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        3 => {
            db.put_if_absent(&key, &value).unwrap();
            model.entry(key).or_insert(value);
        }
        4 => {
            db.remove(&key).unwrap();
            model.remove(&key);
        }
        5 => {
            db.modify(&key, |_| (Change::Remove, ())).unwrap();
            model.remove(&key);
        }
        6 => {
            db.put_many(&[(&key, &value), (&other, &value)]).unwrap();
            model.insert(key, value.clone());
            model.insert(other, value);
        }
        7 => {
            db.remove_many(&[&key, &other]).unwrap();
            model.remove(&key);
            model.remove(&other);
        }
        8 => {
            let mut batch = WriteBatch::new();
            batch.remove(&key).put(&other, &value);
            db.write(&batch).unwrap();
            model.remove(&key);
            model.insert(other, value);
        }
        _ => {
            if db.update(&key, &value).unwrap() {
                model.insert(key, value);
            }
        }
    }
}

#[test]
fn a_snapshot_shows_the_pairs_of_its_instant() {
    // Fails if one kind of write kept nothing, if a removed key were missing, if a new one were
    // there, or if one snapshot saw what another one kept.
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name).snapshot_bytes(16 << 20).create(path).unwrap();
        let (mut model, mut steps) = (Map::new(), Steps(7));
        let mut taken: Vec<(Snapshot, Map)> = Vec::new();
        for step in 0..6000 {
            write(&db, &mut model, &mut steps);
            if step % 500 == 250 {
                taken.push((db.snapshot().unwrap(), model.clone()));
            }
            if step % 977 == 976 {
                let (snapshot, model) = taken.remove(0);
                assert!(contents(&snapshot) == model, "{} at {step}", engine.name);
            }
            if step == 4000 {
                db.clear().unwrap();
                model.clear();
            }
        }
        assert!(taken.len() > 3);
        for (snapshot, model) in taken {
            assert!(contents(&snapshot.clone()) == model, "{}", engine.name);
            for key in (0..400u64).map(|key| key.to_be_bytes()) {
                assert_eq!(snapshot.get(key).unwrap().as_ref(), model.get(&key[..]));
                assert_eq!(snapshot.contains_key(key).unwrap(), model.contains_key(&key[..]));
            }
        }
        let now: Map = db.iter().map(Result::unwrap).collect();
        assert!(now == model, "{}", engine.name);
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_is_of_one_instant_beside_writing_threads() {
    // Fails if a write could slip in around the instant, or between a look into the table and the
    // look at what was kept. Each thread raises its two keys one after the other, and puts and
    // removes others: at any instant the first is as high as the second, or one higher.
    const THREADS: u64 = 3;
    for engine in engines() {
        let (_directory, path) = place();
        let db = relaxed(engine.name).create(path).unwrap();
        for number in 0..2000u64 {
            db.put((100 + number).to_be_bytes(), [0; 30]).unwrap();
        }
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, stop, rounds) = (&db, &stop, &rounds);
                scope.spawn(move || {
                    let mut steps = Steps(thread);
                    for round in 1u64.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        for key in [2 * thread, 2 * thread + 1] {
                            db.put(key.to_be_bytes(), round.to_be_bytes()).unwrap();
                        }
                        let key = (100 + steps.next(4000)).to_be_bytes();
                        if round % 2 == 0 {
                            db.put(key, [round as u8; 30]).unwrap();
                        } else {
                            db.remove(key).unwrap();
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for look in 0..40 {
                let snapshot = db.snapshot().unwrap();
                let got: Vec<_> = (0..2 * THREADS)
                    .rev()
                    .map(|key| snapshot.get(key.to_be_bytes()).unwrap())
                    .collect();
                let before = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) < before + 50 {
                    std::thread::yield_now();
                }
                // On another thread: it can be sent.
                let all = scope.spawn(move || (contents(&snapshot), snapshot)).join().unwrap();
                let (all, snapshot) = all;
                assert!(contents(&snapshot) == all, "{} at {look}: it changed", engine.name);
                for key in 0..2 * THREADS {
                    let listed = all.get(&key.to_be_bytes()[..]);
                    assert_eq!(got[(2 * THREADS - 1 - key) as usize].as_ref(), listed);
                }
                let number = |key: u64| {
                    let value = all.get(&key.to_be_bytes()[..]);
                    value.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
                };
                for thread in 0..THREADS {
                    let (first, second) = (number(2 * thread), number(2 * thread + 1));
                    assert!(first == second || first == second + 1, "{first}, then {second}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn words_are_kept_as_well() {
    // Fails if the path without slices kept nothing.
    for engine in engines().iter().filter(|engine| engine.capabilities.holds(Form::WORDS)) {
        let (_directory, path) = place();
        let db = relaxed(engine.name).form(Form::WORDS).create(path).unwrap();
        let words = db.words().unwrap();
        for number in 0..1000 {
            words.put(number, number).unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        for number in 0..1000 {
            words.put(number, 7).unwrap();
            words.put_if_absent(number + 1000, 7).unwrap();
            words.remove(number / 2).unwrap();
            words.update(number, 8).unwrap();
        }
        let expected: Map = (0..1000u64)
            .map(|number| (number.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()))
            .collect();
        assert!(contents(&snapshot) == expected, "{}", engine.name);
    }
}

#[test]
fn a_snapshot_that_is_full_says_so_and_writes_go_on() {
    // Fails if a write failed because of a snapshot, or if a full one showed new values.
    let (_directory, path) = place();
    let db = relaxed("walsh").snapshot_bytes(20_000).create(path).unwrap();
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), [1; 20]).unwrap();
    }
    let (snapshot, other) = (db.snapshot().unwrap(), db.snapshot().unwrap());
    drop(other);
    let mut pairs = snapshot.iter();
    pairs.next().unwrap().unwrap();
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), [2; 20]).unwrap();
    }
    let error = snapshot.get(0u32.to_be_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotFull);
    assert!(error.to_string().contains("20000"), "{error}");
    assert!(pairs.any(|pair| pair.is_err()) && pairs.next().is_none());
    assert_eq!(db.snapshot().unwrap().get(0u32.to_be_bytes()).unwrap().unwrap(), [2; 20]);
    drop((snapshot, pairs));
    db.close().unwrap();
}

#[test]
fn a_full_snapshot_passes_over_no_pair_that_was_removed() {
    // Fails if a walk that finds no pair in the table any more ended without an error, although not
    // all that were removed were kept.
    let (_directory, path) = place();
    let db = relaxed("reef").snapshot_bytes(20_000).create(path).unwrap();
    let keys = 0..1000u32;
    keys.clone().for_each(|key| assert!(!db.put(key.to_be_bytes(), [1; 20]).unwrap()));
    let snapshot = db.snapshot().unwrap();
    keys.for_each(|key| assert!(db.remove(key.to_be_bytes()).unwrap()));
    let last = snapshot.iter().last().expect("something is said");
    assert_eq!(last.unwrap_err().kind(), ErrorKind::SnapshotFull);
    drop(snapshot);
    db.close().unwrap();
}

#[test]
fn a_snapshot_sees_tables_and_those_that_are_dropped_later() {
    // Fails if the removal of a dropped table's pairs went on under a snapshot, or for ever waited
    // after it.
    let (_directory, path) = place();
    let db = relaxed("wophi").background(false).create(path).unwrap();
    let [red, blue] = ["red", "blue"].map(|name| db.create_table(name).unwrap());
    for number in 0..500u32 {
        red.put(number.to_be_bytes(), "red").unwrap();
        blue.put(number.to_be_bytes(), "blue").unwrap();
    }
    let snapshot = red.snapshot().unwrap();
    let of_blue = snapshot.table("blue").unwrap();
    blue.put("new", "pair").unwrap();
    db.drop_table("red").unwrap();
    db.drop_table("blue").unwrap();
    while db.maintain().unwrap() {}
    assert_eq!(contents(&snapshot).len(), 500);
    assert!(contents(&snapshot).values().all(|value| value == b"red"));
    assert!(contents(&of_blue).len() == 500 && of_blue.get("new").unwrap().is_none());
    assert_eq!(red.snapshot().unwrap_err().kind(), ErrorKind::NoTable);
    drop((snapshot, of_blue));
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().unwrap().items, 2);
}

#[test]
fn a_backup_holds_up_no_writer_and_is_of_one_moment() {
    // Fails if writes waited for a backup: here one that is read while a writer goes on, and that
    // has every pair of its instant and none that came later.
    for engine in engines() {
        let (directory, path) = place();
        let db = relaxed(engine.name).create(&path).unwrap();
        for number in 0..20_000u64 {
            db.put(number.to_be_bytes(), [1; 40]).unwrap();
        }
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 20_000u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // In order: what the copy has is a first part of it.
                    db.put(number.to_be_bytes(), [2; 40]).unwrap();
                    db.remove((number - 20_000).to_be_bytes()).unwrap();
                    written.store(number, Ordering::Relaxed);
                }
            });
            while written.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let copy = directory.path().join("copy.ehdb");
            let before = written.load(Ordering::Relaxed);
            let items = db.checkpoint(&copy).unwrap();
            assert!(written.load(Ordering::Relaxed) > before + 10, "{}", engine.name);
            stop.store(true, Ordering::Relaxed);
            let copy = Db::open_read_only(copy).unwrap();
            assert_eq!(copy.check().unwrap().items, items);
            let mut keys: Vec<_> = copy
                .keys()
                .map(|key| u64::from_be_bytes(key.unwrap().try_into().unwrap()))
                .collect();
            keys.sort_unstable();
            keys.dedup();
            // One window of keys without a gap.
            let (first, last) = (keys[0], keys[keys.len() - 1]);
            assert!((20_000..=20_001).contains(&keys.len()), "{}: {}", engine.name, keys.len());
            assert_eq!(last - first + 1, keys.len() as u64, "{}", engine.name);
            assert!(last >= before);
        });
    }
}

#[test]
fn a_backup_that_a_crash_interrupts_leaves_none() {
    // Fails if a copy that is not complete had its name, or if the database felt it. The process
    // that is killed is this test again.
    const ORDER: &str = "EVERHASH_TEST_BACKUP";
    if let Ok(path) = std::env::var(ORDER) {
        let db = Db::open(&path).unwrap();
        let writer = db.clone();
        std::thread::spawn(move || {
            for number in 0u64.. {
                writer.put(number.to_be_bytes(), [2; 40]).unwrap();
            }
        });
        for number in 0.. {
            println!("begins");
            let copy = Path::new(&path).with_extension(format!("copy{number}"));
            db.backup(copy, &Db::options()).unwrap();
        }
    }
    let (directory, path) = place();
    let db = relaxed("walsh").create(&path).unwrap();
    let pairs: Vec<_> = (0..50_000u64).map(|number| (number.to_be_bytes(), [1; 40])).collect();
    db.put_many(&pairs).unwrap();
    db.close().unwrap();
    for round in 0..4 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "snapshots::a_backup_that_a_crash_interrupts_leaves_none"])
            .arg("--nocapture")
            .env(ORDER, &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut begun =
            std::io::BufRead::lines(said).filter(|line| line.as_ref().unwrap() == "begins");
        begun.next().unwrap().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let db = Db::open(&path).unwrap();
        assert!(db.check().unwrap().items >= 50_000);
        assert!((0..50_000u64).all(|number| db.contains_key(number.to_be_bytes()).unwrap()));
        db.close().unwrap();
        for file in directory.path().read_dir().unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if file != path && name.starts_with("pairs.copy") {
                assert!(Db::open_read_only(&file).unwrap().check().unwrap().items >= 50_000);
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "measures: run it alone, with --nocapture"]
fn the_longest_put_beside_a_backup_of_300_000_pairs() {
    // Fails if a put waits for as long as the pairs take to be read. Prints the longest puts of one
    // thread in the second before a backup and during it; `EVERHASH_ENGINE` chooses the engine, and
    // `EVERHASH_PLACE` the directory.
    let engine = std::env::var("EVERHASH_ENGINE").unwrap_or_else(|_| "walsh".into());
    let place = std::env::var("EVERHASH_PLACE").unwrap_or_else(|_| ".".into());
    let directory = tempfile::tempdir_in(place).unwrap();
    let db = relaxed(&engine).create(directory.path().join("pairs.ehdb")).unwrap();
    let pairs: Vec<_> = (0..300_000u64).map(|number| (number.to_be_bytes(), [1; 100])).collect();
    db.put_many(&pairs).unwrap();
    db.sync().unwrap();
    let (stop, phase) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = [AtomicU64::new(0), AtomicU64::new(0)];
    let puts = [AtomicU64::new(0), AtomicU64::new(0)];
    let mut took = std::time::Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut steps = Steps(1);
            while !stop.load(Ordering::Relaxed) {
                let began = std::time::Instant::now();
                db.put(steps.next(300_000).to_be_bytes(), [2; 100]).unwrap();
                let nanoseconds = began.elapsed().as_nanos() as u64;
                let phase = phase.load(Ordering::Relaxed) as usize;
                longest[phase].fetch_max(nanoseconds, Ordering::Relaxed);
                puts[phase].fetch_add(1, Ordering::Relaxed);
                // Some 20,000 writes a second: a program that has other things to do.
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
        phase.store(1, Ordering::Relaxed);
        let began = std::time::Instant::now();
        db.backup(directory.path().join("copy.ehdb"), &Db::options()).unwrap();
        took = began.elapsed();
        stop.store(true, Ordering::Relaxed);
    });
    let [before, during] =
        longest.map(|longest| std::time::Duration::from_nanos(longest.into_inner()));
    let [puts_before, puts_during] = puts.map(AtomicU64::into_inner);
    println!(
        "{engine}: longest of {puts_before} puts before {before:.2?}; of {puts_during} during a \
         backup of {took:.2?}: {during:.2?}"
    );
    assert!(during < std::time::Duration::from_millis(50), "{during:?}");
}

#[test]
fn a_key_has_one_value_in_a_snapshot_beside_a_writer() {
    // Fails if what was kept of a key is looked for before the table is read: the writer may come
    // in between.
    let (_directory, path) = place();
    let db = relaxed("reef").snapshot_bytes(16 << 20).create(path).unwrap();
    db.put("key", 0u64.to_le_bytes()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u64.. {
                db.put("key", number.to_le_bytes()).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let different = (0..20_000).find_map(|_| {
            let snapshot = db.snapshot().unwrap();
            let seen = [0; 3].map(|_| snapshot.get("key").unwrap());
            (seen[0] != seen[1] || seen[1] != seen[2]).then_some(seen)
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(different, None);
    });
}

#[test]
fn the_other_end_is_told_why_a_snapshot_is_incomplete() {
    // Fails if it only saw that the stream ends: the limit that is to be raised is known here.
    let (_directory, path) = place();
    let db = relaxed("reef").snapshot_bytes(1000).create(path).unwrap();
    db.put("key", "value").unwrap();
    let snapshot = db.snapshot().unwrap();
    for number in 0..100u32 {
        db.put(number.to_be_bytes(), "value").unwrap();
    }
    let mut stream = Vec::new();
    assert_eq!(snapshot.send_to(&mut stream).unwrap_err().kind(), ErrorKind::SnapshotFull);
    let mut pairs = everhash_store::ReceivedPairs::new(&stream[..]);
    let told = pairs.find_map(Result::err).unwrap();
    assert_eq!(told.kind(), ErrorKind::Incomplete);
    assert!(told.to_string().contains("snapshot_bytes"), "{told}");
    assert!(pairs.next().is_none());
}

/// Takes or gives so many bytes, fails once, and goes on as if nothing had been.
struct Breaks(Option<usize>);

impl Breaks {
    fn pass(&mut self, bytes: usize) -> std::io::Result<usize> {
        match self.0 {
            Some(0) => {
                self.0 = None;
                Err(std::io::Error::other("the line is bad"))
            }
            Some(left) => {
                let bytes = bytes.min(left);
                self.0 = Some(left - bytes);
                Ok(bytes)
            }
            None => Ok(bytes),
        }
    }
}

impl std::io::Write for Breaks {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.pass(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Read for Breaks {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.pass(bytes.len())
    }
}

#[test]
fn a_line_that_fails_once_is_an_error_at_both_ends() {
    // Fails if the one that sends were told that all pairs have left, because what came later or
    // was gathered last has; or if the other one were not told why they did not come.
    let (_directory, path) = place();
    let db = relaxed("reef").create(path).unwrap();
    for (count, taken) in [(1u32, 0), (2000, 100_000)] {
        for number in 0..count {
            db.put(number.to_be_bytes(), [7; 100]).unwrap();
        }
        let error = db.snapshot().unwrap().send_to(Breaks(Some(taken))).unwrap_err();
        assert_eq!(error.io_error().unwrap().to_string(), "the line is bad", "{taken}");
    }
    let mut pairs = everhash_store::ReceivedPairs::new(Breaks(Some(0)));
    let told = pairs.next().unwrap().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Incomplete);
    assert!(told.to_string().contains("the line is bad"), "{told}");
}

#[test]
fn behind_its_end_a_stream_has_no_pair_and_no_error() {
    // Fails if whoever asks once more were told that a complete snapshot is incomplete, or got
    // pairs of what comes behind it.
    let (_directory, path) = place();
    let db = relaxed("reef").create(path).unwrap();
    db.put("key", "value").unwrap();
    let mut stream = Vec::new();
    db.snapshot().unwrap().send_to(&mut stream).unwrap();
    for stream in [stream.clone(), [&stream[..], &stream[8..]].concat()] {
        let mut pairs = everhash_store::ReceivedPairs::new(&stream[..]);
        assert!(pairs.next().unwrap().is_ok());
        assert!(pairs.next().is_none());
        assert!(pairs.next().is_none());
    }
}
