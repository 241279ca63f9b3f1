//! The operations on one key.
//!
//! A write holds the latch of the key's shard: it looks for the key, appends an object, and lets
//! the directory lead there. A read takes no latch: it loads a word of the directory, reads the
//! object, and loads the word again.

use core::sync::atomic::Ordering;

use everhash_index::{Change, Error, Form, Result};
use everhash_pmem::{Access, Addr, AtOnce, AtomicWord, Lock, Media};

use super::directory::{Fitting, Members, Seat, Shard, damaged};
use super::layout::Kind;
use super::objects::Look;
use super::reserve::Purpose;
use super::segments::Object;
use super::state::{Reef, WordLookup};
use crate::common::edit::{Edit, Step, modify_calmly};
use crate::common::hash::{KeyedHash, WordHash, with_hash};

/// Objects that are fetched together when a shard needs fresh hashes.
///
/// Unit: objects. Source: ours; of two or three lines each, about as many cache misses as a present
/// core can have outstanding.
const REHASHED: usize = 8;

/// Returns how a table of words with this hash looks a key up.
pub fn word_lookup<M: Media>(hasher: &KeyedHash) -> WordLookup<M> {
    fn by<M: Media, H: WordHash>(_: &H) -> WordLookup<M> {
        Reef::get_word_by::<H>
    }
    with_hash!(hasher, hash => by(hash))
}

impl<M: Media> Reef<M> {
    /// Returns the value of a key in a pool of words.
    ///
    /// What is rare is left to another function, with what this was called with: so the common case
    /// keeps little.
    fn get_word_by<H: WordHash>(&self, key: u64) -> Result<Option<u64>> {
        match self.try_get_word::<H>(key) {
            Some(found) => Ok(found),
            None => self.get_word_again(key),
        }
    }

    #[inline(always)]
    fn try_get_word<H: WordHash>(&self, key: u64) -> Option<Option<u64>> {
        let hash = H::of(&self.hasher)?;
        self.try_get_word_hashed(hash.word(key), key, hash.at_once())
    }

    /// Hashes the key again, which is seldom: so the common case need not keep the hash.
    #[cold]
    #[inline(never)]
    fn get_word_again(&self, key: u64) -> Result<Option<u64>> {
        self.get_word_hashed(self.hasher.word(key), key)
    }

    /// Looks for a key in its home bucket, without a latch, where nearly every search ends. `None`
    /// means that [`Reef::get_word_hashed`] must answer: from another bucket, beside a writer, or
    /// by an error.
    #[inline(always)]
    pub(super) fn try_get_word_hashed(
        &self,
        hash: u64,
        key: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<u64>> {
        let pm = self.pool.access();
        let Some(found) = self.search_home(&pm, hash, at_once)? else { return Some(None) };
        let value = self.word_at(&pm, found.place(), key)?;
        found.is_unchanged().then_some(Some(value))
    }

    /// As [`Reef::try_get_word_hashed`] for a key of any form: reads its value into `value`, and
    /// returns whether there is one.
    #[inline(always)]
    fn try_get_hashed(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let pm = self.pool.access();
        let Some(found) = self.search_home(&pm, hash, self.arena.at_once)? else {
            return Some(false);
        };
        let is_there = self.value_at(&pm, found.place(), key, value) && found.is_unchanged();
        is_there.then_some(true)
    }

    /// As [`Shard::search_home`], of a table that is alive.
    #[inline(always)]
    fn search_home(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        at_once: Option<AtOnce>,
    ) -> Option<Option<Fitting<'_, M::Sync>>> {
        pm.dram(1);
        if self.dead.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.shard(hash).0.search_home(hash, at_once)
    }

    /// Returns the value of the pair of words at a place if it is that of a key.
    #[inline(always)]
    pub(super) fn word_at(&self, pm: &Access<'_, M>, at: Addr, key: u64) -> Option<u64> {
        self.objects.word_of(pm, (at, self.units.seal(at)), key)
    }

