//! A judge of pools at rest: from the words on the medium to the pairs, or to what is broken.
//!
//! Shares the rulers with the code that serves the table, and nothing else.

use std::collections::BTreeMap;

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, Media, Pool, RecordWord, Region, Span, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{
    self, BlockHead, CollectingLog, Control, EXTENTS, Ended, Geometry, KeyedHash, Kind, LINE_WORDS,
    LOGS_LINK, LineState, LogLine, LogSlot, Prefix, ROOT, Root, SECOND_WORD, UnitHead, UnitState,
    VERSION, record,
};

/// The order of what is in a collecting log. What the backup log or a unit holds of the same key
/// counts instead: a crash came between the two steps of a move, or of an update.
const COLLECTED: u64 = u64::MAX;

/// Everything that the judge knows of a pool.
struct Judge<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    geometry: Geometry,
    /// What is in use.
    spans: Vec<Span>,
    /// Live slots of the log, by bucket and segment: hash, order number, where the item lies.
    logged: Vec<Logged>,
    /// Damaged records so far, if they are passed over.
    damages: Option<Vec<Error>>,
}

/// A live slot of the log.
struct Logged {
    hash: u64,
    order: u64,
    at: Addr,
}

/// A segment that counts.
struct Segment {
    at: Addr,
    prefix: Prefix,
}

/// A pair, and how new it is.
struct Pair {
    value: Vec<u8>,
    order: u64,
}

/// Visits every pair once. What a crash may leave to recovery is passed over.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let mut judge = Judge::new(region)?;
    let items = judge.pairs(visit)?;
    Ok(Checked { items, reachable_bytes: judge.reachable_bytes()? })
}

/// As [`check`], but passes over damaged records, each of which costs its pair. Damage to the
/// structure ends the reading: the segments before it are visited.
///
/// # Errors
/// [`Error::Corrupt`] if the root is damaged.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut judge = Judge::new(region)?;
    judge.damages = Some(Vec::new());
    let read = judge.pairs(visit);
    judge.damages.take().into_iter().flatten().for_each(&mut *report);
    pass_over(read, report)
}

impl<'a, M: Media> Judge<'a, M> {
    fn new(region: &'a Region<M>) -> Result<Self> {
        let identity = Pool::inspect(region)?;
        let form = Form::from_code(identity.form);
        let pm = region.access();
        let mut root = [0; Root::WORDS];
        pm.read_words(ROOT, &mut root)?;
        let settings: Vec<u8> =
            root[..Root::CHECKSUM].iter().flat_map(|word| word.to_le_bytes()).collect();
        if xxh3_64_with_seed(&settings, ROOT.byte()) != root[Root::CHECKSUM] {
            let at = ROOT.plus(Root::CHECKSUM as u64);
            return Err(corrupt(at, "the checksum of the settings matches"));
        }
        if root[Root::VERSION] != VERSION {
            let what = format!("layout {} of engine elimda", root[Root::VERSION]);
            return Err(Error::Unsupported { what });
        }
        let geometry = Geometry::of_root(&root, form)
            .ok_or(corrupt(ROOT, "the settings of a table are in range"))?;
        let hasher = KeyedHash::of(&identity)?;
        let spans = vec![Span::of_bytes(Addr::NULL, pool::DATA.byte())];
        Ok(Judge { pm, form, hasher, geometry, spans, logged: Vec::new(), damages: None })
    }

    /// Visits every pair once; returns how many there are.
    fn pairs(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let segments = self.segments()?;
        (0..self.geometry.lanes).try_for_each(|lane| self.lane(lane))?;
        self.collecting_logs()?;
        self.logged.sort_by_key(|logged| (logged.hash, logged.order));
        let logged = core::mem::take(&mut self.logged);
        let (mut items, mut first) = (0, 0);
        for segment in &segments {
            let count = logged[first..].partition_point(|one| one.hash <= segment.prefix.last());
            let pairs = self.segment(segment, &logged[first..first + count])?;
            first += count;
            items += pairs.len() as u64;
            pairs.iter().for_each(|(key, pair)| visit(key, &pair.value));
        }
        Ok(items)
    }

    /// Notes that a span is in use. It is checked here that it lies inside the pool, so that what
    /// is made of it is in proportion to the pool.
    fn reach(&mut self, span: Span) -> Result<()> {
        if span.end_byte() > self.pm.media().bytes() {
            return Err(corrupt(span.start, "everything lies inside the pool"));
        }
        self.spans.push(span);
        Ok(())
    }

