//! Maintenance: when an engine's `maintain` is called, and when an interval ends with a sync.
//!
//! A thread of its own does both; it sleeps while nobody writes. Without the thread, every 128th
//! write does them. A failure that stays inside the engine ends neither: the maintenance of the
//! other parts and the syncs go on, more seldom while it fails. [`Db::close`](crate::Db::close)
//! reports the failure unless maintenance has succeeded since, and damage or a panic unless a check
//! has found the database sound since. A failure that puts durability in doubt stops the handle,
//! and every later call reports it.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use everhash_index::Upkeep;

use crate::core::Core;
use crate::{Error, Result};

/// How often the thread looks after a table that is being written.
///
/// Source: ours; an engine that takes a million writes a second then has 10,000 new pairs to
/// look after, which its reserves outlast.
const TICK: Duration = Duration::from_millis(10);

/// How long maintenance waits after the first failure before it is tried again; twice as long after
/// each further one.
///
/// Source: ours; what was a matter of a moment is made up for soon.
const PAUSE: Duration = Duration::from_millis(100);

/// How long it waits at most.
///
/// Source: ours; a failure that stays, as on a full disk, costs nothing to speak of, and a batch
/// that the engine cannot end waits no longer for the sync of the store.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Without a thread, every how many-th write does some maintenance.
///
/// Source: ours; with the budget of one call, work per write stays bounded by a few buckets.
const EVERY: u32 = 128;

/// Which syncs are due without being asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Syncs {
    /// None: each write is durable when it returns, or only [`Db::sync`](crate::Db::sync) counts.
    Never,
    /// Those of the engine, from inside `maintain`.
    ByEngine,
    /// One, so long after a write at the latest.
    Every(Duration),
}

/// The maintenance of one table, shared by its writers and the thread.
#[derive(Debug)]
pub(crate) struct Maintenance {
    /// Whether a thread does it.
    threaded: AtomicBool,
    syncs: Syncs,
    /// Whether there were writes since the thread last looked.
    active: AtomicBool,
    /// Writes since the last maintenance, where there is no thread.
    writes: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
    /// The first damage or panic that maintenance met, unless a check has found none since. Held
    /// for a moment only, unlike `state`: a check holds up the writer that may hold that one.
    kept: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Since when there are writes that were not synced.
    unsynced_since: Option<Duration>,
    /// The last failure of `maintain`, unless it has succeeded since.
    failure: Option<String>,
    retry: Retry,
}

/// When maintenance is tried again after failures.
#[derive(Debug, Default)]
struct Retry {
    /// How many there were since it last succeeded.
    failures: u32,
    /// The earliest time of the next attempt; `None`: any.
    at: Option<Duration>,
}

impl Retry {
    /// Notes what became of an attempt.
    fn note(&mut self, failed: bool, now: Duration) {
        if !failed {
            *self = Retry::default();
            return;
        }
        let pause = PAUSE.saturating_mul(2u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.at = now.checked_add(pause);
    }

    fn is_due(&self, now: Duration) -> bool {
        self.at.is_none_or(|at| at <= now)
    }
}

/// The parts of a piece of maintenance: each is done whatever becomes of the others.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    upkeep: Upkeep,
    failure: Option<Error>,
}

impl Parts {
    /// Notes what became of a part.
    pub(crate) fn add(&mut self, part: Result<Upkeep>) {
        match part {
            Ok(upkeep) => {
                self.upkeep.more |= upkeep.more;
                let deadlines = [self.upkeep.deadline, upkeep.deadline];
                self.upkeep.deadline = deadlines.into_iter().flatten().min();
            }
            Err(error) => self.failed(error),
        }
    }

    /// Notes what became of a part after which nothing is left to do.
    pub(crate) fn done(&mut self, part: Result<()>) {
        part.unwrap_or_else(|error| self.failed(error));
    }

    /// Notes a failure. The first one is reported, but damage before any other: those pass.
    pub(crate) fn failed(&mut self, error: Error) {
        let first = self.failure.as_ref();
        if first.is_none_or(|first| error.is_damage() && !first.is_damage()) {
            self.failure = Some(error);
        }
    }

    /// Returns what is left to do, or the failure.
    pub(crate) fn end(self) -> Result<Upkeep> {
        self.failure.map_or(Ok(self.upkeep), Err)
    }
}

/// The thread that does the maintenance of one table.
#[derive(Debug)]
pub(crate) struct MaintenanceThread {
    thread: JoinHandle<()>,
}

impl Maintenance {
    pub(crate) fn new(syncs: Syncs) -> Maintenance {
        Maintenance {
            threaded: AtomicBool::new(false),
            syncs,
            active: AtomicBool::new(false),
            writes: AtomicU32::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            kept: Mutex::default(),
        }
    }

