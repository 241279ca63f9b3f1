//! What an open table holds in DRAM, and how its parts reach one another.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Checked, Error, Result};
use everhash_pmem::{
    Access, Addr, AtomicWord, Heap, Latch, Media, Pool, Primitives, Region, Space,
};

use super::collectors::Collectors;
use super::concurrency::Held;
use super::dram_table::{Bucket, DramTable, Segment};
use super::form::Form;
use super::lane::{Holds, Lane, Reclaimed};
use super::layout::{Geometry, MOST_LAP};
use super::setup::ElimDaSettings;
use crate::common::hash::KeyedHash;
use crate::common::slot_codec::Words;

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// A lane of the log with its lock, of the family that goes with medium `M`.
pub type LaneOf<M> = Latch<<M as Media>::Sync, Lane>;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&ElimDa<M, Words>, u64) -> Result<Option<u64>>;

/// A function that reads a pool at rest, visits every pair, and names what is broken.
pub type Judge<M> = fn(&Region<M>, &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked>;

/// How often a write makes room before it gives up.
///
/// Unit: rounds. Source: ours; a split that leaves a full half needs one more, and threads that
/// take what was made free need a few.
const MOST_ROUNDS: u32 = 64;

/// A counter alone in its pair of lines.
#[repr(align(128))]
pub struct Counter<W>(pub W);

/// A change of a counter ahead of the write that it counts, which is taken back if the write ends
/// in an error or a panic.
///
/// It is made before the fence of the write: a locked instruction behind a fence waits until all is
/// written back.
#[must_use = "what is not kept is taken back"]
pub struct Counted<'t, P: Primitives> {
    counter: &'t P::AtomicU64,
    by: u64,
}

impl<'t, P: Primitives> Counted<'t, P> {
    #[inline(always)]
    fn new(counter: &'t P::AtomicU64, by: u64) -> Self {
        counter.fetch_add(by, Ordering::Relaxed);
        Counted { counter, by }
    }

    /// Says that the write is done.
    #[inline(always)]
    pub fn keep(self) {
        core::mem::forget(self);
    }
}

impl<P: Primitives> Drop for Counted<'_, P> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.counter.fetch_sub(self.by, Ordering::Relaxed);
    }
}

/// An open table with pairs of form `F`.
pub struct ElimDa<M: Media, F: Form> {
    pub(super) pool: Pool<M>,
    pub(super) settings: ElimDaSettings,
    pub(super) geometry: Geometry,
    pub(super) hasher: KeyedHash,
    /// How a key is looked up, if pairs are words.
    pub(super) lookup: WordLookup<M>,
    /// Whether a line keeps the order of its stores on this medium.
    pub(super) ordered: bool,
    /// Whether lines leave the caches whenever these need room, and for nothing else.
    pub(super) durable_caches: bool,
    /// Whether the device reads and writes units of several lines.
    pub(super) has_units: bool,
    pub(super) space: Arc<Space<M>>,
    pub(super) heap: Heap<M>,
    pub(super) table: DramTable<M::Sync>,
    pub(super) lanes: Box<[LaneOf<M>]>,
    /// The cache layer, where there is one.
    pub(super) collectors: Option<Collectors<M::Sync>>,
    pub(super) segment_table: LockOf<M, SegmentTable>,
    /// Segments of the table.
    pub(super) segments: WordOf<M>,
    /// Items, modulo 2^64: each counter for some hashes.
    pub(super) counters: Box<[Counter<WordOf<M>>]>,
    /// Items that the open has met in two places, and counted once.
    pub(super) doubled: WordOf<M>,
    /// Where the next call of `maintain` goes on.
    pub(super) sweep: LockOf<M, u64>,
    /// The judge of pools at rest.
    pub(super) judge: Judge<M>,
    pub(super) form: core::marker::PhantomData<fn() -> F>,
}

/// Space for a segment.
pub struct Room {
    /// Where it lies.
    pub at: Addr,
    /// The lap that a segment has there.
    pub lap: u64,
    /// What its units hold: of old states, all have a lower lap.
    pub holds: Holds,
}

