//! The DRAM table (ElimDA 3.2): D-buckets, fingerprints of the units, and the directory over both.
//!
//! DRAM table and device table have one shape: the words of a bucket here hold its D-bucket and
//! what is known of its units. All of it is volatile and rebuilt at open.

mod directory;

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use everhash_pmem::{Addr, AtomicWord, Bits, LINE, Primitives, WORD, equal_bytes};

pub use self::directory::Directory;
use super::concurrency::BucketLock;
use super::form::Item;
use super::layout::{self, EXTENTS, Geometry, MOST_SLOTS, Prefix};

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

/// The words of a bucket in DRAM: two counts, a watermark, the live bits of all units, four words
/// for the fingerprints of each, then the D-bucket: four words for the fingerprints of 16 items
/// each, and the items.
pub struct Bucket<'t, P: Primitives> {
    shape: &'t Shape,
    words: &'t [P::AtomicU64],
}

/// Where the parts of a bucket lie.
#[derive(Clone, Copy)]
struct Shape {
    /// The fingerprints of the units.
    entries: usize,
    /// Those of the D-bucket.
    prints: usize,
    /// The items of the D-bucket.
    items: usize,
    /// The words of all.
    words: usize,
    /// Words of an item, its order number not included.
    item_words: usize,
    /// Items of the D-bucket, at most.
    most_items: usize,
    /// Units, at most.
    most_units: usize,
}

impl Shape {
    fn of(geometry: &Geometry) -> Shape {
        let (item_words, most_items) = (geometry.item_words as usize, geometry.dram_slots());
        let (most_items, most_units) = (most_items as usize, geometry.bucket_units as usize);
        let entries = FIRST_LIVES + most_units.div_ceil(LIVES);
        let prints = entries + most_units * ENTRY_WORDS;
        let items = prints + most_items.div_ceil(PLANE) * ENTRY_WORDS;
        let words = items + most_items * (item_words + 1);
        Shape { entries, prints, items, words, item_words, most_items, most_units }
    }
}

/// Words of 16 fingerprints.
pub type Prints<P> = [<P as Primitives>::AtomicU64; ENTRY_WORDS];

/// What is known of a unit of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its index in the segment.
    pub unit: u64,
    /// Bit i: slot i is live.
    pub live: u16,
}

const ITEMS: usize = 0;
const UNITS: usize = 1;
const WATERMARK: usize = 2;
const FIRST_LIVES: usize = 3;

/// Words of 16 fingerprints: two for each byte plane. Units use 15; the last bytes of both planes
/// hold the index of the unit.
const ENTRY_WORDS: usize = 4;

/// Fingerprints of [`ENTRY_WORDS`] words.
const PLANE: usize = 16;

/// Units whose live bits share a word.
const LIVES: usize = 4;

const LAST_BYTE: Bits = Bits::new(56, 8);

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
        let length = self.shape.words;
        let words = &words[bucket as usize * length..][..length];
        Bucket { shape: &self.shape, words }
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

