//! One write to one chain: what a writer finds there under its lock, and each way to change it.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media};

use super::sites;
use crate::wophi::bucket::{Bucket, BucketCodec, Update};
use crate::wophi::concurrency::Held;
use crate::wophi::failure_atomic_writes::{
    commit, commit_last_word, free_slot, sites as write_sites, switched, write_pair,
};
use crate::wophi::layout::{Kind, Token, successor};
use crate::wophi::state::Wophi;

/// A bucket and a slot in it.
pub(super) struct Place<'a, M: Media, C: BucketCodec> {
    bucket: Bucket<'a, M, C>,
    slot: usize,
}

/// What a writer found in a chain.
pub(super) struct Search<'a, M: Media, C: BucketCodec> {
    /// Index of the main bucket.
    index: u64,
    /// Where the key is, and its slot's words.
    pub(super) found: Option<(Place<'a, M, C>, C::Pair)>,
    /// The first free slot of the buckets that were searched, if the write may need one.
    free: Option<Place<'a, M, C>>,
    /// The last bucket that was searched: of the chain, unless the key was found before.
    last: Bucket<'a, M, C>,
    /// Links that were followed.
    steps: u64,
}

/// A chain that is locked for a write.
pub(super) struct Writer<'t, 'k, M: Media, C: BucketCodec> {
    pub(super) table: &'t Wophi<M, C>,
    pub(super) held: Held<'t, M>,
    pub(super) hash: u64,
    pub(super) key: C::Key<'k>,
    /// Whether it may put a pair.
    pub(super) may_put: bool,
}

