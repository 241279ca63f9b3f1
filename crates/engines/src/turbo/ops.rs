//! Get, insert, put, update, remove (TurboHash 3.4, Algorithms 1 to 3), under the contract's one
//! meaning of each.

use everhash_index::{Change, Result};
use everhash_pmem::{Access, Addr, Media};

use super::bucket::{Bucket, Pair, sites};
use super::concurrency::Held;
use super::layout::{self, Meta};
use super::resize::unless_full;
use super::search_path::{Search, Slot, Wanted, fetch, glimpse, look_along, search};
use super::state::Turbo;
use super::variable_size_items::Form;

/// A shard that is locked for a write to one key.
struct Writer<'t, 'k, M: Media, F: Form> {
    table: &'t Turbo<M, F>,
    held: Held<'t, M>,
    /// Index of the shard.
    index: u64,
    wanted: Wanted<'k, F>,
}

impl<M: Media, F: Form> Turbo<M, F> {
    /// Returns the pair of a key. A record's value is left in `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    #[inline(always)]
    pub fn get(&self, key: F::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<Pair>> {
        let wanted = self.wanted(key);
        match self.glimpse(wanted, false) {
            Some(found) => Ok(found),
            None => self.look_along(wanted, bytes),
        }
    }

    /// Returns the pair of a key, if a look at its home bucket is enough.
    #[inline(always)]
    pub(super) fn glimpse(&self, wanted: Wanted<'_, F>, is_fetched: bool) -> Option<Option<Pair>> {
        let pm = self.pool.access();
        glimpse(&pm, self.directory.of(wanted.hash), self.reach(), wanted, is_fetched)
    }

    /// Returns the pair of a key, wherever on its path it lies.
    #[inline(never)]
    pub(super) fn look_along(
        &self,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Pair>> {
        let pm = self.pool.access();
        look_along(&pm, self.directory.of(wanted.hash), self.reach(), wanted, bytes)
    }

    /// Looks for `count` keys, and says of each what was found (B1); a record's value is left in
    /// `bytes`. A key that has no form of the pool's is `None`, and not there.
    ///
    /// Three groups are on the way at a time: of one the lines are fetched that say where the keys
    /// can be, of the one before the lines where they are, and the first is looked up.
    ///
    /// # Errors
    /// As [`Turbo::get`].
    #[inline(always)]
    pub(super) fn get_all<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<F::Key<'k>>,
        bytes: &mut Vec<u8>,
        mut found: impl FnMut(usize, Option<Pair>, &mut Vec<u8>),
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut ways = [[Way::default(); GROUP]; 3];
        for step in 0..count.div_ceil(GROUP) + 2 {
            for position in group(Some(step), count) {
                if let Some(key) = key(position) {
                    ways[step % 3][position % GROUP] = self.set_out(&pm, key);
                }
            }
            let before = step.checked_sub(1);
            for position in group(before, count) {
                ways[(step + 2) % 3][position % GROUP].go_on(&pm);
            }
            for position in group(step.checked_sub(2), count) {
                let hash = ways[(step + 1) % 3][position % GROUP].hash;
                let pair = match key(position) {
                    Some(key) => {
                        let wanted = Wanted { hash, key };
                        match self.glimpse(wanted, true) {
                            Some(found) => found,
                            None => self.look_along(wanted, bytes)?,
                        }
                    }
                    None => None,
                };
                found(position, pair, bytes);
            }
        }
        Ok(())
    }

    /// Fetches the line that says where a key can be.
    #[inline(always)]
    fn set_out(&self, pm: &Access<'_, M>, key: F::Key<'_>) -> Way {
        let hash = self.wanted(key).hash;
        let place = self.directory.of(hash).place();
        let home = place.bucket(layout::home_of(hash, place.log));
        pm.prefetch(home);
        Way { hash, home }
    }

    /// Adds a pair if the key is absent; returns whether it was.
    ///
    /// A crash leaves the pair or not.
    ///
    /// # Errors
    /// [`everhash_index::Error::Full`], and as [`Turbo::get`].
    #[inline]
    pub fn insert(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let mut writer = self.writer(&pm, key)?;
        let search = writer.search(&pm, &mut Vec::new())?;
        let absent = search.found.is_none();
        if absent {
            writer.add(&pm, search, value)?;
        }
        Ok(absent)
    }

    /// Adds a pair or replaces its value; returns whether there was one (Algorithm 2).
    ///
    /// # Errors
    /// As [`Turbo::insert`].
    pub fn put(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let mut writer = self.writer(&pm, key)?;
        let search = writer.search(&pm, &mut Vec::new())?;
        match &search.found {
            Some(found) => writer.replace(&pm, found, value).map(|()| true),
            None => writer.add(&pm, search, value).map(|()| false),
        }
    }

    /// Replaces a value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// As [`Turbo::insert`].
    pub fn update(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, key)?;
        let search = writer.search(&pm, &mut Vec::new())?;
        match &search.found {
            Some(found) => writer.replace(&pm, found, value).map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes a key; returns whether it was there (Algorithm 3).
    ///
    /// # Errors
    /// As [`Turbo::get`].
    pub fn remove(&self, key: F::Key<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let mut writer = self.writer(&pm, key)?;
        let search = writer.search(&pm, &mut Vec::new())?;
        match &search.found {
            Some(found) => writer.end(&pm, found).map(|()| true),
            None => Ok(false),
        }
    }

    /// Reads a key and does with it what `change` says, in one step.
    ///
    /// # Errors
    /// As [`Turbo::insert`], and those of `change`, which returns values of the pool's form only.
    pub fn modify(
        &self,
        key: F::Key<'_>,
        change: impl FnOnce(Option<&[u8]>) -> Result<Change>,
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut writer = self.writer(&pm, key)?;
        let mut bytes = Vec::new();
        let search = writer.search(&pm, &mut bytes)?;
        if let Some((_, pair)) = &search.found {
            F::found_value(*pair, &mut bytes);
        }
        let present = search.found.is_some().then_some(bytes.as_slice());
        match (change(present)?, &search.found) {
            (Change::Keep, _) | (Change::Remove, None) => Ok(()),
            (Change::Remove, Some(found)) => writer.end(&pm, found),
            (Change::Put(value), Some(found)) => writer.replace(&pm, found, F::value(&value)),
            (Change::Put(value), None) => writer.add(&pm, search, F::value(&value)),
        }
    }

    #[inline(always)]
    fn writer<'t, 'k>(
        &'t self,
        pm: &'t Access<'_, M>,
        key: F::Key<'k>,
    ) -> Result<Writer<'t, 'k, M, F>> {
        self.writable()?;
        let wanted = self.wanted(key);
        let index = self.directory.index_of(wanted.hash);
        let shard = &self.directory.shards()[index as usize];
        // Before the lock, which waits for the flush of this thread's last write.
        let place = shard.place();
        fetch(pm, place.bucket(layout::home_of(wanted.hash, place.log)));
        let held = shard.hold(pm)?;
        Ok(Writer { table: self, held, index, wanted })
    }

    /// Gives the record of a slot back that no slot leads to any more.
    pub(super) fn drop_record(&self, slot: &Slot<'_, M>, pair: Pair) -> Result<()> {
        if let Some(record) = F::record(pair, slot.bucket.slot_at(slot.slot))? {
            self.heap.give(record.addr, record.class);
        }
        Ok(())
    }
}

/// Keys that are looked for together.
///
/// Unit: keys. Source: ours; sixteen lines can be on the way to a core of the present, of which one
/// group takes eight at its first stage and the one before it up to eight at its second.
const GROUP: usize = 8;

/// Returns which of `count` positions are in a group.
#[inline(always)]
fn group(number: Option<usize>, count: usize) -> core::ops::Range<usize> {
    let first = number.map_or(count, |number| number * GROUP);
    first.min(count)..(first + GROUP).min(count)
}

/// A search that has set out: what it looks for, and where it begins.
#[derive(Clone, Copy)]
struct Way {
    hash: u64,
    home: Addr,
}

impl Default for Way {
    fn default() -> Self {
        Way { hash: 0, home: Addr::NULL }
    }
}

impl Way {
    /// Fetches the line where the key is, if the first one promises it; that is there by now.
    #[inline(always)]
    fn go_on<M: Media>(&self, pm: &Access<'_, M>) {
        // Outside of the medium: the search will say so.
        let bucket = Bucket::hint(pm, self.home).ok();
        if let Some(slot) = bucket.and_then(|bucket| bucket.guess(layout::tag_of(self.hash))) {
            pm.prefetch(slot);
        }
    }
}

impl<M: Media, F: Form> Writer<'_, '_, M, F> {
    #[inline(always)]
    fn search<'a>(&self, pm: &'a Access<'_, M>, bytes: &mut Vec<u8>) -> Result<Search<'a, M>> {
        search(pm, self.held.place(), self.table.reach(), self.wanted, bytes)
    }

    /// Adds a pair to a path that does not have its key (Algorithm 2, lines 2 to 24).
    ///
    /// A crash leaves the pair or not; a record that no slot leads to is free after it.
    #[inline(always)]
    fn add<'a>(
        &mut self,
        pm: &'a Access<'_, M>,
        search: Search<'a, M>,
        value: F::Value<'_>,
    ) -> Result<()> {
        let mut search = search;
        // Ends: each round doubles the shard, or collects it once before the first doubling.
        while search.vacancy.is_none() {
            self.table.make_room(pm, &self.held, self.index)?;
            search = self.search(pm, &mut Vec::new())?;
        }
        let slot = search.vacancy.expect("the loop ends with a vacancy");
        let was_deleted = slot.view.meta.delete() >> slot.slot & 1;
        let pair = self.pair(pm, value)?;
        self.fill(pm, &slot, slot.slot, pair, slot.view.inserted(slot.slot), sites::INSERT)?;
        self.held.count(1);
        self.held.count_deleted(-i64::from(was_deleted));
        // A long search through many deleted slots (P15): 14 slots a bucket, a quarter of them.
        let bucket_slots = self.table.settings.bucket_slots;
        if search.probes >= self.table.settings.gc_probes
            && search.deleted * 4 >= search.probes * bucket_slots
        {
            unless_full(self.table.collect(pm, &self.held, self.index))?;
        }
        Ok(())
    }

    /// Gives a key another value: the near-place update, in an empty slot of the same bucket.
    ///
    /// A crash leaves the old or the new value.
    fn replace(
        &self,
        pm: &Access<'_, M>,
        found: &(Slot<'_, M>, Pair),
        value: F::Value<'_>,
    ) -> Result<()> {
        let (old, old_pair) = found;
        let empty = old.view.empty_slot(self.table.reach().bucket_slots);
        let new = empty.ok_or(everhash_index::Error::Corrupt {
            at: old.bucket.at().byte(),
            broken: "one slot of every bucket is empty",
        })?;
        let pair = self.pair(pm, value)?;
        self.fill(pm, old, new, pair, old.view.updated(old.slot, new), sites::UPDATE)?;
        self.table.drop_record(old, *old_pair)
    }

    /// Ends a pair (Algorithm 3, lines 19 to 25).
    ///
    /// A crash leaves the pair or not.
    fn end(&mut self, pm: &Access<'_, M>, found: &(Slot<'_, M>, Pair)) -> Result<()> {
        let (slot, pair) = found;
        let _lane = self.table.lanes.bucket(pm, slot.bucket.at())?;
        let meta = slot.view.removed(slot.slot);
        let pending = self.held.pending(slot.bucket.index, meta);
        slot.bucket.commit(pm, &slot.view, meta, pending, sites::REMOVE)?;
        self.held.count(-1);
        self.held.count_deleted(1);
        self.table.drop_record(slot, *pair)?;
        self.table.note_deleted(&self.held, self.index)
    }

    #[inline(always)]
    fn pair(&self, pm: &Access<'_, M>, value: F::Value<'_>) -> Result<Pair> {
        F::pair(pm, &self.table.heap, self.wanted.hash, self.wanted.key, value)
    }

    /// Writes a pair into slot `new` of a bucket, and META with it.
    #[inline(always)]
    fn fill(
        &self,
        pm: &Access<'_, M>,
        place: &Slot<'_, M>,
        new: usize,
        pair: Pair,
        meta: Meta,
        site: everhash_pmem::Site,
    ) -> Result<()> {
        let (bucket, tag) = (&place.bucket, layout::tag_of(self.wanted.hash));
        let _lane = self.table.lanes.bucket(pm, bucket.at())?;
        let view = bucket.fill(pm, &place.view, new, tag, pair, self.table.ordered)?;
        let pending = self.held.pending(bucket.index, meta);
        bucket.commit(pm, &view, meta, pending, site)
    }
}
