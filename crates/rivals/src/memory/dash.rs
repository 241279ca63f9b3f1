//! Dash, its extendible form (Lu, Hao, Wang, Lo, VLDB 2020).
//!
//! Kept: segments of 64 buckets of 256 bytes with 14 slots and two stash buckets, one-byte
//! fingerprints, an insert into the emptier of two neighbours, displacement, the stash with its
//! notes in the heads, locks in the heads that every write takes on both buckets and readers only
//! look at, the order pair, then head, and the split.
//!
//! Left out: recovery, the version numbers of its lazy recovery in the directory, merging. Added:
//! updates in place under the lock. Longer values lie out of place (`objects.rs`), and the slot
//! holds their address.

mod head;
mod segment;

use everhash_pmem::{Access, Addr, Media, Region, Result, Span};

use super::Space;
use super::directory::{self, prefix};
use super::objects::Objects;
use super::space::{LINE_WORDS, store_durably};
use crate::{Inserted, Rival, hash};
use head::{Head, SLOTS};
use segment::{BUCKETS, DEPTH, NEXT, Place, STASHES, STATE, Segment, WORDS, Wanted, bits};

mod sites {
    everhash_pmem::sites! {
        /// The value of a pair.
        VALUE = "rivals/dash/value";
        /// An empty segment.
        EMPTY = "rivals/dash/empty";
        /// That a split begins or ends.
        STATE = "rivals/dash/state";
        /// The upper half of a split.
        UPPER = "rivals/dash/upper";
        /// The lower half.
        LOWER = "rivals/dash/lower";
    }
}

/// Bits of the directory at most: a segment whose pairs agree in more of them cannot be split.
const MOST_BITS: u64 = 40;

const SPLITTING: u64 = 1;

/// A table of Dash.
pub struct Dash<M: Media> {
    space: Space<M>,
    /// Longer values, if a value has more than one word, and how many.
    values: Option<(Objects, u64)>,
    ahead: bool,
}

impl<M: Media> Dash<M> {
    /// Makes an empty table of one segment, whose values have `value_words` words; all words of one
    /// are the same.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(region: Region<M>, value_words: u64) -> Result<Self> {
        let space = Space::new(region)?;
        let segment = new_segment(&space, 0, Addr::NULL)?;
        directory::format(&space, segment)?;
        let values = (value_words > 1).then(|| (Objects::new(value_words), value_words));
        Ok(Dash { space, values, ahead: false })
    }

    /// Returns the table that a crash left on a medium. What the heads note of the stash is made
    /// anew, as there; nothing may be written to it.
    ///
    /// # Errors
    /// As the medium.
    pub fn open(region: Region<M>, value_words: u64) -> Result<Self> {
        let space = Space::open(region);
        let pm = space.access();
        for at in directory::segments(&pm)? {
            let segment = Segment { pm: &pm, at, is_new: true, ahead: false };
            (0..BUCKETS).try_for_each(|bucket| segment.forget_all(bucket))?;
            for stash in 0..STASHES {
                let bucket = BUCKETS + stash;
                for slot in bits(segment.head(bucket)?.taken()) {
                    let key = pm.load(segment.key_at(Place { bucket, slot }))?;
                    segment.note(&Wanted::of(key, segment_hash(key)), stash)?;
                }
            }
        }
        drop(pm);
        let values = (value_words > 1).then(|| (Objects::new(value_words), value_words));
        Ok(Dash { space, values, ahead: false })
    }

    /// Asks for all lines at once that a search may look at, as a processor does that runs ahead of
    /// its loads; otherwise each is waited for in turn.
    #[must_use]
    pub fn reading_ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Writes a value out of place, if it is longer than a word. Returns what the slot holds.
    fn add_value(&mut self, pm: &Access<'_, M>, value: u64) -> Result<u64> {
        let Some((values, words)) = &mut self.values else { return Ok(value) };
        Ok(values.add(&self.space, pm, &vec![value; *words as usize])?.byte())
    }

    fn remove_value(&mut self, pm: &Access<'_, M>, held: u64) -> Result<()> {
        let Some((values, _)) = &mut self.values else { return Ok(()) };
        values.remove(pm, Addr::new(held))
    }

    /// Splits the segment of a hash. Returns false, and keeps all pairs, if the upper half finds no
    /// slots, or if there is none.
    fn split(&mut self, hash: u64) -> Result<bool> {
        let pm = self.space.access();
        let at = directory::segment_of(&pm, hash)?;
        let old = Segment { pm: &pm, at, is_new: false, ahead: false };
        (0..BUCKETS).try_for_each(|bucket| old.lock(bucket))?;
        let depth = pm.load(at.plus(DEPTH))?;
        store_durably(&pm, at.plus(STATE), SPLITTING, sites::STATE)?;
        let next = Addr::new(pm.load(at.plus(NEXT))?);
        let fresh = new_segment(&self.space, depth + 1, next)?;
        store_durably(&pm, at.plus(NEXT), fresh.byte(), sites::STATE)?;
        let moved = match depth < MOST_BITS {
            true => copy_upper(&old, fresh, prefix(hash, depth) * 2 + 1, depth + 1)?,
            false => None,
        };
        if let Some(moved) = &moved {
            pm.persist(Span::new(fresh, WORDS), sites::UPPER)?;
            for (bucket, slots) in moved.iter().enumerate() {
                old.clear(bucket as u64, *slots)?;
            }
            pm.persist(Span::new(at, WORDS), sites::LOWER)?;
            directory::enter(&self.space, hash, depth, fresh)?;
            pm.store(at.plus(DEPTH), depth + 1)?;
        }
        store_durably(&pm, at.plus(STATE), 0, sites::STATE)?;
        (0..BUCKETS).try_for_each(|bucket| old.unlock(bucket))?;
        Ok(moved.is_some())
    }
}

