//! Work that goes on beside damage.

use everhash_index::{Error, Result};

/// Returns what was done, or nothing if it met damage: that is kept in `damage`, the first of it.
///
/// # Errors
/// Those of `done`, but for [`Error::Corrupt`].
pub fn or_damage<T: Default>(done: Result<T>, damage: &mut Option<Error>) -> Result<T> {
    match done {
        Err(error @ Error::Corrupt { .. }) => {
            damage.get_or_insert(error);
            Ok(T::default())
        }
        done => done,
    }
}
