//! Counting calls and their durations, on a stripe of memory for each of the threads.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Calls, Durations};

/// How many powers of two of nanoseconds are told apart: from 1 ns to 17 s.
///
/// Source: ours; a sync of a slow disk takes tens of milliseconds, and a worse one is in the last.
pub(super) const POWERS: usize = 35;

/// How many threads count without sharing a line.
///
/// Source: ours; more threads than that on one database are rare, and they only share.
const STRIPES: usize = 16;

/// What a call does.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

/// The counters of one database.
#[derive(Default)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    kinds: [Counter; 3],
    failed: AtomicU64,
}

struct Counter {
    counts: [AtomicU64; POWERS],
    nanoseconds: AtomicU64,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter { counts: [const { AtomicU64::new(0) }; POWERS], nanoseconds: AtomicU64::new(0) }
    }
}

thread_local! {
    /// The stripe on which this thread counts.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl Counters {
    /// Counts a call.
    pub(crate) fn count(&self, kind: Kind, took: Duration, failed: bool) {
        // A thread that ends may have lost its number: any stripe will do.
        let stripe = &self.stripes[STRIPE.try_with(|stripe| *stripe).unwrap_or(0)];
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let power = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        let counter = &stripe.kinds[kind as usize];
        counter.counts[power.min(POWERS - 1)].fetch_add(1, Ordering::Relaxed);
        counter.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if failed {
            stripe.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns what was counted.
    pub(super) fn read(&self) -> Calls {
        let durations = |kind: Kind| {
            let mut sum = Durations { counts: vec![0; POWERS], total: Duration::ZERO };
            for stripe in &self.stripes {
                let counter = &stripe.kinds[kind as usize];
                for (sum, count) in sum.counts.iter_mut().zip(&counter.counts) {
                    *sum += count.load(Ordering::Relaxed);
                }
                let nanoseconds = counter.nanoseconds.load(Ordering::Relaxed);
                sum.total += Duration::from_nanos(nanoseconds);
            }
            sum
        };
        Calls {
            read: durations(Kind::Read),
            write: durations(Kind::Write),
            sync: durations(Kind::Sync),
            failed: self.stripes.iter().map(|stripe| stripe.failed.load(Ordering::Relaxed)).sum(),
        }
    }
}

impl core::fmt::Debug for Counters {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.read().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_under_the_power_of_two_above_it() {
        // Fails if a bound were off by one power, or a long call fell out of the array.
        let counters = Counters::default();
        let took = [0, 1, 2, 3, 4, 1000, 1024, u64::MAX / 4];
        for count in took {
            counters.count(Kind::Write, Duration::from_nanos(count), count == 4);
        }
        let calls = counters.read();
        let counts: Vec<_> =
            calls.write.counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(counts, [(0, &1), (1, &1), (2, &2), (3, &1), (10, &1), (11, &1), (34, &1)]);
        assert_eq!((calls.write.count(), calls.failed, calls.read.count()), (8, 1, 0));
        let at = |part| calls.write.quantile(part).map(|bound| bound.as_nanos());
        assert_eq!([at(0.0), at(0.5), at(0.75)], [Some(1), Some(4), Some(1024)]);
        assert_eq!(calls.read.quantile(0.5), None);
    }

    #[test]
    fn a_bound_is_kept_by_calls_of_any_length() {
        // Fails if a minute counted as the longest time that is told apart.
        let counters = Counters::default();
        let minute = Duration::from_secs(60);
        counters.count(Kind::Sync, minute, false);
        assert!(counters.read().sync.quantile(1.0) >= Some(minute));
    }

    #[test]
    fn threads_lose_no_call() {
        // Fails if two threads that count at once count one call.
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.count(Kind::Read, Duration::from_nanos(5), false);
                    }
                });
            }
        });
        let calls = counters.read();
        assert_eq!(calls.read.count(), 20_000);
        assert_eq!(calls.read.total(), Duration::from_nanos(100_000));
    }
}
