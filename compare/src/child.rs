//! A child process: one task on one store, so that memory, faults and kills are the store's own.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::data::{Choice, Data};
use crate::phases::{Phase, measure};
use crate::plan::{Figure, Line, Plan, Task, Unit};
use crate::store::{Store, entry};
use crate::system::{Device, memory, round_trip_ns, stored_bytes};

/// Pairs of one call of `put_many`.
const BATCH: u64 = 1000;

/// Keys that are looked for after an open.
const SAMPLE: u64 = 100_000;

/// The newest keys, which are all looked for after a kill.
const NEWEST: u64 = 10_000;

/// The number of the last pair whose put returned, in a file beside the store's.
const ACKNOWLEDGED: &str = "../acknowledged";

/// Does what `plan` says, and prints lines.
///
/// # Errors
/// What the store returned, and a wrong answer of the store.
pub fn run(plan: &Plan) -> Result<()> {
    let data = Data::new(plan.shape);
    match plan.task {
        Task::Measure => measured(plan, &data),
        Task::Reopen => reopened(plan, &data),
        Task::Kill => killed(plan, &data),
        Task::Recover => recovered(plan, &data),
        Task::Immediate => immediate(plan, &data),
    }
}

/// Prints a figure.
pub fn figure(what: &str, threads: u64, value: f64, unit: Unit) -> Result<()> {
    print(&Line::Figure(Figure { what: what.to_owned(), threads, value, unit }))
}

fn begins(what: &str) -> Result<()> {
    print(&Line::Begins(what.to_owned()))
}

fn print(line: &Line) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn open(plan: &Plan) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(&plan.folder)?;
    entry(&plan.store)?.open(&plan.folder, &plan.setup())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn measured(plan: &Plan, data: &Data) -> Result<()> {
    let (store, device) = (open(plan)?, Device::below(&plan.folder));
    let payload = |pairs: u64| (pairs * plan.shape.pair_bytes() as u64) as f64;
    let sizes = |what: &str, before: Option<u64>, written: u64| -> Result<()> {
        figure(
            &format!("files {what}"),
            0,
            megabytes(stored_bytes(&plan.folder)),
            Unit::Megabytes,
        )?;
        if let (Some(before), Some(now)) = (before, device.written_bytes()) {
            let ratio = now.saturating_sub(before) as f64 / payload(written).max(1.0);
            figure(&format!("device bytes of {what}"), 0, ratio, Unit::Ratio)?;
        }
        Ok(())
    };

    begins("load")?;
    let before = device.written_bytes();
    let loaded = load(plan, data, &*store)?;
    store.sync()?;
    sizes("load", before, loaded)?;
    let now = memory();
    figure("memory after load", 0, megabytes(now.resident_bytes), Unit::Megabytes)?;
    figure("memory that is no file's", 0, megabytes(now.anonymous_bytes), Unit::Megabytes)?;

    // New keys of all phases: each is put once.
    let fresh = AtomicU64::new(loaded);
    for phase in Phase::ALL {
        for &threads in &plan.threads {
            begins(&format!("{}, {threads} thread(s)", phase.name()))?;
            if threads > 1 {
                let what = "a line to another thread and back";
                figure(what, 2, round_trip_ns(), Unit::Nanoseconds)?;
            }
            measure(plan, data, &*store, phase, (loaded, &fresh), threads)?;
        }
    }

    begins("churn")?;
    // What the phases before have left to write is not churn's.
    store.sync()?;
    let before = device.written_bytes();
    let churned = churn(plan, data, &*store, loaded)?;
    store.sync()?;
    sizes("churn", before, churned)?;
    begins("idle")?;
    std::thread::sleep(Duration::from_secs(plan.idle_s));
    let stored = stored_bytes(&plan.folder);
    figure("files after idling", 0, megabytes(stored), Unit::Megabytes)?;
    // A fast store has put more new pairs than its removals took away.
    let over = stored as f64 / payload(fresh.into_inner());
    figure("files after idling, per byte of pairs", 0, over, Unit::Ratio)?;

    begins("close")?;
    let started = Instant::now();
    store.close()?;
    figure("close", 0, started.elapsed().as_secs_f64(), Unit::Seconds)
}

