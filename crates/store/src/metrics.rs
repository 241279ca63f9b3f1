//! Figures of a database while it is open: what it holds, what was asked of it, how long that took.

mod counters;
mod publisher;
mod text;

use core::time::Duration;
use std::path::PathBuf;

pub(crate) use counters::{Counters, Kind};
pub(crate) use publisher::Publisher;

use crate::core::Core;
use crate::{Db, Info, Stats};

/// Figures of an open database at one moment; see [`Db::metrics`].
///
/// Its text, by `Display`, is what Prometheus reads: the figures with their names and meanings, in
/// the text format 0.0.4, each with the label `database`.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// let db = everhash_store::Db::options().count_calls(true).create(&path)?;
/// db.put("key", "value")?;
/// let metrics = db.metrics();
/// assert_eq!(metrics.calls.as_ref().map(|calls| calls.write.count()), Some(1));
/// assert!(metrics.to_string().contains("everhash_pairs{database="));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The path by which the database was opened.
    pub path: PathBuf,
    /// What the database is.
    pub info: Info,
    /// How long it has been open.
    pub open_for: Duration,
    /// Whether the handle has stopped after a failure that put durability in doubt.
    pub stopped: bool,
    /// Whether [`Db::close`] would report that maintenance had failed; false in a child of the
    /// process, which cannot know.
    pub maintenance_failed: bool,
    /// Syncs of the device that began since the database was opened.
    pub device_syncs: u64,
    /// What the table holds; `None` if that cannot be asked any more, or in a child of the process.
    pub stats: Option<Stats>,
    /// What was asked; `None` unless [`Options::count_calls`](crate::Options::count_calls) was
    /// chosen.
    pub calls: Option<Calls>,
}

/// The calls of a database, by kind. A call for many keys counts once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    /// Calls that read: `get`, `contains_key`, a part of a scan.
    pub read: Durations,
    /// Calls that write, the wait for the device included where there is one.
    pub write: Durations,
    /// Calls that make everything durable, the store's own included.
    pub sync: Durations,
    /// How many of all these failed.
    pub failed: u64,
}

/// How long calls took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Durations {
    /// How many took less than 2 to the power of the position, in nanoseconds, and at least half of
    /// that; the last one has the longer ones, too.
    counts: Vec<u64>,
    total: Duration,
}

impl Durations {
    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns how long all calls took together.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Returns a bound that at least the part `part` of all calls kept, at most twice the true
    /// one; `None` if there were none. `part` is between 0 and 1: 0.99 for the 99th percentile.
    ///
    /// How long a call took is told apart up to 8.5 s. If the bound is beyond that, it is the time
    /// that all calls took together, or 17 s if they took less.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let position = self.counts.iter().position(|calls| {
            seen += calls;
            seen >= wanted
        })?;
        let bound = Duration::from_nanos(1 << position);
        Some(if position + 1 < self.counts.len() { bound } else { bound.max(self.total) })
    }
}

impl Db {
    /// Returns the figures of the database at this moment; as text they are what Prometheus reads.
    /// Takes about as long as [`Db::stats`]; also answers when the handle has stopped and, with
    /// what was known at the fork, in a child of the process.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.core(), self.info())
    }
}

impl Metrics {
    pub(crate) fn of(core: &Core, info: &Info) -> Metrics {
        Metrics {
            path: core.path().to_owned(),
            info: *info,
            open_for: core.now(),
            stopped: core.is_stopped(),
            // In a child of the process a thread that is not there may hold its locks for ever.
            maintenance_failed: core.is_here() && core.maintenance.failure().is_some(),
            device_syncs: core.device_syncs(),
            stats: core.stats_if_possible(),
            calls: core.counters().map(Counters::read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_bound_that_its_part_of_the_calls_keeps() {
        // Fails if a part of the calls were rounded down to fewer, if none at all had a bound, or
        // if the time of all calls were the bound of those that have one.
        let ns = |nanoseconds| Some(Duration::from_nanos(nanoseconds));
        // Of three calls, two took less than 4 ns and one less than 8.
        let total = Duration::from_nanos(12);
        let durations = Durations { counts: vec![0, 0, 2, 1, 0], total };
        assert_eq!(
            [0.0, 0.5, 0.66, 0.67, 1.0].map(|part| durations.quantile(part)),
            [ns(4), ns(4), ns(4), ns(8), ns(8)]
        );
        assert_eq!(Durations::default().quantile(0.5), None);
    }
}
