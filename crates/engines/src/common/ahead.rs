//! Announcing what is read in a known order, a little ahead of it. Where a medium reads scattered
//! pieces of a slow device by themselves, a long read of neighbours would wait for each of them.

use everhash_pmem::{Addr, Hints, Span, WORD};

/// How much is announced and not read yet, at most.
///
/// Unit: bytes. Source: ours; what a device of a gigabyte a second reads in 8 ms, so that a wait of
/// its queue is no wait of ours. All readers of an opening together hold little memory with it.
const WINDOW: u64 = 8 << 20;

/// How much is announced at once.
///
/// Unit: bytes. Source: ours; several reads of the device, and few calls of the system.
const PIECE: u64 = 1 << 20;

/// What will be read: spans, one behind the other.
pub(crate) struct Ahead<I> {
    spans: I,
    /// What is left of the span that is being announced.
    rest: Span,
    /// What was announced and not read. Unit: bytes.
    lead: u64,
}

impl<I: Iterator<Item = Span>> Ahead<I> {
    /// Nothing is announced yet.
    pub(crate) fn new(spans: impl IntoIterator<IntoIter = I>) -> Self {
        Ahead { spans: spans.into_iter(), rest: Span::new(Addr::NULL, 0), lead: 0 }
    }

    /// Announces what comes behind, before the next `bytes` bytes are read. These should be a small
    /// part of the window.
    pub(crate) fn reads(&mut self, bytes: u64, hints: &impl Hints) {
        // In whole pieces: the last one of a span may be shorter, and the next call goes on.
        while self.lead + PIECE <= WINDOW {
            if self.rest.words == 0 {
                match self.spans.next() {
                    Some(span) => self.rest = span,
                    None => break,
                }
            }
            let piece = Span::new(self.rest.start, self.rest.words.min(PIECE / WORD));
            hints.will_read(piece);
            self.rest = Span::new(piece.start.plus(piece.words), self.rest.words - piece.words);
            self.lead += piece.bytes();
        }
        self.lead = self.lead.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[derive(Default)]
    struct Heard(RefCell<Vec<Span>>);

    impl Hints for Heard {
        fn will_read(&self, span: Span) {
            self.0.borrow_mut().push(span);
        }
    }

    #[test]
    fn what_is_read_was_announced_once_and_not_long_before() {
        // Fails if a byte is read that was not announced, if one is announced twice or none that is
        // asked for, or if more than a window waits for its reader.
        const STEP: u64 = 64 << 10;
        let span = |at: u64, bytes| Span::of_bytes(Addr::new(at), bytes);
        // Out of order, as the segments of a stream are, and of all lengths.
        let spans = [span(1 << 30, 20 << 20), span(64, 0), span(8 << 20, 72), span(0, 5 << 20)];
        let (heard, mut ahead) = (Heard::default(), Ahead::new(spans));
        let total: u64 = spans.iter().map(|span| span.bytes()).sum();
        let mut read = 0;
        while read < total {
            let bytes = STEP.min(total - read);
            ahead.reads(bytes, &heard);
            read += bytes;
            let announced: u64 = heard.0.borrow().iter().map(|span| span.bytes()).sum();
            assert!(announced >= read, "{announced} announced, {read} read");
            assert!(announced - read <= WINDOW);
        }
        let (mut joined, heard) = (Vec::<Span>::new(), heard.0.into_inner());
        for piece in heard.into_iter().filter(|piece| piece.words > 0) {
            match joined.last_mut().filter(|last| last.end_byte() == piece.start.byte()) {
                Some(last) => last.words += piece.words,
                None => joined.push(piece),
            }
        }
        assert_eq!(joined, [spans[0], spans[2], spans[3]]);
    }
}
