//! What goes in comes out, byte for byte.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Numbers, Place};

const UNICODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/unicode.tsv");

fn sorted_lines(text: &[u8]) -> Vec<u8> {
    let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable_by_key(|line| line.split(|byte| *byte == b'\t').next().unwrap().to_vec());
    lines.concat()
}

#[test]
fn real_data_comes_back_in_both_formats() {
    // Fails if a record were lost, changed or written in a way that import reads differently.
    let place = Place::new();
    let expected = sorted_lines(&std::fs::read(UNICODE).unwrap());
    let summary = place.json(&["import", UNICODE, "a.ehdb"]);
    assert_eq!((&summary["records"], &summary["new"]), (&34924.into(), &34924.into()));
    assert_eq!(summary["items"], 34924);
    assert_eq!(
        place.ok(&["get", "a.ehdb", "U+0041"]),
        b"name=LATIN CAPITAL LETTER A; category=Lu; combining=0; bidi=L; mirrored=N; \
          lower=U+0061\n"
    );
    assert!(place.ok(&["export", "a.ehdb", "--sort"]) == expected);
    place.ok(&["export", "a.ehdb", "a.jsonl"]);
    place.ok(&["import", "a.jsonl", "b.ehdb"]);
    place.ok(&["export", "b.ehdb", "b.tsv", "--sort"]);
    assert!(place.read("b.tsv") == expected);
    assert_eq!(place.json(&["check", "b.ehdb"])["records"], 34924);
}

#[test]
fn any_bytes_survive_in_both_formats() {
    // Fails for the first byte or length that some escape forgets.
    let place = Place::new();
    let mut numbers = Numbers(1);
    let mut pairs = BTreeMap::new();
    for length in (0..300).chain([4095, 4096, 65_536]) {
        let value_length = numbers.next() as usize % 5000;
        pairs.insert(numbers.bytes(length), numbers.bytes(value_length));
    }
    pairs.insert((0..=255).collect(), (0..=255).rev().collect());
    let db = everhash_store::Db::create(place.path("a.ehdb")).unwrap();
    for (key, value) in &pairs {
        db.put(key, value).unwrap();
    }
    db.close().unwrap();
    for format in ["tsv", "jsonl"] {
        let (text, copy) = (format!("a.{format}"), format!("{format}.ehdb"));
        place.ok(&["export", "a.ehdb", &text]);
        place.ok(&["import", &text, &copy, "--threads", "3"]);
        let db = everhash_store::Db::open(place.path(&copy)).unwrap();
        let back: BTreeMap<_, _> = db.iter().map(Result::unwrap).collect();
        assert!(back == pairs, "{format}");
    }
}

#[test]
fn of_equal_keys_the_last_one_wins() {
    // Fails if two threads shared the records of a key, or a batch were written out of order.
    let place = Place::new();
    let mut text = String::new();
    for round in 0..40 {
        for key in 0..500 {
            text += &format!("k{key}\t{round}\n");
        }
    }
    place.write("a.tsv", &text);
    for threads in ["1", "2", "16"] {
        let db = format!("{threads}.ehdb");
        let summary = place.json(&["import", "a.tsv", &db, "--threads", threads]);
        assert_eq!((&summary["new"], &summary["replaced"]), (&500.into(), &19_500.into()));
        let exported = place.ok(&["export", &db]);
        let lines: Vec<_> = exported.split(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 501);
        assert!(lines[..500].iter().all(|line| line.ends_with(b"\t39")));
    }
}

#[test]
fn what_happens_to_known_keys_can_be_chosen() {
    // Fails if an import replaced what it was told to keep, or went on where it was told to end.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\t1\nb\t2\n");
    let summary = place.json(&["import", "a.tsv", "a.ehdb", "--on-duplicate", "keep"]);
    assert_eq!((&summary["new"], &summary["kept"]), (&2.into(), &1.into()));
    assert_eq!(place.ok(&["get", "a.ehdb", "b"]), b"1\n");
    place.write("b.tsv", "c\t3\na\t3\nd\t3\n");
    place.ok(&["import", "b.tsv", "a.ehdb", "--on-duplicate", "keep"]);
    assert_eq!(place.ok(&["export", "a.ehdb", "--sort"]), b"a\t1\nb\t1\nc\t3\nd\t3\n");
    place.write("c.tsv", "e\t4\na\t4\nf\t4\n");
    let run = place.run(&["import", "c.tsv", "a.ehdb", "--on-duplicate", "error"]);
    run.fails(3, &["c.tsv:2: ", "in the database or", "stored before: 1"]);
    let expected = b"a\t1\nb\t1\nc\t3\nd\t3\ne\t4\n";
    assert_eq!(place.ok(&["export", "a.ehdb", "--sort"]), expected);
    place.ok(&["import", "b.tsv", "a.ehdb", "--on-duplicate", "replace"]);
    assert_eq!(place.ok(&["get", "a.ehdb", "a"]), b"3\n");
}

