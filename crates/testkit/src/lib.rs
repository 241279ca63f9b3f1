//! testkit.

pub mod primitives;
