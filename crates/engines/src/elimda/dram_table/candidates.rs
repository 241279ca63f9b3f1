//! Which slots of the units of a bucket may hold a key: those that have its fingerprint.

use everhash_pmem::{AtOnce, Primitives};

use super::bucket::{LANES, Lines, PRINT_WORDS, TOGETHER, unit_of};

/// Of the lanes of [`TOGETHER`] units those of slots: the last of each unit has its index.
const SLOTS: u64 = 0x7fff_7fff_7fff_7fff;

/// A live slot that has the fingerprint of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which unit of the bucket; the oldest is 0.
    pub entry: usize,
    /// The index of the unit in the segment.
    pub unit: u64,
    /// Which slot of it.
    pub slot: u64,
}

/// The live slots that have a fingerprint, those of the oldest unit first.
pub struct Candidates<'b, P: Primitives> {
    /// The lines that were not looked at.
    rest: core::slice::Iter<'b, Lines<P>>,
    /// Those before them.
    last: Option<&'b Lines<P>>,
    /// The lanes of these that are equal, and that were not returned.
    equal: u64,
    /// How many units lie before the rest.
    before: usize,
    fingerprint: u16,
    at_once: Option<AtOnce>,
}

impl<'b, P: Primitives> Candidates<'b, P> {
    /// Returns those among the fingerprints of all units of a bucket.
    #[inline(always)]
    pub fn new(lines: &'b [Lines<P>], fingerprint: u16, at_once: Option<AtOnce>) -> Self {
        Candidates { rest: lines.iter(), last: None, equal: 0, before: 0, fingerprint, at_once }
    }
}

impl<P: Primitives> Iterator for Candidates<'_, P> {
    type Item = Candidate;

    #[inline(always)]
    fn next(&mut self) -> Option<Candidate> {
        while self.equal == 0 {
            let lines = self.rest.next()?;
            self.last = Some(lines);
            self.equal = P::equal_lanes_of_lines(lines, self.fingerprint, self.at_once) & SLOTS;
            self.before += TOGETHER;
        }
        let lane = self.equal.trailing_zeros() as usize;
        self.equal &= self.equal - 1;
        let (unit, slot) = (lane / LANES % TOGETHER, (lane % LANES) as u64);
        let prints = &self.last?.as_chunks::<PRINT_WORDS>().0[unit];
        Some(Candidate { entry: self.before - TOGETHER + unit, unit: unit_of(prints), slot })
    }
}
