//! Reversed search (ElimDA 3.4): the device table through its fingerprints, then the DRAM table,
//! then the collecting logs.

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Media};

use super::dram_table::{Bucket, Candidate, Segment};
use super::form::{Form, Item};
use super::layout;
use super::state::{ElimDa, Located};

/// Where an item was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a unit of the bucket, oldest first, at a slot.
    Unit {
        /// Which unit of the bucket.
        entry: usize,
        /// Which slot of the unit.
        slot: u64,
    },
    /// In the D-bucket.
    Dram {
        /// Which item of the D-bucket.
        index: usize,
    },
    /// In a collecting log.
    Collected {
        /// Where the log lies.
        at: Addr,
        /// Which slot of it.
        slot: u64,
    },
}

/// An item that has the key.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where it is.
    pub place: Place,
    /// Its words.
    pub item: Item,
}

/// A key and its hash.
pub struct Wanted<'k, F: Form> {
    /// The hash of the key.
    pub hash: u64,
    /// The key.
    pub key: F::Key<'k>,
}

impl<F: Form> Clone for Wanted<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Form> Copy for Wanted<'_, F> {}

impl<M: Media, F: Form> ElimDa<M, F> {
    /// Looks for a key in its bucket. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// Of a damaged pool; also if the bucket is being changed, and the caller tells.
    #[inline(always)]
    pub(super) fn search(
        &self,
        pm: &Access<'_, M>,
        segment: &Segment<'_, M::Sync>,
        bucket: &Bucket<'_, M::Sync>,
        wanted: Wanted<'_, F>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let fingerprint = layout::fingerprint(wanted.hash);
        for candidate in bucket.candidates(fingerprint) {
            let at = self.candidate_at(segment, candidate);
            let item = self.load_item(pm, at)?;
            if F::matches(pm, &item, at, (wanted.hash, wanted.key), bytes)? {
                let Candidate { entry, slot, .. } = candidate;
                return Ok(Some(Found { place: Place::Unit { entry, slot }, item }));
            }
        }
        for first in bucket.dram_parts() {
            let mut candidates = bucket.dram_candidates(first, fingerprint);
            while candidates != 0 {
                let index = first + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let (item, _) = bucket.item(index);
                if F::matches(pm, &item, Addr::NULL, (wanted.hash, wanted.key), bytes)? {
                    return Ok(Some(Found { place: Place::Dram { index }, item }));
                }
            }
        }
        self.search_collected(pm, wanted, bytes)
    }

    /// Asks for the first line of the device that a search will read, if there is one.
    pub(super) fn prefetch_item(&self, pm: &Access<'_, M>, located: &Located<'_, M>, hash: u64) {
        let Located { segment, bucket, .. } = located;
        let fingerprint = layout::fingerprint(hash);
        if let Some(candidate) = bucket.candidates(fingerprint).next() {
            pm.prefetch(self.candidate_at(segment, candidate));
        }
    }

    /// Returns where a slot lies that has the fingerprint of a key.
    #[inline(always)]
    pub(super) fn candidate_at(
        &self,
        segment: &Segment<'_, M::Sync>,
        Candidate { unit, slot, .. }: Candidate,
    ) -> Addr {
        self.geometry.unit_item(self.geometry.unit_at(segment.at(), unit), slot)
    }

    /// Returns where a slot of a bucket's unit lies.
    #[inline(always)]
    pub(super) fn unit_item(
        &self,
        segment: &Segment<'_, M::Sync>,
        bucket: &Bucket<'_, M::Sync>,
        entry: usize,
        slot: u64,
    ) -> Addr {
        let unit = self.geometry.unit_at(segment.at(), bucket.entry(entry).unit);
        self.geometry.unit_item(unit, slot)
    }

    /// Loads the item at `at`.
    #[inline(always)]
    pub(super) fn load_item(&self, pm: &Access<'_, M>, at: Addr) -> Result<Item> {
        let mut item = [0; 4];
        pm.read_words(at, &mut item[..F::WORDS])?;
        Ok(item)
    }
}
