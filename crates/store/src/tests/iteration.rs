//! Iterators and copies that meet a failure on their way through a file.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::faulty;
use crate::{Db, Durability, Error, Form};

#[test]
fn nothing_comes_behind_an_error() {
    // Fails if pairs of the part that could not be read came after all, or if the part were tried
    // again: a caller that goes on after an error would take what comes for everything.
    let (_directory, faults, db) = faulty::quiet(false);
    for number in 0..200u8 {
        db.put([number], "value").unwrap();
    }
    *faults.scan_ends.lock().unwrap() = Some(|| faulty::DAMAGE);
    let mut pairs = db.iter();
    assert!(pairs.find_map(Result::err).unwrap().is_damage());
    assert!(pairs.next().is_none());
    *faults.scan_ends.lock().unwrap() = Some(|| faulty::DAMAGE);
    let mut pairs = db.snapshot().unwrap().iter();
    assert!(pairs.find_map(Result::err).unwrap().is_damage());
    assert!(pairs.next().is_none());
}

#[test]
fn a_backup_that_has_failed_reads_no_further() {
    // Fails if a full disk were told when the whole database has been read.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().durability(Durability::Process).count_calls(true);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    for number in 0..8000u32 {
        db.put(number.to_be_bytes(), [7; 1000]).unwrap();
    }
    let reads = || db.metrics().calls.unwrap().read.count();
    let of_backup = |name: &str, options| {
        let before = reads();
        let result = db.backup(directory.path().join(name), &options);
        (result, reads() - before)
    };
    let (whole, all) = of_backup("whole", Db::options());
    assert_eq!(whole.unwrap(), 8000);
    let (failed, some) = of_backup("failed", Db::options().capacity_bytes(4 << 20));
    assert!(failed.unwrap_err().is_full());
    assert!(some > 1 && some < all * 3 / 4, "{some} reads of {all}");
}

#[test]
fn a_pair_that_a_scan_shows_twice_is_one_pair_of_a_copy() {
    // Fails if whoever compares the number with that of the database took a good copy for a wrong
    // one, because the table grew meanwhile.
    let (directory, faults, db) = faulty::quiet(false);
    db.put("key", "value").unwrap();
    faults.scans_twice.store(true, Ordering::SeqCst);
    assert_eq!(db.backup(directory.path().join("copy"), &Db::options()).unwrap(), 1);
}

#[test]
fn a_copy_is_as_large_as_one_can_be_where_more_pairs_are_expected() {
    // Fails if it began smaller: it would grow, and hash everything anew, while it is filled.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine("wophi").durability(Durability::Process);
    let options = options.capacity_bytes(1 << 24).background(false);
    let wish = options.clone().expected_items(u64::MAX);
    let Err(Error::TooManyExpected { most, .. }) = wish.create(directory.path().join("none"))
    else {
        panic!("so many pairs have no room");
    };
    let db = options.expected_items(most).create(directory.path().join("pairs.ehdb")).unwrap();
    let copy = directory.path().join("copy");
    db.backup(&copy, &wish).unwrap();
    let copy = Db::open(&copy).unwrap();
    assert_eq!(copy.stats().unwrap().slots, db.stats().unwrap().slots);
}

#[test]
fn a_setting_has_precedence_over_the_size_that_contradicts_it() {
    // Fails if a database with such a setting could not be copied: its table would be refused, or
    // made for so few pairs that it has no room for those there are.
    for most in [4, 32] {
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().engine("turbo").form(Form::WORDS).background(false);
        let options = options.durability(Durability::Process).setting("max_buckets", most);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        for number in 0..30_000u64 {
            db.put(number.to_le_bytes(), number.to_le_bytes()).unwrap();
        }
        assert_eq!(db.checkpoint(directory.path().join("copy")).unwrap(), 30_000);
        for expected in [30_000, u64::MAX] {
            let wish = options.clone().expected_items(expected);
            db.backup(directory.path().join(format!("copy-{expected}")), &wish).unwrap();
        }
        let db = db.compact().unwrap();
        assert_eq!(db.len().unwrap(), 30_000);
        let odd = options.expected_items(30_000).setting("buckets_per_shard", 2 * most);
        let refused = odd.create(directory.path().join("odd")).unwrap_err();
        assert!(refused.is_setting(), "{refused}");
    }
}

#[test]
fn figures_in_a_file_have_the_calls() {
    // Fails if they were only counted where somebody asks for that, too.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().metrics_file(directory.path().join("prom"), Duration::from_secs(9));
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    db.put("key", "value").unwrap();
    assert_eq!(db.metrics().calls.map(|calls| calls.write.count()), Some(1));
}
