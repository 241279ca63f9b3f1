//! A judge of pools at rest: from the words on the medium to the pairs, or to what is broken.
//!
//! Shares the ruler with the code that serves the table, and nothing else.

mod objects;

use core::ops::Bound;
use std::collections::{BTreeMap, HashMap};

use everhash_index::{Checked, Error, Form, Result};
use everhash_pmem::{Access, Addr, Boot, Media, Pool, Region, Shutdown, Span, WORD, pool};

use self::objects::Object;
use super::layout::{
    self, BATCH, BatchRecord, Ended, Epoch, ROOT, Root, SIZE_STREAM, SIZE_UNITS, SegmentHead, Tail,
    VERSION,
};
use crate::common::check::{Budget, corrupt, reachable_bytes, verify_root};
use crate::common::hash::KeyedHash;

/// How much of a segment is looked at to find the objects behind damaged ones, in lengths of the
/// segment.
///
/// Source: ours; forged lengths of objects that are none would make the search quadratic.
const SEARCHED: u64 = 64;

/// Takes damage: an error ends the reading, otherwise what is damaged is passed over.
type Damage<'d> = &'d mut dyn FnMut(Error) -> Result<()>;

/// A commit record.
struct Record {
    number: u64,
    words: [u64; Epoch::WORDS],
}

/// A segment with a sound head.
struct Segment {
    at: Addr,
    head: [u64; SegmentHead::WORDS],
    /// Its checksum.
    seal: u64,
    /// The epoch as of which it is empty.
    freed: Option<u64>,
}

/// The newest value of each key, `None` for a tombstone.
type Newest = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// For each stream its segments, by their sequence.
type Streams<'s> = BTreeMap<u64, BTreeMap<u64, &'s Segment>>;

struct Judge<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    seed: u64,
    streams: u64,
    unit_bytes: u64,
    left: Left,
    /// Whether each write is durable when it returns.
    is_immediate: bool,
    /// Whether what is sound behind the durable end of a stream is read although something before
    /// it is not.
    salvages: bool,
}

/// How the pool was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It was closed: nothing counts but what its newest commit record knows.
    Closed,
    /// It is open, or only its process ended: whatever a segment says of its end is stored as a
    /// whole.
    Visible,
    /// Power may have failed.
    Power,
}

/// Visits every pair, or names the invariant that is broken.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn check<M: Media>(
    region: &Region<M>,
    boot: Boot,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Checked> {
    read(region, (at_rest(region, boot)?, false), visit, &mut Err)
}

/// Reads every pair of a pool that is open, and to which nobody writes meanwhile.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn check_open<M: Media>(region: &Region<M>) -> Result<Checked> {
    read(region, (Left::Visible, false), &mut |_, _| {}, &mut Err)
}

/// Returns how a pool was left.
fn at_rest<M: Media>(region: &Region<M>, boot: Boot) -> Result<Left> {
    match Pool::status(region, boot)?.previous {
        Shutdown::Clean => Ok(Left::Closed),
        Shutdown::Process => Ok(Left::Visible),
        Shutdown::Power => Ok(Left::Power),
    }
}

/// Visits every pair that is sound: a damaged object costs itself, and a damaged head its segment.
/// A pair that was replaced or removed by what is damaged is left out only if the key can still be
/// read there.
///
/// After power loss, what is not sound behind the durable end of a stream need not be damage; it is
/// reported if something sound lies behind it: a process may have been killed before.
///
/// # Errors
/// [`Error::Corrupt`] if the root, or both commit records, are damaged.
pub fn salvage<M: Media>(
    region: &Region<M>,
    boot: Boot,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut damage = |error| {
        report(error);
        Ok(())
    };
    read(region, (at_rest(region, boot)?, true), visit, &mut damage).map(drop)
}

