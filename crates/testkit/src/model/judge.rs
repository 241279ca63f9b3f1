//! The model judge: seeded workloads on a table and on the model, compared answer by answer.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model as CrashModel;
use everhash_pmem::{Image, as_thread};

use super::{Model, Outcome, perform};
use crate::failure::{ensure, no_panic};
use crate::random::Random;
use crate::shrink::minimise;
use crate::workload::{Op, Shape, Workload, parse, render, thread_of};
use crate::{Failure, OpenTable};

/// How much the model judge does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// One workload for each seed.
    pub seeds: Range<u64>,
    /// How many operations a workload has.
    pub operations: usize,
    /// How many different keys it has; a table without removes grows to that many pairs.
    pub keys: u16,
    /// To what length the medium can grow. Unit: bytes.
    pub capacity_bytes: u64,
    /// What the medium claims of a crash, so that an engine takes the path of such a medium.
    pub medium: CrashModel,
    /// Whether operations are those of two threads, as it were, one after the other.
    pub by_turns: bool,
}

impl Default for Effort {
    /// 200 workloads of 200 operations on up to 48 keys.
    fn default() -> Self {
        let medium = CrashModel::Adr;
        Effort {
            seeds: 0..200,
            operations: 200,
            keys: 48,
            capacity_bytes: 1 << 20,
            medium,
            by_turns: false,
        }
    }
}

/// What the model judge did without finding anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Workloads.
    pub workloads: u64,
    /// Operations whose answers were compared.
    pub operations: u64,
    /// How often the table was closed or ended, and opened again.
    pub restarts: u64,
    /// How often everything was read out and compared.
    pub read_outs: u64,
}

