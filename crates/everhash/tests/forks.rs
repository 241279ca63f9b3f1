//! The example that forks does what it says: in a process of one thread, without the harness of
//! other tests.

#![allow(dead_code, reason = "its own main function is not called")]
#![allow(clippy::unwrap_used, reason = "this is a test, though examples are not")]

use std::collections::HashSet;

#[path = "../examples/save_from_child.rs"]
mod save_from_child;

fn main() {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    let name = "a_child_saves_what_was_there_when_it_was_forked";
    if asked.iter().all(|part| name.contains(part.as_str()) || part == "--nocapture") {
        a_child_saves_what_was_there_when_it_was_forked();
        println!("test {name} ... ok");
    }
}

fn a_child_saves_what_was_there_when_it_was_forked() {
    let directory = tempfile::tempdir().unwrap();
    assert!(save_from_child::run(directory.path()).unwrap() >= 10_000);
    let saved = std::fs::read_to_string(directory.path().join("saved.txt")).unwrap();
    assert!(saved.lines().all(|line| line.ends_with("\tbefore")));
    assert_eq!(saved.lines().collect::<HashSet<_>>().len(), 10_000);
    let db = everhash::Db::open(directory.path().join("server.ehdb")).unwrap();
    assert_eq!(db.get("key 7").unwrap().unwrap(), b"after");
}
