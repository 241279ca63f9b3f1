//! An array of records in DRAM that grows and never moves, so that readers need no lock.

use core::num::NonZero;

use everhash_pmem::{LINE, Parts, Primitives, WORD};

/// Words of a record.
const WORDS: usize = 4;

/// Records of the first part, a power of two.
///
/// Unit: records. Source: ours; those of a small table, in two kilobytes.
const FIRST: NonZero<u64> = NonZero::new(64).unwrap();

/// Words of a line.
const LINE_WORDS: usize = (LINE / WORD) as usize;

/// Records in parts, each but the first as long as all before it.
pub struct Growing<P: Primitives> {
    /// As many records as the number of the part says in bits: the first one is that of [`FIRST`].
    parts: Parts<P::AtomicU64>,
}

impl<P: Primitives> Growing<P> {
    /// Makes an array without records.
    pub fn new() -> Self {
        Growing { parts: Parts::new() }
    }

    /// Makes room for records below `end`. Words are zero at first.
    pub fn reserve(&self, end: u64) {
        let (mut part, mut before) = (FIRST.ilog2() as usize, 0);
        while before < end {
            let count = 1 << part;
            if self.parts.count(part) == 0 {
                // Whoever is first adds them; the words of the other one are dropped.
                self.parts.add(part, P::words(WORDS * count as usize + LINE_WORDS));
            }
            (part, before) = (part + 1, before + count);
        }
    }

    /// Returns a record; `None` where there is no room.
    #[inline(always)]
    pub fn get(&self, index: u64) -> Option<&[P::AtomicU64; WORDS]> {
        // Part n begins where 2^n records less those of the first part lie before it.
        let from_zero = FIRST.saturating_add(index);
        let part = from_zero.ilog2();
        let first_word = (from_zero.get() ^ 1 << part).wrapping_mul(WORDS as u64);
        self.parts.around(part as usize, first_word as usize)
    }

    /// Returns how much memory the array holds. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.parts.total() as u64 * WORD
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use everhash_pmem::{AtomicWord, Std};

    use super::*;

    #[test]
    fn a_word_stays_what_it_is_while_the_array_grows() {
        // Fails if two indexes share a word, or if growth moves or loses one.
        let records = Growing::<Std>::new();
        assert!(records.get(0).is_none());
        for end in [1, 64, 65, 128, 129, 1000, 5000] {
            records.reserve(end);
            for index in 0..end {
                let [first, .., last] = records.get(index).unwrap();
                assert!([0, index + 1].contains(&first.load(Relaxed)), "{index} of {end}");
                for word in [first, last] {
                    AtomicWord::store(word, index + 1, Relaxed);
                }
            }
        }
        for index in 0..5000 {
            let [first, .., last] = records.get(index).unwrap();
            assert_eq!([first, last].map(|word| word.load(Relaxed)), [index + 1; 2]);
        }
        for beyond in [8192, 1 << 60, 1 << 63, u64::MAX - 64, u64::MAX] {
            assert!(records.get(beyond).is_none());
        }
        assert!((8 * 4 * 8192 - 8 * 4 * 64..8 * 4 * 8192 + 1000).contains(&records.dram_bytes()));
    }
}
