//! An open table: what every engine can be asked, with one meaning for all.

use core::time::Duration;

use crate::{Durability, Error, Form, Result};

/// The longest key that every engine with byte strings takes. Unit: bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The longest value that every engine with byte strings takes. Unit: bytes.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// What [`Table::modify`] shall do with a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Leave it as it is.
    Keep,
    /// Give it this value.
    Put(Vec<u8>),
    /// Remove it.
    Remove,
}

/// A position in a scan. Valid for the table that returned it, while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Cursor(pub u64);

/// What [`Table::maintain`] has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Upkeep {
    /// When it wants to be called at the latest, on the caller's clock; `None`: no need.
    pub deadline: Option<Duration>,
    /// Whether there is more to do right now.
    pub more: bool,
}

/// What [`Table::check`] found in a sound table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Live pairs.
    pub items: u64,
    /// Space that is in use, the pool's header included. Unit: bytes.
    pub reachable_bytes: u64,
}

/// Figures of an open table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// Live pairs.
    pub items: u64,
    /// Pairs that fit before the table grows or chains.
    pub slots: u64,
    /// Length of the pool. Unit: bytes.
    pub device_bytes: u64,
    /// Part of it that is in use. Unit: bytes.
    pub used_bytes: u64,
    /// What present pairs take, as they lie there, with their heads and checks; a log keeps count
    /// of it by estimates between its collections. Unit: bytes.
    pub live_bytes: u64,
    /// What replaced and removed pairs take until upkeep gives it back; `None` where an engine does
    /// not know. Unit: bytes.
    pub dead_bytes: Option<u64>,
    /// DRAM that the table holds. Unit: bytes.
    pub dram_bytes: u64,
    /// How often the table has grown since it was opened.
    pub growth_steps: u64,
    /// Figures that only this engine has: name and value.
    pub own: Vec<(&'static str, u64)>,
}

impl Stats {
    /// Returns items per slot; 0 for a table without slots.
    pub fn load_factor(&self) -> f64 {
        if self.slots == 0 { 0.0 } else { self.items as f64 / self.slots as f64 }
    }
}

/// An open table.
///
/// All operations on one key are linearizable, many threads may share a table, and readers take
/// no lock. With [`Durability::Immediate`] they never show what a crash could take back; with
/// [`Durability::Batch`] power loss may take it back, and a killed process may not. A write that
/// returned is as durable as the engine's [`Durability`] and the medium say; one that returned an
/// error or did not return is, after a crash, either completely there or completely absent.
///
/// [`Durability`]: crate::Durability
/// [`Durability::Immediate`]: crate::Durability::Immediate
/// [`Durability::Batch`]: crate::Durability::Batch
///
/// # Errors
/// Every operation may fail with [`Error::Corrupt`] on a damaged pool and with [`Error::Poisoned`]
/// after an earlier failure of the medium; writes with [`Error::Full`], [`Error::KeyTooLong`],
/// [`Error::ValueTooLong`] and, where the pool's form is fixed, [`Error::WrongForm`].
pub trait Table: Send + Sync {
    /// Returns the form of the pairs.
    fn form(&self) -> Form;

    /// Adds the pair if the key is absent; returns whether it was.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Adds the pair or replaces its value; returns whether there was one.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Replaces the value if the key is present; returns whether it was.
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Reads and changes one key in one step: no other write to the key comes between.
    ///
    /// `change` is called once, with the present value, while the key is locked: it must not use
    /// the table.
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()>;

    /// Reads a value into `value`, whose contents are replaced; returns whether there is one.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Removes a key; returns whether it was there.
    fn remove(&self, key: &[u8]) -> Result<bool>;

    /// Returns whether a key is present.
    fn contains(&self, key: &[u8]) -> Result<bool>;

