//! The process that is killed: it writes, and says of each write that it returned.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::PathBuf;

use everhash_store::{Db, ErrorKind, Options, Result, WriteBatch};

use super::history::{Change, History, Said, Write, acknowledgement};
use crate::failure::{Failure, Outcome};

/// Length of what is said of a write. A pipe takes so few bytes whole or not at all.
pub const ACKNOWLEDGEMENT_BYTES: usize = 8;

/// A process that writes until it is killed.
pub struct Writer {
    pub path: PathBuf,
    pub options: Options,
    pub history: History,
    /// The first write of each thread.
    pub from: Vec<u64>,
    /// Whether a write may find no room.
    pub may_be_full: bool,
}

impl Writer {
    /// Writes until the process is killed, or until nobody listens.
    pub fn run(self) -> Outcome {
        let db = self.options.open(&self.path)?;
        std::thread::scope(|scope| {
            let db = &db;
            let (history, may_be_full) = (self.history, self.may_be_full);
            let threads: Vec<_> = (0..)
                .zip(&self.from)
                .map(|(thread, from)| {
                    scope.spawn(move || go_on(db, history, thread, *from, may_be_full))
                })
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join().expect("no writer panics"));
            ends.collect::<Outcome<()>>()
        })
    }
}

fn go_on(db: &Db, history: History, thread: u64, from: u64, may_be_full: bool) -> Outcome {
    let failed = |error| Failure::device(format_args!("the pipe to who listens: {error}"));
    // Not the locked and buffered output of the process: what is said is in the pipe at once.
    let mut pipe = File::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    for index in from.. {
        let said = match write(db, &history, (thread, index)) {
            Ok(()) => Said::Done,
            Err(error) if may_be_full && error.is_full() => Said::Refused,
            Err(error) => return Err(error.into()),
        };
        let word = acknowledgement(thread, index, said).to_le_bytes();
        match pipe.write_all(&word) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Does the write of a thread with that index.
pub fn write(db: &Db, history: &History, (thread, index): (u64, u64)) -> Result<()> {
    let name = history.table(thread, index);
    let of = |key: &[u8]| history.owner(key).map(|_| &*name);
    match history.write(thread, index) {
        Write::Single(Change { key, value: Some(value) }) => {
            table_to_put(db, of(&key))?.put(key, value).map(drop)
        }
        Write::Single(Change { key, value: None }) => remove(db, of(&key), &key).map(drop),
        Write::Batch(changes) => {
            let mut batch = WriteBatch::new();
            for Change { key, value } in changes {
                if let Some(value) = value {
                    batch.put_in(&table_to_put(db, of(&key))?, key, value);
                } else if let Some(table) = table(db, of(&key))? {
                    batch.remove_in(&table, key);
                }
            }
            db.write(&batch)
        }
        Write::Clear => db.clear(),
        Write::Drop { .. } => db.drop_table(&name).map(drop),
    }
}

/// Removes a key from the table of that name, or the default table; returns whether it was there.
pub fn remove(db: &Db, name: Option<&str>, key: &[u8]) -> Result<bool> {
    table(db, name)?.map_or(Ok(false), |table| table.remove(key))
}

/// Returns a table, if there is one.
fn table(db: &Db, name: Option<&str>) -> Result<Option<Db>> {
    match name.map_or_else(|| Ok(db.clone()), |name| db.table(name)) {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NoTable => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a table, which is made if it is not there.
fn table_to_put(db: &Db, name: Option<&str>) -> Result<Db> {
    name.map_or_else(|| Ok(db.clone()), |name| db.table_or_create(name))
}
