//! The small commands: what they print, and with what status they end.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn pairs_are_put_got_and_removed() {
    // Fails if a command stored, printed or answered something else than its help says.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "key", "value"]);
    assert_eq!(place.ok(&["get", "a.ehdb", "key"]), b"value\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "key", "--raw"]), b"value");
    assert_eq!(place.run(&["put", "a.ehdb", "key", "other", "--if-absent"]).status, 1);
    assert_eq!(place.run(&["put", "a.ehdb", "more", "other", "--if-present"]).status, 1);
    assert_eq!(place.ok(&["get", "a.ehdb", "key"]), b"value\n");
    place.ok(&["put", "a.ehdb", "key", "other", "--if-present"]);
    place.feed(&["put", "a.ehdb", "piped", "--stdin"], b"\x00\xff\n").ok();
    assert_eq!(place.ok(&["get", "a.ehdb", "piped", "--raw"]), b"\x00\xff\n");
    place.ok(&["remove", "a.ehdb", "key"]);
    // The answer "no" is a status and not a message.
    for command in ["get", "remove"] {
        let run = place.run(&[command, "a.ehdb", "key"]);
        assert_eq!((run.status, &run.stdout[..], &run.stderr[..]), (1, &b""[..], ""));
    }
    assert_eq!(place.json(&["stats", "a.ehdb"])["items"], 1);
}

#[test]
fn one_key_can_be_asked_and_changed_in_every_way() {
    // Fails if a verb answered for another key, changed what it should only read, or said nothing.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "key", "value"]);
    place.ok(&["contains", "a.ehdb", "key"]);
    assert_eq!(place.run(&["contains", "a.ehdb", "other"]).status, 1);
    assert_eq!(place.ok(&["get", "a.ehdb", "key", "--length"]), b"5\n");
    for (range, part) in [("1..3", "al"), ("..2", "va"), ("3..", "ue"), ("9..", ""), ("3..1", "")] {
        let got = place.ok(&["get", "a.ehdb", "key", "--range", range]);
        assert_eq!(String::from_utf8(got).unwrap(), format!("{part}\n"), "{range}");
        let raw = place.ok(&["get", "a.ehdb", "key", "--raw", "--range", range]);
        assert_eq!(raw, part.as_bytes(), "{range}");
    }
    assert_eq!(place.run(&["get", "a.ehdb", "key", "--range", "1-3"]).status, 2);
    assert_eq!(place.run(&["put", "a.ehdb", "key", "new", "--if-value", "wrong"]).status, 1);
    assert_eq!(place.run(&["put", "a.ehdb", "none", "new", "--if-value", ""]).status, 1);
    assert_eq!(place.ok(&["put", "a.ehdb", "key", "new", "--print-old"]), b"value\n");
    place.ok(&["put", "a.ehdb", "key", "newer", "--if-value", "new"]);
    assert_eq!(place.ok(&["put", "a.ehdb", "fresh", "1", "--print-old"]), b"");
    assert_eq!(place.ok(&["remove", "a.ehdb", "key", "fresh", "--print-old"]), b"newer\n1\n");
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"0\n");
}

