//! Every byte of WALSH on the medium.
//!
//! The root leads to one record for each log area, and that to the newest of the area's logs; each
//! log leads to the one before it. A log holds a directory log, one word for each write, and an
//! object log, one object for each write. Words that decide carry a check bound to their place.

mod directory;

use everhash_pmem::{Addr, Bits, LINE, Ruler, Span, WORD, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use directory::{Directory, MOST_BYTES};

everhash_pmem::ruler! {
    /// The root, behind the pool's header. But for the epoch it never changes.
    pub struct Root [3584] {
        0   VERSION           [1] "layout version, 3";
        8   AREAS             [1] "log areas, a power of two";
        16  DIRECTORIES       [1] "directories of a new table, a power of two";
        24  BLOCK_DIRECTORIES [1] "directories of a block in DRAM, a power of two";
        32  LOG_ENTRIES       [1] "most objects of a log";
        40  LOG_BYTES         [1] "room for objects in a log";
        48  THRESHOLD         [1] "average length of chains at which an area is rehashed";
        56  DURABILITY        [1] "0 = batches, 1 = every write: a seal follows each object";
        64  FLUSH_INTERVAL_MS [1] "age at which a log is flushed although it is not full";
        72  FLUSH_BYTES       [1] "most that a power loss may take back";
        80  EPOCHS            [1] "0 = where only a sync makes anything durable, 1 = everywhere";
        88  RESIZE            [1] "0 = never, 1 = under the area's lock, 2 = in four phases";
        96  AREA_TABLE        [1] "byte offset of the first area record";
        104 CHECKSUM          [1] "XXH3-64 of the words before, seeded with the root's offset";
        112 SPARE             [2] "zero";
        128 EPOCH             [1] "number of the epoch that counts, 0 = areas do; check";
        136 SPARE_2           [431] "zero";
    }
}

everhash_pmem::ruler! {
    /// A log area (the paper's log_info, 3.2): six lines.
    pub struct AreaRecord [384] {
        0   DURABLE_TAIL [1] "the newest log and its durable objects: what a power loss leaves";
        8   PAD    [7] "zero";
        64  VISIBLE_TAIL [1] "the newest log and all its objects: what a killed process leaves";
        72  CHECKPOINT [1] "where a clean close has saved the directories, 0 = nowhere; check";
        80  PAD_2  [6] "zero";
        128 INFO_A [8] "one of two infos; of the valid ones the later counts";
        192 INFO_B [8] "the other info";
        256 EPOCH_A [8] "the info of an odd epoch, with its tail";
        320 EPOCH_B [8] "the same of an even one";
    }
}

everhash_pmem::ruler! {
    /// Which logs an area has and how many directories, written into two places in turn.
    pub struct Info [64] {
        0  SEQUENCE [1] "rises with every info of the area";
        8  START    [1] "number of the oldest log; if the newest has a lower one, there is none";
        16 END      [1] "number of the last log that is being rehashed, 0 = none is";
        24 LEVEL    [1] "base-2 logarithm of the area's directories";
        32 OLD      [1] "the same for the directories that are set aside";
        40 FLAGS    [1] "1 = live pairs are estimated";
        48 TAIL     [1] "of an epoch: the newest log and its objects; else zero";
        56 CHECKSUM [1] "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// The head of a log. Behind it lie the directory log and then the object log.
    pub struct LogHead [64] {
        0  NUMBER       [1] "number of the log in its area; the next one has the next number";
        8  OWNER        [1] "the log area | sequence of the info that its objects need << 16";
        16 PREVIOUS     [1] "the log before this one and all its objects, 0 for none";
        24 PREVIOUS_SUM [1] "XXH3-64 of the directory log of the log before";
        32 SIZE         [1] "lines << 32 | most objects";
        40 ITEMS        [1] "live pairs of the area when the log was begun";
        48 ITEM_BYTES   [1] "the room that their objects need";
        56 CHECKSUM     [1] "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// The head of an area's checkpoint (3.4.1), which holds what an open of a closed pool would
    /// have to read all directory logs for. It is used only of a pool that was closed, and only if
    /// the area still ends where it says.
    ///
    /// Its words follow, in parts of 4096 whose last word is a checksum: for each log but the
    /// newest, oldest first, its tail and its lines; then each block of directories that is there,
    /// its number and for each directory two words; then the same of the directories that are set
    /// aside. Their low 40 bits are the word numbers of the newest object and of the one behind it.
    /// Then follow in the first word the low 16 bits of the hash of the newest key, and the last of
    /// the four bytes of a filter; in the second the other three. Each older key of the chain sets
    /// a bit of each byte: three bits of its hash choose one, the lowest three that of the first
    /// byte, and so on.
    pub struct Checkpoint [128] {
        0   TAIL        [1] "the newest log and its objects";
        8   SEQUENCE    [1] "sequence of the area's info";
        16  LOGS        [1] "logs before the newest";
        24  BLOCKS      [1] "blocks of directories";
        32  OLD_BLOCKS  [1] "the same of those that are set aside";
        40  ITEMS       [1] "live pairs";
        48  ITEM_BYTES  [1] "the room that their objects need";
        56  CHAINED     [1] "objects in the chains of the newest directories";
        64  FILL        [1] "where the newest log goes on, in words from its start";
        72  RECORDS_SUM [1] "XXH3-64 of the directory log of the newest log";
        80  SPARE       [5] "zero";
        120 CHECKSUM    [1] "XXH3-64 of the words before, seeded with database and place";
    }
}

everhash_pmem::ruler! {
    /// The head of an object of variable length (3.1.6); key and value follow it. An object of a
    /// fixed form has the link only.
    ///
    /// With durability 1 a word follows each object, its seal: a check over the words of the head,
    /// of a fixed form over all of its words, bound to its place and to its log.
    pub struct ObjectHead [24] {
        0  LINK     [1] "the next object of the chain, kind, tag, check";
        8  LENGTHS  [1] "value bytes << 32 | key bytes";
        16 CHECKSUM [1] "XXH3-64 of key and value, seeded with database, place and lengths";
    }
}

everhash_pmem::ruler! {
    /// The object of a pair of words (3.1.2).
    pub struct WordObject [24] {
        0  LINK  [1] "the next object of the chain, kind, tag, check";
        8  KEY   [1] "the key";
        16 VALUE [1] "the value; of a tombstone zero";
    }
}

/// Every record of this engine, for `docs/format.md`.
pub const RULERS: &[&Ruler] = &[
    &Root::RULER,
    &AreaRecord::RULER,
    &Info::RULER,
    &LogHead::RULER,
    &Checkpoint::RULER,
    &ObjectHead::RULER,
    &WordObject::RULER,
];

/// Where the root begins.
pub const ROOT: Addr = pool::ROOT;

/// Where the number of the epoch lies.
pub const EPOCH: Addr = ROOT.plus(Root::EPOCH as u64);

/// Version of this layout.
///
/// Unit: none. Source: ours. Since 2, a directory names two objects; since 3, an object has a tag.
pub const VERSION: u64 = 3;

/// Most objects of a log.
///
/// Unit: objects. Source: ours; the count in a tail word has 12 bits.
pub const MOST_ENTRIES: u64 = 4095;

/// The longest room for objects in a log that holds more than one.
///
/// Unit: bytes. Source: ours; with the directory log before it, a word offset fits 16 bits.
pub const MOST_LOG_BYTES: u64 = 256 << 10;

/// Words of a part of a checkpoint, its checksum among them; the last part may have fewer.
///
/// Unit: words. Source: ours; 32 KiB stay in a near cache between a checksum and its use.
pub const PART_WORDS: u64 = 4096;

/// Most directories of an area, as a base-2 logarithm.
///
/// Unit: none. Source: ours; the bits of the hash that choose a directory.
pub const MOST_LEVEL: u32 = 32;

/// Most words of the directories' indexes in DRAM for each word of the medium.
///
/// Unit: none. Source: ours; an area doubles when it holds pairs of 48 bytes or more for each
/// directory, which are 6 words for 3 of an index, and a new pool is a quarter of its index.
pub const MOST_INDEX: u64 = 4;

/// Bits of the hash that a directory record keeps: 16 for the filter, 32 for the directory. The
/// area has the rest, so that no bit is used twice.
pub const RECORD_HASH: Bits = Bits::new(0, 48);
/// Where the object lies in its log. Unit: words.
pub const RECORD_OFFSET: Bits = Bits::new(48, 16);
/// The bits of the hash that are the tag of its key: no filter of a directory uses them, and only
/// an area with 2^31 directories or more chooses one by them.
const TAG_HASH: Bits = Bits::new(12, 6);
/// The bits of the hash that choose the directory, highest first.
pub const DIRECTORY_HASH: Bits = Bits::new(16, 32);
/// The bits of the hash that choose the area.
pub const AREA_HASH: Bits = Bits::new(48, 16);

/// Whether all counts of live pairs are estimates: there were blind writes.
pub const INFO_ESTIMATED: Bits = Bits::new(0, 1);

/// The area of a log.
pub const LOG_AREA: Bits = Bits::new(0, 16);
/// The sequence of the area's newest info when the first object came: a lost info is noticed. A
/// log without objects may be ahead by one, where a crash came before the info that it is for.
pub const LOG_SEQUENCE: Bits = Bits::new(16, 48);

/// The number of an epoch, and the check over it.
const EPOCH_NUMBER: Bits = Bits::new(0, 48);
const EPOCH_CHECK: Bits = Bits::new(48, 16);

/// Line number of a log, 0 = there is none.
const TAIL_LINE: Bits = Bits::new(0, 40);
/// Objects of that log.
const TAIL_COUNT: Bits = Bits::new(40, 12);
/// The check over the 52 bits before.
const TAIL_CHECK: Bits = Bits::new(52, 12);

/// Word number of the next object, 0 = the chain ends.
const LINK_WORD: Bits = Bits::new(0, 40);
/// What the object is.
const LINK_KIND: Bits = Bits::new(40, 2);
/// The tag of its key.
const LINK_TAG: Bits = Bits::new(42, 6);
/// The check over the bits before, and over what it is bound to.
const LINK_CHECK: Bits = Bits::new(48, 16);

/// The multiplier of all checks: no neighbouring bits are equal, therefore a flipped bit of the
/// factor changes the highest bits of the product.
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
    /// The first value of a key that was absent.
    Added,
    /// Another value of a key that was present.
    Replaced,
    /// The key that was present is not any more: a tombstone.
    Removed,
    /// The newest value, moved by a rehash.
    Moved,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Kind::Added => 0,
            Kind::Replaced => 1,
            Kind::Removed => 2,
            Kind::Moved => 3,
        }
    }

    /// Returns whether the key is present when the object is its newest.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        !matches!(self, Kind::Removed)
    }

    /// Returns how the number of live pairs changes with the object.
    pub const fn items(self) -> i64 {
        match self {
            Kind::Added => 1,
            Kind::Removed => -1,
            Kind::Replaced | Kind::Moved => 0,
        }
    }
}

