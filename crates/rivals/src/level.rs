//! Level Hashing (Zuo, Hua, Wu, OSDI 2018): two levels, of which two buckets above share one below,
//! at most one move for an insert, and growth that turns the top level into the bottom one.

use everhash_pmem::{Media, Region, Result};

use crate::buckets::{ALL_TOKENS, Bucket, Buckets, FIRST_PAGE, SLOTS, Slot};
use crate::pages::{Order, Pages};
use crate::{Inserted, Rival, hash};

/// A table of Level Hashing.
pub struct Level<M: Media> {
    pages: Pages<M>,
    top: Buckets,
    bottom: Buckets,
    /// Whether each level is a stream of its own (LevelS in Tiered Hashing, 4.1).
    streams: bool,
    /// Whether it has grown: only then pairs go back from the bottom level to the top one, which
    /// is emptier.
    has_grown: bool,
}

impl<M: Media> Level<M> {
    /// Makes an empty table with `bottom_pages` pages below and twice as many above.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(
        region: Region<M>,
        bottom_pages: u64,
        order: Order,
        streams: bool,
    ) -> Result<Self> {
        let mut table = Self::open(region, bottom_pages, order);
        table.streams = streams;
        table.pages.format(&table.bottom)?;
        table.pages.format(&table.top)?;
        table.announce();
        Ok(table)
    }

    /// Returns the table that lies on a medium and has not grown.
    pub fn open(region: Region<M>, bottom_pages: u64, order: Order) -> Self {
        Level {
            pages: Pages::new(region, order),
            bottom: Buckets::new(FIRST_PAGE, bottom_pages),
            top: Buckets::new(FIRST_PAGE + bottom_pages, 2 * bottom_pages),
            streams: false,
            has_grown: false,
        }
    }

    fn announce(&self) {
        if self.streams {
            self.pages.stream(&self.top, 0);
            self.pages.stream(&self.bottom, 1);
        }
    }

    /// Grows: a level twice as large comes above, takes the pairs of the bottom level, and that one
    /// is dropped. Returns false, and changes nothing, if one of them finds no slot.
    ///
    /// # Errors
    /// As the medium.
    pub fn grow(&mut self) -> Result<bool> {
        // The space of the dropped level stays unused: a level is always behind those before it.
        let fresh = Buckets::new(self.top.end_page(), 2 * self.top.pages());
        self.pages.format(&fresh)?;
        for bucket in self.bottom.all() {
            for slot in bucket.slots(self.pages.tokens(bucket)? & ALL_TOKENS) {
                let pair = self.pages.pair(slot)?;
                if !self.insert_into(&fresh, pair)? && !self.displace_in(&fresh, pair)? {
                    return Ok(false);
                }
            }
        }
        (self.bottom, self.top, self.has_grown) = (self.top, fresh, true);
        self.announce();
        Ok(true)
    }

    /// Returns the two buckets of a key in the top level, and below them those of the bottom one.
    fn homes(&self, key: u64) -> [Bucket; 4] {
        let [a, b] = homes_in(&self.top, key);
        let [c, d] = homes_in(&self.bottom, key);
        [a, b, c, d]
    }

    fn insert_into(&mut self, level: &Buckets, pair: (u64, u64)) -> Result<bool> {
        let [first, second] = homes_in(level, pair.0);
        let pairs = |bucket| Ok((self.pages.tokens(bucket)? & ALL_TOKENS).count_ones());
        let emptier = if pairs(second)? < pairs(first)? { second } else { first };
        let Some(slot) = self.pages.free(emptier)? else { return Ok(false) };
        self.pages.insert(slot, pair)?;
        Ok(true)
    }

    /// Moves one pair to its other bucket of the level, to make room.
    fn displace_in(&mut self, level: &Buckets, pair: (u64, u64)) -> Result<bool> {
        for bucket in homes_in(level, pair.0) {
            for slot in bucket.slots(ALL_TOKENS) {
                let [first, second] = homes_in(level, self.pages.pair(slot)?.0);
                let other = if bucket == first { second } else { first };
                if let Some(target) = self.pages.free(other)? {
                    self.exchange(slot, target, pair)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Moves one pair of the bottom level to the top one, to make room.
    fn lift(&mut self, pair: (u64, u64)) -> Result<bool> {
        for bucket in homes_in(&self.bottom, pair.0) {
            for slot in bucket.slots(ALL_TOKENS) {
                let above = homes_in(&self.top, self.pages.pair(slot)?.0);
                for other in above {
                    if let Some(target) = self.pages.free(other)? {
                        self.exchange(slot, target, pair)?;
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn exchange(&mut self, slot: Slot, target: Slot, pair: (u64, u64)) -> Result<()> {
        self.pages.shift(slot, target)?;
        self.pages.insert(slot, pair)
    }
}

/// The leading bits choose, so that two neighbours share the bucket below them.
fn homes_in(level: &Buckets, key: u64) -> [Bucket; 2] {
    hash::both(key).map(|hash| level.at(level.of_hash(hash)))
}

impl<M: Media> Rival for Level<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        if self.pages.find(&self.homes(key), key)?.is_some() {
            return Ok(Inserted::Present);
        }
        let (top, bottom, pair) = (self.top, self.bottom, (key, value));
        let is_placed = self.insert_into(&top, pair)?
            || self.insert_into(&bottom, pair)?
            || self.displace_in(&top, pair)?
            || self.displace_in(&bottom, pair)?
            || self.has_grown && self.lift(pair)?;
        Ok(if is_placed { Inserted::New } else { Inserted::Full })
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        let Some((slot, _)) = self.pages.find(&self.homes(key), key)? else { return Ok(false) };
        // A free slot of the bucket saves the log (3.3 there); in place one flush is enough anyway.
        let spare = match self.pages.order() {
            Order::OneFlush => None,
            Order::Logged | Order::TokenLast => self.pages.free(slot.bucket)?,
        };
        match spare {
            Some(target) => self.pages.renew(slot, target, (key, value))?,
            None => self.pages.update(slot, value)?,
        }
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
        (self.top.count() + self.bottom.count()) * SLOTS
    }
}
