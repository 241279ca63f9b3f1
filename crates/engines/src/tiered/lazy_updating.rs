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

use super::bucket::{Both, Lines, PairCodec, Room, better_room};
use super::concurrency::Live;
use super::layout::{self, Head, Slots, is_second};
use super::shadow_reading::Copied;
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

/// Where a search from the top down has met room first: so a write need not look for it again. The
/// caller holds the groups.
pub struct Roomy {
    /// The first layer that takes new keys, counted from the top.
    open: usize,
    /// Slots of a line that are used.
    used: Slots,
    /// Under each hash function the layer, counted from the top, and the heads of the bucket.
    first: [(usize, [Head; 2]); 2],
    /// Whether a bucket has overflow lines, of which nothing is noted.
    is_partial: bool,
}

/// The layer of no bucket: below all.
const NOWHERE: usize = usize::MAX;

impl Roomy {
    /// Begins a search, with the first layer that takes new keys, in lines of which so many slots
    /// are used.
    #[inline(always)]
    pub fn from(open: usize, line_slots: u64) -> Self {
        let first = [(NOWHERE, [Head::EMPTY; 2]); 2];
        Roomy { open, used: Slots::first(line_slots), first, is_partial: false }
    }

    /// Notes the heads of the bucket of a hash function in a layer; `None` if it has overflow
    /// lines.
    #[inline(always)]
    pub fn note(&mut self, rank: usize, second: usize, heads: Option<[Head; 2]>) {
        let Some(heads) = heads else {
            self.is_partial = true;
            return;
        };
        let first = &mut self.first[second];
        if first.0 == NOWHERE && rank >= self.open && layout::has_free(heads, self.used) {
            *first = (rank, heads);
        }
    }

    /// Returns the hash function and the layer to whose bucket a write of a key with this topmost
    /// copy goes; of a layer it is the roomier bucket: so the layer takes more pairs before a write
    /// goes below it.
    #[inline(always)]
    fn choose(&self, topmost_second: Option<bool>) -> (bool, usize, [Head; 2]) {
        let [one, two] = self.first;
        let free = |heads| layout::free_in_both(heads, self.used);
        let second = match topmost_second {
            Some(second) => second,
            None => two.0 < one.0 || two.0 == one.0 && free(two.1) > free(one.1),
        };
        let (rank, heads) = self.first[usize::from(second)];
        (second, rank, heads)
    }
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Returns where a write of a key with these positions and this topmost copy goes; the search
    /// for the copy has met this room.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    #[inline(always)]
    pub(super) fn target<'s, 'a>(
        &self,
        pm: &'a Access<'_, M>,
        live: Live,
        positions: [u64; 2],
        topmost: Option<&'s Copied<'a, M, C>>,
        roomy: &Roomy,
    ) -> Result<Target<'s, 'a, M, C>> {
        if roomy.is_partial {
            return self.target_anywhere(pm, live, positions, topmost);
        }
        let (second, rank, heads) = roomy.choose(topmost.map(|copy| is_second(copy.state())));
        let end = topmost.map_or(live.count() as usize, |copy| copy.rank);
        if rank < end {
            let home = self.layers.place(live, rank as u64).home(positions[usize::from(second)]);
            if let Some(room) = Both::met(pm, home, heads).room(heads, self.settings.line_slots)? {
                return Ok(Target::Fill { rank, second, room });
            }
        }
        Ok(topmost.map_or(Target::Overflow, Target::Rewrite))
    }

    /// As [`Tiered::target`], in buckets with overflow lines.
    #[cold]
    fn target_anywhere<'s, 'a>(
        &self,
        pm: &'a Access<'_, M>,
        live: Live,
        positions: [u64; 2],
        topmost: Option<&'s Copied<'a, M, C>>,
    ) -> Result<Target<'s, 'a, M, C>> {
        let end = topmost.map_or(live.count() as usize, |copy| copy.rank);
        for rank in self.layers.open(live)..end {
            let look = |second| self.walk_for_room(pm, live, rank, positions[usize::from(second)]);
            let (second, room) = match topmost {
                Some(copy) => {
                    let second = is_second(copy.state());
                    (second, look(second)?.0)
                }
                None => {
                    let ((one, free_one), (two, free_two)) = (look(false)?, look(true)?);
                    if free_two > free_one { (true, two) } else { (false, one) }
                }
            };
            if let Some(room) = room {
                return Ok(Target::Fill { rank, second, room });
            }
        }
        Ok(topmost.map_or(Target::Overflow, Target::Rewrite))
    }

    /// Returns room in a bucket, and how many slots are not valid there, overflow lines included.
    fn walk_for_room<'a>(
        &self,
        pm: &'a Access<'_, M>,
        live: Live,
        rank: usize,
        position: u64,
    ) -> Result<(Option<Room<'a, M>>, u32)> {
        let (mut room, mut free) = (None, 0);
        let place = self.layers.place(live, rank as u64);
        let known = self.known(live, rank as u64, place, position);
        let mut lines = Lines::with(pm, place.home(position), known);
        while let Some((line, _)) = lines.advance()? {
            room = better_room(line.head, line, self.settings.line_slots, room);
            free += line.head.free(self.settings.line_slots);
        }
        Ok((room, free))
    }
}
