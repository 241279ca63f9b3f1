//! The directory in DRAM: shards of buckets of eight words, each with a tag and a place.
//!
//! A bucket is a cache line. A pair whose bucket is full lies in one of the next ones, and its word
//! says how far from home. A shard doubles from DRAM alone: the tags hold the bits of the hash that
//! the smaller shard did not use. Only after [`TAG_USE`] doublings the keys are read again.

mod word;

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, AtomicWord, Latch, Lock, Primitives, Sequence};

use super::growing::Growing;
use super::objects::Look;
use super::setup::BUCKET_SLOTS;
use word::{DISTANCE, PLACE, Shape, TAG_BITS, is_wanted, place_of};

/// How many bits of a tag doublings use before the keys are read for fresh ones.
///
/// Unit: bits. Source: ours; of what is left a look at a full bucket is wrong once in 128 times,
/// and keys are read once for a growth to the 500-fold.
const TAG_USE: u32 = 9;

/// How many times a shard doubles at most because its pairs crowd in a few buckets.
///
/// Unit: doublings. Source: ours; beyond it the keys have been chosen to collide.
const CROWDED: u32 = 6;

/// Slots of a bucket.
const SLOTS: usize = BUCKET_SLOTS as usize;

/// Buckets whose numbers of pairs share a word of a checkpoint.
const GROUP: u64 = 8;

/// What the latch of a shard guards, beside its words.
#[derive(Debug, Default)]
pub struct Members {
    /// Live pairs.
    pub items: u64,
}

/// A part of the directory.
#[repr(align(128))]
pub struct Shard<P: Primitives> {
    /// Held by writers.
    pub latch: Latch<P, Members>,
    /// Odd while words move: what is absent then may be elsewhere.
    pub sequence: Sequence<P>,
    /// Base-2 logarithm of the buckets | first bit of the tags << 8.
    shape: P::AtomicU64,
    words: Growing<P>,
    /// At which part of its slots it doubles. Unit: 1024ths. Shards differ, so that they do not
    /// double at the same time.
    limit: u64,
}

/// A pair in the directory.
pub struct Found<'s, P: Primitives> {
    slot: &'s P::AtomicU64,
    word: u64,
    bucket: u64,
    /// Where the pair lies.
    pub place: Addr,
    /// Length of its object. Unit: words.
    pub words: u64,
}

/// What a reader without a latch found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// The pair.
    Present,
    /// No pair, unless words moved meanwhile.
    Absent,
    /// The directory led to an object that was replaced meanwhile: look again.
    Changed,
    /// The directory leads to something that is no object.
    Damaged(Addr),
}

impl<P: Primitives> Shard<P> {
    /// Makes an empty shard of 2^`least` buckets, the `number`-th of `count`, or of so many that it
    /// takes `pairs` pairs without growing.
    pub fn new(least: u32, (number, count): (u64, u64), pairs: u64) -> Self {
        let limit = 1024 * 3 / 5 + 1024 * number / (4 * count);
        let mut level = least;
        // Ends: the pairs lie on a medium, which bounds their number.
        while ((SLOTS as u64) << level).saturating_mul(limit) <= pairs.saturating_mul(1024) {
            level += 1;
        }
        let shape = Shape { level, base: level };
        let words = Growing::new(level + SLOTS.ilog2());
        words.reserve((SLOTS as u64) << level);
        Shard {
            latch: Latch::new(Members::default()),
            sequence: Sequence::new(),
            shape: AtomicWord::new(shape.word()),
            words,
            limit,
        }
    }

    /// Makes a shard from the words of a checkpoint, with the pairs whose places are `wanted`, and
    /// of at most `most` buckets; `None` if the words are none of a shard.
    pub fn load(
        words: &[u64],
        shape: u64,
        (number, count): (u64, u64),
        most: u64,
        wanted: impl Fn(Addr) -> bool,
    ) -> Option<Self> {
        let shape = Shape::of(shape);
        let is_possible = shape.level < 48
            && 1 << shape.level <= most
            && (1u64 << shape.level).div_ceil(GROUP) <= words.len() as u64
            && shape.base <= shape.level
            && shape.level - shape.base < TAG_BITS;
        if !is_possible {
            return None;
        }
        let shard: Self = Shard::new(shape.level, (number, count), 0);
        shard.shape.store(shape.word(), Ordering::Relaxed);
        let (mut words, mut items) = (words.iter(), 0);
        for first in (0..1 << shape.level).step_by(GROUP as usize) {
            let counts = words.next()?.to_le_bytes();
            let buckets = ((1 << shape.level) - first).min(GROUP) as usize;
            for (bucket, taken) in (first..).zip(&counts[..buckets]) {
                let mut slots = shard.bucket(bucket).expect("room was reserved").iter();
                for _ in 0..*taken {
                    let word = words.next().filter(|word| **word != 0)?;
                    slots.next()?.store(*word, Ordering::Relaxed);
                    items += 1;
                }
            }
        }
        let dropped = shard.drop_unwanted(wanted).ok()?;
        shard.latch.lock().ok()?.items = items - dropped;
        Some(shard)
    }

