//! A reserved range of addresses under which memory or a file is mapped as it grows.
//!
//! The range is reserved without access rights and without memory behind it. Growing maps the next
//! piece in place, so an address never moves and the present length is one atomic number. A file
//! that outgrows its range is mapped once more as a whole, in a longer one. The range before stays
//! until the mapping is dropped: both show the same pages, so nobody has to leave it.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use rustix::mm::munmap;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use crate::{Block, Span, WORD};

/// Alignment of the reserved range, so that huge pages and DAX can use their large entries.
///
/// Unit: bytes. Source: x86 and Arm with 4 KiB pages map 2 MiB by one entry.
const ALIGNMENT: u64 = 2 << 20;

/// The backing of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'f> {
    /// Private memory, zero at first.
    Memory,
    /// A file, from its start.
    File {
        /// The file. It must be at least as long as what is mapped of it.
        file: BorrowedFd<'f>,
        /// Whether the kernel has to guarantee that metadata is durable before a page can be
        /// written (`MAP_SYNC`), so that flushed lines survive. Refused unless the file is on DAX.
        synchronous: bool,
    },
}

/// A growing mapping at a fixed place.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The first byte of the longest range. Never null.
    base: AtomicPtr<u8>,
    bytes: AtomicU64,
    writable: bool,
    capacity: u64,
    tail: Mutex<Tail>,
}

/// How much longer the next range of a file is than the one before.
///
/// Source: ours; a file of 1 TiB is mapped six times, and all its ranges together are a third
/// longer than the last one.
const LONGER: u64 = 4;

/// How far the longest range is in use. Unit of all: bytes, multiples of the page size.
#[derive(Debug)]
struct Tail {
    /// The ranges before, each as its first byte and its length.
    before: Vec<(NonNull<u8>, u64)>,
    reserved: u64,
    mapped: u64,
    /// The largest length that may be mapped. A failed mapping sets it to `mapped` forever: the
    /// kernel may have dropped our reservation, and other memory may lie there.
    limit: u64,
}

