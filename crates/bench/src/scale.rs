//! A table in a file, which may be larger than memory: how fast it is filled, what its pairs take,
//! how it is read when most of it is not in memory, and how fast it opens.

use core::time::Duration;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use everhash_index::{
    Choice, Error, Executor, Form, HashKind, Inline, Opening, Result, Sizing, Table, Threads,
    WordTable,
};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Region, pool};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Candidate;
use crate::clock::timed;
use crate::keys::{Shuffle, key, value};
use crate::medium::changes;
use crate::phases::batches_of_words;
use crate::process::{Faults, anonymous_bytes, faults, forget_pages, stored_bytes, written_bytes};
use crate::report::Latency;

/// How often a thread of its own looks after the table while it is filled, as the store does.
const TICK: Duration = Duration::from_millis(10);

/// What one call of that thread may do. Unit: buckets or records.
const BUDGET: u32 = 256;

/// Keys of one call that reads many.
const BATCH: usize = 32;

/// After how many inserts the progress is reported.
const TOLD_EVERY: u64 = 1 << 20;

/// What is measured of a table in a file.
#[derive(Clone, Debug)]
pub struct ScalePlan {
    /// The file, which must not exist; it is removed in the end unless it is kept.
    pub path: PathBuf,
    /// Whether the file stays: [`reread`] can use it, with less memory perhaps.
    pub kept: bool,
    /// Pairs of eight bytes each that are inserted.
    pub items: u64,
    /// Pairs that are read, spread over all. At most `items`.
    pub gets: u64,
    /// Threads of an open; 0 = one per processor.
    pub threads: usize,
    /// Whether the system is asked to forget the file's pages before each open.
    pub cold: bool,
    /// Whether the table is made for the number of pairs, or grows from its default size.
    pub presized: bool,
    /// Settings of the table that are not as usual: names and values.
    pub settings: Vec<(String, u64)>,
    /// The hash function of the table.
    pub hash: HashKind,
    /// What a fence on the file waits for.
    pub durability: FileDurability,
}

/// Percentiles of inserts, each of which was timed. Unit: nanoseconds, wall time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tail {
    /// Half of them took at most this.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p99_9: u64,
    /// 9,999 of 10,000.
    pub p99_99: u64,
    /// 99,999 of 100,000.
    pub p99_999: u64,
    /// The longest.
    pub max: u64,
}

impl Tail {
    fn of(histogram: &Histogram<u64>) -> Tail {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Tail {
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            p99_999: at(0.99999),
            max: histogram.max(),
        }
    }
}

/// Reads of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Reads {
    /// Which.
    pub kind: ReadKind,
    /// How many.
    pub count: u64,
    /// By the wall. Unit: seconds.
    pub seconds: f64,
    /// Pages that were in memory and not yet mapped, for each read.
    pub minor_faults: f64,
    /// Pages that came from the device, for each read.
    pub major_faults: f64,
}

/// How a table is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// Pairs that are there, one after the other.
    Single,
    /// Pairs that are there, 32 by one call.
    Batched,
    /// Keys that are not there, one after the other.
    Absent,
}

impl ReadKind {
    const ALL: [ReadKind; 3] = [ReadKind::Single, ReadKind::Batched, ReadKind::Absent];
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// The engine.
    pub engine: &'static str,
    /// Pairs.
    pub items: u64,
    /// All inserts, one after the other. Unit: seconds.
    pub load_seconds: f64,
    /// Percentiles of them.
    pub insert: Tail,
    /// The sync after them. Unit: seconds.
    pub sync_seconds: f64,
    /// What the process gave the system to be written until then, in whole pages, for each pair.
    pub written_bytes_per_item: f64,
    /// How often the table grew by a part.
    pub growth_steps: u64,
    /// Storage of the file for each pair. Unit: bytes.
    pub file_bytes_per_item: f64,
    /// The part of it that the table uses. Unit: bytes.
    pub used_bytes_per_item: f64,
    /// DRAM that the table says it holds, for each pair. Unit: bytes.
    pub dram_bytes_per_item: f64,
    /// Memory of the process that is no file's, less what it had before, for each pair.
    pub anonymous_bytes_per_item: f64,
    /// An open after a killed process. Unit: seconds.
    pub open_crashed_seconds: f64,
    /// Reads after it, of each kind.
    pub reads: Vec<Reads>,
    /// A close. Unit: seconds.
    pub close_seconds: f64,
    /// An open after that close. Unit: seconds.
    pub open_clean_seconds: f64,
}

impl ScalePlan {
    fn options(&self) -> FileOptions {
        FileOptions { durability: self.durability, ..FileOptions::default() }
    }
}

fn create(plan: &ScalePlan, candidate: &Candidate) -> Result<Box<dyn Table>> {
    let medium = FileMedium::create(&plan.path, pool::DATA.byte(), &plan.options())?;
    let region = Region::new(medium);
    let made = create_in(region, plan, candidate);
    if made.is_err() {
        // A setting that there is not, for example: nobody wants a file without a table.
        let _ = std::fs::remove_file(&plan.path);
    }
    made
}

