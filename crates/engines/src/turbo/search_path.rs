//! The search path of a key (TurboHash 3.2): from its home bucket on, to the first bucket with two
//! empty slots, or to the end of the scope.

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, AtOnce, Media, Primitives};

use super::bucket::{Bucket, View, has_two_empty, slots_of};
use super::concurrency::{Look, Shard};
use super::layout::{self, Meta, Place};
use super::variable_size_items::PairCodec;
use crate::common::slot_codec::HashedKey;

/// How far searches go.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Buckets in which a key may lie.
    pub scope: u64,
    /// Slots of a bucket that are used.
    pub bucket_slots: u32,
}

impl Reach {
    /// Returns the indexes of the buckets in which a key that hashes to `hash` may lie. The last
    /// bucket of a shard is followed by the first.
    #[inline(always)]
    pub fn path(self, hash: u64, place: Place) -> impl Iterator<Item = u64> {
        self.path_from(layout::home_of(hash, place.log), place)
    }

    /// Returns the indexes of the buckets in which a key of home `home` may lie.
    #[inline(always)]
    pub fn path_from(self, home: u64, place: Place) -> impl Iterator<Item = u64> {
        let last = place.buckets() - 1;
        (0..self.scope.min(place.buckets())).map(move |step| (home + step) & last)
    }

    /// Returns whether a key that hashes to `hash` may lie in bucket `index`.
    #[inline(always)]
    pub fn covers(self, hash: u64, index: u64, place: Place) -> bool {
        let steps = index.wrapping_sub(layout::home_of(hash, place.log)) & (place.buckets() - 1);
        steps < self.scope
    }
}

/// A slot, the bucket in which it lies, and what that said.
pub struct Slot<'a, M: Media> {
    /// The bucket.
    pub bucket: Bucket<'a, M>,
    /// What it said of its slots.
    pub view: View,
    /// Index of the slot.
    pub slot: usize,
}

/// What a writer found on a path.
pub struct Search<'a, M: Media, C: PairCodec> {
    /// Where the key is, with its pair.
    pub found: Option<(Slot<'a, M>, C::Pair)>,
    /// Where it would go: the first deleted slot, else an empty one where the path ends. `None`
    /// if the scope ends first.
    pub vacancy: Option<Slot<'a, M>>,
    /// Buckets that were looked at and do not have the key.
    pub probes: u64,
    /// Deleted slots in them.
    pub deleted: u64,
}

/// What a search in a home bucket may rely on.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// Whether the lines of the bucket were fetched before.
    pub is_fetched: bool,
    /// That the processor compares many bytes at once, if it does and the caller was compiled for
    /// that.
    pub at_once: Option<AtOnce>,
}

/// Looks for a key in its home bucket, without a lock; most searches end there. `None` means that
/// [`get_along_path`] must answer: from the next bucket, from a record, beside or after a write, or
/// by an error. Unless the lines of the home bucket were fetched before, the one in which the pair
/// should lie is fetched together with the line of META.
///
/// While one get waits for memory the processor takes in the next ones, as far as its window
/// reaches. So time falls by steps: when one more get fits in, every instruction counts.
///
/// Without an error among its results all of them stay in registers. A larger result would go
/// through memory, where a load of another width than the store before it is a store-forwarding
/// stall: meanwhile the processor would not fetch what the next get needs.
#[inline(always)]
pub fn try_fast_get<M: Media, C: PairCodec>(
    pm: &Access<'_, M>,
    shard: &Shard<M::Sync>,
    used: impl Fn() -> u32,
    wanted: HashedKey<'_, C>,
    hints: Hints,
) -> Option<Option<C::Pair>> {
    let (packed, visit) = shard.enter_packed();
    let bucket = Bucket::around(pm, Place::home_byte(packed, wanted.hash))?;
    if !hints.is_fetched {
        bucket.fetch_line(wanted.hash);
    }
    let before = bucket.meta_word();
    let meta = Meta::decode_unverified(before, bucket.at())?;
    let mut slots = bucket.matching(meta, wanted.hash, hints.at_once);
    let found = loop {
        let Some((slot, pair)) = bucket.first_of(slots) else {
            if bucket.is_covered(meta) && has_two_empty(meta, used()) {
                break None;
            }
            return None;
        };
        let decoded = C::decode(pair, bucket.slot_at(slot)).ok()?;
        // The check is asked in either case. Behind the comparison the wanted key stands for the
        // one in the slot: that is no longer needed in the common case.
        if !bucket.is_sound(pair, slot) {
            return None;
        }
        if C::has_key(decoded, wanted.key)? {
            break Some(decoded);
        }
        cold_path();
        slots &= slots.wrapping_sub(1);
    };
    // Pairs with the release fence before a writer's stores.
    M::Sync::fence(Ordering::Acquire);
    let whole =
        bucket.meta_word_again() == before && shard.is_settled() && shard.is_there_still(visit);
    whole.then_some(found)
}

