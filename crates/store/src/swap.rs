//! Compare, decide and write in one step.

use everhash_index::Change;

use crate::{Db, Result};

/// What became of [`Db::compare_and_swap`].
#[derive(Clone, PartialEq, Eq)]
#[must_use = "the swap may not have happened"]
pub enum Swap {
    /// The key had the expected value, and has the new one.
    Done,
    /// The key has this value instead, or is absent; nothing was changed.
    Differs(Option<Vec<u8>>),
}

impl Db {
    /// Gives the key the value `new` if it has the value `expected`; `None` stands for "absent".
    ///
    /// # Errors
    /// See [`Db`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.modify(key, |value| {
            if value != expected {
                return (Change::Keep, Swap::Differs(value.map(<[u8]>::to_vec)));
            }
            let change = new.map_or(Change::Remove, |new| Change::Put(new.to_vec()));
            (change, Swap::Done)
        })
    }

    /// Replaces the value of a key by what `update` makes of it, in one step; `None` stands for
    /// "absent". Returns the value before.
    ///
    /// `update` is called once, while the key is locked: it must not use the database.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// let db = everhash_store::Db::create(&path)?;
    /// let count = |value: Option<&[u8]>| Some(vec![value.map_or(1, |value| value[0] + 1)]);
    /// assert_eq!(db.fetch_update("visits", count)?, None);
    /// assert_eq!(db.fetch_update("visits", count)?, Some(vec![1]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`].
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.modify(key, |value| {
            let before = value.map(<[u8]>::to_vec);
            (update(value).map_or(Change::Remove, Change::Put), before)
        })
    }
}

impl core::fmt::Debug for Swap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Swap::Done => f.write_str("Done"),
            Swap::Differs(None) => f.write_str("Differs(absent)"),
            Swap::Differs(Some(value)) => write!(f, "Differs({} bytes)", value.len()),
        }
    }
}
