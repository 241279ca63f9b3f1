//! Every byte of ElimDA on the medium.
//!
//! Every structure word holds 48 bits of content and 16 bits of check, bound to its address and its
//! kind: a flipped bit is damage, never another answer. A word that is zero was never written.

mod collecting;
mod geometry;
#[cfg(test)]
mod tests;

use everhash_pmem::{Addr, Bits, Block, Ruler, pool};

pub use collecting::{Control, Ended, LOGS_LINK, MOST_LOGS};
pub use geometry::{Geometry, LogSlot};

// Parts of the format that other engines have too.
pub use crate::common::hash::KeyedHash;
pub use crate::common::record;

everhash_pmem::ruler! {
    /// The root, behind the pool's header. Its settings never change.
    pub struct Root [3584] {
        0   VERSION          [1]  "layout version, 7";
        8   UNIT_SLOTS       [1]  "items of a unit, at most";
        16  BUCKETS          [1]  "buckets of a segment, a power of two";
        24  SEGMENT_UNITS    [1]  "units of a segment, shared by its buckets";
        32  BUCKET_UNITS     [1]  "units of one bucket, at most";
        40  INITIAL_SEGMENTS [1]  "segments of a new table, a power of two";
        48  LANES            [1]  "lanes of the backup log, a power of two";
        56  BLOCK_LINES      [1]  "lines of a block of the backup log, its head included";
        64  LOG_PERCENT      [1]  "slots of the backup log per slot of the DRAM table, in percent";
        72  PAGE_BYTES       [1]  "page of the record heap, a power of two";
        80  COLLECTING_LOGS  [1]  "collecting logs, a power of two, or 0 for none";
        88  CACHED_LOG_KIB   [1]  "backup log that is left to durable caches, at most";
        96  ACCESS_UNITS     [1]  "units that are relocated as one, a power of two";
        104 CHECKSUM         [1]  "XXH3-64 of the words before, seeded with their byte offset";
        112 SPARE            [2]  "zero";
        128 FIRST            [64] "checked address of the oldest block of each lane";
        640 EXTENTS          [40] "checked addresses of the extents of the segment table";
        960 LOGS             [1]  "checked address of the collecting logs, zero if there are none";
        968 ITEMS            [1]  "pairs at the last clean close, 48 bits | check << 48";
        976 UNITS            [1]  "units in use at the last clean close, 48 bits | check << 48";
        984 REST             [325] "zero";
    }
}

everhash_pmem::ruler! {
    /// The head of a segment of the device table (ElimDA 3.5). The watermarks of all its buckets
    /// follow, one word each: what the segment had absorbed when it was made.
    pub struct SegmentHead [16] {
        0 PLACE [1] "depth, 6 bits | the leading bits of its hashes << 6, 42 bits | check << 48";
        8 LAP   [1] "lap, 24 bits, from 1 on: units with a lower one are free | check << 48";
    }
}

everhash_pmem::ruler! {
    /// The head of a unit: a relocated D-bucket (ElimDA 3.5), or a part of one that fills several.
    /// The items follow. STATE of the first unit of an access unit is the commit point of all its
    /// units: while it is zero, or has a lower lap than the segment, the others do not count.
    pub struct UnitHead [16] {
        0 STATE     [1] "bit i: slot i is live, 16 bits | bucket << 16, 8 bits | lap of the \
                         segment << 24, 24 bits | check << 48";
        8 WATERMARK [1] "order number of the last item absorbed, 48 bits | check << 48";
    }
}

everhash_pmem::ruler! {
    /// The head of a block of the backup log, alone in its line. Blocks of a lane are a list,
    /// oldest first; their numbers rise by one.
    pub struct BlockHead [64] {
        0  NUMBER [1] "number in its lane, 48 bits | check << 48";
        8  NEXT   [1] "checked address of the next block, null for the open one";
        16 REST   [6] "zero";
    }
}

everhash_pmem::ruler! {
    /// A line of the backup log: three items of two words, or one of four; one in every fourth
    /// line, which completes an access unit. STATE is the commit point. A line whose STATE names a
    /// lower block number is empty.
    pub struct LogLine [64] {
        0  STATE  [1] "bit i: slot i is live, 3 bits | number of the block << 3 | check << 48";
        8  CHECKS [1] "for each slot, 16 bits of check of its key";
        16 ITEMS  [6] "3 x (key, value), 3 x (hash of the key, record word), or one of 4 words";
    }
}

