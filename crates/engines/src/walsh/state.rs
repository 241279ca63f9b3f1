//! An open table in DRAM: areas, what their locks guard, and the locks.

mod queue;

use core::ops::Deref;
use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Error, Result};
use everhash_pmem::{
    Addr, AtomicWord, Domain, Latch, LatchGuard, Lock, Media, Pool, Primitives, Space, Span, WORD,
};

use super::concurrency::{Shown, View};
use super::directory::{Blocks, Side};
use super::layout::{INFO_ESTIMATED, Info, Tail};
use super::object::Objects;
use super::setup::{OrdinaryLog, WalshSettings};
use crate::common::hash::KeyedHash;
pub use queue::{Log, Logs};

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&Walsh<M>, u64) -> Result<Option<u64>>;

/// The proof of holding an area's lock.
pub type GuardOf<'a, M> = LatchGuard<'a, <M as Media>::Sync, State>;

/// A table, of any form.
pub struct Walsh<M: Media> {
    pub(super) pool: Pool<M>,
    pub(super) form: everhash_index::Form,
    pub(super) settings: WalshSettings,
    pub(super) hasher: KeyedHash,
    pub(super) lookup: WordLookup<M>,
    pub(super) objects: Objects,
    pub(super) ordinary: OrdinaryLog,
    /// Binds heads and objects to the database.
    pub(super) seed: u64,
    pub(super) space: Space<M>,
    pub(super) blocks: Blocks<M::Sync>,
    pub(super) areas: Box<[Area<M>]>,
    pub(super) reserve: LockOf<M, Reserve>,
    /// Held by the thread that makes room on a full medium. Taken before `epochs`.
    pub(super) rescue: LockOf<M, ()>,
    /// Not 0 after a failure of the medium: nothing can be promised any more.
    pub(super) dead: WordOf<M>,
    /// Whether areas share epochs here.
    pub(super) is_grouped: bool,
    /// Whether epochs end at a sync of the caller's only: nothing is promised between two.
    pub(super) is_relaxed: bool,
    /// Taken before any area's lock.
    pub(super) epochs: LockOf<M, CommitEpochs>,
    /// Bytes of writes since the last cut: what a power loss takes back. The areas' locks guard the
    /// moment of a cut.
    pub(super) pending: WordOf<M>,
    /// Bytes since the last cut that a power loss does not take back: of moved pairs, of heads and
    /// infos, and of the logs that the next epoch frees.
    pub(super) housekeeping: WordOf<M>,
    /// The number of the area whose turn it is to be rehashed, plus one; 0 = of none.
    pub(super) turn: WordOf<M>,
    /// Rehashes since the table was opened.
    pub(super) rehashes: WordOf<M>,
    /// Not 0 once a log was begun since the table was opened: free space is not as it was.
    pub(super) has_begun: WordOf<M>,
    /// Bytes of the logs that were begun since the last upkeep.
    pub(super) taken: WordOf<M>,
    /// The area with which the next upkeep begins.
    pub(super) upkeep: WordOf<M>,
}

/// A log area, on cache lines of its own: readers need the first one only, which writers change
/// seldom.
#[repr(C, align(128))]
pub struct Area<M: Media> {
    pub(super) view: Shown<M::Sync>,
    pub(super) sides: [Side<M::Sync>; 2],
    pub(super) number: u64,
    /// Where its record lies.
    pub(super) record: Addr,
    pub(super) state: OwnLine<Latch<M::Sync, State>>,
    /// Threads that wait for the lock: steps of a rehash, which anybody can do later, let them
    /// pass. Otherwise a rehash, whose steps follow one another, would hold them up to its end.
    waiting: OwnLine<<M::Sync as Primitives>::AtomicU64>,
}

/// How often a thread that waits for an area looks again before it sleeps.
///
/// Unit: none. Source: ours; a step of a rehash takes some ten microseconds, and a sleep a hundred.
const LOOKS: u32 = 400;

/// The last attempt after which waiting is no sleep.
///
/// Unit: none. Source: ours; [`Primitives::pause`] yields from its sixth attempt on.
const YIELD: u32 = 8;

impl<M: Media> Area<M> {
    /// Makes an area that nobody has read in yet.
    pub(super) fn new(
        number: u64,
        record: Addr,
        view: Shown<M::Sync>,
        sides: [Side<M::Sync>; 2],
    ) -> Self {
        let (state, waiting) = (OwnLine(Lock::new(State::default())), OwnLine(AtomicWord::new(0)));
        Area { view, sides, number, record, state, waiting }
    }

