//! Hash indexes that engines are compared with: Cuckoo, Linear and Level Hashing on pages, beside
//! Tiered Hashing; and on persistent memory CCEH, Dash, Level Hashing and clevel, beside ElimDA
//! ([`memory`]).
//!
//! They exist to be measured beside an engine, on the same emulated device with the same pairs, and
//! are no engines: they take words, serve one thread, and have no header and no recovery. Each does
//! to the medium what its publication says. Those on pages can also be given the consistency of
//! Tiered Hashing, so that what the schemes themselves cost can be told apart from what their logs
//! and tokens cost ([`Order`]).
//!
//! ```
//! use everhash_pmem::{Image, Region};
//! use everhash_rivals::{Cuckoo, Inserted, Order, Rival, bytes_needed};
//!
//! let region = Region::new(Image::<everhash_pmem::Std>::new(0, bytes_needed(3)));
//! let mut table = Cuckoo::format(region, 3, Order::Logged)?;
//! assert_eq!(table.insert(1, 10)?, Inserted::New);
//! assert_eq!(table.get(1)?, Some(10));
//! # Ok::<(), everhash_pmem::Error>(())
//! ```

mod buckets;
mod cuckoo;
mod hash;
mod level;
mod linear;
pub mod memory;
mod pages;

pub use buckets::{PAGE_SLOTS, bytes_needed};
pub use cuckoo::Cuckoo;
pub use level::Level;
pub use linear::Linear;
pub use pages::Order;

use everhash_pmem::Result;

/// What became of an insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The key was absent, and is there now.
    New,
    /// The key was there, and keeps its value.
    Present,
    /// The scheme found no slot: it would have to grow now.
    Full,
}

/// A table of words.
///
/// # Errors
/// Every operation fails as the medium does.
pub trait Rival {
    /// Adds the pair if the key is absent and the scheme finds a slot.
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted>;

    /// Replaces the value if the key is present; returns whether it was.
    fn update(&mut self, key: u64, value: u64) -> Result<bool>;

    /// Removes a key; returns whether it was there.
    fn remove(&mut self, key: u64) -> Result<bool>;

    /// Returns the value of a key.
    fn get(&self, key: u64) -> Result<Option<u64>>;

    /// Returns the number of slots.
    fn slots(&self) -> u64;
}
