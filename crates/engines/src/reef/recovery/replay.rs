//! Replaying: every object of a stream, in order, into the directory.

use core::ops::DerefMut;
use std::collections::BTreeMap;

use everhash_index::{Error, Executor, Result};
use everhash_pmem::{Access, Addr, Lock, Media};

use super::found::FoundSegment;
use super::{PIECE, Plan};
use crate::common::jobs::run_all;
use crate::reef::directory::{Link, Members, damaged};
use crate::reef::layout::Kind;
use crate::reef::reader::{Held, Reader};
use crate::reef::state::Reef;
use crate::reef::stream::Position;

/// Objects whose lines of the directory are fetched together.
///
/// Unit: objects. Source: ours; about as many cache misses can a present core have outstanding.
const TOGETHER: usize = 16;

/// How much memory the directory may take for keys whose hashes begin alike, as a multiple of the
/// medium's length.
///
/// Source: ours; the table that stored them had more leaves, and chosen keys must not take much
/// more memory than the medium has bytes.
const CROWD_SHARE: u64 = 4;

/// How much memory it may take for them, however short the medium is.
///
/// Unit: bytes. Source: ours; links for 15 bits of a hash, and the shorter arrays before them.
const LEAST_CROWD: u64 = 1 << 20;

/// An object of a stream that is read and not yet in the directory.
struct Read {
    held: Held,
    kind: Kind,
    hash: u64,
    /// The link to its leaf when the line there was fetched.
    leaf: Link,
}

/// Objects that are read and not yet in the directory, in their order.
#[derive(Default)]
struct Waiting {
    /// Those whose lines of the directory are being fetched.
    fetched: Vec<Read>,
    /// Those behind them, whose links are being fetched.
    fresh: Vec<Read>,
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
        run_all::<M::Sync, _>(executor, plan.streams.len(), |number| {
            self.replay(number, &plan.streams[number], from[number])
        })
        .map(drop)
    }

    /// Brings the objects of a stream into the directory; all of them are sound.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is not.
    fn replay(
        &self,
        number: usize,
        segments: &BTreeMap<u64, (FoundSegment, u64)>,
        from: Position,
    ) -> Result<()> {
        let pm = self.pool.access();
        let floor = segments.values().map(|(segment, _)| segment.floor).max().unwrap_or(1);
        let parts =
            segments.range(floor.max(from.sequence)..).map(|(sequence, (segment, words))| {
                // Anything else than the end of an object is no object, and so an error.
                let before = if *sequence == from.sequence { from.fill } else { 0 };
                (segment, segment.part(before, *words))
            });
        let spans = parts.clone().map(|(_, part)| part.span());
        let mut reader = Reader::new(&pm, self.objects, PIECE, spans);
        let shards = self.shards.all().iter().skip(number).step_by(self.streams.len());
        // Nobody else wants them before the table is open.
        let latches = shards.map(|shard| shard.latch.lock());
        let mut latches: Vec<_> = latches.collect::<core::result::Result<_, _>>()?;
        let mut waiting = Waiting::default();
        for (segment, part) in parts {
            reader.turn(part);
            let (mut offset, mut tombstones) = (part.from, 0);
            // Ends: every object has a length, and what a reader was told to hold it holds.
            while offset < part.to {
                let Some(held) = reader.held(offset) else {
                    self.apply_all(&pm, reader.bytes(), &mut waiting, &mut latches)?;
                    if !reader.hold(offset)? {
                        return Err(damaged(part.at.plus(offset)));
                    }
                    continue;
                };
                let key = reader.key(&held).ok_or_else(|| damaged(held.at))?;
                offset += held.head.words;
                let Some(kind) = held.head.kind else {
                    self.units.add_garbage(held.at, held.head.words);
                    continue;
                };
                let hash = self.hash_in(key, number, held.at)?;
                waiting.fresh.push(Read { held, kind, hash, leaf: Link::default() });
                if waiting.fresh.len() == TOGETHER {
                    self.apply_some(&pm, reader.bytes(), &mut waiting, &mut latches)?;
                }
                if kind == Kind::Removed {
                    tombstones += held.head.words;
                }
            }
            self.apply_all(&pm, reader.bytes(), &mut waiting, &mut latches)?;
            let mut stream = self.streams[number].0.lock()?;
            if let Some(sealed) = stream.sealed.get_mut(&segment.sequence) {
                sealed.tombstones += tombstones;
            }
        }
        Ok(())
    }

    /// Returns the hash of a key of a stream.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is one of another stream.
    #[inline(always)]
    fn hash_in(&self, key: &[u8], stream: usize, at: Addr) -> Result<u64> {
        let hash = self.hash(key);
        let (shard, number) = self.shard(hash);
        if number != stream {
            return Err(Error::Corrupt { at: at.byte(), broken: "a key lies in its stream" });
        }
        shard.prefetch_link(hash);
        Ok(hash)
    }

    /// Brings all that waits into the directory.
    fn apply_all<G>(
        &self,
        pm: &Access<'_, M>,
        bytes: &[u8],
        waiting: &mut Waiting,
        latches: &mut [G],
    ) -> Result<()>
    where
        G: DerefMut<Target = Members>,
    {
        self.apply_some(pm, bytes, waiting, latches)?;
        self.apply_some(pm, bytes, waiting, latches)
    }

    /// Brings those objects into the directory whose lines were fetched, and begins to fetch those
    /// of the others. Nothing waits for memory that was not asked for some objects before: links,
    /// then lines of the directory, then the pairs that are replaced.
    fn apply_some<G>(
        &self,
        pm: &Access<'_, M>,
        bytes: &[u8],
        waiting: &mut Waiting,
        latches: &mut [G],
    ) -> Result<()>
    where
        G: DerefMut<Target = Members>,
    {
        for it in &mut waiting.fresh {
            it.leaf = self.shard(it.hash).0.prefetch(it.hash);
        }
        for it in &waiting.fetched {
            if let Some(place) = self.shard(it.hash).0.candidate(it.leaf, it.hash) {
                pm.prefetch(place);
            }
        }
        for Read { held: Held { at, head, first }, kind, hash, .. } in waiting.fetched.drain(..) {
            let (key, _) = self.objects.held(&bytes[first..], &head);
            let members = &mut latches[self.shard_number(hash) / self.streams.len()];
            self.apply_one(pm, (at, kind), (hash, key), members)?;
        }
        core::mem::swap(&mut waiting.fetched, &mut waiting.fresh);
        Ok(())
    }

    fn apply_one(
        &self,
        pm: &Access<'_, M>,
        (at, kind): (Addr, Kind),
        (hash, key): (u64, &[u8]),
        members: &mut Members,
    ) -> Result<()> {
        let (shard, _) = self.shard(hash);
        self.touch(pm, (shard, &*members), hash)?;
        let look = |at| self.objects.look(pm, (at, self.units.seal(at)), key, None);
        let found = shard.locate(hash, look)?;
        match (&found, kind) {
            (Some(found), Kind::Put) => shard.replace(found, at),
            (Some(found), Kind::Removed) => {
                shard.remove(found)?;
                members.items -= 1;
            }
            (None, Kind::Put) => {
                let most = (CROWD_SHARE * pm.media().bytes()).max(LEAST_CROWD);
                let rehash = |pairs: &mut [_]| self.rehash(pm, pairs);
                let room = shard.make_room_again(members, (hash, most), rehash)?;
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
