//! One execution: a process opens a pool, performs operations, and ends.

use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Choice, Design, Inline, Opening, Sizing, Table};
use everhash_pmem::crash::{Log, Moment};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Boot, Pool, Region, Shutdown, as_thread};

use super::expected::{Expected, each_step};
use super::parts::{Digests, Parts};
use crate::Failure;
use crate::failure::ensure;
use crate::model::{Model, Outcome, Pairs, check_left_pool, compare, perform, read_out, scan_all};
use crate::workload::{Op, Shape, thread_of};

/// What a process finds when it begins.
#[derive(Clone)]
pub(super) struct Start {
    /// The boot of the machine.
    pub boot: Boot,
    /// What the pool may hold.
    pub expected: Arc<Expected>,
    /// What it may hold if power is lost before it is open. A killed process leaves a whole batch,
    /// of which the part that is not durable can still be lost.
    pub after_power: Arc<Expected>,
    /// Whether the pool has to be made.
    pub create: bool,
    /// Whether the last process closed the pool before the crash.
    pub closed: bool,
    /// Whether all that is found is durable: power was lost, and no process was killed since.
    pub is_settled: bool,
    /// Whether the check reads the pool before it is opened.
    pub is_checked: bool,
    /// Whether operations are those of two threads, as it were.
    pub by_turns: bool,
}

impl Start {
    fn may_be_refused(&self) -> bool {
        !self.create && self.expected.may_be_refused()
    }
}

/// What of an execution is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// All that a crash in it can show.
    All,
    /// Nothing: it is judged while it runs, and no crash comes after it.
    Nothing,
}

/// What a process did, as far as a crash in it can show.
pub(super) struct Execution {
    pub start: Start,
    /// What the process did to the medium. Operation 0 is the opening of the pool, operation k the
    /// k-th of `steps`.
    pub log: Log,
    pub steps: Vec<Op>,
    /// The contents when `k` steps had returned; empty if the pool was refused, as it might be.
    models: Vec<Model>,
    /// The boot then.
    boots: Vec<Boot>,
    /// Where in the log the pool was closed and not yet opened again.
    closed: Vec<usize>,
    /// For engines that batch durability: what power loss may take back.
    history: Option<History>,
}

/// What an engine that batches durability held, moment by moment.
struct History {
    parts: Parts,
    /// The contents of each part, after the opening and after each step of an operation.
    moments: Vec<Digests>,
    /// When `k` operations had returned: the moment of the last sync before, and the last moment.
    reached: Vec<(usize, usize)>,
}

impl History {
    /// Begins with what was found when the pool was opened: all of it is durable.
    fn new(parts: Parts, found: &Pairs) -> History {
        let moments = vec![parts.digests(found)];
        History { parts, moments, reached: vec![(0, 0)] }
    }

    /// Notes an operation that returned, and whether everything is durable then.
    fn note(&mut self, before: &Model, op: &Op, durable: bool) {
        let after = each_step(before, op);
        self.moments.extend(after.iter().map(|pairs| self.parts.digests(pairs)));
        let last = self.moments.len() - 1;
        let synced = self.reached.last().map_or(0, |reached| reached.0);
        self.reached.push((if durable { last } else { synced }, last));
    }
}

impl Execution {
    /// Keeps the contents when another step has returned.
    fn keep(&mut self, keep: Keep, model: &Model, boot: Boot) {
        if keep == Keep::All {
            self.models.push(model.clone());
            self.boots.push(boot);
        }
    }

    /// Returns what power loss at this moment may leave, or a killed process.
    pub fn expected(&self, moment: &Moment, killed: bool) -> Arc<Expected> {
        // No reader saw anything while the pool was being opened, nor if it was refused.
        let done = (moment.returned as usize).checked_sub(1);
        let Some(done) = done.filter(|done| *done < self.models.len()) else {
            let Start { expected, after_power, is_settled, .. } = &self.start;
            return match self.found() {
                // Nothing was pending that a second crash could take back: what this recovery found
                // in the end, the next one finds, wherever this one is interrupted.
                Some(found) if *is_settled => Expected::OneOf(vec![found.clone()]).into(),
                _ if killed => expected.clone(),
                _ => after_power.clone(),
            };
        };
        let op = self.in_flight(moment);
        let expected = match &self.history {
            Some(history) if !killed => {
                let (synced, last) = history.reached[done];
                let moments = &history.moments[synced..=last];
                Expected::batched(&history.parts, moments, &self.models[done], op)
            }
            _ => Expected::around(&self.models[done], op),
        };
        expected.into()
    }

