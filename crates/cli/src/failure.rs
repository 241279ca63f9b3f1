//! How a command ends that does not end well: one line on standard error, and a status.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use everhash_pmem::USUAL_CAPACITY_BYTES;
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

/// What every status means; shown by `everhash --help`.
pub const STATUSES: &str = "\
Exit status:
  0  done; or the answer is yes
  1  the answer is no: the key is absent, the database is damaged, a promise was broken
  2  the command line is wrong, or names an engine, a table or a setting that there is not
  3  the input is wrong: a file to read is missing or has a bad line, or a pair is too long
  4  the database is missing or failed, or the device or the output; the message says what to do
  5  the state to replay does not exist in this program; nothing was judged";

/// What an engine may take of a device beside what it needs.
///
/// Unit: bytes. Source: ours; more than any takes at a time.
const STEP_BYTES: u64 = 1 << 28;

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command ends early.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    /// `None` for an answer that needs no words, or when the output is closed.
    message: Option<String>,
    /// Whether the message names no file, as it is about a pair.
    of_pair: bool,
}

/// What takes what is intact out of a damaged database.
pub const SALVAGE: &str = "everhash repair DB --into NEW_DB";

impl Failure {
    /// Everything is done already.
    pub fn done() -> Failure {
        Failure { status: 0, message: None, of_pair: false }
    }

    /// The answer is no, and the status says all.
    pub fn no() -> Failure {
        Failure { status: 1, message: None, of_pair: false }
    }

    /// The answer is no, for this reason.
    pub fn answer(message: impl Display) -> Failure {
        Failure::saying(1, message)
    }

    /// The command line is wrong in a way that only shows later.
    pub fn usage(message: impl Display) -> Failure {
        Failure::saying(2, message)
    }

    /// A file that the user named is missing or has a bad line.
    pub fn input(message: impl Display) -> Failure {
        Failure::saying(3, message)
    }

    /// Something that the command needs failed.
    pub fn device(message: impl Display) -> Failure {
        Failure::saying(4, message)
    }

    /// A replay is of another program.
    pub fn stale(message: impl Display) -> Failure {
        Failure::saying(5, message)
    }

    /// The answer is that the database is damaged.
    pub fn damaged(error: &everhash_store::Error) -> Failure {
        Failure::answer(format_args!("{error}: {SALVAGE}"))
    }

    fn saying(status: u8, message: impl Display) -> Failure {
        Failure { status, message: Some(message.to_string()), of_pair: false }
    }

    /// Writing to `target` failed. A closed pipe is no failure: the reader has seen enough.
    pub fn output(target: &Path, error: &io::Error) -> Failure {
        let remedy = match error.kind() {
            io::ErrorKind::BrokenPipe => return Failure::done(),
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => {
                "free space, write elsewhere, or raise the limit (ulimit -f, a quota)"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "check the owner and mode of the file and its directory, or write elsewhere"
            }
            _ => "check the device, or write elsewhere",
        };
        Failure::device(format_args!("{}: cannot be written: {error}; {remedy}", target.display()))
    }

    /// Goes on where the reader of the output went away, for a command whose answer comes after it.
    pub fn unless_unread(printed: Outcome) -> Outcome {
        match printed {
            Err(Failure { status: 0, .. }) => Ok(()),
            other => other,
        }
    }

    /// Appends words to the message.
    pub fn after(mut self, what: impl Display) -> Failure {
        self.message = self.message.map(|message| format!("{message} {what}"));
        self
    }

    /// Names the database `path` in a message that names none.
    pub fn of(mut self, path: &Path) -> Failure {
        if std::mem::take(&mut self.of_pair) {
            self.message = self.message.map(|message| format!("{}: {message}", path.display()));
        }
        self
    }

