//! The operations on one key.

use std::cell::Cell;
use std::ops::{Bound, RangeBounds};

use everhash_index::{Change, Table};

use crate::callback::Callback;
use crate::error::Fault;
use crate::{Db, Error, Result};

/// How much of a buffer a thread keeps for the next [`Db::get_with`] or [`Db::get_many_with`].
///
/// Unit: bytes. Source: ours; longer values cost more to read than a buffer costs to allocate.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    /// The buffer of this thread's last [`Db::get_with`] or [`Db::get_many_with`].
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `run` with the buffer of this thread, or if `run` is running already, with another one.
pub(crate) fn with_buffer<R>(run: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    // A thread that ends may have lost its buffer: then this one is for once.
    let mut bytes = BUFFER.try_with(Cell::take).unwrap_or_default();
    let result = run(&mut bytes);
    if bytes.capacity() <= KEPT_BYTES {
        let _ = BUFFER.try_with(|kept| kept.set(bytes));
    }
    result
}

impl Db {
    /// Adds the pair if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let new = |added: &bool| i64::from(*added);
        self.write_key(key.as_ref(), |table, key| table.insert(key, value.as_ref()), new)
    }

    /// Adds the pair or replaces its value; returns whether there was one.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let new = |was_there: &bool| i64::from(!was_there);
        self.write_key(key.as_ref(), |table, key| table.put(key, value.as_ref()), new)
    }

    /// Replaces the value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        if self.admit_key(key.as_ref()).is_err() {
            return self.write_nothing().map(|()| false);
        }
        self.write_key(key.as_ref(), |table, key| table.update(key, value.as_ref()), |_| 0)
    }

    /// Adds the pair or replaces its value; returns the value before.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        self.modify(key, |before| {
            (Change::Put(value.as_ref().to_vec()), before.map(<[u8]>::to_vec))
        })
    }

    /// Returns the value of a key, or `None` if it is absent.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Reads the value of a key into `value`, whose contents are replaced; returns whether there
    /// is one. Allocates nothing if `value` has the capacity.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.read_key(key.as_ref(), |table, key| table.get(key, value))
    }

    /// Calls `read` with the value of a key, and returns what it returns. Allocates nothing for
    /// values up to 1 MiB once the thread has read a value of that length. The value is a copy:
    /// `read` may use the database.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// let db = everhash_store::Db::create(&path)?;
    /// db.put("path", "/usr/bin/env")?;
    /// let slashes = |value: &[u8]| value.iter().filter(|byte| **byte == b'/').count();
    /// assert_eq!(db.get_with("path", |value| value.map(slashes))?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        with_buffer(|value| {
            let found = self.get_into(key, value)?;
            Ok(read(found.then_some(value)))
        })
    }

    /// Returns the length of the value of a key, or `None` if it is absent. Unit: bytes.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn size_of(&self, key: impl AsRef<[u8]>) -> Result<Option<usize>> {
        self.get_with(key, |value| value.map(<[u8]>::len))
    }

    /// Returns a part of the value of a key, as much of it as there is; `None` if the key is
    /// absent. The whole value is read and checked, and the part is copied.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_range(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<usize>,
    ) -> Result<Option<Vec<u8>>> {
        let from = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => usize::MAX,
        };
        self.get_with(key, |value| {
            value.map(|value| {
                let to = to.min(value.len());
                value[from.min(to)..to].to_vec()
            })
        })
    }

    /// Returns whether a key is present.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.read_key(key.as_ref(), |table, key| table.contains(key))
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let gone = |was_there: &bool| -i64::from(*was_there);
        self.sought(key.as_ref(), |key| {
            self.write_with(|save| save(key), |table| table.remove(key), gone)
        })
    }

    /// Removes a key; returns the value that it had.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.modify(key, |value| match value {
            Some(value) => (Change::Remove, Some(value.to_vec())),
            None => (Change::Keep, None),
        })
    }

    /// Reads and changes one key in one step: no other write to the key comes between. Returns
    /// what `change` returns beside the change.
    ///
    /// `change` is called once, while the key is locked: it must not use the database. If it
    /// panics, nothing has changed, and the panic goes on in the caller.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// use everhash_store::{Change, Db};
    ///
    /// let db = Db::create(&path)?;
    /// let append = |value: Option<&[u8]>| {
    ///     let text = [value.unwrap_or_default(), b"x"].concat();
    ///     let length = text.len();
    ///     (Change::Put(text), length)
    /// };
    /// assert_eq!(db.modify("key", append)?, 1);
    /// assert_eq!(db.modify("key", append)?, 2);
    /// assert_eq!(db.get("key")?.as_deref(), Some(&b"xx"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`].
    pub fn modify<R>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> (Change, R),
    ) -> Result<R> {
        if let Err(refusal) = self.admit_key(key.as_ref()) {
            return self.modify_absent(refusal, change);
        }
        let mut change = Some(change);
        let mut answer = None;
        let mut callback = Callback::default();
        let come = Cell::new(0);
        let run = |table: &dyn Table, key: &[u8]| {
            table.modify(key, &mut |value| {
                callback.call(Change::Keep, || {
                    let change = change.take().expect("the contract: called once");
                    let (change, returned) = change(value);
                    answer = Some(returned);
                    come.set(match &change {
                        Change::Keep => 0,
                        Change::Put(_) => i64::from(value.is_none()),
                        Change::Remove => -i64::from(value.is_some()),
                    });
                    change
                })
            })
        };
        let result = self.write_key(key.as_ref(), run, |()| come.get());
        callback.resume();
        result.map(|()| answer.expect("the contract: called once"))
    }

    /// As [`Db::modify`], with a `change` that can fail: then nothing is changed, and its error is
    /// the inner result.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn try_modify<R, E>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> core::result::Result<(Change, R), E>,
    ) -> Result<core::result::Result<R, E>> {
        self.modify(key, |value| match change(value) {
            Ok((change, returned)) => (change, Ok(returned)),
            Err(error) => (Change::Keep, Err(error)),
        })
    }

    /// Runs a change of a key that no pair can have: it is absent, and cannot be put.
    #[cold]
    fn modify_absent<R>(
        &self,
        refusal: everhash_index::Error,
        change: impl FnOnce(Option<&[u8]>) -> (Change, R),
    ) -> Result<R> {
        self.write_nothing()?;
        match change(None) {
            (Change::Put(_), _) => Err(Error::Pair(Fault::of(refusal))),
            (Change::Keep | Change::Remove, returned) => Ok(returned),
        }
    }

    /// Fails as a write does that comes to nothing.
    fn write_nothing(&self) -> Result<()> {
        self.write_with(|_| Ok(()), |_| Ok(()), |()| 0)
    }

    #[inline]
    fn read_key<T>(
        &self,
        key: &[u8],
        run: impl FnOnce(&dyn Table, &[u8]) -> everhash_index::Result<T>,
    ) -> Result<T> {
        self.sought(key, |key| self.read(|table| run(table, key)))
    }

    #[inline]
    fn write_key<T>(
        &self,
        key: &[u8],
        run: impl FnOnce(&dyn Table, &[u8]) -> everhash_index::Result<T>,
        change: impl FnOnce(&T) -> i64,
    ) -> Result<T> {
        self.stored(key, |key| self.write_with(|save| save(key), |table| run(table, key), change))
    }
}
