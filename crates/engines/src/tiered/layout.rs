//! Every byte of Tiered Hashing on the medium.
//!
//! The root says where the layers lie. A layer is an array of buckets of two lines; a line holds
//! its pairs and, in its last word, their flags (Tiered Hashing 3.1, Fig. 6). Structure words carry
//! a check that is bound to their place: a flipped bit is damage, never another answer.

mod place;
#[cfg(test)]
mod tests;

use everhash_pmem::{Addr, Bits, LINE, Ruler, equal_lanes, pool};

pub use place::{Listed, Place, place_at};

// Parts of the format that other engines have too.
pub use crate::common::hash::KeyedHash;
pub use crate::common::record;

everhash_pmem::ruler! {
    /// The root, behind the pool's header. The settings never change; the list of layers grows.
    pub struct Root [3584] {
        0   VERSION         [1] "layout version, 3";
        8   LAYERS          [1] "layers of a table that does not grow, 2 to 4";
        16  RATIO_LOG       [1] "a layer has 2^n times the buckets of the one above: n";
        24  TOP_PAGES       [1] "pages of the first top layer, a power of two";
        32  PAGE_BYTES      [1] "page in which pairs are moved together, a power of two";
        40  LINE_SLOTS      [1] "slots of a line that are used, 1 to 3";
        48  GROW_PERCENT    [1] "load at which a layer is added";
        56  HEAP_PAGE_BYTES [1] "page of the record heap, a power of two";
        64  MOVEMENT        [1] "1 = opportunistic data movement";
        72  ONE_FLUSH       [1] "1 = moved pairs share the flush of the write that moves them";
        80  SHADOW_READING  [1] "1 = reads use the source of a moved pair";
        88  STREAMS         [1] "1 = a stream for each layer, 0 = one for all";
        96  FINGERPRINTS    [1] "1 = fingerprints of all slots in DRAM, 2 = of the upper layers";
        104 CHECKSUM        [1] "XXH3-64 of the words before, seeded with their byte offset";
        112 SPARE           [10] "zero";
        192 PLACES          [64] "where layer k lies, in the order in which layers were added";
        704 REST            [360] "zero";
    }
}

everhash_pmem::ruler! {
    /// A line: three slots, a link, and the flags of the slots. A bucket is two neighbouring lines,
    /// and those that the link of the second one leads to.
    pub struct Line [64] {
        0  SLOTS [6] "3 x (key, value), or 3 x (hash of the key, record word)";
        48 LINK  [1] "link to the next overflow line of the bucket";
        56 HEAD  [1] "3 x (readable, non-writable, deleted, second hash, 12 bits of hash), check";
    }
}

/// Every record of this engine, for `docs/format.md`.
pub const RULERS: &[&Ruler] = &[&Root::RULER, &Line::RULER, &record::RecordHead::RULER];

/// Where the root begins.
pub const ROOT: Addr = pool::ROOT;

/// Version of this layout.
///
/// Unit: none. Source: ours.
pub const VERSION: u64 = 3;

/// Slots of a line.
///
/// Unit: slots. Source: ours; the paper's pairs of 31 bytes leave room for two, ours of 16 for
/// three.
pub const SLOTS: usize = 3;

/// Words of a line, as a type wants them.
///
/// Unit: words. Source: x86.
pub const LINE_WORDS: usize = Line::WORDS;

/// Lines of a bucket without its overflow lines.
///
/// Unit: lines. Source: Tiered Hashing 3.1.
pub const BUCKET_LINES: u64 = 2;

/// A bucket without its overflow lines.
///
/// Unit: bytes. Source: Tiered Hashing 3.1.
pub const BUCKET_BYTES: u64 = BUCKET_LINES * LINE;

/// Words of a bucket without its overflow lines.
///
/// Unit: words. Source: Tiered Hashing 3.1.
pub const BUCKET_WORDS: usize = BUCKET_LINES as usize * LINE_WORDS;

