//! Making, opening and closing: who may open what, and what is left on disk.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::place;
use everhash_pmem::pool::Header;
use everhash_store::{Db, Durability, Error, ErrorKind, Form, HashKind};

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn p14_every_database_has_a_hash_key_of_its_own() {
    // Fails if keys that collide in one database are known to collide in another one.
    let hash_key = |path: &Path| {
        Db::create(path).unwrap().close().unwrap();
        std::fs::read(path).unwrap()[8 * Header::HASH_KEY..][..16].to_vec()
    };
    let (directory, _) = place();
    let path = |number| directory.path().join(format!("{number}.ehdb"));
    let keys: BTreeSet<_> = (0..8).map(|number| hash_key(&path(number))).collect();
    assert_eq!(keys.len(), 8);
    assert!(keys.iter().all(|key| key.iter().any(|byte| *byte != 0)));
}

#[test]
fn what_was_put_is_there_after_reopening() {
    // Fails if a clean close lost something, or were no clean close.
    let (_directory, path) = place();
    let db = Db::create(&path).unwrap();
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), vec![7; number as usize % 300]).unwrap();
    }
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert!(!db.info().recovered);
    assert_eq!(db.len().unwrap(), 1000);
    for number in 0..1000u32 {
        assert_eq!(db.get(number.to_be_bytes()).unwrap().unwrap().len(), number as usize % 300);
    }
}

#[test]
fn dropping_the_last_handle_closes_cleanly() {
    // Fails if a drop counted as a crash, or the drop of one of several handles closed.
    let (_directory, path) = place();
    let db = Db::create(&path).unwrap();
    let other = db.clone();
    drop(db);
    other.put(b"key", b"value").unwrap();
    drop(other);
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn closing_says_when_others_hold_on() {
    // Fails if a close seemed to have closed what another handle still writes.
    let (_directory, path) = place();
    let db = Db::create(&path).unwrap();
    let other = db.clone();
    assert!(matches!(db.close(), Err(Error::InUse { others: 1, .. })));
    other.put(b"key", b"value").unwrap();
    other.close().unwrap();
}

#[test]
fn p15_a_database_belongs_to_its_owner_alone() {
    // Fails if others could read or write the file.
    let (directory, path) = place();
    Db::create(&path).unwrap().close().unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(directory.path()), ["pairs.ehdb"]);
}

#[test]
fn p11_a_second_opener_is_refused() {
    // Fails if two handles could write at once, or a reader could see a writer's half changes.
    let (directory, path) = place();
    let link = directory.path().join("link.ehdb");
    let db = Db::create(&path).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    for name in [&path, &link] {
        assert!(matches!(Db::open(name), Err(Error::AlreadyOpen { .. })));
        assert!(matches!(Db::open_read_only(name), Err(Error::AlreadyOpen { .. })));
        assert!(matches!(Db::check_at_rest(name), Err(Error::AlreadyOpen { .. })));
    }
    db.close().unwrap();
    let first = Db::open_read_only(&path).unwrap();
    let second = Db::open_read_only(&link).unwrap();
    assert!(matches!(Db::open(&path), Err(Error::AlreadyOpen { .. })));
    assert_eq!(first.len().unwrap() + second.len().unwrap(), 0);
    drop((first, second));
    Db::open(&path).unwrap();
}

