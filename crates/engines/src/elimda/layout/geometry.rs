//! The lengths and counts of a table, and where its parts lie.

use everhash_index::Form;
use everhash_pmem::{Addr, Span};

use super::{
    LINE_WORDS, LogLine, MOST_ACCESS_UNITS, MOST_BUCKETS, MOST_CONTENT, MOST_LANES, MOST_LOGS,
    MOST_NUMBER, MOST_SLOTS, MOST_UNITS, Root, SegmentHead, UNIT_BYTES, UnitHead,
};

/// The lengths and counts of a table: its settings, and what follows from the form of its pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Words of an item.
    pub item_words: u64,
    /// Words of the key of an item, or of its hash.
    pub key_words: u64,
    /// Items of a unit.
    pub unit_slots: u64,
    /// Units of an access unit of the medium: they are relocated as one.
    pub access_units: u64,
    /// Buckets of a segment.
    pub buckets: u64,
    /// Units of a segment.
    pub segment_units: u64,
    /// Units of a bucket, at most.
    pub bucket_units: u64,
    /// Slots of extent 0 of the segment table.
    pub initial_segments: u64,
    /// Lanes of the backup log.
    pub lanes: u64,
    /// Lines of a block, the head's included.
    pub block_lines: u64,
    /// Collecting logs without the spare ones; 0 for none.
    pub collecting_logs: u64,
    follows: Follows,
}

/// What follows from the rest of a geometry: computed once, since most operations need it and its
/// divisions are slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Follows {
    /// Words of a unit.
    unit_words: u64,
    /// Where the first unit of a segment lies behind its start. Unit: words.
    units_offset: u64,
    /// Items of an access unit of the log.
    log_unit_slots: u64,
    /// Items of a block.
    block_slots: u64,
}

impl Geometry {
    /// Returns the geometry that the words of a root name, or `None` if they are out of range.
    pub fn of_root(root: &[u64], form: Form) -> Option<Geometry> {
        let item_words = if form == Form::DOUBLE_WORDS { 4 } else { 2 };
        let most_slots = (UNIT_BYTES / 8 - UnitHead::WORDS as u64) / item_words;
        let unit_slots = root[Root::UNIT_SLOTS].min(most_slots);
        let mut geometry = Geometry {
            item_words,
            key_words: item_words / 2,
            unit_slots,
            access_units: root[Root::ACCESS_UNITS],
            buckets: root[Root::BUCKETS],
            segment_units: root[Root::SEGMENT_UNITS],
            bucket_units: root[Root::BUCKET_UNITS],
            initial_segments: root[Root::INITIAL_SEGMENTS],
            lanes: root[Root::LANES],
            block_lines: root[Root::BLOCK_LINES],
            collecting_logs: root[Root::COLLECTING_LOGS],
            follows: Follows::default(),
        };
        let sound = (1..=MOST_SLOTS).contains(&unit_slots)
            && geometry.access_units.is_power_of_two()
            && geometry.access_units <= MOST_ACCESS_UNITS
            && geometry.segment_units.is_multiple_of(geometry.access_units)
            && (geometry.bucket_units == 0 || geometry.bucket_units >= geometry.access_units)
            && geometry.buckets.is_power_of_two()
            && geometry.buckets <= MOST_BUCKETS
            && (geometry.buckets..=MOST_UNITS).contains(&geometry.segment_units)
            && geometry.bucket_units <= geometry.segment_units
            && geometry.bucket_units * geometry.buckets <= 4 * geometry.segment_units
            && geometry.initial_segments.is_power_of_two()
            && geometry.initial_segments <= 1 << 24
            && geometry.lanes.is_power_of_two()
            && geometry.lanes <= geometry.buckets.min(MOST_LANES)
            && (2..=1 << 16).contains(&geometry.block_lines)
            && (geometry.collecting_logs == 0 || geometry.collecting_logs.is_power_of_two())
            && geometry.collecting_logs <= MOST_LOGS;
        if sound {
            geometry.follow();
        }
        sound.then_some(geometry)
    }

