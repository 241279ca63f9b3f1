//! Get, insert, put, update, remove (TurboHash 3.4, Algorithms 1 to 3), under the contract's one
//! meaning of each.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Access, Addr, Media, Site};

use super::bucket::{Bucket, Fences, sites};
use super::concurrency::Held;
use super::layout::{self, BUCKET_LINES, Meta};
use super::search_path::{Hints, Search, Slot, get_along_path, search, try_fast_get};
use super::state::Turbo;
use super::variable_size_items::PairCodec;
use super::variable_size_items::sites::RECORD;
use crate::common::edit::Step;
use crate::common::slot_codec::HashedKey;
use crate::common::slot_table::SlotTable;

/// A shard that is locked for a write to one key.
struct Writer<'t, 'k, M: Media, C: PairCodec> {
    table: &'t Turbo<M, C>,
    held: Held<'t, M>,
    /// Index of the shard.
    index: u64,
    wanted: HashedKey<'k, C>,
}

impl<M: Media, C: PairCodec> SlotTable for Turbo<M, C> {
    type Codec = C;

    fn pair_form(&self) -> Form {
        self.form
    }

    #[inline(always)]
    fn find(&self, key: C::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<C::Pair>> {
        let wanted = self.hashed(key);
        match self.try_fast_get(wanted, Hints { is_fetched: false, at_once: None }) {
            Some(found) => Ok(found),
            None => self.get_along_path(wanted, bytes),
        }
    }

    /// As Algorithms 2 and 3.
    #[inline(always)]
    fn edit<'v, T>(
        &self,
        key: C::Key<'_>,
        _may_put: bool,
        decide: impl FnOnce(Option<C::Pair>, &mut Vec<u8>) -> Result<(T, Step<C::Value<'v>>)>,
    ) -> Result<T> {
        let pm = self.pool.access();
        let mut writer = self.writer(&pm, key)?;
        let mut bytes = Vec::new();
        let search = writer.search(&pm, &mut bytes)?;
        let pair = search.found.as_ref().map(|(_, pair)| *pair);
        let (answer, step) = decide(pair, &mut bytes)?;
        match (step, &search.found) {
            (Step::Keep, _) | (Step::Remove, None) => {}
            (Step::Remove, Some(found)) => writer.end(&pm, found)?,
            (Step::Put(value), Some(found)) => writer.replace(&pm, found, value)?,
            (Step::Put(value), None) => writer.add(&pm, search, value)?,
        }
        Ok(answer)
    }
}

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Returns the pair of a key, if its home bucket is enough to tell.
    #[inline(always)]
    pub(super) fn try_fast_get(
        &self,
        wanted: HashedKey<'_, C>,
        hints: Hints,
    ) -> Option<Option<C::Pair>> {
        let pm = self.pool.access();
        try_fast_get(&pm, self.directory.of(wanted.hash), || self.used_slots, wanted, hints)
    }

    /// Returns the pair of a key, wherever on its path it lies.
    #[inline(never)]
    pub(super) fn get_along_path(
        &self,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let pm = self.pool.access();
        get_along_path(&pm, self.directory.of(wanted.hash), self.reach(), wanted, bytes)
    }

