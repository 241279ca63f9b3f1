//! How a command ends that does not end well: one line on standard error, and a status.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What every status means; shown by `everhash --help`.
pub const STATUSES: &str = "\
Exit status:
  0  done; or the answer is yes
  1  the answer is no: the key is absent, the database is damaged, a promise was broken
  2  the command line is wrong
  3  the input is wrong: a file that is missing or has a bad line
  4  the database, the device or the output failed; the message says what to do
  5  the state to replay does not exist in this program; nothing was judged";

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command ends early.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    /// `None` for an answer that needs no words, or when the output is closed.
    message: Option<String>,
}

impl Failure {
    /// The answer is no, and the status says all.
    pub fn no() -> Failure {
        Failure { status: 1, message: None }
    }

    /// The answer is no, for this reason.
    pub fn answer(message: impl Display) -> Failure {
        Failure { status: 1, message: Some(message.to_string()) }
    }

    /// The command line is wrong in a way that only shows later.
    pub fn usage(message: impl Display) -> Failure {
        Failure { status: 2, message: Some(message.to_string()) }
    }

    /// A file that the user named is missing or has a bad line.
    pub fn input(message: impl Display) -> Failure {
        Failure { status: 3, message: Some(message.to_string()) }
    }

    /// Something that the command needs failed.
    pub fn device(message: impl Display) -> Failure {
        Failure { status: 4, message: Some(message.to_string()) }
    }

    /// A replay is of another program.
    pub fn stale(message: impl Display) -> Failure {
        Failure { status: 5, message: Some(message.to_string()) }
    }

    /// Writing to `target` failed. A closed pipe is no failure: the reader has seen enough.
    pub fn output(target: &Path, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { status: 0, message: None };
        }
        Failure::device(format_args!("{}: cannot be written: {error}", target.display()))
    }

    /// Goes on where the reader of the output went away, for a command whose answer comes after it.
    pub fn unless_unread(printed: Outcome) -> Outcome {
        match printed {
            Err(Failure { status: 0, .. }) => Ok(()),
            other => other,
        }
    }

    /// Puts words before the message.
    pub fn after(mut self, what: impl Display) -> Failure {
        self.message = self.message.map(|message| format!("{message} {what}"));
        self
    }

    /// Prints the message and returns the status.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            // A message is one line, whatever a file name or an option contains.
            let line: String =
                message.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            // `eprintln` would panic where standard error is closed.
            let _ =
                io::Write::write_all(&mut io::stderr(), format!("everhash: {line}\n").as_bytes());
        }
        ExitCode::from(self.status)
    }
}

impl From<everhash_store::Error> for Failure {
    fn from(error: everhash_store::Error) -> Failure {
        use everhash_store::Error;
        match error {
            Error::UnknownEngine { .. }
            | Error::Mismatch { .. }
            | Error::NoTable { .. }
            | Error::NoTables { .. }
            | Error::TableKind { .. }
            | Error::TableName { .. } => Failure::usage(error),
            Error::Pair(_) => Failure::input(error),
            _ if error.is_setting() => Failure::usage(error),
            _ => Failure::device(error),
        }
    }
}
