//! The DRAM table (ElimDA 3.2): D-buckets, fingerprints of the units, and the directory over both.
//!
//! DRAM table and device table have one shape: the words of a bucket here hold its D-bucket and
//! what is known of its units. All of it is volatile and rebuilt at open.

mod bucket;
mod candidates;
mod directory;

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_pmem::{Addr, AtomicWord, Bits, LINE, Primitives, WORD};

use self::bucket::Shape;
pub use self::bucket::{Bucket, BucketHead, Entry};
pub use self::candidates::Candidate;
use self::directory::Directory;
use super::concurrency::BucketLock;
use super::layout::{self, EXTENTS, Geometry, LINE_WORDS, Prefix};

/// All segments of a table, by their slot in the segment table, and the directory over them.
pub struct DramTable<P: Primitives> {
    geometry: Geometry,
    extents: [OnceLock<Extent<P>>; PLACES],
    directory: Directory<P>,
}

/// How many extents a place can name; more than there are.
const PLACES: usize = 64;

const _: () = assert!(EXTENTS <= PLACES);

/// Where a segment lies: its extent, and its index there. The directory has them in a word, so that
/// a search need not find them out.
const EXTENT: Bits = Bits::new(0, PLACES.ilog2());
const INDEX: Bits = Bits::new(PLACES.ilog2(), 58);

/// The segments whose slots lie in one extent of the segment table. What they hold lies together:
/// the pages of a long extent are huge.
struct Extent<P: Primitives> {
    shape: Shape,
    segments: Box<[SegmentWords<P>]>,
    /// Those of all buckets, segment by segment.
    heads: Box<[BucketHead<P>]>,
    /// The other words of all buckets. The kernel gives memory to those that are used.
    words: Box<[P::AtomicU64]>,
    /// The first of them that begins a line.
    first: usize,
}

/// What is known of a segment as a whole.
struct SegmentWords<P: Primitives> {
    /// Where the segment lies on the device.
    at: P::AtomicU64,
    /// Its prefix, packed.
    prefix: P::AtomicU64,
    /// Its lap.
    lap: P::AtomicU64,
    /// Units that were handed out.
    used_units: P::AtomicU64,
}

/// A segment in DRAM.
pub struct Segment<'t, P: Primitives> {
    extent: &'t Extent<P>,
    index: usize,
}

impl<P: Primitives> Clone for Segment<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitives> Copy for Segment<'_, P> {}

impl<P: Primitives> DramTable<P> {
    /// Makes a table without segments.
    pub fn new(geometry: Geometry) -> Self {
        let extents = [const { OnceLock::new() }; PLACES];
        DramTable { geometry, extents, directory: Directory::new() }
    }

    /// Makes room for the segments of extent `extent`.
    pub fn add_extent(&self, extent: usize) {
        let slots = layout::extent_slots(self.geometry.initial_segments, extent);
        self.extents[extent].get_or_init(|| Extent::new(&self.geometry, slots as usize));
    }

    /// Returns segment `slot`, which lies in an extent that was added.
    #[inline(always)]
    pub fn segment(&self, slot: u64) -> Segment<'_, P> {
        self.at_place(self.place_of(slot))
    }

    /// Returns the segment to which the directory leads for a hash.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Segment<'_, P> {
        self.at_place(self.directory.find(hash))
    }

    /// Returns the slot of the segment to which the directory leads for a hash.
    pub fn slot_of(&self, hash: u64) -> u64 {
        let place = self.directory.find(hash);
        let extent = EXTENT.get(place) as usize;
        layout::first_slot(self.geometry.initial_segments, extent) + INDEX.get(place)
    }

    /// Lets the directory lead to segment `slot` for the hashes of a prefix: see
    /// [`Directory::point`].
    pub fn point(&self, prefix: Prefix, slot: u64) {
        self.directory.point(prefix, self.place_of(slot));
    }

    /// Returns whether a write failed, or panicked, in any bucket.
    pub fn is_poisoned(&self) -> bool {
        let heads = self.extents.iter().filter_map(OnceLock::get).flat_map(|it| &it.heads);
        heads.map(|head| &head.lock).any(BucketLock::is_poisoned)
    }

    /// Returns the depth of the directory.
    pub fn depth(&self) -> u32 {
        self.directory.depth()
    }

    fn place_of(&self, slot: u64) -> u64 {
        let (extent, index) = layout::extent_of(self.geometry.initial_segments, slot);
        INDEX.set(extent as u64, index)
    }

    #[inline(always)]
    fn at_place(&self, place: u64) -> Segment<'_, P> {
        let extent = self.extents[EXTENT.get(place) as usize].get();
        let extent = extent.expect("the extent of a segment was added");
        Segment { extent, index: INDEX.get(place) as usize }
    }

    /// Returns how much DRAM the table takes, `segments` of whose segments are in use. Unit: bytes.
    pub fn dram_bytes(&self, segments: u64) -> u64 {
        let buckets = self.geometry.buckets;
        let words = segments * buckets * Shape::of(&self.geometry).words as u64 * WORD;
        let slots =
            self.extents.iter().filter_map(OnceLock::get).map(|it| it.segments.len() as u64);
        let slot =
            size_of::<SegmentWords<P>>() as u64 + buckets * size_of::<BucketHead<P>>() as u64;
        slots.sum::<u64>() * slot + words + self.directory.dram_bytes()
    }
}

