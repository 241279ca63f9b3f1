//! Bucket relocation (ElimDA 3.5): a full D-bucket goes to the device table as one access unit.
//!
//! The access unit carries the order number of the last item that it absorbs. With it all backup
//! copies of its items are dead, and all that the bucket absorbed before: no copy is touched.
//! An access unit of more than 256 bytes is a row of units, which become true with the state of the
//! first.

use core::ops::Range;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, Primitives, Span};

use super::concurrency::Held;
use super::dram_table::{Bucket, Entry, Segment};
use super::form::{Form, Item};
use super::lane::Reclaimed;
use super::layout::{self, Geometry, Kind, LINE_WORDS, MOST_SLOTS, UnitHead, UnitState};
use super::state::{ElimDa, Need, Writer};

/// Where a relocation persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The units, before the state of the first.
        UNIT = "elimda/relocate/unit";
        /// The state that makes them true.
        STATE = "elimda/relocate/state";
    }
}

/// Makes the words of the unit at `at`, with these items.
pub(super) fn fill_unit<F: Form>(
    words: &mut [u64],
    at: Addr,
    (state, watermark): (UnitState, u64),
    items: impl Iterator<Item = Item>,
) {
    words[UnitHead::STATE] = state.seal(at);
    let watermark_at = at.plus(UnitHead::WATERMARK as u64);
    words[UnitHead::WATERMARK] = layout::seal(watermark, watermark_at, Kind::Watermark);
    for (item, slot) in items.zip(words[UnitHead::WORDS..].chunks_exact_mut(F::WORDS)) {
        slot.copy_from_slice(&item[..F::WORDS]);
    }
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Moves the items of a D-bucket to an access unit; `false` if the segment has none left.
    ///
    /// A crash leaves the items in the log, or in the units with a watermark that ends them in the
    /// log.
    pub(super) fn relocate(
        &self,
        pm: &Access<'_, M>,
        segment: &Segment<'_, M::Sync>,
        bucket_index: u64,
        bucket: &Bucket<'_, M::Sync>,
        held: &Held<'_, M>,
    ) -> Result<bool> {
        let (count, geometry) = (bucket.items(), &self.geometry);
        let orders = || (0..count).map(|index| bucket.order(index));
        let Some(watermark) = orders().max() else { return Ok(true) };
        if !has_room(geometry, bucket) {
            return Ok(false);
        }
        let Some(first) = segment.take_units(geometry) else { return Ok(false) };
        let lap = segment.lap();
        let slots = geometry.unit_slots as usize;
        // The units, each with the items that it gets.
        let parts = || (first..).zip((0..count).step_by(slots).map(|it| it..count.min(it + slots)));
        let live = |items: &Range<usize>| ((1u32 << items.len()) - 1) as u16;
        let mut words = vec![0; geometry.access_words() as usize];
        for ((unit, items), words) in parts().zip(words.chunks_mut(geometry.unit_words() as usize))
        {
            let state = UnitState { live: live(&items), bucket: bucket_index, lap };
            let items = items.map(|index| bucket.item(index).0);
            fill_unit::<F>(words, geometry.unit_at(segment.at(), unit), (state, watermark), items);
        }
        self.write_units(pm, geometry.unit_at(segment.at(), first), &words)?;
        let change = held.change()?;
        for (unit, items) in parts() {
            let mut fingerprints = [0; MOST_SLOTS as usize];
            let (entry, used) = (Entry { unit, live: live(&items) }, items.len());
            for (print, index) in fingerprints.iter_mut().zip(items) {
                *print = bucket.print(index);
            }
            bucket.push_unit(entry, &fingerprints[..used]);
        }
        bucket.clear_items();
        bucket.set_watermark(watermark);
        change.end();
        // The order numbers stay where they are until another item is added.
        self.release(geometry.lane_of(bucket_index), orders())?;
        Ok(true)
    }

    /// Writes an access unit, its first word last, which makes all of it true: each line is written
    /// once. The lines behind the first are durable before it; the first needs no fence of its own
    /// where a line keeps the order of its stores.
    fn write_units(&self, pm: &Access<'_, M>, at: Addr, words: &[u64]) -> Result<()> {
        let (state, behind) = words.split_first().expect("a unit has a head");
        pm.write_words(at.plus(UnitHead::WATERMARK as u64), behind)?;
        let fenced = if self.ordered {
            Span::new(at.plus(LINE_WORDS), words.len() as u64 - LINE_WORDS)
        } else {
            Span::new(at, words.len() as u64)
        };
        if fenced.words > 0 {
            pm.persist(fenced, sites::UNIT)?;
        }
        pm.commit_word(at, *state, sites::STATE)?;
        pm.persist(Span::new(at, LINE_WORDS), sites::STATE)?;
        if self.durable_caches {
            pm.write_back(Span::new(at, words.len() as u64));
        }
        Ok(())
    }

    /// Relocates, early, what holds the oldest block of a lane in use. Returns whether the block
    /// can be used again.
    ///
    /// No lock is held. Partial units come of it: the longer the log, the fewer.
    ///
    /// # Errors
    /// [`Error::Full`] if a segment cannot take the items.
    pub(super) fn reclaim(&self, pm: &Access<'_, M>, lane: u64) -> Result<Reclaimed> {
        // Before anything is looked at: what is filled meanwhile may be passed over below. Only
        // the open block gets more reservations, so that they come to an end.
        let (oldest, is_awaited) = self.oldest_block(lane)?;
        let otherwise = if is_awaited { Reclaimed::Awaited } else { Reclaimed::Stuck };
        let Some(number) = oldest else { return Ok(otherwise) };
        let mut from = number * self.geometry.block_slots();
        while let Some(order) = self.next_needed(lane, number, from)? {
            match self.reclaim_slot(pm, lane, order) {
                // A bucket in which a write failed keeps its items; the others still move.
                Ok(()) | Err(Error::Poisoned) => {}
                Err(other) => return Err(other),
            }
            from = order + 1;
        }
        Ok(if self.is_dead(lane, number)? { Reclaimed::Free } else { otherwise })
    }

    /// Relocates the item with this order number, of the oldest block of its lane, if a D-bucket
    /// holds it. A slot that is being filled waits for its thread.
    fn reclaim_slot(&self, pm: &Access<'_, M>, lane: u64, order: u64) -> Result<()> {
        let Some(item) = self.oldest_item(pm, lane, order)? else { return Ok(()) };
        let hash = F::item_hash(&self.hasher, &item);
        self.add_to(pm, hash, |writer| {
            let Writer { segment, index, bucket, held } = writer;
            let holds = (0..bucket.items()).any(|place| bucket.item(place).1 == order);
            let moved = !holds || self.relocate(pm, segment, *index, bucket, held)?;
            Ok(if moved { Ok(()) } else { Err(Need::Unit) })
        })
    }
}

/// Returns whether a bucket may have the units of another relocation.
pub fn has_room<P: Primitives>(geometry: &Geometry, bucket: &Bucket<'_, P>) -> bool {
    bucket.units() as u64 + geometry.access_units <= geometry.bucket_units
}
