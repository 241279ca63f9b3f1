//! What a medium says of an area: decoded and bounded, and nothing is changed.
//!
//! A checksum keeps damage away and not malice. So every address, length, number and level is
//! bounded before it is used: by the length of the medium, or by what no table can reach.

use std::collections::VecDeque;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, LINE, Media, Shutdown, Span};

use crate::walsh::epochs::epoch_place;
use crate::walsh::layout::{
    self, AreaRecord, INFO_ESTIMATED, Info, LOG_AREA, LOG_SEQUENCE, LogHead, MOST_ENTRIES,
    MOST_LEVEL, Tail,
};
use crate::walsh::logs::{corrupt, info_place};
use crate::walsh::state::NewInfo;

/// Numbers of infos, logs and epochs stay below.
///
/// Unit: none. Source: ours; a million each second are as many in four years, and one more always
/// fits the 48 bits of a log's head.
pub const MOST_NUMBER: u64 = 1 << 47;

/// The record of an area.
pub struct DecodedRecord {
    /// The newest log and its objects.
    pub tail: Tail,
    pub info: NewInfo,
    /// The highest sequence of any info.
    pub sequence: u64,
    /// Where infos lie of which there is a part only. Unit: words of the record.
    pub broken: Vec<u64>,
    /// Whether the words that change with every write differ.
    pub is_cut: bool,
    /// Whether the newest log is one for the info that comes next: it has no objects then.
    pub is_ahead: bool,
}

/// The head of a log, and how many of its objects count.
pub struct LogHeader {
    pub at: Addr,
    pub head: [u64; LogHead::WORDS],
    pub count: u64,
}

impl LogHeader {
    pub fn number(&self) -> u64 {
        self.head[LogHead::NUMBER]
    }

    /// Returns the sequence of the info that was whole before the first object of the log.
    pub fn sequence(&self) -> u64 {
        LOG_SEQUENCE.get(self.head[LogHead::OWNER])
    }

    pub fn span(&self) -> Span {
        Span::of_bytes(self.at, (self.head[LogHead::SIZE] >> 32) * LINE)
    }

    pub fn entries(&self) -> u64 {
        self.head[LogHead::SIZE] & u64::from(u32::MAX)
    }
}

/// Reads areas.
pub struct Reader<'r, 'a, M: Media> {
    pub pm: &'r Access<'a, M>,
    pub seed: u64,
    pub shutdown: Shutdown,
    /// The epoch that counts, 0 if areas do.
    pub epoch: u64,
}

