//! Tables, where it only shows from inside or takes two threads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use everhash_index::{Error as IndexError, Form};

use super::faulty::{self, Event, Faults};
use crate::maintenance::Syncs;
use crate::tables::prefix;
use crate::{Change, Db, Durability, ErrorKind, Options, WriteBatch, engines};

#[test]
fn a_batch_for_the_default_table_of_another_database_is_refused() {
    // Fails if a pair were written into this database that was meant for another one.
    for form in [Form::Variable, Form::WORDS] {
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().form(form).durability(Durability::Process);
        let [one, other] =
            ["a", "b"].map(|name| options.create(directory.path().join(name)).unwrap());
        let mut batch = WriteBatch::new();
        batch.put([1; 8], [1; 8]).put_in(&one, [2; 8], [2; 8]);
        assert_eq!(other.write(&batch).unwrap_err().kind(), ErrorKind::NoTable);
        batch.clear();
        batch.put([1; 8], [1; 8]).remove_in(&one, [2; 8]);
        let error = other.write(&batch).unwrap_err();
        assert!(error.to_string().contains(one.path().to_str().unwrap()), "{error}");
        assert!(other.is_empty().unwrap() && one.is_empty().unwrap());
        one.write(&batch).unwrap();
        batch.clear();
        batch.put_in(&other, [1; 8], [1; 8]);
        other.write(&batch).unwrap();
        assert_eq!((one.len().unwrap(), other.len().unwrap()), (1, 1));
    }
}

#[test]
fn a_batch_for_two_databases_is_refused_by_both() {
    // Fails if only the first one that it names were looked at: the other's pairs would be written
    // into it.
    let directory = tempfile::tempdir().unwrap();
    let [one, other] =
        ["a", "b"].map(|name| relaxed().create(directory.path().join(name)).unwrap());
    let mut batch = WriteBatch::new();
    batch.put_in(&one, "key", "1").put_in(&other, "key", "2");
    for (db, foreign) in [(&one, &other), (&other, &one)] {
        let error = db.write(&batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoTable);
        assert!(error.to_string().contains(foreign.path().to_str().unwrap()), "{error}");
        assert!(db.is_empty().unwrap());
    }
}

#[test]
fn of_threads_that_make_a_table_one_has_made_it() {
    // Fails if a caller that takes success for ownership, as of a lock, shares it with another.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine("wophi").durability(Durability::Process);
    let db = options.background(false).create(directory.path().join("pairs.ehdb")).unwrap();
    // Whoever is behind catches up, as a refusal takes no time: so they meet at most names.
    const NAMES: u32 = 20_000;
    let make_all = || {
        let makes = |number: &u32| match db.create_table(&number.to_string()) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::TableExists => false,
            Err(error) => panic!("{error}"),
        };
        (0..NAMES).filter(makes).count()
    };
    let made: usize = std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(make_all));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, NAMES as usize);
}

/// Returns the header of a catalogue.
fn header(numbers: u64, pages: u64) -> Vec<u8> {
    [numbers, pages, 2].map(u64::to_le_bytes).concat()
}

/// Returns how many pages the header of the catalogue says may be in use.
fn reserved_pages(db: &Db) -> u64 {
    let mut header = Vec::new();
    db.core().read(|table| table.get(&prefix::of(prefix::CATALOGUE), &mut header)).unwrap();
    let (words, _) = header.as_chunks();
    u64::from_le_bytes(words[1])
}

fn relaxed() -> Options {
    Db::options().engine("wophi").durability(Durability::Process).background(false)
}

#[test]
fn what_power_loss_must_not_take_back_is_synced_before_it_is_relied_on() {
    // Fails if a number were given before the header is durable that says so, if pairs of a
    // dropped table were removed before its drop is durable, or if the catalogue forgot a table
    // whose pairs power loss may bring back.
    let (_directory, faults, db) = faulty::quiet(false);
    let events = || std::mem::take(&mut *faults.events.lock().unwrap());
    let page = [prefix::of(prefix::CATALOGUE), [0; 8]].concat();
    let flag = Event::Put(prefix::joined(prefix::CATALOGUE, &prefix::of(prefix::FIRST)));
    let (header, page) = (Event::Put(page[..8].to_vec()), Event::Put(page));
    let table = db.create_table("table").unwrap();
    assert_eq!(events(), [header, Event::Sync, flag, page.clone()]);
    table.put("key", "value").unwrap();
    table.put("other", "value").unwrap();
    events();
    db.drop_table("table").unwrap();
    while db.maintain().unwrap() {}
    let removed = [Event::Remove, Event::Remove];
    let expected = [&[Event::Remove, Event::Sync][..], &removed, &[Event::Sync, page]].concat();
    assert_eq!(events(), expected);
}

