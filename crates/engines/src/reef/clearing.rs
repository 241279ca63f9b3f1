//! Clearing: a new segment in each stream whose head says that nothing before it counts.

use everhash_index::{Error, Result};
use everhash_pmem::{Lock, Media};

use super::layout::SegmentHead;
use super::reserve::Purpose;
use super::segments::sites;
use super::state::Reef;
use super::stream::Step;

impl<M: Media> Reef<M> {
    /// Removes every pair.
    ///
    /// With batches power loss leaves all of them or none. The end of the process in between, and
    /// power loss with immediate durability, may leave those of some streams.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for one segment in each stream; nothing is removed then.
    pub(super) fn clear_all(&self) -> Result<()> {
        let mut attempt = 0;
        // Ends: room is made only so many times.
        loop {
            match self.clear_once() {
                Err(Error::Full { .. }) if self.make_room(Purpose::Move, attempt)? => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn clear_once(&self) -> Result<()> {
        let pm = self.pool.access();
        let shards: core::result::Result<Vec<_>, _> =
            self.shards.all().iter().map(|shard| shard.latch.lock()).collect();
        let mut shards = shards?;
        self.takes_writes()?;
        if shards.iter().all(|members| members.items == 0) {
            return Ok(());
        }
        let mut rooms = Vec::new();
        for _ in &self.streams {
            match self.take_segment(Purpose::Move, SegmentHead::WORDS as u64, Step::SMALL) {
                Ok(room) => rooms.push(room),
                Err(error) => {
                    rooms.into_iter().try_for_each(|(span, _)| self.give(span))?;
                    return Err(error);
                }
            }
        }
        // All at once: no cut comes between.
        let streams: Result<Vec<_>> =
            (0..self.streams.len()).map(|number| self.stream_for(number, u64::MAX)).collect();
        let mut streams = streams?;
        for (stream, room) in streams.iter_mut().zip(rooms) {
            let floor = stream.last.sequence + 1;
            stream.damaged = None;
            self.begin_segment(&pm, stream, room, floor)?;
            let all: Vec<u64> = stream.sealed.keys().copied().collect();
            all.into_iter().try_for_each(|sequence| self.mark_empty(&pm, stream, sequence))?;
            if self.is_immediate {
                stream.not_durable(|span| pm.flush(span, sites::OBJECTS));
            }
        }
        if self.is_immediate {
            self.poison_on_error(pm.fence(sites::OBJECTS))?;
            streams.iter_mut().for_each(|stream| {
                let position = stream.position();
                stream.made_durable(position);
            });
        }
        // No epoch ends before: it would free segments that the directory still leads to.
        for (shard, members) in self.shards.all().iter().zip(&mut shards) {
            shard.clear(members)?;
        }
        drop(streams);
        Ok(())
    }
}
