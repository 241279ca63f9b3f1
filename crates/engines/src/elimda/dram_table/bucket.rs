//! A bucket of the DRAM table: its D-bucket, and what is known of its units.

use core::sync::atomic::Ordering;

use everhash_pmem::{AtOnce, AtomicWord, Bits, Primitives, Stamp, equal_lanes};

use super::candidates::Candidates;
use crate::elimda::concurrency::BucketLock;
use crate::elimda::form::Item;
use crate::elimda::layout::{self, Geometry, LINE_WORDS, MOST_SLOTS};

/// A bucket in DRAM: its head, and behind it words: the fingerprints of its units; a watermark;
/// what the order numbers of the items of the D-bucket are counted from, half a word for the order
/// number of each, the items, and the fingerprints of those behind the sixteenth.
///
/// A search reads the head, the fingerprints of the units that there are, and little else.
pub struct Bucket<'t, P: Primitives> {
    shape: &'t Shape,
    head: &'t BucketHead<P>,
    words: &'t [P::AtomicU64],
}

impl<P: Primitives> Clone for Bucket<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitives> Copy for Bucket<'_, P> {}

/// What every operation on a bucket reads, in a line of its own.
#[repr(C, align(64))]
pub struct BucketHead<P: Primitives> {
    /// The lock of the bucket.
    pub lock: BucketLock<P>,
    /// How many items and units there are.
    counts: P::AtomicU64,
    /// Bits of a hash of which each, if it is set, says that a split has given the hash away: see
    /// [`Bucket::covers`].
    given_away: P::AtomicU64,
    /// The fingerprints of the first sixteen items of the D-bucket.
    prints: [P::AtomicU64; PRINT_WORDS],
}

impl<P: Primitives> BucketHead<P> {
    /// Makes the head of an empty bucket.
    pub fn new() -> Self {
        let zero = || AtomicWord::new(0);
        BucketHead {
            lock: BucketLock::new(),
            counts: zero(),
            given_away: zero(),
            prints: core::array::from_fn(|_| zero()),
        }
    }

    /// Says that the segment has given all hashes away that have one of these bits.
    pub fn give_away(&self, bits: u64) {
        let bits = bits | self.given_away.load(Ordering::Relaxed);
        self.given_away.store(bits, Ordering::Relaxed);
    }
}

/// Where the parts of a bucket lie, behind the fingerprints of its units.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Buckets of a segment.
    pub buckets: usize,
    watermark: usize,
    /// What the order numbers of the items are counted from.
    first_order: usize,
    /// The order numbers of the items of the D-bucket.
    orders: usize,
    /// The items.
    items: usize,
    /// The fingerprints of those behind the sixteenth.
    prints: usize,
    /// The words of all.
    pub words: usize,
    /// Words of an item, its order number not included.
    item_words: usize,
    /// Items of the D-bucket, at most.
    most_items: usize,
    /// Units, at most.
    most_units: usize,
    /// Whether the processor compares two lines at once.
    at_once: Option<AtOnce>,
}

impl Shape {
    /// Returns the shape of the buckets of a table.
    pub fn of(geometry: &Geometry) -> Shape {
        let (item_words, most_items) = (geometry.item_words as usize, geometry.dram_slots());
        let (most_items, most_units) = (most_items as usize, geometry.bucket_units as usize);
        let watermark = most_units.next_multiple_of(TOGETHER) * PRINT_WORDS;
        let first_order = watermark + 1;
        // Those of most items lie in the line of the number that they are counted from.
        let orders = first_order + 1;
        let items = orders + most_items.div_ceil(ORDERS);
        let prints = items + most_items * item_words;
        let words = prints + most_items.saturating_sub(1) / LANES * PRINT_WORDS;
        Shape {
            buckets: geometry.buckets as usize,
            watermark,
            first_order,
            orders,
            items,
            prints,
            words: words.next_multiple_of(LINE_WORDS as usize),
            item_words,
            most_items,
            most_units,
            at_once: AtOnce::detect(),
        }
    }
}

