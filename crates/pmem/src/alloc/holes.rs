//! Holes: storage behind free runs goes back to the device, and comes back before the next use.
//!
//! A run is out of the free ones while its storage is given back: nobody takes it and stores to it
//! meanwhile. A hole is reserved when it is taken, so that no store meets a full disk.

use super::map::FreeMap;
use super::{Allocation, Space, State, Want, before_stores, lines_span, poisoned};
use crate::{Error, LINE, Lock, Media, Result};

/// The shortest piece of a hole that is tried by itself where there is no storage for all of it.
///
/// Unit: lines. Source: ours; 256 KiB, so that a full disk costs a few thousand calls for a file of
/// 1 GiB, once.
const LEAST_PIECE: u64 = (256 << 10) / LINE;

impl<M: Media> Space<M> {
    /// Gives the storage behind a long free run back to the device, if there is one of
    /// `least_bytes` bytes with a whole page of the device, and `most_bytes` of it at most, or one
    /// page; returns how many bytes that were. The space has as much room as before; a take that
    /// finds no storage fails with [`Error::Full`].
    ///
    /// Meant for background work, and for what nobody is about to write: a hole that is taken again
    /// costs a call of the system and the faults of its pages.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside the space.
    ///
    /// ```
    /// use everhash_pmem::{Addr, Image, Region, Space};
    ///
    /// let region = Region::new(Image::<everhash_pmem::Std>::new(1 << 20, 1 << 20));
    /// let space = Space::fresh(region, Addr::new(0));
    /// assert_eq!(space.release(1 << 16, 1 << 18)?, 1 << 18);
    /// assert_eq!(space.usage()?.hole_bytes, 1 << 18);
    /// space.take(1 << 20, 64)?;
    /// assert_eq!(space.usage()?.hole_bytes, 0);
    /// # Ok::<(), everhash_pmem::Error>(())
    /// ```
    pub fn release(&self, least_bytes: u64, most_bytes: u64) -> Result<u64> {
        // A take that finds nothing while a run is out waits for it, and does not grow the medium.
        let _growing = self.growing.lock().map_err(poisoned)?;
        let mut state = self.state.lock().map_err(poisoned)?;
        let page = (self.region.media().guarantees().access_unit_bytes / LINE).max(1);
        let found = state.solid_pages(least_bytes.div_ceil(LINE), page);
        let Some((start, lines)) = found else { return Ok(0) };
        let lines = lines.min((most_bytes / LINE / page).max(1) * page);
        assert!(state.free.remove(start, lines), "what was found free is free");
        drop(state);
        self.region.media().release(lines_span(start, lines));
        self.state.lock().map_err(poisoned)?.put_back(start, lines, &[(start, lines)]);
        Ok(lines * LINE)
    }

    /// Hands a span out that was taken, with storage behind all of it.
    #[inline(always)]
    pub(super) fn hand_out(
        &self,
        want: &Want,
        (taken, holes): (Allocation, Vec<(u64, u64)>),
    ) -> Result<Allocation> {
        let taken = match holes.is_empty() {
            true => taken,
            false => self.fill(want, taken, &holes)?,
        };
        Ok(before_stores::<M, _>(taken))
    }

    #[cold]
    fn fill(&self, want: &Want, taken: Allocation, holes: &[(u64, u64)]) -> Result<Allocation> {
        let Err(error) = self.region.media().reserve(taken.span) else { return Ok(taken) };
        let mut state = self.state.lock().map_err(poisoned)?;
        state.put_back(taken.span.start.line(), taken.span.bytes() / LINE, holes);
        match error {
            // A run with storage behind it fits, too, if not as well.
            Error::Full { .. } => match state.take_solid(want) {
                Some(taken) => Ok(taken),
                None if state.knows_holes => Err(error),
                None => {
                    self.fill_holes(&mut state)?;
                    state.take_solid(want).ok_or(error)
                }
            },
            error => Err(error),
        }
    }

    /// Reserves storage behind free runs until they are `enough`, or until there is no more of it;
    /// returns whether they are. `least` lines are needed for that, perhaps more.
    pub(super) fn fill_until(
        &self,
        state: &mut State,
        least: u64,
        enough: impl Fn(&State) -> bool,
    ) -> Result<bool> {
        let mut some = least.max(LEAST_PIECE);
        // Ends: each round reserves twice as much as the one before, or is the last one.
        while !enough(state) {
            if self.fill_some(state, some)? < some {
                return Ok(enough(state));
            }
            some = some.saturating_mul(2);
        }
        Ok(true)
    }

