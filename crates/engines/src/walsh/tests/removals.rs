//! Pairs are removed: what that takes, and what waits to be used again.

use everhash_index::{Form, Inline, Opening, Table, create};
use everhash_pmem::{Domain, Guarantees, Image, Media, Region, Std};

use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// Length of a value. Unit: bytes.
const VALUE: u64 = 1000;

/// Bytes of a key and a value.
const PAIR: u64 = 16 + VALUE;

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
