//! What an open table holds in DRAM, and how its parts reach one another.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Class, Heap, LINE, Media, Pool, Primitives, Space};

use super::bucket::{Lines, PairCodec, Words};
use super::concurrency::{Groups, Held, Live};
use super::fingerprints::{Covers, Fingerprints, Known};
use super::in_cacheline_crash_consistency::Plan;
use super::layers::{Layers, View};
use super::layout::{self, Place};
use super::setup::TieredSettings;
use crate::common::hash::KeyedHash;
use crate::common::leftovers::{Leftovers, Seen};
use crate::common::slot_codec::{HashedKey, Words as KeyWords};

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&Tiered<M, KeyWords>, u64) -> Result<Option<u64>>;

/// What chooses that for a hash and a short look-up.
pub type LookupOf<M> = fn(&KeyedHash, ShortLookup) -> WordLookup<M>;

/// Where the look-up that most gets end with finds heads, see [`Tiered::try_get`].
#[derive(Clone, Copy)]
pub enum ShortLookup {
    /// In lines: DRAM knows none.
    InLines,
    /// In DRAM, as far as it knows them.
    InDram,
    /// There is none: a shadow does not count, or each bucket costs a page.
    None,
}

impl ShortLookup {
    /// Returns that of a table with these fingerprints.
    pub fn of(covers: Covers, shadows_count: bool, by_column: bool) -> ShortLookup {
        match covers {
            _ if !shadows_count || by_column => ShortLookup::None,
            Covers::Nothing => ShortLookup::InLines,
            Covers::All | Covers::Upper => ShortLookup::InDram,
        }
    }
}

/// An open table with pairs of codec `C`.
pub struct Tiered<M: Media, C: PairCodec> {
    pub(super) pool: Pool<M>,
    pub(super) form: Form,
    pub(super) settings: TieredSettings,
    pub(super) hasher: KeyedHash,
    /// How a key is looked up if keys are words.
    pub(super) lookup: WordLookup<M>,
    pub(super) short_lookup: ShortLookup,
    /// Whether a search looks at all layers under one hash function first.
    pub(super) by_column: bool,
    /// Whether a line keeps the order of its stores on this medium.
    pub(super) ordered: bool,
    pub(super) space: Arc<Space<M>>,
    /// Records, and overflow lines.
    pub(super) heap: Heap<M>,
    pub(super) groups: Groups<M::Sync>,
    pub(super) layers: Layers<M::Sync>,
    pub(super) fingerprints: Fingerprints<M::Sync>,
    /// About how many items there are: exact up to what the groups have not reported yet.
    pub(super) estimate: WordOf<M>,
    /// The estimate at which a layer is added, the next one while the top layer is drained.
    pub(super) grow_at: WordOf<M>,
    pub(super) growth: LockOf<M, Growth>,
    pub(super) sweep: LockOf<M, Sweep>,
    /// Tombstones and overflow lines that were written since the last sweep began.
    pub(super) unswept: Leftovers<M::Sync>,
    /// Pairs that were moved down since the pool was opened.
    pub(super) moved: WordOf<M>,
    /// Overflow lines that were added since the pool was opened.
    pub(super) overflowed: WordOf<M>,
    pub(super) pairs: PhantomData<fn() -> C>,
}

/// How far the top layer is drained.
#[derive(Default)]
pub struct Growth {
    /// The next page that no thread has begun to drain.
    pub(super) next: u64,
    /// Pages that could not be drained, for want of space, behind a poisoned latch or for damage:
    /// they have their turns one after the other.
    pub(super) again: VecDeque<u64>,
    /// Pages that are being drained.
    pub(super) under_way: u64,
    /// Layers that were added since the pool was opened.
    pub(super) steps: u64,
}

/// How far the sweep of `maintain` has come.
#[derive(Default)]
pub struct Sweep {
    /// The next position; 0 between two sweeps.
    pub(super) next: u64,
    pub(super) seen: Seen,
}

