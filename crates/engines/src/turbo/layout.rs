//! Every byte of TurboHash on the medium.
//!
//! The root says how many shards there are and where their directory lies; a descriptor of the
//! directory says where the buckets of its shard lie. Structure words carry a check that is bound
//! to their place: a flipped bit is damage, never another answer.

mod bucket_words;
#[cfg(test)]
mod tests;

use everhash_pmem::{Addr, Bits, Ruler, WORD, pool};

pub use bucket_words::{Meta, check_index, check_of, is_sound, slot_check, slot_tag, with_slot};

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
        0  META   [1]  "valid, 14 bits | delete << 14 | seq << 28, 12 bits | \
                        check of live tags << 40, 12 bits | check << 52";
        8  TAGS   [2]  "14 bytes of hash, then the slot checks of slots 0 to 2";
        24 CHECKS [1]  "slot checks of slots 3 to 13; slot s from bit 48 + 5 s on, modulo 64";
        32 SLOTS  [28] "14 x (key, value), or 14 x (hash of the key, record word)";
    }
}

everhash_pmem::ruler! {
    /// A lane: a note of where a thread is writing. Never flushed: it serves the recovery after a
    /// killed process, which leaves every visible word.
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

/// Lines of a bucket.
///
/// Unit: lines. Source: TurboHash 3.3; a bucket is 256 bytes.
pub const BUCKET_LINES: u64 = (BUCKET_WORDS / LINE_WORDS) as u64;

/// Slots that lie wholly in the line of META.
///
/// Unit: slots. Source: the ruler of a bucket.
pub const SLOTS_BESIDE_META: usize = (LINE_WORDS - Bucket::SLOTS) / 2;

/// Slots that lie wholly in each other line of a bucket.
///
/// Unit: slots. Source: the ruler of a bucket.
pub const SLOTS_A_LINE: usize = LINE_WORDS / 2;

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
/// Of the bits of the shard those that decide only among more than 2^16 shards.
const LINE_BITS: Bits = Bits::new(8, 16);

/// A mask of the slots in the line of META.
///
/// Unit: a mask of bits. Source: the ruler of a bucket.
const BESIDE_META: u32 = (1 << SLOTS_BESIDE_META) - 1;

const SET_UNIT: Bits = Bits::new(0, 40);
const SET_LOG: Bits = Bits::new(40, 8);
const SET_CHECK: Bits = Bits::new(48, 16);

const VERSION_BYTE: Bits = Bits::new(0, 8);

/// The multipliers of all checks. No four neighbouring bits of them are equal, and they are odd:
/// therefore one flipped bit of a factor changes the five highest bits of the product, always. Two
/// flipped bits, and any damage to one byte, change the twelve highest bits.
///
/// Source: ours; drawn at random until they had both properties.
const MIX: [u64; 2] = [0xcb2d_ce9b_1cca_c475, 0x38ba_a269_a93a_e547];

/// The kinds of checked words: one of another kind does not match its check. Each is its name in
/// letters.
#[derive(Clone, Copy)]
enum Kind {
    Set = 0x7365_7420,
    Version = 0x7665_7273,
    Items = 0x6974_656d,
}

/// Returns a product of `word` and a place whose highest bits are a check.
#[inline(always)]
const fn mix(word: u64, place: u64, kind: Kind) -> u64 {
    (word ^ (place ^ (kind as u64) << 32).wrapping_mul(MIX[1])).wrapping_mul(MIX[0])
}

/// Returns the tag of a hash: one byte.
#[inline(always)]
pub const fn tag_of(hash: u64) -> u8 {
    TAG_BITS.get(hash) as u8
}

/// Returns the index of the shard of a hash.
#[inline(always)]
pub const fn shard_of(hash: u64, shards: u64) -> u64 {
    (shard_bits_of(hash) as u64).wrapping_mul(shards) >> 32
}

/// Returns the bits of a hash that choose a shard.
#[inline(always)]
pub const fn shard_bits_of(hash: u64) -> u32 {
    SHARD_BITS.get(hash) as u32
}

/// Returns the index of the home bucket of a hash in a shard of 2^`log` buckets: its highest bits,
/// so that the keys of bucket i go to 2i and 2i + 1 when the shard doubles (TurboHash 4.7).
#[inline(always)]
pub const fn home_of(hash: u64, log: u32) -> u64 {
    // A shift by 64 is none: two shifts are one for every `log`.
    (hash >> 1) >> (63 - log)
}

/// Returns the line of a bucket, 1 to 3, in which a pair of a hash lies if there is room: a get
/// fetches it together with the line of META, before that says in which slot the pair is.
///
/// Any other slot is as good for the format. The bits are those that choose a shard last, so that
/// the keys of a shard, a bucket or a tag spread over all three lines.
#[inline(always)]
pub const fn line_of(hash: u64) -> u64 {
    1 + ((LINE_BITS.get(hash) * 3) >> 16)
}

/// Returns the index of a word in the line [`line_of`] a bucket: any, for a hint.
#[inline(always)]
pub const fn near_word(hash: u64) -> usize {
    // As there, with the bits that say which word of the line.
    LINE_WORDS + ((LINE_BITS.get(hash) * 3) >> (16 - LINE_WORDS.trailing_zeros())) as usize
}

/// Returns a mask of the slots for which a get of a hash fetches no further line.
#[inline(always)]
pub const fn near_slots(hash: u64) -> u32 {
    let first = SLOTS_BESIDE_META as u64 + SLOTS_A_LINE as u64 * (line_of(hash) - 1);
    BESIDE_META | ((1 << SLOTS_A_LINE) - 1) << first
}

/// Returns the slot that a pair of a hash takes among `free` ones, a mask: one beside META, which
/// every search fetches and which is flushed with META, else one of its line, else any.
#[inline(always)]
pub const fn choose_slot(free: u32, hash: u64) -> Option<usize> {
    let near = free & near_slots(hash);
    let slot = if near != 0 { near.trailing_zeros() } else { free.trailing_zeros() };
    if free != 0 { Some(slot as usize) } else { None }
}

/// The bits of a byte's address that say where in its bucket it lies.
///
/// Unit: a mask of bits. Source: the ruler of a bucket.
const LOW_BYTE: u64 = Bucket::BYTES as u64 - 1;

/// How far a hash is shifted so that its bits stand where the index of the only bucket would: by
/// one less for each doubling.
///
/// Unit: bits. Source: a bucket has 2^8 bytes.
const HOME_SHIFT: u32 = u64::BITS - LOW_BYTE.count_ones();

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

    /// Returns the place in one word of DRAM: the start is a multiple of 256, and in its low byte
    /// stands what [`Place::home_byte`] shifts by.
    #[inline(always)]
    pub const fn packed(self) -> u64 {
        self.start.byte() | (HOME_SHIFT - self.log) as u64
    }

    /// Returns the place in a word that [`Place::packed`] made.
    #[inline(always)]
    pub const fn of_packed(word: u64) -> Place {
        Place { start: Addr::new(word & !LOW_BYTE), log: HOME_SHIFT - (word & LOW_BYTE) as u32 }
    }

    /// Returns a byte in the home bucket of a hash, in the shard whose place is `packed`.
    #[inline(always)]
    pub const fn home_byte(packed: u64, hash: u64) -> u64 {
        // The bits of the hash below the index of the bucket become a place in the bucket.
        (packed & !LOW_BYTE).wrapping_add(hash.wrapping_shr(packed as u32))
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
    pub const fn encode(self, at: Addr) -> u64 {
        SET_CHECK.set(self.word(), mix(self.word(), at.word(), Kind::Set) >> 48)
    }

    /// Returns the place in `word`, which was read at `at`, or `None` if no engine stored it there.
    pub const fn decode(word: u64, at: Addr) -> Option<Place> {
        let place = Place::of_word(word);
        let sound = place.log <= BUCKET_BITS && !place.start.is_null() && place.encode(at) == word;
        if sound { Some(place) } else { None }
    }
}

/// Returns the version word at `at` for a version byte.
pub const fn encode_version(version: u8, at: Addr) -> u64 {
    mix(version as u64, at.word(), Kind::Version) & !0xff | version as u64
}

/// Returns the version byte in `word`, which was read at `at`, or `None` if the check does not
/// match.
pub const fn decode_version(word: u64, at: Addr) -> Option<u8> {
    let version = VERSION_BYTE.get(word) as u8;
    if encode_version(version, at) == word { Some(version) } else { None }
}

/// Returns where the set lies that a version byte names, in the descriptor at `at`.
pub const fn set_at(at: Addr, version: u8) -> Addr {
    at.plus((Descriptor::SETS + version as usize % 2) as u64)
}

/// Returns the check of a number of items.
pub const fn items_check(items: u64) -> u64 {
    mix(items, ROOT.word(), Kind::Items)
}

/// The words of a number of items and of its check where nobody could count them.
pub const NOT_COUNTED: [u64; 2] = [0, !items_check(0)];

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

const _: () = assert!(BUCKET_BITS + 8 + 32 == 64, "tag, shard and bucket share no bit");
const _: () = assert!(BUCKET_BITS <= HOME_SHIFT && HOME_SHIFT <= LOW_BYTE as u32);
const _: () = assert!(SLOTS_BESIDE_META == 2 && Bucket::BYTES == 4 * 64);
const _: () = assert!(SLOTS_BESIDE_META + 3 * SLOTS_A_LINE == SLOTS);
