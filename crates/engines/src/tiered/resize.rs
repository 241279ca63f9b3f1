//! Resizing (Tiered Hashing 3.8): a bottom layer is added, the top layer takes no new keys and is
//! drained, page by page, and is dropped when it is empty.
//!
//! 1. The lines of the new layer are written and fenced: no reader sees them before step 2.
//! 2. One word of the root leads to it: durable, and then seen.
//! 3. What is valid in a page of the top layer is written further down and fenced; then the page is
//!    emptied. A crash between leaves pairs twice, and the upper copy counts.
//! 4. One word of the root says that the top layer is dropped.
//!
//! Which layers the root lists says whether the top one is being drained: then there is one too
//! many. A second resize waits for the first.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media, Span};

use super::bucket::{Line, Lines, PairCodec};
use super::concurrency::Held;
use super::fingerprints::{Covers, Known};
use super::in_cacheline_crash_consistency::Plan;
use super::layers::{View, announce_stream, announce_streams};
use super::layout::{
    self, BUCKET_LINES, Head, LINE_WORDS, Line as Ruler, Listed, MOST_LOG, PLACES, Place,
};
use super::moves::{Moves, Moving, Source, Sunk};
use super::overflow::Newcomer;
use super::setup::write_empty_lines;
use super::state::{Growth, Tiered};

