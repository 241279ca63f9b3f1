//! Visiting all pairs, in the order of their hashes, which no rehash changes.
//!
//! A cursor is an area and a place among the 2^32 places that the directory bits of a hash can
//! name. Directories are ranges of places, and doubling parts them: what was visited stays before
//! the cursor, whatever happens meanwhile.

use std::collections::BTreeMap;

use everhash_index::{Cursor, Error, Result};
use everhash_pmem::{Access, Media};

use super::concurrency::View;
use super::layout::{DIRECTORY_HASH, MOST_LEVEL};
use super::state::{Area, State, Walsh};

/// Directories with pairs that one call visits at least, if there are as many.
///
/// Unit: directories. Source: ours; a call holds the area's lock for some microseconds.
const VISIT_DIRECTORIES: u64 = 16;

/// Directories that one call looks at, most of which may be empty.
///
/// Unit: directories. Source: ours; as many microseconds, and a table that was made for a million
/// pairs and holds few is visited in some hundred calls.
const MOST_DIRECTORIES: u64 = 4096;

/// Places of one area.
const PLACES: u64 = 1 << MOST_LEVEL;

/// The newest value of each key of a directory; `None` if it was removed.
type Newest = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl<M: Media> Walsh<M> {
    pub(super) fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let (number, mut place) = (cursor.0 / PLACES, cursor.0 % PLACES);
        let Some(area) = self.areas.get(number as usize) else { return Ok(None) };
        let pm = self.pool.access();
        let mut found = Newest::new();
        let state = self.lock(area)?;
        let mut visited = 0;
        for _ in 0..MOST_DIRECTORIES {
            let before = found.len();
            place = match self.collect_pairs(&pm, area, &state, place, &mut found) {
                // The next call begins with the damage, so that its caller knows where that is.
                Err(Error::Corrupt { .. }) if place != cursor.0 % PLACES => break,
                next => next?,
            };
            visited += u64::from(found.len() > before);
            if place == PLACES || visited == VISIT_DIRECTORIES {
                break;
            }
        }
        drop(state);
        for (key, value) in &found {
            if let Some(value) = value {
                visit(key, value);
            }
        }
        Ok(self.cursor(number, place))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one directory.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        let (number, place) = (cursor.0 / PLACES, cursor.0 % PLACES);
        let Some(area) = self.areas.get(number as usize) else { return Ok(None) };
        let width = coarse_width(self.lock(area)?.view);
        Ok(self.cursor(number, place / width * width + width))
    }

    /// Returns where a scan of an area goes on, whose next place is `place`.
    fn cursor(&self, number: u64, place: u64) -> Option<Cursor> {
        let next = number * PLACES + place;
        (next < self.areas.len() as u64 * PLACES).then_some(Cursor(next))
    }

    /// Collects the pairs of the largest directory that begins at or before a place; returns
    /// where the next one begins.
    fn collect_pairs(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &State,
        place: u64,
        found: &mut Newest,
    ) -> Result<u64> {
        let view = state.view;
        let width = coarse_width(view);
        let first = place / width * width;
        let mut newest = Newest::new();
        let sides = [(view.side(), Some(view.level())), (1 - view.side(), view.old())];
        for (side, level) in sides {
            let Some(level) = level else { continue };
            let step = 1u64 << (MOST_LEVEL - level);
            for directory in (first..first + width).step_by(step as usize) {
                let head = self.blocks.read(&area.sides[side], directory / step).head();
                self.walk(pm, head, &mut |key, value, kind| {
                    let value = kind.is_live().then(|| value.to_vec());
                    newest.entry(key.to_vec()).or_insert(value);
                })?;
            }
        }
        // Some were visited before, if the directory was finer then.
        newest.retain(|key, _| DIRECTORY_HASH.get(self.hasher.bytes(key)) >= place);
        found.append(&mut newest);
        Ok(first + width)
    }
}

/// Returns how many places the largest directory covers.
fn coarse_width(view: View) -> u64 {
    let coarse = view.old().map_or(view.level(), |old| old.min(view.level()));
    1 << (MOST_LEVEL - coarse)
}
