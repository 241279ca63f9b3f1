//! A disk that fills up: an error that says so, and every record from before is there.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::{Place, Run};

/// Runs a script as root of a user namespace of its own, in which `disk` is a file system of
/// `bytes` bytes; `None` where the system forbids that.
fn on_small_disk(place: &Place, bytes: u32, script: &str) -> Option<Run> {
    std::fs::create_dir(place.path("disk")).unwrap();
    let mount = format!("mount -t tmpfs -o size={bytes} none disk");
    let unshared = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, crate::support::PROGRAM]);
        command.current_dir(place.directory()).output()
    };
    if !unshared(&mount).is_ok_and(|output| output.status.success()) {
        println!("skipped: no file system can be mounted in a namespace here");
        return None;
    }
    Some(Run::of(unshared(&format!("{mount} || exit 99; {script}")).unwrap()))
}

#[test]
fn p10_a_full_disk_is_an_error_and_costs_nothing() {
    // Fails if a store met the full disk as a signal, or if the import left a database that does
    // not open, lacks records that were stored, or holds broken ones.
    let place = Place::new();
    let line = |number| format!("key{number}\t{}\n", "value".repeat(20));
    let (first, second) = (0..2000, 2000..100_000);
    place.write("a.tsv", first.map(line).collect::<String>());
    place.write("b.tsv", second.map(line).collect::<String>());
    let script = "\"$0\" import a.tsv disk/a.ehdb >out && \
                  \"$0\" export disk/a.ehdb --sort >before; \
                  \"$0\" import b.tsv disk/a.ehdb --durability process; echo $? >status; \
                  \"$0\" check disk/a.ehdb >checked && \"$0\" export disk/a.ehdb >after && \
                  \"$0\" remove disk/a.ehdb key7 && \
                  \"$0\" put disk/a.ehdb key7 \"$(printf %0100d 7)\" && \
                  \"$0\" get disk/a.ehdb key7 >got";
    let Some(run) = on_small_disk(&place, 4 << 20, script) else { return };
    // What was removed makes room for a value of the same length.
    run.fails(0, &["disk/a.ehdb", "full", "free space", "records stored before"]);
    assert_eq!(place.read("status"), b"4\n");
    let before = String::from_utf8(place.read("before")).unwrap();
    let after = String::from_utf8(place.read("after")).unwrap();
    let all: std::collections::HashSet<_> = after.lines().collect();
    assert_eq!(before.lines().count(), 2000);
    assert!(before.lines().all(|line| all.contains(line)));
    assert!(all.len() > 4000, "the disk took {} records only", all.len());
    let sent: std::collections::HashSet<_> = (0..100_000).map(line).collect();
    assert!(all.iter().all(|line| sent.contains(&format!("{line}\n"))));
    let stored: usize = run
        .stderr
        .split_once("stored before: ")
        .and_then(|(_, rest)| rest.split(';').next()?.parse().ok())
        .unwrap();
    assert_eq!(all.len(), 2000 + stored, "what was counted is there");
    assert_eq!(place.read("got"), format!("{:0100}\n", 7).as_bytes());
}

#[test]
fn a_disk_too_small_for_a_database_leaves_none() {
    // Fails if half of a new file stayed on a full disk.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    let script = "\"$0\" import a.tsv disk/a.ehdb; echo $? >status; ls -A disk >names";
    let Some(run) = on_small_disk(&place, 4 << 10, script) else { return };
    run.fails(0, &["disk/a.ehdb", "free space"]);
    assert_eq!((&place.read("status")[..], &place.read("names")[..]), (&b"4\n"[..], &b""[..]));
}

#[test]
fn an_export_to_a_full_disk_says_what_helps_and_leaves_what_was_there() {
    // Fails if the message ended with the error of the system, or if half an export took the place
    // of a whole one.
    let place = Place::new();
    let line = |number| format!("key{number}\t{}\n", "value".repeat(20));
    place.write("a.tsv", (0..2000).map(line).collect::<String>());
    place.ok(&["import", "a.tsv", "a.ehdb"]);
    let run = place.run(&["export", "a.ehdb", "/dev/full"]);
    run.fails(4, &["/dev/full: cannot be written", "; free space"]);
    let script = "echo before >disk/b.tsv; \"$0\" export a.ehdb disk/b.tsv; echo $? >status; \
                  cat disk/b.tsv >kept; ls -A disk >names";
    let Some(run) = on_small_disk(&place, 64 << 10, script) else { return };
    run.fails(0, &["disk/b.tsv: cannot be written", "; free space"]);
    let [status, kept, names] = ["status", "kept", "names"].map(|name| place.read(name));
    let read = (&status[..], &kept[..], &names[..]);
    assert_eq!(read, (&b"4\n"[..], &b"before\n"[..], &b"b.tsv\n"[..]));
}

#[test]
fn p10_a_database_with_holes_is_opened_on_a_full_disk() {
    // Fails with SIGBUS if an opening or a check loads a word from a hole: on a tmpfs that takes a
    // page of storage, and there is none.
    for engine in ["reef", "walsh", "turbo", "wophi", "elimda", "tiered"] {
        let place = Place::new();
        place.write("a.tsv", (0..2000).map(|key| format!("key{key}\tvalue\n")).collect::<String>());
        let script = format!(
            "\"$0\" import --engine {engine} a.tsv disk/a.ehdb >out && \
             truncate -s +64M disk/a.ehdb && {{ cat /dev/zero >disk/ballast; \
             \"$0\" get disk/a.ehdb key7 >got && \"$0\" check disk/a.ehdb && \
             \"$0\" remove disk/a.ehdb key8 && \"$0\" count disk/a.ehdb; }}"
        );
        let Some(run) = on_small_disk(&place, 16 << 20, &script) else { return };
        assert!(run.stdout.ends_with(b"\n1999\n"), "{engine}: {}", run.stderr);
        assert_eq!(place.read("got"), b"value\n", "{engine}");
    }
}
