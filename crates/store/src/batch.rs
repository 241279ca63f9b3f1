//! Many keys in one call.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use everhash_index::{Table, admit};

use crate::keys::with_buffer;
use crate::snapshot::Save;
use crate::tables::{BatchCount, Space, prefix};
use crate::{Db, Result};

/// Keys whose values are in memory together while [`Db::get_many_with`] reads them.
///
/// Unit: keys. Source: ours; engines overlap the waits of 16 or 32.
const TOGETHER: usize = 32;

/// Puts and removals that are done in one call, in their order; see [`Db::write`].
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pairs.ehdb");
/// use everhash_store::{Db, WriteBatch};
///
/// let db = Db::create(&path)?;
/// let mut batch = WriteBatch::new();
/// batch.put("tree", "oak").put("bird", "owl").remove("tree");
/// db.write(&batch)?;
/// assert!(!db.contains_key("tree")? && db.contains_key("bird")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    writes: Vec<Write>,
    /// Tables that writes name by their position.
    spaces: Vec<Arc<Space>>,
    /// The open databases whose default tables writes name, and their paths.
    defaults: Vec<(u64, PathBuf)>,
}

/// One write of a batch: its table, and the lengths of its key and value.
#[derive(Clone, Copy)]
struct Write {
    target: Target,
    key_bytes: usize,
    /// `None`: the key is removed.
    value_bytes: Option<usize>,
}

/// The table of a write.
#[derive(Clone, Copy)]
enum Target {
    /// That of the handle which does the batch.
    Handle,
    Default,
    /// By its position in the batch.
    Space(usize),
}

impl WriteBatch {
    /// Returns a batch without writes.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.add(Target::Handle, key.as_ref(), Some(value.as_ref()))
    }

    /// Adds a put into the table that the handle `table` sees. A batch may span tables of one
    /// database.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// use everhash_store::{Db, WriteBatch};
    ///
    /// let db = Db::create(&path)?;
    /// let (users, names) = (db.create_table("users")?, db.create_table("names")?);
    /// let mut batch = WriteBatch::new();
    /// batch.put_in(&users, "7", "ann").put_in(&names, "ann", "7");
    /// db.write(&batch)?;
    /// assert!(users.contains_key("7")? && names.contains_key("ann")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_in(
        &mut self,
        table: &Db,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        let target = self.target(table);
        self.add(target, key.as_ref(), Some(value.as_ref()))
    }

    /// Adds a removal from the table that the handle `table` sees; the key may be absent.
    pub fn remove_in(&mut self, table: &Db, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        let target = self.target(table);
        self.add(target, key.as_ref(), None)
    }

    fn target(&mut self, table: &Db) -> Target {
        let Some(space) = table.space() else {
            if !self.defaults.iter().any(|(id, _)| *id == table.id()) {
                self.defaults.push((table.id(), table.path().to_owned()));
            }
            return Target::Default;
        };
        if !self.spaces.last().is_some_and(|last| Arc::ptr_eq(last, space)) {
            self.spaces.push(Arc::clone(space));
        }
        Target::Space(self.spaces.len() - 1)
    }

    fn add(&mut self, target: Target, key: &[u8], value: Option<&[u8]>) -> &mut WriteBatch {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (key_bytes, value_bytes) = (key.len(), value.map(<[u8]>::len));
        self.writes.push(Write { target, key_bytes, value_bytes });
        self
    }

    /// Adds a removal; the key may be absent.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.add(Target::Handle, key.as_ref(), None)
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Takes all writes out, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
        self.spaces.clear();
        self.defaults.clear();
    }

    /// Returns every write: its table, its key, and its value unless it is a removal.
    fn iter(&self) -> impl Iterator<Item = (Target, &[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        let mut next = move |bytes| {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            part
        };
        self.writes.iter().map(move |write| {
            (write.target, next(write.key_bytes), write.value_bytes.map(&mut next))
        })
    }

    /// Returns every write with its key as it lies in the file of `db`.
    fn stored(&self, db: &Db) -> Result<Vec<Stored<'_>>> {
        let default = db.default_table();
        let stored = |(target, key, value): (_, _, Option<_>)| {
            let key = match (target, value) {
                (Target::Handle, Some(_)) => db.stored_key(key)?,
                (Target::Handle, None) => db.sought_key(key),
                (Target::Default, Some(_)) => default.stored_key(key)?,
                (Target::Default, None) => default.sought_key(key),
                (Target::Space(at), Some(_)) => prefix::before(self.spaces[at].number, key)?,
                (Target::Space(at), None) => prefix::joined(self.spaces[at].number, key).into(),
            };
            Ok((key, value))
        };
        self.iter().map(stored).collect()
    }
}

/// A write as it lies in the file.
type Stored<'b> = (Cow<'b, [u8]>, Option<&'b [u8]>);

impl core::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "WriteBatch({} writes, {} bytes)", self.writes.len(), self.bytes.len())
    }
}

/// Refuses pairs of which one cannot be stored, before any of them is.
fn admit_all<'p>(
    table: &dyn Table,
    mut pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
) -> everhash_index::Result<()> {
    let form = table.form();
    pairs.try_for_each(|(key, value)| admit(form, key, value))
}

/// Does the writes of a batch as if one by one.
fn one_by_one(
    table: &dyn Table,
    writes: &[(&[u8], Option<&[u8]>)],
    count: &mut BatchCount<'_>,
) -> everhash_index::Result<()> {
    let mut puts: Vec<(&[u8], &[u8])> = Vec::new();
    for &(key, value) in writes {
        if let Some((first, _)) = puts.first()
            && (value.is_none() || !count.are_together(first, key))
        {
            count.change(first, table.put_many(&puts)?.cast_signed());
            puts.clear();
        }
        match value {
            Some(value) => puts.push((key, value)),
            None => count.change(key, -i64::from(table.remove(key)?)),
        }
    }
    if let Some((first, _)) = puts.first() {
        count.change(first, table.put_many(&puts)?.cast_signed());
    }
    Ok(())
}

