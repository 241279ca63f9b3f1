//! Growth: a leaf in which a pair finds no slot is split in two by the next bit of the hash.
//! Nothing else of the shard changes but the links to it, so that no writer waits for more than a
//! leaf.

use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, VecDeque};

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Primitives, WORD};

use super::arena::MOST;
use super::word::{BEHIND, DISTANCE, Link, TAG, WANTED_SHIFT, behind_slot, home, place_of};
use super::{Links, MOST_BUCKETS, Members, Room, SLOTS, Shard, reach};
use crate::common::room::crowded;

/// How many bits of a tag splits use before the keys of the leaf are read for fresh ones.
///
/// Unit: bits. Source: ours; of what is left a look at a full bucket is wrong once in 128 times,
/// and keys are read once for a growth to the 500-fold.
pub(super) const TAG_USE: u32 = 9;

/// How many more bits than those of an even shard choose a leaf at most.
///
/// Unit: bits. Source: ours; beyond it the keys have been chosen to collide.
const CROWDED: u32 = 6;

/// How many bits of the hash choose a leaf, at most.
///
/// Unit: bits. Source: ours; so many links are the longest part of an arena, and no machine has
/// memory for so many leaves.
pub(super) const MOST_DEPTH: u32 = MOST;

/// The words of a leaf that is not in the directory.
pub(super) struct Loose {
    length: u64,
    words: [u64; SLOTS * MOST_BUCKETS as usize],
    /// Of each bucket, how many slots [`Loose::add`] has filled.
    taken: [u8; MOST_BUCKETS as usize],
}

impl Loose {
    pub(super) fn new(length: u64) -> Self {
        let words = [0; SLOTS * MOST_BUCKETS as usize];
        Loose { length, words, taken: [0; MOST_BUCKETS as usize] }
    }

    pub(super) fn bucket(&mut self, number: u64) -> &mut [u64] {
        &mut self.words[SLOTS * number as usize..][..SLOTS]
    }

    /// Adds a pair, which was so many buckets behind its home in this one, as near to its home as
    /// there is room; returns whether there is.
    fn add(&mut self, word: u64, bucket: u64) -> bool {
        let mut number = bucket + self.length - DISTANCE.get(word);
        for distance in 0..reach(self.length) {
            if number >= self.length {
                number -= self.length;
            }
            let taken = &mut self.taken[number as usize];
            if usize::from(*taken) < SLOTS {
                let slot = SLOTS * number as usize + usize::from(*taken);
                *taken += 1;
                self.words[slot] = DISTANCE.set(word, distance);
                self.set_behind(number, slot);
                return true;
            }
            number += 1;
        }
        false
    }

    /// Says in the home of the pair in a slot of a bucket, if that is elsewhere, that pairs like it
    /// lie behind.
    fn set_behind(&mut self, bucket: u64, slot: usize) {
        let word = self.words[slot];
        let distance = DISTANCE.get(word);
        if distance > 0 {
            let around = if distance > bucket { self.length } else { 0 };
            let home = self.bucket(bucket + around - distance);
            let said = &mut home[behind_slot(word >> WANTED_SHIFT)];
            *said = BEHIND.set(*said, 1);
        }
    }

    /// Says in all homes what lies behind them; before, none does.
    pub(super) fn set_all_behind(&mut self) {
        for slot in 0..SLOTS * self.length as usize {
            self.set_behind((slot / SLOTS) as u64, slot);
        }
    }

    /// Moves pairs nearer to their homes, until none lies behind a bucket that is not full, and
    /// says in all homes what lies behind them; before, none does.
    pub(super) fn settle(&mut self) {
        // Ends: every move brings a pair nearer to its home.
        while self.draw_nearer() {}
        self.set_all_behind();
    }

    /// Moves each pair once, if it may; returns whether one was.
    fn draw_nearer(&mut self) -> bool {
        let mut moved = false;
        for slot in 0..SLOTS * self.length as usize {
            let word = self.words[slot];
            // From home on: a search takes the first bucket that is not full for the last one.
            for distance in 0..DISTANCE.get(word) {
                let back = DISTANCE.get(word) - distance;
                let number = (slot / SLOTS) as u64 + self.length - back;
                let nearer = self.bucket(number % self.length);
                if let Some(free) = nearer.iter_mut().find(|word| **word == 0) {
                    *free = DISTANCE.set(word, distance);
                    self.words[slot] = 0;
                    moved = true;
                    break;
                }
            }
        }
        moved
    }
}

