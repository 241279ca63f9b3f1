//! The keys of a run: distinct, spread over all 64-bit numbers, and computed instead of stored.

/// Returns the key number `index` of a run: a bijection, so that keys are distinct.
///
/// Source: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) fn key(index: u64) -> u64 {
    let mixed = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns the value that belongs to `key` after it was updated `updates` times.
pub(crate) fn value(key: u64, updates: u64) -> u64 {
    key.rotate_left(17) ^ updates
}

/// Visits each of `0..count` once, in an order that a prefetcher cannot guess.
///
/// A walk with a stride that shares no factor with `count` visits each index once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    count: u64,
    stride: u64,
    next: u64,
    left: u64,
}

impl Shuffle {
    pub(crate) fn new(count: u64) -> Shuffle {
        // About count divided by the golden ratio: neighbours in time lie far apart.
        let mut stride = (count as f64 * 0.618_033_988_75) as u64 | 1;
        while count > 1 && gcd(stride, count) != 1 {
            stride += 2;
        }
        Shuffle { count, stride: stride % count.max(1), next: 0, left: count }
    }
}

impl Iterator for Shuffle {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        self.next += self.stride;
        if self.next >= self.count {
            self.next -= self.count;
        }
        Some(index)
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_visits_each_index_once() {
        // Fails if a stride shared a factor with the count: keys would be read twice or never.
        // 9 of 15 would be the stride: it shares a factor.
        for count in [1, 2, 3, 10, 15, 97, 1000, 4096] {
            let mut seen: Vec<_> = Shuffle::new(count).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_of_a_run_are_distinct() {
        // Fails if two numbers had one key: counts would be too low.
        let mut keys: Vec<_> = (0..100_000).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn an_update_changes_the_value_of_its_key_alone() {
        // Fails if an update that an engine left out could not be told from one that it made.
        assert!(value(key(1), 0) != value(key(1), 1) && value(key(1), 0) != value(key(2), 0));
    }
}
