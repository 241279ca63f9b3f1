//! A violation: short, and with a line that replays it.

use core::fmt;

use everhash_index::{Engine, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Model, Name};
use everhash_pmem::media::traced::Mutant;

use super::court::{Court, Found};
use super::effort::Effort;
use crate::Complaint;
use crate::shrink::minimise;
use crate::workload::{Op, parse, render};

/// How many lives one of the shorter workloads may take that are tried.
///
/// Source: ours; a workload of a few operations, examined closely, takes some thousand.
const LIVES: u64 = 5_000;

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
    /// What remained of it.
    pub operations: Vec<Op>,
    /// The crashes, each in the life of the process that the one before began; none if the engine
    /// is wrong without.
    pub crashes: Vec<Name>,
    /// The sites that the crashes prevented, where they name one.
    pub sites: Vec<Option<Site>>,
    /// What is wrong.
    pub complaint: Complaint,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { engine, form, model, seed, complaint, .. } = self;
        write!(f, "engine {engine}, form {form}, model {model}, seed {seed}")?;
        if let Some(mutant) = self.mutant {
            write!(f, ", mutant {mutant}")?;
        }
        let operations = render(&self.operations);
        writeln!(f, ":\n  {complaint}\n  operations: {operations}")?;
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
            "  replay: everhash_testkit::crash::replay::<E>(form, &effort, \"{operations}\", \
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
/// and capacity.
///
/// # Errors
/// What is wrong with the engine, or with the texts.
pub fn replay<E: Engine>(
    form: Form,
    effort: &Effort,
    operations: &str,
    crashes: &str,
) -> Result<(), Complaint> {
    replay_mutant::<E>(form, effort, None, operations, crashes)
}

/// As [`replay`], with one site of the engine changed.
///
/// # Errors
/// As [`replay`].
pub fn replay_mutant<E: Engine>(
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    operations: &str,
    crashes: &str,
) -> Result<(), Complaint> {
    let operations = parse(operations).map_err(|bad| Complaint::new(bad.to_string()))?;
    let crashes: Result<Vec<Name>, _> = crashes.split_whitespace().map(str::parse).collect();
    let crashes = crashes.map_err(|bad| Complaint::new(bad.to_string()))?;
    Court::<E>::new(form, effort, mutant).replay(&operations, &crashes)
}

/// Removes operations while the engine is still wrong.
pub(super) fn shorten<E: Engine>(
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    seed: u64,
    operations: Vec<Op>,
    found: Found,
) -> Violation {
    // Which lives are examined closely depends on how many there were before: here all are, so
    // that a shorter workload does not hide its violation.
    let close = Effort {
        nested_one_in: if found.crashes.len() > 1 { 1 } else { u64::MAX },
        killed_one_in: 1,
        restart_one_in: 1,
        growth_one_in: 1,
        ..effort.clone()
    };
    let mut found = found;
    let mut budget = effort.shorten_lives;
    let operations = minimise(operations, |operations| {
        let mut court = Court::<E>::new(form, &close, mutant).with_budget(LIVES.min(budget));
        let outcome = if budget > 0 { court.try_seed(operations) } else { Ok(()) };
        budget = budget.saturating_sub(court.lives());
        outcome.map_err(|shorter| found = shorter).is_err()
    });
    let Found { crashes, sites, complaint } = found;
    let (engine, model) = (E::NAME, effort.model);
    Violation { engine, form, model, mutant, seed, operations, crashes, sites, complaint }
}