#[test]
fn the_thread_removes_pairs_of_dropped_tables_though_nobody_writes() {
    // Fails if only a write of a user woke the thread: the storage of a table that was dropped
    // last, or under a snapshot, would be kept for ever.
    for with_snapshot in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().engine("wophi").durability(Durability::Process);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let table = db.create_table("table").unwrap();
        for number in 0..100u32 {
            table.put(number.to_be_bytes(), "value").unwrap();
        }
        // Longer than the thread looks after what was written.
        let rest = || std::thread::sleep(Duration::from_millis(100));
        rest();
        let snapshot = with_snapshot.then(|| db.snapshot().unwrap());
        db.drop_table("table").unwrap();
        if with_snapshot {
            rest();
            assert_eq!(db.stats().unwrap().items, 102);
        }
        drop(snapshot);
        let began = Instant::now();
        while db.stats().unwrap().items > 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "snapshot: {with_snapshot}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_snapshot_counts_what_its_entries_take() {
    // Fails if only keys and values counted: small pairs take many times their length of memory.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().snapshot_bytes(20_000).create(directory.path().join("pairs.ehdb")).unwrap();
    let snapshot = db.snapshot().unwrap();
    for number in 0..100u32 {
        db.put(number.to_be_bytes(), "").unwrap();
    }
    assert_eq!(snapshot.get("key").unwrap(), None);
    for number in 0..400u32 {
        db.put(number.to_be_bytes(), "").unwrap();
    }
    assert_eq!(snapshot.get("key").unwrap_err().kind(), ErrorKind::SnapshotFull);
}

#[test]
fn retain_asks_again_before_it_removes() {
    // Fails if a pair went that was written between the look and the removal, and is to be kept.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().create(directory.path().join("pairs.ehdb")).unwrap();
    db.put("key", "value").unwrap();
    let mut answers = [false, true].into_iter();
    assert_eq!(db.retain(|_, _| answers.next().unwrap()).unwrap(), 0);
    assert!(db.contains_key("key").unwrap());
}

