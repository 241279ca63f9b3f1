//! Published designs of hash indexes on persistent memory: one module each, one contract for all.
//!
//! | engine | paper | in a sentence |
//! |---|---|---|
//! | [`wophi`] | Xiao et al., [WOPHI] | buckets allocated ahead; log-free 8-byte commits |
//!
//! [WOPHI]: wophi#

pub mod common;
pub mod wophi;
