//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! [`ENGINES`] has a row for each, with its idea in a sentence; each module begins with its paper.

#[cfg(test)]
mod at_length;
pub mod common;
#[cfg(not(test))]
mod compiled;
#[cfg(test)]
mod damaged_scans;
pub mod elimda;
pub mod reef;
mod registry;
pub mod tiered;
pub mod turbo;
pub mod walsh;
pub mod wophi;

#[cfg(not(test))]
pub use compiled::*;
pub use registry::{About, ENGINES, Exploration, designs};

/// Counts what hostile images make an engine allocate.
#[cfg(test)]
#[global_allocator]
static METER: everhash_pmem::AllocationMeter = everhash_pmem::AllocationMeter;
