//! Windows into a mapping: one bounds check, then atomic accesses.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::flush::{Flusher, store_past_caches};
use super::lanes::AtOnce;
use super::map::Mapping;
use crate::media::{Block, out_of_bounds};
use crate::{Addr, LINE, Result, Site, Span, WORD};

const READ_ONLY: &str = "a word was stored to a medium that was opened for reading";

/// A window of `N` words of a mapping, with one bounds check for all of them.
///
/// # Panics
/// The storing methods panic if the mapping is read-only.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a, const N: usize> {
    first: *mut u64,
    start: Addr,
    writable: bool,
    mapping: PhantomData<&'a Mapping>,
}

impl Mapping {
    /// Returns the window of `N` words at `at`, or an error if it is out of bounds.
    #[inline(always)]
    pub(crate) fn window<const N: usize>(&self, at: Addr) -> Result<Window<'_, N>> {
        let first = self.words(at, N as u64)?;
        Ok(self.window_at(first, at))
    }

    /// As [`Mapping::window`], with `None` for the error.
    #[inline(always)]
    pub(crate) fn try_window<const N: usize>(&self, at: Addr) -> Option<Window<'_, N>> {
        let first = self.try_words(at, N as u64)?;
        Some(self.window_at(first, at))
    }

    /// Returns the window in which byte `byte` lies and that begins at a multiple of its length, a
    /// power of two; `None` if it is out of bounds.
    #[inline(always)]
    pub(crate) fn try_aligned_window<const N: usize>(&self, byte: u64) -> Option<Window<'_, N>> {
        let start = Addr::of_window::<N>(byte);
        // No sum: the bits of the length are zero in the start.
        let last = byte | (N as u64 * WORD - 1);
        let base = (last < self.bytes()).then(|| self.base())?;
        Some(self.window_at(base.wrapping_add(start.byte() as usize).cast(), start))
    }

    /// Makes the window of words that were found to lie inside.
    #[inline(always)]
    fn window_at<const N: usize>(&self, first: *mut u64, start: Addr) -> Window<'_, N> {
        Window { first, start, writable: self.writable(), mapping: PhantomData }
    }

    /// Returns where `count` words at `at` lie, or an error if they are out of bounds.
    #[inline(always)]
    fn words(&self, at: Addr, count: u64) -> Result<*mut u64> {
        self.try_words(at, count).ok_or_else(|| out_of_bounds(at, count))
    }

    #[inline(always)]
    fn try_words(&self, at: Addr, count: u64) -> Option<*mut u64> {
        // The product cannot wrap around: no slice has 2^60 words.
        let end = at.byte().checked_add(count * WORD)?;
        let base = (end <= self.bytes()).then(|| self.base())?;
        Some(base.wrapping_add(at.byte() as usize).cast())
    }

    /// Loads words in ascending order, each atomically (acquire).
    #[inline]
    pub(crate) fn read_words(&self, at: Addr, out: &mut [u64]) -> Result<()> {
        let first = self.words(at, out.len() as u64)?;
        for (index, word) in out.iter_mut().enumerate() {
            // SAFETY: `words` checked that all of them lie inside the mapping.
            *word = unsafe { load_acquire(first.add(index)) };
        }
        Ok(())
    }

    /// Stores words in ascending order, each atomically (relaxed).
    ///
    /// # Panics
    /// If the mapping is read-only.
    #[inline]
    pub(crate) fn write_words(&self, at: Addr, words: &[u64]) -> Result<()> {
        assert!(self.writable(), "{READ_ONLY}");
        let first = self.words(at, words.len() as u64)?;
        for (index, word) in words.iter().enumerate() {
            // SAFETY: `words` checked that all of them lie inside the mapping, and it is writable.
            let target = unsafe { AtomicU64::from_ptr(first.add(index)) };
            target.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Stores words past the caches; they are unordered until [`Flusher::fence`].
    ///
    /// # Panics
    /// If the mapping is read-only.
    pub(crate) fn write_words_past_caches(&self, at: Addr, words: &[u64]) -> Result<()> {
        assert!(self.writable(), "{READ_ONLY}");
        let first = self.words(at, words.len() as u64)?;
        for (index, word) in words.iter().enumerate() {
            // SAFETY: `words` checked that all of them lie inside the mapping, and it is writable.
            unsafe { store_past_caches(first.add(index), *word) };
        }
        Ok(())
    }

    /// Begins the write-back of the lines that `span` touches, as far as they are mapped.
    #[inline(always)]
    pub(crate) fn write_back(&self, span: Span, flusher: Flusher) {
        let mut byte = span.start.byte() & !(LINE - 1);
        let end = span.end_byte().min(self.bytes());
        while byte < end && span.words > 0 {
            // SAFETY: the line begins below the length, so its page is mapped: a page is a
            // multiple of a line.
            unsafe { flusher.line(self.base().add(byte as usize)) };
            byte += LINE;
        }
    }

    /// Prefetches the line at `at` for a read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: Addr) {
        super::own::prefetch_at(self.base().wrapping_add(at.byte() as usize));
    }

    /// Prefetches the line at `at` for a store.
    #[inline(always)]
    pub(crate) fn prefetch_for_store(&self, at: Addr) {
        super::own::prefetch_for_store_at(self.base().wrapping_add(at.byte() as usize));
    }
}

