//! What an open table holds in DRAM, and how its parts reach one another.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Heap, Media, Pool, Primitives, Space};

use super::bucket::{Bucket, BucketCodec, corrupt, read_chained};
use super::bucket_pre_allocation::PreAllocated;
use super::concurrency::Stripes;
use super::main_buckets::{MainBuckets, View};
use super::setup::WophiSettings;
use crate::common::hash::KeyedHash;
use crate::common::leftovers::{Leftovers, Seen};
use crate::common::slot_codec::Words;

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&Wophi<M, Words>, u64) -> Result<Option<u64>>;

/// What chooses that for a hash.
pub type LookupOf<M> = fn(&KeyedHash) -> WordLookup<M>;

/// An open table with pairs of codec `C`.
pub struct Wophi<M: Media, C: BucketCodec> {
    pub(super) pool: Pool<M>,
    pub(super) form: Form,
    pub(super) settings: WophiSettings,
    pub(super) hasher: KeyedHash,
    /// How a key is looked up if keys are words.
    pub(super) lookup: WordLookup<M>,
    /// Whether a line keeps the order of its stores on this medium.
    pub(super) ordered: bool,
    pub(super) space: Arc<Space<M>>,
    pub(super) heap: Heap<M>,
    pub(super) main: MainBuckets<M::Sync, C>,
    pub(super) pab: PreAllocated<M>,
    pub(super) stripes: Stripes<M::Sync>,
    /// Items that recovery found.
    pub(super) recovered_items: u64,
    /// The estimated number of items: exact but for what the stripes have not reported yet.
    pub(super) estimate: WordOf<M>,
    /// The estimate beyond which growth begins.
    pub(super) grow_at: WordOf<M>,
    pub(super) growth: LockOf<M, Growth>,
    pub(super) sweep: LockOf<M, Sweep>,
    /// Chained buckets that were emptied since the last sweep began.
    pub(super) emptied: Leftovers<M::Sync>,
    /// Buckets of the longest chain that an insert has walked.
    pub(super) longest_chain: WordOf<M>,
    pub(super) codec: core::marker::PhantomData<fn() -> C>,
}

/// How far the sweep for empty buckets has come.
#[derive(Default)]
pub struct Sweep {
    /// The next main bucket; 0 between two sweeps.
    pub(super) next: u64,
    pub(super) seen: Seen,
    /// The level for whose growth space was reserved.
    pub(super) reserved: Option<u32>,
}

/// Which groups of a growth are still to be split. Empty if no growth is in progress.
#[derive(Default)]
pub struct Growth {
    /// The next group that was not begun.
    next: u64,
    /// The first group for whose upper half no memory was prepared. It goes ahead of `next`; a
    /// growth that a crash has interrupted prepares none, because later groups may be split.
    prepared: u64,
    /// The number of groups.
    end: u64,
    /// Groups that could not be split: for lack of space, or behind a poisoned stripe.
    pub(super) again: VecDeque<u64>,
    /// Groups that are being split.
    pub(super) in_progress: u64,
    /// Growths that were begun since the table was opened.
    pub(super) steps: u64,
}

impl Growth {
    /// Makes the state of a growth of `end` groups whose first `next` are done.
    pub(super) fn from_group(next: u64, end: u64) -> Self {
        Growth { next, prepared: end, end, ..Growth::default() }
    }

    /// Begins a growth of `end` groups. The last one is done.
    pub(super) fn begin(&mut self, end: u64) {
        *self = Growth { end, steps: self.steps + 1, ..Growth::default() };
    }

    /// Returns which groups, `most` of them, the memory is to be prepared for before the next one
    /// is handed out.
    pub(super) fn prepare(&mut self, most: u64) -> Option<Range<u64>> {
        let from = self.prepared;
        if self.next < from || from == self.end {
            return None;
        }
        self.prepared = (from + most).min(self.end);
        Some(from..self.prepared)
    }

    /// Hands out a group that is to be split.
    pub(super) fn take(&mut self) -> Option<u64> {
        let group = if self.next < self.end {
            self.next += 1;
            self.next - 1
        } else {
            self.again.pop_front()?
        };
        self.in_progress += 1;
        Some(group)
    }

