//! The directory in DRAM: shards of leaves of buckets of eight words, each with a tag and a place.
//!
//! A bucket is a cache line. A pair whose bucket is full lies in one of the next ones of its leaf,
//! and its word says how far from home. A bit of its home says so, too, for all pairs with a tag
//! like this: few look-ups go on to a second line. A leaf in which a pair finds no slot is split in
//! two by the next bit of the hash, from DRAM alone: the tags hold the bits that the splits before
//! did not use. Only after [`TAG_USE`](split::TAG_USE) splits the keys of that leaf are read again.
//!
//! The lowest bits of a hash choose the link to its leaf (extendible hashing: Fagin et al., TODS
//! 1979), bits in the middle its home there, and the highest ones its shard. An array of links that
//! is too short is copied to one of twice its length.

mod arena;
mod saved;
mod search;
mod split;
mod word;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, AtomicWord, Bits, Latch, Lock, Primitives, Sequence};

pub use self::arena::Arena;
#[cfg(test)]
pub use self::saved::Part;
pub use self::search::{Fitting, Home};
use self::word::{BEHIND, DISTANCE, PLACE, WANTED_SHIFT, behind_slot, home, place_of};
pub use self::word::{END, Link};
use super::setup::BUCKET_SLOTS;

/// Slots of a bucket.
const SLOTS: usize = BUCKET_SLOTS as usize;

/// Buckets of a leaf, at most.
///
/// Unit: buckets. Source: ours; a split moves half of them while writers of the shard wait, about a
/// microsecond. Longer ones would be no fuller.
const MOST_BUCKETS: u64 = 31;

/// The shortest leaves of a usual table, as a base-2 logarithm.
///
/// Unit: buckets. Source: ours; of shorter ones the links would take a tenth of the memory, and a
/// leaf that is full by chance would leave others half empty.
pub const LEAST_LEVEL: u32 = 4;

/// In how many buckets, from home on, a pair may lie.
///
/// Unit: buckets. Source: ours, by simulation: leaves are then split when 86 to 91 % of their slots
/// are taken, of four 81 to 85 %, of eight 90 to 95 %. But the fuller they are, the more buckets
/// does a look-up pass that are full: of such leaves two of three at the end, one of three at half.
const REACH: u64 = 6;

/// The part of its slots that is taken when a leaf is split.
///
/// Unit: 1024ths. Source: [`REACH`].
const FULL: u64 = 900;

/// What the latch of a shard guards, beside its words.
#[derive(Debug, Default)]
pub struct Members {
    /// Live pairs.
    pub items: u64,
    /// Leaves.
    pub leaves: u64,
    /// Where the shard lies in the checkpoint that some of its leaves may still be in.
    pub saved: Addr,
    /// Where the last of its tombstones lies in the stream; nowhere, if none was appended since the
    /// table was opened.
    pub tombstone: Addr,
}

impl Members {
    /// Returns what the next version of a pair must lie behind in its stream: the present one, or
    /// the last tombstone: one before that may be of its key.
    #[inline(always)]
    pub fn before<P: Primitives>(&self, seat: &Seat<'_, P>) -> Addr {
        match seat {
            Seat::Taken(found) => found.place,
            Seat::Free(_) => self.tombstone,
        }
    }
}

/// How large a shard is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Buckets of a leaf.
    pub length: u64,
    /// Base-2 logarithm of the leaves.
    pub depth: u32,
}

impl Size {
    /// Returns the size of the `number`-th shard of `count`, of about 2^`level` buckets, or of so
    /// many that it takes `pairs` pairs before most of its leaves are split.
    ///
    /// Leaves of different shards have different lengths, so that not all are full at the same
    /// time: of all slots about as many are taken at any time.
    pub fn new(level: u32, (number, count): (u64, u64), pairs: u64) -> Self {
        let least = 1 << level.min(LEAST_LEVEL);
        let length = least + number * least / count;
        let slots = |depth: u32| (BUCKET_SLOTS * length) << depth;
        let mut depth = 0;
        // Ends: the pairs lie on a medium, which bounds their number.
        while slots(depth).saturating_mul(FULL) <= pairs.saturating_mul(1024)
            || length << depth < (1 << level) * 5 / 7
        {
            depth += 1;
        }
        Size { length, depth }
    }

