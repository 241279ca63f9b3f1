//! Who may run beside whom. Locks, sequences and counters lie in DRAM; a crash leaves none.
//!
//! A group is the subtree of one or more pages of the first top layer: with leading bits, every
//! bucket of every layer always belongs to one group. A key has two hash functions, so it has two
//! groups, which may be one.
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
//! A reader takes no lock. It loads which layers there are and the sequences of both groups, reads,
//! and looks at all three again; a hit and a miss are validated alike. So lines and records are
//! reused at once: a release fence comes before every store to space that was in use before.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{
    Access, AtomicWord, Change, Latch, LatchGuard, Lock, Masked, Media, Primitives, Sequence,
};

use super::layout;

/// What DRAM knows of a group, on lines of its own.
#[repr(align(64))]
pub struct Group<P: Primitives> {
    sequence: Sequence<P>,
    /// Items that were added minus those that were removed, modulo 2^64.
    items: P::AtomicU64,
    /// Writes of a key to the top layer, and to the layers below it.
    writes: [P::AtomicU64; 2],
    latch: Latch<P, Drift>,
}

/// What the holder of a group's latch knows beside the counters.
#[derive(Default)]
struct Drift {
    /// Items that were not reported to the estimate of the whole table yet.
    items: Cell<i64>,
}

/// All groups of a table.
pub struct Groups<P: Primitives> {
    all: Masked<Group<P>>,
    log: u32,
    /// What brings the leading bits of a position to the index of its group. One group alone is
    /// chosen by no bit: its mask is zero.
    shift: u32,
}

/// Holds the latch of a group.
type Guard<'t, M> = LatchGuard<'t, <M as Media>::Sync, Drift>;

/// The groups of a key, latched for a write.
pub struct Held<'t, M: Media> {
    groups: &'t Groups<M::Sync>,
    pm: &'t Access<'t, M>,
    /// The lower index, and the higher one unless they are one.
    latches: (Guard<'t, M>, Option<Guard<'t, M>>),
    indexes: [u64; 2],
}

impl<P: Primitives> Groups<P> {
    /// Makes 2^`log` groups.
    pub fn new(log: u32) -> Self {
        let group = |_| Group {
            sequence: Sequence::new(),
            items: AtomicWord::new(0),
            writes: [AtomicWord::new(0), AtomicWord::new(0)],
            latch: Lock::new(Drift::default()),
        };
        let all = Masked::new((0..1u64 << log).map(group).collect());
        Groups { all, log, shift: u64::BITS - log }
    }

    /// Returns how many groups there are.
    pub fn count(&self) -> u64 {
        self.all.all().len() as u64
    }

    /// Returns how many groups there are, as a logarithm.
    pub fn log(&self) -> u32 {
        self.log
    }

    /// Returns the group of a position.
    #[inline(always)]
    pub fn of(&self, position: u64) -> u64 {
        layout::bucket_of(position, self.log)
    }

    /// Fetches what DRAM knows of a group.
    #[inline(always)]
    pub fn prefetch(&self, index: u64) {
        everhash_pmem::prefetch(self.group(index));
    }

    #[inline(always)]
    fn group(&self, index: u64) -> &Group<P> {
        self.all.of(index)
    }

    /// Returns the sequence of the group of a position.
    #[inline(always)]
    pub fn sequence(&self, position: u64) -> &Sequence<P> {
        &self.all.of(position.wrapping_shr(self.shift)).sequence
    }

