//! The crash checker: explores an execution, and starts a new one in every state a crash leaves.

use core::ops::{ControlFlow, Range};
use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Design, Form, Opening};
use everhash_pmem::crash::{Explorer, Limits, Memory, Moment, Name, Seen, State};
use everhash_pmem::media::traced::{Mutant, Traced};
use everhash_pmem::{Region, Site};

use super::effort::{Counts, Effort, Report};
use super::execution::{Execution, Keep, Start, execute, next_boot};
use super::expected::Expected;
use super::quiet::quietly;
use crate::Failure;
use crate::failure::no_panic;
use crate::model::Pairs;
use crate::workload::{Edit, Op, Shape};

/// How many accesses to the medium one execution may take.
///
/// Source: ours; the longest executions of the engines here take some hundred thousand, and whoever
/// waits for ever sleeps between two accesses.
const STEPS: u64 = 4_000_000;

/// Keys that no workload uses, from this number on: for growth.
const FRESH_KEYS: u16 = 1000;

/// How many fresh keys one growth takes.
///
/// Source: ours; tiny settings double at about 30 pairs.
const GROWTH: u16 = 32;

/// A crash after which something is wrong.
#[derive(Clone)]
pub(super) struct Found {
    /// The crashes that lead there, each in the execution that follows the one before. Empty if the
    /// failure needs no crash.
    pub crashes: Vec<Name>,
    /// The sites that the crashes prevented.
    pub sites: Vec<Option<Site>>,
    pub failure: Failure,
}

/// How much the process after a crash does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Work {
    /// Removes and re-inserts the key of the operation in flight.
    Key,
    /// The same, then closes, opens, writes other keys, and is killed and recovers between them.
    Restart,
    /// The same, then inserts enough keys to grow the table, closes and opens.
    Growth,
}

/// What crashes are tried in the execution that follows a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    Nothing,
    /// One at every point of it.
    Crashes,
    /// One when it has closed the pool.
    CloseCrashes,
}

pub(super) struct CrashChecker<'a> {
    design: &'a Design<Traced>,
    effort: &'a Effort,
    shape: Shape,
    region: Region<Traced>,
    /// The states judged so far, by the number of crashes before them.
    seen: Vec<Seen>,
    counts: Counts,
    /// How many executions were started. Decides which of them are examined more closely.
    executions: u64,
    /// At how many executions the checker stops.
    budget: u64,
}

impl<'a> CrashChecker<'a> {
    pub fn new(
        design: &'a Design<Traced>,
        form: Form,
        effort: &'a Effort,
        mutant: Option<Mutant>,
    ) -> Self {
        let medium = Traced::new(effort.model, 0, effort.capacity_bytes);
        let region = Region::new(medium.keep_freed(!effort.overwrite_freed));
        region.media().set_mutant(mutant);
        region.media().limit_steps(STEPS);
        let seen = (0..effort.depth).map(|_| Seen::default()).collect();
        CrashChecker {
            design,
            effort,
            shape: Shape::tiny(form),
            region,
            seen,
            counts: Counts::default(),
            executions: 0,
            budget: effort.executions,
        }
    }

    /// Starts at most so many executions, and leaves later states unjudged.
    pub fn with_budget(mut self, executions: u64) -> Self {
        self.budget = executions;
        self
    }

    /// Returns how many executions were started.
    pub fn executions(&self) -> u64 {
        self.executions
    }

    pub fn report(&self) -> Report {
        Report { counts: self.counts, met: self.region.media().met(), seconds: 0.0 }
    }

    /// Judges every crash of a workload.
    ///
    /// # Errors
    /// The first violation.
    pub fn try_seed(&mut self, operations: &[Op]) -> Result<(), Found> {
        let execution = self.first_execution(operations).map_err(|failure| Found {
            crashes: vec![],
            sites: vec![],
            failure,
        })?;
        self.counts.operations += operations.len() as u64;
        // A mutant shows from its first change on. Before that it can only affect recoveries, which
        // come second.
        let first_change = self.region.media().first_change().unwrap_or(0);
        for events in [first_change..usize::MAX, 0..first_change] {
            let nothing = Memory::zero(self.effort.model, 0);
            self.explore(&execution, nothing, events, &mut Chain::default())?;
        }
        Ok(())
    }

