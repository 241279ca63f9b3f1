//! The process that owns a value: a child of `fork` has a copy of it, and must not use it.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of the mapping, of which one word is used: the kernel wipes whole pages.
///
/// Unit: bytes. Source: x86; the kernel rounds up where pages are larger.
const PAGE: usize = 4096;

/// The process in which a value was made.
///
/// A check costs one load from memory that the kernel clears in a child of `fork` (Linux 4.14 and
/// later), and a system call of about 85 ns elsewhere.
///
/// ```
/// let origin = everhash_pmem::Origin::here();
/// assert!(origin.is_here());
/// ```
#[derive(Debug)]
pub struct Origin(Mark);

#[derive(Debug)]
enum Mark {
    Page(Page),
    Process(u32),
}

impl Origin {
    /// Returns the calling process.
    pub fn here() -> Origin {
        match Page::new() {
            Ok(page) => Origin(Mark::Page(page)),
            Err(_) => Origin::of_process(std::process::id()),
        }
    }

    /// Returns the process with the number `id`.
    pub fn of_process(id: u32) -> Origin {
        Origin(Mark::Process(id))
    }

    /// Returns whether the calling process is this one.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        match &self.0 {
            Mark::Page(page) => page.load() == 1,
            Mark::Process(id) => std::process::id() == *id,
        }
    }
}

/// A page that holds a 1, and a 0 in a child of `fork`.
#[derive(Debug)]
struct Page {
    start: NonNull<AtomicU32>,
}

// SAFETY: the page belongs to this value until drop, is not tied to a thread, and after `new` it
// is only read, atomically.
unsafe impl Send for Page {}
// SAFETY: as above: `&Page` allows nothing but atomic loads.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> rustix::io::Result<Page> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose a place where nothing lies.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast::<AtomicU32>()).ok_or(rustix::io::Errno::NOMEM)?;
        // From here on a failure unmaps the page.
        let page = Page { start };
        // SAFETY: the range is the page mapped above, and emptying it in children takes nothing
        // away from this process.
        unsafe { madvise(start.as_ptr().cast::<c_void>(), PAGE, Advice::LinuxWipeOnFork) }?;
        page.word().store(1, Ordering::Release);
        Ok(page)
    }

    #[inline(always)]
    fn load(&self) -> u32 {
        self.word().load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: `start` is the aligned start of a readable and writable page of zeros that stays
        // mapped as long as `self`, which the reference cannot outlive; it is memory of this
        // process and no file; any bits are a valid number, and all access is atomic.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new` with this length, and no reference to it outlives
        // `self`. A failure leaves it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_not_its_parent() {
        // Fails if a child took itself for the process that opened the file, or the parent lost
        // its mark by forking.
        for origin in [Origin::here(), Origin::of_process(std::process::id())] {
            // SAFETY: the child calls nothing but atomic loads, getpid and _exit, all of which are
            // allowed after a fork of a process with several threads.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let code = i32::from(origin.is_here());
                // SAFETY: ends the child at once, without running what belongs to its parent.
                unsafe { libc::_exit(code) };
            }
            assert!(child > 0, "the system lets us fork");
            let mut status = -1;
            // SAFETY: `status` is a valid place for the answer, and the child is our own.
            let ended = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!((ended, libc::WEXITSTATUS(status)), (child, 0), "{origin:?}");
            assert!(libc::WIFEXITED(status) && origin.is_here());
        }
    }

    #[test]
    fn another_process_is_not_here() {
        // Fails if a forked child took itself for its parent.
        assert!(!Origin::of_process(std::process::id() + 1).is_here());
    }
}
