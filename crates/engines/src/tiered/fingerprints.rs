//! Fingerprints in DRAM (ours): a copy of the head of every line of the layers, so that a search
//! reads only the lines in which a slot has the fingerprint of its key, and a write finds room
//! without reading any.
//!
//! A copy changes while the sequence of its group is odd, or before a view leads to its layer: so a
//! reader that accepts what it found has seen the copies that go with it. Overflow lines have none.
//! What belonged to a layer that was dropped stays until the table is closed, because readers may
//! still be there: a third of what is in use at most.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_pmem::{Addr, AtomicWord, Bits, LINE, Primitives};

use super::layers::View;
use super::layout::{BUCKET_LINES, Head, PLACES, Place};

/// Whether the bucket of a second line goes on in overflow lines.
const HAS_LINK: Bits = Bits::new(48, 1);

/// The heads of a layer, by the number of their line.
type Heads<P> = Box<[<P as Primitives>::AtomicU64]>;

/// The heads of all layers, by the number of their layer in the root.
pub struct Fingerprints<P: Primitives> {
    /// Empty in a table without fingerprints in DRAM.
    layers: Box<[OnceLock<Heads<P>>]>,
}

/// What DRAM knows of a line.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its head.
    pub head: Head,
    /// Whether it has a link, which leads to overflow lines.
    pub has_link: bool,
}

impl Known {
    fn of_word(word: u64) -> Known {
        Known { head: Head::of_packed(HAS_LINK.set(word, 0)), has_link: HAS_LINK.get(word) == 1 }
    }
}

impl<P: Primitives> Fingerprints<P> {
    /// Makes those of a table without layers; none ever, unless `is_on`.
    pub fn new(is_on: bool) -> Self {
        let count = if is_on { PLACES } else { 0 };
        Fingerprints { layers: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// Returns whether searches may rely on them.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Returns how many lines of DRAM a search touches: those of four buckets of two layers.
    #[inline(always)]
    pub fn dram_lines(&self) -> u32 {
        if self.is_on() { 4 } else { 0 }
    }

    /// Makes those of an empty layer, which is number `number` in the root. No view leads to it
    /// yet.
    pub fn add(&self, number: usize, place: Place) {
        if let Some(layer) = self.layers.get(number) {
            layer.get_or_init(|| P::words((place.buckets() * BUCKET_LINES) as usize));
        }
    }

    /// Returns what is known of both lines of a bucket; `None` without fingerprints.
    #[inline(always)]
    pub fn bucket(&self, number: usize, index: u64) -> Option<[Known; 2]> {
        let heads = self.layers.get(number)?.get()?;
        let first = (index * BUCKET_LINES) as usize;
        let words = heads.get(first..first + 2)?;
        Some([0, 1].map(|line: usize| Known::of_word(words[line].load(Ordering::Relaxed))))
    }

    /// Fetches what is known of a bucket.
    #[inline(always)]
    pub fn prefetch(&self, number: usize, index: u64) {
        let heads = self.layers.get(number).and_then(OnceLock::get);
        if let Some(word) = heads.and_then(|heads| heads.get((index * BUCKET_LINES) as usize)) {
            everhash_pmem::prefetch(word);
        }
    }

    /// Returns what is known of both lines of the bucket at `at`.
    #[inline(always)]
    pub fn bucket_at(&self, view: &View, at: Addr) -> Option<[Known; 2]> {
        let (number, line) = self.find(view, at)?;
        self.bucket(number, line / BUCKET_LINES)
    }

    /// Notes the head of the line at `at`. The caller holds its group.
    #[inline(always)]
    pub fn note(&self, view: &View, at: Addr, head: Head) {
        self.change(view, at, |word| HAS_LINK.set(head.packed(), HAS_LINK.get(word)));
    }

    /// Notes whether the line at `at` has a link. The caller holds its group.
    pub fn note_link(&self, view: &View, at: Addr, has_link: bool) {
        self.change(view, at, |word| HAS_LINK.set(word, u64::from(has_link)));
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        let heads = self.layers.iter().filter_map(OnceLock::get);
        heads.map(|heads| size_of_val(&**heads) as u64).sum()
    }

    #[inline(always)]
    fn change(&self, view: &View, at: Addr, change: impl FnOnce(u64) -> u64) {
        let Some((number, line)) = self.find(view, at) else { return };
        if let Some(word) = self.layers[number].get().and_then(|heads| heads.get(line as usize)) {
            word.store(change(word.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// Returns the layer and the number of a line; `None` for an overflow line.
    #[inline(always)]
    fn find(&self, view: &View, at: Addr) -> Option<(usize, u64)> {
        if !self.is_on() {
            return None;
        }
        view.all().iter().enumerate().find_map(|(rank, place)| {
            let offset = at.byte().wrapping_sub(place.start.byte());
            (offset < place.bytes()).then_some((view.first() + rank, offset / LINE))
        })
    }
}
