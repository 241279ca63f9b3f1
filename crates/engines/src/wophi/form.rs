//! The three forms of pairs: how a slot holds one, and how a key is found in a bucket.

mod bytes;
mod double_words;
mod words;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Class, Heap, Media};

pub use self::bytes::Bytes;
pub use self::double_words::DoubleWords;
pub use self::words::Words;
use super::bucket::Bucket;
use super::layout::WordBucket;
use crate::common::hash::KeyedHash;

/// How an update makes a new value true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// By one store of the slot's last word.
    LastWord,
    /// By a second slot and a switch of tokens.
    TwoSlots,
}

/// A form of pairs. Everything else is written once, for all forms.
pub trait Form: Send + Sync + Sized + 'static {
    /// Its name in the contract.
    const FORM: everhash_index::Form;
    /// Slots of a bucket.
    const SLOTS: usize;
    /// Lines of a bucket.
    const LINES: u64;
    /// How an update is made.
    const UPDATE: Update;
    /// Whether a slot leads to a record that has to be durable before the slot.
    const RECORDS: bool;

    /// A key as it is looked for.
    type Key<'k>: Copy;
    /// A value as it is written.
    type Value<'v>: Copy;
    /// The words of a slot.
    type Pair: Copy;

    /// Returns the key in `bytes`, or `None` if no key has this form.
    fn key(bytes: &[u8]) -> Option<Self::Key<'_>>;

    /// Returns the value in `bytes`, or `None` if no value has this form.
    fn value(bytes: &[u8]) -> Option<Self::Value<'_>>;

    /// Returns the hash of a key.
    fn hash(hasher: &KeyedHash, key: Self::Key<'_>) -> u64;

    /// Returns the hash of the key in a slot.
    fn pair_hash(hasher: &KeyedHash, pair: &Self::Pair) -> u64;

    /// Returns the slot that holds `key`. Byte strings leave the value in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if the bucket is being changed, and the caller tells.
    fn find<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>>;

    /// Loads a slot.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the slot is damaged, as far as the form can tell.
    fn load<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<Self::Pair>;

    /// Stores a slot, without its token. Nothing is flushed.
    ///
    /// # Errors
    /// As the medium.
    fn store<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        hash: u64,
        pair: &Self::Pair,
    ) -> Result<()>;

    /// Returns the line of its bucket in which a slot lies.
    fn line(slot: usize) -> u64;

    /// Makes the words of a slot. A record is written and flushed, not fenced.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn pair<M: Media>(
        pm: &Access<'_, M>,
        heap: &Heap<M>,
        hash: u64,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
    ) -> Result<Self::Pair>;

    /// Returns the last word of a slot and its index in the first line, for [`Update::LastWord`].
    fn last_word(pair: &Self::Pair, slot: usize) -> (usize, u64);

    /// Returns the record that a slot leads to.
    fn record(pair: &Self::Pair) -> Option<(Addr, Class)>;

    /// Returns whether two slots hold the same key, as far as their words tell.
    fn same_key(a: &Self::Pair, b: &Self::Pair) -> bool;

    /// Replaces `key` and `value` by those of a slot.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn read<M: Media>(
        pm: &Access<'_, M>,
        pair: &Self::Pair,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()>;

    /// Replaces `value` by the value of a slot that [`Form::find`] found; byte strings are there
    /// already.
    fn found_value(pair: &Self::Pair, value: &mut Vec<u8>);
}

/// Index of the first word of a slot of a word bucket.
const fn word_slot(slot: usize) -> usize {
    WordBucket::SLOTS + 2 * slot
}

fn set_words(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.clear();
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}
