//! An emulated flash device behind memory-mapped pages: page map, streams, garbage collection.

mod counters;
mod disk;
mod ftl;
mod page_cache;
mod victim;

#[cfg(test)]
mod tests;

pub use counters::FlashCounters;
pub use disk::Disk;
pub use ftl::{Ftl, FtlCounters, Outcome, StreamUse};

use super::simulated::{Simulated, contents};
use super::virtual_time::Timing;
use crate::profile::FlashDevice;
use crate::{Domain, Guarantees, Primitives, Std};

/// A flash device that programs reach by loads and stores, through a cache of its pages.
///
/// The cache serves loads and stores of lines. On a miss it reads the page from flash and evicts
/// the least recently used one. A flush writes the pages that it touches if they are dirty.
/// Requests are serial: one die, no channels, no write buffer. Repeated accesses to the line that a
/// thread accessed last are free, because its processor holds it.
///
/// Behind the cache lies an [`Ftl`]. Pages of different [streams](crate::Hints::stream) go to
/// different blocks, and stay apart when garbage collection moves them.
///
/// ```
/// use everhash_pmem::media::flash::Flash;
/// use everhash_pmem::media::virtual_time::Timing;
/// use everhash_pmem::profile::Profile;
/// use everhash_pmem::{Addr, Region, Site, Span};
///
/// let profile = Profile::named("tiered")?;
/// let device = profile.flash()?.scaled(4.0);
/// let flash = Flash::<everhash_pmem::Std>::new(&device, Timing::Virtual, 1 << 20);
/// let region = Region::new(flash);
/// let pm = region.access();
/// pm.store(Addr::new(4096), 7)?;
/// pm.persist(Span::new(Addr::new(4096), 1), Site::new("example/store"))?;
/// // The page was read, stored to in the cache, and written.
/// assert_eq!(region.media().counters().ftl.host_writes, 1);
/// assert_eq!(region.media().elapsed_ps(), (60 + 800) * 1_000_000);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub type Flash<P = Std> = Simulated<Disk, P>;

impl<P: Primitives> Simulated<Disk, P> {
    /// Makes an empty device of `bytes` bytes, which can grow to the logical pages of `device`.
    ///
    /// # Panics
    /// If `bytes` exceeds that.
    pub fn new(device: &FlashDevice, timing: Timing, bytes: u64) -> Self {
        Self::of(device, timing, 0, &[], bytes)
    }

    /// Makes a device of `bytes` bytes that begins with `words`, with an empty cache. `seed`
    /// decides every random choice.
    ///
    /// # Panics
    /// If `bytes` exceeds the logical pages of `device` or is shorter than `words`.
    pub fn of(device: &FlashDevice, timing: Timing, seed: u64, words: &[u64], bytes: u64) -> Self {
        let capacity = device.logical_pages() * device.page_bytes;
        let disk = Disk::new(device, timing, contents(words, bytes, capacity), seed);
        // A page is written as it is at one moment of the program: a prefix of the stores to it.
        let guarantees = Guarantees {
            domain: Domain::Adr,
            same_line_order: true,
            access_unit_bytes: device.page_bytes,
        };
        Self::wrap(disk, bytes, capacity, guarantees)
    }

    /// Returns the counters.
    pub fn counters(&self) -> FlashCounters {
        self.device().counters()
    }

    /// Returns what each stream has cost so far, and what it holds.
    pub fn streams(&self) -> Vec<StreamUse> {
        self.device().ftl().streams()
    }

    /// Returns how often each block was erased.
    pub fn erase_counts(&self) -> Vec<u32> {
        self.device().ftl().erase_counts()
    }
}
