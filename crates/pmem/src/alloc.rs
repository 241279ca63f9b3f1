//! Space: which lines of the medium are in use. Volatile, rebuilt at every open.
//!
//! Nothing about allocation is persistent. A span is in use if committed words lead to it; all else
//! is free. At open the engine claims every span that it reaches ([`Space::claim`]), and from then
//! on it takes and gives. So a crash can neither leak a span nor leave one allocated twice, and
//! there is no allocation log to recover (`docs/decisions/0004-volatile-space-maps.md`).

mod holes;
mod map;
#[cfg(test)]
mod tests;

use map::{FreeMap, align_up};

use crate::seq::before_reuse;
use crate::{Addr, Error, LINE, Lock, LockPoisoned, Media, Primitives, Region, Result, Span, WORD};

/// The largest step by which the medium grows, unless more is needed at once.
///
/// Unit: bytes. Source: ours; bounds both the waste in a young file and the time of one step.
const LARGEST_STEP_BYTES: u64 = 256 << 20;

/// The part of the present size by which the medium grows unless the owner says otherwise: a
/// quarter.
///
/// Source: ours; growing to n bytes takes O(log n) steps, and at most a fifth of the file is
/// unused.
const STEP_DIVISOR: u64 = 4;

/// A lock of the family that goes with medium `M`.
pub(crate) type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// A span that [`Space::take`] allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The span: whole lines.
    pub span: Span,
    /// Whether every word is durably zero: no part of the span was allocated since the medium grew
    /// there.
    pub zero: bool,
}

/// How full a space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes in use: claimed or taken.
    pub used_bytes: u64,
    /// Bytes that are free without growing the medium.
    pub free_bytes: u64,
    /// Of them, bytes whose storage was given back to the device.
    pub hole_bytes: u64,
    /// How often the medium was grown since the space was made.
    pub growth_steps: u64,
}

/// The free lines of a medium, from an address on.
///
/// Best fit with coalescing. The engines' spans have few lengths, so the hole of one span fits the
/// next one exactly, and the long run at the end is split last. The medium grows when nothing fits.
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
    /// The right to grow the medium. Acquired before `state`, which stays unlocked during the
    /// growth: other threads give, and take what fits, while the device works.
    growing: LockOf<M, ()>,
}

struct State {
    free: FreeMap,
    /// Those of the free runs that have no storage behind them.
    holes: FreeMap,
    /// Whether that is known of them: else there may be storage behind most.
    knows_holes: bool,
    /// The line behind the last one of the medium.
    end: u64,
    /// No line from this one on was allocated since the medium grew there.
    zero: u64,
    /// The pages up to this line were touched ahead of use.
    touched: u64,
    growth_steps: u64,
}

impl<M: Media> Space<M> {
    /// Makes the space of a medium with any content. All of it from `from` on is free until the
    /// engine claims what it reaches, and none of it counts as zero. What has no storage is a hole;
    /// if the medium cannot tell, all of it is.
    pub fn new(region: Region<M>, from: Addr) -> Self {
        // A medium may end within a line: when it grows, the beginning of that line is old.
        let zero = region.media().bytes().div_ceil(LINE);
        Self::with_zero_from(region, from, zero)
    }

    /// Makes the space of a new medium: all of it from `from` on is free and zero.
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
        let found = region.media().holes();
        let knows_holes = found.is_some();
        let mut holes = FreeMap::default();
        for hole in found.unwrap_or_else(|| vec![lines_span(first, end - first)]) {
            let (from, to) = (hole.start.line().max(first), (hole.end_byte() / LINE).min(end));
            if from < to {
                holes.insert(from, to - from);
            }
        }
        let zero = zero.max(first);
        let state = State { free, holes, knows_holes, end, zero, touched: first, growth_steps: 0 };
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

