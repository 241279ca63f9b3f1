//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`walsh`] | Liu et al., [WALSH] | chains in logs, heads in DRAM; writes are batched |
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [WALSH]: walsh#
//! [WOPHI]: wophi#
//! | [`turbo`] | Zhao, Zhong, Jiang, "TurboHash: A Hash Table for Key-value Store on Persistent Memory" | sharded linear probing in 256-byte buckets; near-place updates |
//! | [`wophi`] | Xiao et al., "Write-Optimized Persistent Hash Index for Non-Volatile Memory" | chained buckets, allocated ahead; log-free 8-byte commits |

pub mod common;
pub mod walsh;
pub mod turbo;
pub mod wophi;
