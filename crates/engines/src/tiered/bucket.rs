//! A bucket (Tiered Hashing 3.1): two lines, and the overflow lines behind them, as a search reads
//! them.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Block, LINE, Media, WORD};

use super::fingerprints::Known;
use super::layout::{self, BUCKET_WORDS, Head, LINE_WORDS, Line as Ruler, Slots};
use crate::common::hash::KeyedHash;
use crate::common::slot_codec::{HashedKey, SlotCodec};

/// The two words of a slot.
pub type Words = [u64; 2];

/// The line and the slot that hold a key, and the pair there.
pub type Hit<'a, M, C> = Option<(Line<'a, M>, usize, <C as SlotCodec>::Pair)>;

/// A codec whose slots have the two words that a line of Tiered Hashing has for each.
pub trait PairCodec: SlotCodec<Words = Words> {}

impl<C: SlotCodec<Words = Words>> PairCodec for C {}

/// A line on the medium, and its head when that was loaded.
pub struct Line<'a, M: Media> {
    /// Its words.
    pub block: M::Block<'a, LINE_WORDS>,
    /// The head.
    pub head: Head,
}

impl<M: Media> Clone for Line<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media> Copy for Line<'_, M> {}

impl<'a, M: Media> Line<'a, M> {
    /// Loads the head of the line at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if a write comes between, and the caller tells.
    #[inline(always)]
    pub fn of(pm: &'a Access<'_, M>, at: Addr) -> Result<Self> {
        let block = pm.block::<LINE_WORDS>(at)?;
        let head = Head::decode(block.load(Ruler::HEAD), at)
            .ok_or_else(|| corrupt(at, "the flags of a line match their check"))?;
        Ok(Line { block, head })
    }

    /// As [`Line::of`], if DRAM knows the head.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it does not lie inside the medium.
    #[inline(always)]
    fn known(pm: &'a Access<'_, M>, at: Addr, head: Head) -> Result<Self> {
        Ok(Line { block: pm.block::<LINE_WORDS>(at)?, head })
    }

    /// Returns where it lies.
    #[inline(always)]
    pub fn at(&self) -> Addr {
        self.block.start()
    }

    /// Loads the words of a slot.
    #[inline(always)]
    pub fn words(&self, slot: usize) -> Words {
        let first = layout::slot_word(slot);
        [self.block.load_relaxed(first), self.block.load_relaxed(first + 1)]
    }

    /// Returns the state of a slot, its words, and where the last of them lies.
    #[inline(always)]
    pub fn slot(&self, slot: usize) -> (u16, (Words, Addr)) {
        (self.head.state(slot), (self.words(slot), layout::slot_at(self.at(), slot)))
    }

    /// Returns where the link leads.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline(always)]
    pub fn next(&self) -> Result<Option<Addr>> {
        let target = layout::open_link(self.block.load_relaxed(Ruler::LINK), self.at())
            .ok_or_else(|| corrupt(self.at(), "a link matches its check"))?;
        Ok((!target.is_null()).then_some(target))
    }

    /// Returns the slots that can be read.
    #[inline(always)]
    pub fn readable(&self) -> Slots {
        self.head.readable()
    }

    /// Returns the hash of the key in a slot that can be read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the fingerprint of the slot is another one's.
    #[inline(always)]
    pub fn hash<C: PairCodec>(&self, hasher: &KeyedHash, slot: usize) -> Result<u64> {
        hash_in::<C>(hasher, self.words(slot), self.head.state(slot), self.at())
    }

