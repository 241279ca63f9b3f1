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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_room_is_an_answer_and_every_other_error_is_one() {
        // Fails if a failure of the medium is taken for want of room.
        assert!(had_room(Ok(())).unwrap());
        assert!(!had_room(Err(Error::Full { needed: 1 })).unwrap());
        assert!(!had_room(Err(crowded("keys", 1))).unwrap());
        assert!(matches!(had_room(Err(Error::Poisoned)), Err(Error::Poisoned)));
    }
}
