//! An ordinary file, mapped through the page cache.

pub(crate) mod backing;
pub mod group;
mod scattered;
pub mod system;
mod temporary;
mod waiters;

use core::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use self::backing::{Backing, Plan, read_only};
use self::scattered::Scattered;
use self::system::{Os, System};
use super::{Domain, Guarantees, Hints, Holes, Media, Simulation, StreamClass, StreamSupport};
use crate::sys::window::Window;
use crate::{Addr, Result, Site, Span, Std, WORD};

/// How long a medium may become of which nothing else was said.
///
/// Unit: bytes. Source: ours; more than a device holds today that is shared with others, and few
/// enough that a mistaken size does not take all addresses of a process.
pub const USUAL_CAPACITY_BYTES: u64 = 1 << 40;

/// Bytes of a page of the page cache, the unit of write-back.
///
/// Unit: bytes. Source: Linux on x86; larger pages elsewhere are multiples.
const PAGE: u64 = 4096;

/// What a fence on a file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum FileDurability {
    /// A fence is a sync, shared by all threads that wait for one (group commit): flushed and
    /// fenced stores survive power loss.
    #[default]
    Immediate,
    /// A fence does nothing; the owner calls `sync` at intervals. Stores survive a killed process;
    /// synced stores survive power loss.
    Interval,
    /// As `Interval`, and growth does not sync the length either: only an explicit `sync` waits for
    /// the device.
    Process,
}

impl FileDurability {
    /// Returns what a file with this durability guarantees.
    pub fn guarantees(self) -> Guarantees {
        let domain = match self {
            FileDurability::Immediate => Domain::Synced,
            // Fences promise nothing here, so an engine must not take them for syncs.
            FileDurability::Interval | FileDurability::Process => Domain::Process,
        };
        Guarantees { domain, same_line_order: false, access_unit_bytes: PAGE }
    }
}

/// How a [`FileMedium`] is opened.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// How far the file may grow. Unit: bytes. Takes no storage, and addresses by need: 1 GiB or
    /// four times the file at first, and four times as many whenever it outgrows them; fewer where
    /// a limit of the process leaves fewer.
    pub capacity_bytes: u64,
    /// What a fence does.
    pub durability: FileDurability,
    /// Whether to open a file without locks or on a network. Two concurrent writers then destroy
    /// the file unnoticed.
    pub trust_file_system: bool,
    /// Who may read and write a new file, less what the process's umask takes away.
    pub mode: u32,
    /// The operating system; a test can replace it.
    pub system: Arc<dyn System>,
}

impl Default for FileOptions {
    /// At most [`USUAL_CAPACITY_BYTES`], immediate durability, no trust, the real operating system.
    fn default() -> Self {
        FileOptions {
            capacity_bytes: USUAL_CAPACITY_BYTES,
            durability: FileDurability::Immediate,
            trust_file_system: false,
            mode: 0o600,
            system: Arc::new(Os),
        }
    }
}

impl FileOptions {
    fn plan(&self, writable: bool) -> Plan {
        Plan {
            capacity_bytes: self.capacity_bytes,
            writable,
            sync_growth: self.durability != FileDurability::Process,
            synchronous: false,
            trust_file_system: self.trust_file_system,
            mode: self.mode,
            system: Arc::clone(&self.system),
        }
    }
}

/// An ordinary file as a medium.
///
/// The file is mapped and shared with the page cache: a store survives a killed process at once,
/// and power loss after a sync. Storage is allocated before it is used: a full disk is
/// [`Error::Full`](crate::Error::Full) from [`Media::grow`] or [`Holes::reserve`] and never a
/// signal, and so is a limit of the process for the length of files. Exceptions: copy-on-write and
/// compressing file systems may still run out of space at write-back; and if *another program*
/// truncates the file, or the device cannot read a page, the kernel kills this process with SIGBUS
/// (the file stays recoverable).
///
/// The lock belongs to the open file: a child of `fork` shares it and must not use the medium.
/// Mapped contents are left out of core dumps.
///
/// ```no_run
/// use everhash_pmem::{Addr, FileMedium, FileOptions, Region, Site, Span};
///
/// let medium = FileMedium::create("pairs.ehdb", 1 << 20, &FileOptions::default())?;
/// let region = Region::new(medium);
/// let pm = region.access();
/// pm.store(Addr::new(64), 7)?;
/// pm.persist(Span::new(Addr::new(64), 1), Site::new("example"))?;
/// region.media().publish()?; // from here on the file survives a crash
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct FileMedium {
    backing: Backing,
    durability: FileDurability,
    writable: bool,
    scattered: Scattered,
}

