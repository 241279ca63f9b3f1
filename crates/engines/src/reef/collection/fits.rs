//! Whether a segment can be moved as a whole: a half that was moved would take room and give back
//! none.

use everhash_index::Result;
use everhash_pmem::{Lock, Media};

use super::PIECE;
use crate::reef::layout::{Kind, SegmentHead};
use crate::reef::reader::{Part, Reader};
use crate::reef::state::Reef;
use crate::reef::stream::Victim;

impl<M: Media> Reef<M> {
    /// Returns whether there is room for all that is alive in a segment. It is read for that only
    /// where nothing that is kept back would take all of it.
    pub(super) fn has_room_for(&self, victim: &Victim) -> Result<bool> {
        let (left, step) = {
            let stream = self.streams[victim.stream].0.lock()?;
            (stream.left(), self.step(&stream))
        };
        let gone = SegmentHead::WORDS as u64 + self.units.garbage(victim.segment.span.start);
        let live = victim.segment.fill.saturating_sub(gone);
        if live <= left || self.keeps_segment_for(live)? {
            return Ok(true);
        }
        match self.live_lengths(victim)? {
            Some(lengths) => self.fits(left, &lengths, step),
            // Whoever moves it says where it is damaged.
            None => Ok(true),
        }
    }

    /// Returns the lengths of the objects that are alive in a segment, in their order; nothing if
    /// it is damaged. Tombstones of keys that were put again are among them: to tell, older objects
    /// would have to be read. Unit: words.
    pub(crate) fn live_lengths(&self, victim: &Victim) -> Result<Option<Vec<u64>>> {
        let pm = self.pool.access();
        let (start, fill) = (victim.segment.span.start, victim.segment.fill);
        let mut reader = Reader::new(&pm, self.objects, PIECE, []);
        reader.turn(Part::new((start, victim.segment.seal), victim.offset, fill));
        let (mut lengths, mut objects, mut offset) = (Vec::new(), Vec::new(), victim.offset);
        // Ends: every object has a length, and some are listed or it is damaged.
        while offset < fill {
            self.list(&mut reader, offset..fill, &mut objects)?;
            if objects.is_empty() {
                return Ok(None);
            }
            for (held, hash) in objects.drain(..) {
                let words = held.head.words;
                offset += words;
                let is_alive = match held.head.kind {
                    Some(Kind::Put) => {
                        let (shard, _) = self.shard(hash);
                        let members = shard.latch.lock()?;
                        self.touch(&pm, (shard, &*members), hash)?;
                        shard.locate_place(hash, held.at, words).is_some()
                    }
                    Some(Kind::Removed) => !victim.is_oldest,
                    None => false,
                };
                if is_alive {
                    lengths.push(words);
                }
            }
        }
        Ok(Some(lengths))
    }
}
