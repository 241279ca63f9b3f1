//! Get, insert, put, update, remove and modify, under the contract's one meaning of each.

mod write;

use everhash_index::{Error, Form as PairForm, Result};
use everhash_pmem::{Access, Addr, Media, Primitives};

use super::form::{Form, Item, Update};
use super::reversed_search::Wanted;
use super::shadow_log::CollectingSlot;
use super::state::{ElimDa, Located, Need, Writer};
use crate::common::edit::{Edit, Step as Becomes};
use crate::common::slot_table::{Decision, SlotTable};

/// Where these operations persist something of their own.
pub mod sites {
    everhash_pmem::sites! {
        /// A value that is replaced in a unit.
        VALUE = "elimda/update/value";
        /// The state of a unit that ends an item.
        END = "elimda/remove/unit";
        /// The end of an item in the log.
        END_IN_LOG = "elimda/remove/log";
        /// The numbers of pairs and of units, at a clean close.
        ITEMS = "elimda/close/items";
        /// Everything, for a caller of `sync`.
        SYNC = "elimda/sync/all";
    }
}

/// What an insert that looks for a slot of a collecting log comes to.
enum Asked<'a, M: Media> {
    /// A slot, and the item for it.
    Handed(CollectingSlot<'a, M>, Item),
    /// The key is there.
    Present,
    /// No collecting log takes it.
    NoLog,
}

/// What a write inside a locked bucket comes to: done, or something it needs first.
type Step<R> = Result<core::result::Result<R, Need>>;

impl<M: Media, F: Form> SlotTable for ElimDa<M, F> {
    type Codec = F;

    fn pair_form(&self) -> PairForm {
        F::FORM
    }

    #[inline(always)]
    fn find(&self, key: F::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<F::Pair>> {
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        let located = self.locate(wanted.hash);
        located.prefetch();
        match self.get_in(&pm, located, wanted, bytes)? {
            Some(item) => F::pair(&item, Addr::NULL).map(Some),
            None => Ok(None),
        }
    }

    /// Gets all room that the write may need, and only then asks what becomes of the key. Where
    /// there is no room it asks all the same: only a new item needs some.
    fn edit<'v, T>(
        &self,
        key: F::Key<'_>,
        may_put: bool,
        decide: impl FnOnce(Option<F::Pair>, &mut Vec<u8>) -> Decision<T, F::Value<'v>>,
    ) -> Result<T> {
        self.pool.check_writable()?;
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        let mut decide = Some(decide);
        let edited = self.write_to(&pm, wanted.hash, |writer| {
            self.edit_in(&pm, writer, wanted, may_put, &mut decide)
        });
        let (answer, crowded) = match (edited, decide) {
            (Err(full), Some(decide)) if full.is_full() => {
                return self.edit_without_room(&pm, wanted, decide, full);
            }
            (edited, _) => edited?,
        };
        self.relieve(&pm, wanted.hash, crowded)?;
        Ok(answer)
    }

    /// As the others do, but takes no room before it knows that it needs it.
    #[inline(always)]
    fn write(&self, key: F::Key<'_>, edit: Edit<F::Value<'_>>) -> Result<bool> {
        self.pool.check_writable()?;
        match edit {
            Edit::Insert(value) => self.insert(key, value),
            Edit::Put(value) => self.put(key, value),
            Edit::Update(value) => self.update(key, value),
            Edit::Remove => self.remove(key),
        }
    }
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Returns the item of a key. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    #[inline(always)]
    pub(super) fn get_wanted(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Item>> {
        self.get_in(pm, self.locate(wanted.hash), wanted, bytes)
    }

    /// As [`ElimDa::get_wanted`], of a key whose bucket was located.
    #[inline(always)]
    pub(super) fn get_in<'t>(
        &'t self,
        pm: &Access<'_, M>,
        mut located: Located<'t, M>,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Item>> {
        pm.dram(4);
        let mut attempt = 0;
        // Ends: each further round means that a writer has changed the bucket meanwhile.
        loop {
            let Located { segment, index, bucket } = &located;
            let lock = segment.lock(*index);
            let stamp = lock.stamp(&mut attempt)?;
            if bucket.covers(wanted.hash) {
                let found = self.search(pm, segment, bucket, wanted, bytes);
                if lock.accepts(stamp) {
                    return Ok(found?.map(|found| found.item));
                }
            }
            located = self.locate(wanted.hash);
        }
    }

    /// Adds a pair if the key is absent; returns whether it was.
    ///
    /// A crash leaves the pair or not.
    ///
    /// # Errors
    /// [`everhash_index::Error::Full`], and as [`ElimDa::get`].
    fn insert(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        if let Some(added) = self.insert_collected(&pm, wanted, value)? {
            return Ok(added);
        }
        let added = self.write_to(&pm, wanted.hash, |writer| {
            match self.find_in(&pm, writer, wanted, &mut Vec::new())? {
                Some(_) => Ok(Ok(None)),
                None => Ok(self.add(&pm, writer, wanted, value, None)?.map(Some)),
            }
        })?;
        self.relieve(&pm, wanted.hash, added == Some(true))?;
        Ok(added.is_some())
    }

