//! What a table says that it holds in memory, beside what the system says: in processes of their
//! own, because the system counts all that a process holds.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use everhash_store::{Db, Durability, engines};

/// Where the process that is measured finds its engine, and the number and length of its values.
const ORDERS: &str = "EVERHASH_TEST_MEMORY";

/// Returns what the process holds beside pages of files. Unit: bytes.
fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "the process that the next test starts"]
fn a_process_that_says_what_its_table_holds() {
    // No test of its own: the process that the next test starts, and whose lines it judges.
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let [engine, count, bytes] = orders.split(' ').collect::<Vec<_>>()[..] else { return };
    let (count, bytes) = (count.parse::<u64>().unwrap(), bytes.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine(engine).durability(Durability::Process).background(false);
    let before = own_bytes();
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let value = vec![7; bytes];
    for number in 0..count {
        db.put(number.to_be_bytes(), &value).unwrap();
    }
    for number in 0..count / 8 {
        db.remove((8 * number).to_be_bytes()).unwrap();
    }
    println!("found {} {}", db.stats().unwrap().dram_bytes, own_bytes() - before);
}

#[test]
fn a_table_says_what_memory_it_holds() {
    // Fails if an engine forgot a structure that grows, or counted one twice: what `Stats` says may
    // be off by a tenth of what the system says, by what any open database takes, and by one huge
    // page, which the system gives as a whole. An engine that holds less than that is not judged.
    const FIXED_BYTES: u64 = (2 << 20) + (512 << 10);
    let mut wrong = Vec::new();
    for engine in engines() {
        for (count, bytes) in [(1_000_000u64, 16), (100_000, 1000)] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_process_that_says_what_its_table_holds"])
                .args(["--ignored", "--nocapture"])
                .env(ORDERS, format!("{} {count} {bytes}", engine.name))
                .output()
                .unwrap();
            let text = String::from_utf8(child.stdout).unwrap();
            let found = text.lines().find_map(|line| line.split("found ").nth(1)).unwrap();
            let found: Vec<u64> = found.split(' ').map(|number| number.parse().unwrap()).collect();
            let [said, held] = found[..] else { panic!("{text}") };
            println!("{}: {count} of {bytes} bytes: says {said}, holds {held}", engine.name);
            if said.abs_diff(held) > held / 10 + FIXED_BYTES {
                wrong.push(format!("{}: says {said} and holds {held} bytes", engine.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