fn read<M: Media>(
    region: &Region<M>,
    (left, salvages): (Left, bool),
    visit: &mut dyn FnMut(&[u8], &[u8]),
    damage: Damage<'_>,
) -> Result<Checked> {
    let identity = Pool::inspect(region)?;
    let pm = region.access();
    let mut root = [0; Root::CHECKSUM + 1];
    pm.read_words(ROOT, &mut root)?;
    verify_root(&root, "reef", VERSION)?;
    let (segment_bytes, streams) = (root[Root::SEGMENT_BYTES], root[Root::STREAMS]);
    let are_powers = segment_bytes.is_power_of_two() && streams.is_power_of_two();
    if !are_powers || segment_bytes > 1 << 40 || streams > layout::MOST_STREAMS {
        let broken = "segments have a length, and streams a number, that is a power of two";
        return Err(Error::Corrupt { at: ROOT.byte(), broken });
    }
    let judge = Judge {
        pm,
        form: Form::from_code(identity.form),
        hasher: KeyedHash::of(&identity)?,
        seed: layout::seed(identity.database),
        streams,
        unit_bytes: layout::unit_bytes(segment_bytes),
        left,
        is_immediate: root[Root::DURABILITY] != 0,
        salvages,
    };
    let (newest, reachable_bytes) = judge.newest(damage)?;
    let mut items = 0;
    for (key, value) in &newest {
        if let Some(value) = value {
            visit(key, value);
            items += 1;
        }
    }
    Ok(Checked { items, reachable_bytes })
}

