//! `everhash get`: the value of one key.

use std::ffi::OsString;

use clap::Args;

use super::numbers::whole;
use super::{Database, Escapes, InTable, open_to_read};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Print the value of a key; status 1 if it is absent
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: InTable,
    /// The key
    key: OsString,
    /// Print the value alone, without an end of line
    #[arg(long)]
    raw: bool,
    /// Print the length of the value in bytes instead; not with --raw, --range or --escapes
    #[arg(long, conflicts_with_all = ["raw", "range", "escapes"])]
    length: bool,
    /// Print a part of the value: bytes FROM to before TO, counted from 0; either may be left out
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    range: Option<(usize, usize)>,
    #[command(flatten)]
    escapes: Escapes,
}

impl Get {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let key = self.escapes.bytes(self.key)?;
        let table = self.table.of(open_to_read(&self.database.database)?)?;
        let value = table.get(&key)?.ok_or_else(Failure::no)?;
        if self.length {
            return output::print(&value.len().to_string());
        }
        let (from, to) = self.range.unwrap_or((0, usize::MAX));
        let to = to.min(value.len());
        self.escapes.print(&value[from.min(to)..to], self.raw)
    }
}

fn range(text: &str) -> Result<(usize, usize), String> {
    let (from, to) = text.split_once("..").ok_or("write FROM..TO")?;
    let bound = |text: &str, otherwise| match text {
        "" => Ok(otherwise),
        text => whole(0..=usize::MAX as u64)(text),
    };
    Ok((bound(from, 0)?, bound(to, usize::MAX)?))
}
