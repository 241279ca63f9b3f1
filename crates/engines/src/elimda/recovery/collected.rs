//! The collecting logs: made where caches are durable, moved away where they are not.

mod moving;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Domain, Media, Span};

use super::sites;
use crate::elimda::collectors::{Collectors, Logs};
use crate::elimda::form::{Form, Item, Update, corrupt};
use crate::elimda::layout::{self, CollectingLog as Log, Control, Ended, Kind, LOGS_LINK};
use crate::elimda::state::ElimDa;

/// A collecting log as it was read.
pub(super) struct Untidy {
    at: Addr,
    control: Control,
    /// The items that count.
    live: u64,
}

/// The collecting logs, and what a crash has left in each: see [`tidy`].
type Found<M> = (Collectors<<M as Media>::Sync>, Vec<Untidy>);

/// Finds the collecting logs, if there are any, and what is in them.
pub(super) fn load<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
) -> Result<Option<Found<M>>> {
    let Some(area) = find(table, pm)? else { return Ok(None) };
    load_from(table, pm, area).map(Some)
}

/// Makes empty collecting logs where inserts go to them, if the medium has room.
pub(super) fn make<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
) -> Result<Option<Collectors<M::Sync>>> {
    if !appends(table) || table.geometry.collecting_logs == 0 {
        return Ok(None);
    }
    let Some(area) = make_area(table, pm)? else { return Ok(None) };
    Ok(Some(load_from(table, pm, area)?.0))
}

/// Returns whether inserts go to collecting logs: a visible store is durable.
fn appends<M: Media, F: Form>(table: &ElimDa<M, F>) -> bool {
    let domain = table.pool.region().media().guarantees().domain;
    matches!(domain, Domain::Eadr | Domain::Process) && table.pool.writable()
}

fn load_from<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    area: Addr,
) -> Result<Found<M>> {
    let mut collectors = Collectors::new(area, table.geometry);
    collectors.appends = appends(table);
    let loader = Loader {
        table,
        pm,
        collectors: &collectors,
        empty: Vec::new(),
        exhausted: None,
        current: Vec::new(),
        untidy: Vec::new(),
    };
    let untidy = loader.load()?;
    Ok((collectors, untidy))
}

/// Moves what is in collecting logs to the device table where inserts do not go to them, and gives
/// their space back. On a medium without room for that, they are only read.
pub(super) fn leave<M: Media, F: Form>(table: &mut ElimDa<M, F>) -> Result<()> {
    let Some(collectors) = &table.collectors else { return Ok(()) };
    if collectors.appends || !table.pool.writable() {
        return Ok(());
    }
    let (area, pm) = (collectors.area, table.pool.access());
    if moving::move_all(table, &pm, collectors)? {
        pm.commit_word(LOGS_LINK, 0, sites::LOGS_LINK)?;
        pm.persist(Span::new(LOGS_LINK, 1), sites::LOGS_LINK)?;
        drop(pm);
        table.collectors = None;
        table.space.give(span_of(table, area));
    }
    Ok(())
}

fn span_of<M: Media, F: Form>(table: &ElimDa<M, F>, area: Addr) -> Span {
    Span::new(area, table.geometry.all_logs() * Log::WORDS as u64)
}

fn find<M: Media, F: Form>(table: &ElimDa<M, F>, pm: &Access<'_, M>) -> Result<Option<Addr>> {
    let word = pm.load(LOGS_LINK)?;
    if word == 0 {
        return Ok(None);
    }
    let area = layout::open_link(word, LOGS_LINK, Kind::Logs)
        .filter(|_| table.geometry.collecting_logs > 0)
        .ok_or(corrupt(LOGS_LINK, "the link to the collecting logs matches its check"))?;
    table.space.claim(span_of(table, area))?;
    Ok(Some(area))
}

fn make_area<M: Media, F: Form>(table: &ElimDa<M, F>, pm: &Access<'_, M>) -> Result<Option<Addr>> {
    let span = span_of(table, Addr::NULL);
    let taken = match table.space.take(span.bytes(), Log::WORDS as u64 * 8) {
        Err(everhash_pmem::Error::Full { .. }) => return Ok(None),
        other => other?,
    };
    let at = taken.span.start;
    if !taken.zero {
        // What is visible here is durable, in the same order: nothing is flushed or fenced.
        for log in 0..table.geometry.all_logs() {
            let log = table.geometry.collecting_log(at, log);
            pm.store(log.plus(Log::ENDED as u64), 0)?;
            pm.store(log.plus(Log::CONTROL as u64), 0)?;
        }
    }
    let word = layout::seal(at.byte(), LOGS_LINK, Kind::Logs);
    pm.commit_word(LOGS_LINK, word, sites::LOGS_LINK)?;
    pm.persist(Span::new(LOGS_LINK, 1), sites::LOGS_LINK)?;
    Ok(Some(at))
}

struct Loader<'t, M: Media, F: Form> {
    table: &'t ElimDa<M, F>,
    pm: &'t Access<'t, M>,
    collectors: &'t Collectors<M::Sync>,
    /// Logs without items.
    empty: Vec<u64>,
    /// A log without items that is full for ever: it was emptied too often.
    exhausted: Option<u64>,
    /// For each collector its current log and the one that was being flushed.
    current: Vec<[Option<u64>; 2]>,
    untidy: Vec<Untidy>,
}

