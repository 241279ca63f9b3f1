//! `everhash scale`: one engine with as many pairs as the disk has room for.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use everhash_bench::{
    Candidate, ReadKind, Reads, ScalePlan, ScaleReport, Tail, candidates, reread, scale,
};
use everhash_pmem::FileDurability;
use everhash_store::HashKind;
use serde_json::json;

use super::bench::{failed, named, spinner};
use super::numbers::{ANY, SOME, whole};
use super::setting;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Fill a table in a file that may be larger than memory, and measure what only size shows
///
/// Pairs of 8/8 bytes are inserted one by one; each insert is timed. The file is then opened as
/// after a killed process, read at random (single pairs, 32 by one call, and absent keys), closed,
/// and opened again. It is removed in the end. A pair takes 32 to 45 bytes of the disk.
#[derive(Debug, Args)]
pub struct Scale {
    /// The file, which must not exist, or with --reread be one that --keep left
    file: PathBuf,
    /// The engine
    #[arg(long, value_name = "NAME", default_value = "reef")]
    engine: String,
    /// Pairs to insert
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000,
          value_parser = whole::<u64>(SOME))]
    items: u64,
    /// Pairs to read, in each way
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = whole::<u64>(ANY))]
    gets: u64,
    /// Threads of an open; 0 means one per processor
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = whole::<usize>(0..=usize::MAX as u64))]
    threads: usize,
    /// Hash function of the table: sip13, or xxh3 or rapid for keys that no attacker chooses
    #[arg(long, value_name = "NAME", default_value_t = HashKind::Sip13)]
    hash: HashKind,
    /// When an insert is durable: batch, in epochs of the engine, or process, at the sync in the
    /// end; by default batch if the engine can
    #[arg(long, value_enum, value_name = "WHEN")]
    durability: Option<Durable>,
    /// Make the table for the number of pairs instead of letting it grow
    #[arg(long)]
    presized: bool,
    /// Let the system forget the file's pages before each open
    #[arg(long)]
    cold: bool,
    /// Setting of the table, for ablations; see `everhash engines`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
    /// Leave the file where it is
    #[arg(long, conflicts_with = "reread")]
    keep: bool,
    /// Only open a file that was kept, and read from it: where there is less memory, perhaps
    #[arg(long, conflicts_with_all = ["presized", "settings"])]
    reread: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// When an insert survives power loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Durable {
    Batch,
    Process,
}

impl Scale {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let all = candidates();
        let candidate = named(&all, &self.engine)?;
        let durability = durability(self.durability, candidate)?;
        let plan = ScalePlan {
            durability,
            path: self.file,
            items: self.items,
            gets: self.gets.min(self.items),
            threads: self.threads,
            cold: self.cold,
            presized: self.presized,
            kept: self.keep,
            settings: self.settings,
            hash: self.hash,
        };
        let progress = spinner();
        let mut said = |what: &str| progress.set_message(what.to_owned());
        if self.reread {
            let done = reread(&plan, candidate, &mut said);
            progress.finish_and_clear();
            // What was measured before may be of another file.
            let (seconds, reads) = done.map_err(|error| {
                failed(Some(&plan.path), &error).after(
                    "(or the file is not the one that --keep left, or --items, --engine or --hash \
                     is not what it was made with)",
                )
            })?;
            if self.json {
                return output::print_json(&json!({ "open_seconds": seconds, "reads": reads }));
            }
            output::print(&opened("open", plan.items, seconds))?;
            return reads.iter().try_for_each(|reads| output::print(&read(reads)));
        }
        let done = scale(&plan, candidate, &mut said);
        progress.finish_and_clear();
        let report = done.map_err(|error| failed(Some(&plan.path), &error))?;
        if self.json {
            let figures = serde_json::to_value(&report).expect("figures have a JSON form");
            return output::print_json(&figures);
        }
        lines(&report).iter().try_for_each(|line| output::print(line))
    }
}

/// Returns what a fence waits for: for the device if the engine batches, unless a sync at the end
/// is enough.
fn durability(asked: Option<Durable>, candidate: &Candidate) -> Outcome<FileDurability> {
    match (asked, candidate.batches()) {
        (Some(Durable::Batch), false) => Err(Failure::usage(format_args!(
            "engine {} makes every insert durable on its own, which takes days; use --durability \
             process",
            candidate.name
        ))),
        (None | Some(Durable::Batch), true) => Ok(FileDurability::Immediate),
        (None, false) | (Some(Durable::Process), _) => Ok(FileDurability::Process),
    }
}

/// Returns millions a second.
fn millions(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-9) / 1e6
}

fn opened(what: &str, items: u64, seconds: f64) -> String {
    format!("{what}: {seconds:.3} s, {:.1} M pairs/s", millions(items, seconds))
}