impl<M: Media> Judge<'_, M> {
    /// Reads all objects that count by the newest commit record of which all is there.
    fn newest(&self, damage: Damage<'_>) -> Result<(Newest, u64)> {
        let (records, mut segments) = (self.records()?, self.segments()?);
        if let (Left::Visible, Some(newest)) = (self.left, records.first()) {
            self.reach_batch(newest, &mut segments)?;
        }
        let mut broken = None;
        for record in &records {
            let outcome = self
                .is_complete(record, &segments)
                .and_then(|()| self.replay(record, &segments, damage));
            match outcome {
                Ok(found) => return Ok(found),
                // Power may have failed while it was made durable: then the one before counts.
                Err(error) => broken = broken.or(Some(error)),
            }
            if self.left != Left::Power {
                break;
            }
        }
        match (records.first(), broken) {
            (Some(record), Some(broken)) => {
                damage(broken)?;
                self.replay(record, &segments, damage)
            }
            _ => {
                let broken = "one of the two commit records is sound";
                Err(Error::Corrupt { at: ROOT.plus(Root::EPOCH_A as u64).byte(), broken })
            }
        }
    }

    fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for place in 0..2 {
            let (at, mut words) = (layout::epoch_place(place), [0; Epoch::WORDS]);
            self.pm.read_words(at, &mut words)?;
            let sum = layout::sum(&words[..Epoch::CHECKSUM], at, self.seed);
            if sum == words[Epoch::CHECKSUM] && words[Epoch::NUMBER] % 2 == place {
                records.push(Record { number: words[Epoch::NUMBER], words });
            }
        }
        // The newest first.
        if records.is_sorted_by_key(|record| record.number) {
            records.reverse();
        }
        Ok(records)
    }

    /// Moves the tails to where the newest atomic batch has moved them: its process may have ended
    /// between two of them.
    fn reach_batch(&self, record: &Record, segments: &mut [Segment]) -> Result<()> {
        let mut batch = [0; BatchRecord::WORDS];
        self.pm.read_words(BATCH, &mut batch)?;
        let sum = layout::sum(&batch[..BatchRecord::CHECKSUM], BATCH, self.seed);
        let generations = [batch[BatchRecord::GENERATION], record.words[Epoch::GENERATION]];
        if sum != batch[BatchRecord::CHECKSUM] || generations[0] != generations[1] {
            return Ok(());
        }
        for segment in segments {
            let at = BatchRecord::TAILS + 2 * segment.stream() as usize;
            let tails = [segment.head[SegmentHead::TAIL], batch[at + 1]];
            if let [Some(old), Some(new)] = tails.map(|tail| Tail::of(tail, segment.seal))
                && batch[at] == segment.sequence()
                && new.words > old.words
            {
                segment.head[SegmentHead::TAIL] = batch[at + 1];
            }
        }
        Ok(())
    }

    /// Returns every segment whose head is sound, wherever one may begin.
    fn segments(&self) -> Result<Vec<Segment>> {
        let (first, end) = (pool::DATA.byte(), self.pm.media().bytes());
        let holes = self.pm.media().costly_holes();
        let mut segments = Vec::new();
        let mut byte = first.next_multiple_of(self.unit_bytes);
        while byte + self.unit_bytes <= end {
            let (at, mut head) = (Addr::new(byte), [0; SegmentHead::WORDS]);
            if !layout::lies_in(at, &holes) {
                self.pm.read_words(at, &mut head)?;
            }
            let seal = layout::sum(&head[..SegmentHead::TAIL], at, self.seed);
            let freed = layout::freed_of(head[SegmentHead::CHECKSUM], seal);
            let is_head = head[SegmentHead::CHECKSUM] == seal || freed.is_some();
            if layout::may_begin(head[SegmentHead::MAGIC]) && is_head {
                let plain = layout::plain_head(&head);
                head[..SegmentHead::TAIL].copy_from_slice(&plain);
                let units = SIZE_UNITS.get(head[SegmentHead::SIZE]);
                let stream = SIZE_STREAM.get(head[SegmentHead::SIZE]);
                if units == 0 || units > (end - byte) / self.unit_bytes || stream >= self.streams {
                    let broken = "a segment lies inside the pool and belongs to a stream";
                    return Err(Error::Corrupt { at: byte, broken });
                }
                segments.push(Segment { at, head, seal, freed });
            }
            byte += self.unit_bytes;
        }
        Ok(segments)
    }

    fn exists(&self, segment: &Segment, record: &Record) -> bool {
        segment.freed.is_none_or(|epoch| epoch > record.number)
    }

    /// Demands that every segment is there of which a commit record knows.
    fn is_complete(&self, record: &Record, segments: &[Segment]) -> Result<()> {
        let (mut count, mut seals) = (0, 0);
        for segment in segments.iter().filter(|segment| self.exists(segment, record)) {
            if segment.sequence() <= record.tail(segment.stream())[0] {
                count += 1;
                seals ^= segment.seal;
            }
        }
        if [count, seals] != record.words[Epoch::SEGMENTS..=Epoch::SEALS] {
            let at = layout::epoch_place(record.number).byte();
            let broken = "every segment of a commit record is there";
            return Err(Error::Corrupt { at, broken });
        }
        Ok(())
    }

    fn replay(
        &self,
        record: &Record,
        segments: &[Segment],
        damage: Damage<'_>,
    ) -> Result<(Newest, u64)> {
        let medium_bytes = self.pm.media().bytes();
        let mut budget = Budget::behind_header(medium_bytes);
        let mut newest = Newest::new();
        let mut spans = vec![Span::of_bytes(Addr::NULL, pool::DATA.byte())];
        for (number, stream) in self.streams_of(record, segments)? {
            let tail = record.tail(number);
            let last = self.last(&stream, tail[0], record);
            let heads = stream.range(..=last).map(|(_, it)| it.head[SegmentHead::FLOOR]);
            let floor = heads.max().unwrap_or(0);
            let mut cut = None;
            if self.left == Left::Visible {
                self.goes_on(&stream, tail[0]).or_else(&mut *damage)?;
            }
            for (sequence, segment) in stream.range(..=last) {
                let Some((words, certain)) = self.words_of(segment, record) else {
                    let broken = "a segment ends inside its units, and not before its record says";
                    damage(corrupt(segment.at, broken))?;
                    continue;
                };
                let whole = |words: u64| {
                    let bytes = (words * WORD).next_multiple_of(self.unit_bytes);
                    Span::of_bytes(segment.at, bytes)
                };
                if let Err(error) = budget.take(whole(words)) {
                    damage(error)?;
                    continue;
                }
                if *sequence < floor {
                    spans.push(whole(words));
                    continue;
                }
                let words = (words, certain);
                let end = self.objects(segment, words, &mut newest, (&mut cut, damage))?;
                spans.push(whole(end));
                if !self.salvages {
                    // Behind the last object of a segment may lie anything.
                    cut = None;
                }
            }
        }
        let reachable = reachable_bytes(spans, medium_bytes).or_else(|error| {
            damage(error)?;
            Ok::<u64, Error>(0)
        })?;
        Ok((newest, reachable))
    }

    /// Returns for each stream the segments that exist, by their sequence.
    fn streams_of<'s>(&self, record: &Record, segments: &'s [Segment]) -> Result<Streams<'s>> {
        let mut streams = Streams::new();
        for segment in segments.iter().filter(|segment| self.exists(segment, record)) {
            let stream = streams.entry(segment.stream()).or_default();
            if stream.insert(segment.sequence(), segment).is_some() {
                return Err(corrupt(segment.at, "no two segments of a stream have one number"));
            }
        }
        Ok(streams)
    }

    /// Demands that a stream goes on without a gap behind the segment `last`, in which its commit
    /// record has it end, to one that no other was to follow.
    fn goes_on(&self, stream: &BTreeMap<u64, &Segment>, last: u64) -> Result<()> {
        let (mut next, mut end) = (last, stream.get(&last));
        for (sequence, segment) in stream.range((Bound::Excluded(last), Bound::Unbounded)) {
            next = next.wrapping_add(1);
            if *sequence != next {
                let broken = "the segments of a stream have consecutive numbers";
                return Err(corrupt(segment.at, broken));
            }
            end = Some(segment);
        }
        let is_followed = |segment: &&&Segment| {
            Tail::of(segment.head[SegmentHead::TAIL], segment.seal)
                .is_some_and(|tail| tail.ended == Ended::Followed)
        };
        match end.filter(is_followed) {
            Some(end) => Err(corrupt(end.at, "the segment is there that follows a full one")),
            None => Ok(()),
        }
    }

    /// Returns the last segment of a stream that counts, if its commit record has it end in `last`:
    /// behind that, one that follows without a gap.
    fn last(&self, stream: &BTreeMap<u64, &Segment>, last: u64, record: &Record) -> u64 {
        let behind = stream.range((Bound::Excluded(last), Bound::Unbounded));
        let mut next = last;
        for (sequence, segment) in behind {
            if *sequence != next.wrapping_add(1) || !self.goes_behind(segment, record) {
                break;
            }
            next = *sequence;
        }
        next
    }

    /// Returns whether something may count that lies in a segment behind the end of its stream in a
    /// commit record. After power loss, of batches nothing does, and of immediate writes only those
    /// of the opening that wrote the record.
    fn goes_behind(&self, segment: &Segment, record: &Record) -> bool {
        match self.left {
            Left::Closed => false,
            Left::Visible => true,
            Left::Power => {
                let generation = segment.head[SegmentHead::GENERATION];
                let is_same = generation == record.words[Epoch::GENERATION];
                self.salvages || self.is_immediate && is_same
            }
        }
    }

    /// Returns how many words of a segment may be in use by a commit record, and how many of these
    /// are for certain; `None` if it is damaged.
    fn words_of(&self, segment: &Segment, record: &Record) -> Option<(u64, u64)> {
        let tail = record.tail(segment.stream());
        let order = segment.sequence().cmp(&tail[0]);
        let goes_behind = self.goes_behind(segment, record);
        let least = if order.is_eq() && goes_behind { tail[1] } else { 0 };
        let most = self.most_words(segment);
        let said = Tail::of(segment.head[SegmentHead::TAIL], segment.seal);
        // Only a process that was killed may have begun a segment and not ended the one before.
        let has_ended = said.is_some_and(|tail| tail.ended != Ended::Not);
        if order.is_lt() && !has_ended && self.left != Left::Visible && !self.salvages {
            return None;
        }
        // Immediate writes do not move the tail while they fill a segment. And where a process was
        // killed, it may be as power loss before that had left it.
        let is_open = self.is_immediate && said.is_some_and(|tail| tail.ended == Ended::Not);
        let is_visible = self.left == Left::Visible;
        let possible = if is_open || is_visible { 0 } else { least }..=most;
        let said = said.map(|tail| tail.words).filter(|words| possible.contains(words));
        let (words, certain) = match self.left {
            _ if order.is_eq() && !goes_behind => (tail[1], tail[1]),
            // Power loss may have kept an older end, or none, in a head that is sound.
            Left::Power if order.is_ge() => {
                (said.filter(|_| self.salvages && !is_open).unwrap_or(most), least)
            }
            Left::Visible => {
                let certain = said?.max(least);
                (if is_open { most } else { certain }, certain)
            }
            _ => (said?, said?),
        };
        (least..=most).contains(&words).then_some((words, certain))
    }

    fn most_words(&self, segment: &Segment) -> u64 {
        SIZE_UNITS.get(segment.head[SegmentHead::SIZE]) * (self.unit_bytes / WORD)
    }

    /// Reads the objects of a segment, of which `certain` words are sound unless they are damaged.
    /// `cut` takes the first object behind these that is not; it is damage only if a sound one
    /// comes behind it, for which nobody looks but salvage. Returns where the objects end that were
    /// read. Unit: words.
    fn objects(
        &self,
        segment: &Segment,
        (words, certain): (u64, u64),
        newest: &mut Newest,
        (cut, damage): (&mut Option<Error>, Damage<'_>),
    ) -> Result<u64> {
        let (mut offset, mut search) = (SegmentHead::WORDS as u64, SEARCHED * words);
        // Ends: every object has a length, and a search goes forward.
        while offset < words {
            let at = segment.at.plus(offset);
            let broken = match self.object(at, segment.seal, words - offset)? {
                Some(Object { kind: None, words, .. }) => {
                    cut.take().map_or(Ok(()), &mut *damage)?;
                    offset += words;
                    continue;
                }
                Some(object) if self.stream_of(&object.key) == segment.stream() => {
                    if offset >= certain && object.is_batched && !self.salvages {
                        // It counts only under a commit record.
                        return Ok(offset);
                    }
                    cut.take().map_or(Ok(()), &mut *damage)?;
                    newest.insert(object.key, object.value);
                    offset += object.words;
                    continue;
                }
                Some(_) => "a key lies in its stream",
                None => "the check of an object matches",
            };
            let error = Error::Corrupt { at: at.byte(), broken };
            if offset < certain {
                damage(error)?;
                self.bury(at, words - offset, newest)?;
            } else {
                cut.get_or_insert(error);
                if !self.salvages {
                    return Ok(offset);
                }
            }
            offset = self.next_object(segment, (offset + 1, words), &mut search)?;
        }
        Ok(words)
    }

    /// Leaves out the older pair of the key that a damaged object of at most `left` words seems to
    /// have, if there is one: that was replaced or removed.
    fn bury(&self, at: Addr, left: u64, newest: &mut Newest) -> Result<()> {
        let lengths = self.lengths(at, left)?.filter(|lengths| lengths.kind.is_some());
        let Some(lengths) = lengths else { return Ok(()) };
        let mut key = Vec::new();
        self.pm.read_bytes(at.plus(lengths.head_words), lengths.key_bytes, &mut key)?;
        if let Some(older) = newest.get_mut(&key) {
            *older = None;
        }
        Ok(())
    }

    fn stream_of(&self, key: &[u8]) -> u64 {
        self.hasher.bytes(key) >> 52 & (self.streams - 1)
    }
}

impl Record {
    /// Returns the last segment of a stream, and how many words of it count.
    fn tail(&self, stream: u64) -> [u64; 2] {
        let first = Epoch::TAILS + 2 * stream as usize;
        [self.words[first], self.words[first + 1]]
    }
}

impl Segment {
    fn sequence(&self) -> u64 {
        self.head[SegmentHead::SEQUENCE]
    }

    fn stream(&self) -> u64 {
        SIZE_STREAM.get(self.head[SegmentHead::SIZE])
    }
}