    /// Looks up `count` keys, and calls `found` for each; a record's value is left in `bytes`. A
    /// key that does not have the form of the pool's keys is `None`, and absent.
    ///
    /// Lookups are interleaved with software prefetch, three groups at a time: the first lines of
    /// the home buckets are fetched for one, the lines of the slots for the group before it, and
    /// the oldest is looked up.
    ///
    /// # Errors
    /// As [`SlotTable::find`].
    #[inline(always)]
    pub(super) fn get_all<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<C::Key<'k>>,
        bytes: &mut Vec<u8>,
        mut found: impl FnMut(usize, Option<C::Pair>, &mut Vec<u8>),
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut probes = [[Probe::default(); GROUP]; 3];
        for step in 0..count.div_ceil(GROUP) + 2 {
            for position in group(Some(step), count) {
                if let Some(key) = key(position) {
                    probes[step % 3][position % GROUP] = self.prefetch_home(&pm, key);
                }
            }
            let before = step.checked_sub(1);
            for position in group(before, count) {
                probes[(step + 2) % 3][position % GROUP].prefetch_slot(&pm);
            }
            for position in group(step.checked_sub(2), count) {
                let hash = probes[(step + 1) % 3][position % GROUP].hash;
                let pair = match key(position) {
                    Some(key) => {
                        let wanted = HashedKey { hash, key };
                        match self.try_fast_get(wanted, Hints { is_fetched: true, at_once: None }) {
                            Some(found) => found,
                            None => self.get_along_path(wanted, bytes)?,
                        }
                    }
                    None => None,
                };
                found(position, pair, bytes);
            }
        }
        Ok(())
    }

    /// Prefetches the first line of a key's home bucket, which has the tags.
    #[inline(always)]
    fn prefetch_home(&self, pm: &Access<'_, M>, key: C::Key<'_>) -> Probe {
        let hash = self.hashed(key).hash;
        let place = self.directory.of(hash).place();
        let home = place.bucket(layout::home_of(hash, place.log));
        pm.prefetch(home);
        Probe { hash, home }
    }

    #[inline(always)]
    fn writer<'t, 'k>(
        &'t self,
        pm: &'t Access<'_, M>,
        key: C::Key<'k>,
    ) -> Result<Writer<'t, 'k, M, C>> {
        self.pool.check_writable()?;
        let wanted = self.hashed(key);
        let index = self.directory.index_of(wanted.hash);
        let shard = &self.directory.shards()[index as usize];
        // Before the lock: that waits for the flush of this thread's last write.
        let place = shard.place();
        let home = place.bucket(layout::home_of(wanted.hash, place.log));
        // All of it: where the pair is, and where the new one goes, may be two lines of the bucket.
        for line in 0..BUCKET_LINES {
            pm.prefetch(home.plus(line * layout::LINE_WORDS as u64));
        }
        let held = shard.hold(pm)?;
        Ok(Writer { table: self, held, index, wanted })
    }

    /// Frees the record of a pair that no slot leads to any more.
    #[inline(always)]
    fn drop_record(&self, pair: C::Pair) {
        if let Some(record) = C::record(pair) {
            self.heap.give(record.addr, record.class);
        }
    }
}

/// Keys that are looked up together.
///
/// Unit: keys. Source: ours; a core of today fetches sixteen lines at once, of which one group
/// takes eight at its first stage and the group before it up to eight at its second.
const GROUP: usize = 8;

/// Returns which of `count` positions are in a group.
#[inline(always)]
fn group(number: Option<usize>, count: usize) -> core::ops::Range<usize> {
    let first = number.map_or(count, |number| number * GROUP);
    first.min(count)..(first + GROUP).min(count)
}

/// A lookup whose home bucket was prefetched: the hash of its key, and where it begins.
#[derive(Clone, Copy)]
struct Probe {
    hash: u64,
    home: Addr,
}

impl Default for Probe {
    fn default() -> Self {
        Probe { hash: 0, home: Addr::NULL }
    }
}

impl Probe {
    /// Prefetches the line of the first slot with the key's tag. The line with the tags has arrived
    /// by now.
    #[inline(always)]
    fn prefetch_slot<M: Media>(&self, pm: &Access<'_, M>) {
        // None if it lies outside the medium: the lookup reports that.
        let bucket = Bucket::around(pm, self.home.byte());
        if let Some(slot) = bucket.and_then(|bucket| bucket.guess(layout::tag_of(self.hash))) {
            pm.prefetch(slot);
        }
    }
}

impl<M: Media, C: PairCodec> Writer<'_, '_, M, C> {
    #[inline(always)]
    fn search<'a>(&self, pm: &'a Access<'_, M>, bytes: &mut Vec<u8>) -> Result<Search<'a, M, C>> {
        search(pm, self.held.place(), self.table.reach(), self.wanted, bytes)
    }

