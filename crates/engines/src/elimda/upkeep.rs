//! Upkeep: splits and rebuilds ahead of need, space in hand for them, and what a lane of the log
//! has no use for.

use core::time::Duration;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Lock, Media};

use super::form::Form;
use super::state::ElimDa;
use crate::common::room::had_room;

/// After which time blocks that their lane does not use are given back, where nobody writes.
///
/// Unit: seconds. Source: ours; long beside the pauses of a busy table, to which they would come
/// back.
const IDLE: Duration = Duration::from_secs(5);

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Looks at up to `budget` segments: one with few units left is split or rebuilt. At the end of
    /// a round, gives blocks back that their lane has not used since the last one, and gets space
    /// for a rebuild and a free block for each lane.
    ///
    /// # Errors
    /// As [`ElimDa::insert`], but for [`Error::Full`].
    pub fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        if !self.pool.writable() {
            return Ok(Upkeep::default());
        }
        let pm = self.pool.access();
        let Some(mut sweep) = self.sweep.try_lock()? else { return Ok(Upkeep::default()) };
        for _ in 0..budget {
            let place = *sweep;
            let segment = self.table.find(place);
            let prefix = segment.prefix();
            match self.grow_ahead(&pm, place) {
                // Without room there is nothing to do, and a segment in which a write failed stays
                // as it is: the others have their turn.
                Err(Error::Poisoned) => {}
                grown => drop(had_room(grown)?),
            }
            match prefix.last().checked_add(1) {
                Some(next) => *sweep = next,
                None => {
                    *sweep = 0;
                    let mut has_more = false;
                    for lane in 0..self.geometry.lanes {
                        has_more |= self.give_idle_blocks(&pm, lane)?;
                    }
                    self.reserve_space()?;
                    let deadline = has_more.then(|| now.saturating_add(IDLE));
                    return Ok(Upkeep { deadline, more: false });
                }
            }
        }
        Ok(Upkeep { deadline: None, more: true })
    }

    /// Gets what lets a full table go on once pairs are removed, as far as the medium has room.
    ///
    /// First the space for a rebuild: without it no unit of a full table becomes free again, and
    /// blocks alone are of no use. A full medium often has room for one of the two.
    pub(super) fn reserve_space(&self) -> Result<()> {
        self.reserve_segment()?;
        (0..self.geometry.lanes).try_for_each(|lane| self.reserve_block(lane))
    }
}
