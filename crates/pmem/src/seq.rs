//! A sequence word: readers never accept what is half done, or done but not yet durable.

use core::sync::atomic::Ordering;

use crate::{AtomicWord, Error, Primitives, Result};

/// The word after a change that failed. Odd, so that no reader accepts anything.
const POISON: u64 = u64::MAX;

/// A word in DRAM beside data on the medium: odd while a change to the data is visible but not yet
/// durable, and two higher after each change.
///
/// Writers hold a lock of their own. Readers take none: they note the word, read, and look at it
/// again. The fences are those of a seqlock over atomic data (Boehm, "Can seqlocks get along with
/// programming language memory models?", MSPC 2012).
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

/// A state of the data that a reader began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

/// A change under way. Dropped without [`Change::end`], by an error or a panic, it poisons the
/// sequence: what readers would see may be half done or lost by a crash.
#[must_use = "readers wait until the change ends"]
pub struct Change<'a, P: Primitives> {
    sequence: &'a Sequence<P>,
    /// The word when the change has ended.
    after: u64,
    /// The word that it ends with.
    outcome: u64,
}

impl<P: Primitives> Sequence<P> {
    /// Makes the sequence of data that is whole and durable.
    pub fn new() -> Self {
        Sequence { word: AtomicWord::new(0) }
    }

    /// Begins a change. The caller holds the lock of the data, and stores after this call only.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier change failed.
    ///
    /// # Panics
    /// If another change is under way.
    #[inline]
    pub fn begin(&self) -> Result<Change<'_, P>> {
        let word = self.word.load(Ordering::Relaxed);
        if word == POISON {
            return Err(Error::Poisoned);
        }
        assert!(word.is_multiple_of(2), "one change at a time: the writer's lock is held");
        // A plain store, as the lock keeps other writers away: a locked instruction here, or at the
        // end, would hold back the loads of the next operation until the write-back is over.
        self.word.store(word + 1, Ordering::Relaxed);
        // Pairs with the fence of `validate`: a reader that saw any store of the change also sees
        // the odd word, or a later one.
        P::fence(Ordering::Release);
        Ok(Change { sequence: self, after: word + 2, outcome: POISON })
    }

    /// Returns a stamp to read under, or `None` while a change is under way.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a change failed: waiting would be in vain.
    #[inline]
    pub fn read(&self) -> Result<Option<Stamp>> {
        // Pairs with the store of `Change::end`: the reader sees all of the change.
        match self.word.load(Ordering::Acquire) {
            // Poison is odd: one comparison does where all is well.
            word if word.is_multiple_of(2) => Ok(Some(Stamp(word))),
            POISON => Err(Error::Poisoned),
            _ => Ok(None),
        }
    }

    /// Returns a stamp to read under, or `None` if there is any reason to look again by
    /// [`Sequence::read`].
    #[inline(always)]
    pub fn try_read(&self) -> Option<Stamp> {
        let word = self.word.load(Ordering::Acquire);
        word.is_multiple_of(2).then_some(Stamp(word))
    }

    /// Returns whether no change began since `stamp`: then all that was loaded since belongs
    /// together and is durable.
    #[inline]
    #[must_use]
    pub fn validate(&self, stamp: Stamp) -> bool {
        P::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == stamp.0
    }

    /// Repeats `read` until no change came between, and returns what it found then.
    ///
    /// What `read` loads may be half done: it must bear that without a panic. An error of its own
    /// counts only when no change came between.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a change failed; those of `read`.
    pub fn read_with<R>(&self, mut read: impl FnMut() -> Result<R>) -> Result<R> {
        // Ends: each further round waits for a writer, who ends or poisons.
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
    /// Ends the change: all of it is durable. Also right when nothing was stored.
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
        // Fails if readers would wait for ever, or be shown what a crash may take back.
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
