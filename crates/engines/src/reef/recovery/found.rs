//! What lies on the medium: commit records, and the heads of segments.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, WORD, pool};

use crate::reef::layout::{
    self, BATCH, BatchRecord, Ended, Epoch, SIZE_STREAM, SIZE_UNITS, SegmentHead, Tail,
};
use crate::reef::reader::Part;
use crate::reef::setup::ReefSettings;
use crate::reef::stream::Position;

/// The highest sequence of a segment that is accepted.
///
/// Unit: segments. Source: ours; as [`layout::MOST_EPOCHS`], with some thousands for each.
const MOST_SEGMENTS: u64 = 1 << 52;

/// A commit record that is sound.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) number: u64,
    pub(super) generation: u64,
    /// How many segments there are, and the exclusive or of their checksums.
    pub(super) census: (u64, u64),
    /// Where each stream ends.
    pub(super) tails: Vec<Position>,
    /// About how many pairs there were.
    pub(super) pairs: u64,
    /// Where the newest checkpoint begins, and its checksum. Unit of the first: bytes.
    pub(super) checkpoint: (u64, u64),
}

/// A segment whose head is sound.
#[derive(Clone, Copy, Debug)]
pub struct FoundSegment {
    pub(super) at: Addr,
    pub(super) stream: u64,
    pub(super) sequence: u64,
    pub(super) units: u64,
    pub(super) unit_bytes: u64,
    pub(super) floor: u64,
    /// Of the opening of the pool in which it was begun.
    pub(super) generation: u64,
    pub(super) seal: u64,
    /// The epoch as of which it is empty.
    pub(super) freed: Option<u64>,
    tail: u64,
}

impl FoundSegment {
    /// Returns the error of a segment that is damaged.
    pub(super) fn corrupt(&self, broken: &'static str) -> Error {
        Error::Corrupt { at: self.at.byte(), broken }
    }

    /// Returns how long the segment is. Unit: words.
    pub(super) fn words(&self) -> u64 {
        self.units * (self.unit_bytes / WORD)
    }

    /// Returns its objects from one offset to another one.
    pub(super) fn part(&self, from: u64, to: u64) -> Part {
        Part::new((self.at, self.seal), from, to)
    }

    /// Returns what the word in its head says.
    pub(super) fn tail(&self) -> Result<Tail> {
        let broken = "the check of a segment's tail matches";
        Tail::of(self.tail, self.seal).ok_or_else(|| self.corrupt(broken))
    }

    /// Moves the tail to where an atomic batch has moved it, or was about to.
    pub(super) fn reach(&mut self, tails: &[(u64, u64)]) {
        let Some((sequence, word)) = tails.get(self.stream as usize) else { return };
        let (Some(new), Ok(old)) = (Tail::of(*word, self.seal), self.tail()) else { return };
        if *sequence == self.sequence && new.words > old.words {
            self.tail = *word;
        }
    }

    /// Returns the words in use of a segment that has ended.
    pub(super) fn ended(&self) -> Result<u64> {
        match self.tail()? {
            Tail { ended: Ended::Not, .. } => {
                Err(self.corrupt("a segment that is not the last one has ended"))
            }
            tail => Ok(tail.words),
        }
    }

    /// Demands that so many words may be in use.
    pub(super) fn bound(&self, words: u64) -> Result<()> {
        match (SegmentHead::WORDS as u64..=self.words()).contains(&words) {
            true => Ok(()),
            false => Err(self.corrupt("a segment ends behind its head and inside its units")),
        }
    }
}

/// Returns the commit records that are sound, newest first.
pub(super) fn read_records<M: Media>(pm: &Access<'_, M>, seed: u64) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for place in 0..2 {
        let at = layout::epoch_place(place);
        let mut words = [0; Epoch::WORDS];
        pm.read_words(at, &mut words)?;
        let number = words[Epoch::NUMBER];
        let is_sound = layout::sum(&words[..Epoch::CHECKSUM], at, seed) == words[Epoch::CHECKSUM];
        if !is_sound || number % 2 != place || number > layout::MOST_EPOCHS {
            continue;
        }
        let tails = words[Epoch::TAILS..Epoch::PAIRS].chunks_exact(2);
        let tails = tails.map(|tail| Position { sequence: tail[0], fill: tail[1] });
        if tails.clone().any(|tail| tail.sequence > MOST_SEGMENTS) {
            continue;
        }
        records.push(Record {
            number,
            generation: words[Epoch::GENERATION],
            census: (words[Epoch::SEGMENTS], words[Epoch::SEALS]),
            tails: tails.collect(),
            pairs: words[Epoch::PAIRS],
            checkpoint: (words[Epoch::CHECKPOINT], words[Epoch::CHECKPOINT + 1]),
        });
    }
    // The newest first.
    if records.is_sorted_by_key(|record| record.number) {
        records.reverse();
    }
    Ok(records)
}

