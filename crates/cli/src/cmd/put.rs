//! `everhash put`: one pair.

use std::ffi::OsString;
use std::io::Read;
use std::time::Duration;

use clap::Args;
use everhash_store::{Db, MAX_VALUE_BYTES, Swap, admit_in_table};

use super::{Database, Escapes, TableToWrite};
use crate::failure::{Failure, Outcome};

/// Store a pair, durably; status 1 if --if-absent, --if-present or --if-value forbids it
#[derive(Debug, Args)]
pub struct Put {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: TableToWrite,
    /// The key
    key: OsString,
    /// The value
    #[arg(required_unless_present = "stdin")]
    value: Option<OsString>,
    /// Read the value from standard input, as it is
    #[arg(long, conflicts_with = "value")]
    stdin: bool,
    /// Store only if the key is absent
    #[arg(long, conflicts_with_all = ["if_present", "if_value", "print_old"])]
    if_absent: bool,
    /// Store only if the key is present; makes no table
    #[arg(long, conflicts_with_all = ["if_value", "print_old"])]
    if_present: bool,
    /// Store only if the key has this value; makes no table
    #[arg(long, value_name = "OLD", conflicts_with = "print_old")]
    if_value: Option<OsString>,
    /// Print the value that the key had before, if it had one
    #[arg(long)]
    print_old: bool,
    /// Let the pair expire after so many seconds. The table must have expiry times; it is made with
    /// them if it is not there. Not with --if-value or --print-old
    #[arg(long, value_name = "SECONDS", requires = "table", value_parser = seconds,
          conflicts_with_all = ["if_value", "print_old"])]
    expires_after: Option<Duration>,
    #[command(flatten)]
    escapes: Escapes,
}

impl Put {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let path = self.database.database.clone();
        self.store().map_err(|failure| failure.of(&path))
    }

    fn store(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let value = match self.value {
            Some(value) => self.escapes.bytes(value)?,
            None => standard_input()?,
        };
        let expected = self.if_value.map(|old| self.escapes.bytes(old)).transpose()?;
        let db = Db::open(&self.database.database)?;
        // What asks for a pair that is there makes no table.
        if let Some(name) = &self.table.table
            && (self.if_present || expected.is_some())
            && !db.tables()?.contains(name)
        {
            db.close()?;
            return Err(Failure::no());
        }
        if self.table.table.is_some() {
            // A table that is not there is not made for a pair that is refused.
            admit_in_table(&key, &value, self.expires_after.is_some())?;
        }
        if let (Some(after), Some(name)) = (self.expires_after, &self.table.table) {
            let table = db.expiring_table_or_create(name)?;
            let stored = if self.if_absent {
                table.put_if_absent(&key, &value, after)?
            } else if self.if_present {
                table.update(&key, &value, after)?
            } else {
                table.put(&key, &value, after)?;
                true
            };
            drop(table);
            db.close()?;
            return if stored { Ok(()) } else { Err(Failure::no()) };
        }
        let db = self.table.of_or_new(db)?;
        let mut old = None;
        let stored = if self.if_absent {
            db.put_if_absent(&key, &value)?
        } else if self.if_present {
            db.update(&key, &value)?
        } else if expected.is_some() {
            db.compare_and_swap(&key, expected.as_deref(), Some(&value))? == Swap::Done
        } else if self.print_old {
            old = db.replace(&key, &value)?;
            true
        } else {
            db.put(&key, &value)?;
            true
        };
        db.close()?;
        if let Some(old) = old {
            self.escapes.print(&old, false)?;
        }
        if stored { Ok(()) } else { Err(Failure::no()) }
    }
}

/// Reads how long a pair lasts.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| "write a number of seconds")?;
    Duration::try_from_secs_f64(number)
        .map_err(|_| format!("write a number of seconds from 0 to {}", u64::MAX))
}

fn standard_input() -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    // One byte more than allowed, so that a longer value is refused and not cut.
    let mut limited = std::io::stdin().take(MAX_VALUE_BYTES as u64 + 1);
    let read = limited.read_to_end(&mut value);
    read.map_err(|error| Failure::input(format_args!("standard input: cannot be read: {error}")))?;
    Ok(value)
}
