//! The seam: what a medium can do. Everything above is generic over [`Media`].
//!
//! [`Media`] holds the verbs that every medium must have. [`Hints`], [`Holes`] and [`Simulation`]
//! hold what a medium may ignore; each of their methods does nothing by default. They are
//! supertraits of [`Media`], so that `M: Media` is the only bound that an engine writes.
//! `docs/decisions/0010-a-narrow-seam.md` says what belongs where.

pub mod counted;
pub mod dax;
pub mod dram;
#[cfg(feature = "devices")]
pub mod emulated;
pub mod file;
#[cfg(feature = "devices")]
pub mod flash;
mod hints;
pub mod image;
pub mod random;
#[cfg(feature = "devices")]
pub mod simulated;
pub mod traced;
#[cfg(feature = "devices")]
pub mod virtual_time;

use crate::{Addr, AtOnce, Error, Primitives, Result, Site, Span, equal_bytes};

pub use hints::{Hints, Holes, Simulation, StreamClass, StreamSupport};

/// Where a store must have arrived to survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Domain {
    /// Stores survive nothing.
    None,
    /// A visible store survives a killed process; nothing survives power loss.
    Process,
    /// A flushed and fenced line survives power loss; caches are lost (ADR).
    Adr,
    /// Every visible store survives power loss (eADR).
    Eadr,
    /// Stores before a successful sync survive power loss; a fence is a sync.
    Synced,
}

/// What a medium guarantees. An engine asks instead of assuming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// Where a store must have arrived to survive.
    pub domain: Domain,
    /// Whether the stores to one cache line become durable in program order.
    /// True for memory, false for files: a page is written out while stores to it go on.
    pub same_line_order: bool,
    /// The device's internal granularity. Unit: bytes; 64 to 4096.
    pub access_unit_bytes: u64,
}

/// A window of `N` words with one bounds check for all of them.
///
/// A constant index costs no further check: a bucket is read as fast as through a raw pointer.
///
/// # Panics
/// Every method panics if `index` is not below `N`: an engine's own mistake, never the file's.
pub trait Block<const N: usize>: Copy {
    /// Returns where the window starts.
    fn start(&self) -> Addr;

    /// Loads a word (acquire).
    fn load(&self, index: usize) -> u64;

    /// Loads a word (relaxed).
    fn load_relaxed(&self, index: usize) -> u64;

    /// Stores a word (relaxed).
    fn store(&self, index: usize, value: u64);

    /// Stores the word that publishes a change (release).
    fn commit_word(&self, index: usize, value: u64, site: Site);

    /// Returns which of the words that `which` names, bit i for word i, are `value`: the same bits
    /// (relaxed).
    #[inline(always)]
    fn equal_words(&self, which: u32, value: u64) -> u32 {
        let equal = |index: usize| u32::from(self.load_relaxed(index) == value) << index;
        (0..N).filter(|index| which >> index & 1 == 1).fold(0, |mask, index| mask | equal(index))
    }

    /// As [`Block::equal_words`] of all words of a line, in few instructions on memory.
    #[inline(always)]
    fn equal_words_at_once(&self, _proof: AtOnce, value: u64) -> u32 {
        self.equal_words(u32::MAX, value)
    }

    /// Returns which bytes of the two words from `FIRST` on are the lowest one of `low`, bit i for
    /// byte i, as [`equal_bytes`] does (relaxed), in few instructions on memory.
    #[inline(always)]
    fn equal_bytes_at_once<const FIRST: usize>(&self, _proof: AtOnce, low: u64) -> u32 {
        equal_bytes(&[self.load_relaxed(FIRST), self.load_relaxed(FIRST + 1)], low as u8)
    }

    /// Returns the lowest bit of `slots`, and the two words of that slot (relaxed): of the `COUNT`
    /// slots of two words each that begin at word `FIRST`. Bits of other slots are passed over.
    #[inline(always)]
    fn first_slot<const FIRST: usize, const COUNT: usize>(
        &self,
        slots: u32,
    ) -> Option<(usize, [u64; 2])> {
        let slot = (slots & ((1 << COUNT) - 1)).trailing_zeros() as usize;
        let word = |index: usize| self.load_relaxed(FIRST + 2 * slot + index);
        (slot < COUNT).then(|| (slot, [word(0), word(1)]))
    }

    /// Announces a read of the line in which word `index` lies.
    #[inline(always)]
    fn prefetch(&self, index: usize) {
        let _ = index;
    }

    /// Replaces `current` by `new` (acquire and release), or returns the value that it found.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        site: Site,
    ) -> core::result::Result<u64, u64>;
}

