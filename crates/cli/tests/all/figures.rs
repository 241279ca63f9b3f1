//! The figures that move: `stats --watch`, `top`, and the file from which they come.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::io::{Read, Write};
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
    let begun = Instant::now();
    let is_written = || {
        let text = std::fs::read_to_string(place.path("a.ehdb.prom")).unwrap_or_default();
        text.lines().any(|line| line.starts_with("everhash_pairs{") && line.ends_with(" 1234"))
    };
    while !is_written() {
        assert!(begun.elapsed() < Duration::from_secs(20), "no figures of all pairs");
        std::thread::sleep(every);
    }
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
    let dumb = place.on_terminal(&arguments, &[("TERM", "dumb")]);
    assert!(dumb.contains("a.ehdb: open for ") && !dumb.contains("\x1b[1m"), "{dumb:?}");
    // What is empty asks for nothing.
    assert!(place.on_terminal(&arguments, &[("NO_COLOR", "")]).contains("\x1b[1m"));
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
    for every in ["0", "0.009", "86401", "nan", "inf", "soon"] {
        place.run(&["top", "b.prom", "--every", every]).fails(2, &["--every <SECONDS>"]);
    }
    // A database that is open nowhere is opened for each look.
    let lines = place.ok(&["stats", "a.ehdb", "--watch=0.01", "--count", "2"]);
    assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 3);
    let text = String::from_utf8(place.ok(&["stats", "a.ehdb", "--prometheus"])).unwrap();
    assert!(text.contains("\neverhash_pairs{database=\"a.ehdb\"} 0\n"), "{text}");
}

#[test]
fn looks_are_as_far_apart_and_as_many_as_was_asked_for() {
    // Fails if the time between two looks were another one, if the program waited after the last
    // look, or if it ended by itself.
    let place = Place::new();
    place.write(
        "a.prom",
        "everhash_info{database=\"a\",engine=\"reef\"} 1\neverhash_pairs{database=\"a\"} 7\n",
    );
    let seconds = |look: &dyn Fn()| {
        let begun = Instant::now();
        look();
        begun.elapsed().as_secs_f64()
    };
    let [top, watch] = [["top", "a.prom", "--every="], ["stats", "a.prom", "--watch="]];
    for [command, name, every] in [top, watch] {
        let look = |every_seconds: &str, count: &str| {
            let every = format!("{every}{every_seconds}");
            place.ok(&[command, name, &every, "--count", count]);
        };
        assert!(seconds(&|| look("0.2", "2")) > 0.2, "{command}");
        assert!(seconds(&|| look("40", "1")) < 30.0, "{command}");
        let script = format!("\"$0\" {command} {name} {every}0.01 | head -n 5");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, crate::support::PROGRAM]).current_dir(place.directory());
        let lines = crate::support::Run::of(shell.output().unwrap()).ok();
        assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 5, "{command}");
    }
    let shown =
        || drop(place.on_terminal(&["top", "a.prom", "--every", "40", "--count", "1"], &[]));
    assert!(seconds(&shown) < 30.0);
    let twice =
        || drop(place.on_terminal(&["top", "a.prom", "--every", "0.2", "--count", "2"], &[]));
    assert!(seconds(&twice) > 0.2);
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
    // Ten seconds are old as well: programs write their figures more often.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // Those of a clock that is ahead are not, however long this test takes.
    for (at, is_old) in [(now.as_secs() - 10, true), (now.as_secs() + 60, false)] {
        let recent = text.replace("1000\n", &format!("{at}\n"));
        place.write("a.prom", format!("{recent}0\n"));
        let shown = place.on_terminal(&["top", "a.prom", "--count", "1"], &[]);
        assert_eq!(
            shown.contains("; figures are ") && shown.contains(" s old"),
            is_old,
            "{shown:?}"
        );
    }
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
    // Fails if power loss during an import could cost what was there before, or if --durability
    // were ignored.
    let place = Place::new();
    place.write("a.tsv", "a\t1\n");
    for (options, durability) in [
        (&[][..], "process"),
        (&[], "batch"),
        (&["--table", "new"], "batch"),
        (&["--durability", "immediate"], "immediate"),
        (&["--durability", "100ms"], "100ms"),
    ] {
        place.ok(&[&["import", "a.tsv", "a.ehdb", "--metrics"][..], options].concat());
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

#[test]
fn a_key_ends_the_picture_and_the_terminal_is_as_it_was() {
    // Fails if q, an interrupt or an end of input did nothing, if any other key ended the program,
    // or if the shell that comes next showed nothing of what is typed.
    let place = Place::new();
    let db = open(&place);
    for key in [b'q', b'Q', 3, 4] {
        let (mut master, terminal) = crate::support::terminal();
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        let before = modes();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = place.command(&["top", "a.ehdb", "--every", "100"]);
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let begun = Instant::now();
        let wait_until = |is_so: &mut dyn FnMut() -> bool| {
            while !is_so() {
                if begun.elapsed() > Duration::from_secs(20) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            true
        };
        assert!(wait_until(&mut || modes() != before), "it takes no keys");
        master.write_all(b"xy").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(child.try_wait().unwrap().is_none(), "any key ends it");
        master.write_all(&[key]).unwrap();
        let ended = wait_until(&mut || child.try_wait().unwrap().is_some());
        if !ended {
            child.kill().unwrap();
        }
        assert!(ended && child.wait().unwrap().success(), "key {key}");
        assert_eq!(modes(), before, "key {key}");
    }
    db.close().unwrap();
}

#[test]
fn a_picture_is_no_larger_than_its_terminal() {
    // Fails if the first lines were pushed out of a small terminal, or a line broke in two.
    let place = Place::new();
    let db = open(&place);
    let (mut master, terminal) = crate::support::terminal_of(40, 8);
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let mut command = place.command(&["top", "a.ehdb", "--count", "1"]);
    command.env("NO_COLOR", "1");
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop((command, terminal));
    let mut shown = Vec::new();
    // The end is an error here: the terminal hangs up.
    let _ = master.read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    let shown = String::from_utf8(shown).unwrap();
    let (_, picture) = shown.split_once("\x1b[H").unwrap();
    let lines: Vec<_> = picture.split("\x1b[K").collect();
    // The last part is what clears the rest.
    assert_eq!(lines.len() - 1, 7, "{shown:?}");
    assert!(lines[..7].iter().all(|line| line.trim().chars().count() <= 40), "{shown:?}");
    db.close().unwrap();
}

#[test]
fn an_import_shows_on_a_terminal_how_far_it_is() {
    // Fails if the bar stood still, counted nothing, stayed behind, or went to a pipe.
    let place = Place::new();
    let lines: String = (0..200_000).map(|number| format!("key{number}\tvalue\n")).collect();
    place.write("a.tsv", lines);
    let shown = place.on_terminal(&["import", "a.tsv", "a.ehdb"], &[]);
    let bars: Vec<_> = shown.split('\r').filter(|part| part.contains(" records, ")).collect();
    let percents = bars.iter().filter_map(|bar| {
        let (before, _) = bar.split_once('%')?;
        before.rsplit([' ', 'K']).find(|word| !word.is_empty())?.parse::<u32>().ok()
    });
    assert!(percents.max() > Some(0), "{shown:?}");
    assert!(bars.iter().any(|bar| !bar.contains(" 0 records, ")), "{shown:?}");
    let (bars, summary) = shown.rsplit_once("\x1b[2K").unwrap();
    assert!(bars.contains('%') && summary.contains("200000 records (200000 new"), "{summary:?}");
    assert!(!summary.contains('%'), "{summary:?}");
}
