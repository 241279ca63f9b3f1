//! One program under many schedules.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use everhash_index::{Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Image, Media};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::bursts::Bursts;
use super::crash;
use super::judge::Subject;
use super::program::Program;
use super::tracker::{Clock, Tracker};
use crate::failure::{ensure, no_panic};
use crate::model::{Pairs, check_pool, scan_all};
use crate::primitives::Shuttle;
use crate::workload::{Op, Shape};
use crate::{Failure, OpenTable};

/// To what length the media can grow. Unit: bytes.
///
/// Source: ours; tiny tables fit into 64 KiB, and making a medium costs time for every schedule.
const CAPACITY_BYTES: u64 = 512 << 10;

/// After how many steps a schedule counts as one that never ends.
///
/// Source: ours; schedules of a dozen operations take some thousands.
const STEPS: usize = 400_000;

/// How many schedules of a program are tried, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub form: Form,
    pub model: Model,
    pub schedules: usize,
    pub seed: u64,
    /// Every how many schedules all crashes are tried; 0 for never.
    pub crash_every: usize,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    pub schedules: u64,
    pub crashed_schedules: u64,
    pub states: u64,
    pub undecided: u64,
}

/// Everything that the schedules of a program share.
struct Shared {
    subject: Subject,
    plan: Plan,
    program: Program,
    /// The medium with the loaded table, closed.
    words: Vec<u64>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    tally: Tally,
    failure: Option<Failure>,
}