#[test]
fn reading_changes_nothing_and_writing_is_refused() {
    // Fails if a read-only handle wrote anything, be it only its header.
    let (_directory, path) = place();
    let db = Db::create(&path).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(matches!(db.put(b"key", b"other"), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.remove(b"key"), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.clear(), Err(Error::ReadOnly { .. })));
    assert!(!db.maintain().unwrap());
    db.sync().unwrap();
    assert_eq!(db.check().unwrap().items, 1);
    assert_eq!(db.iter().count(), 1);
    db.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_missing_or_in_the_way_is_named() {
    // Fails if a message left the user to guess which path is wrong, or in which way.
    let (directory, path) = place();
    let not_found = Db::open(&path).unwrap_err();
    assert!(matches!(not_found, Error::NotFound { .. }));
    assert!(not_found.to_string().contains("pairs.ehdb"), "{not_found}");
    assert!(matches!(Db::open_read_only(&path), Err(Error::NotFound { .. })));
    let nowhere = directory.path().join("missing").join("pairs.ehdb");
    let error = Db::create(&nowhere).unwrap_err();
    assert!(matches!(error, Error::NoDirectory { .. }) && error.kind() == ErrorKind::NotFound);
    assert!(error.to_string().contains("missing: there is no such directory"), "{error}");
    // A link that leads nowhere is neither a database nor a free name.
    let link = directory.path().join("link.ehdb");
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    for result in [Db::create(&link), Db::open(&link), Db::open_read_only(&link)] {
        assert!(matches!(result, Err(Error::BrokenLink { .. })), "{result:?}");
    }
    Db::create(&path).unwrap().close().unwrap();
    assert!(matches!(Db::create(&path), Err(Error::AlreadyExists { .. })));
    let link = directory.path().join("good.ehdb");
    std::os::unix::fs::symlink("pairs.ehdb", &link).unwrap();
    assert!(matches!(Db::create(&link), Err(Error::AlreadyExists { .. })));
    Db::options().create_if_missing(true).open(&path).unwrap();
    let error = Db::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("not a file"), "{error}");
    // A name of a directory makes no file, which the same name would never open.
    let new = directory.path().join("new/");
    let error = Db::open_or_create(&new).unwrap_err().to_string();
    assert!(error.contains("not a file") && !directory.path().join("new").exists(), "{error}");
}

#[test]
fn p08_what_is_no_database_is_refused_and_left_alone() {
    // Fails if a foreign file were opened, or written to, or grown.
    let (_directory, path) = place();
    let text = b"some other file ".repeat(4000);
    for foreign in [&b""[..], b"short", &[0; 100_000], &text] {
        std::fs::write(&path, foreign).unwrap();
        for error in [Db::open(&path).unwrap_err(), Db::open_read_only(&path).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("pairs.ehdb") && error.contains("not supported"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), foreign);
    }
}

