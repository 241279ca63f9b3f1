//! `everhash bench`: every engine beside the ceilings of the machine.

mod instructions;

use std::path::Path;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use everhash_bench::{Candidate, Plan, Report, Row, best_write_back, candidates, run};
use everhash_store::{Form, HashKind};
use indicatif::{ProgressBar, ProgressStyle};

use super::numbers::{SOME, whole};
use super::{form, setting};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Measure the engines in memory, beside what the machine gives at most
///
/// Every round measures the machine's ceilings and then every engine, so that a ratio compares what
/// was measured moments apart. Rates are per second of CPU time of the slowest thread, with real
/// flush instructions; every answer is checked.
///
/// With --instructions, operations are counted instead: exactly, on any machine.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only this engine; may be given more than once
    #[arg(long, value_name = "NAME")]
    engine: Vec<String>,
    /// Pairs to load
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = whole::<u64>(SOME))]
    items: u64,
    /// Form of the pairs: 8/8, 16/16 or variable (then keys and values of 16 bytes)
    #[arg(long, value_name = "FORM", default_value = "8/8", value_parser = form)]
    form: Form,
    /// Hash function of the tables: sip13, or xxh3 or rapid for keys that no attacker chooses
    #[arg(long, value_name = "NAME", default_value_t = HashKind::Sip13)]
    hash: HashKind,
    /// Numbers of threads, with commas; each is a series of its own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2",
          value_parser = whole::<u64>(SOME))]
    threads: Vec<u64>,
    /// How often everything is repeated
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = whole::<u32>(1..=u64::from(u32::MAX)))]
    rounds: u32,
    /// Let the tables grow from their default size instead of making them for all pairs
    #[arg(long)]
    growing: bool,
    /// Claim durable caches (eADR): tables flush nothing, and ElimDA appends to collecting logs
    #[arg(long)]
    durable_caches: bool,
    /// Setting of every engine that takes part, for ablations; see `everhash engines`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
    /// Count the instructions of each operation, one thread, instead of measuring time
    #[arg(long, conflicts_with_all = ["threads", "rounds"])]
    instructions: bool,
    /// Fail if the median operation takes more instructions, for example get=250
    #[arg(long, value_name = "WHAT=COUNT", requires = "instructions", value_parser = setting)]
    at_most: Vec<(String, u64)>,
    /// Do what is counted, for a parent that counts
    #[arg(long, hide = true)]
    counted: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let taking_part = self.candidates()?;
        for candidate in taking_part.iter().filter(|candidate| candidate.holds(self.form)) {
            let admitted = candidate.admit(self.form, &self.settings);
            admitted.map_err(|error| failed(None, &error))?;
        }
        let plan = Plan {
            items: self.items,
            form: self.form,
            hash: self.hash,
            threads: self.threads.clone(),
            rounds: self.rounds,
            presized: !self.growing,
            settings: self.settings.clone(),
            write_back: best_write_back(),
            durable_caches: self.durable_caches,
        };
        if self.counted {
            return instructions::be_child(&plan, &taking_part);
        }
        if self.instructions {
            return instructions::run(&plan, &taking_part, self.json, &self.at_most);
        }
        let progress = spinner();
        let done = run(&plan, &taking_part, &mut |what| progress.set_message(what.to_owned()));
        progress.finish_and_clear();
        let report = done.map_err(|error| failed(None, &error))?;
        if self.json {
            let figures = serde_json::to_value(&report).expect("figures have a JSON form");
            return output::print_json(&figures);
        }
        print(&report)
    }

    fn candidates(&self) -> Outcome<Vec<Candidate>> {
        let all = candidates();
        self.engine.iter().try_for_each(|name| named(&all, name).map(drop))?;
        let wanted = |candidate: &Candidate| {
            self.engine.is_empty() || self.engine.iter().any(|name| name == candidate.name)
        };
        Ok(all.into_iter().filter(wanted).collect())
    }
}

