//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`wophi`] | Xiao et al., "Write-Optimized Persistent Hash Index for Non-Volatile Memory" | chained buckets, allocated ahead; log-free 8-byte commits |

pub mod common;
pub mod wophi;
