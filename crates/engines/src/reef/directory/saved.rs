//! Shards in a checkpoint: for each leaf which bits of the hash choose it, how many pairs each of
//! its buckets has, and then its words.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, AtomicWord, Bits, Lock, Primitives};

use super::arena::Arena;
use super::split::{Loose, MOST_DEPTH, TAG_USE};
use super::word::{BEHIND, DISTANCE, Link, place_of};
use super::{Links, MOST_BUCKETS, Members, SLOTS, Shard, reach};

/// Of a shard: base-2 logarithm of the links.
const DEPTH: Bits = Bits::new(0, 8);
/// Of a shard: buckets of a leaf.
const LENGTH: Bits = Bits::new(8, 8);
/// Of a shard: its leaves.
const LEAVES: Bits = Bits::new(16, 48);

/// Of a leaf: the bits that all its hashes begin with.
const INDEX: Bits = Bits::new(0, 32);
/// Of a leaf: how many these are.
const SHARED: Bits = Bits::new(32, 6);
/// Of a leaf: the first bit of its tags.
const BASE: Bits = Bits::new(38, 6);
/// Of a leaf: behind that, the number of pairs of each bucket.
const COUNT: Bits = Bits::new(0, 4);
/// The first of these, in lengths of one.
const FIRST: u64 = 44 / 4;
/// How many of them a word has room for.
const GROUP: u64 = 16;

/// The most words of a leaf.
const MOST_WORDS: usize = head_words(MOST_BUCKETS) as usize + SLOTS * MOST_BUCKETS as usize;

/// The hashes that begin with some bits.
pub struct Part {
    /// These bits.
    pub index: u64,
    /// How many they are.
    shared: u32,
}

/// Returns how many words come before those of a leaf.
const fn head_words(length: u64) -> u64 {
    (FIRST + length).div_ceil(GROUP)
}

/// Returns in which of these words the number of pairs of a bucket is, and from which bit on.
fn count_at(bucket: u64) -> (usize, u64) {
    let number = FIRST + bucket;
    ((number / GROUP) as usize, number % GROUP * u64::from(COUNT.width()))
}

