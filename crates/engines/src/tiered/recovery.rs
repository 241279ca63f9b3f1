//! Opening a pool, clean or after a crash (Tiered Hashing 3.6).
//!
//! A crash leaves nothing to repair: of the copies of a key the topmost one counts, a slot that was
//! being written is open, and what no link and no slot leads to is free. Shadows whose flag was
//! lost are valid again; the next move finds the equal copy below. Recovery makes durable what a
//! killed process has left visible, claims the space that is in use, and counts.

mod above;

use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use everhash_index::{Executor, Form, Result};
use everhash_pmem::{Access, AtomicWord, Heap, Lock, Media, Pool, Shutdown, Space, Span, pool};

use self::above::Above;
use super::bucket::{Line, Lines, PairCodec, corrupt};
use super::concurrency::Groups;
use super::fingerprints::{Covers, Fingerprints, Known};
use super::layers::{Layers, View};
use super::layout::{self, Listed, MOST_LIVE, PLACES, Place, ROOT, Root, is_deleted, is_second};
use super::setup::{TieredSettings, costs_pages};
use super::state::{Growth, LookupOf, ShortLookup, Sweep, Tiered, line_class};
use crate::common::hash::KeyedHash;
use crate::common::jobs::run_all;
use crate::common::leftovers::Leftovers;

/// Where recovery persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// All that is visible, before recovery relies on it.
        ACCEPTED = "tiered/recover/accepted";
    }
}

/// Groups that one job reads.
///
/// Unit: groups. Source: ours; enough jobs for every core, and few enough to cost nothing.
const GROUPS_PER_JOB: u64 = 16;

/// Opens the table in a pool.
///
/// # Errors
/// [`Error::Corrupt`] and errors of the medium.
pub fn open<M: Media, C: PairCodec>(
    pool: Pool<M>,
    executor: &dyn Executor,
    lookup: LookupOf<M>,
) -> Result<Tiered<M, C>> {
    if pool.writable() && pool.previous_shutdown() != Shutdown::Clean {
        // After a crash of the process alone, what is visible need not be durable. What is relied
        // on below, and shown to a reader, must not be lost in the next power failure.
        pool.access().sync(sites::ACCEPTED)?;
    }
    let settings = read_settings(&pool.access())?;
    let (first, places) = read_places(&pool.access(), &settings)?;
    let space = Arc::new(Space::new(pool.region().clone(), pool::DATA));
    for place in &places {
        // First of all: then all layers together are no longer than the medium.
        space.claim(Span::of_bytes(place.start(), place.bytes()))?;
    }
    let mut table = assemble::<M, C>(pool, settings, space, (first, &places), lookup)?;
    table.read_all(executor)?;
    table.estimate = AtomicWord::new(table.len());
    table.grow_at = AtomicWord::new(table.items_to_grow());
    table.pool.recovered()?;
    table.announce(&table.pool.access());
    Ok(table)
}

fn read_settings<M: Media>(pm: &Access<'_, M>) -> Result<TieredSettings> {
    let mut words = [0; Root::CHECKSUM + 1];
    pm.read_words(ROOT, &mut words)?;
    TieredSettings::from_root(&words)
}

/// Reads which layers there are: those behind all that were dropped.
fn read_places<M: Media>(
    pm: &Access<'_, M>,
    settings: &TieredSettings,
) -> Result<(usize, Vec<Place>)> {
    let (mut first, mut places) = (0, Vec::new());
    let mut ended = false;
    for index in 0..PLACES {
        let at = layout::place_at(index);
        let broken = "the place of a layer matches its check";
        match Listed::decode(pm.load(at)?, at).ok_or_else(|| corrupt(at, broken))? {
            Listed::Unused => ended = true,
            Listed::Dropped if !ended && places.is_empty() => first = index + 1,
            Listed::Live(place) if !ended && place.log() == settings.layer_log(index as u64) => {
                places.push(place);
            }
            _ => return Err(corrupt(at, "layers follow one another")),
        }
    }
    let usual = settings.layers as usize;
    if !(usual..=usual + 1).contains(&places.len()) || places.len() > MOST_LIVE {
        return Err(corrupt(layout::place_at(first), "there are as many layers as settings say"));
    }
    Ok((first, places))
}

