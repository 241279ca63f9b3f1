//! The free runs of a space: where they are, and which one fits best.

use std::collections::{BTreeMap, BTreeSet};

/// How many runs that alignment may make too short are tried, before a run that is long enough for
/// any alignment is taken.
///
/// Unit: runs. Source: ours; bounds the work of a take, not what it finds.
const NEAR: usize = 16;

/// Disjoint free runs of lines, never two of them adjacent.
///
/// Indexed by start for coalescing and by length for fitting. Both cost O(log runs), and DRAM is
/// proportional to the runs, not to the medium.
#[derive(Debug, Default)]
pub(super) struct FreeMap {
    lines_at: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    free: u64,
}

impl FreeMap {
    /// Returns the number of free lines.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Returns the start of the shortest run that holds `lines` lines from a multiple of `align`
    /// lines, counted from line `origin`; the answer is that aligned place.
    pub(super) fn find(&self, lines: u64, align: u64, origin: u64) -> Option<u64> {
        let sure = lines.checked_add(align - 1)?;
        let place = |&(length, start): &(u64, u64)| {
            let at = align_up(start, align, origin)?;
            (at - start).checked_add(lines).is_some_and(|end| end <= length).then_some(at)
        };
        let near = || self.by_length.range((lines, 0)..(sure, 0));
        near()
            .take(NEAR)
            .find_map(place)
            .or_else(|| self.by_length.range((sure, 0)..).next().and_then(place))
            // Reached only when the space is about to grow: every run that fits must be found
            // first.
            .or_else(|| near().skip(NEAR).find_map(place))
    }

    /// Returns whether the free runs, without `run` lines of the longest, together hold `wanted`,
    /// where one of so many lines holds `holds` of them.
    pub(super) fn fits(&self, run: u64, wanted: u64, holds: impl Fn(u64) -> u64) -> bool {
        let mut runs = self.by_length.iter().rev().map(|&(length, _)| length);
        let Some(rest) = runs.next().unwrap_or(0).checked_sub(run) else { return false };
        let mut left = wanted.saturating_sub(holds(rest));
        // Longest first: behind a run that holds nothing, none does.
        for held in runs.map(holds).take_while(|held| *held > 0) {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(held);
        }
        left == 0
    }

    /// Returns the length of the longest run. Unit: lines.
    pub(super) fn longest(&self) -> u64 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    /// Returns where the run that ends just before line `end` starts; `end` if there is none.
    pub(super) fn tail(&self, end: u64) -> u64 {
        match self.lines_at.range(..end).next_back() {
            Some((&start, &lines)) if start + lines == end => start,
            _ => end,
        }
    }

    /// Frees `lines` lines from `start` on; `false`, and nothing done, if any of them is free.
    pub(super) fn insert(&mut self, start: u64, lines: u64) -> bool {
        let end = start + lines;
        let before = self.lines_at.range(..=start).next_back().map(|(&at, &lines)| (at, lines));
        let after = self.lines_at.range(start..).next().map(|(&at, &lines)| (at, lines));
        if before.is_some_and(|(at, lines)| at + lines > start)
            || after.is_some_and(|(at, _)| at < end)
        {
            return false;
        }
        let mut whole = (start, lines);
        if let Some((at, lines)) = before.filter(|(at, lines)| at + lines == start) {
            self.drop_run(at, lines);
            whole = (at, whole.1 + lines);
        }
        if let Some((at, lines)) = after.filter(|(at, _)| *at == end) {
            self.drop_run(at, lines);
            whole.1 += lines;
        }
        self.add_run(whole.0, whole.1);
        true
    }

    /// Takes `lines` lines from `start` on; `false`, and nothing done, if not all of them are free.
    pub(super) fn remove(&mut self, start: u64, lines: u64) -> bool {
        let Some((&at, &length)) = self.lines_at.range(..=start).next_back() else { return false };
        // Runs are coalesced: contiguous free lines lie in one run.
        if start - at > length || length - (start - at) < lines {
            return false;
        }
        self.drop_run(at, length);
        if start > at {
            self.add_run(at, start - at);
        }
        if at + length > start + lines {
            self.add_run(start + lines, at + length - start - lines);
        }
        true
    }

    /// Returns the runs of `least` lines and more, the longest first, as start and length.
    pub(super) fn runs(&self, least: u64) -> impl Iterator<Item = (u64, u64)> {
        let runs = self.by_length.range((least, 0)..).rev();
        runs.map(|&(length, start)| (start, length))
    }

    /// Returns the first run that begins within `lines` lines from `start` on.
    pub(super) fn first_within(&self, start: u64, lines: u64) -> Option<(u64, u64)> {
        self.lines_at.range(start..start + lines).next().map(|(&at, &length)| (at, length))
    }

    /// Returns whether any of `lines` lines from `start` on is free.
    pub(super) fn overlaps(&self, start: u64, lines: u64) -> bool {
        let last = self.lines_at.range(..start + lines).next_back();
        last.is_some_and(|(&at, &length)| at + length > start)
    }

    /// Takes those of `lines` lines from `start` on that are free; returns them as runs.
    pub(super) fn cut(&mut self, start: u64, lines: u64) -> Vec<(u64, u64)> {
        let (mut taken, end) = (Vec::new(), start + lines);
        // Ends: each round takes a run, or the part of one.
        while let Some((&at, &length)) = self.lines_at.range(..end).next_back() {
            let (from, to) = (at.max(start), (at + length).min(end));
            if from >= to {
                break;
            }
            if self.remove(from, to - from) {
                taken.push((from, to - from));
            }
        }
        taken
    }

    fn add_run(&mut self, start: u64, lines: u64) {
        self.lines_at.insert(start, lines);
        self.by_length.insert((lines, start));
        self.free += lines;
    }

    fn drop_run(&mut self, start: u64, lines: u64) {
        self.lines_at.remove(&start);
        self.by_length.remove(&(lines, start));
        self.free -= lines;
    }
}

/// Returns the first line at or behind `line` that is a multiple of `align` away from `origin`.
///
/// `origin` is at or before `line`; `None` if the answer would exceed 2^64 lines.
pub(super) fn align_up(line: u64, align: u64, origin: u64) -> Option<u64> {
    (line - origin).checked_next_multiple_of(align)?.checked_add(origin)
}
