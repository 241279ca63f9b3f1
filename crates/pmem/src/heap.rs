//! A heap of records in size classes. Volatile like [`Space`]: recovery claims each record it
//! reaches.

mod class;
mod page;
mod record_word;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use class::Class;
pub use record_word::RecordWord;

use crate::alloc::{LockOf, before_stores, poisoned};
use crate::{Addr, Error, LINE, Lock, Media, Result, Space, Span, WORD};
use page::Page;

/// The least number of records in a page; longer records are spans of the space.
///
/// Unit: records. Source: ours; bounds the unused rest of a page to an eighth.
const LEAST_SLOTS: u64 = 8;

/// How full a heap is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapUsage {
    /// Records in use that lie in pages.
    pub small_records: u64,
    /// What all records in use take, as their classes round them, with those that are spans. Unit:
    /// bytes.
    pub record_bytes: u64,
    /// Pages that the heap holds.
    pub pages: u64,
    /// DRAM for the maps of these pages. Unit: bytes.
    pub dram_bytes: u64,
}

/// Records of 16 bytes to 32 MiB, in pages of one [`Class`] each, or as spans of their own.
///
/// A page has no header: the pointer to a record holds its class, and DRAM holds the class of each
/// page. The pages of a class share a lock, which is never held while the medium grows.
///
/// ```
/// use std::sync::Arc;
/// use everhash_pmem::{Addr, Class, Heap, Image, Region, Space};
///
/// let region = Region::new(Image::<everhash_pmem::Std>::new(4096, 16384));
/// let space = Arc::new(Space::fresh(region, Addr::new(256)));
/// let heap = Heap::new(Arc::clone(&space), 1024);
/// let class = Class::of(40).expect("40 bytes are less than 32 MiB");
/// let at = heap.take(class)?;
/// heap.give(at, class);
/// assert_eq!(space.usage()?.used_bytes, 0);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub struct Heap<M: Media> {
    space: Arc<Space<M>>,
    page_bytes: u64,
    classes: Box<[Shelf<M>]>,
}

/// The pages of a class, and the right to add one.
struct Shelf<M: Media> {
    pages: LockOf<M, Pages>,
    /// The right to take a page from the space. Acquired before `pages`, which stays unlocked
    /// meanwhile: other threads give while the device works. One page comes at a time, so that no
    /// thread gets `Full` while another one adds the last page.
    adding: LockOf<M, ()>,
}

/// The pages of one class, by their number from the start of the space.
#[derive(Default)]
struct Pages {
    all: BTreeMap<u64, Page>,
    /// Pages with a free slot. The lowest is used first, so that high pages become empty.
    with_room: BTreeSet<u64>,
    /// Records in use that are spans of their own.
    spans: u64,
}

impl<M: Media> Heap<M> {
    /// A page of 64 KiB: 4096 of the smallest records, 8 of the largest ones that lie in pages.
    ///
    /// Unit: bytes. Source: ours; with 4 KiB pages the map of a page would cost more than its bits.
    pub const PAGE_BYTES: u64 = 64 << 10;

    /// Makes an empty heap on `space`. Pages lie at multiples of `page_bytes` from the start of the
    /// space, so a reopened heap needs the same start and the same page length.
    ///
    /// # Panics
    /// If `page_bytes` is not a power of two, below 256 bytes or above 2^32 bytes.
    pub fn new(space: Arc<Space<M>>, page_bytes: u64) -> Self {
        assert!(page_bytes.is_power_of_two(), "the length of a page is a power of two");
        assert!((256..=1 << 32).contains(&page_bytes), "a page has 256 to 2^32 bytes");
        let shelf = |_| Shelf { pages: Lock::new(Pages::default()), adding: Lock::new(()) };
        let classes = (0..Class::COUNT).map(shelf).collect();
        Heap { space, page_bytes, classes }
    }

    /// Returns the space that the heap takes its pages from.
    pub fn space(&self) -> &Arc<Space<M>> {
        &self.space
    }

    /// Marks a record of `class` at `at` as in use, because committed words lead to it: part of
    /// recovery, before any take.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at `at`, if no heap could have allocated such a record beside those that
    /// are claimed.
    pub fn claim(&self, at: Addr, class: Class) -> Result<()> {
        let corrupt = |broken| Error::Corrupt { at: at.byte(), broken };
        let Some((number, offset)) = self.place(at, class) else {
            self.space.claim(large_span(at, class))?;
            self.shelf(class).pages.lock().map_err(poisoned)?.spans += 1;
            return Ok(());
        };
        let slot = offset / class.bytes();
        if at < self.space.start()
            || !offset.is_multiple_of(class.bytes())
            || slot >= self.slots(class).into()
        {
            return Err(corrupt("a record begins at a slot of its page"));
        }
        let mut pages = self.shelf(class).pages.lock().map_err(poisoned)?;
        if !pages.all.contains_key(&number) {
            self.space.claim(self.page_span(number)).map_err(|error| match error {
                Error::Corrupt { .. } => corrupt("a page holds the records of one class only"),
                other => other,
            })?;
            pages.insert(number, self.slots(class));
        }
        if !pages.change(number, |page| page.claim(slot)) {
            return Err(corrupt("a record is reached once"));
        }
        Ok(())
    }

