//! Lazy updating and deletion (Tiered Hashing 3.5): where a write of a key goes.
//!
//! | the key | goes to |
//! |---|---|
//! | has no copy | the first layer with room, to the roomier of its buckets there; else an overflow line |
//! | has copies | a slot of a layer above the topmost one with room under its hash function; else the slot of the topmost copy itself |
//!
//! Nothing is ever written below a copy or beside it: so down a column copies never get newer, in
//! whatever order lines become durable, and the topmost one counts.

use everhash_pmem::Media;

use super::bucket::PairCodec;
use super::layers::View;
use super::layout::{self, is_second};
use super::shadow_reading::{Copied, Room, Survey};

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

/// Returns where a write of a key goes.
#[inline(always)]
pub fn target<'s, 'a, M: Media, C: PairCodec>(
    view: &View,
    survey: &'s Survey<'a, M, C>,
) -> Target<'s, 'a, M, C> {
    let topmost = survey.topmost();
    let end = topmost.map_or(view.count(), |copy| copy.rank);
    let only = topmost.map(|copy| is_second(copy.state()));
    for rank in view.open()..end {
        // The roomier bucket: so a layer takes more pairs before a write goes below it.
        let [one, two] = survey.free[rank];
        for second in [two > one, two <= one] {
            if let Some(room) = survey.room[rank][usize::from(second)]
                && only.is_none_or(|only| only == second)
            {
                return Target::Fill { rank, second, room };
            }
        }
    }
    topmost.map_or(Target::Overflow, Target::Rewrite)
}

/// Returns the position of a write to a slot of a key that hashes to `hash`.
pub fn position_of<M: Media, C: PairCodec>(hash: u64, copy: &Copied<'_, M, C>) -> u64 {
    layout::position(hash, is_second(copy.state()))
}
