//! `everhash check`: is the file sound?

use clap::Args;
use everhash_store::Db;
use serde_json::json;

use super::Database;
use crate::failure::{Failure, Outcome};
use crate::output::{self, count};

/// Check the whole database without changing it; status 1 if it is damaged
///
/// It counts records: the pairs of all tables, the names of tables, and what is left of pairs whose
/// table was dropped or whose time has ended. A backup has the pairs alone.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    database: Database,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let path = &self.database.database;
        match Db::check_at_rest(path) {
            Ok(checked) if self.json => output::print_json(&json!({
                "sound": true,
                "records": checked.items,
                "reachable_bytes": checked.reachable_bytes,
            })),
            Ok(checked) => output::print(&format!(
                "{}: sound; {} in {}",
                path.display(),
                count(checked.items, "record"),
                count(checked.reachable_bytes, "byte")
            )),
            Err(error) if error.is_damage() => {
                if self.json {
                    let answer = json!({ "sound": false, "damage": error.to_string() });
                    Failure::unless_unread(output::print_json(&answer))?;
                }
                Err(Failure::damaged(&error))
            }
            Err(error) => Err(error.into()),
        }
    }
}
