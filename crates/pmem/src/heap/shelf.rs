//! The pages of a class, in parts: threads that take and give at once meet at no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use super::page::Page;
use crate::alloc::{LockOf, poisoned};
use crate::sync::{AtomicWord, Primitives};
use crate::{Lock, Media, Result};

/// The parts of a class. A page is in the part of its number.
///
/// Unit: parts. Source: ours; with one lock a class, two threads that replaced records did 1.4
/// million a second together, and one alone 2.5 million.
pub(super) const PARTS: usize = 16;

/// The part of its slots that must be free before others take from a page that was full.
///
/// Source: ours. Where records are replaced again and again, what is free lies scattered, a slot
/// here and a slot there. If each were taken as soon as it is given, every thread would take from
/// pages that another one has just changed, and each take and give would change the order of pages.
/// Two threads that overwrite pairs of WOPHI do 1.9 million a second on processors that share no
/// cache, and did 1.45; on ones that do, 2.5 and 2.2. So much of a page may be free and is not
/// used, 3 % at most, until the space has no page left.
const ROOM_SHARE: u32 = 32;

type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// The pages of a class, and the right to add one.
pub(super) struct Shelf<M: Media> {
    /// Made with the first page: few of the classes are in use.
    parts: OnceLock<Box<[Part<M>]>>,
    /// The right to take a page from the space, and how many were taken since the heap was made.
    /// Acquired before parts, which stay unlocked meanwhile: other threads give while the device
    /// works. One page comes at a time, so that no thread gets `Full` while another one adds the
    /// last page.
    pub adding: LockOf<M, u64>,
    /// Records in use that are spans of their own.
    pub spans: WordOf<M>,
}

/// Some of the pages of a class, on cache lines of their own.
#[repr(align(64))]
struct Part<M: Media> {
    pages: LockOf<M, Pages>,
    /// Whether there was a page to take from when `pages` was unlocked last: 1 or 0. A hint, so
    /// that a take passes over full parts without their locks.
    has_room: WordOf<M>,
}

/// Pages by their number from the start of the space.
#[derive(Default)]
pub(super) struct Pages {
    pub all: BTreeMap<u64, Page>,
    /// Pages to take from. The lowest is used first, so that others become empty.
    with_room: BTreeSet<u64>,
    /// Whether each free slot counts, because the space had no page left.
    is_scarce: bool,
}

/// How an attempt to take a slot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// With this slot of this page.
    Slot((u64, u32)),
    /// No part has room.
    NoRoom,
    /// Other threads hold the parts with room.
    Busy,
}

/// What became of the page of a record that was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// It holds other records.
    InUse,
    /// It held no other record, and is no page of the heap any more.
    Emptied,
    /// No such record was in use.
    Refused,
}

impl<M: Media> Shelf<M> {
    pub fn new() -> Self {
        Shelf { parts: OnceLock::new(), adding: Lock::new(0), spans: AtomicWord::new(0) }
    }

    /// Takes a slot of the first part with room from part `*start` on. Of parts that another thread
    /// holds it takes none; `*start` is then the part where nobody was.
    pub fn take(&self, start: &mut usize) -> Result<Taken> {
        let mut was_busy = false;
        for offset in 0..PARTS {
            let index = (*start + offset) % PARTS;
            let part = &self.parts()[index];
            if part.has_room.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Some(mut pages) = part.pages.try_lock().map_err(poisoned)? else {
                was_busy = true;
                continue;
            };
            if let Some(slot) = pages.take() {
                part.note(&pages);
                if was_busy {
                    *start = index;
                }
                return Ok(Taken::Slot(slot));
            }
        }
        Ok(if was_busy { Taken::Busy } else { Taken::NoRoom })
    }

