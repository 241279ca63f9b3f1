//! Get, insert, put, update, remove (WOPHI III-B, Algorithms 1 and 2), under the contract's one
//! meaning of each.

mod faces;
mod write;

use everhash_index::{Change, Result};
use everhash_pmem::{Access, Media};

pub use self::faces::WophiTable;
use self::write::Writer;
use super::form::Form;
use super::state::Wophi;

/// Where these operations persist something of their own.
pub mod sites {
    everhash_pmem::sites! {
        /// A bucket that no link leads to yet, with its first pair and token.
        APPEND_BUCKET = "wophi/append/bucket";
        /// The link that hangs it into its chain.
        APPEND_LINK = "wophi/append/link";
        /// Everything, on media whose fences wait for nothing.
        SYNC = "wophi/sync/all";
    }
}

impl<M: Media, F: Form> Wophi<M, F> {
    /// Returns the slot of a key. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    #[inline(always)]
    pub fn get(&self, key: F::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<F::Pair>> {
        let hash = F::hash(&self.hasher, key);
        let pm = self.pool.access();
        self.get_hashed(&pm, hash, key, bytes)
    }

    /// As [`Wophi::get`], with the hash of the key.
    #[inline(always)]
    pub(super) fn get_hashed(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: F::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<F::Pair>> {
        match self.glance(pm, hash, key, bytes) {
            Some(found) => Ok(found),
            None => self.get_patiently(pm, hash, key, bytes),
        }
    }

    /// Looks for a key where nearly every one is, or is missed: in its main bucket. `None` if that
    /// does not tell, for whatever reason.
    ///
    /// A processor overlaps a get with the next one as far as its window of instructions reaches:
    /// so the common case has few of them, and no error to carry.
    #[inline(always)]
    pub(super) fn glance(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: F::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Option<Option<F::Pair>> {
        pm.dram(1);
        let stripe = self.stripes.of(hash);
        let stamp = stripe.glimpse()?;
        let bucket = self.main.settled_home(pm, hash)?;
        let found = match F::find(pm, &bucket, hash, key, bytes).ok()? {
            Some(slot) => Some(F::load(pm, &bucket, slot).ok()?),
            None if bucket.is_last() => None,
            None => return None,
        };
        stripe.accepts(stamp).then_some(found)
    }

    /// Looks for a key along its whole chain, as often as a writer comes between.
    #[inline(never)]
    fn get_patiently(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: F::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<F::Pair>> {
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

    /// Says that the chain of a hash will be walked soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, pm: &Access<'_, M>, hash: u64) {
        let view = self.main.view();
        let buckets = self.main.count(view.level);
        pm.prefetch(self.main.at(hash & (buckets - 1)));
        if view.growing {
            // Where the chain went, if its bucket is split once more: its lower half will tell.
            pm.prefetch(self.main.at(hash & (2 * buckets - 1)));
        }
    }

    #[inline(always)]
    fn walk(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        key: F::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<F::Pair>> {
        let (index, mut bucket) = self.main.home(pm, hash)?;
        let mut steps = 0;
        loop {
            if let Some(slot) = F::find(pm, &bucket, hash, key, bytes)? {
                return F::load(pm, &bucket, slot).map(Some);
            }
            match self.follow(pm, &bucket, index, &mut steps)? {
                Some(next) => bucket = next,
                None => return Ok(None),
            }
        }
    }

    /// Adds a pair if the key is absent; returns whether it was.
    ///
    /// A crash leaves the pair or not.
    ///
    /// # Errors
    /// [`everhash_index::Error::Full`], and as [`Wophi::get`].
    #[inline]
    pub fn insert(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, F::hash(&self.hasher, key))?;
        let search = writer.search(&pm, key, &mut Vec::new())?;
        if search.found.is_some() {
            return Ok(false);
        }
        writer.add(&pm, &search, key, value)?;
        let added = writer.count(1);
        self.estimated(&pm, added);
        Ok(true)
    }

    /// Adds a pair or replaces its value; returns whether there was one.
    ///
    /// # Errors
    /// As [`Wophi::insert`].
    pub fn put(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, F::hash(&self.hasher, key))?;
        let search = writer.search(&pm, key, &mut Vec::new())?;
        if search.found.is_some() {
            writer.replace(&pm, &search, key, value)?;
            return Ok(true);
        }
        writer.add(&pm, &search, key, value)?;
        let added = writer.count(1);
        self.estimated(&pm, added);
        Ok(false)
    }

    /// Replaces a value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// As [`Wophi::insert`].
    pub fn update(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<bool> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, F::hash(&self.hasher, key))?;
        let search = writer.search(&pm, key, &mut Vec::new())?;
        let present = search.found.is_some();
        if present {
            writer.replace(&pm, &search, key, value)?;
        }
        Ok(present)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// As [`Wophi::get`].
    pub fn remove(&self, key: F::Key<'_>) -> Result<bool> {
        self.writable()?;
        let hash = F::hash(&self.hasher, key);
        let pm = self.pool.access();
        let writer = self.hold(&pm, hash)?;
        let search = writer.search(&pm, key, &mut Vec::new())?;
        let Some(found) = search.found else { return Ok(false) };
        writer.end(&pm, &found)?;
        let removed = writer.count(-1);
        self.estimated(&pm, removed);
        Ok(true)
    }

    /// Reads a key and does with it what `change` says, in one step.
    ///
    /// # Errors
    /// As [`Wophi::insert`], and those of `change`.
    ///
    /// # Panics
    /// If `change` returns a value that does not have the form.
    pub fn modify(
        &self,
        key: F::Key<'_>,
        change: impl FnOnce(Option<&[u8]>) -> Result<Change>,
    ) -> Result<()> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, F::hash(&self.hasher, key))?;
        let mut bytes = Vec::new();
        let search = writer.search(&pm, key, &mut bytes)?;
        if let Some((_, pair)) = &search.found {
            F::found_value(pair, &mut bytes);
        }
        let present = search.found.as_ref().map(|_| bytes.as_slice());
        let counted = match (change(present)?, &search.found) {
            (Change::Keep, _) | (Change::Remove, None) => return Ok(()),
            (Change::Remove, Some(found)) => {
                writer.end(&pm, found)?;
                writer.count(-1)
            }
            (Change::Put(value), found) => {
                let value = F::value(&value).expect("`change` gives values of the form only");
                if found.is_some() {
                    return writer.replace(&pm, &search, key, value);
                }
                writer.add(&pm, &search, key, value)?;
                writer.count(1)
            }
        };
        self.estimated(&pm, counted);
        Ok(())
    }

    /// Adds a pair without looking for its key: the paper's insert.
    ///
    /// A key that is there already is there twice afterwards: which one is found, and what `check`
    /// says, is the caller's affair.
    ///
    /// # Errors
    /// As [`Wophi::insert`].
    pub fn insert_blind(&self, key: F::Key<'_>, value: F::Value<'_>) -> Result<()> {
        let pm = self.pool.access();
        let writer = self.writer(&pm, F::hash(&self.hasher, key))?;
        let search = writer.first_free(&pm)?;
        writer.add(&pm, &search, key, value)?;
        let added = writer.count(1);
        self.estimated(&pm, added);
        Ok(())
    }

    /// Takes part in a growth that is under way, and then locks the chain of a hash.
    #[inline(always)]
    fn writer<'t>(&'t self, pm: &'t Access<'_, M>, hash: u64) -> Result<Writer<'t, M, F>> {
        self.writable()?;
        self.share(pm, hash)?;
        self.hold(pm, hash)
    }

    /// Locks the chain of a hash.
    #[inline(always)]
    fn hold<'t>(&'t self, pm: &'t Access<'_, M>, hash: u64) -> Result<Writer<'t, M, F>> {
        // The bucket's line is on its way while the lock is taken, which no load may overtake.
        self.prefetch(pm, hash);
        Ok(Writer { table: self, held: self.stripes.of(hash).hold(pm)?, hash })
    }
}
