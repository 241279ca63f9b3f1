//! The memory of all shards: leaves and arrays of links, which never move, so that readers need no
//! lock.

use everhash_index::Result;
use everhash_pmem::{AtOnce, LINE, Lock, Parts, Primitives, WORD};

use super::SLOTS;
use super::word::Link;
use crate::common::room::crowded;

/// The longest part, as a base-2 logarithm.
///
/// Unit: words. Source: ours; 16 GiB, which a link can name, and all parts but the last one, which
/// there never is, are more than a machine's memory.
pub(super) const MOST: u32 = 31;

/// Words of a line.
const LINE_WORDS: usize = (LINE / WORD) as usize;

/// What has been taken.
#[derive(Debug)]
struct Taken {
    part: usize,
    /// The first word of the part that is free.
    next: usize,
    /// In all.
    words: u64,
}

/// Memory that is taken and never given back: its words are zero when they are taken, and nobody
/// else's ever.
pub struct Arena<P: Primitives> {
    /// That a line is compared at once, if the processor does.
    pub at_once: Option<AtOnce>,
    /// Length of the first part, as a base-2 logarithm.
    first: u32,
    taken: P::Mutex<Taken>,
    /// Without words until the one before is full.
    parts: Parts<P::AtomicU64>,
}

impl<P: Primitives> Arena<P> {
    /// Makes an arena of which nothing is taken. It takes so many words from the system at first,
    /// or a little more, and each time twice as many; the system gives them memory at the first
    /// store to them.
    pub fn new(words: u64) -> Self {
        Arena {
            at_once: AtOnce::detect(),
            first: words.clamp(SLOTS as u64, 1 << MOST).next_power_of_two().ilog2(),
            taken: Lock::new(Taken { part: 0, next: 0, words: 0 }),
            parts: Parts::new(),
        }
    }

    /// Takes words, from the beginning of a line on.
    ///
    /// # Errors
    /// [`Error::Limit`](everhash_index::Error::Limit) if no part can be so long;
    /// [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic inside.
    pub fn take(&self, words: usize) -> Result<Link> {
        if words > 1 << MOST {
            return Err(crowded("words of a part of the directory", 1 << MOST));
        }
        let words = words.next_multiple_of(LINE_WORDS);
        let mut taken = self.taken.lock()?;
        // Ends: each part is twice as long as the one before, or as the longest there may be.
        loop {
            let length = 1 << (self.first + taken.part as u32).min(MOST);
            if words <= length {
                if self.parts.count(taken.part) == 0 {
                    // Some may lie before the first line.
                    self.parts.add(taken.part, P::words(length + LINE_WORDS));
                }
                if taken.next + words <= self.parts.count(taken.part) {
                    let link = Link::new(taken.part, taken.next);
                    taken.next += words;
                    taken.words += words as u64;
                    return Ok(link);
                }
            }
            (taken.part, taken.next) = (taken.part + 1, 0);
        }
    }

    /// Returns a word behind the beginning of what a link leads to.
    #[inline(always)]
    pub fn word(&self, link: Link, index: u64) -> Option<&P::AtomicU64> {
        self.parts.get(link.part(), link.word() + index as usize)
    }

    /// Returns a bucket of the leaf to which a link leads.
    #[inline(always)]
    pub fn bucket(&self, link: Link, number: u64) -> Option<&[P::AtomicU64; SLOTS]> {
        self.parts.around(link.part(), link.word() + SLOTS * number as usize)
    }

    /// Returns how much memory has been taken. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic inside.
    pub fn dram_bytes(&self) -> Result<u64> {
        Ok(self.taken.lock()?.words * WORD + size_of_val(self) as u64)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use everhash_index::Error;
    use everhash_pmem::Std;

    use super::*;

    #[test]
    fn more_words_than_a_part_can_have_are_refused() {
        // Fails if a part that is long enough is looked for without end.
        let arena = Arena::<Std>::new(64);
        let refused = arena.take((1 << MOST) + 1);
        assert!(matches!(refused, Err(Error::Limit { limit, .. }) if limit == 1 << MOST));
    }

    #[test]
    fn what_is_taken_is_zero_and_stays_where_it_is() {
        // Fails if two leaves share a word, if one moves when the arena grows, or if a bucket
        // crosses a line.
        let arena = Arena::<Std>::new(64);
        let mut links = Vec::new();
        for number in 0..2000 {
            let buckets = 1 + number % 31;
            let link = arena.take(SLOTS * buckets as usize).unwrap();
            for bucket in 0..buckets {
                let slots = arena.bucket(link, bucket).unwrap();
                assert_eq!(slots.as_ptr().addr() % LINE as usize, 0);
                assert!(slots.iter().all(|slot| slot.load(Relaxed) == 0));
                slots.iter().for_each(|slot| slot.store(number, Relaxed));
            }
            links.push((link, buckets));
        }
        for (number, (link, buckets)) in (0..).zip(&links) {
            for word in 0..SLOTS as u64 * buckets {
                assert_eq!(arena.word(*link, word).unwrap().load(Relaxed), number);
            }
        }
        let words: u64 = links.iter().map(|(_, buckets)| SLOTS as u64 * buckets).sum();
        assert_eq!(arena.dram_bytes().unwrap(), 8 * words + size_of_val(&arena) as u64);
    }
}
