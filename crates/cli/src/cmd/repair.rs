//! `everhash repair`: makes a database usable after power loss under relaxed durability, or copies
//! what is intact of a damaged one.

use std::path::{Path, PathBuf};

use clap::Args;
use everhash_store::{Damage, Db, Salvaged};
use serde_json::json;

use super::Database;
use crate::failure::{Failure, Outcome};
use crate::output::{self, count};

/// Make a database usable after power loss under relaxed durability, or salvage a damaged one
///
/// The database is checked first. If its structure is sound, it is recovered and closed cleanly: it
/// then holds what was stored last, which may be older for some keys than for others. If it is
/// damaged, nothing is changed and the status is 1; --into then copies every pair that is intact
/// into a new database and lists the damages, and the status is 1 if there were any. Of a key whose
/// newest pair is damaged, an older one may be copied, also if the key was removed (engines reef
/// and tiered). Where there is a backup, prefer that.
#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    database: Database,
    /// Copy all pairs that are intact into this new database, and only read the old one
    #[arg(long, value_name = "NEW_DB")]
    into: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let path = &self.database.database;
        if let Some(target) = &self.into {
            return self.salvage(path, target);
        }
        let checked = Db::repair(path).map_err(|error| {
            if error.is_damage() { Failure::damaged(&error) } else { Failure::from(error) }
        })?;
        if self.json {
            return output::print_json(&json!({ "records": checked.items }));
        }
        let records = count(checked.items, "record");
        output::print(&format!("{}: usable; {records}", path.display()))
    }

    fn salvage(&self, path: &Path, target: &Path) -> Outcome {
        let salvaged =
            Db::salvage(path, target, &Db::options()).map_err(|error| match error.damage() {
                Some(damage) => Failure::answer(format_args!(
                    "{}: {damage}; without that nothing can be copied; restore a backup",
                    path.display()
                )),
                None => Failure::from(error),
            })?;
        Failure::unless_unread(self.print(&salvaged, path, target))?;
        match salvaged.damages {
            0 => Ok(()),
            damages => Err(Failure::answer(format_args!(
                "{}: {} passed over",
                path.display(),
                count(damages, "damage")
            ))),
        }
    }

    fn print(&self, salvaged: &Salvaged, path: &Path, target: &Path) -> Outcome {
        if self.json {
            let place = |damage: &Damage| json!({ "at": damage.at, "invariant": damage.broken });
            return output::print_json(&json!({
                "items": salvaged.items,
                "damages": salvaged.damages,
                "listed": salvaged.listed.iter().map(place).collect::<Vec<_>>(),
            }));
        }
        for damage in &salvaged.listed {
            output::print(&format!("{}: {damage}", path.display()))?;
        }
        output::print(&format!("{}: {}", target.display(), count(salvaged.items, "item")))
    }
}
