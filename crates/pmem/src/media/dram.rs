//! Volatile memory that grows in place, with real flush instructions for benchmarks if wanted.

use super::{Domain, Guarantees, Hints, Holes, Media, Simulation};
use crate::sys::flush::{Flusher, PASSES_CACHES, store_fence};
use crate::sys::map::{Mapping, Source};
use crate::sys::window::Window;
use crate::{Addr, Error, LINE, Result, Site, Span, Std, WriteBack};

/// How a [`Dram`] is made.
#[derive(Clone, Copy, Debug)]
pub struct DramOptions {
    /// How far it may grow. Unit: bytes of addresses; memory is taken when it is first touched.
    pub capacity_bytes: u64,
    /// The instruction behind `flush`. With [`WriteBack::None`], flush and fence do nothing.
    pub write_back: WriteBack,
    /// Whether to ask the kernel for huge pages, which take the address translation out of a
    /// measurement. Best effort.
    pub huge_pages: bool,
    /// Whether to claim durable caches (eADR), so that an engine takes the path of a machine that
    /// has them, in a measurement. `flush` does nothing then, and `fence` waits. Nothing survives
    /// the process all the same.
    pub durable_caches: bool,
}

impl Default for DramOptions {
    /// One TiB of addresses, no flush instructions, ordinary pages, volatile caches.
    fn default() -> Self {
        DramOptions {
            capacity_bytes: super::file::USUAL_CAPACITY_BYTES,
            write_back: WriteBack::None,
            huge_pages: false,
            durable_caches: false,
        }
    }
}

/// Ordinary memory as a medium: nothing survives the process.
///
/// ```
/// use everhash_pmem::{Addr, Dram, Region};
///
/// let region = Region::new(Dram::new(1 << 20)?);
/// let pm = region.access();
/// pm.store(Addr::new(64), 7)?;
/// assert_eq!(pm.load(Addr::new(64))?, 7);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Dram {
    mapping: Mapping,
    flusher: Flusher,
    /// Whether a fence is one.
    waits: bool,
    huge_pages: bool,
    durable_caches: bool,
}

impl Dram {
    /// Makes a medium of `bytes` zero bytes with default options.
    ///
    /// # Errors
    /// As [`Dram::with_options`].
    pub fn new(bytes: u64) -> Result<Dram> {
        Dram::with_options(bytes, DramOptions::default())
    }

    /// Makes a medium of `bytes` zero bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the processor lacks the flush instruction, [`Error::Full`] if
    /// `bytes` exceeds the capacity, [`Error::System`] if there are not enough addresses.
    pub fn with_options(bytes: u64, options: DramOptions) -> Result<Dram> {
        let DramOptions { huge_pages, durable_caches, .. } = options;
        let write_back = if durable_caches { WriteBack::None } else { options.write_back };
        let flusher = Flusher::new(write_back).ok_or_else(|| Error::Unsupported {
            what: format!(
                "{:?} is not an instruction of this processor; choose another write-back",
                options.write_back
            ),
        })?;
        let mapping = Mapping::reserve(options.capacity_bytes, true)
            .map_err(|source| Error::System { doing: "reserve addresses", source })?;
        let waits = durable_caches || write_back != WriteBack::None;
        let dram = Dram { mapping, flusher, waits, huge_pages, durable_caches };
        dram.grow(bytes)?;
        Ok(dram)
    }
}

impl Media for Dram {
    type Sync = Std;
    type Context = ();
    type Block<'a, const N: usize>
        = Window<'a, N>
    where
        Self: 'a;

    #[inline(always)]
    fn context(&self) {}

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        let domain = if self.durable_caches { Domain::Eadr } else { Domain::None };
        Guarantees { domain, same_line_order: true, access_unit_bytes: LINE }
    }

    #[inline(always)]
    fn block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Result<Window<'a, N>> {
        self.mapping.window(at)
    }

    #[inline(always)]
    fn try_block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Option<Window<'a, N>> {
        self.mapping.try_window(at)
    }

    #[inline(always)]
    fn try_aligned_block<'a, const N: usize>(
        &'a self,
        _cx: &'a (),
        byte: u64,
    ) -> Option<Window<'a, N>> {
        self.mapping.try_aligned_window(byte)
    }

    #[inline]
    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        self.mapping.read_words(at, out)
    }

    #[inline]
    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        self.mapping.write_words(at, words)
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], site: Site) -> Result<()> {
        if !self.waits {
            // Without a fence instruction nothing would order stores past the caches.
            return self.mapping.write_words(at, words);
        }
        self.mapping.write_words_past_caches(at, words)?;
        if !PASSES_CACHES {
            self.flush(cx, Span::new(at, words.len() as u64), site);
        }
        Ok(())
    }

    #[inline(always)]
    fn flush(&self, _cx: &(), span: Span, _site: Site) {
        if self.flusher.kind() != WriteBack::None {
            self.mapping.write_back(span, self.flusher);
        }
    }

    #[inline(always)]
    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        if self.waits {
            store_fence();
        }
        Ok(())
    }

    fn sync(&self, cx: &(), site: Site) -> Result<()> {
        self.fence(cx, site)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        let needed = bytes.saturating_sub(self.bytes());
        let target =
            bytes.checked_next_multiple_of(LINE).filter(|to| *to <= self.mapping.capacity());
        let target = target.ok_or(Error::Full { needed })?;
        self.mapping.extend(target, Source::Memory).map_err(|_| Error::Full { needed })?;
        if self.huge_pages {
            // Best effort: a kernel without huge pages gives the same words, only slower.
            let _ = self.mapping.use_huge_pages();
        }
        Ok(())
    }
}

