//! Every byte of WOPHI on the medium.
//!
//! The root says where the arrays of buckets lie. A bucket begins with one line in every form: the
//! token word, the link to the next bucket of its chain, and as many slots as fit. Structure words
//! carry a check that is bound to their place: a flipped bit is damage, never another answer.

use everhash_index::Form;
use everhash_pmem::{Addr, Bits, LINE, Ruler, Span, pool};

// Parts of the format that other engines have too.
pub use crate::common::hash::KeyedHash;
pub use crate::common::record;

everhash_pmem::ruler! {
    /// The root, behind the pool's header. The settings never change; the list grows.
    pub struct Root [3584] {
        0    VERSION         [1] "layout version, 4";
        8    INITIAL_BUCKETS [1] "main buckets of extent 0, a power of two";
        16   STRIPES         [1] "locks, a power of two, at most INITIAL_BUCKETS";
        24   GROUP_BUCKETS   [1] "neighbours that split together, a power of two";
        32   PAB_DIVISOR     [1] "main buckets per pre-allocated bucket";
        40   GROW_PERCENT    [1] "load at which growth begins";
        48   PAGE_BYTES      [1] "page of the record heap, a power of two";
        56   ROTATE          [1] "1 = slots are used in turn, 0 = the first free one";
        64   CHECKSUM        [1] "XXH3-64 of the words before, seeded with their byte offset";
        72   SPARE           [7] "zero";
        128  EXTENT          [64] "link to extent k: main buckets, then pre-allocated ones";
        640  REST            [368] "zero";
    }
}

everhash_pmem::ruler! {
    /// A bucket of 8-byte keys and values, or of byte strings: one line.
    pub struct WordBucket [64] {
        0  TOKEN [1] "tokens, home, version, check: the commit word of the slots";
        8  NEXT  [1] "link to the next bucket of the chain";
        16 SLOTS [6] "3 x (key, value), or 3 x (hash of the key, record word)";
    }
}

everhash_pmem::ruler! {
    /// A bucket of 16-byte keys and values: three lines, and no slot crosses a line.
    pub struct DoubleBucket [192] {
        0   TOKEN  [1] "as in a word bucket";
        8   NEXT   [1] "as in a word bucket";
        16  PRINTS [2] "fingerprints of slots 1 to 3, 32 bits each";
        32  SLOT_0 [4] "key, value";
        64  SLOT_1 [4] "key, value";
        96  SLOT_2 [4] "key, value";
        128 SLOT_3 [4] "key, value";
        160 SPARE  [4] "anything";
    }
}

/// Every record of this engine, for `docs/format.md`.
pub const RULERS: &[&Ruler] =
    &[&Root::RULER, &WordBucket::RULER, &DoubleBucket::RULER, &record::RecordHead::RULER];

/// Where the root begins.
pub const ROOT: Addr = pool::ROOT;

/// Version of this layout.
///
/// Unit: none. Source: ours.
pub const VERSION: u64 = 4;

/// Extents that the root has links for: extent 0 has n buckets, extent k > 0 has n * 2^(k - 1).
///
/// Unit: extents. Source: ours; with n = 1 the last one would end at bucket 2^63.
pub const EXTENTS: usize = 64;

/// The most main buckets.
///
/// Unit: buckets. Source: ours; 2^42 buckets have room for 2^43 items, and an owner fits 42 bits.
pub const MOST_BUCKETS: u64 = 1 << 42;

/// Words of a line.
///
/// Unit: words. Source: x86.
pub const LINE_WORDS: usize = 8;

/// Index of the token word in the first line of a bucket.
///
/// Unit: words. Source: ours; `WordBucket`.
pub const TOKEN: usize = WordBucket::TOKEN;

/// Index of the link in the first line of a bucket.
///
/// Unit: words. Source: ours; `WordBucket`.
pub const NEXT: usize = WordBucket::NEXT;

