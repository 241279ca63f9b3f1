//! How a database is made and opened.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everhash_index::{Form, HashKind, ParseError};
use everhash_pmem::media::file::system::{Os, System};
use everhash_pmem::{FileDurability, USUAL_CAPACITY_BYTES};

use crate::expiring::Wall;
use crate::{Db, Result};

/// When a write that returned survives power loss. It survives a killed process in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// As soon as it returned. Every write waits for the device; threads that wait at the same time
    /// share one sync.
    ///
    /// In a database that was made with it nobody reads a write before it is durable. One that was
    /// made for batches, the default of `reef` and `walsh`, can be opened with it, too: then a
    /// write is durable when it returns, and other threads may read it a moment before.
    Immediate,
    /// After 5 s or 32 MiB of writes at the latest (settings `flush_interval_ms` and `flush_bytes`
    /// of the engine; 3 MiB with `walsh`), or at the next [`Db::sync`]. The time needs the thread
    /// of [`Options::background`]. Power loss leaves the database as it was at one instant.
    ///
    /// For engines that batch: `reef`, the default, and `walsh`. With others every write is
    /// immediate.
    #[default]
    Batch,
    /// About this long after it returned, when the store syncs by itself, or at the next
    /// [`Db::sync`]. Any duration will do: zero syncs again and again while there are writes, and
    /// one that no clock reaches never syncs. Relaxed: see [`Durability::Process`].
    Interval(Duration),
    /// At the next [`Db::sync`] or when the database is closed.
    ///
    /// Relaxed: if the machine goes down while the database is open, the file may be a mixture of
    /// old and new pages, and not only the latest writes are in doubt. The next open then says so
    /// ([`Error::PowerLoss`](crate::Error::PowerLoss)) instead of guessing.
    Process,
}

impl Durability {
    pub(crate) fn of_file(self) -> FileDurability {
        match self {
            Durability::Immediate | Durability::Batch => FileDurability::Immediate,
            Durability::Interval(_) => FileDurability::Interval,
            Durability::Process => FileDurability::Process,
        }
    }
}

/// In which units an interval is written, the longest first, and how many nanoseconds they have.
const UNITS: [(&str, u128); 3] = [("ms", 1_000_000), ("us", 1000), ("ns", 1)];

impl core::fmt::Display for Durability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Durability::Immediate => f.write_str("immediate"),
            Durability::Batch => f.write_str("batch"),
            Durability::Interval(every) => {
                let (nanoseconds, units) = (every.as_nanos(), &UNITS);
                let whole = |unit: &&(&str, u128)| nanoseconds.is_multiple_of(unit.1);
                let (name, unit) = units.iter().find(whole).expect("all are whole nanoseconds");
                write!(f, "{}{name}", nanoseconds / unit)
            }
            Durability::Process => f.write_str("process"),
        }
    }
}

impl core::str::FromStr for Durability {
    type Err = ParseError;

    /// Reads `immediate`, `batch`, `process`, or an interval above zero such as `100ms`; `us` and
    /// `ns` are shorter units.
    fn from_str(text: &str) -> core::result::Result<Self, ParseError> {
        let interval = || {
            let of = |(name, unit): &(&str, u128)| Some((text.strip_suffix(name)?, *unit));
            let (count, unit) = UNITS.iter().find_map(of)?;
            let count = count.parse::<u128>().ok().filter(|count| *count > 0)?;
            let nanoseconds = count.checked_mul(unit)?;
            let seconds = u64::try_from(nanoseconds / 1_000_000_000).ok()?;
            Some(Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32))
        };
        match text {
            "immediate" => Ok(Durability::Immediate),
            "batch" => Ok(Durability::Batch),
            "process" => Ok(Durability::Process),
            _ => interval().map(Durability::Interval).ok_or_else(|| {
                ParseError(format!(
                    "'{text}' is no durability; use 'immediate', 'batch', 'process' or an \
                     interval such as '100ms'"
                ))
            }),
        }
    }
}

