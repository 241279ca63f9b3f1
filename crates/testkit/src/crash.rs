//! The crash judge: runs an engine, cuts the power wherever it matters, and looks at what is left.
//!
//! A workload runs on a [`Traced`](everhash_pmem::media::traced::Traced) medium. The explorer of
//! [`everhash_pmem::crash`] then makes every image that a crash may have left, and for each of
//! them the judge
//!
//! 1. opens it: an error is a violation, and so is a panic;
//! 2. reads everything out, in every way there is: it must be what was there when the last
//!    operation returned, with or without the one that was under way. Of an engine that batches
//!    durability each part ([`Table::part_of`](everhash_index::Table::part_of)) must be as it was
//!    at one moment since the last sync, or, if only the process ended, as it was then;
//! 3. goes on working: removes and adds again what was under way, adds enough for growth, closes,
//!    opens, and compares every answer and all contents once more;
//! 4. for some of them, crashes again: inside the recovery and inside that work, to a depth that
//!    can be chosen. What the first recovery has shown must then still be there. Crashes of
//!    power follow each other, and crashes of power follow the end of a process, which leaves
//!    visible what is not durable.
//!
//! A violation is made as short as possible and printed with a line that replays it.
//!
//! ```
//! use everhash_index::Form;
//! use everhash_testkit::crash::{Effort, judge};
//! use everhash_testkit::reference::Reference;
//!
//! let effort = Effort { seeds: 0..1, operations: 6, ..Effort::default() };
//! let report = judge::<Reference>(Form::WORDS, &effort).unwrap();
//! assert!(report.counts.states > 50); // fewer means that nothing was enumerated
//! ```

mod court;
mod effort;
mod expected;
mod life;
mod mutants;
mod parallel;
mod parts;
mod quiet;
mod violation;

pub use effort::{Counts, Effort, Report};
pub use mutants::{Fate, mutants, mutants_among};
pub use violation::{Violation, replay, replay_mutant};

use everhash_index::{Engine, Form};
use everhash_pmem::media::traced::Mutant;
use std::time::Instant;

use crate::workload::Op;
use court::{Court, Found};

/// Judges an engine, with its tiny settings, by workloads of many seeds, on all cores.
///
/// The counts of the report depend on the effort alone, not on the machine.
///
/// # Errors
/// The violation of the lowest seed that has one, minimised.
pub fn judge<E: Engine>(form: Form, effort: &Effort) -> Result<Report, Box<Violation>> {
    judge_mutant::<E>(form, effort, None)
}

/// As [`judge`], with one site of the engine changed.
///
/// # Errors
/// As [`judge`]; a mutant that has no violation is an instruction that nobody needs.
pub fn judge_mutant<E: Engine>(
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
) -> Result<Report, Box<Violation>> {
    let begun = Instant::now();
    let seeds: Vec<u64> = effort.seeds.clone().collect();
    let outcomes = parallel::until_first_error(effort.threads, &seeds, |seed| {
        let operations = effort.workload(*seed).generate();
        explore::<E>(form, effort, mutant, &operations).map_err(|found| (*seed, operations, found))
    });
    let mut report = Report::default();
    match outcomes {
        Ok(reports) => reports.iter().for_each(|one| report.merge(one)),
        Err((seed, operations, found)) => {
            return Err(Box::new(violation::shorten::<E>(
                form, effort, mutant, seed, operations, found,
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
/// use everhash_index::Form;
/// use everhash_testkit::crash::{Effort, judge_workload};
/// use everhash_testkit::{reference::Reference, workload};
///
/// let operations = workload::parse("insert:1:1 update:1:2 remove:1")?;
/// let report = judge_workload::<Reference>(Form::WORDS, &Effort::default(), &operations).unwrap();
/// assert!(report.counts.states > 10);
/// # Ok::<(), everhash_testkit::workload::BadOp>(())
/// ```
pub fn judge_workload<E: Engine>(
    form: Form,
    effort: &Effort,
    operations: &[Op],
) -> Result<Report, Box<Violation>> {
    let begun = Instant::now();
    let report = explore::<E>(form, effort, None, operations).map_err(|found| {
        let (seed, operations) = (effort.seeds.start, operations.to_vec());
        Box::new(violation::shorten::<E>(form, effort, None, seed, operations, found))
    })?;
    Ok(Report { seconds: begun.elapsed().as_secs_f64(), ..report })
}

/// Tries one workload with its crashes.
fn explore<E: Engine>(
    form: Form,
    effort: &Effort,
    mutant: Option<Mutant>,
    operations: &[Op],
) -> Result<Report, Found> {
    let mut court = Court::<E>::new(form, effort, mutant);
    court.try_seed(operations)?;
    Ok(court.report())
}