#[test]
fn a_header_that_cannot_be_is_damage() {
    // Fails if numbers that no prefix holds were given, or pages without end were looked for.
    const END: u64 = 1 << 39;
    for (numbers, pages, is_sound) in [
        (16, 0, true),
        (END, 32, true),
        (15, 32, false),
        (END + 1, 32, false),
        (16, (1 << 20) + 1, false),
        (u64::MAX, u64::MAX, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let db = relaxed().create(&path).unwrap();
        let header = header(numbers, pages);
        let key = prefix::of(prefix::CATALOGUE);
        db.core().write_own(|_| Ok(()), |table| table.put(&key, &header)).unwrap();
        db.close().unwrap();
        match relaxed().open(&path) {
            Ok(_) => assert!(is_sound, "{numbers} {pages}"),
            Err(error) => assert!(!is_sound && error.is_damage(), "{numbers} {pages}: {error}"),
        }
    }
}

#[test]
fn a_table_made_after_every_open_takes_no_pages() {
    // Fails if the file came nearer to its last table by each session that makes one: of 32,768
    // such sessions the last would be the last for ever, and each open would read more pages.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let options = relaxed().create_if_missing(true);
    for _ in 0..10 {
        let db = options.open(&path).unwrap();
        db.create_table("table").unwrap();
        db.drop_table("table").unwrap();
        while db.maintain().unwrap() {}
        assert_eq!(reserved_pages(&db), 32);
        db.close().unwrap();
    }
    // Where they are in use there are more: 32 tables lie in each.
    let db = options.open(&path).unwrap();
    for number in 0..1500 {
        db.create_table(&number.to_string()).unwrap();
    }
    assert_eq!(reserved_pages(&db), 64);
    db.close().unwrap();
    let db = options.open(&path).unwrap();
    assert_eq!(db.tables().unwrap().len(), 1500);
    assert!(db.create_table("one more").unwrap().is_empty().unwrap());
}

#[test]
fn a_catalogue_whose_pages_were_used_up_by_nothing_takes_tables_again() {
    // Fails if a file of a program that reserved pages in vain stayed full for ever.
    const MAX_PAGES: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = relaxed().create(&path).unwrap();
    let old = db.create_table("old").unwrap();
    old.put("key", "value").unwrap();
    drop(old);
    let header = header(5000, MAX_PAGES);
    let put =
        |table: &dyn everhash_index::Table| table.put(&prefix::of(prefix::CATALOGUE), &header);
    db.core().write_own(|_| Ok(()), put).unwrap();
    db.close().unwrap();
    let db = relaxed().open(&path).unwrap();
    assert!(db.create_table("new").unwrap().is_empty().unwrap());
    assert_eq!(reserved_pages(&db), 32);
    db.close().unwrap();
    let db = relaxed().open(&path).unwrap();
    assert_eq!(db.tables().unwrap(), ["new", "old"]);
    assert_eq!(db.table("old").unwrap().len().unwrap(), 1);
}

/// Flips a bit wherever `part` lies in a file; returns how often that was.
fn damage(path: &Path, part: &[u8]) -> usize {
    let mut bytes = std::fs::read(path).unwrap();
    let places = (0..bytes.len() - part.len()).filter(|at| bytes[*at..].starts_with(part));
    let places: Vec<_> = places.collect();
    for at in &places {
        bytes[at + 1] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
    places.len()
}

#[test]
fn a_salvaged_table_keeps_its_number_although_the_header_is_lost() {
    // Fails if the first table that is made in the copy of a database whose header is damaged
    // finds pairs of another one.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
        let db = Db::options().engine(engine.name).create(&path).unwrap();
        db.put("default", "pair").unwrap();
        for name in ["old", "older"] {
            let table = db.create_table(name).unwrap();
            for number in 0..100u32 {
                table.put(number.to_be_bytes(), "value").unwrap();
            }
        }
        // It has the largest number and no pair.
        db.create_table("empty").unwrap();
        db.close().unwrap();
        assert!(damage(&path, &header(1040, 32)) > 0, "{}", engine.name);
        let salvaged = Db::salvage(&path, &copy, &Db::options()).unwrap();
        assert!(salvaged.damages > 0, "{}", engine.name);
        let db = Db::open(&copy).unwrap();
        assert!(db.len().unwrap() <= 1, "{}: pairs of tables count elsewhere", engine.name);
        for number in 0..3 {
            let table = db.create_table(&format!("new {number}")).unwrap();
            assert_eq!(table.iter().count(), 0, "{}: {number}", engine.name);
            table.put("key", "value").unwrap();
        }
        // WALSH may have lost the page, too.
        if db.tables().unwrap().len() > 3 {
            assert_eq!(db.tables().unwrap()[..1], ["empty"], "{}", engine.name);
            assert!(db.table("old").unwrap().len().unwrap() >= 80);
            // Read, and not counted: two tables of one number have two counts.
            assert_eq!(db.table("empty").unwrap().iter().count(), 0, "{}", engine.name);
        }
        db.check().unwrap();
    }
}

#[test]
fn a_salvaged_table_is_there_although_its_flag_is_lost() {
    // Fails if damage to a record of a few bytes let a salvage take a table for one that was
    // dropped: the copy would remove all its pairs.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
        let db = Db::options().engine(engine.name).create(&path).unwrap();
        let table = db.create_table("table").unwrap();
        for number in 0..100u32 {
            table.put(number.to_be_bytes(), "value").unwrap();
        }
        drop(table);
        db.close().unwrap();
        let flag = prefix::joined(prefix::CATALOGUE, &prefix::of(prefix::FIRST));
        assert!(damage(&path, &flag) > 0, "{}", engine.name);
        assert!(Db::salvage(&path, &copy, &Db::options()).unwrap().damages > 0, "{}", engine.name);
        let db = Db::options().background(false).open(&copy).unwrap();
        // WALSH may have lost the page, too.
        if engine.name != "walsh" || !db.tables().unwrap().is_empty() {
            while db.maintain().unwrap() {}
            assert!(db.table("table").unwrap().len().unwrap() >= 80, "{}", engine.name);
        }
        db.check().unwrap();
    }
}

