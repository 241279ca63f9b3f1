//! Overflow lines (ours; the paper resizes at the first collision it cannot solve): behind a bucket
//! of the bottom layer, for keys whose buckets are full in every layer. So identical hashes do not
//! double the table, and it is filled to the load that the settings name.
//!
//! A new line lies between the second line of its bucket and the overflow line that was first. It
//! is durable before the link that leads to it. A crash between leaves a line that nothing leads
//! to: free space.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Media, Site, Span, WORD, before_reuse};

use super::bucket::{Line, PairCodec, Words};
use super::layers::View;
use super::layout::{self, Head, LINE_WORDS, Line as Ruler};
use super::setup::empty_line;
use super::state::{Tiered, line_class};

/// Where overflow lines persist something.
pub mod sites {
    everhash_pmem::sites! {
        /// A new overflow line with its pair.
        LINE = "tiered/overflow/line";
        /// The link that leads to it.
        LINK = "tiered/overflow/link";
        /// A link past lines that hold nothing.
        UNLINK = "tiered/unlink/link";
    }
}

/// A pair for which there is no slot.
pub struct Newcomer {
    /// The position of its key.
    pub position: u64,
    /// Its flags and fingerprint.
    pub state: u16,
    /// Its words.
    pub words: Words,
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Takes some lines.
    ///
    /// # Errors
    /// [`everhash_index::Error::Full`]; none is taken then.
    pub(super) fn take_lines(&self, count: usize) -> Result<Vec<Addr>> {
        let mut taken = Vec::new();
        for _ in 0..count {
            match self.heap.take(line_class()) {
                Ok(at) => taken.push(at),
                Err(error) => {
                    self.give_lines(taken);
                    return Err(error.into());
                }
            }
        }
        Ok(taken)
    }

    /// Gives lines back to which no link leads.
    pub(super) fn give_lines(&self, lines: Vec<Addr>) {
        lines.into_iter().for_each(|at| self.heap.give(at, line_class()));
    }

    /// Writes a pair into a fresh line at `at`, and links the line to the bucket of its position in
    /// the bottom layer.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn extend(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        newcomer: &Newcomer,
        at: Addr,
    ) -> Result<()> {
        before_reuse::<M::Sync>();
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let second = Line::of(pm, view.bottom().home(newcomer.position).plus(LINE / WORD))?;
        let mut words = empty_line(at);
        let first = layout::slot_word(0);
        words[first..first + 2].copy_from_slice(&newcomer.words);
        words[Ruler::LINK] = layout::seal_link(second.next()?.unwrap_or(Addr::NULL), at);
        words[Ruler::HEAD] = Head::EMPTY.with(0, newcomer.state).encode(at);
        pm.write_words(at, &words)?;
        pm.persist(Span::new(at, LINE_WORDS as u64), sites::LINE)?;
        self.link(pm, view, second.at(), at, sites::LINK)?;
        Ok(pm.fence(sites::LINK)?)
    }

    /// Cuts off all overflow lines of some buckets, which hold nothing, durably; returns them.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    pub(super) fn unlink_all(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        buckets: impl Iterator<Item = Addr>,
    ) -> Result<Vec<Addr>> {
        let mut cut = Vec::new();
        for bucket in buckets {
            let mut lines = self.lines(pm, view, bucket);
            let mut second = None;
            let before = cut.len();
            while let Some((line, number)) = lines.advance()? {
                match number {
                    0 => {}
                    1 => second = Some(line.at()),
                    _ => cut.push(line.at()),
                }
            }
            if let (Some(second), true) = (second, cut.len() > before) {
                self.link(pm, view, second, Addr::NULL, sites::UNLINK)?;
            }
        }
        if !cut.is_empty() {
            pm.fence(sites::UNLINK)?;
        }
        Ok(cut)
    }

    /// Stores a link and flushes it; the caller fences, and keeps readers away.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn link(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        from: Addr,
        to: Addr,
        site: Site,
    ) -> Result<()> {
        let at = from.plus(Ruler::LINK as u64);
        pm.commit_word(at, layout::seal_link(to, from), site)?;
        pm.flush(Span::new(at, 1), site);
        self.fingerprints.note_link(view, from, !to.is_null());
        Ok(())
    }
}
