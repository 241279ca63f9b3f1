//! `everhash contains`: is a key there?

use std::ffi::OsString;

use clap::Args;

use super::{Database, Escapes, InTable, open_to_read};
use crate::failure::{Failure, Outcome};

/// Tell whether a key is present: status 0 if it is, 1 if it is absent
#[derive(Debug, Args)]
pub struct Contains {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
    /// The key
    key: OsString,
    #[command(flatten)]
    escapes: Escapes,
}

impl Contains {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let table = self.table.of(open_to_read(&self.database.database)?)?;
        if table.contains_key(&key)? { Ok(()) } else { Err(Failure::no()) }
    }
}