#[test]
fn a_catalogue_of_an_earlier_version_is_refused_and_can_be_salvaged() {
    // Fails if a file whose tables have no flags were opened as if all had been dropped, or were
    // left to be recovered.
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
    let db = relaxed().create(&path).unwrap();
    db.create_table("table").unwrap().put("key", "value").unwrap();
    let header = [16u64 + 1024, 32].map(u64::to_le_bytes).concat();
    let write = |table: &dyn everhash_index::Table| {
        table.remove(&prefix::joined(prefix::CATALOGUE, &prefix::of(prefix::FIRST)))?;
        table.put(&prefix::of(prefix::CATALOGUE), &header)
    };
    db.core().write_own(|_| Ok(()), write).unwrap();
    db.close().unwrap();
    let error = relaxed().open(&path).unwrap_err();
    assert!(!error.is_damage() && error.to_string().contains("earlier version"), "{error}");
    // It stays closed: whoever reads it next need not recover it.
    let error = relaxed().open_read_only(&path).unwrap_err();
    assert!(error.to_string().contains("earlier version"), "{error}");
    Db::salvage(&path, &copy, &relaxed()).unwrap();
    let db = relaxed().open(&copy).unwrap();
    assert_eq!(db.table("table").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn the_last_page_in_use_stays_reserved() {
    // Fails if a table that is made where an early page has room cost those of the last page.
    const TABLES: usize = 33 * 32;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = relaxed().create(&path).unwrap();
    for number in 0..TABLES {
        drop(db.create_table(&number.to_string()).unwrap());
    }
    assert!(db.drop_table("0").unwrap());
    while db.maintain().unwrap() {}
    db.close().unwrap();
    let db = relaxed().open(&path).unwrap();
    drop(db.create_table("new").unwrap());
    assert_eq!(reserved_pages(&db), 64);
    db.close().unwrap();
    assert_eq!(relaxed().open(&path).unwrap().tables().unwrap().len(), TABLES);
}

#[test]
fn a_table_is_made_and_dropped_as_durably_as_a_pair_is_put() {
    // Fails if power loss brought a table back that was dropped where each write is durable.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::create(&path).unwrap();
    drop(db.create_table("first").unwrap());
    db.close().unwrap();
    let device = std::sync::Arc::new(super::Device::default());
    let options = super::on(&device, Durability::Immediate).background(false);
    let db = options.open(&path).unwrap();
    // Reserves numbers, which is a sync of its own.
    drop(db.create_table("second").unwrap());
    let before = device.syncs();
    drop(db.create_table("third").unwrap());
    let made = device.syncs();
    assert!(db.drop_table("third").unwrap());
    assert!(made > before && device.syncs() > made, "{before}, {made}, {}", device.syncs());
}

#[test]
fn a_table_that_is_dropped_while_another_is_purged_is_purged_as_well() {
    // Fails if the end of a round forgot what came during it, until the next open.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().create(directory.path().join("pairs.ehdb")).unwrap();
    for name in ["first", "second"] {
        let table = db.create_table(name).unwrap();
        for number in 0..1000u32 {
            table.put(number.to_be_bytes(), "value").unwrap();
        }
    }
    assert!(db.drop_table("first").unwrap());
    // The round takes what it is about, and is under way.
    assert!(db.maintain().unwrap());
    assert!(db.drop_table("second").unwrap());
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().unwrap().items, 2);
}

#[test]
fn a_purge_stands_still_under_a_snapshot_and_forgets_no_pair_over_it() {
    // Fails if pairs that were found before a snapshot began were removed under it, if they were
    // passed over for good, or if maintenance never rested while it is held.
    let (_directory, faults, db) = faulty::quiet(false);
    let table = db.create_table("table").unwrap();
    for number in 0..10u8 {
        table.put([number], "value").unwrap();
    }
    assert!(db.drop_table("table").unwrap());
    let (say, said) = mpsc::channel();
    let own = db.clone();
    *faults.meanwhile.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || say.send(own.snapshot().unwrap()));
        // Until it waits for the end of this look, and every removal for its instant.
        std::thread::sleep(Duration::from_millis(50));
    }));
    // The round begins, and looks.
    assert!(db.maintain().unwrap() && db.maintain().unwrap());
    let snapshot = said.recv().unwrap();
    let removed = || {
        let events = faults.events.lock().unwrap();
        events.iter().filter(|event| matches!(event, Event::Remove)).count()
    };
    assert_eq!(removed(), 1, "the drop itself");
    assert!(!db.maintain().unwrap(), "there is nothing to do before its end");
    drop(snapshot);
    while db.maintain().unwrap() {}
    assert_eq!((removed(), db.stats().unwrap().items), (11, 2));
}

#[test]
fn a_purged_table_leaves_the_tables_of_other_pages_alone() {
    // Fails if the page without it were written in the place of another one: the tables of that
    // would be gone at the next open.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = relaxed().create(&path).unwrap();
    // More than one page lists.
    for number in 0..40 {
        db.create_table(&number.to_string()).unwrap();
    }
    assert!(db.drop_table("39").unwrap());
    while db.maintain().unwrap() {}
    db.close().unwrap();
    assert_eq!(relaxed().open(&path).unwrap().tables().unwrap().len(), 39);
}

#[test]
fn a_database_that_is_only_read_has_no_maintenance() {
    // Fails if a reader were told that it may not write, which it has not asked for.
    let directory = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = directory.path().join(engine.name);
        let options = Db::options().engine(engine.name).background(false);
        let db = options.create(&path).unwrap();
        db.create_table("table").unwrap().put("key", "value").unwrap();
        assert!(db.drop_table("table").unwrap());
        db.close().unwrap();
        let before = std::fs::read(&path).unwrap();
        let db = Db::open_read_only(&path).unwrap();
        assert!(!db.maintain().unwrap() && !db.maintain().unwrap());
        db.sync().unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "{}", engine.name);
    }
}

#[test]
fn a_table_that_a_reader_may_not_make_leaves_no_trace() {
    // Fails if the file counted as one with tables from then on: each `len` would read all of it.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    relaxed().create(&path).unwrap().close().unwrap();
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.table_or_create("table").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(db.is_all());
}

