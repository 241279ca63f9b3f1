//! A bucket of the DRAM table: its D-bucket, and what is known of its units.

use core::sync::atomic::Ordering;

use everhash_pmem::{AtOnce, AtomicWord, Bits, LINE, Primitives, WORD, equal_bytes};

use crate::elimda::form::Item;
use crate::elimda::layout::{self, Geometry, MOST_SLOTS};

/// The words of a bucket in DRAM: two counts, a watermark, an order number, the live bits of all
/// units, the fingerprints of the D-bucket, the high bytes of those of the units, the low bytes,
/// the items of the D-bucket, and half a word for the order number of each.
///
/// What nearly every search reads comes first: half as many lines as all fingerprints have.
pub struct Bucket<'t, P: Primitives> {
    shape: &'t Shape,
    words: &'t [P::AtomicU64],
}

/// Where the parts of a bucket lie.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The fingerprints of the D-bucket.
    prints: usize,
    /// The high bytes of those of the units.
    high: usize,
    /// The low bytes.
    low: usize,
    /// The items of the D-bucket.
    items: usize,
    /// Their order numbers.
    orders: usize,
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
        let prints = FIRST_LIVES + most_units.div_ceil(LIVES);
        let high = prints + most_items.div_ceil(PLANE) * PRINT_WORDS;
        let low = high + most_units.next_multiple_of(LIVES) * PLANE_WORDS;
        let items = low + most_units * PLANE_WORDS;
        let orders = items + most_items * item_words;
        let words = orders + most_items.div_ceil(ORDERS);
        let at_once = AtOnce::detect();
        Shape {
            prints,
            high,
            low,
            items,
            orders,
            words,
            item_words,
            most_items,
            most_units,
            at_once,
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

/// How many items and units there are.
const COUNTS: usize = 0;
const WATERMARK: usize = 1;
/// What the order numbers of the items are counted from.
const FIRST_ORDER: usize = 2;
const FIRST_LIVES: usize = 3;

const ITEMS: Bits = Bits::new(0, 32);
const UNITS: Bits = Bits::new(32, 32);

/// Fingerprints whose bytes share a plane. Units use 15; the last bytes of both planes hold the
/// index of the unit.
const PLANE: usize = 16;

/// Words of a plane.
const PLANE_WORDS: usize = 2;

/// Words of both planes.
const PRINT_WORDS: usize = 2 * PLANE_WORDS;

/// Units whose live bits share a word, and the high bytes of whose fingerprints a line.
const LIVES: usize = 4;

/// Items whose order numbers share a word.
const ORDERS: usize = 2;

/// How far the order numbers of a D-bucket may lie apart.
const MOST_AFTER: u64 = u32::MAX as u64;

const LAST_BYTE: Bits = Bits::new(56, 8);

/// The units of a bucket of which a live slot has a fingerprint.
struct Candidates<'b, P: Primitives> {
    bucket: &'b Bucket<'b, P>,
    units: usize,
    fingerprint: u16,
    /// The next line of high bytes.
    line: usize,
    /// Live slots of the line before whose high byte is equal, and that were not looked at.
    mask: u64,
}

impl<P: Primitives> Iterator for Candidates<'_, P> {
    type Item = (usize, u32);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, u32)> {
        let [low, high] = self.fingerprint.to_le_bytes();
        // Ends: each round takes a unit out of the mask, or the next line.
        loop {
            while self.mask == 0 {
                if self.line * LIVES >= self.units {
                    return None;
                }
                self.mask = self.bucket.live_with_high(self.line, self.units, high);
                self.line += 1;
            }
            // One unit in 17 has a high byte that is equal by chance.
            let place = self.mask.trailing_zeros() as usize / PLANE;
            let entry = (self.line - 1) * LIVES + place;
            let slots = (self.mask >> (place * PLANE)) as u32 & 0xffff;
            self.mask &= !(0xffff << (place * PLANE));
            let plane = self.bucket.load_plane(self.bucket.planes(entry)[1]);
            let slots = slots & equal_bytes(&plane, low);
            if slots != 0 {
                return Some((entry, slots));
            }
        }
    }
}

impl<'t, P: Primitives> Bucket<'t, P> {
    /// Returns bucket `index` of those in `words`.
    #[inline(always)]
    pub fn of(shape: &'t Shape, words: &'t [P::AtomicU64], index: usize) -> Self {
        Bucket { shape, words: &words[index * shape.words..][..shape.words] }
    }

