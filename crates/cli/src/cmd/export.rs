//! `everhash export`: all pairs as text.

use std::path::PathBuf;

use clap::Args;
use everhash_store::Pair;

use super::{AnyTable, Database, InTable, open_to_read};
use crate::failure::{Failure, Outcome};
use crate::output::Sink;
use crate::records::Format;

/// Write all pairs to a file or standard output, in a form that import reads
///
/// A file appears, or replaces the one of its name and gets its mode, when it is complete. A
/// database is never replaced. Of a table with expiry times the pairs that have not ended are
/// written, without their times.
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
    /// The file to write; - is standard output
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Format; by default jsonl if the name of the file ends in .jsonl, .ndjson or .json, else tsv
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Sort by the bytes of the keys, so that equal databases give equal files; needs memory for
    /// all pairs
    #[arg(long)]
    sort: bool,
}

impl Export {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let format = Format::choose(self.format, &self.file);
        let own = |path| std::fs::canonicalize(path).ok();
        if own(&self.file).is_some_and(|file| Some(file) == own(&self.database.database)) {
            let file = self.file.display();
            return Err(Failure::usage(format_args!("{file}: is the database; name another file")));
        }
        let table = self.table.of(open_to_read(&self.database.database)?)?;
        let mut sink = Sink::open(&self.file)?;
        if self.sort {
            for (key, value) in sorted(&table)? {
                sink.write(|out| format.write(&key, &value, out))?;
            }
        } else {
            for pair in table.iter() {
                let (key, value) = pair?;
                sink.write(|out| format.write(&key, &value, out))?;
            }
        }
        sink.finish()
    }
}

fn sorted(table: &AnyTable) -> Outcome<Vec<Pair>> {
    let mut pairs: Vec<Pair> = table.iter().collect::<Result<_, _>>()?;
    pairs.sort_unstable();
    pairs.dedup();
    Ok(pairs)
}
