//! Input that cannot be read: one line says where and what to do, and nothing is lost.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn a_bad_line_is_named_and_what_came_before_it_stays() {
    // Fails if a bad line were skipped, or cost what was stored before it.
    let long_key = "k".repeat(65_537) + "\tv\n";
    let cases: [(&str, &str, &str); 18] = [
        ("a.tsv", "no tab here\n", "no tab"),
        ("a.tsv", "\n", "no tab"),
        ("a.tsv", "key\\x\tvalue\n", "byte 4 "),
        ("a.tsv", "key\tvalue\\", "byte 10 "),
        ("a.tsv", &long_key, "65537 bytes"),
        ("a.jsonl", "{\"key\":\"a\"\n", "invalid JSON at byte"),
        ("a.jsonl", "key\tvalue\n", "not a record, at byte 1 of the line; write "),
        ("a.jsonl", "key\tvalue\n", ", or say --format tsv"),
        ("a.tsv", "{\"key\":\"a\",\"value\":\"b\"}\n", ", or say --format jsonl"),
        // A file whose end is missing.
        ("a.tsv", "key", "no tab; write the key, a tab and the value on one line; no line end"),
        ("a.jsonl", "{\"key\":\"a\",\"val", "byte 15 of the line, where it ends inside of the"),
        ("a.jsonl", "{\"key\":\"a\",\"val", "the input may have been cut off"),
        ("a.jsonl", "{\"key\":\"a\"}\n", "\"value\""),
        ("a.jsonl", "{\"key\":1,\"value\":\"b\"}\n", "not a record"),
        ("a.jsonl", "{\"key\":\"a\",\"value\":\"b\",\"c\":1}\n", "not a record"),
        ("a.jsonl", "{\"key_hex\":\"0g\",\"value\":\"b\"}\n", "key_hex has no hexadecimal digit"),
        ("a.jsonl", "{\"key\":\"\\ud800\",\"value\":\"b\"}\n", "invalid JSON at byte"),
        ("a.jsonl", "[]\n", "not a record"),
    ];
    for (name, line, message) in cases {
        let place = Place::new();
        let good = if name == "a.tsv" {
            "a\t1\nb\t2\n"
        } else {
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n"
        };
        place.write("good.tsv", "z\t9\n");
        place.ok(&["import", "good.tsv", "a.ehdb"]);
        place.write(name, format!("{good}{line}"));
        place.run(&["import", name, "a.ehdb"]).fails(3, &[&format!("{name}:3: "), message]);
        assert_eq!(place.ok(&["export", "a.ehdb", "--sort"]), b"a\t1\nb\t2\nz\t9\n", "{line}");
        place.ok(&["check", "a.ehdb"]);
        // A file that is wrong from its first line on leaves no database behind.
        place.write(name, line);
        place.run(&["import", name, "b.ehdb"]).fails(3, &[&format!("{name}:1: "), message]);
        assert!(!place.path("b.ehdb").exists());
    }
}

#[test]
fn a_pair_that_is_too_long_for_its_table_is_named_and_what_came_before_it_stays() {
    // Fails if a table with a name were taken for the default one, which takes keys of 8 bytes
    // more, or one with expiry times for one without, whose values are as much longer: all records
    // of the batch were lost with it, and no line was named. Or if one without were taken for one
    // with them, and refused what it can hold.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let key = "k".repeat(65_536 - 7) + "\tv\n";
    let value = "k\t".to_owned() + &"v".repeat((1 << 24) - 7) + "\n";
    let marked = [&[0xff, 0xeb, 0x7a][..], &[b'k'; 65_536 - 10], b"\tv\n"].concat();
    let named = ["--table", "t"];
    let ends = ["--table", "e", "--expires-after", "1000"];
    for (line, table, part) in [
        (key.as_bytes(), &named[..], "65529 bytes"),
        (key.as_bytes(), &ends, "65529 bytes"),
        (value.as_bytes(), &ends, "16777209 bytes"),
        (&marked, &[], "65529 bytes"),
    ] {
        place.write("a.tsv", [b"a\t1\nb\t2\n", line].concat());
        let with = |arguments: &[&str]| place.run(&[arguments, table].concat());
        with(&["import", "a.tsv", "a.ehdb"]).fails(3, &["a.tsv:3: ", part]);
        let of = &table[..table.len().min(2)];
        let exported = place.ok(&[&["export", "a.ehdb", "--sort"], of].concat());
        assert_eq!(exported, b"a\t1\nb\t2\n");
        // A file that is wrong from its first line on leaves no database behind.
        place.write("b.tsv", line);
        with(&["import", "b.tsv", "b.ehdb"]).fails(3, &["b.tsv:1: ", part]);
        assert!(!place.path("b.ehdb").exists());
    }
    // A table without expiry times takes the value.
    place.write("a.tsv", value);
    place.ok(&["import", "a.tsv", "a.ehdb", "--table", "t"]);
}