/// What is known of a unit of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its index in the segment.
    pub unit: u64,
    /// Bit i: slot i is live.
    pub live: u16,
}

const ITEMS: Bits = Bits::new(0, 32);
const UNITS: Bits = Bits::new(32, 32);

/// Lanes of 16 bits that belong together: fingerprints of 15 slots and the index of the unit, or
/// those of 16 items of the D-bucket.
pub const LANES: usize = 16;

/// Words that have them.
pub const PRINT_WORDS: usize = LANES / LANES_OF_WORD;

const LANES_OF_WORD: usize = 4;

/// Units whose fingerprints are compared at once: they fill two lines.
pub const TOGETHER: usize = 4;

/// The fingerprints of [`TOGETHER`] units.
pub type Lines<P> = [<P as Primitives>::AtomicU64; TOGETHER * PRINT_WORDS];

/// Pairs of lines of fingerprints that are asked for before the head says how many are in use.
///
/// Source: ours; between two splits a bucket has 10 to 20 units.
const LIKELY: usize = 4;

/// Items whose order numbers share a word.
const ORDERS: usize = 2;

/// How far the order numbers of a D-bucket may lie apart.
const MOST_AFTER: u64 = u32::MAX as u64;

/// Returns the bits of a lane in its word.
#[inline(always)]
const fn lane_bits(lane: usize) -> Bits {
    Bits::new((lane % LANES_OF_WORD * 16) as u32, 16)
}

/// Of the lanes of a unit those of slots.
const SLOTS: u16 = (1 << MOST_SLOTS) - 1;

/// Returns which of these lanes are `lane`, bit i for lane i.
#[inline(always)]
fn equal_prints(prints: &[impl AtomicWord; PRINT_WORDS], lane: u16) -> u32 {
    // Without closures: changes elsewhere in the crate decide whether the compiler inlines them,
    // and every search comes here.
    let [a, b, c, d] = prints;
    let first = [a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)];
    let second = [c.load(Ordering::Relaxed), d.load(Ordering::Relaxed)];
    equal_lanes(first, u16::MAX, lane) | equal_lanes(second, u16::MAX, lane) << (LANES / 2)
}

/// Returns the index of the unit with these fingerprints.
#[inline(always)]
pub fn unit_of(prints: &[impl AtomicWord; PRINT_WORDS]) -> u64 {
    lane_bits(LANES - 1).get(prints[PRINT_WORDS - 1].load(Ordering::Relaxed))
}

impl<'t, P: Primitives> Bucket<'t, P> {
    /// Returns the bucket with this head and these words.
    #[inline(always)]
    pub fn of(shape: &'t Shape, head: &'t BucketHead<P>, words: &'t [P::AtomicU64]) -> Self {
        Bucket { shape, head, words }
    }

    /// Asks for the lines that a search begins with, whether they are in use or not.
    #[inline(always)]
    pub fn prefetch(&self) {
        everhash_pmem::prefetch(self.head);
        let likely = self.shape.watermark.min(LIKELY * TOGETHER * PRINT_WORDS);
        for line in self.words[..likely].as_chunks::<{ LINE_WORDS as usize }>().0 {
            everhash_pmem::prefetch(line);
        }
    }

    /// Asks for the line of its head.
    #[inline(always)]
    pub fn prefetch_head(&self) {
        everhash_pmem::prefetch(self.head);
    }

    /// Asks for the lines that adding an item changes: its head says where the item goes.
    #[inline(always)]
    pub fn prefetch_room(&self) {
        let item = self.item_index(self.items().min(self.shape.most_items - 1));
        for word in [self.shape.watermark, item] {
            everhash_pmem::prefetch(&self.words[word]);
        }
    }

    /// Asks for the fingerprints of all units: its head says how many they are.
    #[inline(always)]
    pub fn prefetch_in_use(&self) {
        let words = &self.words[..self.units() * PRINT_WORDS];
        words.iter().step_by(LINE_WORDS as usize).for_each(everhash_pmem::prefetch);
    }

