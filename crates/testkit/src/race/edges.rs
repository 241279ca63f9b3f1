//! Edges: programs that begin where a table is about to grow, or where a growth is about to end.
//!
//! What grows in steps, or beside other work, goes wrong where its last step meets another thread.
//! Where that is differs for each engine. So a table is filled once, pair by pair, and the places
//! are written down at which it grew or had more upkeep to do, and how many steps that took.

use core::time::Duration;

use everhash_index::{Design, Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;

use super::program::Program;
use crate::random::Random;
use crate::workload::{Edit, Op, Shape};
use crate::{Failure, OpenTable};

/// Up to how many pairs edges are looked for. Source: ours; tiny tables grow some times until
/// there.
const MOST_PAIRS: u16 = 90;

/// How many edges are kept, the first ones. Source: ours; later ones cost long schedules.
const MOST_EDGES: usize = 8;

/// After how many steps upkeep counts as one that does not end.
const MOST_STEPS: u32 = 200;

/// How much time passes between two steps of upkeep. Unit: milliseconds.
const STEP_MS: u32 = 5000;

/// The first of the keys that the threads add.
const FIRST_NEW: u16 = 1000;

/// A place where a table grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    /// How many pairs there are just before.
    pub load: u16,
    /// How many steps of upkeep the growth takes until it has ended.
    pub steps: u32,
}

/// Finds the first edges of an engine's tiny tables.
pub(super) fn find(design: &Design<Image>, form: Form, model: Model) -> Result<Vec<Edge>, Failure> {
    let medium = Image::new(0, 1 << 20).with_guarantees(model.guarantees());
    let session = OpenTable::create(design, medium, form)?;
    let (table, shape) = (session.table(), Shape::tiny(form));
    let mut now = Duration::ZERO;
    upkeep(table, &mut now)?;
    let mut edges = Vec::new();
    for load in 0..MOST_PAIRS {
        let before = size(table)?;
        table.put(&shape.key(load), &shape.value(load.into()))?;
        let grew = size(table)? != before;
        let steps = upkeep(table, &mut now)?;
        if grew || steps > 1 || size(table)? != before {
            edges.push(Edge { load, steps });
        }
        if edges.len() == MOST_EDGES {
            break;
        }
    }
    if edges.is_empty() {
        // It does not grow so soon: then it begins as full as it was made.
        edges.push(Edge { load: MOST_PAIRS / 2, steps: 0 });
    }
    Ok(edges)
}

/// What changes when a table grows.
fn size(table: &dyn Table) -> Result<(u64, u64), Failure> {
    let stats = table.stats()?;
    Ok((stats.slots, stats.growth_steps))
}

/// Does the upkeep of a table in the smallest steps; returns how many there were.
fn upkeep(table: &dyn Table, now: &mut Duration) -> Result<u32, Failure> {
    for step in 1..=MOST_STEPS {
        *now += Duration::from_millis(STEP_MS.into());
        if !table.maintain(*now, 1)?.more {
            return Ok(step);
        }
    }
    Err(Failure::new(format!("upkeep has more to do after {MOST_STEPS} steps")))
}

/// Makes the program of a seed at one of the edges.
pub(super) fn program(seed: u64, edges: &[Edge]) -> Program {
    let mut random = Random::new(seed ^ 0xed6e);
    let edge = *random.pick(edges);
    let load = edge.load.saturating_sub(random.below(3) as u16);
    let mut prelude: Vec<Op> = Vec::new();
    // Half of the programs begin with the growth behind them but for its last step or two.
    if random.once_in(2) {
        prelude.extend((load..=edge.load).map(|key| Op::Insert(key, u32::from(key) + 3000)));
        let steps = edge.steps.saturating_sub(random.below(3) as u32 + 1).min(24);
        prelude.extend((0..steps).map(|_| Op::Maintain(STEP_MS, 1)));
    }
    // A part of them empties what there is: chains without a pair, logs of what has gone.
    if random.once_in(3) {
        let kept = random.below(4) as u16;
        prelude.extend((kept..load).map(Op::Remove));
    }
    let threads = 2 + random.below(2);
    let mut maker = Maker { random, present: load.max(1), next: FIRST_NEW };
    let threads = (0..threads).map(|thread| (0..4).map(|_| maker.op(thread == 0)).collect());
    Program { load, prelude, threads: threads.collect() }
}

