//! From lines to the database: one thread reads, others write.
//!
//! Records with equal keys go to the same thread, in the order of the file, so that the last one
//! wins whatever the number of threads.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use everhash_store::Result;

use super::OnDuplicate;
use super::progress::Progress;
use crate::cmd::AnyTable;
use crate::failure::{Failure, Outcome};
use crate::input::{Lines, wrong};
use crate::records::{Format, Pair};

/// How many records go to a thread at a time, at most.
///
/// Source: ours; enough that handing over costs little beside writing.
const BATCH_RECORDS: usize = 256;

/// How many bytes go to a thread at a time, about: with the queue below, memory stays bounded by
/// some megabytes per thread beyond the longest record. Unit: bytes.
const BATCH_BYTES: usize = 1 << 20;

/// How many batches may wait for a thread.
const QUEUE: usize = 2;

/// What is to be imported how.
pub struct Feed<'a> {
    /// Where to.
    pub(in crate::cmd) target: Target<'a>,
    /// The format of the lines.
    pub format: Format,
    /// What to do with a key that is there already.
    pub on_duplicate: OnDuplicate,
    /// How many threads write.
    pub threads: usize,
}

/// Where records go to.
#[derive(Clone, Copy)]
pub(in crate::cmd) struct Target<'a> {
    /// The table.
    pub(in crate::cmd) table: &'a AnyTable,
    /// When its pairs end, if they do.
    pub(in crate::cmd) after: Duration,
}

impl Target<'_> {
    fn put_many(&self, pairs: &[Pair]) -> Result<u64> {
        match self.table {
            AnyTable::Plain(db) => db.put_many(pairs),
            AnyTable::Expiring(table) => table.put_many(pairs, self.after),
        }
    }

    fn put_many_if_absent(&self, pairs: &[Pair]) -> Result<u64> {
        match self.table {
            AnyTable::Plain(db) => db.put_many_if_absent(pairs),
            // One that has ended is absent, which only a look at each tells.
            AnyTable::Expiring(_) => pairs.iter().try_fold(0, |added, (key, value)| {
                Ok(added + u64::from(self.put_if_absent(key, value)?))
            }),
        }
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.table {
            AnyTable::Plain(db) => db.put_if_absent(key, value),
            AnyTable::Expiring(table) => table.put_if_absent(key, value, self.after),
        }
    }
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Imported {
    /// Records that were taken.
    pub records: u64,
    /// Keys that were absent before.
    pub new: u64,
    /// Keys whose value was replaced.
    pub replaced: u64,
    /// Keys that were there, and kept their value.
    pub kept: u64,
}

#[derive(Default)]
struct Batch {
    pairs: Vec<Pair>,
    /// The line of the first record that lies in the batch, and of every record.
    lines: Vec<u64>,
    bytes: usize,
}

/// What the writing threads have to tell.
#[derive(Default)]
struct SharedOutcome {
    imported: Mutex<Imported>,
    failure: Mutex<Option<Failure>>,
    failed: AtomicBool,
}

