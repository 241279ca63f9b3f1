//! Synthetic indexes in place of the engines and rivals of published figures.

use everhash_pmem::Result;
use everhash_pmem::profile::{Clwb, MemoryDevice, Survives};

use super::{Found, Topic};
use crate::programs::indexes::{ITEM, Index, SEGMENT_LOCKS, insert};
use crate::table::Tolerance;

/// Bytes of a cache that holds hardly anything of the synthetic table.
///
/// Unit: bytes. Source: ours; 1/128 of the table.
const SMALL_CACHE: u64 = 512 << 10;

/// A log and a table under the load of WALSH's figure.
pub(super) fn log(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Synthetic indexes, 40 threads",
        unit: "ratio",
        source: "WALSH, Fig. 2: its own log below 1.4, other hash tables above 11",
    };
    let amplification = |index| -> Result<f64> {
        Ok(insert(device, index, SMALL_CACHE, 40)?.0.write_amplification())
    };
    let log = amplification(Index::Log)?;
    let in_place = amplification(Index::InPlace)?;
    let rows = vec![
        topic.row("log of 256 B, writes", 1.2, log, Tolerance::Between(1.0, 1.4)),
        topic.row("in place, writes", 16.0, in_place, Tolerance::Between(11.0, 50.0)),
    ];
    Ok((rows, Vec::new()))
}

/// The access patterns between the extremes of ElimDA's figure.
pub(super) fn tables(device: &MemoryDevice) -> Result<Found> {
    let writes = Topic {
        topic: "Synthetic indexes, one thread, writes",
        unit: "ratio",
        source: "ElimDA, Fig. 4: 22.6 to 41.5 for other hash tables",
    };
    let reads = Topic {
        topic: "Synthetic indexes, one thread, reads",
        source: "ElimDA, Fig. 4: 9.3 to 24.3 for other hash tables",
        ..writes
    };
    let flushing =
        MemoryDevice { survives: Survives::Adr, clwb: Clwb::Invalidates, ..device.clone() };
    // What the paper shows for the hash tables that it compares with, and the floor of one unit for
    // each item; without flushes, a cache of 9 % of the table absorbs a little of both.
    let (many, few) = (Tolerance::Between(15.5, 50.0), Tolerance::Between(7.0, 30.0));
    let near = Tolerance::Relative(0.10);
    let mut found = (Vec::new(), Vec::new());
    for (what, device, index, cache_bytes, published, tolerances) in [
        ("in place", &flushing, Index::InPlace, SMALL_CACHE, (16.0, 16.0), (near, near)),
        (
            "in place, few locks on the device",
            &flushing,
            Index::InPlaceWithLock { locks: 128 },
            SMALL_CACHE,
            (16.9, 16.9),
            (near, near),
        ),
        (
            "in place, locks of segments on the device",
            &flushing,
            SEGMENT_LOCKS,
            SMALL_CACHE,
            (32.0, 16.8),
            (many, few),
        ),
        (
            "in place, caches durable",
            device,
            Index::InPlaceUnflushed,
            6 << 20,
            (13.8, 14.4),
            (near, near),
        ),
    ] {
        let (counters, items) = insert(device, index, cache_bytes, 1)?;
        let shown = counters.write_amplification_of(items * ITEM);
        found.0.push(writes.row(what, published.0, shown, tolerances.0));
        let shown = counters.read_amplification_of(items * ITEM);
        found.1.push(reads.row(what, published.1, shown, tolerances.1));
    }
    found.0.append(&mut found.1);
    Ok((found.0, Vec::new()))
}

/// The same run twice.
pub(super) fn repetition(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic { topic: "Repetition", unit: "", source: "ours: a seed decides everything" };
    let run = || insert(device, SEGMENT_LOCKS, SMALL_CACHE, 8);
    let (first, second) = (run()?.0.rows(), run()?.0.rows());
    let different = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    let what = "counters that differ between two runs";
    Ok((vec![topic.row(what, 0.0, different as f64, Tolerance::Absolute(0.0))], Vec::new()))
}