    /// Removes what leads to places that are not wanted; returns how many pairs that were. None of
    /// another bucket is left behind one that is not full any more.
    fn drop_unwanted(&self, wanted: impl Fn(Addr) -> bool) -> Result<u64> {
        let mut dropped = 0;
        for number in 0..self.buckets() {
            let bucket = self.bucket(number).expect("a shard has all its buckets");
            let mut slot = 0;
            // Ends: a slot is looked at again only when a pair less is in the shard.
            while slot < SLOTS {
                let word = bucket[slot].load(Ordering::Relaxed);
                if word == 0 || wanted(place_of(word)) {
                    slot += 1;
                    continue;
                }
                let slot = &bucket[slot];
                let place = place_of(word);
                self.remove(&Found { slot, word, bucket: number, place, words: 0 })?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Appends the words of a checkpoint to `words`; the caller holds the latch. Returns the shape.
    pub fn save(&self, words: &mut Vec<u64>) -> u64 {
        let shape = self.shape();
        for first in (0..1 << shape.level).step_by(GROUP as usize) {
            let (place, mut counts) = (words.len(), [0; GROUP as usize]);
            words.push(0);
            for (bucket, count) in (first..1 << shape.level).zip(&mut counts) {
                let slots = self.bucket(bucket).expect("a shard has all its buckets");
                let before = words.len();
                let all = slots.iter().map(|slot| slot.load(Ordering::Relaxed));
                words.extend(all.filter(|word| *word != 0));
                *count = (words.len() - before) as u8;
            }
            words[place] = u64::from_le_bytes(counts);
        }
        shape.word()
    }

    /// Returns how long a shard is in a checkpoint. Unit: words.
    pub fn saved_words(&self, members: &Members) -> u64 {
        self.buckets().div_ceil(GROUP) + members.items
    }

    fn shape(&self) -> Shape {
        Shape::of(self.shape.load(Ordering::Acquire))
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        1 << self.shape().level
    }

    /// Returns how much memory the words take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.words.dram_bytes()
    }

    /// Prefetches the line in which the search for a hash begins.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        let shape = self.shape();
        if let Some([first, ..]) = self.bucket(hash & shape.mask()) {
            everhash_pmem::prefetch(first);
        }
    }

    /// Returns a place where a pair of this hash probably lies.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<Addr> {
        let shape = self.shape();
        let wanted = shape.wanted(hash, 0);
        let bucket = self.bucket(hash & shape.mask())?;
        let mut words = bucket.iter().map(|slot| slot.load(Ordering::Relaxed));
        words.find(|word| is_wanted(*word, wanted)).map(place_of)
    }

    #[inline(always)]
    fn bucket(&self, number: u64) -> Option<&[P::AtomicU64]> {
        self.words.get(SLOTS as u64 * number, SLOTS)
    }

