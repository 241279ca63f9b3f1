//! What the tests of the program share: a directory of its own, and one way to run it.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "this is a test, though not inside a test function")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where the program lies.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_everhash");

/// Returns a new terminal of 100 columns and 30 rows: the end of who looks at it, and that of
/// programs.
pub fn terminal() -> (File, File) {
    terminal_of(100, 30)
}

/// As [`terminal`], of another size.
pub fn terminal_of(columns: u16, rows: u16) -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size =
        rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let mut options = File::options();
    let programs = options.read(true).write(true).open(OsStr::from_bytes(name.as_bytes()));
    (master.into(), programs.unwrap())
}

/// A directory in which the program runs, removed at the end.
pub struct Place(tempfile::TempDir);

/// What a run left behind.
#[derive(Debug)]
pub struct Run {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Returns the program, to be run in this directory.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.directory()).args(arguments);
        command
    }

    /// Runs the program without input.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Run {
        Run::of(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the program with `input` on standard input.
    pub fn feed<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The program may end before it has read all.
        let _ = stdin.write_all(input);
        drop(stdin);
        Run::of(child.wait_with_output().unwrap())
    }

    /// Runs the program on a terminal of 100 columns and 30 rows; returns what it printed there.
    pub fn on_terminal(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let (shown, status) = self.ended_on_terminal(arguments, environment);
        assert_eq!(status, 0, "{shown:?}");
        shown
    }

    /// As [`Place::on_terminal`]; returns the status, too.
    pub fn ended_on_terminal(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> (String, i32) {
        let (mut master, terminal) = terminal();
        let open = || terminal.try_clone().unwrap();
        let mut command = self.command(arguments);
        command.env("TERM", "xterm-256color").envs(environment.iter().copied());
        if environment.is_empty() {
            command.env_remove("NO_COLOR");
        }
        let mut child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        // The last handles of ours: the end of the program is then the end of the terminal.
        drop((command, terminal));
        let mut shown = Vec::new();
        // The end is an error here: the terminal hangs up.
        let _ = master.read_to_end(&mut shown);
        let status = child.wait().unwrap().code().unwrap();
        (String::from_utf8(shown).unwrap(), status)
    }

    /// Runs the program, which must succeed without a word on standard error; returns its output.
    pub fn ok<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Vec<u8> {
        self.run(arguments).ok()
    }

    /// Runs the program with `--json` and returns the figures.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_slice(&self.ok(&arguments)).unwrap()
    }
}

impl Run {
    pub fn of(output: Output) -> Run {
        let status = output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        Run { status, stdout: output.stdout, stderr }
    }

    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert!(self.status == 0 && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }

    /// Asserts that the run failed with `status` and one line on standard error that contains all
    /// `parts`, and that it said nothing else.
    #[track_caller]
    pub fn fails(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.stdout.is_empty(), "{self:?}");
        assert!(self.stderr.ends_with('\n') && self.stderr.lines().count() == 1, "{self:?}");
        assert!(self.stderr.starts_with("everhash: "), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no '{part}' in {self:?}");
        }
    }
}

/// Numbers that look random and are the same in every run (xorshift).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| (self.next() >> 24) as u8).collect()
    }
}
