//! What can go wrong on a medium.

use crate::Addr;

/// An error of the medium or of the pool on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address lies outside the medium. Where the address came from the medium, this is damage.
    #[error("address {at:?} (+{bytes} bytes) lies outside the medium; check the file for damage")]
    OutOfBounds {
        /// The address.
        at: Addr,
        /// The length of the access. Unit: bytes.
        bytes: u64,
    },
    /// The medium is full and cannot grow.
    #[error("no room for {needed} more bytes; free space on the device or raise the size limit")]
    Full {
        /// The bytes that were needed.
        needed: u64,
    },
    /// The header of the pool, or a structure of the substrate, is damaged.
    #[error(
        "damaged at byte {at}: expected that {broken}; restore a backup, or salvage what is intact"
    )]
    Corrupt {
        /// Byte offset of the damage.
        at: u64,
        /// The violated invariant, as a statement: the message reads "expected that …".
        broken: &'static str,
    },
    /// The file is sound, but this program cannot work with it.
    #[error("not supported: {what}")]
    Unsupported {
        /// What is not supported, and what to do.
        what: String,
    },
    /// The file is open elsewhere.
    #[error("already open in this or another process; close it there first")]
    AlreadyOpen,
    /// An earlier sync, mapping or allocation failed: the handle is poisoned.
    #[error("an earlier write to the device failed; reopen to see what survived")]
    Poisoned,
    /// The description of an emulated device is not sound.
    #[error("device profile: {what}")]
    Profile {
        /// Which key is wrong, and what to write instead.
        what: String,
    },
    /// The operating system refused.
    #[error("{doing}: {source}")]
    System {
        /// The action that failed.
        doing: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
}

/// The result of an operation on a medium.
pub type Result<T> = core::result::Result<T, Error>;