impl Hints for Dram {
    fn touch(&self, span: Span) {
        self.mapping.populate(span);
    }

    #[inline(always)]
    fn prefetch(&self, at: Addr) {
        self.mapping.prefetch(at);
    }

    #[inline(always)]
    fn prefetch_for_store(&self, at: Addr) {
        self.mapping.prefetch_for_store(at);
    }
}

impl Holes for Dram {
    fn release(&self, span: Span) {
        self.mapping.discard(span);
    }
}

impl Simulation<()> for Dram {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    const SITE: Site = Site::new("test");

    #[test]
    fn every_flush_instruction_leaves_the_words_as_they_are() {
        // Fails if an instruction is wrongly detected (a signal) or destroys what it writes back.
        let mut tried = 0;
        for write_back in WriteBack::ALL.into_iter().filter(|kind| kind.is_supported()) {
            let options = DramOptions { write_back, ..DramOptions::default() };
            let region = Region::new(Dram::with_options(1 << 16, options).unwrap());
            let pm = region.access();
            let words: Vec<u64> = (0..64).collect();
            pm.write_words(Addr::new(8), &words).unwrap();
            pm.write_words_nt(Addr::new(4096), &words, SITE).unwrap();
            pm.persist(Span::new(Addr::new(8), 64), SITE).unwrap();
            pm.sync(SITE).unwrap();
            let mut back = vec![0; 64];
            for at in [8, 4096] {
                pm.read_words(Addr::new(at), &mut back).unwrap();
                assert_eq!(back, words, "{write_back:?}");
            }
            tried += 1;
        }
        assert!(tried >= 1);
    }

    #[test]
    fn durable_caches_are_claimed_if_that_is_asked_for() {
        // Fails if an engine takes the path of volatile caches in a measurement of the other one,
        // or if it takes that of durable caches unasked.
        for durable_caches in [false, true] {
            let options = DramOptions { durable_caches, ..DramOptions::default() };
            let region = Region::new(Dram::with_options(1 << 16, options).unwrap());
            let durable = region.media().guarantees().domain == Domain::Eadr;
            assert_eq!((durable, region.media().waits), (durable_caches, durable_caches));
            let pm = region.access();
            pm.write_words_nt(Addr::new(4096), &[7, 8], SITE).unwrap();
            pm.fence(SITE).unwrap();
            assert_eq!(pm.load(Addr::new(4104)).unwrap(), 8);
        }
    }

    #[test]
    fn a_missing_instruction_is_an_error_and_not_a_signal() {
        // Fails if an instruction of the other architecture were accepted.
        let missing = WriteBack::ALL.into_iter().find(|kind| !kind.is_supported());
        let write_back = missing.expect("no processor has both clwb and dc cvap");
        let options = DramOptions { write_back, ..DramOptions::default() };
        assert!(matches!(Dram::with_options(4096, options), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn what_is_released_is_given_back() {
        // Fails if pages of free space stay in memory: they would still hold what they held.
        let region = Region::new(Dram::new(1 << 20).unwrap());
        let pm = region.access();
        pm.write_words(Addr::NULL, &vec![5; 1 << 17]).unwrap();
        region.media().release(Span::of_bytes(Addr::NULL, 1 << 19));
        let words = [0, (1 << 19) - 8, 1 << 19].map(|at| pm.load(Addr::new(at)).unwrap());
        assert_eq!(words, [0, 0, 5]);
    }

    #[test]
    fn growth_keeps_words_and_stops_at_the_capacity() {
        // Fails if growth moves words, or if the capacity is only a wish.
        let options =
            DramOptions { capacity_bytes: 1 << 20, huge_pages: true, ..DramOptions::default() };
        let dram = Dram::with_options(100, options).unwrap();
        assert_eq!(dram.bytes(), 128);
        dram.write_words(&(), Addr::new(120), &[9]).unwrap();
        dram.grow(1 << 20).unwrap();
        dram.grow(64).unwrap();
        assert_eq!(dram.bytes(), 1 << 20);
        let mut word = [0];
        dram.read_words(&(), Addr::new(120), &mut word).unwrap();
        assert_eq!(word, [9]);
        assert!(matches!(dram.grow((1 << 20) + 1), Err(Error::Full { needed: 1 })));
        assert!(matches!(dram.grow(u64::MAX), Err(Error::Full { .. })));
    }
}
