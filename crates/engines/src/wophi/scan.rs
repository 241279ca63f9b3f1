//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.

use std::collections::BTreeSet;

use everhash_index::{Cursor, Result};
use everhash_pmem::{Access, Addr, Bits, Lock, Media, RecordWord};

use super::bucket::{Bucket, BucketCodec};
use super::failure_atomic_writes::sites;
use super::layout::{Kind, Token};
use super::state::Wophi;
use crate::common::damage::or_damage;
use crate::common::scanned::{Part, ends_before};

/// Chains that one call of a scan visits at most.
///
/// Unit: chains. Source: ours; about a hundred microseconds, so that a caller can stop in time.
const CHAINS_PER_SCAN: u64 = 256;

/// Pairs after which a call of a scan ends with the present chain.
///
/// Unit: pairs. Source: ours, as [`CHAINS_PER_SCAN`].
const PAIRS_PER_SCAN: usize = 64;

/// Where a scan goes on: the first bucket of a class, which is a bucket of a level and all that it
/// has split into since.
const CLASS: Bits = Bits::new(0, 58);
/// The level at which the scan began, and one; 0 of a scan that begins.
const LEVEL: Bits = Bits::new(58, 6);

/// What a clear finds in some chains.
struct Found<'a, M: Media, C: BucketCodec> {
    /// Buckets with pairs, in chains that are whole.
    filled: Vec<Bucket<'a, M, C>>,
    /// Their pairs.
    pairs: i64,
    records: Vec<RecordWord>,
    /// Chained buckets of these chains.
    chained: u64,
    /// Main buckets whose chains are damaged, by their index.
    damaged: Vec<Bucket<'a, M, C>>,
}