everhash_pmem::ruler! {
    /// A collecting log (ElimDA 3.3): one access unit. Its first two words are zero if it was never
    /// used. CONTROL is the commit point of inserts, ENDED that of moves and removals.
    pub struct CollectingLog [256] {
        0  CONTROL [1]  "slots handed out, 4 bits | bit i: slot i is written << 4, 15 bits | \
                         1 << 19 if it is being flushed | generation << 20, 28 bits | check << 48";
        8  ENDED   [1]  "bit i: the item of slot i has moved or ended, 15 bits | \
                         generation << 20, 28 bits | check << 48";
        16 ITEMS   [30] "15 x (key, value), 15 x (hash of the key, record word), or 7 of 4 words";
    }
}

/// Every record of this engine, for `docs/format.md`.
pub const RULERS: &[&Ruler] = &[
    &Root::RULER,
    &SegmentHead::RULER,
    &UnitHead::RULER,
    &BlockHead::RULER,
    &LogLine::RULER,
    &CollectingLog::RULER,
];

/// Where the root begins.
pub const ROOT: Addr = pool::ROOT;

/// Version of this layout.
///
/// Unit: none. Source: ours.
pub const VERSION: u64 = 7;

/// The most lanes.
///
/// Unit: lanes. Source: ours; more open lines than the 60 that a DIMM's buffer combines are of no
/// use.
pub const MOST_LANES: u64 = 64;

/// The most buckets of a segment: their index has eight bits.
///
/// Unit: buckets. Source: ours.
pub const MOST_BUCKETS: u64 = 256;

/// The most units of a segment.
///
/// Unit: units. Source: ours; the index of a unit has 16 bits in DRAM.
pub const MOST_UNITS: u64 = 1 << 15;

/// The most items of a unit: one byte-lane compare looks at 16 fingerprints.
///
/// Unit: items. Source: ours; 15 items of 16 bytes and the head fill 256 bytes.
pub const MOST_SLOTS: u64 = 15;

/// The largest depth of a segment.
///
/// Unit: bits. Source: ours; depth, fingerprint and bucket share no bit of the hash.
pub const MOST_DEPTH: u32 = 40;

/// Extents of the segment table.
///
/// Unit: extents. Source: the ruler of the root.
pub const EXTENTS: usize = 40;

/// The largest unit. Unit: bytes. Source: ElimDA 4.1, the access unit of the device.
pub const UNIT_BYTES: u64 = 256;

/// The most units of an access unit.
///
/// Unit: units. Source: ElimDA 4.1, pages of 4 KiB.
pub const MOST_ACCESS_UNITS: u64 = 16;

/// Words of a line. Unit: words. Source: x86.
pub const LINE_WORDS: u64 = 8;

/// The words of an item; forms of two words leave the last two zero.
pub type Item = [u64; 4];

/// The second word of an item of two: the value, or the record word.
///
/// Unit: words from its start. Source: the rulers of a unit and of a line.
pub const SECOND_WORD: u64 = 1;

/// The largest content of a checked word.
///
/// Unit: none. Source: ours; with the check it fills the word.
pub const MOST_CONTENT: u64 = CONTENT.max();

/// The largest number of a block.
///
/// Unit: blocks. Source: the state of a line of the log.
pub const MOST_NUMBER: u64 = LINE_NUMBER.max();

/// The highest lap of a segment. Space that had it is written whole, with lap 1.
///
/// Unit: laps. Source: the state of a unit.
pub const MOST_LAP: u64 = LAP.max();

const CONTENT: Bits = Bits::new(0, 48);

const LIVE: Bits = Bits::new(0, 16);
const BUCKET: Bits = Bits::new(16, 8);
const LAP: Bits = Bits::new(24, 24);

const DEPTH: Bits = Bits::new(0, 6);
const PREFIX: Bits = Bits::new(6, 42);

const LINE_LIVE: Bits = Bits::new(0, 3);
const LINE_NUMBER: Bits = Bits::new(3, 45);

/// The multipliers of all checks. No four neighbouring bits of them are equal, and they are odd:
/// therefore one flipped bit of a factor changes the five highest bits of the product, always.
///
/// Source: ours; drawn at random until they had the property.
const MIX: [u64; 2] = [0xb4d6_6a3a_4746_9a4d, 0x9638_92a7_6646_5d29];

/// The kinds of checked words: one of another kind does not match its check. Each is its name in
/// letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A slot of the segment table: the address of a segment.
    Slot = 0x736c_6f74,
    /// The address of an extent of the segment table.
    Extent = 0x6578_7465,
    /// The address of the oldest block of a lane.
    First = 0x6669_7273,
    /// The address of the next block.
    Next = 0x6e65_7874,
    /// The number of a block.
    Number = 0x6e75_6d62,
    /// The state of a line of the log.
    Line = 0x6c69_6e65,
    /// Depth and prefix of a segment.
    Place = 0x706c_6163,
    /// The lap of a segment.
    Lap = 0x6c61_7020,
    /// A watermark.
    Watermark = 0x6d61_726b,
    /// The state of a unit.
    Unit = 0x756e_6974,
    /// The key of an item in the log.
    Key = 0x6b65_7920,
    /// The address of the collecting logs.
    Logs = 0x6c6f_6773,
    /// The control word of a collecting log.
    Control = 0x636f_6e74,
    /// What has ended in a collecting log.
    Ended = 0x656e_6465,
    /// The number of pairs at a clean close.
    Items = 0x6974_656d,
    /// The number of units at a clean close.
    Units = 0x7573_6564,
}

