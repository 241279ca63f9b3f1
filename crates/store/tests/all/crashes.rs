//! After a crash: what opens, what is refused, and what repair accepts.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use everhash_pmem::{Boot, FileDurability, FileMedium, FileOptions, Pool, Region};
use everhash_store::{Db, Durability, Error};

const PAIRS: u32 = 500;

/// Makes a database and returns a copy of its file as a killed process leaves it.
fn killed(directory: &Path, durability: Durability) -> PathBuf {
    killed_by(directory, "wophi", durability)
}

/// As [`killed`], by an engine.
fn killed_by(directory: &Path, engine: &str, durability: Durability) -> PathBuf {
    let path = directory.join("pairs.ehdb");
    let copy = directory.join("copy.ehdb");
    let db = Db::options().engine(engine).durability(durability).create(&path).unwrap();
    for number in 0..PAIRS {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    std::fs::copy(&path, &copy).unwrap();
    copy
}

/// Makes a file look as if it had been open in another boot of the machine.
fn boot_differently(path: &Path, durability: FileDurability) {
    let options = FileOptions { durability, ..FileOptions::default() };
    let region = Region::new(FileMedium::open(path, &options).unwrap());
    Pool::open(region, Boot([1, 1])).unwrap().recovered().unwrap();
}

#[test]
fn p01_a_killed_process_loses_nothing() {
    // Fails if a write that returned were only in the memory of the process.
    let modes = [Durability::Immediate, Durability::Batch, Durability::Process];
    let engines = everhash_store::engines().iter().map(|engine| engine.name);
    for (engine, durability) in engines.flat_map(|engine| modes.map(|mode| (engine, mode))) {
        let directory = tempfile::tempdir().unwrap();
        let path = killed_by(directory.path(), engine, durability);
        assert_eq!(u64::from(PAIRS), Db::check_at_rest(&path).unwrap().items);
        assert!(matches!(Db::open_read_only(&path), Err(Error::NeedsRecovery { .. })));
        let db = Db::open(&path).unwrap();
        assert!(db.info().recovered);
        assert_eq!(db.check().unwrap().items, u64::from(PAIRS));
        assert!((0..PAIRS).all(|number| db.contains_key(number.to_be_bytes()).unwrap()));
        db.close().unwrap();
        assert!(!Db::open(&path).unwrap().info().recovered);
    }
}

/// Where the process that is killed finds what to do: path, engine, durability.
const ORDERS: &str = "EVERHASH_TEST_ORDERS";

#[test]
#[ignore = "the process that the next test starts and kills"]
fn a_process_that_writes_until_it_is_killed() {
    // No test of its own: the process that the next test starts and kills.
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let [path, engine, durability] = orders.split('|').collect::<Vec<_>>()[..] else { return };
    let options = Db::options().engine(engine).durability(durability.parse().unwrap());
    let db = options.create_if_missing(true).open(path).unwrap();
    let mut out = std::io::stdout().lock();
    for number in db.len().unwrap() as u32.. {
        db.put(number.to_be_bytes(), number.to_le_bytes()).unwrap();
        if number > 0 {
            db.put(0u32.to_be_bytes(), number.to_le_bytes()).unwrap();
        }
        writeln!(out, "done {number}").unwrap();
    }
}

#[test]
fn p01_a_process_killed_while_it_writes_loses_nothing_that_it_said() {
    // Fails if a write that returned lay in the memory of the process, or if what was under way
    // when it ended keeps the next one from opening the file.
    let program = std::env::current_exe().unwrap();
    for (engine, durability) in [("walsh", "batch"), ("walsh", "process"), ("wophi", "process")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        for round in 0..6 {
            let mut child = Command::new(&program)
                .args(["--exact", "crashes::a_process_that_writes_until_it_is_killed"])
                .args(["--ignored", "--nocapture"])
                .env(ORDERS, format!("{}|{engine}|{durability}", path.display()))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said =
                BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let number = |line: String| line.strip_prefix("done ").and_then(|n| n.parse().ok());
            let enough = (&mut said).filter_map(number).nth(200 + 717 * round);
            child.kill().unwrap();
            // A line that the kill cut short says less.
            let last = said.filter_map(number).max().max(enough).unwrap();
            child.wait().unwrap();
            let db = Db::options().open(&path).unwrap();
            assert!(db.info().recovered);
            let found: u64 = db.check().unwrap().items;
            assert!(found > last && found <= last + 2, "{engine}: {found} pairs, {last} said");
            for number in 1..=last as u32 {
                let value = db.get(number.to_be_bytes()).unwrap();
                assert_eq!(value.as_deref(), Some(&number.to_le_bytes()[..]), "{engine}");
            }
            let updated = db.get(0u32.to_be_bytes()).unwrap().unwrap();
            let updated = u64::from(u32::from_le_bytes(updated.try_into().unwrap()));
            assert!((last..=last + 1).contains(&updated), "{engine}: an update was lost");
            db.close().unwrap();
        }
    }
}

#[test]
fn a_power_failure_under_relaxed_durability_is_said_and_not_guessed() {
    // Fails if a file whose pages may be of any age were opened as if it were recoverable.
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), Durability::Process);
    boot_differently(&path, FileDurability::Process);
    let before = std::fs::read(&path).unwrap();
    let error = Db::open(&path).unwrap_err();
    assert!(matches!(error, Error::PowerLoss { .. }));
    assert!(error.to_string().contains("repair"), "{error}");
    assert!(matches!(Db::open_read_only(&path), Err(Error::PowerLoss { .. })));
    // Whoever asks for another database is told that it is one, and not to repair this one.
    let other = Db::options().engine("reef").open(&path).unwrap_err();
    assert!(matches!(other, Error::Mismatch { .. }), "{other}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // Nothing was lost here, so the structure is sound and repair accepts it.
    assert_eq!(Db::repair(&path).unwrap().items, u64::from(PAIRS));
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.len().unwrap(), u64::from(PAIRS));
}

