//! A small seeded generator: for the random choices of emulated devices, and for programs that are
//! to be the same in every run.

/// The same numbers for the same seed, on every machine (splitmix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Makes the generator of `seed`.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a number below `bound`, which must not be zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        spread(self.bits(), bound)
    }

    /// Returns true with the given chance.
    pub fn happens(&mut self, chance: f64) -> bool {
        // 2^53 steps: the resolution of a double in 0..1.
        ((self.bits() >> 11) as f64) < chance * (1u64 << 53) as f64
    }
}

/// Spreads nearby numbers over all 64 bits.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let first = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

/// Maps 64 random bits to a number below `bound`, nearly evenly and without a division.
#[inline]
pub(crate) fn spread(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_comes_about_equally_often() {
        // Fails if one victim were preferred: the write buffer's curve would have another shape.
        let mut random = Random::new(1);
        let mut counts = [0u32; 60];
        for _ in 0..60_000 {
            counts[random.below(60) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let hits = (0..10_000).filter(|_| random.happens(0.25)).count();
        assert!((2300..2700).contains(&hits), "{hits}");
    }
}
