//! A judge of pools at rest: from the words on the medium to the pairs, or to what is broken.
//!
//! Shares the ruler with the code that serves the table, and nothing else. It replays every
//! object of every log, keeps heads of chains of its own, and demands that each object leads
//! where it must and that the counts in the heads of logs are true.
//!
//! A pool that was not closed has two states, and nothing on the medium says which of them a
//! recovery will take: what was stored last, if a process was killed, or what is durable, if power
//! was lost. The newer one counts if it is whole in all areas, else the durable one.

mod chains;
mod checkpoints;
mod judge;
mod objects;
mod remains;

use everhash_index::{Checked, Error, Result};
use everhash_pmem::{Addr, Boot, Media, Region, Span, pool};

use super::layout::{self, INFO_ESTIMATED, Info, LogHead};
use crate::common::check::{corrupt, reachable_bytes};
use chains::{Generation, Newest};
use checkpoints::Found;
use judge::{Judge, Log, Moment};
use objects::Replayed;

/// What was read of an area.
struct Area {
    newest: Newest,
    /// Logs, and a checkpoint.
    spans: Vec<Span>,
    /// The number of the newest log, and how many objects of it were read.
    last: Option<(u64, u64)>,
}

impl Area {
    /// Visits every pair; returns how many there are.
    fn visit(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> u64 {
        let live = self.newest.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let mut items = 0;
        for (key, value) in live {
            visit(key, value);
            items += 1;
        }
        items
    }

    fn items(&self) -> u64 {
        self.newest.values().flatten().count() as u64
    }
}

/// Visits every pair once.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(
    region: &Region<M>,
    boot: Boot,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Checked> {
    let mut judge = Judge::new(region, boot)?;
    let moment = moment(&mut judge)?;
    read(&mut judge, moment, visit)
}

/// As [`check`], of the pool of an open table: everything that was stored counts.
pub fn check_open<M: Media>(region: &Region<M>) -> Result<Checked> {
    read(&mut Judge::new(region, Boot::default())?, Moment::Visible, &mut |_, _| {})
}

/// As [`check`], but passes over what is damaged. If power may have failed, and what was stored
/// last in an area is not whole, it reports that, and takes what is durable. Where that is not
/// whole, and after a killed process, it reads on behind each damaged object: see
/// [`Remains`](remains::Remains).
pub fn salvage<M: Media>(
    region: &Region<M>,
    boot: Boot,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut judge = Judge::new(region, boot)?;
    let is_closed = judge.is_closed;
    for number in 0..judge.areas {
        let before = judge.budget;
        let (mut is_visited, damage) = salvage_area(&mut judge, number, visit)?;
        if !is_visited && is_closed {
            // The logs can be read without a checkpoint, and with the better of two infos.
            (judge.is_closed, judge.budget) = (false, before);
            (is_visited, _) = salvage_area(&mut judge, number, visit)?;
        }
        if is_visited {
            damage.into_iter().for_each(&mut *report);
        } else {
            judge.budget = before;
            salvage_remains(&mut judge, number, (is_closed, damage), visit, report)?;
        }
        judge.is_closed = is_closed;
    }
    Ok(())
}

/// Visits the pairs of an area, if it is whole at some moment. Returns whether it is, and the first
/// damage.
fn salvage_area<M: Media>(
    judge: &mut Judge<'_, M>,
    number: u64,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<(bool, Option<Error>)> {
    let is_stale = judge.is_stale(number).is_ok_and(|it| it);
    // After power loss there may be objects behind the visible tail, found by their seals.
    let has_seals = judge.seal_words > 0;
    let moments: &[Moment] = match (judge.is_killed, is_stale || has_seals) {
        (true, _) => &[Moment::Visible],
        (false, true) => &[Moment::Durable, Moment::Visible],
        (false, false) => &[Moment::Visible, Moment::Durable],
    };
    let before = judge.budget;
    let (mut damage, mut is_visited) = (None, false);
    for moment in moments {
        judge.budget = before;
        match judge.area(number, *moment) {
            Ok(_) if is_visited => {}
            Ok(area) => {
                area.visit(visit);
                is_visited = true;
                // Damage ends what seals find, too: then the visible tail covers more than
                // that. Where it does not, the words that it leads to need not be durable.
                if is_stale || !has_seals || judge.is_reached(number, &area) {
                    break;
                }
            }
            Err(error @ Error::Corrupt { .. }) => damage = damage.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Ok((is_visited, damage))
}

/// Visits what is left of an area that is whole at no moment.
///
/// Where power may have failed, what is durable is read: what was stored last may lead to objects
/// that the place held before. Where fences do not reach the device nothing is known to be durable,
/// and the area is passed over as a whole; so it is if no single damage explains what is wrong.
fn salvage_remains<M: Media>(
    judge: &mut Judge<'_, M>,
    number: u64,
    (is_closed, damage): (bool, Option<Error>),
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let moments: &[Moment] = match (is_closed || judge.is_killed, judge.is_relaxed) {
        (true, _) => &[Moment::Visible, Moment::Durable],
        (false, false) => &[Moment::Durable],
        (false, true) => &[],
    };
    let before = judge.budget;
    for moment in moments {
        judge.budget = before;
        match judge.remains(number, *moment, is_closed) {
            Ok(remains) if !remains.damages.is_empty() => {
                remains.visit(|key| judge.hasher.bytes(key), visit);
                remains.damages.into_iter().for_each(report);
                return Ok(());
            }
            Ok(_) | Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    damage.into_iter().for_each(report);
    Ok(())
}

/// Chooses the state that counts.
fn moment<M: Media>(judge: &mut Judge<'_, M>) -> Result<Moment> {
    // Where fences do not reach the device, nothing says what is durable.
    if judge.is_closed || judge.is_killed || judge.is_relaxed {
        return Ok(Moment::Visible);
    }
    if judge.seal_words > 0 {
        // Every write is there, found by its seal.
        return Ok(Moment::Durable);
    }
    let before = judge.budget;
    for number in 0..judge.areas {
        match judge.is_visible(number) {
            Ok(true) => {}
            Ok(false) | Err(Error::Corrupt { .. }) => {
                judge.budget = before;
                return Ok(Moment::Durable);
            }
            Err(error) => return Err(error),
        }
    }
    judge.budget = before;
    Ok(Moment::Visible)
}

/// Visits every pair of a state.
fn read<M: Media>(
    judge: &mut Judge<'_, M>,
    moment: Moment,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Checked> {
    let header = Span::of_bytes(Addr::NULL, pool::DATA.byte());
    let mut spans = vec![header, layout::area_table(judge.table, judge.areas)];
    let mut items = 0;
    for number in 0..judge.areas {
        // What power loss would leave can be read too.
        judge.end(number, Moment::Durable)?;
        let area = judge.area(number, moment)?;
        items += area.visit(visit);
        spans.extend(area.spans);
    }
    let reachable_bytes = reachable_bytes(spans, judge.pm.media().bytes())?;
    Ok(Checked { items, reachable_bytes })
}

impl<M: Media> Judge<'_, M> {
    /// Returns whether what was stored last in an area is the newest of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not whole.
    fn is_visible(&mut self, number: u64) -> Result<bool> {
        Ok(!self.is_stale(number)? && self.area(number, Moment::Visible).map(|_| true)?)
    }

    /// Returns whether as much was read of the newest log as its visible tail covers.
    fn is_reached(&self, number: u64, area: &Area) -> bool {
        let visible = self.end(number, Moment::Visible).and_then(|end| {
            let (log, _) = self.log_head(number, end.tail)?;
            Ok((log, end.tail.count))
        });
        let reached =
            |(log, count): (u64, u64)| visible.is_ok_and(|it| it.0 == log && it.1 <= count);
        area.last.is_some_and(reached)
    }

    /// Reads an area as it is at a moment.
    fn area(&mut self, number: u64, moment: Moment) -> Result<Area> {
        let end = self.end(number, moment)?;
        let (info, record) = (&end.info, self.record(number));
        let logs = self.logs(number, &end)?;
        let mut spans: Vec<Span> = logs.iter().map(Log::span).collect();
        // Blind writes know nothing of what they replace.
        let is_estimated = INFO_ESTIMATED.get(info[Info::FLAGS]) == 1;
        let generation = |level| Generation { level, is_estimated, ..Generation::default() };
        let [mut old, mut new] = [info[Info::OLD], info[Info::LEVEL]].map(generation);
        let mut items = 0;
        let mut last = Replayed::default();
        // With every write durable, the tail is moved when a log ends.
        let goes_on = moment == Moment::Durable && self.seal_words > 0;
        for (position, log) in logs.iter().enumerate() {
            if position == 0 {
                items = log.head[LogHead::ITEMS];
            } else if !is_estimated && items != log.head[LogHead::ITEMS] {
                return Err(corrupt(log.at, "the count of live pairs in a log's head is true"));
            }
            let is_old = log.head[LogHead::NUMBER] <= info[Info::END];
            let generation = if is_old { &mut old } else { &mut new };
            last = self.replay(number, log, (logs.get(position + 1), goes_on), generation)?;
            items = items.wrapping_add_signed(last.changes);
        }
        if self.is_closed && moment == Moment::Visible {
            let found = Found { logs: &logs, generations: [&new, &old], items, last };
            spans.extend(self.checkpoint(number, &end, &found)?);
        }
        // What is newer hides what is older, tombstones too.
        let mut newest = old.newest;
        newest.extend(new.newest);
        if let Some(log) = logs.last()
            && log.ahead(&end) > 0
            && last.count > 0
        {
            return Err(log.lacks_info());
        }
        let last = logs.last().map(|log| (log.head[LogHead::NUMBER], last.count));
        let area = Area { newest, spans, last };
        match area.items() == items || is_estimated {
            true => Ok(area),
            false => Err(corrupt(record, "as many pairs are found as an area counts")),
        }
    }
}
