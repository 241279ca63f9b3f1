//! Compares Everhash with other embedded key-value stores: one driver, one machine, one run.
//!
//! Each store is measured in processes of its own, store after store in every round, so that
//! figures that stand side by side were measured minutes apart. Every answer is checked: a wrong
//! one ends the store's measurement, and the report says so.

mod child;
mod data;
mod phases;
mod plan;
mod report;
mod store;
mod stores;
mod system;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::Shape;
use crate::plan::{Line, Plan, Task};
use crate::report::{Column, Report};
use crate::store::{Durability, Entry, entries, entry};
use crate::system::{Group, facts, warm};

/// Threads that put at a time in the immediate series.
const IMMEDIATE_THREADS: [u64; 4] = [1, 2, 8, 16];

/// The command line.
#[derive(Parser)]
#[command(
    name = "everhash-compare",
    about = "Compares Everhash with other embedded key-value stores",
    after_help = "Examples:\n  \
                  everhash-compare run --items 5000000 --rounds 3 --markdown table.md\n  \
                  everhash-compare run --shape 8/8 --stores turbo,lmdb\n  \
                  everhash-compare run --memory-limit-mb 1024 --items 20000000"
)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure stores
    Run(Run),
    /// List the stores and their settings
    Stores,
    /// Do one task and print lines (used by `run`)
    #[command(hide = true)]
    Child {
        /// The task, as JSON
        plan: String,
    },
}