    /// Returns whether a key is present, by `look`ing at places until one has it, without a latch
    /// and whatever writers do meanwhile.
    ///
    /// # Errors
    /// Those of `look`; [`Error::Corrupt`] if the directory leads to something that is no object.
    #[inline(always)]
    pub fn find(&self, hash: u64, look: &mut impl FnMut(Addr) -> Result<Look>) -> Result<bool> {
        let mut attempt = 0;
        // Ends: each further round means that a writer has changed the shard meanwhile.
        loop {
            if let Some(stamp) = self.sequence.read()? {
                match self.search(hash, &mut *look)? {
                    Sight::Present => return Ok(true),
                    Sight::Absent if self.sequence.validate(stamp) => return Ok(false),
                    Sight::Damaged(place) if self.sequence.validate(stamp) => {
                        return Err(damaged(place));
                    }
                    _ => {}
                }
            }
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Looks for a key without a latch, by `look`ing at every place whose tag fits.
    ///
    /// # Errors
    /// Those of `look`, if the directory still leads there.
    #[inline(always)]
    pub fn search(&self, hash: u64, mut look: impl FnMut(Addr) -> Result<Look>) -> Result<Sight> {
        let shape = self.shape();
        for distance in 0..shape.reach() {
            // A shard that has doubled meanwhile has more buckets, never fewer.
            let Some(bucket) = self.bucket((hash + distance) & shape.mask()) else {
                return Ok(Sight::Changed);
            };
            let wanted = shape.wanted(hash, distance);
            let mut is_full = true;
            for slot in bucket {
                let word = slot.load(Ordering::Acquire);
                is_full &= word != 0;
                if !is_wanted(word, wanted) {
                    continue;
                }
                let place = place_of(word);
                let looked = look(place);
                P::fence(Ordering::Acquire);
                if slot.load(Ordering::Relaxed) != word {
                    return Ok(Sight::Changed);
                }
                match looked? {
                    Look::Equal(_) => return Ok(Sight::Present),
                    Look::Other => {}
                    Look::Unsound => return Ok(Sight::Damaged(place)),
                }
            }
            if !is_full {
                break;
            }
        }
        Ok(Sight::Absent)
    }

    /// Looks for a key; the caller holds the latch.
    ///
    /// # Errors
    /// Those of `look`; [`Error::Corrupt`] if the directory leads to something that is no object.
    #[inline(always)]
    pub fn locate(
        &self,
        hash: u64,
        mut look: impl FnMut(Addr) -> Result<Look>,
    ) -> Result<Option<Found<'_, P>>> {
        let shape = self.shape();
        for distance in 0..shape.reach() {
            let number = (hash + distance) & shape.mask();
            let bucket = self.bucket(number).expect("a shard has all its buckets");
            let wanted = shape.wanted(hash, distance);
            let mut is_full = true;
            for slot in bucket {
                let word = slot.load(Ordering::Relaxed);
                is_full &= word != 0;
                if !is_wanted(word, wanted) {
                    continue;
                }
                let place = place_of(word);
                match look(place)? {
                    Look::Equal(words) => {
                        return Ok(Some(Found { slot, word, bucket: number, place, words }));
                    }
                    Look::Other => {}
                    Look::Unsound => return Err(damaged(place)),
                }
            }
            if !is_full {
                break;
            }
        }
        Ok(None)
    }

    /// Looks for the word that leads to a place; the caller holds the latch.
    pub fn locate_place(&self, hash: u64, place: Addr, words: u64) -> Option<Found<'_, P>> {
        let look = |at| Ok(if at == place { Look::Equal(words) } else { Look::Other });
        self.locate(hash, look).expect("nothing is read")
    }

    /// Lets a word lead to another place of the same key; the caller holds the latch.
    #[inline(always)]
    pub fn replace(&self, found: &Found<'_, P>, place: Addr) {
        found.slot.store(PLACE.set(found.word, place.word()), Ordering::Release);
    }

    /// Ensures that one more pair of this hash finds a slot; the caller holds the latch. `rehash`
    /// reads the keys at places and sets their hashes.
    ///
    /// # Errors
    /// Those of `rehash`; [`Error::Full`] if too many keys have one hash.
    #[inline(always)]
    pub fn make_room(
        &self,
        items: u64,
        hash: u64,
        rehash: impl FnOnce(&mut [(u64, Addr)]) -> Result<()>,
    ) -> Result<()> {
        let slots = (SLOTS as u64) << self.shape().level;
        if items * 1024 >= slots * self.limit || self.free_slot(hash).is_none() {
            return self.grow(hash, rehash);
        }
        Ok(())
    }

    /// Adds a pair, for which there is room; the caller holds the latch.
    #[inline(always)]
    pub fn insert(&self, hash: u64, place: Addr) {
        let (slot, distance) = self.free_slot(hash).expect("room was made");
        slot.store(self.shape().word_of(hash, distance, place), Ordering::Release);
    }

    #[inline(always)]
    fn free_slot(&self, hash: u64) -> Option<(&P::AtomicU64, u64)> {
        let shape = self.shape();
        (0..shape.reach()).find_map(|distance| {
            let bucket = self.bucket((hash + distance) & shape.mask())?;
            let free = bucket.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
            free.map(|slot| (slot, distance))
        })
    }

