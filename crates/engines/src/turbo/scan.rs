//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.

use everhash_index::{Cursor, Result};
use everhash_pmem::{Access, Lock, Media};

use super::bucket::{Bucket, slots_of};
use super::concurrency::{Look, Shard};
use super::layout::{self, BUCKET_BITS, Place};
use super::search_path::read_optimistic;
use super::state::Turbo;
use super::variable_size_items::PairCodec;
use crate::common::damage::or_damage;
use crate::common::scanned::{Part, ends_before};

/// Where `clear` persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// Every pair of a shard deleted.
        CLEAR = "turbo/clear/delete";
    }
}

/// Homes that one call of a scan visits at most.
///
/// Unit: buckets. Source: ours; about a hundred microseconds, so that a caller can stop in time.
const HOMES_PER_SCAN: u64 = 256;

/// Pairs after which a call of a scan ends with the present home.
///
/// Unit: pairs. Source: ours, as [`HOMES_PER_SCAN`].
const PAIRS_PER_SCAN: usize = 64;

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Visits some pairs from `cursor` on: a shard, and the highest hash bits of a home in it.
    ///
    /// The pairs of one home are visited together, wherever on their path they lie. Their home is
    /// where it was when a shard has moved, or was split into two or joined with others: a pair
    /// that is present throughout is visited at least once, and only once if nobody writes it. No
    /// lock is held while `visit` runs.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    pub fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let pm = self.pool.access();
        let (mut index, mut bits) = (cursor.0 >> BUCKET_BITS, cursor.0 & ((1 << BUCKET_BITS) - 1));
        let mut visited = 0;
        for _ in 0..HOMES_PER_SCAN {
            let Some(shard) = self.directory.shards().get(index as usize) else { return Ok(None) };
            let copied = shard.read(|place| self.copy_home(&pm, shard, place, bits));
            if cursor != cursor_at(index, bits) && ends_before(&copied, |(part, _)| part) {
                break;
            }
            let (part, next) = copied?;
            visited += part.visit(visit)?;
            (index, bits) = shard_and_bits(index, next);
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(cursor_at(index, bits)))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one home.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        let (index, bits) = (cursor.0 >> BUCKET_BITS, cursor.0 & ((1 << BUCKET_BITS) - 1));
        let Some(shard) = self.directory.shards().get(index as usize) else { return Ok(None) };
        let next = shard.read(|place| Ok(Look::Whole(home_behind(place, bits))))?;
        let (index, bits) = shard_and_bits(index, next);
        Ok(Some(cursor_at(index, bits)))
    }

    /// Copies the pairs of the home whose hashes begin with `bits`; returns where the next begins.
    fn copy_home(
        &self,
        pm: &Access<'_, M>,
        shard: &Shard<M::Sync>,
        place: Place,
        bits: u64,
    ) -> Result<Look<(Part, u64)>> {
        let home = bits >> (BUCKET_BITS - place.log);
        let mut part = Part::default();
        for index in self.reach().path_from(home, place) {
            let bucket = Bucket::of(pm, place, index)?;
            let found = read_optimistic(shard, &bucket, |view| {
                let mut found = Part::default();
                for slot in slots_of(view.meta.live()) {
                    let words = bucket.pair(view, slot)?;
                    let hash = C::words_hash(&self.hasher, words);
                    // What lies before the bits was visited when the shard had more homes.
                    let is_ahead = layout::home_of(hash, BUCKET_BITS) >= bits;
                    if is_ahead && layout::home_of(hash, place.log) == home {
                        found.add(|key, value| {
                            C::read(pm, C::decode(words, bucket.slot_at(slot))?, key, value)
                        })?;
                    }
                }
                Ok((found, view.ends_path(self.reach().bucket_slots)))
            });
            let Look::Whole((found, ends)) = found? else { return Ok(Look::Disturbed) };
            part.append(found);
            if ends {
                break;
            }
        }
        Ok(Look::Whole((part, home_behind(place, bits))))
    }

    /// Removes every pair, shard by shard. A crash leaves any of them.
    ///
    /// Damage keeps nothing: whatever a damaged bucket holds goes with the rest, and the bucket is
    /// whole then. The room of a record to which a damaged slot leads stays in use until the next
    /// open.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`], and errors of the medium.
    pub fn clear(&self) -> Result<()> {
        self.pool.check_writable()?;
        for index in 0..self.directory.shards().len() as u64 {
            if !self.clear_shard(index)? {
                // Without the lock of the shard, which a count takes behind this one.
                *self.opened_with.lock()? = None;
            }
        }
        Ok(())
    }

    /// Deletes all pairs of a shard, and then empties the slots: without a pair there is no path
    /// that an empty slot could cut short. Returns whether it is known how many pairs there were:
    /// if not, all pairs have to be counted again.
    ///
    /// A crash leaves any of the pairs.
    fn clear_shard(&self, index: u64) -> Result<bool> {
        let pm = self.pool.access();
        let held = self.directory.shards()[index as usize].hold(&pm)?;
        let place = held.place();
        let mut used = Vec::new();
        let (mut records, mut removed, mut is_counted) = (Vec::new(), 0, true);
        for index in 0..place.buckets() {
            let bucket = Bucket::of(&pm, place, index)?;
            let view = bucket.view_of(bucket.meta_word()).map(Some);
            let Some(view) = or_damage(view, &mut None)? else {
                is_counted = false;
                used.push((bucket, bucket.view_of_unknown(self.reach().bucket_slots)));
                continue;
            };
            for slot in slots_of(view.meta.live()) {
                let words = bucket.pair(&view, slot);
                let pair = words.and_then(|words| C::decode(words, bucket.slot_at(slot)));
                records.extend(or_damage(pair.map(C::record), &mut None)?);
                removed += 1;
            }
            if view.meta.valid() != 0 {
                used.push((bucket, view));
            }
        }
        if used.is_empty() {
            return Ok(true);
        }
        let _lane = self.lanes.shard(&pm, index)?;
        let pending = held.pending_all();
        for (bucket, view) in &used {
            let meta = view.meta.next(view.meta.valid(), view.meta.valid());
            bucket.store_meta(&pm, view, meta, sites::CLEAR);
        }
        pm.fence(sites::CLEAR)?;
        for (bucket, view) in &used {
            bucket.empty(&pm, view, sites::CLEAR);
        }
        pending.end();
        held.count(-removed);
        held.forget_deleted();
        records.into_iter().for_each(|record| self.heap.give(record.addr, record.class));
        Ok(is_counted)
    }
}

/// Returns the cursor of a home: its shard, and what its hashes begin with.
fn cursor_at(index: u64, bits: u64) -> Cursor {
    Cursor(index << BUCKET_BITS | bits)
}

/// Returns the shard of a home and what its hashes begin with, if `next` is where that home of
/// shard `index` begins: behind the last one there comes the first one of the next shard.
fn shard_and_bits(index: u64, next: u64) -> (u64, u64) {
    if next >> BUCKET_BITS == 0 { (index, next) } else { (index + 1, 0) }
}

/// Returns what the hashes of the next home begin with; behind the last home it has a bit more.
fn home_behind(place: Place, bits: u64) -> u64 {
    let shift = BUCKET_BITS - place.log;
    ((bits >> shift) + 1) << shift
}
