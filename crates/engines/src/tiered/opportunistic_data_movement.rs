//! Opportunistic data movement (Tiered Hashing 3.3): a write to a page of a lower layer takes along
//! the pairs of its ancestor pages that fit there.
//!
//! Down a column, the buckets of one hash function, copies never get newer. So a pair moves only
//! past slots without its key; an older copy where it arrives is overwritten. The copy above stays
//! as a shadow, from when the copy below is durable; no write waits for its flag. A crash may bring
//! the flag back: then there are two equal copies, which is where a move began.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, Media};

use super::bucket::{Line, PairCodec, Words, corrupt};
use super::in_cacheline_crash_consistency::{Plan, shadow};
use super::layers::View;
use super::layout::{self, Line as Ruler, Place, is_deleted, is_readable, is_valid};
use super::shadow_reading::{Room, better_room};
use super::state::Tiered;

/// Where a move persists something of its own.
pub mod sites {
    everhash_pmem::sites! {
        /// The flag of a source, where moves do not share the flush of a write.
        SOURCE = "tiered/move/source";
    }
}

/// What a slot held that ended: its words, its state, and where it lay.
pub type Ended = (Words, u16, Addr);

/// Pairs that move down, beside what a plan does to the lines where they arrive.
#[derive(Default)]
pub struct Moves {
    /// The slots that pairs come from.
    pub(super) sources: Vec<(Addr, usize)>,
    /// What ended where they arrive, of pairs that lie in records.
    pub(super) ended: Vec<Ended>,
}

impl Moves {
    /// Notes that what a slot holds ends, if that may be a record.
    #[inline(always)]
    pub(super) fn end<C: PairCodec, M: Media>(&mut self, line: &Line<'_, M>, slot: usize) {
        if C::RECORDS {
            let at = layout::slot_at(line.at(), slot);
            self.ended.push((line.words(slot), line.head.state(slot), at));
        }
    }
}

