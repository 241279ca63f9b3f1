//! An array of words in DRAM that grows and never moves, so that readers need no lock.

use std::sync::OnceLock;

use everhash_pmem::Primitives;

/// The most parts: each but the first is as long as all before it.
const PARTS: usize = 32;

/// A part: no words until there is room.
type Part<P> = OnceLock<Box<[<P as Primitives>::AtomicU64]>>;

/// Words in parts, each but the first as long as all before it.
pub struct Growing<P: Primitives> {
    /// Length of the first part, as a base-2 logarithm.
    first: u32,
    parts: Box<[Part<P>]>,
}

impl<P: Primitives> Growing<P> {
    /// Makes an array without words whose first part will hold 2^`first` of them.
    pub fn new(first: u32) -> Self {
        Growing { first, parts: (0..PARTS).map(|_| OnceLock::new()).collect() }
    }

    /// Makes room for words below `end`. Words are zero at first.
    pub fn reserve(&self, end: u64) {
        for (part, words) in self.parts.iter().enumerate() {
            let before = part.saturating_sub(1);
            let count = 1u64 << (self.first as usize + before);
            let from = if part == 0 { 0 } else { count };
            if from >= end {
                break;
            }
            if words.get().is_none() {
                // Whoever is first; the words of the other one are dropped.
                let _ = words.set(P::words(count as usize));
            }
        }
    }

    /// Returns `count` words from `index` on, which lie in one part; `None` where there is no room.
    #[inline(always)]
    pub fn get(&self, index: u64, count: usize) -> Option<&[P::AtomicU64]> {
        let part = (u64::BITS - (index >> self.first).leading_zeros()) as usize;
        let words = self.parts.get(part)?.get()?;
        let start = match part {
            0 => index,
            part => index - (1 << (self.first as usize + part - 1)),
        };
        words.get(start as usize..start as usize + count)
    }

    /// Returns how much memory the array holds. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.parts.iter().filter_map(OnceLock::get).map(|words| 8 * words.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use everhash_pmem::Std;

    use super::*;

    #[test]
    fn a_word_stays_what_it_is_while_the_array_grows() {
        // Fails if two indexes share a word, or if growth moves or loses one.
        let words = Growing::<Std>::new(3);
        assert!(words.get(0, 1).is_none());
        for end in [1, 8, 9, 16, 17, 100, 1000] {
            words.reserve(end);
            for index in 0..end {
                let word = &words.get(index, 1).unwrap()[0];
                assert!([0, index + 1].contains(&word.load(Relaxed)), "{index} of {end}");
                word.store(index + 1, Relaxed);
            }
        }
        assert!((0..1000).all(|index| words.get(index, 1).unwrap()[0].load(Relaxed) == index + 1));
        assert!(words.get(1024, 1).is_none() && words.get(1 << 60, 1).is_none());
        assert_eq!(words.dram_bytes(), 8 * 1024);
    }
}
