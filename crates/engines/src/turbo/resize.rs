//! Shard resizing (TurboHash 3.5) and the collection of deleted slots (4.6): when a shard is built
//! anew, how large, and how it is put in use. Readers go on at the old place meanwhile.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Access, AtomicWord, Lock, Media, Span};

use super::concurrency::Held;
use super::layout::{Bucket, Place};
use super::rehash::{self, Census, STRETCH, Swept};
use super::state::Turbo;
use super::variable_size_items::PairCodec;
use crate::common::room::{crowded, had_room};

/// The load up to which an overflow does not double a shard that has deleted slots, and to which a
/// collection may bring one where shards find no room to grow.
///
/// Unit: percent of all slots. Source: ours; a shard that is collected at 55 % has room for half as
/// many pairs again before its searches are as long as before.
const KEEP_PERCENT: u64 = 55;

/// Slots of which one at least is deleted in a shard of the largest size that is collected at a
/// higher load than that.
///
/// Unit: slots. Source: ours; a shard that is nearly full is searched for room again and again, and
/// one removal at a time must not have it rehashed for each pair that takes its place. So each
/// removal pays for 16 slots of a rehash at most, about those of one bucket.
const MOST_PER_DELETED: u64 = 16;

/// The buckets that a shard may have for each of its pairs.
///
/// Unit: buckets. Source: ours; sixteen pairs on a path of two buckets meet in a shard of 64 times
/// as many once in 10^20 times. One pair takes 16 KiB at most, even if its key was chosen to
/// collide.
const BUCKETS_PER_PAIR: u64 = 64;

