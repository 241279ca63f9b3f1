//! Level Hashing (Zuo, Hua, Wu, OSDI 2018) on persistent memory.
//!
//! Kept: two levels, two buckets for a key in each, the look through all four, the order pair, then
//! token, one move inside a level, one from the bottom level to the top one after a resize, the
//! update in a free slot of the bucket (otherwise logged), and the resize, which rehashes the
//! bottom level pair by pair.
//!
//! A bucket has 128 bytes, as published: with words they hold seven pairs and their tokens, as in
//! the port that the authors of Dash measured; with pairs of 31 bytes it was four. Left out:
//! recovery, shrinking and the locks, which are one word for many buckets there.
//!
//! ```text
//!   bucket | tokens | - | key 0, value 0 | .. | key 6, value 6 |
//! ```

use everhash_pmem::{Access, Addr, Media, Region, Result, Span};

use super::Space;
use super::space::{LINE_WORDS, ROOT, store_durably};
use crate::{Inserted, Rival, hash};

mod sites {
    everhash_pmem::sites! {
        /// A level, cleared.
        CLEARED = "rivals/memory-level/cleared";
        /// A pair, before its token.
        PAIR = "rivals/memory-level/pair";
        /// The tokens of a bucket.
        TOKENS = "rivals/memory-level/tokens";
        /// A record of the log.
        LOG = "rivals/memory-level/log";
        /// Where the levels lie.
        LEVELS = "rivals/memory-level/levels";
    }
}

/// Unit: slots. Source: ours, see above.
const SLOTS: u64 = 7;

const ALL_TOKENS: u64 = (1 << SLOTS) - 1;

/// Words of a bucket.
const BUCKET_WORDS: u64 = 2 * LINE_WORDS;

/// A level: where it lies, and its buckets, a power of two.
#[derive(Clone, Copy)]
struct Buckets {
    start: Addr,
    count: u64,
}

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bucket(Addr);

/// A slot of a bucket.
#[derive(Clone, Copy)]
struct Slot {
    bucket: Bucket,
    index: u64,
}

impl Buckets {
    /// Takes the space of a level and clears it.
    fn new<M: Media>(space: &Space<M>, count: u64) -> Result<Buckets> {
        let start = space.take_zeroed(count * BUCKET_WORDS, sites::CLEARED)?.start;
        Ok(Buckets { start, count })
    }

    fn at(&self, index: u64) -> Bucket {
        Bucket(self.start.plus(index * BUCKET_WORDS))
    }

    /// Returns the two buckets of a key: one in each half.
    fn homes(&self, key: u64) -> [Bucket; 2] {
        let ([first, second], half) = (hash::both(key), self.count / 2);
        [self.at(first % half), self.at(half + second % half)]
    }
}

impl Slot {
    fn key(self) -> Addr {
        self.bucket.0.plus(2 + 2 * self.index)
    }

    fn value(self) -> Addr {
        self.key().plus(1)
    }

    fn token(self) -> u64 {
        1 << self.index
    }
}

/// A table of Level Hashing.
pub struct Level<M: Media> {
    space: Space<M>,
    top: Buckets,
    bottom: Buckets,
    /// Whether it has grown: only then pairs move from the bottom level to the top one.
    has_grown: bool,
    ahead: bool,
}

/// One operation: what it reads and writes slots with.
struct Run<'a, M: Media>(&'a Access<'a, M>);

