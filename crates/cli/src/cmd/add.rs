//! `everhash add`: counts.

use std::ffi::OsString;

use clap::Args;
use everhash_store::{Change, Db, admit_in_table};

use super::numbers::signed;
use super::{Database, Escapes, TableToWrite};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Add to a value that is a decimal number, in one step and durably, and print the sum
///
/// A key that is absent counts as 0. A value that is no whole number from -2^63 to 2^63 - 1 stays,
/// and the status is 1, as it is if the sum would be none.
#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: TableToWrite,
    /// The key
    key: OsString,
    /// How much to add
    #[arg(default_value_t = 1, allow_negative_numbers = true, value_parser = signed)]
    number: i64,
    #[command(flatten)]
    escapes: Escapes,
}

impl Add {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let path = &self.database.database;
        let db = Db::open(path)?;
        if self.table.table.is_some() {
            // A table that is not there is not made for a key that is refused; a sum is short.
            admit_in_table(&key, &[], false).map_err(|error| Failure::from(error).of(path))?;
        }
        let db = self.table.of_or_new(db)?;
        let changed = db.try_modify(key, |value| {
            let before = value.map_or(Some(0), number).ok_or("the value is no whole number")?;
            let sum = before.checked_add(self.number).ok_or("the sum is too large")?;
            Ok::<_, &str>((Change::Put(sum.to_string().into_bytes()), sum))
        });
        let sum = changed.map_err(|error| Failure::from(error).of(path))?;
        db.close()?;
        let refused = |why| Failure::answer(format_args!("{}: {why}; it stays", path.display()));
        output::print(&sum.map_err(refused)?.to_string())
    }
}

fn number(value: &[u8]) -> Option<i64> {
    str::from_utf8(value).ok()?.parse().ok()
}
