//! bench.