    /// Returns what a reader begins with, as [`BucketLock::try_stamp`] does.
    #[inline(always)]
    pub fn try_stamp(&self) -> Option<Stamp> {
        self.head.lock.try_stamp()
    }

    /// Returns whether no change began since `stamp`.
    #[inline(always)]
    pub fn accepts(&self, stamp: Stamp) -> bool {
        self.head.lock.accepts(stamp)
    }

    /// Returns whether the segment still holds a hash for which the directory led to it: if so
    /// after a stamp was taken, it does as long as that is accepted.
    ///
    /// A split leaves the lower half in its place. So a segment holds the hashes that it held at
    /// first, but for those that have one of the bits that the prefix has gained since.
    #[inline(always)]
    pub fn covers(&self, hash: u64) -> bool {
        self.head.given_away.load(Ordering::Relaxed) & hash == 0
    }

    /// Returns the fingerprints of all units, [`TOGETHER`] each: those of units that there are not,
    /// and of slots that are not live, are zero.
    ///
    /// Where they lie does not depend on how many there are, nor on a comparison with that: the
    /// processor goes to them before the head is there.
    #[inline(always)]
    pub fn lines(&self) -> &'t [Lines<P>] {
        &self.words.as_chunks().0[..self.units().div_ceil(TOGETHER)]
    }

    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn counts(&self) -> u64 {
        self.head.counts.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn first_order(&self) -> u64 {
        self.load(self.shape.first_order)
    }

    /// Returns how many items the D-bucket holds.
    #[inline(always)]
    pub fn items(&self) -> usize {
        ITEMS.get(self.counts()) as usize
    }

    /// Returns whether the D-bucket has no room.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.items() == self.shape.most_items
    }

    /// Returns how many units the bucket has.
    #[inline(always)]
    pub fn units(&self) -> usize {
        UNITS.get(self.counts()) as usize
    }

    /// Returns the order number of the last item that the units have absorbed.
    pub fn watermark(&self) -> u64 {
        self.load(self.shape.watermark)
    }

    #[inline(always)]
    fn item_index(&self, index: usize) -> usize {
        self.shape.items + index * self.shape.item_words
    }

    /// Returns where the order number of item `index` lies, less the one that all are counted
    /// from.
    #[inline(always)]
    fn order_bits(&self, index: usize) -> (usize, Bits) {
        (self.shape.orders + index / ORDERS, Bits::new((index % ORDERS * 32) as u32, 32))
    }

    /// Returns the order number of item `index` of the D-bucket.
    #[inline(always)]
    pub fn order(&self, index: usize) -> u64 {
        let (word, bits) = self.order_bits(index);
        self.first_order().wrapping_add(bits.get(self.load(word)))
    }

    /// Returns item `index` of the D-bucket and its order number.
    #[inline(always)]
    pub fn item(&self, index: usize) -> (Item, u64) {
        let words = self.shape.item_words;
        let found = &self.words[self.item_index(index)..][..words];
        let mut item = [0; 4];
        for (value, word) in item[..words].iter_mut().zip(found) {
            *value = word.load(Ordering::Relaxed);
        }
        (item, self.order(index))
    }

    /// Returns the fingerprints of a unit.
    #[inline(always)]
    fn unit_prints(&self, entry: usize) -> &'t [P::AtomicU64; PRINT_WORDS] {
        &self.words.as_chunks().0[entry]
    }

    /// Returns what is known of unit `entry` of the bucket; the oldest is 0.
    #[inline(always)]
    pub fn entry(&self, entry: usize) -> Entry {
        let prints = self.unit_prints(entry);
        let live = !equal_prints(prints, 0) as u16 & SLOTS;
        Entry { unit: unit_of(prints), live }
    }

    /// Returns the live slots that have this fingerprint, those of the oldest unit first.
    #[inline(always)]
    pub fn candidates(&self, fingerprint: u16) -> Candidates<'t, P> {
        self.candidates_by(fingerprint, self.shape.at_once)
    }

    /// As [`Bucket::candidates`], for code that is compiled for a kind of processor.
    #[inline(always)]
    pub fn candidates_by(&self, fingerprint: u16, at_once: Option<AtOnce>) -> Candidates<'t, P> {
        Candidates::new(self.lines(), fingerprint, at_once)
    }

    /// Returns the items of the D-bucket that have this fingerprint, of 16 from `first` on, as a
    /// mask.
    #[inline(always)]
    pub fn dram_candidates(&self, first: usize, fingerprint: u16) -> u32 {
        match equal_prints(self.prints(first), fingerprint) {
            0 => 0,
            equal => equal & ((1 << self.items().saturating_sub(first).min(LANES)) - 1),
        }
    }

    /// Returns whether [`Bucket::dram_candidates`] looks at all items at once.
    #[inline(always)]
    pub fn has_one_part(&self) -> bool {
        self.shape.most_items <= LANES
    }

    /// Returns the first items of the parts of the D-bucket that
    /// [`Bucket::dram_candidates`] looks at.
    #[inline(always)]
    pub fn dram_parts(&self) -> impl Iterator<Item = usize> + use<P> {
        (0..self.items()).step_by(LANES)
    }

    /// Returns the fingerprints that item `index` of the D-bucket is among.
    #[inline(always)]
    fn prints(&self, index: usize) -> &[P::AtomicU64; PRINT_WORDS] {
        match index / LANES {
            0 => &self.head.prints,
            part => &self.words[self.shape.prints..].as_chunks().0[part - 1],
        }
    }

    /// Returns the fingerprint of item `index` of the D-bucket.
    #[inline(always)]
    pub fn print(&self, index: usize) -> u16 {
        let (prints, lane) = (self.prints(index), index % LANES);
        lane_bits(lane).get(prints[lane / LANES_OF_WORD].load(Ordering::Relaxed)) as u16
    }

    // What follows changes the bucket: its sequence is odd.

    /// Adds an item with this hash to the D-bucket, which has room.
    pub fn push(&self, hash: u64, item: &Item, order: u64) {
        let index = self.items();
        assert!(index < self.shape.most_items, "the D-bucket has room");
        self.set_print(index, layout::fingerprint(hash));
        if index == 0 {
            self.store(self.shape.first_order, order);
        }
        self.set_items(index + 1);
        self.set_item(index, item, order);
    }

    fn set_counts(&self, counts: u64) {
        self.head.counts.store(counts, Ordering::Relaxed);
    }

    fn set_items(&self, items: usize) {
        self.set_counts(ITEMS.set(self.counts(), items as u64));
    }

    fn set_print(&self, index: usize, fingerprint: u16) {
        let (prints, lane) = (self.prints(index), index % LANES);
        set_lane(prints, lane, fingerprint);
    }

    /// Replaces item `index` of the D-bucket by one with the same key.
    pub fn set_item(&self, index: usize, item: &Item, order: u64) {
        let (first, words) = (self.item_index(index), self.shape.item_words);
        for (word, value) in item[..words].iter().enumerate() {
            self.store(first + word, *value);
        }
        self.set_order(index, order);
    }

    fn set_order(&self, index: usize, order: u64) {
        let (word, bits) = self.order_bits(index);
        let mut after = order.wrapping_sub(self.first_order());
        if after > MOST_AFTER {
            self.count_orders_anew(index, order);
            after = order.wrapping_sub(self.first_order());
        }
        self.store(word, bits.set(self.load(word), after));
    }

    /// Counts order numbers from the least of them on: that of `index` and those of the others.
    ///
    /// # Panics
    /// If they lie further apart than a lane of the log can be long.
    #[cold]
    fn count_orders_anew(&self, index: usize, order: u64) {
        let others: Vec<(usize, u64)> =
            (0..self.items()).filter(|it| *it != index).map(|it| (it, self.order(it))).collect();
        let first = others.iter().fold(order, |first, (_, order)| first.min(*order));
        self.store(self.shape.first_order, first);
        for (other, order) in others.into_iter().chain([(index, order)]) {
            let (word, bits) = self.order_bits(other);
            assert!(order - first <= MOST_AFTER, "the log holds all items of a D-bucket");
            self.store(word, bits.set(self.load(word), order - first));
        }
    }

    /// Removes item `index` of the D-bucket. Those behind it move up: of two items of a key the
    /// first one stays the first.
    pub fn remove(&self, index: usize) {
        let last = self.items() - 1;
        for place in index..last {
            let (item, order) = self.item(place + 1);
            self.set_print(place, self.print(place + 1));
            self.set_item(place, &item, order);
        }
        self.set_items(last);
    }

    /// Empties the D-bucket.
    pub fn clear_items(&self) {
        self.set_items(0);
    }

    /// Says what the units have absorbed.
    pub fn set_watermark(&self, order: u64) {
        self.store(self.shape.watermark, order);
    }

    /// Adds the newest unit, with the fingerprints of its slots.
    pub fn push_unit(&self, entry: Entry, fingerprints: &[u16]) {
        let units = self.units();
        assert!(units < self.shape.most_units, "the bucket may have another unit");
        let mut words = [0; PRINT_WORDS];
        let mut set = |lane: usize, value: u16| {
            let word = &mut words[lane / LANES_OF_WORD];
            *word = lane_bits(lane).set(*word, value.into());
        };
        for (slot, fingerprint) in fingerprints.iter().enumerate() {
            set(slot, if entry.live >> slot & 1 == 1 { *fingerprint } else { 0 });
        }
        set(LANES - 1, entry.unit as u16);
        for (print, word) in self.unit_prints(units).iter().zip(words) {
            print.store(word, Ordering::Relaxed);
        }
        self.set_counts(UNITS.set(self.counts(), units as u64 + 1));
    }

    /// Says that a slot of unit `entry` is not live any more.
    pub fn end(&self, entry: usize, slot: u64) {
        set_lane(self.unit_prints(entry), slot as usize, 0);
    }

    /// Says that no slot of unit `entry` is live any more.
    pub fn end_all(&self, entry: usize) {
        (0..MOST_SLOTS).for_each(|slot| self.end(entry, slot));
    }

    /// Forgets all units and items.
    pub fn reset(&self, watermark: u64) {
        for word in &self.words[..self.units() * PRINT_WORDS] {
            word.store(0, Ordering::Relaxed);
        }
        self.set_counts(0);
        self.store(self.shape.watermark, watermark);
    }
}

