//! `everhash remove`: one key.

use std::ffi::OsString;

use clap::Args;
use everhash_store::Db;

use super::{Database, Escapes};
use crate::failure::{Failure, Outcome};

/// Remove a key, durably; status 1 if it is absent
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    #[command(flatten)]
    escapes: Escapes,
}

impl Remove {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let db = Db::open(&self.database.database)?;
        let removed = db.remove(&key)?;
        db.close()?;
        if removed { Ok(()) } else { Err(Failure::no()) }
    }
}
