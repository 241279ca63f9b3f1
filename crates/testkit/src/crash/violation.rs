//! A violation: minimised, and with a line that replays it.

use core::fmt;

use everhash_index::{Design, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Model, Name};
use everhash_pmem::media::traced::{Mutant, Traced};

use super::checker::{CrashChecker, Found};
use super::effort::Effort;
use crate::Failure;
use crate::shrink::minimise;
use crate::workload::{Op, parse, render};

/// How many executions each shorter workload may take while a violation is minimised.
///
/// Source: ours; a workload of a few operations, examined closely, takes some thousand.
const EXECUTIONS: u64 = 5_000;

/// Crashes after which an engine does not do what it promises.
#[derive(Clone)]
pub struct Violation {
    /// Name of the engine.
    pub engine: &'static str,
    /// The form of the pairs.
    pub form: Form,
    /// What a crash may leave.
    pub model: Model,
    /// What was changed in the engine, if anything.
    pub mutant: Option<Mutant>,
    /// The seed of the workload.
    pub seed: u64,
    /// The operations that remain of it.
    pub operations: Vec<Op>,
    /// The crashes, each in the execution that follows the one before. Empty if the engine fails
    /// without a crash.
    pub crashes: Vec<Name>,
    /// The site that each crash prevented, if the log names one.
    pub sites: Vec<Option<Site>>,
    /// What is wrong.
    pub failure: Failure,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { engine, form, model, seed, failure, .. } = self;
        write!(f, "engine {engine}, form {form}, model {model}, seed {seed}")?;
        if let Some(mutant) = self.mutant {
            write!(f, ", mutant {mutant}")?;
        }
        let operations = render(&self.operations);
        writeln!(f, ":\n  {failure}\n  operations: {operations}")?;
        for (crash, site) in self.crashes.iter().zip(&self.sites) {
            match site {
                Some(site) => writeln!(f, "  crash: {crash}, before {site:?}")?,
                None => writeln!(f, "  crash: {crash}")?,
            }
        }
        let crashes: Vec<String> = self.crashes.iter().map(Name::to_string).collect();
        let crashes = crashes.join(" ");
        write!(
            f,
            "  replay: everhash_testkit::crash::replay(&design, form, &effort, \"{operations}\", \
             \"{crashes}\")"
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

/// Judges the one state that a violation names, in an effort with the same model, number of keys
/// and capacity. Whether its seed kept what was freed is not named: both is tried.
///
/// # Errors
/// What is wrong with the engine, or with the texts.
pub fn replay(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    operations: &str,
    crashes: &str,
) -> Result<(), Failure> {
    replay_mutant(design, form, effort, None, operations, crashes)
}

/// As [`replay`], with one site of the engine changed.
///
/// # Errors
/// As [`replay`].
pub fn replay_mutant(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    operations: &str,
    crashes: &str,
) -> Result<(), Failure> {
    let operations = parse(operations).map_err(|bad| Failure::new(bad.to_string()))?;
    let crashes: Result<Vec<Name>, _> = crashes.split_whitespace().map(str::parse).collect();
    let crashes = crashes.map_err(|bad| Failure::new(bad.to_string()))?;
    let mut stale = Vec::new();
    for overwrite_freed in [effort.overwrite_freed, false] {
        let effort = Effort { overwrite_freed, ..effort.clone() };
        match CrashChecker::new(design, form, &effort, mutant).replay(&operations, &crashes) {
            Err(failure) if failure.is_stale() => stale.push(failure),
            outcome @ Err(_) => return outcome,
            Ok(()) => {}
        }
    }
    // Where one of the two leads to the state, the text is not stale.
    if stale.len() < 2 { Ok(()) } else { stale.pop().map_or(Ok(()), Err) }
}

/// Removes operations while the engine is still wrong.
pub(super) fn shorten(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    seed: u64,
    operations: Vec<Op>,
    found: Found,
) -> Violation {
    // The number of an execution decides how closely it is examined. Here all are examined closely,
    // so that a shorter workload does not hide its violation.
    let close = Effort {
        nested_one_in: if found.crashes.len() > 1 { 1 } else { u64::MAX },
        killed_one_in: 1,
        checked_one_in: 1,
        restart_one_in: 1,
        closed_one_in: 1,
        growth_one_in: 1,
        ..effort.of_seed(seed)
    };
    let (engine, model) = (design.name, effort.model);
    let mut shortest = {
        let Found { crashes, sites, failure } = found;
        Violation { engine, form, model, mutant, seed, operations, crashes, sites, failure }
    };
    (effort.watch)(&shortest);
    let mut budget = effort.shorten_executions;
    minimise(shortest.operations.clone(), |operations| {
        let mut checker =
            CrashChecker::new(design, form, &close, mutant).with_budget(EXECUTIONS.min(budget));
        let outcome = if budget > 0 { checker.try_seed(operations) } else { Ok(()) };
        budget = budget.saturating_sub(checker.executions());
        let Err(Found { crashes, sites, failure }) = outcome else { return false };
        let operations = operations.to_vec();
        shortest = Violation { operations, crashes, sites, failure, ..shortest.clone() };
        (effort.watch)(&shortest);
        true
    });
    shortest
}
