//! fjall.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "cache of the run's size, no compression, 2 workers; immediate: every \
                            write is followed by a sync of the journal";

struct Fjall {
    db: Database,
    pairs: Keyspace,
    immediate: bool,
}

/// Opens the store.
pub fn open(_: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let db = Database::builder(path).cache_size(setup.cache_bytes).worker_threads(2).open()?;
    let pairs = db.keyspace("pairs", KeyspaceCreateOptions::default)?;
    let immediate = setup.durability == Durability::Immediate;
    Ok(Box::new(Fjall { db, pairs, immediate }))
}

impl Fjall {
    fn written(&self) -> Result<()> {
        if self.immediate {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Store for Fjall {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.pairs))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.pairs.insert(key, value)?;
        self.written()
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in pairs {
            batch.insert(&self.pairs, key.as_slice(), value.as_slice());
        }
        batch.commit()?;
        self.written()
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.pairs.remove(key)?;
        self.written()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Store::sync(&*self)
    }
}

impl Reader for &Keyspace {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = Keyspace::get(self, key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }
}