    /// Waits for the latches of the groups `a` and `b`, which may be one.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if a holder panicked, or if a write failed.
    #[inline(always)]
    pub fn hold<'t, M: Media<Sync = P>>(
        &'t self,
        pm: &'t Access<'_, M>,
        [a, b]: [u64; 2],
    ) -> Result<Held<'t, M>> {
        let indexes = [a.min(b), a.max(b)];
        let lower = self.group(indexes[0]).latch.lock()?;
        let upper = match a == b {
            true => None,
            false => Some(self.group(indexes[1]).latch.lock()?),
        };
        pm.dram(2);
        let held = Held { groups: self, pm, latches: (lower, upper), indexes };
        held.each(|index| pm.locked(self.name(index)));
        for index in indexes {
            self.group(index).sequence.read()?;
        }
        Ok(held)
    }

    /// Repeats `look` until no write to the groups `a` and `b` came between and `is_same` holds;
    /// returns its result.
    ///
    /// What `look` loads may be half written. Its errors count only if no write came between.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] after a write that failed; those of `look`.
    #[inline(always)]
    pub fn read<V, R>(
        &self,
        [a, b]: [u64; 2],
        enter: impl Fn() -> V,
        is_same: impl Fn(&V) -> bool,
        mut look: impl FnMut(&V) -> Result<R>,
    ) -> Result<R> {
        let sequences = [&self.group(a).sequence, &self.group(b).sequence];
        let mut attempt = 0u32;
        // Ends: each further round waits for a writer, which ends its change or poisons.
        loop {
            let view = enter();
            if let (Some(one), Some(two)) = (sequences[0].read()?, sequences[1].read()?) {
                let found = look(&view);
                if sequences[0].validate(one) && sequences[1].validate(two) && is_same(&view) {
                    return found;
                }
            }
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
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
        let counts = self.all.all().iter().map(|group| counter(group).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Counts items that recovery found in a group.
    pub fn count_found(&self, index: u64, items: u64) {
        self.group(index).items.fetch_add(items, Ordering::Relaxed);
    }

    /// Returns whether a write failed half-way, or a holder of a latch panicked.
    pub fn is_poisoned(&self) -> bool {
        self.all
            .all()
            .iter()
            .any(|group| group.sequence.read().is_err() || group.latch.try_lock().is_err())
    }

    /// Returns how much DRAM the groups take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.count() * size_of::<Group<P>>() as u64
    }

    /// Returns a number that no other lock of the process has.
    fn name(&self, index: u64) -> u64 {
        core::ptr::from_ref(self.group(index)).addr() as u64
    }
}

impl<M: Media> Held<'_, M> {
    /// Keeps readers from the group of a position until the change ends; if it fails, for good.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`] if an earlier change failed.
    #[inline(always)]
    pub fn change(&self, position: u64) -> Result<Change<'_, M::Sync>> {
        Ok(self.groups.group(self.groups.of(position)).sequence.begin()?)
    }

    /// Counts an item of the group of a position that was added, or removed if negative. Returns
    /// what the estimate of the table is to be changed by, when that is `limit` or more.
    #[inline(always)]
    pub fn count(&self, position: u64, added: i64, limit: i64) -> Option<i64> {
        let index = self.groups.of(position);
        add(&self.groups.group(index).items, added as u64);
        let drift =
            if index == self.indexes[0] { Some(&self.latches.0) } else { self.latches.1.as_ref() };
        let items = &drift.expect("the group of the key is held").items;
        let drifted = items.get() + added;
        let report = drifted.abs() >= limit;
        items.set(if report { 0 } else { drifted });
        report.then_some(drifted)
    }

    /// Counts a write of a key to the top layer, or to one below it.
    #[inline(always)]
    pub fn count_write(&self, position: u64, below: bool) {
        add(&self.groups.group(self.groups.of(position)).writes[usize::from(below)], 1);
    }

    fn each(&self, mut visit: impl FnMut(u64)) {
        visit(self.indexes[0]);
        if self.latches.1.is_some() {
            visit(self.indexes[1]);
        }
    }
}

impl<M: Media> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.each(|index| self.pm.unlocking(self.groups.name(index)));
    }
}

/// Adds to a counter that only the holder of a latch stores to: no locked instruction.
#[inline(always)]
fn add<A: AtomicWord>(counter: &A, added: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(added), Ordering::Relaxed);
}
