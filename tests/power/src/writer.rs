//! The process that writes until its disk has no power.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use everhash_store::{Db, ErrorKind, Options, WriteBatch};

use crate::journal::Journal;
use crate::work::{Change, THREADS, Work, key_bytes, value_bytes};

/// After how many operations a thread syncs, about.
const SYNC_EACH: u64 = 500;

/// After how many operations a thread rests for a while.
const REST_EACH: u64 = 400;

/// Opens the database, and changes its pairs until the process is killed.
///
/// # Errors
/// Those of the database, but for a lack of room; and those of the journals.
pub fn write(options: &Options, path: &Path, journals: &Path, work: &Work) -> Result<()> {
    let db = options.clone().create_if_missing(true).open(path)?;
    let clock = AtomicU64::new(0);
    let begin = |thread| Journal::begin(journals, thread, &clock);
    let journals: Vec<_> = (0..THREADS).map(begin).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, mut journal) in journals.into_iter().enumerate() {
            let db = &db;
            threads.push(scope.spawn(move || operate(db, work, thread, &mut journal)));
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(anyhow!("a thread panicked")),
        })
    })
}

fn operate(db: &Db, work: &Work, thread: usize, journal: &mut Journal<'_>) -> Result<()> {
    // Ends with the process.
    for number in 0.. {
        journal.begun()?;
        let done = change(db, thread, &work.changes(thread, number));
        let is_refused = match done {
            Err(error) if error.kind() == ErrorKind::Full => true,
            done => done.map(|()| false)?,
        };
        journal.ended(is_refused)?;
        if number % SYNC_EACH == work.seed % SYNC_EACH {
            let mut synced = Ok(());
            journal.synced(|| {
                synced = db.sync();
                synced.is_ok()
            })?;
            match synced {
                Err(error) if error.kind() != ErrorKind::Full => return Err(error.into()),
                _ => {}
            }
        }
        if number % REST_EACH == 0 {
            thread::sleep(Duration::from_millis(work.seed.wrapping_add(number) % 8));
        }
    }
    Ok(())
}

fn change(db: &Db, thread: usize, changes: &[Change]) -> everhash_store::Result<()> {
    if let [Change { key, value }] = changes {
        let key = key_bytes(thread, *key);
        return match value {
            Some(value) => db.put(key, value_bytes(*value)).map(drop),
            None => db.remove(key).map(drop),
        };
    }
    let mut batch = WriteBatch::new();
    for Change { key, value } in changes {
        let key = key_bytes(thread, *key);
        match value {
            Some(value) => batch.put(key, value_bytes(*value)),
            None => batch.remove(key),
        };
    }
    db.write(&batch)
}
