//! One write to one locked bucket: room for it, and each way to change what is there.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, Span};

use super::{Step, sites};
use crate::elimda::collecting_log::Seen;
use crate::elimda::form::{Form, Item, Update};
use crate::elimda::insert_ahead_logging::{Appended, Reserved};
use crate::elimda::layout::{LINE_WORDS, SECOND_WORD, UnitState};
use crate::elimda::reversed_search::{Found, Place, Wanted};
use crate::elimda::shadow_log::CollectingSlot;
use crate::elimda::state::{ElimDa, Need, Writer};

impl<M: Media, F: Form> ElimDa<M, F> {
    pub(super) fn wanted<'k>(&self, key: F::Key<'k>) -> Wanted<'k, F> {
        Wanted { hash: F::hash(&self.hasher, key), key }
    }

    #[inline(always)]
    pub(super) fn find_in(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        self.search(pm, &writer.segment, &writer.bucket, wanted, bytes)
    }

    /// Makes room for an item in the D-bucket, and reserves a slot of the log for it.
    pub fn room(&self, pm: &Access<'_, M>, writer: &Writer<'_, M>) -> Step<Reserved<'_, M>> {
        if !self.make_room(pm, writer)? {
            return Ok(Err(Need::Unit));
        }
        let slot = self.reserve(pm, self.geometry.lane_of(writer.index))?;
        Ok(slot.ok_or(Need::Block))
    }

    /// Makes room for an item in the D-bucket, and appends it to the log, durably.
    pub fn append_item(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        item: &Item,
    ) -> Step<Appended> {
        if !self.make_room(pm, writer)? {
            return Ok(Err(Need::Unit));
        }
        let lane = self.geometry.lane_of(writer.index);
        if self.ordered {
            return Ok(self.append_at_once(pm, lane, item)?.ok_or(Need::Block));
        }
        let Some(reserved) = self.reserve(pm, lane)? else { return Ok(Err(Need::Block)) };
        self.fill(pm, reserved, item).map(Ok)
    }

    /// Makes room for an item in the D-bucket; `false` if it needs a unit for that.
    #[inline(always)]
    fn make_room(&self, pm: &Access<'_, M>, writer: &Writer<'_, M>) -> Result<bool> {
        let Writer { segment, index, bucket, held } = writer;
        Ok(!bucket.is_full() || self.relocate(pm, segment, *index, bucket, held)?)
    }

    /// Adds a pair whose key is absent. Returns whether the lane is crowded.
    /// `seen` is the collecting log as it was before the key was looked for.
    pub(super) fn add(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
        seen: Option<&Seen>,
    ) -> Step<bool> {
        if let Some(seen) = seen {
            return Ok(match self.collect(pm, seen)? {
                Ok(slot) => Ok(self.add_collected(pm, wanted, value, slot).map(|()| false)?),
                Err(need) => Err(need),
            });
        }
        if self.ordered && !F::RECORDS {
            return self.add_at_once(pm, writer, wanted, value);
        }
        match self.room(pm, writer)? {
            Ok(slot) => self.add_at(pm, writer, wanted, value, slot).map(Ok),
            Err(need) => Ok(Err(need)),
        }
    }

    /// As [`ElimDa::add`], to the log and the D-bucket, where the lane need not be left in between:
    /// no record is written, and the item needs no fence before its state.
    fn add_at_once(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
    ) -> Step<bool> {
        if !self.make_room(pm, writer)? {
            return Ok(Err(Need::Unit));
        }
        let item = F::item(pm, &self.heap, wanted.hash, wanted.key, value)?;
        let counted = self.count_ahead(wanted.hash);
        let Some(slot) = self.append_at_once(pm, self.geometry.lane_of(writer.index), &item)?
        else {
            return Ok(Err(Need::Block));
        };
        let change = writer.held.change()?;
        writer.bucket.push(wanted.hash, &item, slot.order);
        change.end();
        counted.keep();
        Ok(Ok(slot.crowded))
    }

    /// Adds a pair whose key is absent to a collecting log.
    #[inline(always)]
    pub(super) fn add_collected(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
        slot: CollectingSlot<'_, M>,
    ) -> Result<()> {
        let item = F::item(pm, &self.heap, wanted.hash, wanted.key, value)?;
        slot.fill(&item)?;
        self.count_added(wanted.hash);
        Ok(())
    }

    pub(super) fn add_at(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
        slot: Reserved<'_, M>,
    ) -> Result<bool> {
        let (item, slot) = self.append(pm, wanted, value, slot)?;
        let change = writer.held.change()?;
        writer.bucket.push(wanted.hash, &item, slot.order);
        change.end();
        self.count_added(wanted.hash);
        Ok(slot.crowded)
    }

    /// Makes an item and appends it to the log, durably.
    pub(super) fn append(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
        slot: Reserved<'_, M>,
    ) -> Result<(Item, Appended)> {
        let item = F::item(pm, &self.heap, wanted.hash, wanted.key, value)?;
        let appended = self.fill(pm, slot, &item)?;
        Ok((item, appended))
    }

    /// Gives a key that was found another value. Returns whether the lane is crowded.
    pub(super) fn replace(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        found: Found,
        value: F::Value<'_>,
    ) -> Step<bool> {
        if F::UPDATE == Update::InPlace {
            return self.replace_by(pm, writer, wanted, found, value, None).map(Ok);
        }
        let slot = match self.room(pm, writer)? {
            Ok(slot) => slot,
            Err(need) => return Ok(Err(need)),
        };
        // The item may have been relocated.
        let found = self.find_in(pm, writer, wanted, &mut Vec::new())?;
        let found = found.expect("a locked bucket keeps its keys");
        self.replace_by(pm, writer, wanted, found, value, Some(slot)).map(Ok)
    }

    /// A crash leaves the old or the new value. Where the new one is an item of its own, it may
    /// leave both, and recovery keeps the newer one.
    pub(super) fn replace_by(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        found: Found,
        value: F::Value<'_>,
        slot: Option<Reserved<'_, M>>,
    ) -> Result<bool> {
        match slot {
            None => self.replace_in_place(pm, writer, wanted, &found, value).map(|()| false),
            Some(slot) => {
                let (item, slot) = self.append(pm, wanted, value, slot)?;
                let order = order_of(writer, &found);
                self.end_item(pm, writer, &found)?;
                let change = writer.held.change()?;
                self.forget(pm, writer, &found)?;
                writer.bucket.push(wanted.hash, &item, slot.order);
                change.end();
                self.release(self.geometry.lane_of(writer.index), order)?;
                Ok(slot.crowded)
            }
        }
    }

    pub(super) fn replace_in_place(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        found: &Found,
        value: F::Value<'_>,
    ) -> Result<()> {
        let item = F::item(pm, &self.heap, wanted.hash, wanted.key, value)?;
        let on_device = match found.place {
            Place::Unit { entry, slot } => {
                self.unit_item(&writer.segment, &writer.bucket, entry, slot)
            }
            Place::Collected { at, slot } => self.collecting_log(pm, at).item_at(slot),
            Place::Dram { index } => {
                let order = writer.bucket.item(index).1;
                self.replace_in_log(pm, self.geometry.lane_of(writer.index), order, item[1])?;
                let change = writer.held.change()?;
                writer.bucket.set_item(index, &item, order);
                change.end();
                return self.drop_record(&found.item);
            }
        };
        let at = on_device.plus(SECOND_WORD);
        // Readers see this store before its fence: they wait.
        let change = writer.held.change()?;
        pm.commit_word(at, item[1], sites::VALUE)?;
        pm.persist(Span::new(at, 1), sites::VALUE)?;
        change.end();
        self.drop_record(&found.item)
    }

    /// Ends a pair.
    ///
    /// A crash leaves the pair or not.
    pub(super) fn end(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        hash: u64,
        found: &Found,
    ) -> Result<()> {
        let order = order_of(writer, found);
        let counted = self.uncount_ahead(hash);
        self.end_item(pm, writer, found)?;
        let change = writer.held.change()?;
        self.forget(pm, writer, found)?;
        change.end();
        counted.keep();
        self.release(self.geometry.lane_of(writer.index), order)?;
        self.drop_record(&found.item)
    }

    /// Ends an item on the device, durably. Readers would see that of a collecting log at once: it
    /// ends when it is forgotten.
    pub(super) fn end_item(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        found: &Found,
    ) -> Result<()> {
        match found.place {
            Place::Unit { entry, slot } => {
                let entry = writer.bucket.entry(entry);
                let at = self.geometry.unit_at(writer.segment.at(), entry.unit);
                let live = entry.live & !(1 << slot);
                let state = UnitState { live, bucket: writer.index, lap: writer.segment.lap() };
                pm.commit_word(at, state.seal(at), sites::END)?;
                Ok(pm.persist(Span::new(at, LINE_WORDS), sites::END)?)
            }
            Place::Dram { index } => {
                let order = writer.bucket.item(index).1;
                self.end_in_log(pm, self.geometry.lane_of(writer.index), order)?;
                Ok(pm.fence(sites::END_IN_LOG)?)
            }
            Place::Collected { .. } => Ok(()),
        }
    }

    /// Takes an item that has ended out of what readers see. The sequence of its bucket is odd.
    fn forget(&self, pm: &Access<'_, M>, writer: &Writer<'_, M>, found: &Found) -> Result<()> {
        match found.place {
            Place::Unit { entry, slot } => writer.bucket.end(entry, slot),
            Place::Dram { index } => writer.bucket.remove(index),
            Place::Collected { at, slot } => self.collecting_log(pm, at).end(slot)?,
        }
        Ok(())
    }

    pub fn drop_record(&self, item: &Item) -> Result<()> {
        if let Some((at, class)) = F::record_of(item, Addr::NULL)? {
            self.heap.give(at, class);
        }
        Ok(())
    }

    /// Relocates what is in the oldest block of a crowded lane. No lock is held.
    pub fn relieve(&self, pm: &Access<'_, M>, hash: u64, crowded: bool) -> Result<()> {
        if !crowded {
            return Ok(());
        }
        match self.reclaim(pm, self.geometry.lane_of(self.geometry.bucket_of(hash))) {
            // The operation itself is done, whatever became of the pairs that are in its way; the
            // log goes on growing while the medium has room.
            Ok(_) | Err(Error::Poisoned) => Ok(()),
            Err(error) if error.is_full() => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Returns the order number of an item of the D-bucket.
fn order_of<M: Media>(writer: &Writer<'_, M>, found: &Found) -> Option<u64> {
    match found.place {
        Place::Unit { .. } | Place::Collected { .. } => None,
        Place::Dram { index } => Some(writer.bucket.item(index).1),
    }
}
