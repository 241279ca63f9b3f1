//! The head of a Dash bucket: lock, which slots are taken, fingerprints, and what overflowed.
//!
//! ```text
//!   word 0   | 0 lock (top bit) and version | 32 guests, a bit a slot | 46 taken, a bit a slot |
//!   bytes of words 1 to 3
//!            0 fingerprints | 14 those of overflowed pairs | 18 which of these are in use, and
//!            whether any pair overflowed | 19 their stash buckets | 20 guests | 21 uncounted pairs
//! ```
//!
//! A guest is a pair whose home is the bucket before.

use everhash_pmem::{Access, Addr, Media, Result, Site};

/// Slots of a bucket. Source: Dash 4.1.
pub const SLOTS: u32 = 14;

/// The mask of all slots.
const ALL: u64 = (1 << SLOTS) - 1;

const LOCK: u64 = 1 << 31;
const VERSION: u64 = LOCK - 1;
const GUESTS: u32 = 32;
const TAKEN: u32 = GUESTS + SLOTS;

/// Fingerprints of overflowed pairs that a head has room for. Source: Dash 4.3.
const OVERFLOWS: usize = 4;

/// Where each part lies in the bytes.
const OVERFLOWED: usize = SLOTS as usize;
const IN_USE: usize = OVERFLOWED + OVERFLOWS;
const STASHES: usize = IN_USE + 1;
const OVERFLOW_GUESTS: usize = IN_USE + 2;
const UNCOUNTED: usize = IN_USE + 3;

/// The bit of [`IN_USE`] that sends a search to the stash.
const ANY: u8 = 1 << 7;

/// A head.
#[derive(Clone, Copy, Default)]
pub struct Head([u64; 4]);

impl Head {
    pub fn read<M: Media>(pm: &Access<'_, M>, bucket: Addr) -> Result<Head> {
        let mut words = [0; 4];
        pm.read_words(bucket, &mut words)?;
        Ok(Head(words))
    }

    /// Stores the words that differ from those on the medium, the slots' bits last.
    pub fn write<M: Media>(
        &self,
        pm: &Access<'_, M>,
        bucket: Addr,
        before: &Head,
        site: Site,
    ) -> Result<()> {
        for word in [1, 2, 3, 0] {
            if self.0[word] != before.0[word] {
                pm.commit_word(bucket.plus(word as u64), self.0[word], site)?;
            }
        }
        Ok(())
    }

    /// Returns the first word of the head with its lock taken.
    pub const fn locked(word: u64) -> u64 {
        word | LOCK
    }

    /// Releases the lock, if it is taken, with the next version.
    pub const fn release(&mut self) {
        if self.is_locked() {
            self.0[0] = self.0[0] & !(LOCK | VERSION) | (self.0[0] + 1) & VERSION;
        }
    }

    pub const fn is_locked(&self) -> bool {
        self.0[0] & LOCK != 0
    }

    pub const fn taken(&self) -> u64 {
        self.0[0] >> TAKEN & ALL
    }

    /// Returns the slots with pairs whose home is this bucket.
    pub const fn own(&self) -> u64 {
        self.taken() & !self.guests()
    }

    /// Returns the slots with pairs whose home is the bucket before.
    pub const fn guests(&self) -> u64 {
        self.0[0] >> GUESTS & ALL
    }

    pub const fn count(&self) -> u32 {
        self.taken().count_ones()
    }

    pub const fn is_full(&self) -> bool {
        self.count() == SLOTS
    }

    pub const fn free_slot(&self) -> u32 {
        (!self.taken()).trailing_zeros()
    }

    const fn byte(&self, index: usize) -> u8 {
        (self.0[1 + index / 8] >> (index % 8 * 8)) as u8
    }

    const fn set_byte(&mut self, index: usize, byte: u8) {
        let shift = index % 8 * 8;
        let word = &mut self.0[1 + index / 8];
        *word = *word & !(0xff << shift) | (byte as u64) << shift;
    }

    pub const fn print(&self, slot: u32) -> u8 {
        self.byte(slot as usize)
    }

    /// Returns the slots whose fingerprints are equal to `print`.
    pub fn matching(&self, print: u8) -> u64 {
        (0..SLOTS)
            .filter(|slot| self.print(*slot) == print)
            .fold(0, |slots, slot| slots | 1 << slot)
    }

    pub const fn fill(&mut self, slot: u32, print: u8, is_guest: bool) {
        self.set_byte(slot as usize, print);
        self.0[0] |= 1 << (TAKEN + slot) | (is_guest as u64) << (GUESTS + slot);
    }

    pub const fn clear(&mut self, slots: u64) {
        self.0[0] &= !(slots << TAKEN | slots << GUESTS);
    }

    /// Notes a pair that went to a stash bucket; false if there is no room for its fingerprint.
    pub fn note_overflow(&mut self, print: u8, stash: u64, is_guest: bool) -> bool {
        let in_use = self.byte(IN_USE);
        let Some(index) = (0..OVERFLOWS).find(|index| in_use >> index & 1 == 0) else {
            return false;
        };
        self.set_byte(OVERFLOWED + index, print);
        self.set_byte(IN_USE, in_use | 1 << index);
        let stashes = self.byte(STASHES) & !(3 << (2 * index));
        self.set_byte(STASHES, stashes | (stash as u8) << (2 * index));
        let guests = self.byte(OVERFLOW_GUESTS) & !(1 << index);
        self.set_byte(OVERFLOW_GUESTS, guests | u8::from(is_guest) << index);
        true
    }

    /// Takes such a note back; false if there is none.
    pub fn forget_overflow(&mut self, print: u8, stash: u64, is_guest: bool) -> bool {
        let known = self.overflows(print, is_guest).find(|(_, known)| *known == stash);
        let Some((index, _)) = known else { return false };
        self.set_byte(IN_USE, self.byte(IN_USE) & !(1 << index));
        true
    }

    pub const fn forget_all(&mut self) {
        self.set_byte(IN_USE, 0);
        self.set_byte(UNCOUNTED, 0);
    }

    /// Returns index and stash bucket of each overflowed pair with a fingerprint.
    pub fn overflows(&self, print: u8, is_guest: bool) -> impl Iterator<Item = (usize, u64)> {
        let head = *self;
        let bit = move |byte: usize, index: usize| head.byte(byte) >> index & 1 == 1;
        (0..OVERFLOWS)
            .filter(move |index| {
                bit(IN_USE, *index)
                    && bit(OVERFLOW_GUESTS, *index) == is_guest
                    && head.byte(OVERFLOWED + index) == print
            })
            .map(move |index| (index, u64::from(head.byte(STASHES) >> (2 * index) & 3)))
    }

    /// Returns the overflowed pairs of which no head has a fingerprint.
    pub const fn uncounted(&self) -> u8 {
        self.byte(UNCOUNTED)
    }

    pub const fn set_uncounted(&mut self, count: u8) {
        self.set_byte(UNCOUNTED, count);
    }

    /// Returns whether a pair of this bucket may lie in the stash.
    pub const fn may_overflow(&self) -> bool {
        self.byte(IN_USE) & ANY != 0
    }

    pub const fn set_may_overflow(&mut self) {
        self.set_byte(IN_USE, self.byte(IN_USE) | ANY);
    }
}
