//! `everhash create`: an empty database.

use clap::Args;

use super::{Database, NewDatabase};
use crate::failure::Outcome;

/// Make an empty database
#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    new: NewDatabase,
}

impl Create {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let failed = self.new.failure();
        let db = self.new.options().create(&self.database.database).map_err(failed)?;
        Ok(db.close()?)
    }
}
