//! Opening a table (3.4), area by area: of a closed pool the directories are loaded as they were
//! saved, else they are rebuilt from the directory logs.
//!
//! The newest log leads to the one before it, down to the oldest that the info names. In the order
//! in which they were written, the last record of each directory wins. No object is read, but for
//! those of the newest log and, of byte strings, those that these replace or remove.
//!
//! Of a medium larger than memory that is a page here and there, twice. The first logs of an area
//! lie where an older area's were, so that no order of areas reads such a medium from one end to
//! the other: a disk that gives 15,000 pages a second recovers 5 million pairs a second.
//!
//! | a crash leaves | recovery |
//! |---|---|
//! | objects that the tail does not cover (power) | gives their place another use |
//! | sealed ones (power, every write durable) | takes them, up to one that is not whole |
//! | objects that the visible tail covers (killed process) | makes them durable, then serves them |
//! | one behind it (killed process, every write durable) | wipes it |
//! | half an info | takes the one before, and writes a whole one over what is there |
//! | a log without objects, for an info that is not whole | goes on with it, and a new info |
//! | an epoch (power, where areas share them) | takes the cut of the one that counts |
//! | logs behind the newest, or before the oldest | finds their space free |
//! | an area that is being rehashed | rebuilds both sides; the next write goes on |
//!
//! State is persisted before it is relied on, and a second recovery changes nothing.

mod read;

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use everhash_index::{Error, Executor, Form, Result};
use everhash_pmem::{
    Access, Addr, AtomicWord, Lock, Media, Pool, Shutdown, Space, Span, WORD, pool,
};

use super::concurrency::{Shown, View};
use super::directory::{Blocks, Side, Stock};
use super::layout::{
    self, AreaRecord, EPOCH, Kind, LogHead, MOST_ENTRIES, MOST_INDEX, PART_WORDS, RECORD_HASH,
    RECORD_OFFSET, ROOT, Root,
};
use super::logs::{corrupt, info_place};
use super::object::Objects;
use super::search::{Version, word_lookup};
use super::setup::WalshSettings;
use super::state::{
    Area, CommitEpochs, Counted, Log, NewInfo, OpenLog, Rehash, Reserve, State, Walsh, WordOf,
};
use crate::common::hash::KeyedHash;
use crate::common::jobs::run_all;
use read::{DecodedRecord, LogHeader, MOST_NUMBER, Reader, info_is_lost};

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The number of the epoch, before anything is written that it rules out.
        EPOCH_FOUND = "walsh/recover/epoch";
        /// The newest log, before the tail covers it.
        ACCEPTED = "walsh/recover/accepted";
        /// What an area's record says, before recovery relies on it.
        RECORD = "walsh/recover/record";
        /// The tails of an area after a power loss.
        LIVE = "walsh/recover/live";
    }
}

/// Jobs for each thread of a recovery.
///
/// Unit: none. Source: ours; the last one to end keeps the others waiting for a small part only.
const JOBS_OF_THREAD: usize = 4;

/// What all threads of a recovery share.
struct Recovery<'t, M: Media> {
    table: &'t Walsh<M>,
    epoch: u64,
    /// Words of the indexes of all areas so far.
    index_words: WordOf<M>,
}