impl<M: Media, F: Form> Loader<'_, M, F> {
    fn load(mut self) -> Result<Vec<Untidy>> {
        let geometry = &self.table.geometry;
        self.current = vec![[None; 2]; geometry.collecting_logs as usize];
        (0..geometry.all_logs()).try_for_each(|log| self.load_log(log))?;
        self.hand_out()
    }

    /// Gives each collector its logs, and makes the others spare ones.
    ///
    /// A collector that found no spare log flushes its only log in its place, so that a crash, or
    /// a full medium, leaves more sealed logs than there are spare ones. Such a collector goes on
    /// with that log: the empty ones are for those that have none first.
    ///
    /// Where logs were emptied too often, the others may not be enough: collectors without one are
    /// closed, and share a log that holds nothing.
    fn hand_out(self) -> Result<Vec<Untidy>> {
        let Loader { collectors, current, mut empty, exhausted, untidy, .. } = self;
        let no_log = corrupt(collectors.area, "each collector has a log");
        let (bare, others): (Vec<_>, Vec<_>) =
            (0..).zip(current).partition(|(_, found)| *found == [None, None]);
        for (collector, [current, in_flight]) in bare.into_iter().chain(others) {
            let logs = match (current.or_else(|| empty.pop()), in_flight) {
                (Some(current), in_flight) => Logs { current, in_flight, closed: false },
                (None, Some(current)) => Logs { current, in_flight: None, closed: false },
                (None, None) => match exhausted {
                    Some(current) => Logs { current, in_flight: None, closed: true },
                    None => return Err(no_log),
                },
            };
            collectors.set_logs(collector, logs);
        }
        empty.into_iter().try_for_each(|log| collectors.give_spare(log))?;
        Ok(untidy)
    }

    fn load_log(&mut self, index: u64) -> Result<()> {
        let (table, pm) = (self.table, self.pm);
        let log = table.collecting_log(pm, self.collectors.at(index));
        let control = log.look()?.control;
        let items = log.read()?;
        let (mut live, mut collector) = (items.live, None);
        for slot in items.slots() {
            let (item, at) = (items.item(slot), log.item_at(slot));
            let hash = F::item_hash(&table.hasher, &item);
            let own = table.geometry.collector_of(hash);
            if *collector.get_or_insert(own) != own {
                return Err(corrupt(at, "a collecting log holds keys of one collector"));
            }
            if has_moved(table, pm, hash, &item)? {
                live &= !(1 << slot);
                table.count_doubled();
                continue;
            }
            if let Some((record, class)) = F::record_of(&item, at)? {
                table.heap.claim(record, class)?;
            }
            table.count_found(1);
        }
        self.untidy.push(Untidy { at: log.at, control, live });
        match collector.filter(|_| live != 0) {
            None if control.reserved == log.slots && control.emptied().is_none() => {
                self.exhausted = Some(index);
            }
            None => self.empty.push(index),
            Some(collector) => {
                let place = &mut self.current[collector as usize][usize::from(control.sealed)];
                if place.replace(index).is_some() {
                    return Err(corrupt(log.at, "a collector has one log of each kind"));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a crash has left an item of a collecting log in the DRAM table or in the device
/// table, too.
fn has_moved<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    hash: u64,
    item: &Item,
) -> Result<bool> {
    let index = table.geometry.bucket_of(hash);
    let segment = table.table.find(hash);
    let bucket = segment.bucket(index);
    let key_words = table.geometry.key_words as usize;
    // Hashes of byte strings may be equal: their record words tell.
    let is_copy = |other: &Item| {
        other[..key_words] == item[..key_words]
            && (F::UPDATE == Update::NewItem || !F::RECORDS || other[1] == item[1])
    };
    for candidate in bucket.candidates(layout::fingerprint(hash)) {
        if is_copy(&table.load_item(pm, table.candidate_at(&segment, candidate))?) {
            return Ok(true);
        }
    }
    Ok((0..bucket.items()).any(|place| is_copy(&bucket.item(place).0)))
}

/// Ends what is not live, and empties logs that hold nothing, not yet fenced.
///
/// Slots that were handed out and not written become written, too, where appends wait for that.
/// Elsewhere they stay as they are: nothing keeps the order of the two words there, and without its
/// end such a slot would hold what was there in an earlier generation.
pub(super) fn tidy<M: Media, F: Form>(
    table: &ElimDa<M, F>,
    pm: &Access<'_, M>,
    logs: &[Untidy],
) -> Result<()> {
    let appends = appends(table);
    logs.iter().try_for_each(|log| tidy_log(pm, log, appends))
}

fn tidy_log<M: Media>(pm: &Access<'_, M>, log: &Untidy, appends: bool) -> Result<()> {
    let Untidy { at, control, live } = *log;
    let all = (1 << control.reserved) - 1;
    let mut next = Control { written: if appends { all } else { control.written }, ..control };
    if live == 0
        && control.reserved > 0
        && let Some(emptied) = control.emptied()
    {
        next = emptied;
    } else {
        let place = at.plus(Log::ENDED as u64);
        let ended = Ended { slots: all & !live, generation: control.generation }.seal(at);
        if control.reserved > 0 && pm.load(place)? != ended {
            pm.commit_word(place, ended, sites::COLLECTED)?;
        }
    }
    if next != control {
        pm.commit_word(at, next.seal(at), sites::COLLECTED)?;
    }
    pm.flush(Span::new(at, Log::ITEMS as u64), sites::COLLECTED);
    Ok(())
}