fn create_in(
    region: Region<FileMedium>,
    plan: &ScalePlan,
    candidate: &Candidate,
) -> Result<Box<dyn Table>> {
    let opening = Opening { form: Form::WORDS, hash: plan.hash, ..Opening::default() };
    let sizing = if plan.presized { Sizing::Pairs(plan.items) } else { Sizing::Usual };
    let choice = Choice { sizing, changes: &changes(&plan.settings) };
    let table = candidate.in_file.create(region.clone(), &opening, choice, &Inline)?;
    region.media().publish()?;
    Ok(table)
}

fn open(
    plan: &ScalePlan,
    candidate: &Candidate,
    executor: &dyn Executor,
) -> Result<Box<dyn Table>> {
    let region = Region::new(FileMedium::open(&plan.path, &plan.options())?);
    // The same boot: what was not closed counts as killed.
    candidate.in_file.open(region, Opening::default().boot, executor)
}

/// Fills a table of `candidate` and measures it; `said` hears what begins. Unless it is kept, the
/// file is removed, whatever comes of it.
///
/// # Errors
/// What the table or the file system returned, and a wrong answer of the engine.
pub fn scale(
    plan: &ScalePlan,
    candidate: &Candidate,
    said: &mut dyn FnMut(&str),
) -> Result<ScaleReport> {
    let before = anonymous_bytes();
    let table = create(plan, candidate)?;
    let report = measure(plan, candidate, table, before, said);
    if !plan.kept {
        // A file that stays behind explains itself; the report is worth more.
        let _ = std::fs::remove_file(&plan.path);
    }
    report
}

/// Opens a table that a run has kept, and reads from it: in another process, to which the system
/// may give less memory than the file has bytes. Returns the seconds of the open, and the reads of
/// each kind.
///
/// # Errors
/// As [`scale()`].
pub fn reread(
    plan: &ScalePlan,
    candidate: &Candidate,
    said: &mut dyn FnMut(&str),
) -> Result<(f64, Vec<Reads>)> {
    let (table, seconds) = reopened(plan, candidate, "open", said)?;
    let reads = read_all(plan, &*table, said)?;
    said("close");
    table.close()?;
    Ok((seconds, reads))
}

fn measure(
    plan: &ScalePlan,
    candidate: &Candidate,
    table: Box<dyn Table>,
    before: u64,
    said: &mut dyn FnMut(&str),
) -> Result<ScaleReport> {
    let mut latency = Latency::histogram();
    let written = written_bytes();
    let load_seconds = load(plan, &*table, &mut latency, said)?;
    said("sync");
    let (synced, sync) = timed(|| table.sync());
    synced?;
    let per_item = |bytes: u64| bytes as f64 / plan.items as f64;
    let written_bytes_per_item = per_item(written_bytes() - written);
    let (stats, anonymous) = (table.stats()?, anonymous_bytes().saturating_sub(before));
    let file_bytes_per_item = per_item(stored_bytes(&plan.path));
    drop(table);
    let (table, open_crashed_seconds) = reopened(plan, candidate, "open after a crash", said)?;
    let reads = read_all(plan, &*table, said)?;
    said("close");
    let (closed, close) = timed(|| table.close());
    closed?;
    let (table, open_clean_seconds) = reopened(plan, candidate, "open after a close", said)?;
    said("close");
    table.close()?;
    Ok(ScaleReport {
        engine: candidate.name,
        items: plan.items,
        load_seconds,
        insert: Tail::of(&latency),
        sync_seconds: sync.wall.as_secs_f64(),
        written_bytes_per_item,
        growth_steps: stats.growth_steps,
        file_bytes_per_item,
        used_bytes_per_item: per_item(stats.used_bytes),
        dram_bytes_per_item: per_item(stats.dram_bytes),
        anonymous_bytes_per_item: per_item(anonymous),
        reads,
        open_crashed_seconds,
        close_seconds: close.wall.as_secs_f64(),
        open_clean_seconds,
    })
}

fn words(table: &dyn Table) -> Result<&dyn WordTable> {
    table.words().ok_or_else(|| Error::Unsupported {
        what: "pairs of words without the path for words".to_owned(),
    })
}

/// Inserts every pair, and looks after the table meanwhile; returns the seconds.
fn load(
    plan: &ScalePlan,
    table: &dyn Table,
    latency: &mut Histogram<u64>,
    said: &mut dyn FnMut(&str),
) -> Result<f64> {
    let (words, stop, started) = (words(table)?, AtomicBool::new(false), Instant::now());
    let upkeep = || -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            table.maintain(started.elapsed(), BUDGET)?;
            std::thread::sleep(TICK);
        }
        Ok(())
    };
    let mut insert_all = || -> Result<()> {
        // One look at the clock for each: what a look costs is part of the time.
        let mut then = Instant::now();
        for index in 0..plan.items {
            let key = key(index);
            if !words.insert_word(key, value(key, 0))? {
                return Err(wrong(format!("insert {index}")));
            }
            if index % TOLD_EVERY == 0 {
                said(&format!("insert {index} of {}", plan.items));
            }
            let now = Instant::now();
            latency.saturating_record((now - then).as_nanos() as u64);
            then = now;
        }
        Ok(())
    };
    let (inserted, kept) = std::thread::scope(|scope| {
        let keeper = scope.spawn(upkeep);
        let inserted = insert_all();
        stop.store(true, Ordering::Relaxed);
        (inserted, keeper.join().expect("upkeep returns its errors"))
    });
    inserted.and(kept)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Reads as often in each way.
