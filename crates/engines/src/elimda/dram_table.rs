//! The DRAM table (ElimDA 3.2): D-buckets, fingerprints of the units, and the directory over both.
//!
//! DRAM table and device table have one shape: the words of a bucket here hold its D-bucket and
//! what is known of its units. All of it is volatile and rebuilt at open.

mod bucket;
mod directory;

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_pmem::{Addr, AtomicWord, Primitives};

use self::bucket::Shape;
pub use self::bucket::{Bucket, Entry};
pub use self::directory::Directory;
use super::concurrency::BucketLock;
use super::layout::{self, EXTENTS, Geometry, Prefix};

/// All segments of a table, by their slot in the segment table, and the directory over them.
pub struct DramTable<P: Primitives> {
    geometry: Geometry,
    shape: Shape,
    extents: [OnceLock<Box<[Segment<P>]>>; EXTENTS],
    pub directory: Directory<P>,
}

/// A segment in DRAM.
pub struct Segment<P: Primitives> {
    locks: OnceLock<Box<[BucketLock<P>]>>,
    /// The words of all buckets, [`BucketWords`] each.
    words: OnceLock<Box<[P::AtomicU64]>>,
    /// Where the segment lies on the device.
    at: P::AtomicU64,
    /// Its prefix, packed.
    prefix: P::AtomicU64,
    /// Its lap.
    lap: P::AtomicU64,
    /// Units that were handed out.
    used_units: P::AtomicU64,
}

impl<P: Primitives> DramTable<P> {
    /// Makes a table without segments.
    pub fn new(geometry: Geometry) -> Self {
        let extents = [const { OnceLock::new() }; EXTENTS];
        let shape = Shape::of(&geometry);
        DramTable { geometry, shape, extents, directory: Directory::new() }
    }

    /// Makes room for the segments of extent `extent`.
    pub fn add_extent(&self, extent: usize) {
        let count = layout::extent_slots(self.geometry.initial_segments, extent);
        let segment = |_| Segment {
            locks: OnceLock::new(),
            words: OnceLock::new(),
            at: AtomicWord::new(0),
            prefix: AtomicWord::new(0),
            lap: AtomicWord::new(0),
            used_units: AtomicWord::new(0),
        };
        self.extents[extent].get_or_init(|| (0..count).map(segment).collect());
    }

    /// Returns segment `slot`, which lies in an extent that was added.
    #[inline(always)]
    pub fn segment(&self, slot: u64) -> &Segment<P> {
        let (extent, index) = layout::extent_of(self.geometry.initial_segments, slot);
        let segments = self.extents[extent].get().expect("the extent of a segment was added");
        &segments[index as usize]
    }

    /// Returns bucket `bucket` of segment `slot`.
    #[inline(always)]
    pub fn bucket<'t>(&'t self, segment: &'t Segment<P>, bucket: u64) -> Bucket<'t, P> {
        let words = segment.words.get().expect("a segment in the directory has words");
        Bucket::of(&self.shape, words, bucket as usize)
    }

    /// Gives segment `slot` its words and locks, if it has none yet.
    pub fn prepare(&self, slot: u64) -> &Segment<P> {
        let segment = self.segment(slot);
        let buckets = self.geometry.buckets as usize;
        segment.locks.get_or_init(|| (0..buckets).map(|_| BucketLock::new()).collect());
        segment.words.get_or_init(|| P::words(buckets * self.shape.words));
        segment
    }

    /// Returns how much DRAM `segments` segments take. Unit: bytes.
    pub fn dram_bytes(&self, segments: u64) -> u64 {
        let bucket = self.shape.words * 8 + size_of::<BucketLock<P>>();
        let segment = size_of::<Segment<P>>() as u64 + self.geometry.buckets * bucket as u64;
        segments * segment + self.directory.dram_bytes()
    }
}

impl<P: Primitives> Segment<P> {
    /// Returns the lock of a bucket.
    #[inline(always)]
    pub fn lock(&self, bucket: u64) -> &BucketLock<P> {
        &self.locks()[bucket as usize]
    }

    /// Returns the locks of all buckets.
    pub fn locks(&self) -> &[BucketLock<P>] {
        self.locks.get().expect("a segment in the directory has locks")
    }

    /// Returns where the segment lies.
    #[inline(always)]
    pub fn at(&self) -> Addr {
        Addr::new(self.at.load(Ordering::Relaxed))
    }

    /// Returns which hashes it holds.
    pub fn prefix(&self) -> Prefix {
        Prefix::of_packed(self.prefix.load(Ordering::Relaxed))
    }

    /// Returns its lap: units of lower ones are free.
    pub fn lap(&self) -> u64 {
        self.lap.load(Ordering::Relaxed)
    }

    /// Says where the segment lies and what it holds. All its sequences are odd, or no reader
    /// knows it yet.
    pub fn place(&self, (at, lap): (Addr, u64), prefix: Prefix, used_units: u64) {
        self.at.store(at.byte(), Ordering::Relaxed);
        self.lap.store(lap, Ordering::Relaxed);
        self.prefix.store(prefix.packed(), Ordering::Relaxed);
        self.used_units.store(used_units, Ordering::Relaxed);
    }

    /// Returns how many units were handed out.
    pub fn used_units(&self) -> u64 {
        self.used_units.load(Ordering::Relaxed)
    }

    /// Hands out the units of an access unit, or `None` if the segment has no more; returns the
    /// first of them. A bucket is locked.
    pub fn take_units(&self, geometry: &Geometry) -> Option<u64> {
        let mut used = self.used_units();
        // Ends: each further round means that another bucket took units, of which there are few.
        while used < geometry.segment_units {
            let taken = self.used_units.compare_exchange(
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
