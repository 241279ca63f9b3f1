//! Concurrency control (3.3): which operations may overlap.
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
//! the view again when it is done, and retries if it changed: until then, what it read may be
//! arbitrary and must do no harm. After [`ATTEMPTS`] it takes the lock.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{AtomicWord, Bits, Primitives};

/// Reads without a lock before one with it.
///
/// Source: WALSH 3.3.1.
pub const ATTEMPTS: u32 = 64;

/// Rises whenever directories or logs get another use; its parity chooses the side.
const GENERATION: Bits = Bits::new(0, 48);
/// Base-2 logarithm of the directories.
const LEVEL: Bits = Bits::new(48, 6);
/// The same for the directories that are set aside.
const OLD: Bits = Bits::new(54, 6);
/// Whether there are any.
const REHASHING: Bits = Bits::new(REHASHING_SHIFT, 1);
/// Where the bits begin of which none is set while nothing happens to an area.
const REHASHING_SHIFT: u32 = 60;
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
    #[inline(always)]
    pub fn side(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Returns their number as a base-2 logarithm.
    #[inline(always)]
    pub fn level(self) -> u32 {
        LEVEL.get(self.0) as u32
    }

    /// Returns the number of directories set aside on the other side, if there are any.
    #[inline(always)]
    pub fn old(self) -> Option<u32> {
        (REHASHING.get(self.0) == 1).then(|| OLD.get(self.0) as u32)
    }

    /// Returns whether there is one set of directories, and readers need not wait.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 >> REHASHING_SHIFT == 0
    }

    fn is_closed(self) -> bool {
        CLOSED.get(self.0) == 1
    }
}

/// The view of an area, as readers see it.
pub struct Shown<P: Primitives>(P::AtomicU64);

impl<P: Primitives> Shown<P> {
    /// Shows a view under which readers wait.
    pub fn closed() -> Self {
        Shown(AtomicWord::new(View::default().closed().0))
    }

    /// Shows readers another view. The caller holds the area's lock.
    pub fn show(&self, view: View) {
        self.0.store(view.0, Ordering::Release);
        // Whoever reads anything that is stored from here on also sees the new view.
        P::fence(Ordering::Release);
    }

    /// Returns the present view, for hints.
    #[inline(always)]
    pub fn latest(&self) -> View {
        View(self.0.load(Ordering::Acquire))
    }

    /// Returns whether the area is still to be read as `view` says.
    #[inline(always)]
    pub fn shows(&self, view: View) -> bool {
        P::fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == view.0
    }

    /// Calls `read` without the lock until no view came between, and returns what it found; or
    /// `None` if that did not happen soon.
    #[inline]
    pub fn read_with<T>(&self, mut read: impl FnMut(View) -> Result<T>) -> Option<Result<T>> {
        for attempt in 0..ATTEMPTS {
            let view = self.latest();
            if !view.is_closed() {
                let found = read(view);
                if self.shows(view) {
                    return Some(found);
                }
            }
            P::pause(attempt);
        }
        None
    }
}