/// Two bits for each of up to four slots: 0 = free, else 1 > 2 > 3 > 1, each the successor of the
/// one before. Of two equal keys the successor is the newer (WOPHI III-A-1 has one bit).
const TOKENS: Bits = Bits::new(0, 8);
/// Main bucket: 1 + how often it was split. Chained bucket: 1 + index of the main bucket.
const HOME: Bits = Bits::new(8, 42);
/// Commits in this bucket, modulo 64: says where the search for a free slot begins.
const VERSION_BITS: Bits = Bits::new(50, 6);
/// The check over the 56 bits before.
const TOKEN_CHECK: Bits = Bits::new(56, 8);

/// The line number in a link, 0 = none.
const LINK_LINE: Bits = Bits::new(0, 48);
/// The check over the 48 bits before.
const LINK_CHECK: Bits = Bits::new(48, 16);

/// The fingerprint in a field of 32 bits.
const PRINT: Bits = Bits::new(0, 24);
/// The check over the 24 bits before.
const PRINT_CHECK: Bits = Bits::new(24, 8);

/// The multiplier of all checks: no eight neighbouring bits are equal, therefore one flipped bit
/// of the factor changes the eight highest bits of the product, always. It is odd, too.
///
/// Unit: none. Source: ours; 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The multiplier times this number is 1 in the bits of a check.
///
/// Unit: none. Source: ours; Newton's method, from a number that is its own inverse modulo 8: each
/// step doubles the bits that are right, from 3 to 6, 12 and 24.
const INVERSE: u64 = {
    let mut inverse = MIX;
    let mut steps = 0;
    while steps < 3 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MIX.wrapping_mul(inverse)));
        steps += 1;
    }
    inverse
};

/// The bits of a word's number that count in the check of a link.
///
/// Unit: none. Source: ours; 2^48 words are 2 PiB. The bits above would meet the check's own.
const LINK_PLACE: Bits = Bits::new(0, 48);

/// What the check of a fingerprint is made with.
///
/// Unit: none. Source: ours; the letters `prin`.
const PRINT_SEED: u64 = 0x7072_696e;

/// Returns a sum over a word with a check of `bits` bits, its highest, and over its place, which
/// has none of these bits. It is zero for every word that [`with_check`] returns: a reader needs
/// one multiplication, and no bits put together.
#[inline(always)]
const fn sum(word: u64, place: u64, bits: u32) -> u64 {
    (word ^ place).wrapping_mul(MIX) >> (u64::BITS - bits)
}

/// Returns `word`, whose highest `bits` bits are zero, with the check for a place.
#[inline(always)]
const fn with_check(word: u64, place: u64, bits: u32) -> u64 {
    // What stands in the highest bits of a factor is added, times the other one, to the highest
    // bits of the product.
    word | sum(word, place, bits).wrapping_neg().wrapping_mul(INVERSE) << (u64::BITS - bits)
}

/// Returns the highest bits of a product of `word` and a place: 8 of them are a check.
#[inline(always)]
const fn mix(word: u64, place: u64, seed: u64) -> u64 {
    (word ^ (place ^ seed << 32).wrapping_mul(MIX)).wrapping_mul(MIX)
}

/// Whether a bucket is addressed directly or reached through a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A main bucket.
    Main,
    /// A bucket of a chain, pre-allocated or allocated directly.
    Chained,
}

/// The contents of a token word, without its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(u64);

impl Token {
    /// Makes the token word of an empty bucket; `home` is its depth or its owner.
    pub const fn empty(home: u64) -> Token {
        Token(HOME.set(0, home + 1))
    }

    /// Makes a token word of any contents, valid or not; the check is left out.
    #[cfg(test)]
    pub const fn from_contents(word: u64) -> Token {
        Token(TOKEN_CHECK.set(word, 0))
    }

