//! Size classes: the lengths that records may have on the medium.

use crate::WORD;

/// Classes below 32 bytes, where four steps a doubling would not be whole words.
///
/// Unit: classes. Source: ours; 16 and 24 bytes.
const TINY: u64 = 2;

/// The logarithm of the first length with four steps a doubling: 32 bytes.
const FIRST_LOG: u32 = 5;

/// The logarithm of the largest length: 32 MiB.
///
/// Source: ours; a value of 16 MiB, a key of 64 KiB and their header need more than 16 MiB.
const LAST_LOG: u32 = 25;

/// A length that records have on the medium: 16 bytes to 32 MiB, four steps a doubling.
///
/// At most a fifth of a record is slack: 1 - 4/5 just above a power of two. The engine stores the
/// index in its pointer word, so that recovery learns the length without reading the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// The number of classes. Their indexes fit into seven bits.
    pub const COUNT: usize = (TINY + 4 * (LAST_LOG - FIRST_LOG) as u64 + 1) as usize;

    /// The length of the largest class. Unit: bytes.
    pub const LARGEST_BYTES: u64 = 1 << LAST_LOG;

    /// Returns the smallest class that holds `bytes` bytes, or `None` if no class does.
    ///
    /// ```
    /// use everhash_pmem::Class;
    /// assert_eq!(Class::of(1).map(Class::bytes), Some(16));
    /// assert_eq!(Class::of(65).map(Class::bytes), Some(80));
    /// assert_eq!(Class::of(Class::LARGEST_BYTES + 1), None);
    /// ```
    pub const fn of(bytes: u64) -> Option<Class> {
        if bytes > Self::LARGEST_BYTES {
            return None;
        }
        if bytes <= 1 << FIRST_LOG {
            let words = bytes.div_ceil(WORD);
            return Some(Class(words.saturating_sub(2) as u8));
        }
        // The doubling in which the last byte lies, and the quarter of it.
        let last = bytes - 1;
        let log = last.ilog2();
        let quarter = (last >> (log - 2)) & 3;
        Some(Class((TINY + 4 * (log - FIRST_LOG) as u64 + quarter + 1) as u8))
    }

    /// Returns the class with an index that was read from the medium, or `None` if there is none.
    pub const fn from_index(index: u64) -> Option<Class> {
        if index < Self::COUNT as u64 { Some(Class(index as u8)) } else { None }
    }

    /// Returns the index, below [`Class::COUNT`].
    pub const fn index(self) -> u64 {
        self.0 as u64
    }

    /// Returns what every record that needs this class exceeds: the length of the next smaller one,
    /// 0 if there is none. Unit: bytes; a multiple of eight.
    pub(crate) const fn least_bytes(self) -> u64 {
        match Self::from_index(self.index().wrapping_sub(1)) {
            Some(smaller) => smaller.bytes(),
            None => 0,
        }
    }

    /// Returns the length of the records. Unit: bytes; a multiple of eight.
    pub const fn bytes(self) -> u64 {
        let index = self.index();
        if index < TINY {
            return (index + 2) * WORD;
        }
        let (doubling, quarter) = ((index - TINY) / 4, (index - TINY) % 4);
        (4 + quarter) << (FIRST_LOG as u64 - 2 + doubling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        // Fails if a border is off by one: the records would overlap, or waste a step.
        let lengths: Vec<u64> =
            (0..Class::COUNT as u64).map(|i| Class::from_index(i).unwrap().bytes()).collect();
        assert!(lengths.is_sorted_by(|a, b| a < b) && lengths.iter().all(|b| b % WORD == 0));
        assert_eq!((lengths[0], *lengths.last().unwrap()), (16, Class::LARGEST_BYTES));
        let smallest = |bytes| lengths.iter().position(|length| *length >= bytes).unwrap();
        let borders = lengths.iter().flat_map(|length| [length - 1, *length, length + 1]);
        for bytes in (0..5000).chain(borders).filter(|bytes| *bytes <= Class::LARGEST_BYTES) {
            let class = Class::of(bytes).unwrap();
            assert_eq!(class.index() as usize, smallest(bytes), "{bytes}");
            assert!(class.least_bytes() < bytes.max(1), "{bytes}");
            assert!(class.index() == 0 || Class::of(class.least_bytes() + 1) == Some(class));
        }
        assert_eq!(Class::of(u64::MAX), None);
    }

    #[test]
    fn a_fifth_is_wasted_at_most() {
        // Fails if the steps are coarser than promised.
        for index in 2..Class::COUNT as u64 - 1 {
            let [this, next] = [index, index + 1].map(|i| Class::from_index(i).unwrap().bytes());
            assert!((next - this) * 4 <= this, "{this} {next}");
        }
        assert_eq!((Class::COUNT, Class::from_index(Class::COUNT as u64)), (83, None));
    }
}
