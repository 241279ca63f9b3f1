//! What can go wrong in a database, and what to do about it. No message contains a key or a value.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Damage;

/// An error of a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file of that name.
    #[error("{path}: there is no such file; check the name, or create the database first")]
    NotFound {
        /// The path of the file.
        path: Shown,
    },
    /// The directory of the file is not there.
    #[error("{path}: there is no such directory; check the name, or make the directory first")]
    NoDirectory {
        /// The path of the directory.
        path: Shown,
    },
    /// The name is that of a symbolic link, and there is no file where it leads.
    #[error("{path}: is a symbolic link to a file that is not there; remove or mend the link")]
    BrokenLink {
        /// The path of the link.
        path: Shown,
    },
    /// A new database was asked for, and there is something of that name.
    #[error("{path}: already exists; open it, or choose another name")]
    AlreadyExists {
        /// The path of the file.
        path: Shown,
    },
    /// The database is open in this or another process, or for reading while it is to be written.
    #[error("{path}: already open in this or another process; close it there first")]
    AlreadyOpen {
        /// The path of the file.
        path: Shown,
    },
    /// The operating system refuses access.
    #[error(
        "{path}: permission denied ({doing}); check the owner and mode of the file and its \
             directory"
    )]
    Denied {
        /// The path of the file.
        path: Shown,
        /// What was being done.
        doing: &'static str,
    },
    /// Power was lost while the database was open with relaxed durability: any part of the file may
    /// be older than any other.
    #[error(
        "{path}: power was lost while this database was open with relaxed durability; restore a \
             backup, or repair it, which accepts what is left"
    )]
    PowerLoss {
        /// The path of the file.
        path: Shown,
    },
    /// The database was not closed cleanly, and opening it for reading cannot recover it.
    #[error("{path}: was not closed cleanly; open it for writing once, which recovers it")]
    NeedsRecovery {
        /// The path of the file.
        path: Shown,
    },
    /// No engine has that name.
    #[error("there is no engine '{name}'; there are: {known}")]
    UnknownEngine {
        /// The name.
        name: String,
        /// The names of all engines.
        known: String,
    },
    /// A new database was to be made for more pairs than its engine can make a table for, with its
    /// settings and in a file as long as one may become.
    #[error(
        "{path}: {expected} pairs are expected, and a new database with the engine {engine} and \
             these options is made for at most {most}; expect fewer, it grows by need"
    )]
    TooManyExpected {
        /// The path of the file.
        path: Shown,
        /// The engine.
        engine: &'static str,
        /// How many were expected.
        expected: u64,
        /// How many it can be made for.
        most: u64,
    },
    /// The database exists and is another one than was asked for.
    #[error("{path}: has {what} {found}, not {asked}; leave the option out, or name another file")]
    Mismatch {
        /// The path of the file.
        path: Shown,
        /// What differs.
        what: &'static str,
        /// What the database has.
        found: String,
        /// What was asked for.
        asked: String,
    },
    /// A write was asked of a database that was opened for reading.
    #[error("{path}: open for reading only; open it for writing")]
    ReadOnly {
        /// The path of the file.
        path: Shown,
    },
    /// After an earlier failure nothing can be promised any more.
    #[error(
        "{path}: stopped after an earlier failure ({cause}); check the device, then reopen the \
             database to see what survived"
    )]
    Dead {
        /// The path of the file.
        path: Shown,
        /// The failure.
        cause: String,
    },
    /// The database was closed cleanly and everything in it is durable, but its maintenance had
    /// failed before.
    #[error("{path}: closed cleanly, but its maintenance had failed: {cause}")]
    Maintenance {
        /// The path of the file.
        path: Shown,
        /// The failure, and what to do.
        cause: String,
    },
    /// The process was forked after the database was opened.
    #[error(
        "{path}: opened before this process was forked; open it again in the child after the \
             parent has closed it"
    )]
    Forked {
        /// The path of the file.
        path: Shown,
    },
    /// The database was to be closed while other handles to it are in use.
    #[error("{path}: {others} more handles are in use; the last one to be dropped closes it")]
    InUse {
        /// The path of the file.
        path: Shown,
        /// How many.
        others: usize,
    },
    /// The path by which the database was opened means another file by now, or none.
    #[error(
        "{path}: is the name of {found} now, and this database is {opened}; give it its name back, \
             or open it by its new one"
    )]
    Renamed {
        /// The path.
        path: Shown,
        /// The open file, by its inode and device.
        opened: String,
        /// The file of that name now.
        found: String,
    },
    /// The operating system gave no random numbers, which every new database needs.
    #[error("no random numbers from the operating system: {source}")]
    Random {
        /// The system's own error.
        source: std::io::Error,
    },
    /// An error of one pair: too long, or not of the form of the database.
    #[error(transparent)]
    Pair(Fault),
    /// So much was written since a snapshot was taken that its memory is used up.
    #[error(
        "{path}: writes since this snapshot have used up its {limit} bytes; take another one, or \
             raise the limit (`snapshot_bytes`)"
    )]
    SnapshotFull {
        /// The path of the file.
        path: Shown,
        /// The limit. Unit: bytes.
        limit: usize,
    },
    /// Pairs that another process sends are not all that there are.
    #[error(
        "the pairs of a snapshot are incomplete ({cause}); throw away what was made of them, and \
             have another snapshot sent"
    )]
    Incomplete {
        /// What ended them.
        cause: String,
    },
    /// There is no table of that name, or not any more.
    #[error("{path}: there is no table '{name}' here (any more); check the name, or create it")]
    NoTable {
        /// The name of the file.
        path: Shown,
        /// The name of the table.
        name: String,
    },
    /// A new table was asked for, and there is one of that name.
    #[error("{path}: there is a table '{name}' already; open it, or choose another name")]
    TableExists {
        /// The name of the file.
        path: Shown,
        /// The name of the table.
        name: String,
    },
    /// A name that no table can have.
    #[error("{path}: the name of a table has 1 to 255 bytes, and this one has {bytes}")]
    TableName {
        /// The name of the file.
        path: Shown,
        /// Its length. Unit: bytes.
        bytes: usize,
    },
    /// Tables were asked of a database whose pairs have a fixed form.
    #[error(
        "{path}: holds {form} pairs, and only a database of byte strings has tables; create one \
             with the form variable"
    )]
    NoTables {
        /// The name of the file.
        path: Shown,
        /// The form of its pairs.
        form: everhash_index::Form,
    },
    /// A table was asked for as one whose pairs have expiry times, and they have none, or as one
    /// without, and they have.
    #[error(
        "{path}: the pairs of the table {name:?} {}, or choose another table",
        if *.expiring {
            "have expiry times; open it as a table whose pairs expire"
        } else {
            "have no expiry times; open it as a table whose pairs stay"
        }
    )]
    TableKind {
        /// The name of the file.
        path: Shown,
        /// The name of the table.
        name: String,
        /// Whether its pairs have expiry times.
        expiring: bool,
    },
    /// A key or value is no value of the type that a [`Table`](crate::Table) has there.
    #[error("{path}: holds bytes that are no {wanted}; open it with the types of its pairs")]
    Typed {
        /// The path of the file.
        path: Shown,
        /// The type.
        wanted: &'static str,
    },
    /// Any other error of the file or of what lies in it.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: Shown,
        /// What happened, and what to do.
        source: Fault,
    },
}