    /// Reads many keys; calls `found` for each, with its position, in any order.
    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut value = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let present = self.get(key, &mut value)?;
            found(position, present.then_some(value.as_slice()));
        }
        Ok(())
    }

    /// Inserts many pairs, in order, as if one by one; returns how many keys were new.
    ///
    /// If it fails, some prefix of the pairs has been inserted.
    fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        let mut added = 0;
        for (key, value) in pairs {
            added += u64::from(self.insert(key, value)?);
        }
        Ok(added)
    }

    /// Puts many pairs, in order, as if one by one; returns how many keys were new.
    ///
    /// If it fails, some prefix of the pairs has been put.
    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        let mut added = 0;
        for (key, value) in pairs {
            added += u64::from(!self.put(key, value)?);
        }
        Ok(added)
    }

    /// Removes many keys, in order, as if one by one; returns how many were there.
    ///
    /// If it fails, some prefix of the keys has been removed.
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        for key in keys {
            removed += u64::from(self.remove(key)?);
        }
        Ok(removed)
    }

    /// Returns the number of pairs. Exact whenever no write is under way.
    fn len(&self) -> Result<u64>;

    /// Returns whether there are no pairs.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits some pairs from `cursor` on, in no order; returns where to go on, `None` at the end.
    ///
    /// Begin with [`Cursor::default`]. Safe beside writes: every key that is present throughout
    /// is visited at least once. `visit` must not use the table.
    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>>;

    /// Returns where a scan goes on that has failed with [`Error::Corrupt`] at `cursor`: behind
    /// what is damaged there. `None` if there are no more pairs, or if the engine cannot pass over
    /// any.
    ///
    /// # Errors
    /// As [`Table::scan`].
    fn scan_past(&self, _cursor: Cursor) -> Result<Option<Cursor>> {
        Ok(None)
    }

    /// Removes every pair; each removal is a step of its own.
    fn clear(&self) -> Result<()>;

    /// Makes every write that returned before durable.
    fn sync(&self) -> Result<()>;

    /// Does work that should not burden a write: growing ahead of need, reclaiming, flushing.
    ///
    /// `now` is the caller's clock, which never goes back; `budget` bounds the work of one call
    /// to about that many buckets or records. May run beside every other operation.
    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep>;

    /// Checks the whole table, like [`Engine::check`](crate::Engine::check), while no write runs.
    fn check(&self) -> Result<Checked>;

    /// Returns the durability mode of this table: one of the engine's modes.
    fn durability(&self) -> Durability {
        Durability::Immediate
    }

    /// Returns the partition of a key: the part of the table that becomes durable together with it.
    /// A key has the same one whenever the pool is opened on a medium of the same kind.
    ///
    /// In an engine that batches durability ([`Durability::Batch`]), power loss leaves each
    /// partition as it was at one moment. A clear is one step of each partition.
    fn durability_partition(&self, _key: &[u8]) -> u64 {
        0
    }

    /// Returns figures.
    fn stats(&self) -> Result<Stats>;

    /// Makes everything durable and marks the pool as closed cleanly.
    ///
    /// A table that is dropped without it counts as crashed: nothing is lost, the next open
    /// recovers.
    fn close(self: Box<Self>) -> Result<()>;

    /// Returns the path without slices, if the pairs have the form [`Form::WORDS`].
    fn words(&self) -> Option<&dyn WordTable> {
        None
    }

    /// Returns the way to write many pairs of which a crash leaves all or none, if the engine has
    /// it.
    fn atomic(&self) -> Option<&dyn AtomicTable> {
        None
    }

    /// Returns the paper's bare forms, if the engine has them.
    fn bare(&self) -> Option<&dyn BareTable> {
        None
    }
}

/// Many writes of which a crash leaves all or none.
pub trait AtomicTable: Send + Sync {
    /// Puts the pairs that have a value, and removes the keys that have none, in order. As durable
    /// then as a single write, and all at once. Concurrent readers may see some of them before the
    /// others.
    ///
    /// # Errors
    /// As [`Table::put`]; nothing was written then, unless it is an error of the medium.
    fn write_all(&self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        self.write_all_and_tell(writes, &mut |_, _| {})
    }

    /// As [`AtomicTable::write_all`]; calls `changed` once for each key that was absent and is
    /// present now, with `true`, and for each that was present and is absent now, with `false`.
    /// `changed` must not use the table.
    ///
    /// # Errors
    /// As [`AtomicTable::write_all`]; `changed` may have been called for some keys.
    fn write_all_and_tell(
        &self,
        writes: &[(&[u8], Option<&[u8]>)],
        changed: &mut dyn FnMut(&[u8], bool),
    ) -> Result<()>;
}