/// How a database is made and opened; begin with [`Db::options`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use everhash_store::{Db, Durability};
///
/// let db = Db::options()
///     .engine("wophi")
///     .durability(Durability::Process)
///     .create_if_missing(true)
///     .open(&path)?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `open` or `create` is called"]
pub struct Options {
    pub(crate) engine: Option<String>,
    pub(crate) form: Option<Form>,
    pub(crate) hash: Option<HashKind>,
    pub(crate) expected_items: Option<u64>,
    pub(crate) settings: Vec<(String, u64)>,
    pub(crate) durability: Durability,
    pub(crate) create_if_missing: bool,
    pub(crate) accept_power_loss: bool,
    pub(crate) trust_file_system: bool,
    pub(crate) background: bool,
    pub(crate) threads: usize,
    pub(crate) capacity_bytes: u64,
    pub(crate) mode: u32,
    pub(crate) snapshot_bytes: usize,
    pub(crate) count_calls: bool,
    /// The file for the figures, and how often it is written.
    pub(crate) metrics_file: Option<(PathBuf, Duration)>,
    /// The operating system; tests put their own in between.
    pub(crate) system: Arc<dyn System>,
    /// The clock on the wall; tests set their own.
    pub(crate) wall: Wall,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            engine: None,
            form: None,
            hash: None,
            expected_items: None,
            settings: Vec::new(),
            durability: Durability::Batch,
            create_if_missing: false,
            accept_power_loss: false,
            trust_file_system: false,
            background: true,
            threads: 0,
            capacity_bytes: USUAL_CAPACITY_BYTES,
            mode: 0o600,
            snapshot_bytes: 256 << 20,
            count_calls: false,
            metrics_file: None,
            system: Arc::new(Os),
            wall: Wall::System,
        }
    }
}

impl Options {
    /// Chooses the engine of a new database, and says which one an existing database must have.
    /// Default: `reef`, the first of [`engines`](crate::engines()).
    pub fn engine(mut self, name: impl Into<String>) -> Self {
        self.engine = Some(name.into());
        self
    }

    /// Chooses the form of the pairs of a new database, and says which one an existing database
    /// must have. Default: [`Form::Variable`], byte strings of any length. The engines have
    /// [`Form::WORDS`] and [`Form::DOUBLE_WORDS`] beside it, and no other fixed form.
    pub fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// Chooses the hash function of a new database, and says which one an existing database must
    /// have. Default: [`HashKind::Sip13`], which an attacker cannot flood with colliding keys.
    pub fn hash(mut self, hash: HashKind) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Says how many pairs a new database will hold, so that it need not grow up to there. If they
    /// are more than its engine can make a table for, it is not made:
    /// [`TooManyExpected`](crate::Error::TooManyExpected) says how many would do. A
    /// [setting](Options::setting) that contradicts the size has precedence: the database grows by
    /// need then.
    pub fn expected_items(mut self, count: u64) -> Self {
        self.expected_items = Some(count);
        self
    }

    /// Chooses a setting of the engine, for a new database; an existing one keeps its own.
    pub fn setting(mut self, name: impl Into<String>, value: u64) -> Self {
        self.settings.push((name.into(), value));
        self
    }

    /// Chooses when a write survives power loss. Default: [`Durability::Batch`]. It holds until the
    /// database is closed: the file does not remember it, and each open says it anew.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Chooses whether [`Options::open`] creates a database that is not there. Default: no.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Chooses whether to open a database that was open with relaxed durability when power was
    /// lost. Contents may be missing, old or damaged then. Default: no.
    pub fn accept_power_loss(mut self, accept: bool) -> Self {
        self.accept_power_loss = accept;
        self
    }

    /// Chooses whether to go on where the file system has no locks or lies on a network. Two
    /// writers at once then destroy the database. Default: no.
    pub fn trust_file_system(mut self, trust: bool) -> Self {
        self.trust_file_system = trust;
        self
    }

