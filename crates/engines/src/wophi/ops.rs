//! Get, insert, put, update, remove (WOPHI III-B, Algorithms 1 and 2), under the contract's one
//! meaning of each.

use core::sync::atomic::Ordering;

use everhash_index::{Change, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Media};

use super::bucket::Bucket;
use super::concurrency::Held;
use super::failure_atomic_writes::{
    commit, commit_last_word, free_slot, sites as write_sites, switched, write_pair,
};
use super::form::{Form, Update};
use super::layout::{Kind, Token, successor};
use super::state::Wophi;

/// Where these operations persist something of their own.
pub mod sites {
    everhash_pmem::sites! {
        /// A bucket that no link leads to yet, with its first pair and token.
        APPEND_BUCKET = "wophi/append/bucket";
        /// The link that hangs it into its chain.
        APPEND_LINK = "wophi/append/link";
    }
}

/// A bucket and a slot in it.
struct Place<'a, M: Media> {
    bucket: Bucket<'a, M>,
    slot: usize,
}

/// What a writer found in a chain.
struct Search<'a, M: Media, F: Form> {
    /// Index of the main bucket.
    index: u64,
    /// Where the key is, and its slot's words.
    found: Option<(Place<'a, M>, F::Pair)>,
    /// The first free slot on the way.
    free: Option<Place<'a, M>>,
    /// The last bucket on the way: of the chain, unless the key was found before.
    last: Bucket<'a, M>,
    /// Links that were followed.
    steps: u64,
}

/// A chain that is locked for a write.
pub(super) struct Writer<'t, M: Media, F: Form> {
    table: &'t Wophi<M, F>,
    held: Held<'t, M::Sync>,
    hash: u64,
}

impl<M: Media, F: Form> Wophi<M, F> {
    /// Returns the slot of a key. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    #[inline]
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
        self.stripes.of(hash).read(|| self.walk(pm, hash, key, bytes))
    }

    /// Says that the chain of a hash will be walked soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, pm: &Access<'_, M>, hash: u64) {
        let buckets = self.main.count(self.main.view().level);
        pm.prefetch(self.main.at(hash & (buckets - 1)));
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
        self.estimated(&pm, added)?;
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
        self.estimated(&pm, added)?;
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
        let writer = Writer { table: self, held: self.stripes.of(hash).hold()?, hash };
        let search = writer.search(&pm, key, &mut Vec::new())?;
        let Some(found) = search.found else { return Ok(false) };
        writer.end(&pm, &found)?;
        let removed = writer.count(-1);
        self.estimated(&pm, removed)?;
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
        self.estimated(&pm, counted)
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
        self.estimated(&pm, added)
    }

    /// Takes part in a growth that is under way, and then locks the chain of a hash.
    #[inline(always)]
    fn writer<'t>(&'t self, pm: &Access<'_, M>, hash: u64) -> Result<Writer<'t, M, F>> {
        self.writable()?;
        self.share(pm, hash)?;
        Ok(Writer { table: self, held: self.stripes.of(hash).hold()?, hash })
    }
}