    /// Allocates a record of `class`. Its content is undefined.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub fn take(&self, class: Class) -> Result<Addr> {
        if !self.is_small(class) {
            let start = self.space.take(class.bytes(), LINE)?.span.start;
            self.shelf(class).pages.lock().map_err(poisoned)?.spans += 1;
            return Ok(start);
        }
        let Shelf { pages, adding } = self.shelf(class);
        if let Some(slot) = pages.lock().map_err(poisoned)?.take() {
            return Ok(before_stores::<M, _>(self.slot_addr(slot, class)));
        }
        let _adding = adding.lock().map_err(poisoned)?;
        // Another thread may have added a page meanwhile.
        if let Some(slot) = pages.lock().map_err(poisoned)?.take() {
            return Ok(before_stores::<M, _>(self.slot_addr(slot, class)));
        }
        let number = self.take_page(class)?;
        let slot = pages.lock().map_err(poisoned)?.add(number, self.slots(class));
        Ok(before_stores::<M, _>(self.slot_addr((number, slot), class)))
    }

    /// Takes a page for `class` from the space, and returns its number.
    fn take_page(&self, class: Class) -> Result<u64> {
        let start = self.space.start();
        let page = self.space.take_from(self.page_bytes, self.page_bytes, start.line());
        let page = page.map_err(|error| match error {
            Error::Full { .. } => Error::Full { needed: class.bytes() },
            other => other,
        })?;
        Ok((page.span.start.byte() - start.byte()) / self.page_bytes)
    }

    /// Frees a record in use; an empty page goes back to the space. The caller's duties are those
    /// of [`Space::give`].
    ///
    /// # Panics
    /// If no record of `class` is in use at `at`.
    pub fn give(&self, at: Addr, class: Class) {
        let Some((number, offset)) = self.place(at, class) else {
            self.space.give(large_span(at, class));
            if let Ok(mut pages) = self.shelf(class).pages.lock() {
                pages.spans -= 1;
            }
            return;
        };
        self.space.region().media().freed(Span::of_bytes(at, class.bytes()));
        let Ok(mut pages) = self.shelf(class).pages.lock() else { return };
        let slot = offset / class.bytes();
        let sound = offset % class.bytes() == 0 && pages.change(number, |page| page.give(slot));
        let empty = sound && pages.all.get(&number).is_some_and(|page| page.used() == 0);
        if empty {
            pages.all.remove(&number);
            pages.with_room.remove(&number);
        }
        // Unlock first: a bug of one caller must not poison the class for all.
        drop(pages);
        assert!(sound, "a record is given once, after it was taken: {at:?}, {class:?}");
        if empty {
            self.space.give(self.page_span(number));
        }
    }

    /// Returns how full the heap is. The pages of the space hold no record that is a span.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside the heap.
    pub fn usage(&self) -> Result<HeapUsage> {
        let mut usage = HeapUsage::default();
        for (index, shelf) in self.classes.iter().enumerate() {
            let Some(class) = Class::from_index(index as u64) else { break };
            let pages = shelf.pages.lock().map_err(poisoned)?;
            usage.record_bytes += pages.spans * class.bytes();
            usage.pages += pages.all.len() as u64;
            for page in pages.all.values() {
                usage.small_records += u64::from(page.used());
                usage.record_bytes += u64::from(page.used()) * class.bytes();
                // A key in each of the two trees.
                usage.dram_bytes += page.dram_bytes() + 2 * size_of::<u64>() as u64;
            }
        }
        Ok(usage)
    }

    /// Returns the page of `at` and the offset in it, or `None` if records of `class` do not lie in
    /// pages.
    fn place(&self, at: Addr, class: Class) -> Option<(u64, u64)> {
        // Wraps around for an address before the space: no map has such a page.
        let offset = at.byte().wrapping_sub(self.space.start().byte());
        self.is_small(class).then_some((offset / self.page_bytes, offset % self.page_bytes))
    }

    fn is_small(&self, class: Class) -> bool {
        class.bytes() * LEAST_SLOTS <= self.page_bytes
    }

    fn slots(&self, class: Class) -> u32 {
        (self.page_bytes / class.bytes()) as u32
    }

    fn shelf(&self, class: Class) -> &Shelf<M> {
        &self.classes[class.index() as usize]
    }

    fn page_span(&self, number: u64) -> Span {
        let start = self.space.start().plus(number * (self.page_bytes / WORD));
        Span::of_bytes(start, self.page_bytes)
    }

    fn slot_addr(&self, (number, slot): (u64, u32), class: Class) -> Addr {
        self.page_span(number).start.plus(u64::from(slot) * (class.bytes() / WORD))
    }
}

impl Pages {
    /// Takes a slot of the lowest page with room.
    fn take(&mut self) -> Option<(u64, u32)> {
        let number = *self.with_room.first()?;
        Some((number, self.take_from(number)))
    }

    /// Adds a page and takes a slot of it, even if a lower page has room again: an empty page would
    /// never go back to the space, because only a give returns it.
    fn add(&mut self, number: u64, slots: u32) -> u32 {
        self.insert(number, slots);
        self.take_from(number)
    }

    /// Adds an empty page; the caller takes a slot of it before it unlocks.
    fn insert(&mut self, number: u64, slots: u32) {
        self.all.insert(number, Page::new(slots));
        self.with_room.insert(number);
    }

    /// Takes a slot of a page with room.
    fn take_from(&mut self, number: u64) -> u32 {
        let page = self.all.get_mut(&number).expect("a page with room is a page");
        let slot = page.take().expect("a page with room has a free slot");
        if page.is_full() {
            self.with_room.remove(&number);
        }
        slot
    }

    /// Changes a page and notes whether it has room now; `false` if there is no such page, or if
    /// the change was refused.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Page) -> bool) -> bool {
        let Some(page) = self.all.get_mut(&number) else { return false };
        let was_full = page.is_full();
        let done = change(page);
        match (was_full, page.is_full()) {
            (false, true) => self.with_room.remove(&number),
            (true, false) => self.with_room.insert(number),
            _ => false,
        };
        done
    }
}

/// Returns the lines of a record that does not lie in a page.
fn large_span(at: Addr, class: Class) -> Span {
    Span::of_bytes(at, class.bytes().next_multiple_of(LINE))
}
