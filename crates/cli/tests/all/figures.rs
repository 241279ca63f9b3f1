//! The figures that move: `stats --watch`, `top`, and the file from which they come.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{LocalModes, tcgetattr};

use crate::support::Place;

/// Makes a database that this process has open, with its figures beside it.
fn open(place: &Place) -> everhash_store::Db {
    let every = Duration::from_millis(20);
    let options = everhash_store::Db::options().metrics_file(place.path("a.ehdb.prom"), every);
    let db = options.create(place.path("a.ehdb")).unwrap();
    for number in 0..1234u32 {
        db.put(number.to_le_bytes(), b"value").unwrap();
        db.get(number.to_le_bytes()).unwrap();
    }
    std::thread::sleep(3 * every);
    db
}

#[test]
fn a_terminal_shows_a_picture_and_a_pipe_gets_lines() {
    // Fails if the picture went to a pipe, scrolled, or lacked a figure; or if colour came unasked.
    let place = Place::new();
    let db = open(&place);
    let arguments = ["top", "a.ehdb", "--every", "0.05", "--count", "3"];
    let shown = place.on_terminal(&arguments, &[]);
    assert_eq!(shown.matches("\x1b[H").count(), 3, "{shown:?}");
    assert!(shown.contains("\x1b[1m"), "{shown:?}");
    for part in ["a.ehdb: open for ", "engine reef", "1234", "reads", "writes", "p99", "q quits"] {
        assert!(shown.contains(part), "no '{part}' in {shown:?}");
    }
    let plain = place.on_terminal(&arguments, &[("NO_COLOR", "1")]);
    assert!(plain.contains("a.ehdb: open for ") && !plain.contains("\x1b[1m"), "{plain:?}");
    for (arguments, count) in
        [(&arguments[..], 3), (&["stats", "a.ehdb", "--watch=0.05", "--count", "3"], 3)]
    {
        let lines = String::from_utf8(place.ok(arguments)).unwrap();
        assert!(!lines.contains('\x1b'), "{lines:?}");
        let (head, rest) = lines.split_once('\n').unwrap();
        assert!(head.contains("pairs") && head.contains("reads/s"), "{lines}");
        assert_eq!(rest.lines().filter(|line| line.contains(" 1234 ")).count(), count, "{lines}");
    }
    db.close().unwrap();
    let shown = place.on_terminal(&["top", "a.ehdb", "--count", "1"], &[]);
    assert!(shown.contains("a.ehdb: closed"), "{shown:?}");
}

#[test]
fn figures_that_are_missing_are_asked_for() {
    // Fails if whoever watches were not told how to get figures.
    let place = Place::new();
    place.ok(&["create", "a.ehdb"]);
    place.run(&["top", "a.ehdb"]).fails(4, &["a.ehdb.prom", "--metrics"]);
    // On a terminal, too: a screen that is cleared after it takes the message away.
    let (shown, status) = place.ended_on_terminal(&["top", "a.ehdb"], &[]);
    assert!(status == 4 && shown.contains("a.ehdb.prom"), "{shown:?}");
    assert!(!shown.contains("\x1b[2J"), "{shown:?}");
    place.write("b.prom", "something else\n");
    place.run(&["top", "b.prom"]).fails(3, &["b.prom", "no figures"]);
    place.run(&["top", "b.prom", "--every", "0"]).status.eq(&2).then_some(()).unwrap();
    // A database that is open nowhere is opened for each look.
    let lines = place.ok(&["stats", "a.ehdb", "--watch=0.01", "--count", "2"]);
    assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 3);
    let text = String::from_utf8(place.ok(&["stats", "a.ehdb", "--prometheus"])).unwrap();
    assert!(text.contains("\neverhash_pairs{database=\"a.ehdb\"} 0\n"), "{text}");
}