#[test]
fn an_existing_database_must_be_the_one_asked_for() {
    // Fails if a program read pairs of a form or by a hash that it did not mean.
    let (_directory, path) = place();
    Db::options().form(Form::WORDS).hash(HashKind::Xxh3).create(&path).unwrap().close().unwrap();
    let mismatch = |options: everhash_store::Options| match options.open(&path) {
        Err(Error::Mismatch { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(mismatch(Db::options().form(Form::Variable)), "pairs of the form");
    assert_eq!(mismatch(Db::options().hash(HashKind::Sip13)), "the hash function");
    assert_eq!(mismatch(Db::options().engine("other")), "the engine");
    let db = Db::options().form(Form::WORDS).engine("reef").open(&path).unwrap();
    assert_eq!((db.info().form, db.info().hash), (Form::WORDS, HashKind::Xxh3));
}

#[test]
fn a_database_that_cannot_be_made_leaves_nothing_behind() {
    // Fails if a half database stayed under the name, or a temporary file beside it.
    let (directory, path) = place();
    let error = Db::options().engine("none").create(&path).unwrap_err().to_string();
    assert!(error.contains("'none'") && error.contains("wophi"), "{error}");
    let error = Db::options().setting("no_such_setting", 1).create(&path).unwrap_err();
    assert!(error.is_setting() && error.to_string().contains("no_such_setting"), "{error}");
    let small = Db::options().capacity_bytes(4096);
    let error = small.create(&path).unwrap_err();
    assert!(error.is_full(), "{error}");
    // Fewer pairs would help as little.
    let error = small.expected_items(1).create(&path).unwrap_err();
    assert!(error.is_full(), "{error}");
    let odd = Form::Fixed { key_bytes: 4, value_bytes: 8 };
    let error = Db::options().form(odd).create(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("use 8/8 or 16/16 or variable"), "{error}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn of_many_who_create_all_get_the_same_database() {
    // Fails if one replaced the file of another, whose writes would then be lost.
    let (directory, path) = place();
    let opened = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            let (path, opened) = (&path, &opened);
            scope.spawn(move || {
                loop {
                    match Db::options().create_if_missing(true).open(path) {
                        Ok(db) => {
                            db.put([number], b"").unwrap();
                            db.close().unwrap();
                            opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            return;
                        }
                        Err(Error::AlreadyOpen { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(opened.into_inner(), 8);
    assert_eq!(Db::open(&path).unwrap().len().unwrap(), 8);
    assert_eq!(names(directory.path()), ["pairs.ehdb"]);
}

#[test]
fn a_database_says_when_its_writes_are_durable() {
    // Fails if an engine that cannot batch were said to do so: whoever writes much would not know
    // that each write waits for the device.
    let durability = |options: everhash_store::Options| {
        let (_directory, path) = place();
        options.create(&path).unwrap().info().durability
    };
    assert_eq!(durability(Db::options()), Durability::Batch);
    assert_eq!(durability(Db::options().setting("durability", 1)), Durability::Immediate);
    assert_eq!(durability(Db::options().engine("wophi")), Durability::Immediate);
}

/// Opens many databases at a time, and writes to each.
fn open_many(count: usize, background: bool) {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine("wophi").expected_items(10).background(background);
    let options = options.durability(Durability::Process);
    let open = |number: usize| options.create(directory.path().join(format!("{number}.ehdb")));
    let all: Vec<Db> = (0..count).map(|number| open(number).unwrap()).collect();
    for (number, db) in all.iter().enumerate() {
        db.put(b"number", number.to_le_bytes()).unwrap();
    }
    for (number, db) in all.iter().enumerate() {
        assert_eq!(db.get(b"number").unwrap().unwrap(), number.to_le_bytes());
    }
}

#[test]
fn many_databases_are_open_in_one_process() {
    // Fails if each took so many addresses that a few filled the address space of the process.
    open_many(300, false);
}

#[test]
#[ignore = "more open files than most systems allow by default: `ulimit -n 20000`"]
fn thousands_of_databases_are_open_in_one_process() {
    // Fails if each open database took more addresses, files or threads than there are.
    open_many(4000, true);
}

#[test]
fn a_discarded_database_is_gone() {
    // Fails if a close behind the removal brought the file back, or if another handle lost it.
    let (directory, path) = place();
    let db = Db::open_or_create(&path).unwrap();
    db.put("key", "value").unwrap();
    let other = db.clone();
    assert!(matches!(db.discard(), Err(Error::InUse { .. })));
    other.close().unwrap();
    let reader = Db::open_read_only(&path).unwrap();
    assert!(matches!(reader.discard(), Err(Error::ReadOnly { .. })));
    assert_eq!(names(directory.path()), ["pairs.ehdb"]);
    let db = Db::open_or_create(&path).unwrap();
    assert_eq!(db.len().unwrap(), 1);
    db.discard().unwrap();
    assert!(names(directory.path()).is_empty());
    assert!(Db::open_or_create(&path).unwrap().is_empty().unwrap());
}

#[test]
fn every_database_has_an_identity_of_its_own() {
    // Fails if two had the same one: the note of a failed sync of one would be that of the other.
    let (directory, _) = place();
    let identity = |number: u8| {
        let path = directory.path().join(format!("{number}.ehdb"));
        Db::create(&path).unwrap().close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        bytes[8 * Header::DATABASE..][..16].to_vec()
    };
    let identities: BTreeSet<_> = (0..8).map(identity).collect();
    assert_eq!(identities.len(), 8);
}
