//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.

use core::sync::atomic::Ordering;

use everhash_index::{Cursor, Result};
use everhash_pmem::{AtomicWord, Media};

use super::bucket::BucketCodec;
use super::failure_atomic_writes::sites;
use super::state::Wophi;
use crate::common::scanned::{Part, ends_before};

/// Chains that one call of a scan visits at most.
///
/// Unit: chains. Source: ours; about a hundred microseconds, so that a caller can stop in time.
const CHAINS_PER_SCAN: u64 = 256;

/// Pairs after which a call of a scan ends with the present chain.
///
/// Unit: pairs. Source: ours, as [`CHAINS_PER_SCAN`].
const PAIRS_PER_SCAN: usize = 64;

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Visits some pairs from `cursor` on, which is the index of a main bucket.
    ///
    /// Pairs move to higher buckets only, so one that is present throughout is visited at least
    /// once. No lock is held while `visit` runs.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    pub fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let mut index = cursor.0;
        let mut visited = 0;
        for _ in 0..CHAINS_PER_SCAN {
            if index >= self.main.reachable() {
                return Ok(None);
            }
            let copied = self.copy_chain(index);
            if index != cursor.0 && ends_before(&copied, |part| part) {
                break;
            }
            visited += copied?.visit(visit)?;
            index += 1;
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(Cursor(index)))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one chain.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Option<Cursor> {
        let next = cursor.0.saturating_add(1);
        (next < self.main.reachable()).then_some(Cursor(next))
    }

    /// Copies the pairs of a chain, as they were at one moment.
    fn copy_chain(&self, index: u64) -> Result<Part> {
        let stripe = self.stripes.of(index);
        let mut attempt = 0;
        loop {
            let stamp = stripe.stamp(&mut attempt)?;
            let part = self.try_copy_chain(index);
            if stripe.accepts(stamp) {
                return part;
            }
        }
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
    /// # Errors
    /// As [`Wophi::scan`], and errors of the medium.
    pub fn clear(&self) -> Result<()> {
        self.pool.check_writable()?;
        // A bucket and all that it has split into by then are cleared in one step: a key that is
        // added behind the sweep, and moved up by a growth, must not be removed again.
        let classes = self.main.count(self.main.view().level);
        (0..classes).try_for_each(|class| self.clear_class(class, classes))
    }

    /// Removes the pairs of the buckets whose index is `class` modulo `classes`.
    fn clear_class(&self, class: u64, classes: u64) -> Result<()> {
        let pm = self.pool.access();
        let mut held = self.stripes.of(class).hold(&pm)?;
        let (mut buckets, mut records, mut removed, mut emptied) = (Vec::new(), Vec::new(), 0, 0);
        for index in (class..self.main.reachable()).step_by(classes as usize) {
            let mut steps = 0;
            let mut next = self.main.visit(&pm, index)?;
            while let Some(bucket) = next {
                for slot in bucket.token.live_slots() {
                    records.extend(C::record(bucket.pair(&pm, slot)?));
                    removed += 1;
                }
                if bucket.token.count() > 0 {
                    buckets.push(bucket);
                }
                next = self.follow(&pm, &bucket, index, &mut steps)?;
            }
            emptied += steps;
        }
        if removed == 0 {
            return Ok(());
        }
        let change = held.change()?;
        for bucket in &buckets {
            bucket.commit_token(bucket.token.cleared().bumped(), sites::CLEAR);
            bucket.flush(&pm, sites::CLEAR);
        }
        pm.fence(sites::CLEAR)?;
        change.end();
        records.into_iter().for_each(|record| self.heap.give(record.addr, record.class));
        self.emptied.fetch_add(emptied, Ordering::Relaxed);
        let correction = held.count(-removed, 1);
        drop(held);
        self.estimated(&pm, correction);
        Ok(())
    }
}
