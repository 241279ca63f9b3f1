//! The help texts: every example in them does what it says, and they respect the terminal.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::process::{Command, Stdio};

use crate::support::{PROGRAM, Place, Run};

/// Returns the names of all commands, as the program lists them.
fn commands(place: &Place) -> Vec<String> {
    let help = String::from_utf8(place.ok(&["--help"])).unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = list.lines().filter(|line| !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_of_a_help_text_does_what_it_says() {
    // Fails if an example had an option that is gone, needed a file that none before it makes, or
    // ended with another status than it says.
    let place = Place::new();
    let programs = std::path::Path::new(PROGRAM).parent().unwrap().to_str().unwrap();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    for name in commands(&place) {
        let help = String::from_utf8(place.ok(&[&name, "--help"])).unwrap();
        let (_, examples) =
            help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name} has no example"));
        let examples = examples.lines().take_while(|line| !line.is_empty());
        let mut count = 0;
        for example in examples {
            let (line, status) = example.split_once("# status ").unwrap_or((example, "0"));
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).env("PATH", &path).current_dir(place.directory());
            let output = shell.output().unwrap();
            assert_eq!(output.status.code(), status.parse().ok(), "{example}: {output:?}");
            count += 1;
        }
        assert!(count > 0, "{name} has no example");
    }
}

#[test]
fn a_terminal_gets_styles_unless_it_asks_for_none() {
    // Fails if NO_COLOR were ignored, or if styles reached what is no terminal.
    let place = Place::new();
    let styled = |text: &str| text.contains("\x1b[");
    assert!(styled(&place.on_terminal(&["--help"], &[])));
    assert!(!styled(&place.on_terminal(&["--help"], &[("NO_COLOR", "1")])));
    assert!(!styled(&String::from_utf8(place.ok(&["--help"])).unwrap()));
}

#[test]
fn a_text_that_cannot_be_shown_is_an_error() {
    // Fails if a help text that went to a full disk had status 0, as other output has not.
    let place = Place::new();
    let to = |file: &str, arguments: &[&str]| {
        let mut command = place.command(arguments);
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        Run::of(
            command
                .stdout(file)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
                .wait_with_output()
                .unwrap(),
        )
    };
    for arguments in [&["--help"][..], &["--version"], &["get", "--help"], &["help", "device"]] {
        to("/dev/full", arguments).fails(4, &["standard output: cannot be written"]);
        to("/dev/null", arguments).ok();
    }
}