/// The operations of [`Table`] for 8-byte keys and values, without slices and allocation.
///
/// A word stands for its eight bytes in little-endian order.
pub trait WordTable: Send + Sync {
    /// As [`Table::insert`].
    fn insert_word(&self, key: u64, value: u64) -> Result<bool>;
    /// As [`Table::put`].
    fn put_word(&self, key: u64, value: u64) -> Result<bool>;
    /// As [`Table::update`].
    fn update_word(&self, key: u64, value: u64) -> Result<bool>;
    /// As [`Table::get`].
    fn get_word(&self, key: u64) -> Result<Option<u64>>;
    /// As [`Table::remove`].
    fn remove_word(&self, key: u64) -> Result<bool>;
    /// As [`Table::get_many`]; `values` has the length of `keys`.
    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        for (key, value) in keys.iter().zip(values) {
            *value = self.get_word(*key)?;
        }
        Ok(())
    }
}

/// A paper's own forms of its operations, for callers that know whether a key is present, and for
/// faithful measurement.
///
/// They trust the caller as far as the paper does. The engine's documentation says what happens if
/// the caller is wrong.
pub trait BareTable: Send + Sync {
    /// Adds a pair whose key is absent.
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Gives a key that is present another value.
    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes a key that is present.
    fn remove_blind(&self, key: &[u8]) -> Result<()>;
}

/// Validates a pair against the pool's form.
///
/// # Errors
/// [`Error::WrongForm`] for a fixed form, [`Error::KeyTooLong`] and [`Error::ValueTooLong`] for
/// byte strings beyond [`MAX_KEY_BYTES`] and [`MAX_VALUE_BYTES`].
pub fn admit(form: Form, key: &[u8], value: &[u8]) -> Result<()> {
    match form {
        Form::Fixed { key_bytes, value_bytes } => {
            if key.len() != key_bytes as usize || value.len() != value_bytes as usize {
                let (key_bytes, value_bytes) = (key.len(), value.len());
                return Err(Error::WrongForm { form, key_bytes, value_bytes });
            }
        }
        Form::Variable => {
            if key.len() > MAX_KEY_BYTES {
                return Err(Error::KeyTooLong { bytes: key.len(), limit: MAX_KEY_BYTES });
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(Error::ValueTooLong { bytes: value.len(), limit: MAX_VALUE_BYTES });
            }
        }
    }
    Ok(())
}

/// Validates a key against the pool's form, for an operation without a value.
///
/// # Errors
/// [`Error::WrongForm`] for a fixed form, [`Error::KeyTooLong`].
pub fn admit_key(form: Form, key: &[u8]) -> Result<()> {
    match form {
        Form::Fixed { key_bytes, value_bytes } if key.len() != key_bytes as usize => {
            let (key_bytes, value_bytes) = (key.len(), value_bytes as usize);
            Err(Error::WrongForm { form, key_bytes, value_bytes })
        }
        Form::Variable if key.len() > MAX_KEY_BYTES => {
            Err(Error::KeyTooLong { bytes: key.len(), limit: MAX_KEY_BYTES })
        }
        Form::Fixed { .. } | Form::Variable => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_to_the_byte() {
        // Fails if a limit is off by one: an engine would meet a length that its layout has not.
        // And if a refusal names other lengths than those that were given.
        let (key, value) = (vec![0; MAX_KEY_BYTES + 1], vec![0; MAX_VALUE_BYTES + 1]);
        let (longest, longest_value) = (&key[1..], &value[1..]);
        admit(Form::Variable, longest, longest_value).unwrap();
        admit_key(Form::Variable, longest).unwrap();
        let too_long = [admit(Form::Variable, &key, &[]), admit_key(Form::Variable, &key)];
        for refusal in too_long {
            let said = refusal.unwrap_err().to_string();
            assert_eq!(said, "the key has 65537 bytes and may have at most 65536; shorten it");
        }
        let said = admit(Form::Variable, longest, &value).unwrap_err().to_string();
        assert_eq!(said, "the value has 16777217 bytes and may have at most 16777216; split it");
        for (key_bytes, value_bytes) in [(7, 8), (9, 8), (8, 7), (8, 9)] {
            let refusal = admit(Form::WORDS, &key[..key_bytes], &value[..value_bytes]);
            let said = refusal.unwrap_err().to_string();
            assert!(said.contains(&format!("this one has {key_bytes}/{value_bytes};")), "{said}");
            match admit_key(Form::WORDS, &key[..key_bytes]) {
                Ok(()) => assert_eq!(key_bytes, 8),
                Err(refusal) => assert_eq!(refusal.to_string(), said),
            }
        }
    }
}
