//! The operations for 8-byte keys and values: no slices, no allocation.

use everhash_index::{Form, Table, WordTable};

use crate::{Db, Result};

/// A database of 8-byte keys and values; see [`Db::words`].
///
/// A word stands for its eight bytes in little-endian order. Errors are those of [`Db`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use everhash_store::{Db, Form};
///
/// let db = Db::options().form(Form::WORDS).create(&path)?;
/// let words = db.words().expect("the form has words");
/// words.put(7, 49)?;
/// assert_eq!(words.get(7)?, Some(49));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    db: &'a Db,
}

impl<'a> Words<'a> {
    pub(crate) fn of(db: &'a Db) -> Option<Words<'a>> {
        (db.info().form == Form::WORDS).then_some(Words { db })
    }

    /// As [`Db::put_if_absent`].
    ///
    /// # Errors
    /// See [`Db`].
    #[inline]
    pub fn put_if_absent(&self, key: u64, value: u64) -> Result<bool> {
        self.db
            .core()
            .write(|save| save(&key.to_le_bytes()), |table| words(table).insert_word(key, value))
    }

    /// As [`Db::put`].
    ///
    /// # Errors
    /// See [`Db`].
    #[inline]
    pub fn put(&self, key: u64, value: u64) -> Result<bool> {
        self.db
            .core()
            .write(|save| save(&key.to_le_bytes()), |table| words(table).put_word(key, value))
    }

    /// As [`Db::update`].
    ///
    /// # Errors
    /// See [`Db`].
    #[inline]
    pub fn update(&self, key: u64, value: u64) -> Result<bool> {
        self.db
            .core()
            .write(|save| save(&key.to_le_bytes()), |table| words(table).update_word(key, value))
    }

    /// As [`Db::get`].
    ///
    /// # Errors
    /// See [`Db`].
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        self.db.core().read(|table| words(table).get_word(key))
    }

    /// As [`Db::get_many`]; `values` has the length of `keys`.
    ///
    /// # Errors
    /// See [`Db`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        assert_eq!(keys.len(), values.len(), "there is a place for every value");
        self.db.core().read(|table| words(table).get_words(keys, values))
    }

    /// As [`Db::remove`].
    ///
    /// # Errors
    /// See [`Db`].
    #[inline]
    pub fn remove(&self, key: u64) -> Result<bool> {
        self.db.core().write(|save| save(&key.to_le_bytes()), |table| words(table).remove_word(key))
    }
}

#[inline(always)]
fn words(table: &dyn Table) -> &dyn WordTable {
    table.words().expect("the contract gives every table of this form words")
}