fn assemble<M: Media, C: PairCodec>(
    pool: Pool<M>,
    settings: TieredSettings,
    space: Arc<Space<M>>,
    (first, places): (usize, &[Place]),
    lookup: LookupOf<M>,
) -> Result<Tiered<M, C>> {
    let page_log = layout::page_log(settings.page_bytes);
    let groups_log = layout::groups_log(places[0].buckets() >> page_log);
    let layers = Layers::new(first, places, settings.layers as usize, groups_log);
    let covers = Covers::of_setting(settings.fingerprints);
    let fingerprints = Fingerprints::new(covers, settings.layers);
    fingerprints.add_all(&layers.view());
    let hasher = KeyedHash::of(pool.identity())?;
    let guarantees = pool.region().media().guarantees();
    let by_column = covers == Covers::Nothing && costs_pages(guarantees);
    let short_lookup = ShortLookup::of(covers, settings.shadow_reading == 1, by_column);
    Ok(Tiered {
        form: Form::from_code(pool.identity().form),
        settings,
        lookup: lookup(&hasher, short_lookup),
        hasher,
        short_lookup,
        by_column,
        ordered: guarantees.same_line_order,
        heap: Heap::new(Arc::clone(&space), settings.heap_page_bytes),
        space,
        // The top layer only becomes larger: a group has one page of it, or more.
        groups: Groups::new(groups_log),
        layers,
        fingerprints,
        estimate: AtomicWord::new(0),
        grow_at: AtomicWord::new(0),
        growth: Lock::new(Growth::default()),
        sweep: Lock::new(Sweep::default()),
        // What was left behind before is not known.
        unswept: Leftovers::new(1),
        moved: AtomicWord::new(0),
        overflowed: AtomicWord::new(0),
        pairs: PhantomData,
        pool,
    })
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Reads every line: claims overflow lines and records, and counts items.
    fn read_all(&self, executor: &dyn Executor) -> Result<()> {
        let groups = 1u64 << self.layers.live().groups_log();
        let jobs = groups.div_ceil(GROUPS_PER_JOB);
        run_all::<M::Sync, _>(executor, jobs as usize, |job| {
            let first = job as u64 * GROUPS_PER_JOB;
            self.read_groups(first..(first + GROUPS_PER_JOB).min(groups))
        })
        .map(drop)
    }

    fn read_groups(&self, groups: Range<u64>) -> Result<()> {
        let pm = self.pool.access();
        let view = self.layers.view();
        // Lines first: a copy that is looked for must not lie behind a link that goes in a circle.
        for group in groups.clone() {
            self.each_line(&pm, &view, group, |_, _, line, number| {
                match number {
                    0 | 1 => {
                        let has_link = number == 1 && line.next()?.is_some();
                        let known = Known { head: line.head, has_link };
                        self.fingerprints.learn(&view, line.at(), known);
                    }
                    _ => self.heap.claim(line.at(), line_class())?,
                }
                Ok(())
            })?;
        }
        let mut above = Above::default();
        for group in groups {
            let mut items = 0;
            self.each_line(&pm, &view, group, |rank, index, line, _| {
                if !line.head.is_plausible(self.settings.line_slots as usize) {
                    return Err(corrupt(line.at(), "the flags of a line are those of a write"));
                }
                above.look(&pm, &view, (rank, index))?;
                for slot in line.readable() {
                    self.position_of(line, slot, (view.place(rank), index))?;
                    // Before any record is read: one is in use once, then.
                    self.claim_record(&above, line, slot)?;
                    let (state, contents) = line.slot(slot);
                    let is_item = !is_deleted(state) && !above.has_key::<M, C>(&pm, contents)?;
                    items += u64::from(is_item);
                }
                Ok(())
            })?;
            self.groups.count_found(view.live(), group, items);
        }
        Ok(())
    }

    /// Visits every line of a group: with its layer, its bucket, and its number in the bucket.
    fn each_line(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        group: u64,
        mut visit: impl FnMut(usize, u64, &Line<'_, M>, u64) -> Result<()>,
    ) -> Result<()> {
        for (rank, place) in view.all().iter().enumerate() {
            let shift = place.log() - view.live().groups_log();
            for index in group << shift..(group + 1) << shift {
                let mut lines = Lines::of(pm, place.bucket(index));
                while let Some((line, number)) = lines.advance()? {
                    visit(rank, index, &line, number)?;
                }
            }
        }
        Ok(())
    }

    /// Claims the record of a slot, unless a copy further up leads to it too.
    fn claim_record(&self, above: &Above, line: &Line<'_, M>, slot: usize) -> Result<()> {
        let (state, (words, at)) = line.slot(slot);
        match C::record(C::decode(words, at)?) {
            Some(record) if !above.leads(words, is_second(state)) => {
                Ok(self.heap.claim(record.addr, record.class)?)
            }
            _ => Ok(()),
        }
    }
}
