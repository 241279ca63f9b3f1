//! Workloads: seeded sequences of operations over few keys, the same for every judge and engine.

mod generate;
mod shape;
mod text;

pub use generate::{Bias, Workload};
pub use shape::Shape;
pub use text::{BadOp, parse, render};

/// Returns which of two threads, as it were, takes a step of a workload. Now and then one takes
/// several.
pub(crate) fn thread_of(step: u32) -> u32 {
    step.wrapping_mul(0x9e37_79b9) >> 31
}

/// One operation of a workload.
///
/// Keys and values are numbers, which a [`Shape`] turns into bytes: so one sequence runs on every
/// form, shrinks well and prints short. The debug text of a list is Rust source.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Op {
    /// Adds a pair if the key is absent.
    Insert(u16, u32),
    /// Adds a pair or replaces its value.
    Put(u16, u32),
    /// Replaces a value if the key is present.
    Update(u16, u32),
    /// Reads and changes one key in one step.
    Modify(u16, Edit),
    /// As `Update`, in the paper's bare form, if the key is present and the engine has one.
    UpdateBlind(u16, u32),
    /// Removes a key.
    Remove(u16),
    /// As `Remove`, in the paper's bare form, if the key is present and the engine has one.
    RemoveBlind(u16),
    /// Reads a value.
    Get(u16),
    /// Asks whether a key is present.
    Contains(u16),
    /// Reads many values.
    GetMany(Vec<u16>),
    /// Puts many pairs, in order.
    PutMany(Vec<(u16, u32)>),
    /// Visits every pair.
    Scan,
    /// Counts the pairs.
    Len,
    /// Removes every pair.
    Clear,
    /// Makes everything durable.
    Sync,
    /// Lets so many milliseconds pass and calls `maintain` with that budget.
    Maintain(u32, u32),
    /// Closes the table cleanly and opens it again.
    Reopen,
    /// Ends the process and opens the table again in the same boot: every visible store is there.
    Kill,
    /// Ends the process and opens the table again in another boot. What the medium kept is the
    /// judge's choice; where it makes none, every visible store is there.
    Outage,
}

/// What [`Op::Modify`] does with the value that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Edit {
    /// Leaves the key as it is.
    Keep,
    /// Gives it a value.
    Set(u32),
    /// Removes it.
    Drop,
    /// Gives it a value if it is absent and removes it if it is present.
    Toggle(u32),
}

impl Op {
    /// Returns the keys that the operation reads or writes one by one; none for those that concern
    /// the whole table.
    pub fn keys(&self) -> Vec<u16> {
        match self {
            Op::Insert(key, _) | Op::Put(key, _) | Op::Modify(key, _) => vec![*key],
            Op::Update(key, _) | Op::UpdateBlind(key, _) => vec![*key],
            Op::Remove(key) | Op::RemoveBlind(key) | Op::Get(key) | Op::Contains(key) => vec![*key],
            Op::GetMany(keys) => keys.clone(),
            Op::PutMany(pairs) => pairs.iter().map(|(key, _)| *key).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns whether the operation ends the open table and opens another.
    pub fn restarts(&self) -> bool {
        matches!(self, Op::Reopen | Op::Kill | Op::Outage)
    }
}
