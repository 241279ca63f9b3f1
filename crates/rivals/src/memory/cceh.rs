//! CCEH: Cacheline-Conscious Extendible Hashing (Nam, Cha, Choi, Noh, Nam, FAST 2019).
//!
//! Kept: segments of 16 KiB whose buckets are lines of four pairs, linear probing over four lines,
//! the directory over leading bits, a key that marks free slots and is stored last, a split that
//! copies the upper half and leaves it behind as free by its hash (lazy deletion, in place), and
//! the lock word of each segment on the medium, which readers and writers change. Added: the look
//! for the key before an insert, as ElimDA's paper has it (4.1).
//!
//! Left out: recovery, and the form that copies both halves. With [`Probing::Pmdk`] it is the port
//! that the paper ran: eight lines and a second hash, without its cuckoo moves, which are off
//! there.
//!
//! ```text
//!   segment | 256 lines: key 0, value 0, .. key 3, value 3 | lock | depth |
//! ```

use everhash_pmem::{Access, Addr, Media, Region, Result, Span};

use super::Space;
use super::directory::{self, prefix};
use super::space::{add, store_durably};
use crate::{Inserted, Rival, hash};

mod sites {
    everhash_pmem::sites! {
        /// The lock of a segment.
        LOCK = "rivals/cceh/lock";
        /// A pair, its key last.
        PAIR = "rivals/cceh/pair";
        /// A new segment.
        SEGMENT = "rivals/cceh/segment";
        /// The depth that makes a split true.
        DEPTH = "rivals/cceh/depth";
    }
}

/// The key of a free slot. Source: the authors' port.
const NONE: u64 = u64::MAX;

/// Unit: pairs. Source: 3.1, a line.
const BUCKET_SLOTS: u64 = 4;

/// Unit: lines. Source: 4.1, segments of 16 KiB.
const BUCKETS: u64 = 256;

const SLOTS: u64 = BUCKETS * BUCKET_SLOTS;

/// Where the words behind the slots lie.
const LOCK: u64 = 2 * SLOTS;
const DEPTH: u64 = LOCK + 1;
const SEGMENT_WORDS: u64 = DEPTH + 1;

/// Bits of the directory at most: a segment whose pairs agree in more of them cannot be split.
const MOST_BITS: u64 = 40;

/// How far a pair may lie from the place of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probing {
    /// Four lines from one place on, as published (3.1).
    Published,
    /// Eight lines from each of two places on, as in the authors' port to PMDK.
    Pmdk,
}

impl Probing {
    /// Returns the slots of a key in the order in which they are tried.
    fn slots(self, key: u64) -> impl Iterator<Item = u64> {
        let (places, lines) = match self {
            Probing::Published => (1, 4),
            Probing::Pmdk => (2, 8),
        };
        hash::both(key).into_iter().take(places).flat_map(move |hash| {
            let first = hash % BUCKETS * BUCKET_SLOTS;
            (0..lines * BUCKET_SLOTS).map(move |step| (first + step) % SLOTS)
        })
    }
}

/// A table of CCEH.
pub struct Cceh<M: Media> {
    space: Space<M>,
    probing: Probing,
    ahead: bool,
}

/// Where a probe ended.
struct Probe {
    /// The slot of the key, and its value.
    found: Option<(Addr, u64)>,
    /// The first slot that can take it.
    free: Option<Addr>,
}