/// What happened to a pair, to a file, or to what lies in it; [`Error::kind`] tells which.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Fault(everhash_index::Error);

impl Fault {
    pub(crate) fn of(error: everhash_index::Error) -> Fault {
        Fault(error)
    }
}

/// The kind of an [`Error`], for programs that act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file.
    NotFound,
    /// There is a file of that name.
    AlreadyExists,
    /// Too much was written since the snapshot was taken.
    SnapshotFull,
    /// Pairs from another process are not all that there are.
    Incomplete,
    /// There is no such table.
    NoTable,
    /// There is a table of that name.
    TableExists,
    /// Open elsewhere.
    AlreadyOpen,
    /// The operating system refuses access.
    PermissionDenied,
    /// Power was lost under relaxed durability.
    PowerLoss,
    /// It must be opened for writing once.
    NeedsRecovery,
    /// An engine, setting or other choice that there is not, or that the database has not.
    InvalidOption,
    /// A key or value is too long, or has another length than all pairs have.
    InvalidPair,
    /// Opened for reading only.
    ReadOnly,
    /// No room on the device, or up to a limit of the database: see [`Error::limit`].
    Full,
    /// Damaged.
    Damaged,
    /// No database, or one of a format that this program does not read.
    Unsupported,
    /// Stopped after an earlier failure; open it again.
    Stopped,
    /// Used in a child of the process that opened it.
    Forked,
    /// Other handles are in use.
    InUse,
    /// Its path means another file than when it was opened.
    Renamed,
    /// Closed, but its maintenance had failed.
    Maintenance,
    /// The operating system or the device failed; see [`Error::io_error`].
    Io,
}