/// Puts all pairs in batches; returns how many, which are fewer if time ran out.
fn load(plan: &Plan, data: &Data, store: &dyn Store) -> Result<u64> {
    let (started, mut longest) = (Instant::now(), Duration::ZERO);
    let mut pairs: Vec<_> = (0..BATCH).map(|_| (Vec::new(), Vec::new())).collect();
    // Batches of large values stay below a few megabytes.
    let batch = BATCH.min((4 << 20) / plan.shape.pair_bytes() as u64).max(1);
    let mut loaded = 0;
    while loaded < plan.items && started.elapsed().as_secs() < plan.load_s {
        let count = batch.min(plan.items - loaded);
        for (position, (key, value)) in pairs[..count as usize].iter_mut().enumerate() {
            data.key(loaded + position as u64, key);
            data.value(loaded + position as u64, 0, value);
        }
        let begun = Instant::now();
        store.put_many(&pairs[..count as usize])?;
        longest = longest.max(begun.elapsed());
        loaded += count;
    }
    let seconds = started.elapsed().as_secs_f64();
    figure("load", 1, loaded as f64 / seconds / 1e6, Unit::Mops)?;
    figure("longest batch of the load", 1, longest.as_secs_f64() * 1e6, Unit::Microseconds)?;
    figure("loaded", 0, loaded as f64, Unit::Pairs)?;
    Ok(loaded)
}

/// Overwrites as many pairs as there are, at random; returns how many.
fn churn(plan: &Plan, data: &Data, store: &dyn Store, loaded: u64) -> Result<u64> {
    let (choice, mut random) = (Choice::uniform(loaded), SmallRng::seed_from_u64(3));
    let (mut key, mut value, started) = (Vec::new(), Vec::new(), Instant::now());
    let mut done = 0;
    while done < loaded && started.elapsed().as_secs() < plan.load_s {
        for _ in 0..BATCH.min(loaded - done) {
            let index = choice.next(&mut random);
            data.key(index, &mut key);
            data.value(index, done + 1, &mut value);
            store.put(&key, &value)?;
            done += 1;
        }
    }
    figure("churn", 1, done as f64 / started.elapsed().as_secs_f64() / 1e6, Unit::Mops)?;
    Ok(done)
}

/// Opens a store, and returns it with the seconds until its first get.
fn open_and_get(plan: &Plan, data: &Data) -> Result<(Box<dyn Store>, f64)> {
    let started = Instant::now();
    let store = open(plan)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    data.key(0, &mut key);
    store.reader()?.get(&key, &mut value)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((store, seconds))
}

fn reopened(plan: &Plan, data: &Data) -> Result<()> {
    begins("reopen")?;
    let (store, seconds) = open_and_get(plan, data)?;
    figure("reopen, closed", 0, seconds, Unit::Seconds)?;
    let step = (plan.items / SAMPLE).max(1);
    let lost = missing(data, &*store, (0..plan.items).step_by(step as usize))?;
    ensure!(lost == 0, "{lost} pairs are missing after a close");
    store.close()
}

/// Counts the pairs that are not there.
fn missing(data: &Data, store: &dyn Store, indices: impl Iterator<Item = u64>) -> Result<u64> {
    let (mut reader, mut key, mut value) = (store.reader()?, Vec::new(), Vec::new());
    let mut missing = 0;
    for index in indices {
        data.key(index, &mut key);
        match reader.get(&key, &mut value)? {
            true => ensure!(data.belongs(index, &value), "pair {index} has the value of another"),
            false => missing += 1,
        }
    }
    Ok(missing)
}

fn killed(plan: &Plan, data: &Data) -> Result<()> {
    begins("load before a kill")?;
    let store = open(plan)?;
    let (mut key, mut value, started) = (Vec::new(), Vec::new(), Instant::now());
    let mut done = 0;
    while done < plan.items && started.elapsed().as_secs() < plan.load_s {
        data.key(done, &mut key);
        data.value(done, 0, &mut value);
        store.put(&key, &value)?;
        done += 1;
    }
    // This file is synced by nobody; it survives a killed process.
    std::fs::write(plan.folder.join(ACKNOWLEDGED), done.to_string())?;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    anyhow::bail!("the process lives after a kill")
}

fn recovered(plan: &Plan, data: &Data) -> Result<()> {
    begins("reopen after a kill")?;
    let acknowledged: u64 =
        std::fs::read_to_string(plan.folder.join(ACKNOWLEDGED))?.trim().parse()?;
    let (store, seconds) = open_and_get(plan, data)?;
    figure("reopen, killed", 0, seconds, Unit::Seconds)?;
    let step = (acknowledged / SAMPLE).max(1) as usize;
    let newest = acknowledged.saturating_sub(NEWEST);
    let sample = missing(data, &*store, (0..newest).step_by(step))?;
    figure("lost when killed, sample", 0, sample as f64, Unit::Pairs)?;
    let newest = missing(data, &*store, newest..acknowledged)?;
    figure("lost when killed, newest", 0, newest as f64, Unit::Pairs)?;
    store.close()
}

fn immediate(plan: &Plan, data: &Data) -> Result<()> {
    let store = open(plan)?;
    let fresh = AtomicU64::new(0);
    for &threads in &plan.threads {
        begins(&format!("immediate puts, {threads} thread(s)"))?;
        let before = fresh.load(Ordering::Relaxed);
        measure(plan, data, &*store, Phase::Immediate, (before.max(1), &fresh), threads)?;
    }
    store.close()
}