    /// Returns whether a thread waits for the lock.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes the lock, for which steps of a rehash make way.
    #[cold]
    fn wait(&self) -> Result<GuardOf<'_, M>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut state = Ok(None);
        for attempt in 0..LOOKS {
            <M::Sync as Primitives>::pause(attempt.min(YIELD));
            state = self.state.try_lock();
            if !matches!(state, Ok(None)) {
                break;
            }
        }
        let state = match state {
            Ok(None) => self.state.lock(),
            state => state.map(|state| state.expect("it was looked at")),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(state?)
    }
}

/// Something that begins with a cache line.
#[repr(align(64))]
pub struct OwnLine<T>(pub(super) T);

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What the lock of an area guards.
///
/// With two threads each line that a write changes comes from the other one's cache half the time.
/// What every write changes is in the line of the latch, then comes what every write reads.
#[derive(Debug, Default)]
#[repr(C)]
pub struct State {
    /// Live pairs.
    pub(super) items: u64,
    /// The room that their objects need. Unit: bytes.
    pub(super) item_bytes: u64,
    /// Objects in chains of the newest directories.
    pub(super) chained: u64,
    /// Objects in all logs.
    pub(super) stored: u64,
    /// The newest log, which takes objects.
    pub(super) open: Option<OpenLog>,
    /// The view, as readers see it.
    pub(super) view: View,
    pub(super) rehash: Option<Rehash>,
    /// What the last rehash left.
    pub(super) rehashed: Extent,
    /// What the newest info says.
    pub(super) info: NewInfo,
    /// Its sequence.
    pub(super) sequence: u64,
    /// Every log but the newest, oldest first.
    pub(super) logs: Logs,
    /// The checkpoint that was loaded when the table was opened.
    pub(super) saved: Option<Saved>,
    /// When upkeep first saw the oldest object that is not durable.
    pub(super) seen: Option<Duration>,
    /// Whether `items` and `item_bytes` were counted anew after the last blind write.
    pub(super) is_counted: bool,
    /// The room that ordinary logs take. Unit: bytes.
    pub(super) log_bytes: u64,
    /// The room that longer logs take. Unit: bytes.
    pub(super) long_bytes: u64,
}

/// What upkeep leaves to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    /// Steps of a rehash, after one that was done.
    Steps,
    /// Steps that wait for other threads: for their lock, or for their turn.
    Held,
}

/// A rehash under way.
#[derive(Clone, Copy, Debug)]
pub struct Rehash {
    /// The last log that is being rehashed.
    pub(super) end: u64,
    /// The first directory set aside whose chain is not yet rehashed.
    pub(super) next: u64,
    /// Whether it may have moved pairs before, in another process.
    pub(super) is_again: bool,
    /// What the area counted when it began.
    pub(super) before: Counted,
    /// What is alive of that, in the chains that are rehashed.
    pub(super) found: Counted,
    /// What is still to be moved, at most, if that was counted.
    pub(super) left: Option<Counted>,
}

impl Rehash {
    /// Returns a rehash of all logs up to `end`, of which nothing is done.
    pub(super) fn begun(end: u64, before: Counted) -> Rehash {
        let found = Counted::default();
        Rehash { end, next: 0, is_again: false, before, found, left: None }
    }
}

/// The room that an area takes and needs. Unit: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The length of all logs.
    pub(super) log_bytes: u64,
    /// What objects and directory records of live pairs need.
    pub(super) live_bytes: u64,
}

/// Live pairs, and the room that their objects need. Unit of that: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    pub(super) items: u64,
    pub(super) item_bytes: u64,
}

/// The newest log of an area. What every write changes is first, as in [`State`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenLog {
    /// Its objects.
    pub(super) count: u64,
    /// Where the next object begins. Unit: words from the start of the log.
    pub(super) fill: u64,
    /// Where the first object begins that is not durable.
    pub(super) durable_fill: u64,
    pub(super) span: Span,
    /// Most objects.
    pub(super) entries: u64,
    pub(super) number: u64,
    /// Objects that are durable.
    pub(super) durable: u64,
    /// Whether the head is durable, and the log reachable.
    pub(super) published: bool,
    /// Whether writes may fill it: the reserve is whole then, too.
    pub(super) is_for_writes: bool,
    /// Objects that the tail covers; with durability 1 recovery finds the others by their seals.
    pub(super) committed: u64,
    /// The checksum of the head, to which seals are bound.
    pub(super) checksum: u64,
}

