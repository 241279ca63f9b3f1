//! Addresses and spans: the units of the medium as types.

use core::fmt;

/// Bytes of a word, the largest store that is atomic on every medium.
///
/// Unit: bytes. Source: x86 and Arm guarantee eight aligned bytes and nothing larger.
pub const WORD: u64 = 8;

/// Bytes of a cache line, the unit of a flush.
///
/// Unit: bytes. Source: x86.
pub const LINE: u64 = 64;

/// A place on the medium: a byte offset from its start, always a multiple of [`WORD`].
///
/// Offsets and not pointers, so that a file may be mapped anywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(u64);

impl Addr {
    /// The start of the medium. Engines use it as "nowhere": the pool's header lies there.
    pub const NULL: Addr = Addr(0);

    /// Makes an address from a byte offset that the program computed.
    ///
    /// # Panics
    /// If `byte` is not a multiple of eight; use [`Addr::from_medium`] for a number that was read
    /// from the medium.
    #[inline]
    pub const fn new(byte: u64) -> Addr {
        assert!(byte.is_multiple_of(WORD));
        Addr(byte)
    }

    /// Makes an address from a number that was read from the medium; `None` if it is not a multiple
    /// of eight.
    #[inline]
    pub const fn from_medium(byte: u64) -> Option<Addr> {
        if byte.is_multiple_of(WORD) { Some(Addr(byte)) } else { None }
    }

    /// Returns where the window of `N` words begins in which byte `byte` lies, if windows begin at
    /// multiples of their length. `N` is a power of two.
    #[inline(always)]
    pub(crate) const fn of_window<const N: usize>(byte: u64) -> Addr {
        const { assert!(N.is_power_of_two()) }
        Addr(byte & !(N as u64 * WORD - 1))
    }

    /// Returns the byte offset from the start of the medium.
    #[inline]
    pub const fn byte(self) -> u64 {
        self.0
    }

    /// Returns the index of the word that lies here.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0 / WORD
    }

    /// Returns the index of the cache line that holds this address.
    #[inline]
    pub const fn line(self) -> u64 {
        self.0 / LINE
    }

    /// Returns the address `words` words further on.
    ///
    /// Wraps around at 2^64 bytes: the sum of two numbers from a damaged file is then out of
    /// bounds, and every access there fails.
    #[inline]
    pub const fn plus(self, words: u64) -> Addr {
        Addr(self.0.wrapping_add(words.wrapping_mul(WORD)))
    }

    /// Returns whether this is [`Addr::NULL`].
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A contiguous range of words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Span {
    /// First address.
    pub start: Addr,
    /// Length. Unit: words.
    pub words: u64,
}

impl Span {
    /// Makes the span of `words` words from `start`.
    #[inline]
    pub const fn new(start: Addr, words: u64) -> Span {
        Span { start, words }
    }

    /// Makes the span of `bytes` bytes from `start`, rounded up to whole words.
    #[inline]
    pub const fn of_bytes(start: Addr, bytes: u64) -> Span {
        Span { start, words: bytes.div_ceil(WORD) }
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.words.saturating_mul(WORD)
    }

    /// Returns the byte offset just behind the span, saturating at 2^64 - 1.
    #[inline]
    pub const fn end_byte(self) -> u64 {
        self.start.0.saturating_add(self.bytes())
    }

    /// Returns the indexes of all cache lines that the span touches.
    #[inline]
    pub const fn lines(self) -> core::ops::Range<u64> {
        if self.words == 0 {
            return 0..0;
        }
        self.start.line()..self.end_byte().div_ceil(LINE)
    }

    /// Returns whether the two spans share a word.
    #[inline]
    pub const fn overlaps(self, other: Span) -> bool {
        self.start.0 < other.end_byte() && other.start.0 < self.end_byte()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_names_every_line_it_touches() {
        // Fails if a span that straddles lines names only the first.
        assert_eq!(Span::new(Addr::new(56), 2).lines(), 0..2);
        assert_eq!(Span::new(Addr::new(64), 8).lines(), 1..2);
        assert_eq!(Span::new(Addr::new(64), 9).lines(), 1..3);
        assert_eq!(Span::new(Addr::new(64), 0).lines(), 0..0);
    }

    #[test]
    fn an_unaligned_number_from_the_medium_is_no_address() {
        // Fails if hostile pointers could reach the middle of a word.
        assert_eq!(Addr::from_medium(7), None);
        assert_eq!(Addr::from_medium(16), Some(Addr::new(16)));
    }

    #[test]
    fn bytes_round_up_to_words() {
        // Fails if the last word of a length were left out, or one too many taken.
        assert_eq!(Span::of_bytes(Addr::NULL, 9).words, 2);
        assert!(Span::new(Addr::new(8), 2).overlaps(Span::new(Addr::new(16), 1)));
        assert!(!Span::new(Addr::new(8), 1).overlaps(Span::new(Addr::new(16), 1)));
    }
}
