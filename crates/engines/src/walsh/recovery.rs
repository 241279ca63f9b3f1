//! Opening a table (3.4): the directories are rebuilt from the directory logs, area by area.
//!
//! The newest log leads to the one before it, down to the oldest that the info names. In the order
//! in which they were written, the last record of each directory wins. No object is read, but for
//! those of the newest log.
//!
//! | a crash leaves | recovery |
//! |---|---|
//! | objects that the tail does not cover (power) | gives their place another use |
//! | objects that the live word covers (end of a process) | makes them durable, then serves them |
//! | half an info | takes the one before |
//! | logs behind the newest, or before the oldest | finds their space free |
//! | an area that is being rehashed | rebuilds both sides; the next write goes on |
//!
//! Nothing is believed that is not made durable first, and doing it twice does nothing.

use std::collections::VecDeque;

use everhash_index::{Executor, Form, Result};
use everhash_pmem::{
    Access, Addr, AtomicWord, LINE, Lock, Media, Pool, Shutdown, Space, Span, WORD, pool,
};

use super::concurrency::{Area, LockOf, Log, OpenLog, Rehash, Spare, State, View, Walsh};
use super::directory::{Blocks, Side, directory_of};
use super::layout::{
    self, AreaRecord, Info, LogHead, MOST_ENTRIES, MOST_LEVEL, RECORD_HASH, RECORD_OFFSET, ROOT,
    Root, Tail,
};
use super::logs::{corrupt, info_place};
use super::object::Objects;
use super::setup::WalshSettings;
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

/// An info as it was read.
#[derive(Clone, Copy)]
struct AreaInfo {
    sequence: u64,
    start: u64,
    end: u64,
    level: u32,
    old: u32,
    cleared: bool,
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
    let space = Space::new(pool.region().clone(), pool::DATA);
    space.claim(layout::area_table(table_at, settings.areas))?;
    let form = Form::from_code(pool.identity().form);
    let seed = layout::seed(pool.identity().database);
    let area = |number| Area {
        number,
        record: layout::area_record(table_at, number),
        view: AtomicWord::new(0),
        sides: [Side::new(), Side::new()],
        state: Lock::new(State::default()),
    };
    let table = Walsh {
        form,
        settings,
        hasher: KeyedHash::of(pool.identity())?,
        objects: Objects::new(form, seed),
        seed,
        space,
        blocks: Blocks::new(settings.block_directories),
        areas: (0..settings.areas).map(area).collect(),
        spare: Lock::new(Spare::default()),
        dead: AtomicWord::new(0),
        rehashes: AtomicWord::new(0),
        upkeep: AtomicWord::new(0),
        pool,
    };
    recover_all(&table, executor)?;
    table.pool.recovered()?;
    Ok(table)
}

/// Recovers every area, as many at a time as the executor likes.
fn recover_all<M: Media>(table: &Walsh<M>, executor: &dyn Executor) -> Result<()> {
    let jobs = executor.width().clamp(1, table.areas.len());
    let outcomes: Vec<LockOf<M, Result<()>>> = (0..jobs).map(|_| Lock::new(Ok(()))).collect();
    executor.run(jobs, &|job| {
        let mut areas = table.areas.iter().skip(job).step_by(jobs);
        let outcome = areas.try_for_each(|area| recover_area(table, area));
        if let Ok(mut slot) = outcomes[job].lock() {
            *slot = outcome;
        }
    });
    for outcome in outcomes {
        core::mem::replace(&mut *outcome.lock()?, Ok(()))?;
    }
    Ok(())
}

fn recover_area<M: Media>(table: &Walsh<M>, area: &Area<M>) -> Result<()> {
    let pm = table.pool.access();
    let info = read_info(&pm, area.record, table.seed)?;
    let place = match table.pool.previous_shutdown() {
        Shutdown::Process => AreaRecord::LIVE,
        Shutdown::Clean | Shutdown::Power => AreaRecord::TAIL,
    };
    let place = area.record.plus(place as u64);
    let tail = Tail::open(pm.load(place)?, place)
        .ok_or_else(|| corrupt(place, "the check of a tail matches"))?;
    let logs = read_logs(&pm, table, area, tail, info.start)?;
    let mut guard = area.state.lock()?;
    let state = &mut *guard;
    let old = (info.end != 0).then_some(info.old);
    state.sequence = info.sequence;
    rebuild(&pm, table, area, state, &logs, &info)?;
    if table.pool.writable() && table.pool.previous_shutdown() != Shutdown::Clean {
        accept(&pm, area, tail, &logs)?;
    }
    let mut spare = table.spare.lock()?;
    spare.collect = spare.collect.max(table.collect_logs(state));
    drop(spare);
    state.rehash = old.map(|_| Rehash { end: info.end, next: 0, running: false });
    area.show(state, View::new(info.level, old));
    Ok(())
}