#[test]
fn a_pair_that_cannot_be_removed_keeps_no_other_of_a_dropped_table() {
    // Fails if everything behind it were kept, if it were tried again and again, if nobody heard of
    // it, or if the catalogue forgot a table of which a pair is left.
    let full = || IndexError::Full { needed: 64 };
    let poisoned = || IndexError::Poisoned;
    for (why, is_full) in [(full as fn() -> IndexError, true), (poisoned, false)] {
        let directory = tempfile::tempdir().unwrap();
        let faults = Faults::new(|_| None, |_| None);
        let path = directory.path().join("pairs.ehdb");
        let db = faulty::database(&path, &faults, Syncs::Never, false);
        let table = db.create_table("table").unwrap();
        for number in 0..100u8 {
            table.put([number], "value").unwrap();
        }
        let other = db.create_table("other").unwrap();
        other.put("other", "value").unwrap();
        *faults.stuck.lock().unwrap() = Some((&[40], why));
        assert!(db.drop_table("table").unwrap());
        let errors: Vec<_> = (0..100).filter_map(|_| db.maintain().err()).collect();
        assert_eq!((errors.len(), faults.tried.load(Ordering::SeqCst)), (1, 1), "{errors:?}");
        assert_eq!(errors[0].is_full(), is_full);
        // The header and the page of the catalogue, the pair that is left, and that of another
        // table, which has a flag.
        assert_eq!(db.stats().unwrap().items, 5);
        // Where there was no room there may be some later: with the next table, or after a while.
        // Of the store's own part alone: the engine may have something to look after, too.
        let own = db.core().tables().unwrap();
        let deadline = own.maintain(db.core(), 256).unwrap().deadline;
        assert_eq!(deadline.is_some_and(|at| at > db.core().now()), is_full);
        *faults.stuck.lock().unwrap() = None;
        assert!(db.drop_table("other").unwrap());
        while db.maintain().unwrap() {}
        assert_eq!(db.stats().unwrap().items, if is_full { 2 } else { 3 });
        drop((table, other));
        db.close().unwrap();
        // What is left otherwise goes after the next open.
        let db = relaxed().open(&path).unwrap();
        while db.maintain().unwrap() {}
        assert_eq!(db.stats().unwrap().items, 2);
    }
}

#[test]
fn a_table_of_which_pairs_may_lie_behind_damage_is_not_forgotten() {
    // Fails if the catalogue forgot a dropped table although a part of the file was passed over: no
    // later open would look for its pairs, and every copy would have them.
    let (_directory, faults, db) = faulty::quiet(false);
    db.create_table("table").unwrap().put("key", "value").unwrap();
    assert!(db.drop_table("table").unwrap());
    faults.events.lock().unwrap().clear();
    faults.scans.lock().unwrap().push_back(Some(faulty::DAMAGE));
    assert_eq!((0..100).filter(|_| db.maintain().is_err()).count(), 1);
    let is_put = |event: &Event| matches!(event, Event::Put(_));
    assert!(!faults.events.lock().unwrap().iter().any(is_put), "the page is as it was");
    assert!(!db.core().maintain().unwrap().more);
}

