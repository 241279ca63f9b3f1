//! Records as text: what import reads and export writes.

pub mod jsonl;
pub mod tsv;

use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;

use crate::failure::Outcome;
use crate::input::Lines;

/// A way to write records as text, one a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Key, tab, value; `\t`, `\n`, `\r` and `\\` stand for tab, line feed, carriage return and
    /// backslash; every other byte stands for itself
    Tsv,
    /// One JSON object a line: `{"key":"...","value":"..."}`; bytes that are no UTF-8 text as
    /// `key_hex` and `value_hex`
    Jsonl,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

impl Format {
    /// Returns the format that was asked for, or the one that the name of the file tells.
    pub fn choose(asked: Option<Format>, path: &Path) -> Format {
        let json = ["jsonl", "ndjson", "json"].map(Some);
        let extension = path.extension().and_then(|extension| extension.to_str());
        asked.unwrap_or(if json.contains(&extension) { Format::Jsonl } else { Format::Tsv })
    }

    /// Reads the next record; `None` at the end.
    pub fn read(self, lines: &mut Lines) -> Outcome<Option<Pair>> {
        let Some(line) = lines.next_line()? else { return Ok(None) };
        let parsed = match self {
            Format::Tsv => tsv::parse(line),
            Format::Jsonl => jsonl::parse(line),
        };
        parsed.map(Some).map_err(|what| match lines.is_unended {
            false => lines.wrong(what),
            true => lines.wrong(format_args!(
                "{what}; no line end follows, so that the input may have been cut off"
            )),
        })
    }

    /// Writes a record.
    pub fn write(self, key: &[u8], value: &[u8], out: &mut dyn Write) -> io::Result<()> {
        match self {
            Format::Tsv => tsv::write(key, value, out),
            Format::Jsonl => jsonl::write(key, value, out),
        }
    }
}
