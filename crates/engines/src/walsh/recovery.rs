//! Opening a table (3.4), area by area: of a closed pool the directories are loaded as they were
//! saved, else they are rebuilt from the directory logs.
//!
//! The newest log leads to the one before it, down to the oldest that the info names. In the order
//! in which they were written, the last record of each directory wins. No object is read, but for
//! those of the newest log.
//!
//! Of a medium larger than memory that is a page here and there, twice. The first logs of an area
//! lie where an older area's were, so that no order of areas reads such a medium from one end to
//! the other: a disk that gives 15,000 pages a second recovers 5 million pairs a second.
//!
//! | a crash leaves | recovery |
//! |---|---|
//! | objects that the tail does not cover (power) | gives their place another use |
//! | sealed ones (power, every write durable) | takes them, up to one that is not whole |
//! | objects that the live word covers (end of a process) | makes them durable, then serves them |
//! | half an info | takes the one before, and writes a whole one over what is there |
//! | an epoch (power, where areas share them) | takes the cut of the one that counts |
//! | logs behind the newest, or before the oldest | finds their space free |
//! | an area that is being rehashed | rebuilds both sides; the next write goes on |
//!
//! Nothing is believed that is not made durable first, and doing it twice does nothing.

use std::collections::VecDeque;

use everhash_index::{Executor, Form, Result};
use everhash_pmem::{
    Access, Addr, AtomicWord, LINE, Lock, Media, Pool, Shutdown, Space, Span, WORD, pool,
};

use super::concurrency::{Shown, View};
use super::directory::{Blocks, Side, Stock};
use super::epochs::{Epochs, epoch_place};
use super::layout::{
    self, AreaRecord, EPOCH, INFO_CLEARED, INFO_ESTIMATED, Info, LOG_AREA, LOG_SEQUENCE, LogHead,
    MOST_ENTRIES, MOST_LEVEL, RECORD_HASH, RECORD_OFFSET, ROOT, Root, Tail,
};
use super::logs::{NewInfo, corrupt, info_place};
use super::object::Objects;
use super::setup::WalshSettings;
use super::state::{Area, Counted, LockOf, Log, OpenLog, OwnLine, Rehash, Spare, State, Walsh};
use crate::common::hash::KeyedHash;

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The newest log, before the tail covers it.
        ACCEPTED = "walsh/recover/accepted";
        /// What an area's record says, before recovery believes it.
        RECORD = "walsh/recover/record";
        /// The live word of an area after a power failure.
        LIVE = "walsh/recover/live";
    }
}

/// Jobs for each thread of a recovery.
///
/// Unit: none. Source: ours; the last one to end keeps the others waiting for a small part only.
const JOBS_OF_THREAD: usize = 4;

/// What an area's record says.
struct Said {
    /// The newest log and its objects.
    tail: Tail,
    info: NewInfo,
    /// The highest sequence of any info.
    sequence: u64,
    /// Where infos lie of which there is a part only. Unit: words of the record.
    broken: Vec<u64>,
    /// Whether the words that change with every write say something else.
    is_cut: bool,
}

/// A log as it was read.
struct Known {
    at: Addr,
    head: [u64; LogHead::WORDS],
    count: u64,
}

impl Known {
    fn number(&self) -> u64 {
        self.head[LogHead::NUMBER]
    }

    fn span(&self) -> Span {
        Span::of_bytes(self.at, (self.head[LogHead::SIZE] >> 32) * LINE)
    }

    fn entries(&self) -> u64 {
        self.head[LogHead::SIZE] & u64::from(u32::MAX)
    }
}

