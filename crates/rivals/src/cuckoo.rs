//! Cuckoo hashing (Pagh and Rodler, 2004) with buckets of four slots, as Tiered Hashing has it in
//! 2.3: a pair that finds both buckets full pushes one into its other bucket, and that one another.

use everhash_pmem::{Media, Region, Result};

use crate::buckets::{ALL_TOKENS, Bucket, Buckets, FIRST_PAGE, SLOTS, Slot};
use crate::pages::{Order, Pages};
use crate::{Inserted, Rival, hash};

/// Pairs that move for one insert at most; then the table would grow. Source: ours, the paper says
/// "a threshold"; it is reached beyond a load of 95 % only.
const MOST_MOVES: usize = 500;

/// Walks that are tried before an insert gives up: a walk ends early when it meets itself.
const WALKS: u32 = 4;

/// A table of cuckoo hashing.
pub struct Cuckoo<M: Media> {
    pages: Pages<M>,
    buckets: Buckets,
    /// Pairs chosen so far: the state of the random choice.
    chosen: u64,
}

impl<M: Media> Cuckoo<M> {
    /// Makes an empty table of `pages` pages.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(region: Region<M>, pages: u64, order: Order) -> Result<Self> {
        let table = Self::open(region, pages, order);
        table.pages.format(&table.buckets)?;
        Ok(table)
    }

    /// Returns the table of `pages` pages that lies on a medium.
    pub fn open(region: Region<M>, pages: u64, order: Order) -> Self {
        let buckets = Buckets::new(FIRST_PAGE, pages);
        Cuckoo { pages: Pages::new(region, order), buckets, chosen: 0 }
    }

    fn homes(&self, key: u64) -> [Bucket; 2] {
        hash::both(key).map(|hash| self.buckets.at(self.buckets.of_hash(hash)))
    }

    /// Returns the bucket of a key beside `bucket`.
    fn other_home(&self, key: u64, bucket: Bucket) -> Bucket {
        let [first, second] = self.homes(key);
        if bucket == first { second } else { first }
    }

    /// Walks from a full bucket to one with a free slot. Returns the slots whose pairs move, each
    /// to the next one, and the free slot at the end.
    fn walk(&mut self, start: Bucket) -> Result<Option<Vec<Slot>>> {
        let (mut bucket, mut path) = (start, Vec::new());
        while path.len() < MOST_MOVES {
            // A slot can give its pair away once.
            let choice: Vec<Slot> =
                bucket.slots(ALL_TOKENS).filter(|slot| !path.contains(slot)).collect();
            if choice.is_empty() {
                return Ok(None);
            }
            self.chosen += 1;
            let slot = choice[(hash::mix(self.chosen) % choice.len() as u64) as usize];
            path.push(slot);
            let (key, _) = self.pages.pair(slot)?;
            bucket = self.other_home(key, bucket);
            if let Some(free) = self.pages.free(bucket)? {
                path.push(free);
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

impl<M: Media> Rival for Cuckoo<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        let homes = self.homes(key);
        if self.pages.find(&homes, key)?.is_some() {
            return Ok(Inserted::Present);
        }
        for bucket in homes {
            if let Some(slot) = self.pages.free(bucket)? {
                self.pages.insert(slot, (key, value))?;
                return Ok(Inserted::New);
            }
        }
        for attempt in 0..WALKS {
            let start = homes[(attempt % 2) as usize];
            let Some(path) = self.walk(start)? else { continue };
            // From the free end on, so that no pair is ever without a slot.
            for pair in path.windows(2).rev() {
                self.pages.shift(pair[0], pair[1])?;
            }
            self.pages.insert(path[0], (key, value))?;
            return Ok(Inserted::New);
        }
        Ok(Inserted::Full)
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        let Some((slot, _)) = self.pages.find(&self.homes(key), key)? else { return Ok(false) };
        self.pages.update(slot, value)?;
        Ok(true)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        let Some((slot, _)) = self.pages.find(&self.homes(key), key)? else { return Ok(false) };
        self.pages.remove(slot, 0)?;
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.pages.find(&self.homes(key), key)?.map(|(_, value)| value))
    }

    fn slots(&self) -> u64 {
        self.buckets.count() * SLOTS
    }
}
