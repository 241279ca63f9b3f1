//! ParityDB.

use std::path::Path;

use anyhow::Result;
use parity_db::{Db, Options};

use crate::store::{Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "one hash column, sync_wal and sync_data off; a commit is queued in \
                            memory and no call waits until it is durable";

/// The only column.
const PAIRS: u8 = 0;

/// Opens the store.
pub fn open(_: &str, path: &Path, _: &Setup) -> Result<Box<dyn Store>> {
    let mut options = Options::with_columns(path, 1);
    (options.sync_wal, options.sync_data) = (false, false);
    Ok(Box::new(Db::open_or_create(&options)?))
}

impl Store for Db {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.commit([(PAIRS, key, Some(value.to_vec()))])?)
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        let pairs = pairs.iter().map(|(key, value)| (PAIRS, key, Some(value.clone())));
        Ok(self.commit(pairs)?)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        Ok(self.commit([(PAIRS, key, None)])?)
    }

    fn sync(&self) -> Result<()> {
        // There is no such call; the report's settings say so.
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

impl Reader for &Db {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = Db::get(self, PAIRS, key)?;
        let present = found.is_some();
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(present)
    }
}