    /// Finds the segments that count, in the order of their hashes.
    fn segments(&mut self) -> Result<Vec<Segment>> {
        let mut named = Vec::new();
        let mut extents = 0;
        for extent in 0..EXTENTS {
            let link = layout::extent_link(extent);
            let word = self.pm.load(link)?;
            if word == 0 {
                continue;
            }
            let at = layout::open_link(word, link, Kind::Extent)
                .filter(|_| extents == extent)
                .ok_or(corrupt(link, "extents follow one another, with checks that match"))?;
            extents += 1;
            let initial = self.geometry.initial_segments;
            self.reach(Span::of_bytes(at, layout::extent_bytes(initial, extent)))?;
            for index in 0..layout::extent_slots(initial, extent) {
                let slot = at.plus(index);
                let word = self.pm.load(slot)?;
                if word != 0 {
                    let at = layout::open_link(word, slot, Kind::Slot)
                        .ok_or(corrupt(slot, "a slot of the segment table matches its check"))?;
                    let prefix = Prefix::open(self.pm.load(at)?, at)
                        .ok_or(corrupt(at, "the head of a segment matches its check"))?;
                    named.push(Segment { at, prefix });
                }
            }
        }
        named.sort_by_key(|segment| (segment.prefix.start(), segment.prefix.depth));
        let mut kept: Vec<Segment> = Vec::new();
        for segment in named {
            let next = kept.last().map_or(Some(0), |last| last.prefix.last().checked_add(1));
            if next == Some(segment.prefix.start()) {
                self.reach(self.geometry.segment(segment.at))?;
                kept.push(segment);
                continue;
            }
            // A split that a crash has cut short leaves the upper half beside the whole.
            if kept.last().is_none_or(|whole| segment.prefix != whole.prefix.half(true)) {
                return Err(corrupt(segment.at, "each hash belongs to one segment"));
            }
        }
        if kept.last().is_none_or(|last| last.prefix.last() != u64::MAX) {
            return Err(corrupt(ROOT, "each hash belongs to one segment"));
        }
        Ok(kept)
    }

    /// Follows the blocks of a lane, and notes every live slot.
    fn lane(&mut self, lane: u64) -> Result<()> {
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
                self.line(lane, at, found, line)?;
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
        let at = LogSlot { line, slot: 0 }.line_at(block);
        let mut words = [0; LINE_WORDS as usize];
        self.pm.read_words(at, &mut words)?;
        let state = LineState::open(words[LogLine::STATE], at)
            .filter(|state| state.number <= number && state.live >> geometry.line_slots() == 0)
            .ok_or(corrupt(at, "the state of a log line matches its check"))?;
        if state.number != number {
            return Ok(());
        }
        for slot in (0..geometry.line_slots()).filter(|slot| state.live >> slot & 1 == 1) {
            let place = LogSlot { line, slot };
            let at = place.item_at(block, geometry.item_words);
            let mut item = [0; 4];
            self.pm.read_words(at, &mut item[..geometry.item_words as usize])?;
            let check = layout::key_check(&item, geometry.key_words as usize, at);
            if place.check(words[LogLine::CHECKS]) != check {
                return Err(corrupt(at, "a key in the log matches its check"));
            }
            let hash = self.hash(&item);
            if geometry.lane_of(geometry.bucket_of(hash)) != lane {
                return Err(corrupt(at, "a key lies in the lane of its bucket"));
            }
            self.logged.push(Logged { hash, order: geometry.order(number, place), at });
        }
        Ok(())
    }

