//! The set of judged states.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashSet;

/// The judged states, by a 64-bit hash of content and context.
///
/// Among a hundred million states the chance of a collision is below one in a thousand; its price
/// would be one state that is not judged.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    states: HashSet<u64, BuildHasherDefault<AsIs>>,
    points: HashSet<u64, BuildHasherDefault<AsIs>>,
}

impl Seen {
    /// Adds a state; returns whether it is new.
    pub fn insert(&mut self, hash: u64) -> bool {
        self.states.insert(hash)
    }

    /// Adds a crash point with a lazy search; returns whether it is new.
    pub(super) fn insert_point(&mut self, hash: u64) -> bool {
        self.points.insert(hash)
    }

    /// Returns how many distinct states were added.
    pub fn count(&self) -> u64 {
        self.states.len() as u64
    }
}

/// Hashes that are spread already need no hashing.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
