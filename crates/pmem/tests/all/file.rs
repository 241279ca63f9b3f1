//! File media on the real operating system: openers, names, rights, full disks, killed processes.

use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Directory, Fault, Faulty};
use everhash_pmem::media::file::system::{Call, System};
use everhash_pmem::pool::DATA;
use everhash_pmem::{
    Addr, Boot, Class, Domain, Error, FileDurability, FileMedium, FileOptions, Heap, Hints, Holes,
    Identity, Media, Pool, Region, Site, Space, Span,
};

const SITE: Site = Site::new("test");
const EOPNOTSUPP: i32 = 95;
/// Tells a child process of a test where to work.
const PLACE: &str = "EVERHASH_TEST_PLACE";

fn options() -> FileOptions {
    FileOptions { capacity_bytes: 1 << 30, ..FileOptions::default() }
}

/// A system that counts the pieces which are written as zeros.
#[derive(Debug, Default)]
struct Zeros(AtomicU32);

impl Zeros {
    fn written(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl System for Zeros {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        self.0.fetch_add(u32::from(call == Call::Write), Ordering::Relaxed);
        run()
    }
}

/// Makes a file of `bytes` bytes; what is written to it as zeros is counted.
fn counting_zeros(bytes: u64) -> (Directory, Region<FileMedium>, Arc<Zeros>) {
    let (directory, zeros) = (Directory::new(), Arc::new(Zeros::default()));
    let options = FileOptions { system: Arc::clone(&zeros) as _, ..options() };
    let medium = FileMedium::create(directory.file(), bytes, &options).unwrap();
    (directory, Region::new(medium), zeros)
}

fn published(directory: &Directory, bytes: u64) -> FileMedium {
    let medium = FileMedium::create(directory.file(), bytes, &options()).unwrap();
    medium.publish().unwrap();
    medium
}

/// Starts the ignored test `name` of this binary in a process of its own.
fn child(name: &str, place: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("file::{name}"), "--ignored", "--nocapture"])
        .env(PLACE, place);
    command
}

fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

#[test]
fn what_was_persisted_is_there_after_reopening() {
    // Fails if the mapping is not the file, or if growth moves or loses words.
    let directory = Directory::new();
    let region = Region::new(published(&directory, 1 << 16));
    let pm = region.access();
    for at in (0..1 << 16).step_by(4096) {
        pm.store(Addr::new(at), at + 1).unwrap();
        pm.persist(Span::new(Addr::new(at), 1), SITE).unwrap();
    }
    region.media().grow(1 << 20).unwrap();
    pm.write_words_nt(Addr::new(1 << 19), &[7; 100], SITE).unwrap();
    pm.fence(SITE).unwrap();
    drop(region);
    let region = Region::new(FileMedium::open(directory.file(), &options()).unwrap());
    let pm = region.access();
    assert_eq!(region.media().bytes(), 1 << 20);
    for at in (0..1 << 16).step_by(4096) {
        assert_eq!(pm.load(Addr::new(at)).unwrap(), at + 1);
    }
    assert_eq!(pm.load(Addr::new((1 << 19) + 99 * 8)).unwrap(), 7);
    assert_eq!(pm.load(Addr::new((1 << 20) - 8)).unwrap(), 0);
}

#[test]
fn an_immediate_file_says_that_fences_are_syncs_and_others_do_not() {
    // Fails if an engine is told to rely on a fence that does nothing.
    let directory = Directory::new();
    for (durability, domain) in [
        (FileDurability::Immediate, Domain::Synced),
        (FileDurability::Interval, Domain::Process),
        (FileDurability::Process, Domain::Process),
    ] {
        let options = FileOptions { durability, ..options() };
        let medium = FileMedium::create(directory.file(), 4096, &options).unwrap();
        assert_eq!(medium.guarantees().domain, domain);
        assert!(!medium.guarantees().same_line_order);
    }
}

#[test]
fn p11_a_second_opener_is_refused_by_every_name() {
    // Fails if the lock hangs on the name, on the process, or on the way the file was opened.
    let directory = Directory::new();
    let unpublished = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    let temporary = directory.only_file().unwrap();
    assert!(matches!(FileMedium::open(temporary, &options()), Err(Error::AlreadyOpen)));
    unpublished.publish().unwrap();
    let hard = directory.path().join("hard");
    let soft = directory.path().join("soft");
    std::fs::hard_link(directory.file(), &hard).unwrap();
    symlink(directory.file(), &soft).unwrap();
    for name in [&directory.file(), &hard, &soft] {
        assert!(matches!(FileMedium::open(name, &options()), Err(Error::AlreadyOpen)));
        assert!(matches!(FileMedium::open_read_only(name, &options()), Err(Error::AlreadyOpen)));
        let output = child("child_opens", name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("opened: AlreadyOpen"), "{text}");
    }
    drop(unpublished);
    FileMedium::open(soft, &options()).unwrap();
}

#[test]
#[ignore = "a child process of another test"]
fn child_opens() {
    // Fails only if it is not a child: its parent reads what it prints.
    let result = FileMedium::open(place().expect("run by another test"), &options());
    println!("opened: {:?}", result.map(|_| ()).unwrap_err());
}

