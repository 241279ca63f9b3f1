//! Keys and values with types of their own.

use core::marker::PhantomData;
use std::path::Path;

use everhash_index::{Change, Form};

use crate::error::Shown;
use crate::{Db, Error, Options, Result};

/// What a [`Table`] can have as keys and values: integers, strings and bytes.
///
/// Integers are eight bytes in little-endian order, whatever their width; strings and bytes are as
/// they are. Implement it to store types of your own.
pub trait Field: Sized {
    /// Whether it is a word. Where keys and values both are, [`Field::to_word`] and
    /// [`Field::from_word`] are used, and else its bytes.
    const IS_WORD: bool = false;

    /// Appends its bytes to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Reads it from its bytes; `None` if they are none of its values.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Returns it as a word.
    ///
    /// # Panics
    /// Unless it is a word.
    fn to_word(&self) -> u64 {
        unreachable!("only words are asked")
    }

    /// Reads it from a word; `None` if the word is none of its values.
    ///
    /// # Panics
    /// Unless it is a word.
    fn from_word(_word: u64) -> Option<Self> {
        unreachable!("only words are asked")
    }
}

macro_rules! words {
    ($( $integer:ty as $wide:ty ),+) => { $(
        impl Field for $integer {
            const IS_WORD: bool = true;

            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_word().to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                Self::from_word(u64::from_le_bytes(bytes.try_into().ok()?))
            }

            #[inline]
            fn to_word(&self) -> u64 {
                <$wide>::from(*self) as u64
            }

            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                (word as $wide).try_into().ok()
            }
        }
    )+ };
}

words!(u8 as u64, u16 as u64, u32 as u64, u64 as u64);
words!(i8 as i64, i16 as i64, i32 as i64, i64 as i64);

impl Field for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        core::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

impl Field for Vec<u8> {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl<const N: usize> Field for [u8; N] {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

/// A typed view of a database or of a named table: keys are `K`, and values are `V`. [`Db::table`]
/// returns the untyped view, a [`Db`].
///
/// Where both are integers, pairs have the form [`Form::WORDS`], and [`get`](Table::get),
/// [`put`](Table::put), [`update`](Table::update) and [`remove`](Table::remove) allocate nothing.
/// The types are not stored: a database that holds others is refused with [`Error::Mismatch`] where
/// the form shows it, and bytes that are no value of a type give [`Error::Typed`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use everhash_store::{Db, Table};
///
/// let squares: Table<u32, i64> = Table::open(Db::options().create_if_missing(true), &path)?;
/// squares.put(&7, &49)?;
/// assert_eq!(squares.get(&7)?, Some(49));
/// assert_eq!(squares.fetch_update(&7, |value| value.map(|value| value + 1))?, Some(49));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table<K, V> {
    db: Db,
    types: PhantomData<Types<K, V>>,
}

/// Shared and sent like a function of these types, whatever they are.
type Types<K, V> = fn(K) -> V;

impl<K: Field, V: Field> Table<K, V> {
    const ARE_WORDS: bool = K::IS_WORD && V::IS_WORD;

    /// The form of the pairs of such a table.
    pub const FORM: Form = if Self::ARE_WORDS { Form::WORDS } else { Form::Variable };

    /// Opens the database `path`, or makes it if the options say so. The form is chosen by the
    /// types.
    ///
    /// # Errors
    /// As [`Options::open`]; [`Error::Mismatch`] if its pairs have another form.
    pub fn open(options: Options, path: impl AsRef<Path>) -> Result<Table<K, V>> {
        Self::of(options.form(Self::FORM).open(path)?)
    }

    /// Makes a new database `path`. The form is chosen by the types.
    ///
    /// # Errors
    /// As [`Options::create`].
    pub fn create(options: Options, path: impl AsRef<Path>) -> Result<Table<K, V>> {
        Self::of(options.form(Self::FORM).create(path)?)
    }

    /// Takes an open database, or one of the tables in it ([`Db::table`]), as such a table.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if its pairs have another form.
    pub fn of(db: Db) -> Result<Table<K, V>> {
        let found = db.info().form;
        // In a table with a name, integers are byte strings, too.
        if found != Self::FORM && db.table_name().is_none() {
            return Err(Error::Mismatch {
                path: Shown(db.path().to_owned()),
                what: "pairs of the form",
                found: found.to_string(),
                asked: Self::FORM.to_string(),
            });
        }
        Ok(Table { db, types: PhantomData })
    }

