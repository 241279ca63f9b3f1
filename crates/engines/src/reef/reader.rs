//! Reading parts of segments: pieces are copied to memory, where objects are taken apart.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media, Span, WORD};

use super::layout::{self, SegmentHead};
use super::objects::{Head, Objects};
use crate::common::ahead::Ahead;

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where the segment begins.
    pub(super) at: Addr,
    /// The checksum of the segment.
    pub(super) seal: u64,
    /// Words of the segment before the part.
    pub(super) from: u64,
    /// Words of the segment with it.
    pub(super) to: u64,
}

impl Part {
    /// The objects of a segment from one offset to another one.
    pub(super) fn new((at, seal): (Addr, u64), from: u64, to: u64) -> Self {
        Part { at, seal, from: from.max(SegmentHead::WORDS as u64), to }
    }

    /// Returns where it lies.
    pub(super) fn span(&self) -> Span {
        Span::new(self.at.plus(self.from), self.to.saturating_sub(self.from))
    }
}

/// Reads parts of segments, each from one end to the other.
pub struct Reader<'r, 'a, M: Media, I> {
    pm: &'r Access<'a, M>,
    objects: Objects,
    /// How much is copied at once. Unit: words.
    piece: u64,
    ahead: Ahead<I>,
    part: Part,
    bytes: Vec<u8>,
    /// The offset in the segment of the first of these. Unit: words.
    start: u64,
}

/// An object that a reader holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub(super) at: Addr,
    pub(super) head: Head,
    /// Where it begins in what the reader holds.
    pub(super) first: usize,
}

impl<'r, 'a, M: Media, I: Iterator<Item = Span>> Reader<'r, 'a, M, I> {
    /// Makes a reader that copies `piece` words at once, of parts that lie in these spans.
    pub(super) fn new(
        pm: &'r Access<'a, M>,
        objects: Objects,
        piece: u64,
        spans: impl IntoIterator<IntoIter = I>,
    ) -> Self {
        let (ahead, part) = (Ahead::new(spans), Part::new((Addr::NULL, 0), 0, 0));
        Reader { pm, objects, piece, ahead, part, bytes: Vec::new(), start: 0 }
    }

    /// Turns to a part: holds nothing of it yet.
    pub(super) fn turn(&mut self, part: Part) {
        self.bytes.clear();
        (self.start, self.part) = (part.from, part);
    }

    /// Returns what is held.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the object at an offset of the segment, if all of it is held; `None` if it is not,
    /// or if it is none. Its check is not looked at.
    #[inline(always)]
    pub(super) fn held(&self, offset: u64) -> Option<Held> {
        let first = (offset.checked_sub(self.start)? * WORD) as usize;
        let bytes = self.bytes.get(first..)?;
        let head = self.objects.head_in(bytes)?;
        let held = Held { at: self.part.at.plus(offset), head, first };
        (head.words * WORD <= bytes.len() as u64).then_some(held)
    }

    /// Returns the key of an object that is held; `None` if the object is damaged.
    #[inline(always)]
    pub(super) fn key(&self, held: &Held) -> Option<&[u8]> {
        let bytes = &self.bytes[held.first..];
        self.objects.key_in(bytes, &held.head, (held.at, self.part.seal))
    }

    /// Holds the object at an offset of the segment, and what comes behind it; forgets all before.
    /// Returns whether it can be one: whether it does not lead out of the part.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn hold(&mut self, offset: u64) -> Result<bool> {
        let before = ((offset - self.start) * WORD) as usize;
        self.bytes.drain(..before.min(self.bytes.len()));
        self.start = offset;
        self.fill(self.piece)?;
        let Some(head) = self.objects.head_in(&self.bytes) else { return Ok(false) };
        // Lengths that lead out of the part are looked at before they are used.
        if head.words > self.part.to - offset {
            return Ok(false);
        }
        self.fill(head.words)?;
        Ok(true)
    }

    /// Holds at least so many words, or all of the part.
    fn fill(&mut self, words: u64) -> Result<()> {
        // Ends: each round holds more.
        loop {
            let end = self.start + self.bytes.len() as u64 / WORD;
            let count = self.piece.min(self.part.to - end);
            if count == 0 || end - self.start >= words {
                return Ok(());
            }
            self.ahead.reads(count * WORD, self.pm.media());
            self.pm.read_bytes(self.part.at.plus(end), count * WORD, &mut self.bytes)?;
        }
    }

    /// Returns where the sound objects of the part end, or if so asked, the first one of an atomic
    /// batch begins. Unit: words of the segment.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn sound_until(&mut self, until_batch: bool) -> Result<u64> {
        let mut offset = self.part.from;
        // Ends: every object has a length, and what a reader was told to hold it holds.
        while offset < self.part.to {
            let Some(held) = self.held(offset) else {
                if !self.hold(offset)? {
                    break;
                }
                continue;
            };
            let ends = until_batch && layout::is_batched(held.head.word);
            if ends || self.key(&held).is_none() {
                break;
            }
            offset += held.head.words;
        }
        Ok(offset)
    }
}
