//! Walks over all pairs: a resumable scan that takes no lock, and `clear`.

use everhash_index::{Cursor, Error, Result};
use everhash_pmem::{Access, Addr, Media, Span};

use super::bucket::{Line, Lines, PairCodec, Words};
use super::concurrency::{Held, Live};
use super::layers::View;
use super::layout::{self, LINE_WORDS, Line as Ruler, is_deleted, is_shadow};
use super::state::Tiered;

/// Where `clear` persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The flags of a group's lines in one layer.
        CLEAR = "tiered/clear/flags";
    }
}

/// Columns that one call of a scan visits at most.
///
/// Unit: buckets of the bottom layer. Source: ours; about a hundred microseconds, so that a caller
/// can stop in time.
const COLUMNS_PER_SCAN: u64 = 64;

/// Pairs after which a call of a scan ends with the present column.
///
/// Unit: pairs. Source: ours, as [`COLUMNS_PER_SCAN`].
const PAIRS_PER_SCAN: usize = 64;

/// A key, its value, and whether it is deleted.
type Copied = (Vec<u8>, Vec<u8>, bool);

/// What a clear has ended.
#[derive(Default)]
struct Cleared {
    records: Vec<(Words, Addr)>,
    items: i64,
    /// Lines that are not flushed yet: a device that writes pages writes one for all lines in it.
    pending: Vec<Addr>,
}

impl Cleared {
    /// Makes durable what was ended.
    fn fence<M: Media>(&mut self, pm: &Access<'_, M>) -> Result<()> {
        let pending = core::mem::take(&mut self.pending);
        for line in &pending {
            pm.flush(Span::new(*line, LINE_WORDS as u64), sites::CLEAR);
        }
        if !pending.is_empty() {
            pm.fence(sites::CLEAR)?;
        }
        Ok(())
    }
}

