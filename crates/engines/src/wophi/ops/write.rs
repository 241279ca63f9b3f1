//! One write to one chain: what a writer finds there under its lock, and each way to change it.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, Media};

use super::sites;
use crate::wophi::bucket::Bucket;
use crate::wophi::concurrency::{Held, before_reuse};
use crate::wophi::failure_atomic_writes::{
    commit, commit_last_word, free_slot, sites as write_sites, switched, write_pair,
};
use crate::wophi::form::{Form, Update};
use crate::wophi::layout::{Kind, Token, successor};
use crate::wophi::state::Wophi;

/// A bucket and a slot in it.
pub(super) struct Place<'a, M: Media, F: Form> {
    bucket: Bucket<'a, M, F>,
    slot: usize,
}

/// What a writer found in a chain.
pub(super) struct Search<'a, M: Media, F: Form> {
    /// Index of the main bucket.
    index: u64,
    /// Where the key is, and its slot's words.
    pub(super) found: Option<(Place<'a, M, F>, F::Pair)>,
    /// The first free slot on the way.
    free: Option<Place<'a, M, F>>,
    /// The last bucket on the way: of the chain, unless the key was found before.
    last: Bucket<'a, M, F>,
    /// Links that were followed.
    steps: u64,
}

/// A chain that is locked for a write.
pub(super) struct Writer<'t, M: Media, F: Form> {
    pub(super) table: &'t Wophi<M, F>,
    pub(super) held: Held<'t, M>,
    pub(super) hash: u64,
}

impl<M: Media, F: Form> Writer<'_, M, F> {
    /// Looks for a key in its chain, and for a free slot (Algorithm 1, lines 2 to 26; Algorithm 2,
    /// lines 2 to 17, comparing keys as byte strings).
    #[inline(always)]
    pub(super) fn search<'a>(
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
    pub(super) fn first_free<'a>(&self, pm: &'a Access<'_, M>) -> Result<Search<'a, M, F>> {
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
    fn free_in<'a>(&self, bucket: Bucket<'a, M, F>) -> Option<Place<'a, M, F>> {
        let slot = free_slot::<F>(bucket.token, self.table.settings.rotate != 0)?;
        Some(Place { bucket, slot })
    }

    /// Adds a pair to a chain that does not have its key.
    ///
    /// A crash leaves the pair or not; a record that no slot leads to is free after it.
    #[inline(always)]
    pub(super) fn add(
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
    pub(super) fn replace<'a>(
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
        old: &Place<'a, M, F>,
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
    pub(super) fn end(&self, pm: &Access<'_, M>, found: &(Place<'_, M, F>, F::Pair)) -> Result<()> {
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
    fn fill(&self, pm: &Access<'_, M>, place: &Place<'_, M, F>, pair: &F::Pair) -> Result<()> {
        let (bucket, slot) = (&place.bucket, place.slot);
        write_pair::<F, M>(pm, bucket, slot, self.hash, pair, self.table.ordered)
    }

    /// Makes a pre-allocated bucket whose first slot holds a pair (Algorithm 1, lines 27 to 31).
    ///
    /// A crash leaves any part of it in a bucket that nothing leads to: it is free.
    fn fresh(&self, pm: &Access<'_, M>, index: u64, pair: &F::Pair, token: u64) -> Result<Addr> {
        let at = self.table.pab.take()?;
        before_reuse::<M::Sync>();
        let filled = Token::empty(index).with_slot(0, token).bumped();
        let bucket = Bucket::<M, F>::fresh(pm, at, Kind::Chained, filled)?;
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

    fn note_emptied(&self, bucket: &Bucket<'_, M, F>, token: Token) {
        if bucket.kind == Kind::Chained && token.count() == 0 {
            self.table.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts, and lets the chain go. Returns the correction of the table's estimate.
    #[inline(always)]
    pub(super) fn count(mut self, added: i64) -> Option<i64> {
        let limit = self.table.drift_limit(self.table.main.view());
        self.held.count(added, limit)
    }
}

/// Hangs a bucket behind the last one of a chain (Algorithm 1, line 32).
///
/// A crash leaves the old chain or the new one.
fn link<M: Media, F: Form>(pm: &Access<'_, M>, last: &Bucket<'_, M, F>, at: Addr) -> Result<()> {
    last.commit_next(at, sites::APPEND_LINK);
    last.flush(pm, sites::APPEND_LINK);
    Ok(pm.fence(sites::APPEND_LINK)?)
}
