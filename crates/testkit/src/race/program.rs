//! Programs: a few threads with a few operations each, over a table that is partly full.

use core::fmt;
use core::str::FromStr;

use crate::random::Random;
use crate::workload::{BadOp, Edit, Op, parse, render};

/// How full the table is before the threads start, in pairs: empty, and around the sizes at which
/// tiny tables grow.
///
/// Source: ours; engines' tiny settings hold a few tens of pairs.
const LOADS: [u16; 8] = [0, 0, 2, 4, 8, 14, 22, 31];

/// The first of the keys that programs only add, so that the table grows meanwhile.
const FIRST_NEW: u16 = 1000;

/// Operations of two to four threads on a table that holds the keys below `load`, each with the
/// value of its own number.
///
/// As text: `4 | put:1:9 get:2 | remove:1`, or, with a prelude, `4 remove:3 | put:1:9 | get:3`.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Program {
    /// How many keys the table holds before.
    pub load: u16,
    /// What one thread does after the table was opened, before the others begin: it brings the
    /// table to where something is about to end.
    pub prelude: Vec<Op>,
    /// The operations of each thread. None of them restarts the table.
    pub threads: Vec<Vec<Op>>,
}

impl Program {
    /// Makes the program of a seed.
    pub fn generate(seed: u64) -> Program {
        let mut random = Random::new(seed);
        // Every other program is a duel about one key, without growth or upkeep.
        let duel = random.once_in(2);
        let load = if duel { random.below(2) as u16 } else { *random.pick(&LOADS) };
        let keys = if duel { 1 } else { 1 + random.below(3) as u16 };
        let threads = 2 + random.below(3);
        let calls = if threads == 2 { 4 } else { 3 };
        let mut maker = Maker { random, keys, duel, next: 500 };
        let threads = (0..threads)
            .map(|thread| (0..calls).map(|_| maker.op(thread == 0)).collect())
            .collect();
        Program { load, prelude: Vec::new(), threads }
    }

    /// Returns every key that the program touches or finds in the table, ascending.
    pub fn keys(&self) -> Vec<u16> {
        let named = self.prelude.iter().chain(self.threads.iter().flatten()).flat_map(Op::keys);
        let mut keys: Vec<u16> = (0..self.load).chain(named).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the operations, each with its thread.
    pub(crate) fn steps(&self) -> Vec<(usize, Op)> {
        let threads = self.threads.iter().enumerate();
        threads.flat_map(|(thread, ops)| ops.iter().map(move |op| (thread, op.clone()))).collect()
    }

    /// Returns the program with these operations instead.
    pub(crate) fn with_steps(&self, steps: &[(usize, Op)]) -> Program {
        let mut threads = vec![Vec::new(); self.threads.len()];
        for (thread, op) in steps {
            threads[*thread].push(op.clone());
        }
        threads.retain(|ops| !ops.is_empty());
        Program { threads, ..self.clone() }
    }
}

struct Maker {
    random: Random,
    keys: u16,
    duel: bool,
    next: u16,
}

impl Maker {
    /// Only one thread may call `maintain`: the clock never goes back.
    fn op(&mut self, clock: bool) -> Op {
        self.next += 1;
        let (key, value) = (self.random.below(u64::from(self.keys)) as u16, u32::from(self.next));
        match self.random.below(if self.duel { 18 } else { 24 }) {
            0..=3 => Op::Insert(key, value),
            4..=6 => Op::Put(key, value),
            7 => Op::Update(key, value),
            8 => Op::Modify(key, Edit::Toggle(value)),
            9 => Op::Modify(key, *self.random.pick(&[Edit::Set(value), Edit::Drop, Edit::Keep])),
            10..=12 => Op::Remove(key),
            13..=16 => Op::Get(key),
            17 => Op::Contains(key),
            18 => Op::GetMany(vec![key, 0, key]),
            19 if self.random.once_in(2) => Op::Scan,
            20 if self.random.once_in(4) => Op::Clear,
            21 if self.random.once_in(2) => Op::PutMany(vec![(key, value), (FIRST_NEW, value)]),
            22 if clock => Op::Maintain(5000, 4),
            _ => Op::Insert(FIRST_NEW + self.next, value),
        }
    }
}

/// A text that is no program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadProgram {
    /// It does not begin with the number of keys.
    NoLoad,
    /// One of its operations is none.
    Op(BadOp),
    /// An operation restarts the table.
    Restart,
}

impl fmt::Display for BadProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadProgram::NoLoad => f.write_str("a program begins with the number of its keys"),
            BadProgram::Op(bad) => bad.fmt(f),
            BadProgram::Restart => f.write_str("the threads of a program cannot restart the table"),
        }
    }
}

impl core::error::Error for BadProgram {}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.load)?;
        self.prelude.iter().try_for_each(|op| write!(f, " {op}"))?;
        self.threads.iter().try_for_each(|ops| write!(f, " | {}", render(ops)))
    }
}

impl FromStr for Program {
    type Err = BadProgram;

    fn from_str(text: &str) -> Result<Program, BadProgram> {
        let mut parts = text.split('|');
        let begin = parts.next().unwrap_or("").trim();
        let (load, prelude) = begin.split_once(' ').unwrap_or((begin, ""));
        let load = load.parse().map_err(|_| BadProgram::NoLoad)?;
        let prelude = parse(prelude).map_err(BadProgram::Op)?;
        let threads: Vec<Vec<Op>> =
            parts.map(parse).collect::<Result<_, BadOp>>().map_err(BadProgram::Op)?;
        if prelude.iter().chain(threads.iter().flatten()).any(Op::restarts) {
            return Err(BadProgram::Restart);
        }
        Ok(Program { load, prelude, threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_survives_its_text() {
        // Fails if a printed race could not be replayed as it was.
        for seed in 0..500 {
            let program = Program::generate(seed);
            assert_eq!(program.to_string().parse(), Ok(program));
        }
        assert_eq!("put:1:2".parse::<Program>(), Err(BadProgram::NoLoad));
        assert_eq!("1 | kill".parse::<Program>(), Err(BadProgram::Restart));
    }

    #[test]
    fn programs_are_duels_and_crowds_on_tables_of_every_load() {
        // Fails if a number of threads, or a size around which tables grow, is never tried.
        let mut kinds = std::collections::BTreeSet::new();
        let mut duels = 0;
        for seed in 0..500 {
            let Program { load, threads, .. } = Program::generate(seed);
            assert!(threads.iter().all(|ops| ops.len() == if threads.len() == 2 { 4 } else { 3 }));
            kinds.insert((load, threads.len()));
            let is_new = |op: &Op| op.keys().iter().any(|key| *key >= FIRST_NEW);
            duels += usize::from(!threads.iter().flatten().any(is_new));
        }
        for load in LOADS {
            assert!((2..=4).all(|threads| kinds.contains(&(load, threads))), "{load}: {kinds:?}");
        }
        assert!((150..400).contains(&duels), "{duels}");
    }
}