#[test]
fn an_import_can_be_watched_and_a_file_compacted() {
    // Fails if the figures of an import were old at its end, or a compaction changed the mode.
    let place = Place::new();
    let lines: String = (0..5000).map(|number| format!("key{number}\tvalue{number}\n")).collect();
    place.write("a.tsv", lines);
    place.ok(&["import", "a.tsv", "a.ehdb", "--metrics", "--mode", "640"]);
    let figures = String::from_utf8(place.read("a.ehdb.prom")).unwrap();
    assert!(figures.contains("everhash_pairs{database=\"a.ehdb\"} 5000\n"), "{figures}");
    assert!(figures.contains("everhash_open{database=\"a.ehdb\"} 0\n"), "{figures}");
    let before = place.ok(&["export", "a.ehdb", "--sort"]);
    let compacted = place.json(&["compact", "a.ehdb"]);
    assert_eq!(compacted["items"], 5000);
    assert!(place.ok(&["export", "a.ehdb", "--sort"]) == before);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &place.path("a.ehdb").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o640);
    let truncated = place.json(&["compact", "a.ehdb", "--truncate"]);
    assert_eq!(truncated["items"], 0);
    assert_eq!(place.ok(&["count", "a.ehdb"]), b"0\n");
    assert_eq!(place.run(&["create", "b.ehdb", "--mode", "222"]).status, 2);
}

#[test]
fn a_database_that_has_stopped_is_shown_as_one_and_old_figures_as_old() {
    // Fails if whoever watches saw "open" for a database that refuses every call, or took figures
    // of a program that has ended for those of now.
    let place = Place::new();
    let text = "everhash_info{database=\"a.ehdb\",engine=\"reef\"} 1\n\
                everhash_written_seconds{database=\"a.ehdb\"} 1000\n\
                everhash_open{database=\"a.ehdb\"} 1\n\
                everhash_stopped{database=\"a.ehdb\"} ";
    for (stopped, state) in [("1", "STOPPED after a failure"), ("0", "open for ")] {
        place.write("a.prom", format!("{text}{stopped}\n"));
        let shown = place.on_terminal(&["top", "a.prom", "--count", "1"], &[]);
        assert!(shown.contains(&format!("a.ehdb: {state}")), "{shown:?}");
        assert!(shown.contains("; figures are ") && shown.contains(" h old"), "{shown:?}");
    }
    // Half a minute is old as well: programs write their figures more often.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let recent = text.replace("1000\n", &format!("{}\n", now.as_secs() - 30));
    place.write("a.prom", format!("{recent}0\n"));
    let shown = place.on_terminal(&["top", "a.prom", "--count", "1"], &[]);
    assert!(shown.contains("; figures are 3") && shown.contains(" s old"), "{shown:?}");
}

#[test]
fn a_database_that_was_not_closed_is_watched_by_its_last_figures() {
    // Fails if whoever watches were refused when the program ended, or took it for one that runs.
    let place = Place::new();
    let db = open(&place);
    std::fs::copy(place.path("a.ehdb"), place.path("b.ehdb")).unwrap();
    std::fs::copy(place.path("a.ehdb.prom"), place.path("b.ehdb.prom")).unwrap();
    let look = |name: &str| {
        let lines = place.ok(&["stats", name, "--watch=0.05", "--count", "1"]);
        String::from_utf8(lines).unwrap()
    };
    let crashed = look("b.ehdb");
    assert!(crashed.contains(" 1234 ") && !crashed.contains("closed"), "{crashed}");
    db.close().unwrap();
    let closed = look("a.ehdb.prom");
    assert!(closed.contains(" 1234 ") && closed.ends_with("  closed\n"), "{closed}");
}

#[test]
fn an_import_is_relaxed_in_a_new_database_alone() {
    // Fails if power loss during an import could cost what was there before.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    for durability in ["process", "batch"] {
        place.ok(&["import", "a.tsv", "a.ehdb", "--metrics"]);
        let figures = String::from_utf8(place.read("a.ehdb.prom")).unwrap();
        assert!(figures.contains(&format!("durability=\"{durability}\"")), "{figures}");
    }
}

/// Returns whether programs that are started here ignore a signal, as under nohup.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    u64::from_str_radix(ignored, 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    // Fails if the shell that comes next showed nothing of what is typed, or if the program did not
    // end by the signal, as whoever sent it expects.
    let place = Place::new();
    let db = open(&place);
    let ends = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
    for signal in ends.into_iter().filter(|signal| !is_ignored(*signal)) {
        let (_master, terminal) = crate::support::terminal();
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        let before = modes();
        assert!(before.contains(LocalModes::ECHO | LocalModes::ICANON));
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = place.command(&["top", "a.ehdb"]);
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let begun = Instant::now();
        while modes() == before {
            assert!(begun.elapsed() < Duration::from_secs(20), "it takes no keys");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
        assert_eq!(modes(), before, "{signal}");
    }
    db.close().unwrap();
}
