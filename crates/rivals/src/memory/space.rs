//! The medium under an index: its root line, and space that is handed out from the front.

use core::cell::Cell;

use everhash_pmem::{Access, Addr, Block, LINE, Media, Region, Result, Site, Span, WORD};

/// The line in which an index begins.
pub const ROOT: Addr = Addr::new(0);

/// What space begins with and is a multiple of.
///
/// Unit: bytes. Source: the access unit of Optane; an allocator that aligned less would make
/// buckets of 256 bytes straddle two of them.
const ALIGN_BYTES: u64 = 256;

/// Words of a line.
pub const LINE_WORDS: u64 = LINE / WORD;

/// A medium and how much of it is in use. What an index gives up is not used again.
pub struct Space<M: Media> {
    region: Region<M>,
    end: Cell<u64>,
}

impl<M: Media> Space<M> {
    pub fn new(region: Region<M>) -> Result<Self> {
        region.media().grow(ALIGN_BYTES)?;
        Ok(Space { region, end: Cell::new(ALIGN_BYTES) })
    }

    /// Returns a medium with all of its length in use.
    pub fn open(region: Region<M>) -> Self {
        let end = region.media().bytes().next_multiple_of(ALIGN_BYTES);
        Space { region, end: Cell::new(end) }
    }

    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    pub fn access(&self) -> Access<'_, M> {
        self.region.access()
    }

    /// Returns space that was never used.
    pub fn take(&self, words: u64) -> Result<Span> {
        let span = Span::new(Addr::new(self.end.get()), words);
        let end = span.end_byte().next_multiple_of(ALIGN_BYTES);
        self.region.media().grow(end)?;
        self.end.set(end);
        Ok(span)
    }

    /// As [`Space::take`], and writes it with zeros past the caches, as an allocator does that
    /// gives out cleared space.
    pub fn take_zeroed(&self, words: u64, site: Site) -> Result<Span> {
        let (span, pm) = (self.take(words)?, self.access());
        pm.write_words_nt(span.start, &vec![0; words as usize], site)?;
        pm.fence(site)?;
        Ok(span)
    }
}

/// Adds to a lock word on the medium. Nobody flushes it: it leaves the caches when it must.
pub fn add<M: Media>(pm: &Access<'_, M>, at: Addr, more: u64, site: Site) -> Result<()> {
    let found = pm.load(at)?;
    exchange(pm, at, found, found.wrapping_add(more), site)
}

/// Replaces a word that one thread reads and writes.
pub fn exchange<M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    current: u64,
    new: u64,
    site: Site,
) -> Result<()> {
    let replaced = pm.block::<1>(at)?.compare_exchange(0, current, new, site);
    assert_eq!(replaced, Ok(current), "one thread uses the table");
    Ok(())
}

/// As [`exchange`], and makes the word durable.
pub fn exchange_durably<M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    current: u64,
    new: u64,
    site: Site,
) -> Result<()> {
    exchange(pm, at, current, new, site)?;
    pm.persist(Span::new(at, 1), site)
}

/// Stores a word and makes it durable.
pub fn store_durably<M: Media>(pm: &Access<'_, M>, at: Addr, value: u64, site: Site) -> Result<()> {
    pm.commit_word(at, value, site)?;
    pm.persist(Span::new(at, 1), site)
}
