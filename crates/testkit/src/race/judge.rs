//! The race judge: programs, schedules, and the shortest program that shows a race.

use core::fmt;
use core::ops::Range;

use everhash_index::{Design, Engine, Form};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Traced;

use super::edges;
use super::program::Program;
use super::schedule::{Plan, Tally, run};
use crate::Failure;
use crate::primitives::Shuttle;
use crate::shrink::minimise;

/// A design on the two media of the race judge.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// On a medium that remembers everything, with threads that a scheduler runs.
    pub scheduled: Design<Traced<Shuttle>>,
    /// On plain memory: before the threads begin, and after a crash.
    pub plain: Design<Image>,
}

impl Subject {
    /// Returns the subject of an engine.
    pub const fn of<E: Engine>() -> Subject {
        Subject { scheduled: Design::of::<E>(), plain: Design::of::<E>() }
    }
}

/// How much the race judge does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// One program for each seed.
    pub seeds: Range<u64>,
    /// One program for each of these seeds that begins just before a growth or its end.
    pub edge_seeds: Range<u64>,
    /// How many schedules of each program: a third each uniform, in bursts, by priorities (PCT).
    pub schedules: usize,
    /// Every how many schedules all crashes are tried; 0 for never. Engines that batch durability
    /// by default are not crashed here: their histories need another oracle.
    pub crash_every: usize,
    /// What a crash may leave.
    pub model: Model,
    /// How many shorter programs are tried, each with twice as many schedules, before a race is
    /// reported.
    pub shorten_programs: u32,
}

impl Default for Effort {
    /// 60 programs with 60 schedules each, of which every tenth crashes at every moment (ADR).
    fn default() -> Self {
        Effort {
            seeds: 0..60,
            edge_seeds: 0..0,
            schedules: 60,
            crash_every: 10,
            model: Model::Adr,
            shorten_programs: 10_000,
        }
    }
}

/// What the race judge did without finding anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Programs.
    pub programs: u64,
    /// Schedules whose histories were checked.
    pub schedules: u64,
    /// Schedules of which every crash was tried.
    pub crashed_schedules: u64,
    /// Distinct states that those crashes left.
    pub states: u64,
    /// Histories of one key that the checker could not decide.
    pub undecided: u64,
}

/// A program with a race, as short as it could be made.
#[derive(Clone)]
pub struct Violation {
    /// Name of the engine.
    pub engine: &'static str,
    /// The form of the pairs.
    pub form: Form,
    /// What a crash may leave.
    pub model: Model,
    /// The seed of the program, and of the schedules.
    pub seed: u64,
    /// What remained of the program.
    pub program: Program,
    /// What is wrong.
    pub failure: Failure,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { engine, form, model, seed, program, failure } = self;
        writeln!(f, "engine {engine}, form {form}, model {model}, seed {seed}:")?;
        writeln!(f, "  {failure}")?;
        writeln!(f, "  program: {program}")?;
        write!(
            f,
            "  replay: everhash_testkit::race::replay(&subject, form, \"{program}\", {seed}, \
             &effort)"
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

/// Runs programs of a few threads on tiny tables under many schedules.
///
/// # Errors
/// The first program that shows a race, minimised so far as the effort goes.
pub fn judge(subject: &Subject, form: Form, effort: &Effort) -> Result<Report, Box<Violation>> {
    let mut report = Report::default();
    let usual = effort.seeds.clone().map(|seed| (seed, Program::generate(seed)));
    let edges = match effort.edge_seeds.is_empty() {
        true => Vec::new(),
        false => edges::find(&subject.plain, form, effort.model).map_err(|failure| {
            let program = Program { load: 0, prelude: Vec::new(), threads: Vec::new() };
            let (engine, model) = (subject.plain.name, effort.model);
            Box::new(Violation { engine, form, model, seed: 0, program, failure })
        })?,
    };
    let at_edges = effort.edge_seeds.clone().map(|seed| (seed, edges::program(seed, &edges)));
    for (seed, program) in usual.chain(at_edges) {
        match run(subject, &program, &plan(form, effort, seed)) {
            Ok(Tally { schedules, crashed_schedules, states, undecided }) => {
                report.programs += 1;
                report.schedules += schedules;
                report.crashed_schedules += crashed_schedules;
                report.states += states;
                report.undecided += undecided;
            }
            Err(failure) => {
                return Err(Box::new(shorten(subject, form, effort, seed, program, failure)));
            }
        }
    }
    Ok(report)
}

/// Runs the program of a violation again, under the schedules of its seed.
///
/// # Errors
/// What is wrong with the engine, or with the text.
pub fn replay(
    subject: &Subject,
    form: Form,
    program: &str,
    seed: u64,
    effort: &Effort,
) -> Result<(), Failure> {
    let program: Program =
        program.parse().map_err(|bad: super::BadProgram| Failure::new(bad.to_string()))?;
    run(subject, &program, &thorough(form, effort, seed)).map(drop)
}

fn plan(form: Form, effort: &Effort, seed: u64) -> Plan {
    let Effort { schedules, crash_every, model, .. } = *effort;
    Plan { form, model, schedules, seed, crash_every }
}

/// More schedules, and crashes in each if there are any: a shorter program has other schedules.
fn thorough(form: Form, effort: &Effort, seed: u64) -> Plan {
    let plan = plan(form, effort, seed);
    Plan { schedules: plan.schedules * 2, crash_every: plan.crash_every.min(1), ..plan }
}

fn shorten(
    subject: &Subject,
    form: Form,
    effort: &Effort,
    seed: u64,
    program: Program,
    failure: Failure,
) -> Violation {
    let plan = thorough(form, effort, seed);
    let (mut failure, mut budget) = (failure, effort.shorten_programs);
    let mut fails = |program: &Program| {
        let Some(left) = budget.checked_sub(1) else { return false };
        budget = left;
        match run(subject, program, &plan) {
            Ok(_) => false,
            Err(found) => {
                failure = found;
                true
            }
        }
    };
    let mut program = program;
    let steps = minimise(program.steps(), |steps| fails(&program.with_steps(steps)));
    program = program.with_steps(&steps);
    let prelude = minimise(program.prelude.clone(), |prelude| {
        fails(&Program { prelude: prelude.to_vec(), ..program.clone() })
    });
    program.prelude = prelude;
    for load in 0..program.load {
        let emptier = Program { load, ..program.clone() };
        if fails(&emptier) {
            program = emptier;
            break;
        }
    }
    Violation { engine: subject.plain.name, form, model: effort.model, seed, program, failure }
}