#[test]
fn readers_share_and_keep_writers_out() {
    // Fails if the shared lock is exclusive, or no lock at all.
    let directory = Directory::new();
    drop(published(&directory, 4096));
    let one = FileMedium::open_read_only(directory.file(), &options()).unwrap();
    let two = FileMedium::open_read_only(directory.file(), &options()).unwrap();
    assert!(matches!(FileMedium::open(directory.file(), &options()), Err(Error::AlreadyOpen)));
    drop((one, two));
    FileMedium::open(directory.file(), &options()).unwrap();
}

#[test]
fn a_reader_cannot_change_the_file() {
    // Fails if a verb changes the file, or ends in a signal instead of an error or a panic.
    let directory = Directory::new();
    drop(published(&directory, 4096));
    let before = std::fs::read(directory.file()).unwrap();
    std::fs::set_permissions(directory.file(), PermissionsExt::from_mode(0o400)).unwrap();
    let region = Region::new(FileMedium::open_read_only(directory.file(), &options()).unwrap());
    let pm = region.access();
    assert_eq!(pm.load(Addr::new(4088)).unwrap(), 0);
    assert!(matches!(pm.write_words(Addr::NULL, &[1]), Err(Error::Unsupported { .. })));
    assert!(matches!(pm.write_words_nt(Addr::NULL, &[1], SITE), Err(Error::Unsupported { .. })));
    assert!(matches!(region.media().grow(8192), Err(Error::Unsupported { .. })));
    assert!(region.media().reserve(Span::new(Addr::NULL, 8)).is_err());
    region.media().release(Span::of_bytes(Addr::NULL, 4096));
    region.media().touch(Span::of_bytes(Addr::NULL, 4096));
    region.media().renew(Span::of_bytes(Addr::NULL, 4096));
    let store = std::panic::AssertUnwindSafe(|| pm.store(Addr::NULL, 1));
    assert!(std::panic::catch_unwind(store).is_err());
    pm.persist(Span::new(Addr::NULL, 1), SITE).unwrap();
    pm.sync(SITE).unwrap();
    assert_eq!(std::fs::read(directory.file()).unwrap(), before);
}

#[test]
fn p15_a_new_file_belongs_to_its_owner_alone() {
    // Fails if others may read or write, before or after publishing.
    let directory = Directory::new();
    let medium = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    let mode = || std::fs::metadata(directory.only_file().unwrap()).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    medium.publish().unwrap();
    assert_eq!(mode(), 0o600);
}