/// Returns the candidate of that name.
pub(super) fn named<'c>(all: &'c [Candidate], name: &str) -> Outcome<&'c Candidate> {
    all.iter().find(|candidate| candidate.name == name).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|candidate| candidate.name).collect();
        let known = known.join(", ");
        Failure::usage(format_args!("no engine is called '{name}'; there are: {known}"))
    })
}

/// Makes the failure of a run, in the file `path` if it is in one. A setting that there is not is a
/// wrong command line.
pub(super) fn failed(path: Option<&Path>, error: &everhash_index::Error) -> Failure {
    let place = path.map_or(String::new(), |path| format!("{}: ", path.display()));
    let message = format!("{place}{error}");
    match error {
        everhash_index::Error::Setting { .. } => Failure::usage(message),
        _ => Failure::device(message),
    }
}

/// Returns what shows that something goes on: nothing where standard error is no terminal.
pub(super) fn spinner() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    progress.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("it is valid"));
    progress.enable_steady_tick(core::time::Duration::from_millis(100));
    progress
}

fn print(report: &Report) -> Outcome {
    let sized = if report.presized { "made for them" } else { "growing" };
    let flushes = if report.durable_caches { "durable caches, ceilings flush" } else { "flushes" };
    output::print(&format!(
        "{} pairs of form {}, hash {}, tables {sized}, {flushes} by {}, {} rounds: median (least \
         to most)",
        report.items, report.form, report.hash, report.write_back, report.rounds
    ))?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "who",
        "what",
        "threads",
        "Mops/s CPU",
        "wall",
        "of the ceiling",
        "p50 ns",
        "p99",
        "p99.9",
        "most",
    ]);
    for row in &report.rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt().lines().try_for_each(output::print)
}

fn cells(row: &Row) -> [String; 10] {
    let rate = row.cpu_mops;
    let ratio = row.ratio.zip(row.ceiling).map(|(ratio, ceiling)| {
        let (median, min, max) = (ratio.median, ratio.min, ratio.max);
        format!("{median:.2} ({min:.2} to {max:.2}) of {}", ceiling.label())
    });
    let percentile = |f: fn(&everhash_bench::Latency) -> u64| {
        row.latency.as_ref().map_or(String::new(), |latency| f(latency).to_string())
    };
    [
        row.who.to_owned(),
        row.what.to_owned(),
        row.threads.to_string(),
        format!("{:.2} ({:.2} to {:.2})", rate.median, rate.min, rate.max),
        format!("{:.2}", row.wall_mops.median),
        ratio.unwrap_or_default(),
        percentile(|latency| latency.p50),
        percentile(|latency| latency.p99),
        percentile(|latency| latency.p99_9),
        percentile(|latency| latency.max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use everhash_bench::{Ceiling, Latency, Spread};

    #[test]
    fn each_figure_stands_in_its_column() {
        // Fails if two figures were exchanged, which all look plausible.
        let spread = |min, median, max| Spread { min, median, max };
        let row = Row {
            who: "reef",
            what: "get",
            threads: 2,
            cpu_mops: spread(1.0, 2.0, 3.0),
            wall_mops: spread(4.0, 5.0, 6.0),
            ceiling: Some(Ceiling::Read),
            ratio: Some(spread(0.25, 0.5, 0.75)),
            latency: Some(Latency { p50: 10, p99: 20, p99_9: 30, max: 40 }),
        };
        let ratio = format!("0.50 (0.25 to 0.75) of {}", Ceiling::Read.label());
        let expected =
            ["reef", "get", "2", "2.00 (1.00 to 3.00)", "5.00", &ratio, "10", "20", "30", "40"];
        assert_eq!(cells(&row), expected);
        let bare = Row { ceiling: None, ratio: None, latency: None, ..row };
        assert_eq!(cells(&bare)[5..], [""; 5]);
    }
}
