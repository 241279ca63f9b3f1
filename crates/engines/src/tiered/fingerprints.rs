//! Fingerprints in DRAM (ours): a copy of the head of lines of the layers, so that a search reads
//! only the lines in which a slot has the fingerprint of its key, and a write finds room without
//! reading any. A table has them of all layers, or of all but the bottom layer: most pairs lie
//! there, and most reads that find nothing go to the layers above it.
//!
//! A copy changes while the sequence of its group is odd, or before a view leads to its layer: so a
//! reader that accepts what it found has seen the copies that go with it. Overflow lines have none.
//! What belonged to a layer that was dropped stays until the table is closed, because readers may
//! still be there: a third of what is in use at most.
//!
//! A copy may be ahead of its line: that the source of a move is a shadow is noted here only, and
//! stored with the next change of the line. A crash, or the next open, makes it valid again, which
//! is where a move began. So the page of a source need not be written for its flags.

use core::sync::atomic::Ordering;

use everhash_pmem::{Addr, AtomicWord, Bits, LINE, Parts, Primitives, WORD};

use super::layers::View;
use super::layout::{BUCKET_LINES, Head, LINE_WORDS, Place};

/// Whether the bucket of a second line goes on in overflow lines.
const HAS_LINK: Bits = Bits::new(48, 1);

/// Whether the other bits are those of the line.
const IS_KNOWN: Bits = Bits::new(49, 1);

/// Which layers DRAM has fingerprints of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covers {
    /// None.
    Nothing,
    /// All.
    All,
    /// All but the bottom one.
    Upper,
}

impl Covers {
    /// Returns what the setting says.
    pub fn of_setting(value: u64) -> Covers {
        match value {
            0 => Covers::Nothing,
            1 => Covers::All,
            _ => Covers::Upper,
        }
    }
}

/// The heads of all layers.
pub struct Fingerprints<P: Primitives> {
    covers: Covers,
    /// Lines of DRAM that a search touches.
    dram_lines: u32,
    /// A part for each layer, by its number in the root, and there the heads, by the number of
    /// their line. In a table without fingerprints in DRAM there are none.
    layers: Box<Parts<P::AtomicU64>>,
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
        let head = Head::of_packed(IS_KNOWN.set(HAS_LINK.set(word, 0), 0));
        Known { head, has_link: HAS_LINK.get(word) == 1 }
    }

    fn word(self) -> u64 {
        IS_KNOWN.set(HAS_LINK.set(self.head.packed(), u64::from(self.has_link)), 1)
    }
}

impl<P: Primitives> Fingerprints<P> {
    /// Makes those of a table without lines, which usually has so many layers.
    pub fn new(covers: Covers, layers: u64) -> Self {
        // Those of two buckets of each layer.
        let dram_lines = match covers {
            Covers::Nothing => 0,
            Covers::All => 2 * layers,
            Covers::Upper => 2 * (layers - 1),
        };
        Fingerprints { covers, dram_lines: dram_lines as u32, layers: Box::new(Parts::new()) }
    }

    /// Returns which layers they are of.
    #[inline(always)]
    pub fn covers(&self) -> Covers {
        self.covers
    }

