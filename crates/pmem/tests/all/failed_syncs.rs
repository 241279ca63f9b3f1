//! A sync fails once, at every place, and the kernel takes the pages for clean that it has not
//! written: what the page cache shows after that is not on the device, and no sync brings it there.

use std::sync::Arc;

use everhash_pmem::media::file::system::{Call, Os, System};
use everhash_pmem::pool::{Boot, DATA, Pool, Shutdown};
use everhash_pmem::{Addr, Error, FileMedium, Region, Result, Site, Span};

use crate::support::{Directory, Fault, Faulty, IDENTITY, options};

const SITE: Site = Site::new("test");
const EIO: i32 = 5;
const BOOT: Boot = Boot([1, 2]);

/// Words that are stored, each in a page of its own.
const WORDS: u64 = 3;

fn place(index: u64) -> Addr {
    Addr::new(DATA.byte() + 4096 * index)
}

fn open(directory: &Directory, system: Arc<dyn System>) -> Region<FileMedium> {
    Region::new(FileMedium::open(directory.file(), &options(system)).unwrap())
}

/// Makes a pool, and stores a word after the other; then closes it. Its syncs are counted from the
/// publishing on.
fn first_life(directory: &Directory, system: &Arc<dyn System>) -> Result<()> {
    let options = options(Arc::clone(system));
    let region = Region::new(FileMedium::create(directory.file(), 1 << 16, &options)?);
    let pool = Pool::create(region.clone(), IDENTITY, BOOT, |_| Ok::<(), Error>(()))?;
    region.media().publish()?;
    for index in 0..WORDS {
        let pm = pool.access();
        pm.store(place(index), index + 1)?;
        pm.persist(Span::new(place(index), 1), SITE)?;
    }
    pool.close()
}

/// Returns the words that a reader is shown.
fn words(region: &Region<FileMedium>) -> Vec<u64> {
    let pm = region.access();
    (0..WORDS).map(|index| pm.load(place(index)).unwrap()).collect()
}

/// Opens the pool as an engine does, and returns the words.
fn recover(region: &Region<FileMedium>) -> Result<Vec<u64>> {
    let pool = Pool::open(region.clone(), BOOT)?;
    if pool.previous_shutdown() != Shutdown::Clean {
        pool.access().sync(SITE)?;
    }
    pool.recovered()?;
    Ok(words(region))
}

/// Returns the words after power loss, and how the pool was shut down.
fn after_power(directory: &Directory, system: &Faulty) -> (Vec<u64>, Shutdown) {
    system.fail_power();
    let region = open(directory, Arc::new(Os));
    (words(&region), Pool::status(&region, Boot([8, 8])).unwrap().previous)
}

/// Runs the first life with each of its syncs failing in turn, and `judge` after each that failed
/// when the file had its name. Returns how many those were.
fn each_failed_sync(judge: impl Fn(&Directory, &Arc<Faulty>, u32)) -> u32 {
    let mut places = 0;
    for number in 1..100 {
        let directory = Arc::new(Directory::new());
        let system = Faulty::new(&directory, Call::Sync, number, Fault::Cleans(EIO));
        let any = Arc::clone(&system) as Arc<dyn System>;
        let result = first_life(&directory, &any);
        if !system.fired() {
            result.unwrap();
            return places;
        }
        assert!(matches!(result, Err(Error::System { .. })), "{number}: {result:?}");
        if directory.file().exists() {
            judge(&directory, &system, number);
            places += 1;
        }
    }
    panic!("there are syncs without end");
}

#[test]
fn p05_what_is_shown_after_a_failed_sync_survives_power_loss() {
    // Fails if the next to open the file only syncs what it accepts: the pages count as clean, so
    // that nothing is written, and the words that it shows are gone after power loss.
    let places = each_failed_sync(|directory, system, number| {
        let any = Arc::clone(system) as Arc<dyn System>;
        let shown = recover(&open(directory, any)).unwrap();
        assert_eq!(after_power(directory, system).0, shown, "sync {number}");
    });
    assert!(places > WORDS as u32, "{places}");
}

#[test]
fn p05_an_open_that_fails_too_leaves_the_rest_to_the_next() {
    // Fails if an open takes the note away before everything is durable, or if its own failed sync
    // leaves none.
    for later in 1..20 {
        let directory = Arc::new(Directory::new());
        let before = Faulty::new(&directory, Call::Sync, 7, Fault::Cleans(EIO));
        let any = Arc::clone(&before) as Arc<dyn System>;
        assert!(first_life(&directory, &any).is_err() && directory.file().exists());
        let system = before.then(later, Fault::Cleans(EIO));
        let any = Arc::clone(&system) as Arc<dyn System>;
        let interrupted = recover(&open(&directory, Arc::clone(&any)));
        if interrupted.is_ok() {
            assert!(later > 2, "an open syncs at least what it wrote again and its header");
            return;
        }
        let shown = recover(&open(&directory, any)).unwrap();
        assert_eq!(after_power(&directory, &system).0, shown, "sync {later}");
    }
    panic!("there are syncs without end");
}

#[test]
fn p05_what_is_written_again_is_durable_once_the_pool_is_open() {
    // Fails if the note goes before what it is about is on the device: a process that is killed
    // behind the open leaves pages that the kernel may fail to write when nobody hears of it.
    let places = each_failed_sync(|directory, system, number| {
        let region = open(directory, Arc::clone(system) as Arc<dyn System>);
        drop(Pool::open(region.clone(), BOOT).unwrap());
        let shown = words(&region);
        drop(region);
        assert_eq!(after_power(directory, system).0, shown, "sync {number}");
    });
    assert!(places > WORDS as u32, "{places}");
}

