//! A Dash segment: where a pair may lie, how it finds its slot, and how it leaves it.

use everhash_pmem::{Access, Addr, Media, Result, Span};

use super::head::{Head, SLOTS};
use crate::memory::space::{LINE_WORDS, exchange};

mod sites {
    everhash_pmem::sites! {
        /// The lock of a bucket.
        LOCK = "rivals/dash/lock";
        /// A pair, before its bit.
        PAIR = "rivals/dash/pair";
        /// The head of a bucket.
        HEAD = "rivals/dash/head";
        /// What a bucket notes of pairs in the stash.
        OVERFLOW = "rivals/dash/overflow";
    }
}

/// Unit: buckets. Source: Dash 4.1: 16 KiB.
pub const BUCKETS: u64 = 64;

/// Unit: buckets. Source: Dash 4.3, its evaluation has two.
pub const STASHES: u64 = 2;

/// Words of a bucket: a head and 14 pairs, the unit of the device.
const BUCKET_WORDS: u64 = 4 * LINE_WORDS;

/// Words of the head before the pairs.
const HEAD_WORDS: u64 = 4;

/// What lies behind the buckets: depth, whether it is being split, and the segment that it was
/// split into.
pub const DEPTH: u64 = (BUCKETS + STASHES) * BUCKET_WORDS;
pub const STATE: u64 = DEPTH + 1;
pub const NEXT: u64 = DEPTH + 2;

/// Words of a segment.
pub const WORDS: u64 = DEPTH + LINE_WORDS;

/// A segment that an operation works on.
pub struct Segment<'a, M: Media> {
    pub pm: &'a Access<'a, M>,
    pub at: Addr,
    /// Whether nothing is locked or flushed: the segment is new and flushed as a whole.
    pub is_new: bool,
    /// Whether both heads are asked for at once.
    pub ahead: bool,
}

/// What is looked for: a key, its fingerprint and its home bucket.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub key: u64,
    pub print: u8,
    pub home: u64,
}

impl Wanted {
    /// Leading bits of the hash choose the segment, the last eight are the fingerprint, and those
    /// above it choose the bucket.
    pub const fn of(key: u64, hash: u64) -> Wanted {
        Wanted { key, print: hash as u8, home: hash >> 8 & (BUCKETS - 1) }
    }

    /// Returns the bucket beside the home.
    pub const fn beside(&self) -> u64 {
        (self.home + 1) % BUCKETS
    }
}

/// Where a pair lies.
#[derive(Clone, Copy)]
pub struct Place {
    pub bucket: u64,
    pub slot: u32,
}

