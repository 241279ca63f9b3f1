//! The sweep of a rehash (TurboHash 4.7): the buckets of a shard are read once, in order, and the
//! new ones written once, in order, past the caches, a stretch of them at a time.
//!
//! Bucket i becomes 2i and 2i + 1, or with 2i + 1 bucket i where the shard becomes smaller, so what
//! was read fills the stretch at hand. Three exceptions: a pair that lay behind its home may belong
//! to the stretch before, which therefore stays open; one that overflowed past the last bucket
//! belongs to a stretch that is still ahead, where it waits; and one that overflows past the last
//! bucket now belongs to the first stretch, which is written at the end. So three stretches are in
//! DRAM, however large the shard is.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media};

use super::bucket::{Bucket, Pair, slots_of};
use super::layout::{self, BUCKET_WORDS, Bucket as Ruler, Meta, Place, SLOTS};
use super::search_path::Reach;
use super::variable_size_items::PairCodec;
use crate::common::hash::KeyedHash;

/// Where a resize persists something, beside the descriptor.
pub mod sites {
    everhash_pmem::sites! {
        /// The buckets of a shard at its new place.
        BUCKETS = "turbo/resize/buckets";
    }
}

/// Buckets of a stretch.
///
/// Unit: buckets. Source: ours; three stretches are 96 KiB, which stay in a core's second cache.
pub(super) const STRETCH: u64 = 128;

/// What a shard holds.
#[derive(Default)]
pub(super) struct Census {
    /// Live slots.
    pub live: u64,
    /// Deleted slots.
    pub deleted: u64,
}

impl Census {
    /// Counts the slots of a shard.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn of<M: Media>(pm: &Access<'_, M>, place: Place) -> Result<Census> {
        let mut census = Census::default();
        for index in 0..place.buckets() {
            let bucket = Bucket::of(pm, place, index)?;
            let meta = bucket.view_of(bucket.meta_word())?.meta;
            census.live += u64::from(meta.live().count_ones());
            census.deleted += u64::from(meta.delete().count_ones());
        }
        Ok(census)
    }
}

/// How a sweep ended.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Swept {
    /// Every pair is at the new place; a fence makes it durable.
    Whole,
    /// A pair did not fit into its scope.
    Overflowed,
}

/// Writes the pairs of the shard at `from` to the buckets at `to`, more or fewer. Every bucket and
/// slot is checked, and every pair has a hash that `belongs` to the shard and to the index of its
/// bucket: damage is not carried over. A shard of pairs that hash elsewhere would gain pairs that
/// no search finds and no removal takes away, and would grow without bound.
///
/// # Errors
/// [`Error::Corrupt`].
pub(super) fn sweep<M: Media, C: PairCodec>(
    pm: &Access<'_, M>,
    hasher: &KeyedHash,
    belongs: impl Fn(u64, u64) -> bool,
    reach: Reach,
    (from, to): (Place, Place),
    stretch: u64,
) -> Result<Swept> {
    // The old shard is read in as many. A stretch of either is a scope at least: no pair lies two
    // stretches behind its home, or overflows past the first one.
    let least = reach.scope.next_power_of_two() << to.log.saturating_sub(from.log);
    let stretches = to.buckets() / stretch.max(least).min(to.buckets());
    let mut building = Building::new(to, reach, to.buckets() / stretches);
    let homes = from.buckets() / stretches;
    let swept = building.fill::<M, C>(pm, hasher, belongs, from, homes);
    if !matches!(swept, Ok(Swept::Whole)) && building.has_written {
        // The place is stored to next by its next owner: what went past the caches must be there.
        pm.fence(sites::BUCKETS)?;
    }
    swept
}

/// A shard that is being built.
struct Building {
    to: Place,
    reach: Reach,
    /// The slots of each bucket that have a pair.
    filled: Vec<u16>,
    /// Buckets of a stretch.
    stretch: u64,
    /// The stretch that was turned to.
    at: u64,
    /// Room for the first stretch, and for two that follow each other.
    rooms: [Vec<u64>; 3],
    /// Pairs whose stretch is not yet open.
    ahead: Vec<Placed>,
    /// Whether a stretch was written.
    has_written: bool,
}

/// A pair that has got a slot.
struct Placed {
    index: u64,
    slot: usize,
    tag: u8,
    pair: Pair,
}

impl Building {
    fn new(to: Place, reach: Reach, stretch: u64) -> Self {
        let words = stretch as usize * BUCKET_WORDS;
        let room = |number: u64| vec![0; if number * stretch < to.buckets() { words } else { 0 }];
        Building {
            to,
            reach,
            filled: vec![0; to.buckets() as usize],
            stretch,
            at: 0,
            rooms: [room(0), room(1), room(2)],
            ahead: Vec::new(),
            has_written: false,
        }
    }

