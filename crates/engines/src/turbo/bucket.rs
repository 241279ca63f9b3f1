//! A bucket (TurboHash 3.3): what its words say, and the writes to it, each with one commit store.
//!
//! | write | made durable before | commit |
//! |---|---|---|
//! | insert into the line of META, where a line keeps the order of its stores | nothing | META |
//! | insert elsewhere | the pair; its tag lies in the line of META | META: valid, not deleted |
//! | insert of a record | pair and record, with one fence | META: valid, not deleted |
//! | update (near-place) | as an insert | META: the new slot valid, the old one empty |
//! | delete | nothing | META: deleted |

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtOnce, Block, Media, Site, Span, before_reuse, equal_bytes};

use super::concurrency::Pending;
use super::layout::{
    self, BUCKET_WORDS, Bucket as Ruler, LINE_WORDS, Meta, Place, SLOTS, SLOTS_BESIDE_META,
};

/// Where a write to a bucket persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A pair, before META publishes it; where a line keeps no order, its tag too.
        PAIR = "turbo/write/pair";
        /// META with the slot of an inserted pair.
        INSERT = "turbo/insert/meta";
        /// META that turns from the old slot of a pair to the new one.
        UPDATE = "turbo/update/meta";
        /// META with the deleted slot.
        REMOVE = "turbo/remove/meta";
    }
}

/// A bucket on the medium.
pub struct Bucket<'a, M: Media> {
    block: M::Block<'a, BUCKET_WORDS>,
    /// Its index in the shard.
    pub index: u64,
}

impl<M: Media> Clone for Bucket<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media> Copy for Bucket<'_, M> {}

/// The words of a bucket that say what its slots hold.
#[derive(Clone, Copy)]
pub struct View {
    /// What META says.
    pub meta: Meta,
    /// TAGS and CHECKS, for the slots that were live.
    words: [u64; 3],
}

/// The two words of a slot.
pub type Pair = [u64; 2];

/// Why a pair has to be durable before META.
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// Whether a line keeps the order of its stores: one of the two slots beside META waits for
    /// nothing then.
    pub is_ordered: bool,
    /// Whether the pair leads to a record that was flushed before it.
    pub after_record: bool,
}

/// Returns whether a search ends at a bucket: at least two slots are empty, of which one is
/// reserved (Algorithm 4, lines 43 and 44).
#[inline(always)]
pub fn ends_path(meta: Meta, bucket_slots: u32) -> bool {
    has_two_empty(meta, (1 << bucket_slots) - 1)
}

/// As [`ends_path`], of a bucket with the slots `used`, a mask.
#[inline(always)]
pub fn has_two_empty(meta: Meta, used: u32) -> bool {
    let empty = !meta.valid() & used;
    empty & empty.wrapping_sub(1) != 0
}

/// Slots as bits of a mask, from the lowest on.
#[inline(always)]
pub fn slots_of(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        let found = (mask != 0).then_some(slot);
        mask &= mask.wrapping_sub(1);
        found
    })
}

impl<'a, M: Media> Bucket<'a, M> {
    /// Returns bucket `index` of the shard at `place`.
    ///
    /// # Errors
    /// As the medium, if it does not lie inside.
    #[inline(always)]
    pub fn of(pm: &'a Access<'_, M>, place: Place, index: u64) -> Result<Self> {
        Ok(Bucket { block: pm.block(place.bucket(index))?, index })
    }

    /// Returns the bucket in which byte `byte` lies: its index in the shard is not known. `None` if
    /// it does not lie inside the medium.
    #[inline(always)]
    pub fn around(pm: &'a Access<'_, M>, byte: u64) -> Option<Self> {
        Some(Bucket { block: pm.try_aligned_block(byte)?, index: u64::MAX })
    }

    /// Returns where it lies.
    #[inline(always)]
    pub fn at(&self) -> Addr {
        self.block.start()
    }

    /// Loads META (acquire).
    #[inline(always)]
    pub fn meta_word(&self) -> u64 {
        self.block.load(Ruler::META)
    }

    /// Loads META for a second look. The caller has fenced (acquire), and looks at the number of
    /// moves after it: the acquire lets it see the restart that came before a wrapped META.
    #[inline(always)]
    pub fn meta_word_again(&self) -> u64 {
        self.block.load(Ruler::META)
    }