impl FileMedium {
    fn new(backing: Backing, options: &FileOptions, writable: bool) -> Self {
        let scattered = Scattered::default();
        FileMedium { backing, durability: options.durability, writable, scattered }
    }

    /// Creates a file of `bytes` zero bytes, readable and writable by its owner alone unless
    /// [`FileOptions::mode`] says otherwise.
    ///
    /// Until [`FileMedium::publish`] it has a temporary name beside `path`. A crash before that
    /// leaves no file `path`, at most `.NAME.PID-COUNT.new`, which may be deleted; a long name is
    /// cut there. Dropping an unpublished medium removes its file. Another `create` of the same
    /// `path` removes what was left so of a pool, and no other file of such a name.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if there is a file `path` or the system refuses,
    /// [`Error::Full`](crate::Error::Full) if the disk or the capacity is too small,
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a file system without locks or
    /// allocation.
    pub fn create(path: impl AsRef<Path>, bytes: u64, options: &FileOptions) -> Result<Self> {
        let backing = Backing::create(path.as_ref(), bytes, options.plan(true))?;
        Ok(FileMedium::new(backing, options, true))
    }

    /// Returns whether the file `path` begins as a pool does, or as one that was being made.
    /// Follows no symbolic link.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if it cannot be read.
    pub fn begins_pool(path: impl AsRef<Path>) -> Result<bool> {
        let found = temporary::open_left(rustix::fs::CWD, path.as_ref());
        let begins = found.and_then(|file| file.as_ref().map_or(Ok(false), temporary::begins_pool));
        begins.map_err(|source| crate::Error::System { doing: "read the file", source })
    }

    /// Opens the file `path` for reading and writing. Follows symbolic links.
    ///
    /// A copied file may have holes. A [`Space`](crate::Space) reserves storage for one before it
    /// is used; whoever stores to a file without that does so first ([`Holes::reserve`]).
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen) if it is open in this or another process,
    /// by any name; [`Error::Unsupported`](crate::Error::Unsupported) if it is no ordinary file, or
    /// the file system has no locks; [`Error::System`](crate::Error::System).
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let backing = Backing::open(path.as_ref(), options.plan(true))?;
        Ok(FileMedium::new(backing, options, true))
    }

    /// Opens the file `path` for reading, beside other readers.
    ///
    /// Bulk stores, `grow` and `reserve` then fail, and a store through a
    /// [`Block`](crate::Block) panics, because it is an engine's own mistake.
    ///
    /// # Errors
    /// As [`FileMedium::open`].
    pub fn open_read_only(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let backing = Backing::open(path.as_ref(), options.plan(false))?;
        Ok(FileMedium::new(backing, options, false))
    }

    /// Syncs a created file, gives it its name without replacing another file, and syncs the
    /// directory. Does nothing for a file that has its name.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System); if another file has that name by now, the
    /// medium keeps its temporary name. After a failed sync,
    /// [`Error::Poisoned`](crate::Error::Poisoned) forever.
    pub fn publish(&self) -> Result<()> {
        self.backing.publish()
    }

    /// Returns how many syncs began: fewer than fences under group commit.
    pub fn syncs(&self) -> u64 {
        self.backing.group.begun()
    }

    /// Records that the next fence of this thread must wait for a sync.
    fn note(&self, cx: &FileContext) {
        if self.durability == FileDurability::Immediate {
            cx.ticket.set(self.backing.group.ticket());
        }
    }
}

/// The state of a thread on a file: the sync that its next fence waits for.
#[derive(Debug, Default)]
pub struct FileContext {
    /// 0 if nothing was flushed since the last fence.
    ticket: Cell<u64>,
}

impl Media for FileMedium {
    type Sync = Std;
    type Context = FileContext;
    type Block<'a, const N: usize>
        = Window<'a, N>
    where
        Self: 'a;

