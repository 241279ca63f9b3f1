//! `everhash remove`: keys that go.

use std::ffi::OsString;

use clap::Args;
use everhash_store::Db;

use super::{AnyTable, Database, Escapes, InTable};
use crate::failure::{Failure, Outcome};

/// Remove keys, durably; status 1 if one was absent
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
    /// The key, or several
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Print the value that each key had, a line each
    #[arg(long)]
    print_old: bool,
    #[command(flatten)]
    escapes: Escapes,
}

impl Remove {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let keys: Vec<_> =
            self.keys.into_iter().map(|key| self.escapes.bytes(key)).collect::<Outcome<_>>()?;
        let table = self.table.of(Db::open(&self.database.database)?)?;
        let (mut old, mut removed) = (Vec::new(), 0);
        match &table {
            AnyTable::Plain(db) if !self.print_old => removed += db.remove_many(&keys)? as usize,
            table => {
                for key in &keys {
                    old.extend(table.take(key)?);
                }
                removed += old.len();
            }
        }
        table.close()?;
        if !self.print_old {
            old.clear();
        }
        for value in old {
            Failure::unless_unread(self.escapes.print(&value, false))?;
        }
        if removed == keys.len() { Ok(()) } else { Err(Failure::no()) }
    }
}