    /// As [`Reef::word_at`] for a key of any form: reads its value into `value`, and returns
    /// whether it is there.
    #[inline(always)]
    pub(super) fn value_at(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> bool {
        let looked = self.objects.look(pm, (at, self.units.seal(at)), key, Some(value));
        matches!(looked, Ok(Look::Equal(_)))
    }

    /// Reads a value into `value`; returns whether there is one.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Poisoned`].
    #[inline(always)]
    pub(super) fn get_hashed(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self.try_get_hashed(hash, key, value) {
            Some(is_there) => Ok(is_there),
            None => self.get_along_leaf(hash, key, value),
        }
    }

    /// As [`Reef::get_hashed`], wherever in its leaf the key lies.
    #[cold]
    #[inline(never)]
    fn get_along_leaf(&self, hash: u64, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let pm = self.pool.access();
        let mut look = |at| self.objects.look(&pm, (at, self.units.seal(at)), key, Some(value));
        self.find(&pm, hash, &mut look)
    }

    /// Returns the value of a key in a pool of words, wherever in its leaf it lies.
    ///
    /// # Errors
    /// As [`Reef::get_hashed`].
    #[inline(never)]
    pub(super) fn get_word_hashed(&self, hash: u64, key: u64) -> Result<Option<u64>> {
        let (pm, mut value) = (self.pool.access(), 0);
        let found = self.find(&pm, hash, &mut |at| {
            let (look, found) = self.objects.look_word(&pm, (at, self.units.seal(at)), key)?;
            value = found;
            Ok(look)
        })?;
        Ok(found.then_some(value))
    }

    /// Looks for a key without a latch.
    #[inline(always)]
    fn find(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        look: &mut impl FnMut(Addr) -> Result<Look>,
    ) -> Result<bool> {
        self.alive()?;
        pm.dram(1);
        self.shard(hash).0.find(hash, look)
    }

    /// Writes one key; returns the operation's answer.
    ///
    /// A crash leaves the key as it was or as it will be.
    ///
    /// # Errors
    /// [`Error::Full`]; those of the medium.
    #[inline(always)]
    pub(super) fn write(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<bool> {
        let (answer, cares) = match self.write_once(hash, key, edit) {
            Err(Error::Full { .. }) => self.write_again(hash, key, edit)?,
            outcome => outcome?,
        };
        if cares {
            self.after_write(self.shard(hash).1)?;
        }
        Ok(answer)
    }

    #[cold]
    fn write_again(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<(bool, bool)> {
        let mut attempt = 0;
        // Ends: room is made only so many times.
        loop {
            match self.write_once(hash, key, edit) {
                Err(Error::Full { .. }) if self.make_room(attempt)? => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    #[inline(always)]
    fn write_once(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<(bool, bool)> {
        let pm = self.pool.access();
        let (shard, number) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        self.alive()?;
        pm.dram(1);
        let look = |at| self.objects.look(&pm, (at, self.units.seal(at)), key, None);
        let found = shard.locate(hash, look)?;
        let (answer, step) = edit.decide(found.is_some());
        let (kind, value, purpose) = match step {
            Step::Keep => return Ok((answer, false)),
            Step::Put(value) => (Kind::Put, value, Purpose::Add),
            Step::Remove => (Kind::Removed, &[][..], Purpose::Remove),
        };
        let seat = match found {
            Some(found) => Seat::Taken(found),
            None => {
                Seat::Free(shard.make_room(&mut members, hash, |pairs| self.rehash(&pm, pairs))?)
            }
        };
        let object = Object { kind, key, value };
        let (place, cares) = self.append(&pm, number, purpose, &object)?;
        self.publish((shard, &mut members), (kind, place), seat)?;
        Ok((answer, cares))
    }

    /// Lets the directory lead to a new object, which is as durable as the table promises.
    #[inline(always)]
    pub(super) fn publish(
        &self,
        (shard, members): (&Shard<M::Sync>, &mut Members),
        (kind, place): (Kind, Addr),
        seat: Seat<'_, M::Sync>,
    ) -> Result<()> {
        let found = match seat {
            Seat::Taken(found) => found,
            Seat::Free(room) => {
                shard.insert(room, place);
                members.items += 1;
                return Ok(());
            }
        };
        match kind {
            Kind::Put => shard.replace(&found, place),
            Kind::Removed => {
                shard.remove(&found)?;
                members.items -= 1;
            }
        }
        self.units.add_garbage(found.place, found.words);
        Ok(())
    }

    /// Reads the keys at places and sets their hashes.
    pub(super) fn rehash(&self, pm: &Access<'_, M>, pairs: &mut [(u64, Addr)]) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for pairs in pairs.chunks_mut(REHASHED) {
            pairs.iter().for_each(|(_, at)| self.fetch_object(pm, *at));
            for (hash, at) in pairs {
                let read =
                    self.objects.read(pm, (*at, self.units.seal(*at)), &mut key, &mut value)?;
                read.ok_or_else(|| damaged(*at))?;
                *hash = self.hash(&key);
            }
        }
        Ok(())
    }

    /// Reads and changes one key under its latch.
    ///
    /// # Errors
    /// As [`Reef::write`], and those of admitting the value.
    pub(super) fn modify_hashed(
        &self,
        form: Form,
        hash: u64,
        key: &[u8],
        change: &mut dyn FnMut(Option<&[u8]>) -> Change,
    ) -> Result<()> {
        modify_calmly(form, key, change, |decide| {
            let mut decided = None;
            let mut attempt = 0;
            // Ends: room is made only so many times.
            loop {
                match self.modify_once(hash, key, &mut decided, decide) {
                    Err(Error::Full { .. }) if self.make_room(attempt)? => attempt += 1,
                    Ok(true) => return self.after_write(self.shard(hash).1),
                    outcome => return outcome.map(drop),
                }
            }
        })
    }

    /// Decides once. If there was no room then, `decided` holds what was decided of which value: it
    /// stays right as long as the key has that value.
    fn modify_once(
        &self,
        hash: u64,
        key: &[u8],
        decided: &mut Option<(Option<Vec<u8>>, Change)>,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Result<Change>,
    ) -> Result<bool> {
        let pm = self.pool.access();
        let (shard, number) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        self.alive()?;
        let mut present = Vec::new();
        let look = |at| self.objects.look(&pm, (at, self.units.seal(at)), key, Some(&mut present));
        let found = shard.locate(hash, look)?;
        let present = found.is_some().then_some(present);
        let change = match decided.take() {
            Some((of, change)) if of == present => change,
            Some(_) => return Err(Error::Full { needed: 0 }),
            None => decide(present.as_deref())?,
        };
        let (kind, value, purpose) = match &change {
            Change::Put(value) => (Kind::Put, value.as_slice(), Purpose::Add),
            Change::Remove if found.is_some() => (Kind::Removed, &[][..], Purpose::Remove),
            Change::Keep | Change::Remove => return Ok(false),
        };
        let object = Object { kind, key, value };
        let seat = match found {
            Some(found) => Ok(Seat::Taken(found)),
            None => {
                shard.make_room(&mut members, hash, |pairs| self.rehash(&pm, pairs)).map(Seat::Free)
            }
        };
        let appended = seat.and_then(|seat| {
            let (place, cares) = self.append(&pm, number, purpose, &object)?;
            Ok((seat, place, cares))
        });
        let (seat, place, cares) = match appended {
            Err(full @ Error::Full { .. }) => {
                *decided = Some((present, change));
                return Err(full);
            }
            appended => appended?,
        };
        self.publish((shard, &mut members), (kind, place), seat)?;
        Ok(cares)
    }
}