    /// Returns the slot that holds a key. A record's value is left in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline(always)]
    pub fn find<C: PairCodec>(
        &self,
        pm: &Access<'_, M>,
        hasher: &KeyedHash,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(usize, C::Pair)>> {
        for slot in self.head.matching(layout::print_of(wanted.hash)) {
            let pair = C::decode(self.words(slot), layout::slot_at(self.at(), slot))?;
            if C::holds(pm, pair, wanted.hash, wanted.key, bytes)? {
                return Ok(Some((slot, pair)));
            }
            // One of 4,096 other keys has this fingerprint; or the key of the slot is damaged.
            self.hash::<C>(hasher, slot)?;
        }
        Ok(None)
    }

    /// Returns the slot that holds the key of another slot, which has these words, the last of them
    /// at this place, and this fingerprint; see [`Same`].
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn copy_of<C: PairCodec>(
        &self,
        pm: &Access<'_, M>,
        print: u16,
        other: (Words, Addr),
    ) -> Result<Option<usize>> {
        let mut likely = None;
        for slot in self.head.matching(print) {
            let here = (self.words(slot), layout::slot_at(self.at(), slot));
            match same_key::<C, M>(pm, other, here)? {
                Same::Yes => return Ok(Some(slot)),
                Same::Likely => likely = likely.or(Some(slot)),
                Same::No => {}
            }
        }
        Ok(likely)
    }
}

/// The lines of a bucket, one after the other.
pub struct Lines<'a, 'm, M: Media> {
    pm: &'a Access<'m, M>,
    next: Option<Addr>,
    taken: u64,
    /// What DRAM knows of the two lines of the bucket.
    known: Option<[Known; 2]>,
}

impl<'a, 'm, M: Media> Lines<'a, 'm, M> {
    /// Begins with the first line of the bucket at `at`.
    #[inline(always)]
    pub fn of(pm: &'a Access<'m, M>, at: Addr) -> Self {
        Lines::with(pm, at, None)
    }

    /// As [`Lines::of`], without reading the heads that DRAM knows.
    #[inline(always)]
    pub fn with(pm: &'a Access<'m, M>, at: Addr, known: Option<[Known; 2]>) -> Self {
        Lines { pm, next: Some(at), taken: 0, known }
    }

    /// Returns what they are read with.
    pub fn pm(&self) -> &'a Access<'m, M> {
        self.pm
    }

    /// Returns the next line, and how many there were before it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], also if the overflow lines go round in a circle.
    #[inline(always)]
    pub fn advance(&mut self) -> Result<Option<(Line<'a, M>, u64)>> {
        let Some(at) = self.next else { return Ok(None) };
        let before = self.taken;
        self.taken += 1;
        let known = self.known.and_then(|known| known.get(before as usize).copied());
        let line = match known {
            Some(known) => Line::known(self.pm, at, known.head)?,
            None => Line::of(self.pm, at)?,
        };
        self.next = match before {
            0 => Some(at.plus(LINE / WORD)),
            _ if known.is_some_and(|known| !known.has_link) => None,
            _ => line.next()?,
        };
        // Chains are short: the bound is looked at where only damage leads to.
        if before > 64 && before > self.pm.media().bytes() / LINE {
            return Err(corrupt(at, "the overflow lines of a bucket end"));
        }
        Ok(Some((line, before)))
    }
}

/// The two lines of a bucket that has no overflow lines, looked at together: what a search does
/// first, since most buckets of a key have no slot with its fingerprint.
pub struct Both<'a, 'm, M: Media> {
    pm: &'a Access<'m, M>,
    home: Addr,
    heads: [Head; 2],
}

impl<'a, 'm, M: Media> Both<'a, 'm, M> {
    /// Loads the heads of the bucket at `home`, unless DRAM knows them. `None` if the bucket has
    /// overflow lines, and if a word does not match its check: [`Lines`] then tell what it is.
    #[inline(always)]
    pub fn of(pm: &'a Access<'m, M>, home: Addr, known: Option<[Known; 2]>) -> Option<Self> {
        if let Some([first, second]) = known {
            let heads = [first.head, second.head];
            return (!second.has_link).then_some(Both { pm, home, heads });
        }
        let heads = heads_of(&pm.try_aligned_block::<BUCKET_WORDS>(home.byte())?)?;
        Some(Both { pm, home, heads })
    }

    /// Returns those of the bucket at `home`, whose heads are known to be these, and which has no
    /// overflow lines.
    #[inline(always)]
    pub fn met(pm: &'a Access<'m, M>, home: Addr, heads: [Head; 2]) -> Self {
        Both { pm, home, heads }
    }

    /// Returns the slots that can be read and have a fingerprint, as [`layout::matching`] does.
    #[inline(always)]
    pub fn matching(&self, print: u16) -> u32 {
        layout::matching(self.heads, print)
    }

