//! Checkpoints (3.4.1): a clean close saves the directories as they lie in DRAM, and the next open
//! loads them instead of one directory record for each object.
//!
//! Each area's word leads to a head, which names the area's end: its newest log, the objects in it,
//! and the sequence of its info. Numbers only rise, so an area with the same end has the same
//! contents, and a checkpoint with another end is ignored. A checkpoint lies in free space, which
//! an open pool reuses: only the open after a clean close reads it.
//!
//! | a close finds | it leaves |
//! |---|---|
//! | an area as it was loaded, and no log begun since | its checkpoint where it is |
//! | no room, or more directories than records are worth | none: the logs are read |
//! | all else | a new one |
//!
//! The stores of a close need no order: the pool counts as closed only when all are durable. If
//! anything is wrong with a checkpoint, the area is rebuilt from its logs, which hold the same
//! information; to refuse the open would lose pairs for the sake of speed. The check of the pool
//! reports the damage.

use core::sync::atomic::Ordering;
use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Media, Span};

use super::directory::{Blocks, Side, Stock};
use super::layout::{
    self, AreaRecord, Checkpoint, LOG_AREA, LogHead, MOST_ENTRIES, PART_WORDS, Tail,
};
use super::state::{Area, Log, Logs, NewInfo, OpenLog, Saved, State, Walsh};

/// The most that a checkpoint may take, as a part of its area's directory logs.
///
/// Unit: none. Source: ours; beyond it, with less than half an object a directory, the logs are
/// read as fast, and a nearly empty table made for many pairs must not grow when it is closed.
const MOST_OF_RECORDS: u64 = 4;

/// Words that a checkpoint has for each log.
const WORDS_OF_LOG: u64 = 2;

/// Writes the words behind a head.
struct Writer<'w, 'a, M: Media> {
    pm: &'w Access<'a, M>,
    head: &'w [u64; Checkpoint::WORDS],
    at: Addr,
    part: Vec<u64>,
}

impl<M: Media> Writer<'_, '_, M> {
    fn put(&mut self, word: u64) -> Result<()> {
        self.part.push(word);
        match self.part.len() as u64 == PART_WORDS - 1 {
            true => self.end_part(),
            false => Ok(()),
        }
    }

    fn end_part(&mut self) -> Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        self.part.push(layout::sum(&self.part, layout::part_seed(self.head, self.at)));
        self.pm.write_words(self.at, &self.part)?;
        self.at = self.at.plus(self.part.len() as u64);
        self.part.clear();
        Ok(())
    }
}

/// Reads the words behind a head; `None` if their checksums do not match.
struct Reader<'r, 'a, M: Media> {
    pm: &'r Access<'a, M>,
    head: &'r [u64; Checkpoint::WORDS],
    at: Addr,
    /// Words still to be read from the medium, without the checksums.
    left: u64,
    part: Vec<u64>,
    next: usize,
}

impl<M: Media> Reader<'_, '_, M> {
    fn fill(&mut self, mut out: &mut [u64]) -> Option<()> {
        while !out.is_empty() {
            if self.next == self.part.len() {
                self.next_part()?;
            }
            let ready = &self.part[self.next..];
            let count = ready.len().min(out.len());
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&ready[..count]);
            (self.next, out) = (self.next + count, later);
        }
        Some(())
    }

    fn next_part(&mut self) -> Option<()> {
        let count = self.left.min(PART_WORDS - 1);
        if count == 0 {
            return None;
        }
        self.part.resize(count as usize + 1, 0);
        self.pm.read_words(self.at, &mut self.part).ok()?;
        let sum = self.part.pop()?;
        let whole = layout::sum(&self.part, layout::part_seed(self.head, self.at)) == sum;
        (self.at, self.left, self.next) = (self.at.plus(count + 1), self.left - count, 0);
        whole.then_some(())
    }
}

/// The layout of the words behind a head.
struct Content {
    logs: u64,
    /// Blocks of the newest directories, and of those set aside.
    blocks: [u64; 2],
}

