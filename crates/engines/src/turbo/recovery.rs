//! Opening a pool, clean or after a crash (TurboHash 3.7): the directory is read, the rest is
//! where it was.
//!
//! A crash leaves nothing to repair: what no META names is free, and so is what no descriptor
//! names. Opening is independent of table size, but for records: the heap learns from every slot
//! which of its records are in use.

use core::marker::PhantomData;
use core::ops::Range;
use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Error, Executor, Form, Result};
use everhash_pmem::{
    Addr, AtomicWord, Domain, Heap, LINE, Lock, Media, Pool, Shutdown, Space, Span, pool,
};

use super::bucket::{Bucket, slots_of};
use super::concurrency::Lanes;
use super::layout::{self, Lane, Place, ROOT, Root};
use super::setup::TurboSettings;
use super::shard::{Directory, read_place};
use super::state::{LookupOf, Turbo};
use super::variable_size_items::PairCodec;
use crate::common::hash::KeyedHash;
use crate::common::jobs::run_all;

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// What was visible, and perhaps not durable, when the process was killed.
        NOTED = "turbo/recovery/noted";
        /// All that is accepted, where no lane notes what may not be durable.
        ACCEPTED = "turbo/recovery/accepted";
    }
}

/// Shards whose records one job claims.
///
/// Unit: shards. Source: ours; enough jobs for every core, and few enough to cost nothing.
const SHARDS_PER_JOB: u64 = 64;

/// The root, as it was read and checked.
struct Found {
    settings: TurboSettings,
    directory: Addr,
    /// Pairs at the last clean close, if that was the last.
    items: Option<u64>,
}

/// Opens the table in a pool.
///
/// # Errors
/// [`Error::Corrupt`] and errors of the medium.
pub fn open<M: Media, C: PairCodec>(
    pool: Pool<M>,
    executor: &dyn Executor,
    lookup: LookupOf<M>,
) -> Result<Turbo<M, C>> {
    let found = read_root(&pool)?;
    let places = {
        let pm = pool.access();
        let shards = 0..found.settings.shards;
        let place = |shard| read_place(&pm, layout::descriptor_at(found.directory, shard));
        shards.map(place).collect::<Result<Vec<Place>>>()?
    };
    let space = Arc::new(Space::new(pool.region().clone(), pool::DATA));
    // First of all: then all shards together are no longer than the medium.
    claim_places(&space, &found, &places)?;
    if pool.writable() && pool.previous_shutdown() != Shutdown::Clean {
        accept(&pool, &found, &places)?;
    }
    let table = assemble::<M, C>(pool, found, (space, &places), lookup)?;
    if C::RECORDS {
        table.claim_records(executor)?;
    }
    table.pool.recovered()?;
    Ok(table)
}

fn read_root<M: Media>(pool: &Pool<M>) -> Result<Found> {
    let mut root = [0; Root::REST];
    pool.access().read_words(ROOT, &mut root)?;
    let words = root.first_chunk().expect("the settings are the beginning of the root");
    let settings = TurboSettings::from_root(words)?;
    let broken = "the directory lies inside the pool";
    let corrupt = Error::Corrupt { at: ROOT.plus(Root::DIRECTORY as u64).byte(), broken };
    let bytes = layout::directory_bytes(settings.shards, settings.lanes);
    let inside = |at: &Addr| {
        at.byte().checked_add(bytes).is_some_and(|end| end <= pool.region().media().bytes())
    };
    // Before anything is allocated in proportion to the number of shards.
    let directory = Addr::from_medium(root[Root::DIRECTORY]).filter(inside).ok_or(corrupt)?;
    let counted = pool.previous_shutdown() == Shutdown::Clean
        && root[Root::ITEMS_CHECK] == layout::items_check(root[Root::ITEMS]);
    Ok(Found { settings, directory, items: counted.then_some(root[Root::ITEMS]) })
}

/// Makes durable what was visible when the process was killed, before a reader sees it.
///
/// Only descriptors and META words can be visible without being durable: what they lead to was
/// fenced before them, or lies in the line of META. What is flushed here is fenced with the header
/// that says that the pool is open, by this thread; after a crash before that it is done again.
fn accept<M: Media>(pool: &Pool<M>, found: &Found, places: &[Place]) -> Result<()> {
    let pm = pool.access();
    let lanes = found.settings.lanes;
    if lanes == 0 || !takes_notes(pool) {
        return Ok(pm.sync(sites::ACCEPTED)?);
    }
    pm.flush(descriptors(found), sites::NOTED);
    let flush_head =
        |bucket: Addr| pm.flush(Span::new(bucket, layout::LINE_WORDS as u64), sites::NOTED);
    // Each shard once, however many lanes name it: the work is bounded by the medium's length.
    let mut shards = BTreeSet::new();
    for lane in 0..lanes {
        let at = layout::lane_at(found.directory, found.settings.shards, lane);
        let note = pm.load(at.plus(Lane::NOTE as u64))?;
        // After power loss a note may be anything: a flush does no harm anywhere.
        if note & 1 == 1 {
            shards.insert(note >> 1);
        } else if let Some(bucket) = Addr::from_medium(note).filter(|at| !at.is_null()) {
            flush_head(bucket);
        }
    }
    for place in shards.into_iter().filter_map(|shard| places.get(usize::try_from(shard).ok()?)) {
        (0..place.buckets()).for_each(|index| flush_head(place.bucket(index)));
    }
    Ok(())
}

