//! What `maintain` does: it drains the top layer, reserves room for the next one, and sweeps away
//! what no write came by to end: deletions, and overflow lines that hold nothing.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Access, Addr, AtomicWord, Lock, Media};

use super::bucket::{Line, Lines, PairCodec};
use super::in_cacheline_crash_consistency::Plan;
use super::layers::View;
use super::layout::{SLOTS, is_deleted, is_shadow, is_valid};
use super::moves::Moves;
use super::overflow::sites;
use super::state::{Sweep, Tiered};
use crate::common::damage::or_damage;

/// For how many slots of a table there is one deletion or overflow line to sweep, when a sweep
/// begins beside those that leave them behind.
///
/// Unit: slots. Source: ours; a sweep of so many costs less than the removals did, and what is
/// left behind takes a sixteenth of the room at most.
const SLOTS_PER_LEFTOVER: u64 = 16;

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Works on about `budget` buckets. `drain` drains a page of the top layer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and errors of the medium.
    pub(super) fn maintain(
        &self,
        now: Duration,
        budget: u32,
        drain: impl Fn(&Access<'_, M>) -> Result<bool>,
    ) -> Result<Upkeep> {
        self.pool.check_writable()?;
        let Some(mut sweep) = self.sweep.try_lock()? else { return Ok(Upkeep::default()) };
        let pm = self.pool.access();
        let mut left = u64::from(budget).max(1);
        while left > 0 && self.layers.view().draining() {
            if !drain(&pm)? {
                // No room, or other threads drain the last pages.
                break;
            }
            left = left.saturating_sub(1 << self.page_log());
        }
        self.reserve_ahead()?;
        self.sweep(&pm, &mut sweep, now, left)
    }

    /// Reserves room for the next layer when it is nearly due.
    fn reserve_ahead(&self) -> Result<()> {
        let view = self.layers.view();
        let due = self.grow_at.load(Ordering::Relaxed);
        if view.draining() || self.estimated_items() < due - due / 8 {
            return Ok(());
        }
        match self.space.reserve_ahead(view.bottom().bytes() * 2) {
            // Not an error yet: the table works on with overflow lines.
            Ok(()) | Err(everhash_pmem::Error::Full { .. }) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Sweeps the pages of all layers, the upper ones first, if that is due or has begun.
    ///
    /// A page with damage stays as it is, and the sweep goes on with the next one.
    ///
    /// # Errors
    /// The first damage that was met.
    fn sweep(
        &self,
        pm: &Access<'_, M>,
        sweep: &mut Sweep,
        now: Duration,
        mut left: u64,
    ) -> Result<Upkeep> {
        if left == 0 {
            // A sweep that looks at nothing has not begun: what was left behind stays counted.
            return Ok(Upkeep { deadline: None, more: true });
        }
        if sweep.next == 0 {
            let enough = self.slots(&self.layers.view()) / SLOTS_PER_LEFTOVER;
            if let Some(upkeep) = self.unswept.begin(&mut sweep.seen, now, enough) {
                return Ok(upkeep);
            }
        }
        let mut damage = None;
        while left > 0 {
            let view = self.layers.view();
            // While it is drained the layers may change under the sweep: the drain comes first.
            let Some((rank, page)) = self.page_at(&view, sweep.next).filter(|_| !view.draining())
            else {
                sweep.next = 0;
                break;
            };
            match self.sweep_page(pm, &view, rank, page) {
                // It stays as it is until the pool is opened again; others do not.
                Err(Error::Poisoned) => {}
                swept => or_damage(swept, &mut damage)?,
            }
            sweep.next += 1;
            left = left.saturating_sub(1 << self.page_log());
        }
        // After the last page, the next call says when the next sweep is due.
        damage.map_or(Ok(Upkeep { deadline: None, more: true }), Err)
    }

    /// Returns the layer and the page that have a number among all pages.
    fn page_at(&self, view: &View, mut number: u64) -> Option<(usize, u64)> {
        for (rank, place) in view.all().iter().enumerate() {
            let pages = place.buckets() >> self.page_log();
            if number < pages {
                return Some((rank, number));
            }
            number -= pages;
        }
        None
    }

    /// Ends the deletions of a page, and takes back its overflow lines that hold nothing valid.
    ///
    /// First the shadows further down end, durably, then the other copies there, and then the
    /// deletions: a crash between leaves the keys deleted, and no shadow without its pair, which
    /// would be taken for one that a crash has left beside its source. A deletion that is a shadow
    /// itself covers nothing that the one further down does not: it is left to be overwritten, as
    /// nothing may end below that one before all below it has.
    fn sweep_page(&self, pm: &Access<'_, M>, view: &View, rank: usize, page: u64) -> Result<()> {
        let place = view.place(rank);
        let first = page << self.page_log();
        let (held, live) = self.hold_bucket(pm, place, first)?;
        if live != view.live() {
            return Ok(());
        }
        let mut plans: [Plan; 3] = Default::default();
        let [shadows, below, here] = &mut plans;
        let (mut moves, mut cut) = (Moves::default(), Vec::new());
        for index in first..first + (1 << self.page_log()) {
            let home = place.bucket(index);
            let mut lines = self.lines_of(pm, view, rank, index);
            while let Some((line, number)) = lines.advance()? {
                for slot in line.head.valid().filter(|slot| is_deleted(line.head.state(*slot))) {
                    let position = self.position_of(&line, slot, (place, index))?;
                    let source = (line, slot, rank, position);
                    self.end_below(pm, view, source, (shadows, below), &mut moves)?;
                    end::<C, M>(here, &line, slot, &mut moves);
                }
                let valid = (0..SLOTS).any(|slot| is_valid(here.head(&line).state(slot)));
                if number > 1 && !valid {
                    let left: Vec<usize> = line.readable().collect();
                    for slot in left {
                        if !here.touches(line.at(), slot) {
                            end::<C, M>(here, &line, slot, &mut moves);
                        }
                    }
                    cut.push((home, line.at()));
                }
            }
        }
        if here.is_empty() && cut.is_empty() {
            return Ok(());
        }
        let change = held.change(false)?;
        for plan in &plans {
            if !plan.is_empty() {
                self.commit_plan(pm, view, plan)?;
            }
        }
        let lines = self.cut_out(pm, view, &cut)?;
        change.end();
        self.drop_ended(pm, view, &moves);
        self.give_lines(lines);
        Ok(())
    }

    /// Unlinks overflow lines, each with the bucket that it belongs to, durably; returns them.
    fn cut_out(&self, pm: &Access<'_, M>, view: &View, cut: &[(Addr, Addr)]) -> Result<Vec<Addr>> {
        for (home, out) in cut {
            let mut lines = Lines::of(pm, *home);
            let mut kept: Option<Addr> = None;
            while let Some((line, _)) = lines.advance()? {
                if line.at() == *out {
                    let from = kept.expect("an overflow line has lines before it");
                    let to = line.next()?.unwrap_or(Addr::NULL);
                    self.link(pm, view, from, to, sites::UNLINK)?;
                    break;
                }
                kept = Some(line.at());
            }
        }
        if !cut.is_empty() {
            pm.fence(sites::UNLINK)?;
        }
        Ok(cut.iter().map(|(_, line)| *line).collect())
    }

    /// Plans the end of every copy of the key of a slot below its layer: of shadows before others.
    fn end_below(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (line, slot, rank, position): (Line<'_, M>, usize, usize, u64),
        (shadows, all): (&mut Plan, &mut Plan),
        moves: &mut Moves,
    ) -> Result<()> {
        for lower in &view.all()[rank + 1..] {
            if let Some((copy, at)) =
                self.copy_of(pm, view, lower.home(position), line.slot(slot))?
            {
                if is_shadow(copy.head.state(at)) {
                    shadows.flag((copy.at(), copy.head), at, 0);
                }
                end::<C, M>(all, &copy, at, moves);
            }
        }
        Ok(())
    }
}

/// Plans the end of what a slot holds.
fn end<C: PairCodec, M: Media>(
    plan: &mut Plan,
    line: &Line<'_, M>,
    slot: usize,
    moves: &mut Moves,
) {
    plan.flag((line.at(), line.head), slot, 0);
    moves.end::<C, M>(line, slot);
}