/// Returns the later of the infos that are whole.
fn read_info<M: Media>(pm: &Access<'_, M>, record: Addr, seed: u64) -> Result<AreaInfo> {
    let mut newest: Option<AreaInfo> = None;
    for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
        let at = record.plus(place as u64);
        let mut info = [0; Info::WORDS];
        pm.read_words(at, &mut info)?;
        let sequence = info[Info::SEQUENCE];
        if !layout::is_sealed(&info, at, seed) || info_place(sequence) != place as u64 {
            continue;
        }
        let most = u64::from(MOST_LEVEL);
        if info[Info::LEVEL] > most || info[Info::OLD] > most {
            return Err(corrupt(at, "an area has at most 2^32 directories"));
        }
        if newest.is_none_or(|newest| newest.sequence < sequence) {
            newest = Some(AreaInfo {
                sequence,
                start: info[Info::START],
                end: info[Info::END],
                level: info[Info::LEVEL] as u32,
                old: info[Info::OLD] as u32,
                cleared: info[Info::CLEARED] == 1,
            });
        }
    }
    newest.ok_or_else(|| corrupt(record, "one of two infos is whole"))
}

/// Follows the logs from the newest to the oldest, and claims their space; oldest first.
fn read_logs<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    area: &Area<M>,
    tail: Tail,
    start: u64,
) -> Result<VecDeque<Known>> {
    let mut logs: VecDeque<Known> = VecDeque::new();
    let mut next = tail;
    // Each log takes space of its own, so that there are no more than lines.
    while !next.at.is_null() {
        let mut head = [0; LogHead::WORDS];
        pm.read_words(next.at, &mut head)?;
        if !layout::is_sealed(&head, next.at, table.seed) || head[LogHead::AREA] != area.number {
            return Err(corrupt(next.at, "the checksum of a log's head matches"));
        }
        let known = Known { at: next.at, head, count: next.count };
        if known.count > known.entries().min(MOST_ENTRIES) {
            return Err(corrupt(next.at, "a log has no more objects than it has room for"));
        }
        if logs.front().is_some_and(|after| after.number() != known.number().wrapping_add(1)) {
            return Err(corrupt(next.at, "the logs of an area have successive numbers"));
        }
        table.space.claim(known.span())?;
        let (number, previous) = (known.number(), head[LogHead::PREVIOUS]);
        let at = next.at;
        logs.push_front(known);
        next = Tail::default();
        if number != start {
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
    info: &AreaInfo,
) -> Result<()> {
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
            open_newest(pm, table, state, log, &records, info)?;
        } else {
            let (number, count) = (log.number(), log.count);
            state.logs.push_back(Log { number, span: log.span(), count });
        }
        let is_old = log.number() <= info.end;
        let (side, level) = if is_old { (1, info.old) } else { (0, info.level) };
        for record in &records {
            let hash = RECORD_HASH.get(*record);
            let at = log.at.plus(RECORD_OFFSET.get(*record));
            table.blocks.push(&area.sides[side], directory_of(hash, level), at, hash)?;
        }
        state.stored += log.count;
        state.chained += if is_old { 0 } else { log.count };
    }
    Ok(())
}

/// Reads every object of the newest log, which no later head vouches for, and counts what is
/// alive.
fn open_newest<M: Media>(
    pm: &Access<'_, M>,
    table: &Walsh<M>,
    state: &mut State,
    log: &Known,
    records: &[u64],
    info: &AreaInfo,
) -> Result<()> {
    let mut fill = layout::objects_offset(log.entries());
    (state.items, state.item_bytes) = match info.cleared && log.number() == info.start {
        true => (0, 0),
        false => (log.head[LogHead::ITEMS], log.head[LogHead::ITEM_BYTES]),
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for record in records {
        let at = log.at.plus(fill);
        let found = table.objects.read(pm, at, &mut key, &mut value)?;
        let hash = table.hasher.bytes(&key);
        if *record != RECORD_OFFSET.set(RECORD_HASH.get(hash), fill) {
            return Err(corrupt(at, "a directory record says where its object is"));
        }
        fill += found.words;
        state.items = state.items.wrapping_add_signed(found.link.kind.items());
        // What was replaced or removed is not known: too much until the next rehash.
        state.item_bytes += found.words * WORD;
    }
    let span = log.span();
    if fill > span.words {
        return Err(corrupt(log.at, "the objects of a log lie inside it"));
    }
    state.open = Some(OpenLog {
        number: log.number(),
        span,
        entries: log.entries(),
        count: log.count,
        fill,
        durable: log.count,
        durable_fill: fill,
        known: true,
    });
    Ok(())
}

/// Makes durable what recovery will serve, and lets both words of the area say the same.
///
/// A crash inside leaves the tail before or after.
fn accept<M: Media>(
    pm: &Access<'_, M>,
    area: &Area<M>,
    tail: Tail,
    logs: &VecDeque<Known>,
) -> Result<()> {
    // What is visible need not be durable: the infos, and the newest log.
    pm.flush(Span::new(area.record, AreaRecord::WORDS as u64), sites::RECORD);
    if let Some(newest) = logs.back() {
        pm.flush(newest.span(), sites::ACCEPTED);
    }
    pm.fence(sites::ACCEPTED)?;
    let [live, durable] =
        [AreaRecord::LIVE, AreaRecord::TAIL].map(|place| area.record.plus(place as u64));
    pm.commit_word(live, tail.seal(live), sites::LIVE)?;
    pm.commit_word(durable, tail.seal(durable), sites::RECORD)?;
    Ok(pm.persist(Span::new(durable, 1), sites::RECORD)?)
}
