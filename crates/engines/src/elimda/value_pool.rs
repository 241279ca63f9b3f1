//! The value pool (ElimDA 3.7): records of byte strings, to which items lead.
//!
//! An item holds the hash of its key beside the record word: a search, a split and a recovery of
//! the fingerprints read no record of another key.

use everhash_index::{Error, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Heap, Media, RecordWord};

use super::layout::{self, Item};
use crate::common::record;

/// Where the value pool persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, before the item that leads to it.
        RECORD = "elimda/pool/record";
    }
}

/// Writes a record and makes it durable; returns the item that leads to it.
///
/// A crash leaves a record that no item leads to: it is free.
///
/// # Errors
/// [`Error::Full`].
pub fn write<M: Media>(
    pm: &Access<'_, M>,
    heap: &Heap<M>,
    hash: u64,
    key: &[u8],
    value: &[u8],
) -> Result<Item> {
    let (bytes, limit) = (value.len(), MAX_VALUE_BYTES);
    let class =
        record::class_of(key.len(), value.len()).ok_or(Error::ValueTooLong { bytes, limit })?;
    let addr = heap.take(class)?;
    let span = record::write(pm, addr, hash, key, value)?;
    pm.persist(span, sites::RECORD)?;
    let untagged = RecordWord { addr, class, tag: 0 };
    let tag = layout::record_tag(hash, untagged.word());
    Ok([hash, RecordWord { tag, ..untagged }.word(), 0, 0])
}

/// Returns the record to which the item at `at` leads.
///
/// # Errors
/// [`Error::Corrupt`] if hash and record word do not belong together.
pub fn open(item: &Item, at: Addr) -> Result<RecordWord> {
    let at = at.plus(layout::SECOND_WORD);
    match RecordWord::from_medium(at, item[1])? {
        Some(record) if record.tag == layout::record_tag(item[0], item[1]) => Ok(record),
        _ => Err(Error::Corrupt { at: at.byte(), broken: "a record word matches its check" }),
    }
}

/// Replaces `bytes` by key and value of the item at `at`; returns the length of the key.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn read<M: Media>(
    pm: &Access<'_, M>,
    item: &Item,
    at: Addr,
    bytes: &mut Vec<u8>,
) -> Result<usize> {
    record::read(pm, open(item, at)?, item[0], bytes)
}
