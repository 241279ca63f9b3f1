//! What a judge knows of a pool, and what the heads say of an area.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Access, Addr, Boot, LINE, Media, Pool, Region, Shutdown, Span};

use crate::common::check::{Budget, corrupt, verify_root};
use crate::common::hash::KeyedHash;
use crate::walsh::layout::{
    self, AreaRecord, Info, LOG_AREA, LOG_SEQUENCE, LogHead, MOST_LEVEL, ROOT, Root, Tail, VERSION,
};

/// Everything that the judge knows of a pool.
pub struct Judge<'a, M: Media> {
    pub pm: Access<'a, M>,
    pub form: Form,
    pub hasher: KeyedHash,
    pub seed: u64,
    /// Words behind each object.
    pub seal_words: u64,
    /// Directories of a block in a checkpoint.
    pub block_directories: u64,
    /// Whether the pool was closed: only then checkpoints count.
    pub is_closed: bool,
    /// Whether nothing but its process ended: all that it stored is there.
    pub is_killed: bool,
    /// Whether fences did not reach the device: what is durable may lead anywhere.
    pub is_relaxed: bool,
    /// Where the records of the areas begin.
    pub table: Addr,
    pub areas: u64,
    /// The epoch that counts, 0 if areas do.
    pub epoch: u64,
    /// What may still be read of logs and checkpoints.
    pub budget: Budget,
}

/// Which state of a pool is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// What was stored last: what a killed process leaves.
    Visible,
    /// What is durable for sure: what power loss leaves.
    Durable,
}

/// Where an area ends: its newest log, and its info.
pub struct End {
    pub tail: Tail,
    pub info: [u64; Info::WORDS],
}

/// A log: where it lies, its head, its objects.
pub struct Log {
    pub at: Addr,
    pub head: [u64; LogHead::WORDS],
    pub count: u64,
}

impl Log {
    /// Returns the most objects of the log.
    pub fn entries(&self) -> u64 {
        self.head[LogHead::SIZE] & u64::from(u32::MAX)
    }

    /// Returns by how much the info for the log's objects is ahead of the one that counts: a crash
    /// may have come before that info was whole, if there are no objects.
    pub fn ahead(&self, end: &End) -> u64 {
        let sequence = LOG_SEQUENCE.get(self.head[LogHead::OWNER]);
        sequence.saturating_sub(end.info[Info::SEQUENCE])
    }

    /// Returns the error of a log whose info is lost.
    pub fn lacks_info(&self) -> Error {
        corrupt(self.at, "no log is newer than the info of its area")
    }

    /// Returns what the log occupies.
    pub fn span(&self) -> Span {
        Span::of_bytes(self.at, (self.head[LogHead::SIZE] >> 32) * LINE)
    }
}

impl<'a, M: Media> Judge<'a, M> {
    /// Reads the root.
    pub fn new(region: &'a Region<M>, boot: Boot) -> Result<Self> {
        let status = Pool::status(region, boot)?;
        let (identity, pm) = (status.identity, region.access());
        let form = Form::from_code(identity.form);
        if !matches!(form, Form::WORDS | Form::DOUBLE_WORDS | Form::Variable) {
            return Err(corrupt(Addr::NULL, "pairs have one of the forms of the engine"));
        }
        let mut root = [0; Root::CHECKSUM + 1];
        pm.read_words(ROOT, &mut root)?;
        verify_root(&root, "walsh", VERSION)?;
        let Some(epoch) = layout::decode_epoch(pm.load(layout::EPOCH)?) else {
            return Err(corrupt(layout::EPOCH, "the check of an epoch matches"));
        };
        let Some(table) = Addr::from_medium(root[Root::AREA_TABLE]) else {
            return Err(corrupt(ROOT, "an address is a multiple of eight"));
        };
        let (areas, block_directories) = (root[Root::AREAS], root[Root::BLOCK_DIRECTORIES]);
        if !areas.is_power_of_two() || areas > 1 << 16 {
            return Err(corrupt(ROOT, "the number of areas is a power of two"));
        }
        if !block_directories.is_power_of_two() || block_directories > 1024 {
            return Err(corrupt(ROOT, "a block has up to 1024 directories, a power of two"));
        }
        Ok(Judge {
            form,
            hasher: KeyedHash::of(&identity)?,
            seed: layout::seed(identity.database),
            seal_words: layout::seal_words(root[Root::DURABILITY]),
            block_directories,
            is_closed: status.previous == Shutdown::Clean,
            is_killed: status.previous == Shutdown::Process,
            is_relaxed: status.relaxed,
            table,
            areas,
            epoch,
            budget: Budget::of(pm.media().bytes()),
            pm,
        })
    }

    /// Returns where the record of an area lies.
    pub fn record(&self, area: u64) -> Addr {
        layout::area_record(self.table, area)
    }

    /// Returns where an area ends at a moment.
    pub fn end(&self, area: u64, moment: Moment) -> Result<End> {
        let record = self.record(area);
        if moment == Moment::Durable && self.epoch > 0 {
            return self.cut(record);
        }
        let place = match moment {
            Moment::Visible => AreaRecord::VISIBLE_TAIL,
            Moment::Durable => AreaRecord::DURABLE_TAIL,
        };
        Ok(End { info: self.info(record)?, tail: self.tail(record.plus(place as u64))? })
    }

