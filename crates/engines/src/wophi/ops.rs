//! Get, insert, put, update, remove (WOPHI III-B, Algorithms 1 and 2), under the contract's one
//! meaning of each.

mod write;

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Media};

use self::write::Writer;
use super::bucket::{Bucket, BucketCodec};
use super::state::Wophi;
use crate::common::edit::Step;
use crate::common::slot_table::SlotTable;

/// Where these operations persist something of their own.
pub mod sites {
    everhash_pmem::sites! {
        /// A bucket that no link leads to yet, with its first pair and token.
        APPEND_BUCKET = "wophi/append/bucket";
        /// The link that appends it to its chain.
        APPEND_LINK = "wophi/append/link";
    }
}

impl<M: Media, C: BucketCodec> SlotTable for Wophi<M, C> {
    type Codec = C;

    fn pair_form(&self) -> Form {
        self.form
    }

    #[inline(always)]
    fn find(&self, key: C::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<C::Pair>> {
        let hash = C::hash(&self.hasher, key);
        let pm = self.pool.access();
        self.get_hashed(&pm, hash, key, bytes)
    }

    #[inline(always)]
    fn edit<'v, T>(
        &self,
        key: C::Key<'_>,
        may_put: bool,
        decide: impl FnOnce(Option<C::Pair>, &mut Vec<u8>) -> Result<(T, Step<C::Value<'v>>)>,
    ) -> Result<T> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, key, may_put)?;
        let mut bytes = Vec::new();
        let search = writer.search(&pm, &mut bytes)?;
        let pair = search.found.as_ref().map(|(_, pair)| *pair);
        let (answer, step) = decide(pair, &mut bytes)?;
        let added = match (step, &search.found) {
            (Step::Keep, _) | (Step::Remove, None) => return Ok(answer),
            (Step::Put(value), Some(found)) => {
                writer.replace(&pm, &search, found, value)?;
                return Ok(answer);
            }
            (Step::Remove, Some(found)) => {
                writer.end(&pm, found)?;
                -1
            }
            (Step::Put(value), None) => {
                let added = writer.add(&pm, &search, value);
                added.inspect_err(|error| self.emptied.note_failure(error))?;
                1
            }
        };
        let correction = writer.count(added);
        self.estimated(&pm, correction);
        Ok(answer)
    }
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Returns the pair of a key that hashes to `hash`. A record's value is left in `bytes`.
    ///
    /// # Errors
    /// As [`SlotTable::find`].
    #[inline(always)]
    pub(super) fn get_hashed(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: C::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let find = |bucket: &Bucket<'_, M, C>| C::find_pair(pm, bucket, hash, key, bytes).ok();
        match self.try_fast_get(pm, hash, find) {
            Some(found) => Ok(found),
            None => self.get_along_chain(pm, hash, key, bytes),
        }
    }

    /// Looks for a key in its main bucket, where nearly every search ends, with `find`. `None`
    /// means that [`Wophi::get_along_chain`] must answer: from the chain, during a growth, after a
    /// write, or by an error.
    ///
    /// A processor overlaps a get with the next one as far as its window of instructions reaches:
    /// so the common case has few of them, and no error to carry.
    #[inline(always)]
    pub(super) fn try_fast_get<T>(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        find: impl FnOnce(&Bucket<'_, M, C>) -> Option<Option<T>>,
    ) -> Option<Option<T>> {
        pm.dram(1);
        let stripe = self.stripes.of(hash);
        let stamp = stripe.try_stamp()?;
        let bucket = self.main.resting_home(pm, hash)?;
        match find(&bucket)? {
            None if !bucket.is_last() => None,
            found => stripe.accepts(stamp).then_some(found),
        }
    }

    /// Looks for a key along its whole chain, and repeats whenever a write came between.
    #[inline(never)]
    pub(super) fn get_along_chain(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: C::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let stripe = self.stripes.of(hash);
        let mut attempt = 0;
        loop {
            let stamp = stripe.stamp(&mut attempt)?;
            let found = self.walk(pm, hash, key, bytes);
            if stripe.accepts(stamp) {
                return found;
            }
        }
    }

    /// Prefetches the main bucket of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, pm: &Access<'_, M>, hash: u64) {
        let view = self.main.view();
        let buckets = self.main.count(view.level);
        pm.prefetch(self.main.at(hash & (buckets - 1)));
        if view.growing {
            // The key's chain is there if the lower bucket is already split.
            pm.prefetch(self.main.at(hash & (2 * buckets - 1)));
        }
    }

    #[inline(always)]
    fn walk(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: C::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let (index, mut bucket) = self.main.home(pm, hash)?;
        let mut steps = 0;
        loop {
            if let Some(slot) = C::find(pm, &bucket, hash, key, bytes)? {
                return bucket.pair(pm, slot).map(Some);
            }
            match self.follow(pm, &bucket, index, &mut steps)? {
                Some(next) => bucket = next,
                None => return Ok(None),
            }
        }
    }

    /// Adds a pair without looking for its key: the paper's insert.
    ///
    /// A key that is present is there twice afterwards: which one is found, and what `check` says,
    /// is up to the caller.
    ///
    /// # Errors
    /// As [`SlotTable::edit`].
    pub fn insert_blind(&self, key: C::Key<'_>, value: C::Value<'_>) -> Result<()> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, key, true)?;
        let search = writer.first_free(&pm)?;
        writer.add(&pm, &search, value)?;
        let correction = writer.count(1);
        self.estimated(&pm, correction);
        Ok(())
    }

    /// Takes part in a growth that is in progress, if the write `may_put`, and then locks the chain
    /// of a key. A removal costs what it must, and succeeds whatever becomes of a growth.
    #[inline(always)]
    fn writer<'t, 'k>(
        &'t self,
        pm: &'t Access<'_, M>,
        key: C::Key<'k>,
        may_put: bool,
    ) -> Result<Writer<'t, 'k, M, C>> {
        self.pool.check_writable()?;
        let hash = C::hash(&self.hasher, key);
        if may_put {
            self.share(pm, hash)?;
        }
        // The bucket's line is fetched while the lock is taken, which no load may overtake.
        self.prefetch(pm, hash);
        Ok(Writer { table: self, held: self.stripes.of(hash).hold(pm)?, hash, key, may_put })
    }
}