    /// Returns the database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// As [`Db::put`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        match self.db.words().filter(|_| Self::ARE_WORDS) {
            Some(words) => words.put(key.to_word(), value.to_word()),
            None => self.db.put(bytes(key), bytes(value)),
        }
    }

    /// As [`Db::put_if_absent`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_if_absent(&self, key: &K, value: &V) -> Result<bool> {
        match self.db.words().filter(|_| Self::ARE_WORDS) {
            Some(words) => words.put_if_absent(key.to_word(), value.to_word()),
            None => self.db.put_if_absent(bytes(key), bytes(value)),
        }
    }

    /// As [`Db::update`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn update(&self, key: &K, value: &V) -> Result<bool> {
        match self.db.words().filter(|_| Self::ARE_WORDS) {
            Some(words) => words.update(key.to_word(), value.to_word()),
            None => self.db.update(bytes(key), bytes(value)),
        }
    }

    /// Returns the value of a key, or `None` if it is absent.
    ///
    /// # Errors
    /// [`Error::Typed`], and see [`Db`].
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        match self.db.words().filter(|_| Self::ARE_WORDS) {
            Some(words) => words.get(key.to_word())?.map(|word| self.word(word)).transpose(),
            None => self
                .db
                .get_with(bytes(key), |value| value.map(|value| self.field(value)).transpose())?,
        }
    }

    /// Returns the values of many keys, in their order.
    ///
    /// # Errors
    /// [`Error::Typed`], and see [`Db`].
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        if let Some(words) = self.db.words().filter(|_| Self::ARE_WORDS) {
            let keys: Vec<_> = keys.iter().map(Field::to_word).collect();
            let mut values = vec![None; keys.len()];
            words.get_many(&keys, &mut values)?;
            return values
                .into_iter()
                .map(|word| word.map(|word| self.word(word)).transpose())
                .collect();
        }
        let keys: Vec<_> = keys.iter().map(bytes).collect();
        let mut values = Vec::with_capacity(keys.len());
        self.db.get_many_with(&keys, |_, value| {
            values.push(value.map(|value| self.field(value)).transpose());
        })?;
        values.into_iter().collect()
    }

    /// As [`Db::contains_key`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.db.contains_key(bytes(key))
    }

    /// As [`Db::remove`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn remove(&self, key: &K) -> Result<bool> {
        match self.db.words().filter(|_| Self::ARE_WORDS) {
            Some(words) => words.remove(key.to_word()),
            None => self.db.remove(bytes(key)),
        }
    }

    /// Replaces the value of a key by what `update` makes of it, in one step; returns the value
    /// before. As [`Db::fetch_update`].
    ///
    /// # Errors
    /// [`Error::Typed`]; nothing is changed then. See [`Db`].
    pub fn fetch_update(
        &self,
        key: &K,
        update: impl FnOnce(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>> {
        self.db.try_modify(bytes(key), |value| {
            let before = value.map(|value| self.field(value)).transpose()?;
            let change =
                update(before.as_ref()).map_or(Change::Remove, |new| Change::Put(bytes(&new)));
            Ok((change, before))
        })?
    }

    /// Returns every pair, in no order; as [`Db::iter`].
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, V)>> {
        self.db.iter().map(|pair| {
            let (key, value) = pair?;
            Ok((self.field(&key)?, self.field(&value)?))
        })
    }

    /// As [`Db::len`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn len(&self) -> Result<u64> {
        self.db.len()
    }

    /// As [`Db::is_empty`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn is_empty(&self) -> Result<bool> {
        self.db.is_empty()
    }

    /// As [`Db::close`].
    ///
    /// # Errors
    /// As [`Db::close`].
    pub fn close(self) -> Result<()> {
        self.db.close()
    }

    fn field<F: Field>(&self, bytes: &[u8]) -> Result<F> {
        F::read(bytes).ok_or_else(|| self.wrong::<F>())
    }

    fn word<F: Field>(&self, word: u64) -> Result<F> {
        F::from_word(word).ok_or_else(|| self.wrong::<F>())
    }

    #[cold]
    fn wrong<F>(&self) -> Error {
        let path = Shown(self.db.path().to_owned());
        Error::Typed { path, wanted: core::any::type_name::<F>() }
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table { db: self.db.clone(), types: PhantomData }
    }
}

impl<K, V> core::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Table").field(&self.db).finish()
    }
}

/// Returns the bytes of a key or value.
pub(crate) fn bytes(field: &impl Field) -> Vec<u8> {
    let mut bytes = Vec::new();
    field.write(&mut bytes);
    bytes
}
