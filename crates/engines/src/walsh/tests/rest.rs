//! Pairs are removed: what that takes, what waits to be used again, and what goes back to the
//! device.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use everhash_index::{Form, Inline, Opening, Table, create, open};
use everhash_pmem::{
    Boot, Domain, FileDurability, FileMedium, FileOptions, Guarantees, Image, Media, Region, Std,
};

use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// Length of a value. Unit: bytes.
const VALUE: u64 = 1000;

/// Bytes of a key and a value.
const PAIR: u64 = 16 + VALUE;

/// Returns settings with few areas and directories.
fn settings() -> WalshSettings {
    WalshSettings { areas: 16, directories: 1024, ..WalshSettings::default() }
}

fn key(number: u64) -> [u8; 16] {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes()
}

fn put<M: Media>(table: &WalshTable<M>, number: u64) {
    table.put(&key(number), &[number as u8; VALUE as usize]).unwrap();
}

fn on_image(domain: Domain) -> WalshTable<Image> {
    let guarantees = Guarantees { domain, same_line_order: false, access_unit_bytes: 4096 };
    let region = Region::new(Image::<Std>::new(0, 512 << 20).with_guarantees(guarantees));
    create::<Walsh, _>(region, &opening(), &WalshSettings::default(), &Inline).unwrap()
}

fn opening() -> Opening {
    Opening { form: Form::Variable, ..Opening::default() }
}

/// Calls upkeep as a store does, until it has nothing to do; `now` is the time.
fn rest<M: Media>(table: &WalshTable<M>, now: &mut Duration) {
    for _ in 0..10_000 {
        let upkeep = table.maintain(*now, 1000).unwrap();
        match upkeep.deadline {
            Some(deadline) if !upkeep.more => *now = deadline,
            _ if upkeep.more => *now += Duration::from_millis(1),
            _ => return,
        }
    }
    panic!("upkeep has no end");
}

#[test]
fn a_removal_takes_little_more_than_its_tombstone() {
    // Fails if a log has no more records than it would hold pairs: a dozen tombstones of long
    // values ended a log of 8 KiB, and each removal took 690 bytes.
    let table = on_image(Domain::Synced);
    (0..20_000).for_each(|number| put(&table, number));
    let before = table.stats().unwrap();
    (0..8000).for_each(|number| assert!(table.remove(&key(number)).unwrap()));
    let after = table.stats().unwrap();
    assert_eq!(after.growth_steps, before.growth_steps, "nothing is collected yet");
    let each = (after.used_bytes - before.used_bytes) / 8000;
    // Head, key and record are 48 bytes; each area begins with a log for values, and the newest is
    // not full.
    assert!(each <= 160, "{each} bytes for each removal");
    // Values take no more room for that than before.
    (20_000..28_000).for_each(|number| put(&table, number));
    let each = (table.stats().unwrap().used_bytes - after.used_bytes) / 8000;
    assert!(each <= PAIR * 5 / 4, "{each} bytes for each pair");
}

#[test]
fn where_epochs_are_the_callers_little_room_waits_for_one() {
    // Fails if as much may wait as the logs take: the file has twice its length then.
    let table = on_image(Domain::Process);
    let mut most = 0;
    for round in 0..6 {
        for number in 0..10_000 {
            put(&table, number);
            if round > 1 && number % 100 == 0 {
                let waiting: u64 = {
                    let reserve = table.reserve.lock().unwrap();
                    reserve.retired.iter().map(|span| span.bytes()).sum()
                };
                most = most.max(100 * waiting / table.stats().unwrap().used_bytes);
            }
        }
    }
    assert!((1..=13).contains(&most), "{most} of a hundred bytes wait");
}

#[test]
fn a_table_at_rest_gives_storage_back_and_takes_it_again() {
    // Fails if a table that shrank keeps the storage of its file, if a pair goes with it, or if
    // what is written later finds none.
    rests(FileDurability::Immediate);
    rests(FileDurability::Process);
}

/// Fills a table, empties most of it, opens it again and fills it, at rest between these.
fn rests(durability: FileDurability) {
    const PAIRS: u64 = 20_000;
    let name = format!("walsh-rest-{durability:?}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let options = FileOptions { durability, ..FileOptions::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Walsh, _>(region.clone(), &opening(), &settings(), &Inline).unwrap();
    region.media().publish().unwrap();
    let stored = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let mut now = Duration::ZERO;
    (0..PAIRS).for_each(|number| put(&table, number));
    rest(&table, &mut now);
    let full = stored();
    (PAIRS / 10..PAIRS).for_each(|number| assert!(table.remove(&key(number)).unwrap()));
    let before = table.stats().unwrap().device_bytes;
    rest(&table, &mut now);
    // Upkeep leaves as much garbage as there are pairs, and some logs of each area; then there are
    // the reserve, what may be free, and what is free in short pieces.
    let most = PAIRS / 10 * PAIR * 3 + 16 * 4 * 8256;
    let few = stored();
    println!("{durability:?}: {full} bytes, {few} with a tenth of the pairs, most {most}");
    assert!(few < most, "{few} bytes, {most}");
    assert_eq!(table.stats().unwrap().device_bytes, before, "holes do not shorten a file");
    // Nothing is left to do.
    assert_eq!(table.maintain(now + Duration::from_secs(60), 1000).unwrap(), Default::default());
    Box::new(table).close().unwrap();
    drop(region);
    let region = Region::new(FileMedium::open(&path, &options).unwrap());
    let table = open::<Walsh, _>(region.clone(), Boot([1, 2]), &Inline).unwrap();
    rest(&table, &mut now);
    assert!(stored() < most, "{} bytes after opening, {few} before", stored());
    (PAIRS..2 * PAIRS).for_each(|number| put(&table, number));
    for number in (0..PAIRS / 10).chain(PAIRS..2 * PAIRS) {
        let mut value = Vec::new();
        assert!(table.get(&key(number), &mut value).unwrap(), "{number}");
        assert_eq!(value, [number as u8; VALUE as usize]);
    }
    assert_eq!(table.len().unwrap(), PAIRS / 10 + PAIRS);
    table.check().unwrap();
    drop((table, region));
    std::fs::remove_file(&path).unwrap();
}
