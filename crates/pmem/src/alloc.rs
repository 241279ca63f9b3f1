//! Space: which lines of the medium are in use. Volatile, rebuilt at every open.
//!
//! Nothing about allocation is persistent. What can be reached from committed words is in use, and
//! all else is free: the engine says at open what it reaches ([`Space::claim`]), and from then on
//! takes and gives. So a crash can neither leak a span nor leave one handed out twice, and there
//! is no allocation log that could be wrong (`docs/decisions/0004-volatile-space-maps.md`).

mod map;
#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering;

use map::{FreeMap, align_up};

use crate::{Addr, Error, LINE, Lock, LockPoisoned, Media, Primitives, Region, Result, Span, WORD};

/// The largest step by which the medium grows, unless more is needed at once.
///
/// Unit: bytes. Source: ours; bounds both the waste in a young file and the time of one step.
const LARGEST_STEP_BYTES: u64 = 256 << 20;

/// The part of the present size by which the medium grows: a quarter.
///
/// Source: ours; growing to n bytes takes O(log n) steps, and at most a fifth of the file is ahead
/// of its use.
const STEP_DIVISOR: u64 = 4;

/// A lock of the family that goes with medium `M`.
pub(crate) type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// A span that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// What was handed out: whole lines.
    pub span: Span,
    /// Whether every word is known to be zero, on the medium too: the medium grew under the span
    /// and it was never handed out since.
    pub zero: bool,
}

/// How full a space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Claimed or taken. Unit: bytes.
    pub used_bytes: u64,
    /// Free without growing the medium. Unit: bytes.
    pub free_bytes: u64,
    /// How often the medium was grown since the space was made.
    pub growth_steps: u64,
}

/// The free lines of a medium, from an address on.
///
/// Takes the best fit and merges what is given back with its neighbours: the engines' spans have
/// few lengths, so that the hole which one span left fits the next one exactly, and the long run
/// at the end is cut last. The medium grows when nothing fits.
///
/// ```
/// use everhash_pmem::{Addr, Image, Region, Space};
///
/// let region = Region::new(Image::<everhash_pmem::Std>::new(4096, 16384));
/// let space = Space::fresh(region, Addr::new(256));
/// let bucket = space.take(100, 256)?;
/// assert_eq!((bucket.span.start, bucket.span.bytes(), bucket.zero), (Addr::new(256), 128, true));
/// space.give(bucket.span);
/// assert_eq!(space.usage()?.used_bytes, 0);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub struct Space<M: Media> {
    region: Region<M>,
    /// The first line that belongs to the space.
    first: u64,
    state: LockOf<M, State>,
    /// Held by whoever grows the medium. Taken before `state`, which is free meanwhile: others
    /// give, and take what fits, while the device works.
    growing: LockOf<M, ()>,
}

struct State {
    free: FreeMap,
    /// The line behind the last one of the medium.
    end: u64,
    /// From this line on nothing was ever handed out since the medium grew there.
    zero: u64,
    /// Up to this line pages were touched ahead of their use.
    touched: u64,
    growth_steps: u64,
}

impl<M: Media> Space<M> {
    /// Makes the space of a medium that may hold anything: all of it from `from` on is free, until
    /// the engine has claimed what it reaches, and not known to be zero.
    pub fn new(region: Region<M>, from: Addr) -> Self {
        let end = region.media().bytes() / LINE;
        Self::with_zero_from(region, from, end)
    }

    /// Makes the space of a medium that is being formatted: all of it from `from` on is free and
    /// zero.
    pub fn fresh(region: Region<M>, from: Addr) -> Self {
        Self::with_zero_from(region, from, 0)
    }

    fn with_zero_from(region: Region<M>, from: Addr, zero: u64) -> Self {
        let first = from.byte().div_ceil(LINE);
        let end = (region.media().bytes() / LINE).max(first);
        let mut free = FreeMap::default();
        if first < end {
            free.insert(first, end - first);
        }
        let state =
            State { free, end, zero: zero.clamp(first, end), touched: first, growth_steps: 0 };
        Space { region, first, state: Lock::new(state), growing: Lock::new(()) }
    }

