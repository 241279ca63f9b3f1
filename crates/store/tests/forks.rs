//! A snapshot for a forked child: whole or refused, whoever of the two ends first.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use everhash_pmem::{end_at_broken_pipes, in_forked_child};
use everhash_store::{Db, Durability, Error, ErrorKind, Handover, ReceivedPairs};

/// The directory of the process that is killed.
const DIRECTORY: &str = "EVERHASH_TEST_DIRECTORY";

/// Pairs of a kibibyte: many times what a socket holds.
const PAIRS: u32 = 3000;

/// A test and its name.
type Test = (&'static str, fn(&Path));

const TESTS: [Test; 4] = [
    (
        "a_forked_child_gets_the_pairs_of_the_moment_although_its_parent_writes_on",
        a_forked_child_gets_the_pairs_of_the_moment_although_its_parent_writes_on,
    ),
    (
        "a_child_that_ends_early_makes_the_sending_fail_and_nothing_else",
        a_child_that_ends_early_makes_the_sending_fail_and_nothing_else,
    ),
    (
        "a_child_whose_parent_is_killed_gets_an_error_and_no_short_snapshot",
        a_child_whose_parent_is_killed_gets_an_error_and_no_short_snapshot,
    ),
    (
        "a_child_is_refused_the_rest_of_a_snapshot_that_its_parent_was_reading",
        a_child_is_refused_the_rest_of_a_snapshot_that_its_parent_was_reading,
    ),
];

/// Without the harness of other tests, whose threads a forked child would not have.
fn main() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return a_parent_that_is_killed(directory.as_ref());
    }
    let (options, names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    if options.iter().any(|option| option == "--list" || option == "--ignored") {
        return;
    }
    for (name, test) in TESTS {
        if names.is_empty() || names.iter().any(|part| name.contains(part)) {
            test(tempfile::tempdir().unwrap().path());
            println!("test {name} ... ok");
        }
    }
}

