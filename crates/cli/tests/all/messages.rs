//! What a failure says: one line, with the name of the file and with what helps, and no data.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::os::unix::fs::symlink;

use crate::support::{Place, Run};

/// Makes `a.ehdb` with 2,000 pairs.
fn with_pairs() -> Place {
    let place = Place::new();
    let lines: String = (0..2000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", lines);
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    place
}

#[test]
fn a_wrong_command_line_is_told_in_one_line_and_without_data() {
    // Fails if a forgotten quote put a part of a value into the terminal's or a service's log, or
    // if what is wrong took more lines than one.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    for (arguments, part) in [
        (&["put", "a.ehdb", "key", "my", "secret"][..], "argument 5 is one too many; quote"),
        (&["put", "a.ehdb", "secret", "secret", "secret"], "an argument is one too many"),
        (&["put", "a.ehdb", "key", "--secret"], "argument 4 is no option here; put --"),
        (&["put", "a.ehdb", "key", "--secret=secret"], "argument 4 is no option here; put --"),
        (&["put", "a.ehdb", "secret"], "missing: <VALUE>"),
        (&["put", "a.ehdb"], "missing: <KEY>, <VALUE>; see everhash put --help"),
        (&["add", "a.ehdb", "key", "secret"], "the value of [NUMBER]: "),
        (&["get", "a.ehdb", "key", "--range", "secret"], "--range <FROM..TO>: write FROM..TO"),
        (&["get", "a.ehdb", "secret", "--range"], "a value is missing for --range"),
        (&["get", "a.ehdb", "key", "--tabel", "secret"], "argument 4 is no option here"),
        (&["get", "a.ehdb", "key", "--raw", "--length"], "--raw does not go with --length"),
        (&["export", "a.ehdb", "--format", "secret"], "takes one of: tsv, jsonl"),
        (&["import", "-", "a.ehdb", "--threads", "0"], "--threads <COUNT>: "),
        (&["secret"], "there is no such command"),
        (&["compct", "a.ehdb"], " or compact meant?"),
    ] {
        let run = place.run(arguments);
        run.fails(2, &[part, "; see everhash "]);
        assert!(!run.stderr.contains("secret"), "{run:?}");
    }
    place.run(&["get", "a.ehdb", "key", "--tabel", "t"]).fails(2, &["is --table meant?"]);
    place.run(&["get", "a.ehdb"]).fails(2, &["see everhash get --help"]);
}

#[test]
fn help_is_a_command_too() {
    // Fails if who asks as of other programs were told that there is no such command.
    let place = Place::new();
    assert_eq!(place.ok(&["help"]), place.ok(&["--help"]));
    assert_eq!(place.ok(&["help", "get"]), place.ok(&["get", "--help"]));
    assert_eq!(place.ok(&["help", "device", "list"]), place.ok(&["device", "list", "--help"]));
    // Nothing is stored.
    let help = place.ok(&["help", "put", "a.ehdb", "--", "k"]);
    assert_eq!(help, place.ok(&["put", "--help"]));
}

#[test]
fn a_damaged_database_leads_to_what_salvages_it() {
    // Fails if every command, repair itself among them, sent its user to repair.
    let place = with_pairs();
    let mut damaged = place.read("a.ehdb");
    let value = damaged.windows(9).position(|bytes| bytes == b"value1000").unwrap();
    damaged[value..value + 8].fill(0xff);
    place.write("a.ehdb", &damaged);
    let parts = ["a.ehdb: damaged at byte", "restore a backup", "repair DB --into NEW_DB"];
    for (status, arguments) in [
        (1, &["check", "a.ehdb"][..]),
        (1, &["repair", "a.ehdb"]),
        (4, &["get", "a.ehdb", "key1000"]),
        (4, &["export", "a.ehdb", "b.tsv"]),
    ] {
        place.run(arguments).fails(status, &parts);
    }
    let run = place.run(&["repair", "a.ehdb", "--into", "b.ehdb"]);
    let passed = "everhash: a.ehdb: 1 damage passed over\n";
    assert_eq!((run.status, &run.stderr[..]), (1, passed), "{run:?}");
    // Where that has nothing to copy from, it does not name itself.
    damaged[512..1024].fill(0xa5);
    place.write("a.ehdb", &damaged);
    let run = place.run(&["repair", "a.ehdb", "--into", "c.ehdb"]);
    run.fails(1, &["a.ehdb: damaged at byte", "nothing can be copied", "restore a backup"]);
    assert!(!run.stderr.contains("--into") && !run.stderr.contains("salvage"), "{run:?}");
}