/// Returns for each stream the sequence and the tail of its last segment with the newest atomic
/// batch of this opening of the pool; nothing if there was none.
pub(super) fn read_batch<M: Media>(
    pm: &Access<'_, M>,
    generation: u64,
    seed: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut words = [0; BatchRecord::WORDS];
    pm.read_words(BATCH, &mut words)?;
    let sum = layout::sum(&words[..BatchRecord::CHECKSUM], BATCH, seed);
    if sum != words[BatchRecord::CHECKSUM] || words[BatchRecord::GENERATION] != generation {
        return Ok(Vec::new());
    }
    let tails = words[BatchRecord::TAILS..BatchRecord::SPARE].chunks_exact(2);
    Ok(tails.map(|tail| (tail[0], tail[1])).collect())
}

/// Returns every segment whose head is sound.
///
/// Looks at each unit, but for those of segments that count by themselves: of a table with few free
/// units it looks at little more than heads.
pub(super) fn find_segments<M: Media>(
    pm: &Access<'_, M>,
    settings: &ReefSettings,
    seed: u64,
) -> Result<Vec<FoundSegment>> {
    let unit_bytes = settings.unit_bytes();
    let end = pm.media().bytes() / unit_bytes;
    let mut unit = pool::DATA.byte().div_ceil(unit_bytes);
    let holes = pm.media().costly_holes();
    let mut segments = Vec::new();
    while unit < end {
        let at = Addr::new(unit * unit_bytes);
        let found = match !layout::lies_in(at, &holes) && layout::may_begin(pm.load(at)?) {
            true => read_head(pm, at, settings, seed)?,
            false => None,
        };
        unit += 1;
        if let Some(segment) = found {
            if segment.freed.is_none() && segment.sequence < u64::MAX {
                // What lies in the units in use is no head, whatever it looks like.
                let used = Tail::of(segment.tail, segment.seal).map_or(0, |tail| tail.words * WORD);
                unit += used.div_ceil(unit_bytes).min(segment.units).saturating_sub(1);
            }
            segments.push(segment);
        }
    }
    Ok(segments)
}

fn read_head<M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    settings: &ReefSettings,
    seed: u64,
) -> Result<Option<FoundSegment>> {
    let mut head = [0; SegmentHead::WORDS];
    pm.read_words(at, &mut head)?;
    let seal = layout::sum(&head[..SegmentHead::TAIL], at, seed);
    let freed = layout::freed_of(head[SegmentHead::CHECKSUM], seal);
    if head[SegmentHead::CHECKSUM] != seal && freed.is_none() {
        return Ok(None);
    }
    let (unit_bytes, plain) = (settings.unit_bytes(), layout::plain_head(&head));
    let (stream, units) =
        (SIZE_STREAM.get(plain[SegmentHead::SIZE]), SIZE_UNITS.get(plain[SegmentHead::SIZE]));
    let sequence = plain[SegmentHead::SEQUENCE];
    let is_inside = units > 0
        && units <= (pm.media().bytes() - at.byte()) / unit_bytes
        && stream < settings.streams
        && (1..=MOST_SEGMENTS).contains(&sequence);
    if !is_inside {
        let broken = "a segment lies inside the pool and belongs to a stream";
        return Err(Error::Corrupt { at: at.byte(), broken });
    }
    Ok(Some(FoundSegment {
        at,
        stream,
        sequence,
        units,
        unit_bytes,
        floor: plain[SegmentHead::FLOOR],
        generation: plain[SegmentHead::GENERATION],
        seal,
        freed,
        tail: head[SegmentHead::TAIL],
    }))
}