impl<P: Primitives> Extent<P> {
    fn new(geometry: &Geometry, segments: usize) -> Self {
        let shape = Shape::of(geometry);
        let buckets = segments * shape.buckets;
        let segment = |_| SegmentWords {
            at: AtomicWord::new(0),
            prefix: AtomicWord::new(0),
            lap: AtomicWord::new(0),
            used_units: AtomicWord::new(0),
        };
        let words = P::words(buckets * shape.words + LINE_WORDS as usize);
        let is_word = size_of::<P::AtomicU64>() as u64 == WORD;
        let first = if is_word { words.as_ptr().align_offset(LINE as usize) } else { 0 };
        Extent {
            shape,
            segments: (0..segments).map(segment).collect(),
            heads: (0..buckets).map(|_| BucketHead::new()).collect(),
            words,
            first: first.min(LINE_WORDS as usize),
        }
    }
}

impl<'t, P: Primitives> Segment<'t, P> {
    /// Returns bucket `bucket`.
    #[inline(always)]
    pub fn bucket(&self, bucket: u64) -> Bucket<'t, P> {
        let Extent { shape, words, first, .. } = self.extent;
        let index = self.index * shape.buckets + bucket as usize;
        let words = &words[first + index * shape.words..][..shape.words];
        Bucket::of(shape, self.head(bucket), words)
    }

    #[inline(always)]
    fn head(&self, bucket: u64) -> &'t BucketHead<P> {
        let Extent { shape, heads, .. } = self.extent;
        &heads[self.index * shape.buckets + bucket as usize]
    }

    /// Returns the lock of a bucket.
    #[inline(always)]
    pub fn lock(&self, bucket: u64) -> &'t BucketLock<P> {
        &self.head(bucket).lock
    }

    /// Returns the locks of all buckets.
    pub fn locks(&self) -> impl Iterator<Item = &'t BucketLock<P>> {
        let Extent { shape, heads, .. } = self.extent;
        heads[self.index * shape.buckets..][..shape.buckets].iter().map(|head| &head.lock)
    }

    #[inline(always)]
    fn words(&self) -> &'t SegmentWords<P> {
        &self.extent.segments[self.index]
    }

    /// Returns where the segment lies.
    #[inline(always)]
    pub fn at(&self) -> Addr {
        Addr::new(self.words().at.load(Ordering::Relaxed))
    }

    /// Returns which hashes it holds.
    pub fn prefix(&self) -> Prefix {
        Prefix::of_packed(self.words().prefix.load(Ordering::Relaxed))
    }

    /// Returns its lap: units of lower ones are free.
    pub fn lap(&self) -> u64 {
        self.words().lap.load(Ordering::Relaxed)
    }

    /// Says where the segment lies and what it holds. All its sequences are odd, or no reader
    /// knows it yet.
    ///
    /// # Panics
    /// If it held other hashes than these and those of upper halves.
    pub fn place(&self, (at, lap): (Addr, u64), prefix: Prefix, used_units: u64) {
        if self.at() != Addr::NULL {
            let old = self.prefix();
            assert_eq!(old.bits << (prefix.depth - old.depth), prefix.bits, "a lower half");
            self.give_away(old.depth..prefix.depth);
        }
        self.words().at.store(at.byte(), Ordering::Relaxed);
        self.words().lap.store(lap, Ordering::Relaxed);
        self.words().prefix.store(prefix.packed(), Ordering::Relaxed);
        self.words().used_units.store(used_units, Ordering::Relaxed);
    }

    /// Says in each bucket that hashes with one of these leading bits are those of upper halves.
    fn give_away(&self, gained: core::ops::Range<u32>) {
        let bits = gained.fold(0, |bits, depth| bits | 1 << (u64::BITS - 1 - depth));
        let Extent { shape, heads, .. } = self.extent;
        for head in &heads[self.index * shape.buckets..][..shape.buckets] {
            head.give_away(bits);
        }
    }

    /// Returns how many units were handed out.
    pub fn used_units(&self) -> u64 {
        self.words().used_units.load(Ordering::Relaxed)
    }

    /// Hands out the units of an access unit, or `None` if the segment has no more; returns the
    /// first of them. A bucket is locked.
    pub fn take_units(&self, geometry: &Geometry) -> Option<u64> {
        let mut used = self.used_units();
        // Ends: each further round means that another bucket took units, of which there are few.
        while used < geometry.segment_units {
            let taken = self.words().used_units.compare_exchange(
                used,
                used + geometry.access_units,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Ok(unit) => return Some(unit),
                Err(found) => used = found,
            }
        }
        None
    }
}