    /// Asks for the lines that a search begins with.
    #[inline(always)]
    pub fn prefetch(&self) {
        let words = &self.words[..self.shape.low];
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
    fn load_plane(&self, index: usize) -> [u64; PLANE_WORDS] {
        [self.load(index), self.load(index + 1)]
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Returns how many items the D-bucket holds.
    #[inline(always)]
    pub fn items(&self) -> usize {
        ITEMS.get(self.load(COUNTS)) as usize
    }

    /// Returns whether the D-bucket has no room.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.items() == self.shape.most_items
    }

    /// Returns how many units the bucket has.
    #[inline(always)]
    pub fn units(&self) -> usize {
        UNITS.get(self.load(COUNTS)) as usize
    }

    /// Returns the order number of the last item that the units have absorbed.
    pub fn watermark(&self) -> u64 {
        self.load(WATERMARK)
    }

    #[inline(always)]
    fn item_index(&self, index: usize) -> usize {
        self.shape.items + index * self.shape.item_words
    }

    /// Returns where the order number of item `index` lies, less that of [`FIRST_ORDER`].
    #[inline(always)]
    fn order_bits(&self, index: usize) -> (usize, Bits) {
        (self.shape.orders + index / ORDERS, Bits::new((index % ORDERS * 32) as u32, 32))
    }

    #[inline(always)]
    fn order(&self, index: usize) -> u64 {
        let (word, bits) = self.order_bits(index);
        self.load(FIRST_ORDER).wrapping_add(bits.get(self.load(word)))
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

    /// Returns where the high bytes of the fingerprints of a unit lie, and where the low ones.
    #[inline(always)]
    fn planes(&self, entry: usize) -> [usize; 2] {
        [self.shape.high, self.shape.low].map(|first| first + entry * PLANE_WORDS)
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

    /// Returns the units of which a live slot has this fingerprint, the oldest first, each with
    /// these slots as a mask.
    #[inline(always)]
    pub fn candidates(&self, fingerprint: u16) -> impl Iterator<Item = (usize, u32)> {
        Candidates { bucket: self, units: self.units(), fingerprint, line: 0, mask: 0 }
    }

    /// Returns the live slots of the units of a line whose high byte is this one: 16 bits for each.
    ///
    /// No unit has a slot 15, where its index lies.
    #[inline(always)]
    fn live_with_high(&self, line: usize, units: usize, high: u8) -> u64 {
        let planes = &self.words[self.shape.high..].as_chunks().0[line];
        let equal = P::equal_bytes_of_line(planes, high, self.shape.at_once);
        let live = self.load(FIRST_LIVES + line);
        let left = units - line * LIVES;
        let counted = if left < LIVES { (1 << (left * PLANE)) - 1 } else { u64::MAX };
        equal & live & counted
    }

    /// Returns the items of the D-bucket that have this fingerprint, of 16 from `first` on, as a
    /// mask.
    #[inline(always)]
    pub fn dram_candidates(&self, first: usize, fingerprint: u16) -> u32 {
        let [low, high] = fingerprint.to_le_bytes();
        let at = self.print_index(first);
        let equal = match equal_bytes(&self.load_plane(at), high) {
            0 => return 0,
            equal => equal & equal_bytes(&self.load_plane(at + PLANE_WORDS), low),
        };
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
        self.shape.prints + index / PLANE * PRINT_WORDS
    }

    // What follows changes the bucket: its sequence is odd.

    /// Adds an item with this hash to the D-bucket, which has room.
    pub fn push(&self, hash: u64, item: &Item, order: u64) {
        let index = self.items();
        assert!(index < self.shape.most_items, "the D-bucket has room");
        self.set_print(index, layout::fingerprint(hash));
        if index == 0 {
            self.store(FIRST_ORDER, order);
        }
        self.set_items(index + 1);
        self.set_item(index, item, order);
    }

    fn set_items(&self, items: usize) {
        self.store(COUNTS, ITEMS.set(self.load(COUNTS), items as u64));
    }

    fn set_print(&self, index: usize, fingerprint: u16) {
        let (first, slot) = (self.print_index(index), index % PLANE);
        let [low, high] = fingerprint.to_le_bytes();
        for (plane, byte) in [(first, high), (first + PLANE_WORDS, low)] {
            let (word, bits) = (plane + slot / 8, Bits::new((slot % 8 * 8) as u32, 8));
            self.store(word, bits.set(self.load(word), byte.into()));
        }
    }

    fn print(&self, index: usize) -> u16 {
        let (first, slot) = (self.print_index(index), index % PLANE);
        let [low, high] = [first + PLANE_WORDS, first].map(|plane| {
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
        self.set_order(index, order);
    }

    fn set_order(&self, index: usize, order: u64) {
        let (word, bits) = self.order_bits(index);
        let mut after = order.wrapping_sub(self.load(FIRST_ORDER));
        if after > MOST_AFTER {
            self.count_orders_anew(index, order);
            after = order.wrapping_sub(self.load(FIRST_ORDER));
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
        self.store(FIRST_ORDER, first);
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
        for (first, plane) in self.planes(units).into_iter().zip(planes) {
            for (word, bytes) in plane.chunks(8).enumerate() {
                self.store(first + word, everhash_pmem::word_of(bytes));
            }
        }
        self.set_live(units, entry.live);
        self.store(COUNTS, UNITS.set(self.load(COUNTS), units as u64 + 1));
    }

    /// Says which slots of unit `entry` are live.
    pub fn set_live(&self, entry: usize, live: u16) {
        let (index, bits) = self.live_bits(entry);
        self.store(index, bits.set(self.load(index), live.into()));
    }

    /// Forgets all units and items.
    pub fn reset(&self, watermark: u64) {
        self.store(COUNTS, 0);
        self.store(WATERMARK, watermark);
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
        let bucket = table.bucket(table.prepare(0), 0);
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
