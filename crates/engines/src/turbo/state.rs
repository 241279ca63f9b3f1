//! What an open table holds in DRAM, and how its parts reach one another.

use core::marker::PhantomData;
use std::sync::Arc;

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Heap, Lock, Media, Pool, Primitives, Space};

use super::bucket::Bucket;
use super::concurrency::Lanes;
use super::search_path::Reach;
use super::setup::TurboSettings;
use super::shard::Directory;
use super::variable_size_items::PairCodec;
use crate::common::damage::or_damage;
use crate::common::hash::KeyedHash;
use crate::common::slot_codec::{HashedKey, Words};

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&Turbo<M, Words>, u64) -> Result<Option<u64>>;

/// What chooses that for a hash.
pub type LookupOf<M> = fn(&KeyedHash) -> WordLookup<M>;

/// An open table with pairs of codec `C`.
pub struct Turbo<M: Media, C: PairCodec> {
    pub(super) pool: Pool<M>,
    pub(super) form: Form,
    pub(super) settings: TurboSettings,
    pub(super) hasher: KeyedHash,
    /// How a key is looked up if keys are words.
    pub(super) lookup: WordLookup<M>,
    /// A mask of the slots of a bucket that are used.
    pub(super) used_slots: u32,
    /// Whether a line keeps the order of its stores on this medium.
    pub(super) ordered: bool,
    pub(super) space: Arc<Space<M>>,
    pub(super) heap: Heap<M>,
    pub(super) directory: Directory<M::Sync>,
    pub(super) lanes: Lanes<M::Sync>,
    /// The number of items when the pool was opened; after a crash `None` until it is first needed.
    pub(super) opened_with: LockOf<M, Option<u64>>,
    /// Shards whose deleted slots maintenance shall collect.
    pub(super) due: LockOf<M, Vec<u64>>,
    /// Bytes that resizes have taken since the last maintenance.
    pub(super) taken: WordOf<M>,
    /// 0 if the last shard that had to grow found room for that; 1 if not, or if none had to since
    /// the pool was opened.
    pub(super) is_short: WordOf<M>,
    /// How often a shard has doubled, and was collected, since the pool was opened.
    pub(super) doublings: WordOf<M>,
    pub(super) collections: WordOf<M>,
    pub(super) pairs: PhantomData<fn() -> C>,
}

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Returns how far searches go.
    #[inline(always)]
    pub(super) fn reach(&self) -> Reach {
        Reach { scope: self.settings.scope, bucket_slots: self.settings.bucket_slots as u32 }
    }

    /// Returns a key with its hash.
    #[inline(always)]
    pub(super) fn hashed<'k>(&self, key: C::Key<'k>) -> HashedKey<'k, C> {
        HashedKey { hash: C::hash(&self.hasher, key), key }
    }

    /// Returns the number of items. Exact whenever no write is in progress.
    ///
    /// After a crash the first call counts them, shard by shard: recovery does not.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Poisoned`].
    pub fn len(&self) -> Result<u64> {
        let (items, damage) = self.readable_items()?;
        damage.map_or(Ok(items), Err)
    }

    /// As [`Turbo::len`], but passes over damaged buckets, and returns the first error of one.
    pub(super) fn readable_items(&self) -> Result<(u64, Option<Error>)> {
        let mut opened_with = self.opened_with.lock()?;
        let (base, damage) = match *opened_with {
            Some(items) => (items, None),
            None => {
                let (items, damage) = self.count_all()?;
                // A damaged bucket may be written to again: it is counted anew each time.
                *opened_with = damage.is_none().then_some(items);
                (items, damage)
            }
        };
        let shards = self.directory.shards().iter();
        Ok((shards.fold(base, |sum, shard| sum.wrapping_add(shard.items())), damage))
    }

    /// Counts the items that there were when the pool was opened; returns the first error of a
    /// damaged bucket beside them.
    fn count_all(&self) -> Result<(u64, Option<Error>)> {
        let pm = self.pool.access();
        let (mut items, mut damage) = (0u64, None);
        for shard in self.directory.shards() {
            let held = shard.hold(&pm)?;
            let place = held.place();
            for index in 0..place.buckets() {
                let bucket = Bucket::<M>::of(&pm, place, index)?;
                let live = bucket.view_of(bucket.meta_word()).map(|view| view.meta.live());
                let live = or_damage(live, &mut damage)?;
                items = items.wrapping_add(u64::from(live.count_ones()));
            }
            items = items.wrapping_sub(shard.items());
        }
        Ok((items, damage))
    }

    /// Returns the number of buckets of all shards.
    pub(super) fn buckets(&self) -> u64 {
        self.directory.shards().iter().map(|shard| shard.place().buckets()).sum()
    }
}
