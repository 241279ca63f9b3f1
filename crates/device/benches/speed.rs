//! How fast the emulated device runs on this machine: verbs per second of processor time.
//!
//! Processor time and not wall time, because a busy machine would measure its neighbours. The
//! places are random, so nearly every operation misses the host's caches as well as the emulated
//! one.

use std::fs;

use everhash_pmem::media::emulated::{Emulated, Timing};
use everhash_pmem::media::random::Random;
use everhash_pmem::profile::Profile;
use everhash_pmem::{Addr, Region, Result, Site, Span, Std};

/// Bytes of the device. Unit: bytes. Source: ours; ten times the emulated cache.
const BYTES: u64 = 256 << 20;

/// Operations of a round, each a load, two stores and a flush. Unit: operations. Source: ours.
const OPERATIONS: u64 = 1_000_000;

fn main() -> Result<()> {
    for name in ["walsh", "elimda-adr", "dram"] {
        for timing in [Timing::Counting, Timing::Virtual] {
            let profile = Profile::named(name)?;
            let device = Emulated::<Std>::new(profile.memory()?, timing, BYTES, BYTES);
            let region = Region::new(device);
            // The first round touches the memory for the first time.
            round(&region, 1)?;
            let mut rates = [round(&region, 2)?, round(&region, 3)?, round(&region, 4)?];
            rates.sort_by(f64::total_cmp);
            println!("{name}, {timing:?}: {:.2} million verbs per second", rates[1]);
        }
    }
    Ok(())
}

/// Returns million verbs per second.
fn round(region: &Region<Emulated>, seed: u64) -> Result<f64> {
    let (pm, mut random) = (region.access(), Random::new(seed));
    let before = processor_seconds();
    for number in 0..OPERATIONS {
        let at = Addr::new(random.below(BYTES / 64) * 64);
        pm.load(at)?;
        pm.store(at, number)?;
        pm.store(at.plus(1), number)?;
        pm.persist(Span::new(at, 2), Site::new("speed/operation"))?;
    }
    Ok(4.0 * OPERATIONS as f64 / (processor_seconds() - before) / 1e6)
}

/// Returns the time that the scheduler gave to this process.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("Linux tells how long a process ran") / 1e9
}
