//! Opportunistic data movement (Tiered Hashing 3.3): a write to a page of a lower layer takes along
//! the pairs of its ancestor pages that fit there.
//!
//! Down a column, the buckets of one hash function, copies never get newer. So a pair moves only
//! past slots without its key; an older copy where it arrives is overwritten. The copy above stays
//! as a shadow, from when the copy below is durable; no write waits for its flag. A crash may bring
//! the flag back: then there are two equal copies, which is where a move began.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Media, Span};

use super::below::{Below, Spot};
use super::bucket::{Both, Line, PairCodec, Words, better_room, corrupt, hash_in, prefetch_bucket};
use super::in_cacheline_crash_consistency::shadow;
use super::layers::View;
use super::layout::{self, BUCKET_LINES, Line as Ruler, Place, SLOTS, Slots, is_deleted};
use super::moves::{Left, Moves, Moving, Source, Sunk, near_at};
use super::state::Tiered;

/// Where a move persists something of its own.
pub mod sites {
    everhash_pmem::sites! {
        /// The flag of a source, where moves do not share the flush of a write.
        SOURCE = "tiered/move/source";
    }
}

/// How far a move fetches lines ahead of the bucket that it looks at.
///
/// Unit: buckets of the layer above. Source: ours; with those below, six lines each.
const AHEAD: usize = 3;

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Plans to move every eligible pair of the ancestors of a page down to it: of the page in
    /// layer `rank` that holds `position`. Some is planned already.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`]; nothing has changed.
    pub(super) fn plan_moves<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        (position, rank): (u64, usize),
        moving: &mut Moving<'a, M>,
    ) -> Result<()> {
        let page = Page::of(position, view, (self.page_log(), rank));
        // The nearest layer first: its copies block older pairs from above until they have moved.
        for above in (0..rank).rev() {
            let place = view.place(above);
            let indexes = page.above(place.log());
            moving.moves.sources.reserve(BUCKET_LINES as usize * indexes.clone().count());
            indexes.clone().take(AHEAD).for_each(|index| page.prefetch(pm, view, above, index));
            for index in indexes.clone() {
                if index + AHEAD as u64 <= *indexes.end() {
                    page.prefetch(pm, view, above, index + AHEAD as u64);
                }
                let home = place.bucket(index);
                let known = self.fingerprints.bucket(view.first() + above, index);
                let Some(both) = Both::of(pm, home, known) else {
                    self.plan_overflow(pm, view, (above, index), &page, moving)?;
                    continue;
                };
                for number in [0, 1] {
                    if both.heads()[number].valid() != Slots::NONE {
                        let line = both.line(number)?;
                        self.plan_line(pm, view, (&line, above, index), &page, moving)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Plans to move the eligible pairs of a bucket with overflow lines to a page.
    #[cold]
    fn plan_overflow<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        (above, index): (usize, u64),
        page: &Page,
        moving: &mut Moving<'a, M>,
    ) -> Result<()> {
        let mut lines = self.lines_of(pm, view, above, index);
        while let Some((line, _)) = lines.advance()? {
            self.plan_line(pm, view, (&line, above, index), page, moving)?;
        }
        Ok(())
    }

    /// Plans to move the eligible pairs of a line of bucket `index` in layer `above` to a page.
    #[inline(always)]
    fn plan_line<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        (line, above, index): (&Line<'a, M>, usize, u64),
        page: &Page,
        moving: &mut Moving<'a, M>,
    ) -> Result<()> {
        let (at, place) = (line.at(), view.place(above));
        let mut left = Left { at, head: line.head, pairs: 0 };
        for slot in line.head.valid() {
            let (words, state) = (line.words(slot), line.head.state(slot));
            let position = self.position_in(words, state, at, (place, index))?;
            if !page.holds(position) {
                continue;
            }
            let source = Source { at, slot, state, words, rank: above, position };
            let sunk = match self.is_between(pm, view, &source, page.rank) {
                Ok(true) => Ok(Sunk::NoRoom),
                Ok(false) => self.sink_here(pm, view, &source, page.rank, moving),
                Err(error) => Err(error),
            };
            match sunk {
                Ok(Sunk::Planned) => {
                    left.head = left.head.with(slot, shadow(state));
                    left.pairs += 1;
                }
                // Damage further down keeps the pair where it is: the write is one of another key.
                Ok(Sunk::NoRoom) | Err(Error::Corrupt { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        if left.pairs != 0 {
            moving.moves.sources.push(left);
        }
        Ok(())
    }

    /// Returns the position of the key in a slot of bucket `index` of a layer.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`] if the key belongs to another bucket.
    pub(super) fn position_of(
        &self,
        line: &Line<'_, M>,
        slot: usize,
        home: (Place, u64),
    ) -> Result<u64> {
        self.position_in(line.words(slot), line.head.state(slot), line.at(), home)
    }

    /// As [`Tiered::position_of`], of a slot of the line at `at` with these words and this state.
    #[inline(always)]
    fn position_in(
        &self,
        words: Words,
        state: u16,
        at: Addr,
        (place, index): (Place, u64),
    ) -> Result<u64> {
        let hash = hash_in::<C>(&self.hasher, words, state, at)?;
        let position = layout::position(hash, layout::is_second(state));
        if layout::bucket_of(position, place.log()) != index {
            return Err(corrupt(at, "a key lies in the bucket it hashes to"));
        }
        Ok(position)
    }

    /// Returns whether a layer between that of a source and layer `rank` has a copy of its key.
    #[inline(always)]
    fn is_between(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
    ) -> Result<bool> {
        for between in source.rank + 1..rank {
            let home = view.place(between).home(source.position);
            if self.copy_of(pm, view, home, source.slot())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Plans a copy of a source in layer `rank`, with nothing of its key between.
    #[inline(always)]
    pub(super) fn sink<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
        moving: &mut Moving<'a, M>,
    ) -> Result<Sunk> {
        self.sink_here(pm, view, source, rank, moving)
    }

    /// As [`Tiered::sink`], inside the loop over the pairs of a page.
    #[inline(always)]
    fn sink_here<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
        moving: &mut Moving<'a, M>,
    ) -> Result<Sunk> {
        let home = view.place(rank).home(source.position);
        if !moving.knows(home) && !self.learn(pm, view, (rank, source.position), moving) {
            return self.sink_past_overflow(pm, view, source, rank, moving);
        }
        let Some(below) = &moving.near[near_at(home)] else { return Ok(Sunk::NoRoom) };
        match below.copy_of::<C>(pm, layout::print(source.state), source.contents())? {
            Some(copy) => self.sink_over(pm, view, source, rank, &copy, moving),
            None if is_deleted(source.state) && !self.is_below(pm, view, source, rank)? => {
                Ok(Sunk::Planned)
            }
            None => match below.room::<C>(self.settings.line_slots) {
                Some(room) => Ok(moving.sink_into::<C>(source, &room)),
                None => Ok(Sunk::NoRoom),
            },
        }
    }

    /// As [`Tiered::sink`], to a bucket with overflow lines.
    #[cold]
    fn sink_past_overflow<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
        moving: &mut Moving<'a, M>,
    ) -> Result<Sunk> {
        let place = view.place(rank);
        let index = place.index(source.position);
        let mut lines = self.lines_of(pm, view, rank, index);
        let print = layout::print(source.state);
        let mut room = None;
        while let Some((line, _)) = lines.advance()? {
            if let Some(slot) = line.copy_of::<C>(pm, print, source.contents())? {
                let copy = moving.spot(&line, slot);
                return self.sink_over(pm, view, source, rank, &copy, moving);
            }
            let planned = moving.plan.head_at(line.at(), line.head);
            room = better_room(planned, line, self.settings.line_slots, room);
        }
        if is_deleted(source.state) && !self.is_below(pm, view, source, rank)? {
            return Ok(Sunk::Planned);
        }
        let Some(room) = room else { return Ok(Sunk::NoRoom) };
        let room = moving.spot(&room.line, room.slot);
        Ok(moving.sink_into::<C>(source, &room))
    }

    /// Plans what becomes of an older copy of a source's key in layer `rank`.
    #[inline(always)]
    fn sink_over(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
        copy: &Spot,
        moving: &mut Moving<'_, M>,
    ) -> Result<Sunk> {
        let Source { words, state, .. } = *source;
        let arrives = state | layout::NON_WRITABLE;
        if copy.is_touched {
            // The older copy is a shadow that another pair overwrites: in that slot or in a second
            // one of this layer, a crash could not tell which is newer.
            return Ok(Sunk::NoRoom);
        }
        if copy.words == words && !is_deleted(copy.state()) && !is_deleted(state) {
            // A crash brought the flag of the source back.
            return Ok(Sunk::Planned);
        }
        if !is_deleted(state) {
            moving.rewrite(copy, arrives, words[1]);
        } else if self.is_below(pm, view, source, rank)? {
            moving.flag(copy, arrives);
        } else {
            moving.flag(copy, 0);
        }
        moving.moves.end_at::<C>(copy);
        Ok(Sunk::Planned)
    }

    /// Remembers the bucket of a position in layer `rank`; returns whether it has no overflow lines
    /// and matches its checks.
    fn learn<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        (rank, position): (usize, u64),
        moving: &mut Moving<'a, M>,
    ) -> bool {
        let place = view.place(rank);
        let (home, index) = (place.home(position), place.index(position));
        let known = self.fingerprints.bucket(view.first() + rank, index);
        let below = Below::of(pm, home, known, &moving.plan);
        let is_plain = below.is_some();
        moving.near[near_at(home)] = below;
        is_plain
    }

    /// Returns whether there is a copy of the key of a source below layer `rank`.
    pub(super) fn is_below(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source,
        rank: usize,
    ) -> Result<bool> {
        for place in &view.all()[rank + 1..] {
            let home = place.home(source.position);
            if self.copy_of(pm, view, home, source.slot())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes shadows of the sources of moves: what they hold is durable further down. No flush: a
    /// crash may leave them valid. So where DRAM knows the head it is enough to note that there.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn mark_sources(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        moves: &Moves,
    ) -> Result<()> {
        for Left { at, head, .. } in &moves.sources {
            if !self.fingerprints.note(view, *at, *head) {
                pm.store(at.plus(Ruler::HEAD as u64), head.encode(*at))?;
            }
        }
        let moved = moves.sources.iter().map(|left| left.pairs).sum();
        self.moved.fetch_add(moved, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Tiered::mark_sources`], with a flush and a fence of its own for each source.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn mark_sources_apart(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        moves: &Moves,
    ) -> Result<()> {
        for left in &moves.sources {
            let mut head = Line::of(pm, left.at)?.head;
            for slot in 0..SLOTS {
                let state = left.head.state(slot);
                if state != head.state(slot) {
                    head = head.with(slot, state);
                    let at = left.at.plus(Ruler::HEAD as u64);
                    pm.store(at, head.encode(left.at))?;
                    pm.persist(Span::new(at, 1), sites::SOURCE)?;
                    self.moved.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.fingerprints.note(view, left.at, head);
        }
        Ok(())
    }

    /// Gives back the records that no slot leads to any more.
    ///
    /// The write that ended them is committed: damage that is met here is no error of it, and keeps
    /// a record in use until the pool is opened again.
    pub(super) fn drop_ended(&self, pm: &Access<'_, M>, view: &View, moves: &Moves) {
        for (index, ended) in moves.ended.iter().enumerate() {
            // A deletion shares the record of the copy that it ends.
            if moves.ended[..index].iter().all(|before| before.0 != ended.0) {
                let _ = self.drop_record(pm, view, *ended);
            }
        }
    }
}

/// A page where pairs arrive.
struct Page {
    /// Its number in its layer.
    number: u64,
    /// Its layer, counted from the top.
    rank: usize,
    /// Logarithm of the buckets of a page.
    log: u32,
    /// Logarithm of the buckets of the layer.
    log_of_layer: u32,
}

impl Page {
    /// Returns the page of a position in layer `rank`; a page has 2^`log` buckets.
    fn of(position: u64, view: &View, (log, rank): (u32, usize)) -> Self {
        let log_of_layer = view.place(rank).log();
        let number = layout::bucket_of(position, log_of_layer) >> log;
        Page { number, rank, log, log_of_layer }
    }

    /// Returns whether a position lies in it.
    fn holds(&self, position: u64) -> bool {
        layout::bucket_of(position, self.log_of_layer) >> self.log == self.number
    }

    /// Fetches a bucket of a layer above, and the part of this page that lies below it.
    #[inline(always)]
    fn prefetch<M: Media>(&self, pm: &Access<'_, M>, view: &View, above: usize, index: u64) {
        let (upper, place) = (view.place(above), view.place(self.rank));
        let steps = self.log_of_layer - upper.log();
        let first = (index << steps).max(self.number << self.log);
        let end = ((index + 1) << steps).min((self.number + 1) << self.log);
        prefetch_bucket(pm, upper.bucket(index));
        (first..end).for_each(|index| prefetch_bucket(pm, place.bucket(index)));
    }

    /// Returns the buckets of a layer above, of 2^`log` buckets, whose pairs have it below them: a
    /// part of its ancestor page. The others' pairs are for other pages, and need not be hashed to
    /// know it.
    fn above(&self, log: u32) -> core::ops::RangeInclusive<u64> {
        let steps = self.log_of_layer - log;
        let (first, last) = (self.number << self.log, ((self.number + 1) << self.log) - 1);
        first >> steps..=last >> steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_above_a_page_are_those_with_pairs_for_it() {
        // Fails if a pair that belongs below is passed over, or if a bucket is read in vain.
        for (log, log_of_layer, log_above) in
            [(0, 1, 0), (2, 6, 5), (2, 6, 3), (3, 9, 3), (1, 9, 4)]
        {
            for number in 0..1 << (log_of_layer - log) {
                let page = Page { number, rank: 1, log, log_of_layer };
                let found: Vec<u64> = (0..1 << log_above)
                    .filter(|above| {
                        (0..1u64 << (log_of_layer - log_above)).any(|below| {
                            let bucket = (above << (log_of_layer - log_above)) + below;
                            page.holds(layout::first_position(bucket, log_of_layer))
                        })
                    })
                    .collect();
                assert_eq!(page.above(log_above).collect::<Vec<_>>(), found);
            }
        }
    }
}
