//! Volatile locks, booked in virtual time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::super::random::mix;

/// A hasher for numbers that is the same in every run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// A map from numbers that is the same in every run.
pub(crate) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// When each lock was held, as far back as it still matters.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: NumberMap<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Past and booked holds, in ascending order.
    booked: Vec<(u64, u64)>,
    /// When the present holder got the lock.
    since: Option<u64>,
}

impl Locks {
    /// Takes `lock` at `at` or as soon as it is free, and returns that time.
    ///
    /// How long the lock will be held is not known yet: the length of the next booked hold is
    /// taken as the estimate that decides whether there is room before it.
    pub(crate) fn take(&mut self, lock: u64, at: u64, horizon: u64) -> u64 {
        let held = self.held.entry(lock).or_default();
        held.booked.retain(|(_, end)| *end > horizon);
        let mut start = at;
        for (begin, end) in &held.booked {
            if start + (end - begin) <= *begin {
                break;
            }
            start = start.max(*end);
        }
        held.since = Some(start);
        start
    }

    /// Releases `lock` at `at`. A lock that was not taken is passed over, and one that another
    /// thread releases was held for no time.
    pub(crate) fn release(&mut self, lock: u64, at: u64) {
        let Some(held) = self.held.get_mut(&lock) else { return };
        let Some(since) = held.since.take() else { return };
        let place = held.booked.partition_point(|(begin, _)| *begin <= since);
        held.booked.insert(place, (since, at.max(since)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_thread_at_a_time() {
        // Fails if virtual time let two critical sections overlap.
        let mut locks = Locks::default();
        assert_eq!(locks.take(7, 100, 0), 100);
        locks.release(7, 200);
        assert_eq!(locks.take(7, 150, 0), 200);
        locks.release(7, 300);
        assert_eq!(locks.take(8, 150, 0), 150);
    }

    #[test]
    fn a_hold_that_ends_before_the_booked_one_does_not_wait() {
        // Fails if an operation that was run later but came earlier waited for the future.
        let mut locks = Locks::default();
        locks.take(7, 1000, 0);
        locks.release(7, 1100);
        assert_eq!(locks.take(7, 10, 0), 10);
        locks.release(7, 60);
        assert_eq!(locks.take(7, 950, 0), 1100);
    }

    #[test]
    fn releasing_a_free_lock_changes_nothing() {
        // Fails if an unpaired hint booked a hold.
        let mut locks = Locks::default();
        locks.release(7, 60);
        assert_eq!(locks.take(7, 10, 0), 10);
    }
}
