//! What the tests of several files use.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::PathBuf;

/// Returns a new directory, and the path of a database in it that is not there yet.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    (directory, path)
}
