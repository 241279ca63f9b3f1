//! What a copy of a database keeps of it.

use std::path::Path;

use crate::{Db, Durability, Expiry, Form, HashKind, engines};

/// Returns when writes to a database are durable that is opened without a word about it.
fn by_itself(path: &Path) -> Durability {
    Db::open(path).unwrap().info().durability
}

#[test]
fn a_copy_of_an_immediate_database_is_one() {
    // Fails if whoever compacts a database, or restores a backup of it, from then on loses writes
    // by power loss that had returned.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let path = place("pairs.ehdb");
        let options = Db::options().engine(engine.name).expected_items(100);
        let db = options.clone().durability(Durability::Immediate).create(&path).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
        let db = Db::open(&path).unwrap();
        assert_eq!(db.info().durability, Durability::Immediate, "{}", engine.name);
        db.backup(place("backup"), &Db::options()).unwrap();
        db.checkpoint(place("checkpoint")).unwrap();
        let db = db.compact().unwrap();
        assert_eq!(db.info().durability, Durability::Immediate, "{}", engine.name);
        db.close().unwrap();
        Db::salvage(&path, place("salvaged"), &Db::options()).unwrap();
        for copy in ["pairs.ehdb", "backup", "checkpoint", "salvaged"] {
            let found = by_itself(&place(copy));
            assert_eq!(found, Durability::Immediate, "{}: {copy}", engine.name);
            assert_eq!(Db::open(place(copy)).unwrap().len().unwrap(), 1);
        }
        // However it is open for the moment.
        let relaxed = Db::options().durability(Durability::Process).open(&path).unwrap();
        relaxed.truncate().unwrap().close().unwrap();
        assert_eq!(by_itself(&path), Durability::Immediate, "{}", engine.name);
    }
}

#[test]
fn a_copy_is_immediate_if_that_is_chosen_for_it_and_else_as_it_was() {
    // Fails if what was chosen were ignored, or if a database that batches became slow by a copy.
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let path = place("pairs.ehdb");
    let immediate = Db::options().durability(Durability::Immediate);
    Db::create(&path).unwrap().close().unwrap();
    // Open as an immediate one, which it is not by itself.
    let db = immediate.open(&path).unwrap();
    db.put("key", "value").unwrap();
    db.backup(place("batch"), &Db::options()).unwrap();
    db.backup(place("immediate"), &immediate).unwrap();
    db.compact().unwrap().close().unwrap();
    Db::salvage(&path, place("salvaged"), &immediate).unwrap();
    assert_eq!(by_itself(&path), Durability::Batch);
    assert_eq!(by_itself(&place("batch")), Durability::Batch);
    assert_eq!(by_itself(&place("immediate")), Durability::Immediate);
    assert_eq!(by_itself(&place("salvaged")), Durability::Immediate);
}

#[test]
fn every_copy_has_the_engine_the_form_and_the_hash_function_of_its_original() {
    // Fails if what nobody names, because the file says it, were chosen anew for a copy.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let path = place("pairs.ehdb");
        let options = Db::options().engine(engine.name).form(Form::WORDS).hash(HashKind::Xxh3);
        let db = options.expected_items(100).create(&path).unwrap();
        db.put([1; 8], [2; 8]).unwrap();
        db.close().unwrap();
        let db = Db::open(&path).unwrap();
        db.backup(place("backup"), &Db::options()).unwrap();
        db.checkpoint(place("checkpoint")).unwrap();
        db.close().unwrap();
        Db::salvage(&path, place("salvaged"), &Db::options()).unwrap();
        Db::open(&path).unwrap().compact().unwrap().close().unwrap();
        let expected = (engine.name, Form::WORDS, HashKind::Xxh3);
        for copy in ["pairs.ehdb", "backup", "checkpoint", "salvaged"] {
            let db = Db::open(place(copy)).unwrap();
            let info = db.info();
            assert_eq!((info.engine.name, info.form, info.hash), expected, "{copy}");
            assert_eq!(db.get([1; 8]).unwrap().unwrap(), [2; 8], "{copy}");
        }
        let db = Db::open(&path).unwrap().truncate().unwrap();
        let info = db.info();
        assert_eq!((info.engine.name, info.form, info.hash), expected, "truncated");
    }
}

#[test]
fn a_salvaged_database_has_its_tables_with_expiry_times() {
    // Fails if the mark of such a table were taken for a part of its number, which no header holds.
    for engine in engines() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["pairs.ehdb", "copy.ehdb"].map(|name| directory.path().join(name));
        let db = Db::options().engine(engine.name).create(&path).unwrap();
        let table = db.expiring_table_or_create("sessions").unwrap();
        table.put("key", "value", Expiry::Never).unwrap();
        drop(table);
        db.close().unwrap();
        assert_eq!(Db::salvage(&path, &copy, &Db::options()).unwrap().items, 1);
        let db = Db::open(&copy).unwrap();
        let table = db.expiring_table("sessions").unwrap();
        assert_eq!(table.get("key").unwrap().unwrap(), b"value", "{}", engine.name);
        assert_eq!(db.create_table("new").unwrap().iter().count(), 0);
    }
}
