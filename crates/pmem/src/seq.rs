//! A sequence lock: optimistic readers never accept a torn or not yet durable change.

use core::sync::atomic::Ordering;

use crate::{AtomicWord, Error, Primitives, Result};

/// The word after a change that failed. Odd, so that no reader accepts anything.
const POISON: u64 = u64::MAX;

/// Must come before the first store to words that were in use before and are free, if readers may
/// still be loading them: the stores of this thread are ordered behind the store that made them
/// free, whoever stored it.
///
/// A reader that loads one of the new words, fences (acquire), and validates the sequence, META
/// word or link that led it there, finds that changed. Locks and free lists in DRAM order one
/// writer behind the other, but no reader: without this fence the C11 model lets a reader see the
/// new words and the old link. [`Space::take`](crate::Space::take) and
/// [`Heap::take`](crate::Heap::take) call it for their callers. It takes no instruction on x86.
#[inline(always)]
pub fn before_reuse<P: Primitives>() {
    P::fence(Ordering::Release);
}

/// A sequence word in DRAM for data on the medium: odd from before the first store of a change
/// until the change is durable, and two higher after each change.
///
/// Writers hold a lock of their own. Readers are lock-free: they load the word, read the data, and
/// validate the word. The fences are those of a seqlock over atomic data (Boehm, "Can seqlocks get
/// along with programming language memory models?", MSPC 2012).
///
/// ```
/// use everhash_pmem::{Addr, Image, Region, Sequence, Site, Span, Std};
///
/// let pm = Region::new(Image::<Std>::new(4096, 4096));
/// let (pm, pair, site) = (pm.access(), Addr::new(64), Site::new("demo/pair"));
/// let sequence = Sequence::<Std>::new();
///
/// let change = sequence.begin()?; // under the writer's lock
/// pm.store(pair, 7)?;
/// pm.store(pair.plus(1), 8)?;
/// pm.persist(Span::new(pair, 2), site)?; // a failure here poisons the sequence
/// change.end();
///
/// let both = sequence.read_with(|| Ok((pm.load(pair)?, pm.load(pair.plus(1))?)))?;
/// assert_eq!(both, (7, 8));
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Sequence<P: Primitives> {
    word: P::AtomicU64,
}

/// The sequence at which an optimistic read began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

/// A change in progress. Dropped without [`Change::end`], by an error or a panic, it poisons the
/// sequence: the data may be torn, or visible and never durable.
#[must_use = "readers wait until the change ends"]
pub struct Change<'a, P: Primitives> {
    sequence: &'a Sequence<P>,
    /// The word when the change has ended.
    after: u64,
    /// The word that it ends with.
    outcome: u64,
}

impl<P: Primitives> Sequence<P> {
    /// Makes the sequence of durable data.
    pub fn new() -> Self {
        Sequence { word: AtomicWord::new(0) }
    }

    /// Begins a change. The caller holds the writers' lock, and stores only after this call.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier change failed.
    ///
    /// # Panics
    /// If another change is in progress.
    #[inline]
    pub fn begin(&self) -> Result<Change<'_, P>> {
        let word = self.word.load(Ordering::Relaxed);
        if word == POISON {
            return Err(Error::Poisoned);
        }
        assert!(word.is_multiple_of(2), "one change at a time: the writer's lock is held");
        // A plain store, since the lock excludes other writers. A locked instruction here, or in
        // `end`, would delay the loads of the next operation until the write-back is over.
        self.word.store(word + 1, Ordering::Relaxed);
        // Pairs with the fence of `validate`: a reader that loads any store of the change then
        // loads the odd word, or a later one.
        P::fence(Ordering::Release);
        Ok(Change { sequence: self, after: word + 2, outcome: POISON })
    }

    /// Begins an optimistic read: returns its stamp, or `None` while a change is in progress.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a change failed.
    #[inline]
    pub fn read(&self) -> Result<Option<Stamp>> {
        // Pairs with the store of `Change::end`: the reader sees all of the change.
        match self.word.load(Ordering::Acquire) {
            // Poison is odd: one comparison serves the fast path.
            word if word.is_multiple_of(2) => Ok(Some(Stamp(word))),
            POISON => Err(Error::Poisoned),
            _ => Ok(None),
        }
    }

    /// As [`Sequence::read`], for a fast path: `None` also if a change failed.
    #[inline(always)]
    pub fn try_read(&self) -> Option<Stamp> {
        let word = self.word.load(Ordering::Acquire);
        word.is_multiple_of(2).then_some(Stamp(word))
    }

    /// Returns whether no change began since `stamp`: then everything loaded since is consistent
    /// and durable.
    #[inline]
    #[must_use]
    pub fn validate(&self, stamp: Stamp) -> bool {
        P::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == stamp.0
    }

    /// Repeats `read` until it validates, and returns its result.
    ///
    /// `read` may load torn data, and must not panic on it. Its error counts only if it validates.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a change failed; those of `read`.
    pub fn read_with<R>(&self, mut read: impl FnMut() -> Result<R>) -> Result<R> {
        // Ends: each further round waits for a writer, which ends its change or poisons.
        let mut attempt = 0u32;
        loop {
            if let Some(stamp) = self.read()? {
                let found = read();
                if self.validate(stamp) {
                    return found;
                }
            }
            P::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }
}