/// Some bits of the hash of a key, which tell it from most keys of its chain.
///
/// They are under the check of the link: who meets an object with another tag than that of the key
/// that it looks for knows that the object is of another key, whatever became of the bytes of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u64);

impl Tag {
    /// Returns the tag of the key with a hash.
    #[inline(always)]
    pub const fn of(hash: u64) -> Tag {
        Tag(TAG_HASH.get(hash))
    }
}

/// The first word of an object, without its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The next object of the chain, or [`Addr::NULL`].
    pub next: Addr,
    /// What the object is.
    pub kind: Kind,
    /// The tag of its key.
    pub tag: Tag,
}

impl Link {
    /// Returns the word; `bound` is what its check covers beside it.
    #[inline]
    pub const fn encode(self, bound: u64) -> u64 {
        let word = LINK_KIND.set(LINK_WORD.set(0, self.next.word()), self.kind.code());
        let word = LINK_TAG.set(word, self.tag.0);
        LINK_CHECK.set(word, mix(bound, word) >> 48)
    }

    /// Returns the next object that `word` names, whatever its check says.
    #[inline(always)]
    pub const fn next_of(word: u64) -> Addr {
        Addr::NULL.plus(LINK_WORD.get(word))
    }

    /// Returns what `word` says, or `None` if its check does not match.
    #[inline(always)]
    pub const fn decode(word: u64, bound: u64) -> Option<Link> {
        if LINK_CHECK.get(word) != mix(bound, LINK_CHECK.set(word, 0)) >> 48 {
            return None;
        }
        let kind = match LINK_KIND.get(word) {
            0 => Kind::Added,
            1 => Kind::Replaced,
            2 => Kind::Removed,
            _ => Kind::Moved,
        };
        let next = Addr::NULL.plus(LINK_WORD.get(word));
        Some(Link { next, kind, tag: Tag(LINK_TAG.get(word)) })
    }
}

