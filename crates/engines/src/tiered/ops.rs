//! Insert, put, update, remove (Tiered Hashing 3.2 to 3.5), under the contract's one meaning of
//! each; get stands in `shadow_reading.rs`.

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, LINE, Media, WORD};

use super::bucket::PairCodec;
use super::concurrency::Held;
use super::in_cacheline_crash_consistency::{Plan, valid};
use super::layers::{Live, View};
use super::layout::{self, is_deleted};
use super::lazy_updating::{Target, position_of};
use super::opportunistic_data_movement::{Moves, Source};
use super::overflow::Newcomer;
use super::shadow_reading::{Copied, Met, prefetch_buckets};
use super::state::Tiered;
use crate::common::edit::Step;
use crate::common::slot_codec::HashedKey;
use crate::common::slot_table::SlotTable;

/// Where writes persist something of their own.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, before a slot leads to it.
        RECORD = "tiered/write/record";
        /// Everything, on media whose fences wait for nothing.
        SYNC = "tiered/sync/all";
    }
}

/// The topmost copy of a key, and the buckets that the search for it has met.
type Topmost<'s, 'a, M, C> = (Option<&'s Copied<'a, M, C>>, &'s Met);

/// A key whose groups are held for a write.
struct Writer<'t, 'k, M: Media, C: PairCodec> {
    table: &'t Tiered<M, C>,
    held: Held<'t, M>,
    view: View,
    wanted: HashedKey<'k, C>,
    /// Under the first hash function, and under the second.
    positions: [u64; 2],
}

impl<M: Media, C: PairCodec> SlotTable for Tiered<M, C> {
    type Codec = C;

    fn pair_form(&self) -> Form {
        self.form
    }

    #[inline(always)]
    fn find(&self, key: C::Key<'_>, bytes: &mut Vec<u8>) -> Result<Option<C::Pair>> {
        let (pm, wanted) = (self.pool.access(), self.hashed(key));
        match self.try_get(&pm, wanted, false) {
            Some(found) => Ok(found),
            None => self.get_hashed(&pm, wanted, bytes),
        }
    }

    #[inline(always)]
    fn edit<'v, T>(
        &self,
        key: C::Key<'_>,
        _may_put: bool,
        decide: impl FnOnce(Option<C::Pair>, &mut Vec<u8>) -> Result<(T, Step<C::Value<'v>>)>,
    ) -> Result<T> {
        self.writable()?;
        let pm = self.pool.access();
        let wanted = self.hashed(key);
        let (answer, correction) = {
            let writer = self.writer(&pm, wanted)?;
            let mut bytes = Vec::new();
            let Writer { view, positions, .. } = &writer;
            pm.dram(self.fingerprints.dram_lines());
            let mut met = Met::nothing();
            let see = |rank, second, heads| met.note(rank, second, heads);
            let found = (wanted, &mut bytes);
            let topmost = self.topmost(&pm, view, *positions, found, |_| true, see)?;
            let topmost = (topmost.as_ref(), &met);
            let present = topmost.0.filter(|copy| !is_deleted(copy.state()));
            let pair = present.map(|copy| copy.pair);
            let (answer, step) = decide(pair, &mut bytes)?;
            let correction = match (step, pair) {
                (Step::Keep, _) | (Step::Remove, None) => return Ok(answer),
                (Step::Remove, Some(pair)) => writer.remove(&pm, topmost, pair)?,
                (Step::Put(value), _) => writer.put(&pm, topmost, value, pair.is_some())?,
            };
            (answer, correction)
        };
        self.estimated(&pm, correction, wanted.hash);
        Ok(answer)
    }
}

/// How far a batch of reads fetches lines ahead of the key that it looks up.
///
/// Unit: keys. Source: ours; each fetches up to eight lines, and a core has about a dozen on their
/// way at once, of which many are neighbours.
const AHEAD: usize = 4;

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Looks up `count` keys, and calls `found` for each; a record's value is left in `bytes`. A
    /// key that does not have the form of the pool's keys is `None`, and absent.
    ///
    /// While one key is looked up, the lines of the next ones are prefetched; before these, what
    /// DRAM knows of keys further on, which says which lines that are.
    ///
    /// # Errors
    /// As [`SlotTable::find`].
    pub(super) fn get_all<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<C::Key<'k>>,
        bytes: &mut Vec<u8>,
        mut found: impl FnMut(usize, Option<C::Pair>, &mut Vec<u8>),
    ) -> Result<()> {
        let pm = self.pool.access();
        let mut waiting = [const { None }; 2 * AHEAD];
        for step in 0..count + 2 * AHEAD {
            if let Some(position) = step.checked_sub(2 * AHEAD) {
                let pair = match waiting[step % (2 * AHEAD)].take() {
                    Some((wanted, positions)) => match self.try_get(&pm, wanted, true) {
                        Some(found) => found,
                        None => self.get_at(&pm, positions, wanted, bytes)?,
                    },
                    None => None,
                };
                found(position, pair, bytes);
            }
            if let Some(near) = step.checked_sub(AHEAD)
                && let Some((wanted, positions)) = &waiting[near % (2 * AHEAD)]
            {
                self.prefetch(&pm, self.layers.live(), wanted.hash, *positions);
            }
            if step < count
                && let Some(key) = key(step)
            {
                let wanted: HashedKey<'k, C> = self.hashed(key);
                let positions = layout::positions(wanted.hash);
                self.prefetch_dram(positions);
                waiting[step % (2 * AHEAD)] = Some((wanted, positions));
            }
        }
        Ok(())
    }

    /// Fetches what a search reads in DRAM.
    #[inline(always)]
    fn prefetch_dram(&self, positions: [u64; 2]) {
        positions.iter().for_each(|position| self.groups.prefetch(self.groups.of(*position)));
        if !self.fingerprints.is_on() {
            return;
        }
        let view = self.layers.view();
        for position in positions {
            for (rank, place) in view.all().iter().enumerate() {
                let index = layout::bucket_of(position, place.log());
                self.fingerprints.prefetch(view.first() + rank, index);
            }
        }
    }

    #[inline(always)]
    fn writer<'t, 'k>(
        &'t self,
        pm: &'t Access<'_, M>,
        wanted: HashedKey<'k, C>,
    ) -> Result<Writer<'t, 'k, M, C>> {
        // Before the latches, which wait for the flush of this thread's last write.
        let positions = layout::positions(wanted.hash);
        self.prefetch(pm, self.layers.live(), wanted.hash, positions);
        let groups = [self.groups.of(positions[0]), self.groups.of(positions[1])];
        let held = self.groups.hold(pm, groups)?;
        let view = self.layers.view();
        Ok(Writer { table: self, held, view, wanted, positions })
    }

    /// Fetches the lines that a search for a hash with these positions reads.
    ///
    /// Places come from where they are shared, and not from a view in the memory of this thread: as
    /// long as the fence of its last write is pending, a copy of a view waits for that.
    #[inline(always)]
    pub(super) fn prefetch(&self, pm: &Access<'_, M>, live: Live, hash: u64, positions: [u64; 2]) {
        // From the bottom: its lines are on their way while DRAM is asked about those above.
        for rank in (0..live.count()).rev() {
            let place = self.layers.place(live, rank);
            if !self.fingerprints.is_on() {
                prefetch_buckets(pm, place, positions);
                continue;
            }
            for position in positions {
                let (home, index) =
                    (place.home(position), layout::bucket_of(position, place.log()));
                let known = self.fingerprints.bucket((live.first() + rank) as usize, index);
                let known = known.map(|known| known.map(|line| line.head));
                let wanted =
                    known.map_or(u32::MAX, |heads| layout::matching(heads, layout::print_of(hash)));
                if wanted & 0xf != 0 {
                    pm.prefetch(home);
                }
                if wanted & 0xf0 != 0 {
                    pm.prefetch(home.plus(LINE / WORD));
                }
            }
        }
    }
}

