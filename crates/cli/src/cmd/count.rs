//! `everhash count`: how many pairs there are.

use clap::Args;

use super::{Database, open_to_read};
use crate::failure::Outcome;
use crate::output;

/// Print the number of pairs
#[derive(Debug, Args)]
pub struct Count {
    #[command(flatten)]
    database: Database,
}

impl Count {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        output::print(&open_to_read(&self.database.database)?.len()?.to_string())
    }
}