    /// Returns the contents of `word`, which was read from the bucket of `slots` slots at `at`, or
    /// `None` if the check does not match, or if a slot has a token and is not there.
    #[inline(always)]
    pub const fn decode(word: u64, at: Addr, kind: Kind, slots: usize) -> Option<Token> {
        let sound = sum(word, token_place(at, kind), TOKEN_CHECK.width()) == 0;
        // A forged word may match its check and have a token of a slot that the bucket lacks.
        let fits = TOKENS.get(word) >> (2 * slots) == 0;
        // A bucket without a home was never written: a hole in the file, for example.
        if sound && fits && HOME.get(word) != 0 {
            Some(Token(TOKEN_CHECK.set(word, 0)))
        } else {
            None
        }
    }

    /// As [`Token::decode`], of a main bucket whose home must be `home`, as [`home_in_token`]
    /// returns it. The check stays in the contents: nobody who reads a slot asks for it.
    #[inline(always)]
    pub const fn decode_resting(word: u64, at: Addr, home: u64, slots: usize) -> Option<Token> {
        let sound = sum(word, token_place(at, Kind::Main), TOKEN_CHECK.width()) == 0;
        // The bits between the last slot's token and the version: the home, and no other slot.
        let beyond = VERSION_BITS.width() + TOKEN_CHECK.width();
        let fits = (word ^ home) << beyond >> (beyond + 2 * slots as u32) == 0;
        if sound && fits { Some(Token(word)) } else { None }
    }

    /// Returns the word for the bucket at `at`.
    #[inline(always)]
    pub const fn encode(self, at: Addr, kind: Kind) -> u64 {
        with_check(self.0, token_place(at, kind), TOKEN_CHECK.width())
    }

    /// Returns how often a main bucket was split, or the index of the main bucket that owns a
    /// chained one.
    #[inline(always)]
    pub const fn home(self) -> u64 {
        HOME.get(self.0).wrapping_sub(1)
    }

    /// Returns the token word with another home.
    pub const fn with_home(self, home: u64) -> Token {
        Token(HOME.set(self.0, home + 1))
    }

    /// Returns the token of a slot: 0 = free.
    #[inline(always)]
    pub const fn slot(self, slot: usize) -> u64 {
        (TOKENS.get(self.0) >> (2 * slot)) & 3
    }

    /// Returns the token word with another token in one slot.
    #[inline(always)]
    pub const fn with_slot(self, slot: usize, token: u64) -> Token {
        Token(self.0 & !(3 << (2 * slot)) | token << (2 * slot))
    }

    /// Returns the token word without a token.
    pub const fn cleared(self) -> Token {
        Token(TOKENS.set(self.0, 0))
    }

    /// Returns a mask of the slots that hold something: bit 2i for slot i.
    #[inline(always)]
    pub const fn live(self) -> u64 {
        let tokens = TOKENS.get(self.0);
        (tokens | tokens >> 1) & 0x55
    }

    /// Returns a mask of those of the first `slots` slots that hold nothing: bit 2i for slot i.
    #[inline(always)]
    pub const fn free(self, slots: usize) -> u64 {
        !self.live() & 0x55 & ((1 << (2 * slots)) - 1)
    }

    /// Returns the number of slots that hold something.
    pub const fn count(self) -> u32 {
        self.live().count_ones()
    }

    /// Returns the slots that hold something, in order.
    #[inline(always)]
    pub fn live_slots(self) -> impl Iterator<Item = usize> {
        let mut live = self.live();
        core::iter::from_fn(move || {
            let slot = live.trailing_zeros() as usize / 2;
            let found = (live != 0).then_some(slot);
            live &= live.wrapping_sub(1);
            found
        })
    }

    /// Returns the number of commits, modulo 64.
    #[inline(always)]
    pub const fn version(self) -> u64 {
        VERSION_BITS.get(self.0)
    }

    /// Returns the token word one commit later.
    #[inline(always)]
    pub const fn bumped(self) -> Token {
        Token(VERSION_BITS.set(self.0, self.version() + 1))
    }
}

