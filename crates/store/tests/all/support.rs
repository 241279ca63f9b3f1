//! What the tests of several files use.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::PathBuf;

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
