//! Opportunistic data movement (Tiered Hashing 3.3): a write to a page of a lower layer takes along
//! the pairs of its ancestor pages that fit there.
//!
//! Down a column, the buckets of one hash function, copies never get newer. So a pair moves only
//! past slots without its key; an older copy where it arrives is overwritten. The copy above stays
//! as a shadow, from when the copy below is durable; no write waits for its flag. A crash may bring
//! the flag back: then there are two equal copies, which is where a move began.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, Media, Span};

use super::bucket::{Both, Line, Lines, PairCodec, Room, Words, better_room, corrupt};
use super::in_cacheline_crash_consistency::{Plan, SlotEdit, shadow};
use super::layers::View;
use super::layout::{
    self, BUCKET_LINES, Head, Line as Ruler, Place, SLOTS, is_deleted, is_readable,
};
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
    /// The lines that pairs come from.
    pub(super) sources: Vec<Left>,
    /// What ended where they arrive, of pairs that lie in records.
    pub(super) ended: Vec<Ended>,
}

/// A line that pairs have left.
pub struct Left {
    at: Addr,
    /// The head with shadows in their place.
    head: Head,
    /// How many pairs.
    pairs: u64,
}

/// What is planned while pairs move.
pub struct Moving<'a, 'm, M: Media> {
    pub(super) plan: Plan,
    pub(super) moves: Moves,
    /// Buckets where pairs arrived last: those of one bucket above go to few below it.
    near: [Option<Both<'a, 'm, M>>; NEAR],
}

impl<M: Media> Moving<'_, '_, M> {
    /// Begins with what is planned already.
    pub(super) fn beside(plan: Plan, moves: Moves) -> Self {
        Moving { plan, moves, near: [const { None }; NEAR] }
    }
}

/// Buckets that are remembered.
///
/// Unit: buckets. Source: ours; with a layer twice as large as the one above, those below a bucket.
const NEAR: usize = 2;

impl Moves {
    /// Returns none, but the end of what a change of a slot ends.
    pub(super) fn ending<C: PairCodec, M: Media>(edit: &SlotEdit<'_, M>) -> Self {
        let mut moves = Moves::default();
        if edit.ends() {
            let (line, slot) = edit.slot();
            moves.end::<C, M>(line, slot);
        }
        moves
    }

    /// Notes that what a slot holds ends, if that may be a record.
    #[inline(always)]
    pub(super) fn end<C: PairCodec, M: Media>(&mut self, line: &Line<'_, M>, slot: usize) {
        if C::RECORDS {
            let at = layout::slot_at(line.at(), slot);
            self.ended.push((line.words(slot), line.head.state(slot), at));
        }
    }

    /// Notes that the pair in a slot moves. Those of one line follow one another.
    fn leave<M: Media>(&mut self, line: &Line<'_, M>, slot: usize) {
        let at = line.at();
        if self.sources.last().is_none_or(|last| last.at != at) {
            self.sources.push(Left { at, head: line.head, pairs: 0 });
        }
        if let Some(left) = self.sources.last_mut() {
            left.head = left.head.with(slot, shadow(left.head.state(slot)));
            left.pairs += 1;
        }
    }
}

