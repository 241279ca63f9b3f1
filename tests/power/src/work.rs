//! What the threads of a writer do: their seed decides it, so that nobody has to say it.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// Threads of a writer.
pub const THREADS: usize = 2;

/// The longest value. Unit: bytes.
const LONGEST: u64 = 1 << 16;

/// A change of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The number of the key among those of its thread.
    pub key: usize,
    /// Which value it gets; none if it is removed.
    pub value: Option<u64>,
}

/// The work of one process.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Decides everything.
    pub seed: u64,
    /// Keys of each thread.
    pub keys: usize,
    /// Whether some operations change several keys at once.
    pub has_batches: bool,
}

impl Work {
    /// Returns the changes of an operation.
    pub fn changes(&self, thread: usize, number: u64) -> Vec<Change> {
        let mut random = seeded(&[self.seed, thread as u64, number]);
        let count = match self.has_batches && random.random_ratio(1, 16) {
            true => random.random_range(2..14),
            false => 1,
        };
        let change = |_| Change {
            key: random.random_range(0..self.keys),
            value: random.random_ratio(3, 4).then(|| random.next_u64()),
        };
        (0..count).map(change).collect()
    }
}

/// Returns a generator that these numbers decide.
pub fn seeded(numbers: &[u64]) -> SmallRng {
    let seed =
        numbers.iter().fold(0, |seed, number| SmallRng::seed_from_u64(seed ^ *number).next_u64());
    SmallRng::seed_from_u64(seed)
}

/// Returns the bytes of a key.
pub fn key_bytes(thread: usize, key: usize) -> Vec<u8> {
    // Of several lengths.
    format!("{thread}-{key}-{}", ".".repeat(key % 31)).into_bytes()
}

/// Returns the thread and the number of a key.
pub fn key_of(bytes: &[u8]) -> Option<(usize, usize)> {
    let text = str::from_utf8(bytes).ok()?;
    let mut parts = text.split('-');
    let (thread, key) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (key_bytes(thread, key) == bytes).then_some((thread, key))
}

/// Returns the bytes of a value: its number, and what follows from it.
pub fn value_bytes(value: u64) -> Vec<u8> {
    let mut random = seeded(&[value]);
    let most = match random.random_range(0..64) {
        0 => LONGEST,
        1..=5 => LONGEST >> 4,
        _ => 256,
    };
    let mut bytes = vec![0; 8 + random.random_range(0..most) as usize];
    random.fill_bytes(&mut bytes);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// Returns the number of a value, if these are its bytes.
pub fn value_of(bytes: &[u8]) -> Option<u64> {
    let value = u64::from_le_bytes(*bytes.first_chunk()?);
    (value_bytes(value) == bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_told_from_others() {
        // Fails if a reader took bytes that nobody wrote for a pair.
        for number in 0..1000 {
            assert_eq!(key_of(&key_bytes(1, number)), Some((1, number)));
            let mut bytes = value_bytes(number as u64);
            assert_eq!(value_of(&bytes), Some(number as u64));
            if let Some(last) = bytes[8..].last_mut() {
                *last ^= 1;
                assert_eq!(value_of(&bytes), None);
                bytes.pop();
                assert_eq!(value_of(&bytes), None);
            }
        }
        assert_eq!(key_of(b"0-1-"), None);
        assert_eq!(value_of(b"short"), None);
    }
}