    /// Returns whether every group is split.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.end && self.again.is_empty() && self.in_progress == 0
    }
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Returns the number of items. Exact whenever no write is in progress.
    pub fn len(&self) -> u64 {
        self.recovered_items.wrapping_add(self.stripes.items())
    }

    /// Returns the estimated number of items.
    pub(super) fn estimated_items(&self) -> u64 {
        // The sum of what the stripes have reported may be below zero for a moment.
        (self.estimate.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Returns the number of items at which the table doubles once more.
    pub(super) fn items_at(&self, level: u32) -> u64 {
        let slots = self.main.count(level) * C::SLOTS as u64;
        (u128::from(slots) * u128::from(self.settings.grow_percent) / 100) as u64
    }

    /// Returns how far the counter of a stripe may drift from the estimate. Unit: items.
    ///
    /// A thirty-second of a stripe's slots: the estimate is about 3 % wrong at most, and all
    /// threads write it once in 64 inserts into a large table.
    #[inline(always)]
    pub(super) fn drift_limit(&self, view: View) -> i64 {
        let slots = self.main.count(view.level) * C::SLOTS as u64;
        // The stripes are a power of two: a division would be the longest part of a removal.
        (slots >> self.stripes.count().trailing_zeros() >> 5).clamp(1, 64) as i64
    }

    /// Returns the bucket behind `bucket` in the chain of main bucket `index`. `steps` counts the
    /// steps from the main bucket on.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], also if the chain goes round in a circle.
    #[inline(always)]
    pub(super) fn follow<'a>(
        &self,
        pm: &'a Access<'_, M>,
        bucket: &Bucket<'a, M, C>,
        index: u64,
        steps: &mut u64,
    ) -> Result<Option<Bucket<'a, M, C>>> {
        match bucket.next()? {
            None => Ok(None),
            Some(at) => {
                *steps += 1;
                // Chains are short: the exact bound is computed only for long ones.
                if *steps > 64 && *steps > pm.media().bytes() / (C::LINES * everhash_pmem::LINE) {
                    return Err(corrupt(bucket.at, "a chain ends"));
                }
                read_chained(pm, at, index).map(Some)
            }
        }
    }

    /// As [`Wophi::follow`], for whoever does with each bucket what must be done once: a circle is
    /// noticed where it comes to one of those that were `reached`.
    pub(super) fn follow_once<'a>(
        &self,
        pm: &'a Access<'_, M>,
        bucket: &Bucket<'a, M, C>,
        index: u64,
        reached: &mut BTreeSet<Addr>,
    ) -> Result<Option<Bucket<'a, M, C>>> {
        match self.follow(pm, bucket, index, &mut (reached.len() as u64))? {
            Some(next) if !reached.insert(next.at) => Err(corrupt(bucket.at, "a chain ends")),
            next => Ok(next),
        }
    }

    /// Notes the length of a chain.
    pub(super) fn note_chain(&self, buckets: u64) {
        if self.longest_chain.load(Ordering::Relaxed) < buckets {
            self.longest_chain.store(buckets, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Growth;

    #[test]
    fn memory_is_prepared_ahead_of_the_groups_and_never_behind_them() {
        // Fails if a group that was handed out, and may be split, is prepared anew: its upper half
        // would be lost. After a crash any later group may be split.
        let mut growth = Growth::default();
        growth.begin(5);
        assert_eq!((growth.prepare(2), growth.prepare(2)), (Some(0..2), None));
        assert_eq!((growth.take(), growth.prepare(2)), (Some(0), None));
        assert_eq!((growth.take(), growth.prepare(2)), (Some(1), Some(2..4)));
        assert_eq!((growth.take(), growth.take()), (Some(2), Some(3)));
        assert_eq!((growth.prepare(2), growth.prepare(2)), (Some(4..5), None));
        assert_eq!((growth.take(), growth.prepare(2)), (Some(4), None));
        growth.again.push_back(1);
        assert_eq!((growth.prepare(2), growth.take()), (None, Some(1)));
        let mut interrupted = Growth::from_group(2, 5);
        assert_eq!((interrupted.prepare(2), interrupted.take()), (None, Some(2)));
    }
}
