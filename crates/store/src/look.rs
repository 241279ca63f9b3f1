//! A look at some of the pairs, for maintenance.

use core::time::Duration;

use everhash_index::{Cursor, Error, Result, Table};

/// The shortest time between the beginnings of two rounds through the file.
///
/// Source: ours; what has ended is invisible, and only its storage waits.
const PERIOD: Duration = Duration::from_secs(30);

/// How many times as long as a round took the next one waits at least: what looking through a file
/// costs is bounded, however large it is. Source: ours; a twentieth of the time.
const REST: u32 = 19;

/// Returns when the next round through the file begins, after one that began at `begun` and ends
/// now.
pub(crate) fn next_round(begun: Duration, now: Duration) -> Duration {
    let took = now.saturating_sub(begun);
    now.saturating_add(took.saturating_mul(REST).max(PERIOD))
}

/// What a look found.
pub(crate) struct Look {
    /// The keys of the pairs that were looked for.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Where to go on; `None`: all pairs were seen.
    pub(crate) next: Option<Cursor>,
    /// What could not be read, and was passed over.
    pub(crate) damage: Option<Error>,
}

/// Looks at about `budget` pairs, or places without one, from a place on, for those that
/// `is_meant`. Damage ends a look early, or is passed over if it lies at its beginning: it must not
/// keep what lies behind it. A part in doubt ends a look early, too, so that what was found before
/// it can be removed; at its beginning it ends the round, so that the next one comes to all that
/// lies before it again.
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
        // Of a nearly empty file most steps find nothing, and cost as much.
        seen += 1;
        let scanned = table.scan(cursor, &mut |stored, value| {
            seen += 1;
            if is_meant(stored, value) {
                keys.push(stored.to_vec());
            }
        });
        match scanned {
            Ok(after) => next = after,
            Err(Error::Corrupt { .. } | Error::Poisoned) if cursor != from => break,
            Err(damage @ Error::Corrupt { .. }) => {
                return Ok(Look { keys, next: table.scan_past(cursor)?, damage: Some(damage) });
            }
            Err(doubt @ Error::Poisoned) => {
                return Ok(Look { keys, next: None, damage: Some(doubt) });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Look { keys, next, damage: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Durability};

    #[test]
    fn a_look_ends_after_its_budget_whether_it_finds_pairs_or_none() {
        // Fails if one look went through a large file at once: the thread could not be stopped
        // meanwhile, and an interval would end late.
        const BUDGET: u32 = 100;
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().engine("wophi").expected_items(50_000).background(false);
        let options = options.durability(Durability::Process);
        let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
        let look =
            || db.core().read(|table| look(table, Cursor::default(), BUDGET, |_, _| true)).unwrap();
        assert!(look().next.is_some(), "it has seen all places without a pair");
        for number in 0..30_000u32 {
            db.put(number.to_be_bytes(), "value").unwrap();
        }
        let keys = look().keys.len();
        assert!((BUDGET as usize / 2..BUDGET as usize * 3 / 2).contains(&keys), "{keys} keys");
    }
}