impl Db {
    /// Does the writes of a batch, in order, with one sync where writes are durable at once.
    ///
    /// With the engine `reef` a batch is atomic: if the call fails, the process ends or power is
    /// lost, all of its writes have been done or none. With the others they are done as if one by
    /// one, and some first part of them has been. Readers see them one by one with any engine.
    ///
    /// # Errors
    /// [`Error::NoTable`](crate::Error::NoTable) if one of its tables was dropped, or is of another
    /// database or of an earlier opening of this one: nothing was written then. See [`Db`].
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        if let Some((_, path)) = batch.defaults.iter().find(|(id, _)| *id != self.id()) {
            return Err(self.no_table(&format!("the default table of {}", path.display())));
        }
        let stored = batch.stored(self)?;
        let writes: Vec<_> = stored.iter().map(|(key, value)| (key.as_ref(), *value)).collect();
        let spaces: Vec<_> = batch.spaces.iter().chain(self.space()).cloned().collect();
        let touch = |save: &mut Save<'_>| writes.iter().try_for_each(|(key, _)| save(key));
        self.write_unless_dropped(&spaces, touch, |table| {
            let puts = writes.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
            admit_all(table, puts)?;
            let mut count = self.count_batch(&spaces);
            if let Some(table) = table.atomic() {
                table.write_all_and_tell(&writes, &mut |key, is_there| {
                    count.change(key, if is_there { 1 } else { -1 });
                })?;
            } else {
                one_by_one(table, &writes, &mut count)?;
            }
            count.done();
            Ok(())
        })
    }

    /// Returns the values of many keys, in their order. The waits for memory overlap, and with the
    /// engine `reef` those for the disk, too.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let stored = self.sought_keys(keys);
        let keys: Vec<_> = stored.iter().map(AsRef::as_ref).collect();
        let mut values = vec![None; keys.len()];
        self.read(|table| {
            table.get_many(&keys, &mut |position, value| {
                values[position] = value.map(<[u8]>::to_vec);
            })
        })?;
        Ok(values)
    }

    /// Calls `read` with the position of each key and its value, in their order. Allocates nothing
    /// for each value, which [`get_many`](Db::get_many) does; up to 32 of them are in memory at a
    /// time. A value is a copy: `read` may use the database.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// let db = everhash_store::Db::create(&path)?;
    /// db.put_many(&[("oak", "tree"), ("owl", "bird")])?;
    /// let mut bytes = 0;
    /// db.get_many_with(&["oak", "elm", "owl"], |_, value| bytes += value.map_or(0, <[u8]>::len))?;
    /// assert_eq!(bytes, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Db`]. `read` was called for some of the keys then, from the first one on.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (part, keys) in keys.chunks(TOGETHER).enumerate() {
            let stored = self.sought_keys(keys);
            let keys: Vec<_> = stored.iter().map(AsRef::as_ref).collect();
            with_buffer(|bytes| -> Result<()> {
                bytes.clear();
                let mut places = [const { None }; TOGETHER];
                self.read(|table| {
                    table.get_many(&keys, &mut |position, value| {
                        places[position] = value.map(|value| {
                            bytes.extend_from_slice(value);
                            bytes.len() - value.len()..bytes.len()
                        });
                    })
                })?;
                for (position, place) in places.into_iter().take(keys.len()).enumerate() {
                    read(part * TOGETHER + position, place.map(|place| &bytes[place]));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Puts many pairs, in order, as if one by one; returns how many keys were new. No transaction:
    /// see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: &[(K, V)]) -> Result<u64> {
        self.write_many(pairs, |table, pairs| table.put_many(pairs))
    }

    /// Adds many pairs, in order, as if one by one: of each key that is absent. Returns how many
    /// were. No transaction: see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_many_if_absent<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(K, V)],
    ) -> Result<u64> {
        self.write_many(pairs, |table, pairs| table.insert_many(pairs))
    }

    /// Removes many keys, in order, as if one by one; returns how many were there. No transaction:
    /// see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn remove_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<u64> {
        let stored = self.sought_keys(keys);
        let touch = |save: &mut Save<'_>| stored.iter().try_for_each(|key| save(key));
        let keys: Vec<&[u8]> = stored.iter().map(AsRef::as_ref).collect();
        let gone = |removed: &u64| -removed.cast_signed();
        self.write_with(touch, |table| table.remove_many(&keys), gone)
    }

    fn write_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(K, V)],
        run: impl FnOnce(&dyn Table, &[(&[u8], &[u8])]) -> everhash_index::Result<u64>,
    ) -> Result<u64> {
        let stored: Vec<_> =
            pairs.iter().map(|(key, _)| self.stored_key(key.as_ref())).collect::<Result<_>>()?;
        let values = pairs.iter().map(|(_, value)| value.as_ref());
        let pairs: Vec<_> = stored.iter().map(AsRef::as_ref).zip(values).collect();
        let touch = |save: &mut Save<'_>| pairs.iter().try_for_each(|(key, _)| save(key));
        let new = |added: &u64| added.cast_signed();
        let run = |table: &dyn Table| {
            admit_all(table, pairs.iter().copied())?;
            run(table, &pairs)
        };
        self.write_with(touch, run, new)
    }

    fn sought_keys<'k, K: AsRef<[u8]>>(&self, keys: &'k [K]) -> Vec<Cow<'k, [u8]>> {
        keys.iter().map(|key| self.sought_key(key.as_ref())).collect()
    }
}