    /// Returns the medium that the space is on.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Returns where the space begins.
    pub fn start(&self) -> Addr {
        Addr::new(self.first * LINE)
    }

    /// Says that `span` is reachable from committed words: part of recovery, before any take.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at the span's start, if it does not consist of whole lines, does not lie
    /// inside the space, or shares a line with a span that was claimed before. Nothing is claimed
    /// then.
    pub fn claim(&self, span: Span) -> Result<()> {
        let broken = |broken| Err(Error::Corrupt { at: span.start.byte(), broken });
        if !whole_lines(span) || span.words == 0 {
            return broken("a span in use consists of whole lines");
        }
        let mut state = self.state.lock().map_err(poisoned)?;
        let (start, end) = (span.start.line(), span.end_byte() / LINE);
        if start < self.first || end > state.end {
            return broken("a span in use lies inside the space");
        }
        if !state.free.remove(start, end - start) {
            return broken("no line is in use twice");
        }
        state.zero = state.zero.max(end);
        Ok(())
    }

    /// Hands out `bytes` bytes, rounded up to whole lines, from a multiple of `align_bytes` on.
    ///
    /// # Errors
    /// [`Error::Full`] if nothing fits and the medium cannot grow; everything is as it was then.
    /// [`Error::Poisoned`] and [`Error::System`] as the medium reports them.
    ///
    /// # Panics
    /// If `bytes` is zero or `align_bytes` is not a power of two.
    pub fn take(&self, bytes: u64, align_bytes: u64) -> Result<Allocation> {
        self.take_from(bytes, align_bytes, 0)
    }

    /// As [`Space::take`], with multiples counted from line `origin`, which the space contains.
    pub(crate) fn take_from(
        &self,
        bytes: u64,
        align_bytes: u64,
        origin: u64,
    ) -> Result<Allocation> {
        assert!(bytes > 0, "a span holds something");
        assert!(align_bytes.is_power_of_two(), "an alignment is a power of two");
        let lines = bytes.div_ceil(LINE);
        let want = Want { lines, align: align_bytes.div_ceil(LINE), origin };
        if let Some(taken) = self.state.lock().map_err(poisoned)?.take(&want) {
            return Ok(before_stores::<M, _>(taken));
        }
        let _growing = self.growing.lock().map_err(poisoned)?;
        // Ends: each further round means that other threads took what the last one had added.
        loop {
            let mut state = self.state.lock().map_err(poisoned)?;
            if let Some(taken) = state.take(&want) {
                return Ok(before_stores::<M, _>(taken));
            }
            let end_bytes = state.end_bytes(&want).ok_or(Error::Full { needed: bytes })?;
            drop(state);
            self.grow(end_bytes, bytes)?;
        }
    }

    /// Takes back a span that was handed out or claimed, or whole lines of one.
    ///
    /// The caller makes sure that no committed word leads to it, durably, and that no reader is
    /// left in it (see [`Epochs`](crate::Epochs)). Should a panic have poisoned the lock, the span
    /// stays in use until the next open, which finds it free.
    ///
    /// # Panics
    /// If the span is not in use: given twice, never taken, not whole lines.
    pub fn give(&self, span: Span) {
        assert!(whole_lines(span), "whole lines are given: {span:?}");
        self.region.media().freed(span);
        let Ok(mut state) = self.state.lock() else { return };
        let (start, end) = (span.start.line(), span.end_byte() / LINE);
        let sound = start >= self.first
            && start < end
            && end <= state.end
            && state.free.insert(start, end - start);
        // The lock goes first: a bug of one caller must not poison the space for all.
        drop(state);
        assert!(sound, "a span is given once, after it was taken: {span:?}");
    }