fn read_all(plan: &ScalePlan, table: &dyn Table, said: &mut dyn FnMut(&str)) -> Result<Vec<Reads>> {
    said("get");
    ReadKind::ALL.into_iter().map(|kind| read(plan, words(table)?, kind)).collect()
}

fn read(plan: &ScalePlan, words: &dyn WordTable, kind: ReadKind) -> Result<Reads> {
    let (before, started) = (faults(), Instant::now());
    let mut indices = Shuffle::new(plan.items).take(plan.gets as usize);
    match kind {
        ReadKind::Single => indices.try_for_each(|index| {
            let key = key(index);
            let is_right = words.get_word(key)? == Some(value(key, 0));
            is_right.then_some(()).ok_or_else(|| wrong(format!("get {index}")))
        })?,
        // Behind the keys that were inserted.
        ReadKind::Absent => indices.try_for_each(|index| {
            let is_right = words.get_word(key(plan.items + index))?.is_none();
            is_right.then_some(()).ok_or_else(|| wrong(format!("get of an absent key, {index}")))
        })?,
        ReadKind::Batched => match batches_of_words(words, indices, BATCH)? {
            0 => {}
            wrong_answers => return Err(wrong(format!("{wrong_answers} of get of many keys"))),
        },
    }
    let (seconds, Faults { minor, major }) = (started.elapsed().as_secs_f64(), faults());
    let per_read = |faults: u64| faults as f64 / plan.gets.max(1) as f64;
    Ok(Reads {
        kind,
        count: plan.gets,
        seconds,
        minor_faults: per_read(minor - before.minor),
        major_faults: per_read(major - before.major),
    })
}

/// Opens the table of the plan, as `what`, and counts its pairs; returns the seconds of the open.
fn reopened(
    plan: &ScalePlan,
    candidate: &Candidate,
    what: &str,
    said: &mut dyn FnMut(&str),
) -> Result<(Box<dyn Table>, f64)> {
    said(what);
    if plan.cold {
        forget_pages(&plan.path)?;
    }
    let executor = Threads::new(plan.threads);
    let (table, took) = timed(|| open(plan, candidate, &executor));
    let table = table?;
    expect_count(plan, &*table)?;
    Ok((table, took.wall.as_secs_f64()))
}

fn expect_count(plan: &ScalePlan, table: &dyn Table) -> Result<()> {
    match table.len()? {
        found if found == plan.items => Ok(()),
        found => Err(wrong(format!("{found} pairs after an open, not {}", plan.items))),
    }
}

fn wrong(what: String) -> Error {
    let why = "the engine is broken, or a file that was kept has not so many pairs";
    Error::Unsupported { what: format!("a wrong answer ({what}): {why}") }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::Pool;

    use super::*;
    use crate::candidates;

    #[test]
    fn a_table_is_made_as_it_was_planned() {
        // Fails if a figure were that of another hash function, of another durability, or of a
        // table that has grown where it was made for its pairs.
        let directory = tempfile::tempdir().unwrap();
        let candidate = candidates().into_iter().find(|candidate| candidate.name == "elimda");
        let candidate = candidate.unwrap();
        let mut slots = Vec::new();
        for presized in [false, true] {
            let plan = ScalePlan {
                path: directory.path().join(format!("{presized}")),
                kept: true,
                items: 100_000,
                gets: 1,
                threads: 1,
                cold: false,
                presized,
                settings: Vec::new(),
                hash: HashKind::Sip13,
                durability: FileDurability::Process,
            };
            assert_eq!(plan.options().durability, FileDurability::Process);
            let table = create(&plan, &candidate).unwrap();
            slots.push(table.stats().unwrap().slots);
            table.close().unwrap();
            let medium = FileMedium::open(&plan.path, &plan.options()).unwrap();
            let identity = Pool::inspect(&Region::new(medium)).unwrap();
            assert_eq!(identity.hash_kind, HashKind::Sip13.code());
        }
        assert!(slots[0] < 100_000 && slots[1] >= 100_000, "{slots:?}");
    }

    #[test]
    fn a_tail_is_that_of_its_part_of_the_inserts() {
        // Fails if a stall of one insert in 100,000 were another one's.
        let mut histogram = Histogram::new_with_bounds(1, 1 << 20, 5).unwrap();
        (1..=100_000).for_each(|nanoseconds| histogram.saturating_record(nanoseconds));
        let Tail { p50, p99, p99_9, p99_99, p99_999, max } = Tail::of(&histogram);
        assert_eq!([p50, p99, p99_9], [50_000, 99_000, 99_900]);
        assert_eq!([p99_99, p99_999, max], [99_990, 99_999, 100_000]);
    }
}
