//! The table of a command: with a name or without, with expiry times or without.

use clap::Args;
use everhash_store::{Db, Error, Expiring, Pair, admit, admit_in_table};

use crate::failure::Outcome;

/// The table of a command that needs one which is there.
#[derive(Debug, Args)]
pub(super) struct InTable {
    /// The table; by default the one without a name
    #[arg(long, value_name = "NAME")]
    pub(super) table: Option<String>,
}

/// The table of a command that stores pairs.
#[derive(Debug, Args)]
pub(super) struct TableToWrite {
    /// The table; by default the one without a name. It is made if it is not there
    #[arg(long, value_name = "NAME")]
    pub(super) table: Option<String>,
}

impl TableToWrite {
    /// Returns a handle to the table, which is made if it is not there.
    pub(super) fn of_or_new(&self, db: Db) -> Outcome<Db> {
        Ok(match &self.table {
            Some(name) => db.table_or_create(name)?,
            None => db,
        })
    }
}

/// A table of either kind.
pub(super) enum AnyTable {
    Plain(Db),
    Expiring(Expiring),
}

impl InTable {
    /// Returns a handle to the table, which must be there.
    pub(super) fn of(&self, db: Db) -> Outcome<AnyTable> {
        Ok(match &self.table {
            None => AnyTable::Plain(db),
            Some(name) => match db.table(name) {
                Err(Error::TableKind { expiring: true, .. }) => {
                    AnyTable::Expiring(db.expiring_table(name)?)
                }
                found => AnyTable::Plain(found?),
            },
        })
    }
}

impl AnyTable {
    /// Tells whether the table takes such a pair.
    pub(super) fn admit(&self, key: &[u8], value: &[u8]) -> everhash_store::Result<()> {
        match self {
            AnyTable::Plain(db) if db.table_name().is_none() => admit(db.info().form, key, value),
            AnyTable::Plain(_) => admit_in_table(key, value, false),
            AnyTable::Expiring(_) => admit_in_table(key, value, true),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            AnyTable::Plain(db) => db.get(key)?,
            AnyTable::Expiring(table) => table.get(key)?,
        })
    }

    pub(super) fn contains_key(&self, key: &[u8]) -> Outcome<bool> {
        Ok(match self {
            AnyTable::Plain(db) => db.contains_key(key)?,
            AnyTable::Expiring(table) => table.contains_key(key)?,
        })
    }

    pub(super) fn take(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            AnyTable::Plain(db) => db.take(key)?,
            AnyTable::Expiring(table) => table.take(key)?,
        })
    }

    pub(super) fn clear(&self) -> Outcome {
        match self {
            AnyTable::Plain(db) => db.clear()?,
            AnyTable::Expiring(table) => table.clear()?,
        }
        Ok(())
    }

    pub(super) fn len(&self) -> Outcome<u64> {
        Ok(match self {
            AnyTable::Plain(db) => db.len()?,
            AnyTable::Expiring(table) => table.len()?,
        })
    }

    /// Returns every pair, in no order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = everhash_store::Result<Pair>>> {
        match self {
            AnyTable::Plain(db) => Box::new(db.iter()),
            AnyTable::Expiring(table) => Box::new(table.iter()),
        }
    }

    /// Closes the database.
    pub(super) fn close(self) -> Outcome {
        let db = match self {
            AnyTable::Plain(db) => db,
            AnyTable::Expiring(table) => table.db(),
        };
        Ok(db.close()?)
    }
}
