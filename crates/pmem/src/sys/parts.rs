//! Values in DRAM that grow by parts, none of which ever moves, so that readers need no lock.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{LINE, WORD};

/// The most parts.
const PARTS: usize = 64;

/// Of how many values a part has a multiple: words of a line.
const TOGETHER: usize = (LINE / WORD) as usize;

/// Values in up to 64 parts. A part has no values until it is added, and then those for ever.
///
/// A look at one costs a comparison with their number: there is no state to ask before.
///
/// ```
/// use everhash_pmem::Parts;
///
/// let parts = Parts::new();
/// assert_eq!(parts.get(5, 0), None);
/// parts.add(5, vec![7; 16].into());
/// assert_eq!((parts.get(5, 7), parts.get(5, 16)), (Some(&7), None));
/// assert_eq!(parts.around::<2>(5, 3), Some(&[7, 7]));
/// assert_eq!(parts.all(5).len(), parts.count(5));
/// ```
pub struct Parts<T> {
    parts: [Part<T>; PARTS],
    /// What was added, to be dropped with this.
    added: Mutex<Vec<NonNull<[T]>>>,
}

/// A part.
struct Part<T> {
    /// How many values it has, a multiple of [`TOGETHER`]. Stored behind `first`.
    count: AtomicUsize,
    first: AtomicPtr<T>,
}

// SAFETY: the values are owned, as in a vector: whoever has this may drop them.
unsafe impl<T: Send> Send for Parts<T> {}
// SAFETY: a shared reference to this leads to shared references to the values, and can add values
// that another thread drops.
unsafe impl<T: Send + Sync> Sync for Parts<T> {}

impl<T> Parts<T> {
    /// Makes parts without values.
    pub fn new() -> Self {
        let none = || Part { count: AtomicUsize::new(0), first: AtomicPtr::default() };
        Parts { parts: core::array::from_fn(|_| none()), added: Mutex::default() }
    }

    #[inline(always)]
    fn part(&self, part: usize) -> &Part<T> {
        &self.parts[part % PARTS]
    }

    /// Returns how many values a part has.
    #[inline(always)]
    pub fn count(&self, part: usize) -> usize {
        self.part(part).count.load(Ordering::Acquire)
    }

    /// Returns how many values all parts have together.
    pub fn total(&self) -> usize {
        (0..PARTS).map(|part| self.count(part)).sum()
    }

    /// Gives a part its values, if it has none: a multiple of eight of them; words from the first
    /// beginning of a line on.
    pub fn add(&self, part: usize, values: Box<[T]>) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if self.count(part) != 0 {
            return;
        }
        let is_word = size_of::<T>() == WORD as usize;
        let before = if is_word { values.as_ptr().align_offset(LINE as usize) } else { 0 };
        let count = values.len().saturating_sub(before) / TOGETHER * TOGETHER;
        let values = NonNull::from(Box::leak(values));
        added.push(values);
        let first = values.as_ptr().cast::<T>().wrapping_add(before);
        self.part(part).first.store(first, Ordering::Relaxed);
        self.part(part).count.store(count, Ordering::Release);
    }

    /// Returns a value of a part; `None` if that has no such.
    #[inline(always)]
    pub fn get(&self, part: usize, index: usize) -> Option<&T> {
        self.around::<1>(part, index).map(|[value]| value)
    }

    /// Returns the `N` values of a part, a power of two to eight, around one of them: they begin at
    /// a multiple of `N`. `None` if the part has no such.
    #[inline(always)]
    pub fn around<const N: usize>(&self, part: usize, index: usize) -> Option<&[T; N]> {
        const { assert!(N.is_power_of_two() && N <= TOGETHER) }
        let part = self.part(part);
        if index >= part.count.load(Ordering::Acquire) {
            return None;
        }
        let first = part.first.load(Ordering::Relaxed).wrapping_add(index & !(N - 1));
        // SAFETY: so many values, of which there is a multiple of eight and so of `N`, lie from the
        // first one on, which was stored before their number. They live as long as `self`, and
        // nobody has any but a shared reference to them.
        Some(unsafe { &*first.cast() })
    }

    /// Returns all values of a part; none if it was not added.
    #[inline(always)]
    pub fn all(&self, part: usize) -> &[T] {
        let part = self.part(part);
        let count = part.count.load(Ordering::Acquire);
        if count == 0 {
            // Nothing begins anywhere.
            return &[];
        }
        let first = part.first.load(Ordering::Relaxed);
        // SAFETY: so many values of one box lie from the first one on, which was stored before
        // their number. They live as long as `self`, and nobody has any but a shared reference to
        // them.
        unsafe { core::slice::from_raw_parts(first, count) }
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        let added = self.added.get_mut().unwrap_or_else(PoisonError::into_inner);
        for values in added.drain(..) {
            // SAFETY: it was a box until `add`, and no reference to its values is left.
            drop(unsafe { Box::from_raw(values.as_ptr()) });
        }
    }
}