/// The most layers that a table without growth can have.
///
/// Unit: layers. Source: Tiered Hashing 4.2.4.
pub const MOST_LAYERS: usize = 4;

/// The most layers at a time: one more while the top layer is drained.
///
/// Unit: layers. Source: Tiered Hashing 3.8.
pub const MOST_LIVE: usize = MOST_LAYERS + 1;

/// Layers that can ever be added: the root has room for so many places.
///
/// Unit: layers. Source: ours; each has twice the buckets of the one before, so all are never used.
pub const PLACES: usize = 64;

/// Logarithm of the most buckets of a layer.
///
/// Unit: bits. Source: ours; 2^40 buckets are 128 TiB.
pub const MOST_LOG: u32 = 40;

/// Logarithm of the most groups.
///
/// Unit: bits. Source: ours; 65,536 groups take 8 MiB of DRAM, and two threads rarely meet.
pub const MOST_GROUPS_LOG: u32 = 16;

/// The slot can be read.
///
/// Unit: bit mask. Source: Tiered Hashing 3.4, Table 1.
pub const READABLE: u16 = 1;

/// The slot must not be overwritten.
///
/// Unit: bit mask. Source: Tiered Hashing 3.4, Table 1.
pub const NON_WRITABLE: u16 = 2;

/// The slot is a tombstone: its key is deleted.
///
/// Unit: bit mask. Source: Tiered Hashing 3.5, Fig. 6.
pub const DELETED: u16 = 4;

/// The slot lies in the bucket of the second hash function.
///
/// Unit: bit mask. Source: ours; where both functions name one bucket, nothing else says it.
pub const SECOND: u16 = 8;

/// The flags of a slot; above them lies the fingerprint.
///
/// Unit: bit mask. Source: ours.
const FLAGS: u16 = 15;

/// Bits of a slot's state: four flags and the fingerprint.
///
/// Unit: bits. Source: ours.
const STATE_BITS: u32 = 16;

/// Bits of the states of all slots; above them lies the check of a head.
///
/// Unit: bits. Source: ours.
const STATES_BITS: u32 = SLOTS as u32 * STATE_BITS;

const HEAD_CHECK: Bits = Bits::new(STATES_BITS, 16);
const LINK_LINE: Bits = Bits::new(0, 48);
const LINK_CHECK: Bits = Bits::new(48, 16);

/// The multipliers of all checks, and of the second hash function: odd, and drawn at random until
/// one or two flipped bits of a factor change the twelve highest bits of the product, always.
///
/// Unit: none. Source: ours.
const MIX: [u64; 2] = [0xcb2d_ce9b_1cca_c475, 0x38ba_a269_a93a_e547];

/// The kinds of checked words: one of another kind does not match its check. Each is its name in
/// letters.
#[derive(Clone, Copy)]
enum Kind {
    Head = 0x6865_6164,
    Link = 0x6c69_6e6b,
    Place = 0x706c_6163,
}

/// Returns a product of `word` and a place whose sixteen highest bits are a check.
#[inline(always)]
const fn mix(word: u64, place: u64, kind: Kind) -> u64 {
    (word ^ salt(place, kind)).wrapping_mul(MIX[0])
}

/// Returns what the place of a word and its kind add to its check.
#[inline(always)]
const fn salt(place: u64, kind: Kind) -> u64 {
    (place ^ (kind as u64) << 32).wrapping_mul(MIX[1])
}

/// Returns where a hash function puts a key: the leading bits name its bucket in every layer, so
/// that a page of a layer has one ancestor page in each layer above.
#[inline(always)]
pub const fn position(hash: u64, second: bool) -> u64 {
    if second { (hash.rotate_left(32) ^ MIX[1]).wrapping_mul(MIX[0]) } else { hash }
}

/// Returns where both hash functions put a key.
#[inline(always)]
pub const fn positions(hash: u64) -> [u64; 2] {
    [position(hash, false), position(hash, true)]
}

