//! A database that is written anew in its place: compacted, or truncated.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use everhash_store::{Change, Db, Durability, Error, ErrorKind, Form, HashKind, engines};

fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_compacted_database_holds_the_same_pairs_in_less_room() {
    // Fails if a pair were lost, added or changed, a choice forgotten, storage kept, or anything
    // left behind, with any engine.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let options = Db::options().engine(engine.name).hash(HashKind::Xxh3).mode(0o640);
        let options = options.durability(Durability::Process);
        let db = options.create(&path).unwrap();
        for number in 0..20_000u32 {
            db.put(number.to_le_bytes(), [number as u8; 100]).unwrap();
        }
        db.retain(|key, _| key[0] == 7).unwrap();
        let (before, inode) = (db.stats().unwrap().device_bytes, path.metadata().unwrap().ino());
        let db = db.compact().unwrap();
        assert_eq!(db.len().unwrap(), 79, "{}", engine.name);
        for number in (0..20_000u32).filter(|number| number.to_le_bytes()[0] == 7) {
            assert_eq!(db.get(number.to_le_bytes()).unwrap().unwrap(), [7; 100]);
        }
        let after = db.stats().unwrap().device_bytes;
        assert!(after < before / 2, "{}: {before} to {after}", engine.name);
        assert_eq!((db.info().engine.name, db.info().hash), (engine.name, HashKind::Xxh3));
        let found = path.metadata().unwrap();
        assert!(found.ino() != inode && found.len() == after);
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        db.put("more", "1").unwrap();
        db.check().unwrap();
        db.close().unwrap();
        assert_eq!(names(directory.path()), ["pairs.ehdb"]);
        assert_eq!(Db::check_at_rest(&path).unwrap().items, 80);
    }
}

#[test]
fn a_truncated_database_is_empty_and_as_it_was_chosen() {
    // Fails if a pair were left, or the empty file had another engine, form or durability.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let options = Db::options().engine("wophi").form(Form::WORDS);
    let db = options.durability(Durability::Process).create(&path).unwrap();
    let words = db.words().unwrap();
    for number in 0..10_000 {
        words.put(number, number).unwrap();
    }
    let before = path.metadata().unwrap().len();
    let db = db.truncate().unwrap();
    assert_eq!((db.len().unwrap(), db.info().engine.name), (0, "wophi"));
    assert!(path.metadata().unwrap().len() < before);
    let words = db.words().unwrap();
    assert_eq!(words.get(7).unwrap(), None);
    words.put(7, 8).unwrap();
    db.close().unwrap();
    assert_eq!(Db::open(&path).unwrap().words().unwrap().get(7).unwrap(), Some(8));
}

#[test]
fn a_symbolic_link_stays_one() {
    // Fails if the new file took the place of the link, and its target stayed as it was.
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("pairs.ehdb"), directory.path().join("link"));
    Db::create(&path).unwrap().close().unwrap();
    symlink("pairs.ehdb", &link).unwrap();
    let db = Db::open(&link).unwrap();
    db.put("key", "value").unwrap();
    db.truncate().unwrap().close().unwrap();
    assert!(link.symlink_metadata().unwrap().file_type().is_symlink());
    assert!(Db::open(&path).unwrap().is_empty().unwrap());
}

#[test]
fn permissions_that_were_changed_stay_so() {
    // Fails if the new file has those with which databases are made: others would lose the right
    // to read it, or get it.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
    Db::create(&path).unwrap().close().unwrap();
    for changed in [0o640, 0o400] {
        let db = Db::open(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(changed)).unwrap();
        let db = if changed == 0o640 { db.compact() } else { db.truncate() };
        db.map_or_else(drop, drop);
        assert_eq!(mode(), changed);
    }
}

#[test]
fn what_cannot_be_written_anew_stays_as_it_is() {
    // Fails if a compaction that is refused cost a pair.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::create(&path).unwrap();
    db.put("key", "value").unwrap();
    let other = db.clone();
    assert!(matches!(db.compact(), Err(Error::InUse { others: 1, .. })));
    assert_eq!(other.get("key").unwrap().unwrap(), b"value");
    // Something is in the way: the database is closed, and as it was.
    let blocked = directory.path().join(".pairs.ehdb.compact");
    std::fs::create_dir(&blocked).unwrap();
    assert_eq!(other.compact().unwrap_err().kind(), ErrorKind::AlreadyExists);
    std::fs::remove_dir(&blocked).unwrap();
    let db = Db::open_read_only(&path).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    assert!(matches!(db.truncate(), Err(Error::ReadOnly { .. })));
    assert_eq!(names(directory.path()), ["pairs.ehdb"]);
}

