//! Small programs that are run on a device.

pub(crate) mod buffers;
pub(crate) mod indexes;
pub(crate) mod pages;
pub(crate) mod times;

use std::cell::RefCell;

use everhash_pmem::media::emulated::{Emulated, Timing};
use everhash_pmem::media::random::Random;
use everhash_pmem::media::virtual_time::{Schedule, Step, Summary};
use everhash_pmem::profile::MemoryDevice;
use everhash_pmem::{Access, Addr, Region, Result, Site};

/// The only site of the programs: their crashes are not explored.
pub(crate) const SITE: Site = Site::new("device/program");

/// One thread's way to the device under test.
pub(crate) type Pm<'a> = Access<'a, Emulated>;

/// Makes a device of `bytes` bytes.
pub(crate) fn region(device: &MemoryDevice, timing: Timing, bytes: u64) -> Region<Emulated> {
    Region::new(Emulated::new(device, timing, bytes, bytes))
}

/// Runs `operations` operations on each of `threads` logical threads, which do nothing but touch
/// the device. `program` makes the program of one thread, out of a generator of its own; that is
/// called with the number of each operation.
pub(crate) fn run<'a, F>(
    region: &'a Region<Emulated>,
    threads: u64,
    operations: u64,
    program: impl Fn(Random) -> F,
) -> Result<Summary>
where
    F: FnMut(&Pm<'a>, u64) -> Result<()> + 'a,
{
    let failure = RefCell::new(None);
    // A later phase on the same device must not repeat the places of the one before.
    let seed = region.media().elapsed_ps();
    let mut schedule = Schedule::new(&**region.media()).operation_ps(0);
    for thread in 0..threads {
        let failure = &failure;
        let (mut program, mut done) = (program(Random::new(seed + thread + 1)), 0);
        schedule.thread(move |_| {
            if done == operations || failure.borrow().is_some() {
                return Step::Done;
            }
            done += 1;
            if let Err(error) = program(&region.access(), done - 1) {
                *failure.borrow_mut() = Some(error);
            }
            Step::Again
        });
    }
    let summary = schedule.run();
    failure.into_inner().map_or(Ok(summary), Err)
}

/// Returns a random place that is a multiple of `bytes` in a device of `size` bytes.
pub(crate) fn place(random: &mut Random, size: u64, bytes: u64) -> Addr {
    Addr::new(random.below(size / bytes) * bytes)
}

/// Returns the device with a cache that is small against one of 64 MiB, so that a random access
/// hardly ever hits.
pub(crate) fn small_cache(device: &MemoryDevice) -> MemoryDevice {
    device.scaled(device.cache_bytes as f64 / (512 << 10) as f64)
}