/// Returns which of the 16 fingerprints in these words are equal, as a mask.
///
/// The high bytes are compared first; one unit in 17 has one that is equal by chance.
#[inline(always)]
fn equal<P: Primitives>(prints: &Prints<P>, fingerprint: u16) -> u32 {
    let [low, high] = fingerprint.to_le_bytes();
    let load = |index: usize| prints[index].load(Ordering::Relaxed);
    let found = equal_bytes(&[load(0), load(1)], high);
    if found == 0 {
        return 0;
    }
    found & equal_bytes(&[load(2), load(3)], low)
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

impl<P: Primitives> Bucket<'_, P> {
    /// Asks for the lines that a search begins with: all but the items.
    #[inline(always)]
    pub fn prefetch(&self) {
        let words = &self.words[..self.shape.items];
        for line in words.as_chunks::<{ (LINE / WORD) as usize }>().0 {
            everhash_pmem::prefetch(line);
        }
        // A bucket may begin inside a line.
        everhash_pmem::prefetch(&words[words.len() - 1]);
    }

    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Returns how many items the D-bucket holds.
    #[inline(always)]
    pub fn items(&self) -> usize {
        self.load(ITEMS) as usize
    }

    /// Returns whether the D-bucket has no room.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.items() == self.shape.most_items
    }

    /// Returns how many units the bucket has.
    #[inline(always)]
    pub fn units(&self) -> usize {
        self.load(UNITS) as usize
    }

    /// Returns the order number of the last item that the units have absorbed.
    pub fn watermark(&self) -> u64 {
        self.load(WATERMARK)
    }

    #[inline(always)]
    fn item_index(&self, index: usize) -> usize {
        self.shape.items + index * (self.shape.item_words + 1)
    }

    /// Returns where the live bits of a unit lie.
    #[inline(always)]
    fn live_bits(&self, entry: usize) -> (usize, Bits) {
        (FIRST_LIVES + entry / LIVES, Bits::new((entry % LIVES * 16) as u32, 16))
    }

    #[inline(always)]
    fn live(&self, entry: usize) -> u16 {
        let (index, bits) = self.live_bits(entry);
        bits.get(self.load(index)) as u16
    }

    #[inline(always)]
    fn entry_index(&self, entry: usize) -> usize {
        self.shape.entries + entry * ENTRY_WORDS
    }

    /// Returns item `index` of the D-bucket and its order number.
    #[inline(always)]
    pub fn item(&self, index: usize) -> (Item, u64) {
        let words = self.shape.item_words;
        let found = &self.words[self.item_index(index)..][..words + 1];
        let mut item = [0; 4];
        for (value, word) in item[..words].iter_mut().zip(found) {
            *value = word.load(Ordering::Relaxed);
        }
        (item, found[words].load(Ordering::Relaxed))
    }

    /// Returns what is known of unit `entry` of the bucket; the oldest is 0.
    #[inline(always)]
    pub fn entry(&self, entry: usize) -> Entry {
        let first = self.entry_index(entry);
        let [high, low] = [1, 3].map(|word| LAST_BYTE.get(self.load(first + word)));
        Entry { unit: high << 8 | low, live: self.live(entry) }
    }

    /// Returns the fingerprints of the units, the oldest first.
    #[inline(always)]
    pub fn units_prints(&self) -> &[Prints<P>] {
        &self.words[self.shape.entries..].as_chunks().0[..self.units()]
    }

    /// Returns the slots of unit `entry`, which has these fingerprints, whose live items have this
    /// one, as a mask.
    #[inline(always)]
    pub fn candidates(&self, entry: usize, prints: &Prints<P>, fingerprint: u16) -> u32 {
        match equal::<P>(prints, fingerprint) {
            0 => 0,
            // No unit has a slot 15, where its index lies.
            equal => equal & u32::from(self.live(entry)),
        }
    }

    /// Returns the items of the D-bucket that have this fingerprint, of 16 from `first` on, as a
    /// mask.
    #[inline(always)]
    pub fn dram_candidates(&self, first: usize, fingerprint: u16) -> u32 {
        let prints = self.words[self.print_index(first)..].as_chunks().0;
        let equal = equal::<P>(&prints[0], fingerprint);
        let items = self.items().saturating_sub(first).min(PLANE);
        equal & ((1 << items) - 1)
    }

    /// Returns the first items of the parts of the D-bucket that
    /// [`Bucket::dram_candidates`] looks at.
    #[inline(always)]
    pub fn dram_parts(&self) -> impl Iterator<Item = usize> + use<P> {
        (0..self.items()).step_by(PLANE)
    }

    /// Returns where the fingerprints lie that item `index` of the D-bucket is among.
    #[inline(always)]
    fn print_index(&self, index: usize) -> usize {
        self.shape.prints + index / PLANE * ENTRY_WORDS
    }

    // What follows changes the bucket: its sequence is odd.

    /// Adds an item with this hash to the D-bucket, which has room.
    pub fn push(&self, hash: u64, item: &Item, order: u64) {
        let index = self.items();
        assert!(index < self.shape.most_items, "the D-bucket has room");
        self.set_print(index, layout::fingerprint(hash));
        self.set_item(index, item, order);
        self.store(ITEMS, index as u64 + 1);
    }

    fn set_print(&self, index: usize, fingerprint: u16) {
        let (first, slot) = (self.print_index(index), index % PLANE);
        let [low, high] = fingerprint.to_le_bytes();
        for (plane, byte) in [(first, high), (first + ENTRY_WORDS / 2, low)] {
            let (word, bits) = (plane + slot / 8, Bits::new((slot % 8 * 8) as u32, 8));
            self.store(word, bits.set(self.load(word), byte.into()));
        }
    }

    fn print(&self, index: usize) -> u16 {
        let (first, slot) = (self.print_index(index), index % PLANE);
        let [low, high] = [first + ENTRY_WORDS / 2, first].map(|plane| {
            Bits::new((slot % 8 * 8) as u32, 8).get(self.load(plane + slot / 8)) as u8
        });
        u16::from_le_bytes([low, high])
    }

    /// Replaces item `index` of the D-bucket by one with the same key.
    pub fn set_item(&self, index: usize, item: &Item, order: u64) {
        let (first, words) = (self.item_index(index), self.shape.item_words);
        for (word, value) in item[..words].iter().enumerate() {
            self.store(first + word, *value);
        }
        self.store(first + words, order);
    }

    /// Removes item `index` of the D-bucket; the last one takes its place.
    pub fn remove(&self, index: usize) {
        let last = self.items() - 1;
        let (item, order) = self.item(last);
        self.set_print(index, self.print(last));
        self.set_item(index, &item, order);
        self.store(ITEMS, last as u64);
    }

    /// Empties the D-bucket.
    pub fn clear_items(&self) {
        self.store(ITEMS, 0);
    }

    /// Says what the units have absorbed.
    pub fn set_watermark(&self, order: u64) {
        self.store(WATERMARK, order);
    }

    /// Adds the newest unit, with the fingerprints of its slots, those that are not live included.
    pub fn push_unit(&self, entry: Entry, fingerprints: &[u16]) {
        let units = self.units();
        assert!(units < self.shape.most_units, "the bucket may have another unit");
        let mut planes = [[0u8; 16]; 2];
        let index = [entry.unit as u16];
        let last = MOST_SLOTS as usize;
        let slots = fingerprints.iter().enumerate().chain([last].into_iter().zip(&index));
        for (slot, both) in slots {
            [planes[1][slot], planes[0][slot]] = both.to_le_bytes();
        }
        let first = self.entry_index(units);
        for (word, bytes) in planes.as_flattened().chunks(8).enumerate() {
            self.store(first + word, everhash_pmem::word_of(bytes));
        }
        self.set_live(units, entry.live);
        self.store(UNITS, units as u64 + 1);
    }

    /// Says which slots of unit `entry` are live.
    pub fn set_live(&self, entry: usize, live: u16) {
        let (index, bits) = self.live_bits(entry);
        self.store(index, bits.set(self.load(index), live.into()));
    }

    /// Forgets all units and items.
    pub fn reset(&self, watermark: u64) {
        self.store(ITEMS, 0);
        self.store(UNITS, 0);
        self.store(WATERMARK, watermark);
    }
}
