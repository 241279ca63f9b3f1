//! Real threads on real atomics: longer histories, in orders that the machine chooses.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use everhash_index::{Design, Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;

use super::tracker::{Clock, Tracker};
use crate::failure::no_panic;
use crate::model::{Pairs, compare, get, scan_all};
use crate::random::Random;
use crate::workload::{Edit, Op, Shape};
use crate::{Failure, OpenTable};

/// How much the stress test does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stress {
    /// How many threads, at least 1.
    pub threads: u64,
    /// How many rounds; between two of them the table is read out and sometimes reopened.
    pub rounds: u64,
    /// How many operations a thread has in a round.
    pub operations: u64,
    /// How many keys, at least 1. Few make histories dense.
    pub keys: u16,
    /// To what length the medium can grow. Unit: bytes.
    pub capacity_bytes: u64,
    /// The seed of the operations; their order is the machine's.
    pub seed: u64,
    /// What the medium claims of a crash, so that an engine takes the path of such a medium.
    pub model: Model,
}

impl Default for Stress {
    /// 4 threads, 20 rounds of 500 operations each, on 12 keys that are written often and 400 that
    /// make the table grow.
    fn default() -> Self {
        Stress {
            threads: 4,
            rounds: 20,
            operations: 500,
            keys: 12,
            capacity_bytes: 4 << 20,
            seed: 1,
            model: Model::Adr,
        }
    }
}

/// What the stress test did without finding anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StressReport {
    /// Operations of all threads.
    pub operations: u64,
    /// Histories of one key in one round that were checked.
    pub histories: u64,
    /// Those among them that the checker could not decide.
    pub undecided: u64,
}

/// How many keys make the table grow, beside those that are written often.
const GROWTH_KEYS: u16 = 400;

/// Lets real threads work on one table; checks the histories and the table after every round.
///
/// # Errors
/// What is wrong, with the seed; the machine's schedule cannot be had again.
pub fn stress(
    design: &Design<Image>,
    form: Form,
    stress: &Stress,
) -> Result<StressReport, Failure> {
    let place = format!("engine {}, form {form}, stress with seed {}", design.name, stress.seed);
    no_panic(|| rounds(design, form, stress)).map_err(|failure| failure.at(place))
}

fn rounds(design: &Design<Image>, form: Form, stress: &Stress) -> Result<StressReport, Failure> {
    let shape = Shape::tiny(form);
    let medium = Image::new(0, stress.capacity_bytes).with_guarantees(stress.model.guarantees());
    let mut session = OpenTable::create(design, medium, form)?;
    let keys = (0..stress.keys).chain(1000..1000 + GROWTH_KEYS);
    let tracker = Tracker::new(shape, keys);
    let mut report = StressReport::default();
    let clock = Ticks(AtomicU64::new(0));
    let now = AtomicU64::new(0);
    for round in 0..stress.rounds {
        let outcomes: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let (table, tracker, clock, now) = (session.table(), &tracker, &clock, &now);
            let threads: Vec<_> = (0..stress.threads)
                .map(|thread| {
                    scope.spawn(move || worker(table, tracker, clock, now, stress, round, thread))
                })
                .collect();
            let panicked = |_| Err(Failure::new("a thread panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        outcomes.into_iter().collect::<Result<(), Failure>>()?;
        report.operations += stress.threads * stress.operations;
        report.histories += tracker.keys().len() as u64;
        report.undecided += tracker.judge()?;
        let pairs = settled(&session, &tracker)?;
        tracker.restart(&pairs);
        match round % 3 {
            1 => session.kill()?,
            2 => session.reopen()?,
            _ => {}
        }
        compare("the scan after a restart", &scan_all(session.table())?, &pairs)?;
    }
    Ok(report)
}

/// A counter as a clock.
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn begin(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn end(&self, _begin: u64) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

fn worker(
    table: &dyn Table,
    tracker: &Tracker,
    clock: &Ticks,
    now: &AtomicU64,
    stress: &Stress,
    round: u64,
    thread: u64,
) -> Result<(), Failure> {
    let mut random = Random::new(stress.seed ^ round << 20 ^ thread << 40);
    for number in 0..stress.operations {
        let value = (number * stress.threads + thread + 10) as u32;
        let op = choose(&mut random, stress, value, thread == 0);
        // Only one thread calls `maintain`, so its clock is the clock.
        let mut time = Duration::from_millis(now.load(Ordering::Relaxed));
        tracker.perform(table, clock, &mut time, &op).map_err(|failure| failure.at(&op))?;
        if matches!(op, Op::Maintain(..)) {
            now.store(time.as_millis() as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn choose(random: &mut Random, stress: &Stress, value: u32, clock: bool) -> Op {
    let key = random.below(u64::from(stress.keys)) as u16;
    match random.below(20) {
        0..=2 => Op::Insert(key, value),
        3 | 4 => Op::Put(key, value),
        5 => Op::Update(key, value),
        6 => Op::Modify(key, Edit::Toggle(value)),
        7 | 8 => Op::Remove(key),
        9..=12 => Op::Get(key),
        13 => Op::GetMany(vec![key, 0]),
        14 if random.once_in(20) => Op::Scan,
        15 if random.once_in(100) => Op::Clear,
        16 if clock => Op::Maintain(500, 8),
        17 => Op::Contains(key),
        18 => Op::Remove(1000 + random.below(u64::from(GROWTH_KEYS)) as u16),
        _ => Op::Put(1000 + random.below(u64::from(GROWTH_KEYS)) as u16, value),
    }
}

/// Checks that all ways of reading agree when the threads have ended; returns the pairs.
fn settled(session: &OpenTable, tracker: &Tracker) -> Result<Pairs, Failure> {
    let pairs = scan_all(session.table())?;
    let keys: Vec<Vec<u8>> = tracker.keys().keys().cloned().collect();
    session.read_out(&pairs, &keys)?;
    for (bytes, key) in tracker.keys() {
        let found = get(session.table(), bytes)?;
        tracker
            .may_leave(*key, u64::MAX - 2, found.as_deref())
            .map_err(|story| Failure::new(format!("key {key} is not explained: {story}")))?;
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_threads_do_everything_and_one_of_them_upkeep() {
        // Fails if an operation never meets another, or if a clock could go back.
        let mut random = Random::new(1);
        let mut kinds = |clock: bool| {
            let ops =
                (0..10_000).map(|value| choose(&mut random, &Stress::default(), value, clock));
            let kinds = ops.map(|op| op.to_string().split(':').next().map(str::to_owned));
            kinds.flatten().collect::<std::collections::BTreeSet<String>>()
        };
        let others = [
            "clear", "contains", "get", "get_many", "insert", "modify", "put", "remove", "scan",
            "update",
        ];
        assert_eq!(kinds(false), others.map(str::to_owned).into());
        assert!(kinds(true).contains("maintain") && kinds(true).len() == others.len() + 1);
    }
}