/// Returns the bucket of a position in a layer of 2^`log` buckets.
#[inline(always)]
pub const fn bucket_of(position: u64, log: u32) -> u64 {
    // A shift by 64 is none: two shifts are one for every `log`.
    (position >> 1) >> (63 - log)
}

/// Returns the first position of a bucket in a layer of 2^`log` buckets.
pub const fn first_position(bucket: u64, log: u32) -> u64 {
    if log == 0 { 0 } else { bucket << (64 - log) }
}

/// Returns the fingerprint of a hash: twelve bits above the flags of a slot.
#[inline(always)]
pub const fn print_of(hash: u64) -> u16 {
    // Neither the leading bits, which name the bucket, nor the lowest, which lead the second
    // position.
    (hash >> 16) as u16 & !FLAGS
}

/// Returns the logarithm of the number of groups of a table whose top layer has so many pages.
pub const fn groups_log(top_pages: u64) -> u32 {
    let log = top_pages.ilog2();
    if log < MOST_GROUPS_LOG { log } else { MOST_GROUPS_LOG }
}

/// Returns the logarithm of the buckets of a page.
pub const fn page_log(page_bytes: u64) -> u32 {
    (page_bytes / BUCKET_BYTES).ilog2()
}

/// Returns the logarithm of the buckets of the layer that is added as number `index`: 2^n times the
/// one above at first (Tiered Hashing 3.1), and twice the one above when a table grows (3.8).
pub const fn layer_log(top_log: u32, layers: u64, ratio_log: u64, index: u64) -> u32 {
    let steep = if index < layers { index } else { layers - 1 };
    top_log + (steep * ratio_log) as u32 + (index - steep) as u32
}

/// The states of a line's slots, as its head has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head(u64);

impl Head {
    /// No slot holds anything.
    pub const EMPTY: Head = Head(0);

    /// Returns the head in `word`, which was read at the line `at`, or `None` if no engine stored
    /// it there.
    #[inline(always)]
    pub const fn decode(word: u64, at: Addr) -> Option<Head> {
        let (head, fault) = Head::with_fault(word, salt(at.word(), Kind::Head));
        if fault == 0 { Some(head) } else { None }
    }

    /// Returns the heads in two words, which were read at both lines of the bucket at `home`, and 0
    /// if an engine may have stored them there.
    #[inline(always)]
    pub const fn both_with_fault([first, second]: [u64; 2], home: Addr) -> ([Head; 2], u64) {
        let at = salt(home.word(), Kind::Head);
        // The words of a bucket begin at a multiple of their number: the bit of the second line is
        // not set in the first one's place.
        let behind = at.wrapping_add(MIX[1].wrapping_mul(LINE_WORDS as u64));
        let (first, second) = (Head::with_fault(first, at), Head::with_fault(second, behind));
        ([first.0, second.0], first.1 | second.1)
    }

    /// Returns the head in `word`, and 0 if an engine may have stored it where this salt holds.
    #[inline(always)]
    const fn with_fault(word: u64, salt: u64) -> (Head, u64) {
        let head = Head(HEAD_CHECK.set(word, 0));
        (head, ((head.0 ^ salt).wrapping_mul(MIX[0]) ^ word) >> STATES_BITS)
    }

    /// Returns the word for the line `at`.
    #[inline(always)]
    pub const fn encode(self, at: Addr) -> u64 {
        HEAD_CHECK.set(self.0, mix(self.0, at.word(), Kind::Head) >> STATES_BITS)
    }

    /// Returns the head in the lower 48 bits of a word of DRAM.
    #[inline(always)]
    pub const fn packed(self) -> u64 {
        self.0
    }

    /// Returns the head in a word that [`Head::packed`] made.
    #[inline(always)]
    pub const fn of_packed(word: u64) -> Head {
        Head(word)
    }

    /// Returns the state of a slot: flags and fingerprint; 0 if it is open.
    #[inline(always)]
    pub const fn state(self, slot: usize) -> u16 {
        (self.0 >> (slot as u32 * STATE_BITS)) as u16
    }

