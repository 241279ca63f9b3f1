//! What a medium may ignore: hints, holes, and the events that only simulated media observe.

use crate::{Addr, Result, Site, Span};

/// A class of data with a common lifetime, for devices that keep such classes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct StreamClass(pub u8);

/// What became of a hint about streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamSupport {
    /// The device received the hint.
    Passed,
    /// The device or the operating system does not take such hints.
    NotSupported,
}

/// Hints about future accesses. A medium that ignores them returns the same words, only later.
pub trait Hints {
    /// Announces a read of the line at `at`.
    #[inline(always)]
    fn prefetch(&self, _at: Addr) {}

    /// Announces a store to the line at `at`, which is better not shared with other cores.
    #[inline(always)]
    fn prefetch_for_store(&self, at: Addr) {
        self.prefetch(at);
    }

    /// Asks that the lines of `span` leave the caches now and together, so that a device that
    /// gathers lines writes whole units. It makes nothing durable: it is for media with durable
    /// caches, whose lines else leave one by one, whenever the cache needs their places.
    #[inline(always)]
    fn write_back(&self, _span: Span) {}

    /// Touches the pages of `span` so that later stores do not fault. Best effort.
    fn touch(&self, _span: Span) {}

    /// Announces reads of most of `span`, in whatever order: a medium that reads pieces of a slow
    /// device may then read large pieces ahead. Best effort.
    fn will_read(&self, _span: Span) {}

    /// Announces reads of each of these spans, which lie apart: a medium whose reads may wait for a
    /// slow device can then let it do all of them at a time. Costs next to nothing where none
    /// waits. Best effort.
    #[inline(always)]
    fn will_read_each(&self, _spans: impl Iterator<Item = Span> + Clone) {}

    /// Declares that `span` holds data of one lifetime class.
    fn stream(&self, _span: Span, _class: StreamClass) -> StreamSupport {
        StreamSupport::NotSupported
    }
}

/// Storage that can be returned to the device while the addresses stay.
pub trait Holes {
    /// Returns the storage behind `span` to the device where the medium can (a hole in a file).
    /// The words read as zero or as before. Call [`Holes::reserve`] before the next store to them.
    fn release(&self, _span: Span) {}

    /// Allocates storage for a released `span` again, so that stores to it cannot meet a full disk.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if the device has no room.
    fn reserve(&self, _span: Span) -> Result<()> {
        Ok(())
    }

    /// Returns the spans that have no storage behind them, in order; nothing if the medium cannot
    /// tell, as until [`Holes::reserve`] has found room for all of it.
    fn holes(&self) -> Option<Vec<Span>> {
        Some(Vec::new())
    }

    /// Returns the spans without storage from which a load takes some, and so can meet a full disk,
    /// in order: holes of a file on a tmpfs, also if it is only read. Their words are zero: whoever
    /// searches space that may be free leaves them out.
    fn costly_holes(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Prepares the memory behind `span` at once: it is in use, nothing leads there yet, and all of
    /// it is stored to next. The words read as zero or as before.
    fn renew(&self, _span: Span) {}
}

/// Events that a real medium ignores: they feed virtual time and the crash explorer.
///
/// `C` is the medium's [`Context`](crate::Media::Context).
pub trait Simulation<C> {
    /// Reports that the operation touched `lines` cache lines of DRAM, for virtual time.
    #[inline(always)]
    fn dram(&self, _cx: &C, _lines: u32) {}

    /// Reports that the thread acquired the volatile lock `lock`, for virtual time.
    #[inline(always)]
    fn locked(&self, _cx: &C, _lock: u64) {}

    /// Reports that the thread is about to release the volatile lock `lock`, for virtual time.
    #[inline(always)]
    fn unlocking(&self, _cx: &C, _lock: u64) {}

    /// Reports that `span` is free: nothing durable leads there, and no reader is left in it. From
    /// here on its words may be anything, which the traced medium takes at its word.
    #[inline(always)]
    fn freed(&self, _span: Span) {}

    /// Returns whether an allocation that begins now shall find no room, whatever room there is.
    #[inline(always)]
    fn refuses(&self) -> bool {
        false
    }

    /// Reports that a phase of background work begins: a place where the explorer crashes.
    #[inline(always)]
    fn mark(&self, _cx: &C, _site: Site) {}
}
