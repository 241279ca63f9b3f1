//! The verbs of a medium, on a traced one.

use core::sync::atomic::Ordering;

use super::{Traced, TracedContext, Verb};
use crate::crash::{FREED, How, What};
use crate::media::{Block, Guarantees, Hints, Holes, Media, Simulation};
use crate::{Addr, Error, LINE, Primitives, Result, Site, Span, WORD};

/// A window of words of a [`Traced`] medium.
pub struct TracedBlock<'a, P: Primitives, const N: usize> {
    medium: &'a Traced<P>,
    cx: TracedContext,
    start: Addr,
}

impl<P: Primitives, const N: usize> Clone for TracedBlock<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitives, const N: usize> Copy for TracedBlock<'_, P, N> {}

impl<P: Primitives, const N: usize> TracedBlock<'_, P, N> {
    fn word(&self, index: usize) -> usize {
        assert!(index < N, "index {index} lies outside a block of {N} words");
        self.start.word() as usize + index
    }
}

impl<P: Primitives, const N: usize> Block<N> for TracedBlock<'_, P, N> {
    fn start(&self) -> Addr {
        self.start
    }

    fn load(&self, index: usize) -> u64 {
        self.medium.load(self.cx, self.word(index))
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.medium.load(self.cx, self.word(index))
    }

    fn store(&self, index: usize, value: u64) {
        self.medium.store(self.cx, self.word(index), value, How::Plain, None);
    }

    fn commit_word(&self, index: usize, value: u64, site: Site) {
        self.medium.store(self.cx, self.word(index), value, How::Commit, Some(site));
    }

    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        site: Site,
    ) -> core::result::Result<u64, u64> {
        self.medium.compare_exchange(self.cx, self.word(index), (current, new), site)
    }
}

impl<P: Primitives> Media for Traced<P> {
    type Sync = P;
    type Context = TracedContext;
    type Block<'a, const N: usize>
        = TracedBlock<'a, P, N>
    where
        Self: 'a;

    fn context(&self) -> TracedContext {
        let access = self.accesses.fetch_add(1, Ordering::Relaxed);
        TracedContext { thread: P::thread(), access }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn guarantees(&self) -> Guarantees {
        self.model.guarantees()
    }

    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a TracedContext,
        at: Addr,
    ) -> Result<Self::Block<'a, N>> {
        self.window(at, N as u64)?;
        Ok(TracedBlock { medium: self, cx: *cx, start: at })
    }

    fn read_words(&self, cx: &TracedContext, at: Addr, out: &mut [u64]) -> Result<()> {
        let words = self.window(at, out.len() as u64)?;
        for (target, word) in out.iter_mut().zip(words) {
            *target = self.load(*cx, word);
        }
        Ok(())
    }

    fn write_words(&self, cx: &TracedContext, at: Addr, words: &[u64]) -> Result<()> {
        for (word, value) in self.window(at, words.len() as u64)?.zip(words) {
            self.store(*cx, word, *value, How::Plain, None);
        }
        Ok(())
    }

    fn write_words_nt(
        &self,
        cx: &TracedContext,
        at: Addr,
        words: &[u64],
        site: Site,
    ) -> Result<()> {
        for (word, value) in self.window(at, words.len() as u64)?.zip(words) {
            self.store(*cx, word, *value, How::NonTemporal, Some(site));
        }
        Ok(())
    }

    fn flush(&self, cx: &TracedContext, span: Span, site: Site) {
        self.step();
        let lines = span.lines();
        let end = lines.end.min(self.bytes().div_ceil(LINE));
        if lines.start < end {
            self.recorder().flush(*cx, lines.start as u32..end as u32, site);
        }
    }

    fn fence(&self, cx: &TracedContext, site: Site) -> Result<()> {
        self.step();
        self.recorder().wait(*cx, Verb::Fence, site);
        Ok(())
    }

    fn sync(&self, cx: &TracedContext, site: Site) -> Result<()> {
        self.step();
        self.recorder().wait(*cx, Verb::Sync, site);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.step();
        let mut recorder = self.recorder();
        let target = bytes.checked_next_multiple_of(LINE);
        let Some(target) = target.filter(|target| *target <= self.words.len() as u64 * WORD) else {
            return Err(Error::Full { needed: bytes.saturating_sub(self.bytes()) });
        };
        if target > self.bytes() {
            recorder.note(P::thread(), None, What::Grow { bytes: target });
            self.bytes.store(target, Ordering::Release);
        }
        Ok(())
    }
}

impl<P: Primitives> Hints for Traced<P> {}

impl<P: Primitives> Holes for Traced<P> {
    /// Makes the whole lines of every second span zero, and leaves those of the others as they
    /// are: an engine must live with both.
    fn release(&self, span: Span) {
        self.step();
        let mut recorder = self.recorder();
        let words =
            span.start.byte().div_ceil(LINE) * 8..span.end_byte().min(self.bytes()) / LINE * 8;
        if words.start >= words.end || !recorder.release_zeroes() {
            return;
        }
        let (word, count) = (words.start as u32, (words.end - words.start) as u32);
        recorder.note(P::thread(), None, What::Release { word, count });
        self.overwrite(words, 0);
    }

    /// As [`Holes::release`]: whole lines of every second span become zero.
    fn renew(&self, span: Span) {
        self.release(span);
    }
}

impl<P: Primitives> Simulation<TracedContext> for Traced<P> {
    /// Overwrites the span at once and durably, as the worst next owner could. A crash that finds
    /// the store lost that unlinked the span follows a link to [`FREED`].
    fn freed(&self, span: Span) {
        self.step();
        let words = span.start.word()..(span.end_byte().min(self.bytes()) / WORD);
        if self.keeps_freed || words.is_empty() {
            return;
        }
        let (word, count) = (words.start as u32, (words.end - words.start) as u32);
        let mut recorder = self.recorder();
        recorder.note(P::thread(), None, What::Free { word, count });
        self.overwrite(words, FREED);
    }

    fn mark(&self, cx: &TracedContext, site: Site) {
        self.step();
        self.recorder().note(cx.thread, Some(site), What::Mark);
    }
}