/// Returns the cursor of a scan that began at a level.
fn cursor_at(class: u64, level: u32) -> Cursor {
    Cursor(LEVEL.set(CLASS.set(0, class), u64::from(level) + 1))
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Visits some pairs from `cursor` on.
    ///
    /// A bucket and all that it has split into since the scan began are read at one moment, so that
    /// a pair which a growth moves meanwhile is visited once. No lock is held while `visit` runs.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    pub fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let (first, level) = self.place(cursor);
        let mut class = first;
        let mut visited = 0;
        for _ in 0..CHAINS_PER_SCAN {
            if class >= self.main.count(level) {
                return Ok(None);
            }
            let copied = self.copy_class(class, self.main.count(level));
            if class != first && ends_before(&copied, |part| part) {
                break;
            }
            visited += copied?.visit(visit)?;
            class += 1;
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(cursor_at(class, level)))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one class.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Option<Cursor> {
        let (class, level) = self.place(cursor);
        (class + 1 < self.main.count(level)).then(|| cursor_at(class + 1, level))
    }

    /// Returns the class at which a cursor stands, and the level at which its scan began.
    fn place(&self, cursor: Cursor) -> (u64, u32) {
        // That of another table may name a level that there is not.
        let present = self.main.view().level;
        let level =
            (LEVEL.get(cursor.0) as u32).checked_sub(1).map_or(present, |it| it.min(present));
        (CLASS.get(cursor.0), level)
    }

    /// Copies the pairs of the buckets whose index is `class` modulo `classes`, as they were at one
    /// moment: all are of one stripe.
    fn copy_class(&self, class: u64, classes: u64) -> Result<Part> {
        let stripe = self.stripes.of(class);
        let mut attempt = 0;
        loop {
            let stamp = stripe.stamp(&mut attempt)?;
            let part = self.try_copy_class(class, classes);
            if stripe.accepts(stamp) {
                return part;
            }
        }
    }

    fn try_copy_class(&self, class: u64, classes: u64) -> Result<Part> {
        let mut part = Part::default();
        for index in (class..self.main.reachable()).step_by(classes as usize) {
            match self.try_copy_chain(index) {
                Ok(chain) => part.append(chain),
                // The other chains are there all the same.
                Err(error) => part.add(|_, _| Err(error))?,
            }
        }
        Ok(part)
    }

    fn try_copy_chain(&self, index: u64) -> Result<Part> {
        let pm = self.pool.access();
        let mut part = Part::default();
        let mut steps = 0;
        let mut next = self.main.visit(&pm, index)?;
        while let Some(bucket) = next {
            for slot in bucket.token.live_slots() {
                part.add(|key, value| C::read(&pm, bucket.pair(&pm, slot)?, key, value))?;
            }
            next = self.follow(&pm, &bucket, index, &mut steps)?;
        }
        Ok(part)
    }

    /// Removes every pair. A crash leaves any of them.
    ///
    /// Damage keeps nothing: a damaged chain goes with the rest, and its main bucket is whole and
    /// empty then. What it led to, and the room of a record to which a damaged slot led, stays in
    /// use until the next open, which finds out what is free.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`], and errors of the medium;
    /// [`everhash_index::Error::Corrupt`] of damage that comes while the pairs are counted anew.
    pub fn clear(&self) -> Result<()> {
        self.pool.check_writable()?;
        // A bucket and all that it has split into by then are cleared in one step: a key that is
        // added behind the sweep, and moved up by a growth, must not be removed again.
        let classes = self.main.count(self.main.view().level);
        let mut is_counted = true;
        for class in 0..classes {
            is_counted &= self.clear_class(class, classes)?;
        }
        if is_counted { Ok(()) } else { self.count_anew() }
    }

    /// Removes the pairs of the buckets whose index is `class` modulo `classes`. Returns whether it
    /// is known how many there were: if not, all pairs have to be counted again.
    fn clear_class(&self, class: u64, classes: u64) -> Result<bool> {
        let pm = self.pool.access();
        let mut held = self.stripes.of(class).hold(&pm)?;
        let found = self.find_all(&pm, class, classes)?;
        if found.pairs == 0 && found.damaged.is_empty() {
            return Ok(true);
        }
        let change = held.change()?;
        cut_off(&pm, &found.damaged)?;
        for bucket in &found.filled {
            bucket.commit_token(bucket.token.cleared().bumped(), sites::CLEAR);
            bucket.flush(&pm, sites::CLEAR);
        }
        pm.fence(sites::CLEAR)?;
        change.end();
        found.records.into_iter().for_each(|record| self.heap.give(record.addr, record.class));
        self.emptied.add(found.chained);
        let correction = held.count(-found.pairs, 1);
        drop(held);
        self.estimated(&pm, correction);
        Ok(found.damaged.is_empty())
    }

    /// Finds what is in the chains of the buckets whose index is `class` modulo `classes`, whose
    /// stripe is locked.
    fn find_all<'a>(
        &self,
        pm: &'a Access<'_, M>,
        class: u64,
        classes: u64,
    ) -> Result<Found<'a, M, C>> {
        let (filled, records, damaged) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = Found { filled, pairs: 0, records, chained: 0, damaged };
        // A bucket that does not say whether it is split is written as if it were, both halves of
        // it: a growth skips it then if it has not come to it yet. Under the lock none is split.
        let view = self.main.view();
        let depth = view.level + u32::from(view.growing);
        for index in (class..self.main.count(depth)).step_by(classes as usize) {
            let main = match or_damage(self.main.visit(pm, index).map(Some), &mut None)? {
                Some(Some(main)) => main,
                Some(None) => continue,
                None => {
                    let (at, token) = (self.main.at(index), Token::empty(depth.into()));
                    found.damaged.push(Bucket::unread(pm, at, Kind::Main, token)?);
                    continue;
                }
            };
            match or_damage(self.chain(pm, main, index), &mut None)? {
                // A chain has a bucket.
                chain if chain.is_empty() => found.damaged.push(main),
                chain => found.add(pm, chain)?,
            }
        }
        Ok(found)
    }

    /// Returns the buckets of the chain of main bucket `index`.
    fn chain<'a>(
        &self,
        pm: &'a Access<'_, M>,
        main: Bucket<'a, M, C>,
        index: u64,
    ) -> Result<Vec<Bucket<'a, M, C>>> {
        let (mut chain, mut reached) = (vec![main], BTreeSet::new());
        let mut last = main;
        // Their records are given back, each once.
        while let Some(next) = self.follow_once(pm, &last, index, &mut reached)? {
            chain.push(next);
            last = next;
        }
        Ok(chain)
    }

    /// Counts the pairs after a clear that could not count those of damaged chains.
    ///
    /// The counters are wrong by the same number whatever is written meanwhile: a write changes its
    /// stripe's counter and its stripe's pairs alike, under the lock, and no pair moves from one
    /// stripe to another.
    fn count_anew(&self) -> Result<()> {
        let pm = self.pool.access();
        // One count at a time: two would both correct the same. Upkeep has its turn afterwards.
        let _alone = self.sweep.lock()?;
        let mut excess = self.recovered_items;
        for class in 0..self.stripes.count() {
            let held = self.stripes.of(class).hold(&pm)?;
            excess = excess.wrapping_add(held.items());
            for index in (class..self.main.reachable()).step_by(self.stripes.count() as usize) {
                let Some(main) = self.main.visit(&pm, index)? else { continue };
                let chain = self.chain(&pm, main, index)?;
                let pairs = chain.iter().map(|bucket| u64::from(bucket.token.count()));
                excess = excess.wrapping_sub(pairs.sum());
            }
        }
        let mut held = self.stripes.of(0).hold(&pm)?;
        let correction = held.count((excess as i64).wrapping_neg(), 1);
        drop(held);
        self.estimated(&pm, correction);
        Ok(())
    }
}

impl<'a, M: Media, C: BucketCodec> Found<'a, M, C> {
    /// Adds what is in the buckets of a chain.
    fn add(&mut self, pm: &Access<'_, M>, chain: Vec<Bucket<'a, M, C>>) -> Result<()> {
        self.chained += chain.len() as u64 - 1;
        for bucket in chain.into_iter().filter(|bucket| bucket.token.count() > 0) {
            for slot in bucket.token.live_slots() {
                let record = bucket.pair(pm, slot).map(C::record);
                self.records.extend(or_damage(record, &mut None)?);
                self.pairs += 1;
            }
            self.filled.push(bucket);
        }
        Ok(())
    }
}

/// Makes the main buckets of damaged chains whole and empty. Nobody knows what belongs to their
/// chains, so nothing of that is given back.
///
/// A crash leaves some of them as they were, or with their own pairs alone.
fn cut_off<M: Media, C: BucketCodec>(
    pm: &Access<'_, M>,
    damaged: &[Bucket<'_, M, C>],
) -> Result<()> {
    // From the last on: before a lower half says that it is split there is an upper one.
    for bucket in damaged.iter().rev() {
        // The link first: a token word that does not match its check hides what is behind it.
        bucket.commit_next(Addr::NULL, sites::CLEAR);
        bucket.flush(pm, sites::CLEAR);
        pm.fence(sites::CLEAR)?;
        bucket.commit_token(bucket.token.cleared().bumped(), sites::CLEAR);
        bucket.flush(pm, sites::CLEAR);
        pm.fence(sites::CLEAR)?;
    }
    Ok(())
}
