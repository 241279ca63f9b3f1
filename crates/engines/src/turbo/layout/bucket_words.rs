//! The words of a bucket: META, the tags, and the check of each slot.

use everhash_pmem::{Addr, Bits};

use super::{MIX, SLOTS};

const VALID: Bits = Bits::new(0, SLOTS as u32);
const DELETE: Bits = Bits::new(14, SLOTS as u32);
pub(super) const SEQ: Bits = Bits::new(28, 12);
const TAGS_CHECK: Bits = Bits::new(TAGS_CHECK_SHIFT, META_CHECK_BITS);
const META_CHECK: Bits = Bits::new(52, META_CHECK_BITS);

/// Where the check of the tags begins.
///
/// Unit: bits. Source: ours; behind the sequence number.
const TAGS_CHECK_SHIFT: u32 = 40;

/// Bits of the check that META has of itself, and of the one of the tags.
///
/// Unit: bits. Source: ours; TurboHash 3.3 spends all of them on the sequence number. With twelve
/// bits there are multipliers that notice every damaged byte; other damage passes once in 4096
/// times.
const META_CHECK_BITS: u32 = 12;

/// Bits of a slot check.
///
/// Unit: bits. Source: ours; 14 of them fit into the ten bytes that TurboHash 3.3 leaves.
const SLOT_CHECK_BITS: u32 = 5;

/// Every bit of a slot check.
///
/// Unit: a mask of bits. Source: ours, see [`SLOT_CHECK_BITS`].
const SLOT_CHECKS: u64 = (1 << SLOT_CHECK_BITS) - 1;

/// Slots whose checks lie in the two bytes that the tags leave of their second word.
///
/// Unit: slots. Source: ours; three checks of five bits.
const SLOTS_CHECKED_BESIDE_TAGS: usize = 3;

/// The first multiplier times this number is 1 in the bits of a check.
///
/// Unit: none. Source: ours; Newton's method, from a number that is its own inverse modulo 8: each
/// step doubles the bits that are right, from 3 to 6 and 12.
const INVERSE: u64 = {
    let half = MIX[0].wrapping_mul(2u64.wrapping_sub(MIX[0].wrapping_mul(MIX[0])));
    half.wrapping_mul(2u64.wrapping_sub(MIX[0].wrapping_mul(half)))
};

/// Returns a sum over a META word and its place that is zero for every encoded word.
#[inline(always)]
const fn own_sum(word: u64, at: Addr) -> u64 {
    (word ^ at.byte()).wrapping_mul(MIX[0]) >> (64 - META_CHECK_BITS)
}

/// The contents of a META word, without its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(pub(super) u64);

impl Meta {
    /// The META word of a new bucket whose slots in the mask `valid` hold something.
    pub const fn first(valid: u32) -> Meta {
        Meta(SEQ.set(VALID.set(0, valid as u64), 1))
    }

    /// Returns the contents of `word`, which was read from the bucket at `at` beside `tags`, or
    /// `None` if no engine stored it there.
    #[inline(always)]
    pub const fn decode(word: u64, tags: [u64; 2], at: Addr) -> Option<Meta> {
        let Some(meta) = Meta::decode_unverified(word, at) else { return None };
        // A sequence number of 0 was never stored.
        let sound = SEQ.get(word) != 0 && meta.delete() & !meta.valid() == 0;
        if sound && meta.covers(tags) {
            Some(Meta(TAGS_CHECK.set(META_CHECK.set(word, 0), 0)))
        } else {
            None
        }
    }

    /// As [`Meta::decode`], without a look at the tags: enough for a search that finds its key,
    /// which proves the tag. Zero, which was never stored, may pass: it has no live slot. A search
    /// that finds none asks [`Meta::covers`], too.
    #[inline(always)]
    pub const fn decode_unverified(word: u64, at: Addr) -> Option<Meta> {
        if own_sum(word, at) == 0 { Some(Meta(word)) } else { None }
    }

    /// Returns whether a word that was read beside `tags` was stored beside them, as far as they
    /// belong to live slots. Zero was never stored: a hole in the file, for example.
    #[inline(always)]
    pub const fn covers(self, tags: [u64; 2]) -> bool {
        // The check of the word comes to the top, where that of the tags is made.
        let check = self.0 << (u64::BITS - META_CHECK_BITS - TAGS_CHECK_SHIFT);
        self.0 != 0 && (self.tags_product(tags) ^ check) >> (u64::BITS - META_CHECK_BITS) == 0
    }

    /// Returns the word for the bucket at `at`, whose words of tags are `tags`.
    #[inline(always)]
    pub const fn encode(self, tags: [u64; 2], at: Addr) -> u64 {
        let word = META_CHECK.set(TAGS_CHECK.set(self.0, self.tags_sum(tags)), 0);
        // What stands in the highest bits of a factor is added, times the other one, to the
        // highest bits of the product.
        let check = own_sum(word, at).wrapping_neg().wrapping_mul(INVERSE);
        META_CHECK.set(word, check & META_CHECK.max())
    }

    /// Returns the check of the tags of live slots: another one may be overwritten before a commit
    /// (TurboHash 3.4).
    #[inline(always)]
    const fn tags_sum(self, tags: [u64; 2]) -> u64 {
        self.tags_product(tags) >> (u64::BITS - META_CHECK_BITS)
    }

