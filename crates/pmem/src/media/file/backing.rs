//! A file with its lock, its storage and its mapping: what the file and the DAX medium share.

mod holes;
mod unsynced;

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::group::GroupSync;
use super::system::{Call, System, perform};
use super::temporary::{self, Temporary};
use crate::sys::map::{Mapping, Source, page_ceil};
use crate::{Error, Origin, Result, Span, Std, WORD};

/// Magic numbers of file systems whose locks or mappings are not coherent across machines.
///
/// Source: Linux, `uapi/linux/magic.h` and the file systems themselves: NFS, SMB (three), Ceph,
/// AFS (two), Coda, 9P, Lustre, GPFS. FUSE is not among them: it may be local, and cannot tell.
const NETWORK: [u64; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x0102_1997,
    0x0bd0_0bd0,
    0x4750_4653,
];

/// How many addresses a file takes at least when it is opened.
///
/// Unit: bytes. Source: ours; a process has 128 TiB of addresses on x86, so that tens of thousands
/// of files fit, and most files never outgrow it.
const FIRST_RANGE: u64 = 1 << 30;

/// How often a name may go to another file while it is opened.
///
/// Unit: times. Source: ours; each one takes another process that replaces the file in the moment
/// between an open and a lock.
const RENAMED: u32 = 16;

/// What is written at once where pages are prepared.
///
/// Unit of its length: bytes. Source: ours; the file system keeps what is written by one call as
/// one large page, and a store to it later marks all of it as changed.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How a file is opened and mapped.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) capacity_bytes: u64,
    pub(crate) writable: bool,
    /// Whether a new length is made durable before it is used.
    pub(crate) sync_growth: bool,
    /// Whether to map with `MAP_SYNC`.
    pub(crate) synchronous: bool,
    /// Whether to open a file without working locks, or on a network.
    pub(crate) trust_file_system: bool,
    /// The mode of a new file.
    pub(crate) mode: u32,
    pub(crate) system: Arc<dyn System>,
}

/// An open, locked and mapped file.
#[derive(Debug)]
pub(crate) struct Backing {
    // Dropped first: the temporary name is removed before the lock is released.
    unpublished: Mutex<Option<Temporary>>,
    pub(crate) mapping: Mapping,
    pub(crate) group: GroupSync<Std>,
    file: Locked,
    plan: Plan,
    /// The length of the file. Unit: bytes. Held while the file grows.
    length: Mutex<u64>,
    /// Whether all of the file was allocated, and nothing released.
    is_whole: AtomicBool,
    /// What a failed sync leaves in the file.
    note: Mutex<Option<unsynced::Note>>,
}

/// A locked file. Dropping it releases the lock even if a child of `fork` still shares the file:
/// another thread may start a program at the same moment.
#[derive(Debug)]
struct Locked {
    file: File,
    origin: Origin,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // In a child the lock is the parent's. Best effort: closing the file unlocks it as well.
        if self.origin.is_here() {
            let _ = self.file.unlock();
        }
    }
}

impl Backing {
    /// Creates a file of `bytes` zero bytes beside `path`; [`Backing::publish`] gives it the name.
    pub(crate) fn create(path: &Path, bytes: u64, plan: Plan) -> Result<Backing> {
        let (file, temporary) = temporary::create(path, plan.mode, &plan.system)?;
        let backing = Backing::start(file, plan, 0, Some(temporary))?;
        backing.grow(bytes)?;
        Ok(backing)
    }

    /// Opens the file `path`, locks it and maps it.
    pub(crate) fn open(path: &Path, plan: Plan) -> Result<Backing> {
        let file = open_locked(path, &plan)?;
        // Under the lock: before it, another process may still grow the file.
        let length = || Ok(rustix::fs::fstat(&file)?.st_size as u64);
        let length = perform(&*plan.system, Call::Length, length).map_err(inspecting)?;
        if plan.writable {
            sync_name(path, &plan)?;
        }
        Backing::start(file, plan, length, None)
    }

    /// Maps a locked file of `length` bytes.
    fn start(file: File, plan: Plan, length: u64, temporary: Option<Temporary>) -> Result<Backing> {
        if temporary.is_some() {
            lock(&file, &plan)?;
        }
        let capacity = plan.capacity_bytes.max(length);
        let first = length.saturating_mul(4).max(FIRST_RANGE);
        let mapping =
            Mapping::reserve_first(first, length, capacity, plan.writable).map_err(reserving)?;
        let backing = Backing {
            unpublished: Mutex::new(temporary),
            mapping,
            group: GroupSync::default(),
            file: Locked { file, origin: Origin::here() },
            plan,
            length: Mutex::new(length),
            is_whole: AtomicBool::new(length == 0),
            note: Mutex::new(None),
        };
        backing.map(length)?;
        Ok(backing)
    }

