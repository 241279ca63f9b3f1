//! Who comes to the syncs of a group: those whom a sync has served often come again at once.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Bell, Primitives};

/// How long a leader waits at most.
///
/// Source: ours; a few syncs of a fast device, and many times what a thread needs between two.
const LONGEST: Duration = Duration::from_millis(1);

/// Syncs that take less than this are not waited with: to sleep and to be woken would take as long.
///
/// Source: ours; a file in memory is synced in less than a microsecond, and the system's timers are
/// late by up to 50 us.
const SHORT: Duration = Duration::from_micros(50);

/// The part of a sync's time that a leader waits at most for others.
///
/// Source: measured; with 8 and 16 threads a quarter of it gives a tenth fewer fences.
const PART: u32 = 2;

/// Of this many threads that came to the last sync, one need not come to the next: it may wait for
/// a lock that another one of them holds.
///
/// Unit: threads. Source: ours.
const MISSING: u64 = 8;

/// After this many leaders in a row that waited in vain, 31 syncs begin without waiting, then one
/// leader waits again.
///
/// Source: ours; threads that never come back cost a 60th of the time of syncs at most.
const RETREATS: u32 = 5;

/// The threads that come to the syncs of a group.
///
/// If each sync began as soon as it may, n threads would part into halves: while the sync of one
/// half runs, the other half comes, and needs the next one. So a leader waits a little until as
/// many have come as were here when the last sync ended. Thousands of fences a second on two
/// processors, each of a store to one of four pages, without waiting and with it: by 8 threads 33
/// and 46, by 16 54 and 76, by 32 78 and 111, by two 15 and 15.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Threads that wait for a sync of an even number, and of an odd one: nobody waits for a third.
    waiting: [AtomicU64; 2],
    /// For how many threads the next leader waits.
    expected: AtomicU64,
    /// Rung when so many have come.
    complete: Bell,
}

/// How long leaders wait; whoever leads has it.
#[derive(Debug, Default)]
pub(super) struct Patience {
    longest: Duration,
    /// How many leaders in a row have waited in vain.
    failures: u32,
    /// How many of the next leaders do not wait.
    pauses: u32,
}

/// A thread that waits for a sync.
#[derive(Debug)]
pub(super) struct Waiter<'c>(&'c AtomicU64);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiters {
    fn waiting(&self, number: u64) -> &AtomicU64 {
        &self.waiting[(number % 2) as usize]
    }

    /// Counts the calling thread among those that wait for a sync, until the result is dropped.
    pub(super) fn join(&self, number: u64) -> Waiter<'_> {
        let waiting = self.waiting(number);
        let others = waiting.fetch_add(1, Ordering::Relaxed);
        if others > 0 && others + 1 == self.expected.load(Ordering::Relaxed) {
            self.complete.ring();
        }
        Waiter(waiting)
    }

    /// Waits before a sync until those have come who are expected, or patience ends.
    pub(super) fn gather<P: Primitives>(&self, number: u64, patience: &mut Patience) {
        let expected = self.expected.load(Ordering::Relaxed);
        let are_here = || self.waiting(number).load(Ordering::Relaxed) >= expected;
        if are_here() || patience.longest.is_zero() || patience.is_lost() {
            return;
        }
        let began = Instant::now();
        // Ends: patience does.
        while let Some(left) = patience.longest.checked_sub(began.elapsed()) {
            let heard = self.complete.heard();
            if are_here() {
                patience.failures = 0;
                return;
            }
            P::sleep(&self.complete, heard, left);
        }
        patience.failed();
    }

    /// Notes that a sync has ended, and how long it took: all who wait now are expected again.
    pub(super) fn synced(&self, took: Duration, patience: &mut Patience) {
        let here: u64 = self.waiting.iter().map(|waiting| waiting.load(Ordering::Relaxed)).sum();
        self.expected.store(here - here / MISSING, Ordering::Relaxed);
        patience.longest = if took < SHORT { Duration::ZERO } else { LONGEST.min(took / PART) };
    }
}

impl Patience {
    /// Returns whether this leader does not wait, because others did in vain.
    fn is_lost(&mut self) -> bool {
        let is_lost = self.pauses > 0;
        self.pauses = self.pauses.saturating_sub(1);
        is_lost
    }

