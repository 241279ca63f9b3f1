//! Many keys in one call.

use crate::{Db, Result};

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
}

/// One write of a batch: the lengths of its key and value.
#[derive(Clone, Copy)]
struct Write {
    key_bytes: usize,
    /// `None`: the key is removed.
    value_bytes: Option<usize>,
}

impl WriteBatch {
    /// Returns a batch without writes.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut WriteBatch {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.writes.push(Write { key_bytes: key.len(), value_bytes: Some(value.len()) });
        self
    }

    /// Adds a removal; the key may be absent.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        let key = key.as_ref();
        self.bytes.extend_from_slice(key);
        self.writes.push(Write { key_bytes: key.len(), value_bytes: None });
        self
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
    }

    /// Returns every write: its key, and its value unless it is a removal.
    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        let mut next = move |bytes| {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            part
        };
        self.writes
            .iter()
            .map(move |write| (next(write.key_bytes), write.value_bytes.map(&mut next)))
    }
}

impl core::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "WriteBatch({} writes, {} bytes)", self.writes.len(), self.bytes.len())
    }
}

impl Db {
    /// Does the writes of a batch, in order, with one sync where writes are durable at once.
    ///
    /// With the engine `reef` a batch is atomic: if the call fails, the process ends or power is
    /// lost, all of its writes have been done or none. With the others they are done as if one by
    /// one, and some first part of them has been. Readers see them one by one with any engine.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.core().write(|table| {
            if let Some(table) = table.atomic() {
                return table.write_all(&batch.iter().collect::<Vec<_>>());
            }
            let mut puts = Vec::new();
            for (key, value) in batch.iter() {
                if let Some(value) = value {
                    puts.push((key, value));
                    continue;
                }
                table.put_many(&puts)?;
                puts.clear();
                table.remove(key)?;
            }
            table.put_many(&puts).map(drop)
        })
    }

    /// Returns the values of many keys, in their order.
    ///
    /// # Errors
    /// See [`Db`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        let mut values = vec![None; keys.len()];
        self.core().read(|table| {
            table.get_many(&keys, &mut |position, value| {
                values[position] = value.map(<[u8]>::to_vec);
            })
        })?;
        Ok(values)
    }

    /// Puts many pairs, in order, as if one by one; returns how many keys were new. No transaction:
    /// see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: &[(K, V)]) -> Result<u64> {
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        self.core().write(|table| table.put_many(&pairs))
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
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        self.core().write(|table| table.insert_many(&pairs))
    }

    /// Removes many keys, in order, as if one by one; returns how many were there. No transaction:
    /// see [`Db::write`].
    ///
    /// # Errors
    /// See [`Db`].
    pub fn remove_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<u64> {
        self.core().write(|table| {
            let mut removed = 0;
            for key in keys {
                removed += u64::from(table.remove(key.as_ref())?);
            }
            Ok(removed)
        })
    }
}