/// Copies the pairs of the upper half into a new segment. Returns which slots of each bucket they
/// lie in, or `None` if one found no slot there.
fn copy_upper<M: Media>(
    old: &Segment<'_, M>,
    fresh: Addr,
    upper: u64,
    depth: u64,
) -> Result<Option<Vec<u64>>> {
    let fresh = Segment { pm: old.pm, at: fresh, is_new: true, ahead: false };
    let mut moved = vec![0; (BUCKETS + STASHES) as usize];
    let mut noted = Vec::new();
    for bucket in 0..BUCKETS + STASHES {
        for slot in bits(old.head(bucket)?.taken()) {
            let mut pair = [0; 2];
            old.pm.read_words(old.key_at(Place { bucket, slot }), &mut pair)?;
            let hash = segment_hash(pair[0]);
            if prefix(hash, depth) != upper {
                continue;
            }
            let wanted = Wanted::of(pair[0], hash);
            if !fresh.place(&wanted, pair[1])? {
                return Ok(None);
            }
            moved[bucket as usize] |= 1 << slot;
            noted.extend(bucket.checked_sub(BUCKETS).map(|stash| (wanted, stash)));
        }
    }
    for (wanted, stash) in noted {
        old.forget(&wanted, stash)?;
    }
    Ok(Some(moved))
}

/// Makes an empty segment: its heads are cleared, and it is flushed as a whole.
fn new_segment<M: Media>(space: &Space<M>, depth: u64, next: Addr) -> Result<Addr> {
    let (span, pm) = (space.take(WORDS)?, space.access());
    let segment = Segment { pm: &pm, at: span.start, is_new: true, ahead: false };
    for bucket in 0..BUCKETS + STASHES {
        pm.write_words(segment.bucket(bucket), &[0; LINE_WORDS as usize])?;
    }
    pm.write_words(span.start.plus(DEPTH), &[depth, 0, next.byte()])?;
    pm.persist(span, sites::EMPTY)?;
    Ok(span.start)
}

fn segment_hash(key: u64) -> u64 {
    hash::both(key)[0]
}

impl<M: Media> Dash<M> {
    /// Does something with both buckets of a key locked, as every write does.
    fn locked<T>(
        &mut self,
        key: u64,
        act: impl FnOnce(&mut Self, &Segment<'_, M>, &Wanted) -> Result<T>,
    ) -> Result<T> {
        let region = self.space.region().clone();
        let (pm, hash) = (region.access(), segment_hash(key));
        let at = directory::segment_of(&pm, hash)?;
        let segment = Segment { pm: &pm, at, is_new: false, ahead: self.ahead };
        let wanted = Wanted::of(key, hash);
        segment.ask(&wanted);
        segment.lock(wanted.home)?;
        segment.lock(wanted.beside())?;
        let done = act(self, &segment, &wanted)?;
        segment.unlock(wanted.home)?;
        segment.unlock(wanted.beside())?;
        Ok(done)
    }
}

impl<M: Media> Rival for Dash<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        let mut held = None;
        loop {
            let inserted = self.locked(key, |table, segment, wanted| {
                if segment.find(wanted)?.is_some() {
                    return Ok(Some(Inserted::Present));
                }
                let value = match held {
                    Some(held) => held,
                    None => table.add_value(segment.pm, value)?,
                };
                held = Some(value);
                Ok(segment.place(wanted, value)?.then_some(Inserted::New))
            })?;
            if let Some(inserted) = inserted {
                return Ok(inserted);
            }
            if !self.split(segment_hash(key))? {
                return Ok(Inserted::Full);
            }
        }
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        self.locked(key, |table, segment, wanted| {
            let Some(place) = segment.find(wanted)? else { return Ok(false) };
            let (pm, at) = (segment.pm, segment.key_at(place).plus(1));
            let held = pm.load(at)?;
            let value = table.add_value(pm, value)?;
            store_durably(pm, at, value, sites::VALUE)?;
            table.remove_value(pm, held)?;
            Ok(true)
        })
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        self.locked(key, |table, segment, wanted| {
            let Some(place) = segment.find(wanted)? else { return Ok(false) };
            let held = segment.pm.load(segment.key_at(place).plus(1))?;
            segment.remove(wanted, place)?;
            table.remove_value(segment.pm, held)?;
            Ok(true)
        })
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let (pm, hash) = (self.space.access(), segment_hash(key));
        let at = directory::segment_of(&pm, hash)?;
        let segment = Segment { pm: &pm, at, is_new: false, ahead: self.ahead };
        let Some(place) = segment.find(&Wanted::of(key, hash))? else { return Ok(None) };
        let held = pm.load(segment.key_at(place).plus(1))?;
        let Some((_, words)) = &self.values else { return Ok(Some(held)) };
        let mut value = vec![0; *words as usize];
        pm.read_words(Addr::new(held), &mut value)?;
        Ok(value.first().copied())
    }

    fn slots(&self) -> u64 {
        let segments = directory::segments(&self.space.access()).expect("it is readable");
        segments.len() as u64 * (BUCKETS + STASHES) * u64::from(SLOTS)
    }
}

const _: () = assert!(size_of::<Head>() == 32, "a head leaves room for 14 pairs in 256 bytes");