/// Opens a table, and recovers it if it was not closed.
///
/// # Errors
/// [`everhash_index::Error::Corrupt`] and those of the medium.
pub fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<Walsh<M>> {
    let mut root = [0; Root::CHECKSUM + 1];
    pool.access().read_words(ROOT, &mut root)?;
    let (settings, table_at) = WalshSettings::from_root(&root)?;
    let epoch = layout::open_epoch(pool.access().load(EPOCH)?)
        .ok_or_else(|| corrupt(EPOCH, "the check of an epoch matches"))?;
    let space = Space::new(pool.region().clone(), pool::DATA);
    space.claim(layout::area_table(table_at, settings.areas))?;
    let form = Form::from_code(pool.identity().form);
    let seed = layout::seed(pool.identity().database);
    let area = |number| Area {
        number,
        record: layout::area_record(table_at, number),
        view: Shown::closed(),
        sides: [Side::new(), Side::new()],
        state: OwnLine(Lock::new(State::default())),
    };
    let table = Walsh {
        is_grouped: settings.shares_epochs(&**pool.region().media()),
        is_relaxed: Walsh::<M>::relaxes(pool.region().media()),
        form,
        settings,
        hasher: KeyedHash::of(pool.identity())?,
        objects: Objects::new(form, seed, settings.durability),
        seed,
        space,
        blocks: Blocks::new(settings.block_directories),
        areas: (0..settings.areas).map(area).collect(),
        spare: Lock::new(Spare::default()),
        epochs: Lock::new(Epochs { number: epoch, ..Epochs::default() }),
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
    let media = table.pool.region().media();
    if table.pool.previous_shutdown() != Shutdown::Clean {
        // A quarter of each log is read, and its head: nearly every page.
        media.will_read(Span::of_bytes(Addr::NULL, media.bytes()));
    }
    if !is_settled(&table, epoch) {
        table.pool.begin_writes()?;
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
    let outcomes: Vec<LockOf<M, Result<Vec<Span>>>> =
        (0..jobs).map(|_| Lock::new(Ok(Vec::new()))).collect();
    executor.run(jobs, &|job| {
        let outcome = recover_some(table, table.areas.iter().skip(job).step_by(jobs), epoch);
        if let Ok(mut slot) = outcomes[job].lock() {
            *slot = outcome;
        }
    });
    let mut spans = Vec::new();
    for outcome in outcomes {
        spans.append(&mut core::mem::replace(&mut *outcome.lock()?, Ok(Vec::new()))?);
    }
    // Neighbours together: there are hundreds of thousands of logs in a large pool.
    runs(&mut spans)?.into_iter().try_for_each(|run| Ok(table.space.claim(run)?))
}

/// Recovers some areas, one after the other; returns the space of their logs in ascending order.
fn recover_some<'t, M: Media>(
    table: &'t Walsh<M>,
    areas: impl ExactSizeIterator<Item = &'t Area<M>>,
    epoch: u64,
) -> Result<Vec<Span>> {
    let mut stock = Stock::new(areas.len() as u64);
    let mut spans = Vec::new();
    for area in areas {
        recover_area(table, area, epoch, &mut stock, &mut spans)?;
    }
    table.blocks.put_back(stock)?;
    spans.sort_by_key(|span| span.start);
    Ok(spans)
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

/// Recovers an area, and notes the space of its logs.
fn recover_area<M: Media>(
    table: &Walsh<M>,
    area: &Area<M>,
    epoch: u64,
    stock: &mut Stock,
    spans: &mut Vec<Span>,
) -> Result<()> {
    let pm = table.pool.access();
    let shutdown = table.pool.previous_shutdown();
    let mut said = read_record(&pm, area.record, table.seed, shutdown, epoch)?;
    let info = said.info;
    let mut guard = area.state.lock()?;
    let state = &mut *guard;
    (state.sequence, state.info) = (said.sequence, info);
    let loaded = match shutdown {
        Shutdown::Clean => table.load(&pm, area, state, said.tail, stock)?,
        Shutdown::Process | Shutdown::Power => None,
    };
    let logs = match loaded {
        Some(logs) => logs,
        None => {
            let logs = read_logs(&pm, table, area, &said)?;
            let logs_spans: Vec<Span> = logs.iter().map(Known::span).collect();
            // Before any is read: so many objects as the medium has room for, and no more.
            runs(&mut logs_spans.clone())?;
            rebuild(&pm, table, area, state, &logs, stock)?;
            // Behind the tail there may be more.
            said.tail = state.newest();
            logs_spans
        }
    };
    if table.pool.writable() && !is_settled(table, epoch) {
        accept(&pm, table, area, state, &said, &logs)?;
    }
    spans.extend(logs);
    let mut spare = table.spare.lock()?;
    spare.collect = spare.collect.max(table.collect_logs(state));
    drop(spare);
    let [level, old] = info.levels;
    let old = (info.end != 0).then_some(old);
    if old.is_some() {
        state.rehash = Some(Rehash::begun(info.end, counted_behind(&pm, state, info.end)?));
    }
    area.show(state, View::new(level, old));
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

/// Reads what an area's record says: after the end of a process what was stored last, else what is
/// known to be durable.
fn read_record<M: Media>(
    pm: &Access<'_, M>,
    record: Addr,
    seed: u64,
    shutdown: Shutdown,
    epoch: u64,
) -> Result<Said> {
    let mut newest: Option<(u64, NewInfo)> = None;
    let mut broken = Vec::new();
    for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
        let at = record.plus(place as u64);
        let mut info = [0; Info::WORDS];
        pm.read_words(at, &mut info)?;
        let sequence = info[Info::SEQUENCE];
        if !layout::is_sealed(&info, at, seed) || info_place(sequence) != place as u64 {
            broken.push(place as u64);
        } else if newest.is_none_or(|(before, _)| before < sequence) {
            newest = Some((sequence, parse_info(&info, at)?));
        }
    }
    if shutdown == Shutdown::Clean && !broken.is_empty() {
        // Nothing but a crash leaves half an info, and the recovery after it completes that.
        return Err(corrupt(record, "the infos of an area are whole"));
    }
    if shutdown == Shutdown::Process || epoch == 0 {
        let (sequence, info) =
            newest.ok_or_else(|| corrupt(record, "one of two infos is whole"))?;
        let place = match shutdown {
            Shutdown::Process => AreaRecord::LIVE,
            Shutdown::Clean | Shutdown::Power => AreaRecord::TAIL,
        };
        let tail = read_tail(pm, record.plus(place as u64))?;
        return Ok(Said { tail, info, sequence, broken, is_cut: false });
    }
    let at = record.plus(epoch_place(epoch));
    let mut cut = [0; Info::WORDS];
    pm.read_words(at, &mut cut)?;
    if !layout::is_sealed(&cut, at, seed) {
        return Err(corrupt(at, "the checksum of an epoch's info matches"));
    }
    let tail = read_tail(pm, at.plus(Info::TAIL as u64))?;
    let sequence = newest.map_or(0, |(sequence, _)| sequence).max(cut[Info::SEQUENCE]);
    Ok(Said { tail, info: parse_info(&cut, at)?, sequence, broken, is_cut: true })
}

fn read_tail<M: Media>(pm: &Access<'_, M>, place: Addr) -> Result<Tail> {
    let tail = Tail::open(pm.load(place)?, place);
    tail.ok_or_else(|| corrupt(place, "the check of a tail matches"))
}

fn parse_info(info: &[u64; Info::WORDS], at: Addr) -> Result<NewInfo> {
    let most = u64::from(MOST_LEVEL);
    if info[Info::LEVEL] > most || info[Info::OLD] > most {
        return Err(corrupt(at, "an area has at most 2^32 directories"));
    }
    Ok(NewInfo {
        start: info[Info::START],
        end: info[Info::END],
        levels: [info[Info::LEVEL] as u32, info[Info::OLD] as u32],
        cleared: INFO_CLEARED.get(info[Info::FLAGS]) == 1,
        estimated: INFO_ESTIMATED.get(info[Info::FLAGS]) == 1,
    })
}

/// Follows the logs from the newest to the oldest; returns them oldest first.
fn read_logs<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    area: &Area<M>,
    said: &Said,
) -> Result<VecDeque<Known>> {
    let mut logs: VecDeque<Known> = VecDeque::new();
    let mut next = said.tail;
    // Numbers fall from one to the next, so that none comes twice: no more than lines.
    while !next.at.is_null() {
        let mut head = [0; LogHead::WORDS];
        pm.read_words(next.at, &mut head)?;
        let owner = LOG_AREA.get(head[LogHead::OWNER]);
        if !layout::is_sealed(&head, next.at, table.seed) || owner != area.number {
            return Err(corrupt(next.at, "the checksum of a log's head matches"));
        }
        if LOG_SEQUENCE.get(head[LogHead::OWNER]) > said.sequence {
            return Err(corrupt(next.at, "no log is newer than the info of its area"));
        }
        let known = Known { at: next.at, head, count: next.count };
        if known.count > known.entries().min(MOST_ENTRIES) {
            return Err(corrupt(next.at, "a log has no more objects than it has room for"));
        }
        if known.span().words < layout::objects_offset(known.entries()) {
            return Err(corrupt(next.at, "a log has room for its directory log"));
        }
        if logs.front().is_some_and(|after| after.number() != known.number().wrapping_add(1)) {
            return Err(corrupt(next.at, "the logs of an area have successive numbers"));
        }
        let (number, previous) = (known.number(), head[LogHead::PREVIOUS]);
        let at = next.at;
        logs.push_front(known);
        next = Tail::default();
        if number != said.info.start {
            next = Tail::open(previous, at)
                .ok_or_else(|| corrupt(at, "the logs begin at the oldest"))?;
        }
    }
    Ok(logs)
}

/// Rebuilds the directories, and what is known of an area beside them.
fn rebuild<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    area: &Area<M>,
    state: &mut State,
    logs: &VecDeque<Known>,
    stock: &mut Stock,
) -> Result<()> {
    let info = state.info;
    stock.expect(most_blocks(table, logs, &info));
    let mut records = Vec::new();
    for (position, log) in logs.iter().enumerate() {
        records.clear();
        records.resize(log.count as usize, 0);
        pm.read_words(log.at.plus(LogHead::WORDS as u64), &mut records)?;
        let after = logs.get(position + 1).map(|after| after.head[LogHead::PREVIOUS_SUM]);
        if after.is_some_and(|sum| sum != layout::sum(&records, table.seed)) {
            return Err(corrupt(log.at, "the checksum of a directory log matches"));
        }
        if after.is_none() {
            open_newest(pm, table, state, log, &mut records, &info)?;
        } else {
            let (number, count) = (log.number(), log.count);
            state.logs.push_back(Log { number, span: log.span(), count });
        }
        let is_old = log.number() <= info.end;
        let (side, level) = if is_old { (1, info.levels[1]) } else { (0, info.levels[0]) };
        for record in &records {
            let hash = RECORD_HASH.get(*record);
            let at = log.at.plus(RECORD_OFFSET.get(*record));
            table.blocks.push_from(stock, &area.sides[side], level, (hash, at))?;
        }
        let count = records.len() as u64;
        state.stored += count;
        state.chained += if is_old { 0 } else { count };
    }
    Ok(())
}

