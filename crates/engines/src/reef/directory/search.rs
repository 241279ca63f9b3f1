//! Searching: from the home of a hash on, for the words that fit it.
//!
//! Most searches end at home, a line of memory, all of which is compared at once. Whether pairs lie
//! behind it that found no slot there, the words of the line say themselves: see [`BEHIND`].

use core::hint::cold_path;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Addr, AtOnce, AtomicWord, Primitives, Stamp};

use super::word::{BEHIND, Link, WANTED_SHIFT, behind_slot, home, is_wanted, place_of};
use super::{Found, SLOTS, Shard, Sight, damaged};
use crate::reef::objects::Look;

/// The bucket in which the search for a hash begins.
pub struct Home<'s, P: Primitives> {
    line: &'s [P::AtomicU64; SLOTS],
    /// What the words of the hash begin with there.
    wanted: u64,
}

/// A word that fits a hash, unless it was changed between two looks at its slot.
pub struct Fitting<'s, P: Primitives> {
    slot: &'s P::AtomicU64,
    word: u64,
}

/// The words of a leaf that fit a hash, from its home on.
struct Search<'s, P: Primitives> {
    shard: &'s Shard<P>,
    leaf: Link,
    /// What words begin with at home.
    wanted: u64,
    bucket: u64,
    /// How far that is from home.
    distance: u64,
    line: &'s [P::AtomicU64; SLOTS],
    /// The slots of the bucket that are still to be looked at.
    fitting: u32,
}

/// Returns which slots of a line have words that begin so.
#[inline(always)]
fn fitting<P: Primitives>(
    line: &[P::AtomicU64; SLOTS],
    wanted: u64,
    at_once: Option<AtOnce>,
) -> u32 {
    P::equal_high_bits_of_line::<WANTED_SHIFT>(line, wanted, at_once)
}

/// Returns the word of the first of the slots of a line; `None` if there are no slots.
#[inline(always)]
fn first<P: Primitives>(line: &[P::AtomicU64; SLOTS], slots: u32) -> Option<Fitting<'_, P>> {
    if slots == 0 {
        return None;
    }
    let slot = &line[slots.trailing_zeros() as usize % SLOTS];
    Some(Fitting { slot, word: slot.load(Ordering::Acquire) })
}

/// Returns whether pairs like the wanted one may lie behind a line that is their home.
#[inline(always)]
fn is_passed<P: Primitives>(line: &[P::AtomicU64; SLOTS], wanted: u64) -> bool {
    BEHIND.get(line[behind_slot(wanted)].load(Ordering::Relaxed)) == 1
}

impl<'s, P: Primitives> Home<'s, P> {
    /// Prefetches the line.
    #[inline(always)]
    pub fn prefetch(&self) {
        everhash_pmem::prefetch(self.line);
    }

    /// Returns the first word that fits: perhaps of another key, and seldom an empty slot's.
    #[inline(always)]
    pub fn first(&self, at_once: Option<AtOnce>) -> Option<Fitting<'s, P>> {
        first(self.line, fitting::<P>(self.line, self.wanted, at_once))
    }

    /// Returns whether the search may have to go on in another bucket.
    #[inline(always)]
    fn is_passed(&self) -> bool {
        is_passed::<P>(self.line, self.wanted)
    }
}

impl<P: Primitives> Fitting<'_, P> {
    /// Returns where it leads.
    #[inline(always)]
    pub fn place(&self) -> Addr {
        place_of(self.word)
    }

    /// Returns whether the directory still leads there: then what has been read there since is what
    /// it led to.
    #[inline(always)]
    pub fn is_unchanged(&self) -> bool {
        P::fence(Ordering::Acquire);
        self.slot.load(Ordering::Relaxed) == self.word
    }
}

impl<'s, P: Primitives> Iterator for Search<'s, P> {
    type Item = Fitting<'s, P>;

    #[inline(always)]
    fn next(&mut self) -> Option<Fitting<'s, P>> {
        // Ends: there are so many slots in a bucket, and so many buckets behind home.
        loop {
            while let Some(found) = first::<P>(self.line, self.fitting) {
                self.fitting &= self.fitting - 1;
                if is_wanted(found.word, self.wanted + self.distance) {
                    return Some(found);
                }
            }
            let goes_on = match self.distance {
                0 => is_passed::<P>(self.line, self.wanted),
                _ => self.line.iter().all(|slot| slot.load(Ordering::Relaxed) != 0),
            };
            if !goes_on {
                return None;
            }
            cold_path();
            (self.bucket, self.distance) = self.shard.next((self.bucket, self.distance))?;
            self.look();
        }
    }
}