/// Returns a token word with nothing but a home, as it is stored: one more than the depth of a
/// main bucket.
pub const fn home_in_token(stored_home: u64) -> u64 {
    HOME.set(0, stored_home)
}

/// Returns the place of a token word, for its check. Main and chained buckets differ in one bit,
/// whose flip every check notices: no bucket is taken for one of the other kind.
#[inline(always)]
const fn token_place(at: Addr, kind: Kind) -> u64 {
    at.byte() | matches!(kind, Kind::Chained) as u64
}

/// Returns the token that follows `token` in the order of updates: 1 > 2 > 3 > 1.
pub const fn successor(token: u64) -> u64 {
    token % 3 + 1
}

/// Returns the link to `target`, a multiple of a line or [`Addr::NULL`] for none, for the place
/// `at`.
#[inline(always)]
pub const fn encode_link(target: Addr, at: Addr) -> u64 {
    with_check(LINK_LINE.get(target.line()), LINK_PLACE.get(at.word()), LINK_CHECK.width())
}

/// Returns where the link `word`, read at `at`, leads to, [`Addr::NULL`] for nowhere; `None` if
/// its check does not match.
#[inline(always)]
pub const fn decode_link(word: u64, at: Addr) -> Option<Addr> {
    let sound = sum(word, LINK_PLACE.get(at.word()), LINK_CHECK.width()) == 0;
    if sound { Some(Addr::new(LINK_LINE.get(word).wrapping_mul(LINE))) } else { None }
}

/// Returns whether `word`, read at `at`, is the link to nowhere; `false` also beyond 2 PiB, where
/// [`decode_link`] tells.
#[inline(always)]
pub const fn is_end(word: u64, at: Addr) -> bool {
    sum(word, at.word(), LINK_CHECK.width()) == 0 && LINK_LINE.get(word) == 0
}

/// Returns the fingerprint field of a key that hashes to `hash`, in a slot of the bucket at `at`.
#[inline(always)]
pub const fn encode_print(hash: u64, at: Addr, slot: usize) -> u64 {
    let print = hash >> 40;
    PRINT_CHECK.set(print, mix(print, at.word() + slot as u64, PRINT_SEED) >> 56)
}

/// Returns whether a fingerprint field is one that this engine could have stored there.
#[inline(always)]
pub const fn is_print(field: u64, at: Addr, slot: usize) -> bool {
    encode_print(PRINT.get(field) << 40, at, slot) == field
}

/// Returns in which word of a double bucket the fingerprint of `slot` (1 to 3) lies, and at which
/// bit.
#[inline(always)]
pub const fn print_place(slot: usize) -> (usize, u32) {
    (DoubleBucket::PRINTS + (slot - 1) / 2, 32 * ((slot as u32 - 1) % 2))
}

/// Returns the slots of a bucket.
pub const fn slots(form: Form) -> u64 {
    match form {
        Form::DOUBLE_WORDS => 4,
        _ => 3,
    }
}

/// Returns the number of the first bucket of extent `extent`.
pub const fn extent_start(initial_buckets: u64, extent: usize) -> u64 {
    if extent == 0 { 0 } else { initial_buckets << (extent - 1) }
}

/// Returns the number of buckets of extent `extent`.
pub const fn extent_buckets(initial_buckets: u64, extent: usize) -> u64 {
    if extent == 0 { initial_buckets } else { initial_buckets << (extent - 1) }
}

/// Returns the number of pre-allocated buckets that go with extent `extent`.
pub const fn pab_buckets(initial_buckets: u64, pab_divisor: u64, extent: usize) -> u64 {
    let share = extent_buckets(initial_buckets, extent) / pab_divisor;
    if share == 0 { 1 } else { share }
}

/// Returns where the main buckets of an extent lie that begins at `at`, and where the
/// pre-allocated ones behind them lie; `counts` says how many there are of each.
pub const fn extent_spans(at: Addr, counts: [u64; 2], bucket_bytes: u64) -> [Span; 2] {
    let [main, pab] = counts;
    let main = Span::of_bytes(at, main * bucket_bytes);
    [main, Span::of_bytes(at.plus(main.words), pab * bucket_bytes)]
}

