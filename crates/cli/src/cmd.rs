//! The commands: one file each.

mod add;
mod backup;
mod bench;
mod check;
mod clear;
mod compact;
mod completions;
mod contains;
mod count;
mod crash;
mod create;
mod device;
mod engines;
mod examples;
mod export;
mod figures;
#[cfg(feature = "judges")]
mod fuzz;
mod get;
mod import;
mod keys;
mod put;
#[cfg(feature = "judges")]
mod race;
mod record;
mod remove;
mod repair;
mod scale;
mod stats;
#[cfg(feature = "judges")]
mod subjects;
mod tables;
mod tiny;
mod top;
mod torture;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use everhash_store::{Db, Error, Expiring, Form, HashKind, Options, Pair, admit, admit_in_table};

use crate::failure::{Failure, Outcome, STATUSES};
use crate::output;
use crate::records::tsv;

/// Crash-consistent hash indexes as a key-value store: one file, byte strings, no server
#[derive(Debug, Parser)]
#[command(name = "everhash", version = env!("EVERHASH_VERSION"))]
#[command(after_help = STATUSES, disable_help_subcommand = true)]
#[command(max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_help = examples::IMPORT)]
    Import(import::Import),
    #[command(after_help = examples::EXPORT)]
    Export(export::Export),
    #[command(after_help = examples::GET)]
    Get(get::Get),
    #[command(after_help = examples::PUT)]
    Put(put::Put),
    #[command(after_help = examples::REMOVE)]
    Remove(remove::Remove),
    #[command(after_help = examples::CONTAINS)]
    Contains(contains::Contains),
    #[command(after_help = examples::KEYS)]
    Keys(keys::Keys),
    #[command(after_help = examples::COUNT)]
    Count(count::Count),
    #[command(after_help = examples::ADD)]
    Add(add::Add),
    #[command(after_help = examples::TABLES)]
    Tables(tables::Tables),
    #[command(after_help = examples::CLEAR)]
    Clear(clear::Clear),
    #[command(after_help = examples::CREATE)]
    Create(create::Create),
    #[command(after_help = examples::STATS)]
    Stats(stats::Stats),
    #[command(after_help = examples::TOP)]
    Top(top::Top),
    #[command(after_help = examples::CHECK)]
    Check(check::Check),
    #[command(after_help = examples::REPAIR)]
    Repair(repair::Repair),
    #[command(after_help = examples::COMPACT)]
    Compact(compact::Compact),
    #[command(after_help = examples::BACKUP)]
    Backup(backup::Backup),
    #[command(after_help = examples::ENGINES)]
    Engines(engines::Engines),
    #[command(after_help = examples::BENCH)]
    Bench(bench::Bench),
    #[command(after_help = examples::SCALE)]
    Scale(scale::Scale),
    #[command(after_help = examples::CRASH)]
    Crash(crash::Crash),
    #[cfg(feature = "judges")]
    #[command(after_help = examples::RACE)]
    Race(race::Race),
    #[cfg(feature = "judges")]
    #[command(after_help = examples::FUZZ)]
    Fuzz(fuzz::Fuzz),
    #[command(after_help = examples::TORTURE)]
    Torture(torture::Torture),
    #[command(after_help = examples::DEVICE)]
    Device(device::Device),
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Completions),
    #[command(after_help = examples::MAN)]
    Man(completions::Man),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Import(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Get(command) => command.run(),
            Command::Put(command) => command.run(),
            Command::Remove(command) => command.run(),
            Command::Contains(command) => command.run(),
            Command::Keys(command) => command.run(),
            Command::Count(command) => command.run(),
            Command::Add(command) => command.run(),
            Command::Tables(command) => command.run(),
            Command::Clear(command) => command.run(),
            Command::Create(command) => command.run(),
            Command::Stats(command) => command.run(),
            Command::Top(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Repair(command) => command.run(),
            Command::Compact(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Engines(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Scale(command) => command.run(),
            Command::Crash(command) => command.run(),
            #[cfg(feature = "judges")]
            Command::Race(command) => command.run(),
            #[cfg(feature = "judges")]
            Command::Fuzz(command) => command.run(),
            Command::Torture(command) => command.run(),
            Command::Device(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}

/// What can be chosen for a new database.
#[derive(Debug, Args)]
struct NewDatabase {
    /// Engine of a new database; see `everhash engines`
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Form of all pairs of a new database: variable, 8/8 or 16/16 (bytes of key/value)
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// Hash function of a new database: sip13, or for keys that nobody hostile chooses xxh3, which
    /// is faster, or rapid, which is the fastest
    #[arg(long, value_name = "NAME")]
    hash: Option<HashKind>,
    /// Number of pairs that a new database will hold, so that it need not grow up to there
    #[arg(long, value_name = "COUNT")]
    expect: Option<u64>,
    /// Mode of the file of a new database, in octal, less the umask; by default 600, its owner
    /// alone
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// Setting of the engine of a new database; see `everhash engines`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
}

impl NewDatabase {
    fn options(self) -> Options {
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

    /// Refuses what an existing database cannot be given any more.
    fn refuse_settings(&self, database: &Path) -> Outcome {
        if self.settings.is_empty() && self.expect.is_none() && self.mode.is_none() {
            return Ok(());
        }
        Err(Failure::usage(format_args!(
            "{}: exists, and settings are for new databases; leave out --set, --expect and --mode",
            database.display()
        )))
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    // A database that its owner cannot read and write is of no use.
    let mode = mode.filter(|mode| mode & 0o600 == 0o600);
    mode.ok_or_else(|| "write three octal digits, the first of them 6 or 7".into())
}

fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = value.replace('_', "").parse().map_err(|_| "the value must be a whole number")?;
    Ok((name.to_owned(), value))
}

/// How a key or a value is written on the command line.
#[derive(Debug, Args)]
struct Escapes {
    /// Read \t, \n, \r and \\ in keys and values as escapes, and print values with escapes
    #[arg(short, long)]
    escapes: bool,
}

impl Escapes {
    fn bytes(&self, argument: OsString) -> Outcome<Vec<u8>> {
        let bytes = argument.into_vec();
        if !self.escapes {
            return Ok(bytes);
        }
        tsv::unescape(&bytes, 1).map_err(|what| Failure::usage(what.replace(" of the line", "")))
    }

    /// Prints a value, and the end of a line unless it is to be `raw`.
    fn print(&self, value: &[u8], raw: bool) -> Outcome {
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

/// Opens a database to read it. Where it was not closed cleanly, it is recovered first.
///
/// Read-only: a table that grows beside a scan would show some pairs twice.
fn open_to_read(path: &Path) -> Outcome<Db> {
    match Db::open_read_only(path) {
        Err(Error::NeedsRecovery { .. }) => {
            Db::open(path)?.close()?;
            Ok(Db::open_read_only(path)?)
        }
        result => Ok(result?),
    }
}

/// The database file.
#[derive(Debug, Args)]
struct Database {
    /// The database file
    #[arg(value_name = "DB")]
    database: PathBuf,
}

/// The table of a command.
#[derive(Debug, Args)]
struct InTable {
    /// The table; by default the one without a name. put, add and import make it if it is not there
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

/// A table of either kind.
enum AnyTable {
    Plain(Db),
    Expiring(Expiring),
}

impl InTable {
    /// Returns a handle to the table, which is made if it is not there.
    fn of_or_new(&self, db: Db) -> Outcome<Db> {
        Ok(match &self.table {
            Some(name) => db.table_or_create(name)?,
            None => db,
        })
    }

    /// Returns a handle to the table, which must be there.
    fn of(&self, db: Db) -> Outcome<AnyTable> {
        Ok(match &self.table {
            None => AnyTable::Plain(db),
            Some(name) => match db.table(name) {
                Err(Error::TableKind { expiring: true, .. }) => {
                    AnyTable::Expiring(db.expiring_table(name)?)
                }
                found => AnyTable::Plain(found?),
            },
        })
    }
}

impl AnyTable {
    /// Tells whether the table takes such a pair.
    fn admit(&self, key: &[u8], value: &[u8]) -> everhash_store::Result<()> {
        match self {
            AnyTable::Plain(db) if db.table_name().is_none() => admit(db.info().form, key, value),
            AnyTable::Plain(_) => admit_in_table(key, value, false),
            AnyTable::Expiring(_) => admit_in_table(key, value, true),
        }
    }

    fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            AnyTable::Plain(db) => db.get(key)?,
            AnyTable::Expiring(table) => table.get(key)?,
        })
    }

    fn contains_key(&self, key: &[u8]) -> Outcome<bool> {
        Ok(match self {
            AnyTable::Plain(db) => db.contains_key(key)?,
            AnyTable::Expiring(table) => table.contains_key(key)?,
        })
    }

    fn take(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            AnyTable::Plain(db) => db.take(key)?,
            AnyTable::Expiring(table) => table.take(key)?,
        })
    }

    fn clear(&self) -> Outcome {
        match self {
            AnyTable::Plain(db) => db.clear()?,
            AnyTable::Expiring(table) => table.clear()?,
        }
        Ok(())
    }

    fn len(&self) -> Outcome<u64> {
        Ok(match self {
            AnyTable::Plain(db) => db.len()?,
            AnyTable::Expiring(table) => table.len()?,
        })
    }

    /// Returns every pair, in no order.
    fn iter(&self) -> Box<dyn Iterator<Item = everhash_store::Result<Pair>>> {
        match self {
            AnyTable::Plain(db) => Box::new(db.iter()),
            AnyTable::Expiring(table) => Box::new(table.iter()),
        }
    }

    /// Closes the database.
    fn close(self) -> Outcome {
        let db = match self {
            AnyTable::Plain(db) => db,
            AnyTable::Expiring(table) => table.db(),
        };
        Ok(db.close()?)
    }
}
