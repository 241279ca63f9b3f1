//! `everhash repair`: makes a database usable after a power failure under relaxed durability.

use clap::Args;
use everhash_store::Db;
use serde_json::json;

use super::Database;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Accept what a power failure left of a database that was open with relaxed durability
///
/// The database is checked first; if it is damaged, nothing is changed and the status is 1. If its
/// structure is sound, it is recovered and closed cleanly. What it holds may be older than the last
/// writes, differently for different keys: where there is a backup, prefer that.
#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    database: Database,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let path = &self.database.database;
        let checked = Db::repair(path).map_err(|error| {
            if error.is_damage() { Failure::answer(error) } else { Failure::from(error) }
        })?;
        if self.json {
            return output::print_json(&json!({ "items": checked.items }));
        }
        output::print(&format!("{}: usable; {} items", path.display(), checked.items))
    }
}