fn read(reads: &Reads) -> String {
    let Reads { kind, count, seconds, minor_faults, major_faults } = *reads;
    let what = match kind {
        ReadKind::Single => "get",
        ReadKind::Batched => "get, 32 by one call",
        ReadKind::Absent => "get of absent keys",
    };
    format!(
        "{what}: {count} at random, {:.3} Mops/s, {minor_faults:.3} minor and {major_faults:.3} \
         major page faults each",
        millions(count, seconds)
    )
}

/// Returns the figures as people read them.
fn lines(report: &ScaleReport) -> Vec<String> {
    let ScaleReport { engine, items, reads, .. } = report;
    let Tail { p50, p99, p99_9, p99_99, p99_999, max } = report.insert;
    let mut lines = vec![
        format!("{items} pairs of form 8/8 in engine {engine}"),
        format!(
            "insert: {:.1} s, {:.2} Mops/s, {} growth steps; then a sync of {:.2} s",
            report.load_seconds,
            millions(*items, report.load_seconds),
            report.growth_steps,
            report.sync_seconds
        ),
        format!(
            "insert, ns: p50 {p50}, p99 {p99}, p99.9 {p99_9}, p99.99 {p99_99}, p99.999 {p99_999}, \
             most {max}"
        ),
        format!(
            "a pair: {:.1} bytes of the file ({:.1} used), {:.2} bytes of DRAM by the table's \
             count, {:.2} by the system's",
            report.file_bytes_per_item,
            report.used_bytes_per_item,
            report.dram_bytes_per_item,
            report.anonymous_bytes_per_item
        ),
        format!(
            "written: {:.0} bytes a pair, in whole pages of the file",
            report.written_bytes_per_item
        ),
        opened("open after a crash", *items, report.open_crashed_seconds),
    ];
    lines.extend(reads.iter().map(read));
    lines.push(format!("close: {:.3} s", report.close_seconds));
    lines.push(opened("open after a close", *items, report.open_clean_seconds));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_told_as_what_it_is() {
        // Fails if two figures were exchanged, which all look plausible.
        let reads = |kind, count| Reads {
            kind,
            count,
            seconds: 2.0,
            minor_faults: 0.25,
            major_faults: 0.125,
        };
        let report = ScaleReport {
            engine: "reef",
            items: 8_000_000,
            load_seconds: 4.0,
            insert: Tail { p50: 1, p99: 2, p99_9: 3, p99_99: 4, p99_999: 5, max: 6 },
            sync_seconds: 0.5,
            written_bytes_per_item: 70.0,
            growth_steps: 9,
            file_bytes_per_item: 40.0,
            used_bytes_per_item: 30.0,
            dram_bytes_per_item: 2.5,
            anonymous_bytes_per_item: 3.5,
            open_crashed_seconds: 8.0,
            reads: vec![
                reads(ReadKind::Single, 2_000_000),
                reads(ReadKind::Batched, 4_000_000),
                reads(ReadKind::Absent, 6_000_000),
            ],
            close_seconds: 0.125,
            open_clean_seconds: 16.0,
        };
        let faults = "0.250 minor and 0.125 major page faults each";
        let expected = [
            "8000000 pairs of form 8/8 in engine reef".to_owned(),
            "insert: 4.0 s, 2.00 Mops/s, 9 growth steps; then a sync of 0.50 s".to_owned(),
            "insert, ns: p50 1, p99 2, p99.9 3, p99.99 4, p99.999 5, most 6".to_owned(),
            "a pair: 40.0 bytes of the file (30.0 used), 2.50 bytes of DRAM by the table's count, \
             3.50 by the system's"
                .to_owned(),
            "written: 70 bytes a pair, in whole pages of the file".to_owned(),
            "open after a crash: 8.000 s, 1.0 M pairs/s".to_owned(),
            format!("get: 2000000 at random, 1.000 Mops/s, {faults}"),
            format!("get, 32 by one call: 4000000 at random, 2.000 Mops/s, {faults}"),
            format!("get of absent keys: 6000000 at random, 3.000 Mops/s, {faults}"),
            "close: 0.125 s".to_owned(),
            "open after a close: 16.000 s, 0.5 M pairs/s".to_owned(),
        ];
        assert_eq!(lines(&report), expected);
    }

    #[test]
    fn an_insert_is_durable_when_it_was_asked_to_be() {
        // Fails if the time of an insert were that with another durability.
        let [mut batching, mut others] = [0, 0];
        for candidate in candidates() {
            let durability = |asked| durability(asked, &candidate).ok();
            assert_eq!(durability(Some(Durable::Process)), Some(FileDurability::Process));
            let expected = candidate.batches().then_some(FileDurability::Immediate);
            assert_eq!(durability(Some(Durable::Batch)), expected, "{}", candidate.name);
            assert_eq!(durability(None), expected.or(Some(FileDurability::Process)));
            *if candidate.batches() { &mut batching } else { &mut others } += 1;
        }
        assert!(batching > 0 && others > 0, "{batching} and {others}");
    }
}