impl<M: Media, C: PairCodec> Writer<'_, '_, M, C> {
    /// Gives a key a value; returns what the estimate of the table is to be changed by.
    ///
    /// A crash leaves the old value or the new one, or the key absent or with the value.
    #[inline(always)]
    fn put<'a>(
        &self,
        pm: &'a Access<'_, M>,
        topmost: Topmost<'_, 'a, M, C>,
        value: C::Value<'_>,
        is_present: bool,
    ) -> Result<Option<i64>> {
        let HashedKey { hash, key } = self.wanted;
        let pair = C::make(pm, &self.table.heap, hash, key, value, sites::RECORD)?;
        let written = self.write_pair(pm, topmost, pair);
        let position = match written {
            Ok(position) => position,
            Err(error) => {
                // If the medium has failed, the group is poisoned, and the record stays in use: a
                // slot may lead to it.
                if let (Some(record), true) = (C::record(pair), self.is_whole()) {
                    self.table.heap.give(record.addr, record.class);
                }
                return Err(error);
            }
        };
        let limit = self.table.drift_limit(&self.view);
        Ok(if is_present { None } else { self.held.count(position, 1, limit) })
    }

    #[inline(always)]
    fn target<'s, 'a>(
        &self,
        pm: &'a Access<'_, M>,
        (topmost, met): Topmost<'s, 'a, M, C>,
    ) -> Result<Target<'s, 'a, M, C>> {
        self.table.target(pm, &self.view, self.positions, topmost, met)
    }

    /// Returns whether no write to the groups has failed.
    fn is_whole(&self) -> bool {
        self.positions
            .into_iter()
            .all(|position| self.held.change(position).map(everhash_pmem::Change::end).is_ok())
    }

    #[inline(always)]
    fn write_pair<'a>(
        &self,
        pm: &'a Access<'_, M>,
        topmost: Topmost<'_, 'a, M, C>,
        pair: C::Pair,
    ) -> Result<u64> {
        if C::RECORDS {
            pm.fence(sites::RECORD)?;
        }
        let (hash, words) = (self.wanted.hash, C::encode(pair));
        let (mut plan, mut moves) = (Plan::default(), Moves::default());
        let (position, rank) = match self.target(pm, topmost)? {
            Target::Fill { rank, second, room } => {
                self.table.note_ended(&room, &plan, &mut moves);
                plan.fill(&room.line, room.slot, valid(hash, second, false), words);
                (layout::position(hash, second), rank)
            }
            Target::Rewrite(copy) => {
                let (line, slot, state) = (&copy.line, copy.slot, copy.state());
                moves.end::<C, M>(line, slot);
                let second = layout::is_second(state);
                plan.rewrite(line, slot, valid(hash, second, false), words[1]);
                (position_of(hash, copy), copy.rank)
            }
            Target::Overflow => return self.overflow(pm, words),
        };
        self.commit(pm, (position, rank), plan, moves, true)?;
        Ok(position)
    }

    /// Adds a pair whose key has no copy and no room.
    #[cold]
    fn overflow(&self, pm: &Access<'_, M>, words: [u64; 2]) -> Result<u64> {
        let hash = self.wanted.hash;
        let position = layout::position(hash, false);
        let newcomer = Newcomer { position, state: valid(hash, false, false), words };
        let fresh: Vec<Addr> = self.table.take_lines(1)?;
        let change = self.held.change(position)?;
        for at in fresh {
            self.table.extend(pm, &self.view, &newcomer, at)?;
        }
        change.end();
        self.held.count_write(position, true);
        Ok(position)
    }

    /// Removes a key that is present; returns what the estimate of the table is to be changed by.
    ///
    /// A crash leaves the key there or not.
    fn remove<'a>(
        &self,
        pm: &'a Access<'_, M>,
        topmost: Topmost<'_, 'a, M, C>,
        pair: C::Pair,
    ) -> Result<Option<i64>> {
        let hash = self.wanted.hash;
        let (mut plan, mut moves) = (Plan::default(), Moves::default());
        let at = match self.target(pm, topmost)? {
            Target::Fill { rank, second, room } => {
                self.table.note_ended(&room, &plan, &mut moves);
                plan.fill(&room.line, room.slot, valid(hash, second, true), C::encode(pair));
                (layout::position(hash, second), rank)
            }
            Target::Rewrite(copy) => {
                let (line, slot, state) = (&copy.line, copy.slot, copy.state());
                let second = layout::is_second(state);
                let position = position_of(hash, copy);
                let source = Source { line: *line, slot, rank: copy.rank, position };
                if self.table.is_below(pm, &self.view, &source, copy.rank)? {
                    plan.flag(line, slot, valid(hash, second, true));
                } else {
                    plan.flag(line, slot, 0);
                    moves.end::<C, M>(line, slot);
                }
                (position, copy.rank)
            }
            // There is a copy, so there is a slot.
            Target::Overflow => return Ok(None),
        };
        self.commit(pm, at, plan, moves, false)?;
        self.table.note_unswept();
        Ok(self.held.count(at.0, -1, self.table.drift_limit(&self.view)))
    }

    /// Makes a planned write durable, and what moves with it (Tiered Hashing 3.3).
    #[inline(always)]
    fn commit(
        &self,
        pm: &Access<'_, M>,
        (position, rank): (u64, usize),
        mut plan: Plan,
        mut moves: Moves,
        takes_along: bool,
    ) -> Result<()> {
        let table = self.table;
        let carries = takes_along && rank > 0 && table.settings.movement == 1;
        if carries && table.settings.one_flush == 1 {
            let at = (position, rank);
            (plan, moves) = table.plan_moves(pm, &self.view, at, (plan, moves))?;
        }
        let change = self.held.change(position)?;
        table.commit_plan(pm, &self.view, &plan)?;
        if !moves.sources.is_empty() {
            table.mark_sources(pm, &self.view, &moves)?;
        }
        if carries && table.settings.one_flush == 0 {
            self.move_apart(pm, (position, rank))?;
        }
        change.end();
        self.held.count_write(position, rank > 0);
        table.drop_ended(pm, &self.view, &moves);
        Ok(())
    }

    /// Moves pairs with flushes of their own: what the policy of one flush saves (4.4.1).
    #[cold]
    fn move_apart(&self, pm: &Access<'_, M>, at: (u64, usize)) -> Result<()> {
        let (plan, moves) = self.table.plan_moves(pm, &self.view, at, Default::default())?;
        plan.commit_apart(pm, self.table.ordered)?;
        self.table.fingerprints.note_all(&self.view, plan.heads());
        self.table.mark_sources_apart(pm, &self.view, &moves)?;
        self.table.drop_ended(pm, &self.view, &moves);
        Ok(())
    }
}