#[test]
fn messages_show_no_data() {
    // Fails if a record that cannot be stored were quoted where others may read it.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let cases = [
        ("secret", "tsv"),
        ("secret\tsecret\\q", "tsv"),
        ("{\"key\":\"secret\",\"value\":5}", "jsonl"),
        ("{\"secret\":\"secret\"}", "jsonl"),
    ];
    for (line, format) in cases {
        let run = place.feed(&["import", "-", "a.ehdb", "--format", format], line.as_bytes());
        run.fails(3, &["standard input:1: "]);
        assert!(!run.stderr.contains("secret"), "{run:?}");
    }
    let long = "secret".repeat(11_000);
    let run = place.run(&["put", "a.ehdb", &long, "value"]);
    run.fails(3, &["66000 bytes", "65536"]);
    assert!(!run.stderr.contains("secret"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    // Fails if a wrong name of the input left an empty database behind.
    let place = Place::new();
    std::fs::create_dir(place.path("directory")).unwrap();
    place.run(&["import", "missing.tsv", "a.ehdb"]).fails(3, &["missing.tsv", "no such file"]);
    place.run(&["import", "directory", "a.ehdb"]).fails(3, &["directory", "is a directory"]);
    assert_eq!(place.names(), ["directory"]);
}

#[test]
fn a_value_that_cannot_be_read_is_not_stored() {
    // Fails if an error of standard input made a value of what came before it.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let mut command = place.command(&["put", "a.ehdb", "key", "--stdin"]);
    command.stdin(std::fs::File::open(place.directory()).unwrap());
    let run = crate::support::Run::of(command.output().unwrap());
    run.fails(3, &["standard input: cannot be read: "]);
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"0\n");
}

#[test]
fn a_database_is_no_text_to_import() {
    // Fails if whoever wants to move a database were told that a line of it lacks a tab.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let run = place.run(&["import", "a.ehdb", "b.ehdb"]);
    run.fails(3, &["a.ehdb: is a database, ", "export it", "everhash backup"]);
    assert_eq!(place.names(), ["a.ehdb"]);
    // A text that begins with the same letters is one.
    place.write("a.tsv", "EVERHASH\tvalue that is long enough\n");
    place.ok(&["import", "a.tsv", "b.ehdb"]);
}

#[test]
fn a_key_that_is_there_already_names_its_line() {
    // Fails if whoever asked for no duplicates were sent to the database for one in the file.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\t2\na\t3\n");
    let run = place.run(&["import", "a.tsv", "a.ehdb", "--on-duplicate", "error"]);
    run.fails(3, &["a.tsv:3: the key is there already, ", "earlier line", "--on-duplicate keep"]);
    // A wrong line behind it was read sooner, and comes later.
    place.write("b.tsv", "c\t1\nc\t2\nno tab\n");
    let run = place.run(&["import", "b.tsv", "b.ehdb", "--on-duplicate", "error"]);
    run.fails(3, &["b.tsv:2: the key is there already, ", "stored before: 1"]);
    // Nothing behind it is stored, whatever the number of threads.
    let text: String = (0..500).map(|number| format!("k{number}\t1\n")).collect();
    place.write("c.tsv", format!("k0\t1\n{text}"));
    let run =
        place.run(&["import", "c.tsv", "c.ehdb", "--on-duplicate", "error", "--threads", "9"]);
    run.fails(3, &["c.tsv:2: the key is there already, ", "stored before: 1"]);
    assert_eq!(place.ok(&["count", "c.ehdb"]), b"1\n");
}

#[test]
fn a_line_that_never_ends_is_refused_in_bounded_memory() {
    // Fails if a line were read to its end, however long: such an input would take all memory.
    let place = Place::new();
    let script = "ulimit -v 1000000; head -c 400000000 /dev/zero | \"$0\" import - a.ehdb";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, crate::support::PROGRAM]).current_dir(place.directory());
    let run = crate::support::Run::of(command.output().unwrap());
    run.fails(3, &["standard input:1: ", "longer than any record"]);
    assert!(place.names().is_empty());
}

#[test]
fn a_name_with_a_line_end_gives_one_line() {
    // Fails if a file name could forge a second message.
    let place = Place::new();
    place.run(&["import", "no\nsuch.tsv", "a.ehdb"]).fails(3, &["no\u{fffd}such.tsv"]);
}

#[test]
fn a_value_that_is_too_long_is_refused_and_not_cut() {
    // Fails if what does not fit were left out, and the rest stored as if it were all.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let put = ["put", "a.ehdb", "key", "--stdin"];
    let mut value = vec![b'v'; (16 << 20) + 1];
    place.feed(&put, &value).fails(3, &["16777217 bytes", "16777216"]);
    assert_eq!(place.run(&["contains", "a.ehdb", "key"]).status, 1);
    value.pop();
    place.feed(&put, &value).ok();
    assert_eq!(place.ok(&["get", "a.ehdb", "key", "--length"]), b"16777216\n");
}