struct Maker {
    random: Random,
    present: u16,
    next: u16,
}

impl Maker {
    /// Only one thread may call `maintain`: the clock never goes back.
    fn op(&mut self, clock: bool) -> Op {
        self.next += 1;
        let value = u32::from(self.next) + 4000;
        let present = self.random.below(self.present.into()) as u16;
        // A few of the new keys are wanted by several threads.
        let new = FIRST_NEW + self.random.below(4) as u16;
        match self.random.below(20) {
            0..=4 => Op::Insert(self.next + 100, value),
            5 => Op::Insert(new, value),
            6 => Op::Put(new, value),
            7 => Op::Remove(new),
            8 => Op::Get(new),
            9..=10 => Op::Get(present),
            11 => Op::Put(present, value),
            12 => Op::Remove(present),
            13 => Op::Modify(present, Edit::Toggle(value)),
            14 => Op::Scan,
            15 => Op::Clear,
            16..=18 if clock => Op::Maintain(STEP_MS, 1),
            _ => Op::PutMany(vec![(new, value), (self.next + 200, value)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn every_program_at_an_edge_survives_its_text() {
        // Fails if a printed race could not be replayed as it was, its prelude included.
        let edges = [Edge { load: 14, steps: 3 }, Edge { load: 2, steps: 0 }];
        let mut preludes = 0;
        for seed in 0..300 {
            let program = program(seed, &edges);
            assert_eq!(program.to_string().parse(), Ok(program.clone()));
            preludes += usize::from(!program.prelude.is_empty());
        }
        assert!((100..300).contains(&preludes), "{preludes}");
    }

    #[test]
    fn threads_at_an_edge_do_everything_and_one_of_them_upkeep() {
        // Fails if an operation never meets a growth, or if a clock could go back.
        let edges = [Edge { load: 14, steps: 3 }];
        let mut kinds = std::collections::BTreeSet::new();
        for program in (0..200).map(|seed| program(seed, &edges)) {
            for (thread, ops) in program.threads.iter().enumerate() {
                assert!(thread == 0 || !ops.iter().any(|op| matches!(op, Op::Maintain(..))));
                kinds.extend(
                    ops.iter().map(|op| op.to_string().split(':').next().map(str::to_owned)),
                );
            }
        }
        let all =
            ["clear", "get", "insert", "maintain", "modify", "put", "put_many", "remove", "scan"];
        assert_eq!(kinds, all.map(|kind| Some(kind.to_owned())).into());
    }

    #[test]
    fn a_table_without_steps_has_an_edge_too() {
        // Fails if an engine that never grows in steps would have no programs.
        let edges = find(&Design::of::<Reference>(), Form::WORDS, Model::Adr).unwrap();
        assert!(!edges.is_empty());
    }

    #[test]
    fn programs_begin_before_a_growth_within_it_and_on_a_table_that_was_emptied() {
        // Fails if the upkeep of a growth is never half done when threads begin, or if no table
        // was ever full before.
        let edges = [Edge { load: 14, steps: 9 }];
        let programs: Vec<Program> = (0..100).map(|seed| program(seed, &edges)).collect();
        let with = |kind: fn(&Op) -> bool| {
            programs.iter().filter(|program| program.prelude.iter().any(kind)).count()
        };
        let halfway = with(|op| matches!(op, Op::Maintain(STEP_MS, 1)));
        let emptied = with(|op| matches!(op, Op::Remove(_)));
        assert!((30..70).contains(&halfway) && (15..60).contains(&emptied), "{halfway} {emptied}");
    }

    #[test]
    fn an_edge_lies_where_the_table_grows() {
        // Fails if programs begin where nothing happens: the reference grows by a part at a time.
        let edges = find(&Design::of::<Reference>(), Form::WORDS, Model::Adr).unwrap();
        let loads: Vec<u16> = edges.iter().map(|edge| edge.load).collect();
        assert!(loads.is_sorted_by(|one, next| one < next), "{loads:?}");
        assert!(loads[0] < MOST_PAIRS / 2, "{loads:?}");
    }
}