impl<M: Media> Cceh<M> {
    /// Makes an empty table of one segment.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(region: Region<M>, probing: Probing) -> Result<Self> {
        let space = Space::new(region)?;
        let segment = new_segment(&space, &empty(0))?;
        directory::format(&space, segment)?;
        Ok(Cceh { space, probing, ahead: false })
    }

    /// Returns the table that lies on a medium.
    pub fn open(region: Region<M>, probing: Probing) -> Self {
        Cceh { space: Space::open(region), probing, ahead: false }
    }

    /// Asks for all lines at once that a search may look at, as a processor does that runs ahead of
    /// its loads; otherwise each is waited for in turn.
    #[must_use]
    pub fn reading_ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Probes for a key. All slots are compared until it is found: a removal leaves a gap.
    fn probe(&self, pm: &Access<'_, M>, segment: Addr, key: u64) -> Result<Probe> {
        let depth = pm.load(segment.plus(DEPTH))?;
        let own = prefix(first_hash(key), depth);
        if self.ahead {
            let lines = self.probing.slots(key).filter(|slot| slot % BUCKET_SLOTS == 0);
            lines.for_each(|slot| pm.prefetch(segment.plus(2 * slot)));
        }
        let mut free = None;
        for slot in self.probing.slots(key) {
            let at = segment.plus(2 * slot);
            let there = pm.load(at)?;
            if there == key {
                return Ok(Probe { found: Some((at, pm.load(at.plus(1))?)), free });
            }
            if there == NONE || prefix(first_hash(there), depth) != own {
                free = free.or(Some(at));
            }
        }
        Ok(Probe { found: None, free })
    }

    /// Does something with the key's segment locked.
    fn locked<T>(
        &self,
        key: u64,
        act: impl FnOnce(&Access<'_, M>, Probe) -> Result<T>,
    ) -> Result<T> {
        assert!(key != NONE, "this key marks free slots");
        let pm = self.space.access();
        let segment = directory::segment_of(&pm, first_hash(key))?;
        add(&pm, segment.plus(LOCK), 1, sites::LOCK)?;
        let done = act(&pm, self.probe(&pm, segment, key)?)?;
        add(&pm, segment.plus(LOCK), 1_u64.wrapping_neg(), sites::LOCK)?;
        Ok(done)
    }

    /// Splits the segment of a hash. Returns false, and changes nothing, if the upper half finds no
    /// slots, or if there is none.
    fn split(&mut self, hash: u64) -> Result<bool> {
        let pm = self.space.access();
        let segment = directory::segment_of(&pm, hash)?;
        add(&pm, segment.plus(LOCK), 1_u64.wrapping_neg(), sites::LOCK)?;
        let depth = pm.load(segment.plus(DEPTH))?;
        let upper = prefix(hash, depth) * 2 + 1;
        let mut fresh = empty(depth + 1);
        let mut fits = depth < MOST_BITS;
        for slot in 0..SLOTS {
            let key = pm.load(segment.plus(2 * slot))?;
            if key != NONE && prefix(first_hash(key), depth + 1) == upper {
                let value = pm.load(segment.plus(2 * slot + 1))?;
                let free = self.probing.slots(key).find(|slot| fresh[2 * *slot as usize] == NONE);
                match free {
                    Some(free) => {
                        fresh[2 * free as usize..][..2].copy_from_slice(&[key, value]);
                    }
                    None => fits = false,
                }
            }
        }
        if fits {
            let fresh = new_segment(&self.space, &fresh)?;
            directory::enter(&self.space, hash, depth, fresh)?;
            store_durably(&pm, segment.plus(DEPTH), depth + 1, sites::DEPTH)?;
        }
        add(&pm, segment.plus(LOCK), 1, sites::LOCK)?;
        Ok(fits)
    }
}

fn first_hash(key: u64) -> u64 {
    hash::both(key)[0]
}

/// Returns the words of an empty segment.
fn empty(depth: u64) -> Vec<u64> {
    let mut words = [NONE, 0].repeat(SLOTS as usize);
    words.extend([0, depth]);
    words
}

/// Writes a segment and makes it durable.
fn new_segment<M: Media>(space: &Space<M>, words: &[u64]) -> Result<Addr> {
    let (span, pm) = (space.take(SEGMENT_WORDS)?, space.access());
    pm.write_words(span.start, words)?;
    pm.persist(span, sites::SEGMENT)?;
    Ok(span.start)
}

impl<M: Media> Rival for Cceh<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        loop {
            let inserted = self.locked(key, |pm, probe| {
                if probe.found.is_some() {
                    return Ok(Some(Inserted::Present));
                }
                let Some(at) = probe.free else { return Ok(None) };
                // A crash before the key's store leaves the slot free: the line keeps their order.
                pm.store(at.plus(1), value)?;
                pm.commit_word(at, key, sites::PAIR)?;
                pm.persist(Span::new(at, 2), sites::PAIR)?;
                Ok(Some(Inserted::New))
            })?;
            if let Some(inserted) = inserted {
                return Ok(inserted);
            }
            if !self.split(first_hash(key))? {
                return Ok(Inserted::Full);
            }
        }
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        self.locked(key, |pm, probe| {
            let Some((at, _)) = probe.found else { return Ok(false) };
            store_durably(pm, at.plus(1), value, sites::PAIR)?;
            Ok(true)
        })
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        self.locked(key, |pm, probe| {
            let Some((at, _)) = probe.found else { return Ok(false) };
            store_durably(pm, at, NONE, sites::PAIR)?;
            Ok(true)
        })
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        self.locked(key, |_, probe| Ok(probe.found.map(|(_, value)| value)))
    }

    fn slots(&self) -> u64 {
        let segments = directory::segments(&self.space.access()).expect("it is readable");
        segments.len() as u64 * SLOTS
    }
}
