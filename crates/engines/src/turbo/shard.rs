//! Shards and their directory (TurboHash 3.1): which shard a key belongs to, where that lies, and
//! the turn of its descriptor from one place to another.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, Primitives, Scaled, Span};

pub use super::concurrency::Shard;
use super::layout::{self, Descriptor, Place};

/// Where a descriptor persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The idle set of a descriptor, with the buckets that it names.
        SET = "turbo/resize/set";
        /// The version byte that puts the set in use.
        VERSION = "turbo/resize/version";
    }
}

/// The directory: on the medium a descriptor for each shard, in DRAM what serves it.
pub struct Directory<P: Primitives> {
    at: Addr,
    shards: Scaled<Shard<P>>,
}

impl<P: Primitives> Directory<P> {
    /// Makes the DRAM side of the directory at `at`, for shards that lie at `places`.
    pub fn new(at: Addr, places: &[Place]) -> Self {
        let shards = places.iter().map(|place| Shard::new(*place)).collect();
        Directory { at, shards: Scaled::new(shards) }
    }

    /// Returns all shards.
    pub fn shards(&self) -> &[Shard<P>] {
        self.shards.all()
    }

    /// Returns the index of the shard of a hash.
    #[inline(always)]
    pub fn index_of(&self, hash: u64) -> u64 {
        self.shards.index_of(layout::shard_bits_of(hash))
    }

    /// Returns the shard of a hash.
    #[inline(always)]
    pub fn of(&self, hash: u64) -> &Shard<P> {
        self.shards.of(layout::shard_bits_of(hash))
    }

    /// Returns how much DRAM it takes. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        size_of_val(self.shards.all()) as u64
    }

    /// Returns the version to which the descriptor of shard `index` turns next.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the descriptor was damaged since the pool was opened.
    pub fn next_version<M: Media>(&self, pm: &Access<'_, M>, index: u64) -> Result<u8> {
        Ok(read_version(pm, layout::descriptor_at(self.at, index))?.wrapping_add(1))
    }

    /// Turns the descriptor of shard `index` to `place`, whose buckets were stored past the caches
    /// through the same access. The caller has held the shard's lock since it asked for the
    /// [`Directory::next_version`].
    ///
    /// A crash leaves the shard at the old place or at the new one.
    ///
    /// # Errors
    /// As the medium.
    pub fn turn<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (index, version): (u64, u8),
        place: Place,
    ) -> Result<()> {
        let at = layout::descriptor_at(self.at, index);
        let set = layout::set_at(at, version);
        pm.store(set, place.encode(set))?;
        // A file's fence begins a sync only for what was flushed since the last one.
        pm.flush(Span::new(set, 1), sites::SET);
        pm.fence(sites::SET)?;
        let word = at.plus(Descriptor::VERSION as u64);
        pm.commit_word(word, layout::encode_version(version, at), sites::VERSION)?;
        Ok(pm.persist(Span::new(word, 1), sites::VERSION)?)
    }
}

/// Reads where a shard lies from its descriptor at `at`.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn read_place<M: Media>(pm: &Access<'_, M>, at: Addr) -> Result<Place> {
    let set = layout::set_at(at, read_version(pm, at)?);
    let broken = "the set in use of a descriptor matches its check";
    Place::decode(pm.load(set)?, set).ok_or(Error::Corrupt { at: set.byte(), broken })
}

fn read_version<M: Media>(pm: &Access<'_, M>, at: Addr) -> Result<u8> {
    let broken = "the version of a descriptor matches its check";
    layout::decode_version(pm.load(at.plus(Descriptor::VERSION as u64))?, at)
        .ok_or(Error::Corrupt { at: at.byte(), broken })
}