    /// Notes that a leader has waited in vain: the second time one sync does not wait, then three,
    /// and so on.
    fn failed(&mut self) {
        self.pauses = (1 << self.failures) - 1;
        self.failures = RETREATS.min(self.failures + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::Std;

    /// A patience that no test outlasts.
    fn long() -> Patience {
        Patience { longest: Duration::from_secs(60), ..Patience::default() }
    }

    #[test]
    fn a_leader_waits_until_all_have_come_who_were_there() {
        // Fails if a leader does not wait, or if nobody tells it that all are there: then it waits
        // for a minute.
        let waiters = Waiters::default();
        let before = [waiters.join(1), waiters.join(1)];
        waiters.synced(Duration::ZERO, &mut Patience::default());
        drop(before);
        let (began, came) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let leads = scope.spawn(|| {
                let (_leader, mut patience) = (waiters.join(2), long());
                waiters.gather::<Std>(2, &mut patience);
                assert!(came.load(Ordering::Relaxed));
                patience.failures
            });
            std::thread::sleep(Duration::from_millis(20));
            came.store(true, Ordering::Relaxed);
            let _other = waiters.join(2);
            assert_eq!(leads.join().unwrap(), 0);
        });
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn who_has_been_served_has_not_come_again() {
        // Fails if a thread that is about to return from a sync counts for the next one.
        let waiters = Waiters::default();
        let (_served, _leader) = (waiters.join(1), waiters.join(2));
        let mut patience = Patience::default();
        waiters.synced(SHORT, &mut patience);
        waiters.gather::<Std>(2, &mut patience);
        assert_eq!(patience.failures, 1);
        let _again = waiters.join(2);
        waiters.gather::<Std>(2, &mut patience);
        assert_eq!((patience.failures, patience.pauses), (1, 0));
    }

    #[test]
    fn a_leader_alone_waits_for_nobody() {
        // Fails if a single thread pays for what others might gain.
        let (waiters, mut patience) = (Waiters::default(), long());
        let began = Instant::now();
        for number in 1..10 {
            let _leader = waiters.join(number);
            waiters.gather::<Std>(number, &mut patience);
            waiters.synced(Duration::from_secs(60), &mut patience);
            patience.longest = long().longest;
        }
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn who_waits_in_vain_waits_more_seldom() {
        // Fails if each sync waits for a thread that never comes back, or if none waits again.
        let waiters = Waiters::default();
        let _two = [waiters.join(1), waiters.join(1)];
        waiters.synced(Duration::ZERO, &mut Patience::default());
        let mut patience = Patience { longest: Duration::from_nanos(1), ..Patience::default() };
        let _leader = waiters.join(2);
        let mut pauses = |syncs: usize| -> Vec<u32> {
            let gathered = (0..syncs).map(|_| {
                waiters.gather::<Std>(2, &mut patience);
                patience.pauses
            });
            gathered.collect()
        };
        assert_eq!(pauses(8), [0, 1, 0, 3, 2, 1, 0, 7]);
        // At length each 32nd.
        let waited = pauses(7 + 16 + 32 + 3 * 32).iter().filter(|pauses| **pauses == 31).count();
        assert_eq!(waited, 4);
    }

    #[test]
    fn one_of_eight_may_stay_away_and_patience_is_half_a_sync() {
        // Fails if one thread that waits for a lock of another one stops all, or if a leader waits
        // longer than its sync takes, or at all where syncs cost nothing.
        let (waiters, mut patience) = (Waiters::default(), Patience::default());
        for (threads, expected) in [(1, 1), (7, 7), (8, 7), (17, 15)] {
            let _here: Vec<_> = (0..threads).map(|_| waiters.join(1)).collect();
            waiters.synced(Duration::from_micros(100), &mut patience);
            assert_eq!(waiters.expected.load(Ordering::Relaxed), expected);
        }
        assert_eq!(patience.longest, Duration::from_micros(50));
        waiters.synced(Duration::from_secs(1), &mut patience);
        assert_eq!(patience.longest, Duration::from_millis(1));
        let _two = [waiters.join(1), waiters.join(1)];
        waiters.synced(SHORT - Duration::from_nanos(1), &mut patience);
        waiters.gather::<Std>(2, &mut patience);
        assert_eq!((patience.longest, patience.failures), (Duration::ZERO, 0));
    }
}
