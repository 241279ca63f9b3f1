//! Searching, from the top layer down (Tiered Hashing 3.2, 3.4): what a reader finds first is the
//! newest copy of its key, shadows included, and a writer looks for the same one.
//!
//! All copies of a key lie under one of its hash functions, so that it does not matter which is
//! looked at first. Where each bucket costs a page, one column of buckets comes after the other:
//! more pairs lie under the first hash function than under the second, and in full tables more in
//! lower layers than above. Elsewhere, where lines are fetched together, one layer comes after the
//! other, which takes fewer steps in tables with room; also where DRAM knows the upper ones.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media};

use super::bucket::{
    Both, Hit, Line, Lines, PairCodec, Search, Words, heads_of, pair_in, prefetch_bucket,
};
use super::concurrency::{Group, Live};
use super::fingerprints::Covers;
use super::layers::View;
use super::layout::{self, BUCKET_WORDS, Head, Place, is_deleted, is_shadow};
use super::state::{ShortLookup, Tiered};
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
    ///
    /// Heads are those that DRAM knows, if `IN_DRAM`: then a line is read for a slot with the
    /// fingerprint of the key only, and only lines of the bottom layer are fetched before, if DRAM
    /// does not know that.
    #[inline(always)]
    pub(super) fn try_get<const IN_DRAM: bool>(
        &self,
        pm: &Access<'_, M>,
        wanted: HashedKey<'_, C>,
        is_fetched: bool,
    ) -> Option<Option<C::Pair>> {
        if C::RECORDS {
            return None;
        }
        let live = self.layers.live();
        let positions = layout::positions(wanted.hash);
        if !is_fetched {
            let first = match IN_DRAM {
                false => 0,
                true if self.fingerprints.covers() == Covers::Upper => live.count() - 1,
                true => live.count(),
            };
            (first..live.count()).for_each(|rank| {
                prefetch_buckets(pm, self.layers.place(live, rank), positions);
            });
        }
        let [one, two] = self.groups.of(live, positions).map(Group::sequence);
        let stamps = [one.try_read()?, two.try_read()?];
        pm.dram(if IN_DRAM { 3 + self.fingerprints.dram_lines() } else { 3 });
        let found = self.first_copy::<IN_DRAM>(pm, live, positions, wanted)?;
        let is_whole =
            one.validate(stamps[0]) && two.validate(stamps[1]) && self.layers.are_still(live);
        is_whole.then_some(found)
    }

    /// As [`Tiered::try_get`], as far as this table has a short look-up.
    #[inline(always)]
    pub(super) fn try_find(
        &self,
        pm: &Access<'_, M>,
        wanted: HashedKey<'_, C>,
        is_fetched: bool,
    ) -> Option<Option<C::Pair>> {
        match self.short_lookup {
            ShortLookup::InLines => self.try_get::<false>(pm, wanted, is_fetched),
            ShortLookup::InDram => self.try_get::<true>(pm, wanted, is_fetched),
            ShortLookup::None => None,
        }
    }

    /// Returns the pair of a key in the layers that are in use, for [`Tiered::try_get`].
    #[inline(always)]
    fn first_copy<const IN_DRAM: bool>(
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
                let known = match IN_DRAM {
                    true => self.known(live, rank, place, position),
                    false => None,
                };
                let heads = match known {
                    Some([first, second]) if !second.has_link => [first.head, second.head],
                    Some(_) => return None,
                    None => heads_of(&bucket)?,
                };
                match pair_in::<C, _>(&bucket, heads, wanted) {
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
        self.prefetch(pm, self.layers.live(), wanted.hash, positions, false);
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
            positions,
            || self.layers.live(),
            |live| self.look(pm, live, positions, wanted, bytes),
        )
    }

    /// Returns the value that counts.
    #[inline(always)]
    fn look(
        &self,
        pm: &Access<'_, M>,
        live: Live,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        // Without shadow reading the pair is read where it was moved to.
        let counts = |state| self.settings.shadow_reading == 1 || !is_shadow(state);
        let see = |_, _, _| {};
        let newest = self.topmost(pm, live, positions, (wanted, bytes), counts, see)?;
        Ok(newest.filter(|copy| !is_deleted(copy.state())).map(|copy| copy.pair))
    }

    /// Returns the topmost copy of a key with a state that counts: a shadow and a tombstone are
    /// copies too. A record's value is left in `bytes`. Calls `see` for the buckets on the way,
    /// with the layer and the number of the hash function, and with the heads of those that have no
    /// overflow lines.
    ///
    /// Places come from where they are shared, and are not copied first.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`]; also if a write comes between, and the caller tells.
    #[inline(always)]
    pub(super) fn topmost<'a>(
        &self,
        pm: &'a Access<'_, M>,
        live: Live,
        positions: [u64; 2],
        (wanted, bytes): (HashedKey<'_, C>, &mut Vec<u8>),
        counts: impl Fn(u16) -> bool,
        mut see: impl FnMut(usize, usize, Option<[Head; 2]>),
    ) -> Result<Option<Copied<'a, M, C>>> {
        let print = layout::print_of(wanted.hash);
        for (rank, second) in order(live, self.by_column) {
            let place = self.layers.place(live, rank);
            let home = place.home(positions[second]);
            let known = self.known(live, rank, place, positions[second]);
            let both = Both::of(pm, home, known);
            see(rank as usize, second, both.as_ref().map(Both::heads));
            let found = match both {
                Some(lines) => match lines.matching(print) {
                    0 => continue,
                    slots => lines.find(slots, &self.hasher, wanted, bytes)?,
                },
                None => self.walk(Lines::with(pm, home, known), wanted, bytes)?,
            };
            if let Some((line, slot, pair)) = found
                && counts(line.head.state(slot))
            {
                return Ok(Some(Copied { rank: rank as usize, line, slot, pair }));
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

    /// Returns the copy of the key of a slot in the bucket at `home`, if there is one. The slot has
    /// a state, words, and a place of its last word.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    pub(super) fn copy_of<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        home: Addr,
        (state, contents): (u16, (Words, Addr)),
    ) -> Result<Option<(Line<'a, M>, usize)>> {
        let print = layout::print(state);
        let mut lines = self.lines(pm, view, home);
        while let Some((line, _)) = lines.advance()? {
            if let Some(slot) = line.copy_of::<C>(pm, print, contents)? {
                return Ok(Some((line, slot)));
            }
        }
        Ok(None)
    }
}

/// Returns in which order layers, from the top down, and hash functions are looked at: one hash
/// function after the other, `by_column`, or one layer after the other.
#[inline(always)]
fn order(live: Live, by_column: bool) -> impl Iterator<Item = (u64, usize)> {
    let layers = live.count();
    (0..2 * layers).map(move |step| match by_column {
        true if step < layers => (step, 0),
        true => (step - layers, 1),
        false => (step / 2, (step % 2) as usize),
    })
}

/// Fetches the lines of both buckets of a key in a layer.
#[inline(always)]
pub fn prefetch_buckets<M: Media>(pm: &Access<'_, M>, place: Place, positions: [u64; 2]) {
    positions.iter().for_each(|position| prefetch_bucket(pm, place.home(*position)));
}
