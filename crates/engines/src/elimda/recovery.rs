//! Opening a table (ElimDA 3.6), after a clean close and after a crash alike.
//!
//! | a crash leaves | recovery |
//! |---|---|
//! | stores that are visible and not durable | makes them durable before it relies on any |
//! | an upper half whose old segment still counts | takes it out of the segment table |
//! | a segment, an extent, a block or a record to which nothing leads | finds it free |
//! | copies in the log of what was relocated | finds their numbers not above the watermark |
//! | a slot of the log that was reserved and not filled | finds its live bit clear |
//! | an old item of 16-byte pairs beside its newer one | ends the old one |
//! | an item in a collecting log and in the backup log | ends the former |
//! | a slot of a collecting log that was handed out and not written | ends it |
//!
//! All of it is read and checked first: a damaged table that was closed is left as it was.
//!
//! No keys are compared, except to find the last row's: watermarks say what is dead.
//! Segments are read in parallel, then lanes; a bucket belongs to one lane, so that lanes share
//! nothing.

mod collected;
mod lanes;
mod segments;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Executor, Form as PairForm, Result};
use everhash_pmem::{
    Access, AtomicWord, Domain, Heap, LINE, Lock, Media, Pool, Shutdown, Space, pool,
};

use super::dram_table::DramTable;
use super::form::{Form, corrupt};
use super::layout::{self, Kind, ROOT, Root};
use super::look_ups::word_lookup;
use super::setup::ElimDaSettings;
use super::state::{Counter, ElimDa, Judge, SegmentTable};
use crate::common::hash::KeyedHash;

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything that is visible, before recovery relies on it.
        ACCEPTED = "elimda/recover/accepted";
        /// The slot of an upper half whose old segment still counts, which becomes free.
        DROPPED = "elimda/recover/dropped";
        /// The end of an item that has a newer one.
        ENDED = "elimda/recover/ended";
        /// What a crash has left behind in a collecting log.
        COLLECTED = "elimda/recover/collected";
        /// All of these, before anything is written to space that is free.
        REPAIRED = "elimda/recover/repaired";
        /// The link to the collecting logs.
        LOGS_LINK = "elimda/recover/logs-link";
    }
}

/// How many counters of items there are.
///
/// Unit: counters. Source: ours; two threads of 64 rarely meet.
const COUNTERS: usize = 64;

/// Opens the table in a pool.
///
/// # Errors
/// [`Error::Corrupt`] and errors of the medium.
pub fn open<M: Media, F: Form>(
    pool: Pool<M>,
    executor: &dyn Executor,
    judge: Judge<M>,
) -> Result<ElimDa<M, F>> {
    let settings = read_settings(&pool.access())?;
    let mut table = empty_table::<M, F>(pool, settings, judge)?;
    if table.pool.writable() && table.pool.previous_shutdown() != Shutdown::Clean {
        // After a crash of the process alone, what is visible need not be durable. What is relied
        // on below, and shown to a reader, must not be lost in the next power failure.
        table.pool.access().sync(sites::ACCEPTED)?;
    }
    let (lanes, collectors) = {
        let pm = table.pool.access();
        let (kept, dropped) = segments::find(&table, &pm)?;
        let units = segments::load(&table, &kept, executor)?;
        let (lanes, ends) = lanes::load(&table, executor)?;
        let (mut collectors, untidy) = collected::load(&table, &pm)?.unzip();
        if table.pool.previous_shutdown() == Shutdown::Clean {
            table.demand_units(&pm, units)?;
            table.demand_items(&pm)?;
        }
        if table.pool.writable() {
            // Before the first write: a crash from here on must not look like a clean close. The
            // next open would rely on stores that are visible and not durable.
            table.pool.begin_writes()?;
            segments::drop_halves(&pm, &dropped)?;
            lanes::end_older(&pm, &ends)?;
            collected::tidy(&table, &pm, &untidy.unwrap_or_default())?;
            if collectors.is_none() {
                collectors = collected::make(&table, &pm)?;
            }
            pm.fence(sites::REPAIRED)?;
        }
        (lanes, collectors)
    };
    (table.lanes, table.collectors) = (lanes, collectors);
    collected::leave(&mut table)?;
    if table.pool.writable() {
        table.reserve_space()?;
    }
    table.pool.recovered()?;
    Ok(table)
}

fn read_settings<M: Media>(pm: &Access<'_, M>) -> Result<ElimDaSettings> {
    let mut words = [0; Root::CHECKSUM + 1];
    pm.read_words(ROOT, &mut words)?;
    ElimDaSettings::from_root(&words)
}

fn empty_table<M: Media, F: Form>(
    pool: Pool<M>,
    settings: ElimDaSettings,
    judge: Judge<M>,
) -> Result<ElimDa<M, F>> {
    let form = PairForm::from_code(pool.identity().form);
    let geometry = settings.geometry(form)?;
    let space = Arc::new(Space::new(pool.region().clone(), pool::DATA));
    let guarantees = pool.region().media().guarantees();
    let hasher = KeyedHash::of(pool.identity())?;
    Ok(ElimDa {
        settings,
        geometry,
        lookup: word_lookup(&hasher),
        hasher,
        ordered: guarantees.same_line_order,
        durable_caches: guarantees.domain == Domain::Eadr,
        has_units: matches!(guarantees.domain, Domain::Adr | Domain::Eadr)
            && guarantees.access_unit_bytes > LINE,
        heap: Heap::new(Arc::clone(&space), settings.page_bytes),
        space,
        table: DramTable::new(geometry),
        lanes: Box::new([]),
        collectors: None,
        segment_table: Lock::new(SegmentTable {
            extents: Vec::new(),
            free: Vec::new(),
            spares: Vec::new(),
            splits: 0,
            rebuilds: 0,
        }),
        segments: AtomicWord::new(0),
        doubled: AtomicWord::new(0),
        counters: (0..COUNTERS).map(|_| Counter(AtomicWord::new(0))).collect(),
        sweep: Lock::new(0),
        judge,
        form: core::marker::PhantomData,
        pool,
    })
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Takes back the count of an item that has a newer one.
    fn count_lost(&self) {
        self.counters[0].0.fetch_sub(1, Ordering::Relaxed);
        self.count_doubled();
    }

    /// Counts an item that is in another place, too.
    fn count_doubled(&self) {
        self.doubled.fetch_add(1, Ordering::Relaxed);
    }

    /// Demands that a table that was closed has as many items as it had then. Inserts that look for
    /// no key may have added some twice.
    fn demand_items(&self, pm: &Access<'_, M>) -> Result<()> {
        let (found, doubled) = (self.len(), self.doubled.load(Ordering::Relaxed));
        match layout::open(pm.load(layout::ITEMS)?, layout::ITEMS, Kind::Items) {
            Some(items) if (found..=found + doubled).contains(&items) => Ok(()),
            _ => Err(corrupt(layout::ITEMS, "a table has as many pairs as when it was closed")),
        }
    }

    /// Demands that a table that was closed has as many units as it had then.
    fn demand_units(&self, pm: &Access<'_, M>, found: u64) -> Result<()> {
        match layout::open(pm.load(layout::UNITS)?, layout::UNITS, Kind::Units) {
            Some(units) if units == found => Ok(()),
            _ => Err(corrupt(layout::UNITS, "a table has as many units as when it was closed")),
        }
    }

    /// Counts items that were found.
    fn count_found(&self, count: u64) {
        self.counters[0].0.fetch_add(count, Ordering::Relaxed);
    }
}
