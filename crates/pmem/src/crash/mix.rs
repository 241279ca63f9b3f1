//! Hashing of image contents, word by word, and the seeded choices of the explorer.

/// Spreads a number over all 64 bits; a bijection.
///
/// Source: the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns what a word adds (by exclusive or) to the hash of an image.
///
/// A zero word adds nothing, so that an image and the same image grown by zero words differ in
/// their length only.
pub(crate) const fn cell(word: u32, value: u64) -> u64 {
    if value == 0 { 0 } else { mix(mix(word as u64) ^ value) }
}

/// A seeded stream of numbers, the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the stream of `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        // The high half of the product is uniform but for an error of bound / 2^64.
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}
