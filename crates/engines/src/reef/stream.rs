//! A stream of segments as it is known in DRAM: which there are, and how far they are durable.

use std::collections::BTreeMap;

use everhash_pmem::{Addr, Span};

use super::layout::SegmentHead;

/// By which part of itself the medium grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(u64);

impl Step {
    /// While pairs are added, and each step is a sync.
    ///
    /// Source: ours; a file after a load is at most a sixteenth longer than it must be.
    pub const LOAD: Step = Step(16);

    /// While pairs are replaced, because collection is about to make room; and where a step is no
    /// sync, and costs little.
    ///
    /// Source: ours; of the space that a table may take at most, little is lost to the last step.
    pub const SMALL: Step = Step(32);

    /// Returns how much that is of a medium of `bytes` bytes: a page of a file at least. Unit:
    /// bytes.
    pub fn of(self, bytes: u64) -> u64 {
        (bytes / self.0).max(PAGE)
    }
}

/// The shortest step of a file.
///
/// Unit: bytes. Source: x86; a file consists of pages.
const PAGE: u64 = 4096;

/// Something on lines of its own.
#[repr(align(128))]
pub struct OwnLines<T>(pub(super) T);

/// So many appends to a stream by one thread after the other, and it writes the stream alone.
///
/// Unit: appends. Source: ours; two threads that append as often as they can do so in bursts, while
/// the lines are in the cache of one.
const ALONE: u8 = 64;

/// Who appended to a stream last, and how often nobody else did before.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    thread: u16,
    alone: u8,
}

impl Turns {
    /// Nobody has appended.
    pub const NONE: Turns = Turns { thread: u16::MAX, alone: ALONE };

    /// Notes an append by a thread; returns whether several append by turns.
    #[inline(always)]
    pub fn note(&mut self, thread: u32) -> bool {
        let thread = thread as u16;
        if self.thread == thread || self.thread == u16::MAX {
            self.alone = (self.alone + 1).min(ALONE);
        } else {
            self.alone = 0;
        }
        self.thread = thread;
        self.alone < ALONE
    }
}

/// A segment that takes objects. What every append looks at is first, as in [`Stream`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Open {
    /// Words in use, the head's among them.
    pub(super) fill: u64,
    /// Words whose memory is prepared.
    pub(super) renewed: u64,
    pub(super) span: Span,
    /// Its checksum.
    pub(super) seal: u64,
    /// Whether the piece behind these is being prepared: until it is, nothing is stored there, and
    /// the segment does not end.
    pub(super) is_preparing: bool,
    pub(super) turns: Turns,
    /// Whether it was begun out of what is kept back, or should be, to remove or to move: no pair
    /// is added before as much is kept back as should be.
    pub(super) is_borrowed: bool,
    pub(super) sequence: u64,
    /// Of those in use, words of tombstones.
    pub(super) tombstones: u64,
}

/// A full segment.
#[derive(Clone, Copy, Debug)]
pub struct Sealed {
    /// The whole units that are in use.
    pub(super) span: Span,
    pub(super) seal: u64,
    pub(super) fill: u64,
    pub(super) tombstones: u64,
    /// Whether nothing in it counts any more. It exists until that is durable.
    pub(super) is_empty: bool,
    /// Whether collecting it met damage: it stays as it is.
    pub(super) is_damaged: bool,
    /// Whether an opening found it, and ended it wherever it was filled to.
    pub(super) is_found: bool,
    /// The sequence of the newest segment when there was no room to move an object of this one.
    pub(super) refused_at: Option<u64>,
}

/// A segment that is collected.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub(super) stream: usize,
    pub(super) sequence: u64,
    pub(super) segment: Sealed,
    pub(super) is_oldest: bool,
    /// What is gained. Unit: words.
    pub(super) gain: u64,
    /// What was collected, the head included. Unit: words.
    pub(super) offset: u64,
}

impl Victim {
    /// A segment of which nothing is collected yet.
    pub(super) fn new(
        stream: usize,
        (sequence, segment): (u64, Sealed),
        is_oldest: bool,
        gain: u64,
    ) -> Self {
        let offset = SegmentHead::WORDS as u64;
        Victim { stream, sequence, segment, is_oldest, gain, offset }
    }

    /// What comes first gains most.
    pub(super) fn loss(&self) -> core::cmp::Reverse<u64> {
        core::cmp::Reverse(self.gain)
    }
}

/// A place in a stream: the sequence of a segment, and words in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    pub(super) sequence: u64,
    pub(super) fill: u64,
}

