//! `everhash compact`: gives back what a database does not need.

use clap::Args;
use everhash_store::{Db, Form};
use serde_json::json;

use super::{Database, InTable};
use crate::failure::Outcome;
use crate::output::{self, count};

/// Give back the storage that the database does not need any more; needs room for a copy
///
/// The pairs are written into a new file, which takes the place of the old one when it is complete
/// and durable. Settings of the engine are its defaults afterwards, but for its durability: a file
/// that was made with settings for smaller tables (--set) can become longer.
#[derive(Debug, Args)]
pub struct Compact {
    #[command(flatten)]
    database: Database,
    /// Remove all pairs; takes no time, however many there are
    #[arg(long)]
    truncate: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Compact {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let path = &self.database.database;
        let db = Db::open(path)?;
        let before = db.stats()?.device_bytes;
        let db = if self.truncate { db.truncate()? } else { db.compact()? };
        let (items, after) = (pairs(&db)?, db.stats()?.device_bytes);
        db.close()?;
        if self.json {
            let figures =
                json!({ "items": items, "file_bytes_before": before, "file_bytes": after });
            return output::print_json(&figures);
        }
        output::print(&format!(
            "{}: {}, {before} bytes before and {after} now",
            path.display(),
            count(items, "item")
        ))
    }
}

/// Returns the number of pairs of all tables.
fn pairs(db: &Db) -> Outcome<u64> {
    let mut count = db.len()?;
    if db.info().form == Form::Variable {
        for name in db.tables()? {
            count += InTable { table: Some(name) }.of(db.clone())?.len()?;
        }
    }
    Ok(count)
}