#[test]
fn repair_gives_back_all_pairs_of_a_database_that_is_sound() {
    // Fails if repair went back to the last sync, which relaxed durability may never have had,
    // although every word that was stored since is there.
    for engine in everhash_store::engines() {
        for relaxed in [Durability::Process, Durability::Interval(Duration::from_secs(3600))] {
            let directory = tempfile::tempdir().unwrap();
            let path = killed_by(directory.path(), engine.name, relaxed);
            boot_differently(&path, FileDurability::Process);
            assert!(matches!(Db::open(&path), Err(Error::PowerLoss { .. })));
            assert_eq!(Db::repair(&path).unwrap().items, u64::from(PAIRS), "{}", engine.name);
            let db = Db::open_read_only(&path).unwrap();
            assert!((0..PAIRS).all(|number| db.contains_key(number.to_be_bytes()).unwrap()));
        }
    }
}

#[test]
fn salvage_gives_back_what_is_intact_and_lists_what_is_not() {
    // Fails if one damaged pair cost the whole database, if a pair came back that is not as it was
    // stored, or if the damage were not listed.
    let value = |number: u32| format!("the value of pair {number:05}, which nobody else has");
    for engine in everhash_store::engines() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
        let db = Db::options().engine(engine.name).create(&path).unwrap();
        for number in 0..PAIRS {
            db.put(number.to_be_bytes(), value(number).as_bytes()).unwrap();
        }
        db.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for number in [7, 77, 377] {
            let text = value(number);
            let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
            bytes[at + 5] ^= 1;
        }
        std::fs::write(&path, &bytes).unwrap();
        let salvaged = Db::salvage(&path, &copy, &Db::options()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!((1..=3).contains(&salvaged.damages), "{}: {salvaged:?}", engine.name);
        assert!(salvaged.listed.iter().all(|damage| damage.at < bytes.len() as u64));
        // Because of one damage WALSH passes over an area, one of 64.
        let pairs = u64::from(PAIRS);
        let kept = pairs * 7 / 8..=pairs - 3;
        assert!(kept.contains(&salvaged.items), "{}: {salvaged:?}", engine.name);
        let copy = Db::open_read_only(&copy).unwrap();
        assert_eq!(copy.check().unwrap().items, salvaged.items);
        for pair in &copy {
            let (key, found) = pair.unwrap();
            let number = u32::from_be_bytes(key.try_into().unwrap());
            assert_eq!(found, value(number).as_bytes());
        }
    }
}

#[test]
fn p06_damage_of_what_a_killed_process_wrote_last_is_not_taken_for_power_loss() {
    // Fails if a check did not know that the machine was not started anew since: what lies behind
    // the last sync would be left out in silence, and the file called sound.
    for engine in everhash_store::engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = killed_by(directory.path(), engine.name, Durability::Batch);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(5).rposition(|part| part == b"value").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let found = Db::check_at_rest(&path).unwrap_err();
        assert!(found.is_damage(), "{}: {found}", engine.name);
        assert!(Db::repair(&path).unwrap_err().is_damage(), "{}", engine.name);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", engine.name);
        let target = directory.path().join("target.ehdb");
        let salvaged = Db::salvage(&path, &target, &Db::options()).unwrap();
        let all_but_one = (u64::from(PAIRS) - 1, 1);
        assert_eq!((salvaged.items, salvaged.damages), all_but_one, "{}", engine.name);
    }
}

#[test]
fn salvage_of_a_database_without_a_root_makes_none() {
    // Fails if an empty database were taken for what was left of the damaged one.
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), Durability::Immediate);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[512..1024].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let target = directory.path().join("target.ehdb");
    assert!(Db::salvage(&path, &target, &Db::options()).unwrap_err().is_damage());
    assert!(!target.exists());
}

#[test]
fn a_check_at_rest_after_a_power_failure_sees_what_an_open_finds() {
    // Fails if it looked at what was written after the last sync, which the open does not take.
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
    let db = Db::options().engine("reef").background(false).create(&path).unwrap();
    db.put("synced", "value").unwrap();
    db.sync().unwrap();
    db.put("not synced", "value").unwrap();
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(Db::check_at_rest(&copy).unwrap().items, 2);
    boot_differently(&copy, FileDurability::Immediate);
    assert_eq!(Db::check_at_rest(&copy).unwrap().items, 1);
    assert_eq!(Db::open(&copy).unwrap().len().unwrap(), 1);
}

#[test]
fn a_power_failure_can_be_accepted_by_an_option() {
    // Fails if the option did not reach the open, or what it accepts were not checked.
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), Durability::Process);
    boot_differently(&path, FileDurability::Interval);
    let db = Db::options().accept_power_loss(true).open(&path).unwrap();
    assert!(db.info().recovered);
    assert_eq!(db.check().unwrap().items, u64::from(PAIRS));
}

#[test]
fn a_power_failure_under_immediate_durability_needs_no_word() {
    // Fails if careful users were asked to repair what recovery handles.
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), Durability::Immediate);
    boot_differently(&path, FileDurability::Immediate);
    let db = Db::open(&path).unwrap();
    assert!(db.info().recovered);
    assert_eq!(db.check().unwrap().items, u64::from(PAIRS));
}

#[test]
fn repair_leaves_a_damaged_file_alone() {
    // Fails if repair wrote to a file before it knew that its structure is sound, which would
    // take away what a better tool, or a person, could still read.
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), Durability::Process);
    boot_differently(&path, FileDurability::Process);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[512..1024].fill(0xa5);
    bytes[8192..middle].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = Db::repair(&path).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}
