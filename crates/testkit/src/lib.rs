//! The judges of an index: what every engine promises, checked without knowing any engine.

mod complaint;
pub mod conformance;
pub mod crash;
pub mod model;
pub mod primitives;
pub mod race;
pub mod random;
pub mod reference;
pub mod session;
pub mod shrink;
pub mod workload;

pub use complaint::Complaint;
