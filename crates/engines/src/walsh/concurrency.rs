//! Who may run beside whom (3.3).
//!
//! | | beside reads of the area | beside writes of the area | beside its rehash |
//! |---|---|---|---|
//! | read | yes, neither locks | yes, no lock | yes, no lock |
//! | write | yes | one after the other, by the area's lock | between two of its steps |
//! | rehash | yes | between two of them | one at a time |
//!
//! Areas know nothing of each other. An object never changes once a head leads to it, so a read
//! takes effect when it loads the head, whatever is added afterwards. Only the end of a rehash
//! gives logs and directories another use. It changes the area's *view* first; a reader looks at
//! the view again when it is done, and starts anew if it changed: what it read may have been
//! anything, and that must do no harm. After [`ATTEMPTS`] it takes the lock.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::VecDeque;

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, AtomicWord, Bits, Domain, Lock, Media, Pool, Primitives, Space, Span};

use super::directory::{Blocks, Side};
use super::epochs::Epochs;
use super::layout::Tail;
use super::logs::NewInfo;
use super::object::Objects;
use super::setup::WalshSettings;
use crate::common::hash::KeyedHash;

/// Reads without a lock before one with it.
///
/// Source: WALSH 3.3.1.
pub const ATTEMPTS: u32 = 64;

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// The proof of holding an area's lock.
pub type GuardOf<'a, M> = <LockOf<M, State> as Lock<State>>::Guard<'a>;

/// Rises whenever directories or logs get another use; its parity chooses the side.
const GENERATION: Bits = Bits::new(0, 48);
/// Base-2 logarithm of the directories.
const LEVEL: Bits = Bits::new(48, 6);
/// The same for the directories that are set aside.
const OLD: Bits = Bits::new(54, 6);
/// Whether there are any.
const REHASHING: Bits = Bits::new(60, 1);
/// Whether no reader may look at the area without its lock.
const CLOSED: Bits = Bits::new(61, 1);

/// How an area is to be read: which directories there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View(u64);

impl View {
    /// Makes the first view of an area.
    pub fn new(level: u32, old: Option<u32>) -> View {
        View(LEVEL.set(0, level.into())).with_old(old)
    }

    /// Returns the view with the next generation's directories as the only ones.
    pub fn next(self, level: u32, old: Option<u32>) -> View {
        let generation = GENERATION.set(0, GENERATION.get(self.0) + 1);
        View(LEVEL.set(generation, level.into())).with_old(old)
    }

    fn with_old(self, old: Option<u32>) -> View {
        let word = OLD.set(self.0, old.unwrap_or(0).into());
        View(REHASHING.set(word, old.is_some().into()))
    }

    /// Returns the view after a rehash: nothing is set aside any more.
    pub fn settled(self) -> View {
        self.with_old(None)
    }

    /// Returns the view under which readers wait.
    pub fn closed(self) -> View {
        View(CLOSED.set(self.0, 1))
    }

