//! Instructions of single operations, counted exactly, on any machine.
//!
//! A child does the operations, and its parent lets it go on by one instruction at a time. Rates
//! tell how fast a machine is today; these counts change only if the program does. A processor
//! looks ahead some hundreds of instructions, so that they also say how many look-ups can wait for
//! memory at the same time. Writes that grow a table, or that collect garbage, take many more than
//! the median.

use std::process::Command;

use everhash_index::{Error, Result, Table};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::keys::{Shuffle, key, value};
use crate::medium::make;
use crate::phases::{BATCH, Pair, Phase};
use crate::run::{Candidate, Plan};

/// Operations that are counted of each kind.
///
/// Unit: operations. Source: ours; medians of look-ups hardly change with more, and a step takes
/// some 30 us.
const SAMPLES: u64 = 25;

/// Batches that are counted, of [`BATCH`] keys each.
///
/// Unit: batches. Source: ours; a batch is the mean of many look-ups.
const BATCHES: u64 = 1;

/// What is counted, in this order.
const COUNTED: [Phase; 6] =
    [Phase::Get, Phase::GetAbsent, Phase::GetMany, Phase::Load, Phase::Update, Phase::Remove];

/// How many instructions one operation takes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Count {
    /// The operation.
    pub phase: Phase,
    /// The median. Unit: instructions; of batched reads for one key.
    pub median: u64,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// Does the operations that are counted: what a child of [`count_instructions`] calls.
///
/// # Errors
/// What a table returned, a wrong answer, and [`Error::Unsupported`] if no parent may count.
pub fn be_counted(plan: &Plan, candidate: &Candidate) -> Result<()> {
    if plan.items < BATCH as u64 {
        let what = format!("counting with fewer than {BATCH} pairs; use more pairs");
        return Err(Error::Unsupported { what });
    }
    // Inserts that are counted come on top.
    let sized = Plan { items: plan.items + SAMPLES, ..plan.clone() };
    let table = make(&sized, &candidate.in_memory)?;
    let mut pair = Pair::new(plan.form);
    for index in 0..plan.items {
        pair.one(table.as_ref(), Phase::Load, key(index))?;
    }
    ptrace::traceme().map_err(|error| not_traced(&error.to_string()))?;
    for _ in 0..SAMPLES {
        between_marks(|| Ok(true))?;
    }
    COUNTED.into_iter().try_for_each(|phase| do_samples(plan, table.as_ref(), phase))
}

fn do_samples(plan: &Plan, table: &dyn Table, phase: Phase) -> Result<()> {
    if phase == Phase::GetMany {
        return do_batches(plan, table);
    }
    let (first, indexes) = match phase {
        Phase::GetAbsent => (2 * plan.items, Shuffle::new(plan.items)),
        Phase::Load => (plan.items, Shuffle::new(SAMPLES)),
        _ => (0, Shuffle::new(plan.items)),
    };
    let mut pair = Pair::new(plan.form);
    for key in indexes.take(SAMPLES as usize).map(|index| key(first + index)) {
        let Some(words) = table.words() else {
            pair.set(key, u64::from(phase == Phase::Update));
            between_marks(|| pair.ask(table, phase))?;
            continue;
        };
        match phase {
            Phase::Get => {
                between_marks(|| Ok(words.get_word(key)? == Some(value(key, 0))))?;
            }
            Phase::GetAbsent => between_marks(|| Ok(words.get_word(key)?.is_none()))?,
            Phase::Update => between_marks(|| words.update_word(key, value(key, 1)))?,
            Phase::Remove => between_marks(|| words.remove_word(key))?,
            _ => between_marks(|| words.insert_word(key, value(key, 0)))?,
        }
    }
    Ok(())
}

/// Fewer samples than of the others, each of them a batch.
fn do_batches(plan: &Plan, table: &dyn Table) -> Result<()> {
    let mut indexes = Shuffle::new(plan.items).cycle();
    for _ in 0..samples_of(Phase::GetMany) {
        let keys: Vec<_> = indexes.by_ref().take(BATCH).map(key).collect();
        if let Some(words) = table.words() {
            let mut found = vec![None; BATCH];
            between_marks(|| words.get_words(&keys, &mut found).map(|()| true))?;
            check(keys.iter().zip(&found).all(|(key, found)| *found == Some(value(*key, 0))))?;
        } else {
            let mut pairs: Vec<_> = keys.iter().map(|_| Pair::new(plan.form)).collect();
            keys.iter().zip(&mut pairs).for_each(|(key, pair)| pair.set(*key, 0));
            between_marks(|| Ok(crate::phases::get_batch(table, &pairs)? == 0))?;
        }
    }
    Ok(())
}

/// Does `work` between two stops, at which the parent begins to count and ends.
#[inline(never)]
fn between_marks(work: impl FnOnce() -> Result<bool>) -> Result<()> {
    mark()?;
    let answer = work();
    mark()?;
    check(answer?)
}

fn mark() -> Result<()> {
    raise(Signal::SIGSTOP).map_err(|error| not_traced(&error.to_string()))
}