impl Shared {
    fn progress<R>(&self, work: impl FnOnce(&mut Progress) -> R) -> R {
        work(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a program under the schedules of a plan.
pub(super) fn run(subject: &Subject, program: &Program, plan: &Plan) -> Result<Tally, Failure> {
    let words = no_panic(|| prepare(subject, program.load, plan))?;
    let (subject, program, plan) = (*subject, program.clone(), *plan);
    let shared = Arc::new(Shared { subject, plan, program, words, progress: Mutex::default() });
    // Uniform schedules interleave finely, bursts let one thread overtake another that hangs in the
    // middle, and priorities (PCT) find orders that need few, well-placed switches.
    let third = plan.schedules / 3;
    let uniform = plan.schedules - 2 * third;
    schedule(&shared, RandomScheduler::new_from_seed(plan.seed, uniform))?;
    schedule(&shared, Bursts::new(plan.seed, third))?;
    if third > 0 && shared.program.threads.len() > 1 {
        schedule(&shared, PctScheduler::new_from_seed(plan.seed, 3, third))?;
    }
    Ok(shared.progress(|progress| progress.tally))
}

fn schedule(shared: &Arc<Shared>, scheduler: impl Scheduler + 'static) -> Result<(), Failure> {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    let inside = Arc::clone(shared);
    let body = move || {
        if inside.progress(|progress| progress.failure.is_some()) {
            return;
        }
        if let Err(failure) = once(&inside) {
            inside.progress(|progress| progress.failure = Some(failure));
        }
    };
    let finished = no_panic(|| Ok(runner.run(body)));
    let failure = shared.progress(|progress| progress.failure.take());
    failure.map_or(finished.map(drop), Err)
}

/// Makes the table that a program begins with; returns the words of its medium.
fn prepare(subject: &Subject, load: u16, plan: &Plan) -> Result<Vec<u64>, Failure> {
    let medium = Image::new(0, CAPACITY_BYTES).with_guarantees(plan.model.guarantees());
    let mut session = OpenTable::create(&subject.plain, medium, plan.form)?;
    let shape = Shape::tiny(plan.form);
    for key in 0..load {
        session.table().put(&shape.key(key), &shape.value(u32::from(key)))?;
    }
    session.close()?;
    Ok(session.region().media().words())
}

/// The log as a clock: the number of events that have happened.
struct LogClock {
    medium: Arc<Traced<Shuttle>>,
}

impl Clock for LogClock {
    fn begin(&self) -> u64 {
        // The number of the operation is the place of its begin in the log.
        self.medium.begin(self.medium.log_length() as u32);
        self.medium.log_length() as u64
    }

    fn end(&self, begin: u64) -> u64 {
        self.medium.returned(begin as u32 - 1);
        self.medium.log_length() as u64
    }
}

/// Runs one schedule.
fn once(shared: &Arc<Shared>) -> Result<(), Failure> {
    let plan = &shared.plan;
    let shape = Shape::tiny(plan.form);
    let medium = Arc::new(Traced::<Shuttle>::new(plan.model, 0, CAPACITY_BYTES));
    medium.restart(&shared.words);
    let session = Arc::new(OpenTable::open(&shared.subject.scheduled, Arc::clone(&medium))?);
    let tracker = Arc::new(Tracker::new(shape, shared.program.keys()));
    for key in 0..shared.program.load {
        tracker.begins_with(key, &shape.value(u32::from(key)));
    }
    let clock = LogClock { medium: Arc::clone(&medium) };
    let begun = work(session.table(), &tracker, &clock, &shared.program.prelude, Duration::ZERO);
    let now = begun.map_err(|failure| failure.at("before the threads"))?;
    let threads: Vec<_> = (0..shared.program.threads.len())
        .map(|thread| {
            let (shared, session) = (Arc::clone(shared), Arc::clone(&session));
            let (tracker, medium) = (Arc::clone(&tracker), Arc::clone(&medium));
            shuttle::thread::spawn(move || {
                let ops = &shared.program.threads[thread];
                work(session.table(), &tracker, &LogClock { medium }, ops, now).map(drop)
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))?;
    }
    let end = medium.log_length() as u64 + 1;
    let undecided = tracker.judge()?;
    settled(&session, &tracker, end)?;
    let session = Arc::into_inner(session).expect("the threads have ended");
    closed(session, shared, &tracker, end)
        .map_err(|failure| failure.at("closed after the race"))?;
    // With the close: it is crashed as well.
    let log = medium.take_log();
    let round = shared.progress(|progress| {
        progress.tally.schedules += 1;
        progress.tally.undecided += undecided;
        progress.tally.schedules as usize
    });
    // What a crash may take back of a batch is for the crash judge to say. (No round is a multiple
    // of zero.)
    if round.is_multiple_of(plan.crash_every) && !shared.subject.plain.batches() {
        let states = crash::survive(&shared.subject.plain, plan, &shared.words, &log, &tracker)?;
        shared.progress(|progress| {
            progress.tally.states += states;
            progress.tally.crashed_schedules += 1;
        });
    }
    Ok(())
}

/// Does some operations, from a time on; returns the time after them.
fn work(
    table: &dyn Table,
    tracker: &Tracker,
    clock: &impl Clock,
    ops: &[Op],
    mut now: Duration,
) -> Result<Duration, Failure> {
    for op in ops {
        tracker.perform(table, clock, &mut now, op).map_err(|failure| failure.at(op))?;
    }
    Ok(now)
}

/// Checks the table when all threads have ended: all ways of reading agree, and every value is one
/// that the history explains.
fn settled<M: Media>(session: &OpenTable<M>, tracker: &Tracker, end: u64) -> Result<(), Failure> {
    let table = session.table();
    let pairs = scan_all(table)?;
    explain(table, &pairs, tracker, end)?;
    table.check()?;
    if session.design().batches() {
        table.sync()?;
    }
    let found = check_pool(session.design(), session.region())?;
    crate::model::compare("the check after the race", &found, &pairs)?;
    let length = table.len()?;
    let exact = session.design().capabilities.exact_len;
    ensure!(!exact || length == pairs.len() as u64, "len is {length} of {} pairs", pairs.len());
    Ok(())
}

/// Closes the table, and checks what the next process finds: what a close writes down comes from
/// what the threads left in DRAM.
fn closed(
    mut session: OpenTable<Traced<Shuttle>>,
    shared: &Shared,
    tracker: &Tracker,
    end: u64,
) -> Result<(), Failure> {
    session.close()?;
    let words = session.region().media().visible();
    let bytes = words.len() as u64 * 8;
    let image = Image::of(&words, bytes, bytes + crash::ROOM_BYTES);
    let guarantees = shared.plan.model.guarantees();
    let next = OpenTable::open(&shared.subject.plain, image.with_guarantees(guarantees))?;
    settled(&next, tracker, end)
}

/// Checks that each key has a value that a history may leave at `time`, and that reading by key
/// and by scan agree.
pub(super) fn explain(
    table: &dyn Table,
    scanned: &Pairs,
    tracker: &Tracker,
    time: u64,
) -> Result<(), Failure> {
    let stranger = scanned.keys().find(|key| !tracker.keys().contains_key(*key));
    ensure!(stranger.is_none(), "there is a key that nobody wrote");
    for (bytes, key) in tracker.keys() {
        let found = crate::model::get(table, bytes)?;
        let agree = found.as_ref() == scanned.get(bytes);
        ensure!(agree, "get and scan do not agree about key {key}");
        tracker
            .may_leave(*key, time, found.as_deref())
            .map_err(|story| Failure::new(format!("key {key} is not explained: {story}")))?;
    }
    Ok(())
}
