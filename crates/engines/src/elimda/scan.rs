//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.
//!
//! The collecting logs come first: an item only ever moves from there to the buckets, so that what
//! is there throughout is met. A cursor is a log, or a hash with a mark: the leading bits of a hash
//! choose the segment and its trailing bits the bucket. The halves of a segment lie where the
//! segment lay in this order, so that a split between two calls hides nothing.

use everhash_index::{Cursor, Result};
use everhash_pmem::{Access, Addr, Media, Span};

use super::form::Form;
use super::layout::{LINE_WORDS, Prefix, UnitState};
use super::reversed_search::{Found, Place};
use super::state::{ElimDa, Writer};
use crate::common::scanned::{Part, ends_before};

/// Where a clear persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The state of a unit whose items all end.
        UNIT = "elimda/clear/unit";
        /// All that a bucket held.
        BUCKET = "elimda/clear/bucket";
    }
}

/// Buckets that one call of a scan visits at most.
///
/// Unit: buckets. Source: ours; about a hundred microseconds, so that a caller can stop in time.
const BUCKETS_PER_SCAN: u32 = 64;

/// Pairs after which a call of a scan ends with the present bucket.
///
/// Unit: pairs. Source: ours, as [`BUCKETS_PER_SCAN`].
const PAIRS_PER_SCAN: usize = 64;