    /// Returns the head with another state of a slot.
    #[inline(always)]
    pub const fn with(self, slot: usize, state: u16) -> Head {
        let shift = slot as u32 * STATE_BITS;
        Head(self.0 & !((u16::MAX as u64) << shift) | (state as u64) << shift)
    }

    /// Returns the slots that can be read.
    #[inline(always)]
    pub const fn readable(self) -> Slots {
        Slots(self.0 & EACH)
    }

    /// Returns the slots that are valid: readable, and not free.
    #[inline(always)]
    pub const fn valid(self) -> Slots {
        Slots(self.0 & (self.0 >> NON_WRITABLE.ilog2()) & EACH)
    }

    /// Returns the slots that can be read and have a fingerprint.
    #[inline(always)]
    pub const fn matching(self, print: u16) -> Slots {
        let wanted = (print | READABLE) as u64 * EACH;
        let looked_at = (!FLAGS | READABLE) as u64 * EACH;
        Slots::zero((self.0 ^ wanted) & looked_at)
    }

    /// Returns the open ones of the first `slots` slots.
    #[inline(always)]
    pub const fn open(self, slots: u64) -> Slots {
        Slots(Slots::zero(self.0).0 & Slots::first(slots).0)
    }

    /// Returns the shadows among the first `slots` slots.
    #[inline(always)]
    pub const fn shadows(self, slots: u64) -> Slots {
        Slots(self.0 & !(self.0 >> NON_WRITABLE.ilog2()) & Slots::first(slots).0)
    }

    /// Returns how many of the first `slots` slots are not valid.
    #[inline(always)]
    pub const fn free(self, slots: u64) -> u32 {
        let valid = self.valid().0;
        // The multiplication adds the bits of all slots up in the place of the last one.
        let free = Slots::first(slots).0 & !valid;
        (free.wrapping_mul(EACH) >> (2 * STATE_BITS)) as u16 as u32
    }

    /// Returns whether every slot is open or holds a state that writes leave, and those from
    /// `slots` on are open.
    pub fn is_plausible(self, slots: usize) -> bool {
        (0..SLOTS).all(|slot| {
            let state = self.state(slot);
            state == 0 || (is_readable(state) && slot < slots)
        })
    }
}

/// Returns the slots of the two lines with these heads that can be read and have a fingerprint: bit
/// 4 * l + s for slot s of line l, which begins at word 2 * (4 * l + s) of the bucket.
#[inline(always)]
pub fn matching(heads: [Head; 2], print: u16) -> u32 {
    // Three lanes of a head are its slots.
    equal_lanes(heads.map(|head| head.0), !FLAGS | READABLE, print | READABLE) & 0b0111_0111
}

/// Returns the state of a slot as [`matching`] counts them.
#[inline(always)]
pub fn state_in(heads: [Head; 2], slot: usize) -> u16 {
    heads[slot / 4 % 2].state(slot % 4)
}

/// Returns whether one of the first slots of two lines, those in `used`, is not valid.
#[inline(always)]
pub const fn has_free([first, second]: [Head; 2], used: Slots) -> bool {
    used.0 & !(first.valid().0 & second.valid().0) != 0
}

/// Returns how many of the first slots of two lines, those in `used`, are not valid.
#[inline(always)]
pub const fn free_in_both([first, second]: [Head; 2], used: Slots) -> u32 {
    let free = (used.0 & !first.valid().0) + (used.0 & !second.valid().0);
    // The multiplication adds the numbers of all slots up in the place of the last one.
    (free.wrapping_mul(EACH) >> (2 * STATE_BITS)) as u16 as u32
}