    /// Judges one state, found by the names of its crashes.
    ///
    /// # Errors
    /// What is wrong there.
    pub fn replay(&mut self, operations: &[Op], crashes: &[Name]) -> Result<(), Failure> {
        let mut execution = self.first_execution(operations)?;
        let mut memory = Memory::zero(self.effort.model, 0);
        for name in crashes {
            let mut explorer = Explorer::new(memory.clone(), execution.log.events());
            let moment = core::iter::from_fn(|| explorer.next_point().cloned())
                .find(|moment| moment.event == name.event())
                .ok_or_else(|| Failure::stale(format!("there is no crash point {name}")))?;
            memory = Explorer::rebuild(memory, execution.log.events(), name)
                .map_err(|error| Failure::stale(error.to_string()))?;
            let start = start_after(&execution, &moment, matches!(name, Name::Killed { .. }));
            let steps = self.steps(execution.in_flight(&moment), Work::Growth);
            self.region.media().restart(memory.visible());
            execution = self.execute(start, steps, Keep::All)?;
        }
        Ok(())
    }

    /// Runs the workload on the medium as it was made: a checker has one.
    fn first_execution(&mut self, operations: &[Op]) -> Result<Execution, Failure> {
        let boot = Opening::default().boot;
        let expected = Arc::new(Expected::NoPoolOr);
        let after_power = expected.clone();
        let start = Start {
            boot,
            expected,
            after_power,
            create: true,
            closed: false,
            is_settled: false,
            is_checked: false,
            by_turns: self.effort.by_turns,
        };
        self.execute(start, operations.to_vec(), Keep::All)
    }

    fn execute(&mut self, start: Start, steps: Vec<Op>, keep: Keep) -> Result<Execution, Failure> {
        self.executions += 1;
        let numbers: BTreeSet<u16> =
            (0..self.effort.keys).chain(steps.iter().flat_map(Op::keys)).collect();
        let keys: Vec<Vec<u8>> = numbers.into_iter().map(|key| self.shape.key(key)).collect();
        quietly(|| {
            no_panic(|| execute(self.design, &self.region, &self.shape, &keys, start, steps, keep))
        })
    }

    /// Returns the operations of the process after a crash. A larger [`Work`] begins with all of a
    /// smaller one, so that the name of a crash means the same in both.
    fn steps(&self, cut_off: Option<&Op>, work: Work) -> Vec<Op> {
        let keys = self.effort.keys.max(4);
        let key = cut_off.and_then(|op| op.keys().first().copied()).unwrap_or(0);
        let next = |by: u16| (key + by) % keys;
        let mut value = 1 << 20;
        let mut value = || {
            value += 1;
            value
        };
        let mut steps = vec![
            Op::Remove(key),
            Op::Insert(key, value()),
            Op::Insert(key, value()),
            Op::Update(key, value()),
            Op::Remove(key),
            Op::Put(key, value()),
        ];
        if work > Work::Key {
            steps.extend([
                // Nothing but the recovery has made durable what it repaired.
                Op::Reopen,
                Op::Modify(next(1), Edit::Toggle(value())),
                Op::Remove(next(2)),
                Op::Kill,
                Op::Put(next(3), value()),
                Op::Insert(FRESH_KEYS, value()),
                Op::Insert(FRESH_KEYS + 1, value()),
                Op::Remove(FRESH_KEYS),
                // Twice: what is not urgent waits until nothing is written.
                Op::Maintain(1000, 8),
                Op::Maintain(1000, 8),
                Op::Sync,
            ]);
        }
        if work > Work::Restart {
            steps.extend((2..GROWTH).map(|fresh| Op::Insert(FRESH_KEYS + fresh, value())));
            steps.push(Op::Reopen);
        }
        steps
    }

