//! Keys and values with types of their own, in tables whose pairs end.

use core::marker::PhantomData;

use everhash_index::Change;

use crate::error::Shown;
use crate::table::bytes;
use crate::{Error, Expiring, Expiry, Field, Result};

/// An [`Expiring`] table whose keys are `K` and whose values are `V`, as
/// [`Table`](crate::Table) is for pairs without expiry times.
///
/// The types are not stored: bytes that are no value of a type give [`Error::Typed`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use std::time::Duration;
/// use everhash_store::{Db, ExpiringTable};
///
/// let db = Db::create(&path)?;
/// let codes: ExpiringTable<String, u32> =
///     ExpiringTable::of(db.expiring_table_or_create("codes")?);
/// let ann = "ann".to_owned();
/// codes.put(&ann, &471_100, Duration::from_secs(300))?;
/// assert_eq!(codes.get(&ann)?, Some(471_100));
/// codes.set_expiry(&ann, Duration::ZERO)?;
/// assert_eq!(codes.get(&ann)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiringTable<K, V> {
    table: Expiring,
    types: PhantomData<Types<K, V>>,
}

/// Shared and sent like a function of these types, whatever they are.
type Types<K, V> = fn(K) -> V;

/// Errors are those of [`Db`](crate::Db), and [`Error::Typed`].
impl<K: Field, V: Field> ExpiringTable<K, V> {
    /// Takes a table as one of these types.
    pub fn of(table: Expiring) -> ExpiringTable<K, V> {
        ExpiringTable { table, types: PhantomData }
    }

    /// Returns the table of bytes.
    pub fn expiring(&self) -> &Expiring {
        &self.table
    }

    /// As [`Expiring::put`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn put(&self, key: &K, value: &V, expiry: impl Into<Expiry>) -> Result<bool> {
        self.table.put(bytes(key), bytes(value), expiry)
    }

    /// As [`Expiring::put_if_absent`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn put_if_absent(&self, key: &K, value: &V, expiry: impl Into<Expiry>) -> Result<bool> {
        self.table.put_if_absent(bytes(key), bytes(value), expiry)
    }

    /// As [`Expiring::update`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn update(&self, key: &K, value: &V, expiry: impl Into<Expiry>) -> Result<bool> {
        self.table.update(bytes(key), bytes(value), expiry)
    }

    /// As [`Expiring::put_many`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn put_many(&self, pairs: &[(K, V)], expiry: impl Into<Expiry>) -> Result<u64> {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (bytes(key), bytes(value))).collect();
        self.table.put_many(&pairs, expiry)
    }

    /// As [`Expiring::set_expiry`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn set_expiry(&self, key: &K, expiry: impl Into<Expiry>) -> Result<bool> {
        self.table.set_expiry(bytes(key), expiry)
    }

    /// As [`Expiring::expiry`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn expiry(&self, key: &K) -> Result<Option<Expiry>> {
        self.table.expiry(bytes(key))
    }

    /// Returns the value of a key, or `None` if it is absent.
    ///
    /// # Errors
    /// [`Error::Typed`], and see [`Db`](crate::Db).
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let read = |value: Option<&[u8]>| value.map(|value| self.field(value)).transpose();
        self.table.get_with(bytes(key), read)?
    }

    /// Returns the values of many keys, in their order.
    ///
    /// # Errors
    /// [`Error::Typed`], and see [`Db`](crate::Db).
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys: Vec<_> = keys.iter().map(bytes).collect();
        let mut values = Vec::with_capacity(keys.len());
        self.table.get_many_with(&keys, |_, value| {
            values.push(value.map(|value| self.field(value)).transpose());
        })?;
        values.into_iter().collect()
    }

    /// As [`Expiring::contains_key`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.table.contains_key(bytes(key))
    }

    /// As [`Expiring::remove`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn remove(&self, key: &K) -> Result<bool> {
        self.table.remove(bytes(key))
    }

    /// Replaces the value of a key by what `update` makes of it, with a new expiry, in one step;
    /// `None` stands for "absent". Returns the value before. `update` must not use the database.
    ///
    /// # Errors
    /// [`Error::Typed`]; nothing is changed then. See [`Db`](crate::Db).
    pub fn fetch_update(
        &self,
        key: &K,
        update: impl FnOnce(Option<&V>) -> Option<(V, Expiry)>,
    ) -> Result<Option<V>> {
        self.table.try_modify(bytes(key), |value| {
            let before = value.map(|value| self.field(value)).transpose()?;
            let (change, expiry) = match update(before.as_ref()) {
                Some((new, expiry)) => (Change::Put(bytes(&new)), expiry),
                None => (Change::Remove, Expiry::Unchanged),
            };
            Ok((change, expiry, before))
        })?
    }

    /// Returns every pair, in no order; as [`Expiring::iter`].
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, V)>> {
        self.table.iter().map(|pair| {
            let (key, value) = pair?;
            Ok((self.field(&key)?, self.field(&value)?))
        })
    }

    /// As [`Expiring::len`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn len(&self) -> Result<u64> {
        self.table.len()
    }

    /// As [`Expiring::is_empty`].
    ///
    /// # Errors
    /// See [`Db`](crate::Db).
    pub fn is_empty(&self) -> Result<bool> {
        self.table.is_empty()
    }

    fn field<F: Field>(&self, bytes: &[u8]) -> Result<F> {
        F::read(bytes).ok_or_else(|| Error::Typed {
            path: Shown(self.table.db.path().to_owned()),
            wanted: core::any::type_name::<F>(),
        })
    }
}

impl<K, V> Clone for ExpiringTable<K, V> {
    fn clone(&self) -> Self {
        ExpiringTable { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V> core::fmt::Debug for ExpiringTable<K, V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ExpiringTable").field(&self.table).finish()
    }
}
