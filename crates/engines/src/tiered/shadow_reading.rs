//! Searching, from the top layer down (Tiered Hashing 3.2, 3.4): what a reader finds first is the
//! newest copy of its key, shadows included; a writer surveys all copies and where there is room.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media};

use super::bucket::{Line, PairCodec};
use super::layers::View;
use super::layout::{self, MOST_LIVE, is_deleted, is_shadow};
use super::state::Tiered;
use crate::common::slot_codec::HashedKey;

/// A copy of a key.
pub struct Copied<'a, M: Media, C: PairCodec> {
    /// The layer, counted from the top.
    pub rank: usize,
    /// The line and the slot.
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

/// All copies of a key, and the room for it in every layer.
pub struct Survey<'a, M: Media, C: PairCodec> {
    /// The copies, the topmost first. They lie under one hash function.
    pub copies: [Option<Copied<'a, M, C>>; MOST_LIVE],
    /// Room in each layer, under the first hash function and under the second.
    pub room: [[Option<Room<'a, M>>; 2]; MOST_LIVE],
    /// How many slots of these buckets are not valid.
    pub free: [[u32; 2]; MOST_LIVE],
}

impl<'a, M: Media, C: PairCodec> Survey<'a, M, C> {
    /// Returns the topmost copy.
    pub fn topmost(&self) -> Option<&Copied<'a, M, C>> {
        self.copies.iter().flatten().next()
    }

    /// Returns whether there are copies below the topmost one.
    pub fn is_covering(&self) -> bool {
        self.copies.iter().flatten().count() > 1
    }
}

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
    let first =
        |is_free: fn(u16) -> bool| (0..line_slots as usize).find(|slot| is_free(head.state(*slot)));
    if let Some(slot) = first(|state| state == 0) {
        return Some(Room { line, slot, is_open: true });
    }
    best.or_else(|| Some(Room { line, slot: first(is_shadow)?, is_open: false }))
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
        let positions = self.prefetch(pm, wanted.hash);
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
        let groups = positions.map(|position| self.groups.of(position));
        pm.dram(3 + self.fingerprints.dram_lines());
        self.groups.read(
            groups,
            || self.layers.view(),
            |view| self.layers.is_same(view),
            |view| self.look(pm, &view, positions, wanted, bytes),
        )
    }

    /// Looks for the newest copy. Under the first hash function and the second there cannot be
    /// copies of one key, so that it does not matter which is looked at first.
    #[inline(always)]
    fn look(
        &self,
        pm: &Access<'_, M>,
        view: &View,
        positions: [u64; 2],
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<C::Pair>> {
        for rank in 0..view.count() {
            let indexes = positions.map(|position| view.bucket(rank, position));
            let count = if indexes[0] == indexes[1] { 1 } else { 2 };
            for index in &indexes[..count] {
                let mut lines = self.lines_of(pm, view, rank, *index);
                while let Some((line, _)) = lines.advance()? {
                    let found = line.find(pm, &self.hasher, wanted, bytes)?;
                    let Some((slot, pair)) = found else { continue };
                    let state = line.head.state(slot);
                    // Without shadow reading the pair is read where it was moved to.
                    if self.settings.shadow_reading == 1 || !is_shadow(state) {
                        return Ok((!is_deleted(state)).then_some(pair));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Surveys all copies of a key and the room for it. The caller holds its groups. A record's
    /// value of the topmost copy is left in `bytes`.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    #[inline(always)]
    pub(super) fn survey<'a>(
        &self,
        pm: &'a Access<'_, M>,
        view: &View,
        wanted: HashedKey<'_, C>,
        bytes: &mut Vec<u8>,
    ) -> Result<Survey<'a, M, C>> {
        let mut survey = Survey {
            copies: [const { None }; MOST_LIVE],
            room: [[const { None }; 2]; MOST_LIVE],
            free: [[0; 2]; MOST_LIVE],
        };
        let positions = [false, true].map(|second| layout::position(wanted.hash, second));
        pm.dram(self.fingerprints.dram_lines());
        let mut below = Vec::new();
        let mut is_found = false;
        for rank in 0..view.count() {
            let indexes = positions.map(|position| view.bucket(rank, position));
            for (second, index) in indexes.into_iter().enumerate() {
                if second == 1 && indexes[0] == indexes[1] {
                    survey.room[rank][1] = survey.room[rank][0];
                    survey.free[rank][1] = survey.free[rank][0];
                    continue;
                }
                let mut lines = self.lines_of(pm, view, rank, index);
                while let Some((line, _)) = lines.advance()? {
                    let room = &mut survey.room[rank][second];
                    *room = better_room(line.head, line, self.settings.line_slots, *room);
                    survey.free[rank][second] += line.head.free(self.settings.line_slots);
                    let value = if is_found { &mut below } else { &mut *bytes };
                    if let Some((slot, pair)) = line.find(pm, &self.hasher, wanted, value)? {
                        survey.copies[rank] = Some(Copied { rank, line, slot, pair });
                        is_found = true;
                    }
                }
            }
        }
        Ok(survey)
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
            for slot in line.readable() {
                let target = (line.words(slot), layout::slot_at(line.at(), slot));
                if layout::print(line.head.state(slot)) == print
                    && super::bucket::same_key::<C, M>(pm, source, target)?
                {
                    return Ok(Some((line, slot)));
                }
            }
        }
        Ok(None)
    }
}