/// Where a resize persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The lines of a new layer.
        LAYER = "tiered/grow/layer";
        /// The word of the root that leads to it.
        PLACE = "tiered/grow/place";
        /// The flags of a page that was drained.
        DRAINED = "tiered/drain/flags";
        /// The word of the root that drops the top layer.
        DROP = "tiered/drop/place";
    }
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Takes `correction` into the estimate of the number of items, adds a layer if that is due,
    /// and drains a page of the top layer if it is this write's turn.
    ///
    /// A failure of the growth is no error of the write that found it due: that is committed. A
    /// medium that has failed reports it at the next write.
    #[inline(always)]
    pub(super) fn estimated(&self, pm: &Access<'_, M>, correction: Option<i64>, hash: u64) {
        if let Some(correction) = correction {
            self.correct_estimate(correction);
        }
        let is_due = self.estimated_items() >= self.grow_at.load(Ordering::Relaxed);
        if self.layers.draining() {
            // One page in as many writes as it has slots, or twice as often: so the top layer is
            // empty long before the next one is due.
            let slots = self.settings.slots_of_log(self.page_log()).next_power_of_two();
            if is_due || hash & (slots / 2).saturating_sub(1) == 0 {
                let _ = self.drain_next(pm);
            }
        } else if is_due && correction.is_some_and(|correction| correction > 0) {
            let _ = self.begin_growth(pm);
        }
    }

    /// Adds a bottom layer, unless one is being added or drained. A crash leaves the root with the
    /// layer or without.
    fn begin_growth(&self, pm: &Access<'_, M>) -> Result<()> {
        let Some(mut growth) = self.growth.try_lock()? else { return Ok(()) };
        let view = self.layers.view();
        let index = view.first() + view.count();
        if view.draining() || index == PLACES {
            return Ok(());
        }
        let log = self.settings.layer_log(index as u64);
        if log > MOST_LOG {
            return Ok(());
        }
        let place = Place::new(Addr::NULL, log);
        let span = match self.space.take(place.bytes(), self.settings.page_bytes) {
            Ok(taken) => taken.span,
            Err(everhash_pmem::Error::Full { .. }) => {
                // Overflow lines take what comes. The next attempt is a sixteenth later.
                self.grow_at.fetch_add(self.slots(&view) / 16 + 1, Ordering::Relaxed);
                return Ok(());
            }
            Err(other) => return Err(other.into()),
        };
        let place = Place::new(span.start, log);
        announce_stream(pm, place, view.count(), self.settings.streams == 1);
        write_empty_lines(pm, span, Some(sites::LAYER))?;
        pm.fence(sites::LAYER)?;
        let at = layout::place_at(index);
        pm.commit_word(at, Listed::Live(place).encode(at), sites::PLACE)?;
        pm.persist(Span::new(at, 1), sites::PLACE)?;
        *growth = Growth { steps: growth.steps + 1, ..Growth::default() };
        self.fingerprints.add_below(&view, place);
        self.layers.add(place);
        // Until that many items are there, draining has time.
        self.grow_at.store(self.items_to_grow(), Ordering::Relaxed);
        Ok(())
    }

    /// Drains one page of the top layer, and drops the layer after the last one; returns whether
    /// there was one, and room for its pairs.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and errors of the medium; a full device is none.
    pub(super) fn drain_next(&self, pm: &Access<'_, M>) -> Result<bool> {
        let (view, page) = {
            let mut growth = self.growth.lock()?;
            let view = self.layers.view();
            let pages = view.place(0).buckets() >> self.page_log();
            if !view.draining() {
                return Ok(false);
            }
            let page = if growth.next < pages {
                growth.next += 1;
                Some(growth.next - 1)
            } else {
                growth.again.pop_front()
            };
            let Some(page) = page else { return Ok(false) };
            growth.under_way += 1;
            (view, page)
        };
        let drained = self.drain_page(pm, &view, page);
        let mut growth = self.growth.lock()?;
        growth.under_way -= 1;
        match drained {
            Ok(()) => {
                let pages = view.place(0).buckets() >> self.page_log();
                if growth.next == pages && growth.again.is_empty() && growth.under_way == 0 {
                    self.drop_top(pm, &view)?;
                }
                Ok(true)
            }
            Err(error) => {
                growth.again.push_back(page);
                match error {
                    // The caller's own write may well succeed.
                    Error::Full { .. } | Error::Poisoned => Ok(false),
                    other => Err(other),
                }
            }
        }
    }

    /// Drops the top layer, which is empty. The caller holds the lock of the growth.
    ///
    /// A crash leaves the root with the empty layer or without.
    fn drop_top(&self, pm: &Access<'_, M>, view: &View) -> Result<()> {
        let at = layout::place_at(view.first());
        pm.commit_word(at, Listed::Dropped.encode(at), sites::DROP)?;
        pm.persist(Span::new(at, 1), sites::DROP)?;
        // A writer that sees the layer searches it while it holds a latch. What has poisoned its
        // latch searches no more.
        let held: Vec<_> = self.groups.hold_all(pm, view.live()).collect();
        let mut groups_log = view.live().groups_log();
        // The groups that are made do not know what is poisoned.
        if held.iter().all(Result::is_ok) {
            groups_log = layout::groups_log(view.place(1).buckets() >> self.page_log());
            self.groups.make(groups_log);
            self.correct_estimate(held.iter().flatten().map(Held::take_drift).sum());
        }
        self.layers.drop_top(groups_log);
        drop(held);
        let top = view.place(0);
        self.space.give(Span::of_bytes(top.start(), top.bytes()));
        // Overflow lines may be empty now.
        self.unswept.add(1);
        self.announce(pm);
        Ok(())
    }

    /// Returns the number of items at which a layer is added. What is being drained has no slots
    /// for them.
    pub(super) fn items_to_grow(&self) -> u64 {
        let view = self.layers.view();
        let drained = view.draining().then(|| self.settings.slots_of_log(view.place(0).log()));
        let slots = u128::from(self.slots(&view) - drained.unwrap_or(0));
        (slots * u128::from(self.settings.grow_percent) / 100) as u64
    }

    /// Tells the medium of the streams.
    pub(super) fn announce(&self, pm: &Access<'_, M>) {
        announce_streams(pm, &self.layers.view(), self.settings.streams == 1);
    }

    /// Moves everything in a page of the top layer further down, and empties the page.
    fn drain_page(&self, pm: &Access<'_, M>, view: &View, page: u64) -> Result<()> {
        let place = view.place(0);
        let first = page << self.page_log();
        let (held, _) = self.hold_bucket(pm, place, first)?;
        let buckets = first..first + (1 << self.page_log());
        if self.fingerprints.covers() == Covers::Upper {
            self.learn_below(pm, view, &held, buckets.clone())?;
        }
        // Ends: the first pair of each round always finds a place, or a full medium.
        while self.drain_round(pm, view, &held, buckets.clone())? {}
        let change = held.change(false)?;
        let lines = self.unlink_all(pm, view, buckets.map(|index| place.bucket(index)))?;
        change.end();
        self.give_lines(lines);
        Ok(())
    }

    /// Learns the fingerprints of what lies below some buckets of the top layer, in the layer that
    /// was the bottom one until this growth began.
    fn learn_below(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        held: &Held<'_, M>,
        buckets: core::ops::Range<u64>,
    ) -> Result<()> {
        let rank = view.count() - 2;
        let place = view.place(rank);
        let steps = place.log() - view.place(0).log();
        let mut seen = Vec::new();
        for index in buckets.start << steps..buckets.end << steps {
            if self.fingerprints.bucket(view.first() + rank, index).is_some() {
                continue;
            }
            let mut lines = Lines::of(pm, place.bucket(index));
            while let Some((line, number)) = lines.advance()?
                && number < BUCKET_LINES
            {
                let has_link = number == 1 && line.next()?.is_some();
                seen.push((line.at(), Known { head: line.head, has_link }));
            }
        }
        let change = held.change(false)?;
        seen.into_iter().for_each(|(at, known)| self.fingerprints.learn(view, at, known));
        change.end();
        Ok(())
    }

    /// Moves down what can be moved with one plan; returns whether something is left.
    fn drain_round(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        held: &Held<'_, M>,
        buckets: core::ops::Range<u64>,
    ) -> Result<bool> {
        let mut moving = Moving::beside(Plan::default(), Moves::default());
        let mut newcomers = Vec::new();
        let mut emptied: Vec<(Line<'_, M>, Head)> = Vec::new();
        let mut is_left = false;
        for index in buckets {
            let place = view.place(0);
            let mut lines = self.lines_of(pm, view, 0, index);
            while let Some((line, _)) = lines.advance()? {
                let mut head = line.head;
                for slot in line.readable() {
                    let state = line.head.state(slot);
                    if layout::is_valid(state) {
                        let position = self.position_of(&line, slot, (place, index))?;
                        let source = Source::of(&line, slot, (0, position));
                        match self.sink_below(pm, view, &source, &mut moving)? {
                            Drained::Planned => {}
                            Drained::Later => {
                                is_left = true;
                                continue;
                            }
                            Drained::Overflows => {
                                newcomers.push(Newcomer {
                                    position,
                                    state,
                                    words: line.words(slot),
                                });
                            }
                        }
                    }
                    head = head.with(slot, 0);
                    moving.moves.end::<C, M>(&line, slot);
                }
                if head != line.head {
                    emptied.push((line, head));
                }
            }
        }
        if emptied.is_empty() {
            return Ok(is_left);
        }
        let Moving { plan, moves, .. } = moving;
        let fresh = self.take_lines(newcomers.len())?;
        let change = held.change(false)?;
        for (newcomer, at) in newcomers.iter().zip(fresh) {
            self.extend(pm, view, newcomer, at)?;
        }
        if !plan.is_empty() {
            self.commit_plan(pm, view, &plan)?;
        }
        for (line, head) in &emptied {
            let at = line.at();
            pm.commit_word(at.plus(Ruler::HEAD as u64), head.encode(at), sites::DRAINED)?;
            self.fingerprints.note(view, at, *head);
        }
        for (line, _) in &emptied {
            pm.flush(Span::new(line.at(), LINE_WORDS as u64), sites::DRAINED);
        }
        pm.fence(sites::DRAINED)?;
        change.end();
        self.drop_ended(pm, view, &moves);
        Ok(is_left)
    }

    /// Plans a copy of a pair of the top layer further down: in place of its next copy, or where
    /// there is room.
    fn sink_below<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        source: &Source,
        moving: &mut Moving<'a, M>,
    ) -> Result<Drained> {
        let planned = |sunk| if sunk == Sunk::Planned { Drained::Planned } else { Drained::Later };
        for rank in 1..view.count() {
            let home = view.place(rank).home(source.position);
            if self.copy_of(pm, view, home, source.slot())?.is_some() {
                return Ok(planned(self.sink(pm, view, source, rank, moving)?));
            }
        }
        for rank in 1..view.count() {
            if self.sink(pm, view, source, rank, moving)? == Sunk::Planned {
                return Ok(Drained::Planned);
            }
        }
        Ok(Drained::Overflows)
    }
}

/// What becomes of a pair that is drained.
enum Drained {
    /// It has a copy further down, or none is needed.
    Planned,
    /// Another pair of this plan is in the way.
    Later,
    /// Every slot of its column is taken.
    Overflows,
}
