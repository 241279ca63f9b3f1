//! The model: what a map does, and the judge that compares a table with it.
//!
//! [`Model`] is the meaning of every operation, written over a `BTreeMap` in the plainest way;
//! [`perform`] asks a table the same. [`judge`] runs seeded workloads on both, compares every
//! answer, and reads everything out at the end and in between.

mod judge;
mod outcome;
mod readout;

pub(crate) use judge::step;
pub use judge::{Effort, Report, Violation, judge, replay};
pub(crate) use outcome::get;
pub use outcome::{Outcome, perform};
pub(crate) use readout::{check_left_pool, compare};
pub use readout::{check_pool, read_out, scan_all};

use std::collections::BTreeMap;

use crate::workload::{Edit, Op, Shape};

/// The pairs of a table.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    shape: Shape,
    pairs: Pairs,
}

impl Model {
    /// Makes an empty model.
    pub fn new(shape: Shape) -> Model {
        Model { shape, pairs: Pairs::new() }
    }

    /// Makes a model that holds `pairs`.
    pub fn of(shape: Shape, pairs: Pairs) -> Model {
        Model { shape, pairs }
    }

    /// Returns the shape of its keys and values.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the pairs.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Performs an operation; returns what a table must answer.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Insert(key, value) => {
                let absent = !self.pairs.contains_key(&self.shape.key(*key));
                if absent {
                    self.set(*key, *value);
                }
                Outcome::Flag(absent)
            }
            Op::Put(key, value) => Outcome::Flag(self.set(*key, *value)),
            Op::Update(key, value) | Op::UpdateBlind(key, value) => {
                let present = self.pairs.contains_key(&self.shape.key(*key));
                if present {
                    self.set(*key, *value);
                }
                Outcome::Flag(present)
            }
            Op::Modify(key, edit) => self.modify(*key, *edit),
            Op::Remove(key) | Op::RemoveBlind(key) => {
                Outcome::Flag(self.pairs.remove(&self.shape.key(*key)).is_some())
            }
            Op::Get(key) => Outcome::Value(self.get(*key)),
            Op::Contains(key) => Outcome::Flag(self.get(*key).is_some()),
            Op::GetMany(keys) => Outcome::Values(keys.iter().map(|key| self.get(*key)).collect()),
            Op::PutMany(pairs) => {
                Outcome::Count(pairs.iter().map(|(k, v)| u64::from(!self.set(*k, *v))).sum())
            }
            Op::Scan => Outcome::Pairs(self.pairs.clone()),
            Op::Len => Outcome::Count(self.pairs.len() as u64),
            Op::Clear => {
                self.pairs.clear();
                Outcome::Done
            }
            Op::Sync | Op::Maintain(..) | Op::Reopen | Op::Kill | Op::Outage => Outcome::Done,
        }
    }

    fn modify(&mut self, key: u16, edit: Edit) -> Outcome {
        let found = self.get(key);
        match (edit, &found) {
            (Edit::Keep, _) => {}
            (Edit::Set(value), _) | (Edit::Toggle(value), None) => {
                self.set(key, value);
            }
            (Edit::Drop | Edit::Toggle(_), _) => {
                self.pairs.remove(&self.shape.key(key));
            }
        }
        Outcome::Value(found)
    }

    fn get(&self, key: u16) -> Option<Vec<u8>> {
        self.pairs.get(&self.shape.key(key)).cloned()
    }

    /// Gives a key a value; returns whether it had one.
    fn set(&mut self, key: u16, value: u32) -> bool {
        self.pairs.insert(self.shape.key(key), self.shape.value(value)).is_some()
    }
}
