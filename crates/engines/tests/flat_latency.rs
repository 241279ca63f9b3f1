//! Engines on the flat model of a device: time is reads and writes times their latencies.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use everhash_engines::wophi::{Wophi, WophiSettings};
use everhash_index::{Form, Inline, Opening, Table, create};
use everhash_pmem::media::emulated::{Emulated, Timing};
use everhash_pmem::profile::{MemoryDevice, Profile};
use everhash_pmem::{Counted, Region, Std, WORD};

/// Items of a run: half of the slots of 2^16 buckets.
const ITEMS: u64 = 100_000;

/// Inserts items of 8 bytes into a table at half load, and returns the time of one in nanoseconds
/// and the lines that it flushed.
fn insert(device: &MemoryDevice) -> (f64, f64) {
    let bytes = 64 << 20;
    let medium = Counted::new(Emulated::<Std>::new(device, Timing::Virtual, 0, bytes));
    let region = Region::new(medium);
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = WophiSettings { initial_buckets: 1 << 16, ..WophiSettings::default() };
    let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let medium = region.media();
    let (begun, before) = (medium.inner().elapsed_ps(), medium.traffic());
    for item in 0..ITEMS {
        let key = item.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        assert!(table.insert(&key, &[1; WORD as usize]).unwrap());
    }
    let flushed = (medium.traffic() - before).lines_flushed as f64;
    let nanoseconds = (medium.inner().elapsed_ps() - begun) as f64 / 1000.0;
    (nanoseconds / ITEMS as f64, flushed / ITEMS as f64)
}

#[test]
fn the_latency_of_wophi_is_a_straight_line_in_the_latency_of_writes() {
    // Fails if an insert waits for a line twice, or if the flat model charges for anything but
    // missing loads and flushes. WOPHI 4 sweeps 300 to 1200 ns.
    let profile = Profile::named("wophi").unwrap();
    let device = profile.memory().unwrap();
    let at = |write| insert(&MemoryDevice { flat_write_ns: write, ..device.clone() });
    let (least, flushed) = at(300.0);
    println!("300 ns a line: {least:.0} ns an insert, {flushed:.3} lines flushed");
    for write in [600.0, 900.0, 1200.0] {
        let (time, again) = at(write);
        let line = least + flushed * (write - 300.0);
        println!("{write} ns a line: {time:.0} ns an insert; a straight line says {line:.0}");
        assert!((time / line - 1.0).abs() < 0.01 && again == flushed);
    }
}
