//! Searching, from the top layer down (Tiered Hashing 3.2, 3.4): what a reader finds first is the
//! newest copy of its key, shadows included, and a writer looks for the same one.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, LINE, Media, WORD};

use super::bucket::{Both, Hit, Line, Lines, PairCodec, Search, heads_of, pair_in};
use super::layers::{Live, View};
use super::layout::{self, BUCKET_WORDS, Head, MOST_LIVE, Place, is_deleted, is_shadow};
use super::state::Tiered;
use crate::common::slot_codec::HashedKey;

/// A copy of a key.
pub struct Copied<'a, M: Media, C: PairCodec> {
    /// The layer, counted from the top.
    pub rank: usize,
    /// The line.
    pub line: Line<'a, M>,
    /// The slot.
    pub slot: usize,
    /// What it holds.
    pub pair: C::Pair,
}

impl<M: Media, C: PairCodec> Copied<'_, M, C> {
    /// Returns flags and fingerprint of the slot.
    pub fn state(&self) -> u16 {
        self.line.head.state(self.slot)
    }
}

/// The buckets that a search has met, by layer and hash function: so a write need not read them
/// again to find room. The caller holds their groups.
pub struct Met {
    heads: [[[Head; 2]; 2]; MOST_LIVE],
    /// Bit 2 * i + j: those of hash function j in layer i.
    met: u32,
}

impl Met {
    /// Returns none.
    #[inline(always)]
    pub fn nothing() -> Self {
        Met { heads: [[[Head::EMPTY; 2]; 2]; MOST_LIVE], met: 0 }
    }

    /// Notes the heads of the bucket of a hash function in a layer.
    #[inline(always)]
    pub fn note(&mut self, rank: usize, second: usize, heads: [Head; 2]) {
        self.heads[rank][second] = heads;
        self.met |= 1 << (2 * rank + second);
    }

    /// Returns the heads of the bucket of a hash function in a layer; `None` if the search has not
    /// met it, and if it has overflow lines.
    #[inline(always)]
    pub fn heads(&self, rank: usize, second: bool) -> Option<[Head; 2]> {
        let second = usize::from(second);
        (self.met >> (2 * rank + second) & 1 == 1).then(|| self.heads[rank][second])
    }
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Looks a key up in buckets without overflow lines, beside no write; most look-ups end there.
    /// `None` means that [`Tiered::get_hashed`] must answer: from overflow lines, from a record,
    /// from what DRAM knows, beside or after a write, past another key with the same fingerprint,
    /// or by an error. Unless the lines of the key's buckets were fetched before, they are fetched
    /// all at once: one wait for memory, and not one for each. Without those of the top layer,
    /// which are looked at next, gets are 0.8 times as fast, for all that it takes fewer steps.
    ///
    /// While one get waits for memory the processor takes in the next ones, as far as its window
    /// reaches: each instruction counts. Without an error among its results all of them stay in
    /// registers.
    #[inline(always)]
    pub(super) fn try_get(
        &self,
        pm: &Access<'_, M>,
        wanted: HashedKey<'_, C>,
        is_fetched: bool,
    ) -> Option<Option<C::Pair>> {
        if C::RECORDS || !self.reads_lines {
            return None;
        }
        let live = self.layers.live();
        let positions = layout::positions(wanted.hash);
        if !is_fetched {
            (0..live.count()).for_each(|rank| {
                prefetch_buckets(pm, self.layers.place(live, rank), positions);
            });
        }
        let [one, two] = positions.map(|position| self.groups.sequence(position));
        let stamps = [one.try_read()?, two.try_read()?];
        pm.dram(3);
        let found = self.first_copy(pm, live, positions, wanted)?;
        let is_whole =
            one.validate(stamps[0]) && two.validate(stamps[1]) && self.layers.are_still(live);
        is_whole.then_some(found)
    }

    /// Returns the pair of a key in the layers that are in use, for [`Tiered::try_get`].
    #[inline(always)]
    fn first_copy(
        &self,
        pm: &Access<'_, M>,
        live: Live,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
    ) -> Option<Option<C::Pair>> {
        for rank in 0..live.count() {
            let place = self.layers.place(live, rank);
            for position in positions {
                let bucket = pm.try_aligned_block::<BUCKET_WORDS>(place.home_byte(position))?;
                match pair_in::<C, _>(&bucket, heads_of(&bucket)?, wanted) {
                    Search::Absent => {}
                    Search::Deleted => return Some(None),
                    Search::Found(pair) => return Some(Some(pair)),
                    Search::Unsure => return None,
                }
            }
        }
        Some(None)
    }