impl<M: Media, C: BucketCodec> Writer<'_, '_, M, C> {
    /// Looks for a key in its chain, and for a free slot (Algorithm 1, lines 2 to 26; Algorithm 2,
    /// lines 2 to 17, comparing keys as byte strings).
    #[inline(always)]
    pub(super) fn search<'a>(
        &self,
        pm: &'a Access<'_, M>,
        bytes: &mut Vec<u8>,
    ) -> Result<Search<'a, M, C>> {
        let (index, mut bucket) = self.table.main.home(pm, self.hash)?;
        let (mut free, mut steps) = (None, 0);
        loop {
            let found = match C::find(pm, &bucket, self.hash, self.key, bytes)? {
                Some(slot) => Some((Place { bucket, slot }, bucket.pair(pm, slot)?)),
                None => None,
            };
            // A removal needs none, nor does an update of a key that is found and keeps its slot.
            let is_wanted = match &found {
                Some(_) => C::UPDATE == Update::TwoSlots,
                None => self.may_put,
            };
            if is_wanted && free.is_none() {
                free = self.free_in(bucket);
            }
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
    pub(super) fn first_free<'a>(&self, pm: &'a Access<'_, M>) -> Result<Search<'a, M, C>> {
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
    fn free_in<'a>(&self, bucket: Bucket<'a, M, C>) -> Option<Place<'a, M, C>> {
        let slot = free_slot::<C>(bucket.token, self.table.settings.rotate != 0)?;
        Some(Place { bucket, slot })
    }

    /// Adds a pair to a chain that does not have its key.
    ///
    /// A crash leaves the pair or not; a record that no slot leads to is free after it.
    #[inline(always)]
    pub(super) fn add(
        &self,
        pm: &Access<'_, M>,
        search: &Search<'_, M, C>,
        value: C::Value<'_>,
    ) -> Result<()> {
        let pair = self.pair(pm, value)?;
        match &search.free {
            Some(free) => {
                self.fill(pm, free, pair)?;
                let change = self.held.change()?;
                let token = free.bucket.token.with_slot(free.slot, 1);
                commit(pm, &free.bucket, token, write_sites::INSERT)?;
                change.end();
            }
            None => {
                let at = self
                    .fresh(pm, search.index, pair, 1)
                    .inspect_err(|_| self.drop_record(pair))?;
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
        search: &Search<'a, M, C>,
        (old, old_pair): &(Place<'a, M, C>, C::Pair),
        value: C::Value<'_>,
    ) -> Result<()> {
        let pair = self.pair(pm, value)?;
        if C::UPDATE == Update::TwoSlots {
            return self.switch(pm, old, search, pair);
        }
        if C::RECORDS {
            pm.fence(write_sites::RECORD)?;
        }
        let change = self.held.change()?;
        commit_last_word::<C, M>(pm, &old.bucket, old.slot, pair)?;
        change.end();
        self.drop_record(*old_pair);
        Ok(())
    }

    /// Moves a key to another slot that holds its new pair.
    fn switch<'a>(
        &self,
        pm: &'a Access<'_, M>,
        old: &Place<'a, M, C>,
        search: &Search<'a, M, C>,
        pair: C::Pair,
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
        // The old bucket's token word is as it was read, even if the new link went into its line:
        // the link is another word.
        let token = old.bucket.token.with_slot(old.slot, 0);
        commit(pm, &old.bucket, token, write_sites::UPDATE_OLD)?;
        change.end();
        self.note_emptied(&old.bucket, token);
        Ok(())
    }

    /// Removes a pair (Algorithm 2, lines 8 to 14).
    ///
    /// A crash leaves the pair or not.
    pub(super) fn end(&self, pm: &Access<'_, M>, found: &(Place<'_, M, C>, C::Pair)) -> Result<()> {
        let (place, pair) = found;
        let token = place.bucket.token.with_slot(place.slot, 0);
        let change = self.held.change()?;
        commit(pm, &place.bucket, token, write_sites::REMOVE)?;
        change.end();
        self.drop_record(*pair);
        self.note_emptied(&place.bucket, token);
        Ok(())
    }

    #[inline(always)]
    fn fill(&self, pm: &Access<'_, M>, place: &Place<'_, M, C>, pair: C::Pair) -> Result<()> {
        let (bucket, slot) = (&place.bucket, place.slot);
        write_pair::<C, M>(pm, bucket, slot, self.hash, pair, self.table.ordered)
    }

    #[inline(always)]
    fn pair(&self, pm: &Access<'_, M>, value: C::Value<'_>) -> Result<C::Pair> {
        C::make(pm, &self.table.heap, self.hash, self.key, value, write_sites::RECORD)
    }

    /// Makes a pre-allocated bucket whose first slot holds a pair (Algorithm 1, lines 27 to 31).
    ///
    /// A crash leaves any part of it in a bucket that no link leads to: it is free. So it is after
    /// an error.
    fn fresh(&self, pm: &Access<'_, M>, index: u64, pair: C::Pair, token: u64) -> Result<Addr> {
        let at = self.table.pab.take()?;
        match self.write_fresh(pm, at, index, pair, token) {
            Ok(()) => Ok(at),
            Err(error) => {
                self.table.pab.give(at)?;
                Err(error)
            }
        }
    }

    fn write_fresh(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        index: u64,
        pair: C::Pair,
        token: u64,
    ) -> Result<()> {
        let filled = Token::empty(index).with_slot(0, token).bumped();
        let bucket = Bucket::<M, C>::fresh(pm, at, Kind::Chained, filled)?;
        C::store(pm, &bucket, 0, self.hash, C::encode(pair))?;
        bucket.store_token(filled);
        bucket.flush(pm, sites::APPEND_BUCKET);
        Ok(pm.fence(sites::APPEND_BUCKET)?)
    }

    fn drop_record(&self, pair: C::Pair) {
        if let Some(record) = C::record(pair) {
            self.table.heap.give(record.addr, record.class);
        }
    }

    fn note_emptied(&self, bucket: &Bucket<'_, M, C>, token: Token) {
        if bucket.kind == Kind::Chained && token.count() == 0 {
            self.table.emptied.add(1);
        }
    }

    /// Counts items that were added, or removed if negative, and unlocks the chain. Returns the
    /// correction of the table's estimate.
    #[inline(always)]
    pub(super) fn count(mut self, added: i64) -> Option<i64> {
        let limit = self.table.drift_limit(self.table.main.view());
        self.held.count(added, limit)
    }
}

/// Appends a bucket to a chain, behind its last one (Algorithm 1, line 32).
///
/// A crash leaves the old chain or the new one.
fn link<M: Media, C: BucketCodec>(
    pm: &Access<'_, M>,
    last: &Bucket<'_, M, C>,
    at: Addr,
) -> Result<()> {
    last.commit_next(at, sites::APPEND_LINK);
    last.flush(pm, sites::APPEND_LINK);
    Ok(pm.fence(sites::APPEND_LINK)?)
}
