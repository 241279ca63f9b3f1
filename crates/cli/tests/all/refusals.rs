//! Databases that cannot be used: one line says why and what to do, and the file stays as it is.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::support::{Place, Run};
use everhash_store::Db;

#[test]
fn a_missing_database_is_not_made_by_accident() {
    // Fails if a mistyped name made an empty database.
    let place = Place::new();
    for command in [
        &["get", "a.ehdb", "k"][..],
        &["put", "a.ehdb", "k", "v"],
        &["stats", "a.ehdb"],
        &["remove", "a.ehdb", "k"],
        &["check", "a.ehdb"],
        &["export", "a.ehdb"],
        &["repair", "a.ehdb"],
        &["backup", "a.ehdb", "b.ehdb"],
    ] {
        place.run(command).fails(4, &["a.ehdb", "no such file"]);
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    // Fails if a file that is no database were written to.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    for contents in [&b""[..], b"a text\n", &[0; 20_000]] {
        place.write("b.ehdb", contents);
        for command in [
            &["get", "b.ehdb", "k"][..],
            &["put", "b.ehdb", "k", "v"],
            &["check", "b.ehdb"],
            &["import", "a.tsv", "b.ehdb"],
            &["repair", "b.ehdb"],
        ] {
            place.run(command).fails(4, &["b.ehdb", "everhash pool"]);
        }
        assert_eq!(place.read("b.ehdb"), contents);
    }
    std::fs::create_dir(place.path("directory")).unwrap();
    place.run(&["get", "directory", "k"]).fails(4, &["directory", "not a file"]);
    place.run(&["import", "a.tsv", "directory"]).fails(4, &["directory", "not a file"]);
}