/// The result of an operation on a database.
pub type Result<T> = core::result::Result<T, Error>;

/// A path that can be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown(pub PathBuf);

impl core::fmt::Display for Shown {
    /// With control characters as their escapes: a message is one line, and moves no cursor.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for character in self.0.to_string_lossy().chars() {
            match character.is_control() {
                true => character.escape_default().fmt(f)?,
                false => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

impl core::fmt::Debug for Shown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotFound { .. } | Error::NoDirectory { .. } | Error::BrokenLink { .. } => {
                ErrorKind::NotFound
            }
            Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Error::AlreadyOpen { .. } => ErrorKind::AlreadyOpen,
            Error::Denied { .. } => ErrorKind::PermissionDenied,
            Error::PowerLoss { .. } => ErrorKind::PowerLoss,
            Error::NeedsRecovery { .. } => ErrorKind::NeedsRecovery,
            Error::UnknownEngine { .. }
            | Error::TooManyExpected { .. }
            | Error::Mismatch { .. }
            | Error::TableName { .. }
            | Error::TableKind { .. }
            | Error::NoTables { .. } => ErrorKind::InvalidOption,
            Error::SnapshotFull { .. } => ErrorKind::SnapshotFull,
            Error::Incomplete { .. } => ErrorKind::Incomplete,
            Error::NoTable { .. } => ErrorKind::NoTable,
            Error::TableExists { .. } => ErrorKind::TableExists,
            Error::ReadOnly { .. } => ErrorKind::ReadOnly,
            Error::Dead { .. } => ErrorKind::Stopped,
            Error::Maintenance { .. } => ErrorKind::Maintenance,
            Error::Forked { .. } => ErrorKind::Forked,
            Error::InUse { .. } => ErrorKind::InUse,
            Error::Renamed { .. } => ErrorKind::Renamed,
            Error::Random { .. } => ErrorKind::Io,
            Error::Typed { .. } => ErrorKind::InvalidPair,
            Error::Pair(fault) | Error::File { source: fault, .. } => fault.kind(),
        }
    }

    /// Returns the error of the operating system that is behind this one, if there is one and
    /// [`Error::kind`] does not say all of it.
    pub fn io_error(&self) -> Option<&std::io::Error> {
        use everhash_index::Error as Index;
        use everhash_pmem::Error as Medium;
        match self {
            Error::Random { source } => Some(source),
            Error::File { source: Fault(Index::Medium(Medium::System { source, .. })), .. } => {
                Some(source)
            }
            _ => None,
        }
    }

    /// Returns whether the file is damaged.
    pub fn is_damage(&self) -> bool {
        self.kind() == ErrorKind::Damaged
    }

    /// Returns where the file is damaged, if it is.
    pub fn damage(&self) -> Option<Damage> {
        match self {
            Error::File {
                source: Fault(everhash_index::Error::Corrupt { at, broken }), ..
            } => Some(Damage { at: *at, broken }),
            _ => None,
        }
    }

    /// Returns whether there was no room left on the device or in the database.
    pub fn is_full(&self) -> bool {
        self.kind() == ErrorKind::Full
    }

    /// Returns the name and the value of the limit of the database that is reached, if there was no
    /// room because of one: more room on the device would not help. The message says what does.
    pub fn limit(&self) -> Option<(&'static str, u64)> {
        match self {
            Error::File {
                source: Fault(everhash_index::Error::Limit { name, limit, .. }), ..
            } => Some((*name, *limit)),
            _ => None,
        }
    }

    /// Returns how many more bytes were asked for, if there was no room for them. Unit: bytes.
    pub fn needed_bytes(&self) -> Option<u64> {
        match self {
            Error::File { source: Fault(everhash_index::Error::Full { needed }), .. } => {
                Some(*needed)
            }
            _ => None,
        }
    }

    /// Returns whether a setting has a name or value that the engine does not take.
    pub fn is_setting(&self) -> bool {
        matches!(self, Error::File { source: Fault(everhash_index::Error::Setting { .. }), .. })
    }

    /// Returns what happened, without the path where that is said beside it.
    pub(crate) fn cause(&self) -> String {
        match self {
            Error::Pair(fault) | Error::File { source: fault, .. } => fault.to_string(),
            other => other.to_string(),
        }
    }

    /// Makes the error of a call of the operating system on the file `path`.
    pub(crate) fn of_system(path: &Path, doing: &'static str, source: std::io::Error) -> Error {
        Error::of_medium(path, everhash_pmem::Error::System { doing, source })
    }

    /// Makes the error of an operation on the file `path`.
    pub(crate) fn of(path: &Path, error: everhash_index::Error) -> Error {
        use everhash_index::Error as Index;
        use everhash_pmem::Error as Medium;
        use std::io::ErrorKind;
        let named = path;
        let path = Shown(path.to_owned());
        match error {
            Index::KeyTooLong { .. } | Index::ValueTooLong { .. } | Index::WrongForm { .. } => {
                Error::Pair(Fault(error))
            }
            Index::Medium(Medium::AlreadyOpen) => Error::AlreadyOpen { path },
            Index::Medium(Medium::System { doing, source }) => match source.kind() {
                ErrorKind::NotFound => missing(named),
                // What is there may lead to nothing, and then it cannot be opened either.
                ErrorKind::AlreadyExists if leads_nowhere(named) => Error::BrokenLink { path },
                ErrorKind::AlreadyExists => Error::AlreadyExists { path },
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    Error::Denied { path, doing }
                }
                _ => {
                    let source = Fault(Index::Medium(Medium::System { doing, source }));
                    Error::File { path, source }
                }
            },
            source => Error::File { path, source: Fault(source) },
        }
    }

    /// Makes the error of an operation on the medium of the file `path`.
    pub(crate) fn of_medium(path: &Path, error: everhash_pmem::Error) -> Error {
        Error::of(path, error.into())
    }
}