    /// Reserves storage behind all free runs, as far as there is any: what stays a hole is one, but
    /// for a piece beside it.
    fn fill_holes(&self, state: &mut State) -> Result<()> {
        self.fill_some(state, u64::MAX).map(drop)
    }

    /// As that, for `most` lines at most; returns how many those were. Fewer mean that there is no
    /// more.
    fn fill_some(&self, state: &mut State, most: u64) -> Result<u64> {
        let mut left = most;
        let mut pieces: Vec<_> = state.holes.runs(1).collect();
        // From the longest on: there is what is needed in one run.
        pieces.reverse();
        // Ends: each round cuts a piece, or is the last one for it. With the lock nobody takes it
        // meanwhile.
        while let Some((start, mut lines)) = pieces.pop() {
            if left == 0 {
                return Ok(most);
            }
            if lines > left {
                pieces.push((start + left, lines - left));
                lines = left;
            }
            match self.region.media().reserve(lines_span(start, lines)) {
                Ok(()) => {
                    state.holes.cut(start, lines);
                    left -= lines;
                }
                Err(Error::Full { .. }) if lines >= 2 * LEAST_PIECE => {
                    let half = lines / 2;
                    pieces.extend([(start + half, lines - half), (start, half)]);
                }
                // The others are holes as well, and the disk is full.
                Err(Error::Full { .. }) if state.knows_holes => break,
                Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        state.knows_holes = true;
        Ok(most - left)
    }
}

impl State {
    /// Frees lines that were taken, with these holes among them.
    fn put_back(&mut self, start: u64, lines: u64, holes: &[(u64, u64)]) {
        let mut sound = self.free.insert(start, lines);
        holes.iter().for_each(|(start, lines)| sound &= self.holes.insert(*start, *lines));
        assert!(sound, "what was taken comes back");
    }

    /// Takes lines that are no hole, wherever they fit.
    fn take_solid(&mut self, want: &Want) -> Option<Allocation> {
        let fitting = |(start, lines): (u64, u64)| {
            let at = super::align_up(start, want.align, want.origin)?;
            (at + want.lines <= start + lines).then_some(at)
        };
        let at = self.solid_parts(want.lines).find_map(fitting)?;
        assert!(self.free.remove(at, want.lines), "what was found free is free");
        self.zero = self.zero.max(at + want.lines);
        Some(Allocation { span: lines_span(at, want.lines), zero: false })
    }

    /// Returns whether the free runs without holes, and without `run` lines of the longest of them,
    /// together hold `wanted`: see [`FreeMap::fits`].
    pub(super) fn fits(&self, run: u64, wanted: u64, holds: impl Fn(u64) -> u64) -> bool {
        if self.holes.free() == 0 {
            return self.free.fits(run, wanted, holds);
        }
        let mut solid = FreeMap::default();
        let is_sound = self.solid_parts(1).all(|(start, lines)| solid.insert(start, lines));
        is_sound && solid.fits(run, wanted, holds)
    }

    /// Returns the whole pages of a part of a free run that is no hole and has `least` lines at
    /// least, in lines. A device gives back whole pages only: what is left of others is no hole.
    fn solid_pages(&self, least: u64, page: u64) -> Option<(u64, u64)> {
        self.solid_parts(least).find_map(|(start, lines)| {
            let from = start.next_multiple_of(page);
            let end = start + lines;
            let whole = (end - end % page).checked_sub(from)?;
            (whole > 0).then_some((from, whole))
        })
    }

    /// Returns the parts of free runs between holes, of `least` lines and more.
    fn solid_parts(&self, least: u64) -> impl Iterator<Item = (u64, u64)> {
        let parts = self.free.runs(least).flat_map(move |(start, lines)| {
            let (mut from, end) = (start, start + lines);
            core::iter::from_fn(move || {
                // Ends: each part begins behind the one before and the hole that ended it.
                if from > end {
                    return None;
                }
                let hole = self.holes.first_within(from, end - from);
                let (until, next) = hole.map_or((end, end + 1), |(at, long)| (at, at + long));
                let part = (from, until - from);
                from = next;
                Some(part)
            })
        });
        parts.filter(move |(_, lines)| *lines >= least.max(1))
    }
}
