//! Upkeep: who calls an engine's `maintain`, and who syncs at the end of an interval.
//!
//! A thread of its own, which sleeps as long as nobody writes; or, for those who want no thread,
//! every so many-th write.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::core::Core;

/// How often the thread looks after a table that is being written.
///
/// Source: ours; an engine that takes a million writes a second then has 10,000 new pairs to
/// look after, which its reserves outlast.
const TICK: Duration = Duration::from_millis(10);

/// Without a thread, every how many-th write does some upkeep.
///
/// Source: ours; with the budget of one call, work per write stays bounded by a few buckets.
const EVERY: u32 = 128;

/// What upkeep there is to do, and who does it.
#[derive(Debug)]
pub(crate) struct Duty {
    /// Whether a thread does it.
    threaded: AtomicBool,
    /// How long a write may wait for its sync.
    interval: Option<Duration>,
    /// Whether there were writes since the thread last looked.
    active: AtomicBool,
    /// Writes since the last upkeep, where there is no thread.
    writes: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Since when there are writes that were not synced.
    unsynced_since: Option<Duration>,
}

/// The thread that does the upkeep of one table.
#[derive(Debug)]
pub(crate) struct Caretaker {
    thread: JoinHandle<()>,
}

impl Duty {
    pub(crate) fn new(interval: Option<Duration>) -> Duty {
        Duty {
            threaded: AtomicBool::new(false),
            interval,
            active: AtomicBool::new(false),
            writes: AtomicU32::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Notes that something was written.
    #[inline]
    pub(crate) fn written(&self, core: &Core) {
        if self.threaded.load(Ordering::Relaxed) {
            // Mostly a load of a line that no one changes.
            if !self.active.load(Ordering::Relaxed) {
                self.wake();
            }
        } else if self.writes.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1 {
            self.tend_between_writes(core);
        }
    }

    #[cold]
    fn wake(&self) {
        let _state = self.state();
        self.active.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Does a little upkeep on the thread of a writer. Another writer's turn is not waited for.
    #[cold]
    fn tend_between_writes(&self, core: &Core) {
        let Ok(mut state) = self.state.try_lock() else { return };
        // An error here is no error of the write, which is done. If it was the device's, the
        // handle is dead now and says so at its next use.
        let _ = core.maintain();
        if let Some(interval) = self.interval {
            let now = core.now();
            if now.saturating_sub(state.unsynced_since.unwrap_or_default()) >= interval {
                let _ = core.sync();
                state.unsynced_since = Some(now);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caretaker {
    /// Starts the thread. Where the system refuses one, writes do the upkeep.
    pub(crate) fn start(core: &Arc<Core>) -> Option<Caretaker> {
        let shared = Arc::clone(core);
        core.duty.threaded.store(true, Ordering::Relaxed);
        let builder = std::thread::Builder::new().name("everhash-upkeep".into());
        match builder.spawn(move || run(&shared)) {
            Ok(thread) => Some(Caretaker { thread }),
            Err(_) => {
                core.duty.threaded.store(false, Ordering::Relaxed);
                None
            }
        }
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(self, core: &Core) {
        {
            let mut state = core.duty.state();
            state.stop = true;
            core.duty.changed.notify_all();
        }
        // A panic in there has been reported on standard error; the table refuses what it must.
        let _ = self.thread.join();
    }
}

fn run(core: &Core) {
    loop {
        // The thread ends where nothing can be done any more; the handle says why.
        let Ok(upkeep) = core.maintain() else { return };
        match rest(core, upkeep.more, upkeep.deadline) {
            Next::Stop => return,
            Next::Tend => {}
            Next::Sync => {
                if core.sync().is_err() {
                    return;
                }
            }
        }
    }
}

enum Next {
    Stop,
    Tend,
    Sync,
}

/// Waits until there is something to do.
fn rest(core: &Core, more: bool, deadline: Option<Duration>) -> Next {
    let duty = &core.duty;
    let mut state = duty.state();
    loop {
        if state.stop {
            return Next::Stop;
        }
        let active = duty.active.swap(false, Ordering::Relaxed);
        if active && state.unsynced_since.is_none() {
            state.unsynced_since = Some(core.now());
        }
        let sync_at = match (duty.interval, state.unsynced_since) {
            (Some(interval), Some(since)) => Some(since + interval),
            _ => None,
        };
        let now = core.now();
        if sync_at.is_some_and(|at| at <= now) {
            state.unsynced_since = None;
            return Next::Sync;
        }
        if more || deadline.is_some_and(|at| at <= now) {
            return Next::Tend;
        }
        if active {
            // While the table is being written, nobody needs to wake this thread.
            let pause = sync_at.map_or(TICK, |at| TICK.min(at - now));
            let wait = duty.changed.wait_timeout_while(state, pause, |state| !state.stop);
            drop(wait.unwrap_or_else(PoisonError::into_inner));
            return Next::Tend;
        }
        state = match [sync_at, deadline].into_iter().flatten().min() {
            Some(at) => {
                let wait = duty.changed.wait_timeout(state, at - now);
                wait.unwrap_or_else(PoisonError::into_inner).0
            }
            None => duty.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
