//! Everhash, each of its engines.

use std::path::Path;

use anyhow::Result;
use everhash_index::Form;
use everhash_store::{Db, Durability as Ours};

use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "defaults, not presized; pairs of 8/8 in the form for words";

struct Everhash {
    db: Db,
}

/// Opens the engine `name`.
pub fn open(name: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let durability = match setup.durability {
        Durability::Process => Ours::Process,
        Durability::Batch => Ours::Batch,
        Durability::Immediate => Ours::Immediate,
    };
    let words = (setup.shape.key_bytes, setup.shape.value_bytes) == (8, 8);
    let db = Db::options()
        .engine(name)
        .form(if words { Form::WORDS } else { Form::Variable })
        .durability(durability)
        .create_if_missing(true)
        .open(path.join("pairs.ehdb"))?;
    Ok(Box::new(Everhash { db }))
}

impl Store for Everhash {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.db))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(key, value)?;
        Ok(())
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        self.db.put_many(pairs)?;
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.db.remove(key)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

impl Reader for &Db {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_into(key, value)?)
    }

    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        Ok(self.get_many_with(keys, found)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Shape;

    #[test]
    fn writes_survive_as_was_asked_for() {
        // Fails if we were measured with less than the others.
        for (asked, ours) in
            [(Durability::Batch, Ours::Batch), (Durability::Immediate, Ours::Immediate)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let shape = Shape { key_bytes: 8, value_bytes: 8 };
            let setup = Setup { shape, durability: asked, cache_bytes: 1 << 20, items: 10 };
            open("reef", folder.path(), &setup).expect("a new database").close().expect("closed");
            let db = Db::open(folder.path().join("pairs.ehdb")).expect("it is there");
            assert_eq!((db.info().durability, db.info().form), (ours, Form::WORDS));
        }
    }
}
