//! What the kernel counts: bytes of the device, of the files and of the process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A sector of the kernel's block statistics. Unit: bytes. Source: Linux, Documentation/block/stat.
const SECTOR: u64 = 512;

/// The block device below a folder.
pub struct Device {
    statistics: Option<PathBuf>,
}

impl Device {
    /// Finds the device on which `folder` lies; a file system without one counts nothing.
    pub fn below(folder: &Path) -> Device {
        let statistics = fs::metadata(folder).ok().and_then(|meta| {
            let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
            let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
            path.exists().then_some(path)
        });
        Device { statistics }
    }

    /// Returns the bytes that were written to the device since the machine started, by anybody.
    pub fn written_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.statistics.as_ref()?).ok()?;
        // Field 7 counts written sectors.
        text.split_whitespace().nth(6)?.parse::<u64>().ok().map(|sectors| sectors * SECTOR)
    }
}

/// Returns the storage that all files below `folder` take. Unit: bytes.
pub fn stored_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => stored_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * SECTOR,
        Err(_) => 0,
    });
    sizes.sum()
}

/// How long threads hand a cache line to one another to measure how long that takes.
const HANDED_FOR: Duration = Duration::from_millis(20);

/// How often they do between two looks at the clock.
const HANDED: u32 = 500;

/// Returns how long a cache line takes from one thread to another and back. Unit: nanoseconds.
///
/// The host of a virtual machine may move its processors at any time: two that share a cache hand a
/// line over several times as fast as two that do not, and threads that write wait for that.
pub fn round_trip_ns() -> f64 {
    // Even: ours; odd: the other thread's.
    let (turn, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let take = |parity: u64| {
        let found = turn.load(Ordering::Acquire);
        let is_ours = found % 2 == parity;
        if is_ours {
            turn.store(found + 1, Ordering::Release);
        }
        is_ours
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                take(1);
            }
        });
        let (started, mut least) = (Instant::now(), Duration::MAX);
        // The least: now and then one of the two is not running.
        while started.elapsed() < HANDED_FOR {
            let begun = Instant::now();
            let mut rounds = 0;
            while rounds < HANDED {
                rounds += u32::from(take(0));
            }
            least = least.min(begun.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        least.as_nanos() as f64 / f64::from(HANDED)
    })
}

/// Memory of a process. Unit: bytes.
pub struct Memory {
    /// All of it that is in memory, files included.
    pub resident_bytes: u64,
    /// The part that is no file's.
    pub anonymous_bytes: u64,
}

/// Reads the memory of this process; zero where the system does not say.
pub fn memory() -> Memory {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.unwrap_or(0) << 10
    };
    Memory { resident_bytes: field("VmRSS:"), anonymous_bytes: field("RssAnon:") }
}

/// Stores to every page of so much memory, and frees it.
pub fn warm(bytes: usize) {
    /// The smallest page of any machine. Unit: bytes.
    const PAGE: usize = 4096;
    let mut memory = vec![0u8; bytes];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// A memory group: the processes in it share a limit, their page cache included.
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes a group that may hold `limit_bytes` of memory.
    ///
    /// # Errors
    /// A sentence that says what is missing: the kernel's memory groups want the rights of root.
    pub fn new(limit_bytes: u64) -> Result<Group> {
        let name = format!("everhash-compare-{}", std::process::id());
        let second = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, limit) = match second {
            true => ("/sys/fs/cgroup", "memory.max"),
            false => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        ensure!(Path::new(root).exists(), "no memory groups here: {root} is not there");
        let folder = Path::new(root).join(name);
        fs::create_dir(&folder)
            .with_context(|| format!("no memory group at {}; run as root", folder.display()))?;
        let group = Group { folder };
        fs::write(group.folder.join(limit), limit_bytes.to_string())
            .with_context(|| format!("the memory controller does not take {limit}"))?;
        Ok(group)
    }

    /// Moves the process `pid` into the group.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn add(&self, pid: u32) -> Result<()> {
        Ok(fs::write(self.folder.join("cgroup.procs"), pid.to_string())?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It goes when its last process has ended; a group that stays costs nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the machine's facts, for the report: a name and a value each.
pub fn facts(folder: &Path) -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']));
    let total = read("/proc/meminfo");
    let total = total.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("").trim();
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    [
        ("processor", format!("{model}, {threads} threads")),
        ("memory", total.to_owned()),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("file system", file_system(folder)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the kind of the file system of `folder`, by the longest mount point above it.
fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        folder.starts_with(point).then(|| (point.len(), kind.to_owned()))
    });
    above.max().map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}