#[test]
fn a_new_file_has_the_mode_that_was_chosen() {
    // Fails if others could read what its owner did not share.
    let directory = tempfile::tempdir().unwrap();
    for (mode, name) in [(0o600, "own"), (0o640, "group")] {
        let path = directory.path().join(name);
        Db::options().mode(mode).create(&path).unwrap().close().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn many_are_added_where_they_are_absent() {
    // Fails if a key that was there got the new value, or the second of two equal ones won.
    let directory = tempfile::tempdir().unwrap();
    for engine in engines() {
        let db =
            Db::options().engine(engine.name).create(directory.path().join(engine.name)).unwrap();
        db.put("a", "old").unwrap();
        let pairs = [("a", "new"), ("b", "first"), ("b", "second"), ("c", "")];
        assert_eq!(db.put_many_if_absent(&pairs).unwrap(), 2);
        assert_eq!(db.get("a").unwrap().unwrap(), b"old");
        assert_eq!(db.get("b").unwrap().unwrap(), b"first");
        assert_eq!(db.get("c").unwrap().unwrap(), b"");
        db.modify("c", |_| (Change::Remove, ())).unwrap();
        assert_eq!(db.put_many_if_absent(&pairs).unwrap(), 1);
    }
}

#[test]
fn a_relative_path_means_the_same_file_after_a_change_of_directory() {
    // Fails if the file were looked for, or made anew, from where the process is by now: it is
    // another one there, or none, and the database would be closed by an error.
    const ALONE: &str = "EVERHASH_ELSEWHERE";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own: all threads share the directory.
        let name = "rewriting::a_relative_path_means_the_same_file_after_a_change_of_directory";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        return;
    }
    let [home, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let figures = std::time::Duration::from_secs(3600);
    let options = Db::options().metrics_file("pairs.prom", figures);
    std::env::set_current_dir(home.path()).unwrap();
    let mut db = options.create("pairs.ehdb").unwrap();
    db.put("key", "value").unwrap();
    for directory in [&elsewhere, &home, &elsewhere] {
        std::env::set_current_dir(directory.path()).unwrap();
        db = db.compact().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    }
    db.discard().unwrap();
    assert_eq!(names(home.path()), ["pairs.prom"]);
    assert!(names(elsewhere.path()).is_empty());
}

#[test]
fn a_compacted_table_is_the_same_table() {
    // Fails if what is put by the handle that comes back went into the default table.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::create(&path).unwrap();
    db.create_table("first").unwrap().put("key", "first").unwrap();
    let second = db.create_table("second").unwrap();
    second.put("key", "second").unwrap();
    drop(db);
    let second = second.compact().unwrap();
    assert_eq!(second.table_name(), Some("second"));
    assert_eq!(second.get("key").unwrap().unwrap(), b"second");
    assert_eq!(second.table("first").unwrap().get("key").unwrap().unwrap(), b"first");
    // One that was dropped has no handle, and an empty database no table.
    let dropped = second.table("first").unwrap();
    assert!(dropped.drop_table("first").unwrap());
    assert_eq!(dropped.compact().unwrap_err().kind(), ErrorKind::NoTable);
    let db = second.truncate().unwrap();
    assert!(db.table_name().is_none() && db.tables().unwrap().is_empty());
}

#[test]
fn a_database_with_the_longest_name_can_be_written_anew() {
    // Fails if the name of the new file, which was made of that of the old one, were longer than
    // the file system allows.
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("pairs.ehdb");
    for length in [100, 101, 255] {
        let name = "n".repeat(length);
        let path = directory.path().join(&name);
        let db = Db::create(&made).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
        std::fs::rename(&made, &path).unwrap();
        // What a killed process left goes.
        let inode = path.metadata().unwrap().ino();
        let left = if length == 100 { name.clone() } else { format!("everhash-{inode}") };
        std::fs::write(directory.path().join(format!(".{left}.compact")), [0; 4096]).unwrap();
        let db = Db::open(&path).unwrap().compact().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
        db.truncate().unwrap().close().unwrap();
        assert_eq!(names(directory.path()), [name]);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_truncated_file_is_no_longer_than_the_old_one() {
    // Fails if who gives back storage got a file for as many pairs as a new database is made for.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pairs.ehdb");
        let options = Db::options().engine(engine.name).expected_items(10);
        let db = options.durability(Durability::Process).create(&path).unwrap();
        let length = || path.metadata().unwrap().len();
        let made = length();
        let db = db.truncate().unwrap();
        let once = length();
        assert!(once <= made, "{}: {made}, then {once}", engine.name);
        let db = db.compact().unwrap().truncate().unwrap();
        assert!(length() <= once, "{}: {once}, then {}", engine.name, length());
        db.put("key", "value").unwrap();
    }
}
