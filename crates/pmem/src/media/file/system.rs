//! The system calls behind a file medium, as a place where a test can make each of them fail.

use std::fmt::Debug;
use std::io;

/// One kind of system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Call {
    /// Opens the directory that holds the file.
    OpenDirectory,
    /// Queries whether the target exists; the value is 1 if it does.
    Exists,
    /// Creates the temporary file.
    Create,
    /// Opens an existing file.
    Open,
    /// Queries the kind of file; the value is 1 for an ordinary one.
    Kind,
    /// Queries the length of the file, which is the value. Unit: bytes.
    Length,
    /// Queries the kind of file system; the value is its magic number.
    FileSystem,
    /// Locks the file.
    Lock,
    /// Queries whether the name still means the file; the value is 1 if it does.
    Named,
    /// Writes the directory of an existing file out and waits for the device: whoever gave the file
    /// its name may have been killed before.
    SyncName,
    /// Allocates storage for a range of the file.
    Allocate,
    /// Sets the length of the file.
    SetLength,
    /// Maps a piece of the file.
    Map,
    /// Writes the file's data out and waits for the device.
    Sync,
    /// Writes the directory out and waits for the device.
    SyncDirectory,
    /// Gives the file its name.
    Rename,
    /// Removes the temporary name.
    Remove,
    /// Frees the storage behind a range.
    Punch,
    /// Writes zeros.
    Write,
    /// Passes a hint about the lifetime of the data.
    Hint,
    /// Leaves the note of a failed sync.
    Note,
    /// Finds the next data, where it begins is the value. Unit: bytes.
    FindData,
    /// Finds the next hole, where it begins is the value. Unit: bytes.
    FindHole,
    /// Lists which parts of the file have storage; the value is their number.
    Extents,
    /// Writes a piece of the file again; the value is its length. Unit: bytes.
    Rewrite,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 25] = [
        Call::OpenDirectory,
        Call::Exists,
        Call::Create,
        Call::Open,
        Call::Kind,
        Call::Length,
        Call::FileSystem,
        Call::Lock,
        Call::Named,
        Call::SyncName,
        Call::Allocate,
        Call::SetLength,
        Call::Map,
        Call::Sync,
        Call::SyncDirectory,
        Call::Rename,
        Call::Remove,
        Call::Punch,
        Call::Write,
        Call::Hint,
        Call::Note,
        Call::FindData,
        Call::FindHole,
        Call::Extents,
        Call::Rewrite,
    ];
}

/// The operating system as a file medium sees it: every call passes through here.
///
/// A test implements it to fail the n-th call of a kind, with or without letting it happen, or to
/// change its value.
pub trait System: Debug + Send + Sync + 'static {
    /// Makes the call by calling `run`, and returns the result that the medium gets.
    ///
    /// # Errors
    /// Those of `run`, or the test's own.
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64>;
}

/// The real operating system: nothing is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl System for Os {
    fn call(&self, _call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        run()
    }
}

/// How often an interrupted call is repeated before its error is returned.
///
/// Unit: attempts. Source: ours; a bound, so that a periodic timer cannot keep a long allocation
/// from ending.
const ATTEMPTS: u32 = 1000;

/// Makes a call, and repeats it if a signal interrupts it.
///
/// A sync too: an interrupted sync has not reported a failure of the data.
pub(super) fn perform(
    system: &dyn System,
    call: Call,
    mut run: impl FnMut() -> io::Result<u64>,
) -> io::Result<u64> {
    let mut result = system.call(call, &mut run);
    for _ in 1..ATTEMPTS {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                result = system.call(call, &mut run);
            }
            _ => break,
        }
    }
    result
}
