//! Shadow logs (ElimDA 3.3): a full collecting log is swapped with an empty one, and its items move
//! to the DRAM table while inserts go on.
//!
//! An item moves while its bucket is locked and its sequence odd: it is appended to the backup log,
//! enters its D-bucket, and ends in the collecting log. So every thread finds it in one of the two,
//! and an update or a removal needs no lock of the collecting log.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, Primitives};

use super::collecting_log::{CollectingLog, Seen};
use super::collectors::{Collectors, Logs};
use super::form::{Form, Item};
use super::layout::{Control, MOST_SLOTS};
use super::reversed_search::{Found, Place, Wanted};
use super::state::{ElimDa, Need};

/// Where a flush persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The word that says that a log is being flushed.
        SEALED = "elimda/flush/sealed";
        /// The word that empties a log.
        EMPTIED = "elimda/flush/emptied";
    }
}

/// A slot of a collecting log that was handed out, for one item.
pub struct CollectingSlot<'a, M: Media> {
    log: CollectingLog<'a, M>,
    slot: u64,
    filled: bool,
}

impl<M: Media> CollectingSlot<'_, M> {
    /// Writes the item: it is in the table from now on.
    ///
    /// A crash leaves the item or not.
    ///
    /// # Errors
    /// [`Error::Corrupt`], errors of the medium.
    pub fn fill(mut self, item: &Item) -> Result<()> {
        self.filled = true;
        self.log.fill(self.slot, item)
    }
}