    /// Loads what the bucket says of its slots, beside the META `word` that was loaded before.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if a write comes between, which the caller's validation detects.
    #[inline(always)]
    pub fn view_of(&self, word: u64) -> Result<View> {
        let words = [0, 1, 2].map(|i| self.block.load_relaxed(Ruler::TAGS + i));
        let meta = Meta::decode(word, [words[0], words[1]], self.at());
        let meta = meta.ok_or_else(|| corrupt(self.at(), "a META word matches its check"))?;
        Ok(View { meta, words })
    }

    /// Returns what a bucket with a damaged META may say at most: all slots but the reserved one
    /// hold something. Nothing is known of them.
    pub fn view_of_unknown(&self, bucket_slots: u32) -> View {
        let words = [0, 1, 2].map(|i| self.block.load_relaxed(Ruler::TAGS + i));
        View { meta: Meta::first((1 << (bucket_slots - 1)) - 1), words }
    }

    /// Loads the pair in a live slot.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its check does not match; also if a write comes between.
    #[inline(always)]
    pub fn pair(&self, view: &View, slot: usize) -> Result<Pair> {
        let (pair, word) = (self.words_of(slot), view.words[layout::check_index(slot)]);
        let sound = layout::is_sound(pair, word, self.at(), slot);
        if sound { Ok(pair) } else { Err(corrupt(self.at(), "the check of a slot matches")) }
    }

    /// Returns the lowest of `slots`, with its pair, which [`Bucket::is_sound`] has to judge.
    #[inline(always)]
    pub fn first_of(&self, slots: u32) -> Option<(usize, Pair)> {
        self.block.first_slot::<{ Ruler::SLOTS }, SLOTS>(slots)
    }

    /// Returns whether a pair has the check of its slot, of a bucket that was not viewed: what a
    /// search needs no more is not loaded, and takes no register.
    #[inline(always)]
    pub fn is_sound(&self, pair: Pair, slot: usize) -> bool {
        let word = self.block.load_relaxed(Ruler::TAGS + layout::check_index(slot));
        layout::is_sound(pair, word, self.at(), slot)
    }

    #[inline(always)]
    fn words_of(&self, slot: usize) -> Pair {
        let first = Ruler::SLOTS + 2 * slot;
        [self.block.load_relaxed(first), self.block.load_relaxed(first + 1)]
    }

    /// Returns the live slots that have the tag of a hash, without the check of the tags: enough
    /// for a search that finds its key, which proves the tag (Algorithm 4, lines 29 to 32).
    #[inline(always)]
    pub fn matching(&self, meta: Meta, hash: u64, proof: Option<AtOnce>) -> u32 {
        let equal = match proof {
            // The tag is the lowest byte of the hash.
            Some(proof) => self.block.equal_bytes_at_once::<{ Ruler::TAGS }>(proof, hash),
            None => equal_bytes(&self.tags(), layout::tag_of(hash)),
        };
        equal & meta.live()
    }

    /// Fetches the line in which a pair of a hash lies, unless that is in the line of META or found
    /// no room in its own. A core fetches a dozen lines at once: each that a get does not need
    /// delays another get's.
    #[inline(always)]
    pub fn fetch_line(&self, hash: u64) {
        self.block.prefetch(layout::near_word(hash));
    }

    /// Returns whether the tags of live slots are those that META was stored beside: what a search
    /// that finds nothing asks, too.
    #[inline(always)]
    pub fn is_covered(&self, meta: Meta) -> bool {
        meta.covers(self.tags())
    }

    #[inline(always)]
    fn tags(&self) -> [u64; 2] {
        [0, 1].map(|i| self.block.load_relaxed(Ruler::TAGS + i))
    }

    /// Returns where the first slot lies whose tag is `tag`, if there is one. What was loaded may
    /// be half done: good for hints.
    #[inline(always)]
    pub fn guess(&self, tag: u8) -> Option<Addr> {
        let slot = equal_bytes(&self.tags(), tag).trailing_zeros() as usize;
        (slot < SLOTS).then(|| self.slot_at(slot))
    }

    /// Returns the address of the second word of a slot.
    pub fn slot_at(&self, slot: usize) -> Addr {
        self.at().plus((Ruler::SLOTS + 2 * slot + 1) as u64)
    }