/// The most space that maintenance reserves ahead of need.
///
/// Unit: bytes. Source: ours; a quarter of the largest step by which a medium grows.
const MOST_AHEAD_BYTES: u64 = 64 << 20;

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Rebuilds shard `index`, in which a search found no vacancy: at the same size if collecting
    /// the deleted slots should be enough, else at twice the size, or more if that is not enough.
    /// At the largest size, where nothing else would help, it is collected if that is worth a
    /// rehash.
    ///
    /// A crash leaves the shard at the old place or at the new one, with the same pairs.
    ///
    /// # Errors
    /// [`Error::Limit`] at the largest size, [`Error::Full`] if the medium has no room;
    /// [`Error::Corrupt`].
    #[cold]
    pub(super) fn make_room(
        &self,
        pm: &Access<'_, M>,
        held: &Held<'_, M>,
        index: u64,
    ) -> Result<()> {
        let place = held.place();
        let census = Census::of(pm, place)?;
        let slots = place.buckets() * self.settings.bucket_slots;
        let is_largest = place.buckets() >= self.settings.max_buckets;
        let is_worth_it = is_largest && census.deleted * MOST_PER_DELETED >= slots;
        let keep = census.deleted > 0 && census.live * 100 <= slots * KEEP_PERCENT || is_worth_it;
        self.rebuild(pm, held, (index, census.live), place.log + u32::from(!keep))
    }

    /// Collects the deleted slots of shard `index`: the same, at the same size, or where shards
    /// find no room to grow, at the least that leaves room for more pairs.
    ///
    /// A crash leaves the shard at the old place or at the new one, with the same pairs.
    ///
    /// # Errors
    /// As [`Turbo::make_room`].
    #[cold]
    pub(super) fn collect(&self, pm: &Access<'_, M>, held: &Held<'_, M>, index: u64) -> Result<()> {
        let (mut least, live) = (held.place().log, Census::of(pm, held.place())?.live);
        if self.is_short.load(Ordering::Relaxed) == 1 {
            let slots = |log: u32| self.settings.bucket_slots << log;
            let first = self.settings.buckets_per_shard.ilog2();
            // Ends: each round is one less, and there are 64 at most.
            while least > first && live * 100 <= slots(least - 1) * KEEP_PERCENT {
                least -= 1;
            }
        }
        self.rebuild(pm, held, (index, live), least)
    }

    /// Moves a shard, by its index and live pairs, to a new place of 2^`least` buckets, or more if
    /// its pairs need them.
    fn rebuild(
        &self,
        pm: &Access<'_, M>,
        held: &Held<'_, M>,
        (index, live): (u64, u64),
        least: u32,
    ) -> Result<()> {
        let from = held.place();
        // Before space is taken: what cannot be put in use is not built.
        let version = self.directory.next_version(pm, index)?;
        let most = self.settings.max_buckets.ilog2();
        let (directory, reach) = (&self.directory, self.reach());
        let belongs = |hash: u64, bucket: u64| {
            directory.index_of(hash) == index && reach.covers(hash, bucket, from)
        };
        let largest = largest_log(live, from);
        for log in least..=most.min(largest) {
            let span = self.take_buckets(log, log > from.log)?;
            let to = Place { start: span.start, log };
            let places = (from, to);
            match rehash::sweep::<M, C>(pm, &self.hasher, belongs, reach, places, STRETCH) {
                Ok(Swept::Whole) => return self.move_to(pm, held, (index, version), to),
                Ok(Swept::Overflowed) => self.space.give(span),
                Err(error) => {
                    self.space.give(span);
                    return Err(error);
                }
            }
        }
        if largest < most {
            return Err(crowded("buckets of a shard with so many pairs", 1 << largest));
        }
        let remedy = "copy the pairs to a new table with a larger max_buckets, or with more shards";
        Err(Error::Limit { name: "max_buckets", limit: self.settings.max_buckets, remedy })
    }

    /// Takes room for 2^`log` buckets of a shard, and if that grows, notes whether there is any.
    fn take_buckets(&self, log: u32, grows: bool) -> Result<Span> {
        let bytes = (Bucket::BYTES as u64) << log;
        let taken = self.space.take(bytes, Bucket::BYTES as u64).map_err(Error::from);
        if grows {
            let is_short = matches!(&taken, Err(error) if error.is_full());
            self.is_short.store(is_short.into(), Ordering::Relaxed);
        }
        Ok(taken?.span)
    }

    /// Turns a shard, by its index and next version, to the place where its pairs were written.
    fn move_to(
        &self,
        pm: &Access<'_, M>,
        held: &Held<'_, M>,
        shard: (u64, u8),
        to: Place,
    ) -> Result<()> {
        let from = held.place();
        // After an error either place may be the one that the descriptor names: neither is freed.
        self.directory.turn(pm, shard, to)?;
        held.moved(to);
        held.forget_deleted();
        self.space.give(Span::of_bytes(from.start, from.bytes()));
        self.taken.fetch_add(to.bytes(), Ordering::Relaxed);
        let counter = if to.log > from.log { &self.doublings } else { &self.collections };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Collects shards that hold many deleted slots, and reserves space ahead of need.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and errors of the medium; a full medium is none.
    pub fn maintain(&self, budget: u32) -> Result<Upkeep> {
        self.pool.check_writable()?;
        let pm = self.pool.access();
        let mut left = u64::from(budget.max(1));
        while left > 0 {
            let Some(index) = self.due.lock()?.pop() else { break };
            let shard = &self.directory.shards()[index as usize];
            // A poisoned shard refuses its own writes; the others go on.
            let held = match shard.hold(&pm) {
                Err(Error::Poisoned) => continue,
                held => held?,
            };
            held.set_due(false);
            left = left.saturating_sub(held.place().buckets());
            if self.many_deleted(&held) {
                had_room(self.collect(&pm, &held, index))?;
            }
        }
        // Resizes come in waves: the next ones will take as much as the last ones.
        let taken = self.taken.load(Ordering::Relaxed);
        if taken > 0 {
            self.taken.fetch_sub(taken, Ordering::Relaxed);
            let ahead = self.space.reserve_ahead(taken.min(MOST_AHEAD_BYTES));
            had_room(ahead.map_err(Error::from))?;
        }
        Ok(Upkeep { deadline: None, more: !self.due.lock()?.is_empty() })
    }

    /// Queues a shard with many deleted slots for maintenance.
    pub(super) fn note_deleted(&self, held: &Held<'_, M>, index: u64) {
        // The list is poisoned if memory ran out in here: nothing is collected from then on.
        if !held.is_due()
            && self.many_deleted(held)
            && let Ok(mut due) = self.due.lock()
        {
            due.push(index);
            held.set_due(true);
        }
    }

    /// Returns whether a quarter of the slots of a shard is deleted, as far as known (4.6).
    #[inline(always)]
    fn many_deleted(&self, held: &Held<'_, M>) -> bool {
        let slots = held.place().buckets() * self.settings.bucket_slots;
        held.deleted() * 4 >= slots as i64
    }
}

/// Returns the logarithm of the most buckets that a shard at `place` may have for its live pairs:
/// keys that were made to collide, or damage, must not take room without end.
fn largest_log(live: u64, place: Place) -> u32 {
    (live.max(1) * BUCKETS_PER_PAIR).ilog2().max(place.log)
}
