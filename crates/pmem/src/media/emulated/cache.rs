//! The processor's last-level cache: hashed sets, a random victim, and what each dirty line held
//! when it was last clean.

use super::super::random::{Random, mix, spread};
use crate::{LINE, WORD};

/// Words in a line.
pub(super) const LINE_WORDS: usize = (LINE / WORD) as usize;

/// A set-associative cache of lines.
///
/// Addresses are hashed over the sets and the victim is random, because a real one behaves so to a
/// program: with plain sets and the oldest line as the victim, lines written in sequence would
/// leave in sequence, and stores that nobody flushes would combine perfectly (measured: 1.0 instead
/// of 3.8 media bytes per byte; published: 2.0 to 4.8).
#[derive(Debug)]
pub(super) struct Cache {
    sets: u64,
    ways: usize,
    /// For each slot 0 if it is empty, otherwise the line plus one, shifted left by the dirty bit.
    tags: Vec<u64>,
    /// For each slot what the line held when it became dirty: what a crash would leave of it.
    clean: Vec<u64>,
    dirty_lines: u64,
}

/// A line that had to leave the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) line: u64,
    pub(super) dirty: bool,
}

impl Cache {
    /// Makes an empty cache of at least one set.
    pub(super) fn new(bytes: u64, ways: u64) -> Cache {
        let sets = (bytes / LINE / ways).max(1);
        let slots = (sets * ways) as usize;
        Cache {
            sets,
            ways: ways as usize,
            tags: vec![0; slots],
            clean: vec![0; slots * LINE_WORDS],
            dirty_lines: 0,
        }
    }

    fn set(&self, line: u64) -> usize {
        spread(mix(line), self.sets) as usize * self.ways
    }

    /// Returns the slot that holds `line`.
    #[inline]
    pub(super) fn find(&self, line: u64) -> Option<usize> {
        let first = self.set(line);
        let tags = &self.tags[first..first + self.ways];
        tags.iter().position(|tag| tag >> 1 == line + 1).map(|way| first + way)
    }

    /// Returns whether `slot` holds `line`.
    #[inline]
    pub(super) fn holds(&self, slot: usize, line: u64) -> bool {
        self.tags[slot] >> 1 == line + 1
    }

    /// Puts `line`, which must not be there yet, into the cache, clean.
    pub(super) fn insert(&mut self, line: u64, random: &mut Random) -> (usize, Option<Evicted>) {
        let first = self.set(line);
        let tags = &self.tags[first..first + self.ways];
        let free = tags.iter().position(|tag| *tag == 0);
        let way = free.unwrap_or_else(|| random.below(self.ways as u64) as usize);
        let slot = first + way;
        let evicted = self.remove(slot);
        self.tags[slot] = (line + 1) << 1;
        (slot, evicted)
    }

    /// Empties `slot` and returns what was in it.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Evicted> {
        let tag = core::mem::take(&mut self.tags[slot]);
        if tag == 0 {
            return None;
        }
        self.dirty_lines -= tag & 1;
        Some(Evicted { line: (tag >> 1) - 1, dirty: tag & 1 == 1 })
    }

    /// Returns whether `slot` is dirty.
    #[inline]
    pub(super) fn is_dirty(&self, slot: usize) -> bool {
        self.tags[slot] & 1 == 1
    }

    /// Makes `slot` dirty; `content` is what the line held until now.
    pub(super) fn set_dirty(&mut self, slot: usize, content: &[u64]) {
        self.tags[slot] |= 1;
        self.dirty_lines += 1;
        self.clean[slot * LINE_WORDS..][..content.len()].copy_from_slice(content);
    }

    /// Makes `slot` clean.
    pub(super) fn set_clean(&mut self, slot: usize) {
        self.dirty_lines -= self.tags[slot] & 1;
        self.tags[slot] &= !1;
    }

    /// Returns the dirty lines with their slots.
    pub(super) fn dirty(&self) -> impl Iterator<Item = (usize, u64)> {
        let slots = if self.dirty_lines == 0 { &[] } else { &self.tags[..] };
        let dirty = slots.iter().enumerate().filter(|(_, tag)| *tag & 1 == 1);
        dirty.map(|(slot, tag)| (slot, (tag >> 1) - 1))
    }

    /// Returns what a dirty line held when it was last clean.
    pub(super) fn clean_content(&self, slot: usize) -> &[u64] {
        &self.clean[slot * LINE_WORDS..][..LINE_WORDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_gives_up_one_line_for_another() {
        // Fails if a line were lost, kept twice, or called dirty when it is not.
        let (mut cache, mut random) = (Cache::new(256, 4), Random::new(1));
        for line in 0..4 {
            assert_eq!(cache.insert(line, &mut random).1, None);
        }
        let slot = cache.find(2).unwrap();
        cache.set_dirty(slot, &[7; LINE_WORDS]);
        let mut seen = Vec::new();
        for line in 4..100 {
            let (slot, evicted) = cache.insert(line, &mut random);
            assert!(cache.holds(slot, line));
            seen.push(evicted.unwrap());
        }
        assert_eq!(seen.len() + 4, 100);
        assert_eq!(seen.iter().filter(|evicted| evicted.dirty).count(), 1);
        assert_eq!(cache.dirty().count(), 0);
    }

    #[test]
    fn a_dirty_line_remembers_what_it_held() {
        // Fails if a crash could not restore the content from before the store.
        let (mut cache, mut random) = (Cache::new(4096, 4), Random::new(1));
        let (slot, _) = cache.insert(9, &mut random);
        cache.set_dirty(slot, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cache.dirty().collect::<Vec<_>>(), [(slot, 9)]);
        assert_eq!(cache.clean_content(slot)[7], 8);
        cache.set_clean(slot);
        assert_eq!(cache.dirty().count(), 0);
    }
}