/// Returns whether writers note where they write: where a killed process may leave visible what
/// is not durable, and where a sync of everything would take time in proportion to the pool.
fn takes_notes<M: Media>(pool: &Pool<M>) -> bool {
    pool.region().media().guarantees().domain == Domain::Adr
}

fn descriptors(found: &Found) -> Span {
    Span::of_bytes(found.directory, layout::directory_bytes(found.settings.shards, 0))
}

/// Claims the space of the directory and of all shards, neighbours together.
fn claim_places<M: Media>(space: &Space<M>, found: &Found, places: &[Place]) -> Result<()> {
    let bytes = layout::directory_bytes(found.settings.shards, found.settings.lanes);
    space.claim(Span::of_bytes(found.directory, bytes))?;
    let mut sorted: Vec<(u64, u64)> =
        places.iter().map(|place| (place.start.byte(), place.bytes())).collect();
    sorted.sort_unstable();
    let mut runs = sorted.into_iter();
    let mut run = runs.next();
    for (start, bytes) in runs {
        match &mut run {
            Some((at, length)) if *at + *length == start => *length += bytes,
            // Neighbours that overlap are claimed apart, and refused.
            Some((at, length)) => {
                space.claim(Span::of_bytes(Addr::new(*at), *length))?;
                (*at, *length) = (start, bytes);
            }
            None => {}
        }
    }
    if let Some((at, length)) = run {
        space.claim(Span::of_bytes(Addr::new(at), length))?;
    }
    Ok(())
}

fn assemble<M: Media, C: PairCodec>(
    pool: Pool<M>,
    found: Found,
    (space, places): (Arc<Space<M>>, &[Place]),
    lookup: LookupOf<M>,
) -> Result<Turbo<M, C>> {
    let Found { settings, directory, items } = found;
    let lanes = if takes_notes(&pool) && pool.writable() { settings.lanes } else { 0 };
    let hasher = KeyedHash::of(pool.identity())?;
    Ok(Turbo {
        form: Form::from_code(pool.identity().form),
        settings,
        lookup: lookup(&hasher),
        used_slots: (1 << settings.bucket_slots) - 1,
        hasher,
        ordered: pool.region().media().guarantees().same_line_order,
        heap: Heap::new(Arc::clone(&space), settings.page_bytes),
        directory: Directory::new(directory, places),
        lanes: Lanes::new(layout::lane_at(directory, settings.shards, 0), lanes),
        opened_with: Lock::new(items),
        due: Lock::new(Vec::new()),
        taken: AtomicWord::new(0),
        is_short: AtomicWord::new(1),
        doublings: AtomicWord::new(0),
        collections: AtomicWord::new(0),
        space,
        pool,
        pairs: PhantomData,
    })
}

impl<M: Media, C: PairCodec> Turbo<M, C> {
    /// Claims every record that a slot leads to, in parallel.
    fn claim_records(&self, executor: &dyn Executor) -> Result<()> {
        let shards = self.directory.shards().len() as u64;
        let jobs = shards.div_ceil(SHARDS_PER_JOB);
        run_all::<M::Sync, _>(executor, jobs as usize, |job| {
            let first = job as u64 * SHARDS_PER_JOB;
            self.claim_range(first..(first + SHARDS_PER_JOB).min(shards))
        })
        .map(drop)
    }

    fn claim_range(&self, shards: Range<u64>) -> Result<()> {
        let pm = self.pool.access();
        for shard in shards {
            let place = self.directory.shards()[shard as usize].place();
            for index in 0..place.buckets() {
                let bucket = Bucket::of(&pm, place, index)?;
                let view = bucket.view_of(bucket.meta_word())?;
                for slot in slots_of(view.meta.live()) {
                    let pair = C::decode(bucket.pair(&view, slot)?, bucket.slot_at(slot))?;
                    if let Some(record) = C::record(pair) {
                        self.heap.claim(record.addr, record.class)?;
                    }
                }
            }
        }
        Ok(())
    }
}

const _: () = assert!(Lane::BYTES as u64 == LINE, "a flush of the descriptors spares the lanes");