#[test]
fn a_damaged_database_gives_an_answer_and_no_data() {
    // Fails if damage were passed over, or ended in a crash. A header says more than a check: a
    // file whose header is damaged cannot be opened at all.
    let place = Place::new();
    let lines: String = (0..2000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", &lines);
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let sound = place.read("a.ehdb");
    let mut damaged = sound.clone();
    let value = sound.windows(9).position(|bytes| bytes == b"value1000").unwrap();
    damaged[value..value + 8].fill(0xff);
    place.write("a.ehdb", &damaged);
    place.run(&["check", "a.ehdb"]).fails(1, &["a.ehdb", "damaged at byte"]);
    let run = place.run(&["check", "a.ehdb", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((run.status, &answer["sound"]), (1, &false.into()));
    assert!(answer["damage"].as_str().unwrap().starts_with("a.ehdb: damaged at byte "), "{answer}");
    assert_eq!(place.read("a.ehdb"), damaged);
    let mut damaged = sound;
    damaged[100] ^= 1;
    damaged[4196] ^= 1;
    place.write("a.ehdb", &damaged);
    place.run(&["get", "a.ehdb", "key1"]).fails(4, &["damaged at byte", "header"]);
}

#[test]
fn a_database_in_use_is_refused() {
    // Fails if two programs could write at once, or one read what another is writing.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    let db = Db::create(place.path("a.ehdb")).unwrap();
    for command in [
        &["get", "a.ehdb", "k"][..],
        &["put", "a.ehdb", "k", "v"],
        &["import", "a.tsv", "a.ehdb"],
        &["stats", "a.ehdb"],
        &["check", "a.ehdb"],
    ] {
        place.run(command).fails(4, &["a.ehdb", "already open", "close it"]);
    }
    db.close().unwrap();
    let reader = Db::open_read_only(place.path("a.ehdb")).unwrap();
    place.ok(&["stats", "a.ehdb"]);
    place.run(&["put", "a.ehdb", "k", "v"]).fails(4, &["already open"]);
    drop(reader);
    place.ok(&["put", "a.ehdb", "k", "v"]);
}

/// Runs the program as somebody without rights; only the administrator can do that.
fn as_nobody(place: &Place, arguments: &[&str]) -> Option<Run> {
    let probe = std::process::Command::new("true").uid(65534).gid(65534).status();
    if probe.is_err() {
        println!("skipped: these tests do not run as root, so there is nobody else to be");
        return None;
    }
    // The program itself may lie where others cannot reach it. Another process copies it: if this
    // one did, children that other tests start meanwhile would inherit the file open for writing,
    // and the system executes no such file.
    let program = place.path("everhash");
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg(crate::support::PROGRAM).arg(&program).status().unwrap().success());
    let mut command = std::process::Command::new(&program);
    command.uid(65534).gid(65534).current_dir(place.directory()).args(arguments);
    Some(Run::of(command.stdin(Stdio::null()).output().unwrap()))
}

#[test]
fn what_others_own_is_refused() {
    // Fails if a missing right were reported as something else.
    let place = Place::new();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.directory(), everybody).unwrap();
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let Some(run) = as_nobody(&place, &["get", "a.ehdb", "a"]) else { return };
    run.fails(4, &["a.ehdb", "permission denied"]);
    // A directory that cannot be written to.
    let Some(run) = as_nobody(&place, &["import", "a.tsv", "b.ehdb"]) else { return };
    run.fails(4, &["b.ehdb", "permission denied"]);
    std::fs::set_permissions(place.path("a.tsv"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let Some(run) = as_nobody(&place, &["import", "a.tsv", "b.ehdb"]) else { return };
    run.fails(3, &["a.tsv", "permission denied"]);
    assert_eq!(place.names(), ["a.ehdb", "a.tsv", "everhash"]);
}

#[test]
fn an_export_replaces_nothing_that_it_may_not_read_or_write() {
    // Fails if a file were replaced of which nobody can tell that it is no database, or if the
    // message were about a temporary name, or did not say what to check.
    let place = Place::new();
    let set = |path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb", "--mode", "644"]);
    place.write("kept.tsv", "kept");
    set(place.path("kept.tsv"), 0o600);
    set(place.directory().to_owned(), 0o755);
    let Some(run) = as_nobody(&place, &["export", "a.ehdb", "b.tsv"]) else { return };
    run.fails(4, &["everhash: b.tsv: cannot be written", "check the owner and mode"]);
    assert!(!run.stderr.contains(".everhash-"), "{run:?}");
    set(place.directory().to_owned(), 0o777);
    let run = as_nobody(&place, &["export", "a.ehdb", "kept.tsv"]).unwrap();
    run.fails(4, &["kept.tsv: cannot be read, so that it may be a database", "another file"]);
    assert_eq!(place.read("kept.tsv"), b"kept");
    as_nobody(&place, &["export", "a.ehdb", "b.tsv"]).unwrap().ok();
}

#[test]
fn what_was_not_closed_and_may_only_be_read_says_who_can_recover_it() {
    // Fails if whoever may read were told that the mode is wrong, which it is not.
    let place = Place::new();
    let everybody = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.directory(), everybody(0o777)).unwrap();
    let db = Db::create(place.path("open.ehdb")).unwrap();
    db.put("key", "value").unwrap();
    std::fs::copy(place.path("open.ehdb"), place.path("a.ehdb")).unwrap();
    db.close().unwrap();
    std::fs::set_permissions(place.path("a.ehdb"), everybody(0o444)).unwrap();
    for command in [&["get", "a.ehdb", "key"][..], &["count", "a.ehdb"], &["export", "a.ehdb"]] {
        let Some(run) = as_nobody(&place, command) else { return };
        run.fails(4, &["a.ehdb: was not closed", "permission to write", "repair DB --into NEW_DB"]);
    }
    // What it names works.
    as_nobody(&place, &["repair", "a.ehdb", "--into", "b.ehdb"]).unwrap().ok();
    assert_eq!(place.ok(&["get", "b.ehdb", "key"]), b"value\n");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    // Fails if a closed pipe were reported, or killed the program.
    let place = Place::new();
    let lines: String = (0..50_000).map(|number| format!("key{number}\tvalue\n")).collect();
    place.write("a.tsv", &lines);
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let script = "set -o pipefail; \"$0\" export a.ehdb | head -n 1 > first; echo $?";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script, crate::support::PROGRAM]).current_dir(place.directory());
    let run = Run::of(command.output().unwrap());
    assert_eq!((&run.stdout[..], &run.stderr[..]), (&b"0\n"[..], ""));
    assert!(place.read("first").starts_with(b"key"));
}