    /// Adds a pair without looking for its key: the paper's insert (3.3).
    ///
    /// A key that is present is there twice afterwards, is counted and visited twice, and `check`
    /// names the second one. Searches find what was inserted first, until that is removed, or its
    /// segment splits, which drops the second one. This is not promised of two inserts at the same
    /// time, and of pairs of two words neither behind an update nor behind a crash, where the newer
    /// one of two items of a key counts.
    ///
    /// # Errors
    /// As [`SlotTable::edit`].
    pub(super) fn insert_blind(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<()> {
        self.pool.check_writable()?;
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        if self.append_blind(&pm, wanted, value)? {
            return Ok(());
        }
        let crowded =
            self.add_to(&pm, wanted.hash, |writer| self.add(&pm, writer, wanted, value, None))?;
        self.relieve(&pm, wanted.hash, crowded)
    }

    /// Appends a pair to a collecting log, unless there is none that takes it. No lock is held, and
    /// no other layer is looked at.
    fn append_blind(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
    ) -> Result<bool> {
        if self.appending().is_none() {
            return Ok(false);
        }
        let item = F::item(pm, &self.heap, wanted.hash, wanted.key, value)?;
        match self.slot_for_blind(pm, wanted.hash) {
            Ok(Some(slot)) => {
                slot.fill(&item)?;
                self.count_added(wanted.hash);
                Ok(true)
            }
            refused => {
                self.drop_record(&item)?;
                refused.map(|_| false)
            }
        }
    }

    /// Hands out a slot of the collecting log of a hash; `None` if that is closed.
    fn slot_for_blind<'a>(
        &self,
        pm: &'a Access<'a, M>,
        hash: u64,
    ) -> Result<Option<CollectingSlot<'a, M>>> {
        let mut attempt = 0;
        // Ends: each further round means that another thread has taken a step.
        loop {
            let Some(seen) = self.look_at_log(pm, hash)? else { return Ok(None) };
            match self.collect_beside(pm, &seen)? {
                Ok(slot) => return Ok(Some(slot)),
                Err(Need::Log) => self.flush(pm, self.geometry.collector_of(hash))?,
                Err(_) => {
                    M::Sync::pause(attempt);
                    attempt = attempt.saturating_add(1);
                }
            }
        }
    }

    /// Adds a pair to a collecting log if the key is absent in all layers; returns whether it was,
    /// or `None` if there is no log that takes it. No lock is held.
    ///
    /// The log is looked at first. The insert takes effect with the exchange that hands out a slot:
    /// it fails if another insert of the key came between.
    #[inline(always)]
    fn insert_collected(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
    ) -> Result<Option<bool>> {
        let Some(collectors) = self.appending() else { return Ok(None) };
        let logs = collectors.logs(self.geometry.collector_of(wanted.hash));
        self.collecting_log(pm, collectors.at(logs.current)).prefetch();
        self.locate(wanted.hash).prefetch();
        let mut made = None;
        match self.slot_for(pm, wanted, value, &mut made) {
            Ok(Asked::Handed(slot, item)) => {
                slot.fill(&item)?;
                self.count_added(wanted.hash);
                Ok(Some(true))
            }
            // The key is there, or no log takes it, or that of a full medium cannot be flushed.
            refused => {
                made.map_or(Ok(()), |item| self.drop_record(&item))?;
                refused.map(|asked| matches!(asked, Asked::Present).then_some(false))
            }
        }
    }

    /// Hands out a slot for a key, with its item, which is left in `made` whatever comes of it.
    #[inline(always)]
    fn slot_for<'a>(
        &self,
        pm: &'a Access<'a, M>,
        wanted: Wanted<'_, F>,
        value: F::Value<'_>,
        made: &mut Option<Item>,
    ) -> Result<Asked<'a, M>> {
        let (mut bytes, mut attempt) = (Vec::new(), 0);
        // Ends: each further round means that another thread has taken a step.
        loop {
            let Some(seen) = self.look_at_log(pm, wanted.hash)? else { return Ok(Asked::NoLog) };
            if self.get_wanted(pm, wanted, &mut bytes)?.is_some() {
                return Ok(Asked::Present);
            }
            // A record is written before the slot is handed out: others wait for the slot.
            let item = match *made {
                Some(item) => item,
                None => F::item(pm, &self.heap, wanted.hash, wanted.key, value)?,
            };
            *made = Some(item);
            match self.collect(pm, &seen)? {
                Ok(slot) => return Ok(Asked::Handed(slot, item)),
                Err(Need::Log) => self.flush(pm, self.geometry.collector_of(wanted.hash))?,
                Err(_) => {
                    M::Sync::pause(attempt);
                    attempt = attempt.saturating_add(1);
                }
            }
        }
    }

    /// Adds a pair or replaces its value; returns whether there was one.
    ///
    /// # Errors
    /// As [`ElimDa::insert`].
    fn put(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        let (present, crowded) = self.write_to(&pm, wanted.hash, |writer| {
            let seen = self.look_at_log(&pm, wanted.hash)?;
            match self.find_in(&pm, writer, wanted, &mut Vec::new())? {
                Some(found) => {
                    let replaced = self.replace(&pm, writer, wanted, found, value)?;
                    Ok(replaced.map(|crowded| (true, crowded)))
                }
                None => {
                    let added = self.add(&pm, writer, wanted, value, seen.as_ref())?;
                    Ok(added.map(|crowded| (false, crowded)))
                }
            }
        })?;
        self.relieve(&pm, wanted.hash, crowded)?;
        Ok(present)
    }

    /// Replaces a value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// As [`ElimDa::insert`].
    fn update(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        let replaced = self.write_to(&pm, wanted.hash, |writer| {
            match self.find_in(&pm, writer, wanted, &mut Vec::new())? {
                Some(found) => Ok(self.replace(&pm, writer, wanted, found, value)?.map(Some)),
                None => Ok(Ok(None)),
            }
        })?;
        self.relieve(&pm, wanted.hash, replaced == Some(true))?;
        Ok(replaced.is_some())
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// As [`ElimDa::get`].
    fn remove(&self, key: F::Key<'_>) -> Result<bool> {
        let (pm, wanted) = (self.pool.access(), self.wanted(key));
        let writer = self.lock(&pm, wanted.hash)?;
        let Some(found) = self.find_in(&pm, &writer, wanted, &mut Vec::new())? else {
            return Ok(false);
        };
        self.end(&pm, &writer, wanted.hash, &found)?;
        Ok(true)
    }

    /// Gets all room that the write may need, and only then asks: it asks once.
    fn edit_in<'v, T>(
        &self,
        pm: &Access<'_, M>,
        writer: &Writer<'_, M>,
        wanted: Wanted<'_, F>,
        may_put: bool,
        decide: &mut Option<
            impl FnOnce(Option<F::Pair>, &mut Vec<u8>) -> Decision<T, F::Value<'v>>,
        >,
    ) -> Step<(T, bool)> {
        let mut bytes = Vec::new();
        let seen = self.look_at_log(pm, wanted.hash)?;
        let mut found = self.find_in(pm, writer, wanted, &mut bytes)?;
        let (mut reserved, mut collected) = (None, None);
        if let (None, Some(seen), true) = (&found, &seen, may_put) {
            // Inserts into this log wait until the slot is written, or given up.
            match self.collect(pm, seen)? {
                Ok(slot) => collected = Some(slot),
                Err(need) => return Ok(Err(need)),
            }
        } else if may_put && (found.is_none() || F::UPDATE == Update::NewItem) {
            match self.room(pm, writer)? {
                Ok(slot) => reserved = Some(slot),
                Err(need) => return Ok(Err(need)),
            }
            // The item may have been relocated.
            found = self.find_in(pm, writer, wanted, &mut bytes)?;
        }
        let pair = found.map(|found| F::pair(&found.item, Addr::NULL)).transpose()?;
        let decide = decide.take().expect("room is made before anything is decided");
        let decision = decide(pair, &mut bytes);
        if let Ok((answer, Becomes::Put(value))) = decision {
            let crowded = match (found, collected, reserved) {
                (Some(found), _, slot) => {
                    self.replace_by(pm, writer, wanted, found, value, slot)?
                }
                (None, Some(slot), _) => {
                    self.add_collected(pm, wanted, value, slot)?;
                    false
                }
                (None, None, slot) => {
                    let slot = slot.expect("what puts a key that is absent has a slot");
                    self.add_at(pm, writer, wanted, value, slot)?
                }
            };
            return Ok(Ok((answer, crowded)));
        }
        drop(reserved);
        let (answer, step) = decision?;
        if let (Becomes::Remove, Some(found)) = (step, &found) {
            self.end(pm, writer, wanted.hash, found)?;
        }
        Ok(Ok((answer, false)))
    }

    /// As [`ElimDa::edit_in`], on a full medium, where `full` is the error of a new item.
    ///
    /// A key that is absent has no slot here that an insert without a lock would need, so that one
    /// may add it meanwhile: what is decided holds for the moment of the search.
    #[cold]
    fn edit_without_room<'v, T>(
        &self,
        pm: &Access<'_, M>,
        wanted: Wanted<'_, F>,
        decide: impl FnOnce(Option<F::Pair>, &mut Vec<u8>) -> Decision<T, F::Value<'v>>,
        full: Error,
    ) -> Result<T> {
        let writer = self.lock(pm, wanted.hash)?;
        let mut bytes = Vec::new();
        let found = self.find_in(pm, &writer, wanted, &mut bytes)?;
        let pair = found.map(|found| F::pair(&found.item, Addr::NULL)).transpose()?;
        let (answer, step) = decide(pair, &mut bytes)?;
        match (step, found) {
            (Becomes::Keep, _) | (Becomes::Remove, None) => {}
            (Becomes::Remove, Some(found)) => self.end(pm, &writer, wanted.hash, &found)?,
            // Another thread has added the key since room was asked for.
            (Becomes::Put(value), Some(found)) if F::UPDATE == Update::InPlace => {
                self.replace_in_place(pm, &writer, wanted, &found, value)?;
            }
            (Becomes::Put(_), _) => return Err(full),
        }
        Ok(answer)
    }
}