/// Says what of `path` is missing.
fn missing(path: &Path) -> Error {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.exists()) {
        return Error::NoDirectory { path: Shown(directory.to_owned()) };
    }
    let path = Shown(path.to_owned());
    if leads_nowhere(&path.0) { Error::BrokenLink { path } } else { Error::NotFound { path } }
}

/// Returns whether `path` is a symbolic link to something that is not there.
fn leads_nowhere(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

impl Fault {
    fn kind(&self) -> ErrorKind {
        use everhash_index::Error as Index;
        match &self.0 {
            Index::KeyTooLong { .. } | Index::ValueTooLong { .. } | Index::WrongForm { .. } => {
                ErrorKind::InvalidPair
            }
            Index::Full { .. } | Index::Limit { .. } => ErrorKind::Full,
            Index::Corrupt { .. } => ErrorKind::Damaged,
            Index::Unsupported { .. } => ErrorKind::Unsupported,
            Index::Setting { .. } => ErrorKind::InvalidOption,
            Index::Poisoned => ErrorKind::Stopped,
            _ => ErrorKind::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_in_one_line() {
        // Fails if a file's name could end a line of a log, or send a sequence to a terminal.
        let shown = Shown(PathBuf::from("data\n\u{1b}[2J/pär.ehdb")).to_string();
        assert_eq!(shown, r"data\n\u{1b}[2J/pär.ehdb");
        let debug = format!("{:?}", Shown(PathBuf::from("data\n/pär.ehdb")));
        assert_eq!(debug, r#""data\n/pär.ehdb""#);
    }

    #[test]
    fn a_limit_of_the_database_is_no_room_and_has_a_name() {
        // Fails if a program that acts on a full database met another kind, or if one of its own
        // limits looked like a want of bytes on the device.
        let limit = everhash_index::Error::Limit { name: "tables", limit: 7, remedy: "drop some" };
        let limit = Error::of(Path::new("pairs.ehdb"), limit);
        assert!(limit.is_full() && limit.needed_bytes().is_none());
        assert_eq!((limit.kind(), limit.limit()), (ErrorKind::Full, Some(("tables", 7))));
        let said = "pairs.ehdb: full: this table has reached its limit, tables = 7; drop some";
        assert_eq!(limit.to_string(), said);
        let full = Error::of(Path::new("pairs.ehdb"), everhash_index::Error::Full { needed: 64 });
        assert_eq!((full.limit(), full.needed_bytes()), (None, Some(64)));
    }

    #[test]
    fn a_cause_names_no_path_and_a_message_names_it_once() {
        // Fails if what is said beside the path, as in that of a handle that stopped, named it
        // again.
        let full = everhash_index::Error::Full { needed: 64 };
        let full = Error::of(Path::new("pairs.ehdb"), full);
        assert!(full.cause().starts_with("full: 64"), "{}", full.cause());
        assert_eq!(full.to_string(), format!("pairs.ehdb: {}", full.cause()));
    }

    #[test]
    fn a_name_without_a_directory_lacks_none() {
        // Fails if the directory, which such a name does not say, were called missing.
        let missing = std::io::ErrorKind::NotFound.into();
        let error = Error::of_system(Path::new("there is no such file"), "testing", missing);
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }

    #[test]
    fn a_table_of_the_other_kind_is_refused_with_its_own() {
        // Fails if the message told to open it in the way that it was just refused.
        let (path, name) = (Shown(PathBuf::from("pairs.ehdb")), "table".to_owned());
        let of = |expiring| Error::TableKind { path: path.clone(), name: name.clone(), expiring };
        let says = |expiring, what| of(expiring).to_string().contains(what);
        assert!(says(true, "have expiry times; open it as a table whose pairs expire"));
        assert!(says(false, "have no expiry times; open it as a table whose pairs stay"));
    }

    #[test]
    fn every_error_of_how_a_database_was_left_or_is_used_has_its_own_kind() {
        // Fails if a program that acts on the kind, which repairs after power loss and opens anew
        // after a fork, is told another one.
        let path = Shown(PathBuf::from("pairs.ehdb"));
        let fault = |error| Error::File { path: path.clone(), source: Fault::of(error) };
        let (what, found, asked) = ("the engine", String::new(), String::new());
        let mismatch = Error::Mismatch { path: path.clone(), what, found, asked };
        let (engine, expected, most) = ("reef", 2, 1);
        let too_many = Error::TooManyExpected { path: path.clone(), engine, expected, most };
        let key = everhash_index::Error::KeyTooLong { bytes: 2, limit: 1 };
        let (form, key_bytes, value_bytes) = (everhash_index::Form::WORDS, 1, 1);
        let form = everhash_index::Error::WrongForm { form, key_bytes, value_bytes };
        let errors = [
            (Error::PowerLoss { path: path.clone() }, ErrorKind::PowerLoss),
            (Error::NeedsRecovery { path: path.clone() }, ErrorKind::NeedsRecovery),
            (Error::Forked { path: path.clone() }, ErrorKind::Forked),
            (Error::InUse { path: path.clone(), others: 1 }, ErrorKind::InUse),
            (Error::Dead { path: path.clone(), cause: String::new() }, ErrorKind::Stopped),
            (
                Error::Maintenance { path: path.clone(), cause: String::new() },
                ErrorKind::Maintenance,
            ),
            (Error::BrokenLink { path: path.clone() }, ErrorKind::NotFound),
            (mismatch, ErrorKind::InvalidOption),
            (too_many, ErrorKind::InvalidOption),
            (Error::Pair(Fault::of(key)), ErrorKind::InvalidPair),
            (Error::Pair(Fault::of(form)), ErrorKind::InvalidPair),
            (fault(everhash_index::Error::Full { needed: 64 }), ErrorKind::Full),
            (fault(everhash_index::Error::Poisoned), ErrorKind::Stopped),
            (fault(everhash_index::Error::Corrupt { at: 8, broken: "" }), ErrorKind::Damaged),
        ];
        for (error, kind) in errors {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.is_damage(), kind == ErrorKind::Damaged, "{error}");
            let damage = error.is_damage().then_some(Damage { at: 8, broken: "" });
            assert_eq!(error.damage(), damage, "{error}");
            assert!(!error.is_setting(), "{error}");
            assert_eq!(error.is_full(), kind == ErrorKind::Full, "{error}");
            assert_eq!(error.needed_bytes(), error.is_full().then_some(64), "{error}");
        }
    }
}