impl Content {
    fn of(head: &[u64; Checkpoint::WORDS]) -> Content {
        let blocks = [head[Checkpoint::BLOCKS], head[Checkpoint::OLD_BLOCKS]];
        Content { logs: head[Checkpoint::LOGS], blocks }
    }

    fn words(&self, block_words: u64) -> u64 {
        let blocks = self.blocks[0].saturating_add(self.blocks[1]);
        let logs = self.logs.saturating_mul(WORDS_OF_LOG);
        blocks.saturating_mul(block_words + 1).saturating_add(logs)
    }
}

impl<M: Media> Walsh<M> {
    /// Lets the tail of each area cover all of its objects for a close: an open then searches for
    /// none behind the tail.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn move_tails(&self) -> Result<()> {
        let pm = self.pool.access();
        self.areas.iter().try_for_each(|area| self.flush(&pm, area, &mut *self.lock(area)?))
    }

    /// Saves every area whose checkpoint is worth its space, and syncs the medium. Everything else
    /// is durable already.
    ///
    /// A crash inside leaves a pool that was not closed: no checkpoint is used.
    ///
    /// # Errors
    /// Those of the medium; lack of space is no error.
    pub(super) fn save(&self) -> Result<()> {
        let pm = self.pool.access();
        let is_untouched = self.has_begun.load(Ordering::Relaxed) == 0;
        let mut changed = Vec::new();
        for area in &self.areas {
            let state = self.lock(area)?;
            let is_kept = state.saved.is_some_and(|saved| {
                is_untouched
                    && (saved.tail, saved.sequence) == (state.newest(), state.sequence)
                    && self.space.claim(saved.span).is_ok()
            });
            if !is_kept {
                changed.push(area);
            }
        }
        // The space of the checkpoints that stay is claimed now.
        for area in changed {
            let state = self.lock(area)?;
            let at = self.save_area(&pm, area, &state)?;
            let place = area.record.plus(AreaRecord::CHECKPOINT as u64);
            pm.store(place, Tail { at, count: 0 }.encode(place))?;
        }
        Ok(())
    }

    /// Saves an area; returns the address of its checkpoint, or [`Addr::NULL`].
    fn save_area(&self, pm: &Access<'_, M>, area: &Area<M>, state: &State) -> Result<Addr> {
        let Some(log) = &state.open else { return Ok(Addr::NULL) };
        let sides = sides_of(area, state);
        let count = |(side, level)| self.blocks.of_side(side, level).count() as u64;
        let blocks = sides.map(|side| side.map_or(0, count));
        let content = Content { logs: state.logs.len() as u64, blocks };
        let words = content.words(self.blocks.block_words() as u64);
        if words > MOST_OF_RECORDS * state.stored + WORDS_OF_LOG * content.logs {
            return Ok(Addr::NULL);
        }
        let span = match self.space.take(layout::checkpoint_bytes(words), LINE) {
            Err(everhash_pmem::Error::Full { .. }) => return Ok(Addr::NULL),
            taken => taken?.span,
        };
        let mut records = vec![0; log.count as usize];
        pm.read_words(log.span.start.plus(LogHead::WORDS as u64), &mut records)?;
        let mut head = [0; Checkpoint::WORDS];
        head[Checkpoint::TAIL] = state.newest().encode(span.start);
        head[Checkpoint::SEQUENCE] = state.sequence;
        head[Checkpoint::LOGS] = content.logs;
        [head[Checkpoint::BLOCKS], head[Checkpoint::OLD_BLOCKS]] = content.blocks;
        (head[Checkpoint::ITEMS], head[Checkpoint::ITEM_BYTES]) = (state.items, state.item_bytes);
        (head[Checkpoint::CHAINED], head[Checkpoint::FILL]) = (state.chained, log.fill);
        head[Checkpoint::RECORDS_SUM] = layout::sum(&records, self.seed);
        let head = layout::seal_head(head, span.start, self.seed);
        pm.write_words(span.start, &head)?;
        let at = span.start.plus(Checkpoint::WORDS as u64);
        let mut writer = Writer { pm, head: &head, at, part: Vec::new() };
        for log in state.logs.iter() {
            writer.put(Tail { at: log.span.start, count: log.count }.encode(span.start))?;
            writer.put(log.span.bytes() / LINE)?;
        }
        for (side, level) in sides.into_iter().flatten() {
            for (block, number) in self.blocks.of_side(side, level) {
                writer.put(block)?;
                let mut outcome = Ok(());
                self.blocks.visit_block(number, |word| {
                    if outcome.is_ok() {
                        outcome = writer.put(word);
                    }
                });
                outcome?;
            }
        }
        writer.end_part()?;
        Ok(span.start)
    }

    /// Loads the checkpoint of an area whose end is known, with blocks out of `stock`; returns the
    /// spans of its logs, oldest first, or `None` if there is no valid checkpoint. The state is
    /// unchanged then, and no directory is set.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a panic inside.
    pub(super) fn load(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        tail: Tail,
        stock: &mut Stock,
    ) -> Result<Option<Vec<Span>>> {
        let Some((saved, head)) = self.find_checkpoint(pm, area, state, tail) else {
            return Ok(None);
        };
        self.pool.region().media().will_read(saved.span);
        let info = state.info;
        let content = Content::of(&head);
        let old = (info.end != 0).then_some(info.levels[1]);
        let levels = [Some(info.levels[0]), old];
        let most = levels.map(|level| level.map_or(0, |level| self.blocks.most_blocks(level)));
        if content.blocks.iter().zip(most).any(|(count, most)| *count > most) {
            return Ok(None);
        }
        let left = content.words(self.blocks.block_words() as u64);
        let at = saved.span.start.plus(Checkpoint::WORDS as u64);
        let mut reader = Reader { pm, head: &head, at, left, part: Vec::new(), next: 0 };
        let Some(logs) = read_logs(&mut reader, saved.span.start, &info, content.logs) else {
            return Ok(None);
        };
        let Some(open) = self.newest_log(pm, area, &head, tail, &info) else { return Ok(None) };
        stock.expect(content.blocks[0] + content.blocks[1]);
        for (side, (level, count)) in
            area.sides.iter().zip(info.levels.into_iter().zip(content.blocks))
        {
            if read_blocks(&mut reader, &self.blocks, stock, (side, level), count)? != count {
                self.blocks.clear(&area.sides[0], info.levels[0])?;
                self.blocks.clear(&area.sides[1], info.levels[1])?;
                return Ok(None);
            }
        }
        state.items = head[Checkpoint::ITEMS];
        state.item_bytes = head[Checkpoint::ITEM_BYTES];
        state.stored = logs.iter().map(|log| log.count).sum::<u64>() + open.count;
        state.chained = head[Checkpoint::CHAINED].min(state.stored);
        let spans = logs.iter().map(|log| log.span).chain([open.span]).collect();
        (state.logs, state.open, state.saved) = (logs, Some(open), Some(saved));
        Ok(Some(spans))
    }

    /// Returns the head of an area's checkpoint, if it is whole and names the end of the area.
    fn find_checkpoint(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &State,
        tail: Tail,
    ) -> Option<(Saved, [u64; Checkpoint::WORDS])> {
        let place = area.record.plus(AreaRecord::CHECKPOINT as u64);
        let at = Tail::decode(pm.load(place).ok()?, place)?.at;
        if at.is_null() {
            return None;
        }
        let mut head = [0; Checkpoint::WORDS];
        pm.read_words(at, &mut head).ok()?;
        let names_end = layout::is_sealed(&head, at, self.seed)
            && Tail::decode(head[Checkpoint::TAIL], at) == Some(tail)
            && head[Checkpoint::SEQUENCE] == state.sequence;
        let words = Content::of(&head).words(self.blocks.block_words() as u64);
        let span = Span::of_bytes(at, layout::checkpoint_bytes(words));
        let is_inside = span.end_byte() <= pm.media().bytes();
        let saved = Saved { span, tail, sequence: state.sequence };
        (names_end && is_inside).then_some((saved, head))
    }

    /// Opens the newest log, of which a checkpoint vouches for the directory log.
    fn newest_log(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        checkpoint: &[u64; Checkpoint::WORDS],
        tail: Tail,
        info: &NewInfo,
    ) -> Option<OpenLog> {
        let mut head = [0; LogHead::WORDS];
        pm.read_words(tail.at, &mut head).ok()?;
        let span = Span::of_bytes(tail.at, (head[LogHead::SIZE] >> 32) * LINE);
        let entries = head[LogHead::SIZE] & u64::from(u32::MAX);
        let (number, fill) = (head[LogHead::NUMBER], checkpoint[Checkpoint::FILL]);
        let is_ours = layout::is_sealed(&head, tail.at, self.seed)
            && LOG_AREA.get(head[LogHead::OWNER]) == area.number
            && number == info.start.wrapping_add(checkpoint[Checkpoint::LOGS]);
        let fits = tail.count <= entries.min(MOST_ENTRIES)
            && (layout::objects_offset(entries)..=span.words).contains(&fill)
            && span.end_byte() <= pm.media().bytes();
        if !is_ours || !fits {
            return None;
        }
        let mut records = vec![0; tail.count as usize];
        pm.read_words(tail.at.plus(LogHead::WORDS as u64), &mut records).ok()?;
        let is_whole = layout::sum(&records, self.seed) == checkpoint[Checkpoint::RECORDS_SUM];
        is_whole.then_some(OpenLog {
            number,
            span,
            entries,
            count: tail.count,
            fill,
            durable: tail.count,
            durable_fill: fill,
            published: true,
            is_for_writes: false,
            committed: tail.count,
            checksum: head[LogHead::CHECKSUM],
        })
    }
}