/// A workload on which an engine differs from the model, as short as it could be made.
#[derive(Clone)]
pub struct Violation {
    /// Name of the engine.
    pub engine: &'static str,
    /// The form of the pairs.
    pub form: Form,
    /// The seed of the workload.
    pub seed: u64,
    /// What remained of it.
    pub operations: Vec<Op>,
    /// What is wrong.
    pub failure: Failure,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, operations) = (self.form, render(&self.operations));
        writeln!(f, "engine {}, form {form}, seed {}:", self.engine, self.seed)?;
        writeln!(f, "  {}", self.failure)?;
        writeln!(f, "  operations: {operations}")?;
        write!(
            f,
            "  replay: everhash_testkit::model::replay(&design, form, &effort, \"{operations}\")"
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

/// Compares an engine, with its tiny settings, with the model.
///
/// # Errors
/// The first workload on which they differ, minimised.
pub fn judge(
    design: &Design<Image>,
    form: Form,
    effort: &Effort,
) -> Result<Report, Box<Violation>> {
    let mut report = Report::default();
    for seed in effort.seeds.clone() {
        let ops = Workload::of_seed(seed, effort.operations, effort.keys).generate();
        let readings = Readings::Sometimes(seed);
        let outcome = no_panic(|| run(design, form, effort, &ops, readings, &mut report));
        if let Err(failure) = outcome {
            return Err(Box::new(shorten(design, form, effort, seed, ops, failure)));
        }
        report.workloads += 1;
    }
    Ok(report)
}

/// Runs the operations of a violation again, with the effort that found it.
///
/// # Errors
/// What is wrong with the engine, or with the text.
pub fn replay(
    design: &Design<Image>,
    form: Form,
    effort: &Effort,
    operations: &str,
) -> Result<(), Failure> {
    let ops = parse(operations).map_err(|bad| Failure::new(bad.to_string()))?;
    run(design, form, effort, &ops, Readings::Always, &mut Report::default())
}

/// When everything is read out, beside the end and every restart.
#[derive(Clone, Copy)]
enum Readings {
    /// After some operations, chosen by a seed.
    Sometimes(u64),
    /// After every operation: shortens what has to be explained.
    Always,
}

fn run(
    design: &Design<Image>,
    form: Form,
    effort: &Effort,
    ops: &[Op],
    readings: Readings,
    report: &mut Report,
) -> Result<(), Failure> {
    let shape = Shape::tiny(form);
    let most = ops.iter().flat_map(Op::keys).max().unwrap_or(0).max(effort.keys);
    let keys: Vec<Vec<u8>> = (0..=most).map(|key| shape.key(key)).collect();
    let medium = Image::new(0, effort.capacity_bytes).with_guarantees(effort.medium.guarantees());
    let mut session = OpenTable::create(design, medium, form)?;
    let mut model = Model::new(shape);
    let mut now = Duration::ZERO;
    let mut random = Random::new(match readings {
        Readings::Sometimes(seed) => !seed,
        Readings::Always => 0,
    });
    for (position, op) in ops.iter().enumerate() {
        let place = || format!("operation {}, {op}", position + 1);
        let answer = match effort.by_turns {
            true => {
                as_thread(thread_of(position as u32), || step(&mut session, &shape, &mut now, op))
            }
            false => step(&mut session, &shape, &mut now, op),
        };
        let answer = answer.map_err(|error| error.at(place()))?;
        let expected = model.apply(op);
        let inexact = *op == Op::Len && !design.capabilities.exact_len;
        ensure!(
            answer == expected || inexact,
            "{} returned {answer:?}; it should return {expected:?}",
            place()
        );
        report.operations += 1;
        report.restarts += u64::from(op.restarts());
        let last = position + 1 == ops.len();
        let read = matches!(readings, Readings::Always) || random.once_in(30);
        if last || read || op.restarts() {
            session
                .read_out(model.pairs(), &keys)
                .map_err(|failure| failure.at(format!("after {}", place())))?;
            report.read_outs += 1;
        }
    }
    session.close()?;
    Ok(())
}

/// Performs an operation, also one that restarts.
pub(crate) fn step(
    session: &mut OpenTable,
    shape: &Shape,
    now: &mut Duration,
    op: &Op,
) -> Result<Outcome, Failure> {
    match op {
        Op::Reopen => session.reopen()?,
        Op::Kill => session.kill()?,
        Op::Outage => session.outage()?,
        _ => return perform(session.table(), shape, now, op),
    }
    Ok(Outcome::Done)
}

fn shorten(
    design: &Design<Image>,
    form: Form,
    effort: &Effort,
    seed: u64,
    ops: Vec<Op>,
    failure: Failure,
) -> Violation {
    let verdict = |ops: &[Op], readings| {
        no_panic(|| run(design, form, effort, ops, readings, &mut Report::default())).err()
    };
    let mut failure = failure;
    let readings = match verdict(&ops, Readings::Always) {
        Some(_) => Readings::Always,
        None => Readings::Sometimes(seed),
    };
    let operations = minimise(ops, |ops| match verdict(ops, readings) {
        Some(found) => {
            failure = found;
            true
        }
        None => false,
    });
    Violation { engine: design.name, form, seed, operations, failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;
    use crate::workload::Bias;

    #[test]
    fn everything_is_read_out_at_the_end_and_after_each_restart() {
        // Fails if what a restart or the last operation leaves is not looked at.
        let design = Design::of::<Reference>();
        let ops = parse("put:1:2 reopen put:2:3 kill put:3:4 outage get:1").unwrap();
        // None of the choices of this seed falls on one of so few operations.
        let readings = Readings::Sometimes(1);
        let mut report = Report::default();
        run(&design, Form::WORDS, &Effort::default(), &ops, readings, &mut report).unwrap();
        let expected = Report { workloads: 0, operations: 7, restarts: 3, read_outs: 4 };
        assert_eq!(report, expected);
    }

    #[test]
    fn workloads_have_every_bias_with_few_keys_and_with_many() {
        // Fails if a kind of workload is never run, with restarts or without.
        let effort = Effort::default();
        let kinds = effort.seeds.clone().map(|seed| {
            let Workload { bias, keys, restarts, .. } =
                Workload::of_seed(seed, effort.operations, effort.keys);
            (format!("{bias:?}"), keys, restarts)
        });
        let kinds: std::collections::BTreeSet<_> = kinds.collect();
        assert_eq!(kinds.len(), Bias::ALL.len() * 2 * 2, "{kinds:?}");
    }
}