impl<M: Media, F: Form> Writer<'_, M, F> {
    /// Looks for a key in its chain, and for a free slot (Algorithm 1, lines 2 to 26; Algorithm 2,
    /// lines 2 to 17, comparing keys as byte strings).
    #[inline(always)]
    fn search<'a>(
        &self,
        pm: &'a Access<'_, M>,
        key: F::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Search<'a, M, F>> {
        let (index, mut bucket) = self.table.main.home(pm, self.hash)?;
        let (mut free, mut steps) = (None, 0);
        loop {
            let found = match F::find(pm, &bucket, self.hash, key, bytes)? {
                Some(slot) => Some((Place { bucket, slot }, F::load(pm, &bucket, slot)?)),
                None => None,
            };
            free = free.or_else(|| self.free_in(bucket));
            let next = match found {
                None => self.table.follow(pm, &bucket, index, &mut steps)?,
                Some(_) => None,
            };
            match next {
                Some(next) => bucket = next,
                None => return Ok(Search { index, found, free, last: bucket, steps }),
            }
        }
    }

    /// Looks for a free slot only.
    fn first_free<'a>(&self, pm: &'a Access<'_, M>) -> Result<Search<'a, M, F>> {
        let (index, mut bucket) = self.table.main.home(pm, self.hash)?;
        let mut steps = 0;
        loop {
            let free = self.free_in(bucket);
            let next = match free {
                None => self.table.follow(pm, &bucket, index, &mut steps)?,
                Some(_) => None,
            };
            match next {
                Some(next) => bucket = next,
                None => return Ok(Search { index, found: None, free, last: bucket, steps }),
            }
        }
    }

    #[inline(always)]
    fn free_in<'a>(&self, bucket: Bucket<'a, M>) -> Option<Place<'a, M>> {
        let slot = free_slot::<F>(bucket.token, self.table.settings.rotate != 0)?;
        Some(Place { bucket, slot })
    }

    /// Adds a pair to a chain that does not have its key.
    ///
    /// A crash leaves the pair or not; a record that no slot leads to is free after it.
    #[inline(always)]
    fn add(
        &self,
        pm: &Access<'_, M>,
        search: &Search<'_, M, F>,
        key: F::Key<'_>,
        value: F::Value<'_>,
    ) -> Result<()> {
        let pair = F::pair(pm, &self.table.heap, self.hash, key, value)?;
        match &search.free {
            Some(free) => {
                self.fill(pm, free, &pair)?;
                let change = self.held.change()?;
                let token = free.bucket.token.with_slot(free.slot, 1);
                commit(pm, &free.bucket, token, write_sites::INSERT)?;
                change.end();
            }
            None => {
                let at = self
                    .fresh(pm, search.index, &pair, 1)
                    .inspect_err(|_| self.drop_record(&pair))?;
                let change = self.held.change()?;
                link(pm, &search.last, at)?;
                change.end();
                self.table.note_chain(search.steps + 2);
            }
        }
        Ok(())
    }

    /// Gives a key that was found another value, log-free.
    ///
    /// A crash leaves the old or the new value. Where two slots are switched and lie in different
    /// buckets, it may leave both, and recovery keeps the successor.
    fn replace<'a>(
        &self,
        pm: &'a Access<'_, M>,
        search: &Search<'a, M, F>,
        key: F::Key<'_>,
        value: F::Value<'_>,
    ) -> Result<()> {
        let (old, old_pair) = search.found.as_ref().expect("only what was found is replaced");
        let pair = F::pair(pm, &self.table.heap, self.hash, key, value)?;
        if F::UPDATE == Update::TwoSlots {
            return self.switch(pm, old, search, &pair);
        }
        if F::RECORDS {
            pm.fence(write_sites::RECORD)?;
        }
        let change = self.held.change()?;
        commit_last_word::<F, M>(pm, &old.bucket, old.slot, &pair)?;
        change.end();
        self.drop_record(old_pair);
        Ok(())
    }

    /// Moves a key to another slot that holds its new pair.
    fn switch<'a>(
        &self,
        pm: &'a Access<'_, M>,
        old: &Place<'a, M>,
        search: &Search<'a, M, F>,
        pair: &F::Pair,
    ) -> Result<()> {
        let newer = successor(old.bucket.token.slot(old.slot));
        if let Some(new) = self.free_in(old.bucket) {
            self.fill(pm, &new, pair)?;
            let change = self.held.change()?;
            let token = switched(old.bucket.token, old.slot, new.slot);
            commit(pm, &old.bucket, token, write_sites::UPDATE_SWITCH)?;
            change.end();
            return Ok(());
        }
        let (mut last, mut steps) = (search.last, search.steps);
        let mut later = None;
        if search.free.is_none() {
            while let Some(next) = self.table.follow(pm, &last, search.index, &mut steps)? {
                last = next;
                later = self.free_in(next);
                if later.is_some() {
                    break;
                }
            }
        }
        let change = match search.free.as_ref().or(later.as_ref()) {
            Some(new) => {
                self.fill(pm, new, pair)?;
                let change = self.held.change()?;
                let token = new.bucket.token.with_slot(new.slot, newer);
                commit(pm, &new.bucket, token, write_sites::UPDATE_NEW)?;
                change
            }
            None => {
                let at = self.fresh(pm, search.index, pair, newer)?;
                let change = self.held.change()?;
                link(pm, &last, at)?;
                self.table.note_chain(steps + 2);
                change
            }
        };
        // The old bucket's token word is as it was met, unless the link went into its line: the
        // link is another word.
        let token = old.bucket.token.with_slot(old.slot, 0);
        commit(pm, &old.bucket, token, write_sites::UPDATE_OLD)?;
        change.end();
        self.note_emptied(&old.bucket, token);
        Ok(())
    }

    /// Ends a pair (Algorithm 2, lines 8 to 14).
    ///
    /// A crash leaves the pair or not.
    fn end(&self, pm: &Access<'_, M>, found: &(Place<'_, M>, F::Pair)) -> Result<()> {
        let (place, pair) = found;
        let token = place.bucket.token.with_slot(place.slot, 0);
        let change = self.held.change()?;
        commit(pm, &place.bucket, token, write_sites::REMOVE)?;
        change.end();
        self.drop_record(pair);
        self.note_emptied(&place.bucket, token);
        Ok(())
    }

    #[inline(always)]
    fn fill(&self, pm: &Access<'_, M>, place: &Place<'_, M>, pair: &F::Pair) -> Result<()> {
        let (bucket, slot) = (&place.bucket, place.slot);
        write_pair::<F, M>(pm, bucket, slot, self.hash, pair, self.table.ordered)
    }

    /// Makes a pre-allocated bucket whose first slot holds a pair (Algorithm 1, lines 27 to 31).
    ///
    /// A crash leaves any part of it in a bucket that nothing leads to: it is free.
    fn fresh(&self, pm: &Access<'_, M>, index: u64, pair: &F::Pair, token: u64) -> Result<Addr> {
        let at = self.table.pab.take()?;
        let filled = Token::empty(index).with_slot(0, token).bumped();
        let bucket = Bucket::fresh(pm, at, Kind::Chained, filled)?;
        F::store(pm, &bucket, 0, self.hash, pair)?;
        bucket.store_token(filled);
        bucket.flush(pm, sites::APPEND_BUCKET);
        pm.fence(sites::APPEND_BUCKET)?;
        Ok(at)
    }

    fn drop_record(&self, pair: &F::Pair) {
        if let Some((at, class)) = F::record(pair) {
            self.table.heap.give(at, class);
        }
    }

    fn note_emptied(&self, bucket: &Bucket<'_, M>, token: Token) {
        if bucket.kind == Kind::Chained && token.count() == 0 {
            self.table.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts, and lets the chain go. Returns the correction of the table's estimate.
    #[inline(always)]
    fn count(mut self, added: i64) -> Option<i64> {
        let limit = self.table.drift_limit(self.table.main.view());
        self.held.count(added, limit)
    }
}

/// Hangs a bucket behind the last one of a chain (Algorithm 1, line 32).
///
/// A crash leaves the old chain or the new one.
fn link<M: Media>(pm: &Access<'_, M>, last: &Bucket<'_, M>, at: Addr) -> Result<()> {
    last.commit_next(at, sites::APPEND_LINK);
    last.flush(pm, sites::APPEND_LINK);
    Ok(pm.fence(sites::APPEND_LINK)?)
}
