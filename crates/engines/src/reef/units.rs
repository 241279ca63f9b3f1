//! What is known of each unit of the medium: to which segment it belongs, and how much of that is
//! garbage. Readers look there without a lock.

use core::sync::atomic::Ordering;

use everhash_pmem::{Addr, AtomicWord, Primitives, Span};

use super::growing::Growing;

/// The units of a medium.
pub struct Units<P: Primitives> {
    /// Of each: checksum of its segment, 0 for none; number of the segment's first unit; words of
    /// garbage in the segment, in its first unit only; unused.
    records: Growing<P>,
    /// Base-2 logarithm of the length of a unit in bytes.
    shift: u32,
}

impl<P: Primitives> Units<P> {
    /// Makes the units of an empty medium.
    pub fn new(unit_bytes: u64) -> Self {
        Units { records: Growing::new(), shift: unit_bytes.ilog2() }
    }

    /// Says that the units of `span` are a segment with this checksum, without garbage; 0 for no
    /// segment.
    pub fn set(&self, span: Span, seal: u64, unit_bytes: u64) {
        let first = span.start.byte() >> self.shift;
        let end = first + span.bytes().div_ceil(unit_bytes);
        self.records.reserve(end);
        for unit in first..end {
            let words = self.records.get(unit).expect("room was reserved");
            words[1].store(first, Ordering::Relaxed);
            words[2].store(0, Ordering::Relaxed);
            words[0].store(seal, Ordering::Release);
        }
    }

    /// Returns the checksum of the segment that a place belongs to, 0 for none.
    #[inline(always)]
    pub fn seal(&self, place: Addr) -> u64 {
        let unit = self.records.get(place.byte() >> self.shift);
        unit.map_or(0, |words| words[0].load(Ordering::Acquire))
    }

    /// Notes that so many words at a place are garbage.
    #[inline(always)]
    pub fn add_garbage(&self, place: Addr, words: u64) {
        let Some(unit) = self.records.get(place.byte() >> self.shift) else { return };
        if let Some(first) = self.records.get(unit[1].load(Ordering::Relaxed)) {
            first[2].fetch_add(words, Ordering::Relaxed);
        }
    }

    /// Returns how much of the segment that begins at `start` is garbage. Unit: words.
    pub fn garbage(&self, start: Addr) -> u64 {
        let unit = self.records.get(start.byte() >> self.shift);
        unit.map_or(0, |words| words[2].load(Ordering::Relaxed))
    }

    /// Returns how much memory they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.records.dram_bytes()
    }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::Std;

    use super::*;

    #[test]
    fn garbage_is_that_of_a_whole_segment_and_of_no_earlier_one() {
        // Fails if garbage in a later unit is not found from the first one, or if what lay in a
        // place before counts for the segment that lies there now.
        const UNIT: u64 = 256;
        let (units, at) = (Units::<Std>::new(UNIT), |unit: u64| Addr::new(unit * UNIT));
        let span = Span::of_bytes(at(5), 3 * UNIT);
        units.set(span, 7, UNIT);
        units.add_garbage(at(5), 2);
        units.add_garbage(at(7).plus(1), 5);
        assert_eq!((units.garbage(at(5)), units.seal(at(7).plus(1))), (7, 7));
        assert_eq!((units.seal(at(4)), units.seal(at(8))), (0, 0));
        units.set(span, 9, UNIT);
        assert_eq!((units.garbage(at(5)), units.seal(at(6))), (0, 9));
        units.set(span, 0, UNIT);
        assert_eq!(units.seal(at(5)), 0);
    }
}
