//! Loading a checkpoint of the directory. Whatever is wrong with it, it is ignored: all objects are
//! read then.

use std::sync::Arc;

use everhash_index::{Executor, Result};
use everhash_pmem::{Access, Addr, LINE, Lock, Media, Pool, Span, WORD, pool};

use super::Plan;
use crate::common::ahead::Ahead;
use crate::common::jobs::run_all;
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

/// How much of a checkpoint is read at once.
///
/// Unit: words. Source: ours; little beside what is announced.
const AT_ONCE: usize = 8 << 10;

/// How many jobs there are for each thread that verifies shards.
///
/// Source: ours; none waits long for the last one, and each uses its memory several times.
const JOBS: usize = 4;

/// What a checkpoint holds.
pub(super) struct Loaded<M: Media> {
    pub(super) checkpoint: Checkpoint,
    pub(super) arena: Arc<Arena<M::Sync>>,
    pub(super) shards: Vec<Shard<M::Sync>>,
    segments: Vec<u64>,
}

/// Reads the checkpoint that a plan's commit record names, as many shards at a time as the executor
/// likes; `None` if there is none that is sound.
pub(super) fn load<M: Media>(
    pool: &Pool<M>,
    settings: &ReefSettings,
    seed: u64,
    plan: &Plan,
    executor: &dyn Executor,
) -> Option<Loaded<M>> {
    let (unit_bytes, medium_bytes) = (settings.unit_bytes(), pool.region().media().bytes());
    let (span, head) = read_head(&pool.access(), settings, seed, plan.base.checkpoint)?;
    let mut rest = span;
    cut(&mut rest, CheckpointHead::WORDS as u64, 0)?;
    let index_words = CheckpointShard::WORDS as u64 * settings.shards;
    let index = cut(&mut rest, index_words, head[CheckpointHead::SHARDS_SUM])?;
    let index = Reader::new(pool, seed, &[index]).read(index)?.to_vec();
    let level = settings.level().min(LEAST_LEVEL);
    let entries = (0..).zip(index.chunks_exact(CheckpointShard::WORDS)).map(|(number, entry)| {
        let (words, sum) = (entry[CheckpointShard::LENGTH], entry[CheckpointShard::CHECKSUM]);
        // Leaves have one length for ever.
        let length = Size::new(level, (number, settings.shards), 0).length;
        Some((cut(&mut rest, words, sum)?, entry[CheckpointShard::SHAPE], length))
    });
    let entries: Vec<(Part, u64, u64)> = entries.collect::<Option<_>>()?;
    let tails: Vec<Position> = head[CheckpointHead::TAILS..CheckpointHead::SPARE]
        .chunks_exact(2)
        .map(|tail| Position { sequence: tail[0], fill: tail[1] })
        .take(plan.streams.len())
        .collect();
    let ends = Ends::new(plan, &tails, unit_bytes, medium_bytes);
    // A leaf, however short the medium is.
    let buckets = (MOST_BUCKETS * (medium_bytes / LINE / settings.shards)).max(2 << LEAST_LEVEL);
    let least = Size::new(level, (0, 1), 0);
    let arena = Arc::new(Arena::new(settings.shards * least.words()));
    let load_some = |entries: &[(Part, u64, u64)]| -> Option<Vec<Shard<M::Sync>>> {
        let parts: Vec<Part> = entries.iter().map(|(part, ..)| *part).collect();
        let mut reader = Reader::new(pool, seed, &parts);
        let shards = entries.iter().map(|(part, shape, length)| {
            let words = (reader.read(*part)?, part.span.start);
            Shard::load(&arena, words, *shape, (*length, buckets), |at| ends.counts(at))
        });
        shards.collect()
    };
    let shards = on_threads::<M, _, _>(executor, &entries, load_some)?;
    let count = head[CheckpointHead::SEGMENTS].checked_mul(CheckpointSegment::WORDS as u64)?;
    let segments = cut(&mut rest, count, head[CheckpointHead::SEGMENTS_SUM])?;
    let segments = Reader::new(pool, seed, &[segments]).read(segments)?.to_vec();
    let sum = plan.base.checkpoint.1;
    let checkpoint = Checkpoint { span, sum, tails, written: 0 };
    Some(Loaded { checkpoint, arena, shards, segments })
}

/// Reads the head of a checkpoint; returns the whole units of it, too.
fn read_head<M: Media>(
    pm: &Access<'_, M>,
    settings: &ReefSettings,
    seed: u64,
    (start, sum): (u64, u64),
) -> Option<(Span, [u64; CheckpointHead::WORDS])> {
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
    (span.words <= most).then_some((span, head))
}

/// Lets jobs of the executor make shards, each of some of the entries; `None` if one fails.
fn on_threads<M: Media, E: Sync, L>(
    executor: &dyn Executor,
    entries: &[E],
    load: L,
) -> Option<Vec<Shard<M::Sync>>>
where
    L: Fn(&[E]) -> Option<Vec<Shard<M::Sync>>> + Sync,
{
    let each = entries.len().div_ceil(JOBS * executor.width().max(1));
    let jobs: Vec<&[E]> = entries.chunks(each).collect();
    let parts =
        run_all::<M::Sync, _>(executor, jobs.len(), |number| Ok(load(jobs[number]))).ok()?;
    let parts: Vec<_> = parts.into_iter().collect::<Option<_>>()?;
    Some(parts.into_iter().flatten().collect())
}

/// A part of a checkpoint.
#[derive(Clone, Copy)]
struct Part {
    span: Span,
    sum: u64,
}

/// Cuts the next part, of so many words, off what is left of a checkpoint, if it has them.
fn cut(rest: &mut Span, words: u64, sum: u64) -> Option<Part> {
    let part = Part { span: Span::new(rest.start, words), sum };
    let left = rest.words.checked_sub(words)?;
    *rest = Span::new(rest.start.plus(words), left);
    Some(part)
}

/// Reads parts of a checkpoint, in order.
struct Reader<'p, M: Media> {
    pm: Access<'p, M>,
    seed: u64,
    ahead: Ahead<std::vec::IntoIter<Span>>,
    words: Vec<u64>,
}

impl<'p, M: Media> Reader<'p, M> {
    fn new(pool: &'p Pool<M>, seed: u64, parts: &[Part]) -> Self {
        let spans: Vec<Span> = parts.iter().map(|part| part.span).collect();
        Reader { pm: pool.access(), seed, ahead: Ahead::new(spans), words: Vec::new() }
    }

    /// Reads the next part; `None` if its checksum does not match.
    fn read(&mut self, part: Part) -> Option<&[u64]> {
        let at = part.span.start;
        self.words.resize(part.span.words as usize, 0);
        for (number, words) in (0..).zip(self.words.chunks_mut(AT_ONCE)) {
            self.ahead.reads(words.len() as u64 * WORD, self.pm.media());
            self.pm.read_words(at.plus(number * AT_ONCE as u64), words).ok()?;
        }
        (layout::long_sum(&self.words, at, self.seed) == part.sum).then_some(&self.words)
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