#[test]
fn a_directory_that_is_missing_is_named() {
    // Fails if who makes a file were told to create it first, or shown a name of ours.
    let place = with_pairs();
    for arguments in [
        &["create", "nodir/b.ehdb"][..],
        &["backup", "a.ehdb", "nodir/b.ehdb"],
        &["import", "a.tsv", "nodir/b.ehdb"],
        &["export", "a.ehdb", "nodir/b.tsv"],
        &["repair", "a.ehdb", "--into", "nodir/b.ehdb"],
        &["get", "nodir/b.ehdb", "key"],
    ] {
        let run = place.run(arguments);
        run.fails(4, &["everhash: nodir: ", "no such directory", "make the directory"]);
    }
    place.run(&["get", "b.ehdb", "key"]).fails(4, &["b.ehdb: there is no such file"]);
}

#[test]
fn a_link_to_nothing_is_named_as_one() {
    // Fails if one command said "already exists; open it" and the next "create it first".
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    symlink("nothing", place.path("a.ehdb")).unwrap();
    for arguments in
        [&["create", "a.ehdb"][..], &["get", "a.ehdb", "key"], &["import", "a.tsv", "a.ehdb"]]
    {
        place.run(arguments).fails(4, &["a.ehdb: is a symbolic link", "remove or mend the link"]);
    }
}

#[test]
fn a_pair_that_is_refused_names_its_database() {
    // Fails if the message were of "this pool", which nobody knows, or did not say what helps.
    let place = Place::new();
    place.ok(&["create", "a.ehdb", "--form", "8/8"]);
    let parts = ["everhash: a.ehdb: ", "form 8/8", "form variable"];
    let run = place.run(&["put", "a.ehdb", "abc", "d"]);
    run.fails(3, &parts);
    run.fails(3, &["this one has 3/1; "]);
    assert_eq!(run.stderr.matches("a.ehdb: ").count(), 1, "{run:?}");
    place.run(&["add", "a.ehdb", "abc"]).fails(3, &parts);
}

#[test]
fn a_table_of_the_other_kind_says_which_option_it_wants() {
    // Fails if the advice were to drop the table, whose pairs nobody wants to lose.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "k", "v", "--table", "ends", "--expires-after", "600"]);
    place.ok(&["put", "a.ehdb", "k", "v", "--table", "stays"]);
    for arguments in [
        &["put", "a.ehdb", "k", "v", "--table", "ends"][..],
        &["add", "a.ehdb", "k", "--table", "ends"],
    ] {
        let run = place.run(arguments);
        run.fails(
            2,
            &["a.ehdb: ", "\"ends\" have expiry times; put and import take --expires-after"],
        );
        assert!(!run.stderr.contains("drop"), "{run:?}");
        assert_eq!(run.stderr.matches("a.ehdb: ").count(), 1, "{run:?}");
    }
    // Other commands work there, so that the message must not send them to another table.
    for arguments in
        [&["get", "a.ehdb", "k"][..], &["contains", "a.ehdb", "k"], &["count", "a.ehdb"]]
    {
        place.ok(&[arguments, &["--table", "ends"]].concat());
    }
    let put = ["put", "a.ehdb", "k", "v", "--table", "stays", "--expires-after", "600"];
    place.run(&put).fails(2, &["a.ehdb: ", "\"stays\" have no expiry times; leave"]);
}

