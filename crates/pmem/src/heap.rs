//! A heap of records in size classes. Volatile like [`Space`]: recovery claims each record it
//! reaches.

mod class;
mod page;
mod record_word;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use core::sync::atomic::Ordering;

pub use class::Class;
pub use record_word::RecordWord;

use crate::alloc::{Allocation, before_stores, poisoned};
use crate::sync::{AtomicWord, Primitives};
use crate::{Addr, Error, LINE, Lock, Media, Result, Space, Span, WORD};
use shelf::{Given, PARTS, Shelf, Taken};

/// The least number of records in a page; longer records are spans of the space.
///
/// Unit: records. Source: ours; bounds the unused rest of a page to an eighth.
const LEAST_SLOTS: u64 = 8;

/// Threads that remember by themselves where they met nobody.
///
/// Unit: threads. Source: ours; more of them share what they remember, which costs time only.
const STARTS: usize = 32;

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
/// page. The pages of a class are in parts with a lock each, which is never held while the medium
/// grows. One thread takes from the first part with room; a thread that meets another one there
/// takes from another part from then on, if need be from a page that it adds.
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
    /// The part at which the threads of a number begin.
    starts: [<M::Sync as Primitives>::AtomicU64; STARTS],
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
        let classes = (0..Class::COUNT).map(|_| Shelf::new()).collect();
        // Threads whose numbers follow one another begin far apart.
        let start = |thread: usize| (thread as u8).reverse_bits() as usize / (256 / PARTS);
        let starts = core::array::from_fn(|thread| AtomicWord::new(start(thread) as u64));
        Heap { space, page_bytes, classes, starts }
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
            self.shelf(class).spans.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let slot = offset / class.bytes();
        if at < self.space.start()
            || !offset.is_multiple_of(class.bytes())
            || slot >= self.slots(class).into()
        {
            return Err(corrupt("a record begins at a slot of its page"));
        }
        self.shelf(class).change(number, |pages| {
            if !pages.all.contains_key(&number) {
                self.space.claim(self.page_span(number)).map_err(|error| match error {
                    Error::Corrupt { .. } => corrupt("a page holds the records of one class only"),
                    other => other,
                })?;
                pages.insert(number, self.slots(class));
            }
            match pages.claim(number, slot) {
                true => Ok(()),
                false => Err(corrupt("a record is reached once")),
            }
        })?
    }

    /// Allocates a record of `class`. Its content is undefined.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub fn take(&self, class: Class) -> Result<Addr> {
        let shelf = self.shelf(class);
        if !self.is_small(class) {
            let Allocation { span, zero } = self.space.take(class.bytes(), LINE)?;
            shelf.spans.fetch_add(1, Ordering::Relaxed);
            if zero {
                // As much as every record of the class has.
                let stored = Span::of_bytes(span.start, class.least_bytes());
                self.space.region().media().renew(stored);
            }
            return Ok(span.start);
        }
        let start = &self.starts[<M::Sync as Primitives>::thread() as usize % STARTS];
        let slot = match take_near(shelf, start)? {
            Taken::Slot(slot) => slot,
            missed => self.add_page(class, missed, start)?,
        };
        Ok(before_stores::<M, _>(self.slot_addr(slot, class)))
    }

    /// Adds a page to the class and takes a slot of it, after a take that `missed`. A thread that
    /// missed because of others begins at its page from then on: in one page threads would wait for
    /// each other at its lock, at the faults of its memory, and at the lines of its records.
    fn add_page(
        &self,
        class: Class,
        missed: Taken,
        start: &<M::Sync as Primitives>::AtomicU64,
    ) -> Result<(u64, u32)> {
        let shelf = self.shelf(class);
        let mut added = shelf.adding.lock().map_err(poisoned)?;
        // Another thread may have added a page meanwhile.
        if missed == Taken::NoRoom
            && let Taken::Slot(slot) = take_near(shelf, start)?
        {
            return Ok(slot);
        }
        let number = match self.take_page(class) {
            Ok(number) => number,
            Err(full) => return shelf.take_waiting()?.ok_or(full),
        };
        // A class of which few records come needs no whole page of memory.
        if *added > 0 {
            let page = before_stores::<M, _>(self.page_span(number));
            self.space.region().media().renew(page);
        }
        *added += 1;
        if missed == Taken::Busy {
            start.store(Shelf::<M>::part_of(number) as u64, Ordering::Relaxed);
        }
        Ok((number, shelf.change(number, |pages| pages.add(number, self.slots(class)))?))
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
            self.shelf(class).spans.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        self.space.region().media().freed(Span::of_bytes(at, class.bytes()));
        let slot = offset / class.bytes();
        let begins = offset % class.bytes() == 0;
        let give = |pages: &mut shelf::Pages| match begins {
            true => pages.give(number, slot),
            false => Given::Refused,
        };
        let Ok(given) = self.shelf(class).change(number, give) else { return };
        // Unlocked before: a bug of one caller must not poison the part for all.
        assert!(
            given != Given::Refused,
            "a record is given once, after it was taken: {at:?}, {class:?}"
        );
        if given == Given::Emptied {
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
            usage.record_bytes += shelf.spans.load(Ordering::Relaxed) * class.bytes();
            shelf.visit(|page| {
                usage.pages += 1;
                usage.small_records += u64::from(page.used());
                usage.record_bytes += u64::from(page.used()) * class.bytes();
                // A key in each of the two trees.
                usage.dram_bytes += page.dram_bytes() + 2 * size_of::<u64>() as u64;
            })?;
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

/// Takes a slot where this thread met nobody before.
fn take_near<M: Media>(
    shelf: &Shelf<M>,
    start: &<M::Sync as Primitives>::AtomicU64,
) -> Result<Taken> {
    let known = start.load(Ordering::Relaxed);
    let mut part = known as usize;
    let taken = shelf.take(&mut part)?;
    if part as u64 != known {
        start.store(part as u64, Ordering::Relaxed);
    }
    Ok(taken)
}

/// Returns the lines of a record that does not lie in a page.
fn large_span(at: Addr, class: Class) -> Span {
    Span::of_bytes(at, class.bytes().next_multiple_of(LINE))
}
