//! What the tests of several files use.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use everhash_store::{Pair, Result};

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a new directory, and the path of a database in it that is not there yet.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    (directory, path)
}

/// Steps of a fixed pseudo-random sequence.
pub struct Steps(pub u64);

impl Steps {
    /// Returns the next number, which is less than `below`.
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Returns the pairs whose keys begin with `prefix`. One that comes twice has the same value.
pub fn map_of(pairs: impl Iterator<Item = Result<Pair>>, prefix: &[u8]) -> Map {
    let mut map = Map::new();
    for (key, value) in pairs.map(Result::unwrap).filter(|(key, _)| key.starts_with(prefix)) {
        let before = map.insert(key, value.clone());
        assert!(before.is_none_or(|before| before == value), "two values of one key");
    }
    map
}