    /// Makes the file durable and gives it its name, unless another file has that name.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut slot = self.unpublished.lock().map_err(|_| Error::Poisoned)?;
        let Some(temporary) = slot.as_mut() else { return Ok(()) };
        self.sync()?;
        perform(&*self.plan.system, Call::Rename, || temporary.rename())
            .map_err(|source| Error::System { doing: "give the new file its name", source })?;
        temporary.remove = false;
        let synced = perform(&*self.plan.system, Call::SyncDirectory, || {
            done(rustix::fs::fsync(&temporary.directory))
        });
        *slot = None;
        synced.map(|_| ()).map_err(|source| {
            self.group.poison();
            Error::System { doing: "sync the directory", source }
        })
    }

    /// Makes every earlier store durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_since(self.group.ticket())
    }

    /// Waits for the sync `ticket` or a later one.
    ///
    /// By `fdatasync` and not by `msync` of what was flushed. On ext4 (Linux 6.18, virtual disk,
    /// 256 MiB file, medians) both take 0.62 ms for one dirty page, but 1.48 ms against 1.95 ms
    /// for four and 9.8 ms against 14.6 ms for 32 scattered pages: every `msync` waits for the
    /// device by itself, and the group needs one wait for all.
    pub(crate) fn sync_since(&self, ticket: u64) -> Result<()> {
        self.group.wait(ticket, || {
            let sync = || done(rustix::fs::fdatasync(&self.file.file));
            // Before anybody learns of the failure, and opens the file again.
            perform(&*self.plan.system, Call::Sync, sync)
                .map(|_| ())
                .inspect_err(|_| self.leave_note())
        })
    }

    /// Grows the file to at least `bytes` bytes of allocated zeros.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if !self.plan.writable {
            return Err(read_only());
        }
        let mut length = self.length.lock().map_err(|_| Error::Poisoned)?;
        self.group.check()?;
        if bytes <= self.mapping.bytes() {
            return Ok(());
        }
        let needed = bytes.saturating_sub(*length);
        let target = page_ceil(bytes).filter(|to| *to <= self.mapping.capacity());
        let target = target.ok_or(Error::Full { needed })?;
        // Before the file is longer: where there are no addresses, nothing has changed.
        self.mapping.make_room(target, self.source()).map_err(reserving)?;
        if let Err(error) = self.lengthen(*length, target) {
            // Frees what was allocated behind the old end. Best effort: it is only space.
            let _ = self.set_length(*length);
            return Err(error);
        }
        *length = target;
        if self.plan.sync_growth {
            // Before the first store: a file that loses its length loses its records.
            self.sync()?;
        }
        self.map(target)
    }

    /// Allocates storage first and sets the length second: a full disk leaves the length unchanged.
    fn lengthen(&self, length: u64, target: u64) -> Result<()> {
        let needed = target - length;
        if target > longest_file() {
            return Err(Error::Full { needed });
        }
        if !length.is_multiple_of(WORD) {
            // The part of a word at the end is in no word yet. Cut off, it comes back as zeros.
            self.set_length(length / WORD * WORD)
                .map_err(|source| Error::System { doing: "set the length of the file", source })?;
        }
        self.allocate(length, needed)?;
        match self.set_length(target) {
            // A limit of the file system for one file: storage can be had beyond it, and a length
            // cannot.
            Err(error) if is_full(&error) => Err(Error::Full { needed }),
            result => result
                .map_err(|source| Error::System { doing: "set the length of the file", source }),
        }
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        perform(&*self.plan.system, Call::SetLength, || {
            done(rustix::fs::ftruncate(&self.file.file, bytes))
        })
        .map(|_| ())
    }

    /// Allocates storage for a range; neither content nor length changes.
    fn allocate(&self, from: u64, bytes: u64) -> Result<()> {
        let allocate =
            || done(rustix::fs::fallocate(&self.file.file, FallocateFlags::KEEP_SIZE, from, bytes));
        match perform(&*self.plan.system, Call::Allocate, allocate) {
            Ok(_) => Ok(()),
            Err(error) if is_full(&error) => Err(Error::Full { needed: bytes }),
            Err(error) if is(&error, &[Errno::OPNOTSUPP, Errno::NOSYS]) => {
                Err(Error::Unsupported {
                    what: "this file system cannot reserve space, so a full disk would end the \
                       program; put the file on ext4, XFS, btrfs or tmpfs"
                        .into(),
                })
            }
            Err(source) => Err(Error::System { doing: "allocate space for the file", source }),
        }
    }

    fn source(&self) -> Source<'_> {
        Source::File { file: self.file.file.as_fd(), synchronous: self.plan.synchronous }
    }

    /// Maps the file up to `bytes`. A failure poisons: the lengths of file and mapping differ then.
    fn map(&self, bytes: u64) -> Result<()> {
        let synchronous = self.plan.synchronous;
        let result = perform(&*self.plan.system, Call::Map, || {
            self.mapping.extend(bytes, self.source()).map(|()| 0)
        });
        match result {
            Ok(_) => Ok(()),
            Err(error) if synchronous && is(&error, &[Errno::OPNOTSUPP, Errno::INVAL]) => {
                Err(Error::Unsupported {
                    what:
                        "the file is not on DAX storage; mount ext4 or XFS with -o dax=always on \
                           an fsdax namespace, or open it as an ordinary file"
                            .into(),
                })
            }
            Err(source) => {
                self.group.poison();
                Err(Error::System { doing: "map the file", source })
            }
        }
    }

    /// Brings the mapped bytes of `span` into memory: writes zeros to those that are not there.
    pub(crate) fn renew(&self, span: Span) {
        let (mut from, end) = (span.start.byte(), span.end_byte().min(self.mapping.bytes()));
        // Ends: each round goes on, or is the last one.
        while self.plan.writable && from < end {
            let piece = &ZEROS[..(end - from).min(ZEROS.len() as u64) as usize];
            if self.mapping.is_resident(from, from + piece.len() as u64) {
                from += piece.len() as u64;
                continue;
            }
            let written = perform(&*self.plan.system, Call::Write, || {
                may_write(from)?;
                Ok(rustix::io::pwrite(&self.file.file, piece, from)? as u64)
            });
            // Best effort: the pages are there at the first store, too.
            let Some(count) = written.ok().filter(|count| *count > 0) else { return };
            from += count;
        }
    }

    /// Passes a lifetime hint for the whole file; returns whether the kernel accepted it.
    pub(crate) fn hint(&self, lifetime: u64) -> bool {
        perform(&*self.plan.system, Call::Hint, || {
            crate::sys::hint::set_lifetime(self.file.file.as_fd(), lifetime).map(|()| 0)
        })
        .is_ok()
    }

    /// Returns the device that holds the file, as major and minor number.
    pub(crate) fn device(&self) -> Result<(u32, u32)> {
        let status = rustix::fs::fstat(&self.file.file)
            .map_err(|error| Error::System { doing: "inspect the file", source: error.into() })?;
        Ok((rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev)))
    }
}

