//! What the tests of file media share: a directory that cleans up, and a system that fails.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "this is a test, though not inside a test function")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use everhash_pmem::FileOptions;
use everhash_pmem::media::file::system::{Call, System};
use everhash_pmem::pool::Identity;

/// Of a pool that tests make.
pub const IDENTITY: Identity = Identity {
    engine: *b"demo\0\0\0\0",
    form: 0,
    hash_kind: 1,
    hash_key: [1, 2],
    database: [3, 4],
};

/// A directory of its own for one test, removed at the end.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = base.join(format!("file-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("pairs.ehdb")
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names in the directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Returns the path of the only file, whatever its name is.
    pub fn only_file(&self) -> Option<PathBuf> {
        match &self.names()[..] {
            [] => None,
            [name] => Some(self.0.join(name)),
            names => panic!("more than one file: {names:?}"),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the chosen call does instead of succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens and the error of this number is reported.
    Fails(i32),
    /// It happens, and the error of this number is reported all the same.
    HappensAndFails(i32),
    /// As `Fails`, and the file falls back to what was synced last: the page cache forgot.
    Forgets(i32),
    /// As `Fails`, and every page counts as clean from here on, with the content that it has: a
    /// later sync writes only what is stored to after this.
    Cleans(i32),
    /// It happens, and this value is reported.
    Says(u64),
}

/// A system of which one call fails, and which remembers what power loss would leave.
#[derive(Debug)]
pub struct Faulty {
    directory: Arc<Directory>,
    kind: Call,
    /// The number of the call of that kind that fails, from 1; 0 for every one of them.
    number: u32,
    fault: Fault,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    seen: u32,
    fired: bool,
    /// The contents after the last sync that succeeded, if there was one.
    durable: Option<Vec<u8>>,
    /// What the pages hold that count as clean since a failed sync; an entry for each page.
    clean: Vec<Option<Vec<u8>>>,
    /// Where the next piece that is written again begins.
    piece: u64,
}

/// The unit in which the page cache tells clean from changed. Unit: bytes.
const PAGE: usize = 4096;

impl State {
    /// Notes what a successful call has changed, as far as its content does not show it.
    fn follow(&mut self, call: Call, value: u64, directory: &Directory) {
        match call {
            Call::FindData => self.piece = value,
            Call::Rewrite => {
                let pages = self.piece as usize / PAGE..(self.piece + value) as usize / PAGE;
                self.clean.iter_mut().take(pages.end).skip(pages.start).for_each(|it| *it = None);
                self.piece += value;
            }
            Call::Sync => self.sync(&read(directory)),
            _ => {}
        }
    }

    /// Makes durable what is not taken for clean.
    fn sync(&mut self, visible: &[u8]) {
        let before = self.durable.take().unwrap_or_default();
        let mut durable = visible.to_vec();
        for (index, clean) in self.clean.iter_mut().enumerate() {
            let pages = index * PAGE..((index + 1) * PAGE).min(durable.len());
            match clean {
                Some(page) if visible.get(pages.clone()) == Some(&page[..]) => {
                    let mut old = before.get(index * PAGE..).unwrap_or_default().to_vec();
                    old.resize(pages.len(), 0);
                    durable[pages].copy_from_slice(&old);
                }
                clean => *clean = None,
            }
        }
        self.durable = Some(durable);
    }
}

impl Faulty {
    pub fn new(directory: &Arc<Directory>, kind: Call, number: u32, fault: Fault) -> Arc<Faulty> {
        let (directory, state) = (Arc::clone(directory), Mutex::default());
        Arc::new(Faulty { directory, kind, number, fault, state })
    }

    /// Returns the same system as it is now, of which another call fails, counted from here on.
    pub fn then(&self, number: u32, fault: Fault) -> Arc<Faulty> {
        let state = State { seen: 0, fired: false, ..self.state.lock().unwrap().clone() };
        let directory = Arc::clone(&self.directory);
        Arc::new(Faulty { directory, kind: self.kind, number, fault, state: Mutex::new(state) })
    }

    /// Returns how many calls of the chosen kind were made.
    pub fn seen(&self) -> u32 {
        self.state.lock().unwrap().seen
    }

    pub fn fired(&self) -> bool {
        self.state.lock().unwrap().fired
    }

    /// Overwrites the file with what was synced last, as power loss would in the worst case.
    pub fn fail_power(&self) {
        let durable = self.state.lock().unwrap().durable.clone();
        restore(&self.directory, durable);
    }
}

fn restore(directory: &Directory, durable: Option<Vec<u8>>) {
    use std::os::unix::fs::FileExt;
    let (Some(path), Some(mut bytes)) = (directory.only_file(), durable) else { return };
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    bytes.resize(file.metadata().unwrap().len() as usize, 0);
    file.write_all_at(&bytes, 0).unwrap();
}

impl System for Faulty {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        let mut state = self.state.lock().unwrap();
        if call == self.kind {
            state.seen += 1;
            if self.number == 0 || state.seen == self.number {
                state.fired = true;
                return match self.fault {
                    Fault::Fails(number) => Err(io::Error::from_raw_os_error(number)),
                    Fault::Says(value) => run().map(|_| value),
                    Fault::HappensAndFails(number) => {
                        run()?;
                        state.durable = Some(read(&self.directory));
                        Err(io::Error::from_raw_os_error(number))
                    }
                    Fault::Forgets(number) => {
                        restore(&self.directory, state.durable.clone());
                        Err(io::Error::from_raw_os_error(number))
                    }
                    Fault::Cleans(number) => {
                        let visible = read(&self.directory);
                        state.clean = visible.chunks(PAGE).map(|it| Some(it.to_vec())).collect();
                        Err(io::Error::from_raw_os_error(number))
                    }
                };
            }
        }
        let value = run()?;
        state.follow(call, value, &self.directory);
        Ok(value)
    }
}

fn read(directory: &Directory) -> Vec<u8> {
    directory.only_file().map(|path| std::fs::read(path).unwrap()).unwrap_or_default()
}

/// Returns default options on top of `system`, with a small range of addresses.
pub fn options(system: Arc<dyn System>) -> FileOptions {
    FileOptions { capacity_bytes: 1 << 24, system, ..FileOptions::default() }
}
