//! Searching, from the top layer down (Tiered Hashing 3.2, 3.4): what a reader finds first is the
//! newest copy of its key, shadows included, and a writer looks for the same one.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media};

use super::bucket::{Both, Hit, Line, Lines, PairCodec};
use super::layers::View;
use super::layout::{self, Head, MOST_LIVE, is_deleted, is_shadow};
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
pub struct Met([[Option<[Head; 2]>; 2]; MOST_LIVE]);

impl Met {
    /// Returns none.
    #[inline(always)]
    pub fn nothing() -> Self {
        Met([[None; 2]; MOST_LIVE])
    }

    /// Notes the heads of the bucket of a hash function in a layer.
    #[inline(always)]
    pub fn note(&mut self, rank: usize, second: usize, heads: [Head; 2]) {
        self.0[rank][second] = Some(heads);
    }

    /// Returns the heads of the bucket of a hash function in a layer; `None` if the search has not
    /// met it, and if it has overflow lines.
    #[inline(always)]
    pub fn heads(&self, rank: usize, second: bool) -> Option<[Head; 2]> {
        self.0[rank][usize::from(second)]
    }
}

impl<M: Media, C: PairCodec> Tiered<M, C> {
    /// Returns the pair of a key with its hash. A record's value is left in `bytes`.
    ///
    /// The lines of all its buckets are fetched at once: looking at them one after the other costs
    /// one wait for memory, and not one for each.
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
        let view = self.layers.view();
        let positions = layout::positions(wanted.hash);
        self.prefetch(pm, &view, wanted.hash, positions);
        self.get_at(pm, &view, positions, wanted, bytes)
    }

    /// As [`Tiered::get_hashed`], of a key at these positions whose lines were fetched. The view
    /// was loaded before; it may be another one by now.
    #[inline(always)]
    pub(super) fn get_at(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        let groups = [self.groups.of(positions[0]), self.groups.of(positions[1])];
        pm.dram(3 + self.fingerprints.dram_lines());
        if let Some(stamps) = self.groups.stamps(groups) {
            let found = self.look(pm, view, positions, wanted, bytes);
            if self.groups.accept(groups, stamps) && self.layers.is_same(view) {
                return found;
            }
        }
        self.get_beside_writers(pm, positions, wanted, bytes)
    }

    /// As [`Tiered::get_at`], beside a write that came between.
    #[cold]
    fn get_beside_writers(
        &self,
        pm: &Access<'_, M>,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
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
            let mut last = u64::MAX;
            for (second, position) in positions.into_iter().enumerate() {
                let index = layout::bucket_of(position, place.log);
                if index == last {
                    break;
                }
                last = index;
                let home = place.bucket(index);
                let known = self.fingerprints.bucket(view.first() + rank, index);
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
