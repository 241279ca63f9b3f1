//! What writes leave behind for a sweep of the whole table, and when one is due.
//!
//! A sweep takes as long for one leftover as for many. If one followed the other as long as anybody
//! removes pairs, it would take a processor from them. So it begins when enough was left behind,
//! once nothing more is, or when a write found no room.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Error, Upkeep};
use everhash_pmem::{AtomicWord, Primitives};

/// How long nothing must be left behind before a sweep begins for the little that was.
///
/// Source: ours; what is left behind takes some room meanwhile, and no more.
const REST: Duration = Duration::from_secs(1);

/// What was left behind since the last sweep began.
pub(crate) struct Leftovers<P: Primitives> {
    count: P::AtomicU64,
    /// Whether a write found no room since upkeep looked: not zero.
    is_urgent: P::AtomicU64,
}

/// What upkeep found left behind at its last visit.
#[derive(Default)]
pub(crate) struct Seen {
    count: u64,
    /// Since when there were so many.
    since: Duration,
}

impl<P: Primitives> Leftovers<P> {
    pub(crate) fn new(count: u64) -> Self {
        Leftovers { count: AtomicWord::new(count), is_urgent: AtomicWord::new(0) }
    }

    /// Notes that something was left behind.
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes how a write failed: if it found no room, the next sweep does not wait, because what
    /// was left behind takes some.
    pub(crate) fn note_failure(&self, error: &Error) {
        if error.is_full() {
            self.is_urgent.store(1, Ordering::Relaxed);
        }
    }

    /// Begins a sweep if `enough` was left behind, or nothing more for a while until `now`, or if
    /// it is urgent: what is left behind from here on is for the next one. Returns what upkeep is
    /// to answer if none is due.
    pub(crate) fn begin(&self, seen: &mut Seen, now: Duration, enough: u64) -> Option<Upkeep> {
        let count = self.count.load(Ordering::Relaxed);
        let is_urgent = self.is_urgent.load(Ordering::Relaxed) != 0;
        self.is_urgent.store(0, Ordering::Relaxed);
        if count == 0 {
            return Some(Upkeep::default());
        }
        if count != seen.count {
            *seen = Seen { count, since: now };
        }
        let rest = seen.since.saturating_add(REST);
        if count < enough && now < rest && !is_urgent {
            return Some(Upkeep { deadline: Some(rest), more: false });
        }
        *seen = Seen::default();
        self.count.fetch_sub(count, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::Std;

    use super::*;

    #[test]
    fn a_sweep_begins_for_many_leftovers_or_at_rest() {
        // Fails if a sweep begins for each leftover, for none of the last ones, or for those of a
        // full medium no sooner; or if what is left behind while it runs is forgotten, or is taken
        // for what was there before.
        let (left, mut seen) = (Leftovers::<Std>::new(0), Seen::default());
        let mut begin = |ms| left.begin(&mut seen, Duration::from_millis(ms), 10);
        let at = |ms| Some(Upkeep { deadline: Some(Duration::from_millis(ms)), more: false });
        let (begun, never) = (None, Some(Upkeep::default()));
        assert_eq!(begin(5000), never);
        left.add(9);
        assert_eq!([begin(6000), begin(6999)], [at(7000), at(7000)]);
        left.add(1);
        assert_eq!([begin(6999), begin(6999)], [begun, never]);
        left.add(9);
        assert_eq!([begin(9000), begin(9999)], [at(10_000), at(10_000)]);
        assert_eq!([begin(10_000), begin(10_000)], [begun, never]);
        left.add(9);
        assert_eq!([begin(20_000), begin(21_000)], [at(21_000), begun]);
        left.note_failure(&Error::Full { needed: 1 });
        // There is nothing to sweep.
        assert_eq!(begin(22_000), never);
        left.add(2);
        left.note_failure(&Error::Poisoned);
        assert_eq!(begin(22_000), at(23_000));
        left.note_failure(&Error::Full { needed: 1 });
        assert_eq!([begin(22_001), begin(22_001)], [begun, never]);
    }
}
