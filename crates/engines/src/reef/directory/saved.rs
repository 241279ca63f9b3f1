//! Shards in a checkpoint: for each leaf which bits of the hash choose it, how many pairs each of
//! its buckets has, and then its words.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::Result;
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

/// The hashes that begin with some bits.
pub struct Part {
    /// These bits.
    index: u64,
    /// How many they are.
    shared: u32,
}

/// Returns how many words come before those of a leaf.
fn head_words(length: u64) -> u64 {
    (FIRST + length).div_ceil(GROUP)
}

/// Returns in which of these words the number of pairs of a bucket is, and from which bit on.
fn count_at(bucket: u64) -> (usize, u64) {
    let number = FIRST + bucket;
    ((number / GROUP) as usize, number % GROUP * u64::from(COUNT.width()))
}

impl<P: Primitives> Shard<P> {
    /// Appends the words of a checkpoint to `words`; returns the shape. Writers go on meanwhile:
    /// none waits for more than a leaf.
    ///
    /// # Errors
    /// [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic inside.
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

    /// Makes a shard from the words of a checkpoint, with the pairs whose places are `wanted`, of
    /// leaves of `length` buckets, and of at most `most` buckets and as much memory for links;
    /// `None` if the words are none of such a shard.
    pub fn load(
        arena: &Arc<Arena<P>>,
        words: &[u64],
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
        let (mut words, mut items) = (words.iter(), 0);
        let shard = Shard::bare(arena, length);
        // Before the first leaf: a link that is zero leads to none then.
        let links = Links::take(arena, depth).ok()?;
        for _ in 0..leaves {
            let head = *words.as_slice().first()?;
            let (index, shared) = (INDEX.get(head), SHARED.get(head) as u32);
            let base = BASE.get(head) as u32;
            let is_possible = shared <= depth
                && index >> shared == 0
                && base <= shared
                && shared - base <= TAG_USE;
            if !is_possible {
                return None;
            }
            let (mut loose, count) = loaded(&mut words, length, &wanted)?;
            items += count;
            let leaf = arena.take(SLOTS * length as usize).ok()?.with(shared, base);
            shard.store(leaf, &mut loose);
            for number in (index..=links.last()).step_by(1 << shared) {
                let link = shard.link(links, number);
                if link.load(Ordering::Relaxed) != 0 {
                    return None;
                }
                link.store(leaf.0, Ordering::Release);
            }
        }
        if (0..=links.last()).any(|it| shard.link(links, it).load(Ordering::Relaxed) == 0) {
            return None;
        }
        shard.set_links(links);
        *shard.latch.lock().ok()? = Members { items, leaves };
        Some(shard)
    }
}

/// Returns the next leaf of a checkpoint, of wanted pairs, and how many these are.
fn loaded(
    words: &mut core::slice::Iter<'_, u64>,
    length: u64,
    wanted: impl Fn(Addr) -> bool,
) -> Option<(Loose, u64)> {
    let (heads, mut rest) = words.as_slice().split_at_checked(head_words(length) as usize)?;
    let (mut loose, mut saved, mut items) = (Loose::new(length), 0, 0);
    for number in 0..length {
        let (word, bit) = count_at(number);
        let count = COUNT.get(heads[word] >> bit) as usize;
        let of_bucket;
        (of_bucket, rest) = rest.split_at_checked(count)?;
        for (slot, word) in loose.bucket(number).get_mut(..count)?.iter_mut().zip(of_bucket) {
            if *word == 0 || DISTANCE.get(*word) >= reach(length) || BEHIND.get(*word) != 0 {
                return None;
            }
            if wanted(place_of(*word)) {
                *slot = *word;
                items += 1;
            }
        }
        saved += count as u64;
    }
    *words = rest.iter();
    if items == saved {
        // They lie as they did when they were saved.
        loose.set_all_behind();
    } else {
        // A search ends at a bucket from which a pair was left out.
        loose.settle();
    }
    Some((loose, items))
}
