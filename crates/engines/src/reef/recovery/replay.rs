//! Replaying: every object of a stream, in order, into the directory.

use std::collections::BTreeMap;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Lock, Media};

use super::found::FoundSegment;
use crate::reef::directory::damaged;
use crate::reef::layout::{Kind, SegmentHead};
use crate::reef::objects::{Head, Objects};
use crate::reef::state::Reef;

impl Objects {
    /// Returns how many words of a segment hold sound objects, from `start` on and at most `words`.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn sound_until<M: Media>(
        &self,
        pm: &Access<'_, M>,
        segment: &FoundSegment,
        start: u64,
        words: u64,
    ) -> Result<u64> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut offset = start.max(SegmentHead::WORDS as u64);
        // Ends: every object has a length.
        while offset < words {
            let at = segment.at.plus(offset);
            // Lengths that lead out of the segment are looked at before they are used.
            let Ok(Some(head)) = self.head(pm, at) else { break };
            if head.words > words - offset {
                break;
            }
            if self.read(pm, (at, segment.seal), &mut key, &mut value)?.is_none() {
                break;
            }
            offset += head.words;
        }
        Ok(offset)
    }
}

impl<M: Media> Reef<M> {
    /// Brings the objects of a stream into the directory; all of them are sound.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is not.
    pub(super) fn replay(&self, segments: &BTreeMap<u64, (FoundSegment, u64)>) -> Result<()> {
        let pm = self.pool.access();
        let floor = segments.values().map(|(segment, _)| segment.floor).max().unwrap_or(1);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (segment, words) in segments.range(floor..).map(|(_, segment)| segment) {
            let (mut offset, mut tombstones) = (SegmentHead::WORDS as u64, 0);
            // Ends: every object has a length.
            while offset < *words {
                let at = segment.at.plus(offset);
                let head = self.objects.head(&pm, at)?.ok_or_else(|| damaged(at))?;
                if head.words > *words - offset {
                    return Err(damaged(at));
                }
                let read = self.objects.read(&pm, (at, segment.seal), &mut key, &mut value)?;
                read.ok_or_else(|| damaged(at))?;
                self.apply(&pm, segment, (at, &head), &key)?;
                if head.kind == Kind::Removed {
                    tombstones += head.words;
                }
                offset += head.words;
            }
            let mut stream = self.streams[segment.stream as usize].0.lock()?;
            if let Some(sealed) = stream.sealed.get_mut(&segment.sequence) {
                sealed.tombstones = tombstones;
            }
        }
        Ok(())
    }

    fn apply(
        &self,
        pm: &Access<'_, M>,
        segment: &FoundSegment,
        (at, head): (Addr, &Head),
        key: &[u8],
    ) -> Result<()> {
        let hash = self.hash(key);
        let (shard, number) = self.shard(hash);
        if number != segment.stream as usize {
            return Err(Error::Corrupt { at: at.byte(), broken: "a key lies in its stream" });
        }
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
                shard.make_room(members.items + 1, hash, |at| self.rehash(pm, at))?;
                shard.insert(hash, at);
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