    /// Returns the operation under way; `None` also while the pool is being opened.
    pub fn in_flight(&self, moment: &Moment) -> Option<&Op> {
        let number = *moment.in_flight.first()? as usize;
        self.steps.get(number.checked_sub(1)?)
    }

    /// Returns whether the pool has just been closed at this moment.
    pub fn is_closed(&self, moment: &Moment) -> bool {
        self.closed.contains(&moment.event)
    }

    /// Returns the boot at this moment.
    pub fn boot(&self, moment: &Moment) -> Boot {
        let done = (moment.returned as usize).saturating_sub(1);
        self.boots.get(done).copied().unwrap_or(self.start.boot)
    }

    /// Returns the contents that were found when the pool was opened, if it was.
    pub fn found(&self) -> Option<&Pairs> {
        self.models.first().map(Model::pairs)
    }
}

/// Returns the boot after this one.
pub(super) fn next_boot(boot: Boot) -> Boot {
    let Boot([machine, number]) = boot;
    Boot([machine, number + 1])
}

/// Returns the boot after an outage in an execution. No crash of this execution leads to it: a
/// crash during the next open may leave a header that names it already.
fn boot_after_outage(boot: Boot) -> Boot {
    let Boot([machine, number]) = boot;
    Boot([machine, number + (1 << 32)])
}

/// Opens the pool on the medium, compares its contents, takes the steps, and compares again.
///
/// # Errors
/// What is wrong, without any further crash.
pub(super) fn execute(
    design: &Design<Traced>,
    region: &Region<Traced>,
    shape: &Shape,
    keys: &[Vec<u8>],
    start: Start,
    steps: Vec<Op>,
    keep: Keep,
) -> Result<Execution, Failure> {
    let medium = region.media();
    let opening = Opening { form: shape.form, boot: start.boot, ..Opening::default() };
    if start.closed {
        let previous = Pool::status(region, start.boot)?.previous;
        ensure!(previous == Shutdown::Clean, "the pool was closed, and counts as {previous:?}");
    }
    let mut execution = Execution {
        start,
        log: Log::default(),
        steps,
        models: vec![],
        boots: vec![],
        closed: vec![],
        history: None,
    };
    let left = Left::behind(design, region, &execution.start);
    medium.begin(0);
    let opened = if execution.start.create {
        let tiny = Choice { sizing: Sizing::Tiny, changes: &[] };
        design.create(region.clone(), &opening, tiny, &Inline)
    } else {
        design.open(region.clone(), opening.boot, &Inline)
    };
    medium.returned(0);
    let table = match opened {
        // With its header the pool exists, and has to open.
        Err(_) if execution.start.may_be_refused() && Pool::inspect(region).is_err() => {
            if keep == Keep::All {
                execution.log = medium.take_log();
            }
            return Ok(execution);
        }
        opened => opened.map_err(|error| Failure::from(error).at("opening the pool"))?,
    };
    let (boot, by_turns) = (opening.boot, execution.start.by_turns);
    let mut process = Process { design, region, boot, by_turns, table: Some(table) };
    let found = scan_all(process.table())?;
    execution.start.expected.accept(&found)?;
    left.judge(&found)?;
    process.read_out(&found, keys).map_err(|failure| failure.at("after opening"))?;
    if design.batches() && keep == Keep::All {
        let table = process.table();
        let keys = keys.iter().chain(found.keys());
        let parts = Parts::new(keys.map(|key| (key.clone(), table.durability_partition(key))));
        execution.history = Some(History::new(parts, &found));
    }
    process.walk(&mut execution, Model::of(*shape, found), keys, keep)?;
    if keep == Keep::All {
        // Before the table is dropped: a drop is no part of any crash.
        execution.log = medium.take_log();
    }
    Ok(execution)
}

/// What the check says of a pool before it is opened.
enum Left {
    /// Nothing: it was not asked, or there need not be a pool.
    Nothing,
    /// Power was lost: an opening may find less than what was stored last.
    Sound(Result<Pairs, Failure>),
    /// Only its process ended: an opening finds just that.
    Visible(Result<Pairs, Failure>),
}