/// Looks for a key along its path, without a lock (Algorithm 1). A record's value is left in
/// `bytes`.
///
/// # Errors
/// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
pub fn get_along_path<M: Media, C: PairCodec>(
    pm: &Access<'_, M>,
    shard: &Shard<M::Sync>,
    reach: Reach,
    wanted: HashedKey<'_, C>,
    bytes: &mut Vec<u8>,
) -> Result<Option<C::Pair>> {
    shard.read(|place| {
        for index in reach.path(wanted.hash, place) {
            let bucket = Bucket::of(pm, place, index)?;
            let found = match read_optimistic(shard, &bucket, |view| {
                let found = find::<M, C>(pm, &bucket, view, wanted, bytes)?;
                Ok((found.map(|(_, pair)| pair), view.ends_path(reach.bucket_slots)))
            })? {
                Look::Whole(found) => found,
                Look::Disturbed => return Ok(Look::Disturbed),
            };
            match found {
                (None, false) => {}
                (found, _) => return Ok(Look::Whole(found)),
            }
        }
        Ok(Look::Whole(None))
    })
}

/// Reads one bucket without a lock: what `read` finds counts if the bucket was whole and durable.
///
/// # Errors
/// Those of `read`, under the same condition.
#[inline(always)]
pub fn read_optimistic<M: Media, R>(
    shard: &Shard<M::Sync>,
    bucket: &Bucket<'_, M>,
    read: impl FnOnce(&View) -> Result<R>,
) -> Result<Look<R>> {
    let before = bucket.meta_word();
    let found = bucket.view_of(before).and_then(|view| read(&view));
    // Pairs with the release fence before a writer's stores.
    M::Sync::fence(Ordering::Acquire);
    if bucket.meta_word_again() != before || !shard.settled(bucket.index)? {
        return Ok(Look::Disturbed);
    }
    found.map(Look::Whole)
}

/// Returns the slot of a bucket that holds a key, with its pair (Algorithm 1, lines 14 to 22).
///
/// # Errors
/// [`everhash_index::Error::Corrupt`].
#[inline(always)]
fn find<M: Media, C: PairCodec>(
    pm: &Access<'_, M>,
    bucket: &Bucket<'_, M>,
    view: &View,
    wanted: HashedKey<'_, C>,
    bytes: &mut Vec<u8>,
) -> Result<Option<(usize, C::Pair)>> {
    for slot in slots_of(view.matching(layout::tag_of(wanted.hash))) {
        let pair = C::decode(bucket.pair(view, slot)?, bucket.slot_at(slot))?;
        if C::holds(pm, pair, wanted.hash, wanted.key, bytes)? {
            return Ok(Some((slot, pair)));
        }
    }
    Ok(None)
}

/// Looks for a key, and for a slot that it could have, under the lock of its shard (Algorithm 4,
/// `FindSlotForInsert`).
///
/// # Errors
/// [`everhash_index::Error::Corrupt`].
#[inline(always)]
pub fn search<'a, M: Media, C: PairCodec>(
    pm: &'a Access<'_, M>,
    place: Place,
    reach: Reach,
    wanted: HashedKey<'_, C>,
    bytes: &mut Vec<u8>,
) -> Result<Search<'a, M, C>> {
    let mut search = Search { found: None, vacancy: None, probes: 0, deleted: 0 };
    for index in reach.path(wanted.hash, place) {
        let bucket = Bucket::of(pm, place, index)?;
        let view = bucket.view_of(bucket.meta_word())?;
        if let Some((slot, pair)) = find::<M, C>(pm, &bucket, &view, wanted, bytes)? {
            search.found = Some((Slot { bucket, view, slot }, pair));
            return Ok(search);
        }
        search.probes += 1;
        search.deleted += u64::from(view.meta.delete().count_ones());
        let ends = view.ends_path(reach.bucket_slots);
        if search.vacancy.is_none() {
            let empty =
                || if ends { view.empty_slot(reach.bucket_slots, wanted.hash) } else { None };
            let slot = view.deleted_slot(wanted.hash).or_else(empty);
            search.vacancy = slot.map(|slot| Slot { bucket, view, slot });
        }
        if ends {
            break;
        }
    }
    Ok(search)
}