    /// Makes sure that the next `bytes` bytes can be taken in one piece without growing the
    /// medium, and touches their pages. Meant for background work.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub fn reserve_ahead(&self, bytes: u64) -> Result<()> {
        let lines = bytes.div_ceil(LINE).max(1);
        let want = Want { lines, align: 1, origin: 0 };
        let _growing = self.growing.lock().map_err(poisoned)?;
        loop {
            let mut state = self.state.lock().map_err(poisoned)?;
            if let Some(start) = state.free.find(want.lines, 1, 0) {
                let (from, to) = (start.max(state.touched), start + want.lines);
                state.touched = state.touched.max(to);
                drop(state);
                if from < to {
                    self.region.media().touch(lines_span(from, to - from));
                }
                return Ok(());
            }
            let end_bytes = state.end_bytes(&want).ok_or(Error::Full { needed: bytes })?;
            drop(state);
            self.grow(end_bytes, bytes)?;
        }
    }

    /// Returns how full the space is.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside the space.
    pub fn usage(&self) -> Result<Usage> {
        let state = self.state.lock().map_err(poisoned)?;
        let free = state.free.free();
        Ok(Usage {
            used_bytes: (state.end - self.first - free) * LINE,
            free_bytes: free * LINE,
            growth_steps: state.growth_steps,
        })
    }

    /// Grows the medium to `end_bytes` at least, further if the device has room. `growing` is held.
    fn grow(&self, end_bytes: u64, asked_bytes: u64) -> Result<()> {
        let media = self.region.media();
        let base = media.bytes();
        let need = end_bytes - base;
        let mut step = need.max((base / STEP_DIVISOR).min(LARGEST_STEP_BYTES));
        // At most 29 rounds: the largest step is halved down to the need, which is a byte at least.
        loop {
            match media.grow(base.saturating_add(step)) {
                Ok(()) => break,
                Err(Error::Full { .. }) if step > need => step = need.max(step / 2),
                Err(Error::Full { .. }) => return Err(Error::Full { needed: asked_bytes }),
                Err(other) => return Err(other),
            }
        }
        self.state.lock().map_err(poisoned)?.extend(media.bytes() / LINE);
        Ok(())
    }
}

/// What a caller asked for.
struct Want {
    lines: u64,
    align: u64,
    origin: u64,
}

impl State {
    fn take(&mut self, want: &Want) -> Option<Allocation> {
        let start = self.free.find(want.lines, want.align, want.origin)?;
        assert!(self.free.remove(start, want.lines), "what was found free is free");
        let zero = start >= self.zero;
        // Lines that the alignment skipped count as used once: one number is worth them.
        self.zero = self.zero.max(start + want.lines);
        Some(Allocation { span: lines_span(start, want.lines), zero })
    }

    /// Returns how long the medium must be for `want` to fit, or `None` if no medium is that long.
    fn end_bytes(&self, want: &Want) -> Option<u64> {
        let start = align_up(self.free.tail(self.end), want.align, want.origin)?;
        start.checked_add(want.lines)?.checked_mul(LINE)
    }

    fn extend(&mut self, end: u64) {
        assert!(end > self.end, "a medium that grew is longer");
        assert!(self.free.insert(self.end, end - self.end), "new lines are in use nowhere");
        self.end = end;
        self.growth_steps += 1;
    }
}

fn lines_span(start: u64, lines: u64) -> Span {
    Span::new(Addr::new(start * LINE), lines * (LINE / WORD))
}

fn whole_lines(span: Span) -> bool {
    span.start.byte().is_multiple_of(LINE) && span.bytes().is_multiple_of(LINE)
}

/// Orders the stores of the calling thread to reused space behind the unlinking of its last owner.
///
/// A reader that holds no pin may still load there. If it loads one of these stores, fences
/// (acquire) and looks at the link again, it finds the link changed. The lock of the map orders the
/// two writers, and no reader: without a release fence between them and the stores, the C11 model
/// lets the reader see the new words and the old link.
#[inline(always)]
pub(crate) fn before_stores<M: Media, T>(taken: T) -> T {
    M::Sync::fence(Ordering::Release);
    taken
}

/// Turns the poison of a lock into the error of a handle that can promise nothing any more.
pub(crate) fn poisoned(_: LockPoisoned) -> Error {
    Error::Poisoned
}