/// Opens a table, and recovers it if it was not closed.
///
/// # Errors
/// [`everhash_index::Error::Corrupt`] and those of the medium.
pub fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<Walsh<M>> {
    let mut root = [0; Root::CHECKSUM + 1];
    pool.access().read_words(ROOT, &mut root)?;
    let (settings, table_at) = WalshSettings::from_root(&root)?;
    let epoch = layout::decode_epoch(pool.access().load(EPOCH)?)
        .filter(|number| *number < MOST_NUMBER)
        .ok_or_else(|| corrupt(EPOCH, "the check of an epoch matches"))?;
    let space = Space::new(pool.region().clone(), pool::DATA);
    space.claim(layout::area_table(table_at, settings.areas))?;
    let form = Form::from_code(pool.identity().form);
    let hasher = KeyedHash::of(pool.identity())?;
    let seed = layout::seed(pool.identity().database);
    let area = |number| {
        let sides = [Side::new(), Side::new()];
        Area::new(number, layout::area_record(table_at, number), Shown::closed(), sides)
    };
    let table = Walsh {
        is_grouped: settings.shares_epochs(pool.region().media().guarantees()),
        is_relaxed: Walsh::<M>::relaxes(pool.region().media()),
        form,
        settings,
        lookup: word_lookup(&hasher),
        hasher,
        ordinary: settings.ordinary_log(form),
        objects: Objects::new(form, seed, settings.durability),
        seed,
        space,
        blocks: Blocks::new(settings.block_directories),
        areas: (0..settings.areas).map(area).collect(),
        reserve: Lock::new(Reserve::default()),
        rescue: Lock::new(()),
        epochs: Lock::new(CommitEpochs { number: epoch, ..CommitEpochs::default() }),
        pending: AtomicWord::new(0),
        housekeeping: AtomicWord::new(0),
        dead: AtomicWord::new(0),
        turn: AtomicWord::new(0),
        rehashes: AtomicWord::new(0),
        has_begun: AtomicWord::new(0),
        taken: AtomicWord::new(0),
        upkeep: AtomicWord::new(0),
        pool,
    };
    if table.ordinary.bytes > table.pool.region().media().bytes() {
        return Err(corrupt(ROOT, "a log is no longer than the medium"));
    }
    let media = table.pool.region().media();
    if table.pool.previous_shutdown() != Shutdown::Clean {
        // A quarter of each log is read, and its head: nearly every page.
        media.will_read(Span::of_bytes(Addr::NULL, media.bytes()));
    }
    recover_all(&table, epoch, executor)?;
    if table.pool.writable() {
        table.pool.begin_writes()?;
        settle_epoch(&table)?;
    }
    table.pool.recovered()?;
    Ok(table)
}

/// Returns whether the areas' records need not be written again.
fn is_settled<M: Media>(table: &Walsh<M>, epoch: u64) -> bool {
    table.pool.previous_shutdown() == Shutdown::Clean && (table.is_grouped || epoch == 0)
}

/// Makes what was recovered true for all areas: of the first epoch, of the next one, or of none.
fn settle_epoch<M: Media>(table: &Walsh<M>) -> Result<()> {
    let mut epochs = table.epochs.lock()?;
    let is_durable = table.pool.previous_shutdown() != Shutdown::Process;
    match (table.is_grouped, epochs.number) {
        (false, 0) => Ok(()),
        (false, _) => {
            epochs.number = 0;
            table.write_epoch(&table.pool.access(), 0)
        }
        (true, 0) => table.commit_next(&mut epochs),
        (true, _) if is_durable => Ok(()),
        (true, _) => table.commit_next(&mut epochs),
    }
}

/// Recovers every area, as many at a time as the executor likes.
fn recover_all<M: Media>(table: &Walsh<M>, epoch: u64, executor: &dyn Executor) -> Result<()> {
    let jobs = match executor.width() {
        0 | 1 => 1,
        width => (width * JOBS_OF_THREAD).min(table.areas.len()),
    };
    let recovery = Recovery { table, epoch, index_words: AtomicWord::new(0) };
    let recovered = run_all::<M::Sync, _>(executor, jobs, |job| {
        recover_some(&recovery, table.areas.iter().skip(job).step_by(jobs))
    })?;
    let mut spans: Vec<Span> =
        recovered.iter().flatten().flat_map(|it| &it.logs).copied().collect();
    // Neighbours together: there are hundreds of thousands of logs in a large pool.
    runs(&mut spans)?.into_iter().try_for_each(|run| Ok::<_, Error>(table.space.claim(run)?))?;
    if !table.pool.writable() || is_settled(table, epoch) {
        return Ok(());
    }
    // Only now: a damaged pool stays as it was.
    table.pool.begin_writes()?;
    if table.pool.previous_shutdown() == Shutdown::Process {
        // It may be visible and not durable. The cut of the next epoch takes the place of the one
        // before it, to which a power loss would go back.
        table.pool.access().persist(Span::new(EPOCH, 1), sites::EPOCH_FOUND)?;
    }
    run_all::<M::Sync, _>(executor, jobs, |job| {
        let pm = table.pool.access();
        recovered[job].iter().try_for_each(|it| accept(&pm, table, it))
    })
    .map(drop)
}

