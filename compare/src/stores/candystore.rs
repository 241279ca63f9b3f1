//! CandyStore.

use std::path::Path;

use anyhow::Result;
use candystore::{CandyStore, Config};

use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "presized for 1.3 times the pairs, files of 512 MiB, a checkpoint every \
                            64 MiB; process: none by time; immediate: a flush after every write";

struct Candy {
    store: CandyStore,
    immediate: bool,
}

/// Opens the store.
pub fn open(_: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let mut config = Config {
        initial_capacity: usize::try_from(setup.items.saturating_mul(13) / 10)?,
        max_data_file_size: 512 << 20,
        checkpoint_delta_bytes: Some(64 << 20),
        ..Config::default()
    };
    if setup.durability == Durability::Process {
        config.checkpoint_interval = None;
    }
    let immediate = setup.durability == Durability::Immediate;
    Ok(Box::new(Candy { store: CandyStore::open(path, config)?, immediate }))
}

impl Candy {
    fn written(&self) -> Result<()> {
        if self.immediate {
            self.store.flush()?;
        }
        Ok(())
    }
}

impl Store for Candy {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.store))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.set(key, value)?;
        self.written()
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        for (key, value) in pairs {
            self.store.set(key, value)?;
        }
        self.written()
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.store.remove(key)?;
        self.written()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.store.flush()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.checkpoint()?)
    }
}

impl Reader for &CandyStore {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = CandyStore::get(self, key)?;
        let present = found.is_some();
        *value = found.unwrap_or_default();
        Ok(present)
    }
}
