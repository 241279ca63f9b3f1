//! Opening a table (the paper has no recovery): one walk over all chains finds what is in use.
//!
//! The walk is the same after a clean close and after a crash; only a crash leaves something to
//! repair. Each repair is one store that removes a pair which no reader would find anyway, so it
//! may be repeated, and a crash between two of them changes nothing.
//!
//! | a crash leaves | recovery |
//! |---|---|
//! | stores that are visible and not durable | persists them before it relies on any |
//! | a bucket that no link leads to | finds it free |
//! | an upper bucket whose lower half is not split | ignores it; growth writes it again |
//! | pairs that moved to the upper half, in the lower half's chain | clears their tokens |
//! | two equal keys in different buckets | clears the token that is not the successor |
//! | a record that no slot leads to | finds it free |

mod walk;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Executor, Form, Result};
use everhash_pmem::{
    Access, Addr, AtomicWord, Heap, LINE, Lock, Media, Pool, Shutdown, Space, Span, pool,
};

use self::walk::{Found, Walk};
use super::bucket::{BucketCodec, corrupt};
use super::bucket_pre_allocation::PreAllocated;
use super::concurrency::Stripes;
use super::layout::{self, EXTENTS, MOST_BUCKETS, ROOT, Root};
use super::main_buckets::{MainBuckets, View};
use super::setup::WophiSettings;
use super::state::{Growth, LookupOf, Sweep, Wophi};
use crate::common::hash::KeyedHash;
use crate::common::leftovers::Leftovers;

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// Everything that is visible, before recovery relies on it.
        ACCEPTED = "wophi/recover/accepted";
        /// The tokens of pairs that an interrupted split or update left.
        ENDED = "wophi/recover/ended";
    }
}

/// The arrays that the root leads to.
struct Extents {
    main: Vec<Addr>,
    pab: Vec<Span>,
}

/// Opens the table in a pool.
///
/// # Errors
/// [`everhash_index::Error::Corrupt`] and errors of the medium.
pub fn open<M: Media, C: BucketCodec>(
    pool: Pool<M>,
    executor: &dyn Executor,
    lookup: LookupOf<M>,
) -> Result<Wophi<M, C>> {
    if pool.writable() && pool.previous_shutdown() != Shutdown::Clean {
        // After a killed process, what is visible need not be durable. What the walk relies on,
        // and a reader is shown, must survive the next power loss.
        pool.access().sync(sites::ACCEPTED)?;
    }
    let settings = read_settings(&pool.access())?;
    let space = Arc::new(Space::new(pool.region().clone(), pool::DATA));
    let extents = read_extents::<M, C>(&pool.access(), &settings, &space)?;
    let mut table = empty_table::<M, C>(pool, settings, space, lookup)?;
    let level = extents.main.len() as u32 - 1;
    for (extent, at) in extents.main.into_iter().enumerate() {
        table.main.set_extent(extent, at);
    }
    if table.pool.previous_shutdown() != Shutdown::Clean {
        table.pool.begin_writes()?;
    }
    // As if the last growth were still in progress: the walk finds out.
    let lower = level.saturating_sub(1);
    table.main.set_view(View { level: lower, growing: level > 0 });
    let walk = Walk::new(&table, extents.pab, level);
    let found = walk.run(executor)?;
    walk.add_arrays()?;
    drop(walk);
    table.resume(level, &found);
    table.pool.recovered()?;
    Ok(table)
}

fn read_settings<M: Media>(pm: &Access<'_, M>) -> Result<WophiSettings> {
    let mut words = [0; Root::CHECKSUM + 1];
    pm.read_words(ROOT, &mut words)?;
    WophiSettings::from_root(&words)
}

/// Reads where the arrays lie, and claims their space.
fn read_extents<M: Media, C: BucketCodec>(
    pm: &Access<'_, M>,
    settings: &WophiSettings,
    space: &Space<M>,
) -> Result<Extents> {
    let mut extents = Extents { main: Vec::new(), pab: Vec::new() };
    let initial = settings.initial_buckets;
    for extent in 0..EXTENTS {
        let link = layout::extent_link(extent);
        let Some(at) = read_link(pm, link)? else { continue };
        let buckets = layout::extent_buckets(initial, extent);
        if extents.main.len() != extent || buckets > MOST_BUCKETS / 2 {
            return Err(corrupt(link, "extents follow one another"));
        }
        let count = layout::pab_buckets(initial, settings.pab_divisor, extent);
        let [main, pab] = layout::extent_spans(at, [buckets, count], C::LINES * LINE);
        space.claim(main)?;
        space.claim(pab)?;
        extents.main.push(main.start);
        extents.pab.push(pab);
    }
    if extents.main.is_empty() {
        return Err(corrupt(layout::extent_link(0), "a table has an extent"));
    }
    Ok(extents)
}

fn read_link<M: Media>(pm: &Access<'_, M>, at: Addr) -> Result<Option<Addr>> {
    match layout::decode_link(pm.load(at)?, at) {
        Some(target) => Ok((!target.is_null()).then_some(target)),
        None => Err(corrupt(at, "a link of the root matches its check")),
    }
}

fn empty_table<M: Media, C: BucketCodec>(
    pool: Pool<M>,
    settings: WophiSettings,
    space: Arc<Space<M>>,
    lookup: LookupOf<M>,
) -> Result<Wophi<M, C>> {
    let hasher = KeyedHash::of(pool.identity())?;
    Ok(Wophi {
        form: Form::from_code(pool.identity().form),
        settings,
        lookup: lookup(&hasher),
        hasher,
        ordered: pool.region().media().guarantees().same_line_order,
        heap: Heap::new(Arc::clone(&space), settings.page_bytes),
        main: MainBuckets::new(settings.initial_buckets),
        pab: PreAllocated::new(Arc::clone(&space), C::LINES * LINE, settings.page_bytes),
        stripes: Stripes::new(settings.stripes),
        space,
        pool,
        recovered_items: 0,
        estimate: AtomicWord::new(0),
        grow_at: AtomicWord::new(0),
        growth: Lock::new(Growth::default()),
        sweep: Lock::new(Sweep::default()),
        emptied: Leftovers::new(0),
        longest_chain: AtomicWord::new(1),
        codec: core::marker::PhantomData,
    })
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Takes over what the walk found, and continues a growth that was in progress.
    fn resume(&mut self, level: u32, found: &Found) {
        self.recovered_items = found.items;
        self.estimate.store(found.items, Ordering::Relaxed);
        self.emptied.add(found.empty);
        self.pab.found_in_use(found.chained);
        let view = match (level, found.unsplit) {
            (0, _) | (_, None) => View { level, growing: false },
            (_, Some(unsplit)) => {
                let level = level - 1;
                let group = self.group_buckets(level);
                let growth = Growth::from_group(unsplit / group, self.main.count(level) / group);
                self.growth = Lock::new(growth);
                View { level, growing: true }
            }
        };
        self.grow_at.store(self.items_at(view.level), Ordering::Relaxed);
        self.main.set_view(view);
    }
}
