//! Which pairs a database takes, for those who want to know before they store.

use everhash_index::Form;

use crate::error::{Error, Fault, Result};
use crate::expiring::admit_ending;
use crate::tables::prefix;

/// Tells whether the default table of a database of the form `form` takes such a pair: whether it
/// has the lengths that all pairs there have, or is short enough.
///
/// # Errors
/// [`Error::Pair`].
pub fn admit(form: Form, key: &[u8], value: &[u8]) -> Result<()> {
    if form == Form::Variable && prefix::begins_like_one(key) {
        prefix::admit(key)?;
    }
    everhash_index::admit(form, key, value).map_err(|error| Error::Pair(Fault::of(error)))
}

/// Tells whether a table with a name takes such a pair, one whose pairs have expiry times or not:
/// their keys, and the values of the latter, are 8 bytes shorter at most than those of the default
/// table.
///
/// # Errors
/// [`Error::Pair`].
pub fn admit_in_table(key: &[u8], value: &[u8], expiring: bool) -> Result<()> {
    prefix::admit(key)?;
    let admitted = if expiring { admit_ending(value) } else { Ok(()) };
    let admitted = admitted.and_then(|()| everhash_index::admit(Form::Variable, &[], value));
    admitted.map_err(|error| Error::Pair(Fault::of(error)))
}
