//! What lies in the file of a pair that ends: eight bytes with the time before its value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everhash_index::{Error, MAX_VALUE_BYTES, Result};

use super::{Expiry, Record};

/// The length of a time before a value. Unit: bytes.
const BYTES: usize = 8;

/// A time of the clock on the wall. Unit: milliseconds since 1970; as the end of a pair, 0 is
/// never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WallTime(pub(crate) u64);

impl WallTime {
    /// The end of a pair that does not end.
    const NEVER: WallTime = WallTime(0);

    fn of(time: SystemTime) -> WallTime {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    fn plus(self, after: Duration) -> WallTime {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        WallTime(self.0.saturating_add(after).max(1))
    }

    pub(crate) fn expiry(self) -> Expiry {
        match UNIX_EPOCH.checked_add(Duration::from_millis(self.0)) {
            Some(time) if self != WallTime::NEVER => Expiry::At(time),
            _ => Expiry::Never,
        }
    }
}

/// The clock on the wall.
#[derive(Clone, Debug, Default)]
pub(crate) enum Wall {
    #[default]
    System,
    /// One that a test sets. Unit: milliseconds since 1970.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests set it"))]
    Set(Arc<AtomicU64>),
}

impl Wall {
    pub(crate) fn now(&self) -> WallTime {
        match self {
            Wall::System => WallTime::of(SystemTime::now()),
            Wall::Set(now) => WallTime(now.load(Ordering::Relaxed)),
        }
    }
}

/// The times of one operation.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: WallTime,
}

impl Times {
    /// Returns when a pair ends that is written now, in place of `before`.
    pub(super) fn next(self, before: Option<Record<'_>>, expiry: Expiry) -> WallTime {
        match expiry {
            Expiry::Unchanged => before.map_or(WallTime::NEVER, |(_, end)| end),
            Expiry::Never => WallTime::NEVER,
            Expiry::After(after) => self.now.plus(after),
            Expiry::At(time) => WallTime::of(time),
        }
    }
}

/// Refuses a value that has no room for a time before it.
pub(crate) fn admit_ending(value: &[u8]) -> Result<()> {
    let (bytes, limit) = (value.len(), MAX_VALUE_BYTES - BYTES);
    if bytes > limit {
        return Err(Error::ValueTooLong { bytes, limit });
    }
    Ok(())
}

/// Returns the record of a value that ends at a time.
pub(super) fn print(value: &[u8], end: WallTime) -> Result<Vec<u8>> {
    admit_ending(value)?;
    Ok([&end.0.to_le_bytes()[..], value].concat())
}

/// Returns when a record ends. One that is too short to say so, which no program of ours wrote,
/// never does.
pub(crate) fn end_of(record: &[u8]) -> WallTime {
    record.first_chunk().map_or(WallTime::NEVER, |end| WallTime(u64::from_le_bytes(*end)))
}

/// Returns whether a record has ended.
pub(crate) fn has_ended(record: &[u8], now: WallTime) -> bool {
    let end = end_of(record);
    end != WallTime::NEVER && end <= now
}

/// Returns the value of a record, unless it has ended.
pub(crate) fn live(record: &[u8], now: WallTime) -> Option<&[u8]> {
    record.get(BYTES..).filter(|_| !has_ended(record, now))
}
