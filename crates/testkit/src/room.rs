//! Full media: growth and allocations that fail at any moment, and what the table does then.
//!
//! A workload runs once with room, and its growths and allocations are counted. Then it runs again
//! and again; each time one of those calls fails, alone or with all that follow, until two thirds
//! of the workload are done. From there on there is room again. Nothing may be reported that did
//! not happen, nothing may be lost, removing works without room, reading too, and with room again
//! every write succeeds and no space stays lost.

mod run;

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use everhash_index::{Design, Form};
use everhash_pmem::Image;

use crate::Failure;
use crate::failure::{ensure, no_panic};
use crate::random::Random;
use crate::shrink::minimise;
use crate::workload::{Bias, Op, Workload, parse, render};

/// How much the judge does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// One workload for each seed.
    pub seeds: Range<u64>,
    /// How many operations a workload has.
    pub operations: usize,
    /// How many different keys.
    pub keys: u16,
    /// How many of the calls of each kind fail in turn, at most; they are spread over all.
    pub points: u64,
}

impl Default for Effort {
    /// Five workloads, each with up to 12 failures of each kind.
    fn default() -> Self {
        Effort { seeds: 0..5, operations: 150, keys: 60, points: 12 }
    }
}

/// By how much more space than with room a table may use that nothing leads to, until it is opened
/// again. Unit: bytes. Source: ours; a few lines that were taken for a chain, or a tiny segment or
/// two.
const MOST_LOST_BYTES: u64 = 4096;

/// By how much more than with room may count as alive, until a table is opened again. Unit: bytes.
/// Source: ours; the head of a log or two, which an opening begins anew.
const MOST_KEPT_BYTES: u64 = 256;

/// What the judge did without finding anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Workloads.
    pub workloads: u64,
    /// Runs of a workload in which calls failed.
    pub runs: u64,
    /// Operations that said that there was no room.
    pub refused: u64,
    /// The most space that an open table lost beyond what it loses with room. Unit: bytes.
    pub lost_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workloads, runs, refused, lost_bytes } = self;
        write!(
            f,
            "{workloads} workloads, {runs} runs without room, {refused} operations refused, \
             at most {lost_bytes} bytes lost until the next open"
        )
    }
}

/// Which calls fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Growths of the medium, from one on.
    GrowthsFrom(u64),
    /// One growth of the medium.
    Growth(u64),
    /// Allocations, from one on.
    TakesFrom(u64),
    /// One allocation.
    Take(u64),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::GrowthsFrom(first) => write!(f, "growths-from:{first}"),
            Way::Growth(one) => write!(f, "growth:{one}"),
            Way::TakesFrom(first) => write!(f, "takes-from:{first}"),
            Way::Take(one) => write!(f, "take:{one}"),
        }
    }
}

impl FromStr for Way {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Way, Failure> {
        let (kind, number) = text.split_once(':').unwrap_or((text, ""));
        let way = match kind {
            "growths-from" => Way::GrowthsFrom,
            "growth" => Way::Growth,
            "takes-from" => Way::TakesFrom,
            "take" => Way::Take,
            _ => return Err(Failure::new(format!("'{text}' is no way; write take:3"))),
        };
        let number = number.parse().map_err(|_| Failure::new(format!("{text}: no number")))?;
        Ok(way(number))
    }
}

/// A workload that an engine does not bear without room, as short as it could be made.
#[derive(Clone)]
pub struct Violation {
    /// Name of the engine.
    pub engine: &'static str,
    /// The form of the pairs.
    pub form: Form,
    /// The seed of the workload.
    pub seed: u64,
    /// What fails.
    pub way: Option<Way>,
    /// What remained of the workload.
    pub operations: Vec<Op>,
    /// What is wrong.
    pub failure: Failure,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, operations) = (self.form, render(&self.operations));
        writeln!(f, "engine {}, form {form}, seed {}:", self.engine, self.seed)?;
        writeln!(f, "  {}", self.failure)?;
        let Some(way) = self.way else { return write!(f, "  with room for everything") };
        writeln!(f, "  {way} fails in: {operations}")?;
        write!(
            f,
            "  replay: everhash_testkit::room::replay(&design, form, {}, \"{way}\", \
             \"{operations}\")",
            self.seed
        )
    }
}

// As its text: judges are called with `unwrap`, which prints this.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl core::error::Error for Violation {}

