//! What a run measures, as the parent tells it to its children.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::data::Shape;
use crate::store::{Durability, Setup};

/// What one child process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Loads a new store and measures it.
    Measure,
    /// Opens it again and reads.
    Reopen,
    /// Loads a new store by single puts and kills itself.
    Kill,
    /// Opens what that left and counts what is lost.
    Recover,
    /// Single puts of a few threads, each of them durable when it returns.
    Immediate,
}

/// A task with all that it needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What to do.
    pub task: Task,
    /// The store.
    pub store: String,
    /// Where its files lie.
    pub folder: PathBuf,
    /// Lengths of keys and values.
    pub shape: Shape,
    /// When writes survive.
    pub durability: Durability,
    /// Pairs that are loaded.
    pub items: u64,
    /// Numbers of threads; each is a series of its own.
    pub threads: Vec<u64>,
    /// How long each phase takes. Unit: milliseconds.
    pub window_ms: u64,
    /// How long one load may take; a longer one ends there. Unit: seconds.
    pub load_s: u64,
    /// How long a store is left alone before its files are measured again. Unit: seconds.
    pub idle_s: u64,
    /// Memory for the caches of stores that have their own. Unit: bytes.
    pub cache_bytes: u64,
}

impl Plan {
    /// Returns how the store is opened.
    pub fn setup(&self) -> Setup {
        let Plan { shape, durability, cache_bytes, items, .. } = *self;
        Setup { shape, durability, cache_bytes, items }
    }
}

/// A line that a child prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// What begins.
    Begins(String),
    /// A figure.
    Figure(Figure),
}

/// A measured value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Threads that worked; 0 where that says nothing.
    pub threads: u64,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// Millions of operations a second of wall time.
    #[serde(rename = "M/s")]
    Mops,
    /// Thousands of operations a second of wall time.
    #[serde(rename = "k/s")]
    Kops,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Millions of bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// Bytes for each byte of key and value.
    #[serde(rename = "x")]
    Ratio,
    /// A number of pairs.
    #[serde(rename = "pairs")]
    Pairs,
}

impl core::fmt::Display for Unit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Unit::Mops => "M/s",
            Unit::Kops => "k/s",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Seconds => "s",
            Unit::Megabytes => "MB",
            Unit::Ratio => "x",
            Unit::Pairs => "pairs",
        })
    }
}
