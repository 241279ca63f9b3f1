//! The walk over all chains: which buckets and records they reach, and what a crash has left in
//! them.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use everhash_index::{Executor, Result};
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Media, Shutdown, Span, WORD};

use super::sites;
use crate::common::jobs::run_all;
use crate::wophi::bucket::{Bucket, BucketCodec, Update, corrupt, hash_of};
use crate::wophi::layout::{Kind, Token, successor};
use crate::wophi::state::{Wophi, WordOf};

/// Chains that one job walks at least.
///
/// Unit: main buckets. Source: ours; a thousand lines are worth the cost of a job.
const CHAINS_PER_JOB: u64 = 1024;

/// What the walk of one job found.
#[derive(Default)]
pub struct Found {
    /// Pairs.
    pub items: u64,
    /// Chained buckets.
    pub chained: u64,
    /// The first lower bucket that is not split.
    pub unsplit: Option<u64>,
    /// Chained buckets that hold nothing.
    pub empty: u64,
    /// Token words that were stored.
    repairs: u64,
}

/// Everything that the jobs share.
pub struct Walk<'t, M: Media, C: BucketCodec> {
    table: &'t Wophi<M, C>,
    /// The pre-allocated arrays, with one bit for each bucket: 1 = a chain leads to it.
    arrays: Vec<(Span, Vec<WordOf<M>>)>,
    /// The number of lower buckets.
    buckets: u64,
    /// The depth of lower buckets that are split, and of upper ones.
    depth: u64,
}

/// A pair of the chain at hand.
struct Met<C: BucketCodec> {
    hash: u64,
    pair: C::Pair,
    /// Index of its bucket in the chain.
    bucket: usize,
    slot: usize,
    /// Whether its successor is there.
    older: bool,
}

impl<'t, M: Media, C: BucketCodec> Walk<'t, M, C> {
    /// Prepares the walk over a table whose main array has doubled `level` times, the last time
    /// perhaps not for all buckets, and whose pre-allocated buckets lie in `arrays`.
    pub fn new(table: &'t Wophi<M, C>, arrays: Vec<Span>, level: u32) -> Self {
        let arrays = arrays.into_iter().map(|array| (array, reach_bits::<M, C>(array)));
        Walk {
            table,
            arrays: arrays.collect(),
            buckets: table.main.count(level.saturating_sub(1)),
            depth: level.into(),
        }
    }

