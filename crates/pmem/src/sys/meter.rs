//! An allocator that counts what each thread holds, for tests that bound it.

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

thread_local! {
    /// Bytes that this thread allocated, less those that it freed: below zero where it frees what
    /// another thread allocated.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// The most that `HELD` was since the measurement began.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with a count per thread. A test binary installs it as its
/// `#[global_allocator]`; where it is not installed every measurement is zero.
///
/// ```
/// use everhash_pmem::AllocationMeter;
///
/// #[global_allocator]
/// static METER: AllocationMeter = AllocationMeter;
///
/// let (words, peak_bytes) = AllocationMeter::measure(|| vec![0u64; 1000]);
/// assert!(words.len() == 1000 && (8000..9000).contains(&peak_bytes));
/// ```
#[derive(Debug)]
pub struct AllocationMeter;

impl AllocationMeter {
    /// Runs `body`, and returns how far the memory of this thread rose above where it began.
    /// Unit: bytes. What other threads allocate meanwhile does not count.
    pub fn measure<R>(body: impl FnOnce() -> R) -> (R, u64) {
        let before = HELD.get();
        PEAK.set(before);
        let result = body();
        (result, PEAK.get().abs_diff(before))
    }

    fn add(bytes: i64) {
        // A thread that ends may free after its counters are gone.
        let _ = HELD.try_with(|held| {
            held.set(held.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
        });
    }
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments, and the
// counters neither allocate nor unwind.
unsafe impl GlobalAlloc for AllocationMeter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size() as i64);
        // SAFETY: the caller's layout has a size above zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size() as i64);
        // SAFETY: the caller's layout has a size above zero.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::add(-(layout.size() as i64));
        // SAFETY: the caller got `memory` from this allocator, hence from the system's, with
        // this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::add(bytes as i64 - layout.size() as i64);
        // SAFETY: as in `dealloc`; the caller's new size is above zero and no overflow.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}
