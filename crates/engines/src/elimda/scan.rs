//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.
//!
//! A cursor is a hash: its leading bits choose the segment and its trailing bits the bucket. The
//! halves of a segment lie where the segment lay in this order, so that a split between two calls
//! hides nothing.

use everhash_index::{Cursor, Result};
use everhash_pmem::{Access, Addr, Media, Span};

use super::dram_table::Entry;
use super::form::Form;
use super::layout::{LINE_WORDS, Prefix, UnitState};
use super::state::{ElimDa, Writer};

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

/// The key and the value of a pair.
type Copied = (Vec<u8>, Vec<u8>);

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
        let (mut place, mut visited) = (cursor.0, 0);
        for _ in 0..BUCKETS_PER_SCAN {
            let (prefix, pairs) = self.copy_bucket(&pm, place)?;
            pairs.iter().for_each(|(key, value)| visit(key, value));
            match self.next_place(place, prefix) {
                Some(next) => place = next,
                None => return Ok(None),
            }
            visited += pairs.len();
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(Cursor(place)))
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
    fn copy_bucket(&self, pm: &Access<'_, M>, place: u64) -> Result<(Prefix, Vec<Copied>)> {
        let index = self.geometry.bucket_of(place);
        let mut attempt = 0;
        // Ends: each further round means that a writer has changed the bucket meanwhile.
        loop {
            let slot = self.table.directory.find(place);
            let segment = self.table.segment(slot);
            let lock = segment.lock(index);
            let stamp = lock.stamp(&mut attempt)?;
            if self.table.directory.find(place) != slot {
                continue;
            }
            let prefix = segment.prefix();
            let mut pairs = Vec::new();
            let bucket = self.table.bucket(segment, index);
            let copied = self.each_item(pm, segment.at(), &bucket, &mut |item, at| {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                F::read(pm, item, at, &mut key, &mut value)?;
                pairs.push((key, value));
                Ok(())
            });
            if lock.accepts(stamp) {
                copied?;
                return Ok((prefix, pairs));
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
        self.writable()?;
        let pm = self.pool.access();
        let mut place = Some(0);
        while let Some(at) = place {
            let writer = self.lock(&pm, at)?;
            self.clear_bucket(&pm, &writer, at)?;
            place = self.next_place(at, writer.segment.prefix());
        }
        Ok(())
    }

    fn clear_bucket(&self, pm: &Access<'_, M>, writer: &Writer<'_, M>, place: u64) -> Result<()> {
        let Writer { segment, index, bucket, held } = writer;
        let mut records = Vec::new();
        let mut removed = 0;
        self.each_item(pm, segment.at(), bucket, &mut |item, at| {
            records.extend(F::record(item, at)?);
            removed += 1;
            Ok(())
        })?;
        if removed == 0 {
            return Ok(());
        }
        for entry in (0..bucket.units()).map(|entry| bucket.entry(entry)) {
            if entry.live != 0 {
                let at = self.geometry.unit_at(segment.at(), entry.unit);
                let state = UnitState { live: 0, bucket: *index };
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
            bucket.set_entry(entry, Entry { live: 0, ..bucket.entry(entry) });
        }
        bucket.clear_items();
        change.end();
        self.release(lane, orders)?;
        records.into_iter().for_each(|(at, class)| self.heap.give(at, class));
        self.count_removed(place, removed);
        Ok(())
    }
}
