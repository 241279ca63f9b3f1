//! The life of one process: from the opening of a pool, over some operations, to its end.

use core::time::Duration;

use everhash_index::{Engine, Inline, Opening, Table};
use everhash_pmem::crash::{Log, Moment};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Boot, Pool, Region, Shutdown};

use super::expected::{Expected, each_step};
use super::parts::{Digests, Parts};
use crate::Complaint;
use crate::complaint::ensure;
use crate::model::{Model, Outcome, Pairs, perform, read_out, scan_all};
use crate::session::batches;
use crate::workload::{Op, Shape};

/// What a process finds when it begins.
#[derive(Clone)]
pub(super) struct Start {
    /// The boot of the machine.
    pub boot: Boot,
    /// What the pool may hold.
    pub expected: Expected,
    /// What it may hold after a power failure before it is open: of a batch that only the end of
    /// the process has left whole, what is not durable yet can still be lost.
    pub after_power: Expected,
    /// Whether the pool has to be made.
    pub create: bool,
    /// Whether the last process had just closed the pool.
    pub closed: bool,
}

impl Start {
    fn may_be_refused(&self) -> bool {
        !self.create && self.expected.may_be_refused()
    }
}

/// What a process did, as far as a crash in it can show.
pub(super) struct Life {
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
    /// For engines that batch durability: what a crash of power may take back.
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

impl Life {
    /// Returns what a crash at this moment may leave: of power, or of the process only.
    pub fn expected(&self, moment: &Moment, killed: bool) -> Expected {
        // Nothing was shown while the pool was being opened, nor if it was refused.
        let done = (moment.returned as usize).checked_sub(1);
        let Some(done) = done.filter(|done| *done < self.models.len()) else {
            let Start { expected, after_power, .. } = &self.start;
            return if killed { expected.clone() } else { after_power.clone() };
        };
        let op = self.in_flight(moment);
        match &self.history {
            Some(history) if !killed => {
                let (synced, last) = history.reached[done];
                let moments = &history.moments[synced..=last];
                Expected::batched(&history.parts, moments, &self.models[done], op)
            }
            _ => Expected::around(&self.models[done], op),
        }
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

/// Returns the boot after an outage in a life: one that no crash of this life leads to. A crash
/// inside the opening that follows may leave a header that names it already.
fn boot_after_outage(boot: Boot) -> Boot {
    let Boot([machine, number]) = boot;
    Boot([machine, number + (1 << 32)])
}

/// Lives: opens the pool on the medium, compares what it holds, takes the steps, compares again.
///
/// # Errors
/// What is wrong, without any further crash.
pub(super) fn live<E: Engine>(
    region: &Region<Traced>,
    shape: &Shape,
    keys: &[Vec<u8>],
    start: Start,
    steps: Vec<Op>,
) -> Result<Life, Complaint> {
    let medium = region.media();
    let opening = Opening { form: shape.form, boot: start.boot, ..Opening::default() };
    if start.closed {
        let previous = Pool::glance(region, start.boot)?.previous;
        ensure!(previous == Shutdown::Clean, "the pool was closed, and counts as {previous:?}");
    }
    let mut life = Life {
        start,
        log: Log::default(),
        steps,
        models: vec![],
        boots: vec![],
        closed: vec![],
        history: None,
    };
    medium.begin(0);
    let opened = if life.start.create {
        let settings = E::tiny(shape.form);
        everhash_index::create::<E, _>(region.clone(), &opening, &settings, &Inline)
    } else {
        everhash_index::open::<E, _>(region.clone(), opening.boot, &Inline)
    };
    medium.returned(0);
    let table = match opened {
        // With its header the pool exists, and has to open.
        Err(_) if life.start.may_be_refused() && Pool::inspect(region).is_err() => {
            life.log = medium.take_log();
            return Ok(life);
        }
        opened => opened.map_err(|error| Complaint::from(error).at("opening the pool"))?,
    };
    let mut process = Process::<E> { region, boot: opening.boot, table: Some(Box::new(table)) };
    let found = scan_all(process.table())?;
    life.start.expected.accept(&found)?;
    process.read_out(&found, keys).map_err(|complaint| complaint.at("after opening"))?;
    if batches::<E>() {
        let table = process.table();
        let keys = keys.iter().chain(found.keys());
        let parts = Parts::new(keys.map(|key| (key.clone(), table.part_of(key))));
        life.history = Some(History::new(parts, &found));
    }
    life.models.push(Model::of(*shape, found));
    life.boots.push(process.boot);
    process.walk(&mut life, shape, keys)?;
    // Before the table is dropped: what that does is no part of any crash.
    life.log = medium.take_log();
    Ok(life)
}

/// An open table, and the boot under which it was opened.
struct Process<'a, E: Engine> {
    region: &'a Region<Traced>,
    boot: Boot,
    table: Option<Box<E::Table<Traced>>>,
}

impl<E: Engine> Process<'_, E> {
    fn table(&self) -> &E::Table<Traced> {
        self.table.as_deref().expect("a process whose table is gone takes no step")
    }

    fn read_out(&self, expected: &Pairs, keys: &[Vec<u8>]) -> Result<(), Complaint> {
        read_out::<E, _>(self.table(), self.region, expected, keys)
    }

    fn walk(&mut self, life: &mut Life, shape: &Shape, keys: &[Vec<u8>]) -> Result<(), Complaint> {
        let mut now = Duration::ZERO;
        for (position, op) in life.steps.iter().enumerate() {
            let place = || format!("step {}, {op}", position + 1);
            let mut model = life.models.last().expect("the opening left one").clone();
            let number = position as u32 + 1;
            let answer = self.step(shape, &mut now, number, op, &mut life.closed);
            let answer = answer.map_err(|complaint| complaint.at(place()))?;
            let expected = model.apply(op);
            let inexact = *op == Op::Len && !E::CAPABILITIES.exact_len;
            ensure!(
                answer == expected || inexact,
                "{} returned {answer:?}; it should return {expected:?}",
                place()
            );
            if op.restarts() || position + 1 == life.steps.len() {
                self.read_out(model.pairs(), keys)
                    .map_err(|complaint| complaint.at(format!("after {}", place())))?;
            }
            if let Some(history) = &mut life.history {
                let before = life.models.last().expect("the opening left one");
                history.note(before, op, op.restarts() || *op == Op::Sync);
            }
            life.models.push(model);
            life.boots.push(self.boot);
        }
        Ok(())
    }

    fn step(
        &mut self,
        shape: &Shape,
        now: &mut Duration,
        number: u32,
        op: &Op,
        closed: &mut Vec<usize>,
    ) -> Result<Outcome, Complaint> {
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
                // What a power failure takes back is for the court to try.
                if batches::<E>() {
                    self.table().sync()?;
                }
                self.end();
                self.boot = boot_after_outage(self.boot);
                self.open()?
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

    fn open(&mut self) -> Result<Outcome, Complaint> {
        let table = everhash_index::open::<E, _>(self.region.clone(), self.boot, &Inline)?;
        self.table = Some(Box::new(table));
        Ok(Outcome::Done)
    }
}