impl Room {
    /// Returns the space of the segment at `at` that nobody uses any more. When laps come round,
    /// it must be written whole.
    pub fn after(at: Addr, lap: u64) -> Room {
        match lap < MOST_LAP {
            true => Room { at, lap: lap + 1, holds: Holds::OldStates },
            false => Room { at, lap: 1, holds: Holds::Anything },
        }
    }
}

/// The segment table on the device.
pub struct SegmentTable {
    /// Where its extents lie.
    pub extents: Vec<Addr>,
    /// Slots that name no segment.
    pub free: Vec<u64>,
    /// Space for more segments, the best to use last: a rebuild needs no room on a full medium, and
    /// what is known of the space need not be written. At most
    /// [`MOST_SPARES`](super::resize::MOST_SPARES).
    pub spares: Vec<Room>,
    /// Splits since the table was opened.
    pub splits: u64,
    /// Rebuilds since the table was opened.
    pub rebuilds: u64,
}

/// A bucket, as the directory named it at one moment.
pub struct Located<'t, M: Media> {
    /// Its segment.
    pub segment: Segment<'t, M::Sync>,
    /// Its index there.
    pub index: u64,
    /// Its words in DRAM.
    pub bucket: Bucket<'t, M::Sync>,
}

/// A bucket that is locked for a write.
pub struct Writer<'t, M: Media> {
    /// Its segment.
    pub segment: Segment<'t, M::Sync>,
    /// Its index there.
    pub index: u64,
    /// Its words in DRAM.
    pub bucket: Bucket<'t, M::Sync>,
    /// Its lock.
    pub held: Held<'t, M>,
}

/// What a write must wait for, without its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A unit for the D-bucket: a split or a rebuild of the segment.
    Unit,
    /// A block of the lane: the relocation of what is in the oldest one.
    Block,
    /// A slot of a collecting log: the flush of the full one.
    Log,
    /// Another look at the collecting log, to which another thread appends.
    Append,
}