#[test]
fn a_reader_that_goes_away_changes_no_answer() {
    // Fails if "damaged", or "absent", became "yes" because nobody reads the words beside it.
    let place = Place::new();
    let lines: String = (0..2000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", &lines);
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let unread = |command: &str| {
        let script = format!("{{ sleep 0.2; \"$0\" {command}; }} | true; echo ${{PIPESTATUS[0]}}");
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &script, crate::support::PROGRAM]).current_dir(place.directory());
        Run::of(bash.output().unwrap())
    };
    // As it was imported: a writer may copy pairs to another place.
    let mut damaged = place.read("a.ehdb");
    let run = unread("remove a.ehdb key1 absent --print-old");
    assert_eq!((&run.stdout[..], &run.stderr[..]), (&b"1\n"[..], ""));
    let value = damaged.windows(9).position(|bytes| bytes == b"value1000").unwrap();
    damaged[value..value + 8].fill(0xff);
    place.write("a.ehdb", &damaged);
    for command in
        ["check a.ehdb --json", "repair a.ehdb --into b.ehdb", "repair a.ehdb --into c --json"]
    {
        let run = unread(command);
        assert_eq!(run.stdout, b"1\n", "{command}: {run:?}");
        assert!(run.stderr.contains("damage"), "{command}: {run:?}");
    }
}

#[test]
fn an_output_that_is_full_is_reported() {
    // Fails if an export that was cut off had the status of a whole one.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let run = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        Run::of(place.command(arguments).stdout(full).output().unwrap())
    };
    run(&["export", "a.ehdb"]).fails(4, &["standard output", "No space left"]);
    run(&["stats", "a.ehdb"]).fails(4, &["standard output", "No space left"]);
    place.ok(&["put", "a.ehdb", "a", "1", "--table", "t"]);
    for list in ["keys", "tables"] {
        run(&[list, "a.ehdb"]).fails(4, &["standard output", "No space left"]);
    }
    // No line end makes the program write it before it ends.
    run(&["get", "a.ehdb", "a", "--raw"]).fails(4, &["standard output", "No space left"]);
    place.run(&["export", "a.ehdb", "/dev/full"]).fails(4, &["/dev/full", "No space left"]);
    // Only a reader that goes away is no failure.
    run(&["remove", "a.ehdb", "a", "--print-old"]).fails(4, &["standard output", "No space left"]);
}

#[test]
fn a_repair_says_what_it_found() {
    // Fails if damage had the status of a broken device, or if figures were those of another thing.
    let place = Place::new();
    let lines: String = (0..2000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", &lines);
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let mut damaged = place.read("a.ehdb");
    assert_eq!(place.json(&["repair", "a.ehdb"])["records"], 2000);
    assert_eq!(place.ok(&["repair", "a.ehdb"]), b"a.ehdb: usable; 2000 records\n");
    let whole = place.json(&["repair", "a.ehdb", "--into", "whole.ehdb"]);
    assert_eq!((&whole["items"], &whole["damages"]), (&2000.into(), &0.into()));
    let value = damaged.windows(9).position(|bytes| bytes == b"value1000").unwrap();
    damaged[value..value + 8].fill(0xff);
    place.write("a.ehdb", &damaged);
    place.run(&["repair", "a.ehdb"]).fails(1, &["a.ehdb", "damaged at byte"]);
    assert_eq!(place.read("a.ehdb"), damaged);
    let run = place.run(&["repair", "a.ehdb", "--into", "b.ehdb", "--json"]);
    assert!(run.status == 1 && run.stderr.contains("passed over"), "{run:?}");
    let said: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(place.ok(&["count", "b.ehdb"]), format!("{}\n", said["items"]).as_bytes());
    assert!(said["items"].as_u64() > Some(1000) && said["damages"].as_u64() > Some(0), "{said}");
    let first = &said["listed"][0];
    assert!(first["at"].as_u64().is_some_and(|at| at < damaged.len() as u64), "{said}");
    let invariant = first["invariant"].as_str().unwrap();
    let run = place.run(&["repair", "a.ehdb", "--into", "c.ehdb"]);
    let text = String::from_utf8(run.stdout).unwrap();
    let line = format!("a.ehdb: damaged at byte {}: expected that {invariant}", first["at"]);
    assert!(!invariant.is_empty() && text.contains(&line), "{text}");
    assert!(text.ends_with(&format!("c.ehdb: {} items\n", said["items"])), "{text}");
    // Without a root nothing can be copied: that is damage, too, and leaves no file.
    damaged[512..1024].fill(0xa5);
    place.write("a.ehdb", &damaged);
    place.run(&["repair", "a.ehdb", "--into", "d.ehdb"]).fails(1, &["a.ehdb", "damaged at byte"]);
    assert!(!place.path("d.ehdb").exists());
}