impl Feed<'_> {
    /// Imports the record `first` and all that follow in `lines`.
    pub fn run(
        &self,
        lines: &mut Lines,
        first: Option<Pair>,
        progress: &Progress,
    ) -> (Imported, Outcome) {
        let outcome = SharedOutcome::default();
        let name = lines.name.clone();
        let read = std::thread::scope(|scope| {
            let mut queues = Vec::new();
            for _ in 0..self.threads {
                let (sender, receiver) = sync_channel(QUEUE);
                let (outcome, name) = (&outcome, &name);
                let work = move || self.write(&receiver, name, outcome, progress);
                match std::thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(_) => {}
                    // Where the system refuses another thread, those that are there do the work.
                    Err(_) if !queues.is_empty() => break,
                    Err(error) => {
                        let what = format_args!("cannot start a thread: {error}; try again");
                        return Err(Failure::device(what));
                    }
                }
                queues.push(sender);
            }
            self.read(lines, first, &queues, &outcome.failed, progress)
        });
        let imported = *outcome.imported.lock().unwrap_or_else(|broken| broken.into_inner());
        let failure = outcome.failure.into_inner().unwrap_or_else(|broken| broken.into_inner());
        // What a writing thread met came first in the file.
        (imported, failure.map_or(read, Err))
    }

    /// Reads all lines and hands them to the threads.
    fn read(
        &self,
        lines: &mut Lines,
        first: Option<Pair>,
        queues: &[SyncSender<Batch>],
        failed: &AtomicBool,
        progress: &Progress,
    ) -> Outcome {
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        let mut batches: Vec<Batch> = queues.iter().map(|_| Batch::default()).collect();
        let mut next = first;
        let mut result = Ok(());
        while let Some((key, value)) = next.take() {
            if let Err(error) = self.target.table.admit(&key, &value) {
                result = Err(lines.wrong(error));
                break;
            }
            let to = (hasher.hash_one(&key) % queues.len() as u64) as usize;
            let batch = &mut batches[to];
            batch.bytes += key.len() + value.len();
            batch.pairs.push((key, value));
            batch.lines.push(lines.number);
            if batch.pairs.len() == BATCH_RECORDS || batch.bytes >= BATCH_BYTES {
                progress.read(lines.position);
                // A thread that is gone has failed, and said why.
                if queues[to].send(std::mem::take(batch)).is_err() || failed.load(Ordering::Relaxed)
                {
                    return Ok(());
                }
            }
            match self.format.read(lines) {
                Ok(pair) => next = pair,
                Err(failure) => result = Err(failure),
            }
        }
        for (queue, batch) in queues.iter().zip(batches) {
            // As above.
            let _ = queue.send(batch);
        }
        result
    }

    /// Writes batches until there are no more, or one fails.
    fn write(
        &self,
        queue: &Receiver<Batch>,
        name: &Path,
        outcome: &SharedOutcome,
        progress: &Progress,
    ) {
        for batch in queue {
            let mut done = Imported::default();
            let result = self.store(&batch, name, &mut done);
            progress.stored(done.records);
            {
                let mut all = outcome.imported.lock().unwrap_or_else(|broken| broken.into_inner());
                all.records += done.records;
                all.new += done.new;
                all.replaced += done.replaced;
                all.kept += done.kept;
            }
            if let Err(failure) = result {
                let mut first = outcome.failure.lock().unwrap_or_else(|broken| broken.into_inner());
                first.get_or_insert(failure);
                outcome.failed.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    fn store(&self, batch: &Batch, name: &Path, done: &mut Imported) -> Outcome {
        let pairs = &batch.pairs;
        let count = pairs.len() as u64;
        let stored = match self.on_duplicate {
            OnDuplicate::Replace => self.target.put_many(pairs),
            OnDuplicate::Keep => self.target.put_many_if_absent(pairs),
            OnDuplicate::Error => return self.store_each(batch, name, done),
        };
        match stored {
            Ok(new) => {
                let known = count - new;
                *done = match self.on_duplicate {
                    OnDuplicate::Replace => Imported { replaced: known, ..*done },
                    OnDuplicate::Keep | OnDuplicate::Error => Imported { kept: known, ..*done },
                };
                (done.records, done.new) = (count, new);
                Ok(())
            }
            Err(error) => {
                // Some first part of the batch is there, and is counted.
                let is_there = |(key, value): &&Pair| match self.on_duplicate {
                    OnDuplicate::Replace => {
                        let found = self.target.table.get(key);
                        found.is_ok_and(|found| found.as_ref() == Some(value))
                    }
                    _ => self.target.table.contains_key(key).unwrap_or(false),
                };
                done.records = pairs.iter().take_while(is_there).count() as u64;
                Err(error.into())
            }
        }
    }

    /// Stores record by record: a key that is there ends the import, and its line is named.
    fn store_each(&self, batch: &Batch, name: &Path, done: &mut Imported) -> Outcome {
        for ((key, value), line) in batch.pairs.iter().zip(&batch.lines) {
            if !self.target.put_if_absent(key, value)? {
                let what = "the key is there already, in the database or from an earlier line; \
                            remove the line, or say --on-duplicate keep or replace";
                return Err(wrong(name, *line, what));
            }
            done.new += 1;
            done.records += 1;
        }
        Ok(())
    }
}