#[test]
fn a_record_of_the_catalogue_that_cannot_be_is_damage() {
    // Fails if a page were read up to where it makes no sense, or beside a header that is older:
    // its other tables would be gone, and their numbers given again. Or if a salvage copied what no
    // open takes, or left it out without a word.
    let header = prefix::of(prefix::CATALOGUE).to_vec();
    let page = [prefix::of(prefix::CATALOGUE), [0; 8]].concat();
    let number = 16u64.to_le_bytes();
    let unreserved = [&(16u64 + 1024).to_le_bytes()[..], &[1], b"a"].concat();
    for (key, record) in [
        (&header, [number, [0; 8], [3, 0, 0, 0, 0, 0, 0, 0]].concat()),
        (&header, [self::header(16, 32), vec![0]].concat()),
        (&header, number.to_vec()),
        (&page, vec![7; 3]),
        (&page, number.to_vec()),
        // Of the catalogue itself, and one that is not reserved: the next table would get it, too.
        (&page, [&1u64.to_le_bytes()[..], &[1], b"a"].concat()),
        (&page, unreserved.clone()),
        (&page, [&u64::MAX.to_le_bytes()[..], &[1], b"a"].concat()),
        (&page, [&number[..], &[5], b"four"].concat()),
        (&page, [&number[..], &[2, 0xff, 0xff]].concat()),
        (&page, [&number[..], &[1], b"a", b"more"].concat()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
        let db = relaxed().create(&path).unwrap();
        db.put("key", "value").unwrap();
        drop(db.create_table("a").unwrap());
        db.core().write_own(|_| Ok(()), |table| table.put(key, &record)).unwrap();
        db.close().unwrap();
        let error = relaxed().open(&path).unwrap_err();
        assert!(error.is_damage(), "{record:?}: {error}");
        let found = Db::salvage(&path, &copy, &relaxed()).unwrap();
        // A number that was not reserved says nothing of the record alone.
        let is_readable = record == unreserved;
        assert_eq!(found.damages, u64::from(!is_readable), "{record:?}");
        let db = relaxed().open(&copy).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{record:?}: {found:?}");
        let table = db.create_table("b").unwrap();
        table.put("key", "another").unwrap();
        assert_eq!((table.len().unwrap(), db.len().unwrap()), (1, 1), "{record:?}");
    }
}

#[test]
fn tables_that_come_and_go_use_the_same_pages() {
    // Fails if a page that was full once were never looked at again while the database is open.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().create(directory.path().join("pairs.ehdb")).unwrap();
    for _ in 0..40 {
        // One more than a page lists.
        for number in 0..33 {
            drop(db.create_table(&number.to_string()).unwrap());
        }
        for number in 0..33 {
            assert!(db.drop_table(&number.to_string()).unwrap());
        }
        while db.maintain().unwrap() {}
    }
    assert_eq!(reserved_pages(&db), 32);
    // The header, and the two pages that were in use.
    assert_eq!(db.stats().unwrap().items, 3);
}

#[test]
fn numbers_of_tables_that_are_used_up_are_an_error() {
    // Fails if a number ran into the bit that marks a table with expiry times.
    const END: u64 = 1 << 39;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    for (numbers, is_full) in [(END - 1024, false), (END - 1023, true), (END, true)] {
        let db = relaxed().create(&path).unwrap();
        let header = header(numbers, 32);
        let put =
            |table: &dyn everhash_index::Table| table.put(&prefix::of(prefix::CATALOGUE), &header);
        db.core().write_own(|_| Ok(()), put).unwrap();
        db.close().unwrap();
        let db = relaxed().open(&path).unwrap();
        let made = db.create_table("table").map(drop);
        let refused = made.err().map(|error| (error.kind(), error.limit()));
        let limit = Some(("tables, dropped ones counted", END));
        assert_eq!(refused, is_full.then_some((ErrorKind::Full, limit)), "{numbers}");
        db.discard().unwrap();
    }
}

#[test]
fn tables_are_purged_in_whatever_order_they_were_dropped() {
    // Fails if pairs stayed because the numbers of a round are looked for as if they were sorted.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().create(directory.path().join("pairs.ehdb")).unwrap();
    for number in 0..7 {
        let table = db.create_table(&number.to_string()).unwrap();
        table.put("key", "value").unwrap();
    }
    for number in [6, 2, 5, 0, 3, 1, 4] {
        assert!(db.drop_table(&number.to_string()).unwrap());
    }
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().unwrap().items, 2);
}

#[test]
fn a_table_is_dropped_when_what_is_written_into_it_has_ended() {
    // Fails if its pairs could be removed before a write that saw it alive adds the last one.
    let directory = tempfile::tempdir().unwrap();
    let db = relaxed().create(directory.path().join("pairs.ehdb")).unwrap();
    let table = db.create_table("table").unwrap();
    let (begins, has_begun) = std::sync::mpsc::channel();
    let (goes_on, may_go_on) = std::sync::mpsc::channel();
    let is_dropped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let write = |_: Option<&[u8]>| {
                begins.send(()).unwrap();
                may_go_on.recv().unwrap();
                (Change::Put(b"value".to_vec()), ())
            };
            table.modify("key", write).unwrap();
        });
        has_begun.recv().unwrap();
        scope.spawn(|| {
            assert!(db.drop_table("table").unwrap());
            is_dropped.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        let was_dropped = is_dropped.load(Ordering::SeqCst);
        goes_on.send(()).unwrap();
        assert!(!was_dropped, "it did not wait");
    });
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().unwrap().items, 2);
}

