//! `everhash count`: how many pairs there are.

use clap::Args;

use super::{Database, InTable, open_to_read};
use crate::failure::Outcome;
use crate::output;

/// Print the number of pairs
#[derive(Debug, Args)]
pub struct Count {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
}

impl Count {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let table = self.table.of(open_to_read(&self.database.database)?)?;
        output::print(&table.len()?.to_string())
    }
}
