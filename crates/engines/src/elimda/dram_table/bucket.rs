//! A bucket of the DRAM table: its D-bucket, and what is known of its units.

use core::sync::atomic::Ordering;

use everhash_pmem::{AtOnce, AtomicWord, Bits, Primitives, equal_bytes};

use super::candidates::Candidates;
use crate::elimda::concurrency::BucketLock;
use crate::elimda::form::Item;
use crate::elimda::layout::{self, Geometry, LINE_WORDS, MOST_SLOTS};

/// A bucket in DRAM: its head, and behind lines of words: the live bits of all units and a
/// watermark; the high bytes of the fingerprints of the units; the low bytes; the items of the
/// D-bucket, half a word for the order number of each, and the fingerprints of those behind the
/// sixteenth.
///
/// A search reads the head, the high bytes of the units that there are, and little else.
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
    /// What the order numbers of the items are counted from.
    first_order: P::AtomicU64,
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
            first_order: zero(),
            prints: core::array::from_fn(|_| zero()),
        }
    }
}

/// Where the parts of a bucket lie.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Buckets of a segment.
    pub buckets: usize,
    /// The watermark, behind the live bits of the units.
    watermark: usize,
    /// The high bytes of the fingerprints of the units.
    high: usize,
    /// The low bytes.
    low: usize,
    /// The items of the D-bucket.
    items: usize,
    /// Their order numbers.
    orders: usize,
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
    /// Whether the processor compares a line at once.
    at_once: Option<AtOnce>,
}

