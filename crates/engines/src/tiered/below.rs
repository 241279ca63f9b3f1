//! A bucket where pairs arrive, with what is planned for it. While pairs move it is asked for each
//! pair of the bucket above, so it is read once.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Block, LINE, Media};

use super::bucket::{LINE_PLACES, PairCodec, Same, Words, heads_of, same_key};
use super::fingerprints::Known;
use super::in_cacheline_crash_consistency::Plan;
use super::layout::{self, BUCKET_BYTES, BUCKET_WORDS, Head, LINE_WORDS, Line as Ruler};

/// A bucket without overflow lines where pairs arrive.
pub struct Below<'a, M: Media> {
    bucket: M::Block<'a, BUCKET_WORDS>,
    /// What is known of its lines. Both planned heads are loaded together soon after one of them
    /// was stored: if they were neighbours, by an instruction that waits for that store.
    lines: [Planned; 2],
    /// The slots that are to be changed, as [`layout::matching`] counts them.
    touched: u32,
}

/// The head of a line as it is and as it will be.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Planned {
    now: Head,
    then: Head,
}

/// A slot where a pair arrives.
pub struct Spot {
    /// Its line.
    pub at: Addr,
    /// The head of the line as it is.
    pub head: Head,
    /// Its number in the line.
    pub slot: usize,
    /// What it holds, if that may be a copy of a key or a record.
    pub words: Words,
    /// Whether it is to be changed.
    pub is_touched: bool,
}

impl Spot {
    /// Returns the state of the slot as it is.
    #[inline(always)]
    pub fn state(&self) -> u16 {
        self.head.state(self.slot)
    }

    /// Returns where the last word of the slot lies.
    #[inline(always)]
    pub fn last_word(&self) -> Addr {
        layout::slot_at(self.at, self.slot)
    }
}

impl<'a, M: Media> Below<'a, M> {
    /// Loads the heads of the bucket at `home`, unless DRAM knows them. `None` if the bucket has
    /// overflow lines, and if a word does not match its check.
    pub fn of(
        pm: &'a Access<'_, M>,
        home: Addr,
        known: Option<[Known; 2]>,
        plan: &Plan,
    ) -> Option<Self> {
        let bucket = pm.try_aligned_block::<BUCKET_WORDS>(home.byte())?;
        let heads = match known {
            Some([_, second]) if second.has_link => return None,
            Some(known) => known.map(|line| line.head),
            None => heads_of(&bucket)?,
        };
        let lines = heads.map(|head| Planned { now: head, then: head });
        let mut below = Below { bucket, lines, touched: 0 };
        for (number, line) in below.lines.iter_mut().enumerate() {
            let at = home.plus((number * LINE_WORDS) as u64);
            line.then = plan.head_at(at, line.now);
            below.touched |= plan.touched(at) << (number * LINE_PLACES);
        }
        Some(below)
    }

    /// Returns where it begins.
    #[inline(always)]
    pub fn home(&self) -> Addr {
        self.bucket.start()
    }

    /// Returns a slot, as [`layout::matching`] counts them, with what it holds.
    #[inline(always)]
    fn spot(&self, place: usize, words: Words) -> Spot {
        let (number, slot) = (place / LINE_PLACES % 2, place % LINE_PLACES);
        let is_touched = self.touched >> place & 1 == 1;
        let at = self.home().plus((number * LINE_WORDS) as u64);
        Spot { at, head: self.lines[number].now, slot, words, is_touched }
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
    ) -> Result<Option<Spot>> {
        let mut likely = None;
        let mut matching = layout::matching(self.lines.map(|line| line.now), print);
        while let Some((place, words)) = self.words(matching) {
            let spot = self.spot(place, words);
            match same_key::<C, M>(pm, other, (words, spot.last_word()))? {
                Same::Yes => return Ok(Some(spot)),
                Same::Likely => likely = likely.or(Some(spot)),
                Same::No => {}
            }
            matching &= matching - 1;
        }
        Ok(likely)
    }

    /// Returns the first of some slots, and what it holds.
    #[inline(always)]
    fn words(&self, slots: u32) -> Option<(usize, Words)> {
        self.bucket.first_slot::<{ Ruler::SLOTS }, { BUCKET_WORDS / 2 }>(slots)
    }

    /// Returns room among the first `slots` slots of each line, beside what is planned. What a
    /// record's slot holds comes with it.
    #[inline(always)]
    pub fn room<C: PairCodec>(&self, slots: u64) -> Option<Spot> {
        let (number, slot, _) = layout::room(self.lines.map(|line| line.then), slots)?;
        let place = number * LINE_PLACES + slot;
        let mut spot = self.spot(place, [0; 2]);
        if C::RECORDS && layout::is_readable(spot.state()) && !spot.is_touched {
            spot.words = self.words(1 << place)?.1;
        }
        Some(spot)
    }

    /// Notes that the plan gives a slot this state, and other words unless its `flags_only` change.
    #[inline(always)]
    pub fn note(&mut self, spot: &Spot, state: u16, flags_only: bool) {
        let number = (spot.at.byte() / LINE % 2) as usize;
        let line = &mut self.lines[number];
        let touched = !flags_only || line.now.state(spot.slot) != state;
        line.then = line.then.with(spot.slot, state);
        self.touched |= u32::from(touched) << (number * LINE_PLACES + spot.slot);
    }
}

/// Returns where the bucket begins in which a line lies, if it is no overflow line.
#[inline(always)]
pub fn home_of(line: Addr) -> Addr {
    Addr::new(line.byte() & !(BUCKET_BYTES - 1))
}

#[cfg(test)]
mod tests {
    use everhash_pmem::{Image, Region, Std};

    use super::*;
    use crate::common::slot_codec::Words as WordCodec;
    use crate::tiered::layout::{NON_WRITABLE, READABLE, SLOTS};

    #[test]
    fn what_is_noted_is_what_the_plan_says() {
        // Fails if a pair is put where an earlier one of the same plan will be, or if a slot that
        // another pair takes counts as a copy.
        let region = Region::new(Image::<Std>::new(4096, 4096));
        let (pm, home) = (region.access(), Addr::new(1024));
        let print = 0x50;
        for at in [home, home.plus(LINE_WORDS as u64)] {
            let head = Head::EMPTY.with(1, READABLE | print);
            pm.store(at.plus(Ruler::HEAD as u64), head.encode(at)).unwrap();
            pm.store(at.plus(Ruler::LINK as u64), layout::seal_link(Addr::NULL, at)).unwrap();
        }
        let mut plan = Plan::default();
        let mut below = Below::of(&pm, home, None, &plan).unwrap();
        for number in 1..=2 * SLOTS as u64 {
            let room = below.room::<WordCodec>(SLOTS as u64).unwrap();
            assert!(!room.is_touched);
            let state = READABLE | NON_WRITABLE;
            plan.fill((room.at, room.head), room.slot, state, [number; 2]);
            below.note(&room, state, false);
            let again = Below::of(&pm, home, None, &plan).unwrap();
            assert_eq!((below.lines, below.touched), (again.lines, again.touched));
        }
        assert!(below.room::<WordCodec>(SLOTS as u64).is_none());
        let copy = below.copy_of::<WordCodec>(&pm, print, ([0; 2], home)).unwrap();
        assert!(copy.is_some_and(|copy| copy.is_touched), "the shadow is taken");
    }
}