/// A stream of segments, in DRAM.
///
/// With two threads each line that an append changes comes from the other one's cache half the
/// time. All that every append looks at or changes is in the line of the latch, but for what tells
/// it to do more: that is in the next line, with what seldom changes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Stream {
    /// Bytes stored since the last cut.
    pub(super) pending: u64,
    pub(super) open: Option<Open>,
    /// Whether a segment was begun since somebody looked how much garbage there is.
    pub(super) has_news: bool,
    /// Whether there is so much that writers help.
    pub(super) is_behind: bool,
    /// Whether there may be enough for upkeep to collect.
    pub(super) is_due: bool,
    /// Whether pairs are replaced rather than added.
    pub(super) replaces: bool,
    pub(super) number: u64,
    /// Full segments by their sequence.
    pub(super) sealed: BTreeMap<u64, Sealed>,
    /// No object before this segment counts.
    pub(super) floor: u64,
    /// Sequence of the newest segment.
    pub(super) last: Position,
    /// The number of the epoch that has not begun to end.
    pub(super) epoch: u64,
    /// All before is durable.
    pub(super) durable: Position,
    /// Bytes stored before the last cut.
    pub(super) written: u64,
    /// Of them and of those since, bytes that collecting has moved.
    pub(super) moved: u64,
    /// Segments that exist as of the present epoch, and the exclusive or of their checksums.
    pub(super) census: (u64, u64),
    /// Emptied segments: free when the epoch as of which they are is durable.
    pub(super) emptied: Vec<(u64, Span)>,
    /// Segments that an epoch which never came has emptied: what says so now is not durable.
    pub(super) restored: Vec<Addr>,
    /// Unused ends of full segments: free when the tail is durable.
    pub(super) ends: Vec<Span>,
    /// What was written when upkeep found nothing to collect at rest. Unit: bytes.
    pub(super) tidied: Option<u64>,
    /// What was written when writers collected last, or began to. Unit: bytes.
    pub(super) paid: u64,
    /// The first place that collecting found damaged.
    pub(super) damaged: Option<Addr>,
}

impl Stream {
    /// Returns where the stream ends.
    pub fn position(&self) -> Position {
        match &self.open {
            Some(open) => Position { sequence: open.sequence, fill: open.fill },
            None => self.last,
        }
    }

    /// Returns how much room the newest segment has left. Unit: words.
    pub fn left(&self) -> u64 {
        self.open.map_or(0, |open| open.span.words - open.fill)
    }

    /// Returns what was written since the table was opened, but what collecting has moved. Unit:
    /// bytes.
    pub fn written(&self) -> u64 {
        self.written + self.pending - self.moved
    }

    /// Returns whether a segment is left alone for now: there was no room to move an object of it,
    /// and the stream has found room for no other segment since.
    pub fn is_refused(&self, segment: &Sealed) -> bool {
        segment.refused_at == Some(self.last.sequence)
    }

    /// Notes so many words of tombstones in a segment, if that is there.
    pub fn add_tombstones(&mut self, sequence: u64, words: u64) {
        match (&mut self.open, self.sealed.get_mut(&sequence)) {
            (Some(open), _) if open.sequence == sequence => open.tombstones += words,
            (_, Some(sealed)) => sealed.tombstones += words,
            _ => {}
        }
    }

    /// Notes whether writers help to collect.
    pub fn set_behind(&mut self, is_behind: bool) {
        if !self.is_behind {
            // Not all at once for what was written since they last did.
            self.paid = self.written();
        }
        self.is_behind = is_behind;
    }

    /// Returns how much room waits for the end of an epoch. Unit: bytes.
    pub fn waiting(&self) -> u64 {
        let emptied = self.emptied.iter().map(|(_, span)| span);
        emptied.chain(&self.ends).map(|span| span.bytes()).sum()
    }

    /// Notes that all before a position is durable.
    pub fn made_durable(&mut self, position: Position) {
        self.durable = self.durable.max(position);
    }

    /// Calls `flush` with what is not durable, in order, heads included: that of a segment when it
    /// has begun, and again when it has ended.
    pub fn not_durable(&self, mut flush: impl FnMut(Span)) {
        let is_begun = |sequence| sequence == self.durable.sequence;
        let mut part = |sequence, start: Addr, fill: u64| {
            let from = if is_begun(sequence) { self.durable.fill } else { 0 };
            if from < fill {
                flush(Span::new(start.plus(from), fill - from));
            }
        };
        for (sequence, sealed) in self.sealed.range(self.durable.sequence..) {
            part(*sequence, sealed.span.start, sealed.fill);
        }
        if let Some(open) = &self.open {
            part(open.sequence, open.span.start, open.fill);
        }
        if let Some(ended) = self.sealed.get(&self.durable.sequence) {
            flush(Span::new(ended.span.start, SegmentHead::WORDS as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use everhash_pmem::{LINE, WORD};

    use super::*;

    #[test]
    fn an_append_changes_one_line_of_its_stream() {
        // Fails if a field comes between those that every append looks at or changes: two threads
        // would wait for one line more of each other.
        assert_eq!(size_of::<Option<Open>>(), size_of::<Open>());
        let latch = WORD as usize;
        let end = offset_of!(Stream, open) + offset_of!(Open, is_borrowed) + size_of::<bool>();
        assert!(latch + end <= LINE as usize, "{end}");
        assert!(latch + offset_of!(Stream, is_behind) < 2 * LINE as usize);
    }

    #[test]
    fn what_is_durable_never_goes_back() {
        // Fails if of two immediate writes the one that returns last says so: what the other one
        // made durable would be flushed again.
        let mut stream = Stream::default();
        let position = |sequence, fill| Position { sequence, fill };
        for (told, durable) in [((1, 50), (1, 50)), ((2, 10), (2, 10)), ((1, 60), (2, 10))] {
            stream.made_durable(position(told.0, told.1));
            assert_eq!(stream.durable, position(durable.0, durable.1));
        }
    }

    #[test]
    fn what_collecting_moves_is_not_written_and_who_begins_to_help_owes_nothing() {
        // Fails if a table that is collected at rest seems to be written to, or if the first write
        // that helps pays for all before it.
        let mut stream = Stream { written: 100, pending: 50, moved: 30, ..Stream::default() };
        assert_eq!(stream.written(), 120);
        stream.set_behind(true);
        assert_eq!(stream.paid, 120);
        stream.pending += 24;
        stream.set_behind(true);
        assert_eq!(stream.paid, 120, "what is written since is owed");
    }
}
