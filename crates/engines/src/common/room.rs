//! Want of room: work that can do without, and the limit of keys that no growth takes apart.

use everhash_index::{Error, Result};

/// Returns whether there was room for what was done.
///
/// # Errors
/// Those of `done` that are not about room: [`Error::is_full`].
pub(crate) fn had_room(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_full() => Ok(false),
        Err(other) => Err(other),
    }
}

/// Returns the error of a table in which too many keys have nearly the same hash: there may be
/// `limit` of what `name` says.
#[cold]
pub(crate) fn crowded(name: &'static str, limit: u64) -> Error {
    let remedy = "too many of its keys have nearly the same hash; copy the pairs to a new table \
                  with the hash sip13, for which nobody can choose such keys";
    Error::Limit { name, limit, remedy }
}
