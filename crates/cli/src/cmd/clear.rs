//! `everhash clear`: removes all pairs.

use clap::Args;
use everhash_store::Db;

use super::{Database, InTable};
use crate::failure::Outcome;

/// Remove all pairs of a table, durably; the file keeps its length, for the pairs to come
#[derive(Debug, Args)]
pub struct Clear {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
}

impl Clear {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let table = self.table.of(Db::open(&self.database.database)?)?;
        table.clear()?;
        table.close()
    }
}