/// Lets growths and allocations of tiny tables fail.
///
/// # Errors
/// The first workload that shows something wrong, minimised.
pub fn judge(
    design: &Design<Image>,
    form: Form,
    effort: &Effort,
) -> Result<Report, Box<Violation>> {
    let mut report = Report::default();
    for seed in effort.seeds.clone() {
        let ops = workload(effort, seed);
        let fail = |way, operations: &[Op], failure| {
            let operations = operations.to_vec();
            Box::new(Violation { engine: design.name, form, seed, way, operations, failure })
        };
        let attempt = |way, ops: &[Op]| no_panic(|| run::run(design, form, seed, way, ops));
        let calm = attempt(None, &ops).map_err(|failure| fail(None, &ops, failure))?;
        report.workloads += 1;
        let attempt = |way, ops: &[Op]| {
            let done = attempt(way, ops)?;
            let lost = done.lost_bytes.saturating_sub(calm.lost_bytes);
            ensure!(
                lost <= MOST_LOST_BYTES,
                "{lost} bytes more than with room stay in use until the next open"
            );
            let kept = done.kept_bytes.saturating_sub(calm.kept_bytes);
            ensure!(
                kept <= MOST_KEPT_BYTES,
                "{kept} bytes more than with room count as alive until the next open"
            );
            Ok(done)
        };
        for way in ways(&calm, effort.points) {
            match attempt(Some(way), &ops) {
                Ok(done) => {
                    report.runs += 1;
                    report.refused += done.refused;
                    let lost = done.lost_bytes.saturating_sub(calm.lost_bytes);
                    report.lost_bytes = report.lost_bytes.max(lost);
                }
                Err(mut failure) => {
                    let shorter = minimise(ops, |ops| match attempt(Some(way), ops) {
                        Ok(_) => false,
                        Err(found) => {
                            failure = found;
                            true
                        }
                    });
                    return Err(fail(Some(way), &shorter, failure));
                }
            }
        }
    }
    Ok(report)
}

/// Runs the operations of a violation again.
///
/// # Errors
/// What is wrong with the engine, or with the text.
pub fn replay(
    design: &Design<Image>,
    form: Form,
    seed: u64,
    way: &str,
    operations: &str,
) -> Result<(), Failure> {
    let ops = parse(operations).map_err(|bad| Failure::new(bad.to_string()))?;
    run::run(design, form, seed, Some(way.parse()?), &ops).map(drop)
}

/// Makes the operations of a seed: those of other judges, with more batches and clears.
fn workload(effort: &Effort, seed: u64) -> Vec<Op> {
    let bias = [Bias::Growth, Bias::Mixed, Bias::Reload, Bias::Churn][(seed % 4) as usize];
    let Effort { operations, keys, .. } = *effort;
    let workload = Workload { seed, operations, keys, bias, restarts: seed % 2 == 1 };
    let mut random = Random::new(!seed);
    let mut value = 1 << 20;
    let batch = |random: &mut Random, value: &mut u32| {
        let pair = |_| {
            *value += 1;
            (random.below(u64::from(keys)) as u16, *value)
        };
        Op::PutMany((0..12).map(pair).collect())
    };
    let ops = workload.generate().into_iter();
    ops.map(|op| match random.below(60) {
        0..=5 => batch(&mut random, &mut value),
        6 => Op::Clear,
        _ => op,
    })
    .collect()
}

/// Returns the failures of a workload: of each kind of call some, spread over all.
fn ways(calm: &run::Done, points: u64) -> Vec<Way> {
    let spread = |calls: u64| {
        let count = calls.min(points);
        (0..count).map(move |point| point * calls / count)
    };
    let mut ways = Vec::new();
    for call in spread(calm.growths) {
        ways.extend([Way::GrowthsFrom(call), Way::Growth(call)]);
    }
    for call in spread(calm.takes) {
        ways.extend([Way::TakesFrom(call), Way::Take(call)]);
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_survives_its_text_and_ways_are_spread_over_all_calls() {
        // Fails if a printed violation could not be replayed, or if only first calls fail.
        for way in [Way::GrowthsFrom(3), Way::Growth(0), Way::TakesFrom(17), Way::Take(2)] {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("take".parse::<Way>().is_err() && "give:1".parse::<Way>().is_err());
        let calm = run::Done { growths: 2, takes: 100, ..run::Done::default() };
        let ways = ways(&calm, 4);
        let growths = [0, 1].map(|call| [Way::GrowthsFrom(call), Way::Growth(call)]);
        let takes = [0, 25, 50, 75].map(|call| [Way::TakesFrom(call), Way::Take(call)]);
        assert_eq!(ways, [growths.concat(), takes.concat()].concat());
    }

    #[test]
    fn workloads_have_batches_and_clears() {
        // Fails if nothing is put by many at once while there is no room.
        let effort = Effort::default();
        let ops: Vec<Op> = (0..4).flat_map(|seed| workload(&effort, seed)).collect();
        let batches = ops.iter().filter(|op| matches!(op, Op::PutMany(it) if it.len() == 12));
        assert!(batches.count() > 30 && ops.contains(&Op::Clear));
        for seed in 0..4 {
            let restarts = workload(&effort, seed).iter().any(Op::restarts);
            assert_eq!(restarts, seed % 2 == 1, "seed {seed}");
        }
    }
}
