//! Backup: a consistent copy of a database that is in use.

use std::path::Path;

use everhash_index::{Cursor, Durability as Mode, Form, Table};

use crate::place::New;
use crate::snapshot::Place;
use crate::tables::{Traces, prefix};
use crate::{Db, Durability, Error, Options, Result};

impl Db {
    /// Copies all pairs, those of all tables, into a new database `target`, as of one
    /// moment. Neither reads nor writes wait for it: it reads a [snapshot](Db::snapshot). Returns
    /// the number of pairs.
    ///
    /// The copy has the same engine, form and hash function, the settings in `options`, and a hash
    /// key of its own. If this database was made with [`Durability::Immediate`] or `options`
    /// choose it, so is the copy. It appears under its name when it is complete and durable, closed
    /// cleanly.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let (path, copy) = (directory.path().join("a.ehdb"), directory.path().join("b.ehdb"));
    /// use everhash_store::Db;
    ///
    /// let db = Db::create(&path)?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.backup(&copy, &Db::options())?, 1);
    /// assert_eq!(Db::open_read_only(&copy)?.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SnapshotFull`](Error::SnapshotFull) if more was written meanwhile than
    /// [`Options::snapshot_bytes`] of this handle has room for;
    /// [`AlreadyExists`](Error::AlreadyExists) and the other errors of [`Options::create`]; see
    /// also [`Db`]. There is no file `target` then.
    pub fn backup(&self, target: impl AsRef<Path>, options: &Options) -> Result<u64> {
        self.core().check_process()?;
        let target = target.as_ref();
        let info = self.info();
        let options = Options {
            engine: Some(info.engine.name.to_owned()),
            form: Some(info.form),
            hash: Some(info.hash),
            ..options.clone()
        };
        spanned!(info, "backup", target);
        let immediate = self.keeps_immediate() || options.durability == Durability::Immediate;
        let mut copy = NewCopy::begin(&options, target, immediate)?;
        // Before the instant: what is dropped later is there as a whole.
        let needed = self.needed();
        let (snapshot, mut place) = (self.default_table().snapshot()?, Place::Table(Cursor(0)));
        while !matches!(place, Place::End) && copy.failure.is_none() {
            snapshot.step(&mut place, |key, value| {
                if needed(key) {
                    copy.add(key, value);
                }
            })?;
        }
        drop(snapshot);
        copy.finish()
    }

    /// Copies all pairs into a new database `target`, as of one moment, with the settings by which
    /// this one was opened; as [`Db::backup`].
    ///
    /// # Errors
    /// As [`Db::backup`].
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<u64> {
        let items = self.core().read(|table| table.len())?;
        self.backup(target, &self.options_of_open().clone().expected_items(items))
    }

    /// Returns whether the file says that each write is durable when it returns, however it was
    /// opened.
    pub(crate) fn keeps_immediate(&self) -> bool {
        self.core().mode() == Mode::Immediate
    }
}

/// A new database that is filled with the pairs of another one, and appears when it is complete.
pub(crate) struct NewCopy<'p> {
    new: New,
    target: &'p Path,
    count: u64,
    failure: Option<everhash_index::Error>,
}

impl<'p> NewCopy<'p> {
    /// Begins a copy; `immediate` says whether each write to it is to be durable when it returns.
    pub(crate) fn begin(options: &Options, target: &'p Path, immediate: bool) -> Result<Self> {
        // Nothing of the copy is promised before it has its name: one sync at the end is enough.
        let begin = |options: &Options| New::begin(options, target, Durability::Process, immediate);
        let new = match begin(options) {
            // How many there are is a wish: the copy grows if no table can be made for so many.
            Err(Error::TooManyExpected { most, .. }) => {
                begin(&options.clone().expected_items(most))?
            }
            new => new?,
        };
        Ok(NewCopy { new, target, count: 0, failure: None })
    }

    /// Adds a pair, unless its key is there already or an earlier pair could not be added.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        match self.new.table.insert(key, value) {
            Ok(added) => self.count += u64::from(added && self.is_pair(key)),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Adds every pair of a table to which nobody writes.
    pub(crate) fn add_all(
        &mut self,
        table: &dyn Table,
        needed: &dyn Fn(&[u8]) -> bool,
    ) -> everhash_index::Result<()> {
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next.filter(|_| self.failure.is_none()) {
            // A scan may visit a key twice, even without writes.
            next = table.scan(cursor, &mut |key, value| {
                if needed(key) {
                    self.add(key, value);
                }
            })?;
        }
        Ok(())
    }

    /// Adds the records of the catalogue that the pairs that were added need, and lack.
    pub(crate) fn add_missing(&mut self, traces: &Traces) {
        let table = &*self.new.table;
        let put = |(key, value): (Vec<u8>, Vec<u8>)| table.put(&key, &value).map(drop);
        let added = traces.missing(table).and_then(|records| records.into_iter().try_for_each(put));
        if let Err(error) = added {
            self.failure.get_or_insert(error);
        }
    }

    /// Returns whether it is a pair of a user, and no record of the catalogue.
    fn is_pair(&self, key: &[u8]) -> bool {
        let is_record =
            || prefix::split(key).is_some_and(|(number, _)| number == prefix::CATALOGUE);
        self.new.info.form != Form::Variable || !is_record()
    }

    /// Makes the copy durable and gives it its name; returns the number of pairs.
    pub(crate) fn finish(self) -> Result<u64> {
        let of_target = |error| Error::of(self.target, error);
        self.failure.map_or(Ok(()), Err).map_err(of_target)?;
        self.new.table.close().map_err(of_target)?;
        let published = self.new.file.media().publish();
        published.map_err(|error| Error::of_medium(self.target, error))?;
        Ok(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::NewCopy;
    use crate::Db;
    use crate::tables::{Traces, prefix};

    #[test]
    fn a_copy_without_room_for_the_header_of_its_tables_is_refused() {
        // Fails if it counts as a copy: its tables could not be opened.
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("copy.ehdb");
        let options = Db::options().capacity_bytes(1 << 20);
        let mut copy = NewCopy::begin(&options, &target, false).unwrap();
        let mut traces = Traces::default();
        traces.note(&prefix::joined(20, b"a key of a table"), b"value").unwrap();
        // Until not even the shortest pair is taken, wherever its key belongs.
        for length in [4096, 64, 0] {
            let (value, table) = (vec![0; length], &copy.new.table);
            let add = |n| table.insert(format!("{length} {n}").as_bytes(), &value);
            assert!((0..1_000).filter(|n| add(*n).is_err()).count() > 500);
        }
        copy.add_missing(&traces);
        let error = copy.finish().unwrap_err();
        assert!(error.is_full() && !target.exists(), "{error}");
    }
}
