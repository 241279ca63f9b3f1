//! Growth (the paper has none): the main array doubles, a group of neighbours at a time, without
//! a log and without stopping readers or other writers.
//!
//! Bucket b of n splits into b and b + n. The upper half is a new extent; half of the items stay
//! where they are. For a group of neighbours, under their locks:
//!
//! 1. complete images of the upper buckets, and of the chains behind them, are written and fenced:
//!    no reader looks there before step 2, so the extent needs no preparation;
//! 2. one store of the token word of each lower bucket says that it is split, and clears the tokens
//!    of the pairs that moved; fenced;
//! 3. the tokens of moved pairs in the chains behind the lower buckets are cleared; fenced.
//!
//! After a crash before 2 is durable for a bucket, its upper half was never there. A crash before 3
//! leaves pairs that hash to the other half: dead by address. Recovery clears their tokens.
//!
//! Damage does not stop a growth. What can be read of a chain is split; what cannot be read stays
//! where it is. Nobody knows which half it belongs to, so that the upper half must not deny it: the
//! chain of that ends in a link which does not match its check. A search that finds its key does
//! not come to it, and every other one is an error, as it is in the lower half. Where not even the
//! main bucket can be read, the upper one cannot either.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Change, LINE, Lock, Media, Span, before_reuse};

use super::bucket::{Bucket, BucketCodec, corrupt, hash_of};
use super::concurrency::Held;
use super::layout::{self, EXTENTS, Kind, MOST_BUCKETS, TOKEN, Token};
use super::main_buckets::View;
use super::state::{Growth, Wophi};
use crate::common::damage::or_damage;
use crate::common::slot_codec::SlotCodec;

/// Where growth persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The root's link to the new extent: with it the growth has begun.
        EXTENT = "wophi/grow/extent";
        /// The upper buckets and their chains.
        IMAGE = "wophi/split/image";
        /// The token words that say that lower buckets are split.
        DEPTH = "wophi/split/depth";
        /// The tokens of moved pairs in chains.
        MOVED = "wophi/split/moved";
    }
}

/// A pair with the hash of its key.
type Hashed<C> = (u64, <C as SlotCodec>::Pair);

