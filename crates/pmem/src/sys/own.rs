//! Hints about what the program will read soon.

/// Says that `value` will be read soon: its line is on the way, and nobody waits for it.
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

/// As [`prefetch`], of a place that may be any address.
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
    fn a_hint_changes_nothing() {
        // Fails if a prefetch is more than a hint, of a value without a size too.
        let memory: Vec<u64> = (0..1000).collect();
        memory.iter().for_each(prefetch);
        prefetch(&());
        assert!(memory.into_iter().eq(0..1000));
    }
}