    /// Returns whether searches may rely on some.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.covers != Covers::Nothing
    }

    /// Returns how many lines of DRAM a search touches.
    #[inline(always)]
    pub fn dram_lines(&self) -> u32 {
        self.dram_lines
    }

    /// Makes room for those of all layers of a view, of which nothing is known yet.
    pub fn add_all(&self, view: &View) {
        let bottom = view.count() - 1;
        for (rank, place) in view.all().iter().enumerate() {
            if self.covers == Covers::All || self.is_on() && rank < bottom {
                self.add(view.first() + rank, *place, None);
            }
        }
    }

    /// Makes those that go with a new layer, which is empty and to which no view leads yet; it will
    /// lie below those of a view. Of the bottom layer so far nothing is known until
    /// [`Fingerprints::learn`] has told.
    pub fn add_below(&self, view: &View, place: Place) {
        let index = view.first() + view.count();
        match self.covers {
            Covers::Nothing => {}
            Covers::All => {
                self.add(index, place, Some(Known { head: Head::EMPTY, has_link: false }));
            }
            Covers::Upper => self.add(index - 1, view.bottom(), None),
        }
    }

    fn add(&self, number: usize, place: Place, all: Option<Known>) {
        if self.layers.count(number) != 0 {
            return;
        }
        // Some may lie before the first line.
        let heads = P::words((place.buckets() * BUCKET_LINES) as usize + LINE_WORDS);
        if let Some(known) = all {
            heads.iter().for_each(|head| head.store(known.word(), Ordering::Relaxed));
        }
        self.layers.add(number, heads);
    }

    /// Returns what is known of both lines of a bucket; `None` without fingerprints of it.
    #[inline(always)]
    pub fn bucket(&self, number: usize, index: u64) -> Option<[Known; 2]> {
        let [first, second] = self.layers.around(number, (index * BUCKET_LINES) as usize)?;
        let words = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
        (IS_KNOWN.get(words[0] & words[1]) == 1).then(|| words.map(Known::of_word))
    }

    /// Fetches what is known of a bucket.
    #[inline(always)]
    pub fn prefetch(&self, number: usize, index: u64) {
        if let Some(word) = self.layers.get(number, (index * BUCKET_LINES) as usize) {
            everhash_pmem::prefetch(word);
        }
    }

    /// Returns what is known of both lines of the bucket at `at`.
    #[inline(always)]
    pub fn bucket_at(&self, view: &View, at: Addr) -> Option<[Known; 2]> {
        let (number, line) = self.find(view, at)?;
        self.bucket(number, line / BUCKET_LINES)
    }

    /// Learns what a line holds that is not known yet. The caller holds its group.
    pub fn learn(&self, view: &View, at: Addr, known: Known) {
        if let Some(word) = self.word(view, at) {
            word.store(known.word(), Ordering::Relaxed);
        }
    }

    /// Notes the head of the line at `at`, if what is there is known; returns whether it is. The
    /// caller holds its group.
    #[inline(always)]
    pub fn note(&self, view: &View, at: Addr, head: Head) -> bool {
        self.change(view, at, |known| Known { head, ..known })
    }

    /// As [`Fingerprints::note`], of a line of one layer, or of an overflow line of it.
    #[inline(always)]
    pub fn note_in(&self, number: usize, place: Place, at: Addr, head: Head) {
        if let Some(line) = line_in(place, at) {
            Self::change_word(self.layers.get(number, line as usize), |known| Known {
                head,
                ..known
            });
        }
    }

    /// As [`Fingerprints::note`], of some lines.
    #[inline(always)]
    pub fn note_all(&self, view: &View, heads: impl Iterator<Item = (Addr, Head)>) {
        heads.for_each(|(at, head)| {
            self.note(view, at, head);
        });
    }

    /// Notes whether the line at `at` has a link. The caller holds its group.
    pub fn note_link(&self, view: &View, at: Addr, has_link: bool) {
        self.change(view, at, |known| Known { has_link, ..known });
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.layers.total() as u64 * WORD
    }

    #[inline(always)]
    fn change(&self, view: &View, at: Addr, change: impl FnOnce(Known) -> Known) -> bool {
        Self::change_word(self.word(view, at), change)
    }

    #[inline(always)]
    fn change_word(word: Option<&P::AtomicU64>, change: impl FnOnce(Known) -> Known) -> bool {
        let Some(word) = word else { return false };
        let old = word.load(Ordering::Relaxed);
        let is_known = IS_KNOWN.get(old) == 1;
        if is_known {
            word.store(change(Known::of_word(old)).word(), Ordering::Relaxed);
        }
        is_known
    }

    #[inline(always)]
    fn word(&self, view: &View, at: Addr) -> Option<&P::AtomicU64> {
        let (number, line) = self.find(view, at)?;
        self.layers.get(number, line as usize)
    }

    /// Returns the layer and the number of a line; `None` for an overflow line.
    #[inline(always)]
    fn find(&self, view: &View, at: Addr) -> Option<(usize, u64)> {
        if !self.is_on() {
            return None;
        }
        view.all()
            .iter()
            .enumerate()
            .find_map(|(rank, place)| line_in(*place, at).map(|line| (view.first() + rank, line)))
    }
}

/// Returns the number of the line at `at` in a layer; `None` if it lies elsewhere.
#[inline(always)]
fn line_in(place: Place, at: Addr) -> Option<u64> {
    let offset = at.byte().wrapping_sub(place.start().byte());
    (offset < place.bytes()).then_some(offset / LINE)
}
