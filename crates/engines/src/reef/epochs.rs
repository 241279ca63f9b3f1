//! Epochs: one sync makes the writes of all streams durable together.
//!
//! A *cut* takes the latches of all streams and notes where each ends. Then one commit record says
//! so, and one fence makes it durable together with all that it speaks of, in whatever order:
//! recovery verifies every object since the record before, and falls back to that one if one is
//! torn. Two places for records are written in turn.
//!
//! A segment that is empty has, in place of its checksum, a word that says as of which epoch. Until
//! that epoch is durable, recovery reads the segment; from then on its room may be anything. What
//! the next owner writes over that word can only end it: no crash brings the segment back.

use core::ops::DerefMut;
use core::time::Duration;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Domain, Lock, Media, Span};

use super::layout::{self, Epoch, SegmentHead};
use super::state::{Epochs, Reef};
use super::stream::{Position, Stream};

/// The part of `flush_bytes` at which a writer ends an epoch: while one half waits for the device,
/// the other half may be written. Upkeep ends it at half of that.
const WRITERS_SHARE: u64 = 2;

/// Where epochs are persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything that a commit record speaks of.
        CUT = "reef/epoch/cut";
        /// The commit record.
        RECORD = "reef/epoch/record";
        /// The heads of segments that are empty as of this epoch, or not empty after all.
        MARKED = "reef/epoch/marked";
        /// Everything, on media whose fences wait for nothing.
        SYNC = "reef/sync/all";
    }
}

/// Where all streams end at one moment.
#[derive(Debug, Default)]
pub struct Cut {
    pub(super) positions: Vec<Position>,
    pub(super) census: (u64, u64),
    emptied: Vec<Vec<(u64, Span)>>,
    ends: Vec<Span>,
}

