//! The logs of a pool at rest: the lanes of the backup log, and the collecting logs.

use everhash_index::Result;
use everhash_pmem::{Addr, Media, Span};

use super::{COLLECTED, Judge, Logged};
use crate::common::check::corrupt;
use crate::elimda::layout::{
    self, BlockHead, CollectingLog, Control, Ended, Kind, LINE_WORDS, LOGS_LINK, LineState,
    LogLine, LogSlot,
};

impl<M: Media> Judge<'_, M> {
    /// Follows the blocks of a lane, and notes every live slot.
    pub(super) fn lane(&mut self, lane: u64) -> Result<()> {
        let link = layout::first_link(lane);
        let mut at = open_link(self.pm.load(link)?, link, Kind::First)?;
        let mut number = None;
        let most = self.pm.media().bytes() / self.geometry.block(Addr::NULL).bytes();
        for _ in 0..=most {
            if at.is_null() {
                break;
            }
            self.reach(self.geometry.block(at))?;
            let found = layout::open(self.pm.load(at)?, at, Kind::Number)
                .filter(|found| self.geometry.is_number(*found))
                .ok_or(corrupt(at, "the number of a block matches its check"))?;
            if number.is_some_and(|before| found != before + 1) {
                return Err(corrupt(at, "the numbers of blocks rise by one"));
            }
            number = Some(found);
            for line in 1..self.geometry.block_lines {
                let read = self.line(lane, at, found, line);
                self.pass(read)?;
            }
            let next = at.plus(BlockHead::NEXT as u64);
            at = open_link(self.pm.load(next)?, next, Kind::Next)?;
        }
        if !at.is_null() || number.is_none() {
            return Err(corrupt(link, "a lane has blocks and an end"));
        }
        Ok(())
    }

    fn line(&mut self, lane: u64, block: Addr, number: u64, line: u64) -> Result<()> {
        let geometry = self.geometry;
        let slots = geometry.slots_of_line(line);
        let at = LogSlot { line, slot: 0 }.line_at(block);
        let mut words = [0; LINE_WORDS as usize];
        self.pm.read_words(at, &mut words)?;
        let state = LineState::open(words[LogLine::STATE], at)
            .filter(|state| state.number <= number && state.live >> slots == 0)
            .ok_or(corrupt(at, "the state of a log line matches its check"))?;
        if state.number != number {
            return Ok(());
        }
        for slot in (0..slots).filter(|slot| state.live >> slot & 1 == 1) {
            let place = LogSlot { line, slot };
            let at = place.item_at(block, geometry.item_words);
            let hash = self.log_item(lane, at, place.check(words[LogLine::CHECKS]));
            if let Some(hash) = self.pass(hash)? {
                self.logged.push(Logged { hash, order: geometry.order(number, place), at });
            }
        }
        Ok(())
    }

    /// Returns the hash of the item of the log at `at`, whose key has this check.
    fn log_item(&self, lane: u64, at: Addr, check: u64) -> Result<u64> {
        let (geometry, item) = (self.geometry, self.item(at)?);
        if layout::key_check(&item, geometry.key_words as usize, at) != check {
            return Err(corrupt(at, "a key in the log matches its check"));
        }
        let hash = self.hash(&item);
        match geometry.lane_of(geometry.bucket_of(hash)) == lane {
            true => Ok(hash),
            false => Err(corrupt(at, "a key lies in the lane of its bucket")),
        }
    }

    /// Notes every live slot of the collecting logs.
    pub(super) fn collecting_logs(&mut self) -> Result<()> {
        let word = self.pm.load(LOGS_LINK)?;
        if word == 0 {
            return Ok(());
        }
        let area = layout::open_link(word, LOGS_LINK, Kind::Logs)
            .filter(|_| self.geometry.collecting_logs > 0)
            .ok_or(corrupt(LOGS_LINK, "the link to the collecting logs matches its check"))?;
        let logs = self.geometry.all_logs();
        self.reach(Span::new(area, logs * CollectingLog::WORDS as u64))?;
        for log in 0..logs {
            let read = self.collecting_log(self.geometry.collecting_log(area, log));
            self.pass(read)?;
        }
        Ok(())
    }

    fn collecting_log(&mut self, at: Addr) -> Result<()> {
        let geometry = self.geometry;
        let mut words = [0; CollectingLog::WORDS];
        self.pm.read_words(at, &mut words)?;
        let control = Control::open(words[CollectingLog::CONTROL], at)
            .filter(|control| control.reserved <= geometry.unit_slots)
            .ok_or(corrupt(at, "the control word of a collecting log matches its check"))?;
        let ended_at = at.plus(CollectingLog::ENDED as u64);
        let ended = Ended::open(words[CollectingLog::ENDED], at)
            .filter(|ended| ended.generation <= control.generation)
            .ok_or(corrupt(ended_at, "what has ended in a collecting log matches its check"))?;
        let live = control.written & !ended.of(control.generation);
        let mut collector = None;
        for slot in (0..geometry.unit_slots).filter(|slot| live >> slot & 1 == 1) {
            let first = CollectingLog::ITEMS + (slot * geometry.item_words) as usize;
            let mut item = [0; 4];
            item[..geometry.item_words as usize]
                .copy_from_slice(&words[first..first + geometry.item_words as usize]);
            let (hash, at) = (self.hash(&item), at.plus(first as u64));
            let own = geometry.collector_of(hash);
            if *collector.get_or_insert(own) != own {
                return Err(corrupt(at, "a collecting log holds keys of one collector"));
            }
            self.logged.push(Logged { hash, order: COLLECTED, at });
        }
        Ok(())
    }
}

fn open_link(word: u64, at: Addr, kind: Kind) -> Result<Addr> {
    layout::open_link(word, at, kind).ok_or(corrupt(at, "a link of the log matches its check"))
}