/// The mark of a cursor that is a hash: a bit between those of the segment and of the bucket.
///
/// Unit: none. Source: ours.
const IN_BUCKETS: u64 = 1 << 23;

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Visits some pairs from `cursor` on. No lock is held while `visit` runs.
    ///
    /// # Errors
    /// As [`ElimDa::get`].
    pub fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let pm = self.pool.access();
        let logs = self.scanned_logs();
        if cursor.0 & IN_BUCKETS == 0 && cursor.0 < logs {
            return self.scan_logs(&pm, cursor.0, logs, visit);
        }
        let (mut place, mut visited) = (cursor.0 & !IN_BUCKETS, 0);
        if cursor.0 & IN_BUCKETS == 0 {
            place = 0;
        }
        for _ in 0..BUCKETS_PER_SCAN {
            let copied = self.copy_bucket(&pm, place);
            let is_first = [place, place | IN_BUCKETS].contains(&cursor.0);
            if !is_first && ends_before(&copied, |(_, part)| part) {
                break;
            }
            let (prefix, part) = copied?;
            visited += part.visit(visit)?;
            match self.next_place(place, prefix) {
                Some(next) => place = next,
                None => return Ok(None),
            }
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(Cursor(place | IN_BUCKETS)))
    }

    fn scan_logs(
        &self,
        pm: &Access<'_, M>,
        first: u64,
        logs: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let mut visited = 0;
        for log in first..logs {
            let copied = self.copy_log(pm, log);
            if log != first && ends_before(&copied, |part| part) {
                return Ok(Some(Cursor(log)));
            }
            visited += copied?.visit(visit)?;
            if visited >= PAIRS_PER_SCAN {
                return Ok(Some(cursor_behind(log, logs)));
            }
        }
        Ok(Some(Cursor(IN_BUCKETS)))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one collecting log, or one bucket.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Option<Cursor> {
        let logs = self.scanned_logs();
        if cursor.0 & IN_BUCKETS == 0 && cursor.0 < logs {
            return Some(cursor_behind(cursor.0, logs));
        }
        let place = cursor.0 & !IN_BUCKETS;
        let next = self.next_place(place, self.table.find(place).prefix());
        next.map(|next| Cursor(next | IN_BUCKETS))
    }

    /// Returns how many collecting logs a scan visits.
    fn scanned_logs(&self) -> u64 {
        self.collectors.as_ref().map_or(0, |_| self.geometry.all_logs())
    }

    /// Copies the pairs of a collecting log, each as it was at one moment.
    fn copy_log(&self, pm: &Access<'_, M>, log: u64) -> Result<Part> {
        let mut part = Part::default();
        let Some(collectors) = &self.collectors else { return Ok(part) };
        let log = self.collecting_log(pm, collectors.at(log));
        for slot in log.read()?.slots() {
            let mut attempt = 0;
            // Ends: each further round means that a writer has changed the bucket meanwhile.
            loop {
                let before = log.read()?;
                if before.live >> slot & 1 == 0 {
                    break;
                }
                let hash = F::item_hash(&self.hasher, &before.item(slot));
                let segment = self.table.find(hash);
                let lock = segment.lock(self.geometry.bucket_of(hash));
                let stamp = lock.stamp(&mut attempt)?;
                let items = log.read()?;
                let item = items.item(slot);
                if items.live >> slot & 1 == 0 || !segment.prefix().covers(hash) {
                    continue;
                }
                let mut pair = Part::default();
                let read = pair.add(|key, value| F::read_item(pm, &item, Addr::NULL, key, value));
                if lock.accepts(stamp) && F::item_hash(&self.hasher, &item) == hash {
                    read?;
                    part.append(pair);
                    break;
                }
            }
        }
        Ok(part)
    }

    /// Returns the hash of the next bucket: of the same segment, or the first of the next one.
    pub(super) fn next_place(&self, place: u64, prefix: Prefix) -> Option<u64> {
        let bucket = self.geometry.bucket_of(place) + 1;
        if bucket < self.geometry.buckets {
            return Some(prefix.start() | bucket);
        }
        prefix.last().checked_add(1)
    }

    /// Copies the pairs of a bucket, as they were at one moment.
    fn copy_bucket(&self, pm: &Access<'_, M>, place: u64) -> Result<(Prefix, Part)> {
        let index = self.geometry.bucket_of(place);
        let mut attempt = 0;
        // Ends: each further round means that a writer has changed the bucket meanwhile.
        loop {
            let segment = self.table.find(place);
            let lock = segment.lock(index);
            let stamp = lock.stamp(&mut attempt)?;
            let prefix = segment.prefix();
            if !prefix.covers(place) {
                continue;
            }
            let mut part = Part::default();
            let bucket = segment.bucket(index);
            let copied = self.each_item(pm, segment.at(), &bucket, &mut |item, at| {
                part.add(|key, value| F::read_item(pm, item, at, key, value))
            });
            if lock.accepts(stamp) {
                copied?;
                return Ok((prefix, part));
            }
        }
    }

    /// Calls `visit` with every live item of a bucket and where it lies; null for those in DRAM.
    fn each_item(
        &self,
        pm: &Access<'_, M>,
        segment: Addr,
        bucket: &super::dram_table::Bucket<'_, M::Sync>,
        visit: &mut dyn FnMut(&super::form::Item, Addr) -> Result<()>,
    ) -> Result<()> {
        for entry in (0..bucket.units()).map(|entry| bucket.entry(entry)) {
            let unit = self.geometry.unit_at(segment, entry.unit);
            for slot in (0..self.geometry.unit_slots).filter(|slot| entry.live >> slot & 1 == 1) {
                let at = self.geometry.unit_item(unit, slot);
                visit(&self.load_item(pm, at)?, at)?;
            }
        }
        (0..bucket.items()).try_for_each(|index| visit(&bucket.item(index).0, Addr::NULL))
    }

    /// Removes every pair, bucket by bucket.
    ///
    /// A crash leaves any of the pairs of the bucket that is being cleared.
    ///
    /// # Errors
    /// As [`ElimDa::get`].
    pub fn clear(&self) -> Result<()> {
        self.pool.check_writable()?;
        let pm = self.pool.access();
        let mut place = Some(0);
        while let Some(at) = place {
            let writer = self.lock(&pm, at)?;
            self.clear_bucket(&pm, &writer, at)?;
            place = self.next_place(at, writer.segment.prefix());
        }
        Ok(())
    }

    /// Returns what the collecting logs hold of a locked bucket, each item once.
    pub(super) fn collected_of(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
    ) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let Some(collectors) = &self.collectors else { return Ok(all) };
        let prefix = writer.segment.prefix();
        let first = self.geometry.collector_of(prefix.start());
        for collector in first..=self.geometry.collector_of(prefix.last()) {
            let logs = collectors.logs(collector);
            for log in logs.in_flight.into_iter().chain([logs.current]) {
                let at = collectors.at(log);
                let items = self.collecting_log(pm, at).read()?;
                for slot in items.slots() {
                    let item = items.item(slot);
                    let hash = F::item_hash(&self.hasher, &item);
                    // A log that was emptied meanwhile may serve another collector by now, and is
                    // met there, too.
                    if self.geometry.collector_of(hash) == collector
                        && prefix.covers(hash)
                        && self.geometry.bucket_of(hash) == writer.index
                    {
                        all.push(Found { place: Place::Collected { at, slot }, item });
                    }
                }
            }
        }
        Ok(all)
    }

    /// Each key ends once: those that look for it wait until all of the bucket has ended.
    fn clear_bucket(&self, pm: &Access<'_, M>, writer: &Writer<'_, M>, place: u64) -> Result<()> {
        let Writer { segment, index, bucket, held } = writer;
        let collected = self.collected_of(pm, writer)?;
        let mut records = Vec::new();
        let mut removed = collected.len() as u64;
        for found in &collected {
            records.extend(F::record_of(&found.item, Addr::NULL)?);
        }
        self.each_item(pm, segment.at(), bucket, &mut |item, at| {
            records.extend(F::record_of(item, at)?);
            removed += 1;
            Ok(())
        })?;
        if removed == 0 {
            return Ok(());
        }
        for entry in (0..bucket.units()).map(|entry| bucket.entry(entry)) {
            if entry.live != 0 {
                let at = self.geometry.unit_at(segment.at(), entry.unit);
                let state = UnitState { live: 0, bucket: *index, lap: segment.lap() };
                pm.commit_word(at, state.seal(at), sites::UNIT)?;
                pm.flush(Span::new(at, LINE_WORDS), sites::UNIT);
            }
        }
        let lane = self.geometry.lane_of(*index);
        let orders: Vec<u64> = (0..bucket.items()).map(|place| bucket.item(place).1).collect();
        orders.iter().try_for_each(|order| self.end_in_log(pm, lane, *order))?;
        pm.fence(sites::BUCKET)?;
        let change = held.change()?;
        for entry in 0..bucket.units() {
            bucket.end_all(entry);
        }
        bucket.clear_items();
        for found in &collected {
            if let Place::Collected { at, slot } = found.place {
                self.collecting_log(pm, at).end(slot)?;
            }
        }
        change.end();
        self.release(lane, orders)?;
        records.into_iter().for_each(|(at, class)| self.heap.give(at, class));
        self.count_removed(place, removed);
        Ok(())
    }
}

/// Returns where a scan goes on behind a collecting log.
fn cursor_behind(log: u64, logs: u64) -> Cursor {
    Cursor(if log + 1 < logs { log + 1 } else { IN_BUCKETS })
}