/// A medium: a growing sequence of 8-byte words that may outlive the process.
///
/// There is no way to a byte, a reference or a pointer into the medium: a torn word is impossible,
/// and a hostile file cannot cause undefined behaviour. On real memory the verbs compile to plain
/// instructions. Engines use the medium through [`Access`](crate::Access), which turns every
/// address that is out of bounds into an error.
pub trait Media:
    Hints + Holes + Simulation<<Self as Media>::Context> + Send + Sync + 'static
{
    /// The volatile atomics and locks that go with this medium.
    type Sync: Primitives;

    /// The state of one thread between its flushes and its fence.
    type Context;

    /// A window of words on this medium.
    type Block<'a, const N: usize>: Block<N>
    where
        Self: 'a;

    /// Makes the context of the calling thread, for one operation.
    fn context(&self) -> Self::Context;

    /// Returns the length. Unit: bytes; never shrinks while the medium is open.
    fn bytes(&self) -> u64;

    /// Returns what the medium guarantees after a crash.
    fn guarantees(&self) -> Guarantees;

    /// Returns the window of `N` words at `at`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it does not lie inside the medium.
    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a Self::Context,
        at: Addr,
    ) -> Result<Self::Block<'a, N>>;

    /// As [`Media::block`], with `None` for the error: where nobody looks at an error, making one
    /// would cost the common case its registers.
    #[inline(always)]
    fn try_block<'a, const N: usize>(
        &'a self,
        cx: &'a Self::Context,
        at: Addr,
    ) -> Option<Self::Block<'a, N>> {
        self.block(cx, at).ok()
    }

    /// As [`Media::try_block`], of the window in which byte `byte` lies and that begins at a
    /// multiple of its length, which is a power of two: its end needs no sum that could wrap
    /// around.
    #[inline(always)]
    fn try_aligned_block<'a, const N: usize>(
        &'a self,
        cx: &'a Self::Context,
        byte: u64,
    ) -> Option<Self::Block<'a, N>> {
        self.try_block(cx, Addr::of_window::<N>(byte))
    }

    /// Reads whole words into `out`, each atomically, in ascending order.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    fn read_words(&self, cx: &Self::Context, at: Addr, out: &mut [u64]) -> Result<()>;

    /// Stores whole words, each atomically, in ascending order (relaxed).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; nothing is stored then.
    fn write_words(&self, cx: &Self::Context, at: Addr, words: &[u64]) -> Result<()>;

    /// Stores whole words past the caches (non-temporal). The next fence of this thread makes them
    /// durable without a flush. Do not mix them with other stores to the same lines before that
    /// fence.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; nothing is stored then.
    fn write_words_nt(&self, cx: &Self::Context, at: Addr, words: &[u64], site: Site)
    -> Result<()>;

    /// Begins the write-back of every line that `span` touches; [`Media::fence`] waits for it.
    ///
    /// Lines outside the medium are ignored.
    fn flush(&self, cx: &Self::Context, span: Span, site: Site);

    /// Waits until everything that this thread has flushed is durable.
    ///
    /// # Errors
    /// On files the sync may fail. That poisons the medium: every later fence fails with
    /// [`Error::Poisoned`].
    fn fence(&self, cx: &Self::Context, site: Site) -> Result<()>;

    /// Makes every earlier store durable, by any thread.
    ///
    /// # Errors
    /// As [`Media::fence`].
    fn sync(&self, cx: &Self::Context, site: Site) -> Result<()>;

    /// Grows the medium to at least `bytes` bytes; addresses stay valid. The new words are zero.
    /// They and the new length are durable on return.
    ///
    /// # Errors
    /// [`Error::Full`] if the device has no room; the medium is unchanged.
    fn grow(&self, bytes: u64) -> Result<()>;

    /// From here on, a sync that fails stores `word` at `at`, where the next one to open the
    /// medium finds it. For media behind a page cache, which may show, and never write again, what
    /// a failed sync has not written; others have nothing to do.
    fn note_failed_syncs(&self, _at: Addr, _word: u64) {}

    /// Stores everything again with the value that it has, so that the next sync makes all of it
    /// durable, also what an earlier one failed to. Nobody else may store meanwhile. Media that do
    /// not note failed syncs have nothing to do.
    ///
    /// # Errors
    /// [`Error::System`] if a part cannot be read or written.
    fn rewrite(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes the error of an access to `words` words at `at`. Out of line: it is never the hot path.
#[cold]
pub(crate) fn out_of_bounds(at: Addr, words: u64) -> Error {
    Error::OutOfBounds { at, bytes: words.saturating_mul(crate::WORD) }
}