/// What becomes of the copy of a source's key further down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sunk {
    /// The plan makes it what the source is, or there was nothing to be deleted.
    Planned,
    /// There is no room for it.
    NoRoom,
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Plans to move every eligible pair of the ancestors of a page down to it: of the page in
    /// layer `rank` that holds `position`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`]; nothing has changed.
    pub(super) fn plan_moves(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (position, rank): (u64, usize),
        plan: &mut Plan,
    ) -> Result<Moves> {
        let mut moves = Moves::default();
        let page = Page { log: self.page_log(), log_of_layer: view.place(rank).log };
        let number = page.of(position);
        // The nearest layer first: its copies block older pairs from above until they have moved.
        for above in (0..rank).rev() {
            let place = view.place(above);
            for index in page.above(number, place.log) {
                let mut lines = self.lines(pm, view, place.bucket(index));
                while let Some((line, _)) = lines.advance()? {
                    for slot in line.readable().filter(|slot| is_valid(line.head.state(*slot))) {
                        let position = self.position_of(&line, slot, (place, index))?;
                        if page.of(position) == number {
                            let source = Source { line, slot, rank: above, position };
                            self.plan_move(pm, view, &source, rank, plan, &mut moves)?;
                        }
                    }
                }
            }
        }
        Ok(moves)
    }

    /// Returns the position of the key in a slot of bucket `index` of a layer.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`] if the key belongs to another bucket.
    pub(super) fn position_of(
        &self,
        line: &Line<'_, M>,
        slot: usize,
        (place, index): (Place, u64),
    ) -> Result<u64> {
        let hash = line.hash::<C>(&self.hasher, slot)?;
        let position = layout::position(hash, layout::is_second(line.head.state(slot)));
        if layout::bucket_of(position, place.log) != index {
            return Err(corrupt(line.at(), "a key lies in the bucket it hashes to"));
        }
        Ok(position)
    }

    fn plan_move(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source<'_, M>,
        rank: usize,
        plan: &mut Plan,
        moves: &mut Moves,
    ) -> Result<()> {
        for between in source.rank + 1..rank {
            let home = view.place(between).home(source.position);
            if self.copy_of(pm, view, home, (&source.line, source.slot))?.is_some() {
                return Ok(());
            }
        }
        if self.sink(pm, view, source, rank, plan, moves)? == Sunk::Planned {
            moves.sources.push((source.line.at(), source.slot));
        }
        Ok(())
    }

    /// Plans a copy of a source in layer `rank`, with nothing of its key between.
    pub(super) fn sink(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source<'_, M>,
        rank: usize,
        plan: &mut Plan,
        moves: &mut Moves,
    ) -> Result<Sunk> {
        let (words, state) = (source.words(), source.state());
        let home = view.place(rank).home(source.position);
        let arrives = state | layout::NON_WRITABLE;
        if let Some((line, slot)) = self.copy_of(pm, view, home, (&source.line, source.slot))? {
            if plan.touches(line.at(), slot) {
                // The older copy is a shadow that another pair overwrites: in that slot or in a
                // second one of this layer, a crash could not tell which is newer.
                return Ok(Sunk::NoRoom);
            }
            let old = line.head.state(slot);
            if line.words(slot) == words && !is_deleted(old) && !is_deleted(state) {
                // A crash brought the flag of the source back.
                return Ok(Sunk::Planned);
            }
            if !is_deleted(state) {
                plan.rewrite(&line, slot, arrives, words[1]);
            } else if self.is_below(pm, view, source, rank)? {
                plan.flag(&line, slot, arrives);
            } else {
                plan.flag(&line, slot, 0);
            }
            moves.end::<C, M>(&line, slot);
            return Ok(Sunk::Planned);
        }
        if is_deleted(state) && !self.is_below(pm, view, source, rank)? {
            return Ok(Sunk::Planned);
        }
        let Some(room) = self.room_beside(pm, view, home, plan)? else { return Ok(Sunk::NoRoom) };
        self.note_ended(&room, plan, moves);
        plan.fill(&room.line, room.slot, arrives, words);
        Ok(Sunk::Planned)
    }

    /// Notes what ends when a pair is written to a slot.
    pub(super) fn note_ended(&self, room: &Room<'_, M>, plan: &Plan, moves: &mut Moves) {
        let (line, slot) = (&room.line, room.slot);
        let state = line.head.state(slot);
        if is_readable(state) && !plan.touches(line.at(), slot) {
            moves.end::<C, M>(line, slot);
        }
    }

    /// Returns whether there is a copy of the key of a source below layer `rank`.
    pub(super) fn is_below(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        source: &Source<'_, M>,
        rank: usize,
    ) -> Result<bool> {
        for place in &view.all()[rank + 1..] {
            let home = place.home(source.position);
            if self.copy_of(pm, view, home, (&source.line, source.slot))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns room in the bucket at `home` beside what is planned.
    fn room_beside<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        home: Addr,
        plan: &Plan,
    ) -> Result<Option<Room<'a, M>>> {
        let mut room = None;
        let mut lines = self.lines(pm, view, home);
        while let Some((line, _)) = lines.advance()? {
            room = better_room(plan.head(&line), line, self.settings.line_slots, room);
        }
        Ok(room)
    }

    /// Makes shadows of the sources of moves: what they hold is durable further down. No flush: a
    /// crash may leave them valid.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn mark_sources(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        moves: &Moves,
    ) -> Result<()> {
        for (at, slot) in &moves.sources {
            let line = Line::of(pm, *at)?;
            let head = line.head.with(*slot, shadow(line.head.state(*slot)));
            pm.store(at.plus(Ruler::HEAD as u64), head.encode(*at))?;
            self.fingerprints.note(view, *at, head);
        }
        self.moved.fetch_add(moves.sources.len() as u64, Ordering::Relaxed);
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

/// A pair that moves, or a deletion.
pub struct Source<'a, M: Media> {
    pub(super) line: Line<'a, M>,
    pub(super) slot: usize,
    /// Its layer, counted from the top.
    pub(super) rank: usize,
    pub(super) position: u64,
}

impl<M: Media> Source<'_, M> {
    fn words(&self) -> Words {
        self.line.words(self.slot)
    }

    pub(super) fn state(&self) -> u16 {
        self.line.head.state(self.slot)
    }
}

/// The pages of a layer.
struct Page {
    /// Logarithm of the buckets of a page.
    log: u32,
    /// Logarithm of the buckets of the layer.
    log_of_layer: u32,
}

impl Page {
    /// Returns the page of a position.
    fn of(&self, position: u64) -> u64 {
        layout::bucket_of(position, self.log_of_layer) >> self.log
    }

    /// Returns the buckets of a layer above, of 2^`log` buckets, whose pairs have page `number`
    /// below them: a part of its ancestor page. The others' pairs are for other pages, and need not
    /// be hashed to know it.
    fn above(&self, number: u64, log: u32) -> core::ops::RangeInclusive<u64> {
        let steps = self.log_of_layer - log;
        let (first, last) = (number << self.log, ((number + 1) << self.log) - 1);
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
            let page = Page { log, log_of_layer };
            for number in 0..1 << (log_of_layer - log) {
                let found: Vec<u64> = (0..1 << log_above)
                    .filter(|above| {
                        (0..1u64 << (log_of_layer - log_above)).any(|below| {
                            let bucket = (above << (log_of_layer - log_above)) + below;
                            page.of(layout::first_position(bucket, log_of_layer)) == number
                        })
                    })
                    .collect();
                assert_eq!(page.above(number, log_above).collect::<Vec<_>>(), found);
            }
        }
    }
}
