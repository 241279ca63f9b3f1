//! Upkeep to its end.

use core::time::Duration;

use everhash_index::{Table, Upkeep};

use crate::Failure;
use crate::failure::ensure;

/// Calls `maintain` every ten seconds, from `from` on, until there is nothing to do, now or later;
/// returns the time of the last call.
///
/// # Errors
/// Those of [`Table::maintain`], and one if that takes more than 10,000 calls.
///
/// ```
/// use core::time::Duration;
/// use everhash_index::{Form, Table};
/// use everhash_testkit::{reference::Reference, session::Session, settle};
///
/// let session = Session::<Reference>::tiny(Form::WORDS, 1 << 20).unwrap();
/// settle(session.table(), Duration::ZERO, 64).unwrap();
/// ```
pub fn settle(
    table: &(impl Table + ?Sized),
    from: Duration,
    budget: u32,
) -> Result<Duration, Failure> {
    let mut now = from;
    for _ in 0..10_000 {
        now += Duration::from_secs(10);
        if table.maintain(now, budget)? == Upkeep::default() {
            return Ok(now);
        }
    }
    ensure!(false, "maintain has more to do after 10,000 calls");
    Ok(now)
}