/// The size class of an overflow line: a record of the heap that is one line.
pub fn line_class() -> Class {
    Class::of(LINE).expect("a line is shorter than the longest record")
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Returns a key with its hash.
    #[inline(always)]
    pub(super) fn hashed<'k>(&self, key: C::Key<'k>) -> HashedKey<'k, C> {
        HashedKey { hash: C::hash(&self.hasher, key), key }
    }

    /// Waits for groups, which `hold` takes of those that count as of some moment, until they still
    /// count; returns which layers there are as long as they are held.
    ///
    /// # Errors
    /// Those of `hold`.
    #[inline(always)]
    pub(super) fn hold<H>(&self, hold: impl Fn(Live) -> Result<H>) -> Result<(H, Live)> {
        let live = self.layers.live();
        self.hold_what_counts((hold(live)?, live), hold)
    }

    /// As [`Tiered::hold`], where groups are held that counted as of a moment.
    ///
    /// # Errors
    /// Those of `hold`.
    #[inline(always)]
    pub(super) fn hold_what_counts<H>(
        &self,
        (mut held, mut before): (H, Live),
        hold: impl Fn(Live) -> Result<H>,
    ) -> Result<(H, Live)> {
        // Ends: in each further round there are more groups.
        loop {
            let live = self.layers.live();
            if live.groups_log() == before.groups_log() {
                return Ok((held, live));
            }
            drop(held);
            (held, before) = (hold(live)?, live);
        }
    }

    /// Waits for the group of a bucket of a layer, and so of its page; returns which layers there
    /// are as long as it is held.
    ///
    /// # Errors
    /// As [`Groups::hold`].
    pub(super) fn hold_bucket<'t>(
        &'t self,
        pm: &'t Access<'_, M>,
        place: Place,
        index: u64,
    ) -> Result<(Held<'t, M>, Live)> {
        let position = layout::first_position(index, place.log());
        self.hold(|live| self.groups.hold(pm, live, [position; 2]))
    }

    /// Returns the number of items. Exact whenever no write is in progress.
    pub fn len(&self) -> u64 {
        self.groups.items()
    }

    /// Returns the number of slots of all layers.
    pub(super) fn slots(&self, view: &View) -> u64 {
        view.all().iter().map(|place| self.settings.slots_of_log(place.log())).sum()
    }

    /// Returns the logarithm of the buckets of a page.
    #[inline(always)]
    pub(super) fn page_log(&self) -> u32 {
        layout::page_log(self.settings.page_bytes)
    }

    /// Returns how far the items of a group may drift from the estimate. Unit: items.
    #[inline(always)]
    pub(super) fn drift_limit(&self, live: Live) -> i64 {
        let bottom = self.layers.place(live, live.count() - 1);
        let slots = self.settings.slots_of_log(bottom.log());
        (slots >> live.groups_log() >> 5).clamp(1, 64) as i64
    }

    /// Takes a correction into the estimate of the number of items.
    #[inline(always)]
    pub(super) fn correct_estimate(&self, correction: i64) {
        self.estimate.fetch_add(correction as u64, Ordering::Relaxed);
    }

    /// Returns about how many items there are.
    pub(super) fn estimated_items(&self) -> u64 {
        // The sum of what the groups have reported may be below zero for a moment.
        (self.estimate.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Returns what DRAM knows of the bucket of a position in layer `rank`, which lies at `place`.
    #[inline(always)]
    pub(super) fn known(
        &self,
        live: Live,
        rank: u64,
        place: Place,
        position: u64,
    ) -> Option<[Known; 2]> {
        if !self.fingerprints.is_on() {
            return None;
        }
        self.fingerprints.bucket((live.first() + rank) as usize, place.index(position))
    }

    /// Returns the lines of the bucket at `at`, of a layer of the view.
    #[inline(always)]
    pub(super) fn lines<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        at: Addr,
    ) -> Lines<'a, 'm, M> {
        Lines::with(pm, at, self.fingerprints.bucket_at(view, at))
    }

    /// As [`Tiered::lines`], of bucket `index` of layer `rank`.
    #[inline(always)]
    pub(super) fn lines_of<'a, 'm>(
        &self,
        pm: &'a Access<'m, M>,
        view: &View,
        rank: usize,
        index: u64,
    ) -> Lines<'a, 'm, M> {
        let known = self.fingerprints.bucket(view.first() + rank, index);
        Lines::with(pm, view.place(rank).bucket(index), known)
    }

    /// Makes the changes of a plan durable, and known. The caller keeps readers away.
    ///
    /// # Errors
    /// As the medium.
    pub(super) fn commit_plan(&self, pm: &Access<'_, M>, view: &View, plan: &Plan) -> Result<()> {
        plan.commit(pm, self.ordered)?;
        if self.fingerprints.is_on() {
            self.fingerprints.note_all(view, plan.heads());
        }
        Ok(())
    }

    /// Gives a record back, of a slot that ended durably, unless another copy down the column of
    /// its key leads to it.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(super) fn drop_record(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        (words, state, at): (Words, u16, Addr),
    ) -> Result<()> {
        let Some(record) = C::record(C::decode(words, at)?) else { return Ok(()) };
        let position = layout::position(words[0], layout::is_second(state));
        for place in view.all() {
            let mut lines = self.lines(pm, view, place.home(position));
            while let Some((line, _)) = lines.advance()? {
                let leads = |slot: usize| {
                    layout::print(line.head.state(slot)) == layout::print(state)
                        && line.words(slot) == words
                };
                if line.readable().any(leads) {
                    return Ok(());
                }
            }
        }
        self.heap.give(record.addr, record.class);
        Ok(())
    }
}
