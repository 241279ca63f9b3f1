//! Every byte of TurboHash on the medium.
//!
//! The root says how many shards there are and where their directory lies; a descriptor of the
//! directory says where the buckets of its shard lie. Structure words carry a check that is bound
//! to their place: a flipped bit is damage, never another answer.

use everhash_pmem::{Addr, Bits, Ruler, WORD, pool};

// Parts of the format that other engines have too.
pub use crate::common::hash::KeyedHash;
pub use crate::common::record;

everhash_pmem::ruler! {
    /// The root, behind the pool's header. Its settings never change.
    pub struct Root [3584] {
        0   VERSION      [1] "layout version, 1";
        8   SHARDS       [1] "shards";
        16  BUCKETS      [1] "buckets of a new shard, a power of two";
        24  MAX_BUCKETS  [1] "buckets beyond which a shard does not grow, a power of two";
        32  SCOPE        [1] "buckets in which a key may lie, from its home on";
        40  BUCKET_SLOTS [1] "slots of a bucket that are used, the reserved one included";
        48  GC_PROBES    [1] "buckets of a search from which on deleted slots may be collected";
        56  PAGE_BYTES   [1] "page of the record heap, a power of two";
        64  LANES        [1] "lanes behind the directory";
        72  DIRECTORY    [1] "byte address of the descriptor of shard 0";
        80  CHECKSUM     [1] "XXH3-64 of the words before, seeded with their byte offset";
        88  SPARE        [5] "zero";
        128 ITEMS        [1] "pairs at the last clean close";
        136 ITEMS_CHECK  [1] "check of ITEMS";
        144 REST         [430] "zero";
    }
}

everhash_pmem::ruler! {
    /// The descriptor of a shard. The set in use says where the shard lies; the other one is
    /// written before the version byte turns to it (TurboHash 3.1).
    pub struct Descriptor [32] {
        0  VERSION [1] "version byte, its lowest bit names the set in use | check << 8";
        8  SETS    [2] "two sets: address / 256, 40 bits | log2 of the buckets << 40 | check << 48";
        24 SPARE   [1] "zero";
    }
}

everhash_pmem::ruler! {
    /// A bucket (TurboHash 3.3), a multiple of 256 bytes from the start of the medium. META is the
    /// commit point of every write: until it changes, what a slot holds is not there.
    pub struct Bucket [256] {
        0  META   [1]  "valid, 14 bits | delete << 14 | seq << 28, 28 bits | \
                        check of live tags << 56 | check << 60";
        8  TAGS   [2]  "14 bytes of hash, then the slot checks of slots 0 to 2";
        24 CHECKS [1]  "slot checks of slots 3 to 13; slot s from bit 48 + 5 s on, modulo 64";
        32 SLOTS  [28] "14 x (key, value), or 14 x (hash of the key, record word)";
    }
}

everhash_pmem::ruler! {
    /// A lane: a note of where a thread is writing. Never flushed: it serves the recovery from the
    /// end of a process, which leaves every visible word.
    pub struct Lane [64] {
        0 NOTE [1] "byte address of a bucket, or shard << 1 | 1 for all of its buckets; 0 = none";
        8 REST [7] "zero";
    }
}

/// Every record of this engine, for `docs/format.md`.
pub const RULERS: &[&Ruler] = &[&Root::RULER, &Descriptor::RULER, &Bucket::RULER, &Lane::RULER];

/// Where the root begins.
pub const ROOT: Addr = pool::ROOT;

/// Version of this layout.
///
/// Unit: none. Source: ours.
pub const VERSION: u64 = 1;

/// Slots of a bucket.
///
/// Unit: slots. Source: TurboHash 3.3.
pub const SLOTS: usize = 14;

/// Words of a bucket, as a type wants them.
///
/// Unit: words. Source: TurboHash 3.3.
pub const BUCKET_WORDS: usize = Bucket::WORDS;

/// Words of a line.
///
/// Unit: words. Source: x86.
pub const LINE_WORDS: usize = 8;

