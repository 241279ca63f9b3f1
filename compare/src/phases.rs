//! The phases of a measurement: what threads do for the length of a window.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::child::figure;
use crate::data::{Choice, Data};
use crate::plan::{Plan, Unit};
use crate::store::{Reader, Store};

/// Operations between two looks at the clock.
const CHUNK: u64 = 64;

/// One of so many operations is timed.
const TIMED: u64 = 8;

/// Keys of one `get_many`.
const MANY: usize = 32;

/// Numbers from here on are of keys that are never put.
const ABSENT: u64 = 1 << 50;

/// The most that a latency can be. Unit: nanoseconds.
const LONGEST: u64 = 600_000_000_000;

/// What threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Gets of present keys, uniform.
    Get,
    /// Gets of present keys, skewed: YCSB C.
    Skewed,
    /// Gets of 32 present keys at once.
    GetMany,
    /// Gets of keys that are not there.
    Absent,
    /// 95 gets and 5 overwrites in 100, skewed: YCSB B.
    Mostly,
    /// As many gets as overwrites, skewed: YCSB A.
    Half,
    /// Overwrites, uniform.
    Overwrite,
    /// Single puts of new keys.
    Insert,
    /// Removals of what [`Phase::Insert`] put, until nothing of it is left.
    Remove,
    /// Single puts of new keys that are durable when they return.
    Immediate,
}

impl Phase {
    /// The phases of a measurement, in order.
    pub const ALL: [Phase; 9] = [
        Phase::Get,
        Phase::Skewed,
        Phase::GetMany,
        Phase::Absent,
        Phase::Mostly,
        Phase::Half,
        Phase::Overwrite,
        Phase::Insert,
        Phase::Remove,
    ];

    /// Returns its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Get => "get",
            Phase::Skewed => "get skewed (YCSB C)",
            Phase::GetMany => "get_many(32)",
            Phase::Absent => "get absent",
            Phase::Mostly => "YCSB B",
            Phase::Half => "YCSB A",
            Phase::Overwrite => "overwrite",
            Phase::Insert => "put new",
            Phase::Remove => "remove",
            Phase::Immediate => "immediate put",
        }
    }

    fn overwrites_in_100(self) -> u32 {
        match self {
            Phase::Mostly => 5,
            Phase::Half => 50,
            Phase::Overwrite => 100,
            _ => 0,
        }
    }
}

/// Measures a phase on a store with `loaded` pairs, and prints its figures. `fresh` counts the
/// numbers of keys that were ever put.
///
/// # Errors
/// What the store returned, and a wrong answer of the store.
pub fn measure(
    plan: &Plan,
    data: &Data,
    store: &dyn Store,
    phase: Phase,
    (loaded, fresh): (u64, &AtomicU64),
    threads: u64,
) -> Result<()> {
    let begin = Barrier::new(threads as usize);
    let outcomes: Vec<Result<Share>> = std::thread::scope(|scope| {
        let begin = &begin;
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    let seed = number + 100 * (phase as u64 + 1);
                    let worker = Worker::new(data, store, phase, (loaded, fresh), seed);
                    begin.wait();
                    worker?.work(Duration::from_millis(plan.window_ms))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    });
    let mut all = Share { rate: 0.0, latency: histogram() };
    for outcome in outcomes {
        let share = outcome?;
        all.rate += share.rate;
        all.latency += share.latency;
    }
    if all.latency.is_empty() {
        // Nothing was left to do, which is no speed.
        return Ok(());
    }
    let name = phase.name();
    match phase {
        Phase::Immediate => figure(name, threads, all.rate / 1e3, Unit::Kops)?,
        _ => figure(name, threads, all.rate / 1e6, Unit::Mops)?,
    }
    for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0)] {
        let nanoseconds = all.latency.value_at_quantile(quantile) as f64;
        figure(&format!("{name}, {percentile}"), threads, nanoseconds / 1e3, Unit::Microseconds)?;
    }
    Ok(())
}

/// What one thread did.
struct Share {
    /// Operations a second.
    rate: f64,
    /// Unit: nanoseconds.
    latency: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST, 3).expect("the bounds are sound")
}

