//! LMDB, through `heed`.

use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "WRITEMAP, NORDAHEAD; process: NOSYNC, NOMETASYNC, MAPASYNC; immediate: \
                            synced commits; a read transaction serves 1,000 gets";

/// Addresses for the map. Unit: bytes.
const MAP_BYTES: usize = 256 << 30;

/// Gets that one read transaction serves.
const GETS: u32 = 1000;

struct Lmdb {
    env: Env,
    pairs: Database<'static, Bytes, Bytes>,
}

/// Opens the store.
pub fn open(_: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let mut flags = EnvFlags::WRITE_MAP | EnvFlags::NO_READ_AHEAD;
    if setup.durability != Durability::Immediate {
        flags |= EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::MAP_ASYNC;
    }
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES);
    // SAFETY: the folder is this run's own: no other process changes its files or has them mapped,
    // and what a crash leaves is what is measured.
    let env = unsafe { options.flags(flags).open(path)? };
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
        opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    });
    let pairs = made?.unwrap_commit();
    Ok(Box::new(Lmdb { env, pairs }))
}

impl Store for Lmdb {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Reading { store: self, transaction: None, gets: 0 }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.pairs.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in pairs {
            self.pairs.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.pairs.delete(&mut transaction, key)?;
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct Reading<'a> {
    store: &'a Lmdb,
    transaction: Option<RoTxn<'a, WithTls>>,
    gets: u32,
}

impl<'a> Reading<'a> {
    fn transaction(&mut self, gets: u32) -> Result<&RoTxn<'a, WithTls>> {
        self.gets += gets;
        if self.gets > GETS {
            // The old one has to end first: a thread has at most one.
            self.transaction = None;
            self.gets = gets;
        }
        match &mut self.transaction {
            Some(transaction) => Ok(transaction),
            none => Ok(none.insert(self.store.env.read_txn()?)),
        }
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let pairs = self.store.pairs;
        let found = pairs.get(self.transaction(1)?, key)?;
        value.clear();
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let pairs = self.store.pairs;
        let transaction = self.transaction(keys.len() as u32)?;
        for (position, key) in keys.iter().enumerate() {
            found(position, pairs.get(transaction, key)?);
        }
        Ok(())
    }
}