    /// Notes every live slot of the collecting logs.
    fn collecting_logs(&mut self) -> Result<()> {
        let word = self.pm.load(LOGS_LINK)?;
        if word == 0 {
            return Ok(());
        }
        let area = layout::open_link(word, LOGS_LINK, Kind::Logs)
            .filter(|_| self.geometry.collecting_logs > 0)
            .ok_or(corrupt(LOGS_LINK, "the link to the collecting logs matches its check"))?;
        let logs = self.geometry.all_logs();
        self.reach(Span::new(area, logs * CollectingLog::WORDS as u64))?;
        (0..logs).try_for_each(|log| self.collecting_log(self.geometry.collecting_log(area, log)))
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

    fn hash(&self, item: &[u64; 4]) -> u64 {
        match self.form {
            Form::WORDS => self.hasher.word(item[0]),
            Form::DOUBLE_WORDS => self.hasher.two_words([item[0], item[1]]),
            _ => item[0],
        }
    }

    /// Returns the pairs of a segment: those of its units, and what the log holds above the
    /// watermarks.
    fn segment(&mut self, segment: &Segment, logged: &[Logged]) -> Result<BTreeMap<Vec<u8>, Pair>> {
        let geometry = self.geometry;
        let lap_at = geometry.lap_at(segment.at);
        let lap = layout::open_lap(self.pm.load(lap_at)?, lap_at)
            .ok_or(corrupt(lap_at, "the lap of a segment matches its check"))?;
        let mut watermarks = Vec::new();
        for bucket in 0..geometry.buckets {
            let at = geometry.watermark_at(segment.at, bucket);
            let word = self.pm.load(at)?;
            let watermark = layout::open(word, at, Kind::Watermark);
            watermarks.push(watermark.ok_or(corrupt(at, "a watermark matches its check"))?);
        }
        let mut pairs = BTreeMap::new();
        for unit in 0..geometry.segment_units {
            let at = geometry.unit_at(segment.at, unit);
            let (Some(_), Some(state)) =
                (self.state(geometry.commit_of(segment.at, unit), lap)?, self.state(at, lap)?)
            else {
                continue;
            };
            if state.bucket >= geometry.buckets || state.live >> geometry.unit_slots != 0 {
                return Err(corrupt(at, "the state of a unit is in range"));
            }
            let mark = at.plus(UnitHead::WATERMARK as u64);
            let watermark = layout::open(self.pm.load(mark)?, mark, Kind::Watermark)
                .ok_or(corrupt(mark, "a watermark matches its check"))?;
            let absorbed = &mut watermarks[state.bucket as usize];
            *absorbed = watermark.max(*absorbed);
            for slot in (0..geometry.unit_slots).filter(|slot| state.live >> slot & 1 == 1) {
                let item_at = geometry.unit_item(at, slot);
                let hash = self.pair(item_at, 0, &mut pairs)?;
                if !segment.prefix.covers(hash) || geometry.bucket_of(hash) != state.bucket {
                    return Err(corrupt(item_at, "a key lies in the bucket it hashes to"));
                }
            }
        }
        for logged in logged {
            if logged.order > watermarks[geometry.bucket_of(logged.hash) as usize] {
                self.pair(logged.at, logged.order, &mut pairs)?;
            }
        }
        Ok(pairs)
    }

    /// Returns the state of a unit in a segment with this lap, or `None` if the unit is free.
    fn state(&self, at: Addr, lap: u64) -> Result<Option<UnitState>> {
        UnitState::of_lap(self.pm.load(at)?, at, lap)
            .ok_or(corrupt(at, "the state of a unit matches its check"))
    }

    /// Adds the pair of the item at `at`; returns its hash. Of 16-byte pairs the newer one counts,
    /// where a crash came between it and the end of the older one.
    fn pair(&mut self, at: Addr, order: u64, pairs: &mut BTreeMap<Vec<u8>, Pair>) -> Result<u64> {
        let mut item = [0; 4];
        self.pm.read_words(at, &mut item[..self.geometry.item_words as usize])?;
        let hash = self.hash(&item);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (key, value): (Vec<u8>, Vec<u8>) = match self.form {
            Form::WORDS => (bytes(&item[..1]), bytes(&item[1..2])),
            Form::DOUBLE_WORDS => (bytes(&item[..2]), bytes(&item[2..])),
            _ => match (self.record(&item, at), &mut self.damages) {
                (Err(damage @ Error::Corrupt { .. }), Some(damages)) => {
                    damages.push(damage);
                    return Ok(hash);
                }
                (read, _) => read?,
            },
        };
        if order == COLLECTED && pairs.get(&key).is_some_and(|moved| moved.order != COLLECTED) {
            return Ok(hash);
        }
        self.reach_record(&item, at)?;
        let newer = Pair { value, order };
        let older = pairs.insert(key, newer);
        match older {
            Some(older) if self.form != Form::DOUBLE_WORDS || older.order >= order => {
                Err(corrupt(at, "a key is there once"))
            }
            _ => Ok(hash),
        }
    }

    /// Notes that the record of an item is in use.
    fn reach_record(&mut self, item: &[u64; 4], at: Addr) -> Result<()> {
        if self.form != Form::Variable {
            return Ok(());
        }
        match RecordWord::from_medium(at.plus(SECOND_WORD), item[1])? {
            Some(pointer) => self.reach(Span::of_bytes(pointer.addr, pointer.class.bytes())),
            None => Ok(()),
        }
    }

    fn record(&self, item: &[u64; 4], at: Addr) -> Result<(Vec<u8>, Vec<u8>)> {
        let (hash, word) = (item[0], item[1]);
        let pointer = RecordWord::from_medium(at.plus(SECOND_WORD), word)?
            .filter(|pointer| pointer.tag == record::tag_of(hash, word))
            .ok_or(corrupt(at.plus(SECOND_WORD), "a record word matches its check"))?;
        let mut key = Vec::new();
        let key_bytes = record::read(&self.pm, pointer, hash, &mut key)?;
        let value = key.split_off(key_bytes);
        if self.hasher.bytes(&key) != hash {
            return Err(corrupt(at, "an item holds the hash of its key"));
        }
        Ok((key, value))
    }

    /// Returns how many bytes are in use, which lie apart from one another.
    fn reachable_bytes(mut self) -> Result<u64> {
        self.spans.sort_unstable();
        for pair in self.spans.windows(2) {
            if pair[0].end_byte() > pair[1].start.byte() {
                return Err(corrupt(pair[1].start, "nothing lies in two places"));
            }
        }
        Ok(self.spans.iter().map(|span| span.bytes()).sum())
    }
}

fn open_link(word: u64, at: Addr, kind: Kind) -> Result<Addr> {
    layout::open_link(word, at, kind).ok_or(corrupt(at, "a link of the log matches its check"))
}

fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}