/// What the split of a group stores.
struct Plan<'a, M: Media, C: BucketCodec> {
    /// Lower buckets, with the token words that say that they are split.
    lower: Vec<(Bucket<'a, M, C>, Token)>,
    /// Chained buckets that lose pairs, with their token words afterwards.
    chained: Vec<(Bucket<'a, M, C>, Token)>,
    upper: Vec<Upper<C>>,
    /// The first damage in the group.
    damage: Option<Error>,
}

/// What is written for an upper bucket.
struct Upper<C: BucketCodec> {
    index: u64,
    /// What moves there.
    moved: Vec<Hashed<C>>,
    /// What cannot be read of the lower bucket's chain, and might belong here.
    missing: Missing,
}

/// How much of a chain cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// A pair, or what lies behind a link.
    Something,
    /// Its main bucket.
    Everything,
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Adds `correction` to the estimated number of items, and begins a growth if one is due.
    ///
    /// A growth that cannot begin is no error of the write that found it due: that is committed.
    /// Chains grow longer instead. A failed medium is reported by the next write.
    #[inline(always)]
    pub(super) fn estimated(&self, pm: &Access<'_, M>, correction: Option<i64>) {
        if let Some(correction) = correction {
            self.estimate_and_grow(pm, correction);
        }
    }

    fn estimate_and_grow(&self, pm: &Access<'_, M>, correction: i64) {
        self.estimate.fetch_add(correction as u64, Ordering::Relaxed);
        if correction > 0 && !self.main.view().growing && self.is_growth_due() {
            let _ = self.begin_growth(pm);
        }
    }

    /// At the configured load, or when pre-allocated buckets run out at half of it at least: below
    /// that they go to chains that no growth shortens.
    fn is_growth_due(&self) -> bool {
        let items = self.estimated_items();
        let grow_at = self.grow_at.load(Ordering::Relaxed);
        items >= grow_at || (items >= grow_at / 2 && self.pab.is_scarce())
    }

    /// Begins to double the main array, unless it is doubling. A crash leaves the root with the
    /// link to the new extent or without.
    fn begin_growth(&self, pm: &Access<'_, M>) -> Result<()> {
        let Some(mut growth) = self.growth.try_lock()? else { return Ok(()) };
        let view = self.main.view();
        let extent = view.level as usize + 1;
        let buckets = self.main.count(view.level);
        if view.growing || extent == EXTENTS || buckets * 2 > MOST_BUCKETS {
            return Ok(());
        }
        let bucket_bytes = C::LINES * LINE;
        let settings = &self.settings;
        let count = layout::pab_buckets(settings.initial_buckets, settings.pab_divisor, extent);
        let span = match self.space.take((buckets + count) * bucket_bytes, LINE) {
            Ok(taken) => taken.span,
            Err(everhash_pmem::Error::Full { .. }) => {
                // Chains may still be extended. The next attempt is a sixteenth later.
                self.grow_at.fetch_add(buckets * C::SLOTS as u64 / 16 + 1, Ordering::Relaxed);
                return Ok(());
            }
            Err(other) => return Err(other.into()),
        };
        commit_link(pm, span.start, layout::extent_link(extent))?;
        let [main, pab] = layout::extent_spans(span.start, [buckets, count], bucket_bytes);
        self.pab.add_array(pab, [pab])?;
        self.main.set_extent(extent, main.start);
        let groups = buckets / self.group_buckets(view.level);
        growth.begin(groups);
        self.main.set_view(View { growing: true, ..view });
        Ok(())
    }

    /// Returns how many neighbours split together at `level`.
    pub(super) fn group_buckets(&self, level: u32) -> u64 {
        self.settings.group_buckets.min(self.main.count(level))
    }

    /// Splits a group if a growth is in progress and it is this write's turn: one of as many writes
    /// as a group has buckets, so that a growth ends long before the next one is due.
    ///
    /// # Errors
    /// Errors of the medium; a device without room is none, and neither is damage in the group: a
    /// write reports what it meets itself, and a check the rest.
    #[inline(always)]
    pub(super) fn share(&self, pm: &Access<'_, M>, hash: u64) -> Result<()> {
        if self.main.view().growing && (hash >> 32) & (self.settings.group_buckets - 1) == 0 {
            return self.split_for_another(pm);
        }
        Ok(())
    }

    #[inline(never)]
    fn split_for_another(&self, pm: &Access<'_, M>) -> Result<()> {
        match self.split_next(pm) {
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Splits one group; returns whether there was one, and room for it.
    ///
    /// # Errors
    /// As [`Wophi::share`]: the group has another turn then, after all others. [`Error::Corrupt`]
    /// if the group is split, but for what is damaged in it.
    pub(super) fn split_next(&self, pm: &Access<'_, M>) -> Result<bool> {
        let (level, group) = {
            let mut growth = self.growth.lock()?;
            let level = self.main.view().level;
            self.prepare(&mut growth, level);
            match growth.take() {
                Some(group) => (level, group),
                None => return Ok(false),
            }
        };
        let split = self.split_group(pm, level, group);
        let mut growth = self.growth.lock()?;
        growth.in_progress -= 1;
        if split.is_err() {
            growth.again.push_back(group);
        } else if growth.is_done() {
            let level = level + 1;
            self.grow_at.store(self.items_at(level), Ordering::Relaxed);
            self.main.set_view(View { level, growing: false });
        }
        match split {
            Ok(None) => Ok(true),
            Ok(Some(damage)) => Err(damage),
            // The caller's own write may succeed: a poisoned stripe, for one, need not be its own.
            Err(Error::Full { .. } | Error::Poisoned) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Prepares the memory of the next upper buckets, a page of the heap at a time: groups are
    /// handed out in their order, and nobody looks there before they are split.
    fn prepare(&self, growth: &mut Growth, level: u32) {
        let (count, bucket_bytes) = (self.group_buckets(level), C::LINES * LINE);
        let groups = (self.settings.page_bytes / bucket_bytes / count).max(1);
        if let Some(groups) = growth.prepare(groups) {
            let at = self.main.at(self.main.count(level) + groups.start * count);
            let bytes = (groups.end - groups.start) * count * bucket_bytes;
            before_reuse::<M::Sync>();
            self.space.region().media().renew(Span::of_bytes(at, bytes));
        }
    }

    /// Splits the buckets of a group that are not split yet; returns the first damage in them.
    fn split_group(&self, pm: &Access<'_, M>, level: u32, group: u64) -> Result<Option<Error>> {
        let count = self.group_buckets(level);
        let first = group * count;
        let stripes = self.stripes.of_group(first, count);
        let held = stripes.iter().map(|stripe| stripe.hold(pm)).collect::<Result<Vec<_>>>()?;
        let (lower, chained, upper) = (Vec::new(), Vec::new(), Vec::new());
        let mut plan = Plan { lower, chained, upper, damage: None };
        for index in first..first + count {
            self.plan_split(pm, level, index, &mut plan)?;
        }
        if plan.upper.is_empty() {
            return Ok(None);
        }
        let chained = |pairs: usize| pairs.div_ceil(C::SLOTS).saturating_sub(1);
        let needed = plan.upper.iter().map(|upper| chained(upper.moved.len())).sum();
        let spare = self.pab.take_many(needed)?;
        if let Err(error) = self.write_images(pm, level, &plan, &spare) {
            // No link leads to them yet, and the group is tried again.
            spare.into_iter().try_for_each(|at| self.pab.give(at))?;
            return Err(error);
        }
        let changes = held.iter().map(Held::change).collect::<Result<Vec<_>>>()?;
        commit_all(pm, &plan.lower, sites::DEPTH)?;
        if !plan.chained.is_empty() {
            commit_all(pm, &plan.chained, sites::MOVED)?;
        }
        changes.into_iter().for_each(Change::end);
        let emptied = plan.chained.iter().filter(|(_, token)| token.count() == 0).count();
        self.emptied.add(emptied as u64);
        Ok(plan.damage)
    }

    /// Plans which pairs of bucket `index` and its chain move, as far as they can be read.
    fn plan_split<'a>(
        &self,
        pm: &'a Access<'_, M>,
        level: u32,
        index: u64,
        plan: &mut Plan<'a, M, C>,
    ) -> Result<()> {
        let (buckets, level) = (self.main.count(level), u64::from(level));
        let (mut moved, mut missing) = (Vec::new(), Missing::Nothing);
        let mut next = match Bucket::read(pm, self.main.at(index), Kind::Main) {
            // A crash has interrupted this group: recovery leaves it to the next split.
            Ok(lower) if lower.token.home() == level + 1 => return Ok(()),
            Ok(lower) if lower.token.home() == level => Some(lower),
            Ok(lower) => {
                let broken = "a bucket was split as often as the array doubled";
                or_damage(Err(corrupt(lower.at, broken)), &mut plan.damage)?
            }
            Err(error) => or_damage(Err(error), &mut plan.damage)?,
        };
        if next.is_none() {
            missing = Missing::Everything;
        }
        let mut reached = BTreeSet::new();
        while let Some(bucket) = next {
            let mut token = bucket.token;
            for slot in bucket.token.live_slots() {
                let pair = or_damage(bucket.pair(pm, slot).map(Some), &mut plan.damage)?;
                let Some(pair) = pair else {
                    missing = Missing::Something;
                    continue;
                };
                let hash = hash_of::<C>(&self.hasher, pair);
                if hash & (buckets - 1) != index {
                    // No search finds it, here or elsewhere; a check names it.
                    let broken = "a key lies in the bucket it hashes to";
                    plan.damage.get_or_insert(corrupt(bucket.at, broken));
                } else if hash & buckets != 0 {
                    moved.push((hash, pair));
                    token = token.with_slot(slot, 0);
                }
            }
            if bucket.kind == Kind::Main {
                plan.lower.push((bucket, token.with_home(level + 1)));
            } else if token != bucket.token {
                plan.chained.push((bucket, token));
            }
            // Each pair moves once.
            let behind = self.follow_once(pm, &bucket, index, &mut reached);
            if behind.is_err() {
                missing = Missing::Something;
            }
            next = or_damage(behind, &mut plan.damage)?;
        }
        plan.upper.push(Upper { index: index + buckets, moved, missing });
        Ok(())
    }

    /// Writes the upper buckets of a group, and the chains of `spare` buckets behind them. Nothing
    /// leads there yet.
    fn write_images(
        &self,
        pm: &Access<'_, M>,
        level: u32,
        plan: &Plan<'_, M, C>,
        spare: &[Addr],
    ) -> Result<()> {
        let mut spare = spare.iter().copied();
        // Of its own: what is written here may have been taken from the space by another thread.
        before_reuse::<M::Sync>();
        for Upper { index, moved, missing } in &plan.upper {
            let mut at = self.main.at(*index);
            if *missing == Missing::Everything {
                // A hole is no bucket: there is a home in every token word.
                pm.store(at.plus(TOKEN as u64), 0)?;
                pm.flush(Span::new(at, layout::LINE_WORDS as u64), sites::IMAGE);
                continue;
            }
            let mut empty = (Kind::Main, Token::empty(u64::from(level) + 1));
            let mut rest = moved.as_slice();
            loop {
                let (here, behind) = rest.split_at(rest.len().min(C::SLOTS));
                let next = (!behind.is_empty())
                    .then(|| spare.next().expect("as many were taken as are needed"));
                let end = match next {
                    Some(next) => Behind::Bucket(next),
                    None if *missing == Missing::Nothing => Behind::Nothing,
                    None => Behind::Unknown,
                };
                write_image::<C, M>(pm, at, empty, here, end)?;
                let Some(next) = next else { break };
                (at, empty, rest) = (next, (Kind::Chained, Token::empty(*index)), behind);
            }
        }
        Ok(pm.fence(sites::IMAGE)?)
    }
}

/// What lies behind a bucket of an upper chain.
#[derive(Clone, Copy)]
enum Behind {
    Bucket(Addr),
    Nothing,
    /// What could not be read of the lower chain.
    Unknown,
}

/// Writes and flushes one bucket that nothing leads to yet.
fn write_image<C: BucketCodec, M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    (kind, mut token): (Kind, Token),
    pairs: &[Hashed<C>],
    behind: Behind,
) -> Result<()> {
    let bucket = Bucket::<M, C>::fresh(pm, at, kind, token)?;
    match behind {
        Behind::Bucket(next) => bucket.store_next(next),
        Behind::Nothing => {}
        Behind::Unknown => bucket.break_next(),
    }
    for (slot, (hash, pair)) in pairs.iter().enumerate() {
        C::store(pm, &bucket, slot, *hash, C::encode(*pair))?;
        token = token.with_slot(slot, 1).bumped();
    }
    bucket.store_token(token);
    let lines = 1 + pairs.len().checked_sub(1).map_or(0, C::line);
    pm.flush(Span::new(at, lines * layout::LINE_WORDS as u64), sites::IMAGE);
    Ok(())
}

/// Stores token words and makes all of them durable. A crash leaves any of them.
fn commit_all<M: Media, C: BucketCodec>(
    pm: &Access<'_, M>,
    buckets: &[(Bucket<'_, M, C>, Token)],
    site: everhash_pmem::Site,
) -> Result<()> {
    for (bucket, token) in buckets {
        bucket.commit_token(token.bumped(), site);
        bucket.flush(pm, site);
    }
    Ok(pm.fence(site)?)
}

/// Stores the root's link to an extent and makes it durable.
fn commit_link<M: Media>(pm: &Access<'_, M>, target: Addr, at: Addr) -> Result<()> {
    pm.commit_word(at, layout::encode_link(target, at), sites::EXTENT)?;
    pm.flush(Span::new(at, 1), sites::EXTENT);
    Ok(pm.fence(sites::EXTENT)?)
}