/// Returns where the root's link to extent `extent` lies.
pub const fn extent_link(extent: usize) -> Addr {
    ROOT.plus((Root::EXTENT + extent) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Addr = Addr::new(64 * 12345);

    #[test]
    fn every_flipped_bit_of_a_structure_word_is_noticed() {
        // Fails if one flipped bit could make another token, link or fingerprint.
        for i in 0..20_000u64 {
            let random = (i + 1).wrapping_mul(MIX).rotate_left(i as u32);
            let at = Addr::new((random >> 20) << 6);
            let token = Token::empty(random >> 23).with_slot(1, i % 4).bumped();
            for kind in [Kind::Main, Kind::Chained] {
                let word = token.encode(at, kind);
                assert_eq!(Token::decode(word, at, kind, 4), Some(token));
                assert!((0..64).all(|bit| Token::decode(word ^ 1 << bit, at, kind, 4).is_none()));
            }
            let target = if i % 5 == 0 { Addr::NULL } else { Addr::new((random >> 22) << 6) };
            let link = encode_link(target, at);
            assert_eq!(decode_link(link, at), Some(target));
            assert!((0..64).all(|bit| decode_link(link ^ 1 << bit, at).is_none()));
            let print = encode_print(random, at, 1);
            assert!(is_print(print, at, 1));
            assert!((0..32).all(|bit| !is_print(print ^ 1 << bit, at, 1)));
        }
    }

    #[test]
    fn the_multiplier_keeps_its_promise() {
        // Fails if MIX is replaced by a number whose checks can miss a flipped bit.
        for shift in 0..=56 {
            let window = (MIX >> shift) & 0xff;
            assert!(window != 0 && window != 0xff, "eight equal bits at {shift}");
        }
    }

    #[test]
    fn a_hole_is_not_an_empty_bucket() {
        // Fails if zeros pass as a main bucket: a hole in the file would lose keys silently.
        for line in 0..100_000 {
            assert_eq!(Token::decode(0, Addr::new(line * LINE), Kind::Main, 3), None);
        }
    }

    #[test]
    fn a_main_bucket_is_not_a_chained_one() {
        // Fails if a link into the main array could be followed.
        let word = Token::empty(3).encode(AT, Kind::Main);
        assert_eq!(Token::decode(word, AT, Kind::Chained, 3), None);
    }

    #[test]
    fn a_token_of_a_slot_that_is_not_there_is_damage() {
        // Fails if a forged token word could lead beyond the slots of a bucket.
        for slots in [3, 4] {
            let word = Token::empty(3).with_slot(3, 1).encode(AT, Kind::Main);
            assert_eq!(Token::decode(word, AT, Kind::Main, slots).is_some(), slots == 4);
        }
    }

    #[test]
    fn tokens_turn_in_a_circle() {
        // Fails if two equal keys could each look newer than the other.
        assert_eq!([1, 2, 3].map(successor), [2, 3, 1]);
        let token = Token::empty(0).with_slot(0, 1).with_slot(3, 3).with_slot(2, 2);
        assert_eq!([0, 1, 2, 3].map(|slot| token.slot(slot)), [1, 0, 2, 3]);
        assert!(token.live_slots().eq([0, 2, 3]));
        assert_eq!(
            (token.count(), token.with_slot(2, 0).count(), token.cleared().count()),
            (3, 2, 0)
        );
    }

    #[test]
    fn extents_follow_one_another_without_a_gap() {
        // Fails if a bucket had two places or none.
        let mut end = 0;
        for extent in 0..EXTENTS - 23 {
            assert_eq!(extent_start(4, extent), end);
            end += extent_buckets(4, extent);
        }
        assert!(end >= MOST_BUCKETS);
    }
}
