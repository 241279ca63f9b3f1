//! What can go wrong in an index. No message ever contains a key or a value.

/// An error of an index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than the engine or the form allows.
    #[error("the key has {bytes} bytes and may have at most {limit}; shorten it")]
    KeyTooLong {
        /// Its length. Unit: bytes.
        bytes: usize,
        /// The most that is allowed. Unit: bytes.
        limit: usize,
    },
    /// The value is longer than the engine or the form allows.
    #[error("the value has {bytes} bytes and may have at most {limit}; split it")]
    ValueTooLong {
        /// Its length. Unit: bytes.
        bytes: usize,
        /// The most that is allowed. Unit: bytes.
        limit: usize,
    },
    /// The pool has pairs of a fixed form, and this is not one.
    #[error(
        "every pair here has the form {form} (bytes of key/value), and this one has \
         {key_bytes}/{value_bytes}; give it those lengths, or use the form variable"
    )]
    WrongForm {
        /// The form of the pool.
        form: crate::Form,
        /// Length of the key. Unit: bytes.
        key_bytes: usize,
        /// Length of the value. Unit: bytes.
        value_bytes: usize,
    },
    /// There is no room left. Everything that was written before is intact.
    #[error(
        "full: {needed} more bytes were asked for, and the device or the size limit leaves no room \
         for them; free space, or raise the limit"
    )]
    Full {
        /// What was asked for. Unit: bytes.
        needed: u64,
    },
    /// A limit is reached that a setting of the table or its format gives, and no room on the
    /// device would help. As after [`Error::Full`], everything that was written before is intact,
    /// and other operations go on; [`Error::is_full`] is true of both.
    #[error("full: this table has reached its limit, {name} = {limit}; {remedy}")]
    Limit {
        /// Name of the setting, or of what the format counts.
        name: &'static str,
        /// How much there may be of it.
        limit: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// The pool is damaged.
    #[error(
        "damaged at byte {at}: expected that {broken}; restore a backup, or salvage what is intact"
    )]
    Corrupt {
        /// Byte offset of the damage.
        at: u64,
        /// The violated invariant, as a statement: the message reads "expected that …".
        broken: &'static str,
    },
    /// The engine cannot do this, as its capabilities say.
    #[error("not supported: {what}")]
    Unsupported {
        /// What is not supported, and what to do.
        what: String,
    },
    /// A setting has a value that the engine cannot take.
    #[error("{}{why}", of_setting(name))]
    Setting {
        /// Name of the setting, or "?" where there is none of the name that was asked for.
        name: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// After an earlier failure nothing can be promised of this part of the pool any more.
    #[error(
        "an earlier failure left this part of the pool in doubt; reopen the pool to recover it"
    )]
    Poisoned,
    /// The medium failed.
    #[error(transparent)]
    Medium(everhash_pmem::Error),
}

/// A text that says nothing that was asked for; the message says what would.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// The result of an operation on an index.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// Returns whether there was no room: on the medium, or up to a limit of the table itself. The
    /// operation has changed nothing then, and others may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. } | Error::Limit { .. })
    }
}

/// Returns the words before what is wrong with a setting.
fn of_setting(name: &str) -> String {
    if name == "?" { "settings: ".into() } else { format!("setting {name}: ") }
}

impl From<everhash_pmem::Error> for Error {
    fn from(error: everhash_pmem::Error) -> Self {
        use everhash_pmem::Error as Medium;
        match error {
            // An address of our own is never out of bounds: this one came from the medium.
            Medium::OutOfBounds { at, .. } => {
                Error::Corrupt { at: at.byte(), broken: "every address lies inside the pool" }
            }
            Medium::Corrupt { at, broken } => Error::Corrupt { at, broken },
            Medium::Full { needed } => Error::Full { needed },
            Medium::Unsupported { what } => Error::Unsupported { what },
            Medium::Poisoned => Error::Poisoned,
            other => Error::Medium(other),
        }
    }
}

impl From<everhash_pmem::LockPoisoned> for Error {
    fn from(_: everhash_pmem::LockPoisoned) -> Self {
        Error::Poisoned
    }
}