impl<P: Primitives> Search<'_, P> {
    /// Compares the words of the present bucket.
    #[inline(always)]
    fn look(&mut self) {
        self.line = self.shard.bucket(self.leaf, self.bucket);
        self.fitting =
            fitting::<P>(self.line, self.wanted + self.distance, self.shard.arena.at_once);
    }
}

impl<P: Primitives> Shard<P> {
    /// Returns the home of a hash, if it is still in the leaf to which this link led.
    #[inline(always)]
    pub fn home_in(&self, leaf: Link, hash: u64) -> Option<Home<'_, P>> {
        let line = self.arena.bucket(leaf, home(hash, self.length))?;
        Some(Home { line, wanted: leaf.wanted(hash) })
    }

    /// Returns the home of a hash, and the sequence as of which it is that; `None` while words
    /// move. What cannot fail loudly costs a look-up least.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> Option<(Home<'_, P>, Stamp)> {
        let stamp = self.sequence.try_read()?;
        let links = self.links();
        let link = self.arena.word(links.0, links.index(hash))?;
        Some((self.home_in(Link(link.load(Ordering::Acquire)), hash)?, stamp))
    }

    /// Returns a place where a pair of this hash probably lies, if `leaf` still has it.
    #[inline(always)]
    pub fn candidate(&self, leaf: Link, hash: u64) -> Option<Addr> {
        let found = self.home_in(leaf, hash)?.first(self.arena.at_once)?;
        (found.word != 0).then(|| found.place())
    }

    /// Looks in the home of a hash, without a latch, where nearly every search ends: returns the
    /// first word that fits, or none if there is no pair of this hash. `None` means that
    /// [`Shard::find`] must answer: from another bucket, or beside a writer.
    ///
    /// What the word leads to needs no sequence: that it [`is_unchanged`](Fitting::is_unchanged)
    /// behind the look is enough.
    #[inline(always)]
    pub fn search_home(
        &self,
        hash: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<Fitting<'_, P>>> {
        let (home, stamp) = self.home(hash)?;
        match home.first(at_once) {
            None if home.is_passed() || !self.sequence.validate(stamp) => None,
            found => Some(found),
        }
    }

    #[inline(always)]
    fn search_from_home(&self, hash: u64) -> Search<'_, P> {
        let (leaf, bucket) = (self.leaf(hash), home(hash, self.length));
        let (wanted, line) = (leaf.wanted(hash), self.bucket(leaf, bucket));
        let fitting = fitting::<P>(line, wanted, self.arena.at_once);
        Search { shard: self, leaf, wanted, bucket, distance: 0, line, fitting }
    }

    /// Returns whether a key is present, by `look`ing at places until one has it, without a latch
    /// and whatever writers do meanwhile.
    ///
    /// # Errors
    /// Those of `look`; [`Error::Corrupt`](everhash_index::Error::Corrupt) if the directory leads
    /// to something that is no object.
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
        for found in self.search_from_home(hash) {
            let looked = look(found.place());
            if !found.is_unchanged() {
                return Ok(Sight::Changed);
            }
            match looked? {
                Look::Equal(_) => return Ok(Sight::Present),
                Look::Other => {}
                Look::Unsound => return Ok(Sight::Damaged(found.place())),
            }
        }
        Ok(Sight::Absent)
    }

    /// Looks for a key; the caller holds the latch.
    ///
    /// # Errors
    /// Those of `look`; [`Error::Corrupt`](everhash_index::Error::Corrupt) if the directory leads
    /// to something that is no object.
    #[inline(always)]
    pub fn locate(
        &self,
        hash: u64,
        mut look: impl FnMut(Addr) -> Result<Look>,
    ) -> Result<Option<Found<'_, P>>> {
        let mut search = self.search_from_home(hash);
        while let Some(found) = search.next() {
            let place = found.place();
            match look(place)? {
                Look::Equal(words) => {
                    let (leaf, bucket) = (search.leaf, search.bucket);
                    return Ok(Some(Found { slot: found.slot, leaf, bucket, place, words }));
                }
                Look::Other => {}
                Look::Unsound => return Err(damaged(place)),
            }
        }
        Ok(None)
    }

    /// Looks for the word that leads to a place; the caller holds the latch.
    pub fn locate_place(&self, hash: u64, place: Addr, words: u64) -> Option<Found<'_, P>> {
        let look = |at| Ok(if at == place { Look::Equal(words) } else { Look::Other });
        self.locate(hash, look).expect("nothing is read")
    }
}
