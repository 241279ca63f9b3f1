//! An open table in DRAM.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Error, Form, Result};
use everhash_pmem::{
    AtomicWord, Latch, LatchGuard, Lock, Masked, Media, Pool, Primitives, Space, Span,
};

use super::directory::{Arena, Shard};
use super::objects::Objects;
use super::runs::Runs;
use super::setup::ReefSettings;
use super::stream::{OwnLines, Position, Stream, Victim};
use super::units::Units;
use crate::common::hash::KeyedHash;

/// A lock of the family that goes with medium `M`.
pub type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// An atomic word of the family that goes with medium `M`.
pub type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// A stream behind its latch.
pub type StreamOf<M> = OwnLines<Latch<<M as Media>::Sync, Stream>>;

/// A stream while its latch is held.
pub type LatchedStream<'r, M> = LatchGuard<'r, <M as Media>::Sync, Stream>;

/// The segment of a stream that is half collected, behind a lock.
pub type CollectionOf<M> = OwnLines<LockOf<M, Option<Victim>>>;

/// How a table of words looks a key up: by code that is compiled for its hash alone.
pub type WordLookup<M> = fn(&Reef<M>, u64) -> Result<Option<u64>>;

/// A checkpoint on the medium.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub(super) span: Span,
    /// The checksum of its head.
    pub(super) sum: u64,
    /// Where the log goes on.
    pub(super) tails: Vec<Position>,
    /// What had been appended in all since the table was opened. Unit: bytes.
    pub(super) written: u64,
}

/// What is known of epochs.
#[derive(Debug, Default)]
pub struct Epochs {
    /// The last epoch that is durable.
    pub(super) number: u64,
    /// When upkeep first saw a write that is in no epoch, or ended an epoch that does not cover it.
    pub(super) seen: Option<Duration>,
    /// How many pairs there were when they were counted last.
    pub(super) pairs: u64,
    /// The checkpoint that commit records name.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// A table, of any form.
///
/// Latches are taken in this order: that of a collection, a shard's, a stream's, a run's, then what
/// is kept back, the spare room of a checkpoint, and the arena's. An epoch takes its own lock, then
/// the latches of the shards one by one, and then those of all streams and of all runs; a clear
/// those of all shards and all streams; an atomic batch the lock of epochs if it is durable at
/// once, and then latches of shards and of streams. Of one kind they are taken in their order.
pub struct Reef<M: Media> {
    pub(super) pool: Pool<M>,
    pub(super) form: Form,
    pub(super) settings: ReefSettings,
    pub(super) hasher: KeyedHash,
    pub(super) lookup: WordLookup<M>,
    pub(super) objects: Objects,
    /// Binds checks to the database.
    pub(super) seed: u64,
    /// Of this opening of the pool.
    pub(super) generation: u64,
    pub(super) unit_bytes: u64,
    /// Whether every write is durable when it returns.
    pub(super) is_immediate: bool,
    pub(super) space: Space<M>,
    pub(super) units: Units<M::Sync>,
    /// The memory of the shards.
    pub(super) arena: Arc<Arena<M::Sync>>,
    pub(super) shards: Masked<Shard<M::Sync>>,
    pub(super) streams: Box<[StreamOf<M>]>,
    pub(super) runs: Runs<M::Sync>,
    pub(super) epochs: LockOf<M, Epochs>,
    /// Room that is kept back.
    pub(super) kept: LockOf<M, Vec<Span>>,
    /// The longest object that was stored since the table was opened. Unit: words.
    pub(super) longest: WordOf<M>,
    /// 1 while removals may use all that is kept back but one segment: nothing could be collected,
    /// and half of it was not there.
    pub(super) is_short: WordOf<M>,
    /// Room of the checkpoint before the last one, for the next one.
    pub(super) spare: LockOf<M, Option<Span>>,
    /// Room that segments take. Unit: bytes.
    pub(super) used: WordOf<M>,
    /// Not 0 after a failure of the medium: nothing can be promised any more.
    pub(super) dead: WordOf<M>,
    /// For each stream the segment that is half collected.
    pub(super) collected: Box<[CollectionOf<M>]>,
    /// Who writes the record of an atomic batch, until it has moved all its tails. Taken last.
    pub(super) batching: LockOf<M, ()>,
    /// Who makes room on a full medium.
    pub(super) making_room: LockOf<M, ()>,
    /// Who writes a checkpoint, or gives one up. Taken before all others.
    pub(super) checkpointing: LockOf<M, ()>,
    /// How much had been written in all when upkeep looked last. Unit: bytes.
    pub(super) seen_written: WordOf<M>,
    /// When it found more than before. Unit: microseconds.
    pub(super) seen_since: WordOf<M>,
    /// When it gave storage back beside writers last. Unit: microseconds.
    pub(super) given_back_at: WordOf<M>,
    /// Segments that were collected since the table was opened.
    pub(super) collections: WordOf<M>,
}

impl<M: Media> Reef<M> {
    /// Returns the hash of a key.
    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        match self.form {
            Form::WORDS => match key.as_array() {
                Some(bytes) => self.hasher.word(u64::from_le_bytes(*bytes)),
                None => self.hasher.bytes(key),
            },
            // Keys of two words are frequent, and have a faster way to the same hash.
            _ => match key.as_chunks() {
                ([first, second], []) => {
                    self.hasher.two_words([first, second].map(|half| u64::from_le_bytes(*half)))
                }
                _ => self.hasher.bytes(key),
            },
        }
    }

    /// Returns the number of the shard of a hash.
    #[inline(always)]
    pub(super) fn shard_number(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.all().len() - 1)
    }

    /// Returns the shard of a hash, and the number of its stream.
    #[inline(always)]
    pub(super) fn shard(&self, hash: u64) -> (&Shard<M::Sync>, usize) {
        let number = self.shard_number(hash) & (self.streams.len() - 1);
        (self.shards.of(hash >> SHARD_SHIFT), number)
    }

    /// Counts the pairs, shard by shard.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub(super) fn count_pairs(&self) -> Result<u64> {
        self.shards.all().iter().map(|shard| Ok(shard.latch.lock()?.items)).sum()
    }

    /// Fails after a failure of the medium.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    #[inline(always)]
    pub(super) fn alive(&self) -> Result<()> {
        match self.dead.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Error::Poisoned),
        }
    }

    /// Returns the error of a write where there can be none.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::Unsupported`] if the pool was opened for reading only.
    #[inline(always)]
    pub(super) fn takes_writes(&self) -> Result<()> {
        self.alive()?;
        Ok(self.pool.check_writable()?)
    }

    /// Passes a result on; after a failure, nothing can be promised any more.
    #[inline(always)]
    pub(super) fn poison_on_error<T>(&self, outcome: everhash_pmem::Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.dead.store(1, Ordering::Relaxed);
        }
        Ok(outcome?)
    }
}

/// Where the bits of the hash begin that choose a shard: the highest twelve.
pub const SHARD_SHIFT: u32 = 52;