/// Returns how many blocks of directories the objects of an area need at most.
fn most_blocks<M: Media>(table: &Walsh<M>, logs: &VecDeque<Known>, info: &NewInfo) -> u64 {
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
/// records follow from them.
fn open_newest<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    state: &mut State,
    log: &Known,
    records: &mut Vec<u64>,
    info: &NewInfo,
) -> Result<()> {
    let mut fill = layout::objects_offset(log.entries());
    (state.items, state.item_bytes) = match info.cleared && log.number() == info.start {
        true => (0, 0),
        false => (log.head[LogHead::ITEMS], log.head[LogHead::ITEM_BYTES]),
    };
    let is_cut_short = table.pool.previous_shutdown() == Shutdown::Power;
    let is_sealed = is_cut_short && table.settings.durability == 1;
    let most = if is_sealed { log.entries().min(MOST_ENTRIES) } else { log.count };
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
        // What was replaced or removed is not known: too much until the next rehash.
        state.item_bytes += found.words * WORD;
    }
    if fill > span.words {
        return Err(corrupt(log.at, "the objects of a log lie inside it"));
    }
    let count = records.len() as u64;
    if is_sealed {
        pm.write_words(log.at.plus(LogHead::WORDS as u64), records)?;
        // What a rehash moved may lie behind an object that is not whole. Once another is in its
        // place, the next crash must not find them.
        pm.write_words(log.at.plus(fill), &vec![0; (span.words - fill) as usize])?;
    }
    state.open = Some(OpenLog {
        number: log.number(),
        span,
        entries: log.entries(),
        count,
        fill,
        durable: count,
        durable_fill: fill,
        known: true,
        told: count,
        checksum: log.head[LogHead::CHECKSUM],
    });
    Ok(())
}

