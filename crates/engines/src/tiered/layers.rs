//! The pyramid (Tiered Hashing 3.1): which layers there are and where each lies, as readers and
//! writers see it; and the stream of each.

use core::sync::atomic::Ordering;

use everhash_pmem::{Access, AtomicWord, Media, Primitives, Span, StreamClass, StreamSupport};

use super::concurrency::Live;
use super::layout::{MOST_LIVE, PLACES, Place};

/// Where every layer lies that was ever added, and which of them are in use.
pub struct Layers<P: Primitives> {
    /// What [`Live`] has.
    live: P::AtomicU64,
    /// By the number of the layer.
    places: [P::AtomicU64; PLACES],
    /// Layers of a table that does not grow.
    usual: usize,
}

/// The layers that were in use at one moment, the top one first.
#[derive(Clone, Copy)]
pub struct View {
    live: Live,
    /// The first ones are in use.
    places: [Place; MOST_LIVE],
    usual: usize,
}

impl View {
    /// Returns which layers these are.
    pub fn live(&self) -> Live {
        self.live
    }

    /// Returns how many layers there are.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.live.count() as usize
    }

    /// Returns the number of the top layer in the root.
    pub fn first(&self) -> usize {
        self.live.first() as usize
    }

    /// Returns whether the top layer is being drained, so that a layer of it may be dropped: it
    /// takes no new keys (Tiered Hashing 3.8).
    #[inline(always)]
    pub fn draining(&self) -> bool {
        self.count() > self.usual
    }

    /// Returns where a layer lies, counted from the top.
    #[inline(always)]
    pub fn place(&self, rank: usize) -> Place {
        self.places[rank]
    }

    /// Returns the bottom layer.
    #[inline(always)]
    pub fn bottom(&self) -> Place {
        self.places[self.count() - 1]
    }

    /// Returns every layer, the top one first.
    #[inline(always)]
    pub fn all(&self) -> &[Place] {
        &self.places[..self.count()]
    }

    /// Returns the number of buckets of all layers.
    pub fn buckets(&self) -> u64 {
        self.all().iter().map(|place| place.buckets()).sum()
    }
}

impl<P: Primitives> Layers<P> {
    /// Makes the pyramid of some layers, the top one of which is number `first` in the root, with
    /// keys in 2^`groups_log` groups.
    pub fn new(first: usize, places: &[Place], usual: usize, groups_log: u32) -> Self {
        let (live, words) = (AtomicWord::new(0), core::array::from_fn(|_| AtomicWord::new(0)));
        let layers: Self = Layers { live, places: words, usual };
        for (number, place) in (first as u64..).zip(places) {
            layers.word(number).store(place.word(), Ordering::Relaxed);
        }
        layers.publish(first, places.len(), groups_log);
        layers
    }

    /// Returns which layers are in use.
    #[inline(always)]
    pub fn live(&self) -> Live {
        Live(self.live.load(Ordering::Acquire))
    }

    /// Returns where one of them lies, counted from the top: that never changes.
    #[inline(always)]
    pub fn place(&self, live: Live, rank: u64) -> Place {
        Place::of_word(self.word(live.first() + rank).load(Ordering::Relaxed))
    }

    /// Returns where the place of a layer stands.
    #[inline(always)]
    fn word(&self, number: u64) -> &P::AtomicU64 {
        // A power of two: no number leads out of the array.
        &self.places[number as usize % PLACES]
    }

    /// Returns the layers in use.
    #[inline(always)]
    pub fn view(&self) -> View {
        self.view_of(self.live())
    }

    /// Returns the layers that were in use at one moment.
    pub fn view_of(&self, live: Live) -> View {
        let mut places = [Place::NONE; MOST_LIVE];
        for (rank, place) in (0..live.count()).zip(&mut places) {
            *place = self.place(live, rank);
        }
        View { live, places, usual: self.usual }
    }

    /// Returns whether the top layer is being drained, see [`View::draining`].
    #[inline(always)]
    pub fn draining(&self) -> bool {
        self.open(self.live()) != 0
    }

    /// Returns the first layer that takes new keys, counted from the top, see [`View::draining`].
    #[inline(always)]
    pub fn open(&self, live: Live) -> usize {
        usize::from(live.count() as usize > self.usual)
    }

    /// Returns whether the layers in use are still these. The caller has fenced (acquire).
    #[inline(always)]
    pub fn are_still(&self, live: Live) -> bool {
        Live(self.live.load(Ordering::Relaxed)) == live
    }

    /// Adds a bottom layer, to which the root leads durably. The caller excludes other changes.
    pub fn add(&self, place: Place) {
        let view = self.view();
        let index = view.first() + view.count();
        self.word(index as u64).store(place.word(), Ordering::Relaxed);
        self.publish(view.first(), view.count() + 1, view.live.groups_log());
    }

    /// Drops the top layer; keys are in 2^`groups_log` groups from then on. The caller excludes
    /// other changes, and holds all groups if that number is another one.
    pub fn drop_top(&self, groups_log: u32) {
        let view = self.view();
        self.publish(view.first() + 1, view.count() - 1, groups_log);
    }

    fn publish(&self, first: usize, count: usize, groups_log: u32) {
        let live = Live::new(first as u64, count as u64, groups_log);
        self.live.store(live.0, Ordering::Release);
    }
}

/// Tells the medium which stream each layer has: that of its rank, so that a layer which rises as
/// those above it are dropped becomes hotter. The lowest layers share the last stream of a device
/// that has fewer. With one stream for all, all have rank 0.
pub fn announce_streams<M: Media>(pm: &Access<'_, M>, view: &View, apart: bool) {
    for (rank, place) in view.all().iter().enumerate() {
        announce_stream(pm, *place, rank, apart);
    }
}

/// As [`announce_streams`], of one layer.
pub fn announce_stream<M: Media>(pm: &Access<'_, M>, place: Place, rank: usize, apart: bool) {
    let span = Span::of_bytes(place.start(), place.bytes());
    let mut class = if apart { rank as u8 } else { 0 };
    // A medium that takes no hints works without.
    while pm.stream(span, StreamClass(class)) == StreamSupport::NotSupported && class > 0 {
        class -= 1;
    }
}