    /// Gives the arrays to the table, with the buckets that no chain leads to as free ones.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn add_arrays(&self) -> Result<()> {
        for (array, reached) in &self.arrays {
            self.table.pab.add_array(*array, free_runs::<M, C>(*array, reached))?;
        }
        Ok(())
    }

    /// Walks all chains, in parallel.
    pub fn run(&self, executor: &dyn Executor) -> Result<Found> {
        let jobs = (executor.width().max(1) as u64 * 4).min(self.buckets.div_ceil(CHAINS_PER_JOB));
        let share = self.buckets.div_ceil(jobs);
        let found = run_all::<M::Sync, _>(executor, jobs as usize, |job| {
            let first = job as u64 * share;
            self.walk_range(first..(first + share).min(self.buckets))
        })?;
        Ok(found.into_iter().fold(Found::default(), Found::plus))
    }

    fn walk_range(&self, range: Range<u64>) -> Result<Found> {
        let pm = self.table.pool.access();
        let mut found = Found::default();
        let mut chain = Chain { buckets: Vec::new(), met: Vec::new(), moved: Vec::new() };
        for index in range {
            let lower = Bucket::read(&pm, self.table.main.at(index), Kind::Main)?;
            let depth = lower.token.home();
            if depth != self.depth && depth + 1 != self.depth {
                return Err(corrupt(lower.at, "a bucket was split as often as the others"));
            }
            self.walk_chain(&pm, index, lower, &mut chain, &mut found)?;
            if depth != self.depth {
                found.unsplit = found.unsplit.or(Some(index));
            } else if depth > 0 {
                let index = index + self.buckets;
                let upper = Bucket::read(&pm, self.table.main.at(index), Kind::Main)?;
                if upper.token.home() != depth {
                    return Err(corrupt(upper.at, "both halves of a split have one depth"));
                }
                self.walk_chain(&pm, index, upper, &mut chain, &mut found)?;
                if !chain.holds_moved() {
                    return Err(corrupt(upper.at, "what moved is in the upper half"));
                }
            }
        }
        if found.repairs > 0 {
            pm.fence(sites::ENDED)?;
        }
        Ok(found)
    }

    /// Walks a chain, claims what it reaches, and removes the pairs that an interrupted split or
    /// update left.
    fn walk_chain<'a>(
        &self,
        pm: &'a Access<'_, M>,
        index: u64,
        main: Bucket<'a, M, C>,
        chain: &mut Chain<'a, M, C>,
        found: &mut Found,
    ) -> Result<()> {
        chain.buckets.clear();
        chain.met.clear();
        let (mut next, mut steps) = (Some(main), 0);
        while let Some(bucket) = next {
            for slot in bucket.token.live_slots() {
                let pair = bucket.pair(pm, slot)?;
                let hash = hash_of::<C>(&self.table.hasher, pair);
                let place = chain.buckets.len();
                chain.met.push(Met { hash, pair, bucket: place, slot, older: false });
            }
            chain.buckets.push((bucket, bucket.token));
            next = self.table.follow(pm, &bucket, index, &mut steps)?;
            if let Some(next) = &next {
                self.claim_bucket(next.at)?;
            }
        }
        self.end_moved(index, chain)?;
        if C::UPDATE == Update::TwoSlots {
            chain.end_older();
        }
        for met in &chain.met {
            if let Some(record) = C::record(met.pair) {
                self.table.heap.claim(record.addr, record.class)?;
            }
        }
        found.items += chain.met.len() as u64;
        found.chained += steps;
        self.repair(pm, chain, found)
    }

    /// Removes the pairs that a split has moved to the upper half, and reports those that no write
    /// could have put where they lie.
    fn end_moved(&self, index: u64, chain: &mut Chain<'_, M, C>) -> Result<()> {
        let main = chain.buckets[0].0;
        let depth = main.token.home();
        let count = self.table.main.count(depth as u32);
        let upper = index + count / 2;
        let was_split = depth > 0 && depth == self.depth && index < count / 2;
        for met in &chain.met {
            let home = met.hash & (count - 1);
            // The store that split a main bucket has removed them from it.
            let may_move = was_split && met.bucket > 0 && home == upper;
            if home != index && !may_move {
                let at = chain.buckets[met.bucket].0.at;
                return Err(corrupt(at, "a key lies in the bucket it hashes to"));
            }
            if may_move {
                chain.moved.push(met.mark());
            }
        }
        chain.end_where(|met| met.hash & (count - 1) != index);
        Ok(())
    }

    /// Stores the token words of buckets that lost a pair. Flushed; the job fences.
    fn repair(&self, pm: &Access<'_, M>, chain: &Chain<'_, M, C>, found: &mut Found) -> Result<()> {
        for (bucket, token) in &chain.buckets {
            found.empty += u64::from(bucket.kind == Kind::Chained && token.count() == 0);
            if *token == bucket.token {
                continue;
            }
            if self.table.pool.previous_shutdown() == Shutdown::Clean {
                return Err(corrupt(bucket.at, "a clean close leaves nothing to repair"));
            }
            bucket.commit_token(token.bumped(), sites::ENDED);
            bucket.flush(pm, sites::ENDED);
            found.repairs += 1;
        }
        Ok(())
    }

    /// Notes that a chain leads to the bucket at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one did before, or if no bucket begins there.
    fn claim_bucket(&self, at: Addr) -> Result<()> {
        let bucket = Span::of_bytes(at, C::LINES * LINE);
        let array = self.arrays.iter().find(|(array, _)| array.overlaps(bucket));
        let Some((array, reached)) = array else {
            // It was allocated directly.
            return Ok(self.table.space.claim(bucket)?);
        };
        let offset = at.byte().wrapping_sub(array.start.byte());
        if !offset.is_multiple_of(bucket.bytes()) || bucket.end_byte() > array.end_byte() {
            return Err(corrupt(at, "a chained bucket is one of its array"));
        }
        let number = offset / bucket.bytes();
        let (word, bit) = (&reached[(number / 64) as usize], 1 << (number % 64));
        // Ends: each further round means that another job has set a bit of this word.
        loop {
            let bits = word.load(Ordering::Relaxed);
            if bits & bit != 0 {
                return Err(corrupt(at, "one link leads to a chained bucket"));
            }
            let set = word.compare_exchange(bits, bits | bit, Ordering::Relaxed, Ordering::Relaxed);
            if set.is_ok() {
                return Ok(());
            }
        }
    }
}