    /// Judges every crash of an execution that began in `memory`, at one of `events`.
    fn explore(
        &mut self,
        execution: &Execution,
        memory: Memory,
        events: Range<usize>,
        chain: &mut Chain,
    ) -> Result<(), Found> {
        if events.is_empty() {
            return Ok(());
        }
        let depth = chain.crashes.len();
        let mut seen = core::mem::take(&mut self.seen[depth]);
        let limits = if depth == 0 { self.effort.limits } else { self.effort.nested_limits };
        let mut explorer = Explorer::new(memory, execution.log.events());
        let mut outcome = Ok(());
        while outcome.is_ok() && self.executions < self.budget {
            // The explorer panics where an engine relies on an order that no model promises.
            let next = quietly(|| no_panic(|| Ok(explorer.next_point().cloned())));
            let Some(moment) = next.map_err(|failure| chain.found(failure))? else { break };
            if !events.contains(&moment.event) {
                continue;
            }
            // After a recovery a sample of the points is enough: the workload itself is complete.
            let is_rare = moment.returned <= 1 || execution.is_closed(&moment);
            if depth > 0 && !is_rare && moment.returned % 4 != moment.event as u32 % 4 {
                continue;
            }
            outcome = self.kill(execution, &moment, &explorer, chain).and_then(|()| {
                self.cut_power(execution, &moment, &mut explorer, (&limits, &mut seen), chain)
            });
        }
        let count = explorer.count();
        if depth == 0 {
            self.counts.points += count.points;
            self.counts.states += count.states;
        } else {
            self.counts.nested += count.states;
        }
        self.counts.complete += count.complete;
        self.counts.sampled += count.sampled;
        self.seen[depth] = seen;
        outcome
    }

    /// Kills only the process, at some of the points.
    fn kill(
        &mut self,
        execution: &Execution,
        moment: &Moment,
        explorer: &Explorer<'_>,
        chain: &mut Chain,
    ) -> Result<(), Found> {
        // Where everything is durable, a killed process leaves the same state as power loss.
        let rarely = if explorer.memory().is_settled() { 16 } else { 1 };
        if !explorer.count().points.is_multiple_of(rarely * self.effort.killed_one_in) {
            return Ok(());
        }
        self.counts.killed += 1;
        let memory = explorer.memory().after_process_crash();
        let steps = self.steps(execution.in_flight(moment), Work::Restart);
        self.region.media().restart(memory.visible());
        chain.push(Name::Killed { event: moment.event }, moment.site);
        let next = self.execute(start_after(execution, moment, true), steps, Keep::All);
        let next = next.map_err(|failure| chain.found(failure))?;
        let outcome = self.crash_again(&next, memory, moment, chain);
        chain.pop();
        outcome
    }