#[test]
fn lines_end_as_their_system_writes_them() {
    // Fails if the last line were dropped without its end, or a carriage return became data.
    let place = Place::new();
    let run = place.feed(&["import", "-", "a.ehdb"], b"a\t1\r\nb\t2\nc\t\nd\tx\\r\ne\t5");
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(place.ok(&["export", "a.ehdb", "--sort"]), b"a\t1\nb\t2\nc\t\nd\tx\\r\ne\t5\n");
}

#[test]
fn an_empty_file_makes_an_empty_database() {
    // Fails if no records were taken for a mistake.
    let place = Place::new();
    place.write("a.tsv", "");
    let summary = place.json(&["import", "a.tsv", "a.ehdb"]);
    assert_eq!(summary["records"], 0);
    assert!(summary["file_bytes_per_item"].is_f64(), "{summary}");
    assert_eq!(place.json(&["stats", "a.ehdb"])["items"], 0);
    assert_eq!(place.ok(&["export", "a.ehdb"]), b"");
}

#[test]
fn fixed_forms_take_pairs_of_their_length_only() {
    // Fails if a key of another length were cut or filled up.
    let place = Place::new();
    place.write("a.tsv", "12345678\tabcdefgh\n87654321\tABCDEFGH\n1234567\tshortkey\n");
    let run = place.run(&["import", "a.tsv", "a.ehdb", "--form", "8/8"]);
    run.fails(3, &["a.tsv:3: ", "8/8", "stored before: 2"]);
    assert_eq!(place.ok(&["get", "a.ehdb", "87654321"]), b"ABCDEFGH\n");
    assert_eq!(place.json(&["stats", "a.ehdb"])["form"], "8/8");
}

#[test]
fn an_export_replaces_a_file_only_when_it_is_complete() {
    // Fails if a failed export destroyed what was there before.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    place.write("out.tsv", "old");
    place.run(&["export", "missing.ehdb", "out.tsv"]).fails(4, &["missing.ehdb"]);
    assert_eq!(place.read("out.tsv"), b"old");
    place.ok(&["export", "a.ehdb", "out.tsv"]);
    assert_eq!(place.read("out.tsv"), b"a\t1\n");
    std::fs::create_dir(place.path("directory")).unwrap();
    let run = place.run(&["export", "a.ehdb", "directory"]);
    run.fails(4, &["everhash: directory: is a directory; name a file"]);
    assert_eq!(place.names(), ["a.ehdb", "a.tsv", "directory", "out.tsv"]);
}

#[test]
fn a_backup_holds_the_same_pairs() {
    // Fails if a backup lost a pair, or replaced a file.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\t2\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    assert_eq!(place.json(&["backup", "a.ehdb", "b.ehdb"])["items"], 2);
    assert_eq!(place.ok(&["export", "b.ehdb", "--sort"]), b"a\t1\nb\t2\n");
    place.run(&["backup", "a.ehdb", "b.ehdb"]).fails(4, &["b.ehdb", "already exists"]);
}

#[test]
fn an_export_replaces_a_file_and_nothing_of_what_it_was() {
    // Fails if a file that others read, or may not read, were another one for them afterwards, if
    // the new file took the place of a link, or if text took the place of the database.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "key", "value"]);
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for wanted in [0o644, 0o400] {
        place.write("a.tsv", "old");
        std::fs::set_permissions(place.path("a.tsv"), Permissions::from_mode(wanted)).unwrap();
        place.ok(&["export", "a.ehdb", "a.tsv"]);
        assert_eq!((place.read("a.tsv"), mode("a.tsv")), (b"key\tvalue\n".to_vec(), wanted));
        std::fs::remove_file(place.path("a.tsv")).unwrap();
    }
    place.write("real.tsv", "old");
    std::os::unix::fs::symlink("real.tsv", place.path("link.tsv")).unwrap();
    place.ok(&["export", "a.ehdb", "link.tsv"]);
    assert!(place.path("link.tsv").symlink_metadata().unwrap().is_symlink());
    assert_eq!(place.read("real.tsv"), b"key\tvalue\n");
    std::os::unix::fs::symlink("a.ehdb", place.path("same.ehdb")).unwrap();
    for itself in ["a.ehdb", "./a.ehdb", "same.ehdb"] {
        place.run(&["export", "a.ehdb", itself]).fails(2, &[itself, "is the database"]);
    }
    assert_eq!(place.ok(&["get", "a.ehdb", "key"]), b"value\n");
    std::os::unix::fs::symlink("nowhere.tsv", place.path("dangling.tsv")).unwrap();
    let run = place.run(&["export", "a.ehdb", "dangling.tsv"]);
    run.fails(4, &["dangling.tsv: is a symbolic link", "remove or mend the link"]);
    assert!(place.path("dangling.tsv").is_symlink() && !place.path("nowhere.tsv").exists());
}