    fn follow(&mut self) {
        let words = UnitHead::WORDS as u64 + self.unit_slots * self.item_words;
        self.follows.unit_words = words.next_multiple_of(LINE_WORDS);
        let heads = SegmentHead::WORDS as u64 + self.buckets;
        self.follows.units_offset = heads.next_multiple_of(self.align_bytes() / 8);
        // The last line of an access unit of the log holds one item: a device that gathers lines
        // writes the unit when the last one comes, and that one must not come again.
        self.follows.log_unit_slots = (self.log_unit_lines() - 1) * self.line_slots() + 1;
        self.follows.block_slots = self.slots_before(self.block_lines) - self.line_slots();
    }

    /// Returns the length of a unit. Unit: words; whole lines.
    #[inline(always)]
    pub const fn unit_words(&self) -> u64 {
        self.follows.unit_words
    }

    /// Returns the length of an access unit of the medium. Unit: words.
    pub const fn access_words(&self) -> u64 {
        self.access_units * self.unit_words()
    }

    /// Returns the items of a D-bucket, at most: those that fill an access unit.
    #[inline(always)]
    pub const fn dram_slots(&self) -> u64 {
        self.access_units * self.unit_slots
    }

    /// Returns at what multiple of bytes segments and blocks begin.
    pub const fn align_bytes(&self) -> u64 {
        let whole = (self.unit_words() * 8).is_multiple_of(UNIT_BYTES);
        if whole { UNIT_BYTES * self.access_units } else { 64 }
    }

    /// Returns how many items a segment holds at most, those of D-buckets not counted but where
    /// they are all there is.
    pub const fn most_items(&self) -> u64 {
        match self.bucket_units {
            0 => self.buckets * self.dram_slots(),
            _ => self.segment_units * self.unit_slots,
        }
    }

    /// Returns the length of a segment. Unit: words.
    pub const fn segment_words(&self) -> u64 {
        self.follows.units_offset + self.segment_units * self.unit_words()
    }

    /// Returns the span of the segment at `at`.
    pub const fn segment(&self, at: Addr) -> Span {
        Span::new(at, self.segment_words())
    }

    /// Returns where the lap of the segment at `at` lies.
    pub const fn lap_at(&self, at: Addr) -> Addr {
        at.plus(SegmentHead::LAP as u64)
    }

    /// Returns where the watermark of `bucket` lies in the segment at `at`.
    pub const fn watermark_at(&self, at: Addr, bucket: u64) -> Addr {
        at.plus(SegmentHead::WORDS as u64 + bucket)
    }

    /// Returns where unit `unit` of the segment at `at` lies.
    #[inline(always)]
    pub const fn unit_at(&self, at: Addr, unit: u64) -> Addr {
        at.plus(self.follows.units_offset + unit * self.follows.unit_words)
    }

    /// Returns where the word lies that makes unit `unit` of the segment at `at` true: the state
    /// of the first unit of its access unit.
    pub const fn commit_of(&self, at: Addr, unit: u64) -> Addr {
        self.unit_at(at, unit - unit % self.access_units)
    }

    /// Returns where slot `slot` of the unit at `at` lies.
    #[inline(always)]
    pub const fn unit_item(&self, at: Addr, slot: u64) -> Addr {
        at.plus(UnitHead::WORDS as u64 + slot * self.item_words)
    }

    /// Returns the bucket of a hash: its trailing bits.
    #[inline(always)]
    pub const fn bucket_of(&self, hash: u64) -> u64 {
        hash & (self.buckets - 1)
    }

    /// Returns the lane in whose log the items of a bucket lie.
    #[inline(always)]
    pub const fn lane_of(&self, bucket: u64) -> u64 {
        bucket & (self.lanes - 1)
    }

    /// Returns the items of a line of the log, but for the last line of an access unit.
    #[inline(always)]
    pub const fn line_slots(&self) -> u64 {
        (LINE_WORDS - LogLine::ITEMS as u64) / self.item_words
    }

    /// Returns the items of line `line` of a block, which is not the head's.
    pub const fn slots_of_line(&self, line: u64) -> u64 {
        let is_last = (line + 1).is_multiple_of(self.log_unit_lines());
        if is_last { 1 } else { self.line_slots() }
    }

    /// Returns the lines of an access unit of the log.
    const fn log_unit_lines(&self) -> u64 {
        UNIT_BYTES / 64 * self.access_units
    }

