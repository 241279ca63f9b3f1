//! Replaying: every object of a stream, in order, into the directory.

use std::collections::BTreeMap;

use everhash_index::{Error, Executor, Result};
use everhash_pmem::{Access, Addr, Lock, Media, Span, WORD};

use super::Plan;
use super::found::FoundSegment;
use crate::common::ahead::Ahead;
use crate::reef::directory::damaged;
use crate::reef::layout::{self, Kind, SegmentHead};
use crate::reef::objects::{Head, Objects};
use crate::reef::state::{LockOf, Reef};
use crate::reef::stream::Position;

impl Objects {
    /// Returns how many words of a segment hold sound objects, from `start` on and at most `words`,
    /// and if so asked up to the first one of an atomic batch.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn sound_until<M: Media>(
        &self,
        pm: &Access<'_, M>,
        segment: &FoundSegment,
        (start, words): (u64, u64),
        until_batch: bool,
    ) -> Result<u64> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut offset = start.max(SegmentHead::WORDS as u64);
        let mut ahead = Ahead::new([behind(segment, offset, words)]);
        ahead.reads(0, pm.media());
        // Ends: every object has a length.
        while offset < words {
            let at = segment.at.plus(offset);
            // Lengths that lead out of the segment are looked at before they are used.
            let Ok(Some(head)) = self.head(pm, at) else { break };
            if head.words > words - offset || until_batch && layout::is_batched(head.word) {
                break;
            }
            if self.read(pm, (at, segment.seal), &mut key, &mut value)?.is_none() {
                break;
            }
            ahead.reads(head.words * WORD, pm.media());
            offset += head.words;
        }
        Ok(offset)
    }
}

/// Returns what lies in a segment from one offset to another one.
fn behind(segment: &FoundSegment, from: u64, to: u64) -> Span {
    Span::new(segment.at.plus(from), to.saturating_sub(from))
}

/// Objects whose lines of the directory are fetched together.
///
/// Unit: objects. Source: ours; about as many cache misses can a present core have outstanding.
const TOGETHER: usize = 16;

/// Objects of a stream that are read and not yet in the directory.
#[derive(Default)]
struct Read {
    objects: Vec<(Addr, Head, u64)>,
    /// Their keys, one behind the other.
    keys: Vec<u8>,
}

impl<M: Media> Reef<M> {
    /// Brings the objects of all streams behind `from` into the directory, as many streams at a
    /// time as the executor likes: no key belongs to two.
    pub(super) fn replay_all(
        &self,
        plan: &Plan,
        from: &[Position],
        executor: &dyn Executor,
    ) -> Result<()> {
        let count = plan.streams.len();
        let outcomes: Vec<LockOf<M, Result<()>>> = (0..count).map(|_| Lock::new(Ok(()))).collect();
        executor.run(count, &|number| {
            let outcome = self.replay(&plan.streams[number], from[number]);
            if let Ok(mut slot) = outcomes[number].lock() {
                *slot = outcome;
            }
        });
        outcomes.iter().try_for_each(|it| core::mem::replace(&mut *it.lock()?, Ok(())))
    }

    /// Brings the objects of a stream into the directory; all of them are sound.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is not.
    fn replay(&self, segments: &BTreeMap<u64, (FoundSegment, u64)>, from: Position) -> Result<()> {
        let pm = self.pool.access();
        let floor = segments.values().map(|(segment, _)| segment.floor).max().unwrap_or(1);
        let floor = floor.max(from.sequence);
        let (mut key, mut value, mut read) = (Vec::new(), Vec::new(), Read::default());
        let parts = segments.range(floor..).map(|(sequence, (segment, words))| {
            // Anything else than the end of an object is no object, and so an error.
            let before = if *sequence == from.sequence { from.fill } else { 0 };
            (segment, before.max(SegmentHead::WORDS as u64), words)
        });
        let spans = parts.clone().map(|(segment, offset, words)| behind(segment, offset, *words));
        let mut ahead = Ahead::new(spans);
        ahead.reads(0, pm.media());
        for (segment, mut offset, words) in parts {
            let mut tombstones = 0;
            // Ends: every object has a length.
            while offset < *words {
                let at = segment.at.plus(offset);
                let head = self.objects.head(&pm, at)?.ok_or_else(|| damaged(at))?;
                if head.words > *words - offset {
                    return Err(damaged(at));
                }
                let sound = self.objects.read(&pm, (at, segment.seal), &mut key, &mut value)?;
                sound.ok_or_else(|| damaged(at))?;
                let hash = self.hash(&key);
                let (shard, number) = self.shard(hash);
                if number != segment.stream as usize {
                    let broken = "a key lies in its stream";
                    return Err(Error::Corrupt { at: at.byte(), broken });
                }
                shard.prefetch(hash);
                read.objects.push((at, head, hash));
                read.keys.extend_from_slice(&key);
                if read.objects.len() == TOGETHER {
                    self.apply(&pm, &mut read)?;
                }
                if head.kind == Kind::Removed {
                    tombstones += head.words;
                }
                ahead.reads(head.words * WORD, pm.media());
                offset += head.words;
            }
            let mut stream = self.streams[segment.stream as usize].0.lock()?;
            if let Some(sealed) = stream.sealed.get_mut(&segment.sequence) {
                sealed.tombstones += tombstones;
            }
        }
        self.apply(&pm, &mut read)
    }

    /// Brings what was read into the directory, in order.
    fn apply(&self, pm: &Access<'_, M>, read: &mut Read) -> Result<()> {
        let mut keys = &read.keys[..];
        for (at, head, hash) in read.objects.drain(..) {
            let (key, rest) = keys.split_at(head.key_bytes as usize);
            keys = rest;
            self.apply_one(pm, (at, &head), (hash, key))?;
        }
        read.keys.clear();
        Ok(())
    }

    fn apply_one(
        &self,
        pm: &Access<'_, M>,
        (at, head): (Addr, &Head),
        (hash, key): (u64, &[u8]),
    ) -> Result<()> {
        let (shard, _) = self.shard(hash);
        let mut members = shard.latch.lock()?;
        let look = |at| self.objects.look(pm, (at, self.units.seal(at)), key, None);
        let found = shard.locate(hash, look)?;
        match (&found, head.kind) {
            (Some(found), Kind::Put) => shard.replace(found, at),
            (Some(found), Kind::Removed) => {
                shard.remove(found)?;
                members.items -= 1;
            }
            (None, Kind::Put) => {
                let room = shard.make_room(&mut members, hash, |pairs| self.rehash(pm, pairs))?;
                shard.insert(room, at);
                members.items += 1;
            }
            (None, Kind::Removed) => {}
        }
        if let Some(found) = found {
            self.units.add_garbage(found.place, found.words);
        }
        Ok(())
    }
}