    /// Writes a pair into a slot that is not live; META may follow.
    ///
    /// A crash leaves any part of it in a slot that is not live.
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn fill(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        slot: usize,
        tag: u8,
        pair: Pair,
        fences: Fences,
    ) -> Result<View> {
        let check = layout::check_of(pair, self.at(), slot);
        let words = layout::with_slot(view.words, slot, tag, check);
        // Pairs with the fence of a reader before its second look: a reader that sees one of the
        // stores below sees that the slot is no longer live.
        before_reuse::<M::Sync>();
        let first = Ruler::SLOTS + 2 * slot;
        self.block.store(first, pair[0]);
        self.block.store(first + 1, pair[1]);
        for (index, word) in words.into_iter().enumerate() {
            if word != view.words[index] {
                self.block.store(Ruler::TAGS + index, word);
            }
        }
        // In the line of META nothing can become durable after META where a line keeps the order
        // of its stores: one flush and one fence do for both.
        let apart = slot >= SLOTS_BESIDE_META;
        if apart {
            pm.flush(Span::new(self.at().plus(first as u64), 2), sites::PAIR);
        }
        if !fences.is_ordered {
            pm.flush(self.head(), sites::PAIR);
        }
        // One fence for the pair and its record: until META is stored neither is there.
        if apart || !fences.is_ordered || fences.after_record {
            pm.fence(sites::PAIR)?;
        }
        Ok(View { words, meta: view.meta })
    }

    /// Stores META, and waits until it is durable. Readers are kept from the bucket until then.
    ///
    /// A crash leaves the old META or the new one.
    ///
    /// # Errors
    /// As the medium; the shard is poisoned then.
    #[inline(always)]
    pub fn commit(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        meta: Meta,
        pending: Pending<'_, M::Sync>,
        site: Site,
    ) -> Result<()> {
        self.store_meta(pm, view, meta, site);
        pm.fence(site)?;
        pending.end();
        Ok(())
    }

    /// Stores META and flushes it; the caller fences.
    #[inline(always)]
    pub fn store_meta(&self, pm: &Access<'_, M>, view: &View, meta: Meta, site: Site) {
        let tags = [view.words[0], view.words[1]];
        self.block.commit_word(Ruler::META, meta.encode(tags, self.at()), site);
        pm.flush(self.head(), site);
    }

    /// Empties the slots of a bucket that has no pair and that no other key's path crosses; flushes
    /// META, so that no dirty line remains.
    ///
    /// It is no commit, and is not fenced: a crash leaves slots that are deleted, or empty.
    pub fn empty(&self, pm: &Access<'_, M>, view: &View, site: Site) {
        // Two writes after what the view said: the pairs were deleted by the first.
        let meta = view.meta.next(0, 0).next(0, 0);
        self.block.store(Ruler::META, meta.encode([view.words[0], view.words[1]], self.at()));
        pm.flush(self.head(), site);
    }

    /// The line of META.
    #[inline(always)]
    fn head(&self) -> Span {
        Span::new(self.at(), LINE_WORDS as u64)
    }
}

#[cold]
fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}

impl View {
    /// Returns the live slots whose tag is `tag` (Algorithm 4, lines 29 to 32).
    #[inline(always)]
    pub fn matching(&self, tag: u8) -> u32 {
        equal_bytes(&[self.words[0], self.words[1]], tag) & self.meta.live()
    }

    /// As [`ends_path`], of the META word that was viewed.
    #[inline(always)]
    pub fn ends_path(&self, bucket_slots: u32) -> bool {
        ends_path(self.meta, bucket_slots)
    }

    /// Returns the empty slot for a pair of a hash, if there is one among the `bucket_slots` in
    /// use.
    #[inline(always)]
    pub fn empty_slot(&self, bucket_slots: u32, hash: u64) -> Option<usize> {
        layout::choose_slot(!self.meta.valid() & ((1 << bucket_slots) - 1), hash)
    }

    /// Returns the deleted slot for a pair of a hash.
    #[inline(always)]
    pub fn deleted_slot(&self, hash: u64) -> Option<usize> {
        layout::choose_slot(self.meta.delete(), hash)
    }

    /// Returns META with an inserted pair (Algorithm 2, lines 16 to 22).
    #[inline(always)]
    pub fn inserted(&self, slot: usize) -> Meta {
        self.meta.next(self.meta.valid() | 1 << slot, self.meta.delete() & !(1 << slot))
    }

    /// Returns META with a pair turned from slot `old` to the empty slot `new`.
    #[inline(always)]
    pub fn updated(&self, old: usize, new: usize) -> Meta {
        self.meta.next(self.meta.valid() & !(1 << old) | 1 << new, self.meta.delete())
    }

    /// Returns META with a deleted slot (Algorithm 3, lines 19 to 22).
    #[inline(always)]
    pub fn removed(&self, slot: usize) -> Meta {
        self.meta.next(self.meta.valid(), self.meta.delete() | 1 << slot)
    }
}
