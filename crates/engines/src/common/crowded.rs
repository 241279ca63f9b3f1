//! The limit that keys reach which crowd one place: growth does not take them apart.

use everhash_index::Error;

/// Returns the error of a table in which too many keys have nearly the same hash: there may be
/// `limit` of what `name` says.
#[cold]
pub(crate) fn crowded(name: &'static str, limit: u64) -> Error {
    let remedy = "too many of its keys have nearly the same hash; copy the pairs to a new table \
                  with the hash sip13, for which nobody can choose such keys";
    Error::Limit { name, limit, remedy }
}
