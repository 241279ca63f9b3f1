//! Every byte of Reef on the medium.
//!
//! The root keeps the settings and two places for commit records, written in turn. All else lies in
//! segments, which are found by their heads: one may begin at every multiple of a unit.

use everhash_index::Form;
use everhash_pmem::{Addr, Bits, Ruler, Span, pool};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

everhash_pmem::ruler! {
    /// The root, behind the pool's header. But for the commit records it never changes.
    pub struct Root [3584] {
        0    VERSION           [1]  "layout version, 5";
        8    STREAMS           [1]  "streams, a power of two";
        16   SHARDS            [1]  "shards of the directory, a power of two";
        24   BUCKETS           [1]  "buckets of a new directory, a power of two";
        32   SEGMENT_BYTES     [1]  "length of a segment of a large table, a power of two";
        40   DURABILITY        [1]  "0 = batches, 1 = every write";
        48   FLUSH_INTERVAL_MS [1]  "age at which an epoch ends";
        56   FLUSH_BYTES       [1]  "most that power loss may take back";
        64   RUN_BYTES         [1]  "how much of a segment a thread takes for itself";
        72   CHECKSUM          [1]  "XXH3-64 of the words before, seeded with the root's offset";
        80   SPARE             [6]  "zero";
        128  EPOCH_A           [72] "commit record of an even epoch";
        704  EPOCH_B           [72] "commit record of an odd epoch";
        1280 BATCH             [72] "the newest atomic batch";
        1856 SPARE_2           [216] "zero";
    }
}