#[test]
fn pairs_of_a_table_with_times_end() {
    // Fails if a command shows times as parts of values, or pairs that have ended.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let in_table = |command: &[&str]| {
        let words: Vec<&str> = command.iter().copied().chain(["--table", "sessions"]).collect();
        place.run(&words)
    };
    in_table(&["put", "a.ehdb", "long", "ann", "--expires-after", "600"]).ok();
    in_table(&["put", "a.ehdb", "short", "bob", "--expires-after", "0"]).ok();
    let absent = ["put", "a.ehdb", "long", "eve", "--expires-after", "9", "--if-absent"];
    assert_eq!(in_table(&absent).status, 1);
    assert_eq!(in_table(&["get", "a.ehdb", "long"]).ok(), b"ann\n");
    assert_eq!(in_table(&["get", "a.ehdb", "short"]).status, 1);
    assert_eq!(in_table(&["contains", "a.ehdb", "short"]).status, 1);
    assert_eq!(in_table(&["count", "a.ehdb"]).ok(), b"1\n");
    assert_eq!(in_table(&["keys", "a.ehdb"]).ok(), b"long\n");
    assert_eq!(in_table(&["export", "a.ehdb"]).ok(), b"long\tann\n");
    in_table(&["put", "a.ehdb", "long", "eve"]).fails(2, &["a.ehdb", "sessions", "expiry times"]);
    assert_eq!(in_table(&["remove", "a.ehdb", "long", "--print-old"]).ok(), b"ann\n");
    in_table(&["put", "a.ehdb", "long", "eve", "--expires-after", "600"]).ok();
    in_table(&["clear", "a.ehdb"]).ok();
    assert_eq!(in_table(&["count", "a.ehdb"]).ok(), b"0\n");
    // Of pairs with times, too, one that is absent stays absent; and there are parts of seconds.
    let present = ["put", "a.ehdb", "late", "dan", "--expires-after", "600", "--if-present"];
    assert_eq!(in_table(&present).status, 1);
    assert_eq!(in_table(&["contains", "a.ehdb", "late"]).status, 1);
    in_table(&["put", "a.ehdb", "late", "dan", "--expires-after", "0.001"]).ok();
    in_table(&present[..4]).fails(2, &["expiry times"]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(in_table(&present).status, 1);
    in_table(&["put", "a.ehdb", "late", "dan", "--expires-after", "0.5e3"]).ok();
    in_table(&present).ok();
    // Each way to store gives the pair the time that it was told.
    for condition in ["--if-present", "--if-absent"] {
        let ended = ["put", "a.ehdb", "late", "", "--expires-after", "0", condition];
        in_table(&ended).ok();
        assert_eq!(in_table(&["contains", "a.ehdb", "late"]).status, 1, "{condition}");
    }
    // An empty value is one.
    in_table(&["put", "a.ehdb", "late", "", "--expires-after", "600"]).ok();
    in_table(&["contains", "a.ehdb", "late"]).ok();
    assert_eq!(place.ok(&["tables", "a.ehdb"]), b"sessions\n");
    assert_eq!(place.run(&["put", "a.ehdb", "a", "b", "--expires-after", "9"]).status, 2);
}

#[test]
fn imported_pairs_end_too() {
    // Fails if an import forgot the time, made a table without times, or took one that has ended
    // for one that is there.
    let place = Place::new();
    place.write("pairs.tsv", b"a\t1\nb\t2\n");
    let words = ["import", "pairs.tsv", "a.ehdb", "--table", "sessions"];
    let import = |options: &[&str]| place.run(&[&words, options].concat());
    import(&["--expires-after", "0"]).ok();
    assert_eq!(place.ok(&["count", "a.ehdb", "--table", "sessions"]), b"0\n");
    let kept =
        place.json(&[&words, &["--expires-after", "600", "--on-duplicate", "keep"][..]].concat());
    assert_eq!((&kept["new"], &kept["items"]), (&2.into(), &2.into()));
    assert_eq!(place.ok(&["count", "a.ehdb", "--table", "sessions"]), b"2\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "b", "--table", "sessions"]), b"2\n");
    let again = place.json(&[&words, &["--expires-after", "600"][..]].concat());
    assert_eq!((&again["new"], &again["replaced"]), (&0.into(), &2.into()));
    import(&["--expires-after", "0.001"]).ok();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(place.ok(&["count", "a.ehdb", "--table", "sessions"]), b"0\n");
    import(&["--expires-after", "600"]).ok();
    import(&[]).fails(2, &["a.ehdb", "sessions", "expiry times"]);
    assert_eq!(import(&["--expires-after", "600", "--on-duplicate", "error"]).status, 3);
    let without = ["import", "pairs.tsv", "a.ehdb", "--expires-after", "9"];
    assert_eq!(place.run(&without).status, 2);
}

#[test]
fn numbers_are_added_and_nothing_else_is_taken_for_one() {
    // Fails if a sum wrapped around, or a word were replaced by a number.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    assert_eq!(place.ok(&["add", "a.ehdb", "n"]), b"1\n");
    assert_eq!(place.ok(&["add", "a.ehdb", "n", "-43"]), b"-42\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "n"]), b"-42\n");
    place.run(&["add", "a.ehdb", "n", &i64::MIN.to_string()]).fails(1, &["a.ehdb", "too large"]);
    for word in ["forty", " 40", "40 ", "4.0", "", "9223372036854775808"] {
        place.ok(&["put", "a.ehdb", "word", word]);
        place.run(&["add", "a.ehdb", "word"]).fails(1, &["a.ehdb", "whole number"]);
        assert_eq!(place.ok(&["get", "a.ehdb", "word", "--raw"]), word.as_bytes());
    }
    assert_eq!(place.ok(&["get", "a.ehdb", "n"]), b"-42\n");
}

#[test]
fn all_keys_are_listed_counted_removed() {
    // Fails if a key were left out, or one that is absent kept others from being removed.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\\n\t2\nc\t3\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let keys = String::from_utf8(place.ok(&["keys", "a.ehdb"])).unwrap();
    let mut keys: Vec<_> = keys.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b\\n", "c"]);
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"3\n");
    // One of them is absent: the others go all the same, and the status says so.
    assert_eq!(place.run(&["remove", "a.ehdb", "a", "x", "c"]).status, 1);
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"1\n");
    place.ok(&["clear", "a.ehdb"]);
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"0\n");
    assert_eq!(place.json(&["check", "a.ehdb"])["records"], 0);
}