    /// Notes that something was written.
    #[inline]
    pub(crate) fn written(&self, core: &Core) {
        if self.threaded.load(Ordering::Relaxed) {
            self.wake_if_asleep();
        } else if self.writes.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1 {
            self.maintain_between_writes(core);
        }
    }

    /// Wakes the thread after a write, where there is one.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        // Sequentially consistent, as is the swap in `rest`: either the thread syncs after this
        // write, or this load sees that the thread has to be woken.
        if !self.active.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Returns the failure that a close reports.
    pub(crate) fn failure(&self) -> Option<String> {
        let kept = self.kept().as_deref().map(with_advice);
        kept.or_else(|| self.state().failure.clone())
    }

    /// Keeps damage or a panic that maintenance has met in the database, if it is the first.
    #[cold]
    pub(crate) fn keep(&self, _path: &Path, cause: String) {
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "everhash",
            database = %_path.display(),
            cause,
            "maintenance failed"
        );
        self.kept().get_or_insert(cause);
    }

    /// Forgets what was kept, because a check that no maintenance disturbs has found no damage.
    pub(crate) fn forget(&self) {
        *self.kept() = None;
    }

    fn kept(&self) -> MutexGuard<'_, Option<String>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether maintenance may be tried now.
    fn is_due(&self, now: Duration) -> bool {
        self.state().retry.is_due(now)
    }

    /// Notes what became of an attempt of the thread; returns whether the store has to sync what
    /// the engine should have made durable.
    fn attempted(&self, failure: Option<String>, now: Duration) -> bool {
        let mut state = self.state();
        let failed = failure.is_some();
        state.attempted(failure, now);
        // What is written from here on is seen at the next attempt.
        failed
            && self.syncs == Syncs::ByEngine
            && self.active.swap(false, Ordering::SeqCst) | state.unsynced_since.take().is_some()
    }

    #[cold]
    fn wake(&self) {
        // Without a thread there is nobody to wake, and a writer that does the maintenance holds
        // the lock while the store's own writes come here.
        if !self.threaded.load(Ordering::Relaxed) {
            return;
        }
        let _state = self.state();
        self.active.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Does a little maintenance on the thread of a writer, unless another writer is doing it.
    #[cold]
    fn maintain_between_writes(&self, core: &Core) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // The write is done and has no error. A failure that stops the handle is reported by its
        // next use.
        let mut failed = false;
        if state.retry.is_due(core.now()) {
            let (_, failure) = attempt(core);
            failed = failure.is_some();
            state.attempted(failure, core.now());
        }
        let now = core.now();
        let since = state.unsynced_since.unwrap_or_default();
        let is_due = match self.syncs {
            Syncs::Every(interval) => now.saturating_sub(since) >= interval,
            Syncs::ByEngine => failed,
            Syncs::Never => false,
        };
        if is_due {
            let _ = core.sync();
            state.unsynced_since = Some(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn attempted(&mut self, failure: Option<String>, now: Duration) {
        self.retry.note(failure.is_some(), now);
        self.failure = failure;
    }
}

impl MaintenanceThread {
    /// Starts the thread. Where the system refuses one, writes do the maintenance.
    pub(crate) fn start(core: &Arc<Core>) -> Option<MaintenanceThread> {
        let shared = Arc::clone(core);
        core.maintenance.threaded.store(true, Ordering::Relaxed);
        let builder = std::thread::Builder::new().name("everhash-maintenance".into());
        match builder.spawn(move || run(&shared)) {
            Ok(thread) => Some(MaintenanceThread { thread }),
            Err(_) => {
                core.maintenance.threaded.store(false, Ordering::Relaxed);
                None
            }
        }
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(self, core: &Core) {
        {
            let mut state = core.maintenance.state();
            state.stop = true;
            core.maintenance.changed.notify_all();
        }
        // It catches its panics and reports them through the handle.
        let _ = self.thread.join();
    }
}

/// The body of the thread. Without the thread an interval would never end: if it panics, the
/// handle stops, so that no write relies on a sync that does not come.
fn run(core: &Core) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| maintain_until_stopped(core))) {
        core.stop(format!("its maintenance thread panicked: {}", text_of(&*panic)));
    }
}

fn maintain_until_stopped(core: &Core) {
    let maintenance = &core.maintenance;
    let mut upkeep = Upkeep::default();
    loop {
        // While it fails, syncs come between two attempts.
        if maintenance.is_due(core.now()) {
            let failure;
            (upkeep, failure) = attempt(core);
            let is_left = maintenance.attempted(failure, core.now());
            // What the engine should have made durable is made durable here, or the handle stops.
            if core.is_stopped() || (is_left && core.sync().is_err()) {
                return;
            }
        }
        match rest(core, &upkeep) {
            Next::Stop => return,
            Next::Maintain => {}
            Next::Sync if core.sync().is_err() => return,
            Next::Sync => {}
        }
    }
}