/// The copy of a key in a bucket, or room for one.
type Surveyed<'a, M> = (Option<(Line<'a, M>, usize)>, Option<Room<'a, M>>);

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
    /// layer `rank` that holds `position`. Some is planned already.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`]; nothing has changed.
    pub(super) fn plan_moves(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (position, rank): (u64, usize),
        (plan, moves): (Plan, Moves),
    ) -> Result<(Plan, Moves)> {
        let mut moving = Moving::beside(plan, moves);
        let page = Page::of(position, view, (self.page_log(), rank));
        // The nearest layer first: its copies block older pairs from above until they have moved.
        for above in (0..rank).rev() {
            for index in page.above(view.place(above).log()) {
                let home = view.place(above).bucket(index);
                let known = self.fingerprints.bucket(view.first() + above, index);
                if let Some(both) = Both::of(pm, home, known) {
                    for number in [0, 1] {
                        let line = both.line(number)?;
                        self.plan_line(pm, view, (&line, above, index), &page, &mut moving)?;
                    }
                    continue;
                }
                let mut lines = Lines::with(pm, home, known);
                while let Some((line, _)) = lines.advance()? {
                    self.plan_line(pm, view, (&line, above, index), &page, &mut moving)?;
                }
            }
        }
        Ok((moving.plan, moving.moves))
    }

    /// Plans to move the eligible pairs of a line of bucket `index` in layer `above` to a page.
    fn plan_line<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        (line, above, index): (&Line<'a, M>, usize, u64),
        page: &Page,
        moving: &mut Moving<'a, 'm, M>,
    ) -> Result<()> {
        for slot in line.head.valid() {
            let position = self.position_of(line, slot, (view.place(above), index))?;
            if page.holds(position) {
                let source = Source { line: *line, slot, rank: above, position };
                self.plan_move(pm, view, &source, page.rank, moving)?;
            }
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
        (place, index): (Place, u64),
    ) -> Result<u64> {
        let hash = line.hash::<C>(&self.hasher, slot)?;
        let position = layout::position(hash, layout::is_second(line.head.state(slot)));
        if layout::bucket_of(position, place.log()) != index {
            return Err(corrupt(line.at(), "a key lies in the bucket it hashes to"));
        }
        Ok(position)
    }

    fn plan_move<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        source: &Source<'_, M>,
        rank: usize,
        moving: &mut Moving<'a, 'm, M>,
    ) -> Result<()> {
        for between in source.rank + 1..rank {
            let home = view.place(between).home(source.position);
            if self.copy_of(pm, view, home, (&source.line, source.slot))?.is_some() {
                return Ok(());
            }
        }
        if self.sink(pm, view, source, rank, moving)? == Sunk::Planned {
            moving.moves.leave(&source.line, source.slot);
        }
        Ok(())
    }

    /// Plans a copy of a source in layer `rank`, with nothing of its key between.
    pub(super) fn sink<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        source: &Source<'_, M>,
        rank: usize,
        moving: &mut Moving<'a, 'm, M>,
    ) -> Result<Sunk> {
        let (words, state) = (source.words(), source.state());
        let home = view.place(rank).home(source.position);
        let arrives = state | layout::NON_WRITABLE;
        let (copy, room) = self.survey(pm, view, home, source, moving)?;
        let Moving { plan, moves, .. } = moving;
        if let Some((line, slot)) = copy {
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
        let Some(room) = room else { return Ok(Sunk::NoRoom) };
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

    /// Returns the copy of the key of a source in the bucket at `home`; or else room there, beside
    /// what is planned.
    fn survey<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        home: Addr,
        source: &Source<'_, M>,
        Moving { plan, near, .. }: &mut Moving<'a, 'm, M>,
    ) -> Result<Surveyed<'a, M>> {
        let near = &mut near[(home.line() / BUCKET_LINES) as usize % NEAR];
        let both = match near.as_ref().filter(|both| both.at(0) == home) {
            Some(both) => both,
            None => {
                let known = self.fingerprints.bucket_at(view, home);
                let Some(both) = Both::of(pm, home, known) else {
                    return self.survey_all(Lines::with(pm, home, known), source, plan);
                };
                near.insert(both)
            }
        };
        if both.matching(source.print()) != 0 {
            for number in [0, 1] {
                let line = both.line(number)?;
                if let Some(slot) = source.copy_in::<C>(pm, &line)? {
                    return Ok((Some((line, slot)), None));
                }
            }
        }
        let planned = [0, 1].map(|number| plan.head_at(both.at(number), both.heads()[number]));
        Ok((None, both.room(planned, self.settings.line_slots)?))
    }

    /// As [`Tiered::survey`], of a bucket with overflow lines.
    #[cold]
    fn survey_all<'a>(
        &self,
        mut lines: Lines<'a, '_, M>,
        source: &Source<'_, M>,
        plan: &Plan,
    ) -> Result<Surveyed<'a, M>> {
        let mut room = None;
        while let Some((line, _)) = lines.advance()? {
            if let Some(slot) = source.copy_in::<C>(lines.pm(), &line)? {
                return Ok((Some((line, slot)), None));
            }
            room = better_room(plan.head(&line), line, self.settings.line_slots, room);
        }
        Ok((None, room))
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

    fn print(&self) -> u16 {
        layout::print(self.state())
    }

    /// Returns the slot of a line that holds a copy of its key.
    fn copy_in<C: PairCodec>(
        &self,
        pm: &Access<'_, M>,
        line: &Line<'_, M>,
    ) -> Result<Option<usize>> {
        line.copy_of::<C>(
            pm,
            self.print(),
            (self.words(), layout::slot_at(self.line.at(), self.slot)),
        )
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