#[test]
fn escapes_are_read_and_printed_on_demand_only() {
    // Fails if a backslash in a key meant something that nobody asked for.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "-e", r"a\tb", r"1\n2\\"]);
    assert_eq!(place.ok(&["get", "a.ehdb", "a\tb"]), b"1\n2\\\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "-e", r"a\tb"]), b"1\\n2\\\\\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "-e", r"a\tb", "--raw"]), br"1\n2\\");
    assert_eq!(place.run(&["get", "a.ehdb", r"a\tb"]).status, 1);
    place.run(&["get", "a.ehdb", "-e", r"a\x"]).fails(2, &["everhash: byte 2: a backslash"]);
    // Every verb that takes a key, and every value beside it.
    place.ok(&["contains", "a.ehdb", "-e", r"a\tb"]);
    let swap = ["put", "a.ehdb", "-e", r"a\tb", r"3\t4", "--if-value", r"1\n2\\"];
    place.ok(&swap);
    let old = place.ok(&["put", "a.ehdb", "-e", r"a\tb", "5", "--print-old"]);
    assert_eq!(old, b"3\\t4\n");
    assert_eq!(place.ok(&["add", "a.ehdb", "-e", r"a\tb"]), b"6\n");
    assert_eq!(place.ok(&["remove", "a.ehdb", "-e", r"a\tb", "--print-old"]), b"6\n");
    // Standard input has no escapes, whatever the key has.
    place.feed(&["put", "a.ehdb", "-e", r"a\tb", "--stdin"], br"\t\x").ok();
    assert_eq!(place.ok(&["get", "a.ehdb", "a\tb", "--raw"]), br"\t\x");
}

#[test]
fn figures_are_there_for_people_and_for_programs() {
    // Fails if a figure that programs read were missing or null.
    let place = Place::new();
    place.write("a.tsv", "a\t1\nb\t2\n");
    let summary = String::from_utf8(place.ok(&["import", "a.tsv", "a.ehdb"])).unwrap();
    assert!(summary.starts_with("2 records (2 new, 0 replaced, 0 kept) in "), "{summary}");
    assert!(summary.contains(" records/s; 2 items in the table, "), "{summary}");
    let bytes = place.path("a.ehdb").metadata().unwrap().len();
    let end = format!(", {bytes} bytes in the file: {:.1} an item\n", bytes as f64 / 2.0);
    assert!(summary.ends_with(&end), "{summary}");
    // A pair takes its part of the file whether or not it was imported now.
    place.write("b.tsv", "a\t1\n");
    let again = place.json(&["import", "b.tsv", "a.ehdb"]);
    let length = place.path("a.ehdb").metadata().unwrap().len();
    assert_eq!(again["file_bytes_per_item"], length as f64 / 2.0, "{again}");
    let stats = place.json(&["stats", "a.ehdb"]);
    for name in ["items", "load_factor", "device_bytes_per_item", "dram_bytes_per_item", "own"] {
        assert!(stats.get(name).is_some_and(|figure| !figure.is_null()), "{name}: {stats}");
    }
    assert_eq!(stats["device_bytes"], place.path("a.ehdb").metadata().unwrap().len());
    let table = String::from_utf8(place.ok(&["stats", "a.ehdb"])).unwrap();
    assert!(
        table.lines().any(|line| line.starts_with("items ") && line.ends_with(" 2")),
        "{table}"
    );
    let checked = place.json(&["check", "a.ehdb"]);
    assert_eq!((&checked["sound"], &checked["records"]), (&true.into(), &2.into()));
    let reachable = everhash_store::Db::check_at_rest(place.path("a.ehdb")).unwrap();
    assert_eq!(checked["reachable_bytes"], reachable.reachable_bytes);
    let engines = place.json(&["engines"]);
    assert_eq!(engines[0]["name"], "reef");
    assert!(engines[0]["settings"].as_array().is_some_and(|settings| !settings.is_empty()));
}

