//! The judges of an index: what every engine promises, checked without knowing any engine.

pub mod primitives;
pub mod random;
pub mod workload;