/// Opens the file `path` and locks it.
///
/// Between the two another process may delete it, or give its name to another file: whoever held
/// the lock of the old one would go on writing to what nobody finds again.
fn open_locked(path: &Path, plan: &Plan) -> Result<File> {
    for _ in 0..RENAMED {
        let file = open(path, plan)?;
        lock(&file, plan)?;
        if is_named(path, &file, plan)? {
            return Ok(file);
        }
        // Best effort: closing the file unlocks it as well, unless a child of `fork` has it, too.
        let _ = file.unlock();
    }
    Err(Error::AlreadyOpen)
}

/// Opens the file `path`, if it is an ordinary one.
fn open(path: &Path, plan: &Plan) -> Result<File> {
    let system = &*plan.system;
    let access = if plan.writable { OFlags::RDWR } else { OFlags::RDONLY };
    // NONBLOCK: opening a pipe by mistake must not block.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut opened = None;
    let result = perform(system, Call::Open, || {
        opened = Some(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
        Ok(0)
    });
    match result {
        // NXIO: a socket, or a device that is not there.
        Err(error) if is(&error, &[Errno::ISDIR, Errno::NXIO]) => return Err(not_a_file(path)),
        result => result.map_err(|source| Error::System { doing: "open the file", source })?,
    };
    let file = File::from(opened.ok_or_else(missing)?);
    let kind = perform(system, Call::Kind, || {
        let mode = rustix::fs::fstat(&file)?.st_mode;
        Ok(u64::from(FileType::from_raw_mode(mode) == FileType::RegularFile))
    });
    if kind.map_err(inspecting)? == 1 { Ok(file) } else { Err(not_a_file(path)) }
}

/// Returns whether `path` is a name of the open file.
fn is_named(path: &Path, file: &File, plan: &Plan) -> Result<bool> {
    let named = perform(&*plan.system, Call::Named, || {
        let here = rustix::fs::fstat(file)?;
        let named = match rustix::fs::stat(path) {
            Err(Errno::NOENT) => false,
            named => named.map(|it| (it.st_dev, it.st_ino) == (here.st_dev, here.st_ino))?,
        };
        Ok(u64::from(named))
    });
    named.map(|named| named == 1).map_err(inspecting)
}

/// Makes the name of an open file durable. A process that was killed while it gave the name, or
/// replaced another file, may have left what only the page cache shows: whatever is synced from
/// here on would be gone with that name.
fn sync_name(path: &Path, plan: &Plan) -> Result<()> {
    let synced = perform(&*plan.system, Call::SyncName, || {
        let directory = match temporary::open_directory_of(&own_name(path)?) {
            // Best effort: whoever made the file could read its directory, and this one cannot.
            Err(Errno::ACCESS) => return Ok(0),
            opened => opened?,
        };
        match rustix::fs::fsync(directory) {
            // A file system that does not know how.
            Err(Errno::INVAL) => Ok(0),
            synced => done(synced),
        }
    });
    let failed = |source| Error::System { doing: "sync the directory of the file", source };
    synced.map(drop).map_err(failed)
}

/// Returns the own name of the file `path`, behind symbolic links.
fn own_name(path: &Path) -> io::Result<PathBuf> {
    // Only then: all of a path may be longer than the system allows, and the path is not.
    let is_link = path.symlink_metadata()?.is_symlink();
    if is_link { path.canonicalize() } else { Ok(path.to_owned()) }
}

fn reserving(source: io::Error) -> Error {
    Error::System { doing: "reserve addresses", source }
}

fn inspecting(source: io::Error) -> Error {
    Error::System { doing: "inspect the file", source }
}

/// Locks the file: exclusively for writing, shared for reading.
fn lock(file: &File, plan: &Plan) -> Result<()> {
    let magic = perform(&*plan.system, Call::FileSystem, || {
        Ok(rustix::fs::fstatfs(file)?.f_type as u64 & 0xffff_ffff)
    })
    .map_err(|source| Error::System { doing: "inspect the file system", source })?;
    if NETWORK.contains(&magic) && !plan.trust_file_system {
        return Err(Error::Unsupported {
            what: "the file is on a network file system, where neither locks nor syncs can be \
                   relied on; move it to a local disk, or say that you trust the file system"
                .into(),
        });
    }
    let result = perform(&*plan.system, Call::Lock, || {
        let locked = if plan.writable { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => Ok(0),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    });
    match result {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::AlreadyOpen),
        Err(error) if is(&error, &[Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS]) => {
            if plan.trust_file_system {
                return Ok(());
            }
            Err(Error::Unsupported {
                what: "this file system has no locks, so two programs could write at once; move \
                       the file to a local disk, or say that you trust the file system"
                    .into(),
            })
        }
        Err(source) => Err(Error::System { doing: "lock the file", source }),
    }
}

/// Makes the error of a store to a medium that was opened for reading.
pub(crate) fn read_only() -> Error {
    Error::Unsupported { what: "writing to a file that was opened for reading; reopen it".into() }
}

pub(super) fn not_a_file(path: &Path) -> Error {
    Error::Unsupported { what: format!("{} is not a file; name a database file", path.display()) }
}

/// Makes the error of a call that reported success and did nothing.
pub(super) fn missing() -> Error {
    let source = io::Error::other("the call brought no result");
    Error::System { doing: "open the file", source }
}

/// Returns how long a file of this process may be (`ulimit -f`). Unit: bytes.
///
/// Asked before a file becomes longer: beyond the limit the system sends SIGXFSZ, which ends a
/// program that does not expect it.
fn longest_file() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Refuses a write from `from` on if the system would send a signal for it: see [`longest_file`].
fn may_write(from: u64) -> io::Result<()> {
    if from < longest_file() { Ok(()) } else { Err(Errno::FBIG.into()) }
}

/// Returns whether a call failed because there is no more room: on the device, or up to a quota or
/// to the longest file that the system allows.
fn is_full(error: &io::Error) -> bool {
    is(error, &[Errno::NOSPC, Errno::DQUOT, Errno::FBIG])
}

fn is(error: &io::Error, numbers: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|number| numbers.contains(&number))
}

pub(super) fn done(result: rustix::io::Result<()>) -> io::Result<u64> {
    result.map(|()| 0).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_has_its_own_name_where_its_links_lead() {
        // Fails if the directory of a link is synced, in which nothing has changed.
        let place = std::env::temp_dir().join(format!("everhash-names-{}", std::process::id()));
        std::fs::create_dir_all(place.join("behind")).unwrap();
        let (own, link) = (place.join("behind/own"), place.join("link"));
        std::fs::write(&own, b"").unwrap();
        std::os::unix::fs::symlink("behind/own", &link).unwrap();
        let of = |path: &Path| {
            let directory = temporary::open_directory_of(&own_name(path)?)?;
            std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
        };
        let behind = place.join("behind").canonicalize().unwrap();
        assert_eq!(of(&own).unwrap(), behind);
        assert_eq!(of(&link).unwrap(), behind);
        assert_eq!(of(Path::new("Cargo.toml")).unwrap(), std::env::current_dir().unwrap());
        assert!(of(&place.join("none")).is_err());
        std::fs::remove_dir_all(&place).unwrap();
    }
}
