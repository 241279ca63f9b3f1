//! `everhash get`: the value of one key.

use std::ffi::OsString;

use clap::Args;

use super::{Database, Escapes, open_to_read};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::records::tsv;

/// Print the value of a key; status 1 if it is absent
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    /// Print the value alone, without an end of line
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    escapes: Escapes,
}

impl Get {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let db = open_to_read(&self.database.database)?;
        let mut value = db.get(&key)?.ok_or_else(Failure::no)?;
        if self.escapes.escapes {
            let mut escaped = Vec::new();
            tsv::escape(&value, &mut escaped).expect("memory takes every byte");
            value = escaped;
        }
        output::bytes(&[&value, if self.raw { b"" } else { b"\n" }])
    }
}