/// An area as it was read.
struct Recovered<'t, M: Media> {
    area: &'t Area<M>,
    record: DecodedRecord,
    /// The space of its logs, oldest first.
    logs: Vec<Span>,
    /// The directory log of the newest, if it followed from the objects.
    records: Vec<u64>,
}

/// Reads some areas, one after the other.
fn recover_some<'t, M: Media>(
    recovery: &Recovery<'t, M>,
    areas: impl ExactSizeIterator<Item = &'t Area<M>>,
) -> Result<Vec<Recovered<'t, M>>> {
    let mut stock = Stock::new(areas.len() as u64);
    let recovered = areas.map(|area| recover_area(recovery, area, &mut stock)).collect();
    recovery.table.blocks.put_back(stock)?;
    recovered
}

/// Sorts spans, and returns what they cover in as few runs as there are.
///
/// # Errors
/// [`everhash_index::Error::Corrupt`] if two of them overlap.
fn runs(spans: &mut [Span]) -> Result<Vec<Span>> {
    spans.sort_by_key(|span| span.start);
    let mut runs: Vec<Span> = Vec::new();
    for span in spans {
        match runs.last_mut() {
            Some(run) if run.overlaps(*span) => {
                return Err(corrupt(span.start, "no line is in use twice"));
            }
            Some(run) if run.end_byte() == span.start.byte() => run.words += span.words,
            _ => runs.push(*span),
        }
    }
    Ok(runs)
}

/// Reads an area, and changes nothing on the medium.
fn recover_area<'t, M: Media>(
    recovery: &Recovery<'t, M>,
    area: &'t Area<M>,
    stock: &mut Stock,
) -> Result<Recovered<'t, M>> {
    let Recovery { table, epoch, .. } = *recovery;
    let pm = table.pool.access();
    let shutdown = table.pool.previous_shutdown();
    let reader = Reader { pm: &pm, seed: table.seed, shutdown, epoch };
    let mut record = reader.record(area.record)?;
    let info = record.info;
    bound_index(recovery, area.record, &info)?;
    let mut guard = area.state.lock()?;
    let state = &mut *guard;
    (state.sequence, state.info) = (record.sequence, info);
    let loaded = match shutdown {
        Shutdown::Clean => table.load(&pm, area, state, record.tail, stock)?,
        Shutdown::Process | Shutdown::Power => None,
    };
    let mut records = Vec::new();
    let logs = match loaded {
        Some(logs) => logs,
        None => {
            let logs = reader.logs(area.number, &mut record)?;
            let logs_spans: Vec<Span> = logs.iter().map(LogHeader::span).collect();
            // Before any is read: so many objects as the medium has room for, and no more.
            runs(&mut logs_spans.clone())?;
            records = rebuild(&pm, table, area, state, &logs, stock)?;
            // Behind the tail there may be more.
            record.tail = state.newest();
            if record.is_ahead && record.tail.count > 0 {
                return Err(info_is_lost(record.tail.at));
            }
            logs_spans
        }
    };
    for log in &logs {
        *table.bytes_of(state, *log) += log.bytes();
    }
    bound_counts(table, area, state)?;
    table.note_need(state)?;
    let [level, old] = info.levels;
    let old = (info.end != 0).then_some(old);
    if old.is_some() {
        let begun = Rehash::begun(info.end, counted_behind(&pm, state, info.end)?);
        state.rehash = Some(Rehash { is_again: true, ..begun });
    }
    area.show(state, View::new(level, old));
    Ok(Recovered { area, record, logs, records })
}

