//! Atomic batches: many writes, of which a crash leaves all or none.
//!
//! The writer holds the latches of all shards and streams that take part: its objects lie one
//! behind the other in each stream, and no cut of an epoch comes between them.
//!
//! | writes are durable | what ends | what keeps the batch whole |
//! |---|---|---|
//! | by epochs | the process | tails move after a record that says all of them; recovery takes what it says |
//! | by epochs | power | an epoch, which has all objects or none |
//! | at once | either | objects of a batch count only under a commit record, which is durable before anything follows them |
//!
//! Readers take no latch: they see the writes one by one.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use everhash_index::{AtomicTable, Result, admit};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media, WORD};

use super::directory::{Members, Seat};
use super::layout::{self, BATCH, BatchRecord, Ended, Kind, Tail};
use super::reserve::{Purpose, is_room_wanted};
use super::state::Reef;
use super::stream::{Open, Stream};
use crate::common::edit::has_form;

/// Where atomic batches are persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// The record of the newest batch, for the end of a process.
        RECORD = "reef/batch/record";
        /// How far a segment is filled with a batch, for the end of a process.
        TAIL = "reef/batch/tail";
    }
}

/// A write of a batch that changes something.
#[derive(Clone, Copy, Debug)]
struct Write<'w> {
    hash: u64,
    key: &'w [u8],
    /// `None` for a removal.
    value: Option<&'w [u8]>,
    /// Number of the stream.
    stream: usize,
    /// Where its object lies.
    place: Addr,
}

impl Write<'_> {
    fn kind(&self) -> Kind {
        if self.value.is_some() { Kind::Put } else { Kind::Removed }
    }
}

impl<M: Media> AtomicTable for Reef<M> {
    fn write_all_and_tell(
        &self,
        writes: &[(&[u8], Option<&[u8]>)],
        changed: &mut dyn FnMut(&[u8], bool),
    ) -> Result<()> {
        // Of several writes to a key the last one counts.
        let mut last = BTreeMap::new();
        for (key, value) in writes {
            match value {
                Some(value) => admit(self.form, key, value)?,
                None if !has_form(self.form, key) => continue,
                None => {}
            }
            last.insert(*key, *value);
        }
        let purpose = match last.values().any(Option::is_some) {
            true => Purpose::Add,
            false => Purpose::Remove,
        };
        let mut attempt = 0;
        // Ends: room is made only so many times.
        let due = loop {
            match self.write_all_once(&last, purpose, changed) {
                Err(full) if is_room_wanted(&full) && self.make_room(purpose, attempt)? => {
                    attempt += 1;
                }
                outcome => break outcome?,
            }
        };
        due.into_iter().try_for_each(|number| self.after_write(number))
    }
}