#[inline(always)]
const fn mix(word: u64, place: u64, kind: Kind) -> u64 {
    (word ^ (place ^ (kind as u64) << 32).wrapping_mul(MIX[1])).wrapping_mul(MIX[0])
}

/// Returns the word for `at` that holds `content`.
#[inline(always)]
pub const fn seal(content: u64, at: Addr, kind: Kind) -> u64 {
    content | mix(content, at.word(), kind) >> 48 << 48
}

/// Returns the content of `word`, which was read at `at`, or `None` if its check does not match.
#[inline(always)]
pub const fn open(word: u64, at: Addr, kind: Kind) -> Option<u64> {
    let content = CONTENT.get(word);
    if seal(content, at, kind) == word { Some(content) } else { None }
}

/// Returns the address in `word`, or `None` if the check does not match or no span begins there.
pub const fn open_link(word: u64, at: Addr, kind: Kind) -> Option<Addr> {
    match open(word, at, kind) {
        Some(byte) if byte % 64 == 0 => Some(Addr::new(byte)),
        _ => None,
    }
}

/// Returns the check of the key of `item`, which lies at `at` in the log.
pub const fn key_check(item: &[u64; 4], key_words: usize, at: Addr) -> u64 {
    let first = mix(item[0], at.word(), Kind::Key);
    if key_words == 1 { first >> 48 } else { mix(item[1] ^ first, at.word(), Kind::Key) >> 48 }
}

/// The state of a unit that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitState {
    /// Bit i: slot i is live.
    pub live: u16,
    /// The bucket that it belongs to.
    pub bucket: u64,
    /// The lap of the segment for which it was written.
    pub lap: u64,
}

impl UnitState {
    /// Returns the word for a unit at `at`.
    pub const fn seal(self, at: Addr) -> u64 {
        seal(LAP.set(BUCKET.set(self.live as u64, self.bucket), self.lap), at, Kind::Unit)
    }

    /// Returns the state in `word`, or `None` if the check does not match.
    pub const fn open(word: u64, at: Addr) -> Option<UnitState> {
        match open(word, at, Kind::Unit) {
            Some(content) if LAP.get(content) > 0 => Some(UnitState {
                live: LIVE.get(content) as u16,
                bucket: BUCKET.get(content),
                lap: LAP.get(content),
            }),
            _ => None,
        }
    }

    /// Returns the state in `word` of a unit in a segment with this lap: `Some(None)` if the unit
    /// is free, `None` if the check does not match or the lap is a later one.
    pub const fn of_lap(word: u64, at: Addr, lap: u64) -> Option<Option<UnitState>> {
        if word == 0 {
            return Some(None);
        }
        match UnitState::open(word, at) {
            Some(state) if state.lap == lap => Some(Some(state)),
            Some(state) if state.lap < lap => Some(None),
            _ => None,
        }
    }
}

/// Returns the lap in `word`, or `None` if the check does not match or there is none such.
pub const fn open_lap(word: u64, at: Addr) -> Option<u64> {
    match open(word, at, Kind::Lap) {
        Some(lap) if lap > 0 && lap <= MOST_LAP => Some(lap),
        _ => None,
    }
}

/// The state of a line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineState {
    /// The number of the block for which it was written; 0 if it never was.
    pub number: u64,
    /// Bit i: slot i is live.
    pub live: u64,
}

impl LineState {
    /// Returns the word for a line at `at`.
    pub const fn seal(self, at: Addr) -> u64 {
        seal(LINE_NUMBER.set(self.live, self.number), at, Kind::Line)
    }

    /// Returns the state in `word`, or `None` if the check does not match.
    pub const fn open(word: u64, at: Addr) -> Option<LineState> {
        if word == 0 {
            return Some(LineState { number: 0, live: 0 });
        }
        match open(word, at, Kind::Line) {
            Some(content) => {
                Some(LineState { number: LINE_NUMBER.get(content), live: LINE_LIVE.get(content) })
            }
            None => None,
        }
    }
}

/// Which hashes a segment holds: those whose `depth` leading bits are `prefix`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Number of leading bits, at most [`MOST_DEPTH`].
    pub depth: u32,
    /// The bits.
    pub bits: u64,
}