impl<P: Primitives> Default for Sequence<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Primitives> Change<'_, P> {
    /// Ends the change, all of which is durable. Also right if nothing was stored.
    #[inline]
    pub fn end(mut self) {
        self.outcome = self.after;
    }
}

impl<P: Primitives> Drop for Change<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.sequence.word.store(self.outcome, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Std;

    #[test]
    fn an_error_of_a_torn_read_is_none() {
        // Fails if what a reader found in the middle of a change is taken for damage.
        let sequence = Sequence::<Std>::new();
        let mut reads = 0;
        let found = sequence.read_with(|| {
            reads += 1;
            if reads > 1 {
                return Ok(reads);
            }
            sequence.begin()?.end();
            Err(Error::Corrupt { at: 8, broken: "the reader was torn" })
        });
        assert_eq!(found.unwrap(), 2);
    }

    #[test]
    fn a_reader_accepts_what_did_not_change_and_nothing_else() {
        // Fails if a change under way, or one that came between, goes unnoticed.
        let sequence = Sequence::<Std>::new();
        let before = sequence.read().unwrap().unwrap();
        assert!(sequence.validate(before));
        let change = sequence.begin().unwrap();
        assert!(sequence.read().unwrap().is_none() && !sequence.validate(before));
        change.end();
        assert!(!sequence.validate(before));
        assert_eq!(sequence.read_with(|| Ok(5)).unwrap(), 5);
        assert!(matches!(
            sequence.read_with(|| Err::<(), _>(Error::AlreadyOpen)),
            Err(Error::AlreadyOpen)
        ));
    }

    #[test]
    fn a_change_that_fails_poisons_and_stays_so() {
        // Fails if readers would wait forever, or be shown what a crash may take back.
        let failed = |sequence: &Sequence<Std>| -> Result<()> {
            let _change = sequence.begin()?;
            Err(Error::Full { needed: 1 })
        };
        let sequence = Sequence::<Std>::new();
        assert!(matches!(failed(&sequence), Err(Error::Full { .. })));
        assert!(matches!(sequence.read(), Err(Error::Poisoned)));
        assert!(matches!(sequence.read_with(|| Ok(())), Err(Error::Poisoned)));
        assert!(matches!(failed(&sequence), Err(Error::Poisoned)));
    }

    #[test]
    fn a_panic_in_the_middle_of_a_change_poisons() {
        // Fails if a panicking writer leaves its readers waiting.
        let sequence = Sequence::<Std>::new();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _change = sequence.begin().unwrap();
            panic!("in the middle of a change");
        }));
        assert!(caught.is_err() && sequence.read().is_err());
    }

    #[test]
    #[should_panic(expected = "one change at a time")]
    fn two_changes_at_once_are_a_bug_of_ours() {
        // Fails if a missing lock goes unnoticed.
        let sequence = Sequence::<Std>::new();
        let _one = sequence.begin().unwrap();
        let _two = sequence.begin();
    }
}