/// What to measure.
#[derive(clap::Args)]
struct Run {
    /// Stores, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    stores: Vec<String>,
    /// Bytes of a key (8 or 16) and of a value (8 to 1048576)
    #[arg(long, default_value = "16/100")]
    shape: Shape,
    /// Pairs that are loaded
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    items: u64,
    /// Numbers of threads, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u64>,
    /// When writes survive; stores that do not have a kind are left out of it
    #[arg(long, value_delimiter = ',', default_value = "process,batch")]
    durability: Vec<Durability>,
    /// How often everything is repeated; medians are shown
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of each phase, in milliseconds
    #[arg(long, default_value_t = 2000)]
    window_ms: u64,
    /// Longest load, in seconds; a slower store goes on with what it has by then
    #[arg(long, default_value_t = 120)]
    load_s: u64,
    /// How long a store is left alone after the churn before its files are measured, in seconds
    #[arg(long, default_value_t = 10)]
    idle_s: u64,
    /// Memory for the caches of stores that have their own, in MB
    #[arg(long, default_value_t = 4096)]
    cache_mb: u64,
    /// Memory that a store's process may use, page cache included, in MB [default: no limit]
    #[arg(long)]
    memory_limit_mb: Option<u64>,
    /// Memory to store to before each store's turn, in MB: the host of a virtual machine may give a
    /// page its memory only then, for some microseconds, and take it away from who has freed it
    #[arg(long, default_value_t = 0)]
    warm_mb: usize,
    /// Folder for the stores' files; a folder inside it is made and removed
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// File for the table
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// File for every value of every round
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        What::Run(run) => run.run(),
        What::Stores => {
            for Entry { name, settings, .. } in entries() {
                println!("{name}: {settings}");
            }
            Ok(())
        }
        What::Child { plan } => {
            serde_json::from_str(&plan).map_err(Into::into).and_then(|plan| child::run(&plan))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("everhash-compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Run {
    fn run(&self) -> Result<()> {
        ensure!(
            !self.threads.contains(&0) && self.rounds > 0,
            "0 threads or rounds measure nothing"
        );
        let chosen: Vec<Entry> = match self.stores.is_empty() {
            true => entries(),
            false => self.stores.iter().map(|name| entry(name)).collect::<Result<_>>()?,
        };
        let mut columns = Vec::new();
        for entry in &chosen {
            let has = |durability: &&Durability| entry.durability.contains(durability);
            for durability in self.durability.iter().filter(has) {
                columns.push((
                    *durability,
                    Column {
                        store: entry.name.clone(),
                        durability: durability.to_string(),
                        settings: entry.settings.to_owned(),
                        rows: vec![],
                        failures: vec![],
                    },
                ));
            }
        }
        ensure!(!columns.is_empty(), "no store has this durability");
        let scratch = tempfile::Builder::new()
            .prefix("everhash-compare-")
            .tempdir_in(&self.folder)
            .with_context(|| format!("no folder in {}", self.folder.display()))?;
        let group = self.memory_limit_mb.map(|limit| Group::new(limit << 20)).transpose()?;

        let bar = ProgressBar::new(u64::from(self.rounds) * columns.len() as u64);
        bar.set_style(
            ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}")
                .context("the template of the bar")?,
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        for round in 1..=self.rounds {
            for (durability, column) in &mut columns {
                bar.set_message("memory");
                warm(self.warm_mb << 20);
                for task in tasks(*durability) {
                    let plan = self.plan(task, *durability, &column.store, scratch.path());
                    let name = format!("round {round}, {} ({durability})", column.store);
                    let told = |what: &str| bar.set_message(format!("{name}: {what}"));
                    if let Err(error) = self.child(&plan, group.as_ref(), column, &told) {
                        column.failures.push(format!("round {round}, {task:?}: {error:#}"));
                        break;
                    }
                }
                std::fs::remove_dir_all(scratch.path().join("files")).ok();
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        self.tell(&Report { machine: facts(&self.folder), run: self.facts(), columns })
    }

    fn tell(&self, report: &Report) -> Result<()> {
        let text = report.markdown();
        match &self.markdown {
            Some(path) => std::fs::write(path, text)?,
            None => print!("{text}"),
        }
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_string_pretty(report)? + "\n")?;
        }
        Ok(())
    }

    fn facts(&self) -> Vec<(String, String)> {
        let Run { shape, items, rounds, window_ms, .. } = self;
        let memory = self.memory_limit_mb.map_or("not limited".to_owned(), |mb| format!("{mb} MB"));
        [
            ("pairs", format!("{items} of {shape} bytes")),
            ("windows", format!("{window_ms} ms, medians of {rounds} rounds")),
            ("memory of a store", memory),
            ("memory stored to before each", format!("{} MB", self.warm_mb)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn plan(
        &self,
        task: Task,
        durability: Durability,
        store: &str,
        scratch: &std::path::Path,
    ) -> Plan {
        let (folder, items) = match task {
            Task::Kill | Task::Recover => ("files/killed", self.items / 5),
            Task::Immediate => ("files/immediate", self.items),
            Task::Measure | Task::Reopen => ("files/measured", self.items),
        };
        let threads = match task {
            Task::Immediate => IMMEDIATE_THREADS.to_vec(),
            _ => self.threads.clone(),
        };
        Plan {
            task,
            store: store.to_owned(),
            folder: scratch.join(folder),
            shape: self.shape,
            durability,
            items,
            threads,
            window_ms: self.window_ms,
            load_s: self.load_s,
            idle_s: self.idle_s,
            cache_bytes: self.cache_mb << 20,
        }
    }

    /// Runs a child and adds its figures to `column`.
    fn child(
        &self,
        plan: &Plan,
        group: Option<&Group>,
        column: &mut Column,
        told: &dyn Fn(&str),
    ) -> Result<()> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("child")
            .arg(serde_json::to_string(plan)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(group) = group {
            group.add(child.id())?;
        }
        let out = child.stdout.take().context("the child has no output")?;
        for line in BufReader::new(out).lines() {
            match serde_json::from_str(&line?)? {
                Line::Begins(what) => told(&what),
                Line::Figure(figure) => column.add(figure),
            }
        }
        let ended = child.wait_with_output()?;
        use std::os::unix::process::ExitStatusExt;
        let killed_itself = plan.task == Task::Kill && ended.status.signal() == Some(9);
        if !ended.status.success() && !killed_itself {
            let text = String::from_utf8_lossy(&ended.stderr);
            bail!("{}: {}", ended.status, text.trim().lines().last().unwrap_or("it said nothing"));
        }
        Ok(())
    }
}

/// Returns what is done with a store, in order.
fn tasks(durability: Durability) -> Vec<Task> {
    match durability {
        Durability::Immediate => vec![Task::Immediate],
        Durability::Process | Durability::Batch => {
            vec![Task::Measure, Task::Reopen, Task::Kill, Task::Recover]
        }
    }
}