/// Demands that the indexes of all directories are in proportion to the medium: they are taken when
/// the first pair comes, whatever level an info names.
fn bound_index<M: Media>(recovery: &Recovery<'_, M>, record: Addr, info: &NewInfo) -> Result<()> {
    let blocks = &recovery.table.blocks;
    let old = if info.end == 0 { 0 } else { blocks.most_blocks(info.levels[1]) };
    // A rehash goes on with as many directories, or with twice as many as before: a new pool has no
    // room for the indexes of both.
    let words = blocks.most_blocks(info.levels[0]).max(old);
    let before = recovery.index_words.fetch_add(words, Ordering::Relaxed);
    let most = MOST_INDEX * (recovery.table.pool.region().media().bytes() / WORD);
    match before + words > most {
        true => Err(corrupt(record, "directories are in proportion to the medium")),
        false => Ok(()),
    }
}

/// Bounds what an area is said to count by the logs and the pairs that it has: the reserve grows
/// with it.
fn bound_counts<M: Media>(table: &Walsh<M>, area: &Area<M>, state: &mut State) -> Result<()> {
    if state.items > state.stored && !state.info.estimated {
        return Err(corrupt(area.record, "an area has no more live pairs than objects"));
    }
    state.items = state.items.min(state.stored);
    // Earlier versions wrote too much into the heads of logs, the more the more often a process was
    // killed.
    let most = match table.form {
        Form::Fixed { .. } => state.items * table.objects.least_words() * WORD,
        Form::Variable if state.items == 0 => 0,
        Form::Variable => u64::MAX,
    };
    state.item_bytes = state.item_bytes.min(state.log_bytes + state.long_bytes).min(most);
    Ok(())
}

/// Returns what an area counted when the log behind `end` was begun.
fn counted_behind<M: Media>(pm: &Access<'_, M>, state: &State, end: u64) -> Result<Counted> {
    let is_next = |number: u64| number == end.wrapping_add(1);
    let log = state.logs.iter().find(|log| is_next(log.number)).map(|log| log.span);
    let open = state.open.filter(|log| is_next(log.number)).map(|log| log.span);
    let Some(span) = log.or(open) else { return Ok(state.counted()) };
    let [items, item_bytes] =
        [LogHead::ITEMS, LogHead::ITEM_BYTES].map(|place| pm.load(span.start.plus(place as u64)));
    Ok(Counted { items: items?, item_bytes: item_bytes? })
}

/// Applies the logs of an area: rebuilds its directories and its counts. Returns the directory log
/// of the newest one, if that is not on the medium yet.
fn rebuild<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    area: &Area<M>,
    state: &mut State,
    logs: &VecDeque<LogHeader>,
    stock: &mut Stock,
) -> Result<Vec<u64>> {
    let info = state.info;
    stock.expect(most_blocks(table, logs, &info));
    let (mut records, mut replaced) = (Vec::new(), Vec::new());
    let view = View::new(info.levels[0], (info.end != 0).then_some(info.levels[1]));
    for (position, log) in logs.iter().enumerate() {
        records.clear();
        records.resize(log.count as usize, 0);
        pm.read_words(log.at.plus(LogHead::WORDS as u64), &mut records)?;
        let after = logs.get(position + 1).map(|after| after.head[LogHead::PREVIOUS_SUM]);
        if after.is_some_and(|sum| sum != layout::sum(&records, table.seed)) {
            return Err(corrupt(log.at, "the checksum of a directory log matches"));
        }
        if after.is_none() {
            replaced = open_newest(pm, table, state, log, &mut records)?;
            replaced.reverse();
        } else {
            let (number, count) = (log.number(), log.count);
            state.logs.push_back(Log { number, span: log.span(), count });
        }
        let is_old = log.number() <= info.end;
        let (side, level) = if is_old { (1, info.levels[1]) } else { (0, info.levels[0]) };
        for (number, record) in records.iter().enumerate() {
            let hash = RECORD_HASH.get(*record);
            if let Some((_, key)) = replaced.pop_if(|(next, _)| *next == number) {
                // Of a damaged object nobody knows the length; a read says that it is damaged.
                let before = table.search_key(pm, area, view, (hash, &key)).unwrap_or(None);
                let words = before.filter(Version::is_live).map_or(0, |it| it.found.words);
                state.item_bytes = state.item_bytes.saturating_sub(words * WORD);
            }
            let at = log.at.plus(RECORD_OFFSET.get(*record));
            table.blocks.push_from(stock, &area.sides[side], level, (hash, at))?;
        }
        let count = records.len() as u64;
        state.stored += count;
        state.chained += if is_old { 0 } else { count };
    }
    Ok(if is_sealed(table) { records } else { Vec::new() })
}

