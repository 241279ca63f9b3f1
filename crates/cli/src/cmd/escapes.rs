//! How keys and values are written on the command line, and printed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::records::tsv;

/// How a key or a value is written on the command line.
#[derive(Debug, Args)]
pub(super) struct Escapes {
    /// Read \t, \n, \r and \\ in keys and values as escapes, and print values with escapes
    #[arg(short, long)]
    pub(super) escapes: bool,
}

impl Escapes {
    /// Returns the bytes that an argument means.
    pub(super) fn bytes(&self, argument: OsString) -> Outcome<Vec<u8>> {
        let bytes = argument.into_vec();
        if !self.escapes {
            return Ok(bytes);
        }
        tsv::unescape(&bytes, 1).map_err(|what| Failure::usage(what.replace(" of the line", "")))
    }

    /// Prints a value, and the end of a line unless it is to be `raw`.
    pub(super) fn print(&self, value: &[u8], raw: bool) -> Outcome {
        let mut escaped = Vec::new();
        let value = if self.escapes {
            tsv::escape(value, &mut escaped).expect("memory takes every byte");
            &escaped
        } else {
            value
        };
        output::bytes(&[value, if raw { b"" } else { b"\n" }])
    }
}