fn set_lane(prints: &[impl AtomicWord; PRINT_WORDS], lane: usize, value: u16) {
    let word = &prints[lane / LANES_OF_WORD];
    let value = lane_bits(lane).set(word.load(Ordering::Relaxed), value.into());
    word.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use everhash_index::Form;
    use everhash_pmem::Std;

    use super::super::DramTable;
    use super::*;
    use crate::elimda::ElimDaSettings;

    #[test]
    fn order_numbers_stay_what_they_are_however_far_a_lane_goes_on() {
        // Fails if numbers are cut to half a word, or counted from one that is higher.
        let geometry = ElimDaSettings::tiny().geometry(Form::WORDS).unwrap();
        let table = DramTable::<Std>::new(geometry);
        table.add_extent(0);
        let bucket = table.segment(0).bucket(0);
        let orders = || (0..bucket.items()).map(|index| bucket.item(index).1).collect::<Vec<_>>();
        let (early, late) = (1 << 40, (1 << 40) + MOST_AFTER);
        bucket.push(1, &[1; 4], early);
        bucket.push(2, &[2; 4], late);
        assert_eq!(orders(), [early, late]);
        bucket.remove(0);
        bucket.push(3, &[3; 4], late + 5);
        assert_eq!(orders(), [late, late + 5]);
        bucket.set_item(1, &[3; 4], late - 7);
        assert_eq!(orders(), [late, late - 7]);
        bucket.clear_items();
        bucket.push(4, &[4; 4], 9);
        assert_eq!((orders(), bucket.item(0).0[0]), (vec![9], 4));
    }
}
