//! The stores, one file each.

pub mod candystore;
pub mod everhash;
pub mod fjall;
pub mod lmdb;
pub mod parity_db;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