    /// Marks `span` as in use, because committed words lead to it: part of recovery, before any
    /// take.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at the span's start, if the span has a part of a line, lies outside the
    /// space, or shares a line with a claimed span; [`Error::Full`] if the medium is not whole and
    /// has no storage for the span. Nothing is claimed then.
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
        if state.holes.overlaps(start, end - start) {
            self.region.media().reserve(span)?;
        }
        if !state.free.remove(start, end - start) {
            return broken("no line is in use twice");
        }
        state.holes.cut(start, end - start);
        state.zero = state.zero.max(end);
        Ok(())
    }

    /// Allocates `bytes` bytes, rounded up to whole lines, at a multiple of `align_bytes`.
    ///
    /// # Errors
    /// [`Error::Full`] if nothing fits and the medium cannot grow; nothing changes then.
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
        if self.region.media().refuses() {
            return Err(Error::Full { needed: bytes });
        }
        let lines = bytes.div_ceil(LINE);
        let want = Want { lines, align: align_bytes.div_ceil(LINE), origin };
        let taken = self.state.lock().map_err(poisoned)?.take(&want);
        match taken {
            Some(taken) => self.hand_out(&want, taken),
            None => self.take_grown(&want, bytes, self.usual_step()),
        }
    }

    /// Allocates the first of these lengths, in bytes, that fits into what is free, rounded up to
    /// whole lines, at a multiple of `align_bytes`. If none does, the medium grows for the first of
    /// them, by at least `step_bytes` if the device has room.
    ///
    /// For spans of which shorter ones do, too: those are better than a longer file.
    ///
    /// # Errors
    /// As [`Space::take`].
    ///
    /// # Panics
    /// If there is no length, one is zero, or `align_bytes` is not a power of two.
    ///
    /// ```
    /// use everhash_pmem::{Addr, Image, Region, Space};
    ///
    /// let region = Region::new(Image::<everhash_pmem::Std>::new(4096, 16384));
    /// let space = Space::fresh(region, Addr::new(0));
    /// assert_eq!(space.take_first(&[3072, 1536], 64, 512)?.span.bytes(), 3072);
    /// // A kilobyte is left: the medium is as long as it was.
    /// assert_eq!(space.take_first(&[2048, 1024], 64, 512)?.span.bytes(), 1024);
    /// assert_eq!(space.take_first(&[2048, 1024], 64, 512)?.span.bytes(), 2048);
    /// assert_eq!(space.usage()?.growth_steps, 1);
    /// # Ok::<(), everhash_pmem::Error>(())
    /// ```
    pub fn take_first(
        &self,
        lengths: &[u64],
        align_bytes: u64,
        step_bytes: u64,
    ) -> Result<Allocation> {
        assert!(lengths.iter().all(|bytes| *bytes > 0), "a span holds something");
        assert!(align_bytes.is_power_of_two(), "an alignment is a power of two");
        let first = *lengths.first().expect("there is a length to take");
        if self.region.media().refuses() {
            return Err(Error::Full { needed: first });
        }
        let align = align_bytes.div_ceil(LINE);
        let want = |bytes: u64| Want { lines: bytes.div_ceil(LINE), align, origin: 0 };
        let mut state = self.state.lock().map_err(poisoned)?;
        for want in lengths.iter().map(|bytes| want(*bytes)) {
            if let Some(taken) = state.take(&want) {
                drop(state);
                return self.hand_out(&want, taken);
            }
        }
        drop(state);
        self.take_grown(&want(first), first, step_bytes)
    }

    /// Takes lines; if there are none the medium grows, by at least `step_bytes` if it can.
    fn take_grown(&self, want: &Want, bytes: u64, step_bytes: u64) -> Result<Allocation> {
        let _growing = self.growing.lock().map_err(poisoned)?;
        // Ends: a further round means that other threads took what the last one had added.
        loop {
            let mut state = self.state.lock().map_err(poisoned)?;
            if let Some(taken) = state.take(want) {
                drop(state);
                return self.hand_out(want, taken);
            }
            let end_bytes = state.end_bytes(want).ok_or(Error::Full { needed: bytes })?;
            drop(state);
            self.grow(end_bytes, bytes, step_bytes)?;
        }
    }

    /// Frees a span in use, or whole lines of one.
    ///
    /// The caller has unlinked the span, the unlinking is durable, and a reader that is still in it
    /// will notice (see [`Sequence`](crate::Sequence)). If the lock is poisoned, the span stays in
    /// use until the next open, which finds it free.
    ///
    /// # Panics
    /// If the span is not in use or has a part of a line.
    pub fn give(&self, span: Span) {
        assert!(whole_lines(span), "whole lines are given: {span:?}");
        self.region.media().freed(span);
        let Ok(mut state) = self.state.lock() else { return };
        let (start, end) = (span.start.line(), span.end_byte() / LINE);
        let sound = start >= self.first
            && start < end
            && end <= state.end
            && state.free.insert(start, end - start);
        // Unlock first: a bug of one caller must not poison the space for all.
        drop(state);
        assert!(sound, "a span is given once, after it was taken: {span:?}");
    }

    /// Ensures that a take of `bytes` bytes fits without growing the medium, and touches their
    /// pages. Meant for background work.
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
                // Touched, a hole would take storage, and there may be none.
                let is_whole = !state.holes.overlaps(start, want.lines);
                drop(state);
                if from < to && is_whole {
                    self.region.media().touch(lines_span(from, to - from));
                }
                return Ok(());
            }
            let end_bytes = state.end_bytes(&want).ok_or(Error::Full { needed: bytes })?;
            drop(state);
            self.grow(end_bytes, bytes, self.usual_step())?;
        }
    }

    /// Returns whether the free runs, without `run_bytes` bytes of the longest, together hold
    /// `wanted` bytes, once the medium has grown for them if it can. Of a run of so many bytes
    /// `holds` says how many it holds: for spans of one length, as many as fit there.
    ///
    /// Nothing is taken: others may take it right afterwards.
    ///
    /// # Errors
    /// [`Error::Poisoned`] and [`Error::System`] as the medium reports them.
    pub fn has_room(
        &self,
        run_bytes: u64,
        wanted: u64,
        holds: impl Fn(u64) -> u64,
    ) -> Result<bool> {
        let run = run_bytes.div_ceil(LINE);
        let least = run.saturating_add(wanted.div_ceil(LINE)).max(1);
        let fits = |state: &State| state.fits(run, wanted, |lines| holds(lines * LINE));
        if self.fill_until(&mut *self.state.lock().map_err(poisoned)?, least, fits)? {
            return Ok(true);
        }
        let _growing = self.growing.lock().map_err(poisoned)?;
        // A run for all of it at the end, also if it holds half of its length only; or, where
        // there is no room for that, what is missing at least.
        for part in [Some(16), Some(1), None] {
            let state = self.state.lock().map_err(poisoned)?;
            if fits(&state) {
                return Ok(true);
            }
            let end = match part {
                Some(part) => {
                    let all = least.saturating_add(wanted.div_ceil(LINE) / part);
                    state.free.tail(state.end).saturating_add(all)
                }
                None => state.end.saturating_add(least.saturating_sub(state.free.free())),
            };
            let end_bytes = end.max(state.end + 1).saturating_mul(LINE);
            drop(state);
            match self.grow(end_bytes, least.saturating_mul(LINE), self.usual_step()) {
                Err(Error::Full { .. }) => {}
                outcome => outcome?,
            }
        }
        Ok(fits(&*self.state.lock().map_err(poisoned)?))
    }

    /// Returns the length of the longest free run, without growing the medium. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside the space.
    pub fn longest_free_bytes(&self) -> Result<u64> {
        Ok(self.state.lock().map_err(poisoned)?.free.longest() * LINE)
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
            hole_bytes: state.holes.free() * LINE,
            growth_steps: state.growth_steps,
        })
    }

    /// Returns by how much the medium grows unless the owner says otherwise. Unit: bytes.
    fn usual_step(&self) -> u64 {
        self.region.media().bytes() / STEP_DIVISOR
    }

    /// Grows the medium to at least `end_bytes`, and by at least `step_bytes` if the device has
    /// room. The caller holds `growing`.
    fn grow(&self, end_bytes: u64, asked_bytes: u64, step_bytes: u64) -> Result<()> {
        let media = self.region.media();
        let base = media.bytes();
        let need = end_bytes - base;
        let mut step = need.max(step_bytes.min(LARGEST_STEP_BYTES));
        // At most 29 rounds: each halves the step, down to the need, which is at least a byte.
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

/// A request for lines.
struct Want {
    lines: u64,
    align: u64,
    origin: u64,
}

impl State {
    /// Takes lines, and says which of them are holes.
    fn take(&mut self, want: &Want) -> Option<(Allocation, Vec<(u64, u64)>)> {
        let start = self.free.find(want.lines, want.align, want.origin)?;
        assert!(self.free.remove(start, want.lines), "what was found free is free");
        let zero = start >= self.zero;
        // Lines that the alignment skipped no longer count as zero: one number is worth them.
        self.zero = self.zero.max(start + want.lines);
        let holes = self.holes.cut(start, want.lines);
        Some((Allocation { span: lines_span(start, want.lines), zero }, holes))
    }

    /// Returns the length at which `want` fits, or `None` if no medium is that long. Unit: bytes.
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

/// Orders the stores of the calling thread to what it has taken behind the unlinking of that by its
/// last owner: see [`before_reuse`].
#[inline(always)]
pub(crate) fn before_stores<M: Media, T>(taken: T) -> T {
    before_reuse::<M::Sync>();
    taken
}

/// Turns a poisoned lock into [`Error::Poisoned`].
pub(crate) fn poisoned(_: LockPoisoned) -> Error {
    Error::Poisoned
}