    /// Builds and writes everything, `homes` buckets of the old shard for each stretch.
    fn fill<M: Media, C: PairCodec>(
        &mut self,
        pm: &Access<'_, M>,
        hasher: &KeyedHash,
        belongs: impl Fn(u64, u64) -> bool,
        from: Place,
        homes: u64,
    ) -> Result<Swept> {
        for index in 0..from.buckets() {
            if index.is_multiple_of(homes) {
                self.turn_to(pm, index / homes)?;
            }
            let bucket = Bucket::of(pm, from, index)?;
            let view = bucket.view_of(bucket.meta_word())?;
            // All pairs before the first hash: the hashes do not wait for each other.
            let mut pairs = [[0; 2]; SLOTS];
            let mut count = 0;
            for slot in slots_of(view.meta.live()) {
                pairs[count] = bucket.pair(&view, slot)?;
                count += 1;
            }
            for pair in &pairs[..count] {
                let hash = C::words_hash(hasher, *pair);
                if !belongs(hash, index) {
                    return Err(misplaced(bucket.at()));
                }
                if !self.add(hash, *pair) {
                    return Ok(Swept::Overflowed);
                }
            }
        }
        self.finish(pm)?;
        Ok(Swept::Whole)
    }

    /// Returns in which room a stretch is built.
    fn room(stretch: u64) -> usize {
        if stretch == 0 { 0 } else { 2 - stretch as usize % 2 }
    }

    /// Opens a stretch; what was open two stretches before is complete and written.
    fn turn_to<M: Media>(&mut self, pm: &Access<'_, M>, stretch: u64) -> Result<()> {
        if stretch > 2 {
            self.write(pm, stretch - 2)?;
        }
        self.at = stretch;
        for placed in core::mem::take(&mut self.ahead) {
            self.put(placed);
        }
        Ok(())
    }

    /// Writes the stretches that are still open.
    fn finish<M: Media>(&mut self, pm: &Access<'_, M>) -> Result<()> {
        let last = self.at;
        (last.saturating_sub(1).max(1)..=last).try_for_each(|stretch| self.write(pm, stretch))?;
        self.write(pm, 0)
    }

    /// Adds a pair to the first bucket of its path that has more than the reserved slot left;
    /// `false` if there is none.
    #[inline(always)]
    fn add(&mut self, hash: u64, pair: Pair) -> bool {
        let all = (1 << self.reach.bucket_slots) - 1;
        let mut path = self.reach.path(hash, self.to);
        let free = |index: u64| !self.filled[index as usize] & all;
        let Some(index) = path.find(|index| free(*index).count_ones() > 1) else {
            return false;
        };
        let Some(slot) = layout::choose_slot(free(index).into(), hash) else { return false };
        self.filled[index as usize] |= 1 << slot;
        self.put(Placed { index, slot, tag: layout::tag_of(hash), pair });
        true
    }

    #[inline(always)]
    fn put(&mut self, placed: Placed) {
        let Placed { index, slot, tag, pair } = placed;
        let stretch = index / self.stretch;
        if stretch > self.at {
            return self.ahead.push(placed);
        }
        let at = self.to.bucket(index);
        let first = (index % self.stretch) as usize * BUCKET_WORDS;
        let bucket = &mut self.rooms[Self::room(stretch)][first..][..BUCKET_WORDS];
        bucket[Ruler::SLOTS + 2 * slot..][..2].copy_from_slice(&pair);
        let tags = &mut bucket[Ruler::TAGS..][..3];
        let words = [tags[0], tags[1], tags[2]];
        let check = layout::check_of(pair, at, slot);
        tags.copy_from_slice(&layout::with_slot(words, slot, tag, check));
    }

    /// Writes a stretch whose pairs are complete, and leaves its room empty.
    fn write<M: Media>(&mut self, pm: &Access<'_, M>, stretch: u64) -> Result<()> {
        let first = stretch * self.stretch;
        let words = &mut self.rooms[Self::room(stretch)];
        for (bucket, index) in words.chunks_exact_mut(BUCKET_WORDS).zip(first..) {
            let at: Addr = self.to.bucket(index);
            let tags = [bucket[Ruler::TAGS], bucket[Ruler::TAGS + 1]];
            let filled = u32::from(self.filled[index as usize]);
            bucket[Ruler::META] = Meta::first(filled).encode(tags, at);
        }
        self.has_written = true;
        pm.write_words_nt(self.to.bucket(first), words, sites::BUCKETS)?;
        words.fill(0);
        Ok(())
    }
}

#[cold]
fn misplaced(at: Addr) -> Error {
    Error::Corrupt { at: at.byte(), broken: "a key lies in its shard, on its path" }
}
