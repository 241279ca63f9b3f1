//! Holes: storage behind free runs goes back to the device, and comes back before the next use.
//!
//! A run is out of the free ones while its storage is given back: nobody takes it and stores to it
//! meanwhile. A hole is reserved when it is taken, so that no store meets a full disk. It is taken
//! only where no run with storage fits: a full disk then refuses no more than what really lacks
//! room, and the longest run with storage is split last.

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
    /// `least_bytes` bytes, and `most_bytes` of it at most; returns how many bytes that were. The
    /// space has as much room as before; a take that finds no storage fails with [`Error::Full`].
    ///
    /// Meant for background work, when nobody writes: a hole that is taken again costs a call of
    /// the system and the faults of its pages.
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
        let found = state.solid.runs(least_bytes.div_ceil(LINE).max(1)).next();
        let Some((start, lines)) = found else { return Ok(0) };
        let lines = lines.min((most_bytes / LINE).max(1));
        assert!(state.solid.remove(start, lines), "what was found free is free");
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
        let Error::Full { .. } = error else { return Err(error) };
        if !state.knows_holes {
            self.fill_holes(&mut state)?;
        }
        // What had storage before did not fit.
        state.take_solid(want).ok_or(error)
    }

    /// Reserves storage behind all free runs, as far as there is any: what stays a hole is one, but
    /// for a piece beside it.
    pub(super) fn fill_holes(&self, state: &mut State) -> Result<()> {
        let mut pieces: Vec<_> = state.holes.runs(1).collect();
        // A full disk is asked once: a piece of the shortest hole tells whether it still is.
        if state.knows_holes
            && let Some((start, lines)) = pieces.pop()
        {
            let piece = lines.min(LEAST_PIECE);
            pieces.extend((piece < lines).then_some((start + piece, lines - piece)));
            pieces.push((start, piece));
        }
        // Ends: each round halves a piece, or is the last one for it. With the lock nobody takes it
        // meanwhile.
        while let Some((start, lines)) = pieces.pop() {
            match self.region.media().reserve(lines_span(start, lines)) {
                Ok(()) => state.is_filled(start, lines),
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
        Ok(())
    }
}

impl State {
    /// Frees lines that were taken, with these holes among them.
    fn put_back(&mut self, start: u64, lines: u64, holes: &[(u64, u64)]) {
        let mut sound = self.solid.insert(start, lines);
        for &(start, lines) in holes {
            sound &= self.solid.remove(start, lines) && self.holes.insert(start, lines);
        }
        assert!(sound, "what was taken comes back");
    }

    /// Notes that there is storage behind a hole.
    fn is_filled(&mut self, start: u64, lines: u64) {
        let sound = self.holes.remove(start, lines) && self.solid.insert(start, lines);
        assert!(sound, "a hole that was filled is one");
    }

    /// Takes lines of which some are holes, and says which.
    pub(super) fn take_over_holes(&mut self, want: &Want) -> Option<(Allocation, Vec<(u64, u64)>)> {
        let start = self.find_over_holes(want)?;
        self.solid.cut(start, want.lines);
        let holes = self.holes.cut(start, want.lines);
        Some((self.taken(start, want.lines), holes))
    }

    /// Returns where a request fits that no run with storage can hold.
    pub(super) fn find_over_holes(&self, want: &Want) -> Option<u64> {
        if self.holes.free() == 0 {
            return None;
        }
        let find = |map: &FreeMap| map.find(want.lines, want.align, want.origin);
        // Looking at all runs takes time in proportion to them: it is done before the medium grows.
        find(&self.holes).or_else(|| find(&self.all()))
    }

    /// Returns the free runs, whatever is behind them.
    fn all(&self) -> FreeMap {
        let mut all = FreeMap::default();
        let sound =
            self.solid.runs(1).chain(self.holes.runs(1)).all(|run| all.insert(run.0, run.1));
        assert!(sound, "no line is in both");
        all
    }

    /// Takes lines that are all free, with storage or without; `false`, and nothing done, if one of
    /// them is not.
    pub(super) fn remove(&mut self, start: u64, lines: u64) -> bool {
        if !self.holes.overlaps(start, lines) {
            return self.solid.remove(start, lines);
        }
        let (solid, holes) = (self.solid.cut(start, lines), self.holes.cut(start, lines));
        let count = |runs: &[(u64, u64)]| runs.iter().map(|(_, lines)| lines).sum::<u64>();
        if count(&solid) + count(&holes) == lines {
            return true;
        }
        let sound = solid.iter().all(|(start, lines)| self.solid.insert(*start, *lines))
            && holes.iter().all(|(start, lines)| self.holes.insert(*start, *lines));
        assert!(sound, "what was taken comes back");
        false
    }

    /// Returns where the free run that ends with the medium starts; its end if there is none.
    pub(super) fn tail(&self) -> u64 {
        let mut start = self.end;
        // Ends: each round goes back over a run.
        loop {
            let before = self.holes.tail(self.solid.tail(start));
            if before == start {
                return start;
            }
            start = before;
        }
    }
}