#[test]
fn a_new_database_is_what_was_asked_for() {
    // Fails if a choice were ignored, or a wrong one made a database.
    let place = Place::new();
    let name = place.json(&["engines"])[0]["settings"][0]["name"].as_str().unwrap().to_owned();
    place.ok(&["create", "a.ehdb", "--engine", "wophi", "--form", "16/16"]);
    assert_eq!(place.json(&["stats", "a.ehdb"])["form"], "16/16");
    place.ok(&["create", "b.ehdb", "--engine", "wophi", "--expect", "100000"]);
    let slots = place.json(&["stats", "b.ehdb"])["slots"].as_u64().unwrap();
    assert!(slots >= 100_000, "{slots}");
    place.ok(&["create", "c.ehdb", "--set", &format!("{name}=16"), "--hash", "xxh3"]);
    let hash = everhash_store::Db::open(place.path("c.ehdb")).unwrap().info().hash;
    assert_eq!(hash, everhash_store::HashKind::Xxh3);
    place.run(&["create", "c.ehdb"]).fails(4, &["c.ehdb", "already exists"]);
    place.run(&["create", "d.ehdb", "--set", "nothing=1"]).fails(2, &["'nothing'", &name]);
    place.run(&["create", "d.ehdb", "--engine", "none"]).fails(2, &["'none'", "wophi"]);
    let setting = format!("{name}=18446744073709551615");
    place.run(&["create", "d.ehdb", "--set", &setting]).fails(2, &[&name]);
    assert!(!place.path("d.ehdb").exists());
    place.write("a.tsv", "a\t1\n");
    let run = place.run(&["import", "a.tsv", "b.ehdb", "--expect", "5"]);
    run.fails(2, &["b.ehdb", "--expect"]);
    let run = place.run(&["import", "a.tsv", "b.ehdb", "--form", "8/8"]);
    run.fails(2, &["b.ehdb", "variable", "8/8"]);
}