/// Reads the keys at places, and sets their hashes.
type Rehash<'r> = dyn FnMut(&mut [(u64, Addr)]) -> Result<()> + 'r;

/// A pair of a leaf that is being split.
#[derive(Clone, Copy)]
struct Moved {
    bucket: u64,
    slot: usize,
    /// With the tag of the halves.
    word: u64,
    /// The bit that says in which half it is.
    half: usize,
}

impl<P: Primitives> Shard<P> {
    /// Splits the leaf of a hash until one more pair of it finds a slot; for `most` see
    /// [`Shard::make_room_again`].
    ///
    /// # Errors
    /// Those of `rehash`; [`Error::Limit`](everhash_index::Error::Limit) if too many keys have one
    /// hash.
    #[cold]
    pub(super) fn grow(
        &self,
        members: &mut Members,
        (hash, most): (u64, u64),
        rehash: &mut Rehash<'_>,
    ) -> Result<Room<'_, P>> {
        // Ends: each split takes one more bit of the hash, and their number is bounded.
        loop {
            if let Some(room) = self.free_slot(hash) {
                return Ok(room);
            }
            self.split_leaf_of(members, (hash, most), rehash)?;
        }
    }

    /// Splits leaves until one more pair of each of these hashes finds a slot. The caller holds the
    /// latch until all have one, adds them in this order, and may remove others in between: that
    /// makes no bucket fuller.
    ///
    /// # Errors
    /// As [`Shard::make_room`].
    pub fn make_rooms(
        &self,
        members: &mut Members,
        hashes: &[u64],
        mut rehash: impl FnMut(&mut [(u64, Addr)]) -> Result<()>,
    ) -> Result<()> {
        let mut groups = VecDeque::from(self.by_leaf(hashes));
        // Ends: each split takes one more bit of the hashes, and their number is bounded. Leaves
        // that were split less come first: so none is crowded but for its own keys.
        while let Some(group) = groups.pop_front() {
            if let Some(hash) = self.first_without_slot(&group) {
                self.split_leaf_of(members, (hash, 0), &mut rehash)?;
                groups.extend(self.by_leaf(&group));
            }
        }
        Ok(())
    }

    /// Returns hashes leaf by leaf, those of a leaf in their order.
    fn by_leaf(&self, hashes: &[u64]) -> Vec<Vec<u64>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for hash in hashes {
            groups.entry(self.leaf(*hash).0).or_default().push(*hash);
        }
        groups.into_values().collect()
    }

    /// Returns the first of these hashes, all of one leaf, whose pair finds no slot when a pair of
    /// each was added before.
    fn first_without_slot(&self, hashes: &[u64]) -> Option<u64> {
        let leaf = self.leaf(*hashes.first()?);
        let is_free = |slot: &&P::AtomicU64| slot.load(Ordering::Relaxed) == 0;
        let slots = |number| self.bucket(leaf, number).iter().filter(is_free).count();
        let mut free: Vec<_> = (0..self.length).map(slots).collect();
        hashes.iter().copied().find(|hash| {
            let mut at = Some((home(*hash, self.length), 0));
            while let Some((number, distance)) = at {
                let free = &mut free[number as usize];
                if *free > 0 {
                    *free -= 1;
                    return false;
                }
                at = self.next((number, distance));
            }
            true
        })
    }

    /// Splits the leaf of a hash. One that is crowded is split only as long as all shards take at
    /// most `most` bytes of memory.
    fn split_leaf_of(
        &self,
        members: &mut Members,
        (hash, most): (u64, u64),
        rehash: &mut Rehash<'_>,
    ) -> Result<()> {
        let leaf = self.leaf(hash);
        let is_crowded = leaf.depth() >= members.leaves.ilog2() + CROWDED;
        if leaf.depth() >= MOST_DEPTH || is_crowded && !self.may_crowd(leaf, most)? {
            return Err(crowded("bits of a hash that choose a leaf", leaf.depth().into()));
        }
        self.split(leaf, leaf.index(hash), rehash)?;
        members.leaves += 1;
        Ok(())
    }

    /// Returns whether all shards take at most `most` bytes of memory after a split of a leaf.
    fn may_crowd(&self, leaf: Link, most: u64) -> Result<bool> {
        // The longer array of links: of a crowded leaf it takes far more than the new leaf.
        let links = WORD << (leaf.depth() + 1);
        Ok(links <= most && self.arena.dram_bytes()? <= most - links)
    }

    /// Splits the leaf to which the link of this number is the first one.
    fn split(&self, leaf: Link, index: u64, rehash: &mut Rehash<'_>) -> Result<()> {
        let (mut base, mut fresh) = (leaf.base(), Vec::new());
        if leaf.depth() + 1 - base > TAG_USE {
            base = leaf.depth() + 1;
            self.each(leaf, |_, _, word| fresh.push((0, place_of(word))));
            rehash(&mut fresh)?;
        }
        let mut halves = [Loose::new(self.length), Loose::new(self.length)];
        let mut fits = true;
        self.divide(leaf, base, &fresh, |it| fits &= halves[it.half].add(it.word, it.bucket));
        if !fits {
            // They came in another order than when they found a slot. Where they are now they do.
            halves = [Loose::new(self.length), Loose::new(self.length)];
            self.divide(leaf, base, &fresh, |it| {
                halves[it.half].bucket(it.bucket)[it.slot] = it.word;
            });
            halves.iter_mut().for_each(Loose::settle);
        }
        self.replace_leaf(leaf, index, base, &mut halves)
    }

    /// Calls `visit` with each pair of a leaf: its bucket, its slot, and its word without what that
    /// says of others.
    fn each(&self, leaf: Link, mut visit: impl FnMut(u64, usize, u64)) {
        for bucket in 0..self.length {
            for (number, slot) in self.bucket(leaf, bucket).iter().enumerate() {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    visit(bucket, number, BEHIND.set(word, 0));
                }
            }
        }
    }

    /// Calls `put` with each pair of a leaf that is split into halves whose tags begin at `base`;
    /// `fresh` has the hashes of all, or is empty.
    fn divide(&self, leaf: Link, base: u32, fresh: &[(u64, Addr)], mut put: impl FnMut(Moved)) {
        let mut fresh = fresh.iter();
        self.each(leaf, |bucket, slot, word| {
            let (word, next_bits) = match fresh.next() {
                Some((hash, _)) => (TAG.set(word, hash >> base), hash >> leaf.depth()),
                None => (word, TAG.get(word) >> (leaf.depth() - base)),
            };
            put(Moved { bucket, slot, word, half: (next_bits & 1) as usize });
        });
    }

    /// Lets half of the links to a leaf lead to a new one.
    fn replace_leaf(
        &self,
        leaf: Link,
        index: u64,
        base: u32,
        halves: &mut [Loose; 2],
    ) -> Result<()> {
        let depth = leaf.depth() + 1;
        let upper = self.arena.take(SLOTS * self.length as usize)?.with(depth, base);
        self.store(upper, &mut halves[1]);
        let before = self.links();
        let links = if leaf.depth() == before.depth() { self.doubled(before)? } else { before };
        // From here on nothing fails. A reader that sees a part of it looks again; one that goes on
        // in the array before finds what was there, which is not freed.
        let change = self.sequence.begin()?;
        for number in (index..=links.last()).step_by(1 << leaf.depth()) {
            let is_upper = number >> leaf.depth() & 1 == 1;
            let link = if is_upper { upper } else { leaf.with(depth, base) };
            self.link(links, number).store(link.0, Ordering::Release);
        }
        self.set_links(links);
        self.store(leaf, &mut halves[0]);
        change.end();
        Ok(())
    }

    /// Stores the words of a leaf.
    pub(super) fn store(&self, leaf: Link, words: &mut Loose) {
        for number in 0..self.length {
            let slots = self.bucket(leaf, number).iter();
            let words = words.bucket(number).iter();
            slots.zip(words).for_each(|(slot, word)| slot.store(*word, Ordering::Release));
        }
    }

    /// Returns an array of twice as many links, in which two lead where one did.
    fn doubled(&self, links: Links) -> Result<Links> {
        let count = links.last() + 1;
        let doubled = Links::take(&self.arena, links.depth() + 1)?;
        for number in 0..count {
            let link = self.link(links, number).load(Ordering::Relaxed);
            self.link(doubled, number).store(link, Ordering::Release);
            self.link(doubled, number + count).store(link, Ordering::Release);
        }
        Ok(doubled)
    }
}
