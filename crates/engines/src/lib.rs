//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`walsh`] | Liu et al., [WALSH] | chains in logs, heads in DRAM; writes are batched |
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [WALSH]: walsh#
//! | [`turbo`] | Zhao et al., [TurboHash] | sharded linear probing in 256-byte buckets |
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [TurboHash]: turbo#
//! [WOPHI]: wophi#

pub mod common;
pub mod turbo;
pub mod walsh;
pub mod wophi;

/// Counts what hostile images make an engine allocate.
#[cfg(test)]
#[global_allocator]
static METER: everhash_pmem::AllocationMeter = everhash_pmem::AllocationMeter;
