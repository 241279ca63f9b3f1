//! The crash judge: crashes an engine at every point that matters, and checks the state it leaves.
//!
//! A workload runs on a [`Traced`] medium. The explorer of [`everhash_pmem::crash`] then builds the
//! images that a crash may leave: all where they are few, else a sample. For each image the judge
//!
//! 1. opens it: an error is a violation, and so is a panic;
//! 2. reads everything out by every access path. The contents must be those before or after the
//!    operation in flight. If the engine batches durability, each partition
//!    ([`everhash_index::Table::durability_partition`]) must be as it was at one moment since the
//!    last sync; after a killed process, nothing may be lost;
//! 3. continues to operate: it removes and re-inserts the key of the operation in flight, inserts
//!    enough keys to grow the table, closes, opens, and compares all answers and contents again;
//! 4. for some images, crashes again during the recovery and during those operations, up to a
//!    chosen depth. What the first recovery returned must survive. Power losses follow one
//!    another, and they follow killed processes, after which data is visible but not yet durable.
//!
//! The judge minimises a violation and prints it with a line that replays it.
//!
//! ```
//! use everhash_index::{Design, Form};
//! use everhash_testkit::crash::{Effort, judge};
//! use everhash_testkit::reference::Reference;
//!
//! let effort = Effort { seeds: 0..1, operations: 6, ..Effort::default() };
//! let report = judge(&Design::of::<Reference>(), Form::WORDS, &effort).unwrap();
//! assert!(report.counts.states > 50); // fewer: the states were not enumerated
//! ```

mod checker;
mod effort;
mod execution;
mod expected;
mod mutants;
mod parallel;
mod parts;
mod quiet;
mod violation;

pub use effort::{Counts, Effort, Report};
pub use mutants::{Detection, MutantOutcome, mutants, mutants_among, survivors};
pub use violation::{Violation, replay, replay_mutant};

use everhash_index::{Design, Engine, Form};
use everhash_pmem::media::traced::{Mutant, Traced};
use std::time::Instant;

use crate::workload::Op;
use checker::{CrashChecker, Found};

/// Judges an engine, with its tiny settings, by workloads of many seeds, on all cores.
///
/// The counts of the report depend on the effort alone, not on the machine.
///
/// # Errors
/// The violation of the lowest seed that has one, minimised.
pub fn judge(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
) -> Result<Report, Box<Violation>> {
    judge_mutant(design, form, effort, None)
}

/// As [`judge`], for a test: prints the report, and the sites that no workload came to.
///
/// # Panics
/// With the violation.
pub fn survives<E: Engine>(form: Form, effort: &Effort) -> Counts {
    let report = judge(&Design::of::<E>(), form, effort);
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{form}, {}: {report}", effort.model);
    println!("  never met: {:?}", report.never_met(E::SITES));
    report.counts
}

/// As [`judge`], with one site of the engine changed.
///
/// # Errors
/// As [`judge`]. A mutant without a violation shows an instruction that nothing needs.
pub fn judge_mutant(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
) -> Result<Report, Box<Violation>> {
    let begun = Instant::now();
    let seeds: Vec<u64> = effort.seeds.clone().collect();
    let outcomes = parallel::until_first_error(effort.threads, &seeds, |seed| {
        let operations = effort.workload(*seed).generate();
        explore(design, form, &effort.of_seed(*seed), mutant, &operations)
            .map_err(|found| (*seed, operations, found))
    });
    let mut report = Report::default();
    match outcomes {
        Ok(reports) => reports.iter().for_each(|one| report.merge(one)),
        Err((seed, operations, found)) => {
            return Err(Box::new(violation::shorten(
                design, form, effort, mutant, seed, operations, found,
            )));
        }
    }
    report.counts.seeds = seeds.len() as u64;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Judges an engine by one workload: a scenario that reaches what chance rarely does. Its keys are
/// below the effort's number of keys; the seeds and operations of the effort do not matter.
///
/// # Errors
/// The violation, minimised.
///
/// ```
/// use everhash_index::{Design, Form};
/// use everhash_testkit::crash::{Effort, judge_workload};
/// use everhash_testkit::{reference::Reference, workload};
///
/// let operations = workload::parse("insert:1:1 update:1:2 remove:1")?;
/// let design = Design::of::<Reference>();
/// let report =
///     judge_workload(&design, Form::WORDS, &Effort::default(), &operations).unwrap();
/// assert!(report.counts.states > 10);
/// # Ok::<(), everhash_testkit::workload::BadOp>(())
/// ```
pub fn judge_workload(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    operations: &[Op],
) -> Result<Report, Box<Violation>> {
    let begun = Instant::now();
    let report = explore(design, form, effort, None, operations).map_err(|found| {
        let (seed, operations) = (effort.seeds.start, operations.to_vec());
        Box::new(violation::shorten(design, form, effort, None, seed, operations, found))
    })?;
    Ok(Report { seconds: begun.elapsed().as_secs_f64(), ..report })
}

/// Tries one workload with its crashes.
fn explore(
    design: &Design<Traced>,
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    operations: &[Op],
) -> Result<Report, Found> {
    let mut checker = CrashChecker::new(design, form, effort, mutant);
    checker.try_seed(operations)?;
    Ok(checker.report())
}