    /// Takes a slot of any part, and waits for the threads that hold one; the space has no page
    /// left. For a holder of `adding`: a page that another thread added before has been noted as
    /// one with room.
    pub fn take_waiting(&self) -> Result<Option<(u64, u32)>> {
        for is_scarce in [false, true] {
            for part in self.parts() {
                if !is_scarce && part.has_room.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut pages = part.pages.lock().map_err(poisoned)?;
                if is_scarce {
                    pages.find_all_room();
                }
                let slot = pages.take();
                part.note(&pages);
                if slot.is_some() {
                    return Ok(slot);
                }
            }
        }
        Ok(None)
    }

    /// Changes the pages of the part to which page `number` belongs.
    pub fn change<T>(&self, number: u64, change: impl FnOnce(&mut Pages) -> T) -> Result<T> {
        let part = &self.parts()[Self::part_of(number)];
        let mut pages = part.pages.lock().map_err(poisoned)?;
        let changed = change(&mut pages);
        part.note(&pages);
        Ok(changed)
    }

    /// Returns the part of page `number`.
    pub fn part_of(number: u64) -> usize {
        number as usize % PARTS
    }

    /// Calls `visit` with each page.
    pub fn visit(&self, mut visit: impl FnMut(&Page)) -> Result<()> {
        for part in self.parts.get().into_iter().flatten() {
            part.pages.lock().map_err(poisoned)?.all.values().for_each(&mut visit);
        }
        Ok(())
    }

    fn parts(&self) -> &[Part<M>] {
        let part = |_| Part { pages: Lock::new(Pages::default()), has_room: AtomicWord::new(0) };
        self.parts.get_or_init(|| (0..PARTS).map(part).collect())
    }
}

impl<M: Media> Part<M> {
    /// Notes whether there is room, before the lock of `pages` is released.
    fn note(&self, pages: &Pages) {
        let has_room = u64::from(!pages.with_room.is_empty());
        // Most changes leave it as it was, and the line with the threads that read it.
        if self.has_room.load(Ordering::Relaxed) != has_room {
            self.has_room.store(has_room, Ordering::Relaxed);
        }
    }
}

impl Pages {
    /// Takes a slot of the lowest page with room.
    pub fn take(&mut self) -> Option<(u64, u32)> {
        let number = *self.with_room.first()?;
        Some((number, self.take_from(number)))
    }

    /// Adds a page and takes a slot of it, even if a lower page has room again: an empty page would
    /// never go back to the space, because only a give returns it.
    pub fn add(&mut self, number: u64, slots: u32) -> u32 {
        self.insert(number, slots);
        self.take_from(number)
    }

    /// Adds an empty page; the caller takes a slot of it before it unlocks.
    pub fn insert(&mut self, number: u64, slots: u32) {
        self.all.insert(number, Page::new(slots));
        self.with_room.insert(number);
        self.is_scarce = false;
    }

    /// Counts each free slot as room, until a page is added.
    fn find_all_room(&mut self) {
        if !self.is_scarce {
            let with_room = self.all.iter().filter(|(_, page)| page.free() > 0);
            self.with_room.extend(with_room.map(|(number, _)| *number));
            self.is_scarce = true;
        }
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

    /// Marks a slot as in use; `false` if there is no such page or slot, or if it is in use.
    pub fn claim(&mut self, number: u64, slot: u64) -> bool {
        let Some(page) = self.all.get_mut(&number) else { return false };
        let done = page.claim(slot);
        if done && page.is_full() {
            self.with_room.remove(&number);
        }
        done
    }

    /// Marks a slot as free, and removes its page if that is empty then.
    pub fn give(&mut self, number: u64, slot: u64) -> Given {
        let Some(page) = self.all.get_mut(&number) else { return Given::Refused };
        if !page.give(slot) {
            return Given::Refused;
        }
        if page.used() == 0 {
            self.all.remove(&number);
            self.with_room.remove(&number);
            return Given::Emptied;
        }
        // One that has more is there already.
        let least = if self.is_scarce { 1 } else { page.slots().div_ceil(ROOM_SHARE) };
        if page.free() == least {
            self.with_room.insert(number);
        }
        Given::InUse
    }
}