impl<T> fmt::Debug for Parts<T> {
    /// Prints no values: there are many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_stay_where_they_are_and_none_is_beyond_the_last() {
        // Fails if a part begins within a line, has a part of one at its end, or moves; or if it is
        // replaced.
        let parts = Parts::new();
        for part in 0..PARTS {
            assert!(parts.get(part, 0).is_none() && parts.around::<8>(part, 0).is_none());
            assert!(parts.all(part).is_empty());
        }
        let (mut places, mut total) = (Vec::new(), 0);
        for part in (0..PARTS).step_by(3) {
            let given = 100 + part;
            parts.add(part, (0..given as u64).collect());
            parts.add(part, vec![0; 1000].into());
            let count = parts.count(part);
            assert!(count % 8 == 0 && (given - 14..=given).contains(&count), "{count} of {given}");
            let first = *parts.get(part, 0).unwrap();
            places.push(core::ptr::from_ref(parts.get(part, 0).unwrap()));
            assert_eq!(places[part / 3].addr() % 64, 0);
            let all = parts.all(part);
            assert_eq!((all.len(), all.as_ptr()), (count, places[part / 3]));
            total += count;
            assert_eq!(parts.total(), total);
            for index in 0..count {
                assert_eq!(*parts.get(part, index).unwrap(), first + index as u64);
                assert_eq!(all[index], first + index as u64);
                let line = parts.around::<8>(part, index).unwrap();
                assert_eq!(line[index % 8], first + index as u64);
                assert_eq!(parts.around::<4>(part, index).unwrap()[index % 4], line[index % 8]);
            }
            for beyond in [count, count + 7, usize::MAX, usize::MAX - 8] {
                assert!(parts.get(part, beyond).is_none());
                assert!(parts.around::<8>(part, beyond).is_none());
            }
        }
        for (number, place) in places.into_iter().enumerate() {
            assert_eq!(place, core::ptr::from_ref(parts.get(3 * number, 0).unwrap()));
        }
    }

    #[test]
    fn what_was_added_is_dropped_and_only_then() {
        // Fails if values are lost, dropped twice, or dropped before their owner.
        let value = Arc::new(());
        let values = |count| (0..count).map(|place| (Arc::clone(&value), place)).collect();
        let parts = Parts::new();
        for (part, count) in [(1, 8), (2, 3), (1, 8), (63, 30)] {
            parts.add(part, values(count));
        }
        assert_eq!((parts.count(1), parts.count(2)), (8, 0));
        assert_eq!(Arc::strong_count(&value), 1 + 8 + 3 + 30);
        drop(parts);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_reader_beside_one_who_adds_sees_all_or_nothing() {
        // Fails if the number of values is there before they are.
        let parts = Parts::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..PARTS).for_each(|part| parts.add(part, vec![part; 4096].into())));
            for part in 0..PARTS {
                while parts.count(part) == 0 {
                    assert!(parts.get(part, 4000).is_none_or(|value| *value == part));
                    assert!(parts.all(part).iter().all(|value| *value == part));
                }
                assert_eq!(parts.get(part, 4000), Some(&part));
            }
        });
    }
}
