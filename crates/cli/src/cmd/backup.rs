//! `everhash backup`: a copy of the database.

use std::path::PathBuf;

use clap::Args;
use everhash_store::Db;
use serde_json::json;

use super::{Database, open_to_read};
use crate::failure::Outcome;
use crate::output::{self, count};

/// Copy all pairs into a new database, which appears when it is complete
///
/// The database must not be open elsewhere for writing: a program that has it open makes its own
/// backups, by `Db::backup`.
#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    database: Database,
    /// The new database file
    target: PathBuf,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let db = open_to_read(&self.database.database)?;
        let items = db.backup(&self.target, &Db::options().expected_items(db.len()?))?;
        if self.json {
            return output::print_json(&json!({ "items": items }));
        }
        output::print(&format!("{}: {}", self.target.display(), count(items, "item")))
    }
}
