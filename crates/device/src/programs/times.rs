//! Programs that show how long the device takes, alone and under load.

use everhash_pmem::media::emulated::Timing;
use everhash_pmem::media::random::Random;
use everhash_pmem::media::virtual_time::Summary;
use everhash_pmem::profile::{Flushing, MemoryDevice};
use everhash_pmem::{Addr, LINE, Result, Span, WORD};

use super::{Pm, SITE, place, region, run, small_cache};

/// Bytes of the devices on which the programs run. Unit: bytes. Source: ours, as for the buffers.
const BYTES: u64 = 64 << 20;

/// Operations of each thread, and of all if there are many. Unit: operations. Source: ours;
/// throughput is steady after a tenth.
const OPERATIONS: u64 = 2000;
const ALL_OPERATIONS: u64 = 100_000;

/// An access of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A load.
    Read,
    /// A store, flushed and fenced.
    Write,
    /// A store past the caches, fenced.
    WritePastCaches,
}

/// Makes one access of at most a unit.
fn access(pm: &Pm<'_>, verb: Verb, at: Addr, words: &mut [u64]) -> Result<()> {
    match verb {
        Verb::Read => pm.read_words(at, words),
        Verb::Write => {
            pm.write_words(at, words)?;
            pm.persist(Span::new(at, words.len() as u64), SITE)
        }
        Verb::WritePastCaches => {
            pm.write_words_nt(at, words, SITE)?;
            pm.fence(SITE)
        }
    }
}

/// Lets threads access `bytes` bytes at a time, at random places.
pub(crate) fn random(
    device: &MemoryDevice,
    verb: Verb,
    bytes: u64,
    threads: u64,
) -> Result<Summary> {
    let region = region(&small_cache(device), Timing::Virtual, BYTES);
    run(&region, threads, OPERATIONS.min(ALL_OPERATIONS / threads), |mut random| {
        let mut words = vec![1; (bytes / 8) as usize];
        move |pm, _| access(pm, verb, place(&mut random, BYTES, bytes.max(LINE)), &mut words)
    })
}

/// Returns the mean time of loads that follow one another line by line. Unit: nanoseconds.
pub(crate) fn sequential_loads(device: &MemoryDevice) -> Result<f64> {
    let region = region(device, Timing::Virtual, BYTES);
    let loads = |_| |pm: &Pm<'_>, number: u64| pm.load(Addr::new(number * LINE)).map(|_| ());
    Ok(run(&region, 1, 20_000, loads)?.mean_ns())
}

/// Returns the mean time to store to, flush and fence a line that is in the cache. Unit:
/// nanoseconds.
pub(crate) fn cached_write(device: &MemoryDevice) -> Result<f64> {
    let region = region(device, Timing::Virtual, BYTES);
    let pm = region.access();
    let mut busy = 0;
    for number in 0..OPERATIONS {
        let at = Addr::new(number * 4096);
        pm.load(at)?;
        let before = region.media().elapsed_ps();
        pm.store(at, 1)?;
        pm.persist(Span::new(at, 1), SITE)?;
        busy += region.media().elapsed_ps() - before;
    }
    Ok(busy as f64 / 1000.0 / OPERATIONS as f64)
}

/// Returns the mean time of stores past the caches that follow one another line by line, each
/// fenced. Unit: nanoseconds.
pub(crate) fn sequential_stores_past_caches(device: &MemoryDevice) -> Result<f64> {
    let region = region(device, Timing::Virtual, BYTES);
    let stores = |_| {
        |pm: &Pm<'_>, number: u64| {
            access(pm, Verb::WritePastCaches, Addr::new(number * LINE), &mut [1; 8])
        }
    };
    Ok(run(&region, 1, 20_000, stores)?.mean_ns())
}

/// Returns the mean time to read a line and then to store to, flush and fence it `times` times.
/// Unit: nanoseconds.
pub(crate) fn flush_again(device: &MemoryDevice, flush: Flushing, times: u64) -> Result<f64> {
    let device = MemoryDevice { flush, ..device.clone() };
    let region = region(&device, Timing::Virtual, BYTES);
    let writes = |mut random| {
        move |pm: &Pm<'_>, _| {
            let at = place(&mut random, BYTES, LINE);
            pm.load(at)?;
            for number in 0..times {
                pm.store(at, number)?;
                pm.persist(Span::new(at, 1), SITE)?;
            }
            Ok(())
        }
    };
    Ok(run(&region, 1, OPERATIONS, writes)?.mean_ns())
}

/// How a group of lines lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One behind the other, from a random place on.
    Sequential,
    /// Each at a random place.
    Random,
}

/// Lets threads access groups of lines, a word of each line. Reads do not wait for one another, nor
/// does a group wait for the one before; the writes of a group are flushed and share a fence.
pub(crate) fn groups(
    device: &MemoryDevice,
    verb: Verb,
    lines: u64,
    order: Order,
    threads: u64,
) -> Result<Summary> {
    let region = region(&small_cache(device), Timing::Virtual, BYTES);
    run(&region, threads, OPERATIONS / 4, |mut random| {
        move |pm, _| {
            let places = group(&mut random, lines, order);
            if verb == Verb::Read {
                // A prefetch waits for a free buffer and for nothing else: so do loads whose
                // addresses are known.
                places.iter().for_each(|at| pm.prefetch(*at));
                return Ok(());
            }
            for at in &places {
                pm.store(*at, 1)?;
                pm.flush(Span::new(*at, 1), SITE);
            }
            pm.fence(SITE)
        }
    })
}

fn group(random: &mut Random, lines: u64, order: Order) -> Vec<Addr> {
    let first = place(random, BYTES - lines * LINE, LINE);
    let line = |number| match order {
        Order::Sequential => first.plus(number * LINE / WORD),
        Order::Random => place(random, BYTES, LINE),
    };
    (0..lines).map(line).collect()
}
