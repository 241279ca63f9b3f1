//! Insert, put, update, remove (Tiered Hashing 3.2 to 3.5), under the contract's one meaning of
//! each; get stands in `shadow_reading.rs`.

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, LINE, Media, WORD};

use super::bucket::PairCodec;
use super::concurrency::{Held, Live};
use super::in_cacheline_crash_consistency::{Plan, SlotEdit, valid};
use super::layers::View;
use super::layout::{self, is_deleted};
use super::lazy_updating::{Roomy, Target};
use super::moves::{Moves, Moving, Source};
use super::overflow::Newcomer;
use super::shadow_reading::{Copied, prefetch_buckets};
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

/// The topmost copy of a key, and the room that the search for it has met.
type Topmost<'s, 'a, M, C> = (Option<&'s Copied<'a, M, C>>, &'s Roomy);

/// A key whose groups are held for a write.
struct Writer<'t, 'k, M: Media, C: PairCodec> {
    table: &'t Tiered<M, C>,
    held: Held<'t, M>,
    live: Live,
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
        match self.try_find(&pm, wanted, false) {
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
        self.pool.check_writable()?;
        let pm = self.pool.access();
        let wanted = self.hashed(key);
        let (answer, correction) = {
            let writer = self.writer(&pm, wanted)?;
            let mut bytes = Vec::new();
            let Writer { live, positions, .. } = &writer;
            pm.dram(self.fingerprints.dram_lines());
            let mut roomy = Roomy::from(self.layers.open(*live), self.settings.line_slots);
            let see = |rank, second, heads| roomy.note(rank, second, heads);
            let found = (wanted, &mut bytes);
            let topmost = self.topmost(&pm, *live, *positions, found, |_| true, see)?;
            let topmost = (topmost.as_ref(), &roomy);
            let present = topmost.0.filter(|copy| !is_deleted(copy.state()));
            let pair = present.map(|copy| copy.pair);
            let (answer, step) = decide(pair, &mut bytes)?;
            let correction = match (step, pair) {
                (Step::Keep, _) | (Step::Remove, None) => return Ok(answer),
                (Step::Remove, Some(pair)) => writer.remove(&pm, topmost, pair)?,
                (Step::Put(value), _) => {
                    let put = writer.put(&pm, topmost, value, pair.is_some());
                    put.inspect_err(|error| self.unswept.note_failure(error))?
                }
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
                    Some((wanted, positions)) => match self.try_find(&pm, wanted, true) {
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
                self.prefetch(&pm, self.layers.live(), wanted.hash, *positions, false);
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
        let live = self.layers.live();
        self.groups.of(live, positions).iter().for_each(|group| group.prefetch());
        if !self.fingerprints.is_on() {
            return;
        }
        for rank in 0..live.count() {
            let place = self.layers.place(live, rank);
            for position in positions {
                self.fingerprints.prefetch((live.first() + rank) as usize, place.index(position));
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
        let live = self.layers.live();
        let groups = self.groups.of(live, positions);
        groups.iter().for_each(|group| group.prefetch_for_write());
        self.prefetch(pm, live, wanted.hash, positions, true);
        let hold = |live| self.groups.hold(pm, live, positions);
        let (held, live) = self.hold_what_counts((Held::of(pm, groups)?, live), hold)?;
        Ok(Writer { table: self, held, live, wanted, positions })
    }

    /// Fetches the lines that a search for a hash with these positions reads, and for a write also
    /// those that it may go to.
    ///
    /// Places come from where they are shared, and not from a view in the memory of this thread: as
    /// long as the fence of its last write is pending, a copy of a view waits for that.
    #[inline(always)]
    pub(super) fn prefetch(
        &self,
        pm: &Access<'_, M>,
        live: Live,
        hash: u64,
        positions: [u64; 2],
        writes: bool,
    ) {
        if self.fingerprints.is_on() {
            return self.prefetch_known(pm, live, hash, positions, writes);
        }
        let mut rank = 0;
        while rank < live.count() {
            prefetch_buckets(pm, self.layers.place(live, rank), positions);
            rank += 1;
        }
    }

    /// As [`Tiered::prefetch`], with fingerprints in DRAM. A line that a write goes to is read by
    /// no search, if no slot there has the fingerprint of the key: unless it was fetched, the fence
    /// waits for it.
    fn prefetch_known(
        &self,
        pm: &Access<'_, M>,
        live: Live,
        hash: u64,
        positions: [u64; 2],
        writes: bool,
    ) {
        let open = self.layers.open(live) as u64;
        // From the bottom: its lines are on their way while DRAM is asked about those above.
        for rank in (0..live.count()).rev() {
            let place = self.layers.place(live, rank);
            for position in positions {
                let home = place.home(position);
                let known = self.known(live, rank, place, position);
                let known = known.map(|known| known.map(|line| line.head));
                let wanted = known.map_or(u32::MAX, |heads| {
                    let matching = layout::matching(heads, layout::print_of(hash));
                    let room = layout::room(heads, self.settings.line_slots);
                    match room.filter(|_| writes && rank == open) {
                        Some((line, ..)) => matching | 1 << (4 * line),
                        None => matching,
                    }
                });
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
        let second = match written {
            Ok(second) => second,
            Err(error) => {
                // If the medium has failed, the group is poisoned, and the record stays in use: a
                // slot may lead to it.
                if let (Some(record), true) = (C::record(pair), self.is_whole()) {
                    self.table.heap.give(record.addr, record.class);
                }
                return Err(error);
            }
        };
        let limit = self.table.drift_limit(self.live);
        Ok(if is_present { None } else { self.held.count(second, 1, limit) })
    }

    #[inline(always)]
    fn target<'s, 'a>(
        &self,
        pm: &'a Access<'_, M>,
        (topmost, roomy): Topmost<'s, 'a, M, C>,
    ) -> Result<Target<'s, 'a, M, C>> {
        self.table.target(pm, self.live, self.positions, topmost, roomy)
    }

    /// Returns whether no write to the groups has failed.
    fn is_whole(&self) -> bool {
        [false, true]
            .into_iter()
            .all(|second| self.held.change(second).map(everhash_pmem::Change::end).is_ok())
    }

    /// Returns under which hash function the pair is.
    #[inline(always)]
    fn write_pair<'a>(
        &self,
        pm: &'a Access<'_, M>,
        topmost: Topmost<'_, 'a, M, C>,
        pair: C::Pair,
    ) -> Result<bool> {
        if C::RECORDS {
            pm.fence(sites::RECORD)?;
        }
        let (hash, words) = (self.wanted.hash, C::encode(pair));
        let (second, rank, edit) = match self.target(pm, topmost)? {
            Target::Fill { rank, second, room } => {
                let state = valid(hash, second, false);
                (second, rank, SlotEdit::fill(room.line, room.slot, state, words))
            }
            Target::Rewrite(copy) => {
                let second = layout::is_second(copy.state());
                let state = valid(hash, second, false);
                (second, copy.rank, SlotEdit::rewrite(copy.line, copy.slot, state, words[1]))
            }
            Target::Overflow => return self.overflow(pm, words),
        };
        self.commit(pm, (second, rank), &edit, true)?;
        Ok(second)
    }

    /// Adds a pair whose key has no copy and no room.
    #[cold]
    fn overflow(&self, pm: &Access<'_, M>, words: [u64; 2]) -> Result<bool> {
        let (hash, position) = (self.wanted.hash, self.positions[0]);
        let newcomer = Newcomer { position, state: valid(hash, false, false), words };
        let fresh: Vec<Addr> = self.table.take_lines(1)?;
        let change = self.held.change(false)?;
        for at in fresh {
            self.table.extend(pm, &self.view(), &newcomer, at)?;
        }
        change.end();
        self.held.count_write(false, true);
        Ok(false)
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
        let (second, rank, edit, leaves) = match self.target(pm, topmost)? {
            Target::Fill { rank, second, room } => {
                let state = valid(hash, second, true);
                let edit = SlotEdit::fill(room.line, room.slot, state, C::encode(pair));
                (second, rank, edit, true)
            }
            Target::Rewrite(copy) => {
                let second = layout::is_second(copy.state());
                let is_below = self.is_below(pm, copy)?;
                let state = if is_below { valid(hash, second, true) } else { 0 };
                let edit = SlotEdit::flag(copy.line, copy.slot, state);
                // An overflow line may be empty now.
                (second, copy.rank, edit, is_below || self.overflows(copy))
            }
            // There is a copy, so there is a slot.
            Target::Overflow => return Ok(None),
        };
        self.commit(pm, (second, rank), &edit, false)?;
        if leaves {
            self.table.unswept.add(1);
        }
        Ok(self.held.count(second, -1, self.table.drift_limit(self.live)))
    }

    /// Returns whether there is another copy of the key below one.
    #[inline(always)]
    fn is_below(&self, pm: &Access<'_, M>, copy: &Copied<'_, M, C>) -> Result<bool> {
        let Copied { rank, line, slot, .. } = *copy;
        if rank + 1 == self.live.count() as usize {
            return Ok(false);
        }
        let position = self.positions[usize::from(layout::is_second(copy.state()))];
        self.table.is_below(pm, &self.view(), &Source::of(&line, slot, (rank, position)), rank)
    }

    /// Returns whether a copy lies in an overflow line.
    #[inline(always)]
    fn overflows(&self, copy: &Copied<'_, M, C>) -> bool {
        let place = self.table.layers.place(self.live, copy.rank as u64);
        copy.line.at().byte().wrapping_sub(place.start().byte()) >= place.bytes()
    }

    /// Returns the layers as a whole.
    fn view(&self) -> View {
        self.table.layers.view_of(self.live)
    }

    /// Makes a planned write durable, and what moves with it (Tiered Hashing 3.3).
    #[inline(always)]
    fn commit(
        &self,
        pm: &Access<'_, M>,
        (second, rank): (bool, usize),
        edit: &SlotEdit<'_, M>,
        takes_along: bool,
    ) -> Result<()> {
        let table = self.table;
        if takes_along && rank > 0 && table.settings.movement == 1 {
            return self.commit_along(pm, (second, rank), edit);
        }
        // Before the words of the slot change.
        let moves = C::RECORDS.then(|| Moves::ending::<C, M>(edit));
        let change = self.held.change(second)?;
        edit.commit(pm, table.ordered)?;
        if table.fingerprints.is_on() {
            let number = self.live.first() as usize + rank;
            let place = table.layers.place(self.live, rank as u64);
            table.fingerprints.note_in(number, place, edit.slot().0.at(), edit.last());
        }
        change.end();
        self.held.count_write(second, rank > 0);
        if let Some(moves) = moves {
            table.drop_ended(pm, &self.view(), &moves);
        }
        Ok(())
    }

    /// As [`Writer::commit`], of a write below the top layer, which takes pairs along.
    #[inline(never)]
    fn commit_along(
        &self,
        pm: &Access<'_, M>,
        (second, rank): (bool, usize),
        edit: &SlotEdit<'_, M>,
    ) -> Result<()> {
        let (table, view) = (self.table, self.view());
        let at = (self.positions[usize::from(second)], rank);
        let mut moving = Moving::beside(edit.plan(), Moves::ending::<C, M>(edit));
        if table.settings.one_flush == 1 {
            table.plan_moves(pm, &view, at, &mut moving)?;
        }
        let Moving { plan, moves, .. } = moving;
        let change = self.held.change(second)?;
        table.commit_plan(pm, &view, &plan)?;
        if !moves.sources.is_empty() {
            table.mark_sources(pm, &view, &moves)?;
        }
        if table.settings.one_flush == 0 {
            self.move_apart(pm, &view, at)?;
        }
        change.end();
        self.held.count_write(second, true);
        table.drop_ended(pm, &view, &moves);
        Ok(())
    }

    /// Moves pairs with flushes of their own: what the policy of one flush saves (4.4.1).
    #[cold]
    fn move_apart(&self, pm: &Access<'_, M>, view: &View, at: (u64, usize)) -> Result<()> {
        let mut moving = Moving::beside(Plan::default(), Moves::default());
        self.table.plan_moves(pm, view, at, &mut moving)?;
        let Moving { plan, moves, .. } = moving;
        plan.commit_apart(pm, self.table.ordered)?;
        self.table.fingerprints.note_all(view, plan.heads());
        self.table.mark_sources_apart(pm, view, &moves)?;
        self.table.drop_ended(pm, view, &moves);
        Ok(())
    }
}