#[test]
fn a_close_whose_sync_failed_is_no_clean_close() {
    // Fails if a reader takes the header for durable that only the page cache shows: after power
    // loss the pool is open again, and what was shown need not be there.
    let places = each_failed_sync(|directory, system, number| {
        let any = || Arc::clone(system) as Arc<dyn System>;
        let region = open(directory, any());
        assert_eq!(Pool::status(&region, BOOT).unwrap().previous, Shutdown::Process, "{number}");
        assert!(Pool::open_read_only(region.clone()).is_err(), "{number}");
        let pool = Pool::open(region.clone(), BOOT).unwrap();
        pool.recovered().unwrap();
        pool.close().unwrap();
        drop((pool, region));
        let region = open(directory, any());
        assert_eq!(Pool::status(&region, BOOT).unwrap().previous, Shutdown::Clean, "{number}");
        Pool::open_read_only(region).unwrap();
        assert_eq!(after_power(directory, system).1, Shutdown::Clean, "{number}");
    });
    assert!(places > WORDS as u32, "{places}");
}

#[test]
fn what_is_written_again_keeps_its_holes_and_its_content() {
    // Fails if writing a file again takes storage for its holes, or changes a word.
    use everhash_pmem::{Holes, Media};
    use std::os::unix::fs::MetadataExt;
    let directory = Directory::new();
    let medium = FileMedium::create(directory.file(), 4 << 20, &options(Arc::new(Os))).unwrap();
    medium.publish().unwrap();
    let region = Region::new(medium);
    let pm = region.access();
    let at = |page: u64| Addr::new(page * 4096 + 8 * (page % 512));
    (0..1024).for_each(|page| pm.store(at(page), page + 1).unwrap());
    region.media().release(Span::of_bytes(Addr::new(1 << 20), 2 << 20));
    pm.sync(SITE).unwrap();
    let look = || {
        let words: Vec<u64> = (0..1024).map(|page| pm.load(at(page)).unwrap()).collect();
        (words, std::fs::metadata(directory.file()).unwrap().blocks())
    };
    let before = look();
    region.media().rewrite().unwrap();
    pm.sync(SITE).unwrap();
    assert_eq!(look(), before);
    assert_eq!(before.0[0..256], (1..=256).collect::<Vec<u64>>()[..]);
}

#[test]
fn p05_a_long_stretch_is_written_again_to_its_end() {
    // Fails if only the first piece of it were written again: what an open shows behind that would
    // be gone after power loss.
    const PAGES: u64 = 200;
    let life = |directory: &Directory, system: &Arc<Faulty>| -> Result<()> {
        let options = options(Arc::clone(system) as Arc<dyn System>);
        let region = Region::new(FileMedium::create(directory.file(), 1 << 20, &options)?);
        let pool = Pool::create(region.clone(), IDENTITY, BOOT, |_| Ok::<(), Error>(()))?;
        region.media().publish()?;
        let pm = pool.access();
        (0..PAGES).try_for_each(|page| pm.store(place(page), page + 1))?;
        pm.persist(Span::of_bytes(place(0), PAGES * 4096), SITE)
    };
    let directory = Arc::new(Directory::new());
    let sound = Faulty::new(&directory, Call::Sync, u32::MAX, Fault::Cleans(EIO));
    life(&directory, &sound).unwrap();
    let directory = Arc::new(Directory::new());
    let system = Faulty::new(&directory, Call::Sync, sound.seen(), Fault::Cleans(EIO));
    assert!(life(&directory, &system).is_err() && directory.file().exists());
    recover(&open(&directory, Arc::clone(&system) as Arc<dyn System>)).unwrap();
    system.fail_power();
    let region = open(&directory, Arc::new(Os));
    for page in 0..PAGES {
        assert_eq!(region.access().load(place(page)).unwrap(), page + 1, "page {page}");
    }
}

#[test]
fn p05_a_sync_that_fails_in_a_later_life_leaves_its_note_as_well() {
    // Fails if only the process that makes a pool notes that a sync failed.
    let directory = Arc::new(Directory::new());
    let first = Faulty::new(&directory, Call::Sync, u32::MAX, Fault::Cleans(EIO));
    first_life(&directory, &(Arc::clone(&first) as Arc<dyn System>)).unwrap();
    let live = |system: &Arc<Faulty>, value| -> Result<()> {
        let region = open(&directory, Arc::clone(system) as Arc<dyn System>);
        recover(&region)?;
        region.access().store(place(0), value)?;
        region.access().persist(Span::new(place(0), 1), SITE)
    };
    // The first of these finds a pool that was closed, and the others one that was not.
    live(&first, 70).unwrap();
    let counted = first.then(u32::MAX, Fault::Cleans(EIO));
    live(&counted, 71).unwrap();
    let system = counted.then(counted.seen(), Fault::Cleans(EIO));
    assert!(live(&system, 72).is_err() && system.fired());
    let shown = recover(&open(&directory, Arc::clone(&system) as Arc<dyn System>)).unwrap();
    assert_eq!(shown[0], 72);
    assert_eq!(after_power(&directory, &system).0, shown);
}
