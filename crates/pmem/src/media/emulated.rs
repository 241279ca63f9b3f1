//! An emulated device: real contents, counted traffic, virtual time.

mod cache;
mod counters;
mod dimm;
mod machine;
mod modules;
mod thread;
mod times;

#[cfg(test)]
mod tests;

pub use counters::{Counters, Ipmctl, Pmwatch};
pub use machine::Machine;

use super::simulated::{Simulated, contents};
pub use super::virtual_time::Timing;
use crate::profile::MemoryDevice;
use crate::{Addr, LINE, Primitives, Span, Std};

/// A byte-addressable device with the caches, buffers and media of a [`MemoryDevice`].
///
/// Its contents are real, so that engines run on it. It tracks cached, dirty and buffered lines,
/// and counts the work of the processor and the modules: misses, reads for ownership, evictions,
/// combined and partial writes.
///
/// There is no hardware prefetcher: the counters show the accesses of the program.
///
/// ```
/// use everhash_pmem::media::emulated::{Emulated, Timing};
/// use everhash_pmem::profile::Profile;
/// use everhash_pmem::{Addr, Region, Site, Span};
///
/// let profile = Profile::named("optane-100")?;
/// let device = Emulated::<everhash_pmem::Std>::new(
///     profile.memory()?, Timing::Counting, 1 << 20, 1 << 20,
/// );
/// let region = Region::new(device);
/// let pm = region.access();
/// for unit in 0..1000 {
///     let at = Addr::new(unit * 256);
///     pm.store(at, unit)?;
///     pm.persist(Span::new(at, 1), Site::new("example/store"))?;
/// }
/// region.media().drain();
/// // Eight bytes were stored in each unit of 256.
/// assert_eq!(region.media().counters().write_amplification(), 32.0);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub type Emulated<P = Std> = Simulated<Machine, P>;

/// The wear of a device: how evenly it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wear {
    /// Lines, or units, that were written at least once.
    pub touched: u64,
    /// Writes in all.
    pub writes: u64,
    /// Writes of the one that was written most.
    pub most: u32,
}

impl Wear {
    /// Returns the writes of a touched line or unit on average.
    pub fn mean(&self) -> f64 {
        self.writes as f64 / self.touched.max(1) as f64
    }

    fn of(counts: &[u32]) -> Wear {
        counts.iter().filter(|count| **count > 0).fold(Wear::default(), |wear, count| Wear {
            touched: wear.touched + 1,
            writes: wear.writes + u64::from(*count),
            most: wear.most.max(*count),
        })
    }
}

impl<P: Primitives> Simulated<Machine, P> {
    /// Makes a device of `bytes` zero bytes that can grow to `capacity` bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity`.
    pub fn new(device: &MemoryDevice, timing: Timing, bytes: u64, capacity: u64) -> Self {
        Self::of(device, timing, 0, &[], bytes, capacity)
    }

    /// Makes a device of `bytes` bytes that begins with `words`, with empty caches, and can grow to
    /// `capacity` bytes. `seed` decides every random choice.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity` or is shorter than `words`.
    pub fn of(
        device: &MemoryDevice,
        timing: Timing,
        seed: u64,
        words: &[u64],
        bytes: u64,
        capacity: u64,
    ) -> Self {
        let machine = Machine::new(device, timing, contents(words, bytes, capacity), seed);
        Self::wrap(machine, bytes, capacity, device.guarantees())
    }

    /// Returns the counters; what lies in the buffers of the modules is not in them yet.
    pub fn counters(&self) -> Counters {
        self.device().counters
    }

    /// Writes out the buffers of the modules, as at the end of a measured phase, and returns what
    /// that alone came to.
    ///
    /// Without it a short run would leave up to a buffer of units out of its counters. The caches
    /// keep what was not flushed.
    pub fn drain(&self) -> Counters {
        let mut machine = self.device();
        let before = machine.counters;
        machine.drain();
        machine.counters - before
    }

    /// Sets the number of writing threads: with too many, a module combines less.
    ///
    /// A [`Schedule`](super::virtual_time::Schedule) sets it itself.
    pub fn set_writers(&self, writers: u32) {
        self.device().set_writers(u64::from(writers));
    }

    /// Returns how often lines were written to the modules.
    pub fn line_wear(&self) -> Wear {
        Wear::of(self.device().wear().0)
    }

    /// Returns how often units were written to the media.
    pub fn unit_wear(&self) -> Wear {
        Wear::of(self.device().wear().1)
    }

    /// Returns the line that was written most among those of `span`, with its count.
    pub fn most_written_line(&self, span: Span) -> Option<(Addr, u32)> {
        let machine = self.device();
        let wear = machine.wear().0;
        let lines = span.lines().take_while(|line| (*line as usize) < wear.len());
        let most = lines.map(|line| (line, wear[line as usize])).max_by_key(|(_, count)| *count);
        most.map(|(line, count)| (Addr::new(line * LINE), count))
    }
}
