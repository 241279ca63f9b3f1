//! The open table and its guards: the gate, the fork check, and the stop after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use everhash_index::{Checked, Durability as Mode, Stats, Table, Upkeep};
use everhash_pmem::Origin;

use crate::catalog::File;
use crate::error::Shown;
use crate::expiring::{Wall, WallTime};
use crate::gate::{Gate, Stillness};
use crate::maintenance::{Maintenance, Parts, text_of};
use crate::metrics::{Counters, Kind};
use crate::snapshot::{Kept, Save, Snapshots};
use crate::tables::Tables;
use crate::{Error, Result};

/// How much work one call of [`Table::maintain`] may do. Unit: buckets or records.
///
/// Source: ours; about a tenth of a millisecond, so that a stop of the thread is never late.
const BUDGET: u32 = 256;

/// How many steps the store's own part of maintenance does at most where the engine's part fails.
///
/// Source: ours; some milliseconds, after each of which failing maintenance waits up to a second.
const STEPS_BESIDE_FAILURE: u32 = 64;

/// An open table and its guards, shared by the handles and the background thread.
pub(crate) struct Core {
    table: Box<dyn Table>,
    path: Arc<Path>,
    gate: Gate,
    /// Whether the handle has stopped: nothing can be promised any more.
    stopped: AtomicBool,
    /// The first failure, which every later call reports.
    cause: OnceLock<String>,
    origin: Origin,
    writable: bool,
    opened: Instant,
    /// Whether a write is to be durable when it returns, and the table batches.
    syncs_each: bool,
    pub(crate) maintenance: Maintenance,
    /// The calls, where they are to be counted.
    counters: Option<Box<Counters>>,
    /// The file, for its figures alone.
    file: Option<File>,
    /// The tables, where pairs are byte strings.
    tables: Option<Tables>,
    snapshots: Snapshots,
    wall: Wall,
}

impl Core {
    pub(crate) fn new(
        table: Box<dyn Table>,
        path: Arc<Path>,
        origin: Origin,
        writable: bool,
        immediate: bool,
        maintenance: Maintenance,
    ) -> Core {
        let syncs_each = writable && immediate && table.durability() == Mode::Batch;
        Core {
            table,
            path,
            gate: Gate::default(),
            stopped: AtomicBool::new(false),
            cause: OnceLock::new(),
            origin,
            writable,
            opened: Instant::now(),
            syncs_each,
            maintenance,
            counters: None,
            file: None,
            tables: None,
            snapshots: Snapshots::default(),
            wall: Wall::System,
        }
    }

    /// Makes figures of the file and, where they are to be counted, of the calls available.
    pub(crate) fn observed(self, file: File, count_calls: bool) -> Core {
        let counters = count_calls.then(Box::default);
        Core { counters, file: Some(file), ..self }
    }

    /// Makes tables available, and says by which clock their pairs end.
    pub(crate) fn with(self, tables: Option<Tables>, wall: Wall) -> Core {
        Core { tables, wall, ..self }
    }