impl Shape {
    /// Returns the shape of the buckets of a table.
    pub fn of(geometry: &Geometry) -> Shape {
        let (item_words, most_items) = (geometry.item_words as usize, geometry.dram_slots());
        let (most_items, most_units) = (most_items as usize, geometry.bucket_units as usize);
        let line = LINE_WORDS as usize;
        let watermark = most_units.div_ceil(LIVES);
        let high = (watermark + 1).next_multiple_of(line);
        let low = high + most_units.next_multiple_of(LIVES) * PLANE_WORDS;
        let items = low + most_units * PLANE_WORDS;
        let orders = items + most_items * item_words;
        let prints = orders + most_items.div_ceil(ORDERS);
        let words = prints + most_items.saturating_sub(1) / PLANE * PRINT_WORDS;
        Shape {
            buckets: geometry.buckets as usize,
            watermark,
            high,
            low,
            items,
            orders,
            prints,
            words: words.next_multiple_of(line),
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

/// Fingerprints whose bytes share a plane. Units use 15; the last bytes of both planes hold the
/// index of the unit.
pub const PLANE: usize = 16;

/// Words of a plane.
const PLANE_WORDS: usize = 2;

/// Words of both planes.
const PRINT_WORDS: usize = 2 * PLANE_WORDS;

/// Units whose live bits share a word, and the high bytes of whose fingerprints a line.
pub const LIVES: usize = 4;

/// Items whose order numbers share a word.
const ORDERS: usize = 2;

/// How far the order numbers of a D-bucket may lie apart.
const MOST_AFTER: u64 = u32::MAX as u64;

const LAST_BYTE: Bits = Bits::new(56, 8);

/// The slots of the units of a line, 16 bits for each: no unit has a slot 15, where its index lies.
const SLOTS_OF_LINE: u64 = 0x7fff_7fff_7fff_7fff;

impl<'t, P: Primitives> Bucket<'t, P> {
    /// Returns the bucket with this head and these words.
    #[inline(always)]
    pub fn of(shape: &'t Shape, head: &'t BucketHead<P>, words: &'t [P::AtomicU64]) -> Self {
        Bucket { shape, head, words }
    }

    /// Asks for the lines that a search begins with, whether they are in use or not.
    #[inline(always)]
    pub fn prefetch(&self) {
        let words = &self.words[..self.shape.low];
        everhash_pmem::prefetch(self.head);
        for line in words.as_chunks::<{ LINE_WORDS as usize }>().0 {
            everhash_pmem::prefetch(line);
        }
    }

    /// Asks for the line of its head.
    #[inline(always)]
    pub fn prefetch_head(&self) {
        everhash_pmem::prefetch(self.head);
    }

    /// Asks for the lines of high bytes that are in use: its head says how many they are.
    #[inline(always)]
    pub fn prefetch_in_use(&self) {
        let lines = self.high_lines();
        let in_use = self.units().div_ceil(LIVES).min(lines.len());
        lines[..in_use].iter().for_each(everhash_pmem::prefetch);
    }

    /// Asks for a line of low bytes.
    #[inline(always)]
    pub fn prefetch_low(&self, line: usize) {
        if let Some(word) = self.words.get(self.shape.low + line * LIVES * PLANE_WORDS) {
            everhash_pmem::prefetch(word);
        }
    }

    /// Returns the high bytes of the fingerprints of the units, four units a line.
    #[inline(always)]
    fn high_lines(&self) -> &'t [[P::AtomicU64; LINE_WORDS as usize]] {
        self.words[self.shape.high..].as_chunks().0
    }

    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn load_plane(&self, index: usize) -> [u64; PLANE_WORDS] {
        let words = &self.words[index..][..PLANE_WORDS];
        [0, 1].map(|word| words[word].load(Ordering::Relaxed))
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
        self.head.first_order.load(Ordering::Relaxed)
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

    /// Returns where the live bits of a unit lie.
    #[inline(always)]
    fn live_bits(&self, entry: usize) -> (usize, Bits) {
        (entry / LIVES, Bits::new((entry % LIVES * 16) as u32, 16))
    }

    #[inline(always)]
    fn live(&self, entry: usize) -> u16 {
        let (index, bits) = self.live_bits(entry);
        bits.get(self.load(index)) as u16
    }

    /// Returns where the high bytes of the fingerprints of a unit lie, and where the low ones.
    #[inline(always)]
    fn planes(&self, entry: usize) -> [usize; 2] {
        [self.shape.high, self.shape.low].map(|first| first + entry * PLANE_WORDS)
    }

    /// Returns the low bytes of the fingerprints of a unit.
    #[inline(always)]
    pub fn low_bytes(&self, entry: usize) -> [u64; PLANE_WORDS] {
        self.load_plane(self.planes(entry)[1])
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

    /// Returns what is known of unit `entry` of the bucket; the oldest is 0.
    #[inline(always)]
    pub fn entry(&self, entry: usize) -> Entry {
        let [high, low] =
            self.planes(entry).map(|first| LAST_BYTE.get(self.load(first + PLANE_WORDS - 1)));
        Entry { unit: high << 8 | low, live: self.live(entry) }
    }

    /// Returns whether a slot of a unit is live. The answer lies in another line than what a search
    /// reads before, and nearly always is yes: a search branches on it and makes no address of it,
    /// so that the processor goes on before it is there.
    #[inline(always)]
    pub fn is_live(&self, entry: usize, slot: u64) -> bool {
        self.live(entry) >> slot & 1 == 1
    }

    /// Asks for the live bits of a unit.
    #[inline(always)]
    pub fn prefetch_live(&self, entry: usize) {
        everhash_pmem::prefetch(&self.words[entry / LIVES]);
    }

    /// Returns the units of which a slot has this fingerprint.
    #[inline(always)]
    pub fn candidates(&self, fingerprint: u16) -> Candidates<'t, P> {
        self.candidates_by(fingerprint, self.shape.at_once)
    }

    /// As [`Bucket::candidates`], for code that is compiled for a kind of processor.
    #[inline(always)]
    pub fn candidates_by(&self, fingerprint: u16, at_once: Option<AtOnce>) -> Candidates<'t, P> {
        Candidates::new(*self, fingerprint, at_once)
    }

    /// Returns the slots of the units of a line whose high byte is this one: 16 bits for each.
    #[inline(always)]
    pub fn with_high(&self, line: usize, units: usize, high: u8, at_once: Option<AtOnce>) -> u64 {
        let equal = P::equal_bytes_of_line(&self.high_lines()[line], high, at_once);
        let left = units - line * LIVES;
        let counted = if left < LIVES { (1 << (left * PLANE)) - 1 } else { u64::MAX };
        equal & SLOTS_OF_LINE & counted
    }

    /// Returns the items of the D-bucket that have this fingerprint, of 16 from `first` on, as a
    /// mask.
    #[inline(always)]
    pub fn dram_candidates(&self, first: usize, fingerprint: u16) -> u32 {
        let [low, high] = fingerprint.to_le_bytes();
        let planes = self.prints(first);
        let plane = |at: usize| [0, 1].map(|word| planes[at + word].load(Ordering::Relaxed));
        let equal = match equal_bytes(&plane(0), high) {
            0 => return 0,
            equal => equal & equal_bytes(&plane(PLANE_WORDS), low),
        };
        let items = self.items().saturating_sub(first).min(PLANE);
        equal & ((1 << items) - 1)
    }

    /// Returns whether [`Bucket::dram_candidates`] looks at all items at once.
    #[inline(always)]
    pub fn has_one_part(&self) -> bool {
        self.shape.most_items <= PLANE
    }

    /// Returns the first items of the parts of the D-bucket that
    /// [`Bucket::dram_candidates`] looks at.
    #[inline(always)]
    pub fn dram_parts(&self) -> impl Iterator<Item = usize> + use<P> {
        (0..self.items()).step_by(PLANE)
    }

    /// Returns the fingerprints that item `index` of the D-bucket is among: their high bytes, and
    /// the low ones.
    #[inline(always)]
    fn prints(&self, index: usize) -> &[P::AtomicU64; PRINT_WORDS] {
        match index / PLANE {
            0 => &self.head.prints,
            part => &self.words[self.shape.prints..].as_chunks().0[part - 1],
        }
    }

    /// Returns the fingerprint of item `index` of the D-bucket.
    #[inline(always)]
    pub fn print(&self, index: usize) -> u16 {
        let (planes, slot) = (self.prints(index), index % PLANE);
        let bits = Bits::new((slot % 8 * 8) as u32, 8);
        let [low, high] = [PLANE_WORDS, 0]
            .map(|plane| bits.get(planes[plane + slot / 8].load(Ordering::Relaxed)) as u8);
        u16::from_le_bytes([low, high])
    }

    // What follows changes the bucket: its sequence is odd.

    /// Adds an item with this hash to the D-bucket, which has room.
    pub fn push(&self, hash: u64, item: &Item, order: u64) {
        let index = self.items();
        assert!(index < self.shape.most_items, "the D-bucket has room");
        self.set_print(index, layout::fingerprint(hash));
        if index == 0 {
            self.head.first_order.store(order, Ordering::Relaxed);
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
        let (planes, slot) = (self.prints(index), index % PLANE);
        let bits = Bits::new((slot % 8 * 8) as u32, 8);
        let [low, high] = fingerprint.to_le_bytes();
        for (plane, byte) in [(0, high), (PLANE_WORDS, low)] {
            let word = &planes[plane + slot / 8];
            word.store(bits.set(word.load(Ordering::Relaxed), byte.into()), Ordering::Relaxed);
        }
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
        self.head.first_order.store(first, Ordering::Relaxed);
        for (other, order) in others.into_iter().chain([(index, order)]) {
            let (word, bits) = self.order_bits(other);
            assert!(order - first <= MOST_AFTER, "the log holds all items of a D-bucket");
            self.store(word, bits.set(self.load(word), order - first));
        }
    }

    /// Removes item `index` of the D-bucket; the last one takes its place.
    pub fn remove(&self, index: usize) {
        let last = self.items() - 1;
        let (item, order) = self.item(last);
        self.set_print(index, self.print(last));
        self.set_item(index, &item, order);
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
        for (first, plane) in self.planes(units).into_iter().zip(planes) {
            for (word, bytes) in plane.chunks(8).enumerate() {
                self.store(first + word, everhash_pmem::word_of(bytes));
            }
        }
        self.set_live(units, entry.live);
        self.set_counts(UNITS.set(self.counts(), units as u64 + 1));
    }

    /// Says which slots of unit `entry` are live.
    pub fn set_live(&self, entry: usize, live: u16) {
        let (index, bits) = self.live_bits(entry);
        self.store(index, bits.set(self.load(index), live.into()));
    }

    /// Forgets all units and items.
    pub fn reset(&self, watermark: u64) {
        self.set_counts(0);
        self.store(self.shape.watermark, watermark);
    }
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
