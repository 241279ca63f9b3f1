//! Opening: which segments there are, how far they count, then the newest checkpoint of the
//! directory, and every object behind it in order.
//!
//! | the pool was | what counts |
//! |---|---|
//! | closed | what the newest commit record says |
//! | left by a killed process | what the tails in the heads say: every store is visible; of |
//! | | immediate writes also all behind them, as far as objects are sound |
//! | left by power loss | of batches, what the newest commit record says of which every object is |
//! | | sound; of immediate writes also all behind it, as far as objects are sound |
//!
//! What does not count is marked as empty before a write is answered, and a new segment is begun in
//! each stream: nothing of an earlier life is ever found behind a newer object.

mod found;
mod loaded;
mod replay;

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use everhash_index::{Error, Executor, Form, Result};
use everhash_pmem::{
    Access, AtomicWord, Boot, LINE, Latch, Lock, Masked, Media, Pool, Shutdown, Space, Span, pool,
};

use self::found::{FoundSegment, Record, find_segments, read_batch, read_records};
use self::loaded::{Loaded, load};
use super::directory::{Arena, END, LEAST_LEVEL, Shard, Size};
use super::epochs;
use super::layout::{self, Ended, Epoch, ROOT, Root, SegmentHead, Tail};
use super::look_ups::word_lookup;
use super::objects::Objects;
use super::reader::{Part, Reader};
use super::runs::Runs;
use super::setup::ReefSettings;
use super::state::{Epochs, Reef, StreamOf};
use super::stream::{OwnLines, Position, Sealed, Stream};
use super::units::Units;
use crate::common::hash::KeyedHash;

/// Where recovery is persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// All that a killed process left, before anything relies on it.
        VISIBLE = "reef/open/visible";
        /// Where a segment ends from now on.
        TAIL = "reef/open/tail";
    }
}

/// How much of a segment is copied at once.
///
/// Unit: words. Source: ours; most of the nearest cache, and some hundred objects.
const PIECE: u64 = 4096;

/// How the process left the pool that had it before.
#[derive(Clone, Copy)]
struct Left {
    shutdown: Shutdown,
    /// Whether its fences did not reach the device: nothing was ordered then.
    was_relaxed: bool,
}

/// What recovery decided.
struct Plan {
    /// The commit record from which it went on.
    base: Record,
    /// For each stream the segments that count, by their sequence, each with the words that do.
    streams: Vec<BTreeMap<u64, (FoundSegment, u64)>>,
    /// Segments that exist and do not count.
    left_over: Vec<FoundSegment>,
}

/// Opens the table in a pool.
///
/// # Errors
/// [`Error::Corrupt`], and those of the medium.
pub fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<Reef<M>> {
    let pm = pool.access();
    let mut root = [0; Root::CHECKSUM + 1];
    pm.read_words(ROOT, &mut root)?;
    let settings = ReefSettings::from_root(&root)?;
    let objects = Objects::new(Form::from_code(pool.identity().form));
    let seed = layout::seed(pool.identity().database);
    // Before the header is written: it tells of the process that had the pool before.
    let left = Left {
        shutdown: pool.previous_shutdown(),
        was_relaxed: Pool::status(pool.region(), Boot::default())?.relaxed,
    };
    if left.shutdown != Shutdown::Clean {
        // What is visible need not be durable: it must be, before the first reader relies on it.
        // After power loss, too: an opening in between may have been killed in its recovery.
        pool.begin_writes()?;
        pm.sync(sites::VISIBLE)?;
    }
    let mut plan = plan(&pm, left, &settings, objects, seed)?;
    drop(pm);
    let mut loaded = load(&pool, &settings, seed, &plan, executor);
    let table = make(pool, settings, (objects, seed), &plan, loaded.as_mut())?;
    for segments in &plan.streams {
        for (segment, words) in segments.values() {
            table.claim(segment, *words)?;
        }
    }
    let mut from = vec![Position::default(); plan.streams.len()];
    if let Some(loaded) = loaded {
        table.take_loaded(&loaded, &plan)?;
        from = loaded.checkpoint.tails;
    }
    table.replay_all(&plan, &from, executor)?;
    table.count_log(&from)?;
    if table.pool.writable() {
        table.take_over(&mut plan)?;
    }
    table.pool.recovered()?;
    // A process that ends soon would leave the file longer on disk than it was.
    while table.pool.has_filled_holes() && table.give_storage_back()? {}
    Ok(table)
}

