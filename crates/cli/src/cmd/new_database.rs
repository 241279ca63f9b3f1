//! What can be chosen for a new database.

use std::path::Path;

use clap::Args;
use everhash_engines::ENGINES;
use everhash_store::{Db, Form, HashKind, Options, ParseError};

use super::numbers::{ANY, whole};
use crate::failure::{Failure, Outcome};

/// What can be chosen for a new database.
#[derive(Debug, Args)]
pub(super) struct NewDatabase {
    /// Engine of a new database; see `everhash engines`
    #[arg(long, value_name = "NAME")]
    pub(super) engine: Option<String>,
    /// Form of all pairs of a new database: variable, 8/8 or 16/16 (bytes of key/value)
    #[arg(long, value_name = "FORM", value_parser = form)]
    pub(super) form: Option<Form>,
    /// Hash function of a new database: sip13, or for keys that nobody hostile chooses xxh3, which
    /// is faster, or rapid, which is the fastest
    #[arg(long, value_name = "NAME")]
    pub(super) hash: Option<HashKind>,
    /// Number of pairs that a new database will hold. Turbo, wophi, elimda and tiered make room for
    /// them at once; the file of reef or walsh grows all the same. Refused for one that exists
    #[arg(long, value_name = "COUNT", value_parser = whole::<u64>(ANY))]
    pub(super) expect: Option<u64>,
    /// Mode of the file of a new database, in octal, less the umask; by default 600, its owner
    /// alone; refused for one that exists
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(super) mode: Option<u32>,
    /// Setting of the engine of a new database; see `everhash engines`; refused for one that exists
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(super) settings: Vec<(String, u64)>,
}

impl NewDatabase {
    pub(super) fn options(self) -> Options {
        let mut options = Db::options();
        if let Some(engine) = self.engine {
            options = options.engine(engine);
        }
        if let Some(form) = self.form {
            options = options.form(form);
        }
        if let Some(hash) = self.hash {
            options = options.hash(hash);
        }
        if let Some(count) = self.expect {
            options = options.expected_items(count);
        }
        if let Some(mode) = self.mode {
            options = options.mode(mode);
        }
        for (name, value) in self.settings {
            options = options.setting(name, value);
        }
        options
    }

    /// Returns how to tell why the database could not be made, or opened if it exists: of such a
    /// one no size was chosen.
    pub(super) fn failure(&self) -> fn(everhash_store::Error) -> Failure {
        if self.is_sized() { Failure::of_new } else { Failure::from }
    }

    /// Returns whether the size of the new database was chosen.
    fn is_sized(&self) -> bool {
        self.expect.is_some() || !self.settings.is_empty()
    }

    /// Refuses what an existing database cannot be given any more.
    pub(super) fn refuse_settings(&self, database: &Path) -> Outcome {
        if !self.is_sized() && self.mode.is_none() {
            return Ok(());
        }
        Err(Failure::usage(format_args!(
            "{}: exists, and settings are for new databases; leave out --set, --expect and --mode",
            database.display()
        )))
    }
}

/// Reads the mode of a file.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    // A database that its owner cannot read and write is of no use.
    let mode = mode.filter(|mode| mode & 0o600 == 0o600);
    mode.ok_or_else(|| "write three octal digits, the first of them 6 or 7".into())
}

/// Reads a form of pairs.
pub(super) fn form(text: &str) -> Result<Form, String> {
    let form = text.parse().map_err(|error: ParseError| error.to_string())?;
    match ENGINES.iter().any(|about| about.capabilities.holds(form)) {
        true => Ok(form),
        false => Err("no engine has this form; use 8/8, 16/16 or variable".into()),
    }
}

/// Reads a setting of an engine.
pub(super) fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), whole(ANY)(&value.replace('_', ""))?))
}