    /// Returns the pair of a key with its hash, wherever it lies. A record's value is left in
    /// `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], [`everhash_index::Error::Poisoned`].
    #[inline(always)]
    pub(super) fn get_hashed(
        &self,
        pm: &Access<'_, M>,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let positions = layout::positions(wanted.hash);
        self.prefetch(pm, self.layers.live(), wanted.hash, positions);
        self.get_at(pm, positions, wanted, bytes)
    }

    /// As [`Tiered::get_hashed`], of a key at these positions whose lines were fetched.
    #[inline(always)]
    pub(super) fn get_at(
        &self,
        pm: &Access<'_, M>,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        pm.dram(3 + self.fingerprints.dram_lines());
        self.groups.read(
            positions.map(|position| self.groups.of(position)),
            || self.layers.view(),
            |view| self.layers.is_same(view),
            |view| self.look(pm, view, positions, wanted, bytes),
        )
    }

    /// Returns the value that counts.
    #[inline(always)]
    fn look(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        // Without shadow reading the pair is read where it was moved to.
        let counts = |state| self.settings.shadow_reading == 1 || !is_shadow(state);
        let see = |_, _, _| {};
        let newest = self.topmost(pm, view, positions, (wanted, bytes), counts, see)?;
        Ok(newest.filter(|copy| !is_deleted(copy.state())).map(|copy| copy.pair))
    }

    /// Returns the topmost copy of a key with a state that counts: a shadow and a tombstone are
    /// copies too. A record's value is left in `bytes`. Calls `see` with the heads of the buckets
    /// on the way that have no overflow lines, with their layer and the number of the hash
    /// function.
    ///
    /// Under the first hash function and the second there cannot be copies of one key, so that it
    /// does not matter which is looked at first.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`]; also if a write comes between, and the caller tells.
    #[inline(always)]
    pub(super) fn topmost<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        positions: [u64; 2],
        (wanted, bytes): (HashedKey<'_, C>, &mut Vec<u8>),
        counts: impl Fn(u16) -> bool,
        mut see: impl FnMut(usize, usize, [Head; 2]),
    ) -> Result<Option<Copied<'a, M, C>>> {
        let print = layout::print_of(wanted.hash);
        for (rank, place) in view.all().iter().enumerate() {
            for (second, &position) in positions.iter().enumerate() {
                let home = place.home(position);
                let known = self.known(view, rank, position);
                let found = match Both::of(pm, home, known) {
                    Some(lines) => {
                        see(rank, second, lines.heads());
                        if !lines.has_print(print) {
                            continue;
                        }
                        lines.find(&self.hasher, wanted, bytes)?
                    }
                    None => self.walk(Lines::with(pm, home, known), wanted, bytes)?,
                };
                if let Some((line, slot, pair)) = found
                    && counts(line.head.state(slot))
                {
                    return Ok(Some(Copied { rank, line, slot, pair }));
                }
            }
        }
        Ok(None)
    }

    /// Looks for a key in lines one after the other.
    #[cold]
    fn walk<'a>(
        &self,
        mut lines: Lines<'a, '_, M>,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Hit<'a, M, C>> {
        while let Some((line, _)) = lines.advance()? {
            if let Some((slot, pair)) = line.find(lines.pm(), &self.hasher, wanted, bytes)? {
                return Ok(Some((line, slot, pair)));
            }
        }
        Ok(None)
    }

    /// Returns the copy of the key of a slot in the bucket at `home`, if there is one.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    pub(super) fn copy_of<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        home: Addr,
        (line, slot): (&Line<'_, M>, usize),
    ) -> Result<Option<(Line<'a, M>, usize)>> {
        let source = (line.words(slot), layout::slot_at(line.at(), slot));
        let print = layout::print(line.head.state(slot));
        let mut lines = self.lines(pm, view, home);
        while let Some((line, _)) = lines.advance()? {
            if let Some(slot) = line.copy_of::<C>(pm, print, source)? {
                return Ok(Some((line, slot)));
            }
        }
        Ok(None)
    }
}

/// Fetches the lines of both buckets of a key in a layer.
#[inline(always)]
pub fn prefetch_buckets<M: Media>(pm: &Access<'_, M>, place: Place, positions: [u64; 2]) {
    for position in positions {
        let home = place.home(position);
        pm.prefetch(home);
        pm.prefetch(home.plus(LINE / WORD));
    }
}