    /// Returns a number whose highest bits are the check of the tags.
    #[inline(always)]
    const fn tags_product(self, tags: [u64; 2]) -> u64 {
        let live = self.live();
        let low = (tags[0] & bytes_of(live)).wrapping_mul(MIX[0]);
        let high = (tags[1] & bytes_of(live >> 8)).wrapping_mul(MIX[1]);
        low ^ high
    }

    /// Returns the bitmap of slots that are not empty.
    #[inline(always)]
    pub const fn valid(self) -> u32 {
        VALID.get(self.0) as u32
    }

    /// Returns the bitmap of slots whose pair was deleted; each is valid.
    #[inline(always)]
    pub const fn delete(self) -> u32 {
        DELETE.get(self.0) as u32
    }

    /// Returns the bitmap of slots that hold a pair.
    #[inline(always)]
    pub const fn live(self) -> u32 {
        // Each deleted slot is valid.
        VALID.get(self.0 ^ self.0 >> SLOTS) as u32
    }

    /// Returns the number of writes, modulo 2^12, without 0.
    pub const fn seq(self) -> u64 {
        SEQ.get(self.0)
    }

    /// Returns whether the number of writes has wrapped around.
    #[inline(always)]
    pub const fn has_wrapped(self) -> bool {
        self.seq() == 1
    }

    /// Returns the number of slots that are not empty.
    #[inline(always)]
    pub const fn filled(self) -> u32 {
        self.valid().count_ones()
    }

    /// Returns the META word one write later, with these bitmaps.
    #[inline(always)]
    pub const fn next(self, valid: u32, delete: u32) -> Meta {
        let seq = if self.seq() == SEQ.max() { 1 } else { self.seq() + 1 };
        Meta(SEQ.set(DELETE.set(VALID.set(0, valid as u64), delete as u64), seq))
    }
}

/// Returns a word whose byte i is 255 where bit i of `mask` is 1, for the lowest eight bits.
#[inline(always)]
pub(super) const fn bytes_of(mask: u32) -> u64 {
    BYTES_OF[mask as u8 as usize]
}

/// What [`bytes_of`] returns: every get asks twice, and the arithmetic would take a dozen steps.
static BYTES_OF: [u64; 256] = {
    let mut words = [0; 256];
    let mut at = 0;
    while at < words.len() * 8 {
        if ((at / 8) >> (at % 8)) & 1 == 1 {
            words[at / 8] |= 0xff << (8 * (at % 8));
        }
        at += 1;
    }
    words
};

/// Returns the words TAGS and CHECKS of a bucket with the tag and the check of one slot replaced.
#[inline(always)]
pub const fn with_slot(words: [u64; 3], slot: usize, tag: u8, check: u64) -> [u64; 3] {
    let [mut low, mut high, mut checks] = words;
    let shift = 8 * (slot % 8);
    if slot < 8 {
        low = low & !(0xff << shift) | (tag as u64) << shift;
    } else {
        high = high & !(0xff << shift) | (tag as u64) << shift;
    }
    let shift = check_shift(slot);
    let (mask, check) = (SLOT_CHECKS.rotate_left(shift), check.rotate_left(shift));
    if slot < SLOTS_CHECKED_BESIDE_TAGS {
        high = high & !mask | check;
    } else {
        checks = checks & !mask | check;
    }
    [low, high, checks]
}

/// Returns the slot check of a slot in the words TAGS and CHECKS.
#[inline(always)]
pub const fn slot_check(words: [u64; 3], slot: usize) -> u64 {
    words[check_index(slot)].rotate_right(check_shift(slot)) & SLOT_CHECKS
}

/// Returns which of the words TAGS and CHECKS has the check of a slot.
#[inline(always)]
pub const fn check_index(slot: usize) -> usize {
    1 + (slot + 16 - SLOTS_CHECKED_BESIDE_TAGS) / 16
}

/// Returns whether a pair has the check of its slot, which lies in `word`.
#[inline(always)]
pub const fn is_sound(pair: [u64; 2], word: u64, at: Addr, slot: usize) -> bool {
    let top = word.rotate_right(check_shift(slot) + SLOT_CHECK_BITS);
    (pair_sum(pair, at, slot) ^ top) >> (64 - SLOT_CHECK_BITS) == 0
}

/// Returns a product whose highest bits are the check of a pair. One multiplication has to do: the
/// words are folded so that what differs often, the low bits, does not meet.
#[inline(always)]
const fn pair_sum(pair: [u64; 2], at: Addr, slot: usize) -> u64 {
    (pair[0] ^ pair[1].rotate_left(32) ^ (at.byte() + slot as u64)).wrapping_mul(MIX[0])
}

/// Returns the lowest bit of a slot check, modulo 64: one rule for both words, because a get that
/// waits for memory has no room for more.
#[inline(always)]
const fn check_shift(slot: usize) -> u32 {
    48 + SLOT_CHECK_BITS * slot as u32
}

/// Returns the tag of a slot in the words of tags.
pub const fn slot_tag(words: [u64; 3], slot: usize) -> u8 {
    (words[slot / 8] >> (8 * (slot % 8))) as u8
}

/// Returns the check of a pair in slot `slot` of the bucket at `at`.
#[inline(always)]
pub const fn check_of(pair: [u64; 2], at: Addr, slot: usize) -> u64 {
    pair_sum(pair, at, slot) >> (64 - SLOT_CHECK_BITS)
}
