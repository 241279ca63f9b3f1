//! Linear probing: a pair lies in the first free slot from that of its hash on (Tiered Hashing 4.2:
//! "a long path to find a free slot").

use everhash_pmem::{Media, Region, Result};

use crate::buckets::{ALL_TOKENS, Bucket, Buckets, FIRST_PAGE, SLOTS, Slot};
use crate::pages::{Order, Pages};
use crate::{Inserted, Rival, hash};

/// Where the marks of removed pairs begin, one bit for each slot: a search goes on behind them.
const REMOVED_SHIFT: u64 = SLOTS;

/// A table of linear probing.
pub struct Linear<M: Media> {
    pages: Pages<M>,
    buckets: Buckets,
}

/// Where a probe ended.
struct Probe {
    /// The key's slot and value.
    found: Option<(Slot, u64)>,
    /// The first slot that can take the key.
    free: Option<Slot>,
}

impl<M: Media> Linear<M> {
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
        Linear { pages: Pages::new(region, order), buckets: Buckets::new(FIRST_PAGE, pages) }
    }

    /// Looks at slot after slot until the key or a slot that was never used.
    fn probe(&self, key: u64) -> Result<Probe> {
        let [place, within] = hash::both(key);
        let count = self.buckets.count();
        let (first, mut skipped) = (self.buckets.of_hash(place), within % SLOTS);
        let mut free = None;
        // The first bucket is met again at the end, for the slots before the first one.
        for step in 0..=count {
            let bucket = self.buckets.at((first + step) % count);
            let tokens = self.pages.tokens(bucket)?;
            let wanted = ALL_TOKENS << skipped & ALL_TOKENS;
            skipped = 0;
            let unused = !(tokens | tokens >> REMOVED_SHIFT) & wanted;
            // Slots before the first one that was never used.
            let reached = (unused & unused.wrapping_neg()).wrapping_sub(1) & wanted;
            let found = self.pages.find_among(bucket, tokens & reached, key)?;
            free = free.or_else(|| first_free(bucket, tokens, wanted));
            if found.is_some() || unused != 0 {
                return Ok(Probe { found, free });
            }
        }
        Ok(Probe { found: None, free })
    }
}

/// Returns the first of the wanted slots without a pair.
fn first_free(bucket: Bucket, tokens: u64, wanted: u64) -> Option<Slot> {
    bucket.slots(!tokens & wanted).next()
}

impl<M: Media> Rival for Linear<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        match self.probe(key)? {
            Probe { found: Some(_), .. } => Ok(Inserted::Present),
            Probe { free: None, .. } => Ok(Inserted::Full),
            Probe { free: Some(slot), .. } => {
                self.pages.insert(slot, (key, value))?;
                Ok(Inserted::New)
            }
        }
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        let Some((slot, _)) = self.probe(key)?.found else { return Ok(false) };
        self.pages.update(slot, value)?;
        Ok(true)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        let Some((slot, _)) = self.probe(key)?.found else { return Ok(false) };
        self.pages.remove(slot, slot.token() << REMOVED_SHIFT)?;
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.probe(key)?.found.map(|(_, value)| value))
    }

    fn slots(&self) -> u64 {
        self.buckets.count() * SLOTS
    }
}
