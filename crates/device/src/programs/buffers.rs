//! Programs that show how the modules combine what is written to them.

use everhash_pmem::media::emulated::{Counters, Timing};
use everhash_pmem::media::random::Random;
use everhash_pmem::profile::MemoryDevice;
use everhash_pmem::{Addr, LINE, Result, Span, WORD};

use super::{SITE, place, region, small_cache};

/// Bytes of the devices on which the programs run. Unit: bytes. Source: ours; a hundred times the
/// cache that is given to them, so that hardly a line is found there.
const BYTES: u64 = 64 << 20;

/// Writes half of each unit of a region, then the other halves, over and over; returns media bytes
/// per byte.
pub(crate) fn halves(device: &MemoryDevice, region_bytes: u64) -> Result<f64> {
    let device = MemoryDevice { dimms: 1, ..device.clone() };
    let region = region(&device, Timing::Counting, region_bytes);
    let (pm, unit) = (region.access(), device.media_unit_bytes);
    let rounds = (4 << 20) / region_bytes;
    for _ in 0..rounds {
        for half in [0, unit / 2] {
            for at in (half..region_bytes).step_by(unit as usize) {
                for line in (at..at + unit / 2).step_by(LINE as usize) {
                    pm.store(Addr::new(line), 1)?;
                    pm.flush(Span::new(Addr::new(line), 1), SITE);
                }
                pm.fence(SITE)?;
            }
        }
    }
    region.media().drain();
    Ok(region.media().counters().device_write_amplification())
}

/// How a program stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// In the caches, flushed and fenced.
    Flushed,
    /// Past the caches, fenced.
    PastCaches,
    /// In the caches; lines leave as the cache makes room.
    Unflushed,
}

/// Stores `bytes` bytes at a time, at random places or in sequence.
pub(crate) fn stores(
    device: &MemoryDevice,
    storing: Storing,
    bytes: u64,
    sequential: bool,
) -> Result<Counters> {
    let region = region(&small_cache(device), Timing::Counting, BYTES);
    let (pm, mut random) = (region.access(), Random::new(1));
    let words = vec![1; (bytes / 8) as usize];
    let count = if storing == Storing::Unflushed { BYTES / bytes } else { 50_000 };
    for number in 0..count {
        let at = if sequential {
            Addr::new(number * bytes % BYTES)
        } else {
            place(&mut random, BYTES, bytes)
        };
        if storing == Storing::PastCaches {
            pm.write_words_nt(at, &words, SITE)?;
        } else {
            pm.write_words(at, &words)?;
        }
        if storing == Storing::Flushed {
            pm.flush(Span::of_bytes(at, bytes), SITE);
        }
        if storing != Storing::Unflushed {
            pm.fence(SITE)?;
        }
    }
    region.media().drain();
    Ok(region.media().counters())
}

/// Lets `writers` threads write whole units of one module past the caches, at random places; which
/// writer stores the next line is random. Returns media bytes per byte.
pub(crate) fn crowd(device: &MemoryDevice, writers: u64) -> Result<f64> {
    let device = MemoryDevice { dimms: 1, ..small_cache(device) };
    let region = region(&device, Timing::Counting, BYTES);
    region.media().set_writers(writers as u32);
    let (pm, mut random) = (region.access(), Random::new(1));
    let (unit, lines) = (device.media_unit_bytes, device.media_unit_bytes / LINE);
    // Where each writer stores next, and how many lines of its unit are left.
    let mut tails = vec![(Addr::NULL, 0); writers as usize];
    for _ in 0..80_000 {
        let (at, left) = &mut tails[random.below(writers) as usize];
        if *left == 0 {
            (*at, *left) = (place(&mut random, BYTES, unit), lines);
        }
        pm.write_words_nt(*at, &[1; 8], SITE)?;
        pm.fence(SITE)?;
        (*at, *left) = (at.plus(LINE / WORD), *left - 1);
    }
    region.media().drain();
    Ok(region.media().counters().device_write_amplification())
}