/// Slots that lie wholly in the line of META.
///
/// Unit: slots. Source: the ruler of a bucket.
pub const SLOTS_BESIDE_META: usize = (LINE_WORDS - Bucket::SLOTS) / 2;

/// Bits of the hash that choose a bucket inside its shard, at most.
///
/// Unit: bits. Source: ours; with the eight of the tag and the 32 of the shard they fill the hash.
pub const BUCKET_BITS: u32 = 24;

/// The most shards.
///
/// Unit: shards. Source: ours; 2^24 shards of 2^24 buckets hold 2^51 pairs, and 24 of 32 hash bits
/// spread them to within one part in 256.
pub const MOST_SHARDS: u64 = 1 << 24;

const TAG_BITS: Bits = Bits::new(0, 8);
const SHARD_BITS: Bits = Bits::new(8, 32);

const VALID: Bits = Bits::new(0, SLOTS as u32);
const DELETE: Bits = Bits::new(14, SLOTS as u32);
const SEQ: Bits = Bits::new(28, 28);
const TAGS_CHECK: Bits = Bits::new(56, META_CHECK_BITS);
const META_CHECK: Bits = Bits::new(60, META_CHECK_BITS);

const SET_UNIT: Bits = Bits::new(0, 40);
const SET_LOG: Bits = Bits::new(40, 8);
const SET_CHECK: Bits = Bits::new(48, 16);

const VERSION_BYTE: Bits = Bits::new(0, 8);

/// Bits of the check that META has of itself, and of the one of the tags.
///
/// Unit: bits. Source: ours; TurboHash 3.3 spends all of them on the sequence number.
const META_CHECK_BITS: u32 = 4;

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

/// The multipliers of all checks. No four neighbouring bits of them are equal, and they are odd:
/// therefore one flipped bit of a factor changes the five highest bits of the product, always.
///
/// Source: ours; drawn at random until they had the property.
const MIX: [u64; 2] = [0xb4d6_6a3a_4746_9a4d, 0x9638_92a7_6646_5d29];

/// What the first multiplier times this is, is 1 in its lowest four bits.
///
/// Unit: none. Source: ours; one step of Newton's method, from a number that is its own inverse
/// modulo 8.
const INVERSE: u64 = MIX[0].wrapping_mul(2u64.wrapping_sub(MIX[0].wrapping_mul(MIX[0])));

/// The kinds of checked words: one of another kind does not match its check. Each is its name in
/// letters.
#[derive(Clone, Copy)]
enum Kind {
    Pair = 0,
    Set = 0x7365_7420,
    Version = 0x7665_7273,
    Items = 0x6974_656d,
}

/// Returns a product of `word` and a place whose highest bits are a check.
#[inline(always)]
const fn mix(word: u64, place: u64, kind: Kind) -> u64 {
    (word ^ (place ^ (kind as u64) << 32).wrapping_mul(MIX[1])).wrapping_mul(MIX[0])
}

/// Returns a sum over a META word and its place whose four bits are zero for every sealed word.
#[inline(always)]
const fn own_sum(word: u64, at: Addr) -> u64 {
    (word ^ at.byte()).wrapping_mul(MIX[0]) >> (64 - META_CHECK_BITS)
}

/// Returns the tag of a hash: one byte.
#[inline(always)]
pub const fn tag_of(hash: u64) -> u8 {
    TAG_BITS.get(hash) as u8
}

/// Returns the index of the shard of a hash.
#[inline(always)]
pub const fn shard_of(hash: u64, shards: u64) -> u64 {
    SHARD_BITS.get(hash).wrapping_mul(shards) >> 32
}

/// Returns the index of the home bucket of a hash in a shard of 2^`log` buckets: its highest bits,
/// so that the keys of bucket i go to 2i and 2i + 1 when the shard doubles (TurboHash 4.7).
#[inline(always)]
pub const fn home_of(hash: u64, log: u32) -> u64 {
    // A shift by 64 is none: two shifts are one for every `log`.
    (hash >> 1) >> (63 - log)
}

/// Where the buckets of a shard lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The first bucket.
    pub start: Addr,
    /// Logarithm of the number of buckets, at most [`BUCKET_BITS`].
    pub log: u32,
}

