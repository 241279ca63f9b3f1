//! What is planned while pairs move down: which move, where they arrive, and what ends there.

use everhash_pmem::{Addr, Media};

use super::below::{Below, Spot, home_of};
use super::bucket::{Line, PairCodec, Words};
use super::in_cacheline_crash_consistency::{Plan, SlotEdit};
use super::layout::{self, BUCKET_LINES, Head, is_readable};

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
    pub(super) at: Addr,
    /// The head with shadows in their place.
    pub(super) head: Head,
    /// How many pairs.
    pub(super) pairs: u64,
}

/// What is planned while pairs move.
pub struct Moving<'a, M: Media> {
    pub(super) plan: Plan,
    pub(super) moves: Moves,
    /// Buckets where pairs arrived last: those of one bucket above go to few below it.
    pub(super) near: [Option<Below<'a, M>>; NEAR],
}

/// Buckets that are remembered.
///
/// Unit: buckets. Source: ours; with a layer twice as large as the one above, those below a bucket.
const NEAR: usize = 2;

impl<M: Media> Moving<'_, M> {
    /// Begins with what is planned already.
    pub(super) fn beside(plan: Plan, moves: Moves) -> Self {
        Moving { plan, moves, near: [const { None }; NEAR] }
    }

    /// As [`Plan::fill`].
    #[inline(always)]
    fn fill(&mut self, spot: &Spot, state: u16, words: Words) {
        self.plan.fill((spot.at, spot.head), spot.slot, state, words);
        self.note(spot, state, false);
    }

    /// As [`Plan::rewrite`].
    #[inline(always)]
    pub(super) fn rewrite(&mut self, spot: &Spot, state: u16, word: u64) {
        self.plan.rewrite((spot.at, spot.head), spot.slot, state, word);
        self.note(spot, state, false);
    }

    /// As [`Plan::flag`].
    pub(super) fn flag(&mut self, spot: &Spot, state: u16) {
        self.plan.flag((spot.at, spot.head), spot.slot, state);
        self.note(spot, state, true);
    }

    /// Plans a source in a slot where there is room.
    #[inline(always)]
    pub(super) fn sink_into<C: PairCodec>(&mut self, source: &Source, room: &Spot) -> Sunk {
        if is_readable(room.state()) && !room.is_touched {
            self.moves.end_at::<C>(room);
        }
        self.fill(room, source.state | layout::NON_WRITABLE, source.words);
        Sunk::Planned
    }

    /// Returns a slot of a line.
    pub(super) fn spot(&self, line: &Line<'_, M>, slot: usize) -> Spot {
        let (at, head, words) = (line.at(), line.head, line.words(slot));
        Spot { at, head, slot, words, is_touched: self.plan.touches(at, slot) }
    }

    /// Returns whether a bucket is remembered.
    #[inline(always)]
    pub(super) fn knows(&self, home: Addr) -> bool {
        self.near[near_at(home)].as_ref().is_some_and(|below| below.home() == home)
    }

    #[inline(always)]
    fn note(&mut self, spot: &Spot, state: u16, flags_only: bool) {
        let home = home_of(spot.at);
        if let Some(below) = &mut self.near[near_at(home)]
            && below.home() == home
        {
            below.note(spot, state, flags_only);
        }
    }
}

/// Returns where a bucket is remembered.
#[inline(always)]
pub fn near_at(home: Addr) -> usize {
    (home.line() / BUCKET_LINES) as usize % NEAR
}

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

    /// As [`Moves::end`], of a slot where a pair arrives.
    #[inline(always)]
    pub(super) fn end_at<C: PairCodec>(&mut self, spot: &Spot) {
        if C::RECORDS {
            self.ended.push((spot.words, spot.state(), spot.last_word()));
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

/// A pair that moves, or a deletion.
pub struct Source {
    /// The line, and the slot there.
    pub(super) at: Addr,
    pub(super) slot: usize,
    pub(super) state: u16,
    pub(super) words: Words,
    /// Its layer, counted from the top.
    pub(super) rank: usize,
    pub(super) position: u64,
}

impl Source {
    /// Returns that in a slot of a line in layer `rank`, whose key has a position.
    #[inline(always)]
    pub(super) fn of<M: Media>(
        line: &Line<'_, M>,
        slot: usize,
        (rank, position): (usize, u64),
    ) -> Source {
        let (words, state) = (line.words(slot), line.head.state(slot));
        Source { at: line.at(), slot, state, words, rank, position }
    }

    /// Returns its words, and where the last of them lies.
    #[inline(always)]
    pub(super) fn contents(&self) -> (Words, Addr) {
        (self.words, layout::slot_at(self.at, self.slot))
    }

    /// Returns its state and its contents, for [`Tiered::copy_of`].
    #[inline(always)]
    pub(super) fn slot(&self) -> (u16, (Words, Addr)) {
        (self.state, self.contents())
    }
}