/// Returns a slot that a pair may be written to, among the first `slots` slots of the two lines
/// with these heads: its line, its number, and whether it is open. An open one comes before a
/// shadow, which can still serve reads.
#[inline(always)]
pub fn room(heads: [Head; 2], slots: u64) -> Option<(usize, usize, bool)> {
    let used = ((1 << slots) - 1) * 0b1_0001;
    let those = |flags, state| equal_lanes(heads.map(|head| head.0), flags, state) & used;
    let open = those(u16::MAX, 0);
    let free = if open != 0 { open } else { those(READABLE | NON_WRITABLE, READABLE) };
    let slot = free.trailing_zeros() as usize;
    (free != 0).then_some((slot / 4, slot % 4, open != 0))
}

/// The lowest bit of each slot's state in a head, which is the one that says [`READABLE`].
///
/// Unit: bit mask. Source: ours.
const EACH: u64 = 0x0001_0001_0001;

/// Some slots of a line, the lowest first: all are looked at in one word, and no branch is taken
/// for those that are not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots(u64);

impl Slots {
    /// No slot.
    pub const NONE: Slots = Slots(0);

    /// Returns the first `count` slots.
    #[inline(always)]
    pub const fn first(count: u64) -> Slots {
        Slots(EACH & ((1 << (count as u32 * STATE_BITS)) - 1))
    }

    /// Returns the slots whose state in the lower 48 bits of `word` is zero.
    #[inline(always)]
    const fn zero(word: u64) -> Slots {
        let low = EACH * 0x7fff;
        // Adding 0x7fff to the low bits of a state carries into its highest bit unless they are
        // zero, and never into the next state.
        let zero = !(((word & low) + low) | word | low);
        Slots(zero >> (STATE_BITS - 1) & EACH)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() / STATE_BITS;
        self.0 &= self.0.wrapping_sub(1);
        (slot < SLOTS as u32).then_some(slot as usize)
    }
}

/// Returns whether a slot can be read.
#[inline(always)]
pub const fn is_readable(state: u16) -> bool {
    state & READABLE != 0
}

/// Returns whether a slot is a shadow: readable, and free for another pair.
#[inline(always)]
pub const fn is_shadow(state: u16) -> bool {
    state & (READABLE | NON_WRITABLE) == READABLE
}

/// Returns whether a slot is valid: readable, and not free.
#[inline(always)]
pub const fn is_valid(state: u16) -> bool {
    state & (READABLE | NON_WRITABLE) == READABLE | NON_WRITABLE
}

/// Returns whether a slot is a tombstone.
#[inline(always)]
pub const fn is_deleted(state: u16) -> bool {
    state & DELETED != 0
}

/// Returns whether a slot lies in the bucket of the second hash function.
#[inline(always)]
pub const fn is_second(state: u16) -> bool {
    state & SECOND != 0
}

/// Returns the fingerprint of a slot, as [`print_of`] has it.
#[inline(always)]
pub const fn print(state: u16) -> u16 {
    state & !FLAGS
}

/// Returns where the words of a slot begin in its line.
#[inline(always)]
pub const fn slot_word(slot: usize) -> usize {
    Line::SLOTS + 2 * slot
}

/// Returns the last word of a slot of the line at `at`.
pub const fn slot_at(at: Addr, slot: usize) -> Addr {
    at.plus(slot_word(slot) as u64 + 1)
}

/// Returns the word that leads from the line `at` to the line `target`; null for none.
pub const fn seal_link(target: Addr, at: Addr) -> u64 {
    let line = target.line();
    LINK_CHECK.set(line, mix(line, at.word(), Kind::Link) >> 48)
}

/// Returns where a link of the line `at` leads, null for nowhere, or `None` if it is damaged.
pub const fn open_link(word: u64, at: Addr) -> Option<Addr> {
    let line = LINK_LINE.get(word);
    // The largest line number that is an address.
    if line > u64::MAX / LINE {
        return None;
    }
    let target = Addr::new(line * LINE);
    if seal_link(target, at) == word { Some(target) } else { None }
}

const _: () = assert!(STATES_BITS == 48 && Line::SLOTS == 0 && Line::LINK == 6);
const _: () = assert!(Root::CHECKSUM == 13, "the settings fill their place");