    /// Returns the heads of both lines.
    #[inline(always)]
    pub fn heads(&self) -> [Head; 2] {
        self.heads
    }

    /// Returns where a line lies.
    #[inline(always)]
    pub fn at(&self, number: usize) -> Addr {
        self.home.plus((number * LINE_WORDS) as u64)
    }

    /// Returns a line.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it does not lie inside the medium.
    #[inline(always)]
    pub fn line(&self, number: usize) -> Result<Line<'a, M>> {
        Line::known(self.pm, self.at(number), self.heads[number])
    }

    /// Returns room among the first `slots` slots of each line once their heads are these.
    ///
    /// # Errors
    /// As [`Both::line`].
    #[inline(always)]
    pub fn room(&self, heads: [Head; 2], slots: u64) -> Result<Option<Room<'a, M>>> {
        let Some((number, slot, is_open)) = layout::room(heads, slots) else { return Ok(None) };
        Ok(Some(Room { line: self.line(number)?, slot, is_open }))
    }

    /// Returns the line and the slot that hold a key, as [`Line::find`] does; `matching` are the
    /// slots with its fingerprint. Nearly always the first one is that of the key.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline(always)]
    pub fn find<C: PairCodec>(
        &self,
        matching: u32,
        hasher: &KeyedHash,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Hit<'a, M, C>> {
        let bucket = self.pm.block::<BUCKET_WORDS>(self.home)?;
        let first = bucket.first_slot::<{ Ruler::SLOTS }, { BUCKET_WORDS / 2 }>(matching);
        if let Some((slot, words)) = first {
            let (number, slot) = (slot / LINE_PLACES, slot % LINE_PLACES);
            let pair = C::decode(words, layout::slot_at(self.at(number), slot))?;
            if C::holds(self.pm, pair, wanted.hash, wanted.key, bytes)? {
                return Ok(Some((self.line(number)?, slot, pair)));
            }
        }
        self.find_further(hasher, wanted, bytes)
    }

    /// As [`Both::find`], past keys with the same fingerprint.
    #[cold]
    fn find_further<C: PairCodec>(
        &self,
        hasher: &KeyedHash,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Hit<'a, M, C>> {
        for number in [0, 1] {
            let line = self.line(number)?;
            if let Some((slot, pair)) = line.find(self.pm, hasher, wanted, bytes)? {
                return Ok(Some((line, slot, pair)));
            }
        }
        Ok(None)
    }
}

/// Places that a line has for pairs, the last of which holds its link and its head: so many slots
/// of the second line come behind those of the first, as [`layout::matching`] counts them.
pub const LINE_PLACES: usize = LINE_WORDS / 2;

/// Fetches both lines of a bucket.
#[inline(always)]
pub fn prefetch_bucket<M: Media>(pm: &Access<'_, M>, home: Addr) {
    pm.prefetch(home);
    pm.prefetch(home.plus(LINE / WORD));
}

/// Loads the heads of a bucket; `None` if it has overflow lines, and if a word does not match its
/// check.
#[inline(always)]
pub fn heads_of<B: Block<BUCKET_WORDS>>(bucket: &B) -> Option<[Head; 2]> {
    let (home, behind) = (bucket.start(), bucket.start().plus(LINE_WORDS as u64));
    let words = [bucket.load(Ruler::HEAD), bucket.load(LINE_WORDS + Ruler::HEAD)];
    let (heads, fault) = Head::both_with_fault(words, home);
    let link = bucket.load_relaxed(LINE_WORDS + Ruler::LINK);
    // One branch for all three.
    let faults = fault | (link ^ layout::seal_link(Addr::NULL, behind));
    (faults == 0).then_some(heads)
}