/// A chain, as it was read and as it is to be.
struct Chain<'a, M: Media, C: BucketCodec> {
    /// Buckets, with the token words that they shall have.
    buckets: Vec<(Bucket<'a, M, C>, Token)>,
    /// The pairs that stay.
    met: Vec<Met<C>>,
    /// Pairs of the lower half that must be in the upper one.
    moved: Vec<(u64, u64)>,
}

impl<C: BucketCodec> Met<C> {
    /// Returns what identifies the pair: the hash of its key and the last word of its slot.
    fn mark(&self) -> (u64, u64) {
        (self.hash, C::last_word(C::encode(self.pair)))
    }
}

impl<M: Media, C: BucketCodec> Chain<'_, M, C> {
    /// Returns whether the chain holds what moved from its lower half, and clears that list.
    fn holds_moved(&mut self) -> bool {
        if self.moved.is_empty() {
            return true;
        }
        let held: BTreeSet<_> = self.met.iter().map(Met::mark).collect();
        self.moved.drain(..).all(|moved| held.contains(&moved))
    }

    fn end_where(&mut self, mut ends: impl FnMut(&Met<C>) -> bool) {
        let buckets = &mut self.buckets;
        self.met.retain(|met| {
            let ended = ends(met);
            if ended {
                let token = &mut buckets[met.bucket].1;
                *token = token.with_slot(met.slot, 0);
            }
            !ended
        });
    }

    /// Of two equal keys, removes the one whose successor the other is.
    ///
    /// An interrupted update leaves two. More, or two that do not follow one another, can only
    /// have been inserted blindly: they stay.
    fn end_older(&mut self) {
        if self.met.len() < 2 {
            return;
        }
        self.met.sort_unstable_by_key(|met| met.hash);
        let same_key = |a: &Met<C>, b: &Met<C>| a.hash == b.hash && C::is_same_key(a.pair, b.pair);
        for equal in self.met.chunk_by_mut(same_key) {
            let [a, b] = equal else { continue };
            let token = |met: &Met<C>| self.buckets[met.bucket].1.slot(met.slot);
            let (token_a, token_b) = (token(a), token(b));
            a.older = successor(token_a) == token_b;
            b.older = successor(token_b) == token_a;
        }
        self.end_where(|met| met.older);
    }
}

impl Found {
    fn plus(self, other: Found) -> Found {
        Found {
            items: self.items + other.items,
            chained: self.chained + other.chained,
            empty: self.empty + other.empty,
            repairs: self.repairs + other.repairs,
            unsplit: [self.unsplit, other.unsplit].into_iter().flatten().min(),
        }
    }
}

/// Makes a bit for each bucket of an array, all 0.
fn reach_bits<M: Media, C: BucketCodec>(array: Span) -> Vec<WordOf<M>> {
    let count = array.bytes() / (C::LINES * LINE);
    (0..count.div_ceil(64)).map(|_| AtomicWord::new(0)).collect()
}

/// Returns the runs of buckets of an array that no chain leads to.
fn free_runs<M: Media, C: BucketCodec>(array: Span, reached: &[WordOf<M>]) -> Vec<Span> {
    let words = C::LINES * LINE / WORD;
    let is_free = |bucket: &u64| {
        let bits = reached[(bucket / 64) as usize].load(Ordering::Relaxed);
        bits >> (bucket % 64) & 1 == 0
    };
    let mut runs: Vec<Span> = Vec::new();
    for bucket in (0..array.words / words).filter(is_free) {
        let at = array.start.plus(bucket * words);
        match runs.last_mut() {
            Some(run) if run.end_byte() == at.byte() => run.words += words,
            _ => runs.push(Span::new(at, words)),
        }
    }
    runs
}