    #[inline(always)]
    pub(crate) fn tables(&self) -> Option<&Tables> {
        self.tables.as_ref()
    }

    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.counters.as_deref()
    }

    /// Returns how many syncs of the device began since the database was opened.
    pub(crate) fn device_syncs(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.media().syncs())
    }

    /// Returns the figures of the table, unless it cannot be asked any more.
    pub(crate) fn stats_if_possible(&self) -> Option<Stats> {
        self.admit().ok()?;
        self.table.stats().ok()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when the table itself makes a write durable.
    pub(crate) fn mode(&self) -> Mode {
        self.table.durability()
    }

    /// Runs a read.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.admit()?;
        let began = self.begin();
        let result = run(&*self.table).map_err(|error| self.failed(error));
        self.count(Kind::Read, began, result.is_err());
        result
    }

    /// Runs a write, when the gate is open; `touch` names the keys that it may change.
    #[inline]
    pub(crate) fn write<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.write_and(touch, run, || self.maintenance.written(self))
    }

    /// As [`Core::write`], for a caller that holds locks of the store: it does no maintenance,
    /// which takes them, too.
    pub(crate) fn write_locked<T>(
        &self,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.write_and(|_| Ok(()), run, || self.maintenance.wake_if_asleep())
    }

    #[inline(always)]
    fn write_and<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
        written: impl FnOnce(),
    ) -> Result<T> {
        self.admit_writes()?;
        let began = self.begin();
        let mut result = self.run_inside(touch, run);
        written();
        if self.syncs_each && result.is_ok() {
            result = self.sync().and(result);
        }
        self.count(Kind::Write, began, result.is_err());
        result
    }

    /// Begins to measure a call, where calls are counted.
    #[inline(always)]
    fn begin(&self) -> Option<Instant> {
        self.counters.as_ref().map(|_| Instant::now())
    }

    #[inline(always)]
    fn count(&self, kind: Kind, began: Option<Instant>, failed: bool) {
        if let (Some(counters), Some(began)) = (&self.counters, began) {
            counters.count(kind, began.elapsed(), failed);
        }
    }

    /// Runs something that no write may disturb.
    pub(crate) fn still<T>(
        &self,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.admit()?;
        let _still = self.shut();
        run(&*self.table).map_err(|error| self.failed(error))
    }

    pub(crate) fn shut(&self) -> Stillness<'_> {
        self.gate.shut()
    }

    /// Makes every write that returned durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.admit()?;
        if !self.writable {
            return Ok(());
        }
        spanned!(debug, "sync", self.path);
        let began = self.begin();
        let result = self.table.sync().map_err(|error| {
            // Whatever the reason: what the device holds is unknown from here on.
            self.stop(error.to_string());
            Error::of(&self.path, error)
        });
        self.count(Kind::Sync, began, result.is_err());
        result
    }

    /// Does some maintenance of the engine, and removes some pairs of dropped tables and some that
    /// have ended. Damage is kept for [`Core::close`].
    pub(crate) fn maintain(&self) -> Result<Upkeep> {
        self.admit()?;
        if !self.writable {
            return Ok(Upkeep::default());
        }
        spanned!(trace, "maintain", self.path);
        let engine = catch_unwind(AssertUnwindSafe(|| {
            let _pass = self.gate.enter_for_upkeep();
            self.table.maintain(self.opened.elapsed(), BUDGET)
        }));
        // Also if the engine cannot do its own: a part of it that is damaged, or that a panic has
        // left in doubt, must not keep what has ended.
        let step = || self.tables.as_ref().map(|tables| tables.maintain(self, BUDGET));
        let (mut own, mut steps) = (step(), 1);
        // What fails is tried more and more seldom: this part must not wait for that.
        let most = if matches!(engine, Ok(Ok(_))) { 1 } else { STEPS_BESIDE_FAILURE };
        while steps < most && matches!(&own, Some(Ok(upkeep)) if upkeep.more) {
            (own, steps) = (step(), steps + 1);
        }
        let mut parts = Parts::default();
        let panic = match engine {
            Ok(engine) => {
                parts.add(engine.map_err(|error| self.failed(error)));
                None
            }
            Err(panic) => {
                let cause = format!("a panic: {}", text_of(&*panic));
                self.maintenance.keep(&self.path, cause);
                Some(panic)
            }
        };
        own.into_iter().for_each(|own| parts.add(own));
        let result = parts.end().inspect_err(|error| {
            if error.is_damage() {
                self.maintenance.keep(&self.path, error.cause());
            }
        });
        panic.map_or(result, |panic| resume_unwind(panic))
    }

    /// Checks the whole table while no write is under way. A sound one has no damage that is kept
    /// for [`Core::close`].
    pub(crate) fn check(&self) -> Result<Checked> {
        self.still(|table| {
            let checked = table.check()?;
            self.maintenance.forget();
            Ok(checked)
        })
    }

    /// Runs a write inside the gate.
    #[inline(always)]
    fn run_inside<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        let _pass = self.gate.enter();
        let mut saved = Ok(());
        if self.snapshots.are_alive() {
            saved = self.snapshots.save(&*self.table, touch);
        }
        saved.and_then(|()| run(&*self.table)).map_err(|error| self.failed(error))
    }

    /// Begins a snapshot of this instant, and runs something while no write is under way.
    pub(crate) fn snapshot<R>(
        &self,
        limit: usize,
        run: impl FnOnce(&dyn Table) -> R,
    ) -> (Arc<Kept>, R) {
        let _still = self.gate.shut_for_writes();
        let kept = self.snapshots.begin(limit);
        (kept, run(&*self.table))
    }

    pub(crate) fn forget_snapshot(&self, kept: &Arc<Kept>) {
        if self.snapshots.end(kept) {
            // It may wait to remove the pairs of dropped tables.
            self.maintenance.wake_if_asleep();
        }
    }

    #[cfg(test)]
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    #[inline(always)]
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots.are_alive()
    }

    /// Runs a write of the store's own, whose caller may hold its locks: it counts as no call and
    /// does no maintenance, which takes them, too.
    pub(crate) fn write_own<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        let result = self.write_own_lazily(touch, run);
        if self.syncs_each && result.is_ok() {
            return self.sync().and(result);
        }
        result
    }

    /// As [`Core::write_own`], of what nobody sees, so that power loss may take it back: it waits
    /// for no device.
    pub(crate) fn write_own_lazily<T>(
        &self,
        touch: impl FnOnce(&mut Save<'_>) -> everhash_index::Result<()>,
        run: impl FnOnce(&dyn Table) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.admit_writes()?;
        let result = self.run_inside(touch, run);
        self.maintenance.wake_if_asleep();
        result
    }

    /// Returns the time since the database was opened: the clock of all maintenance.
    pub(crate) fn now(&self) -> core::time::Duration {
        self.opened.elapsed()
    }

    /// Returns the time of the clock on the wall, by which pairs end.
    pub(crate) fn wall(&self) -> WallTime {
        self.wall.now()
    }

    /// Returns whether the process is the one that opened the database.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Stops the handle: every later call fails and says why. The first cause stays.
    #[cold]
    pub(crate) fn stop(&self, cause: String) {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "everhash", database = %self.path.display(), cause, "stopped");
        let _ = self.cause.set(cause);
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns whether the handle has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Closes the table, unless the handle has stopped: then the next open finds what survived.
    pub(crate) fn close(self) -> Result<()> {
        if self.is_stopped() {
            return Err(self.refusal());
        }
        let failure = self.maintenance.failure();
        let path = self.path;
        spanned!(info, "close", path);
        self.table.close().map_err(|error| Error::of(&path, error))?;
        match failure {
            Some(cause) => Err(Error::Maintenance { path: Shown(path.to_path_buf()), cause }),
            None => Ok(()),
        }
    }

    /// Refuses a child of the process that opened the database.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(self.refusal()) }
    }

    #[inline(always)]
    fn admit(&self) -> Result<()> {
        if self.is_stopped() || !self.origin.is_here() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Returns the error of a write where there can be none.
    #[inline(always)]
    pub(crate) fn admit_writes(&self) -> Result<()> {
        self.admit()?;
        if !self.writable {
            return Err(Error::ReadOnly { path: self.shown() });
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self) -> Error {
        let path = self.shown();
        if !self.is_here() {
            return Error::Forked { path };
        }
        let cause = self.cause.get().cloned().unwrap_or_default();
        Error::Dead { path, cause }
    }

    /// Makes the error of a table; a failure of the device stops the handle.
    #[cold]
    fn failed(&self, error: everhash_index::Error) -> Error {
        if matches!(error, everhash_index::Error::Medium(_)) {
            self.stop(error.to_string());
        }
        Error::of(&self.path, error)
    }

    fn shown(&self) -> Shown {
        Shown(self.path.to_path_buf())
    }
}