    /// Removes a pair; the caller holds the latch.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub fn remove(&self, found: &Found<'_, P>) -> Result<()> {
        let shape = self.shape();
        let bucket = self.bucket(found.bucket).expect("a pair lies in a bucket");
        let was_full = bucket.iter().all(|slot| slot.load(Ordering::Relaxed) != 0);
        if !was_full || shape.reach() == 1 {
            found.slot.store(0, Ordering::Release);
            return Ok(());
        }
        // Before the slot is empty: a reader takes a bucket that is not full for the last one.
        let change = self.sequence.begin()?;
        found.slot.store(0, Ordering::Release);
        self.close_up(shape, found.bucket);
        change.end();
        Ok(())
    }

    /// Moves pairs nearer to their homes: none lies behind a bucket that is not full. The sequence
    /// is odd.
    fn close_up(&self, shape: Shape, hole: u64) {
        let mut hole = hole;
        // Ends: a hole moves on, and a pair moves into a bucket only from one behind it. Around
        // the end of a shard it could go on in circles, hence the bound.
        for _ in 0..self.buckets() {
            let Some(from) = self.pull(shape, hole) else { return };
            hole = from;
        }
    }

    /// Fills a hole with a pair that lies behind it and may lie here; returns its bucket.
    fn pull(&self, shape: Shape, hole: u64) -> Option<u64> {
        let bucket = self.bucket(hole).expect("a hole is in a bucket");
        let empty = bucket.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
        let empty = empty.expect("a hole is empty");
        for by in 1..shape.reach() {
            let number = (hole + by) & shape.mask();
            for slot in self.bucket(number).expect("a shard has all its buckets") {
                let word = slot.load(Ordering::Relaxed);
                let distance = DISTANCE.get(word);
                if word != 0 && distance >= by {
                    empty.store(DISTANCE.set(word, distance - by), Ordering::Release);
                    slot.store(0, Ordering::Release);
                    return Some(number);
                }
            }
        }
        None
    }

    /// Calls `visit` with each place whose home is one of these buckets; the caller holds the
    /// latch.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn at_home(
        &self,
        homes: core::ops::Range<u64>,
        mut visit: impl FnMut(Addr) -> Result<()>,
    ) -> Result<()> {
        let shape = self.shape();
        for home in homes {
            for distance in 0..shape.reach() {
                let number = (home + distance) & shape.mask();
                for slot in self.bucket(number).expect("a shard has all its buckets") {
                    let word = slot.load(Ordering::Relaxed);
                    if word != 0 && DISTANCE.get(word) == distance {
                        visit(place_of(word))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Forgets all pairs; the caller holds the latch.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub fn clear(&self, members: &mut Members) -> Result<()> {
        let change = self.sequence.begin()?;
        for number in 0..self.buckets() {
            let bucket = self.bucket(number).expect("a shard has all its buckets");
            bucket.iter().for_each(|slot| slot.store(0, Ordering::Release));
        }
        change.end();
        members.items = 0;
        Ok(())
    }

    /// Doubles the shard, until the present pairs and one more fit.
    #[cold]
    fn grow(&self, hash: u64, rehash: impl FnOnce(&mut [(u64, Addr)]) -> Result<()>) -> Result<()> {
        let shape = self.shape();
        let mut pairs = Vec::new();
        for number in 0..self.buckets() {
            for slot in self.bucket(number).expect("a shard has all its buckets") {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    pairs.push((shape.hash_of(word, number), place_of(word)));
                }
            }
        }
        let mut base = shape.base;
        if shape.level + 1 - base > TAG_USE {
            rehash(&mut pairs)?;
            base = shape.level + 1;
        }
        for level in shape.level + 1..=shape.level + CROWDED {
            let next = Shape { level, base };
            if let Some(words) = next.arrange(&pairs, hash) {
                return self.set(next, &words);
            }
        }
        Err(Error::Full { needed: 0 })
    }

    fn set(&self, shape: Shape, words: &[u64]) -> Result<()> {
        self.words.reserve(words.len() as u64);
        let change = self.sequence.begin()?;
        self.shape.store(shape.word(), Ordering::Release);
        for (number, words) in words.chunks(SLOTS).enumerate() {
            let bucket = self.bucket(number as u64).expect("room was reserved");
            bucket.iter().zip(words).for_each(|(slot, word)| slot.store(*word, Ordering::Release));
        }
        change.end();
        Ok(())
    }
}

/// Returns the error of an object that is none.
#[cold]
pub fn damaged(place: Addr) -> Error {
    Error::Corrupt { at: place.byte(), broken: "the check of an object matches" }
}