impl<M: Media> Located<'_, M> {
    /// Asks for its lines in DRAM, which lie apart: fetched at once, they cost one wait for memory.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.bucket.prefetch();
    }
}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Locks the bucket of a hash, and calls `write`; makes room and repeats as long as it needs
    /// something.
    ///
    /// # Errors
    /// [`Error::Full`], and those of `write`.
    #[inline(always)]
    pub(super) fn write_to<R>(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        write: impl FnMut(&Writer<'_, M>) -> Result<core::result::Result<R, Need>>,
    ) -> Result<R> {
        self.write_by(pm, hash, |bucket| bucket.prefetch(), write)
    }

    /// As [`ElimDa::write_to`], of a write that looks for no key.
    #[inline(always)]
    pub(super) fn add_to<R>(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        write: impl FnMut(&Writer<'_, M>) -> Result<core::result::Result<R, Need>>,
    ) -> Result<R> {
        self.write_by(pm, hash, |bucket| bucket.prefetch_room(), write)
    }

    #[inline(always)]
    fn write_by<R>(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        prefetch: impl Fn(&Bucket<'_, M::Sync>),
        mut write: impl FnMut(&Writer<'_, M>) -> Result<core::result::Result<R, Need>>,
    ) -> Result<R> {
        let (mut rounds, mut attempt) = (0, 0);
        // Ends: what does not count as a round means that another thread has taken a step.
        while rounds < MOST_ROUNDS {
            let writer = self.lock_by(pm, hash, &prefetch)?;
            let need = match write(&writer)? {
                Ok(done) => return Ok(done),
                Err(need) => need,
            };
            drop(writer);
            match self.provide(pm, hash, need, &mut attempt)? {
                Some(is_round) => rounds += u32::from(is_round),
                None => break,
            }
        }
        Err(Error::Full { needed: self.geometry.segment(Addr::NULL).bytes() })
    }

    /// Gets what a write needs, or waits for it. Returns whether that counts as a round, or `None`
    /// if it cannot be had.
    #[cold]
    #[inline(never)]
    fn provide(
        &self,
        pm: &Access<'_, M>,
        hash: u64,
        need: Need,
        attempt: &mut u32,
    ) -> Result<Option<bool>> {
        match need {
            Need::Log => {
                self.flush(pm, self.geometry.collector_of(hash))?;
                return Ok(Some(false));
            }
            Need::Unit => {
                self.grow(pm, hash)?;
                return Ok(Some(true));
            }
            Need::Append => {}
            Need::Block => {
                match self.reclaim(pm, self.geometry.lane_of(self.geometry.bucket_of(hash)))? {
                    Reclaimed::Free => return Ok(Some(true)),
                    // There may be room once another thread has used its slot or given it back.
                    Reclaimed::Awaited => {}
                    Reclaimed::Stuck => return Ok(None),
                }
            }
        }
        M::Sync::pause(*attempt);
        *attempt = attempt.saturating_add(1);
        Ok(Some(false))
    }

    /// Locks the bucket of a hash.
    #[inline(always)]
    pub(super) fn lock<'t>(&'t self, pm: &'t Access<'_, M>, hash: u64) -> Result<Writer<'t, M>> {
        self.lock_by(pm, hash, &|bucket: &Bucket<'_, M::Sync>| bucket.prefetch())
    }

    #[inline(always)]
    fn lock_by<'t>(
        &'t self,
        pm: &'t Access<'_, M>,
        hash: u64,
        prefetch: &impl Fn(&Bucket<'_, M::Sync>),
    ) -> Result<Writer<'t, M>> {
        // Ends: each further round means that the segment was split meanwhile.
        loop {
            let Located { segment, index, bucket } = self.locate(hash);
            prefetch(&bucket);
            let held = segment.lock(index).hold(pm)?;
            if bucket.covers(hash) {
                return Ok(Writer { segment, index, bucket, held });
            }
        }
    }

    /// Returns the bucket of a hash. It is the right one as long as its segment holds the hash.
    #[inline(always)]
    pub(super) fn locate(&self, hash: u64) -> Located<'_, M> {
        let segment = self.table.find(hash);
        let index = self.geometry.bucket_of(hash);
        Located { segment, index, bucket: segment.bucket(index) }
    }

    /// Returns the number of segments.
    pub(super) fn segments(&self) -> u64 {
        self.segments.load(Ordering::Relaxed)
    }

    /// Returns the number of items. Exact whenever no write is under way.
    pub fn len(&self) -> u64 {
        let counts = self.counters.iter().map(|counter| counter.0.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Returns the number of units that buckets have. No write is under way.
    pub(super) fn units(&self) -> u64 {
        let (mut units, mut place) = (0, Some(0));
        while let Some(at) = place {
            let segment = self.table.find(at);
            let buckets = (0..self.geometry.buckets).map(|index| segment.bucket(index));
            units += buckets.map(|bucket| bucket.units() as u64).sum::<u64>();
            place = segment.prefix().last().checked_add(1);
        }
        units
    }

    /// Counts an item with this hash before the write is done that adds it.
    #[inline(always)]
    pub(super) fn count_ahead(&self, hash: u64) -> Counted<'_, M::Sync> {
        Counted::new(self.counter(hash), 1)
    }

    /// Counts an item with this hash before the write is done that removes it.
    #[inline(always)]
    pub(super) fn uncount_ahead(&self, hash: u64) -> Counted<'_, M::Sync> {
        Counted::new(self.counter(hash), 1u64.wrapping_neg())
    }

    /// Counts an item with this hash that was added.
    #[inline(always)]
    pub(super) fn count_added(&self, hash: u64) {
        self.counter(hash).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts items with hashes like this that were removed.
    #[inline(always)]
    pub(super) fn count_removed(&self, hash: u64, count: u64) {
        self.counter(hash).fetch_sub(count, Ordering::Relaxed);
    }

    #[inline(always)]
    fn counter(&self, hash: u64) -> &WordOf<M> {
        &self.counters[hash as usize % self.counters.len()].0
    }
}