/// One thread of a phase.
struct Worker<'a> {
    data: &'a Data,
    store: &'a dyn Store,
    reader: Box<dyn Reader + 'a>,
    phase: Phase,
    choice: Choice,
    loaded: u64,
    fresh: &'a AtomicU64,
    random: SmallRng,
    key: Vec<u8>,
    value: Vec<u8>,
    keys: Vec<Vec<u8>>,
    indices: Vec<u64>,
    version: u64,
}

impl<'a> Worker<'a> {
    fn new(
        data: &'a Data,
        store: &'a dyn Store,
        phase: Phase,
        (loaded, fresh): (u64, &'a AtomicU64),
        seed: u64,
    ) -> Result<Self> {
        let choice = match phase {
            Phase::Skewed | Phase::Mostly | Phase::Half => Choice::skewed(loaded),
            _ => Choice::uniform(loaded),
        };
        Ok(Worker {
            data,
            store,
            reader: store.reader()?,
            phase,
            choice,
            loaded,
            fresh,
            random: SmallRng::seed_from_u64(seed),
            key: Vec::new(),
            value: Vec::new(),
            keys: vec![Vec::new(); MANY],
            indices: vec![0; MANY],
            version: seed << 32,
        })
    }

    fn work(mut self, window: Duration) -> Result<Share> {
        let (mut latency, started) = (histogram(), Instant::now());
        let mut done = 0_u64;
        'window: while started.elapsed() < window {
            // A phase in which one operation takes long looks at the clock after each.
            let chunk = if self.phase == Phase::Immediate { 1 } else { CHUNK };
            for number in 0..chunk {
                let begun = (number % TIMED == 0).then(Instant::now);
                let keys = self.step()?;
                if keys == 0 {
                    break 'window;
                }
                done += keys;
                if let Some(begun) = begun {
                    latency.saturating_record(begun.elapsed().as_nanos() as u64);
                }
            }
        }
        Ok(Share { rate: done as f64 / started.elapsed().as_secs_f64(), latency })
    }

    /// Does one operation; returns how many keys it concerned, 0 if there is nothing left to do.
    fn step(&mut self) -> Result<u64> {
        match self.phase {
            Phase::GetMany => return self.get_many(),
            Phase::Absent => {
                let index = ABSENT + self.random.random_range(0..1 << 40);
                self.data.key(index, &mut self.key);
                let found = self.reader.get(&self.key, &mut self.value)?;
                ensure!(!found, "a key that was never put is there");
            }
            Phase::Insert | Phase::Immediate => {
                let index = self.fresh.fetch_add(1, Ordering::Relaxed);
                self.put(index)?;
            }
            Phase::Remove => {
                let take = |fresh: u64| fresh.checked_sub(1).filter(|index| *index >= self.loaded);
                let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
                let Ok(fresh) = self.fresh.fetch_update(set, get, take) else { return Ok(0) };
                self.data.key(fresh - 1, &mut self.key);
                self.store.remove(&self.key)?;
            }
            _ => {
                let index = self.choice.next(&mut self.random);
                let overwrites = self.phase.overwrites_in_100();
                match overwrites > 0 && self.random.random_range(0..100) < overwrites {
                    true => self.put(index)?,
                    false => self.get(index)?,
                }
            }
        }
        Ok(1)
    }

    fn put(&mut self, index: u64) -> Result<()> {
        self.version += 1;
        self.data.key(index, &mut self.key);
        self.data.value(index, self.version, &mut self.value);
        self.store.put(&self.key, &self.value)
    }

    fn get(&mut self, index: u64) -> Result<()> {
        self.data.key(index, &mut self.key);
        let found = self.reader.get(&self.key, &mut self.value)?;
        ensure!(found, "pair {index} is missing");
        ensure!(self.data.belongs(index, &self.value), "pair {index} has the value of another");
        Ok(())
    }

    fn get_many(&mut self) -> Result<u64> {
        for (key, index) in self.keys.iter_mut().zip(&mut self.indices) {
            *index = self.choice.next(&mut self.random);
            self.data.key(*index, key);
        }
        let (data, indices) = (self.data, &self.indices);
        let mut wrong = None;
        self.reader.get_many(&self.keys, &mut |position, value| {
            if !value.is_some_and(|value| data.belongs(indices[position], value)) {
                wrong = Some(indices[position]);
            }
        })?;
        ensure!(wrong.is_none(), "pair {wrong:?} is missing or wrong");
        Ok(MANY as u64)
    }
}