/// Returns whether an object of `words` words that is whole lies in its log and has its seal.
fn is_behind<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    log: &Known,
    fill: u64,
    words: u64,
) -> Result<bool> {
    let checksum = log.head[LogHead::CHECKSUM];
    Ok(fill + words <= log.span().words
        && table.objects.is_sealed(pm, log.at.plus(fill), words, checksum)?)
}

/// Makes durable what recovery will serve, and lets all words of the area say the same.
///
/// A crash inside leaves what was believed before. Where areas share epochs, the next one makes it
/// durable; after a power failure it is that already.
fn accept<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    area: &Area<M>,
    state: &mut State,
    said: &Said,
    logs: &[Span],
) -> Result<()> {
    for place in &said.broken {
        // The next info for this place may differ, and a word of it must not complete this one.
        let is_here = info_place(state.sequence) == *place;
        let sequence = state.sequence.saturating_sub(u64::from(!is_here));
        let at = area.record.plus(*place);
        let info = layout::seal_head(said.info.words(sequence), at, table.seed);
        pm.write_words(at, &info)?;
    }
    if !table.is_grouped {
        // What is visible need not be durable: the infos, and the newest log; of epochs, all.
        pm.flush(Span::new(area.record, AreaRecord::WORDS as u64), sites::RECORD);
        let count = if table.epochs.lock()?.number > 0 { logs.len() } else { 1 };
        logs.iter().rev().take(count).for_each(|log| pm.flush(*log, sites::ACCEPTED));
        pm.fence(sites::ACCEPTED)?;
    }
    if said.is_cut {
        table.write_info(pm, area, state, &said.info)?;
    }
    let [live, durable] =
        [AreaRecord::LIVE, AreaRecord::TAIL].map(|place| area.record.plus(place as u64));
    pm.commit_word(live, said.tail.seal(live), sites::LIVE)?;
    if table.is_grouped {
        return Ok(());
    }
    pm.store(durable, said.tail.seal(durable))?;
    Ok(pm.persist(Span::new(durable, 1), sites::RECORD)?)
}