/// A log and how many of its objects count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// Where the log begins; [`Addr::NULL`] if there is none.
    pub at: Addr,
    /// Objects in it.
    pub count: u64,
}

impl Tail {
    /// Returns the word that lies at `place`: one 8-byte store makes the log and its count true.
    pub const fn encode(self, place: Addr) -> u64 {
        let word = TAIL_COUNT.set(TAIL_LINE.set(0, self.at.line()), self.count);
        TAIL_CHECK.set(word, mix(place.byte() ^ MIX, word) >> 52)
    }

    /// Returns what the word at `place` says, or `None` if its check does not match.
    pub const fn decode(word: u64, place: Addr) -> Option<Tail> {
        let at = Addr::new(TAIL_LINE.get(word) * LINE);
        let tail = Tail { at, count: TAIL_COUNT.get(word) };
        if tail.encode(place) == word { Some(tail) } else { None }
    }
}

/// Returns the seal of an object that lies at `at`, over the words that it covers. `log` is the
/// checksum in the head of the log: an object of the log that had this place before does not match.
pub fn seal_object(log: u64, at: Addr, words: &[u64]) -> u64 {
    words.iter().fold(mix(log, at.byte()), |seal, word| mix(seal, *word))
}

/// Returns how many words follow each object of a pool: its seal, if every write is durable.
pub const fn seal_words(durability: u64) -> u64 {
    if durability == 1 { 1 } else { 0 }
}

