//! `everhash keys`: every key.

use std::path::Path;

use clap::Args;

use super::{Database, InTable, open_to_read};
use crate::failure::Outcome;
use crate::output::Sink;
use crate::records::tsv;

/// Print every key, a line each, in no order
///
/// \t, \n, \r and \\ stand for tab, line feed, carriage return and backslash, as in an export.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
}

impl Keys {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let table = self.table.of(open_to_read(&self.database.database)?)?;
        let mut sink = Sink::open(Path::new("-"))?;
        for pair in table.iter() {
            let (key, _) = pair?;
            sink.write(|out| tsv::escape(&key, out).and_then(|()| out.write_all(b"\n")))?;
        }
        sink.finish()
    }
}