/// Returns whether what is durable of the newest logs is found by the seals of their objects.
fn is_sealed<M: Media>(table: &Walsh<M>) -> bool {
    table.settings.durability == 1 && table.pool.previous_shutdown() == Shutdown::Power
}

/// Returns how many blocks of directories the objects of an area need at most.
fn most_blocks<M: Media>(table: &Walsh<M>, logs: &VecDeque<LogHeader>, info: &NewInfo) -> u64 {
    let (mut objects, mut old) = (0, 0);
    for log in logs {
        let side = if log.number() <= info.end { &mut old } else { &mut objects };
        *side += log.count;
    }
    let [level, old_level] = info.levels.map(|level| table.blocks.most_blocks(level));
    objects.min(level) + old.min(old_level)
}

/// Reads every object of the newest log, which no later head vouches for, and counts what is
/// alive. Where every write is durable there may be more objects than the tail covers: their
/// records follow from them. Returns the numbers and the keys of byte strings that were replaced or
/// removed, whose length is still counted.
fn open_newest<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    state: &mut State,
    log: &LogHeader,
    records: &mut Vec<u64>,
) -> Result<Vec<(usize, Vec<u8>)>> {
    let mut replaced = Vec::new();
    let mut fill = layout::objects_offset(log.entries());
    let medium = pm.media().bytes();
    state.items = log.head[LogHead::ITEMS];
    // Bounded: what is added below must not overflow.
    state.item_bytes = log.head[LogHead::ITEM_BYTES].min(medium);
    let most = if is_sealed(table) { log.entries().min(MOST_ENTRIES) } else { log.count };
    let span = log.span();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for number in 0..most {
        let at = log.at.plus(fill);
        let found = match table.objects.read(pm, at, &mut key, &mut value) {
            found if number < log.count => found?,
            Ok(found) if is_behind(pm, table, log, fill, found.words)? => found,
            _ => break,
        };
        let record = RECORD_OFFSET.set(RECORD_HASH.get(table.hasher.bytes(&key)), fill);
        match records.get(number as usize) {
            Some(there) if *there != record => {
                return Err(corrupt(at, "a directory record says where its object is"));
            }
            Some(_) => {}
            None => records.push(record),
        }
        fill += found.words;
        state.items = state.items.saturating_add_signed(found.link.kind.items());
        if fill > span.words {
            return Err(corrupt(log.at, "the objects of a log lie inside it"));
        }
        if matches!(found.link.kind, Kind::Added | Kind::Replaced) {
            state.item_bytes += found.words * WORD;
        }
        let is_after = matches!(found.link.kind, Kind::Replaced | Kind::Removed);
        if is_after && table.form == Form::Variable {
            replaced.push((number as usize, core::mem::take(&mut key)));
        }
    }
    let count = records.len() as u64;
    state.open = Some(OpenLog {
        number: log.number(),
        span,
        entries: log.entries(),
        count,
        fill,
        durable: count,
        durable_fill: fill,
        published: true,
        is_for_writes: false,
        committed: count,
        checksum: log.head[LogHead::CHECKSUM],
    });
    Ok(replaced)
}