    /// Returns how many words of an arena such a shard takes.
    pub fn words(self) -> u64 {
        (BUCKET_SLOTS * self.length + BUCKET_SLOTS) << self.depth
    }
}

/// A part of the directory.
#[repr(align(128))]
pub struct Shard<P: Primitives> {
    /// Held by writers.
    pub latch: Latch<P, Members>,
    /// Odd while words move: what is absent then may be elsewhere.
    pub sequence: Sequence<P>,
    /// The [`Links`].
    links: P::AtomicU64,
    /// Buckets of a leaf.
    length: u64,
    arena: Arc<Arena<P>>,
}

/// A pair in the directory.
pub struct Found<'s, P: Primitives> {
    slot: &'s P::AtomicU64,
    leaf: Link,
    bucket: u64,
    /// Where the pair lies.
    pub place: Addr,
    /// Length of its object. Unit: words.
    pub words: u64,
}

/// A slot for a pair that is not there yet; the latch is held until it is filled.
pub struct Room<'s, P: Primitives> {
    slot: &'s P::AtomicU64,
    /// Without the place.
    word: u64,
}

/// Where the next version of a pair comes.
pub enum Seat<'s, P: Primitives> {
    /// Where the present one is.
    Taken(Found<'s, P>),
    /// Where none is.
    Free(Room<'s, P>),
}

/// The links of a shard, of which the lowest bits of a hash choose one: where their array begins,
/// and as the depth of that link how many bits these are. One word, so that nobody knows the length
/// of one array and the place of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Links(Link);

impl Links {
    /// Takes words for 2^`depth` links.
    fn take<P: Primitives>(arena: &Arena<P>, depth: u32) -> Result<Self> {
        Ok(Links(arena.take(1 << depth)?.with(depth, 0)))
    }

    fn depth(self) -> u32 {
        self.0.depth()
    }

    /// Returns the number of the last one.
    #[inline(always)]
    fn last(self) -> u64 {
        self.0.index(u64::MAX)
    }

    /// Returns the number of the one that leads to the leaf of a hash.
    #[inline(always)]
    fn index(self, hash: u64) -> u64 {
        self.0.index(hash)
    }
}

/// A home bucket of a shard, in the order of scans: which one of its leaf.
///
/// Leaves come in the order of the bits that choose them, the lowest bit first, so that the halves
/// of a leaf that is split lie side by side where it lay. Homes of a leaf come one by one, each
/// with the same one of all that the leaf has split into since its first home. So a pair that is
/// present throughout is visited once.
const HOME: Bits = Bits::new(0, 5);
/// How many bits chose the leaf when its first home was visited; of that home anything.
const DEPTH: Bits = Bits::new(5, 5);
/// The link to its leaf.
const LINK: Bits = Bits::new(10, 38);

/// Returns a hash of the leaf of a home.
pub fn hash_at_home(at: u64) -> u64 {
    LINK.get(at)
}

/// Returns the first link to the leaf behind that of a link, which `depth` bits choose, in the
/// order of scans.
fn next_leaf(number: u64, depth: u32) -> Option<u64> {
    // The bits, the lowest one first.
    let shift = u64::BITS.checked_sub(depth).filter(|shift| *shift < u64::BITS)?;
    let next = (number.reverse_bits() >> shift) + 1;
    (next >> depth == 0).then(|| next.reverse_bits() >> shift)
}

/// Returns in how many buckets, from home on, a pair may lie.
#[inline(always)]
fn reach(length: u64) -> u64 {
    length.min(REACH)
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
    /// Makes an empty shard.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub fn new(arena: &Arc<Arena<P>>, size: Size) -> Result<Self> {
        let shard = Shard::bare(arena, size.length);
        let leaves = 1 << size.depth;
        let leaf = |_| {
            let link = arena.take(SLOTS * size.length as usize)?;
            Ok(link.with(size.depth, size.depth))
        };
        let links: Vec<Link> = (0..leaves).map(leaf).collect::<Result<_>>()?;
        shard.make_links(&links)?;
        shard.latch.lock()?.leaves = leaves;
        Ok(shard)
    }

    /// Makes a shard without leaves.
    fn bare(arena: &Arc<Arena<P>>, length: u64) -> Self {
        Shard {
            latch: Latch::new(Members::default()),
            sequence: Sequence::new(),
            links: AtomicWord::new(0),
            length,
            arena: Arc::clone(arena),
        }
    }

    /// Makes the array of links, a power of two of them.
    fn make_links(&self, links: &[Link]) -> Result<()> {
        let all = Links::take(&self.arena, links.len().ilog2())?;
        for (number, link) in (0..).zip(links) {
            self.link(all, number).store(link.0, Ordering::Release);
        }
        self.set_links(all);
        Ok(())
    }

    fn set_links(&self, links: Links) {
        self.links.store(links.0.0, Ordering::Release);
    }

    /// Returns the number of buckets.
    pub fn buckets(&self, members: &Members) -> u64 {
        self.length * members.leaves
    }

    #[inline(always)]
    fn links(&self) -> Links {
        Links(Link(self.links.load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn link(&self, links: Links, number: u64) -> &P::AtomicU64 {
        self.arena.word(links.0, number).expect("an array is whole")
    }

    /// Returns the link to the leaf of a hash.
    #[inline(always)]
    fn leaf(&self, hash: u64) -> Link {
        let links = self.links();
        Link(self.link(links, links.index(hash)).load(Ordering::Acquire))
    }

    /// Returns all leaves; the caller holds the latch.
    fn leaves(&self) -> impl Iterator<Item = (u64, Link)> {
        let links = self.links();
        let all = (0..=links.last())
            .map(move |number| (number, Link(self.link(links, number).load(Ordering::Relaxed))));
        // Of the links to a leaf the first one counts.
        all.filter(|(number, leaf)| number >> leaf.depth() == 0)
    }

    #[inline(always)]
    fn bucket(&self, leaf: Link, number: u64) -> &[P::AtomicU64; SLOTS] {
        self.arena.bucket(leaf, number).expect("a leaf is whole")
    }

    /// Returns the number of a bucket less than a whole leaf behind another one.
    #[inline(always)]
    fn behind(&self, bucket: u64, by: u64) -> u64 {
        let number = bucket + by;
        if number >= self.length { number - self.length } else { number }
    }

    /// Returns the bucket behind one that is full, and how far from home it is; `None` behind the
    /// last one in which a pair may lie.
    #[inline(always)]
    fn next(&self, (bucket, distance): (u64, u64)) -> Option<(u64, u64)> {
        let is_last = distance + 1 == reach(self.length);
        (!is_last).then(|| (self.behind(bucket, 1), distance + 1))
    }

    /// Prefetches the link to the leaf of a hash.
    #[inline(always)]
    pub fn prefetch_link(&self, hash: u64) {
        let links = self.links();
        everhash_pmem::prefetch(self.link(links, links.index(hash)));
    }

    /// Prefetches the line in which the search for a hash begins; returns the link to its leaf.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) -> Link {
        let leaf = self.leaf(hash);
        if let Some(home) = self.home_in(leaf, hash) {
            home.prefetch();
        }
        leaf
    }

    /// Lets a word lead to another place of the same key; the caller holds the latch.
    #[inline(always)]
    pub fn replace(&self, found: &Found<'_, P>, place: Addr) {
        let word = found.slot.load(Ordering::Relaxed);
        found.slot.store(PLACE.set(word, place.word()), Ordering::Release);
    }

    /// Returns a slot for one more pair of this hash; the caller holds the latch. `rehash` reads
    /// the keys at places and sets their hashes.
    ///
    /// # Errors
    /// Those of `rehash`; [`Error::Limit`] if too many keys have one hash.
    #[inline(always)]
    pub fn make_room(
        &self,
        members: &mut Members,
        hash: u64,
        rehash: impl FnMut(&mut [(u64, Addr)]) -> Result<()>,
    ) -> Result<Room<'_, P>> {
        self.make_room_again(members, (hash, 0), rehash)
    }

    /// As [`Shard::make_room`], for an opening that replays: when the pairs were stored, the shard
    /// may have had more leaves than now, and so have taken more keys whose hashes begin alike. For
    /// these, all shards may take `most` bytes of memory.
    ///
    /// # Errors
    /// As [`Shard::make_room`].
    #[inline(always)]
    pub fn make_room_again(
        &self,
        members: &mut Members,
        (hash, most): (u64, u64),
        mut rehash: impl FnMut(&mut [(u64, Addr)]) -> Result<()>,
    ) -> Result<Room<'_, P>> {
        match self.free_slot(hash) {
            Some(room) => Ok(room),
            None => self.grow(members, (hash, most), &mut rehash),
        }
    }

    /// Returns a slot for one more pair of this hash, if its leaf has one.
    #[inline(always)]
    fn free_slot(&self, hash: u64) -> Option<Room<'_, P>> {
        let (leaf, home) = (self.leaf(hash), home(hash, self.length));
        let mut at = Some((home, 0));
        while let Some((number, distance)) = at {
            let mut slots = self.bucket(leaf, number).iter();
            if let Some(slot) = slots.find(|slot| slot.load(Ordering::Relaxed) == 0) {
                let word = leaf.word_of(hash, distance, Addr::NULL);
                if distance > 0 {
                    // Before the pair is there: who does not see this sees no pair either.
                    self.set_behind(leaf, home, word, 1);
                }
                return Some(Room { slot, word });
            }
            at = self.next((number, distance));
        }
        None
    }

    /// Says in a home whether pairs like that of a word lie behind it.
    fn set_behind(&self, leaf: Link, home: u64, word: u64, behind: u64) {
        let slot = &self.bucket(leaf, home)[behind_slot(word >> WANTED_SHIFT)];
        slot.store(BEHIND.set(slot.load(Ordering::Relaxed), behind), Ordering::Release);
    }

    /// Says in the home of a word, which was in this other bucket, if no more pairs like that lie
    /// behind.
    fn update_behind(&self, leaf: Link, bucket: u64, word: u64) {
        let home = self.behind(bucket, self.length - DISTANCE.get(word));
        let is_like = |other: u64, by| {
            DISTANCE.get(other) == by
                && behind_slot(other >> WANTED_SHIFT) == behind_slot(word >> WANTED_SHIFT)
        };
        let stays = (1..reach(self.length)).any(|by| {
            let mut slots = self.bucket(leaf, self.behind(home, by)).iter();
            slots.any(|slot| is_like(slot.load(Ordering::Relaxed), by))
        });
        if !stays {
            self.set_behind(leaf, home, word, 0);
        }
    }

    /// Adds a pair; the caller holds the latch since it took the slot.
    #[inline(always)]
    pub fn insert(&self, room: Room<'_, P>, place: Addr) {
        room.slot.store(PLACE.set(room.word, place.word()), Ordering::Release);
    }

    /// Removes a pair; the caller holds the latch.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub fn remove(&self, found: &Found<'_, P>) -> Result<()> {
        let word = found.slot.load(Ordering::Relaxed);
        let mut slots = self.bucket(found.leaf, found.bucket).iter();
        let was_full = slots.all(|slot| slot.load(Ordering::Relaxed) != 0);
        if !was_full || self.length == 1 {
            found.slot.store(0, Ordering::Release);
        } else {
            // Before the slot is empty: none lies behind a bucket that is not full.
            let change = self.sequence.begin()?;
            found.slot.store(0, Ordering::Release);
            self.close_up(found.leaf, found.bucket, BEHIND.get(word));
            change.end();
        }
        if DISTANCE.get(word) > 0 {
            self.update_behind(found.leaf, found.bucket, word);
        }
        Ok(())
    }

    /// Moves pairs nearer to their homes: none lies behind a bucket that is not full. The sequence
    /// is odd. `behind` is what the slot that is empty said of pairs behind the bucket.
    fn close_up(&self, leaf: Link, hole: u64, behind: u64) {
        let (mut hole, mut behind) = (hole, behind);
        // Ends: a hole moves on, and a pair moves into a bucket only from one behind it. Around
        // the end of a leaf it could go on in circles, hence the bound.
        for _ in 0..self.length {
            let Some((from, word)) = self.pull(leaf, hole, behind) else { return };
            self.update_behind(leaf, from, word);
            (hole, behind) = (from, BEHIND.get(word));
        }
    }

    /// Fills a hole with a pair that lies behind it and may lie here; returns its bucket and what
    /// its word was there.
    fn pull(&self, leaf: Link, hole: u64, behind: u64) -> Option<(u64, u64)> {
        let bucket = self.bucket(leaf, hole);
        let empty = bucket.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
        let empty = empty.expect("a hole is empty");
        for by in 1..reach(self.length) {
            let number = self.behind(hole, by);
            for slot in self.bucket(leaf, number) {
                let word = slot.load(Ordering::Relaxed);
                let distance = DISTANCE.get(word);
                if word != 0 && distance >= by {
                    let nearer = DISTANCE.set(BEHIND.set(word, behind), distance - by);
                    empty.store(nearer, Ordering::Release);
                    slot.store(0, Ordering::Release);
                    return Some((number, word));
                }
            }
        }
        None
    }

    /// Calls `visit` with each place of a home, and returns the next home; the caller holds the
    /// latch. The first home is 0.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn at_home(
        &self,
        at: u64,
        mut visit: impl FnMut(Addr) -> Result<()>,
    ) -> Result<Option<u64>> {
        let (links, number, home) = (self.links(), LINK.get(at), HOME.get(at));
        if number > links.last() {
            return Ok(None);
        }
        let leaf = |number| Link(self.link(links, number).load(Ordering::Relaxed));
        let depth = match home {
            0 => leaf(number).depth(),
            _ => DEPTH.get(at) as u32,
        };
        for number in (number..=links.last()).step_by(1 << depth) {
            let leaf = leaf(number);
            // Of the links to a leaf the first one counts.
            if number >> leaf.depth() == 0 && home < self.length {
                self.each_at_home(leaf, home, &mut visit)?;
            }
        }
        if home + 1 < self.length {
            let at = DEPTH.set(LINK.set(0, number), depth.into());
            return Ok(Some(HOME.set(at, home + 1)));
        }
        Ok(next_leaf(number, depth).map(|number| LINK.set(0, number)))
    }

    /// Calls `visit` with each place of a home of a leaf.
    fn each_at_home(
        &self,
        leaf: Link,
        home: u64,
        visit: &mut impl FnMut(Addr) -> Result<()>,
    ) -> Result<()> {
        for distance in 0..reach(self.length) {
            for slot in self.bucket(leaf, self.behind(home, distance)) {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 && DISTANCE.get(word) == distance {
                    visit(place_of(word))?;
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
        for (index, leaf) in self.leaves() {
            if leaf.is_saved() {
                let empty = self.arena.take(SLOTS * self.length as usize)?;
                self.lead_to(empty.with(leaf.depth(), leaf.base()), index);
                continue;
            }
            let slots = (0..self.length).flat_map(|number| self.bucket(leaf, number));
            slots.for_each(|slot| slot.store(0, Ordering::Release));
        }
        change.end();
        members.items = 0;
        Ok(())
    }
}

/// Returns the error of an object that is none.
#[cold]
pub fn damaged(place: Addr) -> Error {
    Error::Corrupt { at: place.byte(), broken: "the check of an object matches" }
}
