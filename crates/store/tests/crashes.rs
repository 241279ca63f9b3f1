//! After a crash: what opens, what is refused, and what repair accepts.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::{Path, PathBuf};

use everhash_pmem::{Boot, FileDurability, FileMedium, FileOptions, Pool, Region};
use everhash_store::{Db, Durability, Error};

const PAIRS: u32 = 500;

/// Makes a database and returns a copy of its file as a killed process leaves it.
fn killed(directory: &Path, durability: Durability) -> PathBuf {
    let path = directory.join("pairs.ehdb");
    let copy = directory.join("copy.ehdb");
    let db = Db::options().durability(durability).create(&path).unwrap();
    for number in 0..PAIRS {
        db.put(&number.to_be_bytes(), b"value").unwrap();
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
    for durability in [Durability::Immediate, Durability::Process] {
        let directory = tempfile::tempdir().unwrap();
        let path = killed(directory.path(), durability);
        assert_eq!(u64::from(PAIRS), Db::check_at_rest(&path).unwrap().items);
        assert!(matches!(Db::open_read_only(&path), Err(Error::NeedsRecovery { .. })));
        let db = Db::open(&path).unwrap();
        assert!(db.info().recovered);
        assert_eq!(db.check().unwrap().items, u64::from(PAIRS));
        assert!((0..PAIRS).all(|number| db.contains(&number.to_be_bytes()).unwrap()));
        db.close().unwrap();
        assert!(!Db::open(&path).unwrap().info().recovered);
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
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // Nothing was lost here, so the structure is sound and repair accepts it.
    assert_eq!(Db::repair(&path).unwrap().items, u64::from(PAIRS));
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.len().unwrap(), u64::from(PAIRS));
}

#[test]
fn a_power_failure_can_be_accepted_by_an_option() {
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
