//! Reading segments from one end to the other: large pieces are copied to memory, where objects are
//! taken apart.

use everhash_index::Result;
use everhash_pmem::{Access, Media, Span, WORD};

use super::found::FoundSegment;
use crate::common::ahead::Ahead;
use crate::reef::layout::{self, SegmentHead};
use crate::reef::objects::{Head, Objects};

/// How much is copied at once.
///
/// Unit: words. Source: ours; most of the nearest cache, and some hundred objects.
const PIECE: u64 = 4096;

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'s> {
    pub(super) segment: &'s FoundSegment,
    /// Words of the segment before the part.
    pub(super) from: u64,
    /// Words of the segment with it.
    pub(super) to: u64,
}

impl<'s> Part<'s> {
    /// The objects of a segment from one offset to another one.
    pub(super) fn new(segment: &'s FoundSegment, from: u64, to: u64) -> Self {
        Part { segment, from: from.max(SegmentHead::WORDS as u64), to }
    }

    /// Returns where it lies.
    pub(super) fn span(&self) -> Span {
        Span::new(self.segment.at.plus(self.from), self.to.saturating_sub(self.from))
    }
}

/// Reads parts of segments.
pub(super) struct Reader<'r, 'a, M: Media, I> {
    pm: &'r Access<'a, M>,
    ahead: Ahead<I>,
    bytes: Vec<u8>,
    /// The offset in the segment of the first of these. Unit: words.
    start: u64,
}

/// An object that a reader holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) head: Head,
    /// Where it begins in what the reader holds.
    pub(super) first: usize,
}

impl<'r, 'a, M: Media, I: Iterator<Item = Span>> Reader<'r, 'a, M, I> {
    /// Makes a reader of parts that lie in these spans.
    pub(super) fn new(pm: &'r Access<'a, M>, spans: I) -> Self {
        Reader { pm, ahead: Ahead::new(spans), bytes: Vec::new(), start: 0 }
    }

    /// Turns to the next part: holds nothing.
    pub(super) fn turn(&mut self, part: &Part<'_>) {
        self.bytes.clear();
        self.start = part.from;
    }

    /// Returns what is held.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the object at an offset of the part, if all of it is held; `None` if it is not, or
    /// if it is none. Its check is not looked at.
    #[inline(always)]
    pub(super) fn held(&self, objects: Objects, offset: u64) -> Option<Held> {
        let first = (offset.checked_sub(self.start)? * WORD) as usize;
        let bytes = self.bytes.get(first..)?;
        let head = objects.head_in(bytes)?;
        (head.words * WORD <= bytes.len() as u64).then_some(Held { head, first })
    }

    /// Holds the object at an offset of the part, and what comes behind it; forgets all before.
    /// Returns whether it can be one: whether it does not lead out of the part.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn hold(&mut self, objects: Objects, part: &Part<'_>, offset: u64) -> Result<bool> {
        let before = ((offset - self.start) * WORD) as usize;
        self.bytes.drain(..before.min(self.bytes.len()));
        self.start = offset;
        self.fill(part, PIECE)?;
        let Some(head) = objects.head_in(&self.bytes) else { return Ok(false) };
        // Lengths that lead out of the part are looked at before they are used.
        if head.words > part.to - offset {
            return Ok(false);
        }
        self.fill(part, head.words)?;
        Ok(true)
    }

    /// Holds at least so many words, or all of the part.
    fn fill(&mut self, part: &Part<'_>, words: u64) -> Result<()> {
        // Ends: each round holds more.
        loop {
            let end = self.start + self.bytes.len() as u64 / WORD;
            let count = PIECE.min(part.to - end);
            if count == 0 || end - self.start >= words {
                return Ok(());
            }
            self.ahead.reads(count * WORD, self.pm.media());
            let at = part.segment.at.plus(end);
            self.pm.read_bytes(at, count * WORD, &mut self.bytes)?;
        }
    }
}

impl Objects {
    /// Returns how many words of a segment hold sound objects, from `start` on and at most `words`,
    /// and if so asked up to the first one of an atomic batch.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn sound_until<M: Media>(
        &self,
        pm: &Access<'_, M>,
        segment: &FoundSegment,
        (start, words): (u64, u64),
        until_batch: bool,
    ) -> Result<u64> {
        let part = Part::new(segment, start, words);
        let mut reader = Reader::new(pm, [part.span()].into_iter());
        reader.turn(&part);
        let mut offset = part.from;
        // Ends: every object has a length, and what a reader was told to hold it holds.
        while offset < words {
            let Some(Held { head, first }) = reader.held(*self, offset) else {
                if !reader.hold(*self, &part, offset)? {
                    break;
                }
                continue;
            };
            let (bytes, at) = (&reader.bytes()[first..], segment.at.plus(offset));
            if until_batch && layout::is_batched(head.word)
                || self.key_in(bytes, &head, (at, segment.seal)).is_none()
            {
                break;
            }
            offset += head.words;
        }
        Ok(offset)
    }
}