fn check(is_right: bool) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(Error::Unsupported { what: "a wrong answer: the engine is broken".into() }),
    }
}

/// Counts what `child`, a program that calls [`be_counted`], does; the calling thread waits.
///
/// # Errors
/// [`Error::Unsupported`] if the child cannot be started or traced, or ends before its time.
pub fn count_instructions(child: &mut Command) -> Result<Vec<Count>> {
    let this_thread = Pid::from_raw(0);
    let before = sched_getaffinity(this_thread);
    let _ = before.as_ref().map(|usual| sched_setaffinity(this_thread, &first_of(usual)));
    let counted = start_and_count(child);
    let _ = before.as_ref().map(|usual| sched_setaffinity(this_thread, usual));
    counted
}

/// Returns the first processor of a set. Where parent and child share one, a step takes a tenth of
/// the time: none has to wake another.
fn first_of(usual: &CpuSet) -> CpuSet {
    let mut one = CpuSet::new();
    let first = (0..CpuSet::count()).find(|cpu| usual.is_set(*cpu).unwrap_or(false));
    let _ = one.set(first.unwrap_or(0));
    one
}

fn start_and_count(child: &mut Command) -> Result<Vec<Count>> {
    let mut started = child.spawn().map_err(|error| not_traced(&error.to_string()))?;
    let pid = Pid::from_raw(i32::try_from(started.id()).expect("numbers of processes are short"));
    let counted = count_of(pid);
    // A child that still runs has no more to say.
    let _ = started.kill();
    let _ = started.wait();
    counted.map_err(|error| not_traced(&error))
}

/// What stepping a child gave, or why it failed.
type Stepped<T> = core::result::Result<T, String>;

fn count_of(pid: Pid) -> Stepped<Vec<Count>> {
    let words = |error: Errno| error.to_string();
    let stepped = || -> Stepped<u64> {
        // To the first mark at full speed, from there to the second one step by step.
        let mut stop = waitpid(pid, None).map_err(words)?;
        let mut steps = 0;
        loop {
            match stop {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => steps += 1,
                WaitStatus::Stopped(_, Signal::SIGSTOP) if steps > 0 => {
                    ptrace::cont(pid, None).map_err(words)?;
                    return Ok(steps);
                }
                // A child whose parent is killed would stay where it stopped.
                WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                    let options = ptrace::Options::PTRACE_O_EXITKILL;
                    ptrace::setoptions(pid, options).map_err(words)?;
                }
                _ => return Err("the program that is counted ended early".to_owned()),
            }
            ptrace::step(pid, None).map_err(words)?;
            stop = waitpid(pid, None).map_err(words)?;
        }
    };
    let samples = |count: u64| (0..count).map(|_| stepped()).collect::<Stepped<Vec<_>>>();
    // What the marks take is no part of an operation.
    let empty = Count::of(Phase::Get, samples(SAMPLES)?, 0).median;
    let one = |phase| Ok(Count::of(phase, samples(samples_of(phase))?, empty));
    COUNTED.into_iter().map(one).collect()
}

/// Returns how many operations of a kind are counted; of batches, how many of these.
fn samples_of(phase: Phase) -> u64 {
    if phase == Phase::GetMany { BATCHES } else { SAMPLES }
}

impl Count {
    fn of(phase: Phase, mut samples: Vec<u64>, empty: u64) -> Count {
        let keys = if phase == Phase::GetMany { BATCH as u64 } else { 1 };
        samples.sort_unstable();
        let at = |index: usize| samples[index].saturating_sub(empty) / keys;
        let last = samples.len() - 1;
        Count { phase, median: at(last / 2), least: at(0), most: at(last) }
    }
}

fn not_traced(why: &str) -> Error {
    Error::Unsupported { what: format!("counting instructions here ({why})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_what_one_operation_takes_without_its_marks() {
        // Fails if the steps of the marks counted, if a batch stood for one key, or if the median
        // were another sample.
        let samples = vec![350, 150, 250, 950];
        let Count { median, least, most, .. } = Count::of(Phase::Get, samples.clone(), 50);
        assert_eq!([least, median, most], [100, 200, 900]);
        let batch = samples.iter().map(|steps| steps * BATCH as u64).collect();
        let Count { median, least, most, .. } = Count::of(Phase::GetMany, batch, 0);
        assert_eq!([least, median, most], [150, 250, 950]);
        assert_eq!((samples_of(Phase::GetMany), samples_of(Phase::Get)), (BATCHES, SAMPLES));
    }

    #[test]
    fn a_wrong_answer_ends_the_count() {
        // Fails if the instructions of an engine that does not find its pairs were reported.
        let wrong = check(false).unwrap_err().to_string();
        assert!(check(true).is_ok() && wrong.contains("a wrong answer"), "{wrong}");
    }

    #[test]
    fn who_counts_runs_where_it_ran_before() {
        // Fails if a program that has counted stayed on one processor.
        let usual = sched_getaffinity(Pid::from_raw(0)).unwrap();
        assert!(count_instructions(&mut Command::new("/no/such/program")).is_err());
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), usual);
    }
}