/// Returns where the column behind that of a position begins, if there is one.
fn behind(view: &View, position: u64) -> Option<u64> {
    let log = view.bottom().log();
    let next = layout::bucket_of(position, log) + 1;
    (next >> log == 0).then(|| layout::first_position(next, log))
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Visits some pairs from `cursor` on: a position, from which on the columns of all pairs were
    /// not visited yet.
    ///
    /// A column is a bucket of the bottom layer and what lies above it of the same positions. All
    /// copies of a key lie in one column, whatever moves and whatever layers come and go, so one
    /// that is there throughout is met. No lock is held while `visit` runs.
    ///
    /// # Errors
    /// As [`Tiered::get_hashed`].
    pub fn scan(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let pm = self.pool.access();
        let (mut position, mut visited) = (cursor.0, 0);
        for _ in 0..COLUMNS_PER_SCAN {
            let copied = self.groups.read(
                [position; 2],
                || self.layers.live(),
                |live| {
                    let view = self.layers.view_of(live);
                    Ok((self.copy_column(&pm, &view, position)?, behind(&view, position)))
                },
            );
            let (pairs, next) = match copied {
                // The next call begins with the damage, so that its caller knows where that is.
                Err(Error::Corrupt { .. }) if position != cursor.0 => break,
                copied => copied?,
            };
            for (key, value, _) in pairs.iter().filter(|(_, _, deleted)| !deleted) {
                visit(key, value);
                visited += 1;
            }
            let Some(next) = next else { return Ok(None) };
            position = next;
            if visited >= PAIRS_PER_SCAN {
                break;
            }
        }
        Ok(Some(Cursor(position)))
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one column.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Option<Cursor> {
        behind(&self.layers.view(), cursor.0).map(Cursor)
    }

    /// Copies the newest copy of every key of the column of a position.
    fn copy_column(&self, pm: &Access<'_, M>, view: &View, position: u64) -> Result<Vec<Copied>> {
        let log = view.bottom().log();
        let column = layout::bucket_of(position, log);
        let mut pairs: Vec<Copied> = Vec::new();
        for place in view.all() {
            let index = layout::bucket_of(position, place.log());
            let mut lines = Lines::of(pm, place.bucket(index));
            while let Some((line, _)) = lines.advance()? {
                for slot in line.readable() {
                    let position = self.position_of(&line, slot, (*place, index))?;
                    if layout::bucket_of(position, log) != column {
                        continue;
                    }
                    let (mut key, mut value) = (Vec::new(), Vec::new());
                    let at = layout::slot_at(line.at(), slot);
                    let pair = C::decode(line.words(slot), at);
                    match pair.and_then(|pair| C::read(pm, pair, &mut key, &mut value)) {
                        Err(Error::Corrupt { .. }) if self.is_covered(&line, slot, &pairs)? => {
                            continue;
                        }
                        read => read?,
                    }
                    if pairs.iter().all(|(above, ..)| *above != key) {
                        pairs.push((key, value, is_deleted(line.head.state(slot))));
                    }
                }
            }
        }
        Ok(pairs)
    }

    /// Returns whether a copy that cannot be read is an older one of a key that was copied: two
    /// keys of one hash count as one, as in [`Same::Likely`](super::bucket::Same::Likely).
    #[cold]
    fn is_covered(&self, line: &Line<'_, M>, slot: usize, newer: &[Copied]) -> Result<bool> {
        let hash = line.hash::<C>(&self.hasher, slot)?;
        Ok(newer.iter().any(|(key, ..)| C::hash(&self.hasher, C::key(key)) == hash))
    }

    /// Removes every pair, group by group. A crash leaves any of them.
    ///
    /// All groups are held until the last one is clear: a key has two, and one that another thread
    /// inserts into the second after it ended in the first would be removed twice.
    ///
    /// # Errors
    /// As a removal.
    pub fn clear(&self) -> Result<()> {
        self.pool.check_writable()?;
        let pm = self.pool.access();
        let hold_all = |live: Live| -> Result<Vec<_>> { self.groups.hold_all(&pm, live).collect() };
        let (all, live) = self.hold(hold_all)?;
        let mut correction = 0;
        for (group, held) in (0..).zip(&all) {
            correction += self.clear_group(&pm, live, (group, held))?;
        }
        drop(all);
        self.correct_estimate(correction);
        Ok(())
    }

    /// Ends all pairs of a group; returns what the estimate of the table is to be changed by.
    ///
    /// Shadows end first, because they must not outlive what they are copies of, and then the
    /// bottom layer before those above it. So a crash between leaves each key with
    /// its newest copy, or without any.
    fn clear_group(
        &self,
        pm: &Access<'_, M>,
        live: Live,
        (group, held): (u64, &Held<'_, M>),
    ) -> Result<i64> {
        let view = self.layers.view_of(live);
        let mut cleared = Cleared::default();
        let change = held.change(false)?;
        for rank in 0..view.count() {
            self.end_slots(pm, &view, (rank, group), is_shadow, &mut cleared)?;
        }
        cleared.fence(pm)?;
        let mut cut = Vec::new();
        for rank in (0..view.count()).rev() {
            self.end_slots(pm, &view, (rank, group), layout::is_readable, &mut cleared)?;
            cleared.fence(pm)?;
            cut.extend(self.unlink_all(pm, &view, self.buckets(&view, rank, group))?);
        }
        change.end();
        let correction = held.count(false, -cleared.items, 1).unwrap_or(0);
        self.give_lines(cut);
        self.give_records(cleared.records)?;
        Ok(correction)
    }

    /// Returns the buckets of a group in a layer.
    fn buckets(
        &self,
        view: &View,
        rank: usize,
        group: u64,
    ) -> impl Iterator<Item = Addr> + use<M, C> {
        let place = view.place(rank);
        let shift = place.log() - view.live().groups_log();
        (group << shift..(group + 1) << shift).map(move |index| place.bucket(index))
    }

    /// Ends what some slots of a group hold in a layer; the caller flushes their lines and fences.
    fn end_slots(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (rank, group): (usize, u64),
        ends: fn(u16) -> bool,
        cleared: &mut Cleared,
    ) -> Result<()> {
        for home in self.buckets(view, rank, group) {
            let mut lines = self.lines(pm, view, home);
            while let Some((line, _)) = lines.advance()? {
                let mut head = line.head;
                for slot in line.readable().filter(|slot| ends(line.head.state(*slot))) {
                    let at = layout::slot_at(line.at(), slot);
                    cleared.records.push((line.words(slot), at));
                    // Shadows are ended before what they are copies of is counted.
                    let counts = !is_shadow(line.head.state(slot));
                    cleared.items +=
                        i64::from(counts && self.is_item(pm, view, (rank, &line, slot))?);
                    head = head.with(slot, 0);
                }
                if head != line.head {
                    let at = line.at().plus(Ruler::HEAD as u64);
                    pm.commit_word(at, head.encode(line.at()), sites::CLEAR)?;
                    self.fingerprints.note(view, line.at(), head);
                    cleared.pending.push(line.at());
                }
            }
        }
        Ok(())
    }

    /// Returns whether a slot is the newest copy of its key, and the key is not deleted.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    pub(super) fn is_item(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (rank, line, slot): (usize, &Line<'_, M>, usize),
    ) -> Result<bool> {
        let state = line.head.state(slot);
        if is_deleted(state) {
            return Ok(false);
        }
        let hash = line.hash::<C>(&self.hasher, slot)?;
        let position = layout::position(hash, layout::is_second(state));
        for place in &view.all()[..rank] {
            if self.copy_of(pm, view, place.home(position), line.slot(slot))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives back the records of slots that have ended, each once.
    fn give_records(&self, mut records: Vec<(Words, Addr)>) -> Result<()> {
        if !C::RECORDS {
            return Ok(());
        }
        records.sort_unstable();
        records.dedup_by_key(|(words, _)| *words);
        for (words, at) in records {
            if let Some(record) = C::record(C::decode(words, at)?) {
                self.heap.give(record.addr, record.class);
            }
        }
        Ok(())
    }
}