/// Returns the word that names an epoch.
pub const fn encode_epoch(number: u64) -> u64 {
    let word = EPOCH_NUMBER.set(0, number);
    EPOCH_CHECK.set(word, mix(EPOCH.byte(), word) >> 48)
}

/// Returns the epoch that a word names, or `None` if its check does not match.
pub const fn decode_epoch(word: u64) -> Option<u64> {
    let number = EPOCH_NUMBER.get(word);
    if encode_epoch(number) == word { Some(number) } else { None }
}

/// Returns the sum of words: of a head, of a directory log, of a part of a checkpoint.
pub fn sum(words: &[u64], seed: u64) -> u64 {
    let mut near = [0; 64 * WORD as usize];
    let mut far = Vec::new();
    let bytes = match near.get_mut(..words.len() * WORD as usize) {
        Some(bytes) => bytes,
        None => {
            far.resize(words.len() * WORD as usize, 0);
            far.as_mut_slice()
        }
    };
    for (place, word) in bytes.chunks_exact_mut(WORD as usize).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64_with_seed(bytes, seed)
}

/// Returns the seed of the sums of a database: a log of another one does not match.
pub const fn seed(database: [u64; 2]) -> u64 {
    mix(mix(MIX, database[0]), database[1])
}

/// Returns a head with the sum in its last word.
pub fn seal_head<const N: usize>(mut head: [u64; N], at: Addr, seed: u64) -> [u64; N] {
    head[N - 1] = sum(&head[..N - 1], mix(seed, at.byte()));
    head
}

/// Returns whether the sum in the last word of a head matches.
pub fn is_sealed<const N: usize>(head: &[u64; N], at: Addr, seed: u64) -> bool {
    seal_head(*head, at, seed) == *head
}

/// Returns where the object log begins in a log for `entries` objects. Unit: words.
pub const fn objects_offset(entries: u64) -> u64 {
    LogHead::WORDS as u64 + entries
}

/// Returns how long a log is. Unit: bytes, whole lines.
pub const fn log_bytes(entries: u64, object_words: u64) -> u64 {
    ((objects_offset(entries) + object_words) * WORD).next_multiple_of(LINE)
}

/// Returns how long a checkpoint with `words` words behind its head is. Unit: bytes, whole lines.
pub const fn checkpoint_bytes(words: u64) -> u64 {
    let sums = words.div_ceil(PART_WORDS - 1);
    let bytes = words.saturating_add(sums).saturating_mul(WORD);
    bytes.saturating_add(Checkpoint::BYTES as u64).saturating_add(LINE - 1) / LINE * LINE
}

/// Returns the seed of the sum of a part that lies at `at`: it belongs to one head.
pub const fn part_seed(head: &[u64; Checkpoint::WORDS], at: Addr) -> u64 {
    mix(head[Checkpoint::CHECKSUM], at.byte())
}

/// Returns where the record of area `area` lies, if the first one lies at `table`.
pub const fn area_record(table: Addr, area: u64) -> Addr {
    table.plus(area * AreaRecord::WORDS as u64)
}

/// Returns the span of all area records.
pub const fn area_table(table: Addr, areas: u64) -> Span {
    Span::new(table, areas * AreaRecord::WORDS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_of_a_deciding_word_is_noticed() {
        // Fails if damage could turn one tail, or one link, into another.
        let place = Addr::new(8192);
        let tail = Tail { at: Addr::new(64 * 77), count: 5 };
        let link = Link { next: Addr::new(8 * 1234), kind: Kind::Replaced, tag: Tag::of(!0) };
        assert_eq!(Tail::decode(tail.encode(place), place), Some(tail));
        assert_eq!(Link::decode(link.encode(9), 9), Some(link));
        assert_eq!(decode_epoch(encode_epoch(6)), Some(6));
        let noticed = (0..64).filter(|bit| {
            let (tail, link) = (tail.encode(place) ^ 1 << bit, link.encode(9) ^ 1 << bit);
            decode_epoch(encode_epoch(6) ^ 1 << bit).is_none()
                && Tail::decode(tail, place).is_none()
                && Link::decode(link, 9).is_none()
        });
        assert_eq!(noticed.count(), 64);
        assert!(Tail::decode(tail.encode(place), Addr::new(8256)).is_none());
        assert!(Link::decode(link.encode(9), 10).is_none());
    }
}