/// Stores zeros where there are none. What nobody has written is not touched: in a sparse copy of
/// the file it may be a hole, for which no storage is reserved yet.
fn wipe<M: Media>(pm: &Access<'_, M>, span: Span) -> Result<()> {
    let mut words = [0; PART_WORDS as usize];
    for from in (0..span.words).step_by(words.len()) {
        let at = span.start.plus(from);
        let part = &mut words[..(span.words - from).min(PART_WORDS) as usize];
        pm.read_words(at, part)?;
        for (place, _) in part.iter().enumerate().filter(|(_, word)| **word != 0) {
            pm.store(at.plus(place as u64), 0)?;
        }
    }
    Ok(())
}

/// Returns whether an object of `words` words that is whole lies in its log and has its seal.
fn is_behind<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    log: &LogHeader,
    fill: u64,
    words: u64,
) -> Result<bool> {
    let checksum = log.head[LogHead::CHECKSUM];
    Ok(fill + words <= log.span().words
        && table.objects.is_sealed(pm, log.at.plus(fill), words, checksum)?)
}

/// Writes the directory log of the newest log, if it followed from the objects, and wipes what lies
/// behind these.
fn complete_newest<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    state: &State,
    records: &[u64],
) -> Result<()> {
    let is_closed = table.pool.previous_shutdown() == Shutdown::Clean;
    let Some(log) = state.open.filter(|_| table.settings.durability == 1 && !is_closed) else {
        return Ok(());
    };
    pm.write_words(log.span.start.plus(LogHead::WORDS as u64), records)?;
    // What a rehash moved may lie behind an object that is not whole. Once another is in its
    // place, the next crash must not find them. A killed process may leave a whole object that
    // the visible tail does not cover: it does not count, and must not do so after power loss.
    let behind = log.span.words.saturating_sub(log.fill);
    wipe(pm, Span::new(log.span.start.plus(log.fill), behind))
}

/// Makes durable what recovery will serve, and lets all words of the area say the same.
///
/// A crash inside leaves the state before. Where areas share epochs, the next one makes it
/// durable; after a power loss it is that already.
fn accept<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    recovered: &Recovered<'_, M>,
) -> Result<()> {
    let Recovered { area, record, logs, records } = recovered;
    let mut guard = area.state.lock()?;
    let state = &mut *guard;
    complete_newest(pm, table, state, records)?;
    for place in &record.broken {
        // The next info for this place may differ, and a word of it must not complete this one.
        let is_here = info_place(state.sequence) == *place;
        let sequence = state.sequence.saturating_sub(u64::from(!is_here));
        let at = area.record.plus(*place);
        let info = layout::seal_head(record.info.words(sequence), at, table.seed);
        pm.write_words(at, &info)?;
    }
    if !table.is_grouped {
        // What is visible need not be durable: the infos, and the newest log; of epochs, all.
        pm.flush(Span::new(area.record, AreaRecord::WORDS as u64), sites::RECORD);
        let count = if table.epochs.lock()?.number > 0 { logs.len() } else { 1 };
        logs.iter().rev().take(count).for_each(|log| pm.flush(*log, sites::ACCEPTED));
        pm.fence(sites::ACCEPTED)?;
    }
    if record.is_cut || record.is_ahead {
        table.write_info(pm, area, state, &record.info)?;
    }
    let [live, durable] = [AreaRecord::VISIBLE_TAIL, AreaRecord::DURABLE_TAIL]
        .map(|place| area.record.plus(place as u64));
    pm.commit_word(live, record.tail.encode(live), sites::LIVE)?;
    if table.is_grouped {
        return Ok(());
    }
    pm.store(durable, record.tail.encode(durable))?;
    Ok(pm.persist(Span::new(durable, 1), sites::RECORD)?)
}