/// Calls `maintain` once; returns what is left to do, and the failure if there was one. A panic in
/// the engine is one: the locks it held there are poisoned, and the rest of the table goes on.
fn attempt(core: &Core) -> (Upkeep, Option<String>) {
    match catch_unwind(AssertUnwindSafe(|| core.maintain())) {
        Ok(Ok(upkeep)) => (upkeep, None),
        // That says what to do itself, and a check would find nothing.
        Ok(Err(error)) if error.is_full() => (Upkeep::default(), Some(error.cause())),
        Ok(Err(error)) => (Upkeep::default(), Some(with_advice(&error.cause()))),
        Err(panic) => {
            let cause = format!("a panic: {}", text_of(&*panic));
            core.maintenance.keep(core.path(), cause.clone());
            (Upkeep::default(), Some(cause))
        }
    }
}

fn with_advice(cause: &str) -> String {
    format!("{cause}; check the database")
}

/// Returns the message of a panic.
pub(crate) fn text_of(panic: &(dyn core::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it gave no reason")
}

enum Next {
    Stop,
    Maintain,
    Sync,
}

/// Waits until there is something to do.
fn rest(core: &Core, upkeep: &Upkeep) -> Next {
    let maintenance = &core.maintenance;
    let mut state = maintenance.state();
    loop {
        if state.stop {
            return Next::Stop;
        }
        let retry_at = state.retry.at;
        // While it fails, a write wakes the thread only if there is a sync to plan, and others go
        // on beside it: they must not wake it one by one.
        let asks = retry_at.is_none() || state.unsynced_since.is_none();
        let active = asks && maintenance.active.swap(false, Ordering::SeqCst);
        if active && state.unsynced_since.is_none() {
            state.unsynced_since = Some(core.now());
        }
        let sync_at = match (maintenance.syncs, state.unsynced_since) {
            // An end beyond all time is none.
            (Syncs::Every(interval), Some(since)) => since.checked_add(interval),
            _ => None,
        };
        let now = core.now();
        if sync_at.is_some_and(|at| at <= now) {
            state.unsynced_since = None;
            return Next::Sync;
        }
        let until_sync = sync_at.map(|at| at.saturating_sub(now));
        let until_next = match retry_at {
            Some(at) if at <= now => return Next::Maintain,
            Some(at) => Some(at.saturating_sub(now)),
            None if upkeep.more || upkeep.deadline.is_some_and(|at| at <= now) => {
                return Next::Maintain;
            }
            None if active => {
                // While the table is being written, nobody needs to wake this thread.
                let tick = until_sync.map_or(TICK, |left| left.min(TICK));
                let wait = maintenance.changed.wait_timeout_while(state, tick, |it| !it.stop);
                drop(wait.unwrap_or_else(PoisonError::into_inner));
                return Next::Maintain;
            }
            None => upkeep.deadline.map(|at| at.saturating_sub(now)),
        };
        state = match [until_sync, until_next].into_iter().flatten().min() {
            Some(left) => {
                let wait = maintenance.changed.wait_timeout(state, left);
                wait.unwrap_or_else(PoisonError::into_inner).0
            }
            None => maintenance.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_second_and_ends_with_a_success() {
        // Fails if it grew for ever, or if it were not forgotten.
        let ms = Duration::from_millis;
        let mut retry = Retry::default();
        assert!(retry.is_due(Duration::ZERO));
        for _ in 0..2 {
            let mut now = ms(50);
            for pause in [100, 200, 400, 800, 1000, 1000].into_iter().chain([1000; 100]) {
                retry.note(true, now);
                assert!(!retry.is_due(now + ms(pause - 1)) && retry.is_due(now + ms(pause)));
                now += ms(pause);
            }
            retry.note(false, now);
            assert!(retry.is_due(Duration::ZERO));
        }
        retry.note(true, Duration::MAX);
        assert!(retry.is_due(Duration::ZERO), "a time that no clock can name is no reason to wait");
    }

    #[test]
    fn the_first_damage_is_the_one_that_is_reported() {
        // Fails if what it led to later took its place.
        let maintenance = Maintenance::new(Syncs::Never);
        for cause in ["first", "second"] {
            maintenance.keep(Path::new("pairs.ehdb"), cause.to_owned());
        }
        assert_eq!(maintenance.failure().as_deref(), Some("first; check the database"));
        maintenance.forget();
        assert_eq!(maintenance.failure(), None);
    }
}