/// Returns what a bucket with these heads says of a key.
#[inline(always)]
pub fn pair_in<C: PairCodec, B: Block<BUCKET_WORDS>>(
    bucket: &B,
    heads: [Head; 2],
    wanted: HashedKey<'_, C>,
) -> Search<C::Pair> {
    let matching = layout::matching(heads, layout::print_of(wanted.hash));
    let Some((slot, words)) = bucket.first_slot::<{ Ruler::SLOTS }, { BUCKET_WORDS / 2 }>(matching)
    else {
        return Search::Absent;
    };
    let at = bucket.start().plus(2 * slot as u64 + 1);
    let has_key =
        C::decode(words, at).ok().filter(|pair| C::has_key(*pair, wanted.key) == Some(true));
    match has_key {
        Some(_) if layout::is_deleted(layout::state_in(heads, slot)) => Search::Deleted,
        Some(pair) => Search::Found(pair),
        None => Search::Unsure,
    }
}

/// What a bucket says of a key.
pub enum Search<P> {
    /// It is not there.
    Absent,
    /// Its tombstone is there.
    Deleted,
    /// Its pair.
    Found(P),
    /// Another key has its fingerprint, or its slot is damaged.
    Unsure,
}

/// A slot that a pair may be written to.
pub struct Room<'a, M: Media> {
    /// The line.
    pub line: Line<'a, M>,
    /// The slot.
    pub slot: usize,
    /// Whether it is open, and not a shadow.
    pub is_open: bool,
}

impl<M: Media> Clone for Room<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media> Copy for Room<'_, M> {}

/// Returns a slot of a line that a pair may be written to: an open one before a shadow, which can
/// still serve reads.
#[inline(always)]
pub fn better_room<'a, M: Media>(
    head: layout::Head,
    line: Line<'a, M>,
    line_slots: u64,
    best: Option<Room<'a, M>>,
) -> Option<Room<'a, M>> {
    if best.is_some_and(|room| room.is_open) {
        return best;
    }
    if let Some(slot) = head.open(line_slots).next() {
        return Some(Room { line, slot, is_open: true });
    }
    best.or_else(|| Some(Room { line, slot: head.shadows(line_slots).next()?, is_open: false }))
}

/// Returns the hash of the key in a slot of the line at `at` with these words and this state.
///
/// # Errors
/// [`Error::Corrupt`] if the fingerprint is another one's.
#[inline(always)]
pub fn hash_in<C: PairCodec>(
    hasher: &KeyedHash,
    words: Words,
    state: u16,
    at: Addr,
) -> Result<u64> {
    let hash = C::words_hash(hasher, words);
    if layout::print_of(hash) != layout::print(state) {
        return Err(corrupt(at, "a fingerprint is that of its key"));
    }
    Ok(hash)
}

/// Whether two slots hold the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Same {
    /// They do.
    Yes,
    /// They do not.
    No,
    /// All 64 bits of the hashes are equal, and a record is damaged, so that its key cannot be
    /// read. They count as one key, unless another slot surely has it: the pair above goes on its
    /// way down, and whoever asks for the key meets the damage, if that is in the newest copy.
    Likely,
}

/// Returns whether two slots hold the same key.
///
/// # Errors
/// As the medium.
#[inline(always)]
pub fn same_key<C: PairCodec, M: Media>(
    pm: &Access<'_, M>,
    (one, one_at): (Words, Addr),
    (two, two_at): (Words, Addr),
) -> Result<Same> {
    if one[0] != two[0] || !C::RECORDS || one[1] == two[1] {
        return Ok(if one[0] == two[0] { Same::Yes } else { Same::No });
    }
    same_key_of_records::<C, M>(pm, (one, one_at), (two, two_at))
}

/// As [`same_key`], of two records whose keys have the same hash.
fn same_key_of_records<C: PairCodec, M: Media>(
    pm: &Access<'_, M>,
    (one, one_at): (Words, Addr),
    (two, two_at): (Words, Addr),
) -> Result<Same> {
    let compare = || {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        C::read(pm, C::decode(one, one_at)?, &mut key, &mut value)?;
        C::holds(pm, C::decode(two, two_at)?, one[0], C::key(&key), &mut value)
    };
    match compare() {
        Ok(true) => Ok(Same::Yes),
        Ok(false) => Ok(Same::No),
        Err(Error::Corrupt { .. }) => Ok(Same::Likely),
        Err(other) => Err(other),
    }
}

/// Makes the error of a broken invariant.
#[cold]
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}
