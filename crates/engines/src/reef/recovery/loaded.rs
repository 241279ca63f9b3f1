//! Loading a checkpoint of the directory. Whatever is wrong with it, it is ignored: all objects are
//! read then.

use std::sync::Arc;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, LINE, Lock, Media, Span, WORD, pool};

use super::Plan;
use crate::common::ahead::Ahead;
use crate::reef::directory::{Arena, LEAST_LEVEL, Shard, Size};
use crate::reef::layout::{
    self, CHECKPOINT_MAGIC, CheckpointHead, CheckpointSegment, CheckpointShard,
};
use crate::reef::setup::ReefSettings;
use crate::reef::state::{Checkpoint, Reef};
use crate::reef::stream::Position;

/// How many buckets a loaded shard may have, as a multiple of those of an even table that fills the
/// medium.
///
/// Source: ours; a table of which much was removed keeps its directory, and forged words must not
/// take much more memory than the medium has bytes.
const MOST_BUCKETS: u64 = 4;

/// What a checkpoint holds.
pub(super) struct Loaded<M: Media> {
    pub(super) checkpoint: Checkpoint,
    pub(super) arena: Arc<Arena<M::Sync>>,
    pub(super) shards: Vec<Shard<M::Sync>>,
    segments: Vec<u64>,
}

/// Reads the checkpoint that a plan's commit record names; `None` if there is none that is sound.
pub(super) fn load<M: Media>(
    pm: &Access<'_, M>,
    settings: &ReefSettings,
    seed: u64,
    plan: &Plan,
) -> Option<Loaded<M>> {
    let (start, sum) = plan.base.checkpoint;
    let (unit_bytes, medium_bytes) = (settings.unit_bytes(), pm.media().bytes());
    if start < pool::DATA.byte() || !start.is_multiple_of(unit_bytes) || start >= medium_bytes {
        return None;
    }
    let most = (medium_bytes - start) / WORD;
    let at = Addr::new(start);
    let mut head = [0; CheckpointHead::WORDS];
    pm.read_words(at, &mut head).ok()?;
    let is_sound = layout::sum(&head[..CheckpointHead::CHECKSUM], at, seed) == sum;
    let length = head[CheckpointHead::LENGTH];
    if !is_sound
        || head[CheckpointHead::CHECKSUM] != sum
        || head[CheckpointHead::MAGIC] != CHECKPOINT_MAGIC
        || length > most
    {
        return None;
    }
    let span = Span::of_bytes(at, (length * WORD).next_multiple_of(unit_bytes));
    if span.words > most {
        return None;
    }
    let at = at.plus(CheckpointHead::WORDS as u64);
    let ahead = Ahead::new([Span::of_bytes(at, (start + length * WORD).saturating_sub(at.byte()))]);
    let mut parts = Parts { pm, seed, at, end: span, ahead };
    let index_words = CheckpointShard::WORDS as u64 * settings.shards;
    let index = parts.next(index_words, head[CheckpointHead::SHARDS_SUM])?;
    let tails: Vec<Position> = head[CheckpointHead::TAILS..CheckpointHead::SPARE]
        .chunks_exact(2)
        .map(|tail| Position { sequence: tail[0], fill: tail[1] })
        .take(plan.streams.len())
        .collect();
    let ends = Ends::new(plan, &tails, unit_bytes, medium_bytes);
    // A leaf, however short the medium is.
    let buckets = (MOST_BUCKETS * (medium_bytes / LINE / settings.shards)).max(2 << LEAST_LEVEL);
    let least = Size::new(settings.level().min(LEAST_LEVEL), (0, 1), 0);
    let arena = Arc::new(Arena::new(settings.shards * least.words()));
    let mut shards = Vec::new();
    for entry in index.chunks_exact(CheckpointShard::WORDS) {
        let words = parts.next(entry[CheckpointShard::LENGTH], entry[CheckpointShard::CHECKSUM])?;
        let shape = entry[CheckpointShard::SHAPE];
        shards.push(Shard::load(&arena, &words, shape, buckets, |at| ends.counts(at))?);
    }
    let count = head[CheckpointHead::SEGMENTS].checked_mul(CheckpointSegment::WORDS as u64)?;
    let segments = parts.next(count, head[CheckpointHead::SEGMENTS_SUM])?;
    let checkpoint = Checkpoint { span, sum, tails, written: 0 };
    Some(Loaded { checkpoint, arena, shards, segments })
}

