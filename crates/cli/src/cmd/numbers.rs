//! Parsers of numbers on the command line, whose errors give the accepted range.

use std::ops::RangeInclusive;

/// Every number that is not negative.
pub(super) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Every number but 0.
pub(super) const SOME: RangeInclusive<u64> = 1..=u64::MAX;

/// Returns a parser of whole numbers in a range.
pub(super) fn whole<T: TryFrom<u64> + 'static>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            format!("write a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// Parses a whole number that may be negative.
pub(super) fn signed(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("write a whole number from {} to {}", i64::MIN, i64::MAX))
}