impl Place {
    /// Returns the number of buckets.
    #[inline(always)]
    pub const fn buckets(self) -> u64 {
        1 << self.log
    }

    /// Returns the length. Unit: bytes.
    pub const fn bytes(self) -> u64 {
        self.buckets() * Bucket::BYTES as u64
    }

    /// Returns where bucket `index` lies.
    #[inline(always)]
    pub const fn bucket(self, index: u64) -> Addr {
        self.start.plus(index * BUCKET_WORDS as u64)
    }

    /// Returns the place in one word of DRAM (M14): the start is a multiple of 256.
    #[inline(always)]
    pub const fn packed(self) -> u64 {
        self.start.byte() | self.log as u64
    }

    /// Returns the place in a word that [`Place::packed`] made.
    #[inline(always)]
    pub const fn of_packed(word: u64) -> Place {
        Place { start: Addr::new(word & !(Bucket::BYTES as u64 - 1)), log: word as u8 as u32 }
    }

    /// Returns the place in one word.
    const fn word(self) -> u64 {
        SET_LOG.set(self.start.byte() / Bucket::BYTES as u64, self.log as u64)
    }

    /// Returns the place in a word that [`Place::word`] made.
    const fn of_word(word: u64) -> Place {
        let start = Addr::new(SET_UNIT.get(word) * Bucket::BYTES as u64);
        Place { start, log: SET_LOG.get(word) as u32 }
    }

    /// Returns the word for set `at` of a descriptor.
    pub const fn seal(self, at: Addr) -> u64 {
        SET_CHECK.set(self.word(), mix(self.word(), at.word(), Kind::Set) >> 48)
    }

    /// Returns the place in `word`, which was read at `at`, or `None` if no engine stored it there.
    pub const fn open(word: u64, at: Addr) -> Option<Place> {
        let place = Place::of_word(word);
        let sound = place.log <= BUCKET_BITS && !place.start.is_null() && place.seal(at) == word;
        if sound { Some(place) } else { None }
    }
}

/// Returns the version word at `at` for a version byte.
pub const fn seal_version(version: u8, at: Addr) -> u64 {
    mix(version as u64, at.word(), Kind::Version) & !0xff | version as u64
}

/// Returns the version byte in `word`, which was read at `at`, or `None` if the check does not
/// match.
pub const fn open_version(word: u64, at: Addr) -> Option<u8> {
    let version = VERSION_BYTE.get(word) as u8;
    if seal_version(version, at) == word { Some(version) } else { None }
}

/// Returns where the set lies that a version byte names, in the descriptor at `at`.
pub const fn set_at(at: Addr, version: u8) -> Addr {
    at.plus((Descriptor::SETS + version as usize % 2) as u64)
}

/// Returns the check of a number of items.
pub const fn items_check(items: u64) -> u64 {
    mix(items, ROOT.word(), Kind::Items)
}

/// Returns how long directory and lanes are. Unit: bytes; whole lines.
pub const fn directory_bytes(shards: u64, lanes: u64) -> u64 {
    (shards * Descriptor::BYTES as u64).next_multiple_of(64) + lanes * Lane::BYTES as u64
}

/// Returns where the descriptor of shard `shard` lies.
pub const fn descriptor_at(directory: Addr, shard: u64) -> Addr {
    directory.plus(shard * Descriptor::WORDS as u64)
}

/// Returns where lane `lane` lies, behind the directory of `shards` shards.
pub const fn lane_at(directory: Addr, shards: u64, lane: u64) -> Addr {
    directory.plus(directory_bytes(shards, lane) / WORD)
}

/// The contents of a META word, without its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(u64);

impl Meta {
    /// The META word of a bucket whose first `count` slots hold something.
    pub const fn first(count: u32) -> Meta {
        Meta(SEQ.set((1 << count) - 1, 1))
    }

