//! Lazy updating and deletion (Tiered Hashing 3.5): where a write of a key goes.
//!
//! | the key | goes to |
//! |---|---|
//! | has no copy | the first layer with room, to the roomier of its buckets there; else an overflow line |
//! | has copies | a slot of a layer above the topmost one with room under its hash function; else the slot of the topmost copy itself |
//!
//! Nothing is ever written below a copy or beside it: so down a column copies never get newer, in
//! whatever order lines become durable, and the topmost one counts.

use everhash_index::Result;
use everhash_pmem::{Access, Media};

use super::bucket::{Both, PairCodec, Room, better_room};
use super::layers::View;
use super::layout::{self, Slots, is_second};
use super::shadow_reading::{Copied, Met};
use super::state::Tiered;

/// Where a write of a key goes.
pub enum Target<'s, 'a, M: Media, C: PairCodec> {
    /// To a slot of a layer that has no copy of it.
    Fill {
        /// The layer, counted from the top.
        rank: usize,
        /// Whether it lies under the second hash function.
        second: bool,
        /// The slot.
        room: Room<'a, M>,
    },
    /// To the slot of the topmost copy.
    Rewrite(&'s Copied<'a, M, C>),
    /// Behind the bottom bucket.
    Overflow,
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Returns where a write of a key with these positions and this topmost copy goes; the search
    /// for the copy has met these buckets.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    #[inline(always)]
    pub(super) fn target<'s, 'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        positions: [u64; 2],
        topmost: Option<&'s Copied<'a, M, C>>,
        met: &Met,
    ) -> Result<Target<'s, 'a, M, C>> {
        let end = topmost.map_or(view.count(), |copy| copy.rank);
        for rank in view.open()..end {
            let bucket = |second| Bucket { rank, second, position: positions[usize::from(second)] };
            let second = match topmost {
                Some(copy) => is_second(copy.state()),
                None => {
                    // The roomier bucket: so a layer takes more pairs before a write goes below it.
                    let free = |second| self.free_in(pm, view, &bucket(second), met);
                    free(true)? > free(false)?
                }
            };
            if let Some(room) = self.room_in(pm, view, &bucket(second), met)? {
                return Ok(Target::Fill { rank, second, room });
            }
        }
        Ok(topmost.map_or(Target::Overflow, Target::Rewrite))
    }

    /// Returns how many slots of a bucket are not valid.
    #[inline(always)]
    fn free_in(&self, pm: &Access<'_, M>, view: &View, bucket: &Bucket, met: &Met) -> Result<u32> {
        match met.heads(bucket.rank, bucket.second) {
            Some(heads) => Ok(layout::free_in_both(heads, Slots::first(self.settings.line_slots))),
            None => Ok(self.walk_for_room(pm, view, bucket)?.1),
        }
    }

    /// Returns room in a bucket.
    #[inline(always)]
    fn room_in<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        bucket: &Bucket,
        met: &Met,
    ) -> Result<Option<Room<'a, M>>> {
        match met.heads(bucket.rank, bucket.second) {
            Some(heads) => {
                let home = view.place(bucket.rank).home(bucket.position);
                Both::met(pm, home, heads).room(heads, self.settings.line_slots)
            }
            None => Ok(self.walk_for_room(pm, view, bucket)?.0),
        }
    }

    /// Returns room in a bucket, and how many slots are not valid there, overflow lines included.
    #[cold]
    fn walk_for_room<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        bucket: &Bucket,
    ) -> Result<(Option<Room<'a, M>>, u32)> {
        let (mut room, mut free) = (None, 0);
        let index = view.bucket(bucket.rank, bucket.position);
        let mut lines = self.lines_of(pm, view, bucket.rank, index);
        while let Some((line, _)) = lines.advance()? {
            room = better_room(line.head, line, self.settings.line_slots, room);
            free += line.head.free(self.settings.line_slots);
        }
        Ok((room, free))
    }
}

/// A bucket of a key.
struct Bucket {
    /// Its layer, counted from the top.
    rank: usize,
    /// Whether it is that of the second hash function.
    second: bool,
    /// What the hash function says.
    position: u64,
}

/// Returns the position of a write to a slot of a key that hashes to `hash`.
pub fn position_of<M: Media, C: PairCodec>(hash: u64, copy: &Copied<'_, M, C>) -> u64 {
    layout::position(hash, is_second(copy.state()))
}