#[test]
fn a_drop_that_waits_for_a_writer_wakes_the_thread_that_purges() {
    // Fails if only its own write did, after which there is nothing to do yet: the pairs would lie
    // there until somebody writes again.
    let (_directory, faults, db) = faulty::quiet(true);
    db.create_table("table").unwrap().put("key", "value").unwrap();
    db.put("other", "value").unwrap();
    let items = db.stats().unwrap().items;
    let waits = Duration::from_millis(200);
    std::thread::sleep(waits);
    faults.waits.store(waits.as_millis() as u64, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| db.modify("other", |_| (Change::Keep, ())).unwrap());
        std::thread::sleep(waits / 4);
        assert!(db.drop_table("table").unwrap());
    });
    let begun = Instant::now();
    while db.stats().unwrap().items == items {
        assert!(begun.elapsed() < Duration::from_secs(10), "its pair is there still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_purge_waits_for_few_syncs_though_each_write_is_synced() {
    // Fails if each removal of what nobody sees were made durable by itself.
    for name in ["reef", "walsh"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        Db::options().engine(name).create(&path).unwrap().close().unwrap();
        let options = Db::options().durability(Durability::Immediate).background(false);
        let db = options.open(&path).unwrap();
        let table = db.create_table("table").unwrap();
        let pairs: Vec<_> = (0..300u32).map(|number| (number.to_be_bytes(), "value")).collect();
        table.put_many(&pairs).unwrap();
        drop(table);
        assert!(db.drop_table("table").unwrap());
        let before = db.metrics().device_syncs;
        while db.maintain().unwrap() {}
        let syncs = db.metrics().device_syncs - before;
        assert!(syncs < 30, "{name}: {syncs} syncs");
        assert_eq!(db.stats().unwrap().items, 2, "{name}");
    }
}

/// Returns what the file says of its tables: their names, and the records that it has.
fn after_the_next_open(db: Db, path: &Path) -> (Vec<String>, u64) {
    db.close().unwrap();
    let db = relaxed().open(path).unwrap();
    while db.maintain().unwrap() {}
    (db.tables().unwrap(), db.stats().unwrap().items)
}

#[test]
fn a_drop_that_fails_leaves_the_table_there_or_gone_for_memory_and_file() {
    // Fails if an engine that fails after it has stored the record left a table in memory that the
    // next open does not find, with all that was put there meanwhile.
    for is_stored in [false, true] {
        let (directory, faults, db) = faulty::quiet(false);
        let table = db.create_table("table").unwrap();
        table.put("key", "value").unwrap();
        faults.fail_write(is_stored, IndexError::Full { needed: 64 });
        assert!(db.drop_table("table").unwrap_err().is_full());
        let put = table.put("other", "value").map_err(|error| error.kind());
        let expected = if is_stored { Err(ErrorKind::NoTable) } else { Ok(false) };
        assert_eq!(put, expected, "stored: {is_stored}");
        assert_eq!(db.tables().unwrap().is_empty(), is_stored);
        drop(table);
        // Its pairs go as those of every dropped table.
        while db.maintain().unwrap() {}
        let (names, items) = if is_stored { (vec![], 2) } else { (vec!["table"], 5) };
        assert_eq!(db.stats().unwrap().items, items);
        let found = after_the_next_open(db, &directory.path().join("pairs.ehdb"));
        assert_eq!(found, (names.into_iter().map(str::to_owned).collect(), items));
    }
}

#[test]
fn a_table_whose_making_fails_is_there_for_memory_and_file_or_for_neither() {
    // Fails if a table that was said not to be made appeared at the next open, or if one that the
    // file has were made once more.
    for (of_page, is_stored) in [(false, false), (false, true), (true, false), (true, true)] {
        let (directory, faults, db) = faulty::quiet(false);
        drop(db.create_table("first").unwrap());
        // Its flag is put first.
        faults.writes.lock().unwrap().extend(of_page.then_some(None));
        faults.fail_write(is_stored, IndexError::Full { needed: 64 });
        assert!(db.create_table("table").unwrap_err().is_full());
        let names = db.tables().unwrap();
        assert_eq!(names.contains(&"table".to_owned()), of_page && is_stored);
        let items = db.stats().unwrap().items;
        // The header, the page, the flag of the first table, and another one if it was stored.
        assert_eq!(items, 3 + u64::from(is_stored));
        let found = after_the_next_open(db, &directory.path().join("pairs.ehdb"));
        assert_eq!(found, (names, items), "of the page: {of_page}, stored: {is_stored}");
    }
}

#[test]
fn a_catalogue_in_doubt_stops_the_handle() {
    // Fails if writes into a table went on that the next open may not find; or if damage, which
    // says that no open will find any, kept the pairs from those who could still read them.
    let (directory, faults, db) = faulty::quiet(false);
    let table = db.create_table("table").unwrap();
    faults.fail_write(false, IndexError::Full { needed: 64 });
    *faults.get.lock().unwrap() = Some(faulty::DAMAGE);
    assert!(db.drop_table("table").unwrap_err().is_full());
    assert_eq!(table.get("key").unwrap(), None);
    faults.fail_write(true, IndexError::Full { needed: 64 });
    *faults.get.lock().unwrap() = Some(IndexError::Poisoned);
    assert!(db.drop_table("table").unwrap_err().is_full());
    let error = table.put("key", "value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert!(error.to_string().contains("catalogue"), "{error}");
    drop(table);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Stopped);
    let db = relaxed().open(directory.path().join("pairs.ehdb")).unwrap();
    assert!(db.tables().unwrap().is_empty());
}

#[test]
fn a_purge_that_cannot_say_that_it_is_done_says_so_later() {
    // Fails if the catalogue forgot a dropped table in memory before it did in the file, where it
    // would be listed until the next open; or if maintenance that finds no room for that failed.
    let full = IndexError::Full { needed: 64 };
    for (error, failures) in [(full, 0), (IndexError::Poisoned, 1)] {
        let (_directory, faults, db) = faulty::quiet(false);
        db.create_table("table").unwrap().put("key", "value").unwrap();
        drop(db.create_table("other").unwrap());
        assert!(db.drop_table("table").unwrap());
        // Its pair is removed before.
        faults.writes.lock().unwrap().push_back(None);
        faults.fail_write(false, error);
        let failed = (0..10).filter(|_| db.maintain().is_err()).count();
        assert_eq!((failed, faults.writes.lock().unwrap().len()), (failures, 0));
        // A round that lacked room is repeated after a while, or with the next one.
        assert!(db.drop_table("other").unwrap());
        while db.maintain().unwrap() {}
        let page = [prefix::of(prefix::CATALOGUE), [0; 8]].concat();
        let mut record = Vec::new();
        assert!(db.core().read(|table| table.get(&page, &mut record)).unwrap());
        assert_eq!(record, b"");
    }
}

/// Uses every table of a database, makes one, and drops all; returns whether a pair was in the new
/// one.
fn use_all(db: &Db) -> bool {
    for name in db.tables().unwrap() {
        match db.table(&name) {
            Ok(table) => assert!(table.put("new", "pair").is_ok() && table.len().unwrap() > 0),
            Err(_) => assert!(db.expiring_table(&name).unwrap().len().unwrap() < 2),
        }
    }
    // Numbers may be used up by what a header says.
    let was_there = match db.create_table("new") {
        Ok(table) => table.put("key", "value").unwrap(),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::TableExists), "{error}");
            false
        }
    };
    for name in db.tables().unwrap() {
        assert!(db.drop_table(&name).unwrap());
    }
    while db.maintain().unwrap() {}
    assert!(db.tables().unwrap().is_empty());
    db.check().unwrap();
    was_there
}

