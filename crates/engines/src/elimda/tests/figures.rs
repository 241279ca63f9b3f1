//! What the media of the paper's device write and read (ElimDA 4.2, Exp#5, Exp#6), with volatile
//! and with durable caches.

use everhash_index::{Form, Inline, Opening, WordTable, create};
use everhash_pmem::media::emulated::{Counters, Emulated, Timing};
use everhash_pmem::profile::{MemoryDevice, Profile};
use everhash_pmem::{Region, Std};

use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// Pairs of a run.
///
/// The paper has 20 million beside a cache of 36 MiB and 8,192 logs; all three are made smaller
/// alike, to a 64th: what fits into the cache there fits here, and nothing else.
const ITEMS: u64 = 312_500;
const CACHE_BYTES: u64 = 9 << 16;
const LOGS: u64 = 128;

/// What one operation comes to.
#[derive(Debug)]
struct PerOperation {
    /// Bytes that the media wrote for an insert.
    written: f64,
    /// Bytes that the media read for an insert.
    read: f64,
    /// Units that the media read for a search that finds its key.
    found: f64,
    /// Units that the media read for a search that finds nothing.
    absent: f64,
    /// Nanoseconds of an insert.
    insert_ns: f64,
}

fn device(name: &str) -> MemoryDevice {
    let profile = Profile::named(name).unwrap();
    MemoryDevice { cache_bytes: CACHE_BYTES, ..profile.memory().unwrap().clone() }
}

fn measure(device: &MemoryDevice, settings: &ElimDaSettings) -> PerOperation {
    let region = Region::new(Emulated::<Std>::new(device, Timing::Virtual, 0, 64 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let table = create::<ElimDa, _>(region.clone(), &opening, settings, &Inline).unwrap();
    let ElimDaTable::Words(table) = &table else { panic!("the form has words") };
    let counted = || -> (Counters, u64) {
        region.media().drain();
        (region.media().counters(), region.media().elapsed_ps())
    };
    let per = |what: u64| what as f64 / ITEMS as f64;
    let (empty, begun) = counted();
    for item in 0..ITEMS {
        assert!(table.insert_word(item, !item).unwrap());
    }
    let (loaded, ended) = counted();
    // In another order than they came: neighbours in time share a unit.
    for item in (0..ITEMS).map(|item| item * 100_003 % ITEMS) {
        assert_eq!(table.get_word(item).unwrap(), Some(!item));
    }
    let (found, _) = counted();
    for item in ITEMS..2 * ITEMS {
        assert_eq!(table.get_word(item).unwrap(), None);
    }
    let (absent, _) = counted();
    let inserts = loaded - empty;
    PerOperation {
        written: per(inserts.media_bytes_written()),
        read: per(inserts.media_bytes_read()),
        found: per((found - loaded).demand_reads),
        absent: per((absent - found).demand_reads),
        insert_ns: per(ended - begun) / 1000.0,
    }
}

/// The settings of the tests here, with the paper's share of collecting logs.
fn settings() -> ElimDaSettings {
    ElimDaSettings { collecting_logs: LOGS, cached_log_kib: 256, ..ElimDaSettings::default() }
}

#[test]
fn the_media_write_and_read_whole_units_and_few() {
    // Fails if lines are written to the media one by one or twice, if a unit of the log is
    // read again for each of its lines, or if a search reads more than the unit that holds its key.
    let none = ElimDaSettings { collecting_logs: 0, ..settings() };
    let adr = measure(&device("elimda-adr"), &settings());
    println!("volatile caches: {adr:.3?}");
    let eadr = measure(&device("elimda"), &settings());
    println!("durable caches: {eadr:.3?}");
    let bare = measure(&device("elimda"), &none);
    println!("durable caches, no collecting logs: {bare:.3?}");
    for cost in [&adr, &eadr, &bare] {
        assert!(cost.written <= 88.0 && cost.read <= 76.0, "{cost:?}");
        assert!(cost.found <= 1.05 && cost.absent <= 0.01, "{cost:?}");
    }
    // What the design asks for (spec, figures).
    assert!(adr.written <= 70.0, "{adr:?}");
    assert!(bare.insert_ns < adr.insert_ns, "an insert waits for what is durable already");
}

#[test]
fn a_long_backup_log_is_written_back_and_a_short_one_is_not() {
    // Fails if the lines of a log that does not fit into durable caches leave them one by one, or
    // if one that fits goes to the media each time it is written over.
    let kept = ElimDaSettings { collecting_logs: 0, cached_log_kib: 4 << 10, ..settings() };
    let none = ElimDaSettings { cached_log_kib: 0, ..kept };
    let large = MemoryDevice { cache_bytes: 4 << 20, ..device("elimda") };
    for (device, better, worse) in [(large, kept, none), (device("elimda"), none, kept)] {
        let [better, worse] = [better, worse].map(|settings| measure(&device, &settings));
        println!("caches of {} KiB: {better:.3?}", device.cache_bytes >> 10);
        println!("the other way: {worse:.3?}");
        assert!(better.written < 0.8 * worse.written, "{better:?}, {worse:?}");
    }
}

#[test]
fn a_device_of_pages_gets_whole_pages() {
    // Fails if a relocation writes a page in parts: the device reads and writes all of it each
    // time. Its buffer is as short as that of the device with units of 256 bytes.
    let pages = MemoryDevice { media_unit_bytes: 4096, ..device("elimda-adr") };
    let whole = measure(&pages, &settings());
    let units = ElimDaSettings { access_units: 1, ..settings() };
    let parts = measure(&pages, &units);
    println!("pages of 4 KiB: {whole:.3?}");
    println!("in units of 256 bytes: {parts:.3?}");
    assert!(whole.written < 0.75 * parts.written, "{whole:?}, {parts:?}");
    assert!(whole.found <= 1.05 && whole.absent <= 0.02, "{whole:?}");
}

#[test]
fn each_layer_saves_traffic() {
    // Fails if a table without one of its layers answers wrongly, or asks less of the device: then
    // the layer is of no use.
    let all = measure(&device("elimda-adr"), &settings());
    let no_dram =
        ElimDaSettings { unit_slots: 1, segment_units: 4096, bucket_units: 320, ..settings() };
    let no_dram = measure(&device("elimda-adr"), &no_dram);
    println!("no DRAM table: {no_dram:.3?}");
    assert!(no_dram.written > 1.5 * all.written, "{no_dram:?}");
    let no_relocation = ElimDaSettings { segment_units: 16, bucket_units: 0, ..settings() };
    let no_relocation = measure(&device("elimda-adr"), &no_relocation);
    println!("no relocation: {no_relocation:.3?}");
    assert!(no_relocation.found < 0.01, "{no_relocation:?}");
}