/// Decides what counts.
fn plan<M: Media>(
    pm: &Access<'_, M>,
    left: Left,
    settings: &ReefSettings,
    objects: Objects,
    seed: u64,
) -> Result<Plan> {
    let mut segments = find_segments(pm, settings, seed)?;
    let records = read_records(pm, seed)?;
    if let (Shutdown::Process, Some(newest)) = (left.shutdown, records.first()) {
        // It may have ended between the tails of an atomic batch.
        let tails = read_batch(pm, newest.generation, seed)?;
        segments.iter_mut().for_each(|segment| segment.reach(&tails));
    }
    let mut broken = Error::Corrupt {
        at: ROOT.byte() + 8 * Root::EPOCH_A as u64,
        broken: "one of the two commit records is sound",
    };
    for (place, base) in records.iter().enumerate() {
        let before = records.get(place + 1).filter(|it| it.number + 1 == base.number);
        match chosen(pm, settings, objects, &segments, (base, before), left) {
            Ok(plan) => return Ok(plan),
            // A record that was being written; the one before is there as a whole.
            Err(error @ Error::Corrupt { .. })
                if left.shutdown == Shutdown::Power && place == 0 =>
            {
                broken = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(broken)
}

/// Returns what counts if a commit record does.
///
/// # Errors
/// [`Error::Corrupt`] if it speaks of something that is not there.
fn chosen<M: Media>(
    pm: &Access<'_, M>,
    settings: &ReefSettings,
    objects: Objects,
    segments: &[FoundSegment],
    (base, before): (&Record, Option<&Record>),
    Left { shutdown, was_relaxed }: Left,
) -> Result<Plan> {
    let count = settings.streams as usize;
    let mut plan =
        Plan { base: base.clone(), streams: vec![BTreeMap::new(); count], left_over: Vec::new() };
    let (mut census, mut later) = ((0, 0), vec![BTreeMap::new(); count]);
    for segment in segments.iter().filter(|it| it.freed.is_none_or(|it| it > base.number)) {
        let is_ordered = shutdown == Shutdown::Power && !was_relaxed;
        if is_ordered && segment.generation > base.generation {
            // Where fences reach the device, no opening begins a segment before its own commit
            // record is durable.
            return Err(segment.corrupt("the commit record of the opening that began it is there"));
        }
        let stream = segment.stream as usize;
        let tail = base.tails[stream];
        let map = match segment.sequence <= tail.sequence {
            true => {
                census = (census.0 + 1, census.1 ^ segment.seal);
                &mut plan.streams[stream]
            }
            false => &mut later[stream],
        };
        if map.insert(segment.sequence, (*segment, 0)).is_some() {
            return Err(segment.corrupt("no two segments of a stream have one number"));
        }
    }
    if census != base.census {
        let at = layout::epoch_place(base.number).byte();
        return Err(Error::Corrupt { at, broken: "every segment of a commit record is there" });
    }
    let is_immediate = settings.durability == 1;
    for (stream, later) in later.into_iter().enumerate() {
        let segments = &mut plan.streams[stream];
        let tail = base.tails[stream];
        for (segment, words) in segments.values_mut() {
            *words = match (segment.sequence == tail.sequence, shutdown) {
                (is_last, Shutdown::Process) => {
                    let least = if is_last { tail.fill } else { 0 };
                    visible_words(pm, objects, segment, (least, is_immediate))?
                }
                (false, _) => segment.ended()?,
                (true, _) => tail.fill,
            };
            segment.bound(*words)?;
        }
        if shutdown == Shutdown::Power {
            let from = before.map(|it| it.tails[stream]);
            verify(pm, objects, segments, from)?;
        }
        match (shutdown, is_immediate) {
            (Shutdown::Process, _) => visible(pm, objects, segments, (tail, is_immediate), later)?,
            (Shutdown::Power, true) => {
                let reached = behind(pm, objects, segments, (base, tail), later)?;
                plan.left_over.extend(reached);
            }
            _ => plan.left_over.extend(later.into_values().map(|(segment, _)| segment)),
        }
    }
    Ok(plan)
}

/// Demands that every object from a position on is sound; without one, looks at nothing.
fn verify<M: Media>(
    pm: &Access<'_, M>,
    objects: Objects,
    segments: &BTreeMap<u64, (FoundSegment, u64)>,
    from: Option<Position>,
) -> Result<()> {
    let Some(from) = from else { return Ok(()) };
    for (sequence, (segment, words)) in segments.range(from.sequence..) {
        let start = if *sequence == from.sequence { from.fill } else { 0 };
        let reached = sound_until(pm, objects, segment.part(start, *words), false)?;
        if reached != *words {
            return Err(segment.corrupt("every object of a commit record is sound"));
        }
    }
    Ok(())
}

/// Returns the words in use of a segment that a killed process left, `least` of which a commit
/// record knows. Immediate writes have not moved its tail before it ended; and of a closed pool,
/// power loss may have kept an older one, which a process had not yet moved when it was killed.
fn visible_words<M: Media>(
    pm: &Access<'_, M>,
    objects: Objects,
    segment: &FoundSegment,
    (least, is_immediate): (u64, bool),
) -> Result<u64> {
    let tail = segment.tail()?;
    let is_open = is_immediate && tail.ended == Ended::Not;
    let words = tail.words.max(least);
    segment.bound(words)?;
    if !is_open {
        return Ok(words);
    }
    sound_until(pm, objects, segment.part(words, segment.words()), true)
}

/// Accepts the segments behind a commit record that a killed process left.
fn visible<M: Media>(
    pm: &Access<'_, M>,
    objects: Objects,
    segments: &mut BTreeMap<u64, (FoundSegment, u64)>,
    (tail, is_immediate): (Position, bool),
    later: BTreeMap<u64, (FoundSegment, u64)>,
) -> Result<()> {
    let mut last = segments.get(&tail.sequence).map(|(segment, _)| *segment);
    let mut next = tail.sequence;
    for (sequence, (segment, _)) in later {
        next = next.wrapping_add(1);
        if sequence != next {
            return Err(segment.corrupt("the segments of a stream have consecutive numbers"));
        }
        let words = visible_words(pm, objects, &segment, (0, is_immediate))?;
        segments.insert(sequence, (segment, words));
        last = Some(segment);
    }
    match last {
        Some(last) if last.tail()?.ended == Ended::Followed => {
            Err(last.corrupt("the segment is there that follows a full one"))
        }
        _ => Ok(()),
    }
}

/// Accepts what lies behind a commit record as far as objects are sound; returns the segments that
/// do not count.
fn behind<M: Media>(
    pm: &Access<'_, M>,
    objects: Objects,
    segments: &mut BTreeMap<u64, (FoundSegment, u64)>,
    (base, tail): (&Record, Position),
    later: BTreeMap<u64, (FoundSegment, u64)>,
) -> Result<Vec<FoundSegment>> {
    // An earlier opening has ended its segments: what lies behind their ends never counted.
    let goes_on = |segment: &FoundSegment| segment.generation == base.generation;
    if let Some((segment, words)) = segments.get_mut(&tail.sequence)
        && goes_on(segment)
    {
        *words = sound_until(pm, objects, segment.part(*words, segment.words()), true)?;
    }
    let (mut left_over, mut next) = (Vec::new(), tail.sequence);
    for (sequence, (segment, _)) in later {
        next = next.wrapping_add(1);
        if sequence != next || !left_over.is_empty() || !goes_on(&segment) {
            left_over.push(segment);
            continue;
        }
        let words = sound_until(pm, objects, segment.part(0, segment.words()), true)?;
        segments.insert(sequence, (segment, words));
    }
    Ok(left_over)
}

/// Returns where the sound objects of a part end, or if so asked, the first one of an atomic batch
/// begins. Unit: words of the segment.
fn sound_until<M: Media>(
    pm: &Access<'_, M>,
    objects: Objects,
    part: Part,
    until_batch: bool,
) -> Result<u64> {
    let mut reader = Reader::new(pm, objects, PIECE, [part.span()]);
    reader.turn(part);
    reader.sound_until(until_batch)
}

/// Returns the streams of a plan, without segments.
fn streams_of<M: Media>(plan: &Plan) -> Box<[StreamOf<M>]> {
    let streams = plan.streams.iter().enumerate().map(|(number, segments)| {
        let mut stream = Stream { number: number as u64, ..Stream::default() };
        let base = plan.base.tails[number];
        let last = segments
            .last_key_value()
            .map(|(sequence, (_, words))| Position { sequence: *sequence, fill: *words });
        stream.last = last.map_or(base, |last| last.max(base));
        // What was found behind the record is durable, but not where it ends from now on.
        stream.durable = base;
        stream.floor = segments.values().map(|(it, _)| it.floor).max().unwrap_or(1);
        stream.is_due = true;
        OwnLines(Latch::new(stream))
    });
    streams.collect()
}

fn make<M: Media>(
    pool: Pool<M>,
    settings: ReefSettings,
    (objects, seed): (Objects, u64),
    plan: &Plan,
    loaded: Option<&mut Loaded<M>>,
) -> Result<Reef<M>> {
    let hasher = KeyedHash::of(pool.identity())?;
    let form = Form::from_code(pool.identity().form);
    let unit_bytes = settings.unit_bytes();
    let space = Space::new(pool.region().clone(), pool::DATA);
    // Forged numbers must not take more memory than the pool has bytes.
    let buckets = pool.region().media().bytes() / LINE / settings.shards;
    // Leaves have one length for ever: it is not that of a medium which is about to grow.
    let level = settings.level().min(buckets.max(1 << LEAST_LEVEL).ilog2());
    let pairs = plan.base.pairs.div_ceil(settings.shards).min(2 * buckets);
    let (checkpoint, arena, shards) = match loaded {
        Some(it) => {
            (Some(it.checkpoint.clone()), Arc::clone(&it.arena), core::mem::take(&mut it.shards))
        }
        None => {
            let size = |number| Size::new(level, (number, settings.shards), pairs);
            let sizes: Vec<Size> = (0..settings.shards).map(size).collect();
            let arena = Arc::new(Arena::new(sizes.iter().map(|size| size.words()).sum()));
            let shards = sizes.into_iter().map(|size| Shard::new(&arena, size));
            let shards: Vec<_> = shards.collect::<Result<_>>()?;
            (None, arena, shards)
        }
    };
    Ok(Reef {
        form,
        settings,
        lookup: word_lookup(&hasher),
        hasher,
        objects,
        seed,
        generation: plan.base.generation.wrapping_add(1),
        unit_bytes,
        is_immediate: settings.durability == 1,
        space,
        units: Units::new(unit_bytes),
        arena,
        shards: Masked::new(shards.into()),
        streams: streams_of::<M>(plan),
        runs: Runs::new(plan.streams.len()),
        epochs: Lock::new(Epochs { number: plan.base.number, checkpoint, ..Epochs::default() }),
        kept: Lock::new(Vec::new()),
        longest: AtomicWord::new(0),
        is_short: AtomicWord::new(0),
        spare: Lock::new(None),
        used: AtomicWord::new(0),
        dead: AtomicWord::new(0),
        collected: (0..settings.streams).map(|_| OwnLines(Lock::new(None))).collect(),
        making_room: Lock::new(()),
        batching: Lock::new(()),
        checkpointing: Lock::new(()),
        seen_written: AtomicWord::new(0),
        seen_since: AtomicWord::new(0),
        given_back_at: AtomicWord::new(0),
        collections: AtomicWord::new(0),
        pool,
    })
}

impl<M: Media> Reef<M> {
    /// Claims the units of a segment that are in use.
    fn claim(&self, segment: &FoundSegment, words: u64) -> Result<()> {
        let span = Span::of_bytes(segment.at, self.whole_units(words));
        if span.end_byte() > END.byte() {
            let what = "segments behind the first 16 TiB of a pool".into();
            return Err(Error::Unsupported { what });
        }
        self.space.claim(span)?;
        self.units.set(span, segment.seal, self.unit_bytes);
        self.used.fetch_add(span.bytes(), Ordering::Relaxed);
        let number = segment.stream as usize;
        let mut stream = self.streams[number].0.lock()?;
        let sealed = Sealed {
            span,
            seal: segment.seal,
            fill: words,
            tombstones: 0,
            is_empty: false,
            is_damaged: false,
            is_found: true,
            refused_at: None,
        };
        stream.sealed.insert(segment.sequence, sealed);
        stream.census = (stream.census.0 + 1, stream.census.1 ^ segment.seal);
        Ok(())
    }

    /// Makes what was decided durable: where segments end, which of them are empty, and with them
    /// the commit record of this opening.
    ///
    /// A crash inside leaves what was decided, or what was found: as long as a part of it is not
    /// durable, the new commit record does not count, and the one from which we went on does.
    fn take_over(&self, plan: &mut Plan) -> Result<()> {
        self.pool.begin_writes()?;
        let pm = self.pool.access();
        let next = plan.base.number + 1;
        if self.pool.previous_shutdown() == Shutdown::Power {
            // A record that was refused, or torn, must not count once the tails that it speaks of
            // are other ones: a second power loss may keep those and not the new record.
            let checksum = layout::epoch_place(next).plus(Epoch::CHECKSUM as u64);
            self.poison_on_error(pm.store(checksum, 0))?;
            self.poison_on_error(pm.persist(Span::new(checksum, 1), epochs::sites::RECORD))?;
        }
        for (number, segments) in plan.streams.iter().enumerate() {
            let mut stream = self.streams[number].0.lock()?;
            stream.epoch = next;
            // Those behind the commit record too: their last tails need not be durable.
            let tail = plan.base.tails[number];
            for (segment, words) in segments.range(tail.sequence..).map(|(_, it)| it) {
                let tail = Tail { words: *words, ended: Ended::Reopened }.word(segment.seal);
                let tail_at = segment.at.plus(SegmentHead::TAIL as u64);
                self.poison_on_error(pm.commit_word(tail_at, tail, sites::TAIL))?;
            }
            for (segment, _) in segments.values().filter(|(it, _)| it.freed.is_some()) {
                // It was being emptied as of an epoch that has not come: it is not, as of ours.
                let checksum_at = segment.at.plus(SegmentHead::CHECKSUM as u64);
                self.poison_on_error(pm.store(checksum_at, segment.seal))?;
                stream.restored.push(segment.at);
            }
            let floor = stream.floor;
            let before: Vec<u64> = stream.sealed.range(..floor).map(|(it, _)| *it).collect();
            before.into_iter().try_for_each(|it| self.mark_empty(&pm, &mut stream, it))?;
        }
        let mut epochs = self.epochs.lock()?;
        for segment in plan.left_over.drain(..) {
            let checksum_at = segment.at.plus(SegmentHead::CHECKSUM as u64);
            self.poison_on_error(pm.store(checksum_at, layout::freed_word(next, segment.seal)))?;
            // Its first unit waits until that is durable; the others lead nowhere.
            let span = Span::of_bytes(segment.at, self.unit_bytes);
            self.space.claim(span)?;
            self.used.fetch_add(span.bytes(), Ordering::Relaxed);
            let mut stream = self.streams[segment.stream as usize].0.lock()?;
            stream.emptied.push((segment.sequence, span));
        }
        self.commit_next(&mut epochs)
    }
}
