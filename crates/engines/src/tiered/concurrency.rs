//! Who may run beside whom. Locks, sequences and counters lie in DRAM; a crash leaves none.
//!
//! A group is the subtree of one or more pages of the top layer: with leading bits, every bucket of
//! every layer, now and later, belongs to one group. A key has two hash functions, so it has two
//! groups, which may be one.
//!
//! Where a top layer was dropped the next one has more pages, and there are more groups. Which ones
//! count stands in the word that says which layers there are, and changes only while all latches
//! are held. Whoever has waited for a latch looks at that word once more.
//!
//! | beside | reader | writer, other groups | writer, a shared group | growth begins or ends |
//! |---|---|---|---|---|
//! | reader | yes | yes | repeats | repeats once |
//! | writer | | yes | waits | yes; the end waits for it |
//!
//! A writer holds the latches of both groups of its key, in the order of their index, from its
//! search until its fence: else a shadow that is being overwritten could come back by a crash over
//! a later write below it. It changes one group only, because all copies of a key lie under one
//! hash function; the sequence of that group is odd from before the first store until after the
//! fence.
//!
//! A clear holds all latches: nothing may be written to a group that it has cleared before it has
//! cleared the other group of the key.
//!
//! A reader takes no lock. It loads which layers and groups there are and the sequences of both of
//! its groups, reads, and looks at all three again; a hit and a miss are validated alike. So lines
//! and records are reused at once: a release fence comes before every store to space that was in
//! use before.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{
    Access, AtomicWord, Bits, Change, Latch, LatchGuard, Lock, Media, Parts, Primitives, Sequence,
};

use super::layout;

/// The number of the top layer at one moment, how many layers there were, and into how many groups
/// keys were divided: never twice the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Live(pub u64);

const FIRST: Bits = Bits::new(0, 8);
const COUNT: Bits = Bits::new(8, 8);
const GROUPS_LOG: Bits = Bits::new(16, 8);

impl Live {
    /// Returns what says so.
    pub fn new(first: u64, count: u64, groups_log: u32) -> Self {
        Live(GROUPS_LOG.set(COUNT.set(FIRST.set(0, first), count), groups_log.into()))
    }

    /// Returns the number of the top layer in the root.
    #[inline(always)]
    pub fn first(self) -> u64 {
        FIRST.get(self.0)
    }

    /// Returns how many layers there are.
    #[inline(always)]
    pub fn count(self) -> u64 {
        COUNT.get(self.0)
    }

    /// Returns how many groups there are, as a base-2 logarithm.
    #[inline(always)]
    pub fn groups_log(self) -> u32 {
        GROUPS_LOG.get(self.0) as u32
    }
}

/// What DRAM knows of a group, on lines of its own.
#[repr(align(64))]
pub struct Group<P: Primitives> {
    sequence: Sequence<P>,
    /// Items that were added minus those that were removed, modulo 2^64.
    items: P::AtomicU64,
    /// Writes of a key to the top layer, and to the layers below it.
    writes: [P::AtomicU64; 2],
    /// Items, modulo 2^64, that were not reported to the estimate of the whole table yet.
    drift: P::AtomicU64,
    latch: Latch<P, ()>,
}

/// All groups of a table, those included that count no more: a reader may be at their sequences.
pub struct Groups<P: Primitives> {
    /// By the base-2 logarithm of their number.
    parts: Box<Parts<Group<P>>>,
}

/// The least groups that are made, of which some may be for no key.
///
/// Unit: groups. Source: ours; a part has no fewer values.
const LEAST: u64 = 8;

/// Holds the latch of a group.
type Guard<'t, M> = LatchGuard<'t, <M as Media>::Sync, ()>;

/// The groups of a key, latched for a write.
pub struct Held<'t, M: Media> {
    pm: &'t Access<'t, M>,
    /// Under the first hash function and under the second: they may be one.
    groups: [&'t Group<M::Sync>; 2],
    _latches: (Guard<'t, M>, Option<Guard<'t, M>>),
}

