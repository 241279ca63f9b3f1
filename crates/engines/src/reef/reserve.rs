//! Room for segments, and what is kept back of it: on a medium without room, removing, clearing and
//! collecting must still work.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{AtomicWord, Lock, Media, Span};

use super::layout::SegmentHead;
use super::state::Reef;

/// For what room is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For more pairs: not what is kept back.
    Add,
    /// To remove: half of what is kept back.
    Remove,
    /// To collect or clear: all that is kept back. A clear leaves nothing to collect, and gives
    /// back more than it takes.
    Move,
}

/// Segments that are kept back for each stream: as many to remove as to collect.
///
/// Unit: segments. Source: ours; each stream fills one while it is emptied of others.
const KEPT: u64 = 2;

impl<M: Media> Reef<M> {
    /// Takes room for a segment with an object of `words` words.
    ///
    /// # Errors
    /// [`Error::Full`](everhash_index::Error::Full).
    pub(super) fn take_segment(&self, purpose: Purpose, words: u64) -> Result<Span> {
        let least = self.whole_units(SegmentHead::WORDS as u64 + words);
        if purpose == Purpose::Add {
            self.keep_back()?;
        }
        let span = match self.take_span(least) {
            Err(full @ Error::Full { .. }) if purpose != Purpose::Add => {
                let mut kept = self.kept.lock()?;
                let leave = match purpose {
                    Purpose::Move => 0,
                    _ => self.kept_bytes() / 2,
                };
                let bytes: u64 = kept.iter().map(|span| span.bytes()).sum();
                let fits = |span: &Span| span.bytes() >= least && bytes - span.bytes() >= leave;
                let place = kept.iter().position(fits).ok_or(full)?;
                kept.swap_remove(place)
            }
            span => span?,
        };
        self.used.fetch_add(span.bytes(), Ordering::Relaxed);
        Ok(span)
    }

    /// Takes a span of the usual length, or a shorter one where there are only such, of `least`
    /// bytes at least.
    fn take_span(&self, least: u64) -> Result<Span> {
        let mut bytes = self.segment_bytes().max(least);
        // Ends: at the latest, it is halved to the least.
        loop {
            match self.space.take(bytes, self.unit_bytes) {
                Err(everhash_pmem::Error::Full { .. }) if bytes > least => {
                    let half = (bytes / 2).next_multiple_of(self.unit_bytes);
                    bytes = if half < bytes { half.max(least) } else { least };
                }
                taken => return Ok(taken?.span),
            }
        }
    }

    /// Returns how much is kept back. Unit: bytes.
    fn kept_bytes(&self) -> u64 {
        KEPT * self.streams.len() as u64 * self.segment_bytes()
    }

    /// Ensures that enough is kept back.
    fn keep_back(&self) -> Result<()> {
        let mut kept = self.kept.lock()?;
        if kept.len() as u64 > 2 * KEPT * self.streams.len() as u64 {
            // Of a table that was small: long objects need long ones.
            kept.drain(..).for_each(|span| self.space.give(span));
        }
        let mut bytes: u64 = kept.iter().map(|span| span.bytes()).sum();
        while bytes < self.kept_bytes() {
            let span = self.take_span(self.unit_bytes)?;
            bytes += span.bytes();
            kept.push(span);
        }
        Ok(())
    }

    /// Gives room another use, to which nothing durable leads. What is kept back comes first:
    /// without it nothing could be collected.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub(super) fn give(&self, span: Span) -> Result<()> {
        self.units.set(span, 0, self.unit_bytes);
        self.used.fetch_sub(span.bytes(), Ordering::Relaxed);
        let mut kept = self.kept.lock()?;
        let bytes: u64 = kept.iter().map(|span| span.bytes()).sum();
        if bytes < self.kept_bytes() {
            kept.push(span);
        } else {
            self.space.give(span);
        }
        Ok(())
    }
}
