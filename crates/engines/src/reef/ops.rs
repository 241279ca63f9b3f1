//! The writes of one key: each holds the latch of the key's shard, looks for the key, appends an
//! object, and lets the directory lead there.

use everhash_index::{Change, Error, Form, Result};
use everhash_pmem::{Access, Addr, Lock, Media, WORD};

use super::directory::{Members, Seat, Shard, damaged};
use super::layout::Kind;
use super::reserve::{Purpose, is_room_wanted};
use super::segments::Object;
use super::state::Reef;
use crate::common::edit::{Edit, Step, modify_calmly};

/// Objects that are fetched together when a shard needs fresh hashes.
///
/// Unit: objects. Source: ours; of two or three lines each, about as many cache misses as a present
/// core can have outstanding.
const REHASHED: usize = 8;

/// How one attempt to change a key ended.
enum Attempt {
    /// The key is as was decided; `cares` as of [`Reef::cares`].
    Done { cares: bool },
    /// There was no room for what was decided.
    Refused(Error, Purpose),
    /// There was no room before, and the key has another value now than the one decided of.
    Outdated,
}

impl<M: Media> Reef<M> {
    /// Writes one key; returns the operation's answer.
    ///
    /// A crash leaves the key as it was or as it will be.
    ///
    /// # Errors
    /// [`Error::Full`]; those of the medium.
    #[inline(always)]
    pub(super) fn write(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<bool> {
        let (answer, cares) = match self.write_once(hash, key, edit) {
            Err(full) if is_room_wanted(&full) => self.write_again(hash, key, edit)?,
            outcome => outcome?,
        };
        if cares {
            self.after_write(self.shard(hash).1)?;
        }
        Ok(answer)
    }

    #[cold]
    fn write_again(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<(bool, bool)> {
        let purpose = match edit {
            Edit::Remove => Purpose::Remove,
            _ => Purpose::Add,
        };
        let mut attempt = 0;
        // Ends: room is made only so many times.
        loop {
            match self.write_once(hash, key, edit) {
                Err(full) if is_room_wanted(&full) && self.make_room(purpose, attempt)? => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    #[inline(always)]
    fn write_once(&self, hash: u64, key: &[u8], edit: Edit<&[u8]>) -> Result<(bool, bool)> {
        let pm = self.pool.access();
        let (shard, number) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        self.takes_writes()?;
        pm.dram(1);
        self.touch(&pm, (shard, &*members), hash)?;
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
        let object = Object { kind, key, value, behind: members.before(&seat) };
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
                members.tombstone = self.last_of(members.tombstone, place);
            }
        }
        self.units.add_garbage(found.place, found.words);
        Ok(())
    }

    /// Returns where the last tombstone of a shard lies in the stream, which was `before`, when one
    /// was added at `place`: in a run that begins before that, it is not the last.
    fn last_of(&self, before: Addr, place: Addr) -> Addr {
        match self.units.seal(before) == self.units.seal(place) {
            true => place.max(before),
            false => place,
        }
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
                match self.modify_once(hash, key, &mut decided, decide)? {
                    Attempt::Done { cares: true } => return self.after_write(self.shard(hash).1),
                    Attempt::Done { cares: false } => return Ok(()),
                    Attempt::Refused(full, purpose)
                        if is_room_wanted(&full) && self.make_room(purpose, attempt)? =>
                    {
                        attempt += 1;
                    }
                    Attempt::Refused(full, _) => return Err(full),
                    // More room would not help: what it is wanted for is not known any more.
                    Attempt::Outdated => {
                        return Err(Error::Full { needed: key.len() as u64 + WORD });
                    }
                }
            }
        })
    }

    /// Decides once. If there was no room then, `decided` holds what was decided of which value: it
    /// stays right as long as the key has that value, and with another one nobody is asked twice.
    fn modify_once(
        &self,
        hash: u64,
        key: &[u8],
        decided: &mut Option<(Option<Vec<u8>>, Change)>,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Result<Change>,
    ) -> Result<Attempt> {
        let pm = self.pool.access();
        let (shard, number) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        self.takes_writes()?;
        self.touch(&pm, (shard, &*members), hash)?;
        let mut present = Vec::new();
        let look = |at| self.objects.look(&pm, (at, self.units.seal(at)), key, Some(&mut present));
        let found = shard.locate(hash, look)?;
        let present = found.is_some().then_some(present);
        let change = match decided.take() {
            Some((of, change)) if of == present => change,
            Some(_) => return Ok(Attempt::Outdated),
            None => decide(present.as_deref())?,
        };
        let (kind, value, purpose) = match &change {
            Change::Put(value) => (Kind::Put, value.as_slice(), Purpose::Add),
            Change::Remove if found.is_some() => (Kind::Removed, &[][..], Purpose::Remove),
            Change::Keep | Change::Remove => return Ok(Attempt::Done { cares: false }),
        };
        let seat = match found {
            Some(found) => Ok(Seat::Taken(found)),
            None => {
                shard.make_room(&mut members, hash, |pairs| self.rehash(&pm, pairs)).map(Seat::Free)
            }
        };
        let appended = seat.and_then(|seat| {
            let object = Object { kind, key, value, behind: members.before(&seat) };
            let (place, cares) = self.append(&pm, number, purpose, &object)?;
            Ok((seat, place, cares))
        });
        let (seat, place, cares) = match appended {
            Err(full @ Error::Full { .. }) => {
                *decided = Some((present, change));
                return Ok(Attempt::Refused(full, purpose));
            }
            appended => appended?,
        };
        self.publish((shard, &mut members), (kind, place), seat)?;
        Ok(Attempt::Done { cares })
    }
}