impl<M: Media> Reef<M> {
    /// Makes every write that returned durable.
    ///
    /// A crash inside leaves the epoch before or this one.
    ///
    /// # Errors
    /// Those of the medium; the table is dead then.
    pub(super) fn sync_all(&self) -> Result<()> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        if self.is_dirty()? {
            self.commit_next(&mut epochs)?;
        }
        match self.pool.region().media().guarantees().domain {
            Domain::None | Domain::Process => {
                self.poison_on_error(self.pool.access().sync(sites::SYNC))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether there are writes that no epoch covers.
    fn is_dirty(&self) -> Result<bool> {
        for stream in &self.streams {
            let stream = stream.0.lock()?;
            if stream.position() != stream.durable {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the present epoch, whatever was written.
    pub(super) fn commit_epoch(&self) -> Result<()> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        self.commit_next(&mut epochs)
    }

    /// Ends an epoch if a `divisor`-th of what may wait in a stream does.
    pub(super) fn bound_pending(&self, number: usize) -> Result<()> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        // The latch is free again before the cut takes it.
        let is_due = self.is_epoch_due(&*self.streams[number].0.lock()?, WRITERS_SHARE);
        match is_due {
            true => self.commit_next(&mut epochs),
            false => Ok(()),
        }
    }

    /// Returns whether more than its part of a `divisor`-th of what may wait does in a stream.
    pub(super) fn is_epoch_due(&self, stream: &Stream, divisor: u64) -> bool {
        let streams = self.streams.len() as u64;
        stream.pending.saturating_mul(divisor * streams) > self.settings.flush_bytes
    }

    /// Returns whether a writer of a stream should end the epoch.
    pub(super) fn must_end_epoch(&self, stream: &Stream) -> bool {
        !self.is_immediate && self.is_epoch_due(stream, WRITERS_SHARE)
    }

    /// Ends the epoch if a write is older than `age` at `now`, if writers would soon have to, or if
    /// segments wait for it; returns whether upkeep should come again: writes wait for the end of
    /// one, or one has ended, and more may be garbage than before.
    pub(super) fn age_epoch(&self, now: Duration, age: Duration) -> Result<bool> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        let (is_dirty, mut is_due, mut waits) = (self.is_dirty()?, self.waits_much()?, false);
        for stream in &self.streams {
            let stream = stream.0.lock()?;
            is_due |= self.is_epoch_due(&stream, 2 * WRITERS_SHARE);
            waits |= !stream.emptied.is_empty() || !stream.ends.is_empty();
        }
        let is_old = epochs.seen.is_some_and(|seen| now.saturating_sub(seen) >= age);
        if is_dirty && (is_old || is_due) || waits && !is_dirty {
            // What this epoch will not cover is younger, however long its sync takes.
            epochs.seen = Some(now);
            self.commit_next(&mut epochs)?;
            return Ok(true);
        }
        epochs.seen = if is_dirty { epochs.seen.or(Some(now)) } else { None };
        Ok(is_dirty)
    }

    /// Ends the present epoch: flushes, one commit record, one fence.
    pub(super) fn commit_next(&self, epochs: &mut Epochs) -> Result<()> {
        let (pm, number) = (self.pool.access(), next_number(epochs)?);
        // Before the latches of the streams are taken, which come behind those of the shards.
        epochs.pairs = self.count_pairs()?;
        let cut = self.cut(&pm, number, &mut self.all_streams()?)?;
        self.write_record(&pm, epochs, &cut)?;
        self.ended(epochs, cut, &mut self.all_streams()?)
    }

    /// As [`Reef::commit_next`], for a caller that holds the latches of all streams.
    pub(super) fn commit_held<G>(&self, epochs: &mut Epochs, streams: &mut [G]) -> Result<()>
    where
        G: DerefMut<Target = Stream>,
    {
        let (pm, number) = (self.pool.access(), next_number(epochs)?);
        let cut = self.cut(&pm, number, streams)?;
        self.write_record(&pm, epochs, &cut)?;
        self.ended(epochs, cut, streams)
    }

    /// Takes the latches of all streams, always in this order.
    pub(super) fn all_streams(&self) -> Result<Vec<impl DerefMut<Target = Stream>>> {
        let streams: core::result::Result<Vec<_>, _> =
            self.streams.iter().map(|stream| stream.0.lock()).collect();
        Ok(streams?)
    }

    /// Notes that an epoch is durable, and gives what waited for it another use.
    fn ended<G>(&self, epochs: &mut Epochs, cut: Cut, streams: &mut [G]) -> Result<()>
    where
        G: DerefMut<Target = Stream>,
    {
        epochs.number += 1;
        let mut is_dirty = false;
        for ((stream, position), emptied) in streams.iter_mut().zip(cut.positions).zip(&cut.emptied)
        {
            stream.made_durable(position);
            is_dirty |= stream.position() != stream.durable;
            for (sequence, _) in emptied {
                stream.sealed.remove(sequence);
                // Of the next segment no tombstone may be needed any more.
                stream.tidied = None;
            }
        }
        if !is_dirty {
            epochs.seen = None;
        }
        let emptied = cut.emptied.into_iter().flatten().map(|(_, span)| span);
        emptied.chain(cut.ends).try_for_each(|span| self.give(span))
    }

    /// Notes where all streams end at this moment, and flushes what is not durable.
    fn cut<G>(&self, pm: &Access<'_, M>, number: u64, streams: &mut [G]) -> Result<Cut>
    where
        G: DerefMut<Target = Stream>,
    {
        self.runs.end_all(streams, &self.units)?;
        let mut cut = Cut::default();
        for stream in streams {
            stream.not_durable(|span| pm.flush(span, sites::CUT));
            let restored = core::mem::take(&mut stream.restored);
            for at in stream.emptied.iter().map(|(_, span)| span.start).chain(restored) {
                pm.flush(Span::new(at, SegmentHead::WORDS as u64), sites::MARKED);
            }
            cut.positions.push(stream.position());
            cut.census = (cut.census.0 + stream.census.0, cut.census.1 ^ stream.census.1);
            cut.emptied.push(core::mem::take(&mut stream.emptied));
            cut.ends.append(&mut stream.ends);
            stream.epoch = number + 1;
            stream.written += core::mem::take(&mut stream.pending);
        }
        Ok(cut)
    }

    /// Writes a commit record and waits until it, and all that was flushed before, is durable.
    fn write_record(&self, pm: &Access<'_, M>, epochs: &Epochs, cut: &Cut) -> Result<()> {
        let number = epochs.number + 1;
        let mut record = [0; Epoch::WORDS];
        record[Epoch::NUMBER] = number;
        record[Epoch::GENERATION] = self.generation;
        (record[Epoch::SEGMENTS], record[Epoch::SEALS]) = cut.census;
        for (tail, position) in record[Epoch::TAILS..].chunks_exact_mut(2).zip(&cut.positions) {
            tail.copy_from_slice(&[position.sequence, position.fill]);
        }
        record[Epoch::PAIRS] = epochs.pairs;
        if let Some(checkpoint) = &epochs.checkpoint {
            record[Epoch::CHECKPOINT] = checkpoint.span.start.byte();
            record[Epoch::CHECKPOINT + 1] = checkpoint.sum;
        }
        let at = layout::epoch_place(number);
        record[Epoch::CHECKSUM] = layout::sum(&record[..Epoch::CHECKSUM], at, self.seed);
        self.poison_on_error(pm.write_words(at, &record))?;
        self.poison_on_error(pm.persist(Span::new(at, Epoch::WORDS as u64), sites::RECORD))
    }
}

/// Returns the number of the next epoch.
///
/// # Errors
/// [`Error::Unsupported`] if there is none: an opening would not accept it.
fn next_number(epochs: &Epochs) -> Result<u64> {
    if epochs.number < layout::MOST_EPOCHS {
        return Ok(epochs.number + 1);
    }
    let what = "more syncs of one database than can be numbered; copy it by `repair --into`";
    Err(Error::Unsupported { what: what.to_owned() })
}