#[test]
fn creating_never_replaces_a_file() {
    // Fails if an existing file, or one that came meanwhile, is lost.
    let directory = Directory::new();
    let medium = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    std::fs::write(directory.file(), "mine").unwrap();
    let exists = |result: everhash_pmem::Result<()>| {
        matches!(result, Err(Error::System { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists)
    };
    assert!(exists(medium.publish()));
    assert!(exists(FileMedium::create(directory.file(), 4096, &options()).map(|_| ())));
    assert_eq!(std::fs::read(directory.file()).unwrap(), b"mine");
    // A link that leads nowhere has the name, too.
    std::fs::remove_file(directory.file()).unwrap();
    symlink("nowhere", directory.file()).unwrap();
    assert!(exists(FileMedium::create(directory.file(), 4096, &options()).map(|_| ())));
    // After the obstacle is removed, publishing succeeds.
    std::fs::remove_file(directory.file()).unwrap();
    medium.publish().unwrap();
    // It has its name, and keeps it.
    medium.publish().unwrap();
    drop(medium);
    assert_eq!(directory.names(), ["pairs.ehdb"]);
}

#[test]
fn what_is_no_file_is_refused() {
    // Fails if a directory is opened, or if opening a pipe waits forever.
    // Also if a file is made by a path that means a directory: that path would never open it.
    let directory = Directory::new();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [directory.path().to_path_buf(), pipe, socket, "/dev/null".into()] {
        let refused = FileMedium::open(&path, &options());
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{path:?} {refused:?}");
    }
    let missing = FileMedium::open(directory.path().join("missing"), &options());
    assert!(matches!(missing, Err(Error::System { source, .. })
        if source.kind() == std::io::ErrorKind::NotFound));
    for name in ["/", "new/", "new/.", "new//", "missing/.."] {
        let refused = FileMedium::create(directory.path().join(name), 4096, &options());
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{name} {refused:?}");
    }
    let mut names = directory.names();
    names.sort();
    assert_eq!(names, ["pipe", "socket"]);
}

/// Makes an empty pool of a new file.
fn pool_on(medium: FileMedium) -> Pool<FileMedium> {
    let (engine, hash_key, database) = (*b"test\0\0\0\0", [1, 2], [3, 4]);
    let identity = Identity { engine, form: 0, hash_kind: 1, hash_key, database };
    let pool = Pool::create::<Error>(Region::new(medium), identity, Boot::default(), |_| Ok(()));
    let pool = pool.unwrap();
    pool.region().media().publish().unwrap();
    pool
}

#[test]
fn holes_are_filled_before_a_store_and_those_of_other_files_are_not() {
    // Fails if a store to a hole could meet a full disk, if an opening takes storage for what
    // nobody stores to although the file system says where it is, or if a file that is no pool
    // takes more of the disk because somebody named it.
    let directory = Arc::new(Directory::new());
    let blocks = || std::fs::metadata(directory.file()).unwrap().blocks() * 512;
    let open = |options| Region::new(FileMedium::open(directory.file(), &options).unwrap());
    let file = std::fs::File::create(directory.file()).unwrap();
    file.set_len(1 << 30).unwrap();
    drop(file);
    assert!(Pool::open(open(options()), Boot::default()).is_err());
    assert_eq!(blocks(), 0, "a file that is no pool");
    std::fs::remove_file(directory.file()).unwrap();

    let pool = pool_on(FileMedium::create(directory.file(), 1 << 20, &options()).unwrap());
    let hole = Span::of_bytes(Addr::new(1 << 16), 1 << 18);
    pool.region().media().release(hole);
    drop(pool);
    let with_hole = blocks();
    assert!(with_hole <= (1 << 20) - (1 << 18));
    let pool = Pool::open(open(options()), Boot::default()).unwrap();
    if let Some(found) = pool.region().media().holes() {
        assert_eq!((found, blocks()), (vec![hole], with_hole));
        let space = Space::new(pool.region().clone(), DATA);
        assert_eq!(space.usage().unwrap().hole_bytes, 1 << 18);
        // Of a space that begins in the hole, only the rest is one.
        let inside = Addr::new(hole.start.byte() + (1 << 14));
        let part = Space::new(pool.region().clone(), inside).usage().unwrap();
        assert_eq!(part.hole_bytes, (1 << 18) - (1 << 14));
        space.claim(Span::of_bytes(hole.start, 1 << 12)).unwrap();
        assert!(blocks() >= with_hole + (1 << 12));
        space.take((1 << 20) - hole.end_byte(), 64).unwrap();
        space.take((1 << 18) - (1 << 12), 64).unwrap();
        assert_eq!(space.usage().unwrap().hole_bytes, 0);
        assert!(blocks() >= with_hole + (1 << 18));
        pool.region().media().release(hole);
    } else {
        println!("this file system does not say where holes are");
    }
    drop(pool);
    // A file system that does not say where holes are.
    let system = Faulty::new(&directory, Call::Extents, 0, Fault::Fails(EOPNOTSUPP));
    let silent = FileOptions { system, ..options() };
    for options in [&options(), &silent] {
        // Whoever reads needs no storage, and may take none.
        let medium = FileMedium::open_read_only(directory.file(), options).unwrap();
        let space = Space::new(Region::new(medium), DATA);
        space.claim(Span::of_bytes(hole.start, 1 << 12)).unwrap();
    }
    let pool = Pool::open(open(silent), Boot::default()).unwrap();
    assert_eq!(pool.region().media().holes(), Some(Vec::new()));
    assert!(blocks() >= 1 << 20);
    // Release and reserve again.
    pool.region().media().release(hole);
    // ext4 may keep a block for its list of extents.
    assert!((with_hole..=with_hole + (1 << 12)).contains(&blocks()));
    pool.region().media().reserve(hole).unwrap();
    assert!(blocks() >= 1 << 20);
}

#[test]
fn a_file_in_very_many_pieces_says_where_each_hole_is() {
    // Fails if only as many pieces are found as one call of the system lists: 256.
    let directory = Directory::new();
    let medium = published(&directory, 600 << 12);
    let hole = |number: u64| Span::of_bytes(Addr::new(number << 13), 1 << 12);
    let mut holes = Vec::new();
    for number in 0..300 {
        medium.release(hole(number));
        holes.push(hole(number));
        if number == 0 && medium.holes().as_ref() != Some(&holes) {
            println!("skipped: this file system does not say where holes of a page are");
            return;
        }
    }
    assert_eq!(medium.holes(), Some(holes));
}

#[test]
fn files_of_every_odd_length_can_be_opened_and_grown() {
    // Fails if a length that is no multiple of a word or a page breaks a bound or loses words, or
    // if a new word begins with the bytes of a part of one.
    for length in [0u64, 1, 7, 8, 9, 4095, 4096, 4097, 12_345] {
        let directory = Directory::new();
        std::fs::write(directory.file(), vec![0xab; length as usize]).unwrap();
        let region = Region::new(FileMedium::open(directory.file(), &options()).unwrap());
        let pm = region.access();
        assert_eq!(region.media().bytes(), length / 8 * 8);
        assert!(pm.load(Addr::new(length / 8 * 8)).is_err());
        region.media().grow(length + 10_000).unwrap();
        let last = Addr::new(region.media().bytes() - 8);
        pm.store(last, 5).unwrap();
        pm.persist(Span::new(last, 1), SITE).unwrap();
        let bytes = std::fs::read(directory.file()).unwrap();
        let (old, new) = bytes.split_at(length as usize / 8 * 8);
        assert!(old.iter().all(|byte| *byte == 0xab));
        assert!(new[..new.len() - 8].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_grows_is_zero_behind_any_end_of_a_file() {
    // Fails if what another program appended to a file counts as zero once the file grows over it.
    for appended in (1..80).step_by(3) {
        let directory = Directory::new();
        drop(published(&directory, 4096));
        let mut bytes = std::fs::read(directory.file()).unwrap();
        bytes.resize(4096 + appended, 0x41);
        std::fs::write(directory.file(), bytes).unwrap();
        let medium = FileMedium::open(directory.file(), &options()).unwrap();
        let space = Space::new(Region::new(medium), Addr::NULL);
        while space.usage().unwrap().growth_steps < 1 {
            let taken = space.take(64, 64).unwrap();
            let mut words = [0; 8];
            space.region().access().read_words(taken.span.start, &mut words).unwrap();
            assert!(!taken.zero || words == [0; 8], "{appended} bytes: {words:x?}");
        }
    }
}

#[test]
fn threads_that_fence_at_once_share_syncs_and_may_grow_meanwhile() {
    // Fails if fences are not shared, or if growth disturbs those who write.
    let directory = Directory::new();
    let region = Region::new(published(&directory, 1 << 16));
    let threads = 8;
    let rounds = 30;
    let before = region.media().syncs();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let region = &region;
            scope.spawn(move || {
                for round in 0..rounds {
                    let pm = region.access();
                    let at = Addr::new(thread * 4096 + round * 8);
                    pm.store(at, round + 1).unwrap();
                    pm.persist(Span::new(at, 1), SITE).unwrap();
                }
            });
        }
        for step in 2..10 {
            region.media().grow(step << 16).unwrap();
        }
    });
    let syncs = region.media().syncs() - before;
    println!("{} fences, {syncs} syncs", threads * rounds);
    // On a busy machine threads meet less often; not sharing would be one for each.
    assert!(syncs < threads * rounds * 3 / 4, "{syncs} syncs are hardly shared");
    for at in (0..threads).flat_map(|t| (0..rounds).map(move |r| t * 4096 + r * 8)) {
        assert_ne!(region.access().load(Addr::new(at)).unwrap(), 0);
    }
}

#[test]
fn a_fence_without_a_flush_does_not_sync() {
    // Fails if every fence of a reader costs a device round trip.
    let directory = Directory::new();
    let region = Region::new(published(&directory, 4096));
    let before = region.media().syncs();
    let pm = region.access();
    pm.fence(SITE).unwrap();
    pm.flush(Span::new(Addr::NULL, 0), SITE);
    pm.fence(SITE).unwrap();
    assert_eq!(region.media().syncs(), before);
    pm.flush(Span::new(Addr::NULL, 1), SITE);
    pm.fence(SITE).unwrap();
    pm.fence(SITE).unwrap();
    assert_eq!(region.media().syncs(), before + 1);
    // What was flushed before a sync is durable by it.
    pm.flush(Span::new(Addr::NULL, 1), SITE);
    pm.sync(SITE).unwrap();
    pm.fence(SITE).unwrap();
    assert_eq!(region.media().syncs(), before + 2);
}

#[test]
fn a_fence_waits_for_words_that_were_written_in_bulk() {
    // Fails if what is written past the caches is taken for durable without a sync.
    let directory = Directory::new();
    let region = Region::new(published(&directory, 4096));
    let before = region.media().syncs();
    let pm = region.access();
    pm.write_words_nt(Addr::new(64), &[7; 8], SITE).unwrap();
    pm.fence(SITE).unwrap();
    assert_eq!(region.media().syncs(), before + 1);
}

#[test]
fn what_is_renewed_never_makes_the_file_longer() {
    // Fails if zeros are written behind the end: the file would have storage that no table knows.
    let directory = Directory::new();
    let medium = published(&directory, 1 << 16);
    medium.renew(Span::of_bytes(Addr::new((1 << 16) - 4096), 1 << 16));
    medium.renew(Span::of_bytes(Addr::new(1 << 20), 4096));
    let length = std::fs::metadata(directory.file()).unwrap().len();
    assert_eq!((length, medium.bytes()), (1 << 16, 1 << 16));
}

#[test]
fn a_file_that_grows_takes_storage_for_its_length_and_no_more() {
    // Fails if what is allocated is reckoned from another place than the old end: storage behind
    // the new end is in no table, and on a disk without room a growth fails that there is room for.
    let directory = Directory::new();
    let medium = published(&directory, 1 << 20);
    for bytes in [3 << 20, 4 << 20] {
        medium.grow(bytes).unwrap();
        let taken = std::fs::metadata(directory.file()).unwrap().blocks() * 512;
        // File systems keep some blocks for their own lists.
        assert!((bytes..bytes + (1 << 16)).contains(&taken), "{bytes}: {taken}");
    }
}

#[test]
fn a_killed_process_loses_nothing_it_stored() {
    // Fails if stores wait anywhere in the process, in any mode: the child is killed in full run.
    let directory = Directory::new();
    for round in 0..10 {
        let mut running = child("child_stores_until_killed", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open until the child is dead: a closed pipe would end it by a panic.
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let mut told = 0;
        for line in lines.by_ref().map_while(Result::ok) {
            // The harness may print in front of the first line.
            let Some((_, number)) = line.split_once("stored ") else { continue };
            told = number.parse().unwrap();
            if told >= 1000 + round * 137 {
                break;
            }
        }
        running.kill().unwrap();
        let status = running.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "the child ended by itself");
        assert!(told >= 1000, "the child ended by itself");
        let region = Region::new(FileMedium::open(directory.file(), &options()).unwrap());
        let pm = region.access();
        for number in 1..=told {
            assert_eq!(pm.load(Addr::new(number * 8)).unwrap(), number);
        }
        drop(region);
        std::fs::remove_file(directory.file()).unwrap();
    }
}

#[test]
#[ignore = "a child process of another test"]
fn child_stores_until_killed() {
    // Fails only if it is not a child: its parent kills it and looks at what it left.
    let path = place().expect("run by another test").join("pairs.ehdb");
    let options = FileOptions { durability: FileDurability::Process, ..options() };
    let region = Region::new(FileMedium::create(path, 1 << 16, &options).unwrap());
    region.media().publish().unwrap();
    let pm = region.access();
    for number in 1.. {
        if number * 8 + 8 > region.media().bytes() {
            region.media().grow(region.media().bytes() * 2).unwrap();
        }
        pm.store(Addr::new(number * 8), number).unwrap();
        println!("stored {number}");
    }
}

#[test]
fn a_process_killed_before_publishing_leaves_nothing_under_the_name() {
    // Fails if the file has its name before it is whole.
    let directory = Directory::new();
    let mut running =
        child("child_never_publishes", directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("created")));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(!directory.file().exists());
    assert_eq!(directory.names().len(), 1);
    drop(published(&directory, 4096));
}

#[test]
#[ignore = "a child process of another test"]
fn child_never_publishes() {
    // Fails only if it is not a child: its parent kills it while it waits.
    let path = place().expect("run by another test").join("pairs.ehdb");
    let medium = FileMedium::create(path, 1 << 16, &options()).unwrap();
    println!("created {}", medium.bytes());
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// Runs the ignored test `name` of this binary under `limit`, an option of `ulimit`.
fn run_under(limit: &str, name: &str, place: &Path) {
    let test = child(name, place);
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
        .arg(test.get_program())
        .args(test.get_args())
        .env(PLACE, place)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{output:?} {out} {errors}");
}

#[test]
fn a_file_that_fits_into_the_addresses_of_a_process_is_opened() {
    // Fails if an open insists on addresses for a growth that may never come.
    let directory = Directory::new();
    drop(published(&directory, 4096));
    let file = std::fs::OpenOptions::new().write(true).open(directory.file()).unwrap();
    file.set_len(600 << 20).unwrap();
    run_under("-v 2097152", "child_has_few_addresses", directory.path());
}

#[test]
#[ignore = "a child process of another test"]
fn child_has_few_addresses() {
    // Fails if four times the file must fit, or if a growth that does not fit ends all others.
    let path = place().expect("run by another test").join("pairs.ehdb");
    let region = Region::new(FileMedium::open(&path, &FileOptions::default()).unwrap());
    assert_eq!(region.media().bytes(), 600 << 20);
    for _ in 0..2 {
        let refused = region.media().grow(1800 << 20);
        assert!(matches!(refused, Err(Error::System { .. })), "{refused:?}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), region.media().bytes());
        region.media().grow(region.media().bytes() + 4096).unwrap();
    }
    let last = Addr::new(region.media().bytes() - 8);
    region.access().store(last, 7).unwrap();
    region.access().persist(Span::new(last, 1), SITE).unwrap();
}

#[test]
fn p10_a_limit_for_the_length_of_files_is_an_error_and_not_a_signal() {
    // Fails if a growth, or pages that are prepared, end a process which has such a limit: the
    // signal that the system sends has that effect.
    let directory = Directory::new();
    let region = Region::new(published(&directory, 4 << 20));
    let last = Addr::new((4 << 20) - 8);
    region.access().store(last, 7).unwrap();
    region.access().persist(Span::new(last, 1), SITE).unwrap();
    drop(region);
    // In blocks of 512 or of 1024 bytes, as the shell has it.
    run_under("-f 2048", "child_has_short_files", directory.path());
}

#[test]
fn pages_of_a_heap_behind_the_first_of_a_class_are_prepared_at_once() {
    // Fails if the memory of each page comes by faults, one by one, or if that of the first one is
    // prepared: a class of few records would take 64 KiB of the device then.
    const PAGE: u64 = 1 << 16;
    let (_directory, region, zeros) = counting_zeros(4 * PAGE);
    let space = Arc::new(Space::fresh(region, Addr::NULL.plus(8)));
    let (heap, class) = (Heap::new(space, PAGE), Class::of(PAGE / 8).unwrap());
    let writes = [0, 1].map(|page| {
        let taken = [(); 8].map(|()| heap.take(class).unwrap());
        assert_eq!(taken[0], Addr::new(64 + page * PAGE));
        zeros.written()
    });
    assert_eq!(writes, [0, 1]);
}

#[test]
fn a_long_record_in_new_storage_is_prepared_at_once() {
    // Fails if its memory comes by faults, one by one, or if it is prepared each time its place is
    // used again, which takes longer than a record of some pages.
    const PAGE: u64 = 1 << 16;
    let (_directory, region, zeros) = counting_zeros(4 * PAGE);
    let space = Arc::new(Space::fresh(region.clone(), Addr::NULL.plus(8)));
    let (heap, class) = (Heap::new(space, PAGE), Class::of(PAGE / 4).unwrap());
    let at = heap.take(class).unwrap();
    assert_eq!(zeros.written(), 1);
    region.access().write_words(at, &[7; PAGE as usize / 32]).unwrap();
    region.media().release(Span::of_bytes(Addr::NULL, PAGE));
    heap.give(at, class);
    assert_eq!((heap.take(class).unwrap(), zeros.written()), (at, 1));
}

#[test]
fn what_is_in_memory_is_renewed_without_a_write() {
    // Fails if pages that a log uses again are written as zeros, which costs as much as the stores,
    // or if those are not that are in memory in part only: they would be read from the device, or
    // come by faults, one by one.
    const PIECE: u64 = 1 << 16;
    let (_directory, region, zeros) = counting_zeros(4 * PIECE);
    let (pm, piece) = (region.access(), Span::of_bytes(Addr::new(PIECE), PIECE));
    pm.write_words(piece.start, &[7; PIECE as usize / 8]).unwrap();
    let renewed = || {
        region.media().renew(piece);
        let last = pm.load(piece.start.plus(piece.words - 1)).unwrap();
        (pm.load(piece.start).unwrap(), last, zeros.written())
    };
    assert_eq!(renewed(), (7, 7, 0));
    region.media().release(Span::of_bytes(Addr::new(2 * PIECE - 8192), 4096));
    assert_eq!(renewed(), (0, 0, 1));
    assert_eq!(renewed(), (0, 0, 1));
    // Two pieces, of which one is in memory.
    region.media().renew(Span::of_bytes(piece.start, 2 * PIECE));
    assert_eq!(zeros.written(), 2);
}

#[test]
#[ignore = "a child process of another test"]
fn child_has_short_files() {
    // Fails if a limit is a signal, or if less than what fits is refused.
    let place = place().expect("run by another test");
    let medium = FileMedium::open(place.join("pairs.ehdb"), &options()).unwrap();
    assert!(matches!(medium.grow(8 << 20), Err(Error::Full { .. })));
    medium.renew(Span::of_bytes(Addr::new(3 << 20), 1 << 20));
    assert!(matches!(medium.rewrite(), Err(Error::Full { .. })));
    assert_eq!(medium.bytes(), 4 << 20);
    let medium = FileMedium::create(place.join("short"), 4096, &options()).unwrap();
    assert!(matches!(medium.grow((2 << 20) + 4096), Err(Error::Full { .. })));
    medium.grow(1 << 20).unwrap();
    medium.renew(Span::of_bytes(Addr::NULL, 1 << 20));
    medium.publish().unwrap();
    let too_long = FileMedium::create(place.join("long"), 4 << 20, &options());
    assert!(matches!(too_long, Err(Error::Full { .. })) && !place.join("long").exists());
}

#[test]
fn p10_a_full_disk_is_an_error_and_not_a_signal() {
    // Fails with SIGBUS if a store could meet a page without storage. On a tmpfs of 1 MiB in a
    // mount namespace of its own; where that is not allowed, it says so and does nothing.
    let directory = Directory::new();
    let script = "mount -t tmpfs -o size=1m none \"$EVERHASH_TEST_PLACE\" || exit 77; exec \"$@\"";
    let test = child("child_fills_a_small_disk", directory.path());
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(test.get_program())
        .args(test.get_args())
        .env(PLACE, directory.path())
        .output();
    match output {
        Ok(output) if output.status.code() == Some(77) => {
            println!("skipped: no mounts here: {}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => println!("skipped: unshare cannot be run: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            if errors.contains("unshare:") {
                println!("skipped: {errors}");
                return;
            }
            assert!(output.status.success(), "{} {text} {errors}", output.status);
            assert!(text.contains("small disk was full"), "{text}");
        }
    }
}

#[test]
#[ignore = "a child process of another test"]
fn child_fills_a_small_disk() {
    // Fails if the disk's end is not an error, if the length changes, or if work cannot go on.
    let place = place().expect("run by another test");
    let path = place.join("pairs.ehdb");
    let too_large = FileMedium::create(&path, 2 << 20, &options());
    assert!(matches!(too_large, Err(Error::Full { .. })), "{too_large:?}");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);

    let region = Region::new(FileMedium::create(&path, 1 << 18, &options()).unwrap());
    region.media().publish().unwrap();
    let pm = region.access();
    let ballast = place.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 19]).unwrap();
    let mut full = false;
    for _ in 0..64 {
        let before = region.media().bytes();
        match region.media().grow(before + (1 << 16)) {
            Ok(()) => {}
            Err(Error::Full { .. }) => {
                full = true;
                assert_eq!(region.media().bytes(), before);
                assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(full);
    // Every page has its storage: this is where SIGBUS would come.
    for at in (0..region.media().bytes()).step_by(8) {
        pm.store(Addr::new(at), at + 1).unwrap();
    }
    pm.persist(Span::of_bytes(Addr::NULL, region.media().bytes()), SITE).unwrap();
    std::fs::remove_file(&ballast).unwrap();
    region.media().grow(region.media().bytes() + (1 << 16)).unwrap();
    drop(region);

    std::fs::remove_file(&path).unwrap();
    a_pool_with_holes_on_a_full_disk(&place);
    println!("small disk was full");
}

/// Fails if an open asks for storage that what is in use does not need, so that nothing can be read
/// until somebody makes room; or if a store to what was free meets the full disk as a signal.
fn a_pool_with_holes_on_a_full_disk(place: &Path) {
    let path = place.join("holes");
    let pool = pool_on(FileMedium::create(&path, 0, &options()).unwrap());
    let space = Space::fresh(pool.region().clone(), DATA);
    let used = space.take(1 << 16, 1 << 16).unwrap().span;
    pool.access().write_words(used.start, &[7; 1 << 13]).unwrap();
    drop((space, pool));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 20).unwrap();
    let ballast = place.join("ballast");
    std::fs::write(&ballast, vec![1; 900 << 10]).unwrap_err();
    let behind = Span::of_bytes(Addr::new(used.end_byte()), (8 << 20) - used.end_byte());
    let reader = FileMedium::open_read_only(&path, &options()).unwrap();
    assert_eq!(reader.costly_holes().last(), Some(&behind), "loads from there would take storage");
    drop(reader);
    let region = Region::new(FileMedium::open(&path, &options()).unwrap());
    let pool = Pool::open(region.clone(), Boot::default()).unwrap();
    let space = Space::new(region.clone(), DATA);
    // Of what is in use a copy may have made a hole: that is a full disk, and not a signal later.
    let hole = Span::of_bytes(Addr::new(1 << 20), 64);
    assert!(matches!(space.claim(hole), Err(Error::Full { .. })));
    space.claim(used).unwrap();
    assert_eq!(pool.access().load(used.start).unwrap(), 7);
    pool.access().write_words(used.start, &[8; 1 << 13]).unwrap();
    pool.recovered().unwrap();
    assert!(matches!(space.take(64, 1 << 19), Err(Error::Full { .. })));
    // The free space before it has storage, and can be used; as long as nobody has written there,
    // this file system does not tell it from a hole.
    let holes = space.usage().unwrap().hole_bytes;
    assert_eq!(holes, (8 << 20) - DATA.byte() - used.bytes());
    let before = space.take(used.start.byte() - DATA.byte(), 64).unwrap().span;
    (0..before.words).for_each(|word| pool.access().store(before.start.plus(word), 1).unwrap());
    std::fs::remove_file(&ballast).unwrap();
    let taken = space.take(1 << 18, 1 << 18).unwrap().span;
    (0..taken.words).for_each(|word| pool.access().store(taken.start.plus(word), 1).unwrap());
    assert_eq!(space.usage().unwrap().hole_bytes, holes - before.bytes() - taken.bytes());
}

#[test]
fn what_will_be_read_may_lie_anywhere() {
    // Fails if a hint about a span that ends outside, or is none, were more than a hint.
    let directory = Directory::new();
    let medium = FileMedium::create(directory.file(), 300 << 10, &options()).unwrap();
    for (start, bytes) in [(0, 300 << 10), (8, 8), (0, 1 << 40), (1 << 39, 8), (4096, 0)] {
        medium.will_read(Span::of_bytes(Addr::new(start), bytes));
    }
    assert_eq!(medium.bytes(), 300 << 10);
}

#[test]
fn p15_a_program_that_is_started_inherits_nothing() {
    // Fails if it had the file, or the directory of a new one, among its descriptors.
    let directory = Directory::new();
    let own = directory.path().file_name().unwrap().to_str().unwrap().to_owned();
    let inherits = || {
        let list = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        assert!(list.contains(" 0 -> "), "{list}");
        list.lines().any(|line| line.contains(&format!("/{own}")))
    };
    let medium = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    assert!(!inherits(), "a new file");
    medium.publish().unwrap();
    drop(medium);
    let medium = FileMedium::open(directory.file(), &options()).unwrap();
    assert!(!inherits(), "a file that is there");
    drop(medium);
    let _reader = FileMedium::open_read_only(directory.file(), &options()).unwrap();
    assert!(!inherits(), "a file that is read");
}

/// Returns the flags that the kernel has for each mapping of a file.
fn flags_of_mappings(file: &Path) -> Vec<String> {
    let file = file.canonicalize().unwrap();
    let (mut is_ours, mut found) = (false, Vec::new());
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        // A line that begins with a range of addresses begins a mapping.
        if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            is_ours = line.ends_with(file.to_str().unwrap());
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_ours) {
            found.push(flags.to_owned());
        }
    }
    assert!(!found.is_empty(), "the file is mapped");
    found
}

#[test]
fn p15_mapped_contents_are_left_out_of_core_dumps() {
    // Fails if the crash of a program wrote what its users stored into a file of its own.
    let directory = Directory::new();
    let medium = published(&directory, 1 << 16);
    medium.grow(1 << 20).unwrap();
    for flags in flags_of_mappings(&directory.file()) {
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }
}

#[test]
fn a_fault_brings_in_nothing_but_its_page() {
    // Fails if the kernel took reads for sequential ones: it would read, and later write, whatever
    // lies beside a word (docs/decisions/0009-scattered-pages.md).
    let directory = Directory::new();
    let medium = published(&directory, 1 << 16);
    medium.grow(1 << 20).unwrap();
    for flags in flags_of_mappings(&directory.file()) {
        assert!(flags.split(' ').any(|flag| flag == "rr"), "{flags}");
    }
}

#[test]
fn a_file_that_is_longer_than_its_limit_can_be_opened_and_not_grown() {
    // Fails if a database were lost to whoever chose a lower limit than before.
    let directory = Directory::new();
    drop(published(&directory, 1 << 20));
    let lower = FileOptions { capacity_bytes: 1 << 16, ..options() };
    let medium = FileMedium::open(directory.file(), &lower).unwrap();
    assert_eq!(medium.bytes(), 1 << 20);
    assert!(matches!(medium.grow((1 << 20) + 8), Err(Error::Full { .. })));
}

#[test]
fn what_a_process_of_the_same_number_left_is_passed_over() {
    // Fails if a name that is taken ended the making of a file, or if another's file were used.
    let directory = Directory::new();
    let medium = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    let name = directory.only_file().unwrap().to_str().unwrap().to_owned();
    drop(medium);
    let (begin, count) = name.strip_suffix(".new").unwrap().rsplit_once('-').unwrap();
    let count: u32 = count.parse().unwrap();
    // Other tests of this process take some of these numbers meanwhile.
    let left: Vec<_> = (count..count + 500).map(|number| format!("{begin}-{number}.new")).collect();
    // Of one without a length it is not known whether somebody is about to fill it.
    left.iter().for_each(|name| std::fs::write(name, "").unwrap());
    let medium = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    medium.publish().unwrap();
    drop(medium);
    assert_eq!(std::fs::metadata(directory.file()).unwrap().len(), 4096);
    assert!(left.iter().all(|name| std::fs::read(name).unwrap().is_empty()));
}

#[test]
fn what_a_killed_process_left_goes_and_what_a_living_one_makes_stays() {
    // Fails if each kill left a hidden copy for ever, or if two processes that make a file of one
    // name took each other's away, or what only has a similar name.
    let directory = Directory::new();
    let begun = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    let begun_name = directory.only_file().unwrap();
    let beside = |name: &str| directory.file().with_file_name(name);
    let target = directory.file().file_name().unwrap().to_str().unwrap().to_owned();
    let left = beside(&format!(".{target}.761-0.new"));
    let others = ["other.761-0.new", &format!(".{target}.761-.new"), &format!(".{target}.new")];
    let others = others.map(beside);
    for path in [&left].into_iter().chain(&others) {
        std::fs::write(path, [0; 4096]).unwrap();
    }
    // Of what has another name as well, somebody has made use.
    let linked = beside(&format!(".{target}.761-1.new"));
    std::fs::hard_link(&others[0], &linked).unwrap();
    let second = FileMedium::create(directory.file(), 4096, &options()).unwrap();
    assert!(!left.exists() && begun_name.exists() && linked.exists());
    assert!(others.iter().all(|path| path.exists()));
    drop(second);
    begun.publish().unwrap();
    assert!(directory.file().exists());
}

#[test]
fn a_file_of_somebody_else_is_not_taken_for_what_a_killed_process_left() {
    // Fails if a user's file went because its name is one that a new file may have.
    let directory = Directory::new();
    let target = directory.file().file_name().unwrap().to_str().unwrap().to_owned();
    let beside = |number: u32| directory.file().with_file_name(format!(".{target}.1-{number}.new"));
    let mut late = vec![0; 1 << 16];
    late[4096 + 17] = 1;
    let mut forged = late.clone();
    forged[..8].copy_from_slice(b"EVERHASH");
    let texts = ["notes", "EVERHASH of mine", &"x".repeat(1 << 16)];
    let [short, like, long] = texts.map(|text| text.as_bytes().to_vec());
    let theirs = [short, like, long, late, forged];
    for (number, content) in (0..).zip(&theirs) {
        std::fs::write(beside(number), content).unwrap();
    }
    std::fs::create_dir(beside(10)).unwrap();
    std::os::unix::fs::symlink(beside(0), beside(11)).unwrap();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::write(&elsewhere, [0; 4096]).unwrap();
    std::os::unix::fs::symlink(&elsewhere, beside(12)).unwrap();
    // What was being made holds no header, and what was complete holds two.
    drop(pool_on(FileMedium::create(beside(20), 1 << 16, &options()).unwrap()));
    std::fs::write(beside(21), vec![0; 1 << 16]).unwrap();
    std::fs::write(beside(22), [0; 100]).unwrap();
    FileMedium::create(directory.file(), 4096, &options()).unwrap().publish().unwrap();
    for (number, content) in (0..).zip(&theirs) {
        assert_eq!(std::fs::read(beside(number)).unwrap(), *content);
    }
    assert!(beside(10).is_dir() && beside(11).is_symlink() && beside(12).is_symlink());
    assert!(FileMedium::begins_pool(&elsewhere).unwrap());
    assert!(FileMedium::begins_pool(beside(12)).is_err(), "a link is not followed");
    assert!((20..23).all(|number| !beside(number).exists()), "{:?}", directory.names());
}

#[test]
fn every_name_that_a_file_may_have_can_be_given_to_a_new_one() {
    // Fails if the temporary name of a long name is too long; or if what a killed process left of
    // one is not known again, or is taken for that of another name that begins alike.
    let directory = Directory::new();
    for name in [150, 226, 227, 228, 229, 240, 255].map(|long| "n".repeat(long)) {
        FileMedium::create(directory.path().join(&name), 4096, &options()).unwrap();
        assert_eq!(directory.names(), [""; 0]);
    }
    for name in ["n".repeat(255), "é".repeat(127)] {
        let (target, other) = (directory.path().join(&name), directory.path().join(&name[2..]));
        let medium = FileMedium::create(&target, 4096, &options()).unwrap();
        let own = directory.only_file().unwrap();
        let left = own.to_str().unwrap().rsplit_once('.').unwrap().0.rsplit_once('.').unwrap().0;
        let left = PathBuf::from(format!("{left}.761-0.new"));
        std::fs::write(&left, [0; 4096]).unwrap();
        let second = FileMedium::create(&other, 4096, &options()).unwrap();
        assert!(left.exists() && own.exists());
        drop(second);
        let second = FileMedium::create(&target, 4096, &options()).unwrap();
        assert!(!left.exists() && own.exists());
        drop(second);
        medium.publish().unwrap();
        assert_eq!(directory.names(), [name]);
        std::fs::remove_file(target).unwrap();
    }
}
