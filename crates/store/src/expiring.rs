//! Tables whose pairs expire (TTL).

mod record;
pub(crate) mod sweep;
mod typed;

use std::time::{Duration, SystemTime};

use everhash_index::Change;

use record::{Times, has_ended, print};
pub(crate) use record::{Wall, WallTime, admit_ending, live};
pub use typed::ExpiringTable;

use crate::{Db, Error, Pair, Result, Snapshot, WriteBatch};

/// When a pair of an [`Expiring`] table expires.
///
/// Made from a [`Duration`], which begins when the pair is written, or from a [`SystemTime`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// When it did before; a new pair: never.
    Unchanged,
    /// Never.
    Never,
    /// So long after it is written.
    After(Duration),
    /// At this time of the clock on the wall.
    At(SystemTime),
}

impl From<Duration> for Expiry {
    fn from(after: Duration) -> Expiry {
        Expiry::After(after)
    }
}

impl From<SystemTime> for Expiry {
    fn from(at: SystemTime) -> Expiry {
        Expiry::At(at)
    }
}

/// A table whose pairs expire (TTL), each at a time of its own: sessions, caches, rate limits.
///
/// A pair that has expired is absent to every operation from that moment on. Its storage is given
/// back by maintenance, which looks through the file for such pairs at most every 30 seconds and
/// for at most a twentieth of the time, or by [`Expiring::sweep`]. Times count milliseconds of the
/// clock on the wall, are part of the pair and as durable, and survive a restart; if that clock is
/// set back, a pair that has expired and was not yet removed is there again until its time comes.
///
/// A time takes 8 bytes of a pair. All operations are linearizable for each key, as those of
/// [`Db`]. Whether pairs of a table have times is decided when it is made.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use std::time::Duration;
/// use everhash_store::{Db, Expiry};
///
/// let db = Db::create(&path)?;
/// let sessions = db.expiring_table_or_create("sessions")?;
/// sessions.put("8f3a", "ann", Duration::from_secs(1800))?;
/// sessions.put("root", "eve", Expiry::Never)?;
/// assert_eq!(sessions.get("8f3a")?.as_deref(), Some(&b"ann"[..]));
/// sessions.set_expiry("8f3a", Duration::ZERO)?;
/// assert_eq!(sessions.get("8f3a")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Expiring {
    /// Sees the pairs with their times.
    db: Db,
}

impl Db {
    /// Returns a handle to the table `name`, whose pairs have expiry times.
    ///
    /// # Errors
    /// [`Error::NoTable`] if there is none, [`Error::TableKind`] if its pairs have no times, and
    /// [`Error::NoTables`] if pairs have a fixed form.
    pub fn expiring_table(&self, name: &str) -> Result<Expiring> {
        Ok(Expiring { db: self.table_of_kind(name, true)? })
    }

    /// Returns a handle to the table `name`, whose pairs have expiry times; it is made if it is not
    /// there. As [`Db::table_or_create`].
    ///
    /// # Errors
    /// As [`Db::table_or_create`], and [`Error::TableKind`] if its pairs have no times.
    pub fn expiring_table_or_create(&self, name: &str) -> Result<Expiring> {
        Ok(Expiring { db: self.make_table(name, true)? })
    }
}

