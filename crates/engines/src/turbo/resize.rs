//! Shard resizing (TurboHash 3.5, 4.7) and the collection of deleted slots (4.6): a shard is read
//! in one sweep, built anew in DRAM, written in one sweep past the caches, and put in use by its
//! descriptor. Readers go on at the old place meanwhile.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Access, AtomicWord, Lock, Media, Primitives, Span};

use super::bucket::Pair;
use super::concurrency::Held;
use super::layout::{self, BUCKET_WORDS, Bucket, Meta, Place};
use super::search_path::Reach;
use super::state::Turbo;
use super::variable_size_items::Form;

/// Where a resize persists something, beside the descriptor.
pub mod sites {
    everhash_pmem::sites! {
        /// The buckets of a shard at its new place.
        BUCKETS = "turbo/resize/buckets";
    }
}

/// The load below which an overflow does not double a shard that has deleted slots.
///
/// Unit: percent of all slots. Source: ours; a shard that is collected at 55 % has room for half as
/// many pairs again before its searches are as long as before.
const KEEP_PERCENT: u64 = 55;

/// The most space that upkeep reserves ahead of need.
///
/// Unit: bytes. Source: ours; a quarter of the largest step by which a medium grows.
const MOST_AHEAD_BYTES: u64 = 64 << 20;

/// The pairs of a shard, as they were read.
struct Contents {
    /// The words of all buckets.
    words: Vec<u64>,
    place: Place,
    live: u64,
    deleted: u64,
}

impl<M: Media, F: Form> Turbo<M, F> {
    /// Makes room in shard `index`, in which a search met no vacancy: at the same size if that
    /// promises to be enough (P15), else at twice the size, or more if that is not enough (P5).
    ///
    /// A crash leaves the shard at the old place or at the new one, with the same pairs.
    ///
    /// # Errors
    /// [`Error::Full`] at the largest size, or if the medium has no room; [`Error::Corrupt`].
    #[cold]
    pub(super) fn make_room(
        &self,
        pm: &Access<'_, M>,
        held: &Held<'_, M>,
        index: u64,
    ) -> Result<()> {
        let contents = self.contents(pm, held.place())?;
        let slots = contents.place.buckets() * self.settings.bucket_slots;
        let keep = contents.deleted > 0 && contents.live * 100 <= slots * KEEP_PERCENT;
        let least = contents.place.log + u32::from(!keep);
        self.rebuild(pm, held, index, &contents, least)
    }

    /// Collects the deleted slots of shard `index`: the same, at the same size.
    ///
    /// A crash leaves the shard at the old place or at the new one, with the same pairs.
    ///
    /// # Errors
    /// As [`Turbo::make_room`].
    #[cold]
    pub(super) fn collect(&self, pm: &Access<'_, M>, held: &Held<'_, M>, index: u64) -> Result<()> {
        let contents = self.contents(pm, held.place())?;
        self.rebuild(pm, held, index, &contents, contents.place.log)
    }

    /// Reads a shard in one sweep, and checks every bucket and slot: damage is not carried over.
    fn contents(&self, pm: &Access<'_, M>, place: Place) -> Result<Contents> {
        let mut words = vec![0; (place.buckets() * BUCKET_WORDS as u64) as usize];
        pm.read_words(place.start, &mut words)?;
        let mut contents = Contents { words, place, live: 0, deleted: 0 };
        for index in 0..place.buckets() {
            let meta = contents.meta(index)?;
            contents.live += u64::from(meta.live().count_ones());
            contents.deleted += u64::from(meta.delete().count_ones());
        }
        Ok(contents)
    }

    /// Puts a shard that holds `contents` in use at a new place of 2^`least` buckets or more.
    fn rebuild(
        &self,
        pm: &Access<'_, M>,
        held: &Held<'_, M>,
        index: u64,
        contents: &Contents,
        least: u32,
    ) -> Result<()> {
        let most = self.settings.max_buckets.ilog2();
        let full = Error::Full { needed: contents.place.bytes() * 2 };
        let built = (least..=most).find_map(|log| self.build(contents, log).transpose());
        let image = built.ok_or(full)??;
        let bytes = image.words.len() as u64 * everhash_pmem::WORD;
        let span = self.space.take(bytes, Bucket::BYTES as u64)?.span;
        let place = Place { start: span.start, log: image.log };
        self.write(pm, index, place, image).inspect_err(|_| self.space.give(span))?;
        held.moved(place);
        held.forget_deleted();
        self.space.give(Span::of_bytes(contents.place.start, contents.place.bytes()));
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let grown = place.log > contents.place.log;
        let counter = if grown { &self.doublings } else { &self.collections };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Builds a shard of 2^`log` buckets in DRAM; `None` if a pair does not fit into its scope.
    fn build(&self, contents: &Contents, log: u32) -> Result<Option<Built>> {
        let mut built = Built::new(log, self.reach());
        for index in 0..contents.place.buckets() {
            let live = contents.meta(index)?.live();
            for slot in super::bucket::slots_of(live) {
                let pair = contents.pair(index, slot)?;
                if !built.add(F::pair_hash(&self.hasher, pair), pair) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(built))
    }

    /// Writes a built shard to its place and turns the descriptor to it.
    fn write(&self, pm: &Access<'_, M>, index: u64, place: Place, built: Built) -> Result<()> {
        let words = built.sealed(place);
        // Readers may still be where this lies, from before it was free: they find that the shard
        // they read has moved.
        M::Sync::fence(Ordering::Release);
        pm.write_words_nt(place.start, &words, sites::BUCKETS)?;
        self.directory.turn(pm, index, place)
    }

    /// Collects shards that hold many deleted slots, and reserves space ahead of need.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and errors of the medium; a full medium is none.
    pub fn maintain(&self, budget: u32) -> Result<Upkeep> {
        self.writable()?;
        let pm = self.pool.access();
        let mut left = u64::from(budget.max(1));
        while left > 0 {
            let Some(index) = self.due.lock()?.pop() else { break };
            let held = self.directory.shards()[index as usize].hold(&pm)?;
            held.set_due(false);
            left = left.saturating_sub(held.place().buckets());
            if self.many_deleted(&held) {
                unless_full(self.collect(&pm, &held, index))?;
            }
        }
        // What the last resizes took, the next will: they come in waves.
        let taken = self.taken.load(Ordering::Relaxed);
        if taken > 0 {
            self.taken.fetch_sub(taken, Ordering::Relaxed);
            let ahead = self.space.reserve_ahead(taken.min(MOST_AHEAD_BYTES));
            unless_full(ahead.map_err(Error::from))?;
        }
        Ok(Upkeep { deadline: None, more: !self.due.lock()?.is_empty() })
    }

    /// Tells upkeep of a shard that holds many deleted slots.
    pub(super) fn note_deleted(&self, held: &Held<'_, M>, index: u64) -> Result<()> {
        if !held.is_due() && self.many_deleted(held) {
            held.set_due(true);
            self.due.lock()?.push(index);
        }
        Ok(())
    }

    /// Returns whether a quarter of the slots of a shard is deleted, as far as known (4.6).
    #[inline(always)]
    fn many_deleted(&self, held: &Held<'_, M>) -> bool {
        let slots = held.place().buckets() * self.settings.bucket_slots;
        held.deleted() * 4 >= slots as i64
    }
}

/// Passes over a full medium: what was to be done can wait.
pub(super) fn unless_full(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::Full { .. }) => Ok(()),
        other => other,
    }
}