    /// Returns the contents of `word`, which was read from the bucket at `at` beside `tags`, or
    /// `None` if no engine stored it there.
    #[inline(always)]
    pub const fn open(word: u64, tags: [u64; 2], at: Addr) -> Option<Meta> {
        let Some(meta) = Meta::peek(word, at) else { return None };
        // A sequence number of 0 was never stored.
        let sound = SEQ.get(word) != 0 && meta.delete() & !meta.valid() == 0;
        if sound && meta.covers(tags) {
            Some(Meta(TAGS_CHECK.set(META_CHECK.set(word, 0), 0)))
        } else {
            None
        }
    }

    /// As [`Meta::open`], without a look at the tags: enough for who has found a key, which proves
    /// its tag. Who has not found one asks [`Meta::covers`], too.
    #[inline(always)]
    pub const fn peek(word: u64, at: Addr) -> Option<Meta> {
        // Zero was never stored: a hole in the file, for example.
        if word != 0 && own_sum(word, at) == 0 { Some(Meta(word)) } else { None }
    }

    /// Returns whether a word that was read beside `tags` was stored beside them, as far as they
    /// belong to live slots.
    #[inline(always)]
    pub const fn covers(self, tags: [u64; 2]) -> bool {
        self.tags_sum(tags) == TAGS_CHECK.get(self.0)
    }

    /// Returns the word for the bucket at `at`, whose words of tags are `tags`.
    #[inline(always)]
    pub const fn seal(self, tags: [u64; 2], at: Addr) -> u64 {
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
        let live = self.live();
        let low = (tags[0] & bytes_of(live)).wrapping_mul(MIX[0]);
        let high = (tags[1] & bytes_of(live >> 8)).wrapping_mul(MIX[1]);
        (low ^ high) >> (64 - META_CHECK_BITS)
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
        VALID.get(self.0 & !(self.0 >> SLOTS)) as u32
    }