impl<M: Media> Run<'_, M> {
    fn tokens(&self, bucket: Bucket) -> Result<u64> {
        self.0.load(bucket.0)
    }

    fn slots(&self, bucket: Bucket) -> Result<impl Iterator<Item = Slot> + use<M>> {
        let tokens = self.tokens(bucket)?;
        let taken = (0..SLOTS).filter(move |index| tokens >> index & 1 == 1);
        Ok(taken.map(move |index| Slot { bucket, index }))
    }

    fn pair(&self, slot: Slot) -> Result<[u64; 2]> {
        Ok([self.0.load(slot.key())?, self.0.load(slot.value())?])
    }

    /// Returns the first free slot of a bucket.
    fn free(&self, bucket: Bucket) -> Result<Option<Slot>> {
        let open = !self.tokens(bucket)? & ALL_TOKENS;
        let index = u64::from(open.trailing_zeros());
        Ok((open != 0).then_some(Slot { bucket, index }))
    }

    /// Returns the free slot of two buckets whose index is lower.
    fn free_of(&self, [first, second]: [Bucket; 2]) -> Result<Option<Slot>> {
        Ok(match (self.free(first)?, self.free(second)?) {
            (Some(first), Some(second)) if second.index < first.index => Some(second),
            (first, second) => first.or(second),
        })
    }

    fn write_pair(&self, slot: Slot, pair: [u64; 2]) -> Result<()> {
        self.0.write_words(slot.key(), &pair)?;
        self.0.persist(Span::new(slot.key(), 2), sites::PAIR)
    }

    fn write_tokens(&self, bucket: Bucket, tokens: u64) -> Result<()> {
        store_durably(self.0, bucket.0, tokens, sites::TOKENS)
    }

    /// Gives a pair a free slot. A crash leaves it there or not.
    fn insert(&self, slot: Slot, pair: [u64; 2]) -> Result<()> {
        self.write_pair(slot, pair)?;
        self.write_tokens(slot.bucket, self.tokens(slot.bucket)? | slot.token())
    }

    fn remove(&self, slot: Slot) -> Result<()> {
        self.write_tokens(slot.bucket, self.tokens(slot.bucket)? & !slot.token())
    }

    /// Copies a pair to a free slot and frees its own. A crash can leave both.
    fn shift(&self, source: Slot, target: Slot) -> Result<()> {
        self.insert(target, self.pair(source)?)?;
        self.remove(source)
    }

    /// Moves one pair of two buckets to one of the buckets that it has in `level`, to make room for
    /// another pair.
    fn make_room(&self, homes: [Bucket; 2], level: &Buckets, pair: [u64; 2]) -> Result<bool> {
        for bucket in homes {
            for slot in self.slots(bucket)? {
                for other in level.homes(self.0.load(slot.key())?) {
                    if other == bucket {
                        continue;
                    }
                    if let Some(target) = self.free(other)? {
                        self.shift(slot, target)?;
                        self.insert(slot, pair)?;
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}

impl<M: Media> Level<M> {
    /// Makes an empty table with `bottom` buckets below and twice as many above.
    ///
    /// # Panics
    /// If `bottom` is no power of two, or one.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(region: Region<M>, bottom: u64) -> Result<Self> {
        assert!(bottom.is_power_of_two() && bottom > 1, "a level has two halves");
        let space = Space::new(region)?;
        let (top, bottom) = (Buckets::new(&space, 2 * bottom)?, Buckets::new(&space, bottom)?);
        let table = Level { space, top, bottom, has_grown: false, ahead: false };
        table.announce()?;
        Ok(table)
    }

    /// Returns the table that lies on a medium.
    ///
    /// # Errors
    /// As the medium.
    pub fn open(region: Region<M>) -> Result<Self> {
        let space = Space::open(region);
        let mut words = [0; 4];
        space.access().read_words(ROOT, &mut words)?;
        let level = |at: usize| Buckets { start: Addr::new(words[at]), count: words[at + 1] };
        let (top, bottom) = (level(0), level(2));
        Ok(Level { space, top, bottom, has_grown: true, ahead: false })
    }

    /// Asks for all lines at once that a search may look at, as a processor does that runs ahead of
    /// its loads; otherwise each is waited for in turn.
    #[must_use]
    pub fn reading_ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Notes on the medium where the levels lie.
    fn announce(&self) -> Result<()> {
        let pm = self.space.access();
        let Level { top, bottom, .. } = self;
        let words = [top.start.byte(), top.count, bottom.start.byte(), bottom.count];
        pm.write_words(ROOT, &words)?;
        pm.persist(Span::new(ROOT, 4), sites::LEVELS)
    }

    /// Puts a level twice as large above, to which the pairs of the bottom level move. The space of
    /// that one stays unused.
    fn grow(&mut self) -> Result<()> {
        let fresh = Buckets::new(&self.space, 2 * self.top.count)?;
        let pm = self.space.access();
        let run = Run(&pm);
        for index in 0..self.bottom.count {
            for slot in run.slots(self.bottom.at(index))? {
                let homes = fresh.homes(pm.load(slot.key())?);
                let target = run.free_of(homes)?;
                run.shift(slot, target.expect("a level that is a quarter full has room"))?;
            }
        }
        (self.bottom, self.top, self.has_grown) = (self.top, fresh, true);
        self.announce()
    }

    /// Looks through the four buckets of a key.
    fn find(&self, run: &Run<'_, M>, key: u64) -> Result<Option<Slot>> {
        let buckets = [self.top, self.bottom].map(|level| level.homes(key));
        for bucket in buckets.iter().flatten().filter(|_| self.ahead) {
            run.0.prefetch(bucket.0);
            run.0.prefetch(bucket.0.plus(LINE_WORDS));
        }
        for bucket in buckets.into_iter().flatten() {
            for slot in run.slots(bucket)? {
                if run.0.load(slot.key())? == key {
                    return Ok(Some(slot));
                }
            }
        }
        Ok(None)
    }

    /// Gives an absent pair a slot; false if the table must grow.
    fn place(&self, run: &Run<'_, M>, pair: [u64; 2]) -> Result<bool> {
        let levels = [self.top, self.bottom];
        for level in levels {
            if let Some(slot) = run.free_of(level.homes(pair[0]))? {
                run.insert(slot, pair)?;
                return Ok(true);
            }
        }
        for level in levels {
            if run.make_room(level.homes(pair[0]), &level, pair)? {
                return Ok(true);
            }
        }
        Ok(self.has_grown && run.make_room(self.bottom.homes(pair[0]), &self.top, pair)?)
    }
}

impl<M: Media> Rival for Level<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        let region = self.space.region().clone();
        let pm = region.access();
        let run = Run(&pm);
        if self.find(&run, key)?.is_some() {
            return Ok(Inserted::Present);
        }
        while !self.place(&run, [key, value])? {
            self.grow()?;
        }
        Ok(Inserted::New)
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        let pm = self.space.access();
        let run = Run(&pm);
        let Some(slot) = self.find(&run, key)? else { return Ok(false) };
        if let Some(target) = run.free(slot.bucket)? {
            // Both tokens change in one store.
            run.write_pair(target, [key, value])?;
            let tokens = run.tokens(slot.bucket)? & !slot.token() | target.token();
            run.write_tokens(slot.bucket, tokens)?;
            return Ok(true);
        }
        let log = ROOT.plus(LINE_WORDS);
        pm.write_words(log, &[slot.key().byte(), key, value])?;
        pm.persist(Span::new(log, 3), sites::LOG)?;
        store_durably(&pm, slot.value(), value, sites::PAIR)?;
        store_durably(&pm, log, 0, sites::LOG)?;
        Ok(true)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        let pm = self.space.access();
        let run = Run(&pm);
        let Some(slot) = self.find(&run, key)? else { return Ok(false) };
        run.remove(slot)?;
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let pm = self.space.access();
        let Some(slot) = self.find(&Run(&pm), key)? else { return Ok(None) };
        Ok(Some(pm.load(slot.value())?))
    }

    fn slots(&self) -> u64 {
        (self.top.count + self.bottom.count) * SLOTS
    }
}
