//! Checkpoints: the directory as it lies in DRAM, so that an opening reads it instead of all
//! objects, and only the log behind it.
//!
//! A checkpoint is written beside other operations: first it is noted where the streams end, then
//! each leaf is copied under the latch of its shard, and then a commit record names it. What a leaf
//! learnt meanwhile lies behind the noted ends: loading passes over such places, and the log has
//! them. Places in segments that were emptied since are passed over, too: what was alive there was
//! appended anew.
//!
//! What was written meanwhile must not wait until a long one is durable: an epoch ends for each
//! `flush_bytes` of it, and makes that part durable as well.
//!
//! Nothing depends on a checkpoint. As long as its segments exist, recovery without it finds the
//! same pairs; if one is torn or damaged, all objects are read. Its room is taken back when a
//! commit record is durable that does not name it.

use core::ops::Deref;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Lock, Media, Span, WORD};

use super::epochs::sites;
use super::layout::{
    self, CHECKPOINT_MAGIC, CheckpointHead, CheckpointSegment, CheckpointShard, SegmentHead,
};
use super::state::{Checkpoint, Reef};
use super::stream::{Position, Step, Stream};

/// How many times its own length is written before upkeep writes the next checkpoint.
///
/// Source: ours; what is written grows by an eighth at most, and behind a checkpoint lie at most 66
/// bytes of log for each pair. Of a growing table of 16-byte keys and 100-byte values that is half
/// of all, and 1.32 bytes are written for each of a pair. With 4 it would be a quarter of all, and
/// 1.47 bytes: more than the 1.4 that a load may take. Pairs of words have objects of 24 bytes, so
/// that a growing table of these has no checkpoint before it is closed or at rest; that would take
/// 2, half as much again to write, and still leave two thirds of them behind it.
const LOG_SHARE: u64 = 8;

/// How many times its own length the log is at which upkeep writes a checkpoint of a table at rest.
///
/// Source: ours; pairs of words that were just loaded have a log of 2.9 times it. Whoever writes so
/// much and then nothing for some seconds, again and again, writes half as much again.
const LOG_SHARE_AT_REST: u64 = 2;

/// The log to read at which upkeep writes a checkpoint, at least, in lengths of `flush_bytes`.
///
/// Source: ours; 64 MiB by default, which are read in a quarter of a second.
const LEAST_LOG: u64 = 2;

/// The part of `flush_bytes` of log for which a close writes no checkpoint.
///
/// Source: ours; 1 MiB by default, read in a few milliseconds: a small database stays small.
const SHORT_LOG: u64 = 32;

/// When a checkpoint is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Ahead of need, beside other operations.
    Upkeep,
    /// When nobody writes and nothing is left to collect, which would append to the log: the next
    /// thing to happen may be that the process is killed.
    Rest,
    /// Before the table is closed.
    Close,
}

/// Where a stream ends, and the words of tombstones in its last segment.
type End = (Position, u64);

/// Where the streams end at one moment.
#[derive(Debug, Default)]
pub struct Ends {
    ends: Vec<End>,
    /// Log behind the last checkpoint. Unit: bytes.
    pub(super) log: u64,
    /// What was appended in all, of what was found when the table was opened the log. Unit: bytes.
    written: u64,
}