    /// Returns the number of writes, modulo 2^28, without 0.
    pub const fn seq(self) -> u64 {
        SEQ.get(self.0)
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
const fn bytes_of(mask: u32) -> u64 {
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
    let word = if slot < SLOTS_CHECKED_BESIDE_TAGS { words[1] } else { words[2] };
    word.rotate_right(check_shift(slot)) & SLOT_CHECKS
}

/// Returns whether a pair has the check of its slot in the words TAGS and CHECKS.
#[inline(always)]
pub const fn is_sound(pair: [u64; 2], words: [u64; 3], at: Addr, slot: usize) -> bool {
    let word = if slot < SLOTS_CHECKED_BESIDE_TAGS { words[1] } else { words[2] };
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

/// Returns the twelve-bit tag of a record word: a check over the slot, that is the hash of the key
/// and the record word without its tag.
pub const fn record_tag(hash: u64, record_word: u64) -> u16 {
    (mix(hash ^ (record_word & ((1 << 52) - 1)), 0, Kind::Pair) >> 52) as u16
}

const _: () = assert!(BUCKET_BITS + 8 + 32 == 64, "tag, shard and bucket share no bit");
const _: () = assert!(SLOTS_BESIDE_META == 2 && Bucket::BYTES == 4 * 64);

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Addr = Addr::new(256 * 12345);

    /// Numbers that look random, always the same.
    fn random(i: u64) -> u64 {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(i as u32)
    }

    #[test]
    fn every_flipped_bit_of_a_structure_word_is_noticed() {
        // Fails if one flipped bit could make another bucket, place, version or record word.
        for i in 0..20_000 {
            let at = Addr::new((random(i) >> 20) << 8);
            let tags = [random(i + 7), random(i + 8)];
            let valid = random(i + 9) as u32 & 0x3fff;
            let meta = Meta::first(0).next(valid, valid & random(i + 10) as u32);
            let word = meta.seal(tags, at);
            assert_eq!(Meta::open(word, tags, at), Some(meta));
            assert!((0..64).all(|bit| Meta::open(word ^ 1 << bit, tags, at).is_none()));
            for slot in 0..SLOTS {
                let mut other = tags;
                other[slot / 8] ^= 1 << (8 * (slot % 8) + i as usize % 8);
                let live = meta.live() >> slot & 1 == 1;
                assert_eq!(Meta::open(word, other, at).is_none(), live, "slot {slot}");
            }
            let place = Place { start: Addr::new((random(i) >> 24 | 1) << 8), log: i as u32 % 25 };
            let word = place.seal(AT);
            assert_eq!(Place::open(word, AT), Some(place));
            assert!((0..64).all(|bit| Place::open(word ^ 1 << bit, AT).is_none()));
            let word = seal_version(i as u8, at);
            assert_eq!(open_version(word, at), Some(i as u8));
            assert!((0..64).all(|bit| open_version(word ^ 1 << bit, at).is_none()));
            let tag = record_tag(tags[0], tags[1]);
            assert!((0..52).all(|bit| record_tag(tags[0], tags[1] ^ 1 << bit) != tag));
            assert!((0..64).all(|bit| record_tag(tags[0] ^ 1 << bit, tags[1]) != tag));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_pair_is_noticed_by_its_slot_check() {
        // Fails if the five bits miss a flip; bits that both words flip may cancel, one never does.
        for i in 0..20_000 {
            let (pair, slot) = ([random(i), random(i + 1)], i as usize % SLOTS);
            let check = check_of(pair, AT, slot);
            for bit in 0..64 {
                assert_ne!(check_of([pair[0] ^ 1 << bit, pair[1]], AT, slot), check);
                assert_ne!(check_of([pair[0], pair[1] ^ 1 << bit], AT, slot), check);
            }
        }
    }

    #[test]
    fn the_multipliers_keep_their_promise() {
        // Fails if one is replaced by a number whose checks can miss a flipped bit.
        for mix in MIX {
            assert!(mix % 2 == 1);
            for shift in 0..=60 {
                let window = (mix >> shift) & 0xf;
                assert!(window != 0 && window != 0xf, "four equal bits at {shift} of {mix:#x}");
            }
        }
    }

    #[test]
    fn a_hole_is_not_an_empty_bucket() {
        // Fails if zeros pass as a bucket: a hole in the file would lose keys silently.
        for i in 0..100_000 {
            assert_eq!(Meta::open(0, [0; 2], Addr::new(i * 256)), None);
            assert_eq!(Place::open(0, Addr::new(i * 8)), None);
        }
    }

    #[test]
    fn tags_and_checks_of_slots_lie_apart() {
        // Fails if two fields of a bucket's first line overlap.
        let mut words = [0; 3];
        for slot in 0..SLOTS {
            words = with_slot(words, slot, slot as u8 + 100, slot as u64 + 10);
        }
        for slot in 0..SLOTS {
            assert_eq!(slot_tag(words, slot), slot as u8 + 100);
            assert_eq!(slot_check(words, slot), slot as u64 + 10);
            let other = with_slot(words, slot, 7, 3);
            let same = (0..SLOTS).filter(|other_slot| *other_slot != slot);
            assert!(same.clone().all(|slot| slot_tag(other, slot) == slot as u8 + 100));
            assert!(same.clone().all(|slot| slot_check(other, slot) == slot as u64 + 10));
        }
        for mask in 0..256 {
            let bytes = (0..8).map(|bit| if mask >> bit & 1 == 1 { 0xff } else { 0 });
            let word = u64::from_le_bytes(bytes.collect::<Vec<u8>>().try_into().unwrap());
            assert_eq!(bytes_of(mask), word);
        }
    }

    #[test]
    fn a_bucket_splits_into_two_neighbours() {
        // Fails if a resize had to move keys anywhere else than to 2i and 2i + 1.
        for i in 0..1000 {
            for log in 0..BUCKET_BITS {
                assert_eq!(home_of(random(i), log + 1) / 2, home_of(random(i), log));
            }
            assert!(shard_of(random(i), 1000) < 1000);
            assert_eq!(home_of(random(i), 0), 0);
        }
    }

    #[test]
    fn the_sequence_number_wraps_past_zero() {
        // Fails if 2^28 writes to one bucket would make it look like a hole.
        let last = Meta(SEQ.set(0, SEQ.max()));
        assert_eq!(last.next(1, 0).seq(), 1);
    }
}
