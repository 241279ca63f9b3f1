//! Objects that are not in memory: those of a batch are read together.

use std::fs::File;

use everhash_index::{Form, Inline, Opening, Table, create, open};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Region};
use rustix::fs::{Advice, fadvise};

use crate::reef::{Reef, ReefSettings, ReefTable};

/// Returns how many pages this thread has waited for that were not on their way.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, behind_name) = stat.rsplit_once(") ").unwrap();
    behind_name.split(' ').nth(9).unwrap().parse().unwrap()
}

/// Fills a table, lets its file leave memory, and reads its pairs; returns how many pages were
/// waited for.
fn read_cold(pairs: u64, value: &[u8], read: fn(&ReefTable<FileMedium>, &[&[u8]], &[u8])) -> u64 {
    let path = std::env::temp_dir().join(format!("reef-cold-{}", std::process::id()));
    let options = FileOptions { durability: FileDurability::Process, ..FileOptions::default() };
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    // So that a close saves the directory, and an opening reads no object.
    let settings = ReefSettings { flush_bytes: 1 << 10, ..ReefSettings::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    region.media().publish().unwrap();
    let keys: Vec<[u8; 8]> = (0..pairs).map(u64::to_le_bytes).collect();
    keys.iter().for_each(|key| assert!(!table.put(key, value).unwrap()));
    Box::new(table).close().unwrap();
    drop(region);
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let region = Region::new(FileMedium::open(&path, &options).unwrap());
    let table = open::<Reef, _>(region, opening.boot, &Inline).unwrap();
    // In another order than they lie.
    let keys = (0..keys.len()).map(|place| keys[place * 97 % keys.len()].as_slice());
    let keys: Vec<&[u8]> = keys.collect();
    let before = page_faults();
    read(&table, &keys, value);
    let faults = page_faults() - before;
    drop(table);
    std::fs::remove_file(&path).unwrap();
    faults
}

#[test]
fn cold_pairs_are_read_together_and_long_ones_as_a_whole() {
    // Fails if a batch waits for the page of each of its pairs, or if a long value is read page by
    // page. Where files cannot leave memory there is nothing to wait for.
    let batches = read_cold(16_000, &[7; 2000], |table, keys, value| {
        for keys in keys.chunks(32) {
            table.get_many(keys, &mut |_, found| assert_eq!(found, Some(value))).unwrap();
        }
    });
    let long = read_cold(1000, &[7; 20_000], |table, keys, value| {
        let mut found = Vec::new();
        for key in keys {
            assert!(table.get(key, &mut found).unwrap() && found == value);
        }
    });
    println!("{batches} pages of short values, {long} of long ones");
    // Of 8000 pages, and of 5000. Chance decides how many are read before the first sample.
    assert!(batches < 6000, "{batches} pages");
    assert!(long < 3750, "{long} pages");
}
