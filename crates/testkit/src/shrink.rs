//! Shrinking: from a sequence that fails to a short one that still does.

/// How often a failing sequence is tried again while it is made shorter.
///
/// Source: ours; a sequence of 200 operations is down to its last few after about 100 attempts.
const ATTEMPTS: u32 = 2000;

/// Removes items from a failing sequence while it still fails; returns one of which no single item
/// can be removed, or the shortest that was found in a bounded number of attempts.
///
/// ```
/// use everhash_testkit::shrink::minimise;
/// let fails = |items: &[i32]| items.contains(&3) && items.contains(&7);
/// assert_eq!(minimise((0..100).collect(), fails), [3, 7]);
/// ```
pub fn minimise<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut items = items;
    let mut attempts = 0;
    let mut chunk = items.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let mut removed = false;
        while start < items.len() && attempts < ATTEMPTS {
            let mut shorter = items.clone();
            shorter.drain(start..(start + chunk).min(items.len()));
            attempts += 1;
            if fails(&shorter) {
                items = shorter;
                removed = true;
            } else {
                start += chunk;
            }
        }
        if attempts >= ATTEMPTS || (chunk == 1 && !removed) {
            return items;
        }
        chunk = if removed { chunk } else { chunk.div_ceil(2) };
        chunk = chunk.min(items.len()).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_item_of_the_result_can_be_spared() {
        // Fails if a printed failure would be longer than it needs to be, or would not fail.
        let mut calls = 0;
        let fails = |items: &[u32]| {
            calls += 1;
            items.iter().filter(|item| **item % 10 == 0).sum::<u32>() >= 150
        };
        let short = minimise((0..100).collect(), fails);
        assert!(short.iter().sum::<u32>() >= 150);
        assert!(short.iter().all(|item| short.iter().sum::<u32>() - item < 150), "{short:?}");
        assert!(calls < 500, "{calls}");
    }

    #[test]
    fn a_sequence_that_always_fails_becomes_empty() {
        // Fails if shortening ended before nothing more can go.
        assert!(minimise(vec![1, 2, 3], |_| true).is_empty());
    }

    #[test]
    fn what_can_go_only_when_another_has_gone_goes_in_the_next_round() {
        // Fails if shortening ends after one round of single items.
        let fails = |items: &[u32]| {
            [9, 8].iter().all(|item| items.contains(item))
                && (items.contains(&1) || !items.contains(&2))
        };
        assert_eq!(minimise(vec![1, 9, 2, 8], fails), [9, 8]);
    }

    #[test]
    fn a_long_sequence_is_given_up_after_a_bounded_number_of_attempts() {
        // Fails if whoever has found a failure waits for hours until it is shown.
        let mut calls = 0;
        let fails = |_: &[u32]| {
            calls += 1;
            false
        };
        assert_eq!(minimise((0..5000).collect(), fails).len(), 5000);
        assert_eq!(calls, ATTEMPTS);
    }
}
