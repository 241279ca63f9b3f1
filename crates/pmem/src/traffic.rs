//! Traffic: how often each verb of a medium was used, in numbers that can be subtracted.

use core::ops::Sub;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{LINE, Span, WORD};

/// Stripes of counters. Unit: none; a power of two.
///
/// Source: ours; as many as the threads of a large machine, 256 bytes each.
const STRIPES: usize = 64;

macro_rules! counters {
    ($( $(#[$meta:meta])* $name:ident; )*) => {
        /// The verbs used on a medium since it was wrapped, or between two snapshots.
        ///
        /// ```
        /// # use everhash_pmem::Traffic;
        /// let (mut before, mut after) = (Traffic::default(), Traffic::default());
        /// (before.fences, after.fences) = (2, 5);
        /// assert_eq!((after - before).fences, 3);
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Traffic {
            $( $(#[$meta])* pub $name: u64, )*
        }

        impl Sub for Traffic {
            type Output = Traffic;

            /// Returns what came between two snapshots.
            ///
            /// # Panics
            /// If `before` is the later one.
            fn sub(self, before: Traffic) -> Traffic {
                let less = |after: u64, before: u64| {
                    after.checked_sub(before).expect("the snapshots are subtracted the wrong way")
                };
                Traffic { $( $name: less(self.$name, before.$name), )* }
            }
        }

        /// The counters of some threads, on lines of their own against false sharing. Two lines,
        /// because processors fetch lines in pairs.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Stripe {
            $( pub(crate) $name: Counter, )*
        }

        impl Stripe {
            /// Adds the counts of this stripe to `traffic`.
            pub(crate) fn add_to(&self, traffic: &mut Traffic) {
                $( traffic.$name += self.$name.0.load(Ordering::Relaxed); )*
            }
        }
    };
}

counters! {
    /// Words loaded, in windows and in bulk.
    words_loaded;
    /// Words stored, of every kind: plain, commit, past the caches, and exchanges that succeeded.
    words_stored;
    /// Commit stores and successful exchanges: the stores that publish something.
    commit_stores;
    /// Words stored past the caches.
    words_past_caches;
    /// Compare-and-exchange operations, successful or not.
    exchanges;
    /// Flush calls.
    flush_calls;
    /// Lines named by flush calls; a line that is flushed twice counts twice.
    lines_flushed;
    /// Lines that were asked to leave durable caches.
    lines_written_back;
    /// Fences.
    fences;
    /// Explicit syncs.
    syncs;
}

impl Traffic {
    /// Returns the bytes loaded.
    pub const fn bytes_loaded(&self) -> u64 {
        self.words_loaded * WORD
    }

    /// Returns the bytes stored.
    pub const fn bytes_stored(&self) -> u64 {
        self.words_stored * WORD
    }

    /// Returns the bytes loaded and stored.
    pub const fn bytes_asked(&self) -> u64 {
        self.bytes_loaded() + self.bytes_stored()
    }

    /// Returns the bytes in the flushed lines: the least that memory has to write.
    pub const fn bytes_flushed(&self) -> u64 {
        self.lines_flushed * LINE
    }
}

impl Stripe {
    /// Counts a commit store.
    #[inline]
    pub(crate) fn committed(&self) {
        self.words_stored.add(1);
        self.commit_stores.add(1);
    }

    /// Counts an exchange.
    #[inline]
    pub(crate) fn exchanged(&self, happened: bool) {
        self.exchanges.add(1);
        self.words_loaded.add(1);
        if happened {
            self.committed();
        }
    }

    /// Counts a flush.
    #[inline]
    pub(crate) fn flushed(&self, span: Span) {
        let lines = span.lines();
        self.flush_calls.add(1);
        self.lines_flushed.add(lines.end - lines.start);
    }
}

/// The counters of all threads. The counts are exact: each thread adds to its own stripe, or
/// shares one, atomically.
#[derive(Debug)]
pub(crate) struct Tally(Box<[Stripe; STRIPES]>);

impl Tally {
    /// Makes counters of zero.
    pub(crate) fn new() -> Self {
        let stripes: Vec<Stripe> = (0..STRIPES).map(|_| Stripe::default()).collect();
        Tally(stripes.into_boxed_slice().try_into().expect("the count is STRIPES"))
    }

    /// Returns the present counts.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        self.0.iter().for_each(|stripe| stripe.add_to(&mut traffic));
        traffic
    }

    /// Returns the counters of a thread.
    #[inline(always)]
    pub(crate) fn stripe(&self, thread: usize) -> &Stripe {
        &self.0[thread % STRIPES]
    }
}

/// A counter without ordering (relaxed).
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