    #[inline(always)]
    fn context(&self) -> FileContext {
        FileContext::default()
    }

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.backing.mapping.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.durability.guarantees()
    }

    #[inline(always)]
    fn block<'a, const N: usize>(
        &'a self,
        _cx: &'a FileContext,
        at: Addr,
    ) -> Result<Window<'a, N>> {
        self.backing.mapping.window(at)
    }

    #[inline(always)]
    fn try_block<'a, const N: usize>(
        &'a self,
        _cx: &'a FileContext,
        at: Addr,
    ) -> Option<Window<'a, N>> {
        self.backing.mapping.try_window(at)
    }

    #[inline(always)]
    fn try_aligned_block<'a, const N: usize>(
        &'a self,
        _cx: &'a FileContext,
        byte: u64,
    ) -> Option<Window<'a, N>> {
        self.backing.mapping.try_aligned_window(byte)
    }

    #[inline]
    fn read_words(&self, _cx: &FileContext, at: Addr, out: &mut [u64]) -> Result<()> {
        self.backing.mapping.read_words(at, out)
    }

    #[inline]
    fn write_words(&self, _cx: &FileContext, at: Addr, words: &[u64]) -> Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        self.backing.mapping.write_words(at, words)
    }

    /// Ordinary stores: write-back is by pages, and non-temporal stores gain nothing.
    fn write_words_nt(&self, cx: &FileContext, at: Addr, words: &[u64], _site: Site) -> Result<()> {
        self.write_words(cx, at, words)?;
        self.note(cx);
        Ok(())
    }

    #[inline]
    fn flush(&self, cx: &FileContext, span: Span, _site: Site) {
        if span.words > 0 {
            self.note(cx);
        }
    }

    fn fence(&self, cx: &FileContext, _site: Site) -> Result<()> {
        match cx.ticket.replace(0) {
            0 => self.backing.group.check(),
            ticket => self.backing.sync_since(ticket),
        }
    }

    fn sync(&self, cx: &FileContext, _site: Site) -> Result<()> {
        cx.ticket.set(0);
        if !self.writable {
            return Ok(());
        }
        self.backing.sync()
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.backing.grow(bytes)
    }

    fn note_failed_syncs(&self, at: Addr, word: u64) {
        if self.writable {
            self.backing.note_failed_syncs(at, word);
        }
    }

    fn rewrite(&self) -> Result<()> {
        self.backing.rewrite()
    }
}

impl Hints for FileMedium {
    /// Does nothing. A page that is present for a store counts as stored to, so that the next sync
    /// would write its zeros: each page of a file that grows would go to the device twice.
    fn touch(&self, _span: Span) {}

    /// Reads ahead at most half of the memory: more would evict the first pages.
    fn will_read(&self, span: Span) {
        let memory = rustix::system::sysinfo();
        let half = memory.totalram as u64 / 2 * u64::from(memory.mem_unit);
        let words = span.words.min(half / WORD);
        self.backing.mapping.read_ahead(Span::new(span.start, words));
    }

    #[inline(always)]
    fn will_read_each(&self, spans: impl Iterator<Item = Span> + Clone) {
        self.scattered.announce(&self.backing.mapping, spans);
    }

    #[inline(always)]
    fn prefetch(&self, at: Addr) {
        self.backing.mapping.prefetch(at);
    }

    #[inline(always)]
    fn prefetch_for_store(&self, at: Addr) {
        self.backing.mapping.prefetch_for_store(at);
    }

    /// Passes the hint if `span` is the whole file: Linux keeps one lifetime per file. Class 0 is
    /// the shortest lifetime, 3 and above the longest.
    fn stream(&self, span: Span, class: StreamClass) -> StreamSupport {
        // Linux counts from 2 (short) to 5 (extreme); `uapi/linux/fcntl.h`.
        let lifetime = 2 + u64::from(class.0.min(3));
        let whole = span.start == Addr::NULL && span.end_byte() >= self.bytes();
        match whole && self.writable && self.backing.hint(lifetime) {
            true => StreamSupport::Passed,
            false => StreamSupport::NotSupported,
        }
    }
}

impl Holes for FileMedium {
    fn release(&self, span: Span) {
        self.backing.release(span);
    }

    fn reserve(&self, span: Span) -> Result<()> {
        self.backing.reserve(span)
    }

    fn holes(&self) -> Option<Vec<Span>> {
        self.backing.holes()
    }

    fn costly_holes(&self) -> Vec<Span> {
        self.backing.costly_holes()
    }

    /// Maps the pages. Zeros are written before to those that are not in memory, by a call of the
    /// system, which costs a fifth of their faults: see docs/decisions/0017-renewed-pages.md.
    fn renew(&self, span: Span) {
        self.backing.renew(span);
        self.backing.mapping.populate(span);
    }
}

impl Simulation<FileContext> for FileMedium {}