impl<M: Media> Reef<M> {
    /// Does all writes; returns the streams in which [`Reef::after_write`] has to do something.
    ///
    /// # Errors
    /// [`Error::Full`](everhash_index::Error::Full): nothing was written then.
    fn write_all_once(
        &self,
        last: &BTreeMap<&[u8], Option<&[u8]>>,
        purpose: Purpose,
        changed: &mut dyn FnMut(&[u8], bool),
    ) -> Result<BTreeSet<usize>> {
        let pm = self.pool.access();
        let mut epochs = match self.is_immediate {
            true => Some(self.epochs.lock()?),
            false => None,
        };
        let numbers: BTreeSet<usize> =
            last.keys().map(|key| self.shard_number(self.hash(key))).collect();
        let mut members = BTreeMap::new();
        for number in numbers {
            members.insert(number, self.shards.all()[number].latch.lock()?);
        }
        self.takes_writes()?;
        let mut writes = self.find_all(&pm, last, &mut members)?;
        if writes.is_empty() {
            return Ok(BTreeSet::new());
        }
        let due = match &mut epochs {
            // The commit record speaks of all streams.
            Some(epochs) => {
                let mut streams = self.all_streams()?;
                let due = self.append_all(&pm, purpose, &mut writes, &mut streams)?;
                self.commit_held(epochs, &mut streams)?;
                due
            }
            None => {
                let parts: BTreeSet<usize> = writes.iter().map(|write| write.stream).collect();
                let mut streams = Vec::new();
                for number in parts {
                    streams.push(self.stream_for(number, u64::MAX)?);
                }
                self.append_all(&pm, purpose, &mut writes, &mut streams)?
            }
        };
        for write in &writes {
            let members = members.get_mut(&self.shard_number(write.hash));
            let members = members.expect("its latch was taken");
            match self.publish_one(&pm, write, members) {
                Ok(was_there) if was_there == write.value.is_some() => {}
                Ok(_) => changed(write.key, write.value.is_some()),
                Err(error) => {
                    // The medium has all of them by now, and readers would not.
                    self.dead.store(1, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(due)
    }

    /// Looks for all keys; returns the writes that change something, for which the directory has
    /// room.
    fn find_all<'w, G>(
        &self,
        pm: &Access<'_, M>,
        last: &BTreeMap<&'w [u8], Option<&'w [u8]>>,
        members: &mut BTreeMap<usize, G>,
    ) -> Result<Vec<Write<'w>>>
    where
        G: DerefMut<Target = Members>,
    {
        let (mut writes, mut fresh) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for (key, value) in last {
            let hash = self.hash(key);
            let (shard, stream) = self.shard(hash);
            let number = self.shard_number(hash);
            self.touch(pm, (shard, &*members[&number]), hash)?;
            let look = |at| self.objects.look(pm, (at, self.units.seal(at)), key, None);
            let is_there = shard.locate(hash, look)?.is_some();
            if value.is_none() && !is_there {
                continue;
            }
            if !is_there {
                fresh.entry(number).or_default().push(hash);
            }
            writes.push(Write { hash, key, value: *value, stream, place: Addr::NULL });
        }
        for (number, hashes) in fresh {
            let members = members.get_mut(&number).expect("its latch is held");
            let shard = &self.shards.all()[number];
            shard.make_rooms(members, &hashes, |pairs| self.rehash(pm, pairs))?;
        }
        Ok(writes)
    }

    /// Appends the objects of all writes; `streams` are those that take part, or all.
    fn append_all<G>(
        &self,
        pm: &Access<'_, M>,
        purpose: Purpose,
        writes: &mut [Write<'_>],
        streams: &mut [G],
    ) -> Result<BTreeSet<usize>>
    where
        G: DerefMut<Target = Stream>,
    {
        let words = |write: &Write<'_>| {
            self.objects.words(write.kind(), write.key, write.value.unwrap_or_default())
        };
        for stream in streams.iter_mut() {
            let number = stream.number;
            let part = writes.iter().filter(|write| write.stream as u64 == number).map(words);
            if let Some(longest) = part.clone().max() {
                self.leave_room(purpose, longest, stream)?;
            }
            let part: u64 = part.sum();
            // All of it in one segment: the end of the one before would make a part visible.
            if part > 0 && stream.open.is_none_or(|open| open.fill + part > open.span.words) {
                let floor = stream.floor;
                let room = self.take_segment(purpose, part, self.step(stream))?;
                self.begin_segment(pm, stream, room, floor)?;
            }
        }
        let stored = streams.iter_mut().map(|stream| self.store_objects(pm, writes, stream));
        let filled = stored.collect::<Result<Vec<_>>>()?;
        let _batching = match self.is_immediate {
            // A commit record follows at once.
            true => None,
            // There is one record: a batch beside this one must not write its own before all our
            // tails have moved.
            false => {
                let batching = self.batching.lock()?;
                self.poison_on_error(self.record(pm, streams, &filled))?;
                Some(batching)
            }
        };
        let mut due = BTreeSet::new();
        for (stream, filled) in streams.iter_mut().zip(&filled) {
            self.reach(pm, stream, filled.as_ref())?;
            if self.cares(stream) {
                due.insert(stream.number as usize);
            }
        }
        Ok(due)
    }

    /// Stores the objects of a stream behind those that it has, without moving its end. Returns its
    /// segment as it is with them.
    fn store_objects(
        &self,
        pm: &Access<'_, M>,
        writes: &mut [Write<'_>],
        stream: &mut Stream,
    ) -> Result<Option<Open>> {
        let Some(present) = &mut stream.open else { return Ok(None) };
        let mut open = *present;
        for write in writes.iter_mut().filter(|write| write.stream as u64 == stream.number) {
            let (kind, value) = (write.kind(), write.value.unwrap_or_default());
            write.place = open.span.start.plus(open.fill);
            let place = (write.place, open.seal);
            self.objects.write(pm, place, (kind, kind.batched_code()), write.key, value)?;
            let words = self.objects.words(kind, write.key, value);
            open.fill += words;
            open.tombstones += if kind == Kind::Removed { words } else { 0 };
        }
        present.tombstones = open.tombstones;
        Ok(Some(open))
    }

    /// Records for the end of a process how far streams are filled with a batch.
    fn record<G>(
        &self,
        pm: &Access<'_, M>,
        streams: &[G],
        filled: &[Option<Open>],
    ) -> everhash_pmem::Result<()>
    where
        G: Deref<Target = Stream>,
    {
        let mut record = [0; BatchRecord::WORDS];
        record[BatchRecord::GENERATION] = self.generation;
        for (stream, filled) in streams.iter().zip(filled) {
            let Some(filled) = filled else { continue };
            let first = BatchRecord::TAILS + 2 * stream.number as usize;
            let tail = Tail { words: filled.fill, ended: Ended::Not }.word(filled.seal);
            record[first..first + 2].copy_from_slice(&[filled.sequence, tail]);
        }
        pm.write_words(BATCH, &record[..BatchRecord::CHECKSUM])?;
        let checksum = layout::sum(&record[..BatchRecord::CHECKSUM], BATCH, self.seed);
        pm.commit_word(BATCH.plus(BatchRecord::CHECKSUM as u64), checksum, sites::RECORD)
    }

    /// Moves the end of a stream, and the tail of its segment, to where the segment is filled with
    /// a batch.
    fn reach(&self, pm: &Access<'_, M>, stream: &mut Stream, filled: Option<&Open>) -> Result<()> {
        let (Some(open), Some(filled)) = (&mut stream.open, filled) else { return Ok(()) };
        self.poison_on_error(self.move_tail(pm, open, filled.fill, sites::TAIL))?;
        stream.pending += (filled.fill - open.fill) * WORD;
        open.fill = filled.fill;
        Ok(())
    }

    /// Lets the directory lead to the object of a write; returns whether its key was there.
    fn publish_one(
        &self,
        pm: &Access<'_, M>,
        write: &Write<'_>,
        members: &mut Members,
    ) -> Result<bool> {
        let (shard, _) = self.shard(write.hash);
        let look = |at| self.objects.look(pm, (at, self.units.seal(at)), write.key, None);
        let found = shard.locate(write.hash, look)?;
        let was_there = found.is_some();
        let seat = match found {
            Some(found) => Seat::Taken(found),
            // There is room for all of the batch.
            None => {
                Seat::Free(shard.make_room(members, write.hash, |pairs| self.rehash(pm, pairs))?)
            }
        };
        self.publish((shard, members), (write.kind(), write.place), seat)?;
        Ok(was_there)
    }
}
