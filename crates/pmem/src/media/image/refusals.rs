//! Calls that fail because somebody planned it: a medium without room, at any moment.

use core::sync::atomic::{AtomicU64, Ordering};

/// Which growths and which allocations of an image are refused.
///
/// ```
/// use everhash_pmem::{Error, Image, Media, Std};
///
/// let image = Image::<Std>::new(0, 4096);
/// image.refusals().growths.plan(1, u64::MAX);
/// image.grow(1024)?;
/// assert!(matches!(image.grow(2048), Err(Error::Full { .. })));
/// image.refusals().growths.plan(0, 0);
/// image.grow(2048)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Refusals {
    /// Calls of [`Media::grow`](crate::Media::grow).
    pub growths: Refused,
    /// Calls of [`Space::take`](crate::Space::take).
    pub takes: Refused,
}

/// Which calls of one kind are refused.
#[derive(Debug, Default)]
pub struct Refused {
    calls: AtomicU64,
    first: AtomicU64,
    count: AtomicU64,
}

impl Refused {
    /// Refuses so many calls from call `first` on; calls are counted from 0 and from now.
    pub fn plan(&self, first: u64, count: u64) {
        self.calls.store(0, Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }

    /// Returns how many calls there were since the last plan.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call; returns whether it is refused.
    pub(super) fn call(&self) -> bool {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let after = number.checked_sub(self.first.load(Ordering::Relaxed));
        after.is_some_and(|after| after < self.count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_from_the_plan_on() {
        // Fails if a plan refuses other calls where there was one before it.
        let calls = Refused::default();
        calls.plan(1, 1);
        assert_eq!([calls.call(), calls.call(), calls.call()], [false, true, false]);
        assert_eq!(calls.calls(), 3);
        calls.plan(1, u64::MAX);
        assert_eq!([calls.call(), calls.call(), calls.call()], [false, true, true]);
        assert_eq!(calls.calls(), 3);
    }
}