everhash_pmem::ruler! {
    /// A commit record: where each stream ended at the end of an epoch, and which segments there
    /// were. It and what it speaks of become durable together, in any order.
    pub struct Epoch [576] {
        0   NUMBER     [1]  "number of the epoch; rises";
        8   GENERATION [1]  "rises whenever the pool is opened";
        16  SEGMENTS   [1]  "how many segments there were";
        24  SEALS      [1]  "exclusive or of their checksums";
        32  TAILS      [64] "for each stream: sequence of its last segment, and words used in it";
        544 PAIRS      [1]  "about how many pairs there were: room for them is made at once";
        552 CHECKPOINT [2]  "byte where the newest checkpoint begins, 0 for none; its checksum";
        568 CHECKSUM   [1]  "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// The head of a checkpoint of the directory. A CheckpointShard for each shard follows, then
    /// the shards, then a CheckpointSegment for each segment. Opening reads it instead of the
    /// objects before TAILS. Those that count are there still, so that a damaged one is ignored.
    pub struct CheckpointHead [576] {
        0   MAGIC        [1]  "the bytes `REEFCHKP`";
        8   LENGTH       [1]  "words of the checkpoint";
        16  SEGMENTS     [1]  "how many segments there were";
        24  SHARDS_SUM   [1]  "checksum of what follows for each shard";
        32  SEGMENTS_SUM [1]  "checksum of what follows for each segment";
        40  TAILS        [64] "for each stream: sequence of its last segment, and words used in it";
        552 SPARE        [2]  "zero";
        568 CHECKSUM     [1]  "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// A shard in a checkpoint. Its words are, for each leaf: the bits of the hash that choose it |
    /// how many these are << 32 | first bit of its tags << 38; from bit 44 on, and in up to two
    /// more words, four bits for each bucket that say how many of its slots are taken; and then
    /// these.
    pub struct CheckpointShard [24] {
        0  LENGTH   [1] "words of the shard in the checkpoint";
        8  SHAPE    [1] "base-2 logarithm of its links | buckets of a leaf << 8 | leaves << 16";
        16 CHECKSUM [1] "XXH3-64 of its words, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// A segment in a checkpoint.
    pub struct CheckpointSegment [32] {
        0  PLACE      [1] "byte where it begins";
        8  SEAL       [1] "its checksum";
        16 GARBAGE    [1] "about how many of its words were garbage";
        24 TOMBSTONES [1] "words of tombstones";
    }
}

everhash_pmem::ruler! {
    /// Where streams end with an atomic batch. Leads a process that follows a killed one: tails are
    /// moved one by one, and this says all of them at once. It need not be durable. Not there if
    /// writes are immediate.
    pub struct BatchRecord [576] {
        0   GENERATION [1] "of the opening of the pool in which it was written";
        8   TAILS      [64] "for each stream: its last segment's sequence, and its tail; or 0";
        520 SPARE      [6] "zero";
        568 CHECKSUM   [1] "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// The head of a segment; objects follow without gaps. The checksum comes last: of a killed
    /// process a head that is sound has a tail. Of an empty segment it is FREED: the epoch as of
    /// which it is empty | check << 40. So one word says whether there is a segment and whether it
    /// holds anything, and the words of the next owner of the place cannot part the two. Nor can
    /// they complete a head of which power loss has left all words but one: with another salt,
    /// every word before the tail is another one, whatever it says.
    pub struct SegmentHead [64] {
        0  MAGIC      [1] "the bytes `REEF` | salt << 32; the salt hides the words up to the tail";
        8  SEQUENCE   [1] "number of the segment in its stream; the next one has the next number";
        16 SIZE       [1] "units of the segment | stream << 32";
        24 FLOOR      [1] "no object of the stream before the segment of this number counts";
        32 GENERATION [1] "of the opening of the pool in which the segment was begun";
        40 TAIL       [1] "words in use | how it ended << 34 | check << 36";
        48 CHECKSUM   [1] "XXH3-64 of the words before the tail, seeded as others; or FREED";
        56 SPARE      [1] "anything";
    }
}

everhash_pmem::ruler! {
    /// The head of an object of a fixed form. The key follows and, but for a tombstone, the value.
    pub struct FixedHead [8] {
        0 CHECK [1] "kind, whether of a batch, check of the rest; bound to segment, place";
    }
}

everhash_pmem::ruler! {
    /// The head of an object of variable length; key and value follow, each in whole words.
    pub struct ObjectHead [16] {
        0 CHECK   [1] "kind, whether of a batch, check of the rest; bound to segment, place";
        8 LENGTHS [1] "bytes of the key | bytes of the value << 32";
    }
}

everhash_pmem::ruler! {
    /// The head of room that a thread took for its objects and has not filled, of words of any
    /// form. What follows is anything.
    pub struct UnusedHead [8] {
        0 CHECK [1] "3 | words of the room << 3 | check << 32; bound to segment, place";
    }
}

/// All rulers, for `docs/format.md`.
pub static RULERS: &[&Ruler] = &[
    &Root::RULER,
    &Epoch::RULER,
    &BatchRecord::RULER,
    &CheckpointHead::RULER,
    &CheckpointShard::RULER,
    &CheckpointSegment::RULER,
    &SegmentHead::RULER,
    &FixedHead::RULER,
    &ObjectHead::RULER,
    &UnusedHead::RULER,
];

/// Where the root lies.
pub const ROOT: Addr = pool::ROOT;

/// Where the newest atomic batch is recorded.
pub const BATCH: Addr = ROOT.plus(Root::BATCH as u64);

/// Version of this layout.
///
/// Unit: none. Source: ours.
pub const VERSION: u64 = 5;

/// The highest number of an epoch: a higher one was forged.
///
/// Unit: epochs. Source: ours; four thousand a second for four years.
pub const MOST_EPOCHS: u64 = 1 << 39;

/// Most streams.
///
/// Unit: streams. Source: ours; so many tails fit a commit record.
pub const MOST_STREAMS: u64 = 32;

/// How many units a segment of a large table has.
///
/// Unit: units. Source: ours; what an object that does not fit wastes is at most one of them.
pub const SEGMENT_UNITS: u64 = 64;

/// The shortest unit.
///
/// Unit: bytes. Source: ours; a head and some small objects.
pub const LEAST_UNIT_BYTES: u64 = 256;

/// What a segment begins with, in the low half of its first word.
///
/// Unit: none. Source: ours; it is readable in a dump.
const MAGIC: u64 = u32::from_le_bytes(*b"REEF") as u64;

/// The bits of a head's first word that all heads have in common.
const SAME: Bits = Bits::new(0, 32);
/// Its salt.
const SALT: Bits = Bits::new(32, 32);

/// What a checkpoint begins with.
///
/// Unit: none. Source: ours; it is readable in a dump.
pub const CHECKPOINT_MAGIC: u64 = u64::from_le_bytes(*b"REEFCHKP");

/// Units of a segment.
pub const SIZE_UNITS: Bits = Bits::new(0, 32);
/// Stream of a segment.
pub const SIZE_STREAM: Bits = Bits::new(32, 32);

/// Words in use, the head's among them.
const TAIL_WORDS: Bits = Bits::new(0, 34);
/// How the segment ended.
const TAIL_ENDED: Bits = Bits::new(34, 2);
/// The check over the bits before.
const TAIL_CHECK: Bits = Bits::new(36, 28);

/// The epoch as of which a segment is empty.
const FREED_EPOCH: Bits = Bits::new(0, 40);
/// The check over the epoch.
const FREED_CHECK: Bits = Bits::new(40, 24);

/// What an object says: in the lowest bits of its first word.
const KIND: Bits = Bits::new(0, 2);
/// Whether it belongs to an atomic batch.
const BATCHED: Bits = Bits::new(2, 1);
/// Both.
const CODE: Bits = Bits::new(0, 3);
/// What the head of unused room has in place of a kind.
///
/// Unit: none. Source: ours; no [`Kind`] has it.
const UNUSED: u64 = 3;
/// Words of unused room.
const UNUSED_WORDS: Bits = Bits::new(3, 29);
/// The check over the bits before.
const UNUSED_CHECK: Bits = Bits::new(32, 32);
/// Bytes of the key.
pub const KEY_BYTES: Bits = Bits::new(0, 32);
/// Bytes of the value.
pub const VALUE_BYTES: Bits = Bits::new(32, 32);

/// The multiplier of all checks.
///
/// Unit: none. Source: ours; 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word into a check, so that every bit of both reaches its high half.
#[inline(always)]
pub const fn mix(check: u64, word: u64) -> u64 {
    let product = (check ^ word).wrapping_mul(MIX);
    (product ^ (product >> 32)).wrapping_mul(MIX)
}

/// What an object says about its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It has this value.
    Put,
    /// It is absent: a tombstone.
    Removed,
}

impl Kind {
    /// Returns the lowest bits of the first word of an object that belongs to no atomic batch.
    #[inline(always)]
    pub const fn code(self) -> u64 {
        match self {
            Kind::Put => 1,
            Kind::Removed => 2,
        }
    }

    /// Returns the lowest bits of the first word of an object of an atomic batch.
    pub const fn batched_code(self) -> u64 {
        BATCHED.set(self.code(), 1)
    }

    /// Returns the kind that an object's first word names.
    #[inline(always)]
    pub const fn of(word: u64) -> Option<Kind> {
        match KIND.get(word) {
            1 => Some(Kind::Put),
            2 => Some(Kind::Removed),
            _ => None,
        }
    }
}

/// Returns the lowest bits of an object's first word.
#[inline(always)]
pub const fn code_of(word: u64) -> u64 {
    CODE.get(word)
}

/// Returns whether the first word of an object says that it belongs to an atomic batch: it counts
/// only under a commit record.
pub const fn is_batched(word: u64) -> bool {
    BATCHED.get(word) == 1
}

/// Returns what all checks of a database are bound to.
pub fn seed(database: [u64; 2]) -> u64 {
    mix(mix(MIX, database[0]), database[1])
}

/// Returns how long a unit is. Unit: bytes.
pub const fn unit_bytes(segment_bytes: u64) -> u64 {
    let unit = segment_bytes / SEGMENT_UNITS;
    if unit < LEAST_UNIT_BYTES { LEAST_UNIT_BYTES } else { unit }
}

/// Returns the checksum of words that lie at `at`.
pub fn sum(words: &[u64], at: Addr, seed: u64) -> u64 {
    let mut bytes = [0; Epoch::BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    // Never 0: that is no segment's.
    xxh3_64_with_seed(&bytes[..8 * words.len()], mix(seed, at.byte())).max(1)
}

/// Gives the words of a head before its tail the form in which they are stored, or takes it off
/// again. The first word has the salt.
fn hide(head: &mut [u64; SegmentHead::TAIL]) {
    let salt = SALT.get(head[SegmentHead::MAGIC]);
    for (word, number) in head.iter_mut().zip(0..).skip(SegmentHead::SEQUENCE) {
        *word ^= mix(mix(MIX, salt), number);
    }
}

/// Returns the words of a head before its tail as they are stored, from those behind the first. No
/// two segments that ever begin have the same numbers of opening, stream and segment.
pub fn stored_head(head: [u64; SegmentHead::TAIL]) -> [u64; SegmentHead::TAIL] {
    let mut stored = head;
    let numbers = [SegmentHead::GENERATION, SegmentHead::SIZE, SegmentHead::SEQUENCE];
    let salt = numbers.iter().fold(MIX, |salt, number| mix(salt, head[*number]));
    stored[SegmentHead::MAGIC] = SALT.set(MAGIC, salt >> 32);
    hide(&mut stored);
    stored
}

/// Returns what the words of a head say that are stored so, before its tail.
pub fn plain_head(stored: &[u64; SegmentHead::WORDS]) -> [u64; SegmentHead::TAIL] {
    let mut head = [0; SegmentHead::TAIL];
    head.copy_from_slice(&stored[..SegmentHead::TAIL]);
    hide(&mut head);
    head
}

/// Returns whether a segment may begin with this word.
#[inline(always)]
pub const fn may_begin(word: u64) -> bool {
    SAME.get(word) == MAGIC
}

/// Returns whether `at` lies in one of these spans, which are in order.
pub fn lies_in(at: Addr, spans: &[Span]) -> bool {
    let before = spans.partition_point(|span| span.start <= at);
    before > 0 && at.byte() < spans[before - 1].end_byte()
}

/// Returns the checksum of any number of words that lie at `at`.
pub fn long_sum(words: &[u64], at: Addr, seed: u64) -> u64 {
    let mut hasher = Xxh3::with_seed(mix(seed, at.byte()));
    let mut bytes = [0; Epoch::BYTES];
    for words in words.chunks(Epoch::WORDS) {
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&bytes[..8 * words.len()]);
    }
    hasher.digest()
}

/// Returns where the commit record of an epoch lies.
pub const fn epoch_place(number: u64) -> Addr {
    match number.is_multiple_of(2) {
        true => ROOT.plus(Root::EPOCH_A as u64),
        false => ROOT.plus(Root::EPOCH_B as u64),
    }
}

/// How a segment ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Not yet: it may have been filled further.
    Not,
    /// Another segment was begun behind it.
    Followed,
    /// An opening of the pool has ended it.
    Reopened,
}

/// How far a segment is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Words in use, the head's among them.
    pub words: u64,
    /// How it ended.
    pub ended: Ended,
}

impl Tail {
    /// Returns the word; `seal` is the checksum of the segment.
    #[inline(always)]
    pub const fn word(self, seal: u64) -> u64 {
        let ended = match self.ended {
            Ended::Not => 0,
            Ended::Followed => 1,
            Ended::Reopened => 2,
        };
        let word = TAIL_ENDED.set(TAIL_WORDS.set(0, self.words), ended);
        TAIL_CHECK.set(word, mix(seal, word) >> 36)
    }

    /// Returns what a word says, or `None` if its check does not match.
    pub fn of(word: u64, seal: u64) -> Option<Tail> {
        let ended = match TAIL_ENDED.get(word) {
            0 => Ended::Not,
            1 => Ended::Followed,
            2 => Ended::Reopened,
            _ => return None,
        };
        let tail = Tail { words: TAIL_WORDS.get(word), ended };
        (tail.word(seal) == word).then_some(tail)
    }
}

/// Returns the word that says as of which epoch a segment is empty, in place of its checksum.
pub const fn freed_word(epoch: u64, seal: u64) -> u64 {
    let word = FREED_EPOCH.set(0, epoch);
    FREED_CHECK.set(word, mix(!seal, word) >> 40)
}

/// Returns the epoch as of which a segment is empty; `None` if the word does not say that it is.
pub fn freed_of(word: u64, seal: u64) -> Option<u64> {
    let epoch = FREED_EPOCH.get(word);
    (freed_word(epoch, seal) == word).then_some(epoch)
}

/// Returns what the check of an object at `at` is bound to, in a segment with this checksum.
#[inline(always)]
pub const fn bound(seal: u64, at: Addr) -> u64 {
    mix(seal, at.byte())
}

/// Returns the first word of an object of a fixed form; `words` are all behind it.
#[inline(always)]
pub fn fixed_head(bound: u64, code: u64, words: &[u64]) -> u64 {
    let check = words.iter().fold(mix(bound, code), |check, word| mix(check, *word));
    CODE.set(check ^ check >> 32, code)
}

/// Returns the first word of an object of variable length.
#[inline(always)]
pub fn variable_head(bound: u64, code: u64, key: &[u8], value: &[u8]) -> u64 {
    let lengths = VALUE_BYTES.set(KEY_BYTES.set(0, key.len() as u64), value.len() as u64);
    let check = mix(mix(bound, lengths), code);
    let check = xxh3_64_with_seed(value, xxh3_64_with_seed(key, check));
    CODE.set(check, code)
}

/// Returns the head of so many words of unused room.
#[inline(always)]
pub const fn unused_head(bound: u64, words: u64) -> u64 {
    let word = UNUSED_WORDS.set(UNUSED, words);
    UNUSED_CHECK.set(word, mix(bound, word) >> 32)
}

/// Returns how long the unused room is that a word may be the head of; `None` if it is none.
#[inline(always)]
pub const fn unused_words(word: u64) -> Option<u64> {
    match UNUSED_WORDS.get(word) {
        0 => None,
        words if CODE.get(word) == UNUSED => Some(words),
        _ => None,
    }
}

/// Returns how long an object is. Unit: words.
#[inline(always)]
pub const fn object_words(form: Form, kind: Kind, key_bytes: u64, value_bytes: u64) -> u64 {
    let value_bytes = match kind {
        Kind::Put => value_bytes,
        Kind::Removed => 0,
    };
    let body = key_bytes.div_ceil(8) + value_bytes.div_ceil(8);
    match form {
        Form::Fixed { .. } => FixedHead::WORDS as u64 + body,
        Form::Variable => ObjectHead::WORDS as u64 + body,
    }
}
