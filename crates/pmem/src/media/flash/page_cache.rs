//! The cache of pages in front of the flash, with LRU replacement.

use super::super::virtual_time::NumberMap;

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Slot {
    page: u64,
    before: u32,
    after: u32,
    /// What the page held when it became dirty, or `None` while it is clean.
    held: Option<Box<[u64]>>,
}

/// Pages in the order of their last use.
#[derive(Debug)]
pub(super) struct PageCache {
    slots: Vec<Slot>,
    places: NumberMap<u32>,
    capacity: usize,
    newest: u32,
    oldest: u32,
}

/// A page that left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvictedPage {
    pub(super) page: u64,
    pub(super) dirty: bool,
}

impl PageCache {
    pub(super) fn new(capacity: u64) -> PageCache {
        PageCache {
            slots: Vec::new(),
            places: NumberMap::default(),
            capacity: capacity as usize,
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Returns whether a page is there, and makes it the newest.
    pub(super) fn touch(&mut self, page: u64) -> bool {
        let Some(place) = self.places.get(&page).copied() else { return false };
        self.unlink(place);
        self.link(place);
        true
    }

    /// Inserts a clean page as the newest; returns the evicted one.
    pub(super) fn insert(&mut self, page: u64) -> Option<EvictedPage> {
        let slot = Slot { page, before: NONE, after: NONE, held: None };
        let mut evicted = None;
        let place = if self.slots.len() < self.capacity {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let place = self.oldest;
            self.unlink(place);
            let old = core::mem::replace(&mut self.slots[place as usize], slot);
            self.places.remove(&old.page);
            evicted = Some(EvictedPage { page: old.page, dirty: old.held.is_some() });
            place
        };
        self.places.insert(page, place);
        self.link(place);
        evicted
    }

    /// Makes a cached page dirty; `content` is asked for what it holds if it was clean.
    pub(super) fn set_dirty<'a>(&mut self, page: u64, content: impl FnOnce() -> &'a [u64]) {
        let place = self.places.get(&page).copied().expect("only a cached page is stored to");
        let held = &mut self.slots[place as usize].held;
        held.get_or_insert_with(|| content().into());
    }

    /// Makes a page clean; returns whether it was there and dirty.
    pub(super) fn set_clean(&mut self, page: u64) -> bool {
        let place = self.places.get(&page).copied();
        place.is_some_and(|place| self.slots[place as usize].held.take().is_some())
    }

    /// Returns the dirty pages and what they held when they were last clean, oldest use first.
    pub(super) fn dirty(&self) -> impl Iterator<Item = (u64, &[u64])> {
        let mut place = self.oldest;
        let in_order = core::iter::from_fn(move || {
            let slot = self.slots.get(place as usize)?;
            place = slot.after;
            Some(slot)
        });
        in_order.filter_map(|slot| slot.held.as_deref().map(|held| (slot.page, held)))
    }

    fn link(&mut self, place: u32) {
        let before = core::mem::replace(&mut self.newest, place);
        self.slots[place as usize].before = before;
        self.slots[place as usize].after = NONE;
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.after = place,
            None => self.oldest = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Slot { before, after, .. } = self.slots[place as usize];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.after = after,
            None => self.oldest = after,
        }
        match self.slots.get_mut(after as usize) {
            Some(slot) => slot.before = before,
            None => self.newest = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_that_was_used_longest_ago_makes_room() {
        // Fails if a touch did not count as use, or an eviction broke the order of the others.
        let mut cache = PageCache::new(3);
        for page in 0..3 {
            assert_eq!(cache.insert(page), None);
        }
        assert!(cache.touch(0) && !cache.touch(9));
        cache.set_dirty(2, || &[5]);
        assert_eq!(cache.insert(3), Some(EvictedPage { page: 1, dirty: false }));
        assert_eq!(cache.insert(4), Some(EvictedPage { page: 2, dirty: true }));
        assert_eq!(cache.insert(5), Some(EvictedPage { page: 0, dirty: false }));
        assert_eq!(cache.insert(6), Some(EvictedPage { page: 3, dirty: false }));
        assert_eq!(cache.dirty().count(), 0);
    }

    #[test]
    fn a_dirty_page_remembers_what_it_held_first() {
        // Fails if a second store replaced the content from before the first.
        let mut cache = PageCache::new(2);
        cache.insert(1);
        cache.set_dirty(1, || &[10]);
        cache.set_dirty(1, || &[11]);
        assert_eq!(cache.dirty().collect::<Vec<_>>(), [(1, &[10u64][..])]);
        assert!(cache.set_clean(1) && !cache.set_clean(1) && !cache.set_clean(2));
    }
}