    /// Adds a pair to a path that does not have its key (Algorithm 2, lines 2 to 24).
    ///
    /// A crash leaves the pair or not; a record that no slot leads to is free after it.
    #[inline(always)]
    fn add<'a>(
        &mut self,
        pm: &'a Access<'_, M>,
        search: Search<'a, M, C>,
        value: C::Value<'_>,
    ) -> Result<()> {
        let mut search = search;
        // Ends: each round doubles the shard, or collects it once before the first doubling.
        while search.vacancy.is_none() {
            self.table.make_room(pm, &self.held, self.index)?;
            search = self.search(pm, &mut Vec::new())?;
            if let Some((found, _)) = &search.found {
                // It was there before: only a rehash, which computes the tags anew, has shown it.
                let at = found.bucket.at().byte();
                return Err(Error::Corrupt { at, broken: "a tag is that of its key" });
            }
        }
        let slot = search.vacancy.expect("the loop ends with a vacancy");
        let was_deleted = slot.view.meta.delete() >> slot.slot & 1;
        let pair = self.pair(pm, value)?;
        self.fill(pm, &slot, slot.slot, pair, slot.view.inserted(slot.slot), sites::INSERT)?;
        self.held.count(1);
        self.held.count_deleted(-i64::from(was_deleted));
        // A long search through many deleted slots: 14 slots a bucket, a quarter of them.
        let bucket_slots = self.table.settings.bucket_slots;
        if search.probes >= self.table.settings.gc_probes
            && search.deleted * 4 >= search.probes * bucket_slots
        {
            // The pair is durable already: what prevents the collection is no error of this write.
            // The next operation that needs the damaged words, or the medium, reports it.
            let _ = self.table.collect(pm, &self.held, self.index);
        }
        Ok(())
    }

    /// Gives a key another value: the near-place update, in an empty slot of the same bucket.
    ///
    /// A crash leaves the old or the new value.
    fn replace(
        &self,
        pm: &Access<'_, M>,
        found: &(Slot<'_, M>, C::Pair),
        value: C::Value<'_>,
    ) -> Result<()> {
        let (old, old_pair) = found;
        let empty = old.view.empty_slot(self.table.reach().bucket_slots, self.wanted.hash);
        let new = empty.ok_or(Error::Corrupt {
            at: old.bucket.at().byte(),
            broken: "one slot of every bucket is empty",
        })?;
        let pair = self.pair(pm, value)?;
        self.fill(pm, old, new, pair, old.view.updated(old.slot, new), sites::UPDATE)?;
        self.table.drop_record(*old_pair);
        Ok(())
    }

    /// Deletes a pair (Algorithm 3, lines 19 to 25).
    ///
    /// A crash leaves the pair or not.
    fn end(&mut self, pm: &Access<'_, M>, found: &(Slot<'_, M>, C::Pair)) -> Result<()> {
        let (slot, pair) = found;
        let _lane = self.table.lanes.bucket(pm, slot.bucket.at())?;
        let meta = slot.view.removed(slot.slot);
        let pending = self.held.pending(slot.bucket.index, meta);
        slot.bucket.commit(pm, &slot.view, meta, pending, sites::REMOVE)?;
        self.held.count(-1);
        self.held.count_deleted(1);
        self.table.drop_record(*pair);
        self.table.note_deleted(&self.held, self.index);
        Ok(())
    }

    #[inline(always)]
    fn pair(&self, pm: &Access<'_, M>, value: C::Value<'_>) -> Result<C::Pair> {
        let HashedKey { hash, key } = self.wanted;
        C::make(pm, &self.table.heap, hash, key, value, RECORD)
    }

    /// Writes a pair into slot `new` of a bucket, and META with it.
    #[inline(always)]
    fn fill(
        &self,
        pm: &Access<'_, M>,
        place: &Slot<'_, M>,
        new: usize,
        pair: C::Pair,
        meta: Meta,
        site: Site,
    ) -> Result<()> {
        let (bucket, tag) = (&place.bucket, layout::tag_of(self.wanted.hash));
        let _lane = self.table.lanes.bucket(pm, bucket.at())?;
        let fences = Fences { is_ordered: self.table.ordered, after_record: C::RECORDS };
        let view = bucket.fill(pm, &place.view, new, tag, C::encode(pair), fences)?;
        let pending = self.held.pending(bucket.index, meta);
        bucket.commit(pm, &view, meta, pending, site)
    }
}
