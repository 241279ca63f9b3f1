//! The commands: one file each.

mod add;
mod any_table;
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
mod escapes;
mod examples;
mod export;
mod figures;
#[cfg(feature = "judges")]
mod fuzz;
mod get;
mod import;
#[cfg(feature = "judges")]
mod judged_engines;
mod keys;
#[cfg(any(test, feature = "judges"))]
mod mutated_lines;
mod new_database;
mod numbers;
mod put;
#[cfg(feature = "judges")]
mod race;
mod remove;
mod repair;
mod scale;
mod stats;
mod tables;
mod tiny_settings;
mod top;
mod torture;
mod trust_figures;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use everhash_store::{Db, Error};

use crate::failure::{Failure, Outcome, SALVAGE, STATUSES};

use any_table::{AnyTable, InTable, TableToWrite};
use escapes::Escapes;
use new_database::{NewDatabase, form, setting};

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

/// The greatest first seed of a judge, which counts up from it.
///
/// Source: ours; more seeds than any run gets through are left after it.
const GREATEST_SEED: u64 = u64::MAX - (1 << 48);

/// Opens a database to read it. Where it was not closed cleanly, it is recovered first.
///
/// Read-only: a table that grows beside a scan would show some pairs twice.
fn open_to_read(path: &Path) -> Outcome<Db> {
    match Db::open_read_only(path) {
        Err(Error::NeedsRecovery { .. }) => {
            recover(path)?;
            Ok(Db::open_read_only(path)?)
        }
        result => Ok(result?),
    }
}

/// Recovers a database that was not closed cleanly.
fn recover(path: &Path) -> Outcome {
    let db = Db::open(path).map_err(|error| match error {
        // Reading it was allowed, so that its mode looks right.
        Error::Denied { path, .. } => Failure::device(format_args!(
            "{path}: was not closed cleanly, and recovering it needs permission to write; open it \
             once as its owner, or copy what it holds: {SALVAGE}"
        )),
        error => error.into(),
    })?;
    Ok(db.close()?)
}

/// The database file.
#[derive(Debug, Args)]
struct Database {
    /// The database file
    #[arg(value_name = "DB")]
    database: PathBuf,
}

/// Returns a command with these options, for tests.
#[cfg(test)]
fn parsed<A: Args>(options: &[&str]) -> A {
    let command = A::augment_args(clap::Command::new(""));
    let matches = command.get_matches_from([&[""][..], options].concat());
    A::from_arg_matches(&matches).expect("clap has checked them")
}