/// Which logs and directories an area has from now on.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInfo {
    /// The oldest log.
    pub(super) start: u64,
    /// The last log that is being rehashed, 0 = none is.
    pub(super) end: u64,
    /// Base-2 logarithms of the directories, and of those set aside.
    pub(super) levels: [u32; 2],
    /// Whether the count of live pairs is an estimate: see `ops/blind.rs`.
    pub(super) estimated: bool,
}

impl NewInfo {
    /// Returns the words of an info, without its checksum.
    pub(super) fn words(&self, sequence: u64) -> [u64; Info::WORDS] {
        let mut info = [0; Info::WORDS];
        info[Info::SEQUENCE] = sequence;
        (info[Info::START], info[Info::END]) = (self.start, self.end);
        info[Info::LEVEL] = self.levels[0].into();
        info[Info::OLD] = self.levels[1].into();
        info[Info::FLAGS] = INFO_ESTIMATED.set(0, self.estimated.into());
        info
    }
}

/// A checkpoint that was loaded, and the end of the area that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    pub(super) span: Span,
    pub(super) tail: Tail,
    pub(super) sequence: u64,
}

/// The epochs of a table whose areas share them.
#[derive(Debug, Default)]
pub struct CommitEpochs {
    /// The last epoch that is durable; 0 if areas speak for themselves.
    pub(super) number: u64,
    /// When upkeep first saw a write that is in no epoch.
    pub(super) seen: Option<Duration>,
}

/// What collecting an area needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// Room for ordinary logs, or what such logs hold. Unit: bytes.
    pub(super) wanted: u64,
    /// Of byte strings, how long the logs are. Unit: bytes.
    pub(super) log_bytes: u64,
    /// Of byte strings, what the end of a shorter log cannot hold, usually. Unit: bytes.
    pub(super) end_bytes: u64,
    /// Room in one piece for longer logs. Unit: bytes.
    pub(super) run_bytes: u64,
}

impl Need {
    pub(super) fn max(self, other: Need) -> Need {
        Need {
            wanted: self.wanted.max(other.wanted),
            log_bytes: self.log_bytes.max(other.log_bytes),
            end_bytes: self.end_bytes.max(other.end_bytes),
            run_bytes: self.run_bytes.max(other.run_bytes),
        }
    }
}

/// What is kept free, and logs that wait for the next epoch.
#[derive(Debug, Default)]
pub struct Reserve {
    /// What collecting the largest area needs: at least that.
    pub(super) need: Need,
    /// The same while it is being measured anew.
    pub(super) measured: Need,
    /// Whether a removal found no room. Only the thread that holds `rescue` changes it.
    pub(super) is_short: bool,
    /// Whether areas were compacted since something else became free.
    pub(super) is_compact: bool,
    /// Logs to which the present epoch may lead, and no later one.
    pub(super) retired: Vec<Span>,
}

impl Reserve {
    pub(super) fn add_need(&mut self, need: Need) {
        (self.need, self.measured) = (self.need.max(need), self.measured.max(need));
    }
}

impl Counted {
    /// Adds a pair whose object has so many words.
    pub(super) fn add(&mut self, words: u64) {
        (self.items, self.item_bytes) = (self.items + 1, self.item_bytes + words * WORD);
    }

    pub(super) fn plus(self, other: Counted) -> Counted {
        let item_bytes = self.item_bytes + other.item_bytes;
        Counted { items: self.items + other.items, item_bytes }
    }

    pub(super) fn minus(self, other: Counted) -> Counted {
        let item_bytes = self.item_bytes.saturating_sub(other.item_bytes);
        Counted { items: self.items.saturating_sub(other.items), item_bytes }
    }
}

impl State {
    /// Returns whether the area's counts are exact, or at most a little too large.
    pub(super) fn is_exact(&self) -> bool {
        self.is_counted || !self.info.estimated
    }

    /// Returns what the area counts.
    pub(super) fn counted(&self) -> Counted {
        Counted { items: self.items, item_bytes: self.item_bytes }
    }