/// Errors are those of [`Db`].
impl Expiring {
    /// Adds the pair or replaces its value; returns whether there was one.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        self.edit(key.as_ref(), |times, before| {
            let new = times.next(before, expiry.into());
            Ok((Change::Put(print(value.as_ref(), new)?), before.is_some()))
        })
    }

    /// Adds the pair if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        self.edit(key.as_ref(), |times, before| match before {
            Some(_) => Ok((Change::Keep, false)),
            None => {
                let new = times.next(None, expiry.into());
                Ok((Change::Put(print(value.as_ref(), new)?), true))
            }
        })
    }

    /// Replaces the value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        self.edit(key.as_ref(), |times, before| match before {
            Some(_) => {
                let new = times.next(before, expiry.into());
                Ok((Change::Put(print(value.as_ref(), new)?), true))
            }
            None => Ok((Change::Keep, false)),
        })
    }

    /// Changes when a pair ends; returns whether it is there.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn set_expiry(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<bool> {
        self.edit(key.as_ref(), |times, before| match before {
            Some((value, _)) => {
                let new = times.next(before, expiry.into());
                Ok((Change::Put(print(value, new)?), true))
            }
            None => Ok((Change::Keep, false)),
        })
    }

    /// Reads and changes one key in one step: no other write to the key comes between. `change` is
    /// given the value, and returns the change, the expiry of what it puts, and what is returned.
    ///
    /// `change` is called once, while the key is locked: it must not use the database. If it
    /// panics, nothing has changed, and the panic goes on in the caller.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// use std::time::Duration;
    /// use everhash_store::{Change, Db, Expiry};
    ///
    /// // Up to three requests a minute, counted from the first of them.
    /// let limits = Db::create(&path)?.expiring_table_or_create("limits")?;
    /// let admit = |address: &str| {
    ///     limits.modify(address, |count| match count.map_or(0, |count| count[0]) {
    ///         3.. => (Change::Keep, Expiry::Unchanged, false),
    ///         0 => (Change::Put(vec![1]), Duration::from_secs(60).into(), true),
    ///         count => (Change::Put(vec![count + 1]), Expiry::Unchanged, true),
    ///     })
    /// };
    /// assert!(admit("::1")? && admit("::1")? && admit("::1")?);
    /// assert!(!admit("::1")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`].
    pub fn modify<R>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> (Change, Expiry, R),
    ) -> Result<R> {
        self.edit(key.as_ref(), |times, before| {
            let (change, expiry, returned) = change(before.map(|(value, _)| value));
            let change = match change {
                Change::Put(value) => Change::Put(print(&value, times.next(before, expiry))?),
                other => other,
            };
            Ok((change, returned))
        })
    }

    /// As [`Expiring::modify`], with a `change` that can fail: then nothing is changed, and its
    /// error is the inner result.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn try_modify<R, E>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> core::result::Result<(Change, Expiry, R), E>,
    ) -> Result<core::result::Result<R, E>> {
        self.modify(key, |value| match change(value) {
            Ok((change, expiry, returned)) => (change, expiry, Ok(returned)),
            Err(error) => (Change::Keep, Expiry::Unchanged, Err(error)),
        })
    }

    /// Returns the value of a key, or `None` if it is absent.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Calls `read` with the value of a key, and returns what it returns; as [`Db::get_with`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let now = self.now();
        self.db.get_with(key, |record| read(record.and_then(|record| live(record, now))))
    }

    /// Returns the values of many keys, in their order, together faster than one by one.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
        Ok(values)
    }

    /// As [`Db::get_many_with`].
    ///
    /// # Errors
    /// See there.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let now = self.now();
        self.db.get_many_with(keys, |position, record| {
            read(position, record.and_then(|record| live(record, now)));
        })
    }

    /// Returns whether a key is present.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get_with(key, |value| value.is_some())
    }

    /// Returns when a pair ends: [`Expiry::At`] or [`Expiry::Never`]; `None` if the key is absent.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let now = self.now();
        self.db.get_with(key, |record| {
            let record = record.filter(|record| live(record, now).is_some())?;
            Some(record::end_of(record).expiry())
        })
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.edit(key.as_ref(), |_, before| Ok((Change::Remove, before.is_some())))
    }

    /// Removes a key; returns the value that it had.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.edit(key.as_ref(), |_, before| {
            Ok((Change::Remove, before.map(|(value, _)| value.to_vec())))
        })
    }

    /// Puts many pairs with one expiry, in order, as if one by one; returns how many keys were new.
    /// A key that has ended is new or not, as maintenance has removed it or not yet.
    /// [`Expiry::Unchanged`] is taken for [`Expiry::Never`]. No transaction: see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(K, V)],
        expiry: impl Into<Expiry>,
    ) -> Result<u64> {
        let end = Times { now: self.now() }.next(None, expiry.into());
        let print =
            |(key, value): &(K, V)| Ok((key.as_ref().to_vec(), print(value.as_ref(), end)?));
        let records: Vec<(Vec<u8>, Vec<u8>)> = pairs
            .iter()
            .map(print)
            .collect::<everhash_index::Result<_>>()
            .map_err(|error| Error::of(self.db.path(), error))?;
        self.db.put_many(&records)
    }

    /// Returns every pair, in no order; as [`Db::iter`].
    pub fn iter(&self) -> impl Iterator<Item = Result<Pair>> + use<> {
        let this = self.clone();
        self.db.iter().filter_map(move |pair| match pair {
            Ok((key, record)) => live(&record, this.now()).map(|value| Ok((key, value.to_vec()))),
            Err(error) => Some(Err(error)),
        })
    }

    /// Removes every pair for which `keep` returns false; returns how many were removed. As
    /// [`Db::retain`]; it is not asked for pairs that have ended.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn retain(&self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<u64> {
        let now = self.now();
        self.db.retain(|key, record| live(record, now).is_none_or(|value| keep(key, value)))
    }

    /// Counts the pairs that have not ended, by reading the whole file each time: how many there
    /// are depends on the clock. Needs about 40 bytes of memory for each pair that it counts.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn len(&self) -> Result<u64> {
        let now = self.now();
        self.db.counted(|record| live(record, now).is_some())
    }

    /// Returns whether there are no pairs.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn is_empty(&self) -> Result<bool> {
        let (now, mut is_empty) = (self.now(), true);
        self.db.scan_from(everhash_index::Cursor::default(), |_, record| {
            is_empty = live(record, now).is_none();
            if is_empty { core::ops::ControlFlow::Continue(()) } else { STOP }
        })?;
        Ok(is_empty)
    }

    /// Removes every pair; each removal is a step of its own.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn clear(&self) -> Result<()> {
        self.db.clear()
    }

    /// Removes every pair that has ended from the file now, by reading all of it; returns how many
    /// there were. Never necessary: maintenance does it by and by.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn sweep(&self) -> Result<u64> {
        let now = self.now();
        self.db.retain(|_, record| !has_ended(record, now))
    }

    /// Returns all pairs as they are at this instant, as [`Db::snapshot`]. Those that end later are
    /// there throughout.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.db.snapshot()
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        self.db.table_name().unwrap_or_default()
    }

    /// Returns a handle to the default table of the same file.
    pub fn db(&self) -> Db {
        self.db.default_table()
    }

    /// Reads and changes the live record of a key in one step.
    fn edit<R>(
        &self,
        key: &[u8],
        change: impl FnOnce(Times, Option<Record<'_>>) -> everhash_index::Result<(Change, R)>,
    ) -> Result<R> {
        let edited = self.db.try_modify(key, |record| {
            // Of the moment when the key is locked: what ended while this call waited was seen to
            // be absent by others.
            let times = Times { now: self.now() };
            let value = record.and_then(|record| Some((live(record, times.now)?, record)));
            change(times, value.map(|(value, record)| (value, record::end_of(record))))
        })?;
        edited.map_err(|error| Error::of(self.db.path(), error))
    }

    fn now(&self) -> WallTime {
        self.db.core().wall()
    }
}

/// A value and when it ends.
type Record<'r> = (&'r [u8], WallTime);

const STOP: core::ops::ControlFlow<()> = core::ops::ControlFlow::Break(());

impl WriteBatch {
    /// Adds a put into a table with expiry times. [`Expiry::After`] begins now, and
    /// [`Expiry::Unchanged`] is taken for [`Expiry::Never`].
    ///
    /// # Errors
    /// [`Error::Pair`] for a value that is too long.
    pub fn put_expiring_in(
        &mut self,
        table: &Expiring,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<&mut WriteBatch> {
        let end = Times { now: table.now() }.next(None, expiry.into());
        let record =
            print(value.as_ref(), end).map_err(|error| Error::of(table.db.path(), error))?;
        Ok(self.put_in(&table.db, key, record))
    }

    /// Adds a removal from a table with expiry times; the key may be absent.
    pub fn remove_expiring_in(
        &mut self,
        table: &Expiring,
        key: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        self.remove_in(&table.db, key)
    }
}