    /// Loses power at a point, and judges every state that this may leave.
    fn cut_power(
        &mut self,
        execution: &Execution,
        moment: &Moment,
        explorer: &mut Explorer<'_>,
        (limits, seen): (&Limits, &mut Seen),
        chain: &mut Chain,
    ) -> Result<(), Found> {
        let is_checked = explorer.count().points.is_multiple_of(self.effort.checked_one_in);
        let start = Start { is_checked, ..start_after(execution, moment, false) };
        let region = self.region.clone();
        // A state seen during the close must be judged again as a closed pool.
        let salt = if start.closed { hash(&chain.salt) } else { chain.salt };
        let mut outcome = Ok(());
        // A lazy search goes by the order of first accesses, and so needs the same process after
        // each of its crashes.
        let work_of_lazy = self.work();
        let _ = explorer.states(limits, seen, salt, &mut |state| {
            let follow = self.follow(chain);
            let (work, keep) = match (state.is_lazy(), follow) {
                (true, _) => (work_of_lazy, Keep::All),
                (false, Follow::Nothing) => (self.work(), Keep::Nothing),
                (false, _) => (self.work(), Keep::All),
            };
            let steps = self.steps(execution.in_flight(moment), work);
            let next = state.on(region.media(), || self.execute(start.clone(), steps, keep));
            outcome = self.continue_from(state, next, follow, moment, chain);
            match outcome.is_ok() && self.executions < self.budget {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        outcome
    }

    fn continue_from(
        &mut self,
        state: &State<'_>,
        next: Result<Execution, Failure>,
        follow: Follow,
        moment: &Moment,
        chain: &mut Chain,
    ) -> Result<(), Found> {
        if next.is_ok() && follow == Follow::Nothing {
            return Ok(());
        }
        chain.push(state.name(), moment.site);
        let next = next.map_err(|failure| chain.found(failure))?;
        let memory = Memory::of(self.effort.model, state.image());
        let outcome = match follow {
            Follow::Nothing => Ok(()),
            Follow::Crashes => self.crash_again(&next, memory, moment, chain),
            Follow::CloseCrashes => self.cut_power_when_closed(&next, memory, moment, chain),
        };
        chain.pop();
        outcome
    }

    /// Returns what to try in the execution that comes next, after the crashes of `chain`.
    fn follow(&self, chain: &Chain) -> Follow {
        let nests = self.executions.is_multiple_of(self.effort.nested_one_in);
        if nests && chain.crashes.len() + 1 < self.seen.len() {
            return Follow::Crashes;
        }
        let closes = self.executions.is_multiple_of(self.effort.closed_one_in);
        if chain.crashes.is_empty() && closes { Follow::CloseCrashes } else { Follow::Nothing }
    }

    /// Loses power when a process that came after a crash has closed the pool: nothing says then
    /// that anything has to be repaired.
    fn cut_power_when_closed(
        &mut self,
        execution: &Execution,
        memory: Memory,
        moment: &Moment,
        chain: &mut Chain,
    ) -> Result<(), Found> {
        let mut explorer = Explorer::new(memory, execution.log.events());
        // The explorer panics where an engine relies on an order that no model promises.
        let next = quietly(|| {
            no_panic(|| {
                let mut points = core::iter::from_fn(|| explorer.next_point().cloned());
                Ok(points.find(|moment| execution.is_closed(moment)))
            })
        });
        let Some(closed) = next.map_err(|failure| chain.found(failure))? else { return Ok(()) };
        if explorer.memory().is_settled() {
            return Ok(());
        }
        let outer = core::mem::replace(&mut chain.salt, 0);
        chain.salt = hash(&(outer, moment.returned, digest(execution.found())));
        let limits = self.effort.nested_limits;
        let mut seen = Seen::default();
        let outcome =
            self.cut_power(execution, &closed, &mut explorer, (&limits, &mut seen), chain);
        chain.salt = outer;
        self.counts.nested += explorer.count().states;
        outcome
    }

    fn work(&self) -> Work {
        match self.executions {
            executions if executions.is_multiple_of(self.effort.growth_one_in) => Work::Growth,
            executions if executions.is_multiple_of(self.effort.restart_one_in) => Work::Restart,
            _ => Work::Key,
        }
    }

    /// Explores the execution after a crash, unless that is deep enough.
    fn crash_again(
        &mut self,
        next: &Execution,
        memory: Memory,
        moment: &Moment,
        chain: &mut Chain,
    ) -> Result<(), Found> {
        if chain.crashes.len() >= self.seen.len() {
            return Ok(());
        }
        // Two states are equal only if their executions also expect the same contents.
        let outer = core::mem::replace(&mut chain.salt, 0);
        let expects = (outer, moment.returned, moment.in_flight.clone(), digest(next.found()));
        chain.salt = hash(&expects);
        let outcome = self.explore(next, memory, 0..usize::MAX, chain);
        chain.salt = outer;
        outcome
    }
}

/// What the process after a crash finds.
fn start_after(execution: &Execution, moment: &Moment, killed: bool) -> Start {
    let boot = execution.boot(moment);
    let boot = if killed { boot } else { next_boot(boot) };
    let expected = execution.expected(moment, killed);
    let (after_power, closed) = (execution.expected(moment, false), execution.is_closed(moment));
    Start {
        boot,
        expected,
        after_power,
        create: false,
        closed,
        is_settled: !killed,
        is_checked: true,
        by_turns: false,
    }
}

/// The crashes that lead to the execution under examination.
#[derive(Default)]
struct Chain {
    crashes: Vec<Name>,
    sites: Vec<Option<Site>>,
    /// Distinguishes states with equal contents whose executions expect different ones.
    salt: u64,
}

impl Chain {
    fn push(&mut self, crash: Name, site: Option<Site>) {
        self.crashes.push(crash);
        self.sites.push(site);
    }

    fn pop(&mut self) {
        self.crashes.pop();
        self.sites.pop();
    }

    fn found(&self, failure: Failure) -> Found {
        Found { crashes: self.crashes.clone(), sites: self.sites.clone(), failure }
    }
}

fn digest(pairs: Option<&Pairs>) -> u64 {
    hash(&pairs)
}

/// Hashes with fixed keys: the same on every run.
pub(super) fn hash(value: &impl core::hash::Hash) -> u64 {
    use core::hash::{BuildHasher, BuildHasherDefault};
    BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests;