#[test]
fn a_setting_or_a_form_that_there_is_not_is_a_wrong_command_line() {
    // Fails if a name that is missing were called "?", or a form that no engine has a failure of
    // the database.
    let place = Place::new();
    place.run(&["create", "a.ehdb", "--set", "foo=1"]).fails(2, &["settings: there is no 'foo'"]);
    for command in [&["create", "a.ehdb"][..], &["bench", "--items", "100"]] {
        let run = place.run(&[command, &["--form", "4/4"]].concat());
        run.fails(2, &["--form <FORM>: ", "8/8, 16/16 or variable"]);
    }
    place.run(&["bench", "--items", "100", "--threads", "1,0"]).fails(2, &["--threads <LIST>: "]);
    place.run(&["bench", "--items", "0"]).fails(2, &["--items <COUNT>: "]);
    for command in [
        &["bench", "--items", "100"][..],
        &["bench", "--items", "300", "--instructions"],
        &["scale", "s", "--items", "100"],
    ] {
        place.run(&[command, &["--set", "foo=1"]].concat()).fails(2, &["there is no 'foo'"]);
    }
    let settings = ["torture", "--kills", "3", "--directory", ".", "--engine"];
    for (options, part) in [
        (&["reef", "--form", "16/16"][..], "--form <FORM>: "),
        (&["reef", "--set", "foo=1"], "there is no 'foo'"),
        (&["turbo", "--set", "durability=1"], "durability"),
    ] {
        place.run(&[&settings[..], options].concat()).fails(2, &[part]);
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn what_a_check_a_backup_and_a_compaction_count_is_said_as_what_it_is() {
    // Fails if a check called records of the catalogue items, so that a backup after it looked like
    // a loss, or if a compaction counted one table and a backup all of them.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\t2\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    for table in ["one", "two"] {
        place.ok(&["put", "a.ehdb", "k", "v", "--table", table]);
    }
    place.ok(&["put", "a.ehdb", "k", "v", "--table", "ends", "--expires-after", "600"]);
    let text = |arguments: &[&str]| String::from_utf8(place.ok(arguments)).unwrap();
    let checked = place.json(&["check", "a.ehdb"])["records"].as_u64().unwrap();
    assert!(checked > 5, "{checked}");
    assert!(
        text(&["check", "a.ehdb"]).starts_with(&format!("a.ehdb: sound; {checked} records in "))
    );
    assert_eq!(text(&["repair", "a.ehdb"]), format!("a.ehdb: usable; {checked} records\n"));
    let repaired = place.json(&["repair", "a.ehdb"]);
    assert_eq!((&repaired["records"], repaired.get("items")), (&checked.into(), None));
    assert_eq!(text(&["backup", "a.ehdb", "b.ehdb"]), "b.ehdb: 5 items\n");
    assert!(text(&["compact", "a.ehdb"]).starts_with("a.ehdb: 5 items, "));
    // A database of words has no other tables.
    place.ok(&["create", "words.ehdb", "--form", "8/8"]);
    place.ok(&["put", "words.ehdb", "12345678", "abcdefgh"]);
    assert!(text(&["compact", "words.ehdb"]).starts_with("words.ehdb: 1 item, "));
    assert_eq!(place.json(&["compact", "a.ehdb"])["items"], 5);
    // And one is one.
    place.write("c.tsv", "a\t1\n");
    let imported = text(&["import", "c.tsv", "c.ehdb"]);
    assert!(imported.starts_with("1 record ("), "{imported}");
    assert!(imported.contains("; 1 item in the table, "), "{imported}");
    let bytes = &place.json(&["check", "c.ehdb"])["reachable_bytes"];
    let sound = format!("c.ehdb: sound; 1 record in {bytes} bytes\n");
    assert_eq!(text(&["check", "c.ehdb"]), sound);
}

#[test]
fn a_limit_of_the_length_of_files_is_an_error_and_leaves_nothing() {
    // Fails if the signal of the system ended the program without a word, with half a file left.
    let place = with_pairs();
    let limited = |arguments: &str| {
        let script = format!("ulimit -f 16; exec \"$0\" {arguments}");
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &script, crate::support::PROGRAM]).current_dir(place.directory());
        Run::of(bash.output().unwrap())
    };
    let before = place.names();
    let full = ["full: no space left on the device", "ulimit -f", "free space"];
    limited("create b.ehdb --engine turbo").fails(4, &full);
    limited("backup a.ehdb b.ehdb").fails(4, &full);
    let sized = ["full: a table of this size takes ", "ulimit -f", "lower --expect", "--set"];
    limited("create b.ehdb --engine turbo --expect 1000000").fails(4, &sized);
    let exported = limited("export a.ehdb b.tsv");
    exported.fails(4, &["everhash: b.tsv: cannot be written", "free space", "ulimit -f"]);
    let compacted = limited("compact a.ehdb");
    compacted.fails(4, &["everhash: a.ehdb: "]);
    // Of the files that have no name yet nobody knows.
    for Run { stderr, .. } in [exported, compacted] {
        assert!(!stderr.contains(".everhash-") && !stderr.contains(".compact"), "{stderr}");
    }
    assert_eq!(place.names(), before);
}