#[test]
fn an_export_replaces_no_other_database() {
    // Fails if a swapped name cost a database, open elsewhere or not, or a second name of one.
    let place = Place::new();
    for name in ["a.ehdb", "live.ehdb", "closed.ehdb"] {
        place.ok(&["create", name]);
        place.ok(&["put", name, "key", name]);
    }
    std::fs::hard_link(place.path("a.ehdb"), place.path("second.ehdb")).unwrap();
    std::os::unix::fs::symlink("closed.ehdb", place.path("link.ehdb")).unwrap();
    // One header of two is left.
    let mut damaged = place.read("closed.ehdb");
    damaged[..512].fill(0);
    place.write("damaged.ehdb", &damaged);
    // One that a machine of the other byte order made, whose numbers are written the other way.
    damaged[4096..4104].reverse();
    place.write("other.ehdb", damaged);
    let names = place.names();
    let live = everhash_store::Db::open(place.path("live.ehdb")).unwrap();
    for target in
        ["live.ehdb", "closed.ehdb", "damaged.ehdb", "other.ehdb", "second.ehdb", "link.ehdb"]
    {
        for sort in [&[][..], &["--sort"]] {
            let run = place.run(&[&["export", "a.ehdb", target][..], sort].concat());
            run.fails(2, &[target, "is a database", "name another file"]);
        }
    }
    assert_eq!(live.get("key").unwrap().as_deref(), Some(&b"live.ehdb"[..]));
    live.close().unwrap();
    for name in ["a.ehdb", "live.ehdb", "closed.ehdb"] {
        assert_eq!(place.ok(&["get", name, "key"]), format!("{name}\n").as_bytes());
    }
    assert_eq!(place.names(), names);
    // A text is none, whatever its first key.
    place.write("a.tsv", "EVERHASH\tis a key here\n");
    place.ok(&["export", "a.ehdb", "a.tsv"]);
    assert_eq!(place.read("a.tsv"), b"key\ta.ehdb\n");
}

#[test]
fn an_import_reads_no_database_into_itself() {
    // Fails if the bytes of the file were stored as records of the same file.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "key", "value"]);
    std::fs::hard_link(place.path("a.ehdb"), place.path("second.ehdb")).unwrap();
    std::os::unix::fs::symlink("a.ehdb", place.path("link.ehdb")).unwrap();
    for itself in ["a.ehdb", "./a.ehdb", "second.ehdb", "link.ehdb"] {
        place.run(&["import", itself, "a.ehdb"]).fails(2, &[itself, "is the database"]);
    }
    assert_eq!(place.ok(&["export", "a.ehdb"]), b"key\tvalue\n");
    // One file of text under both names is no database either.
    place.write("a.tsv", "a\t1\n");
    place.run(&["import", "a.tsv", "a.tsv"]).fails(2, &["a.tsv", "name another file"]);
    assert_eq!(place.read("a.tsv"), b"a\t1\n");
}

#[test]
fn the_name_of_a_file_says_its_format_unless_it_is_told() {
    // Fails if one of the usual names of lines of JSON were read as text with tabs, or the other
    // way round.
    let place = Place::new();
    let json = b"{\"key\":\"a\",\"value\":\"1\"}\n";
    for name in ["a.jsonl", "a.ndjson", "a.json"] {
        place.write(name, json);
        let database = format!("{name}.ehdb");
        place.ok(&["import", name, &database]);
        assert_eq!(place.ok(&["get", &database, "a"]), b"1\n", "{name}");
        place.ok(&["export", &database, name]);
        assert_eq!(place.read(name), json);
    }
    place.write("b.txt", json);
    place.run(&["import", "b.txt", "b.ehdb"]).fails(3, &["b.txt:1: ", "tab"]);
    place.ok(&["import", "b.txt", "b.ehdb", "--format", "jsonl"]);
    place.ok(&["export", "b.ehdb", "b.json", "--format", "tsv"]);
    assert_eq!(place.read("b.json"), b"a\t1\n");
}