impl<P: Primitives> Groups<P> {
    /// Makes 2^`log` groups.
    pub fn new(log: u32) -> Self {
        let groups = Groups { parts: Box::new(Parts::new()) };
        groups.make(log);
        groups
    }

    /// Makes 2^`log` groups, if they were not made before.
    pub fn make(&self, log: u32) {
        let group = |_| Group {
            sequence: Sequence::new(),
            items: AtomicWord::new(0),
            writes: [AtomicWord::new(0), AtomicWord::new(0)],
            drift: AtomicWord::new(0),
            latch: Lock::new(()),
        };
        self.parts.add(log as usize, (0..LEAST.max(1 << log)).map(group).collect());
    }

    /// Returns a group of those that count as of `live`.
    #[inline(always)]
    fn group(&self, live: Live, index: u64) -> &Group<P> {
        let group = self.parts.get(live.groups_log() as usize, index as usize);
        group.expect("groups are made before they count")
    }

    /// Returns the groups of two positions, which may be one.
    #[inline(always)]
    pub fn of(&self, live: Live, positions: [u64; 2]) -> [&Group<P>; 2] {
        let log = live.groups_log();
        let all = self.parts.all(log as usize);
        positions.map(|position| &all[layout::bucket_of(position, log) as usize])
    }

    /// Waits for the latches of the groups of two positions, which may be one. Whether they still
    /// count then, the caller must see.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if a holder panicked, or if a write failed.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(
        &'t self,
        pm: &'t Access<'_, M>,
        live: Live,
        positions: [u64; 2],
    ) -> Result<Held<'t, M>> {
        Held::of(pm, self.of(live, positions))
    }

    /// Waits for the latch of each group, in their order, as of each that is asked for.
    ///
    /// # Errors
    /// As [`Groups::hold`], of that group.
    pub fn hold_all<'t, M: Media<Sync = P>>(
        &'t self,
        pm: &'t Access<'_, M>,
        live: Live,
    ) -> impl Iterator<Item = Result<Held<'t, M>>> {
        (0..1 << live.groups_log()).map(move |index| {
            let group = self.group(live, index);
            Held::of(pm, [group, group])
        })
    }

    /// Repeats `look` until no write to the groups of two positions came between, and no change of
    /// what `load` returns; returns its result.
    ///
    /// What `look` loads may be half written. Its errors count only if nothing came between.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a write that failed; those of `look`.
    #[inline(always)]
    pub fn read<R>(
        &self,
        positions: [u64; 2],
        load: impl Fn() -> Live,
        mut look: impl FnMut(Live) -> Result<R>,
    ) -> Result<R> {
        let mut attempt = 0u32;
        // Ends: each further round waits for a writer, which ends its change or poisons.
        loop {
            let live = load();
            let sequences = self.of(live, positions).map(Group::sequence);
            if let (Some(one), Some(two)) = (sequences[0].read()?, sequences[1].read()?) {
                let found = look(live);
                if sequences[0].validate(one) && sequences[1].validate(two) && load() == live {
                    return found;
                }
            }
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Group<P>> {
        (0..=layout::MOST_GROUPS_LOG as usize).flat_map(|log| self.parts.all(log))
    }

    /// Returns the items that were added less those that were removed, modulo 2^64.
    pub fn items(&self) -> u64 {
        self.sum(|group| &group.items)
    }

    /// Returns the writes of keys to the top layer, and to the layers below.
    pub fn writes(&self) -> [u64; 2] {
        [0, 1].map(|rank| self.sum(|group| &group.writes[rank]))
    }

    fn sum(&self, counter: impl Fn(&Group<P>) -> &P::AtomicU64) -> u64 {
        let counts = self.all().map(|group| counter(group).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Counts items that recovery found in a group.
    pub fn count_found(&self, live: Live, index: u64, items: u64) {
        self.group(live, index).items.fetch_add(items, Ordering::Relaxed);
    }

    /// Returns whether a write failed half-way, or a holder of a latch panicked.
    pub fn is_poisoned(&self) -> bool {
        self.all().any(|group| group.sequence.read().is_err() || group.latch.try_lock().is_err())
    }

    /// Returns how much DRAM the groups take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.parts.total() as u64 * size_of::<Group<P>>() as u64
    }
}

impl<P: Primitives> Group<P> {
    /// Returns a number that no other lock of the process has. Those of a table have the order of
    /// their indexes.
    fn name(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Returns the sequence: odd while the group changes.
    #[inline(always)]
    pub fn sequence(&self) -> &Sequence<P> {
        &self.sequence
    }

    /// Fetches what DRAM knows of the group.
    #[inline(always)]
    pub fn prefetch(&self) {
        everhash_pmem::prefetch(self);
    }

    /// As [`Group::prefetch`], for a write.
    #[inline(always)]
    pub fn prefetch_for_write(&self) {
        everhash_pmem::prefetch_for_store(self);
    }
}

impl<'t, M: Media> Held<'t, M> {
    /// Waits for the latches of two groups, which may be one; as [`Groups::hold`].
    ///
    /// # Errors
    /// As [`Groups::hold`].
    #[inline(always)]
    pub fn of(pm: &'t Access<'_, M>, groups: [&'t Group<M::Sync>; 2]) -> Result<Self> {
        let [a, b] = groups;
        let (lower, upper) = if a.name() <= b.name() { (a, b) } else { (b, a) };
        let lower = lower.latch.lock()?;
        let upper = if a.name() == b.name() { None } else { Some(upper.latch.lock()?) };
        pm.dram(2);
        let held = Held { pm, groups, _latches: (lower, upper) };
        held.each(|name| pm.locked(name));
        a.sequence.read()?;
        b.sequence.read()?;
        Ok(held)
    }

    /// Keeps readers from the group under a hash function until the change ends; if it fails, for
    /// good.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self, second: bool) -> Result<Change<'_, M::Sync>> {
        Ok(self.group(second).sequence.begin()?)
    }

    /// Counts an item of a group that was added, or items that were removed if negative. Returns
    /// what the estimate of the table is to be changed by, when that is `limit` or more.
    #[inline(always)]
    pub fn count(&self, second: bool, added: i64, limit: i64) -> Option<i64> {
        let group = self.group(second);
        add(&group.items, added as u64);
        let drifted = (group.drift.load(Ordering::Relaxed) as i64).wrapping_add(added);
        let report = drifted.abs() >= limit;
        group.drift.store(if report { 0 } else { drifted as u64 }, Ordering::Relaxed);
        report.then_some(drifted)
    }

    /// Returns what of a group was not reported to the estimate of the table, and reports it.
    pub fn take_drift(&self) -> i64 {
        let drift = &self.group(false).drift;
        let drifted = drift.load(Ordering::Relaxed) as i64;
        drift.store(0, Ordering::Relaxed);
        drifted
    }

    /// Counts a write of a key to the top layer, or to one below it.
    #[inline(always)]
    pub fn count_write(&self, second: bool, below: bool) {
        add(&self.group(second).writes[usize::from(below)], 1);
    }

    #[inline(always)]
    fn group(&self, second: bool) -> &'t Group<M::Sync> {
        self.groups[usize::from(second)]
    }

    /// Visits the names of the latches, the lower one first.
    fn each(&self, mut visit: impl FnMut(u64)) {
        let [a, b] = self.groups.map(Group::name);
        visit(a.min(b));
        if a != b {
            visit(a.max(b));
        }
    }
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.each(|name| self.pm.unlocking(name));
    }
}

/// Adds to a counter that only the holder of a latch stores to: no locked instruction.
#[inline(always)]
fn add<A: AtomicWord>(counter: &A, added: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(added), Ordering::Relaxed);
}
