//! Imports that are killed: the database opens, and holds nothing but records of the file.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Numbers, Place};

const RECORDS: usize = 60_000;

fn line(number: usize) -> String {
    format!("key{number}\t{}{number}\n", "x".repeat(number % 90))
}

/// Imports `name` and kills the program after `wait`; returns whether it was still running.
fn killed_after(place: &Place, arguments: &[&str], wait: Duration) -> bool {
    let mut command = place.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

/// Returns the lines of the database, all of which must be lines of the file.
fn exported(place: &Place) -> usize {
    let text = String::from_utf8(place.ok(&["export", "a.ehdb"])).unwrap();
    for exported in text.lines() {
        let number = exported[3..].split('\t').next().unwrap().parse().unwrap();
        assert!(number < RECORDS && line(number).trim_end() == exported);
    }
    text.lines().count()
}

#[test]
fn p01_an_import_killed_at_any_time_leaves_a_database_that_opens() {
    // Fails if a kill left a file that is damaged, cannot be opened, or holds half a record.
    let place = Place::new();
    place.write("a.tsv", (0..RECORDS).map(line).collect::<String>());
    let mut numbers = Numbers(7);
    let mut killed = 0;
    for round in 0..25 {
        let _ = std::fs::remove_file(place.path("a.ehdb"));
        let wait = Duration::from_micros(numbers.next() % 150_000);
        killed += u32::from(killed_after(&place, &["import", "a.tsv", "a.ehdb"], wait));
        if !place.path("a.ehdb").exists() {
            // Killed before the database had its name: there is none, rather than half of one.
            continue;
        }
        place.ok(&["check", "a.ehdb"]);
        let count = exported(&place);
        assert_eq!(place.json(&["stats", "a.ehdb"])["items"], count, "round {round}");
    }
    assert!(killed > 5, "only {killed} imports were still running: the waits are too long");
    let summary = place.json(&["import", "a.tsv", "a.ehdb", "--durability", "process"]);
    assert_eq!(summary["items"], RECORDS);
    assert_eq!(exported(&place), RECORDS);
}

#[test]
fn a_killed_import_costs_nothing_that_was_there_before() {
    // Fails if an import into an existing database put older records at risk.
    let place = Place::new();
    let half = RECORDS / 2;
    place.write("a.tsv", (0..half).map(line).collect::<String>());
    place.write("b.tsv", (0..RECORDS).map(line).collect::<String>());
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let mut numbers = Numbers(9);
    for _ in 0..10 {
        let wait = Duration::from_micros(numbers.next() % 200_000);
        let arguments = ["import", "b.tsv", "a.ehdb", "--durability", "process"];
        killed_after(&place, &arguments, wait);
        assert!(exported(&place) >= half);
        place.ok(&["check", "a.ehdb"]);
    }
}

#[test]
fn p13_an_import_that_finds_no_memory_costs_nothing_that_was_there_before() {
    // Fails if a process that runs out of memory or of addresses hangs, or leaves a database that
    // is damaged or has lost a pair.
    let place = Place::new();
    let half = RECORDS / 2;
    place.write("a.tsv", (0..half).map(line).collect::<String>());
    place.write("b.tsv", (0..RECORDS).map(line).collect::<String>());
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let (mut refused, mut done) = (0, 0);
    for mebibytes in (20..120).step_by(5).chain([160, 240, 400, 1000, 4000]) {
        let program = env!("CARGO_BIN_EXE_everhash");
        let kibibytes = mebibytes << 10;
        let limited = format!("ulimit -v {kibibytes} && exec {program} import b.tsv a.ehdb");
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(limited).current_dir(place.path("."));
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        if ended.success() {
            done += 1;
        } else {
            refused += 1;
        }
        assert!(exported(&place) >= half, "{mebibytes} MiB");
        place.ok(&["check", "a.ehdb"]);
    }
    assert!(refused > 3 && done > 0, "{refused} refused, {done} done");
}
