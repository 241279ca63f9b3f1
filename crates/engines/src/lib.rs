//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [WOPHI]: wophi#
//! | [`walsh`] | Liu et al., "WALSH: Write-Aggregating Log-Structured Hashing for Hybrid Memory" | chains of objects in logs, heads in DRAM; writes are flushed together |
//! | [`wophi`] | Xiao et al., "Write-Optimized Persistent Hash Index for Non-Volatile Memory" | chained buckets, allocated ahead; log-free 8-byte commits |

pub mod common;
pub mod walsh;
pub mod wophi;