fn filled(directory: &Path) -> Db {
    let options = Db::options().durability(Durability::Process).background(false);
    let db = options.create(directory.join("pairs.ehdb")).unwrap();
    for number in 0..PAIRS {
        db.put(number.to_be_bytes(), [1; 1024]).unwrap();
    }
    db
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn hand_over(db: &Db) -> Option<Handover> {
    Some(db.snapshot().unwrap().hand_over().unwrap())
}

/// Fails if the child saw a later write, missed a pair, or could use the database; or if one of the
/// two kept a descriptor.
fn a_forked_child_gets_the_pairs_of_the_moment_although_its_parent_writes_on(directory: &Path) {
    let db = filled(directory);
    let birds = db.create_table("birds").unwrap();
    birds.put("owl", "night").unwrap();
    for table in [&db, &birds] {
        let expected: BTreeMap<_, _> = table.iter().map(Result::unwrap).collect();
        let before = descriptors();
        let mut handover = hand_over(table);
        let mut misused = hand_over(table);
        let mut snapshot = Some(table.snapshot().unwrap());
        let child = in_forked_child(|| {
            let pairs = handover.take().unwrap().receive().collect::<Result<BTreeMap<_, _>, _>>();
            let is_forked = |error: Error| error.kind() == ErrorKind::Forked;
            let checks = [
                pairs.unwrap() == expected,
                misused.take().unwrap().send().is_err_and(is_forked),
                snapshot.take().unwrap().hand_over().is_err_and(is_forked),
                descriptors() == before,
                db.get("key").is_err_and(is_forked),
                db.snapshot().is_err_and(is_forked),
            ];
            checks.iter().position(|holds| !holds).map_or(0, |check| 1 + check as u8)
        });
        let child = child.unwrap();
        let sending = handover.take().unwrap().send().unwrap();
        // Each pair changes, goes, or is joined by another one, while it is sent.
        for (number, key) in expected.keys().enumerate() {
            match number % 3 {
                0 => drop(table.put(key, "after").unwrap()),
                1 => drop(table.remove(key).unwrap()),
                _ => drop(table.put([&key[..], b"new"].concat(), "new").unwrap()),
            }
        }
        assert!(sending.wait().unwrap() >= expected.len() as u64);
        assert_eq!(child.wait().unwrap(), Some(0), "{:?}", table.table_name());
        // In the process itself nothing comes.
        let mut pairs = misused.take().unwrap().receive();
        assert!(
            matches!(pairs.next(), Some(Err(Error::Incomplete { .. }))) && pairs.next().is_none()
        );
        drop(pairs);
        drop(hand_over(table));
        assert_eq!(descriptors(), before);
    }
    drop(birds);
    db.close().unwrap();
}

/// Fails if a broken pipe ended the parent, if the sending were taken for done, or if the snapshot
/// or a descriptor were kept.
fn a_child_that_ends_early_makes_the_sending_fail_and_nothing_else(directory: &Path) {
    end_at_broken_pipes();
    let db = filled(directory);
    let before = descriptors();
    for is_killed in [false, true] {
        let mut handover = hand_over(&db);
        let child = in_forked_child(|| {
            let mut pairs = handover.take().unwrap().receive();
            let come = pairs.by_ref().take(10).filter(Result::is_ok).count();
            if is_killed {
                std::thread::sleep(Duration::from_secs(60));
            }
            come as u8
        });
        let child = child.unwrap();
        let sending = handover.take().unwrap().send().unwrap();
        if is_killed {
            std::thread::sleep(Duration::from_millis(50));
            assert!(!sending.is_finished(), "it waits for a child that does not read");
            child.kill().unwrap();
        }
        let error = sending.wait().unwrap_err();
        let system = error.io_error().unwrap().kind();
        let expected = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(expected.contains(&system), "{error}");
        assert_eq!(child.wait().unwrap(), if is_killed { None } else { Some(10) });
        assert_eq!(descriptors(), before);
    }
    // All is as before, and the next one gets everything.
    assert_eq!(db.len().unwrap(), u64::from(PAIRS));
    db.put("key", "value").unwrap();
    let mut handover = hand_over(&db);
    let count = |pairs: ReceivedPairs| pairs.filter(|pair| pair.is_ok()).count();
    let child = in_forked_child(|| {
        u8::from(count(handover.take().unwrap().receive()) != PAIRS as usize + 1)
    });
    let sending = handover.take().unwrap().send().unwrap();
    assert_eq!(sending.wait().unwrap(), u64::from(PAIRS) + 1);
    assert_eq!(child.unwrap().wait().unwrap(), Some(0));
    db.close().unwrap();
}

/// Fails if the child took locks that a thread of its parent may have held, or took the end of what
/// it could read for the end of the snapshot.
fn a_child_is_refused_the_rest_of_a_snapshot_that_its_parent_was_reading(directory: &Path) {
    let db = filled(directory);
    let snapshot = db.snapshot().unwrap();
    for number in 0..PAIRS {
        db.put(number.to_be_bytes(), "after").unwrap();
    }
    let mut pairs = snapshot.iter();
    // The table has none of them any more: this one was kept.
    assert_eq!(pairs.next().unwrap().unwrap().1, [1; 1024]);
    let child = in_forked_child(|| {
        let error = pairs.find_map(Result::err);
        u8::from(error.is_none_or(|error| error.kind() != ErrorKind::Forked))
    });
    assert_eq!(child.unwrap().wait().unwrap(), Some(0));
    assert_eq!(pairs.filter(|pair| pair.is_ok()).count(), PAIRS as usize - 1);
    drop(snapshot);
    db.close().unwrap();
}

fn a_parent_that_is_killed(directory: &Path) {
    let db = filled(directory);
    let mut handover = hand_over(&db);
    let parent = std::process::id();
    let child = in_forked_child(|| {
        let mut pairs = handover.take().unwrap().receive();
        let mut come = pairs.by_ref().take(10).filter(Result::is_ok).count();
        println!("ready");
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_millis(1));
        }
        for pair in pairs {
            match pair {
                Ok(_) => come += 1,
                Err(error) => {
                    println!("{come} pairs, then {:?}: {error}", error.kind());
                    return 1;
                }
            }
        }
        println!("all {come} pairs");
        0
    });
    let sending = handover.take().unwrap().send().unwrap();
    drop((sending.wait(), child.unwrap().wait()));
}

/// Fails if the end of the parent were taken for the end of the pairs.
fn a_child_whose_parent_is_killed_gets_an_error_and_no_short_snapshot(directory: &Path) {
    let mut parent = Command::new(std::env::current_exe().unwrap());
    parent.env(DIRECTORY, directory).stdout(Stdio::piped());
    let mut parent = parent.spawn().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line == "ready"), "the child is there");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let rest: Vec<_> = lines.collect();
    let said = rest.iter().find(|line| line.contains("pairs")).unwrap();
    assert!(said.contains("Incomplete") && !said.starts_with("all"), "{said}");
    let come: u32 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((10..PAIRS).contains(&come), "{said}");
}