#[test]
fn a_number_that_is_wrong_leads_to_those_that_are_right() {
    // Fails if the message were one of the language in which the program is written, or if it
    // showed what was given.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let huge = "99999999999999999999";
    let any = "write a whole number from 0 to 18446744073709551615";
    let some = "write a whole number from 1 to 18446744073709551615";
    for (arguments, part) in [
        (&["create", "b.ehdb", "--expect", huge][..], any),
        (&["create", "b.ehdb", "--expect", "many"], any),
        (&["create", "b.ehdb", "--set", "shards=99999999999999999999"], any),
        (&["create", "b.ehdb", "--set", "shards=many"], any),
        (&["get", "a.ehdb", "key", "--range", "0..99999999999999999999"], any),
        (&["import", "-", "a.ehdb", "--threads", "300"], "from 1 to 256;"),
        (&["import", "-", "a.ehdb", "--threads", huge], "from 1 to 256;"),
        (&["bench", "--rounds", "5000000000"], "from 1 to 4294967295;"),
        (&["bench", "--threads", "1,0"], some),
        (&["scale", "b", "--items", huge], some),
        (&["scale", "b", "--gets", huge], any),
        (&["scale", "b", "--threads", huge], any),
        (&["torture", "--kills", "0"], "from 1 to 1000000;"),
        (&["torture", "--seed", huge], any),
        (&["crash", "--depth", "9"], "from 1 to 8;"),
        (&["crash", "--threads", "70000"], "from 0 to 65535;"),
        (&["top", "a.ehdb", "--count", "0"], some),
        (&["add", "a.ehdb", "key", huge], "from -9223372036854775808 to 9223372036854775807;"),
        (
            &["put", "a.ehdb", "k", "v", "--table", "t", "--expires-after", huge],
            "write a number of seconds from 0 to 18446744073709551615;",
        ),
    ] {
        let run = place.run(arguments);
        run.fails(2, &["the value of ", part, "; see everhash "]);
        assert!(!run.stderr.contains(huge) && !run.stderr.contains("many"), "{run:?}");
    }
    // The last number that is right.
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb", "--threads", "256"]);
}

#[test]
fn a_limit_that_is_not_the_device_is_named() {
    // Fails if who has chosen a table that is too large, or settings that are too small, were sent
    // to free space on a disk that has enough of it.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    let huge = "18446744073709551615";
    for engine in ["reef", "walsh", "wophi", "elimda", "turbo", "tiered"] {
        for command in [&["create", "a.ehdb"][..], &["import", "a.tsv", "a.ehdb"]] {
            let sized = [command, &["--engine", engine, "--expect"]].concat();
            let run = place.run(&[&sized[..], &[huge]].concat());
            run.fails(2, &["a.ehdb: --expect ", engine, "at most ", " pairs; lower it"]);
            let most = run.stderr.split("at most ").nth(1).unwrap().split(' ').next().unwrap();
            let more = (most.parse::<u64>().unwrap() + 1).to_string();
            place.run(&[&sized[..], &[&more]].concat()).fails(2, &[&format!("at most {most} ")]);
            assert_eq!(place.names(), ["a.tsv"]);
        }
    }
    let buckets = ["--engine", "wophi", "--set", "initial_buckets=1099511627776"];
    let run = place.run(&[&["create", "a.ehdb"][..], &buckets].concat());
    run.fails(2, &["a.ehdb: ", "bytes", "at most 1099511627776; lower what --set"]);
    assert_eq!(place.names(), ["a.tsv"]);
    let small = ["--engine", "turbo", "--set", "shards=1", "--set", "max_buckets=1"];
    place.ok(&[&["create", "a.ehdb"], &small[..]].concat());
    let run = (0..100).map(|number| place.run(&["put", "a.ehdb", &number.to_string(), "value"]));
    let run = run.into_iter().find(|run| run.status != 0).unwrap();
    run.fails(4, &["a.ehdb: full", "max_buckets = 1;", "everhash engines", "import"]);
    assert!(!run.stderr.contains("free space"), "{run:?}");
}

#[test]
fn a_file_that_is_no_database_leads_on() {
    // Fails if it were only said not to be one, or how short is too short were left out.
    let place = Place::new();
    place.write("short", "xx");
    place.write("other", "other".repeat(4000));
    for command in ["check", "count", "repair", "compact"] {
        let short = place.run(&[command, "short"]);
        short.fails(4, &["short: not supported", "8192 bytes", "check the name", "backup"]);
        place.run(&[command, "other"]).fails(4, &["other: not supported", "check the name"]);
    }
}
