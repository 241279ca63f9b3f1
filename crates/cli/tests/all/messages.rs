//! What a failure says: one line, with the name of the file and with what helps, and no data.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

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
        (&["add", "a.ehdb", "key", "secret"], "the value of [NUMBER]: "),
        (&["get", "a.ehdb", "key", "--range", "secret"], "--range <FROM..TO>: write FROM..TO"),
        (&["get", "a.ehdb", "secret", "--range"], "a value is missing for --range"),
        (&["get", "a.ehdb", "key", "--tabel", "secret"], "argument 4 is no option here"),
        (&["get", "a.ehdb", "key", "--raw", "--length"], "does not go with"),
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
}