#[test]
fn every_engine_is_served_measured_and_explored() {
    // Fails if a face of the program has a list of engines of its own, without one of them, or
    // takes one for another.
    let place = Place::new();
    let names = String::from_utf8(place.ok(&["engines", "--names"])).unwrap();
    let names: Vec<_> = names.lines().collect();
    assert!(names.len() > 2, "{names:?}");
    let all = place.ok(&["bench", "--items", "64", "--threads", "1", "--rounds", "1"]);
    let all = String::from_utf8(all).unwrap();
    for name in names {
        place.ok(&["create", &format!("{name}.ehdb"), "--engine", name]);
        assert!(all.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {all}");
        let sites = String::from_utf8(place.ok(&["crash", "--engine", name, "--list-sites"]));
        assert!(sites.unwrap().lines().all(|site| site.starts_with(name)), "{name}");
        let few = ["scale", "s", "--items", "64", "--gets", "8", "--threads", "1"];
        let scaled = place.ok(&[&few[..], &["--engine", name]].concat());
        let scaled = String::from_utf8(scaled).unwrap();
        assert!(scaled.lines().next().unwrap().ends_with(&format!(" engine {name}")), "{scaled}");
    }
    place.run(&["bench", "--engine", "none", "--items", "64"]).fails(2, &["'none'", "wophi"]);
}

#[test]
fn instructions_are_counted_and_limited() {
    // Fails if the child does nothing between its marks, if the marks are counted with it, or if
    // a limit is not kept.
    let place = Place::new();
    let counted =
        ["bench", "--instructions", "--engine", "wophi", "--items", "256", "--hash", "rapid"];
    let all = place.run(&[&counted[..], &["--json"]].concat());
    if all.status == 4 && all.stderr.contains("counting instructions here") {
        // Not every machine lets a process trace its child.
        return;
    }
    let figures: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let get = figures["wophi"][0]["median"].as_u64().unwrap();
    assert!((30..1000).contains(&get), "{figures}");
    let kept = place.run(&[&counted[..], &["--at-most", "get=1000"]].concat());
    assert_eq!(kept.status, 0, "{kept:?}");
    let broken = place.run(&[&counted[..], &["--at-most", "get=20"]].concat());
    assert_eq!(broken.status, 1, "{broken:?}");
    assert!(broken.stderr.contains("more than 20"), "{broken:?}");
}

#[test]
fn a_wrong_command_line_has_its_own_status() {
    // Fails if a script took its own mistake for an answer.
    let place = Place::new();
    for arguments in [
        &[][..],
        &["nothing"],
        &["get", "a.ehdb"],
        &["import", "a.tsv", "a.ehdb", "--durability", "maybe"],
        &["import", "a.tsv", "a.ehdb", "--threads", "0"],
        &["import", "a.tsv", "a.ehdb", "--set", "x"],
        &["create", "a.ehdb", "--form", "8"],
        &["put", "a.ehdb", "key"],
        &["put", "a.ehdb", "key", "value", "--if-absent", "--if-present"],
    ] {
        let run = place.run(arguments);
        assert_eq!((run.status, run.stdout.is_empty()), (2, true), "{arguments:?}: {run:?}");
    }
    let help = String::from_utf8(place.ok(&["--help"])).unwrap();
    assert!(help.contains("Exit status:"), "{help}");
}

#[test]
fn shells_and_manuals_know_every_command() {
    // Fails if a command were left out, or if a directory that is missing were made or ignored.
    let place = Place::new();
    let script = String::from_utf8(place.ok(&["completions", "bash"])).unwrap();
    assert!(place.ok(&["completions", "zsh"]).starts_with(b"#compdef everhash"));
    let shells = ["bash", "elvish", "fish", "powershell", "zsh"];
    let scripts = shells.map(|shell| place.ok(&["completions", shell]));
    assert_eq!(std::collections::HashSet::from(scripts).len(), shells.len());
    std::fs::create_dir(place.path("man1")).unwrap();
    place.ok(&["man", "man1"]);
    for command in ["import", "torture", "completions"] {
        assert!(script.contains(command), "{command}");
        let page =
            std::fs::read_to_string(place.path(&format!("man1/everhash-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(place.path("man1/everhash.1").exists());
    assert_eq!(place.command(&["man", "nowhere"]).output().unwrap().status.code(), Some(3));
    assert!(!place.path("nowhere").exists());
    // Fails if pages that cannot be written were said to be there.
    std::fs::create_dir_all(place.path("full/everhash-get.1")).unwrap();
    place.run(&["man", "full"]).fails(4, &["full: cannot be written"]);
}

#[test]
fn a_table_is_chosen_by_its_name() {
    // Fails if a verb forgot its table, or if a wrong name were taken for an empty table.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.ok(&["put", "a.ehdb", "key", "default"]);
    place.ok(&["put", "a.ehdb", "key", "red", "--table", "colours"]);
    place.ok(&["add", "a.ehdb", "n", "3", "--table", "counts"]);
    place.feed(&["import", "-", "a.ehdb", "--table", "colours"], b"b\tblue\n").ok();
    assert_eq!(place.ok(&["tables", "a.ehdb"]), b"colours\ncounts\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "key", "--table", "colours"]), b"red\n");
    assert_eq!(place.ok(&["get", "a.ehdb", "key"]), b"default\n");
    place.ok(&["contains", "a.ehdb", "b", "--table", "colours"]);
    assert_eq!(place.ok(&["count", "a.ehdb", "--table", "colours"]), b"2\n");
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"1\n");
    assert_eq!(place.ok(&["keys", "a.ehdb", "--table", "counts"]), b"n\n");
    let sorted = ["export", "a.ehdb", "--sort", "--table", "colours"];
    assert_eq!(place.ok(&sorted), b"b\tblue\nkey\tred\n");
    place.ok(&["remove", "a.ehdb", "b", "--table", "colours"]);
    place.ok(&["clear", "a.ehdb", "--table", "counts"]);
    assert_eq!(place.ok(&["count", "a.ehdb", "--table", "counts"]), b"0\n");
    place.run(&["get", "a.ehdb", "key", "--table", "colors"]).fails(2, &["a.ehdb", "'colors'"]);
    place.ok(&["tables", "a.ehdb", "--drop", "colours"]);
    assert_eq!(place.run(&["tables", "a.ehdb", "--drop", "colours"]).status, 1);
    assert_eq!(place.ok(&["tables", "a.ehdb"]), b"counts\n");
    place.ok(&["create", "b.ehdb", "--form", "8/8"]);
    place.run(&["tables", "b.ehdb"]).fails(2, &["b.ehdb", "8/8", "tables"]);
}

#[test]
fn a_put_that_says_no_makes_no_table() {
    // Fails if a question whether a pair is there left a table behind.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let put = ["put", "a.ehdb", "key", "value", "--table", "t"];
    for condition in
        [&["--if-present"][..], &["--if-value", "old"], &["--if-present", "--expires-after", "9"]]
    {
        assert_eq!(place.run(&[&put[..], condition].concat()).status, 1, "{condition:?}");
        assert_eq!(place.ok(&["tables", "a.ehdb"]), b"", "{condition:?}");
    }
    place.ok(&[&put[..], &["--if-absent"]].concat());
    place.ok(&[&put[..], &["--if-present"]].concat());
    assert_eq!(place.ok(&["tables", "a.ehdb"]), b"t\n");
}

#[test]
fn a_pair_that_is_refused_makes_no_table() {
    // Fails if a table were left behind that nobody has a pair for.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let key = "k".repeat(everhash_store::MAX_KEY_BYTES);
    place.write("a.tsv", format!("{key}\t1\n"));
    for command in [
        &["put", "a.ehdb", &key, "value"][..],
        &["put", "a.ehdb", &key, "value", "--expires-after", "9"],
        &["add", "a.ehdb", &key],
        &["import", "a.tsv", "a.ehdb"],
        &["import", "a.tsv", "a.ehdb", "--expires-after", "9"],
    ] {
        place.run(&[command, &["--table", "t"]].concat()).fails(3, &["key"]);
        assert_eq!(place.ok(&["tables", "a.ehdb"]), b"");
    }
}

#[test]
fn what_only_a_new_database_can_be_given_is_refused() {
    // Fails if a mode were taken for that of the file, which stays as it is.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb", "--mode", "640", "--expect", "10"]);
    for wrong in [["--mode", "600"], ["--expect", "10"], ["--set", "flush_bytes=4096"]] {
        let import = [&["import", "a.tsv", "a.ehdb"][..], &wrong].concat();
        place.run(&import).fails(2, &["a.ehdb", "exists", wrong[0]]);
    }
}

#[test]
fn figures_are_those_of_the_database() {
    // Fails if two figures were exchanged, which all look plausible.
    let place = Place::new();
    let lines: String = (0..20_000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", lines);
    let imported = place.json(&["import", "a.tsv", "a.ehdb"]);
    let length = |name: &str| place.path(name).metadata().unwrap().len();
    let near = |figure: &serde_json::Value, expected: f64| {
        let figure = figure.as_f64().unwrap();
        assert!((figure - expected).abs() <= expected / 1e6, "{figure}, not {expected}");
    };
    assert_eq!(imported["file_bytes"], length("a.ehdb"));
    near(&imported["file_bytes_per_item"], length("a.ehdb") as f64 / 20_000.0);
    near(&imported["records_per_second"], 20_000.0 / imported["seconds"].as_f64().unwrap());
    place.ok(&["put", "a.ehdb", "key7", "another value"]);
    place.ok(&["remove", "a.ehdb", "key8"]);
    let printed = place.json(&["stats", "a.ehdb"]);
    let db = everhash_store::Db::open_read_only(place.path("a.ehdb")).unwrap();
    let stats = db.stats().unwrap();
    drop(db);
    for (name, value) in [
        ("items", stats.items),
        ("slots", stats.slots),
        ("device_bytes", stats.device_bytes),
        ("used_bytes", stats.used_bytes),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes.unwrap()),
    ] {
        assert_eq!(printed[name], value, "{name}: {printed}");
    }
    near(&printed["load_factor"], stats.load_factor());
    near(&printed["device_bytes_per_item"], stats.device_bytes as f64 / 19_999.0);
    near(&printed["used_bytes_per_item"], stats.used_bytes as f64 / 19_999.0);
    let memory = printed["dram_bytes"].as_u64().unwrap();
    assert!(memory.abs_diff(stats.dram_bytes) <= stats.dram_bytes / 5, "{printed}");
    near(&printed["dram_bytes_per_item"], memory as f64 / 19_999.0);
    let before = length("a.ehdb");
    let compacted = place.json(&["compact", "a.ehdb", "--truncate"]);
    // An open to write may lengthen a file.
    let [was, is] =
        ["file_bytes_before", "file_bytes"].map(|name| compacted[name].as_u64().unwrap());
    assert!(was >= before && is < before && length("a.ehdb") < before, "{compacted}");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let printed = String::from_utf8(place.ok(&["compact", "a.ehdb", "--truncate"])).unwrap();
    let is = length("a.ehdb");
    assert!(printed.starts_with("a.ehdb: 0 items, "), "{printed}");
    assert!(printed.ends_with(&format!(" bytes before and {is} now\n")), "{printed}");
}

#[test]
fn names_options_and_statuses_are_read_as_the_help_says() {
    // Fails if a name could forge a line, if a removal said what it was not asked for, or if an
    // option took more or less than its help says.
    let place = Place::new();
    place.ok(&["create", "a.ehdb", "--set", "flush_bytes=4_096"]);
    assert_eq!(place.run(&["create", "b.ehdb", "--set", "flush_bytes=4x"]).status, 2);
    for mode in ["4600", "1600", "8", "-600"] {
        assert_eq!(place.run(&["create", "b.ehdb", &format!("--mode={mode}")]).status, 2, "{mode}");
    }
    place.ok(&["put", "a.ehdb", "key", "value", "--table", "two\nlines"]);
    assert_eq!(place.ok(&["tables", "a.ehdb"]), b"two\\nlines\n");
    place.run(&["put", "a.ehdb", "key", "value", "--table", ""]).fails(2, &["a.ehdb", "255"]);
    let put = ["put", "a.ehdb", "key", "value", "--table", "sessions", "--expires-after", "600"];
    place.ok(&put);
    assert_eq!(place.ok(&["remove", "a.ehdb", "key", "--table", "sessions"]), b"");
    assert_eq!(place.run(&["remove", "a.ehdb", "key", "--table", "sessions"]).status, 1);
}

#[test]
fn one_engine_is_the_default_and_settings_are_shown_with_theirs() {
    // Fails if whoever chooses nothing got another engine, or another setting, than is shown.
    let place = Place::new();
    let text = String::from_utf8(place.ok(&["engines"])).unwrap();
    assert!(
        text.starts_with("reef (default): ") && text.matches("(default)").count() == 1,
        "{text}"
    );
    let engines = place.json(&["engines"]);
    for (engine, known) in engines.as_array().unwrap().iter().zip(everhash_store::engines()) {
        assert_eq!((&engine["name"], &engine["idea"]), (&known.name.into(), &known.idea.into()));
        assert!(text.contains(&format!(": {}\n", known.idea)), "{}: {text}", known.idea);
        let settings = engine["settings"].as_array().unwrap();
        assert_eq!(settings.len(), known.settings.len());
        for (setting, known) in settings.iter().zip(known.settings) {
            assert_eq!(
                (&setting["name"], &setting["default"]),
                (&known.name.into(), &known.default.into())
            );
            assert_eq!(setting["meaning"], known.meaning);
            let line = format!("\n  {}={}  {}\n", known.name, known.default, known.meaning);
            assert!(text.contains(&line), "no '{line}' in {text}");
        }
    }
}

#[test]
fn figures_of_a_database_are_printed_a_line_each() {
    // Fails if a figure that there is not looked like a number, or one of the engine like one of
    // every engine.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    let lines = || String::from_utf8(place.ok(&["stats", "a.ehdb"])).unwrap();
    let shows = |text: &str, name: &str, value: &str| {
        let line = format!("{name:<24} {value}");
        assert!(text.lines().any(|shown| shown == line), "no '{line}' in {text}");
    };
    let text = lines();
    shows(&text, "engine", "reef");
    shows(&text, "dram_bytes_per_item", "-");
    shows(&text, "load_factor", "0.00");
    shows(&text, "own.segments", "0");
    place.write("a.tsv", (0..100).map(|key| format!("{key}\tv\n")).collect::<String>());
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let text = lines();
    shows(&text, "items", "100");
    shows(&text, "growth_steps_since_open", "0");
    let each = place.json(&["stats", "a.ehdb"])["used_bytes_per_item"].as_f64().unwrap();
    shows(&text, "used_bytes_per_item", &format!("{each:.2}"));
}

#[test]
fn a_measurement_is_of_what_was_asked_for() {
    // Fails if an option were ignored: figures of another table, or of other engines, look alike.
    let place = Place::new();
    let few = ["bench", "--engine", "wophi", "--items", "64", "--threads", "1", "--hash", "rapid"];
    let all = [&few[..], &["--rounds", "2", "--growing", "--durable-caches"]].concat();
    let figures = place.json(&all);
    assert_eq!((&figures["items"], &figures["rounds"]), (&64.into(), &2.into()), "{figures}");
    assert_eq!((&figures["hash"], &figures["form"]), (&"rapid".into(), &"8/8".into()));
    assert_eq!((&figures["presized"], &figures["durable_caches"]), (&false.into(), &true.into()));
    let rows = figures["rows"].as_array().unwrap();
    let is_asked_for = |row: &serde_json::Value| row["who"] == "wophi" || row["who"] == "machine";
    assert!(rows.iter().all(is_asked_for), "{figures}");
    assert!(rows.iter().any(|row| row["who"] == "wophi"), "{figures}");
    let series = [&few[..4], &["64", "--threads", "1,2", "--rounds", "1"]].concat();
    let rows = place.json(&series)["rows"].as_array().unwrap().clone();
    let of = |threads: u64| rows.iter().filter(|row| row["threads"] == threads).count();
    assert!(of(1) > 0 && of(1) == of(2) && of(1) + of(2) == rows.len(), "{rows:?}");
    let text = String::from_utf8(place.ok(&all)).unwrap();
    let said =
        "64 pairs of form 8/8, hash rapid, tables growing, durable caches, ceilings flush by ";
    assert!(text.starts_with(said) && text.contains(", 2 rounds: "), "{text}");
    let text = String::from_utf8(place.ok(&[&few[..], &["--rounds", "1"]].concat())).unwrap();
    let said = "64 pairs of form 8/8, hash rapid, tables made for them, flushes by ";
    assert!(text.starts_with(said), "{text}");
}

#[test]
fn a_file_that_was_kept_can_be_read_again() {
    // Fails if the file were removed or filled once more, if more pairs were read than there are,
    // or if nobody were told what has to be as it was.
    let place = Place::new();
    let few = ["scale", "s", "--items", "64", "--threads", "1"];
    let scale = |options: &[&str]| place.run(&[&few[..], options].concat());
    scale(&[]).ok();
    assert!(place.names().is_empty());
    scale(&["--keep"]).ok();
    let length = place.path("s").metadata().unwrap().len();
    let again: serde_json::Value =
        serde_json::from_slice(&scale(&["--reread", "--json"]).ok()).unwrap();
    assert!(again["open_seconds"].as_f64() > Some(0.0), "{again}");
    let reads = again["reads"].as_array().unwrap();
    let kinds: Vec<_> = reads.iter().map(|reads| reads["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["single", "batched", "absent"]);
    assert!(reads.iter().all(|reads| reads["count"] == 64), "{again}");
    let text = String::from_utf8(scale(&["--reread", "--gets", "8"]).ok()).unwrap();
    assert!(text.starts_with("open: ") && text.contains("\nget: 8 at random, "), "{text}");
    assert_eq!(place.path("s").metadata().unwrap().len(), length);
    place.write("other", "other".repeat(4000));
    let other = ["scale", "other", "--items", "64", "--reread"];
    place.run(&other).fails(4, &["other: ", "is not the one that --keep left"]);
    scale(&[]).fails(4, &["s: "]);
    // One that makes every insert durable would take days.
    let batch = ["--engine", "wophi", "--durability", "batch"];
    scale(&batch).fails(2, &["engine wophi makes every insert durable", "--durability process"]);
}

#[test]
fn a_table_of_the_size_that_it_will_have_does_not_grow() {
    // Fails if `scale --presized` measured the growth of a table that has none.
    let place = Place::new();
    let few = ["scale", "s", "--engine", "turbo", "--items", "20000", "--gets", "0"];
    let steps = |options: &[&str]| {
        place.json(&[&few[..], options].concat())["growth_steps"].as_u64().unwrap()
    };
    let (grown, presized) = (steps(&[]), steps(&["--presized"]));
    assert!(presized < grown, "{presized} of {grown}");
}

#[test]
fn what_was_not_closed_is_recovered_before_it_is_read() {
    // Fails if a command that only reads refused what a killed program has left.
    let place = Place::new();
    let db = everhash_store::Db::create(place.path("open.ehdb")).unwrap();
    db.put("key", "value").unwrap();
    db.table_or_create("t").unwrap();
    for arguments in [
        &["backup", "a.ehdb", "b.ehdb"][..],
        &["tables", "a.ehdb"],
        &["stats", "a.ehdb"],
        &["keys", "a.ehdb"],
        &["get", "a.ehdb", "key"],
    ] {
        std::fs::copy(place.path("open.ehdb"), place.path("a.ehdb")).unwrap();
        place.ok(arguments);
    }
    db.close().unwrap();
    assert_eq!(place.ok(&["get", "b.ehdb", "key"]), b"value\n");
}
