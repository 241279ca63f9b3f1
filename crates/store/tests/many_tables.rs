//! What thousands of tables in one file cost: a process of its own, so that its memory is theirs.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use everhash_store::{Db, Durability};

const TABLES: u32 = 16_384;
const PAIRS: u32 = 1000;

/// Returns a figure of the process from `/proc/self/status`. Unit: KiB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "16 million pairs: a minute and up to 3 GiB of disk"]
fn sixteen_thousand_tables_of_a_thousand_pairs_fit_in_a_gibibyte() {
    // Fails if a table cost memory or storage of its own. Memory is the process's own, without the
    // pages of the file, which the system drops when it needs them: the highest value of `RssAnon`,
    // which is looked at after every table. Run with `EVERHASH_ENGINE` for another engine, and with
    // `EVERHASH_TABLES` for fewer tables.
    let engine = std::env::var("EVERHASH_ENGINE").unwrap_or_else(|_| "reef".into());
    let tables = std::env::var("EVERHASH_TABLES").map_or(TABLES, |text| text.parse().unwrap());
    let directory = tempfile::tempdir_in(std::env::var("EVERHASH_PLACE").unwrap_or(".".into()));
    let directory = directory.unwrap();
    let path = directory.path().join("pairs.ehdb");
    let options = Db::options().engine(&engine).durability(Durability::Process);
    let db = options.capacity_bytes(4 << 30).create(&path).unwrap();
    let before = status("RssAnon:");
    let (started, mut highest) = (std::time::Instant::now(), 0);
    let mut value = [0; 64];
    for number in 0..tables {
        let table = db.create_table(&format!("table {number}")).unwrap();
        for pair in 0..PAIRS {
            let key = u128::from(pair) << 64 | u128::from(number);
            value[..4].copy_from_slice(&pair.to_le_bytes());
            table.put(key.to_be_bytes(), value).unwrap();
        }
        highest = highest.max(status("RssAnon:"));
    }
    db.sync().unwrap();
    let disk = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    let created = started.elapsed();
    // Every table finds its own pairs.
    for number in (0..tables).step_by(97) {
        let table = db.table(&format!("table {number}")).unwrap();
        let key = u128::from(PAIRS - 1) << 64 | u128::from(number);
        let value = table.get(key.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value[..4], (PAIRS - 1).to_le_bytes());
    }
    let stats = db.stats().unwrap();
    let began = std::time::Instant::now();
    assert!(db.drop_table("table 0").unwrap());
    let dropped = began.elapsed();
    println!(
        "{engine}: {tables} tables of {PAIRS} pairs of 80 B in {created:.1?}; own memory {} MiB at \
         most ({} MiB before; the table counts {} MiB), VmHWM {} MiB with pages of the file; disk \
         {} MiB; a drop {dropped:.1?}",
        highest >> 10,
        before >> 10,
        stats.dram_bytes >> 20,
        status("VmHWM:") >> 10,
        disk >> 20,
    );
    assert_eq!(db.tables().unwrap().len() as u32, tables - 1);
    assert!(highest << 10 < 1 << 30 && disk < 3 << 30);
}