impl<M: Media> Reader<'_, '_, M> {
    /// Reads the record of an area: after a killed process what was stored last, else what is
    /// durable for sure.
    pub fn record(&self, record: Addr) -> Result<DecodedRecord> {
        let mut newest: Option<(u64, NewInfo)> = None;
        let mut broken = Vec::new();
        for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
            let at = record.plus(place as u64);
            let mut info = [0; Info::WORDS];
            self.pm.read_words(at, &mut info)?;
            let sequence = info[Info::SEQUENCE];
            if !layout::is_sealed(&info, at, self.seed) || info_place(sequence) != place as u64 {
                broken.push(place as u64);
            } else if newest.is_none_or(|(before, _)| before < sequence) {
                newest = Some((sequence, decode_info(&info, at)?));
            }
        }
        if self.shutdown == Shutdown::Clean && !broken.is_empty() {
            // Nothing but a crash leaves half an info, and the recovery after it completes that.
            return Err(corrupt(record, "the infos of an area are whole"));
        }
        if self.shutdown == Shutdown::Process || self.epoch == 0 {
            let (sequence, info) =
                newest.ok_or_else(|| corrupt(record, "one of two infos is whole"))?;
            let place = match self.shutdown {
                Shutdown::Process => AreaRecord::VISIBLE_TAIL,
                Shutdown::Clean | Shutdown::Power => AreaRecord::DURABLE_TAIL,
            };
            let tail = self.tail(record.plus(place as u64))?;
            let (is_cut, is_ahead) = (false, false);
            return Ok(DecodedRecord { tail, info, sequence, broken, is_cut, is_ahead });
        }
        let at = record.plus(epoch_place(self.epoch));
        let mut cut = [0; Info::WORDS];
        self.pm.read_words(at, &mut cut)?;
        if !layout::is_sealed(&cut, at, self.seed) {
            return Err(corrupt(at, "the checksum of an epoch's info matches"));
        }
        let tail = self.tail(at.plus(Info::TAIL as u64))?;
        let info = decode_info(&cut, at)?;
        let sequence = newest.map_or(0, |(sequence, _)| sequence).max(cut[Info::SEQUENCE]);
        Ok(DecodedRecord { tail, info, sequence, broken, is_cut: true, is_ahead: false })
    }

    fn tail(&self, place: Addr) -> Result<Tail> {
        let tail = Tail::decode(self.pm.load(place)?, place);
        tail.ok_or_else(|| corrupt(place, "the check of a tail matches"))
    }

    /// Follows the logs of an area from the newest to the oldest; returns them oldest first.
    pub fn logs(&self, area: u64, record: &mut DecodedRecord) -> Result<VecDeque<LogHeader>> {
        let mut logs: VecDeque<LogHeader> = VecDeque::new();
        let mut next = record.tail;
        // Numbers fall from one to the next, so that none comes twice: no more than lines.
        while !next.at.is_null() {
            let log = self.log(area, next)?;
            let is_ahead = log.sequence() > record.sequence;
            // Phase 1 of a rehash begins a log and then writes the info that it is for. Whether the
            // log has objects is not known yet: they may lie behind the tail.
            let may_be_ahead = logs.is_empty()
                && self.shutdown != Shutdown::Clean
                && !record.is_cut
                && log.sequence() == record.sequence + 1;
            if is_ahead && !may_be_ahead {
                return Err(info_is_lost(log.at));
            }
            record.is_ahead |= is_ahead;
            let (number, at) = (log.number(), next.at);
            if logs.is_empty() && number < record.info.start {
                // The area was cleared, and its tail has not heard of it yet.
                return Ok(logs);
            }
            if logs.front().is_some_and(|after| after.number() != number.wrapping_add(1)) {
                return Err(corrupt(at, "the logs of an area have successive numbers"));
            }
            let previous = log.head[LogHead::PREVIOUS];
            logs.push_front(log);
            next = Tail::default();
            if number != record.info.start {
                next = Tail::decode(previous, at)
                    .filter(|before| !before.at.is_null())
                    .ok_or_else(|| corrupt(at, "the logs begin at the oldest"))?;
            }
        }
        Ok(logs)
    }

    /// Reads the head of a log.
    fn log(&self, area: u64, tail: Tail) -> Result<LogHeader> {
        let mut head = [0; LogHead::WORDS];
        self.pm.read_words(tail.at, &mut head)?;
        let owner = LOG_AREA.get(head[LogHead::OWNER]);
        if !layout::is_sealed(&head, tail.at, self.seed) || owner != area {
            return Err(corrupt(tail.at, "the checksum of a log's head matches"));
        }
        let log = LogHeader { at: tail.at, head, count: tail.count };
        if log.count > log.entries().min(MOST_ENTRIES) {
            return Err(corrupt(tail.at, "a log has no more objects than it has room for"));
        }
        if log.span().words < layout::objects_offset(log.entries()) {
            return Err(corrupt(tail.at, "a log has room for its directory log"));
        }
        if log.span().end_byte() > self.pm.media().bytes() {
            return Err(corrupt(tail.at, "a log lies inside the medium"));
        }
        if log.number() >= MOST_NUMBER {
            return Err(corrupt(tail.at, "logs are numbered from 1 on"));
        }
        Ok(log)
    }
}

/// Returns the error of an area whose log says that there was a newer info.
pub fn info_is_lost(log: Addr) -> Error {
    corrupt(log, "no log is newer than the info of its area")
}

fn decode_info(info: &[u64; Info::WORDS], at: Addr) -> Result<NewInfo> {
    let most = u64::from(MOST_LEVEL);
    if info[Info::LEVEL] > most || info[Info::OLD] > most {
        return Err(corrupt(at, "an area has at most 2^32 directories"));
    }
    if info[Info::SEQUENCE].max(info[Info::START]).max(info[Info::END]) >= MOST_NUMBER {
        return Err(corrupt(at, "infos and logs are numbered from 1 on"));
    }
    Ok(NewInfo {
        start: info[Info::START],
        end: info[Info::END],
        levels: [info[Info::LEVEL] as u32, info[Info::OLD] as u32],
        estimated: INFO_ESTIMATED.get(info[Info::FLAGS]) == 1,
    })
}
