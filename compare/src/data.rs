//! The keys and values of a run, computed from their numbers.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

/// Skew of the requests that are not uniform.
///
/// Source: YCSB, "zipfian".
const SKEW: f64 = 0.99;

/// Random bytes from which values are cut. Unit: bytes.
const NOISE: usize = 4 << 20;

/// Lengths of keys and values. Unit: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Length of a key: 8 or 16.
    pub key_bytes: usize,
    /// Length of a value: at least 8.
    pub value_bytes: usize,
}

impl Shape {
    /// Returns the bytes of a pair.
    pub fn pair_bytes(self) -> usize {
        self.key_bytes + self.value_bytes
    }
}

impl core::fmt::Display for Shape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.key_bytes, self.value_bytes)
    }
}

impl core::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}' is no shape; write KEY/VALUE in bytes, key 8 or 16, value 8 to 1 MiB")
        };
        let (key, value) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let (key_bytes, value_bytes) = (number(key)?, number(value)?);
        if ![8, 16].contains(&key_bytes) || !(8..=1 << 20).contains(&value_bytes) {
            return Err(wrong());
        }
        Ok(Shape { key_bytes, value_bytes })
    }
}

/// Computes pairs.
pub struct Data {
    shape: Shape,
    noise: Vec<u8>,
}

impl Data {
    /// Makes the source of pairs of one shape; the same every time.
    pub fn new(shape: Shape) -> Data {
        let mut noise = vec![0; NOISE];
        SmallRng::seed_from_u64(1).fill(&mut noise[..]);
        Data { shape, noise }
    }

    /// Writes key number `index` into `key`. Keys of different numbers differ.
    pub fn key(&self, index: u64, key: &mut Vec<u8>) {
        let first = mix(index);
        key.clear();
        key.extend_from_slice(&first.to_le_bytes());
        if self.shape.key_bytes == 16 {
            key.extend_from_slice(&mix(first).to_le_bytes());
        }
    }

    /// Writes a value of key number `index` into `value`: eight bytes that belong to the key, and
    /// noise that `version` chooses.
    pub fn value(&self, index: u64, version: u64, value: &mut Vec<u8>) {
        let rest = self.shape.value_bytes - 8;
        let start = mix(index ^ version.rotate_left(32)) as usize % (NOISE - rest);
        value.clear();
        value.extend_from_slice(&tag(index).to_le_bytes());
        value.extend_from_slice(&self.noise[start..start + rest]);
    }

    /// Returns whether `value` is some value of key number `index`.
    pub fn belongs(&self, index: u64, value: &[u8]) -> bool {
        value.len() == self.shape.value_bytes && value[..8] == tag(index).to_le_bytes()
    }
}

/// Which keys are asked for.
pub enum Choice {
    /// All with the same probability.
    Uniform(u64),
    /// A few much more often than the others, which lie scattered over all.
    Skewed(u64, Zipf<f64>),
}

impl Choice {
    /// Chooses among `count` keys with the same probability.
    pub fn uniform(count: u64) -> Choice {
        Choice::Uniform(count)
    }

    /// Chooses among `count` keys by Zipf's law.
    pub fn skewed(count: u64) -> Choice {
        Choice::Skewed(count, Zipf::new(count as f64, SKEW).expect("the count is positive"))
    }

    /// Returns the number of the next key.
    pub fn next(&self, random: &mut SmallRng) -> u64 {
        match self {
            Choice::Uniform(count) => random.random_range(0..*count),
            Choice::Skewed(count, zipf) => mix(zipf.sample(random) as u64) % count,
        }
    }
}

fn tag(index: u64) -> u64 {
    mix(!index)
}

/// Mixes a number: a bijection.
///
/// Source: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_alone() {
        // Fails if a store that returns another key's value passed for a right one.
        let data = Data::new(Shape { key_bytes: 16, value_bytes: 100 });
        let mut value = Vec::new();
        for version in 0..3 {
            data.value(7, version, &mut value);
            assert!(data.belongs(7, &value));
            assert!(!data.belongs(8, &value));
        }
        value.pop();
        assert!(!data.belongs(7, &value));
    }

    #[test]
    fn a_shape_is_read_back_from_its_text() {
        // Fails if a wrong shape were measured as another one.
        assert_eq!("16/100".parse(), Ok(Shape { key_bytes: 16, value_bytes: 100 }));
        for wrong in ["", "16", "7/8", "8/7", "16/-1", "8/9999999", "8/8/8"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_skewed_choice_prefers_few_keys() {
        // Fails if YCSB's keys were spread evenly.
        let (choice, mut random) = (Choice::skewed(1000), SmallRng::seed_from_u64(1));
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[choice.next(&mut random) as usize] += 1;
        }
        counts.sort_unstable();
        // Zipf's law with this skew gives the first of a thousand about 13 % of all.
        assert!((9_000..18_000).contains(&counts[999]), "{}", counts[999]);
    }
}