impl<M: Media> Reef<M> {
    /// Writes a checkpoint if the log since the last one is long. Where there is no room for it,
    /// there is none.
    ///
    /// A crash leaves the last one or this one.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn checkpoint_if_due(&self, moment: Moment) -> Result<()> {
        let Some(_checkpointing) = self.checkpointing.try_lock()? else { return Ok(()) };
        let before = self.epochs.lock()?.checkpoint.clone();
        let (tails, written) = before.map_or((Vec::new(), 0), |it| (it.tails, it.written));
        let ends = self.ends_of(&self.all_streams()?, &tails);
        let long = self.settings.flush_bytes * LEAST_LOG;
        let least = match moment {
            Moment::Upkeep | Moment::Rest => long,
            Moment::Close => self.settings.flush_bytes / SHORT_LOG,
        };
        if ends.log <= least {
            return Ok(());
        }
        let bytes = self.checkpoint_bytes()?;
        let much_was_written =
            ends.written.saturating_sub(written) > bytes.saturating_mul(LOG_SHARE);
        let is_due = match moment {
            Moment::Upkeep => much_was_written,
            Moment::Rest => much_was_written || ends.log > bytes.saturating_mul(LOG_SHARE_AT_REST),
            // What is read as fast as it would be written stays log.
            Moment::Close => ends.log > (bytes / LOG_SHARE).min(long),
        };
        if !is_due {
            return Ok(());
        }
        self.replace_checkpoint(bytes, self.ends(&tails)?)
    }

    /// Writes a checkpoint of at most `bytes` bytes, behind which the log begins at `ends`. The
    /// caller holds the lock of checkpoints.
    pub(super) fn replace_checkpoint(&self, bytes: u64, ends: Ends) -> Result<()> {
        // Before room is taken: if a leaf cannot be loaded, upkeep will try again and again.
        self.touch_all()?;
        let Some(span) = self.take_for_checkpoint(bytes)? else { return Ok(()) };
        let Some(sum) = self.write_checkpoint(span, &ends.ends)? else {
            // The shards have grown meanwhile.
            self.space.give(span);
            return Ok(());
        };
        let tails = ends.ends.into_iter().map(|(position, _)| position).collect();
        self.name(Some(Checkpoint { span, sum, tails, written: ends.written }))
    }

    /// Takes room for a checkpoint: that of the one before the last, if it is long enough. Between
    /// segments there is seldom as long a run, and the file would grow for each.
    fn take_for_checkpoint(&self, bytes: u64) -> Result<Option<Span>> {
        if let Some(spare) = self.spare.lock()?.take() {
            if spare.bytes() >= bytes {
                return Ok(Some(spare));
            }
            self.space.give(spare);
        }
        let step = Step::SMALL.of(self.pool.region().media().bytes());
        match self.space.take_first(&[bytes], self.unit_bytes, step) {
            Err(everhash_pmem::Error::Full { .. }) => Ok(None),
            taken => Ok(Some(taken?.span)),
        }
    }

    /// Gives the room that waits for the next checkpoint another use; returns whether there was
    /// any.
    ///
    /// # Errors
    /// [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic inside.
    pub(super) fn give_up_spare(&self) -> Result<bool> {
        let spare = self.spare.lock()?.take();
        if let Some(spare) = spare {
            self.space.give(spare);
        }
        Ok(spare.is_some())
    }

    /// Gives up the checkpoint, if there is one, for its room; returns whether there was.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn give_up_checkpoint(&self) -> Result<bool> {
        let _checkpointing = self.checkpointing.lock()?;
        if self.epochs.lock()?.checkpoint.is_none() {
            return Ok(false);
        }
        self.touch_all()?;
        self.name(None)?;
        self.give_up_spare()?;
        Ok(true)
    }

    /// Lets commit records name another checkpoint, or none, and gives the room of the last one
    /// another use.
    fn name(&self, checkpoint: Option<Checkpoint>) -> Result<()> {
        let mut epochs = self.epochs.lock()?;
        self.alive()?;
        let before = core::mem::replace(&mut epochs.checkpoint, checkpoint);
        self.commit_next(&mut epochs)?;
        if let Some(before) = before {
            let spare = self.spare.lock()?.replace(before.span);
            spare.into_iter().for_each(|spare| self.space.give(spare));
        }
        Ok(())
    }

    /// Returns where the streams end: nothing more is stored before that. The last checkpoint ended
    /// at `tails`.
    pub(super) fn ends(&self, tails: &[Position]) -> Result<Ends> {
        let mut streams = self.all_streams()?;
        self.runs.end_all(&mut streams, &self.units)?;
        Ok(self.ends_of(&streams, tails))
    }

    /// As [`Reef::ends`] of streams whose latches are held, but for what threads may still store in
    /// their runs.
    fn ends_of<G>(&self, streams: &[G], tails: &[Position]) -> Ends
    where
        G: Deref<Target = Stream>,
    {
        let mut ends = Ends::default();
        for (number, stream) in streams.iter().enumerate() {
            let tail = tails.get(number).copied().unwrap_or_default();
            let position = stream.position();
            ends.written += stream.written + stream.pending;
            let last = stream.sealed.get(&position.sequence).map(|it| it.tombstones);
            ends.ends.push((position, stream.open.map(|it| it.tombstones).or(last).unwrap_or(0)));
            let sealed = stream.sealed.range(tail.sequence..);
            let fills = sealed.map(|(sequence, it)| (*sequence, it.fill));
            for (sequence, fill) in fills.chain(stream.open.map(|it| (it.sequence, it.fill))) {
                let head = SegmentHead::WORDS as u64;
                let from = if sequence == tail.sequence { tail.fill } else { head };
                ends.log +=
                    WORD * if sequence < tail.sequence { 0 } else { fill.saturating_sub(from) };
            }
        }
        ends
    }

    /// Notes the log that an opening has read behind a checkpoint which ended at `tails`: it counts
    /// as written since.
    pub(super) fn count_log(&self, tails: &[Position]) -> Result<()> {
        let log = self.ends(tails)?.log;
        self.streams[0].0.lock()?.written += log;
        Ok(())
    }

    /// Returns how much room a checkpoint takes, in whole units. Unit: bytes.
    pub(super) fn checkpoint_bytes(&self) -> Result<u64> {
        let mut words =
            (CheckpointHead::WORDS + CheckpointShard::WORDS * self.shards.all().len()) as u64;
        for shard in self.shards.all() {
            words += shard.saved_words(&*shard.latch.lock()?);
        }
        for stream in &self.streams {
            let count = stream.0.lock()?.sealed.len() + 1;
            words += (CheckpointSegment::WORDS * count) as u64;
        }
        // What may be added until it is written.
        Ok(self.whole_units(words + words / 64))
    }

    /// Writes a checkpoint and flushes it; returns its checksum, or `None` if it does not fit.
    fn write_checkpoint(&self, span: Span, ends: &[End]) -> Result<Option<u64>> {
        let pm = self.pool.access();
        let index_at = span.start.plus(CheckpointHead::WORDS as u64);
        let (mut index, mut words) = (Vec::new(), Vec::new());
        let mut offset =
            (CheckpointHead::WORDS + CheckpointShard::WORDS * self.shards.all().len()) as u64;
        // All before, but for the head and the index, which are written last.
        let mut flushed = offset;
        for shard in self.shards.all() {
            words.clear();
            let shape = shard.save(&mut words)?;
            if words.len() as u64 > span.words - offset {
                return Ok(None);
            }
            let at = span.start.plus(offset);
            pm.media().renew(Span::new(at, words.len() as u64));
            self.write_part(&pm, at, &words)?;
            index.extend([words.len() as u64, shape, layout::long_sum(&words, at, self.seed)]);
            offset += words.len() as u64;
            if (offset - flushed) * WORD >= self.settings.flush_bytes {
                pm.flush(Span::new(span.start.plus(flushed), offset - flushed), sites::CUT);
                flushed = offset;
                self.commit_epoch()?;
            }
        }
        // Behind the shards: garbage that was made meanwhile is counted twice rather than never.
        self.list_segments(ends, &mut words)?;
        if words.len() as u64 > span.words - offset {
            return Ok(None);
        }
        let segments_at = span.start.plus(offset);
        self.write_part(&pm, segments_at, &words)?;
        self.write_part(&pm, index_at, &index)?;
        let mut head = [0; CheckpointHead::WORDS];
        head[CheckpointHead::MAGIC] = CHECKPOINT_MAGIC;
        head[CheckpointHead::LENGTH] = offset + words.len() as u64;
        head[CheckpointHead::SEGMENTS] = (words.len() / CheckpointSegment::WORDS) as u64;
        head[CheckpointHead::SHARDS_SUM] = layout::long_sum(&index, index_at, self.seed);
        head[CheckpointHead::SEGMENTS_SUM] = layout::long_sum(&words, segments_at, self.seed);
        for (tail, (end, _)) in head[CheckpointHead::TAILS..].chunks_exact_mut(2).zip(ends) {
            tail.copy_from_slice(&[end.sequence, end.fill]);
        }
        let sum = layout::sum(&head[..CheckpointHead::CHECKSUM], span.start, self.seed);
        head[CheckpointHead::CHECKSUM] = sum;
        self.write_part(&pm, span.start, &head)?;
        pm.flush(Span::new(span.start, (CheckpointHead::WORDS + index.len()) as u64), sites::CUT);
        let end = offset + words.len() as u64;
        pm.flush(Span::new(span.start.plus(flushed), end - flushed), sites::CUT);
        Ok(Some(sum))
    }

    fn write_part(&self, pm: &Access<'_, M>, at: Addr, words: &[u64]) -> Result<()> {
        self.poison_on_error(pm.write_words(at, words))
    }

    /// Replaces `words` with what a checkpoint says of the segments before `ends`.
    fn list_segments(&self, ends: &[End], words: &mut Vec<u64>) -> Result<()> {
        words.clear();
        for (stream, (end, tombstones)) in self.streams.iter().zip(ends) {
            let stream = stream.0.lock()?;
            let sealed = stream.sealed.range(..=end.sequence);
            let sealed =
                sealed.map(|(number, it)| (*number, it.span.start, it.seal, it.tombstones));
            let open = stream.open.filter(|it| it.sequence <= end.sequence);
            let open = open.map(|it| (it.sequence, it.span.start, it.seal, it.tombstones));
            for (number, start, seal, present) in sealed.chain(open) {
                // Those that came later are counted when the log is read.
                let buried = if number == end.sequence { *tombstones } else { present };
                words.extend([start.byte(), seal, self.units.garbage(start), buried]);
            }
        }
        Ok(())
    }
}