    /// Counts what a rehash has found instead of what was thought before it, which blind writes
    /// and recoveries only estimate; what was written since stays.
    pub(super) fn recount(&mut self, rehash: &Rehash) {
        let Rehash { before, found, .. } = rehash;
        let anew = |now: u64, before: u64, found: u64| (now + found).saturating_sub(before);
        self.items = anew(self.items, before.items, found.items);
        self.item_bytes = anew(self.item_bytes, before.item_bytes, found.item_bytes);
    }

    /// Returns what a rehash will still move, at most, unless blind writes have made it a guess.
    pub(super) fn left(&self) -> Counted {
        let Some(Rehash { before, found, left, .. }) = self.rehash else { return self.counted() };
        left.unwrap_or_else(|| before.minus(found))
    }

    /// Returns the room that the area takes and needs.
    #[inline(always)]
    pub(super) fn extent(&self) -> Extent {
        let log_bytes = self.logs.bytes + self.open.as_ref().map_or(0, |log| log.span.bytes());
        Extent { log_bytes, live_bytes: self.item_bytes + self.items * WORD }
    }

    /// Returns the newest log and its objects.
    pub(super) fn newest(&self) -> Tail {
        let tail = |log: &OpenLog| Tail { at: log.span.start, count: log.count };
        self.open.as_ref().map_or_else(Tail::default, tail)
    }
}

impl<M: Media> Walsh<M> {
    /// Returns the area of a key.
    #[inline]
    pub(super) fn area(&self, hash: u64) -> &Area<M> {
        let area = super::layout::AREA_HASH.get(hash) as usize;
        &self.areas[area & (self.areas.len() - 1)]
    }

    /// Waits for an area.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failure of the medium or a panic.
    #[inline(always)]
    pub(super) fn lock<'a>(&self, area: &'a Area<M>) -> Result<GuardOf<'a, M>> {
        let state = match area.state.try_lock()? {
            Some(state) => state,
            None => area.wait()?,
        };
        self.alive()?;
        Ok(state)
    }

    /// As [`Walsh::lock`], for a write.
    ///
    /// # Errors
    /// As [`Walsh::lock`]; [`Error::Unsupported`] if the pool was opened for reading only.
    #[inline(always)]
    pub(super) fn lock_to_write<'a>(&self, area: &'a Area<M>) -> Result<GuardOf<'a, M>> {
        self.pool.check_writable()?;
        self.lock(area)
    }

    /// Returns an error if the medium has failed before.
    #[inline]
    pub(super) fn alive(&self) -> Result<()> {
        if self.is_dead() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Returns whether the medium has failed before.
    #[inline(always)]
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) != 0
    }

    /// Returns whether nothing but a sync of the caller's may wait for a medium.
    pub(super) fn relaxes(media: &M) -> bool {
        matches!(media.guarantees().domain, Domain::None | Domain::Process)
    }

    /// Passes on the outcome of something that leaves the table in doubt if it fails.
    pub(super) fn poison_on_error<T>(&self, outcome: everhash_pmem::Result<T>) -> Result<T> {
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => {
                self.dead.store(1, Ordering::Relaxed);
                match error {
                    // Want of room means that nothing has changed, and the write is done again.
                    everhash_pmem::Error::Full { .. } => Err(Error::Poisoned),
                    error => Err(error.into()),
                }
            }
        }
    }
}

impl<M: Media> Area<M> {
    /// Shows readers another view. The caller holds the lock.
    pub(super) fn show(&self, state: &mut State, view: View) {
        state.view = view;
        self.view.show(view);
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use everhash_pmem::{Image, LINE, Std};

    use super::*;

    #[test]
    fn a_write_changes_one_line_of_its_area_and_a_read_needs_another_one() {
        // Fails if a field comes between those that every write changes, or if what readers need
        // is on a line with them, or on two.
        type Own = Area<Image<Std>>;
        assert_eq!(size_of::<Option<OpenLog>>(), size_of::<OpenLog>());
        let open = offset_of!(State, open) + offset_of!(OpenLog, span);
        let changed = WORD as usize + open;
        assert!(changed <= LINE as usize, "{changed}");
        let state = offset_of!(Own, state);
        let [view, end] = [offset_of!(Own, view), offset_of!(Own, record) + size_of::<Addr>()];
        assert_eq!([view, state], [0, LINE as usize], "readers and writers");
        assert!(end <= state, "{end}");
    }
}