/// A side of an area, with the base-2 logarithm of its number of directories.
type Leveled<'a, M> = (&'a Side<<M as Media>::Sync>, u32);

/// Returns the sides of an area that are in use: the new one and the old one.
fn sides_of<'a, M: Media>(area: &'a Area<M>, state: &State) -> [Option<Leveled<'a, M>>; 2] {
    let view = state.view;
    let newest = (&area.sides[view.side()], view.level());
    [Some(newest), view.old().map(|level| (&area.sides[1 - view.side()], level))]
}

fn read_logs<M: Media>(
    reader: &mut Reader<'_, '_, M>,
    place: Addr,
    info: &NewInfo,
    count: u64,
) -> Option<Logs> {
    let mut logs = Logs::default();
    for position in 0..count {
        let mut words = [0; WORDS_OF_LOG as usize];
        reader.fill(&mut words)?;
        let tail = Tail::decode(words[0], place)?;
        let span = Span::of_bytes(tail.at, words[1].saturating_mul(LINE));
        let number = info.start.wrapping_add(position);
        if span.words == 0 || span.end_byte() > reader.pm.media().bytes() {
            return None;
        }
        logs.push_back(Log { number, span, count: tail.count });
    }
    Some(logs)
}

/// Reads `count` blocks of a side; returns how many were whole.
///
/// # Errors
/// [`everhash_index::Error::Poisoned`] after a panic inside.
fn read_blocks<M: Media>(
    reader: &mut Reader<'_, '_, M>,
    blocks: &Blocks<M::Sync>,
    stock: &mut Stock,
    (side, level): Leveled<'_, M>,
    count: u64,
) -> Result<u64> {
    let mut words = vec![0; 1 + blocks.block_words()];
    // In ascending order, so that no block appears twice.
    let mut next = 0;
    for done in 0..count {
        let is_whole = reader.fill(&mut words).is_some();
        if !is_whole || !(next..blocks.most_blocks(level)).contains(&words[0]) {
            return Ok(done);
        }
        next = words[0] + 1;
        blocks.set_block(stock, (side, level), words[0], &words[1..])?;
    }
    Ok(count)
}
