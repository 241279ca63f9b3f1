//! What tables of slots have in common above their one operation, [`SlotTable::edit`]: writes by
//! name, and byte strings that are validated and converted.

use everhash_index::{Change, Form, Result, admit, admit_key};

use super::edit::{Edit, Step, has_form, modify_calmly};
use super::slot_codec::SlotCodec;

/// A key of a table.
pub type KeyOf<'k, T> = <<T as SlotTable>::Codec as SlotCodec>::Key<'k>;
/// A value of a table.
pub type ValueOf<'v, T> = <<T as SlotTable>::Codec as SlotCodec>::Value<'v>;
/// A decoded slot of a table.
pub type PairOf<T> = <<T as SlotTable>::Codec as SlotCodec>::Pair;

/// What becomes of a key, and what the operation returns.
pub type Decision<T, V> = Result<(T, Step<V>)>;

/// An open table whose pairs lie in slots.
pub trait SlotTable {
    /// How the pairs lie in their slots.
    type Codec: SlotCodec;

    /// Returns the form of the pool's pairs.
    fn pair_form(&self) -> Form;

    /// Returns the pair of a key. A record's value is left in `bytes`.
    ///
    /// # Errors
    /// [`Corrupt`](everhash_index::Error::Corrupt), [`Poisoned`](everhash_index::Error::Poisoned).
    fn find(&self, key: KeyOf<'_, Self>, bytes: &mut Vec<u8>) -> Result<Option<PairOf<Self>>>;

    /// Looks for a key under the lock of its part of the table, lets `decide` choose what becomes
    /// of it, and does that: one step for every other thread. `decide` is given the pair of the
    /// key, if there is one, and bytes that hold the value of a record. It puts nothing unless it
    /// `may_put`: then this write may also have to do its share of a growth.
    ///
    /// A crash leaves the key as it was, or as `decide` has chosen. So does an error; if it is not
    /// known which, that part of the table is poisoned.
    ///
    /// # Errors
    /// [`Full`](everhash_index::Error::Full), those of [`SlotTable::find`], and those of `decide`.
    fn edit<'v, T>(
        &self,
        key: KeyOf<'_, Self>,
        may_put: bool,
        decide: impl FnOnce(Option<PairOf<Self>>, &mut Vec<u8>) -> Decision<T, ValueOf<'v, Self>>,
    ) -> Result<T>;

    /// Does what `edit` says; returns the operation's answer.
    ///
    /// # Errors
    /// As [`SlotTable::edit`].
    #[inline(always)]
    fn write(&self, key: KeyOf<'_, Self>, edit: Edit<ValueOf<'_, Self>>) -> Result<bool> {
        let may_put = !matches!(edit, Edit::Remove);
        self.edit(key, may_put, |found, _| Ok(edit.decide(found.is_some())))
    }

    /// Returns the key that `bytes` are, or `None` if they do not have the form of the pool's keys:
    /// such a key is absent.
    #[inline(always)]
    fn key_of<'k>(&self, bytes: &'k [u8]) -> Option<KeyOf<'k, Self>> {
        has_form(self.pair_form(), bytes).then(|| Self::Codec::key(bytes))
    }

    /// Validates a pair, and does with it what `edit` makes of its value.
    ///
    /// # Errors
    /// Those of [`admit`], and as [`SlotTable::edit`].
    fn write_bytes<'v>(
        &self,
        key: &[u8],
        value: &'v [u8],
        edit: fn(ValueOf<'v, Self>) -> Edit<ValueOf<'v, Self>>,
    ) -> Result<bool> {
        admit(self.pair_form(), key, value)?;
        self.write(Self::Codec::key(key), edit(Self::Codec::value(value)))
    }

    /// Removes a key; returns whether it was present.
    ///
    /// # Errors
    /// As [`SlotTable::edit`].
    fn remove_bytes(&self, key: &[u8]) -> Result<bool> {
        match self.key_of(key) {
            Some(key) => self.write(key, Edit::Remove),
            None => Ok(false),
        }
    }

    /// Replaces `value` by that of a key, or clears it; returns whether the key is present.
    ///
    /// # Errors
    /// As [`SlotTable::find`].
    fn get_bytes(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = match self.key_of(key) {
            Some(key) => self.find(key, value)?,
            None => None,
        };
        match found {
            Some(pair) => Self::Codec::found_value(pair, value),
            // A record of another key with the same hash may have been read.
            None => value.clear(),
        }
        Ok(found.is_some())
    }

    /// Reads a key and does with it what `change` says, in one step.
    ///
    /// # Errors
    /// Those of [`admit`] for what `change` returns, and as [`SlotTable::edit`].
    fn modify_bytes(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<&[u8]>) -> Change,
    ) -> Result<()> {
        admit_key(self.pair_form(), key)?;
        modify_calmly(self.pair_form(), key, change, |change| {
            let mut owned = Vec::new();
            let owned = &mut owned;
            self.edit(Self::Codec::key(key), true, move |found, bytes| {
                if let Some(pair) = found {
                    Self::Codec::found_value(pair, bytes);
                }
                let step = match change(found.is_some().then_some(bytes.as_slice()))? {
                    Change::Keep => Step::Keep,
                    Change::Put(value) => {
                        *owned = value;
                        Step::Put(Self::Codec::value(owned))
                    }
                    Change::Remove => Step::Remove,
                };
                Ok(((), step))
            })
        })
    }
}

/// Writes those methods of `Table` that a [`SlotTable`] has under other names.
macro_rules! methods_of_slot_table {
    () => {
        fn form(&self) -> everhash_index::Form {
            self.pair_form()
        }

        fn insert(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
            self.write_bytes(key, value, $crate::common::edit::Edit::Insert)
        }

        fn put(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
            self.write_bytes(key, value, $crate::common::edit::Edit::Put)
        }

        fn update(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
            self.write_bytes(key, value, $crate::common::edit::Edit::Update)
        }

        fn modify(
            &self,
            key: &[u8],
            change: &mut dyn FnMut(Option<&[u8]>) -> everhash_index::Change,
        ) -> everhash_index::Result<()> {
            self.modify_bytes(key, change)
        }

        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> everhash_index::Result<bool> {
            self.get_bytes(key, value)
        }

        fn remove(&self, key: &[u8]) -> everhash_index::Result<bool> {
            self.remove_bytes(key)
        }

        fn contains(&self, key: &[u8]) -> everhash_index::Result<bool> {
            self.get_bytes(key, &mut Vec::new())
        }
    };
}

/// Writes those methods of `WordTable` that change a key, for a [`SlotTable`] of words.
macro_rules! writes_of_word_table {
    () => {
        fn insert_word(&self, key: u64, value: u64) -> everhash_index::Result<bool> {
            self.write(key, $crate::common::edit::Edit::Insert(value))
        }

        fn put_word(&self, key: u64, value: u64) -> everhash_index::Result<bool> {
            self.write(key, $crate::common::edit::Edit::Put(value))
        }

        fn update_word(&self, key: u64, value: u64) -> everhash_index::Result<bool> {
            self.write(key, $crate::common::edit::Edit::Update(value))
        }

        fn remove_word(&self, key: u64) -> everhash_index::Result<bool> {
            self.write(key, $crate::common::edit::Edit::Remove)
        }
    };
}

pub(crate) use {methods_of_slot_table, writes_of_word_table};
