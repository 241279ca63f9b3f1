//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`turbo`] | Zhao et al., [TurboHash] | sharded linear probing in 256-byte buckets |
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [TurboHash]: turbo#
//! [WOPHI]: wophi#

pub mod common;
pub mod turbo;
pub mod wophi;
