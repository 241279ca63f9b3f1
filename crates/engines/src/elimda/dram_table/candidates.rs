//! Which units of a bucket may hold a key: those of which a slot has its fingerprint.

use everhash_pmem::{AtOnce, Primitives, equal_bytes};

use super::bucket::{Bucket, LIVES, PLANE};

/// The units of a bucket of which a slot has a fingerprint, live or not, the oldest first, each
/// with these slots as a mask.
pub struct Candidates<'b, P: Primitives> {
    bucket: Bucket<'b, P>,
    units: usize,
    fingerprint: u16,
    /// How far the search has come.
    pub progress: Progress,
    /// Whether the low bytes of a line are asked for together with its high ones.
    both: bool,
    /// Whether the processor compares a line at once.
    at_once: Option<AtOnce>,
}

/// How far a search for a fingerprint has come.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// The next line of high bytes.
    line: usize,
    /// Slots of the line before whose high byte is equal, and that were not looked at.
    mask: u64,
}

impl<'b, P: Primitives> Candidates<'b, P> {
    /// Returns those of a bucket, none of which was looked at.
    #[inline(always)]
    pub fn new(bucket: Bucket<'b, P>, fingerprint: u16, at_once: Option<AtOnce>) -> Self {
        let (units, progress) = (bucket.units(), Progress::default());
        Candidates { bucket, units, fingerprint, progress, both: false, at_once }
    }

    /// Asks for the low bytes of a line together with its high ones: a key that is there is found
    /// after one wait for memory less, and one that is absent costs more lines.
    #[inline(always)]
    pub fn with_low_bytes(self) -> Self {
        Candidates { both: true, ..self }
    }

    /// Goes on to the next line that has the high byte; returns whether there is one.
    #[inline(always)]
    fn seek(&mut self) -> bool {
        let high = self.fingerprint.to_le_bytes()[1];
        while self.progress.mask == 0 {
            let line = self.progress.line;
            if line * LIVES >= self.units {
                return false;
            }
            if self.both {
                self.bucket.prefetch_low(line);
            }
            self.progress.mask = self.bucket.with_high(line, self.units, high, self.at_once);
            self.progress.line += 1;
        }
        true
    }

    /// Returns the unit that comes next, and where its slots begin in the mask.
    #[inline(always)]
    fn unit(&self) -> (usize, usize) {
        let place = self.progress.mask.trailing_zeros() as usize / PLANE;
        ((self.progress.line - 1) * LIVES + place, place * PLANE)
    }

    /// Asks for the line with the low bytes of the unit that comes next, if there is one.
    #[inline(always)]
    pub fn prefetch(&mut self) {
        if self.seek() {
            self.bucket.prefetch_low(self.progress.line - 1);
        }
    }
}

impl<P: Primitives> Iterator for Candidates<'_, P> {
    type Item = (usize, u32);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, u32)> {
        let [low, _] = self.fingerprint.to_le_bytes();
        while self.seek() {
            // One unit in 17 has a high byte that is equal by chance.
            let (entry, first) = self.unit();
            let slots = (self.progress.mask >> first) as u32 & 0xffff;
            self.progress.mask &= !(0xffff << first);
            let slots = slots & equal_bytes(&self.bucket.low_bytes(entry), low);
            if slots != 0 {
                return Some((entry, slots));
            }
        }
        None
    }
}
