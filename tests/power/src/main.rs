//! Cuts the power of a disk below a real file system, again and again, while processes write to a
//! database on it; and demands that the next start finds all that was durable.
//!
//! The explorer of `everhash crash` makes the states that its model of a file allows. Here the
//! kernel decides what reaches the disk, and in which order: write-back, journals, allocation, and
//! what a file system makes of holes and of a file that grows.

mod disk;
mod journal;
mod judge;
mod machine;
mod reader;
mod rounds;
mod work;
mod writer;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use everhash_store::{Db, Durability, Options, engine, engines};

use crate::machine::FileSystem;
use crate::rounds::{Case, Rounds};
use crate::work::Work;

/// Says how far the process is inside: 1, in a mount namespace of its own; 2, waited for there.
const INSIDE: &str = "EVERHASH_POWER_INSIDE";

/// The command line.
#[derive(Parser)]
#[command(
    name = "everhash-power",
    about = "Cuts the power below a file system while processes write to a database on it",
    after_help = "Needs Linux, root, losetup, mount, unshare, and mkfs of each file system.\n\n\
                  Exit status: 0 if every cut left what was durable, 1 if one did not or nothing \
                  could be tried"
)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Cut the power of each engine on each file system
    Run(Run),
    /// Write until the process is killed (used by `run`)
    #[command(hide = true)]
    Write(Writer),
    /// Say what a database holds (used by `run`)
    #[command(hide = true)]
    Read(Reader),
}

/// What to try.
#[derive(clap::Args)]
struct Run {
    /// File systems, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,xfs,btrfs,ext2")]
    file_systems: Vec<FileSystem>,
    /// Engines, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// When writes survive; `batch` is tried with engines that have it
    #[arg(long, value_delimiter = ',', default_value = "batch,immediate,process")]
    durability: Vec<Durability>,
    /// Cuts of each engine, file system and durability
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    cuts: u64,
    /// Length of the disk; a short one becomes full [default: what the file system likes]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    megabytes: Option<u64>,
    /// Settings of the engine, name=value, separated by commas
    #[arg(long, value_delimiter = ',')]
    set: Vec<String>,
    /// Decides every choice but those of the kernel
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the disk heed one of so many flushes, as no sound disk does: there are findings then
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    heed_flushes: u64,
    /// Where mount points and notes lie [default: the system's temporary folder]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// A database, for processes of their own.
#[derive(clap::Args, Clone)]
struct Database {
    #[arg(long)]
    path: PathBuf,
    #[arg(long)]
    engine: String,
    #[arg(long)]
    durability: Durability,
    #[arg(long, value_delimiter = ',')]
    set: Vec<String>,
}

impl Database {
    fn options(&self) -> Result<Options> {
        let options = Db::options().engine(self.engine.as_str()).durability(self.durability);
        self.set.iter().try_fold(options, |options, setting| {
            let (name, value) = setting.split_once('=').context("a setting is name=value")?;
            Ok(options.setting(name, value.parse()?))
        })
    }
}

#[derive(clap::Args)]
struct Writer {
    #[command(flatten)]
    database: Database,
    #[arg(long)]
    journals: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    keys: usize,
    #[arg(long)]
    batches: bool,
}

#[derive(clap::Args)]
struct Reader {
    #[command(flatten)]
    database: Database,
    #[arg(long)]
    report: PathBuf,
    /// Copy and compact it instead
    #[arg(long)]
    rewrite: bool,
}

fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        What::Run(run) => match std::env::var(INSIDE).as_deref() {
            Ok("2") => cut_all(&run),
            // If the one that is the disk is killed, another process must be left to unmount what
            // lies on it.
            Ok(_) => again(&mut Command::new(std::env::current_exe()?), "2"),
            // It ends with its processes: whatever happens, no mount is left, and nobody else sees
            // another name of the boot.
            Err(_) => {
                let mut unshare = Command::new("unshare");
                again(unshare.arg("--mount").arg(std::env::current_exe()?), "1")
            }
        },
        What::Write(Writer { database, journals, seed, keys, batches }) => {
            let work = Work { seed, keys, has_batches: batches };
            writer::write(&database.options()?, &database.path, &journals, &work)?;
            Ok(ExitCode::FAILURE)
        }
        What::Read(Reader { database, report, rewrite }) => {
            let options = database.options()?;
            match rewrite {
                true => reader::rewrite(&options, &database.path)?,
                false => reader::read(&options, &database.path, &report)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Does the same in another process.
fn again(command: &mut Command, inside: &str) -> Result<ExitCode> {
    let command = command.args(std::env::args_os().skip(1)).env(INSIDE, inside);
    let status =
        command.status().with_context(|| format!("{:?} is missing", command.get_program()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cut_all(run: &Run) -> Result<ExitCode> {
    let names: Vec<String> = match run.engines.is_empty() {
        true => engines().iter().map(|engine| engine.name.to_owned()).collect(),
        false => run.engines.clone(),
    };
    let mut findings = 0;
    for file_system in &run.file_systems {
        for durability in &run.durability {
            for name in &names {
                let kinds = engine(name)?.capabilities.durability;
                let has_batches = kinds.contains(&everhash_index::Durability::Batch);
                if *durability == Durability::Batch && !has_batches {
                    continue;
                }
                let case = Case {
                    file_system: *file_system,
                    engine: name,
                    durability: *durability,
                    settings: &run.set,
                    bytes: run.megabytes.map_or(file_system.bytes(), |count| count << 20),
                    heeds: run.heed_flushes,
                };
                findings += Rounds::new(case, run.seed, run.folder.as_deref())?.cut(run.cuts)?;
            }
        }
    }
    println!("{findings} findings");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