    /// Returns where an area ends at the epoch that counts.
    fn cut(&self, record: Addr) -> Result<End> {
        let place = [AreaRecord::EPOCH_B, AreaRecord::EPOCH_A][(self.epoch % 2) as usize];
        let (at, mut info) = (record.plus(place as u64), [0; Info::WORDS]);
        self.pm.read_words(at, &mut info)?;
        if !layout::is_sealed(&info, at, self.seed) {
            return Err(corrupt(at, "the checksum of an epoch's info matches"));
        }
        bound_levels(record, &info)?;
        Ok(End { info, tail: self.tail(at.plus(Info::TAIL as u64))? })
    }

    fn tail(&self, at: Addr) -> Result<Tail> {
        let tail = Tail::decode(self.pm.load(at)?, at);
        tail.ok_or_else(|| corrupt(at, "the check of a tail matches"))
    }

    fn info(&self, record: Addr) -> Result<[u64; Info::WORDS]> {
        let mut newest = [0; Info::WORDS];
        for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
            let at = record.plus(place as u64);
            let mut info = [0; Info::WORDS];
            self.pm.read_words(at, &mut info)?;
            let is_whole = layout::is_sealed(&info, at, self.seed);
            if self.is_closed && !is_whole {
                // Only a crash leaves half an info, and the other one may be the older of the two.
                return Err(corrupt(record, "the infos of an area are whole"));
            }
            if is_whole && info[Info::SEQUENCE] > newest[Info::SEQUENCE] {
                newest = info;
            }
        }
        if newest[Info::SEQUENCE] == 0 {
            return Err(corrupt(record, "one of two infos is whole"));
        }
        bound_levels(record, &newest)?;
        Ok(newest)
    }

    /// Returns whether what is visible of an area is older than what is durable: power was lost,
    /// and the words that are never flushed for their own sake are those of another time.
    pub fn is_stale(&self, area: u64) -> Result<bool> {
        let durable = self.end(area, Moment::Durable)?.tail;
        let End { tail: visible, info } = self.end(area, Moment::Visible)?;
        // Of an epoch it may lead to a log that has another use since: nothing can be said then.
        let Ok((number, _)) = self.log_head(area, durable) else { return Ok(false) };
        if visible.at.is_null() {
            // An area that was cleared begins behind all logs that it had.
            return Ok(number >= info[Info::START]);
        }
        let Ok((last, _)) = self.log_head(area, visible) else { return Ok(false) };
        let is_older = (last, visible.count) < (number, durable.count);
        Ok(is_older || last < info[Info::START])
    }

    /// Reads the head of the log that a tail names, and returns its number.
    pub fn log_head(&self, area: u64, tail: Tail) -> Result<(u64, [u64; LogHead::WORDS])> {
        let mut head = [0; LogHead::WORDS];
        self.pm.read_words(tail.at, &mut head)?;
        let owner = LOG_AREA.get(head[LogHead::OWNER]);
        match layout::is_sealed(&head, tail.at, self.seed) && owner == area {
            true => Ok((head[LogHead::NUMBER], head)),
            false => Err(corrupt(tail.at, "the checksum of a log's head matches")),
        }
    }

    /// Returns the logs of an area, oldest first.
    pub fn logs(&mut self, area: u64, end: &End) -> Result<Vec<Log>> {
        let mut logs = Vec::new();
        self.follow(area, end, &mut logs)?;
        logs.reverse();
        Ok(logs)
    }

    /// Adds the logs of an area to `logs`, newest first, up to what is damaged.
    pub fn follow(&mut self, area: u64, end: &End, logs: &mut Vec<Log>) -> Result<()> {
        let start = end.info[Info::START];
        let mut next = end.tail;
        // Each takes some of the budget.
        while !next.at.is_null() {
            let (number, head) = self.log_head(area, next)?;
            let log = Log { at: next.at, head, count: next.count };
            let may_be_ahead = logs.is_empty() && !self.is_closed;
            if log.ahead(end) > u64::from(may_be_ahead) {
                return Err(log.lacks_info());
            }
            let after = logs.last().map(|log| log.head[LogHead::NUMBER]);
            if after.is_none() && number < start {
                // The area was cleared after its last write.
                return Ok(());
            }
            if number < start || after.is_some_and(|after| after != number.wrapping_add(1)) {
                return Err(corrupt(log.at, "the logs of an area have successive numbers"));
            }
            self.bound(&log)?;
            let (at, previous) = (log.at, head[LogHead::PREVIOUS]);
            logs.push(log);
            if number == start {
                return Ok(());
            }
            let Some(before) = Tail::decode(previous, at) else {
                return Err(corrupt(at, "the logs of an area begin at the oldest"));
            };
            next = before;
        }
        match logs.is_empty() {
            true => Ok(()),
            false => Err(corrupt(end.tail.at, "the logs of an area begin at the oldest")),
        }
    }

    /// Demands that a log can be read.
    fn bound(&mut self, log: &Log) -> Result<()> {
        if log.count > log.entries() {
            return Err(corrupt(log.at, "a log has no more objects than it has room for"));
        }
        if log.span().words < layout::objects_offset(log.entries()) {
            return Err(corrupt(log.at, "a log has room for its directory log"));
        }
        self.take(log.span())
    }

    /// Notes that a span will be read.
    pub fn take(&mut self, span: Span) -> Result<()> {
        if span.end_byte() > self.pm.media().bytes() {
            return Err(corrupt(span.start, "what is in use lies inside the medium"));
        }
        self.budget.take(span)
    }
}

fn bound_levels(record: Addr, info: &[u64; Info::WORDS]) -> Result<()> {
    match info[Info::LEVEL].max(info[Info::OLD]) > u64::from(MOST_LEVEL) {
        true => Err(corrupt(record, "an area has at most 2^32 directories")),
        false => Ok(()),
    }
}