impl<M: Media> Segment<'_, M> {
    pub fn bucket(&self, index: u64) -> Addr {
        self.at.plus(index * BUCKET_WORDS)
    }

    pub fn head(&self, index: u64) -> Result<Head> {
        Head::read(self.pm, self.bucket(index))
    }

    /// Returns where a pair's key lies; the value is the next word.
    pub fn key_at(&self, place: Place) -> Addr {
        self.bucket(place.bucket).plus(HEAD_WORDS + 2 * u64::from(place.slot))
    }

    /// Takes the lock of a bucket, unless the segment is new.
    pub fn lock(&self, bucket: u64) -> Result<()> {
        if self.is_new {
            return Ok(());
        }
        let (pm, at) = (self.pm, self.bucket(bucket));
        let word = pm.load(at)?;
        exchange(pm, at, word, Head::locked(word), sites::LOCK)
    }

    /// Releases the lock of a bucket, if it is still taken. Nobody flushes that.
    pub fn unlock(&self, bucket: u64) -> Result<()> {
        let before = self.head(bucket)?;
        let mut after = before;
        after.release();
        after.write(self.pm, self.bucket(bucket), &before, sites::LOCK)
    }

    /// Asks for both heads of a key, if reads are ahead.
    pub fn ask(&self, wanted: &Wanted) {
        if self.ahead {
            self.pm.prefetch(self.bucket(wanted.home));
            self.pm.prefetch(self.bucket(wanted.beside()));
        }
    }

    /// Looks for a key: in its home, in the bucket beside, then where the heads say in the stash.
    pub fn find(&self, wanted: &Wanted) -> Result<Option<Place>> {
        self.ask(wanted);
        // Both heads are read first, for their versions (4.4).
        let (home, beside) = (self.head(wanted.home)?, self.head(wanted.beside())?);
        for (bucket, head, slots) in
            [(wanted.home, home, home.own()), (wanted.beside(), beside, beside.guests())]
        {
            let found = self.find_among(bucket, &head, slots, wanted)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if !home.may_overflow() {
            return Ok(None);
        }
        let noted = home.overflows(wanted.print, false).chain(beside.overflows(wanted.print, true));
        let mut stashes: Vec<u64> = noted.map(|(_, stash)| stash).collect();
        if home.uncounted() > 0 {
            stashes = (0..STASHES).collect();
        }
        for stash in stashes {
            let head = self.head(BUCKETS + stash)?;
            let found = self.find_among(BUCKETS + stash, &head, head.taken(), wanted)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find_among(
        &self,
        bucket: u64,
        head: &Head,
        slots: u64,
        wanted: &Wanted,
    ) -> Result<Option<Place>> {
        let slots = slots & head.matching(wanted.print);
        for slot in bits(slots) {
            let place = Place { bucket, slot };
            if self.pm.load(self.key_at(place))? == wanted.key {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Gives an absent pair a slot: in the emptier of its buckets, after a pair has moved, or in
    /// the stash. Returns false if there is none, and the segment must split.
    pub fn place(&self, wanted: &Wanted, value: u64) -> Result<bool> {
        let (home, beside) = (self.head(wanted.home)?, self.head(wanted.beside())?);
        let pair = [wanted.key, value];
        if !home.is_full() || !beside.is_full() {
            let is_guest = home.count() > beside.count();
            let bucket = if is_guest { wanted.beside() } else { wanted.home };
            self.put(bucket, None, pair, wanted.print, is_guest)?;
            return Ok(true);
        }
        // A pair of the bucket beside can go on to the next one, and one that is a guest in the
        // home can go back to the bucket before (4.2).
        let (next, before) = ((wanted.home + 2) % BUCKETS, (wanted.home + BUCKETS - 1) % BUCKETS);
        Ok(self.displace((wanted.beside(), beside.own()), next, wanted, pair)?
            || self.displace((wanted.home, home.guests()), before, wanted, pair)?
            || self.put_in_stash(wanted, pair)?)
    }

    /// Moves one of some pairs of a bucket to another bucket, and takes its slot.
    fn displace(
        &self,
        (bucket, movable): (u64, u64),
        target: u64,
        wanted: &Wanted,
        pair: [u64; 2],
    ) -> Result<bool> {
        self.lock(target)?;
        let Some(slot) = bits(movable).next() else {
            self.unlock(target)?;
            return Ok(false);
        };
        if self.head(target)?.is_full() {
            self.unlock(target)?;
            return Ok(false);
        }
        let is_beside = bucket == wanted.beside();
        let (place, head) = (Place { bucket, slot }, self.head(bucket)?);
        let mut moved = [0; 2];
        self.pm.read_words(self.key_at(place), &mut moved)?;
        self.put(target, None, moved, head.print(slot), is_beside)?;
        self.put(bucket, Some(slot), pair, wanted.print, is_beside)?;
        Ok(true)
    }

    /// Writes a pair, then the head that makes it true. A crash leaves it there or not; of a moved
    /// pair it can leave both copies.
    fn put(
        &self,
        bucket: u64,
        replaced: Option<u32>,
        pair: [u64; 2],
        print: u8,
        is_guest: bool,
    ) -> Result<()> {
        let before = self.head(bucket)?;
        let slot = replaced.unwrap_or_else(|| before.free_slot());
        let at = self.key_at(Place { bucket, slot });
        self.pm.write_words(at, &pair)?;
        if !self.is_new {
            self.pm.persist(Span::new(at, 2), sites::PAIR)?;
        }
        let mut after = before;
        after.clear(1 << slot);
        after.fill(slot, print, is_guest);
        self.write_head(bucket, &before, after)
    }

    /// Writes a head and releases its lock; both go to the medium together.
    fn write_head(&self, bucket: u64, before: &Head, mut after: Head) -> Result<()> {
        after.release();
        after.write(self.pm, self.bucket(bucket), before, sites::HEAD)?;
        if self.is_new {
            return Ok(());
        }
        self.pm.persist(Span::new(self.bucket(bucket), HEAD_WORDS), sites::HEAD)
    }

    fn put_in_stash(&self, wanted: &Wanted, pair: [u64; 2]) -> Result<bool> {
        for step in 0..STASHES {
            let stash = (wanted.home + step) % STASHES;
            if self.head(BUCKETS + stash)?.is_full() {
                continue;
            }
            self.lock(BUCKETS + stash)?;
            self.put(BUCKETS + stash, None, pair, wanted.print, false)?;
            self.note(wanted, stash)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Notes in the heads that a pair lies in the stash. This is not flushed: it can be made anew.
    pub fn note(&self, wanted: &Wanted, stash: u64) -> Result<()> {
        let (home, beside) = (self.head(wanted.home)?, self.head(wanted.beside())?);
        let (mut new_home, mut new_beside) = (home, beside);
        new_home.set_may_overflow();
        if !new_home.note_overflow(wanted.print, stash, false)
            && !new_beside.note_overflow(wanted.print, stash, true)
        {
            new_home.set_uncounted(home.uncounted() + 1);
        }
        new_home.write(self.pm, self.bucket(wanted.home), &home, sites::OVERFLOW)?;
        new_beside.write(self.pm, self.bucket(wanted.beside()), &beside, sites::OVERFLOW)
    }

    /// Takes such a note back. That any pair overflowed stays noted.
    pub fn forget(&self, wanted: &Wanted, stash: u64) -> Result<()> {
        let (home, beside) = (self.head(wanted.home)?, self.head(wanted.beside())?);
        let (mut new_home, mut new_beside) = (home, beside);
        if !new_home.forget_overflow(wanted.print, stash, false)
            && !new_beside.forget_overflow(wanted.print, stash, true)
        {
            new_home.set_uncounted(home.uncounted() - 1);
        }
        new_home.write(self.pm, self.bucket(wanted.home), &home, sites::OVERFLOW)?;
        new_beside.write(self.pm, self.bucket(wanted.beside()), &beside, sites::OVERFLOW)
    }

    /// Forgets what a head notes of the stash, and who held its lock.
    pub fn forget_all(&self, bucket: u64) -> Result<()> {
        let before = self.head(bucket)?;
        let mut after = before;
        after.release();
        after.forget_all();
        after.write(self.pm, self.bucket(bucket), &before, sites::OVERFLOW)
    }

    /// Ends a pair. A crash leaves it there or not.
    pub fn remove(&self, wanted: &Wanted, place: Place) -> Result<()> {
        let before = self.head(place.bucket)?;
        let mut after = before;
        after.clear(1 << place.slot);
        self.write_head(place.bucket, &before, after)?;
        match place.bucket.checked_sub(BUCKETS) {
            Some(stash) => self.forget(wanted, stash),
            None => Ok(()),
        }
    }

    /// Ends many pairs of a bucket at once. The caller makes it durable.
    pub fn clear(&self, bucket: u64, slots: u64) -> Result<()> {
        let before = self.head(bucket)?;
        let mut after = before;
        after.clear(slots);
        after.write(self.pm, self.bucket(bucket), &before, sites::HEAD)
    }
}

/// Returns the slots of a mask.
pub fn bits(slots: u64) -> impl Iterator<Item = u32> {
    (0..SLOTS).filter(move |slot| slots >> slot & 1 == 1)
}
