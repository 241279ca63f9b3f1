//! redb.

use std::path::Path;

use anyhow::Result;
use redb::{
    Database, Durability as Commit, ReadOnlyTable, ReadableDatabase, TableDefinition,
    WriteTransaction,
};

use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "cache of the run's size; process: Durability::None; immediate: \
                            Durability::Immediate; a read transaction serves 1,000 gets";

/// Gets that one read transaction serves.
const GETS: u32 = 1000;

const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

struct Redb {
    db: Database,
    commit: Commit,
}

/// Opens the store.
pub fn open(_: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let cache = usize::try_from(setup.cache_bytes)?;
    let db = Database::builder().set_cache_size(cache).create(path.join("pairs.redb"))?;
    let commit = match setup.durability {
        Durability::Immediate => Commit::Immediate,
        Durability::Process | Durability::Batch => Commit::None,
    };
    let store = Redb { db, commit };
    store.write(Commit::Immediate, |_| Ok(()))?;
    Ok(Box::new(store))
}

impl Redb {
    fn write(
        &self,
        commit: Commit,
        change: impl FnOnce(&mut redb::Table<'_, &[u8], &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction: WriteTransaction = self.db.begin_write()?;
        transaction.set_durability(commit)?;
        change(&mut transaction.open_table(PAIRS)?)?;
        Ok(transaction.commit()?)
    }
}

impl Store for Redb {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Reading { store: self, table: None, gets: 0 }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.commit, |table| {
            table.insert(key, value)?;
            Ok(())
        })
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        self.write(self.commit, |table| {
            for (key, value) in pairs {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.write(self.commit, |table| {
            table.remove(key)?;
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        self.write(Commit::Immediate, |_| Ok(()))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Store::sync(&*self)?;
        Ok(self.db.close()?)
    }
}

struct Reading<'a> {
    store: &'a Redb,
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    gets: u32,
}

impl Reading<'_> {
    fn table(&mut self, gets: u32) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.gets += gets;
        if self.gets > GETS {
            self.table = None;
            self.gets = gets;
        }
        match &mut self.table {
            Some(table) => Ok(table),
            none => Ok(none.insert(self.store.db.begin_read()?.open_table(PAIRS)?)),
        }
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.table(1)?.get(key)?;
        value.clear();
        value.extend_from_slice(found.as_ref().map_or(&[], |found| found.value()));
        Ok(found.is_some())
    }

    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let table = self.table(keys.len() as u32)?;
        for (position, key) in keys.iter().enumerate() {
            found(position, table.get(key.as_slice())?.as_ref().map(|value| value.value()));
        }
        Ok(())
    }
}