/// Loads a word (acquire).
///
/// A relaxed load and a fence: on a read-only mapping only relaxed loads are defined, and on x86
/// the fence is no instruction.
///
/// # Safety
/// `word` is a word of a live mapping.
#[inline(always)]
unsafe fn load_acquire(word: *mut u64) -> u64 {
    // SAFETY: the caller's word is mapped and, as an `Addr`, aligned; all accesses are atomic.
    let value = unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

impl<const N: usize> Window<'_, N> {
    /// Returns where word `index` lies.
    #[inline(always)]
    fn word(&self, index: usize) -> *mut u64 {
        assert!(index < N);
        // SAFETY: `N` words from `first` on lie inside one mapping (`Mapping::window`).
        unsafe { self.first.add(index) }
    }

    /// Returns where word `index` lies, for a store.
    #[inline(always)]
    fn target(&self, index: usize) -> *mut u64 {
        assert!(self.writable, "{READ_ONLY}");
        self.word(index)
    }
}

impl<const N: usize> Block<N> for Window<'_, N> {
    #[inline(always)]
    fn start(&self) -> Addr {
        self.start
    }

    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        // SAFETY: `word` returns a word of the mapping, which lives as long as this window.
        unsafe { load_acquire(self.word(index)) }
    }

    #[inline(always)]
    fn load_relaxed(&self, index: usize) -> u64 {
        // SAFETY: as in `load`; aligned because `start` is an `Addr`.
        unsafe { AtomicU64::from_ptr(self.word(index)) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn equal_words_at_once(&self, proof: AtOnce, value: u64) -> u32 {
        const { assert!(N == 8, "a line") }
        // SAFETY: eight words of the mapping begin at `first`.
        unsafe { proof.equal_words_of_line(self.first, value) }
    }

    #[inline(always)]
    fn equal_bytes_at_once<const FIRST: usize>(&self, proof: AtOnce, low: u64) -> u32 {
        const { assert!(FIRST + 2 <= N) }
        // SAFETY: two words from `FIRST` on lie in the window, all of which lies in the mapping.
        unsafe { proof.equal_bytes_of_words::<FIRST>(self.first, low) }
    }

    #[inline(always)]
    fn first_slot<const FIRST: usize, const COUNT: usize>(
        &self,
        slots: u32,
    ) -> Option<(usize, [u64; 2])> {
        const { assert!(COUNT < 32 && FIRST + 2 * COUNT <= N) }
        let slots = core::num::NonZero::new(slots & ((1 << COUNT) - 1))?;
        let slot = slots.trailing_zeros() as usize;
        // SAFETY: it is the lowest of `COUNT` bits, of which one is set.
        unsafe { core::hint::assert_unchecked(slot < COUNT) };
        // SAFETY: the lowest of `COUNT` bits is below `COUNT`, so both words lie in the window, all
        // of which lies in the mapping.
        let word = |index: usize| unsafe {
            AtomicU64::from_ptr(self.first.add(FIRST + 2 * slot + index)).load(Ordering::Relaxed)
        };
        Some((slot, [word(0), word(1)]))
    }

    #[inline(always)]
    fn prefetch(&self, index: usize) {
        super::own::prefetch_at(self.first.wrapping_add(index).cast());
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64) {
        // SAFETY: as in `load_relaxed`, and `target` checked that the mapping is writable.
        unsafe { AtomicU64::from_ptr(self.target(index)) }.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        // SAFETY: as in `store`.
        unsafe { AtomicU64::from_ptr(self.target(index)) }.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        // SAFETY: as in `store`.
        let word = unsafe { AtomicU64::from_ptr(self.target(index)) };
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::Source;

    fn mapping(writable: bool) -> Mapping {
        let mapping = Mapping::reserve(8192, writable).unwrap();
        mapping.extend(8192, Source::Memory).unwrap();
        mapping
    }

    #[test]
    fn a_window_never_reaches_past_the_end() {
        // Fails if the sum of address and length could wrap around, or if the last word is lost.
        let mapping = mapping(true);
        assert!(mapping.window::<8>(Addr::new(8192 - 64)).is_ok());
        for at in [8192 - 56, 8192, u64::MAX - 7, u64::MAX - 63] {
            assert!(mapping.window::<8>(Addr::new(at)).is_err(), "{at}");
            assert!(mapping.try_window::<8>(Addr::new(at)).is_none(), "{at}");
            assert!(mapping.read_words(Addr::new(at), &mut [0; 8]).is_err(), "{at}");
            assert!(mapping.write_words(Addr::new(at), &[0; 8]).is_err(), "{at}");
        }
    }

    #[test]
    fn an_aligned_window_begins_at_a_multiple_and_never_reaches_past_the_end() {
        // Fails if the window of a byte were another one, or its last words outside.
        let mapping = mapping(true);
        let start = |byte| mapping.try_aligned_window::<8>(byte).map(|window| window.start());
        for byte in 0..8192 {
            assert_eq!(start(byte), Some(Addr::new(byte / 64 * 64)));
        }
        assert!(
            [8192, 8193, u64::MAX, u64::MAX - 63].into_iter().all(|byte| start(byte).is_none())
        );
        let cut = Mapping::reserve(8192, true).unwrap();
        cut.extend(4096 - 8, Source::Memory).unwrap();
        let ends = [4095, 4096 - 64].map(|byte| cut.try_aligned_window::<8>(byte).is_some());
        assert_eq!(ends, [cut.bytes() == 4096; 2], "a line whose last word is outside");
    }

    #[test]
    fn what_is_compared_at_once_is_what_is_compared_one_by_one() {
        // Fails if a word or a byte is compared in another lane, or not at all.
        let Some(proof) = AtOnce::detect() else { return };
        let mapping = mapping(true);
        let window = mapping.window::<8>(Addr::new(64)).unwrap();
        for pattern in 0..256u32 {
            for (index, bit) in (0..8).map(|index| (index, pattern >> index & 1)) {
                window.store(index, if bit == 1 { u64::MAX - 5 } else { 5 << index });
            }
            assert_eq!(window.equal_words(u32::MAX, u64::MAX - 5), pattern);
            assert_eq!(window.equal_words(0x54, u64::MAX - 5), pattern & 0x54);
            assert_eq!(window.equal_words_at_once(proof, u64::MAX - 5), pattern);
        }
        for seed in 1..1000u64 {
            let words = [seed, seed + 1].map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            window.store(3, words[0]);
            window.store(4, words[1] & 0x0303_0303_0303_0303);
            for low in (0..256).map(|byte| byte | seed << 8) {
                let one_by_one = crate::equal_bytes(&[window.load(3), window.load(4)], low as u8);
                assert_eq!(window.equal_bytes_at_once::<3>(proof, low), one_by_one);
            }
        }
    }

    #[test]
    fn the_first_slot_of_a_mask_is_the_lowest_of_those_that_are_there() {
        // Fails if a bit of a slot that is not there leads out of the window.
        let mapping = mapping(true);
        let window = mapping.window::<8>(Addr::new(64)).unwrap();
        (0..8).for_each(|index| window.store(index, index as u64));
        for mask in (0..64).chain([0xff00, u32::MAX, 1 << 31]) {
            let lowest = (0..3).find(|slot| mask >> slot & 1 == 1);
            let slot = |slot: usize| (slot, [2 * slot as u64 + 1, 2 * slot as u64 + 2]);
            assert_eq!(window.first_slot::<1, 3>(mask), lowest.map(slot));
        }
    }

    #[test]
    fn every_way_to_store_is_read_back() {
        // Fails if a verb writes to the wrong place or a non-temporal store is not visible.
        let mapping = mapping(true);
        let site = Site::new("test");
        let window = mapping.window::<4>(Addr::new(64)).unwrap();
        window.store(0, 1);
        window.commit_word(1, 2, site);
        assert_eq!(window.compare_exchange(2, 0, 3, site), Ok(0));
        assert_eq!(window.compare_exchange(2, 0, 9, site), Err(3));
        mapping.write_words_past_caches(Addr::new(88), &[4]).unwrap();
        crate::sys::flush::store_fence();
        let mut back = [0; 6];
        mapping.read_words(Addr::new(56), &mut back).unwrap();
        assert_eq!(back, [0, 1, 2, 3, 4, 0]);
        assert_eq!([0, 1, 2, 3].map(|i| window.load(i)), [1, 2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "opened for reading")]
    fn a_store_to_a_read_only_mapping_is_a_panic_and_not_a_signal() {
        // Fails with SIGSEGV if the right to store is not checked.
        mapping(false).window::<1>(Addr::NULL).unwrap().store(0, 1);
    }

    #[test]
    fn a_read_only_mapping_can_be_read() {
        // Fails if the check for stores got into the way of loads.
        assert_eq!(mapping(false).window::<1>(Addr::NULL).unwrap().load(0), 0);
    }

    #[test]
    fn flushing_past_the_end_is_passed_over() {
        // Fails with a signal if a line outside the mapping were flushed.
        let mapping = mapping(true);
        for kind in crate::WriteBack::ALL {
            let Some(flusher) = Flusher::new(kind) else { continue };
            mapping.write_back(Span::new(Addr::new(8184), 1 << 40), flusher);
            mapping.write_back(Span::new(Addr::new(1 << 50), 8), flusher);
            mapping.write_back(Span::new(Addr::new(64), 0), flusher);
            flusher.fence();
        }
    }
}