impl Tail {
    /// Returns where the last page of `bytes` bytes ends, if so much may be mapped.
    fn end(&self, bytes: u64) -> io::Result<u64> {
        let end = page_ceil(bytes).filter(|end| *end <= self.limit);
        end.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

// SAFETY: the only non-Send fields are `base` and `before`. They point to memory that belongs to
// this value until drop, is not tied to a thread, and is reached by atomic instructions alone
// (`window.rs`).
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` memory is reached by atomic instructions of at most eight bytes, the
// length is an atomic that only grows, and the range is changed under the lock `tail` alone.
unsafe impl Sync for Mapping {}

unsafe extern "C" {
    fn mincore(start: *mut c_void, length: usize, pages: *mut u8) -> i32;
}

/// For how many pages the kernel is asked at once whether they are in memory.
///
/// Unit: pages. Source: ours; those of 64 KiB, and one more because they may begin inside one.
const PAGES_AT_ONCE: usize = 17;

/// The length of one read-ahead of Linux.
///
/// Unit: bytes; a multiple of every page size. Source: Linux, `read_ahead_kb`: 128 unless an
/// administrator has chosen more. Linux would read only the beginning of a longer piece.
const READ_AHEAD: u64 = 128 << 10;

impl Mapping {
    /// Reserves `capacity` bytes of addresses; nothing is mapped yet.
    pub(crate) fn reserve(capacity: u64, writable: bool) -> io::Result<Mapping> {
        Mapping::reserve_first(capacity, capacity, capacity, writable)
    }

    /// Reserves the first range of a file that may grow to `capacity` bytes: `first` bytes of
    /// addresses, or as many as there are, but at least `least`. Nothing is mapped yet.
    pub(crate) fn reserve_first(
        first: u64,
        least: u64,
        capacity: u64,
        writable: bool,
    ) -> io::Result<Mapping> {
        // The last page of 2^64 bytes has no end: a capacity without a limit goes up to it.
        let capacity = page_ceil(capacity.max(1)).unwrap_or(page_floor(u64::MAX));
        let first = page_ceil(first.clamp(1, capacity)).ok_or_else(too_large)?;
        let least = page_ceil(least.clamp(1, first)).ok_or_else(too_large)?;
        let (base, reserved) = reserve_between(first, least)?;
        Ok(Mapping {
            base: AtomicPtr::new(base.as_ptr()),
            bytes: AtomicU64::new(0),
            writable,
            capacity,
            tail: Mutex::new(Tail { before: Vec::new(), reserved, mapped: 0, limit: capacity }),
        })
    }

    /// Returns the present length. Unit: bytes; a multiple of eight.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns whether words may be stored.
    #[inline(always)]
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// Returns the length that this mapping can reach. Unit: bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the first byte. The caller keeps below a length that `bytes()` returned *before*:
    /// a later length may lie in a later range only.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    /// Has addresses for `bytes` bytes of `source` in all; the length stays.
    ///
    /// # Errors
    /// The kernel's. Nothing has changed then: this mapping can still be used, and grow.
    pub(crate) fn make_room(&self, bytes: u64, source: Source<'_>) -> io::Result<()> {
        let mut tail = self.tail.lock().map_err(broken)?;
        match tail.end(bytes)? {
            end if end > tail.reserved => self.move_on(&mut tail, end, source),
            _ => Ok(()),
        }
    }

    /// Maps more of `source`, up to `bytes` bytes in all, rounded down to whole words.
    ///
    /// # Errors
    /// The kernel's. The length is unchanged; after a refused fixed mapping this mapping cannot
    /// grow any more.
    pub(crate) fn extend(&self, bytes: u64, source: Source<'_>) -> io::Result<()> {
        let mut tail = self.tail.lock().map_err(broken)?;
        let end = tail.end(bytes)?;
        if end > tail.reserved {
            self.move_on(&mut tail, end, source)?;
        }
        if end > tail.mapped {
            if let Err(error) = self.map(self.base(), tail.mapped, end, source) {
                tail.limit = tail.mapped;
                return Err(error);
            }
            tail.mapped = end;
        }
        // Release: a thread that loads the new length finds the pages in place.
        self.bytes.fetch_max(bytes / WORD * WORD, Ordering::Release);
        Ok(())
    }

    /// Maps all that is mapped in a longer range, too, with room for `end` bytes, and lets new
    /// accesses go there.
    fn move_on(&self, tail: &mut Tail, end: u64, source: Source<'_>) -> io::Result<()> {
        if let Source::Memory = source {
            // Its pages can be at one place only, so its first range is its last.
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let longer = tail.reserved.saturating_mul(LONGER).clamp(end, tail.limit.max(end));
        let (base, reserved) = reserve_between(longer, end)?;
        // If it fails, the new range leaks: the kernel may have taken a part of it away already.
        self.map(base.as_ptr(), 0, tail.mapped, source)?;
        let before = NonNull::new(self.base()).expect("a range does not begin at address zero");
        tail.before.push((before, tail.reserved));
        tail.reserved = reserved;
        // Release, and before the length grows: whoever reads a length that only this range has
        // also reads where it lies.
        self.base.store(base.as_ptr(), Ordering::Release);
        Ok(())
    }

    /// Maps the bytes from `from` to `to`, both multiples of the page size, inside the range that
    /// begins at `base`.
    fn map(&self, base: *mut u8, from: u64, to: u64, source: Source<'_>) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        let at = base.wrapping_add(from as usize).cast::<c_void>();
        let length = (to - from) as usize;
        let rights =
            if self.writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        match source {
            Source::Memory => {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
                // SAFETY: `extend` checked that the pages lie inside our own range, which nothing
                // else uses, behind the part that windows can reach.
                unsafe { mmap_anonymous(at, length, rights, flags)? };
            }
            Source::File { file, synchronous } => {
                let kind = if synchronous {
                    MapFlags::SHARED_VALIDATE | MapFlags::SYNC
                } else {
                    MapFlags::SHARED
                };
                // SAFETY: as above, or in a range that no window can reach yet. That others may
                // change the file meanwhile is no danger: the words are reached by atomic
                // instructions alone, and every value is valid.
                unsafe { mmap(at, length, rights, kind | MapFlags::FIXED, file, from)? };
            }
        }
        if let Source::File { synchronous: false, .. } = source {
            // Reads and writes of a hash index are scattered. Without this, a fault brings a large
            // piece of the file in, and where the kernel keeps that as one large page, the store of
            // one word writes all of it back: see docs/decisions/0009-scattered-pages.md.
            let _ = advise(at, to - from, Advice::Random);
        }
        // Contents must not reach a core dump. Best effort: an old kernel may not know the advice.
        let _ = advise(at, to - from, Advice::LinuxDontDump);
        Ok(())
    }

    /// Passes an advice about mapped pages to the kernel. `from` is a multiple of the page size.
    fn advise(&self, from: u64, length: u64, kind: Advice) -> io::Result<()> {
        advise(self.base().wrapping_add(from as usize).cast(), length, kind)
    }

    /// Asks for huge pages under the whole range mapped so far.
    pub(crate) fn use_huge_pages(&self) -> io::Result<()> {
        self.advise(0, page_floor(self.bytes()), Advice::LinuxHugepage)
    }

    /// Populates the pages of `span`, writable, so that later stores do not fault.
    ///
    /// Falls back to reading a word of every page where the kernel is older than 5.14: that fills
    /// the page tables, and the first store still faults once.
    pub(crate) fn populate(&self, span: Span) {
        let Some((from, to)) = self.pages_around(span) else { return };
        let advice =
            if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        if self.advise(from, to - from, advice).is_ok() {
            return;
        }
        for page in (from..to.min(self.bytes())).step_by(rustix::param::page_size()) {
            let _ = self.window::<1>(crate::Addr::new(page)).map(|word| word.load_relaxed(0));
        }
    }

    /// Returns whether all pages of the mapped bytes from `from` to `to` are in memory; `false` if
    /// the kernel does not tell.
    pub(crate) fn is_resident(&self, from: u64, to: u64) -> bool {
        let page = rustix::param::page_size() as u64;
        (page_floor(from)..to).step_by(PAGES_AT_ONCE * page as usize).all(|first| {
            let length = (to - first).min(PAGES_AT_ONCE as u64 * page);
            let count = length.div_ceil(page) as usize;
            let mut pages = [0; PAGES_AT_ONCE];
            let start = self.base().wrapping_add(first as usize).cast();
            // SAFETY: the kernel writes a byte for each page, of which there are at most as many as
            // the array has, and only looks at the mapping.
            let result = unsafe { mincore(start, length as usize, pages.as_mut_ptr()) };
            result == 0 && pages[..count].iter().all(|page| page & 1 == 1)
        })
    }

    /// Requests read-ahead of the pages of `span`, many at a time.
    pub(crate) fn read_ahead(&self, span: Span) {
        let Some((from, to)) = self.pages_around(span) else { return };
        for piece in (from..to).step_by(READ_AHEAD as usize) {
            let _ = self.advise(piece, READ_AHEAD.min(to - piece), Advice::WillNeed);
        }
    }

    /// Frees the memory behind the whole pages inside `span`; they read as zero afterwards.
    ///
    /// Only for [`Source::Memory`]: a file gets its hole through the file system.
    pub(crate) fn discard(&self, span: Span) {
        if let Some((from, to)) = pages_inside(span, self.bytes()) {
            let _ = self.advise(from, to - from, Advice::LinuxDontNeed);
        }
    }

    fn pages_around(&self, span: Span) -> Option<(u64, u64)> {
        let end = span.end_byte().min(self.bytes());
        let from = page_floor(span.start.byte());
        (from < end).then(|| (from, page_ceil(end).expect("the length was mapped once")))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // After a failed mapping, unmap only what is surely ours (see `Tail::limit`). The rest of
        // the range leaks, which costs addresses and no memory.
        let base = self.base();
        let Ok(tail) = self.tail.get_mut() else { return };
        let _ = trim(base, tail.reserved.min(tail.limit) as usize);
        for (base, length) in tail.before.drain(..) {
            let _ = trim(base.as_ptr(), length as usize);
        }
    }
}

/// Reserves a range of `bytes` addresses, a multiple of the page size.
fn reserve_range(bytes: u64) -> io::Result<NonNull<u8>> {
    let padded = bytes.checked_add(ALIGNMENT).ok_or_else(too_large)?;
    let padded = usize::try_from(padded).map_err(|_| too_large())?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for, so no existing mapping is touched.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), flags)? };
    let before = start.cast::<u8>().align_offset(ALIGNMENT as usize);
    let after = padded - before - bytes as usize;
    let base = start.cast::<u8>().wrapping_add(before);
    trim(start.cast(), before)?;
    trim(base.wrapping_add(bytes as usize), after)?;
    Ok(NonNull::new(base).expect("the kernel maps nothing at address zero unasked"))
}

/// Reserves a range of `longest` addresses, or of half as many until there are enough left, down to
/// `least`; returns also how many those are. All are multiples of the page size.
fn reserve_between(longest: u64, least: u64) -> io::Result<(NonNull<u8>, u64)> {
    let mut bytes = longest;
    // Ends: each round halves the length, or is the last one.
    loop {
        match reserve_range(bytes) {
            Ok(base) => return Ok((base, bytes)),
            Err(error) if bytes <= least => return Err(error),
            Err(_) => bytes = page_floor(bytes / 2).max(least),
        }
    }
}

fn broken<T>(_: PoisonError<T>) -> io::Error {
    io::Error::other("a thread panicked while it grew the mapping")
}

fn too_large() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// Passes an advice about mapped pages to the kernel. `at` is the first byte of a page.
fn advise(at: *mut c_void, length: u64, kind: Advice) -> io::Result<()> {
    // SAFETY: the callers keep inside the mapped range. The advices used here change no content,
    // but for DontNeed in `discard`, and that is a change like any other store.
    unsafe { madvise(at, length as usize, kind) }.map_err(io::Error::from)
}

/// Unmaps `length` bytes of a reservation of ours.
fn trim(at: *mut u8, length: usize) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    // SAFETY: private to this file, and called with parts of a range that `reserve_range` mapped
    // and that no window can reach: there before there is one, in `drop` after the last.
    unsafe { munmap(at.cast(), length) }.map_err(io::Error::from)
}

/// Returns the whole pages inside `span`, cut at `bytes`, as first and last byte offset.
pub(crate) fn pages_inside(span: Span, bytes: u64) -> Option<(u64, u64)> {
    let from = page_ceil(span.start.byte())?;
    let to = page_floor(span.end_byte().min(bytes));
    (from < to).then_some((from, to))
}

/// Rounds down to a multiple of the page size.
pub(crate) fn page_floor(byte: u64) -> u64 {
    byte & !(rustix::param::page_size() as u64 - 1)
}

/// Rounds up to a multiple of the page size; `None` if that exceeds 2^64.
pub(crate) fn page_ceil(byte: u64) -> Option<u64> {
    byte.checked_next_multiple_of(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addr;

    #[test]
    fn terabytes_of_addresses_cost_no_memory_and_words_stay_where_they_are() {
        // Fails if a reservation took memory, or if growth moved or cleared what was there.
        let mapping = Mapping::reserve(4 << 40, true).unwrap();
        mapping.extend(4096, Source::Memory).unwrap();
        mapping.window::<1>(Addr::new(8)).unwrap().store(0, 77);
        let base = mapping.base();
        mapping.extend(64 << 20, Source::Memory).unwrap();
        assert_eq!(mapping.base(), base);
        assert_eq!(mapping.window::<1>(Addr::new(8)).unwrap().load(0), 77);
        assert_eq!(mapping.window::<1>(Addr::new((64 << 20) - 8)).unwrap().load(0), 0);
        assert!(mapping.window::<1>(Addr::new(64 << 20)).is_err());
    }

    #[test]
    fn growth_beyond_the_reservation_is_refused() {
        // Fails if a fixed mapping could land on memory that is not ours.
        let mapping = Mapping::reserve(8192, true).unwrap();
        assert!(mapping.extend(mapping.capacity() + 1, Source::Memory).is_err());
        assert_eq!(mapping.bytes(), 0);
        mapping.extend(8192, Source::Memory).unwrap();
    }

    #[test]
    fn a_file_that_outgrows_its_range_is_reached_through_both() {
        // Fails if a thread that looked at the file before it grew lost sight of what is stored
        // afterwards, or if the pages before were another copy.
        const LENGTH: u64 = 1 << 20;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::memfd_create("pages", flags).unwrap());
        file.set_len(LENGTH).unwrap();
        let source = Source::File { file: std::os::fd::AsFd::as_fd(&file), synchronous: false };
        let mapping = Mapping::reserve_first(8192, 8192, LENGTH, true).unwrap();
        mapping.extend(8192, source).unwrap();
        let early = mapping.window::<2>(Addr::new(8184 - 8)).unwrap();
        early.store(0, 1);
        let stop = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (mapping, stop) = (&mapping, &stop);
                scope.spawn(move || {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let bytes = mapping.bytes();
                        for at in [thread * 8, bytes - 16 + thread * 8] {
                            let word = mapping.window::<1>(Addr::new(at)).unwrap();
                            count += 1;
                            word.store(0, count);
                            assert_eq!(word.load(0), count);
                        }
                    }
                });
            }
            for bytes in (8192..=LENGTH).step_by(4096) {
                mapping.extend(bytes, source).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(mapping.tail.lock().unwrap().before.len() >= 3);
        let late = mapping.window::<2>(Addr::new(8184 - 8)).unwrap();
        early.store(1, 77);
        assert_eq!(late.load(1), 77);
        late.store(1, 78);
        assert_eq!(early.load(1), 78);
        assert!(mapping.extend(LENGTH + 1, source).is_err());
    }

    #[test]
    fn memory_stays_in_its_first_range() {
        // Fails if memory were mapped anew: what was stored before would be zero.
        let mapping = Mapping::reserve_first(8192, 8192, 1 << 20, true).unwrap();
        mapping.extend(8192, Source::Memory).unwrap();
        assert!(mapping.extend(8193, Source::Memory).is_err());
        assert_eq!(mapping.bytes(), 8192);
    }

    #[test]
    fn discarded_pages_read_as_zero_and_their_neighbours_stay() {
        // Fails if a page that is only partly inside the span lost its words.
        let mapping = Mapping::reserve(1 << 20, true).unwrap();
        mapping.extend(1 << 20, Source::Memory).unwrap();
        let page = rustix::param::page_size() as u64;
        for at in [page - 8, page, 2 * page] {
            mapping.window::<1>(Addr::new(at)).unwrap().store(0, 5);
        }
        mapping.populate(Span::of_bytes(Addr::NULL, 1 << 20));
        mapping.discard(Span::of_bytes(Addr::new(page - 8), page + 16));
        let read = |at| mapping.window::<1>(Addr::new(at)).unwrap().load(0);
        assert_eq!([read(page - 8), read(page), read(2 * page)], [5, 0, 5]);
    }

    #[test]
    fn a_failed_mapping_never_grows_again() {
        // Fails if a later growth mapped over addresses that the kernel may have given away.
        let mapping = Mapping::reserve(1 << 20, true).unwrap();
        let directory = std::fs::File::open("/").unwrap();
        let file = std::os::fd::AsFd::as_fd(&directory);
        assert!(mapping.extend(4096, Source::File { file, synchronous: false }).is_err());
        assert!(mapping.extend(4096, Source::Memory).is_err());
        assert_eq!(mapping.bytes(), 0);
    }

    #[test]
    fn ranges_that_were_outgrown_are_given_back_with_the_last() {
        // Fails if a process that opens and closes databases ran out of addresses.
        const LENGTH: u64 = 1 << 20;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::memfd_create("outgrown", flags).unwrap());
        file.set_len(LENGTH).unwrap();
        let source = Source::File { file: std::os::fd::AsFd::as_fd(&file), synchronous: false };
        let mapping = Mapping::reserve_first(8192, 8192, LENGTH, true).unwrap();
        (1..=LENGTH / 8192).for_each(|part| mapping.extend(part * 8192, source).unwrap());
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("memfd:outgrown")).count()
        };
        assert!(mapped() > 1);
        drop(mapping);
        assert_eq!(mapped(), 0);
    }
}