impl<P: Primitives> Shard<P> {
    /// Appends the words of a checkpoint to `words`; returns the shape. Writers go on meanwhile:
    /// none waits for more than a leaf. All leaves were loaded before.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub fn save(&self, words: &mut Vec<u64>) -> Result<u64> {
        let parts = self.parts()?;
        parts.into_iter().try_fold(0, |shape, part| self.save_part(part, shape, words))
    }

    /// Returns the parts in which a shard is saved, each all hashes that begin with some bits: what
    /// is one leaf now.
    ///
    /// # Errors
    /// As [`Shard::save`].
    pub fn parts(&self) -> Result<Vec<Part>> {
        let _members = self.latch.lock()?;
        let part = |(index, leaf): (u64, Link)| Part { index, shared: leaf.depth() };
        Ok(self.leaves().map(part).collect())
    }

    /// Appends a part: the leaf that it was, or those into which that was split since. Returns the
    /// shape of all parts so far, of those before `shape`.
    ///
    /// # Errors
    /// As [`Shard::save`].
    pub fn save_part(&self, part: Part, shape: u64, words: &mut Vec<u64>) -> Result<u64> {
        let _members = self.latch.lock()?;
        let links = self.links();
        let (mut depth, mut leaves) = (DEPTH.get(shape), LEAVES.get(shape));
        for number in (part.index..=links.last()).step_by(1 << part.shared) {
            let leaf = Link(self.link(links, number).load(Ordering::Relaxed));
            if number == leaf.index(number) {
                self.save_leaf(number, leaf, words);
                (depth, leaves) = (depth.max(leaf.depth().into()), leaves + 1);
            }
        }
        Ok(LEAVES.set(LENGTH.set(depth, self.length), leaves))
    }

    /// Appends a leaf, whose hashes begin with `index`; the caller holds the latch.
    fn save_leaf(&self, index: u64, leaf: Link, words: &mut Vec<u64>) {
        let first = words.len();
        words.resize(first + head_words(self.length) as usize, 0);
        words[first] = BASE.set(SHARED.set(index, leaf.depth().into()), leaf.base().into());
        for number in 0..self.length {
            let before = words.len();
            let all = self.bucket(leaf, number).iter().map(|it| it.load(Ordering::Relaxed));
            words.extend(all.filter(|word| *word != 0).map(|word| BEHIND.set(word, 0)));
            let count = (words.len() - before) as u64;
            let (word, bit) = count_at(number);
            words[first + word] |= count << bit;
        }
    }

    /// Returns how long a shard is in a checkpoint. Unit: words.
    pub fn saved_words(&self, members: &Members) -> u64 {
        members.leaves * head_words(self.length) + members.items
    }

    /// Makes a shard from the words of a checkpoint, which lie at `at` on the medium, with the
    /// pairs whose places are `wanted`, of leaves of `length` buckets, and of at most `most`
    /// buckets and as much memory for links; `None` if the words are none of such a shard.
    ///
    /// All words are looked at. But a leaf whose pairs are all wanted is left where it is until
    /// [`Shard::touch`].
    pub fn load(
        arena: &Arc<Arena<P>>,
        (words, at): (&[u64], Addr),
        shape: u64,
        (length, most): (u64, u64),
        wanted: impl Fn(Addr) -> bool,
    ) -> Option<Self> {
        let depth = DEPTH.get(shape) as u32;
        let leaves = LEAVES.get(shape);
        let is_possible = LENGTH.get(shape) == length
            && (1..=MOST_BUCKETS).contains(&length)
            && leaves > 0
            && leaves * length <= most
            && leaves * head_words(length) <= words.len() as u64
            && depth <= MOST_DEPTH
            && 1 << depth <= most.saturating_mul(SLOTS as u64);
        if !is_possible {
            return None;
        }
        let (mut rest, mut items) = (words, 0);
        let shard = Shard::bare(arena, length);
        // Before the first leaf: a link that is zero leads to none then.
        let links = Links::take(arena, depth).ok()?;
        for _ in 0..leaves {
            let offset = words.len() - rest.len();
            let saved = SavedLeaf::cut(&mut rest, length)?;
            let (index, shared, base) = saved.choice();
            let is_possible = shared <= depth
                && index >> shared == 0
                && base <= shared
                && shared - base <= TAG_USE;
            if !is_possible || !saved.is_sound(length) {
                return None;
            }
            let count = saved.pairs.iter().filter(|word| wanted(place_of(**word))).count();
            let leaf = match Link::to_saved(offset).filter(|_| count == saved.pairs.len()) {
                Some(leaf) => leaf,
                None => shard.stored(&saved, &wanted).ok()?,
            };
            items += count as u64;
            for number in (index..=links.last()).step_by(1 << shared) {
                let link = shard.link(links, number);
                if link.load(Ordering::Relaxed) != 0 {
                    return None;
                }
                link.store(leaf.with(shared, base).0, Ordering::Release);
            }
        }
        if (0..=links.last()).any(|it| shard.link(links, it).load(Ordering::Relaxed) == 0) {
            return None;
        }
        shard.set_links(links);
        *shard.latch.lock().ok()? = Members { items, leaves, saved: at, tombstone: Addr::NULL };
        Some(shard)
    }

    /// Returns whether the leaf of a hash is still where a checkpoint has it.
    #[inline(always)]
    pub fn is_saved(&self, hash: u64) -> bool {
        self.leaf(hash).is_saved()
    }

    /// Loads the leaf of a hash if it is still where a checkpoint has it, which comes before
    /// anything else that is done with it; the caller holds the latch. `read` reads words of the
    /// medium.
    ///
    /// # Errors
    /// Those of `read`; [`Error::Corrupt`] if the words are none of this leaf any more.
    #[inline(always)]
    pub fn touch(
        &self,
        members: &Members,
        hash: u64,
        read: impl FnMut(Addr, &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        if self.is_saved(hash) { self.load_leaf(members, hash, read) } else { Ok(()) }
    }

    /// As [`Shard::touch`], for a reader, who holds no latch.
    ///
    /// # Errors
    /// As [`Shard::touch`]; [`Error::Poisoned`] after a panic inside.
    #[inline(always)]
    pub fn touch_to_read(
        &self,
        hash: u64,
        read: impl FnMut(Addr, &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        if self.is_saved(hash) { self.touch_latched(hash, read) } else { Ok(()) }
    }

    #[cold]
    fn touch_latched(
        &self,
        hash: u64,
        read: impl FnMut(Addr, &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        // Somebody else may have loaded it before we had the latch.
        self.touch(&*self.latch.lock()?, hash, read)
    }

    #[cold]
    fn load_leaf(
        &self,
        members: &Members,
        hash: u64,
        mut read: impl FnMut(Addr, &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        let leaf = self.leaf(hash);
        let at = members.saved.plus(leaf.word() as u64);
        let changed = || Error::Corrupt {
            at: at.byte(),
            broken: "a leaf of a checkpoint is what it was when the table was opened",
        };
        let mut words = [0; MOST_WORDS];
        let (head, pairs) = words.split_at_mut(head_words(self.length) as usize);
        read(at, head)?;
        let count = count_of(head, self.length).ok_or_else(changed)?;
        let pairs = &mut pairs[..count];
        read(at.plus(head.len() as u64), pairs)?;
        let saved = SavedLeaf { head, pairs };
        let index = leaf.index(hash);
        if saved.choice() != (index, leaf.depth(), leaf.base()) || !saved.is_sound(self.length) {
            return Err(changed());
        }
        let loaded = self.stored(&saved, |_| true)?;
        self.lead_to(loaded.with(leaf.depth(), leaf.base()), index);
        Ok(())
    }

    /// Takes memory for a leaf, and stores there its pairs whose places are `wanted`.
    fn stored(&self, saved: &SavedLeaf<'_>, wanted: impl Fn(Addr) -> bool) -> Result<Link> {
        let leaf = self.arena.take(SLOTS * self.length as usize)?;
        self.store(leaf, &mut saved.loose(self.length, wanted));
        Ok(leaf)
    }

    /// Lets all links lead to a leaf that begin with its bits of the hash, `index`; the caller
    /// holds the latch.
    pub(super) fn lead_to(&self, leaf: Link, index: u64) {
        let links = self.links();
        for number in (index..=links.last()).step_by(1 << leaf.depth()) {
            self.link(links, number).store(leaf.0, Ordering::Release);
        }
    }
}

/// A leaf in a checkpoint.
struct SavedLeaf<'w> {
    head: &'w [u64],
    pairs: &'w [u64],
}

/// Returns how many pairs a leaf has; `None` if a bucket has more than it can.
fn count_of(head: &[u64], length: u64) -> Option<usize> {
    (0..length).try_fold(0, |sum, number| {
        let count = count_in(head, number);
        (count <= SLOTS).then_some(sum + count)
    })
}

/// Returns how many pairs a bucket has.
fn count_in(head: &[u64], bucket: u64) -> usize {
    let (word, bit) = count_at(bucket);
    COUNT.get(head[word] >> bit) as usize
}

impl<'w> SavedLeaf<'w> {
    /// Cuts the next leaf, of `length` buckets, off the words of a shard.
    fn cut(words: &mut &'w [u64], length: u64) -> Option<Self> {
        let (head, rest) = words.split_at_checked(head_words(length) as usize)?;
        let (pairs, rest) = rest.split_at_checked(count_of(head, length)?)?;
        *words = rest;
        Some(SavedLeaf { head, pairs })
    }

    /// Returns the bits that all its hashes begin with, how many these are, and the first bit of
    /// its tags.
    fn choice(&self) -> (u64, u32, u32) {
        let head = self.head[0];
        (INDEX.get(head), SHARED.get(head) as u32, BASE.get(head) as u32)
    }

    /// Returns whether all words are such as are saved.
    fn is_sound(&self, length: u64) -> bool {
        let is_sound = |word: u64| {
            (word != 0) & (DISTANCE.get(word) < reach(length)) & (BEHIND.get(word) == 0)
        };
        self.pairs.iter().fold(true, |all, word| all & is_sound(*word))
    }

    /// Returns its pairs whose places are `wanted`, as they lie in a leaf of `length` buckets.
    fn loose(&self, length: u64, wanted: impl Fn(Addr) -> bool) -> Loose {
        let (mut loose, mut rest, mut is_whole) = (Loose::new(length), self.pairs, true);
        for number in 0..length {
            let of_bucket;
            (of_bucket, rest) = rest.split_at(count_in(self.head, number));
            for (slot, word) in loose.bucket(number).iter_mut().zip(of_bucket) {
                match wanted(place_of(*word)) {
                    true => *slot = *word,
                    false => is_whole = false,
                }
            }
        }
        if is_whole {
            // They lie as they did when they were saved.
            loose.set_all_behind();
        } else {
            // A search ends at a bucket from which a pair was left out.
            loose.settle();
        }
        loose
    }
}
