//! What a thread of a writer tells of its operations: a file of words outside the disk that loses
//! power, which a killed process leaves as far as it had written it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a word says, beside the moment at which it was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Begun,
    Done,
    /// There was no room: nothing was changed.
    Refused,
    /// A sync that began at this moment has returned.
    Synced,
}

/// How an operation went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The moment at which it began.
    pub begun: u64,
    /// The moment at which it had returned, if it had.
    pub ended: Option<u64>,
    /// Whether it was refused.
    pub is_refused: bool,
}

/// What a thread told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// All operations that began, in order.
    pub operations: Vec<Operation>,
    /// When the last sync began that returned.
    pub synced: Option<u64>,
}

/// Where a thread tells of its operations.
pub struct Journal<'c> {
    file: File,
    clock: &'c AtomicU64,
}

/// Returns where the journal of a thread lies.
fn path(folder: &Path, thread: usize) -> PathBuf {
    folder.join(format!("journal-{thread}"))
}

impl<'c> Journal<'c> {
    /// Begins a journal. All threads have one clock, which counts.
    ///
    /// # Errors
    /// Those of the file.
    pub fn begin(folder: &Path, thread: usize, clock: &'c AtomicU64) -> io::Result<Self> {
        Ok(Journal { file: File::create(path(folder, thread))?, clock })
    }

    fn tell(&mut self, what: What, moment: u64) -> io::Result<()> {
        self.file.write_all(&(moment << 2 | what as u64).to_le_bytes())
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Tells that an operation begins.
    ///
    /// # Errors
    /// Those of the file.
    pub fn begun(&mut self) -> io::Result<()> {
        self.tell(What::Begun, self.now())
    }

    /// Tells that it has returned.
    ///
    /// # Errors
    /// Those of the file.
    pub fn ended(&mut self, is_refused: bool) -> io::Result<()> {
        self.tell(if is_refused { What::Refused } else { What::Done }, self.now())
    }

    /// Calls `sync`, and tells when it began if it returns that it has synced.
    ///
    /// # Errors
    /// Those of the file.
    pub fn synced(&mut self, sync: impl FnOnce() -> bool) -> io::Result<()> {
        let begun = self.now();
        if sync() { self.tell(What::Synced, begun) } else { Ok(()) }
    }
}

/// Reads what a thread has told by now; nothing if it has not begun.
pub fn read(folder: &Path, thread: usize) -> Option<Told> {
    let bytes = std::fs::read(path(folder, thread)).ok()?;
    let mut told = Told::default();
    for word in bytes.as_chunks().0 {
        let word = u64::from_le_bytes(*word);
        let (moment, what) = (word >> 2, word & 3);
        if what == What::Begun as u64 {
            told.operations.push(Operation { begun: moment, ended: None, is_refused: false });
        } else if what == What::Synced as u64 {
            told.synced = Some(moment);
        } else if let Some(last) = told.operations.last_mut() {
            (last.ended, last.is_refused) = (Some(moment), what == What::Refused as u64);
        }
    }
    Some(told)
}

/// Forgets what threads told.
pub fn forget(folder: &Path, threads: usize) {
    for thread in 0..threads {
        // There may be none.
        let _ = std::fs::remove_file(path(folder, thread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_back() {
        // Fails if an operation, its end, or a sync were read as another one.
        let folder = tempfile::tempdir().expect("a folder");
        let clock = AtomicU64::new(7);
        assert_eq!(read(folder.path(), 0), None);
        let mut journal = Journal::begin(folder.path(), 0, &clock).expect("a file");
        let tell = |journal: &mut Journal<'_>| -> io::Result<()> {
            journal.begun()?;
            journal.ended(false)?;
            journal.begun()?;
            journal.ended(true)?;
            journal.synced(|| true)?;
            journal.synced(|| false)?;
            journal.begun()
        };
        tell(&mut journal).expect("a file");
        let operation = |begun, ended, is_refused| Operation { begun, ended, is_refused };
        let operations = vec![
            operation(7, Some(8), false),
            operation(9, Some(10), true),
            operation(13, None, false),
        ];
        assert_eq!(read(folder.path(), 0), Some(Told { operations, synced: Some(11) }));
        forget(folder.path(), 1);
        assert_eq!(read(folder.path(), 0), None);
    }
}