    /// A database could not be made, of a size that the user has chosen.
    pub fn of_new(error: everhash_store::Error) -> Failure {
        let is_beyond = |needed: u64| needed >= USUAL_CAPACITY_BYTES;
        match (&error, error.needed_bytes()) {
            (everhash_store::Error::File { path, .. }, Some(needed)) if is_beyond(needed) => {
                Failure::usage(format_args!(
                    "{path}: a table with these settings takes {needed} bytes, and a database has \
                     at most {USUAL_CAPACITY_BYTES}; lower what --set says"
                ))
            }
            (everhash_store::Error::File { path, .. }, Some(needed)) => {
                Failure::device(format_args!(
                    "{path}: full: a table of this size takes {needed} bytes or more, and there is \
                     no such space left on the device, or no such file is allowed (ulimit -f, a \
                     quota); lower --expect or what --set says, or free space"
                ))
            }
            _ => error.into(),
        }
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
            | Error::TableName { .. } => Failure::usage(error),
            Error::TooManyExpected { path, engine, expected, most } => {
                Failure::usage(format_args!(
                    "{path}: --expect {expected}: a new database with the engine {engine} and \
                     these options is made for at most {most} pairs; lower it, as the database \
                     grows by need"
                ))
            }
            Error::TableKind { path, name, expiring: true } => Failure::usage(format_args!(
                "{path}: the pairs of the table {name:?} have expiry times; put and import take \
                 --expires-after; use another table for add, --if-value and --print-old"
            )),
            Error::TableKind { path, name, .. } => Failure::usage(format_args!(
                "{path}: the pairs of the table {name:?} have no expiry times; leave \
                 --expires-after out, or choose another table"
            )),
            Error::Pair(_) => Failure { of_pair: true, ..Failure::input(error) },
            _ if error.limit().is_some() => Failure::device(format_args!(
                "{error} (export and import copy pairs; --set chooses the settings of a new \
                 database, see everhash engines)"
            )),
            Error::File { ref path, .. }
                if error.needed_bytes().is_some_and(|needed| has_room(&path.0, needed)) =>
            {
                Failure::device(format_args!(
                    "{path}: full, though the device has room: a quota may be reached; raise it, \
                     or export, and import into a database elsewhere"
                ))
            }
            Error::File { ref path, .. } if error.is_full() || is_too_long(&error) => {
                Failure::device(format_args!(
                    "{path}: full: no space left on the device, or no longer file is allowed \
                     (ulimit -f, a quota, 1 TiB); free space"
                ))
            }
            _ if error.is_setting() => Failure::usage(error),
            _ if error.is_damage() => Failure { status: 4, ..Failure::damaged(&error) },
            _ => Failure::device(error),
        }
    }
}

/// Returns whether a device has room for so many bytes more, and the file may have them.
fn has_room(path: &Path, needed: u64) -> bool {
    let is_limited = || getrlimit(Resource::Fsize).current.is_some();
    let length = path.metadata().map_or(0, |found| found.len());
    let free = statvfs(path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let longest = length.saturating_add(needed).saturating_add(STEP_BYTES);
    free >= needed.saturating_add(STEP_BYTES) && longest <= USUAL_CAPACITY_BYTES && !is_limited()
}

/// Returns whether a file may not become as long as it has to be.
fn is_too_long(error: &everhash_store::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_room_for_what_is_needed_and_a_step() {
        // Fails if whoever reached a quota were told to free space, or whoever has a full device or
        // a file that may not become longer were told of a quota.
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = statvfs(file.path()).unwrap();
        let free = found.f_bavail * found.f_frsize;
        let is_limited = getrlimit(Resource::Fsize).current.is_some();
        assert_eq!(has_room(file.path(), 1), free > STEP_BYTES && !is_limited);
        // Others write to the device meanwhile, though not so much.
        assert!(!has_room(file.path(), free.saturating_sub(STEP_BYTES / 2)));
        // A file with a hole; not every file system has one so long.
        if file.as_file().set_len(USUAL_CAPACITY_BYTES).is_ok() {
            assert!(!has_room(file.path(), 1));
        }
    }
}