#[test]
fn whatever_the_catalogue_says_it_is_refused_or_can_be_used() {
    // Fails if a record that nobody wrote led to a panic, to a table that cannot be used, or to a
    // copy that cannot, or that gives a number again. Without a copy nobody reads all pairs, so
    // that a header can say too little.
    let mut random = 1u64;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % bound
    };
    let keys = [
        vec![],
        vec![0; 8],
        1u64.to_be_bytes().to_vec(),
        b"nonsense!".to_vec(),
        prefix::of(prefix::FIRST).to_vec(),
        prefix::of(prefix::FIRST + 1).to_vec(),
        prefix::of(prefix::END - 1).to_vec(),
        prefix::of(prefix::ENDING | (prefix::FIRST + 2)).to_vec(),
    ];
    let (directory, mut opened) = (tempfile::tempdir().unwrap(), 0);
    let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
    for round in 0..150 {
        let db = relaxed().create(&path).unwrap();
        for name in ["kept", "dropped"] {
            db.create_table(name).unwrap().put("key", "value").unwrap();
        }
        let ending = db.expiring_table_or_create("ending").unwrap();
        ending.put("key", "value", Duration::from_secs(3600)).unwrap();
        drop(ending);
        db.drop_table("dropped").unwrap();
        for _ in 0..1 + below(2) {
            let key = prefix::joined(prefix::CATALOGUE, &keys[below(keys.len())]);
            let mut record = Vec::new();
            db.core().read(|table| table.get(&key, &mut record)).unwrap();
            match below(5) {
                0 => record.truncate(below(record.len() + 1)),
                1 => record.extend((0..below(20)).map(|_| below(256) as u8)),
                2 => record = vec![0; below(30)],
                _ if record.is_empty() => {}
                _ => {
                    let at = below(record.len());
                    record[at] ^= 1 << below(8);
                }
            }
            let is_put = below(5) > 0;
            let write = |table: &dyn everhash_index::Table| match is_put {
                true => table.put(&key, &record),
                false => table.remove(&key),
            };
            db.core().write_own(|_| Ok(()), write).unwrap();
        }
        db.close().unwrap();
        match relaxed().open(&path) {
            Ok(db) => {
                use_all(&db);
                opened += 1;
            }
            Err(error) => assert!(
                error.is_damage() || error.to_string().contains("earlier version"),
                "{round}: {error}"
            ),
        }
        Db::salvage(&path, &copy, &relaxed()).unwrap();
        assert!(!use_all(&relaxed().open(&copy).unwrap()), "{round}: a number was given again");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&copy).unwrap();
    }
    assert!((40..140).contains(&opened), "{opened}");
}
