//! The program's own memory: prefetches, and zero words that take no memory until they are used.

use core::sync::atomic::AtomicU64;

use rustix::mm::{Advice, madvise};

use super::map::page_ceil;

/// The least size for which huge pages are requested.
///
/// Unit: bytes. Source: ours; less than two of the 2 MiB pages of most machines may hold none.
const HUGE_BYTES: usize = 4 << 20;

/// Returns zero words. The kernel allocates their pages at the first store, as huge pages if it has
/// them, so that random reads rarely miss the TLB.
pub(crate) fn zero_words(count: usize) -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(count);
    // SAFETY: an atomic of all zero bits is one that holds zero.
    let words = unsafe { words.assume_init() };
    let (start, bytes) = (words.as_ptr().cast::<u8>(), size_of_val(&*words));
    let before = page_ceil(start.addr() as u64).map(|page| page as usize - start.addr());
    if let Some(before) = before.filter(|_| bytes >= HUGE_BYTES) {
        let page = rustix::param::page_size();
        let whole = (bytes - before) / page * page;
        let first = start.wrapping_add(before).cast_mut().cast();
        // Best effort: without huge pages the words are only slower.
        // SAFETY: the pages lie inside the memory of `words`, and the advice changes no content.
        let _ = unsafe { madvise(first, whole, Advice::LinuxHugepage) };
    }
    words
}

/// Prefetches the line of `value` for a read.
///
/// ```
/// let table = vec![0u64; 1 << 20];
/// everhash_pmem::prefetch(&table[77_777]);
/// assert_eq!(table[77_777], 0);
/// ```
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_at(core::ptr::from_ref(value).cast());
}

/// Prefetches the line of `value` for a store: in exclusive state, so that the store needs no
/// second request.
#[inline(always)]
pub fn prefetch_for_store<T>(value: &T) {
    prefetch_for_store_at(core::ptr::from_ref(value).cast());
}

/// As [`prefetch_for_store`], for any address.
#[inline(always)]
pub(crate) fn prefetch_for_store_at(place: *const u8) {
    // A processor without `prefetchw` does nothing instead, but for the first 64-bit Pentium 4.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it neither faults nor changes anything at any address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

/// As [`prefetch`], for any address.
#[inline(always)]
pub(crate) fn prefetch_at(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it neither faults nor changes anything at any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_keep_what_is_stored() {
        // Fails if memory is not cleared, if the advice reaches beyond it, or if it is freed as
        // something else than it was taken.
        use core::sync::atomic::Ordering::Relaxed;
        for count in [0, 1, 1000, (HUGE_BYTES / 8) + 3] {
            for value in [5, 6] {
                let words = zero_words(count);
                assert!(words.iter().step_by(61).all(|word| word.load(Relaxed) == 0));
                words.iter().for_each(|word| word.store(value, Relaxed));
                assert!(words.iter().all(|word| word.load(Relaxed) == value));
            }
        }
    }

    #[test]
    fn a_hint_changes_nothing() {
        // Fails if a prefetch is more than a hint, of a value without a size too.
        let memory: Vec<u64> = (0..1000).collect();
        memory.iter().for_each(prefetch);
        prefetch(&());
        memory.iter().for_each(prefetch_for_store);
        prefetch_for_store(&());
        assert!(memory.into_iter().eq(0..1000));
    }
}