impl Left {
    fn behind(design: &Design<Traced>, region: &Region<Traced>, start: &Start) -> Left {
        // A status reads the header, and states differ by what is read: not without need.
        if !start.is_checked {
            return Left::Nothing;
        }
        let Ok(status) = Pool::status(region, start.boot) else { return Left::Nothing };
        let found = check_left_pool(design, region, start.boot);
        match status.previous {
            Shutdown::Power => Left::Sound(found),
            Shutdown::Clean | Shutdown::Process => Left::Visible(found),
        }
    }

    /// Compares what was said with what the opening has found.
    fn judge(self, found: &Pairs) -> Result<(), Failure> {
        let outcome = match self {
            Left::Nothing => Ok(()),
            Left::Sound(said) => said.map(drop),
            Left::Visible(said) => said.and_then(|said| compare("it", &said, found)),
        };
        outcome.map_err(|failure| failure.at("the check before opening"))
    }
}

/// An open table, and the boot under which it was opened.
struct Process<'a> {
    design: &'a Design<Traced>,
    region: &'a Region<Traced>,
    boot: Boot,
    by_turns: bool,
    table: Option<Box<dyn Table>>,
}

impl Process<'_> {
    fn table(&self) -> &dyn Table {
        self.table.as_deref().expect("a process whose table is gone takes no step")
    }

    fn read_out(&self, expected: &Pairs, keys: &[Vec<u8>]) -> Result<(), Failure> {
        read_out(self.design, self.table(), self.region, expected, keys)
    }

    /// Takes the steps, beginning with the contents of `model`.
    fn walk(
        &mut self,
        execution: &mut Execution,
        mut model: Model,
        keys: &[Vec<u8>],
        keep: Keep,
    ) -> Result<(), Failure> {
        let (shape, mut now) = (*model.shape(), Duration::ZERO);
        execution.keep(keep, &model, self.boot);
        let steps = core::mem::take(&mut execution.steps);
        for (position, op) in steps.iter().enumerate() {
            let place = || format!("step {}, {op}", position + 1);
            let number = position as u32 + 1;
            let answer = self.step(&shape, &mut now, number, op, &mut execution.closed);
            let answer = answer.map_err(|failure| failure.at(place()))?;
            if let Some(history) = &mut execution.history {
                history.note(&model, op, op.restarts() || *op == Op::Sync);
            }
            let expected = model.apply(op);
            let inexact = *op == Op::Len && !self.design.capabilities.exact_len;
            ensure!(
                answer == expected || inexact,
                "{} returned {answer:?}; it should return {expected:?}",
                place()
            );
            if op.restarts() || position + 1 == steps.len() {
                self.read_out(model.pairs(), keys)
                    .map_err(|failure| failure.at(format!("after {}", place())))?;
            }
            execution.keep(keep, &model, self.boot);
        }
        execution.steps = steps;
        Ok(())
    }

    fn step(
        &mut self,
        shape: &Shape,
        now: &mut Duration,
        number: u32,
        op: &Op,
        closed: &mut Vec<usize>,
    ) -> Result<Outcome, Failure> {
        let medium = self.region.media();
        medium.begin(number);
        let outcome = match op {
            Op::Reopen => {
                let table = self.table.take().expect("a process has a table between steps");
                table.close()?;
                // Another process may open it next; until then it lies there closed.
                closed.push(medium.log_length());
                medium.exit();
                self.open()?
            }
            Op::Kill => {
                self.end();
                self.open()?
            }
            Op::Outage => {
                // Which unsynced writes power loss takes back, the checker tries.
                if self.design.batches() {
                    self.table().sync()?;
                }
                self.end();
                self.boot = boot_after_outage(self.boot);
                self.open()?
            }
            _ if self.by_turns => {
                as_thread(thread_of(number), || perform(self.table(), shape, now, op))?
            }
            _ => perform(self.table(), shape, now, op)?,
        };
        medium.returned(number);
        Ok(outcome)
    }

    fn end(&mut self) {
        self.table = None;
        self.region.media().exit();
    }

    fn open(&mut self) -> Result<Outcome, Failure> {
        let table = self.design.open(self.region.clone(), self.boot, &Inline)?;
        self.table = Some(table);
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;
    use crate::workload::parse;
    use everhash_index::{Durability, Form};
    use everhash_pmem::crash::{Explorer, Memory, Model as CrashModel};

    /// What a process finds that makes the pool.
    fn new_pool() -> Start {
        let expected = Arc::new(Expected::NoPoolOr);
        Start {
            boot: Opening::default().boot,
            after_power: expected.clone(),
            expected,
            create: true,
            closed: false,
            is_settled: false,
            is_checked: false,
            by_turns: false,
        }
    }

    fn run(design: &Design<Traced>, region: &Region<Traced>, start: Start, ops: &str) -> Execution {
        let (shape, steps) = (Shape::tiny(Form::WORDS), parse(ops).unwrap());
        execute(design, region, &shape, &[], start, steps, Keep::All).unwrap()
    }

    fn medium() -> Region<Traced> {
        Region::new(Traced::new(CrashModel::Adr, 0, 64 << 10))
    }

    #[test]
    fn a_crash_takes_back_of_a_batch_what_came_after_the_last_sync_or_restart() {
        // Fails if what a sync, a close or a recovery made durable may be lost, if nothing may, or
        // if many puts are one moment.
        let mut design = Design::of::<Reference>();
        design.capabilities.durability = &[Durability::Batch];
        let ops = "put:1:1 sync put_many:2=2,3=3 kill put:1:4";
        let execution = run(&design, &medium(), new_pool(), ops);
        let reached = execution.history.expect("it batches").reached;
        assert_eq!(reached, [(0, 0), (0, 1), (2, 2), (2, 4), (5, 5), (5, 6)]);
    }

    #[test]
    fn a_killed_process_takes_back_nothing_of_a_batch_and_lost_power_may() {
        // Fails if a process that is killed may lose what is visible and not synced.
        let mut design = Design::of::<Reference>();
        design.capabilities.durability = &[Durability::Batch];
        let (shape, steps) = (Shape::tiny(Form::WORDS), parse("put:1:1 put:2:2").unwrap());
        let keys = [1, 2].map(|key| shape.key(key));
        let execution =
            execute(&design, &medium(), &shape, &keys, new_pool(), steps, Keep::All).unwrap();
        let done = Moment { returned: 3, ..Moment::default() };
        let [power, kill] = [false, true].map(|killed| execution.expected(&done, killed));
        let one = execution.models[1].pairs();
        assert!(power.accept(one).is_ok() && kill.accept(one).is_err());
        assert!(kill.accept(execution.models[2].pairs()).is_ok());
    }

    #[test]
    fn operations_by_turns_are_those_of_two_threads() {
        // Fails if what one thread leaves to another is never crashed.
        let start = Start { by_turns: true, ..new_pool() };
        let puts: Vec<String> = (1..20).map(|key| format!("put:{key}:1")).collect();
        let execution = run(&Design::of::<Reference>(), &medium(), start, &puts.join(" "));
        let stores = |event: &&everhash_pmem::crash::Event| {
            matches!(event.what, everhash_pmem::crash::What::Store { .. })
        };
        let mut threads: Vec<u32> =
            execution.log.events().iter().filter(stores).map(|event| event.thread).collect();
        let turns = threads.windows(2).filter(|pair| pair[0] != pair[1]).count();
        threads.sort_unstable();
        threads.dedup();
        assert!(threads.len() >= 2 && turns > 4, "{threads:?}, {turns}");
    }

    #[test]
    fn a_crash_during_an_open_is_held_to_what_the_open_was_held_to() {
        // Fails if power that is lost while a process recovers from a kill may take back nothing,
        // or if it may take back what was durable when the process began.
        let (design, region) = (Design::of::<Reference>(), medium());
        let made = run(&design, &region, new_pool(), "put:1:1");
        let at_rest = Arc::new(Expected::around(made.models.last().unwrap(), None));
        let words = region.media().visible();
        for is_settled in [false, true] {
            region.media().restart(&words);
            let (expected, after_power) = (at_rest.clone(), Arc::new(Expected::NoPoolOr));
            let start = Start { expected, after_power, create: false, is_settled, ..new_pool() };
            let next = run(&design, &region, start, "get:1");
            let before = Memory::of(CrashModel::Adr, words.clone());
            let mut explorer = Explorer::new(before, next.log.events());
            let first = explorer.next_point().expect("an open has crash points").clone();
            assert_eq!(first.returned, 0);
            let [power, kill] = [false, true].map(|killed| next.expected(&first, killed));
            assert_eq!(Arc::ptr_eq(&power, &next.start.after_power), !is_settled);
            assert_eq!(Arc::ptr_eq(&kill, &at_rest), !is_settled);
            let found = next.found().unwrap();
            assert!(kill.accept(found).is_ok() && power.accept(found).is_ok() == is_settled);
        }
    }
}
