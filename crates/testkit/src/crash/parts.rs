//! The parts of a table that batches durability, and what identifies the contents of one.
//!
//! A crash leaves each part as it was at one moment. Comparing contents with those of every moment
//! is comparing a number per part: the sum of the hashes of its pairs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checker::hash;
use crate::model::Pairs;

/// Of each part that holds something, the digest of its contents.
pub(super) type Digests = BTreeMap<u64, u64>;

/// To which part each key belongs.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts(Arc<BTreeMap<Vec<u8>, u64>>);

impl Parts {
    pub fn new(keys: impl Iterator<Item = (Vec<u8>, u64)>) -> Parts {
        Parts(Arc::new(keys.collect()))
    }

    /// Returns the part of a key; `None` if nobody has asked for it.
    pub fn of(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).copied()
    }

    /// Returns the digests of what a table holds. The order of its pairs does not matter.
    pub fn digests(&self, pairs: &Pairs) -> Digests {
        let mut digests = Digests::new();
        for (key, value) in pairs {
            let digest = digests.entry(self.of(key).unwrap_or(u64::MAX)).or_default();
            *digest = u64::wrapping_add(*digest, hash(&(key, value)));
        }
        digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_part_is_that_of_its_pairs_and_of_no_other() {
        // Fails if a part takes the contents of another for its own, or one with a key that nobody
        // has asked for.
        let parts = Parts::new([(vec![1], 0), (vec![2], 0), (vec![3], 1)].into_iter());
        let digests = |keys: &[u8]| {
            let pairs = keys.iter().map(|key| (vec![*key], vec![9]));
            parts.digests(&pairs.collect())
        };
        assert_eq!(digests(&[1, 3])[&1], digests(&[3])[&1]);
        assert_ne!(digests(&[1, 2])[&0], digests(&[1])[&0]);
        assert_ne!(digests(&[1, 2])[&0], digests(&[2])[&0]);
        assert_eq!(digests(&[1, 7]).into_keys().collect::<Vec<_>>(), [0, u64::MAX]);
    }
}