    /// Returns the side of the directories that new objects go to.
    pub fn side(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Returns their number as a base-2 logarithm.
    pub fn level(self) -> u32 {
        LEVEL.get(self.0) as u32
    }

    /// Returns the number of directories set aside on the other side, if there are any.
    pub fn old(self) -> Option<u32> {
        (REHASHING.get(self.0) == 1).then(|| OLD.get(self.0) as u32)
    }

    fn is_closed(self) -> bool {
        CLOSED.get(self.0) == 1
    }
}

/// A table, of any form.
pub struct Walsh<M: Media> {
    pub(super) pool: Pool<M>,
    pub(super) form: everhash_index::Form,
    pub(super) settings: WalshSettings,
    pub(super) hasher: KeyedHash,
    pub(super) objects: Objects,
    /// Binds heads and objects to the database.
    pub(super) seed: u64,
    pub(super) space: Space<M>,
    pub(super) blocks: Blocks<M::Sync>,
    pub(super) areas: Box<[Area<M>]>,
    pub(super) spare: LockOf<M, Spare>,
    /// Not 0 after a failure of the medium: nothing can be promised any more.
    pub(super) dead: WordOf<M>,
    /// Whether areas share epochs here.
    pub(super) is_grouped: bool,
    /// Taken before any area's lock.
    pub(super) epochs: LockOf<M, Epochs>,
    /// Bytes that were written since the last cut; the areas' locks guard the moment of a cut.
    pub(super) pending: WordOf<M>,
    /// Rehashes since the table was opened.
    pub(super) rehashes: WordOf<M>,
    /// The area with which the next upkeep begins.
    pub(super) upkeep: WordOf<M>,
}

/// Logs that wait for a medium without room, so that removing and collecting work on it too.
#[derive(Default)]
pub struct Spare {
    pub(super) spans: Vec<Span>,
    /// How many of them the largest area needs to be collected.
    pub(super) collect: usize,
    /// Logs to which the present epoch may lead, and no later one.
    pub(super) limbo: Vec<Span>,
}

/// A log area: on cache lines of its own.
#[repr(align(128))]
pub struct Area<M: Media> {
    pub(super) number: u64,
    /// Where its record lies.
    pub(super) record: Addr,
    pub(super) view: WordOf<M>,
    pub(super) sides: [Side<M::Sync>; 2],
    pub(super) state: LockOf<M, State>,
}

/// What the lock of an area guards.
#[derive(Debug, Default)]
pub struct State {
    /// The view, as readers see it.
    pub(super) view: View,
    /// The newest log, which takes objects.
    pub(super) open: Option<OpenLog>,
    /// Every log but the newest, oldest first.
    pub(super) logs: VecDeque<Log>,
    /// Sequence of the newest info.
    pub(super) sequence: u64,
    /// What it says.
    pub(super) info: NewInfo,
    /// Live pairs.
    pub(super) items: u64,
    /// The room that their objects need. Unit: bytes.
    pub(super) item_bytes: u64,
    /// Objects in chains of the newest directories.
    pub(super) chained: u64,
    /// Objects in all logs.
    pub(super) stored: u64,
    pub(super) rehash: Option<Rehash>,
    /// When upkeep first saw the oldest object that is not durable.
    pub(super) seen: Option<Duration>,
}

/// A rehash under way.
#[derive(Clone, Copy, Debug)]
pub struct Rehash {
    /// The last log that is being rehashed.
    pub(super) end: u64,
    /// The first directory set aside whose chain is not yet rehashed.
    pub(super) next: u64,
    /// Whether a thread is at it.
    pub(super) running: bool,
}

/// A log that is full.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub(super) number: u64,
    pub(super) span: Span,
    /// Its objects.
    pub(super) count: u64,
}

/// The newest log of an area.
#[derive(Clone, Copy, Debug)]
pub struct OpenLog {
    pub(super) number: u64,
    pub(super) span: Span,
    /// Most objects.
    pub(super) entries: u64,
    /// Its objects.
    pub(super) count: u64,
    /// Where the next object begins. Unit: words from the start of the log.
    pub(super) fill: u64,
    /// Objects that are durable.
    pub(super) durable: u64,
    /// Where the first one begins that is not.
    pub(super) durable_fill: u64,
    /// Whether the head is durable, and the log reachable.
    pub(super) known: bool,
}

impl State {
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
    pub(super) fn lock<'a>(&self, area: &'a Area<M>) -> Result<GuardOf<'a, M>> {
        let state = area.state.lock()?;
        self.alive()?;
        Ok(state)
    }

    /// Returns an error if the medium has failed before.
    #[inline]
    pub(super) fn alive(&self) -> Result<()> {
        match self.dead.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Error::Poisoned),
        }
    }

    /// Returns whether areas share epochs on a medium.
    pub(super) fn groups(settings: &WalshSettings, media: &M) -> bool {
        let only_syncs = matches!(media.guarantees().domain, Domain::Process | Domain::Synced);
        settings.durability == 0 && (only_syncs || settings.epochs == 1)
    }

    /// Passes on the outcome of something that leaves the table in doubt if it fails.
    pub(super) fn vital<T>(&self, outcome: everhash_pmem::Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.dead.store(1, Ordering::Relaxed);
        }
        Ok(outcome?)
    }
}

impl<M: Media> Area<M> {
    /// Shows readers another view. The caller holds the lock.
    pub(super) fn show(&self, state: &mut State, view: View) {
        state.view = view;
        self.view.store(view.0, Ordering::Release);
        // Whoever reads anything that is stored from here on also sees the new view.
        M::Sync::fence(Ordering::Release);
    }

    /// Returns the present view, for hints.
    pub(super) fn latest_view(&self) -> View {
        View(self.view.load(Ordering::Acquire))
    }

    /// Returns whether the area is still to be read as `view` says.
    pub(super) fn shows(&self, view: View) -> bool {
        M::Sync::fence(Ordering::Acquire);
        self.view.load(Ordering::Relaxed) == view.0
    }

    /// Calls `read` without the lock until no view came between, and returns what it found; or
    /// `None` if that did not happen soon.
    #[inline]
    pub(super) fn read_with<T>(
        &self,
        mut read: impl FnMut(View) -> Result<T>,
    ) -> Option<Result<T>> {
        for attempt in 0..ATTEMPTS {
            let view = View(self.view.load(Ordering::Acquire));
            if !view.is_closed() {
                let found = read(view);
                if self.shows(view) {
                    return Some(found);
                }
            }
            M::Sync::pause(attempt);
        }
        None
    }
}
