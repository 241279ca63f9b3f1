//! Engines on emulated devices: what the papers measured on real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use everhash_engines::walsh::{Walsh, WalshSettings};
use everhash_engines::wophi::{Wophi, WophiSettings};
use everhash_index::{Form, Inline, Opening, Table, WordTable, create};
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

/// WALSH's areas, but eight of them, on the paper's memory; growing from its default size to as
/// many pairs for each area as ten million are for 512.
#[test]
fn what_walsh_writes_is_what_the_media_write() {
    // Fails if lines were written to the media twice or in part (Fig. 2), if growing wrote more
    // than a copy of each pair now and then, or if looking for absent keys read from the media.
    const ITEMS: u64 = 8 * 10_000_000 / 512;
    let profile = Profile::named("walsh").unwrap();
    let device = profile.memory().unwrap();
    let measure = |directories| {
        let medium = Emulated::<Std>::new(device, Timing::Virtual, 0, 64 << 20);
        let region = Region::new(medium);
        let settings = WalshSettings { areas: 8, directories, ..WalshSettings::default() };
        let opening = Opening { form: Form::WORDS, ..Opening::default() };
        let table = create::<Walsh, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        let counted = || {
            region.media().drain();
            region.media().counters()
        };
        let before = counted();
        for item in 0..ITEMS {
            assert!(table.insert_word(item, !item).unwrap());
        }
        table.sync().unwrap();
        let loaded = counted();
        for item in ITEMS..2 * ITEMS {
            assert!(table.get_word(item).unwrap().is_none());
        }
        let (written, read) = (loaded - before, counted() - loaded);
        let amplification = written.write_amplification();
        let bytes = written.media_bytes_written() as f64 / ITEMS as f64;
        let reads = read.demand_reads as f64 / ITEMS as f64;
        println!("{amplification:.3} of the bytes stored, {bytes:.1} an insert, {reads:.4} reads");
        (amplification, bytes, reads)
    };
    let growing = measure(262_144 / 64);
    assert!(growing.0 <= 1.05 && growing.1 <= 95.0 && growing.2 <= 0.03, "{growing:?}");
    let presized = measure(262_144 / 4);
    assert!(presized.0 <= 1.05 && presized.1 <= 36.0 && presized.2 <= 0.03, "{presized:?}");
}
