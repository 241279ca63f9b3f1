//! What the driver asks of a store, and the list of stores.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::data::Shape;
#[cfg(feature = "rocksdb")]
use crate::stores::rocksdb;
use crate::stores::{candystore, everhash, fjall, lmdb, parity_db, redb};

/// When a write that returned survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A killed process at once, power loss at the next sync.
    Process,
    /// A killed process at once, power loss a bounded time later.
    Batch,
    /// Power loss when it returned.
    Immediate,
}

impl core::fmt::Display for Durability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Durability::Process => "process",
            Durability::Batch => "batch",
            Durability::Immediate => "immediate",
        })
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Lengths of keys and values.
    pub shape: Shape,
    /// When writes survive.
    pub durability: Durability,
    /// Memory for the caches of stores that have their own. Unit: bytes.
    pub cache_bytes: u64,
    /// Pairs that the store will hold, for stores that cannot grow or grow badly.
    pub items: u64,
}

/// A pair of a batch.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An open store.
pub trait Store: Send + Sync {
    /// Begins to read on this thread.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;
    /// Adds a pair or replaces its value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// The same for many pairs, in one transaction where the store has them.
    fn put_many(&self, pairs: &[Pair]) -> Result<()>;
    /// Removes a key.
    fn remove(&self, key: &[u8]) -> Result<()>;
    /// Makes durable what was written.
    fn sync(&self) -> Result<()>;
    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads of one thread.
pub trait Reader {
    /// Copies the value of `key` into `value`, whose contents are replaced; returns whether there
    /// is one.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Reads many keys; `found` hears the position and the value of each.
    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut value = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let present = self.get(key, &mut value)?;
            found(position, present.then_some(&value));
        }
        Ok(())
    }
}

/// Opens a store, or makes it.
type Open = fn(&str, &Path, &Setup) -> Result<Box<dyn Store>>;

/// A store that takes part.
pub struct Entry {
    /// Its name, as the command line has it.
    pub name: String,
    /// How it is set up, for the report.
    pub settings: &'static str,
    /// The kinds of durability that it has.
    pub durability: &'static [Durability],
    open: Open,
}

impl Entry {
    /// Opens the store in the folder `path`, or makes it there.
    ///
    /// # Errors
    /// What the store returned.
    pub fn open(&self, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
        (self.open)(&self.name, path, setup)
    }
}

/// Returns every store.
pub fn entries() -> Vec<Entry> {
    use Durability::{Batch, Immediate, Process};
    let ours = everhash_store::engines().iter().map(|engine| Entry {
        name: engine.name.to_owned(),
        settings: everhash::SETTINGS,
        durability: match engine.capabilities.durability.len() {
            1 => &[Process, Immediate],
            _ => &[Process, Batch, Immediate],
        },
        open: everhash::open,
    });
    let entry = |name: &str, settings, durability, open| Entry {
        name: name.to_owned(),
        settings,
        durability,
        open,
    };
    let others = [
        entry("candystore", candystore::SETTINGS, &[Process, Batch, Immediate], candystore::open),
        entry("fjall", fjall::SETTINGS, &[Process, Immediate], fjall::open),
        entry("lmdb", lmdb::SETTINGS, &[Process, Immediate], lmdb::open),
        entry("parity-db", parity_db::SETTINGS, &[Process], parity_db::open),
        entry("redb", redb::SETTINGS, &[Process, Immediate], redb::open),
        #[cfg(feature = "rocksdb")]
        entry("rocksdb", rocksdb::SETTINGS, &[Process, Immediate], rocksdb::open),
    ];
    ours.chain(others).collect()
}

/// Returns the store `name`.
///
/// # Errors
/// A sentence that lists the stores there are.
pub fn entry(name: &str) -> Result<Entry> {
    let mut entries = entries();
    match entries.iter().position(|entry| entry.name == name) {
        Some(found) => Ok(entries.swap_remove(found)),
        None => {
            let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
            anyhow::bail!("there is no store '{name}'; there are {}", names.join(", "))
        }
    }
}