/// How much of a checkpoint is read at once.
///
/// Unit: words. Source: ours; little beside what is announced.
const AT_ONCE: usize = 8 << 10;

/// The parts of a checkpoint, one behind the other.
struct Parts<'p, 'a, M: Media> {
    pm: &'p Access<'a, M>,
    seed: u64,
    at: Addr,
    end: Span,
    ahead: Ahead<core::array::IntoIter<Span, 1>>,
}

impl<M: Media> Parts<'_, '_, M> {
    /// Reads the next part, of so many words; `None` if its checksum does not match.
    fn next(&mut self, count: u64, sum: u64) -> Option<Vec<u64>> {
        let left = self.end.end_byte().saturating_sub(self.at.byte()) / WORD;
        if count > left {
            return None;
        }
        let mut words = vec![0; count as usize];
        for (number, words) in (0..).zip(words.chunks_mut(AT_ONCE)) {
            self.ahead.reads(words.len() as u64 * WORD, self.pm.media());
            self.pm.read_words(self.at.plus(number * AT_ONCE as u64), words).ok()?;
        }
        let is_sound = layout::long_sum(&words, self.at, self.seed) == sum;
        self.at = self.at.plus(count);
        is_sound.then_some(words)
    }
}

/// For each unit of the medium, before which byte a place counts that a checkpoint names.
struct Ends {
    unit_bytes: u64,
    ends: Vec<u64>,
}

impl Ends {
    fn new(plan: &Plan, tails: &[Position], unit_bytes: u64, medium_bytes: u64) -> Self {
        let mut ends = vec![0; (medium_bytes / unit_bytes) as usize];
        for (segments, tail) in plan.streams.iter().zip(tails) {
            let floor = segments.values().map(|(it, _)| it.floor).max().unwrap_or(1);
            for (sequence, (segment, words)) in segments {
                if *sequence < floor || *sequence > tail.sequence {
                    continue;
                }
                let is_last = *sequence == tail.sequence;
                let words = if is_last { tail.fill.min(*words) } else { *words };
                let end = segment.at.byte() + words * WORD;
                let first = (segment.at.byte() / unit_bytes) as usize;
                let last = end.div_ceil(unit_bytes) as usize;
                if let Some(units) = ends.get_mut(first..last) {
                    units.fill(end);
                }
            }
        }
        Ends { unit_bytes, ends }
    }

    /// Returns whether the object at a place is of before the checkpoint, and still there.
    fn counts(&self, at: Addr) -> bool {
        self.ends.get((at.byte() / self.unit_bytes) as usize).is_some_and(|end| at.byte() < *end)
    }
}

impl<M: Media> Reef<M> {
    /// Takes over what a checkpoint says of its own room and of the segments that are still there.
    pub(super) fn take_loaded(&self, loaded: &Loaded<M>, plan: &Plan) -> Result<()> {
        self.space.claim(loaded.checkpoint.span)?;
        let places: std::collections::BTreeMap<u64, (usize, u64)> = plan
            .streams
            .iter()
            .enumerate()
            .flat_map(|(stream, segments)| {
                segments.iter().map(move |(number, (it, _))| (it.at.byte(), (stream, *number)))
            })
            .collect();
        for entry in loaded.segments.chunks_exact(CheckpointSegment::WORDS) {
            let place = entry[CheckpointSegment::PLACE];
            let Some((stream, sequence)) = places.get(&place) else { continue };
            let mut stream = self.streams[*stream].0.lock()?;
            let Some(sealed) = stream.sealed.get_mut(sequence) else { continue };
            if sealed.seal != entry[CheckpointSegment::SEAL] {
                continue;
            }
            sealed.tombstones = entry[CheckpointSegment::TOMBSTONES].min(sealed.fill);
            let garbage = entry[CheckpointSegment::GARBAGE].min(sealed.fill);
            self.units.add_garbage(Addr::new(place), garbage);
        }
        Ok(())
    }
}