impl Contents {
    fn meta(&self, index: u64) -> Result<Meta> {
        let first = index as usize * BUCKET_WORDS;
        let tags = [self.words[first + Bucket::TAGS], self.words[first + Bucket::TAGS + 1]];
        let at = self.place.bucket(index);
        Meta::open(self.words[first + Bucket::META], tags, at)
            .ok_or(corrupt(at, "a META word matches its check"))
    }

    fn pair(&self, index: u64, slot: usize) -> Result<Pair> {
        let bucket = &self.words[index as usize * BUCKET_WORDS..][..BUCKET_WORDS];
        let first = Bucket::SLOTS + 2 * slot;
        let pair = [bucket[first], bucket[first + 1]];
        let words = [bucket[Bucket::TAGS], bucket[Bucket::TAGS + 1], bucket[Bucket::CHECKS]];
        let at = self.place.bucket(index);
        if layout::check_of(pair, at, slot) != layout::slot_check(words, slot) {
            return Err(corrupt(at, "the check of a slot matches"));
        }
        Ok(pair)
    }
}

fn corrupt(at: everhash_pmem::Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}

/// A shard that is being built: its pairs are where they shall be, and nothing has a check yet.
struct Built {
    log: u32,
    reach: Reach,
    words: Vec<u64>,
    /// Pairs in each bucket; they fill its slots from the first on.
    counts: Vec<u8>,
}

impl Built {
    fn new(log: u32, reach: Reach) -> Self {
        let buckets = 1 << log;
        Built { log, reach, words: vec![0; buckets * BUCKET_WORDS], counts: vec![0; buckets] }
    }

    /// Adds a pair to the first bucket of its path that has more than the reserved slot left;
    /// `false` if there is none.
    fn add(&mut self, hash: u64, pair: Pair) -> bool {
        // The path depends on the number of buckets only.
        let place = Place { start: everhash_pmem::Addr::NULL, log: self.log };
        let most = self.reach.bucket_slots as u8 - 1;
        let mut path = self.reach.path(hash, place);
        let Some(index) = path.find(|index| self.counts[*index as usize] < most) else {
            return false;
        };
        let count = &mut self.counts[index as usize];
        let slot = usize::from(*count);
        *count += 1;
        let bucket = &mut self.words[index as usize * BUCKET_WORDS..][..BUCKET_WORDS];
        bucket[Bucket::SLOTS + 2 * slot..][..2].copy_from_slice(&pair);
        // The slot check is put in when the place is known.
        let tags = &mut bucket[Bucket::TAGS..][..3];
        let words = [tags[0], tags[1], tags[2]];
        tags.copy_from_slice(&layout::with_slot(words, slot, layout::tag_of(hash), 0));
        true
    }

    /// Returns the words of all buckets, with the checks of `place`.
    fn sealed(mut self, place: Place) -> Vec<u64> {
        for (index, bucket) in self.words.chunks_exact_mut(BUCKET_WORDS).enumerate() {
            let at = place.bucket(index as u64);
            let mut words =
                [bucket[Bucket::TAGS], bucket[Bucket::TAGS + 1], bucket[Bucket::CHECKS]];
            let count = usize::from(self.counts[index]);
            for slot in 0..count {
                let first = Bucket::SLOTS + 2 * slot;
                let check = layout::check_of([bucket[first], bucket[first + 1]], at, slot);
                words = layout::with_slot(words, slot, layout::slot_tag(words, slot), check);
            }
            bucket[Bucket::TAGS..][..3].copy_from_slice(&words);
            bucket[Bucket::META] = Meta::first(count as u32).seal([words[0], words[1]], at);
        }
        self.words
    }
}