    /// Chooses whether maintenance (growing ahead of need, reclaiming, interval syncs) runs on a
    /// thread of its own. Without it, or where the system refuses a thread, every 128th write does
    /// it: an interval of [`Durability::Interval`], and the 5 s of [`Durability::Batch`], end only
    /// with a write, and what was written before a silence waits for [`Db::sync`] or the close.
    /// Default: yes.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Chooses how many threads recover a database; 0, the default, means one per processor.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Limits the length of the file. Unit: bytes; default: 1 TiB. Takes no storage, and addresses
    /// by need only: 1 GiB or four times the file when it is opened, and four times as many
    /// whenever it outgrows them. A process has room for thousands of open databases.
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Chooses who may read and write the file of a new database, as bits of a mode; bits of the
    /// process's umask are taken away. Default: `0o600`, its owner alone.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Limits the memory in which a snapshot, and so a backup, keeps old values of what is written
    /// meanwhile. Unit: bytes; default: 256 MiB for each. Beyond that it fails, and writes go on.
    /// Snapshots share what they keep: what several need counts for each, and lies there once. What
    /// ended snapshots leave is given back when it is as much as the others need, or when there are
    /// none.
    pub fn snapshot_bytes(mut self, bytes: usize) -> Self {
        self.snapshot_bytes = bytes;
        self
    }

    /// Chooses whether calls are counted and measured, for [`Db::metrics`]. Costs two looks at the
    /// clock a call. Default: no, unless there is a file for the figures.
    pub fn count_calls(mut self, count: bool) -> Self {
        self.count_calls = count;
        self
    }

    /// Writes the figures of [`Db::metrics`] to the file `path` while the database is open: at
    /// once, then every `every`, 10 ms at least, and when it is closed. The file is replaced as a
    /// whole, so that `everhash top`, and the collector for text files of Prometheus, can read it
    /// at any time. It holds no key and no value, and anybody may read it whom the umask allows to.
    /// Default: no such file.
    pub fn metrics_file(mut self, path: impl Into<PathBuf>, every: Duration) -> Self {
        self.metrics_file = Some((path.into(), every));
        self
    }

    pub(crate) fn counts_calls(&self) -> bool {
        self.count_calls || self.metrics_file.is_some()
    }

    /// Opens the database `path` for reading and writing, and recovers it if it was not closed.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), [`AlreadyOpen`](crate::Error::AlreadyOpen),
    /// [`Mismatch`](crate::Error::Mismatch), [`PowerLoss`](crate::Error::PowerLoss),
    /// [`Denied`](crate::Error::Denied), and [`File`](crate::Error::File) if the file is damaged
    /// or no database; the file is as it was then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(self, path.as_ref())
    }

    /// Makes a new database `path` and opens it. It appears under its name when it is complete:
    /// a crash before that leaves none. Up to there it has a temporary name beside it, of which its
    /// own is a part, or the beginning of its own if that is long.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::Error::AlreadyExists),
    /// [`TooManyExpected`](crate::Error::TooManyExpected) and those of [`Options::open`]; there is
    /// no new file `path` then. One exception: if the directory cannot be synced after the file got
    /// its name, the error says so, and the file is there and can be opened, unless power is lost.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Db> {
        Db::create_with(self, path.as_ref())
    }

    /// Opens the database `path` for reading, beside other readers.
    ///
    /// # Errors
    /// [`NeedsRecovery`](crate::Error::NeedsRecovery) if it was not closed cleanly, and those of
    /// [`Options::open`].
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_read_only_with(self, path.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_survives_its_text() {
        // Fails if an interval were rounded where it is printed, or read in another unit.
        let all = [Durability::Immediate, Durability::Batch, Durability::Process];
        let intervals = [
            Duration::from_millis(250),
            Duration::from_micros(500),
            Duration::from_micros(1500),
            Duration::from_nanos(1),
            Duration::MAX,
        ];
        let intervals = intervals.map(Durability::Interval);
        for durability in all.into_iter().chain(intervals) {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        assert_eq!(intervals[0].to_string(), "250ms");
        let too_long = format!("{}ms", u128::MAX);
        for wrong in ["", "ms", "0ms", "0ns", "-1ms", "5", "5s", "Immediate", &too_long] {
            assert!(wrong.parse::<Durability>().is_err(), "{wrong}");
        }
    }
}