impl Prefix {
    /// Returns what segments are sorted by: a whole comes before its halves.
    pub const fn order(self) -> (u64, u32) {
        (self.start(), self.depth)
    }

    /// Returns the word for a segment at `at`.
    pub const fn seal(self, at: Addr) -> u64 {
        seal(self.packed(), at, Kind::Place)
    }

    /// Returns the prefix in one word of DRAM.
    pub const fn packed(self) -> u64 {
        PREFIX.set(self.depth as u64, self.bits)
    }

    /// Returns the prefix in a word that [`Prefix::packed`] made.
    #[inline(always)]
    pub const fn of_packed(word: u64) -> Prefix {
        Prefix { depth: DEPTH.get(word) as u32, bits: PREFIX.get(word) }
    }

    /// Returns the prefix in `word`, or `None` if the check does not match or there is none such.
    pub const fn open(word: u64, at: Addr) -> Option<Prefix> {
        match open(word, at, Kind::Place) {
            Some(content) => {
                let prefix = Prefix::of_packed(content);
                let sound = prefix.depth <= MOST_DEPTH && prefix.bits >> prefix.depth == 0;
                if sound { Some(prefix) } else { None }
            }
            None => None,
        }
    }

    /// Returns whether `hash` begins with these bits.
    #[inline(always)]
    pub const fn covers(self, hash: u64) -> bool {
        leading(hash, self.depth) == self.bits
    }

    /// Returns the lowest hash that begins with these bits.
    pub const fn start(self) -> u64 {
        if self.depth == 0 { 0 } else { self.bits << (64 - self.depth) }
    }

    /// Returns the highest hash that begins with these bits.
    pub const fn last(self) -> u64 {
        self.start() | if self.depth == 0 { u64::MAX } else { u64::MAX >> self.depth }
    }

    /// Returns the prefix of one half.
    pub const fn half(self, upper: bool) -> Prefix {
        Prefix { depth: self.depth + 1, bits: self.bits << 1 | upper as u64 }
    }
}

/// Returns the `depth` leading bits of a hash: they choose the segment (ElimDA 3.5).
#[inline(always)]
pub const fn leading(hash: u64, depth: u32) -> u64 {
    // A shift by 64 is none: two shifts are one for every depth.
    (hash >> 1) >> (63 - depth)
}

/// Returns the fingerprint of a hash: 16 bits between those of the segment and of the bucket. It is
/// not zero, which says that there is nothing.
#[inline(always)]
pub const fn fingerprint(hash: u64) -> u16 {
    let bits = (hash >> 8) as u16;
    bits + (bits == 0) as u16
}

const _: () = assert!(MOST_DEPTH + 16 + 8 == 64, "segment, fingerprint and bucket share no bit");

/// Where the number of pairs at the last clean close lies. A hole in the file looks like units and
/// lines of the log that were never used: this word tells them apart.
pub const ITEMS: Addr = ROOT.plus(Root::ITEMS as u64);

/// Where the number of units in use at the last clean close lies. A unit that is lost takes its
/// watermark with it, so that what the log holds of its pairs, as old as it is, may take their
/// place, as many as were lost.
pub const UNITS: Addr = ROOT.plus(Root::UNITS as u64);

/// Returns where the address of extent `extent` of the segment table lies.
pub const fn extent_link(extent: usize) -> Addr {
    ROOT.plus((Root::EXTENTS + extent) as u64)
}

/// Returns where the address of the oldest block of a lane lies.
pub const fn first_link(lane: u64) -> Addr {
    ROOT.plus(Root::FIRST as u64 + lane)
}

/// Returns the slots of extent `extent`; each doubles the table.
pub const fn extent_slots(initial: u64, extent: usize) -> u64 {
    if extent == 0 { initial } else { initial << (extent - 1) }
}

/// Returns the first slot of extent `extent`.
pub const fn first_slot(initial: u64, extent: usize) -> u64 {
    if extent == 0 { 0 } else { initial << (extent - 1) }
}

/// Returns the extent of slot `slot`, and its index there.
#[inline(always)]
pub const fn extent_of(initial: u64, slot: u64) -> (usize, u64) {
    if slot < initial {
        return (0, slot);
    }
    // No division: the first extent has a power of two of slots, and so has each.
    let first = 1 << slot.ilog2();
    ((slot.ilog2() - initial.ilog2()) as usize + 1, slot - first)
}

/// Returns the key and the value of an item of two words.
#[inline(always)]
pub fn pair_in<B: Block<2>>(item: &B) -> (u64, u64) {
    (item.load(0), item.load(1))
}

/// Returns the length of an extent. Unit: bytes; whole lines.
pub const fn extent_bytes(initial: u64, extent: usize) -> u64 {
    (extent_slots(initial, extent) * 8).next_multiple_of(64)
}
