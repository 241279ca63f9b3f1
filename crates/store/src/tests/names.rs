//! The file that is open, and the one that has its name.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everhash_pmem::media::file::system::{Call, System};

use crate::{Db, ErrorKind, Options, Result};

/// A directory, and two databases in it that are called `a` and `b`.
fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| directory.path().join(name));
    for path in [&first, &second] {
        let db = Db::create(path).unwrap();
        db.put("path", path.to_str().unwrap()).unwrap();
        db.close().unwrap();
    }
    (directory, first, second)
}

#[test]
fn a_file_of_the_same_name_is_left_alone() {
    // Fails if a database were deleted or replaced that only has the name under which another one
    // was opened. It may be open in another process, which goes on with a file without a name.
    let acts: [fn(Db) -> Result<()>; 3] =
        [Db::discard, |db| db.compact().map(drop), |db| db.truncate().map(drop)];
    for act in acts {
        let (directory, first, second) = two();
        let moved = directory.path().join("moved");
        let db = Db::open(&first).unwrap();
        std::fs::rename(&first, &moved).unwrap();
        std::fs::rename(&second, &first).unwrap();
        let inode = |path: &PathBuf| path.metadata().unwrap().ino();
        let expected = [inode(&moved), inode(&first)];
        let error = act(db).unwrap_err().to_string();
        for inode in expected {
            assert!(error.contains(&inode.to_string()), "no {inode} in: {error}");
        }
        assert_eq!([inode(&moved), inode(&first)], expected);
        for (path, value) in [(&moved, &first), (&first, &second)] {
            let found = Db::open(path).unwrap().get("path").unwrap().unwrap();
            assert_eq!(found, value.to_str().unwrap().as_bytes());
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_file_whose_name_is_gone_is_left_alone() {
    // Fails if the error were that there is no such file, which a caller may take for success.
    let (directory, first, _) = two();
    let moved = directory.path().join("moved");
    for act in [|db: Db| db.discard(), |db: Db| db.compact().map(drop)] {
        let db = Db::open(&first).unwrap();
        std::fs::rename(&first, &moved).unwrap();
        let error = act(db).unwrap_err().to_string();
        assert!(error.contains("no file"), "{error}");
        std::fs::rename(&moved, &first).unwrap();
        assert!(Db::open(&first).unwrap().contains_key("path").unwrap());
    }
}

#[test]
fn a_database_that_was_opened_by_a_link_is_discarded_itself() {
    // Fails if the link were deleted, and everything that was to go stayed on the disk.
    let (directory, first, _) = two();
    let link = directory.path().join("link");
    symlink("a", &link).unwrap();
    Db::open(&link).unwrap().discard().unwrap();
    assert!(!first.exists());
    assert!(link.symlink_metadata().is_ok());
}

#[test]
fn a_new_database_can_be_discarded_and_written_anew() {
    // Fails if it were only known which file was opened, and not which one was made.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::create(&path).unwrap();
    db.put("key", "value").unwrap();
    // And once more, as the file is another one then.
    let db = db.compact().unwrap().compact().unwrap();
    assert_eq!(db.len().unwrap(), 1);
    db.discard().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_database_whose_figures_cannot_be_written_is_not_made() {
    // Fails if there were a file under the name although the caller was told that there is none.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let nowhere = directory.path().join("nowhere").join("pairs.prom");
    let options = Db::options().metrics_file(nowhere, Duration::from_secs(1));
    options.create(&path).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    Db::create(&path).unwrap().close().unwrap();
    options.open(&path).unwrap_err();
    Db::open(&path).unwrap();
}

#[test]
fn figures_are_not_written_by_way_of_the_database() {
    // Fails if the database had the name of the file that is written first, which is removed.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".figures.new");
    Db::create(&path).unwrap().close().unwrap();
    let figures = directory.path().join("figures");
    Db::options().metrics_file(&figures, Duration::from_secs(1)).open(&path).unwrap_err();
    Db::open(&path).unwrap();
}

#[test]
fn figures_replace_their_own_file_and_nothing_else() {
    // Fails if the text took the place of the database, or went where a link leads that somebody
    // else has put in the way; or if a thread without a pause filled a processor.
    let (directory, first, second) = two();
    let by_way = directory.path().join(".").join("a");
    let new = directory.path().join("new");
    for (path, figures) in [(&first, &first), (&first, &by_way), (&new, &new)] {
        let options = Db::options().metrics_file(figures, Duration::ZERO).create_if_missing(true);
        let error = options.open(path).unwrap_err().to_string();
        assert!(error.contains("the database itself"), "{error}");
    }
    assert!(!new.exists());
    let figures = directory.path().join("figures");
    // What cannot take its place leaves nothing beside it.
    std::fs::create_dir(&figures).unwrap();
    Db::options().metrics_file(&figures, Duration::from_secs(1)).open(&first).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
    std::fs::remove_dir(&figures).unwrap();
    let before = std::fs::read(&second).unwrap();
    symlink("b", directory.path().join(".figures.new")).unwrap();
    let db = Db::options().metrics_file(&figures, Duration::ZERO).open(&first).unwrap();
    let inode = || figures.metadata().map_or(0, |found| found.ino());
    let (mut last, mut changes, begin) = (inode(), 0, Instant::now());
    while changes < 5 && begin.elapsed() < Duration::from_secs(20) {
        let now = inode();
        changes += u32::from(now != last);
        last = now;
    }
    assert_eq!(changes, 5);
    assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
    db.close().unwrap();
    assert_eq!(std::fs::read(&second).unwrap(), before);
    assert!(std::fs::read_to_string(&figures).unwrap().contains("everhash_open{"));
}

#[test]
fn what_an_ended_process_left_is_no_obstacle() {
    // Fails if a database could never be compacted again after a crash, or if each compaction that
    // was killed left another copy of it for ever.
    let (directory, first, _) = two();
    let left = [".a.compact", "..a.compact.761-0.new", "..a.compact.4194305-17.new"];
    let left = left.map(|name| directory.path().join(name));
    std::fs::copy(&first, &left[0]).unwrap();
    for path in &left[1..] {
        std::fs::write(path, [0; 8192]).unwrap();
    }
    let db = Db::open(&first).unwrap().compact().unwrap();
    assert!(db.contains_key("path").unwrap() && left.iter().all(|path| !path.exists()));
}

#[test]
fn a_file_of_somebody_else_is_an_obstacle_and_stays() {
    // Fails if a user's file went because it has a name that the program uses.
    let (directory, first, second) = two();
    let theirs = [".a.compact", "..a.compact.1-2.new", ".new.1-2.new"];
    let theirs = theirs.map(|name| directory.path().join(name));
    theirs.iter().for_each(|path| std::fs::write(path, "mine").unwrap());
    let refused = Db::open(&first).unwrap().compact().unwrap_err();
    let said = refused.to_string();
    assert!(refused.kind() == ErrorKind::AlreadyExists && said.contains(".a.compact"), "{said}");
    Db::create(directory.path().join("new")).unwrap().close().unwrap();
    assert!(theirs.iter().all(|path| std::fs::read(path).unwrap() == b"mine"));
    assert!(Db::open(&first).unwrap().contains_key("path").unwrap());
    Db::open(&second).unwrap().compact().unwrap();
}

#[test]
fn a_database_written_anew_keeps_its_owner() {
    // Fails if a database that the administrator compacts were lost to the service that uses it.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    Db::options().mode(0o640).create(&path).unwrap().close().unwrap();
    if chown(&path, Some(65534), Some(65533)).is_err() {
        println!("skipped: only the administrator gives files to others");
        return;
    }
    let owner = || {
        let found = path.metadata().unwrap();
        (found.uid(), found.gid(), found.permissions().mode() & 0o777)
    };
    Db::open(&path).unwrap().compact().unwrap().truncate().unwrap().close().unwrap();
    assert_eq!(owner(), (65534, 65533, 0o640));
}

/// A system that notes which file has a name whenever a directory is opened or synced, and fails
/// the n-th such call of a kind.
#[derive(Debug)]
struct Watch {
    path: PathBuf,
    fails: Option<(Call, usize)>,
    seen: Mutex<Vec<(Call, u64)>>,
}

impl Watch {
    fn new(path: &Path, fails: Option<(Call, usize)>) -> (Arc<Watch>, Options) {
        let watch = Watch { path: path.to_owned(), fails, seen: Mutex::default() };
        let watch = Arc::new(watch);
        let system = Arc::<Watch>::clone(&watch);
        (watch, Options { system, ..Db::options() })
    }
}

impl System for Watch {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        if matches!(call, Call::OpenDirectory | Call::SyncDirectory) {
            let inode = self.path.metadata().map_or(0, |found| found.ino());
            let mut seen = self.seen.lock().unwrap();
            seen.push((call, inode));
            let count = seen.iter().filter(|(other, _)| *other == call).count();
            if self.fails == Some((call, count)) {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        run()
    }
}

#[test]
fn a_compaction_that_fails_says_which_file_is_there() {
    // Fails if it were reported as failed, with the database as it was, when the new file has its
    // name already; or if the new name were never made durable.
    let (_directory, path, _) = two();
    let inode = || path.metadata().unwrap().ino();
    let before = inode();
    // The first call of each kind is for the new file under its own name.
    let (_, options) = Watch::new(&path, Some((Call::OpenDirectory, 2)));
    options.open(&path).unwrap().compact().unwrap_err();
    assert_eq!(inode(), before);
    let (watch, options) = Watch::new(&path, Some((Call::SyncDirectory, 2)));
    let error = options.open(&path).unwrap().compact().unwrap_err().to_string();
    assert!(error.contains("sync") && error.contains("new file"), "{error}");
    let after = inode();
    assert_ne!(after, before);
    let syncs = || {
        let seen = watch.seen.lock().unwrap();
        let syncs = seen.iter().filter(|(call, _)| *call == Call::SyncDirectory);
        syncs.map(|(_, inode)| *inode).collect::<Vec<_>>()
    };
    assert_eq!(syncs(), [before, after]);
    assert!(Db::open(&path).unwrap().contains_key("path").unwrap());
}

/// A system that notes whether a file is there whenever data is synced.
#[derive(Debug)]
struct Presence {
    path: PathBuf,
    seen: Mutex<Vec<bool>>,
}

impl System for Presence {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        if call == Call::Sync {
            self.seen.lock().unwrap().push(self.path.exists());
        }
        run()
    }
}

#[test]
fn a_discarded_database_is_deleted_before_it_is_closed() {
    // Fails if the lock were released while the file has its name: another program could open it,
    // and lose what it writes.
    let (_directory, path, _) = two();
    let presence = Arc::new(Presence { path: path.clone(), seen: Mutex::default() });
    let system = Arc::<Presence>::clone(&presence);
    let db = Options { system, ..Db::options() }.open(&path).unwrap();
    db.put("key", "value").unwrap();
    db.discard().unwrap();
    let seen = presence.seen.lock().unwrap();
    assert_eq!((seen.is_empty(), seen.last()), (false, Some(&false)));
}

/// A system that gives the name of a database to another file, when a copy gets its own name.
#[derive(Debug)]
struct Thief {
    from: PathBuf,
    to: PathBuf,
}

impl System for Thief {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        if call == Call::Rename {
            std::fs::rename(&self.from, &self.to)?;
        }
        run()
    }
}

#[test]
fn a_name_that_goes_to_another_file_while_pairs_are_copied_stays_with_it() {
    // Fails if a compaction replaced a database that came to the name behind its first look.
    let (directory, first, second) = two();
    let system = Arc::new(Thief { from: second.clone(), to: first.clone() });
    let db = Options { system, ..Db::options() }.open(&first).unwrap();
    assert_eq!(db.compact().unwrap_err().kind(), crate::ErrorKind::Renamed);
    let found = Db::open(&first).unwrap().get("path").unwrap().unwrap();
    assert_eq!(found, second.to_str().unwrap().as_bytes());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A system whose files lie on a network.
#[derive(Debug)]
struct Network;

impl System for Network {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        const NFS: u64 = 0x6969;
        if call == Call::FileSystem { run().map(|_| NFS) } else { run() }
    }
}

#[test]
fn a_database_on_a_network_is_for_those_who_say_that_they_trust_it() {
    // Fails if the choice did not reach the file, or were made for everybody.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let refusing = Options { system: Arc::new(Network), ..Db::options() };
    let trusting = refusing.clone().trust_file_system(true);
    assert!(refusing.create(&path).unwrap_err().to_string().contains("network"));
    trusting.create(&path).unwrap().close().unwrap();
    for refused in [refusing.open(&path), refusing.open_read_only(&path)] {
        assert!(refused.unwrap_err().to_string().contains("network"));
    }
    trusting.open(&path).unwrap().compact().unwrap().close().unwrap();
    drop(trusting.open_read_only(&path).unwrap());
}

#[test]
fn a_compaction_leaves_no_file_and_no_option_behind() {
    // Fails if each failed try cost the length of the database on a disk that may be nearly full,
    // or if the handle that comes back is open in another way than the one that was given.
    let (directory, path, _) = two();
    let (_, options) = Watch::new(&path, Some((Call::OpenDirectory, 2)));
    options.open(&path).unwrap().compact().unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    let options = Db::options().durability(crate::Durability::Process).count_calls(true);
    let mut db = options.open(&path).unwrap();
    let acts: [fn(Db) -> Result<Db>; 2] = [Db::compact, Db::truncate];
    for act in acts {
        db = act(db).unwrap();
        assert_eq!(db.info().durability, crate::Durability::Process);
        assert!(db.metrics().calls.is_some());
    }
}

/// A system that takes the name of a file away, when the directory is synced for the second time.
#[derive(Debug)]
struct Remover {
    path: PathBuf,
    syncs: std::sync::atomic::AtomicU32,
}

impl System for Remover {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        let one = u32::from(call == Call::SyncDirectory);
        if self.syncs.fetch_add(one, std::sync::atomic::Ordering::SeqCst) + one == 2 && one == 1 {
            std::fs::remove_file(&self.path)?;
        }
        run()
    }
}

#[test]
fn a_compaction_makes_no_empty_database_in_the_place_of_its_own() {
    // Fails if a file that somebody moved away came back with its name, and without a pair.
    let (_directory, path, _) = two();
    let system = Arc::new(Remover { path: path.clone(), syncs: 0.into() });
    let options = Options { system, ..Db::options() }.create_if_missing(true);
    let error = options.open(&path).unwrap().compact().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::NotFound);
    assert!(!path.exists());
}

/// A system that fails every call of a kind.
#[derive(Debug)]
struct Failing {
    number: i32,
    call: Call,
}

impl System for Failing {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        match call == self.call {
            true => Err(io::Error::from_raw_os_error(self.number)),
            false => run(),
        }
    }
}

#[test]
fn a_compaction_that_fails_names_the_database() {
    // Fails if the message were about a hidden file that nobody has made or finds.
    const ENOSPC: i32 = 28;
    const EACCES: i32 = 13;
    for (number, call) in [(ENOSPC, Call::Create), (EACCES, Call::Create), (ENOSPC, Call::Rename)] {
        let (_directory, path, _) = two();
        let system = Arc::new(Failing { number, call });
        for act in [Db::compact, Db::truncate] {
            let options = Options { system: Arc::<Failing>::clone(&system), ..Db::options() };
            let error = act(options.open(&path).unwrap()).unwrap_err().to_string();
            let begin = format!("{}: ", path.display());
            assert!(error.starts_with(&begin) && !error.contains(".compact"), "{error}");
        }
    }
}
