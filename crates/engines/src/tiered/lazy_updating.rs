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

use super::bucket::PairCodec;
use super::layers::View;
use super::layout::{self, is_second};
use super::shadow_reading::{Copied, Room, better_room};
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
    /// Returns where a write of a key with these positions and this topmost copy goes.
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
    ) -> Result<Target<'s, 'a, M, C>> {
        let end = topmost.map_or(view.count(), |copy| copy.rank);
        for rank in view.open()..end {
            let room = |second| self.room_in(pm, view, rank, positions[usize::from(second)]);
            let (second, (room, _)) = match topmost {
                Some(copy) => (is_second(copy.state()), room(is_second(copy.state()))?),
                None => {
                    let (one, two) = (room(false)?, room(true)?);
                    // The roomier bucket: so a layer takes more pairs before a write goes below it.
                    if two.1 > one.1 { (true, two) } else { (false, one) }
                }
            };
            if let Some(room) = room {
                return Ok(Target::Fill { rank, second, room });
            }
        }
        Ok(topmost.map_or(Target::Overflow, Target::Rewrite))
    }

    /// Returns room in the bucket of a position in a layer, and how many slots are not valid there.
    #[inline(always)]
    fn room_in<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        rank: usize,
        position: u64,
    ) -> Result<(Option<Room<'a, M>>, u32)> {
        let (mut room, mut free) = (None, 0);
        let mut lines = self.lines_of(pm, view, rank, view.bucket(rank, position));
        while let Some((line, _)) = lines.advance()? {
            room = better_room(line.head, line, self.settings.line_slots, room);
            free += line.head.free(self.settings.line_slots);
        }
        Ok((room, free))
    }
}

/// Returns the position of a write to a slot of a key that hashes to `hash`.
pub fn position_of<M: Media, C: PairCodec>(hash: u64, copy: &Copied<'_, M, C>) -> u64 {
    layout::position(hash, is_second(copy.state()))
}