    /// Returns how many slots lie before line `line` of a block, the head's line counted as full.
    const fn slots_before(&self, line: u64) -> u64 {
        let in_unit = line % self.log_unit_lines() * self.line_slots();
        line / self.log_unit_lines() * self.follows.log_unit_slots + in_unit
    }

    /// Returns the items of a block.
    #[inline(always)]
    pub const fn block_slots(&self) -> u64 {
        self.follows.block_slots
    }

    /// Returns the span of the block at `at`.
    pub const fn block(&self, at: Addr) -> Span {
        Span::new(at, self.block_lines * LINE_WORDS)
    }

    /// Returns the slot of the log with an order number, counted from the start of its block.
    #[inline(always)]
    pub const fn log_slot(&self, order: u64) -> LogSlot {
        self.slot_in_block(order % self.block_slots())
    }

    /// Returns the slot of the log that is the `slot`-th one of its block.
    #[inline(always)]
    pub const fn slot_in_block(&self, slot: u64) -> LogSlot {
        let slot = slot + self.line_slots();
        // Shorter divisions take half the time.
        let (slot, unit_slots) = (slot as u32, self.follows.log_unit_slots as u32);
        let line_slots = self.line_slots() as u32;
        let (unit, slot) = (slot / unit_slots, slot % unit_slots);
        let line = unit as u64 * self.log_unit_lines() + (slot / line_slots) as u64;
        LogSlot { line, slot: (slot % line_slots) as u64 }
    }

    /// Returns the access unit of the log that slot `slot` of the block at `at` completes, if it is
    /// the last one there.
    #[inline(always)]
    pub const fn completed_unit(&self, at: Addr, slot: LogSlot) -> Option<Span> {
        let lines = self.log_unit_lines();
        if slot.line % lines != lines - 1 {
            return None;
        }
        Some(Span::new(at.plus((slot.line + 1 - lines) * LINE_WORDS), lines * LINE_WORDS))
    }

    /// Returns the lines that are filled after the one of `slot` and lie in the same 256 bytes, in
    /// the block at `at`, if `slot` is the first one there.
    #[inline(always)]
    pub fn lines_to_come(&self, at: Addr, slot: LogSlot) -> impl Iterator<Item = Addr> {
        let lines = UNIT_BYTES / 64;
        // The first line of a block is its head.
        let is_first = slot.slot == 0 && (slot.line.is_multiple_of(lines) || slot.line == 1);
        let end = if is_first { (slot.line + 1).next_multiple_of(lines) } else { 0 };
        (slot.line + 1..end).map(move |line| at.plus(line * LINE_WORDS))
    }

    /// Returns the number of the block in which an order number lies.
    #[inline(always)]
    pub const fn block_number(&self, order: u64) -> u64 {
        order / self.block_slots()
    }

    /// Returns the order number of a slot.
    pub const fn order(&self, number: u64, slot: LogSlot) -> u64 {
        let before = self.slots_before(slot.line) - self.line_slots();
        number * self.block_slots() + before + slot.slot
    }

    /// Returns whether blocks with this number have order numbers that a watermark can hold.
    pub const fn is_number(&self, number: u64) -> bool {
        number > 0 && number < MOST_CONTENT / self.block_slots() && number < MOST_NUMBER
    }
}

/// A slot of the backup log, inside its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSlot {
    /// The line, counted from the head's, which is 0.
    pub line: u64,
    /// The slot in the line.
    pub slot: u64,
}

impl LogSlot {
    /// Returns where the line lies in the block at `at`.
    #[inline(always)]
    pub const fn line_at(self, at: Addr) -> Addr {
        at.plus(self.line * LINE_WORDS)
    }

    /// Returns where the item lies in the block at `at`.
    #[inline(always)]
    pub const fn item_at(self, at: Addr, item_words: u64) -> Addr {
        self.line_at(at).plus(LogLine::ITEMS as u64 + self.slot * item_words)
    }

    /// Returns the checks of a line with that of this slot replaced.
    #[inline(always)]
    pub const fn with_check(self, checks: u64, check: u64) -> u64 {
        let shift = self.slot * 16;
        checks & !(0xffff << shift) | check << shift
    }

    /// Returns the check of this slot among those of its line.
    #[inline(always)]
    pub const fn check(self, checks: u64) -> u64 {
        checks >> (self.slot * 16) & 0xffff
    }
}
