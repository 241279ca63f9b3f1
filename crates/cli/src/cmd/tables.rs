//! `everhash tables`: which tables there are, and none of them.

use std::path::Path;

use clap::Args;
use everhash_store::Db;

use super::{Database, open_to_read};
use crate::failure::{Failure, Outcome};
use crate::output::Sink;
use crate::records::tsv;

/// Print the name of every table, a line each, sorted; or drop a table
///
/// \t, \n, \r and \\ stand for tab, line feed, carriage return and backslash in a name.
#[derive(Debug, Args)]
pub struct Tables {
    #[command(flatten)]
    database: Database,
    /// Drop this table and all its pairs instead; status 1 if there is none
    #[arg(long, value_name = "NAME")]
    drop: Option<String>,
}

impl Tables {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if let Some(name) = self.drop {
            let db = Db::open(&self.database.database)?;
            let dropped = db.drop_table(&name)?;
            db.close()?;
            return if dropped { Ok(()) } else { Err(Failure::no()) };
        }
        let db = open_to_read(&self.database.database)?;
        let mut sink = Sink::open(Path::new("-"))?;
        for name in db.tables()? {
            sink.write(|out| {
                tsv::escape(name.as_bytes(), out).and_then(|()| out.write_all(b"\n"))
            })?;
        }
        sink.finish()
    }
}