impl<M: Media> Drop for CollectingSlot<'_, M> {
    /// Others wait for every slot that was handed out: it is used up even if its owner panics.
    fn drop(&mut self) {
        if !self.filled {
            // If it fails the log is damaged, and whoever waits for the slot finds that, too.
            let _wasted = self.log.waste(self.slot);
        }
    }
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Returns the collectors, if inserts go to them.
    #[inline(always)]
    pub(super) fn appending(&self) -> Option<&Collectors<M::Sync>> {
        self.collectors.as_ref().filter(|collectors| collectors.appends)
    }

    /// Returns the collecting log at `at`.
    #[inline(always)]
    pub(super) fn collecting_log<'a>(
        &self,
        pm: &'a Access<'a, M>,
        at: Addr,
    ) -> CollectingLog<'a, M> {
        CollectingLog { pm, at, slots: self.geometry.unit_slots, item_words: F::WORDS }
    }

    /// Looks at the log to which the insert of a key would go; `None` where there are none, and
    /// where that of the key is closed: the insert goes to the layer below, under the lock of its
    /// bucket.
    ///
    /// A closed log stays full, so that no insert without a lock, begun before, comes between.
    #[inline(always)]
    pub(super) fn look_at_log(&self, pm: &Access<'_, M>, hash: u64) -> Result<Option<Seen>> {
        let Some(collectors) = self.appending() else { return Ok(None) };
        let collector = self.geometry.collector_of(hash);
        // Ends: each further round means that the log was swapped meanwhile.
        loop {
            let logs = collectors.logs(collector);
            if logs.closed {
                return Ok(None);
            }
            let seen = self.collecting_log(pm, collectors.at(logs.current)).look()?;
            // The log may have served another collector before, or serve one by now.
            if collectors.logs(collector) == logs {
                return Ok(Some(seen));
            }
        }
    }

    /// Hands out a slot for a key that was absent all the time since `seen`.
    ///
    /// Every insert of the key hands out a slot of the same log: if one came between, the exchange
    /// fails. A slot that is not written yet may be that of the same key.
    #[inline(always)]
    pub(super) fn collect<'a>(
        &self,
        pm: &'a Access<'a, M>,
        seen: &Seen,
    ) -> Result<core::result::Result<CollectingSlot<'a, M>, Need>> {
        if seen.control.is_pending() {
            return Ok(Err(Need::Append));
        }
        self.collect_beside(pm, seen)
    }

    /// As [`ElimDa::collect`], beside other appends that are under way, whatever their keys.
    #[inline(always)]
    pub(super) fn collect_beside<'a>(
        &self,
        pm: &'a Access<'a, M>,
        seen: &Seen,
    ) -> Result<core::result::Result<CollectingSlot<'a, M>, Need>> {
        if seen.control.reserved == self.geometry.unit_slots {
            return Ok(Err(Need::Log));
        }
        let log = self.collecting_log(pm, seen.at);
        Ok(match log.reserve(seen)? {
            Some(slot) => Ok(CollectingSlot { log, slot, filled: false }),
            None => Err(Need::Append),
        })
    }

    /// Looks for a key in the collecting logs: the older one first.
    #[inline(always)]
    pub(super) fn search_collected(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let Some(collectors) = &self.collectors else { return Ok(None) };
        let logs = collectors.logs(self.geometry.collector_of(wanted.hash));
        for at in logs.in_flight.into_iter().chain([logs.current]).map(|log| collectors.at(log)) {
            let first = F::first_word(wanted.hash, wanted.key);
            let found = self.collecting_log(pm, at).find(first, |item| {
                F::matches(pm, item, Addr::NULL, (wanted.hash, wanted.key), bytes)
            })?;
            if let Some((slot, item)) = found {
                return Ok(Some(Found { place: Place::Collected { at, slot }, item }));
            }
        }
        Ok(None)
    }

    /// Flushes the log of a collector if it is full. Closes the collector if not all of the log can
    /// move, or if the log was emptied too often. No lock is held.
    ///
    /// # Errors
    /// [`Error::Full`] if the log to which inserts go has no room; the items that have not moved
    /// stay where they are.
    pub(super) fn flush(&self, pm: &Access<'_, M>, collector: u64) -> Result<()> {
        let Some(collectors) = &self.collectors else { return Ok(()) };
        let _flushing = collectors.lock_flush(collector)?;
        if collectors.logs(collector).closed {
            return Ok(());
        }
        let finished = room_of(self.finish_flush(pm, collectors, collector))?;
        let logs = collectors.logs(collector);
        let log = self.collecting_log(pm, collectors.at(logs.current));
        // Whatever became of the log in flight, an insert goes on where the other one has room.
        let Some(control) = self.full(&log)? else { return Ok(()) };
        finished?;
        // Of two logs the sealed one is the older: if that stays in flight, the other moves from
        // where it is, unmarked.
        if logs.in_flight.is_none() {
            let sealed = Control { sealed: true, ..control };
            pm.commit_word(log.at, sealed.seal(log.at), sites::SEALED)?;
            if let Some(spare) = collectors.take_spare()? {
                let swapped = Logs { current: spare, in_flight: Some(logs.current), closed: false };
                collectors.set_logs(collector, swapped);
                // The spare log has room, whether or not the full one could move.
                let _moved = room_of(self.finish_flush(pm, collectors, collector))?;
                return Ok(());
            }
        }
        if self.move_items(pm, &log)? && self.empty(pm, &log)? {
            return Ok(());
        }
        collectors.set_logs(collector, Logs { closed: true, ..logs });
        Ok(())
    }

    /// Moves what is left in the log of a collector that is being flushed. It stays in flight if
    /// not all of it can move.
    fn finish_flush(
        &self,
        pm: &Access<'_, M>,
        collectors: &Collectors<M::Sync>,
        collector: u64,
    ) -> Result<()> {
        let logs = collectors.logs(collector);
        let Some(in_flight) = logs.in_flight else { return Ok(()) };
        let log = self.collecting_log(pm, collectors.at(in_flight));
        if !self.move_items(pm, &log)? {
            return Ok(());
        }
        let is_empty = self.empty(pm, &log)?;
        collectors.set_logs(collector, Logs { in_flight: None, ..logs });
        // One that was emptied too often is used no more: its items have all ended.
        if is_empty { collectors.give_spare(in_flight) } else { Ok(()) }
    }

    /// Returns the control word of a log once all its slots are written, unless it has room.
    fn full(&self, log: &CollectingLog<'_, M>) -> Result<Option<Control>> {
        let mut attempt = 0;
        // Ends: each further round waits for an append, which writes its slot.
        loop {
            let control = log.look()?.control;
            if control.reserved < log.slots {
                return Ok(None);
            }
            if !control.is_pending() {
                return Ok(Some(control));
            }
            M::Sync::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Moves the items of a log to the DRAM table, oldest first; returns whether all have moved.
    ///
    /// Those of a bucket in which a write failed stay, and are no error: the write that found the
    /// log full is one of another key.
    fn move_items(&self, pm: &Access<'_, M>, log: &CollectingLog<'_, M>) -> Result<bool> {
        let (items, mut all) = (log.read()?, true);
        let mut hashes = [0; MOST_SLOTS as usize];
        // Each goes to another bucket: the lines of all are asked for at once, the head first,
        // which says what else is needed.
        for slot in items.slots() {
            hashes[slot as usize] = F::item_hash(&self.hasher, &items.item(slot));
            self.locate(hashes[slot as usize]).bucket.prefetch_head();
        }
        for slot in items.slots() {
            self.locate(hashes[slot as usize]).bucket.prefetch_room();
        }
        for slot in items.slots() {
            match self.move_item(pm, log, (slot, items.generation), hashes[slot as usize]) {
                Ok(()) => {}
                Err(Error::Poisoned) => all = false,
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    /// A crash leaves the item in the collecting log, in the backup log, or in both: recovery ends
    /// the former then.
    fn move_item(
        &self,
        pm: &Access<'_, M>,
        log: &CollectingLog<'_, M>,
        (slot, generation): (u64, u64),
        hash: u64,
    ) -> Result<()> {
        let crowded = self.add_to(pm, hash, |writer| {
            let Some(item) = log.item(slot, generation)? else { return Ok(Ok(false)) };
            let reserved = match self.append_item(pm, writer, &item)? {
                Ok(reserved) => reserved,
                Err(need) => return Ok(Err(need)),
            };
            let change = writer.held.change()?;
            writer.bucket.push(hash, &item, reserved.order);
            log.end(slot)?;
            change.end();
            Ok(Ok(reserved.crowded))
        })?;
        self.relieve(pm, hash, crowded)
    }

    /// Empties a log whose items have all moved or ended; `false` if it was emptied too often. That
    /// one stays full, without live items.
    ///
    /// A crash leaves a log without live items, or an empty one.
    fn empty(&self, pm: &Access<'_, M>, log: &CollectingLog<'_, M>) -> Result<bool> {
        let Some(emptied) = log.look()?.control.emptied() else { return Ok(false) };
        pm.commit_word(log.at, emptied.seal(log.at), sites::EMPTIED)?;
        Ok(true)
    }

    /// Moves the items of all collecting logs. Inserts do not run, or may fill logs again.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] if some cannot move.
    pub(super) fn drain(&self, pm: &Access<'_, M>) -> Result<()> {
        let Some(collectors) = &self.collectors else { return Ok(()) };
        for collector in 0..self.geometry.collecting_logs {
            let _flushing = collectors.lock_flush(collector)?;
            let logs = collectors.logs(collector);
            for log in logs.in_flight.into_iter().chain([logs.current]) {
                if !self.move_items(pm, &self.collecting_log(pm, collectors.at(log)))? {
                    return Err(Error::Poisoned);
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a flush found room, as `Ok`, [`Error::Full`] or [`Error::Limit`].
///
/// # Errors
/// Those of the flush that are not about room.
fn room_of(flushed: Result<()>) -> Result<Result<()>> {
    match flushed {
        Err(error) if !error.is_full() => Err(error),
        flushed => Ok(flushed),
    }
}
