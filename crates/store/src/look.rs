//! A look at some of the pairs, for maintenance.

use everhash_index::{Cursor, Error, Result, Table};

/// What a look found.
pub(crate) struct Look {
    /// The keys of the pairs that were looked for.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Where to go on; `None`: all pairs were seen.
    pub(crate) next: Option<Cursor>,
    /// What could not be read, and was passed over.
    pub(crate) damage: Option<Error>,
}

/// Looks at about `budget` pairs from a place on, for those that `is_meant`. Damage ends a look
/// early, or is passed over if it lies at its beginning: it must not keep what lies behind it.
///
/// # Errors
/// Those of the table, but for damage.
pub(crate) fn look(
    table: &dyn Table,
    from: Cursor,
    budget: u32,
    mut is_meant: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<Look> {
    let (mut seen, mut keys, mut next) = (0, Vec::new(), Some(from));
    while let Some(cursor) = next.filter(|_| seen < budget) {
        let scanned = table.scan(cursor, &mut |stored, value| {
            seen += 1;
            if is_meant(stored, value) {
                keys.push(stored.to_vec());
            }
        });
        match scanned {
            Ok(after) => next = after,
            Err(Error::Corrupt { .. }) if cursor != from => break,
            Err(damage @ Error::Corrupt { .. }) => {
                return Ok(Look { keys, next: table.scan_past(cursor)?, damage: Some(damage) });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Look { keys, next, damage: None })
}
