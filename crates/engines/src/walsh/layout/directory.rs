//! What the two words of a directory say: where a search in its chain begins, if at all.
//!
//! | the newer word | the older word |
//! |---|---|
//! | 40 bits: the word number of the newest object | 40 bits: that of the object behind it |
//! | 16 bits: its fingerprint, the first bits of its key's hash | 24 bits: the rest of the filter |
//! | 8 bits: a part of the filter | |
//!
//! The filter is over the keys of all objects but the newest. That one is told by its fingerprint,
//! so that a search begins at the newest object or at the one behind it, whichever may be of its
//! key. The paper's directory names the newest, and has a filter of 64 bits over all.

use core::hint::select_unpredictable;

use everhash_pmem::{Addr, Bits, WORD};

/// Where an object lies, as a word number; 0 = there is none.
const PLACE: Bits = Bits::new(0, 40);
/// The fingerprint of the newest object.
const FINGERPRINT: Bits = Bits::new(40, 16);
/// The last byte of the filter.
const NEWER_FILTER: Bits = Bits::new(56, 8);
/// The other bytes of the filter.
const OLDER_FILTER: Bits = Bits::new(40, 24);

/// For six bits of a fingerprint the bits of two bytes of a filter: three bits choose one of each.
///
/// Unit: none. Source: ours; two loads from it take half the instructions of four shifts.
static TWO_BYTES: [u16; 64] = {
    let mut bits = [0; 64];
    let mut chosen = 0;
    while chosen < 64 {
        bits[chosen] = 1 << (chosen & 7) | 256 << (chosen >> 3);
        chosen += 1;
    }
    bits
};

/// The most of the medium that logs may lie in.
///
/// Unit: bytes. Source: ours; what a directory can name, 8 TiB.
pub const MOST_BYTES: u64 = PLACE.max() * WORD;

/// What a directory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// The newest object.
    pub newer: u64,
    /// The object behind it.
    pub older: u64,
}

impl Directory {
    /// Returns the newest object of the chain, or [`Addr::NULL`].
    #[inline(always)]
    pub const fn head(self) -> Addr {
        Addr::NULL.plus(PLACE.get(self.newer))
    }

    /// Returns the object that searches for older keys than the newest one begin at. After a crash
    /// it may be an older version of the newest key, behind which the others follow.
    #[inline(always)]
    pub const fn behind(self) -> Addr {
        Addr::NULL.plus(PLACE.get(self.older))
    }

    /// Returns where a search for a key begins, or [`Addr::NULL`] if the key is not in the chain.
    #[inline(always)]
    pub fn start(self, hash: u64) -> Addr {
        let is_newest = FINGERPRINT.get(self.newer ^ FINGERPRINT.set(0, hash)) == 0;
        let wanted = filter_bits(hash);
        let behind = if self.filter() & wanted == wanted { self.older } else { 0 };
        // No branch: it would be as good as random, and the next search would wait for its outcome.
        Addr::NULL.plus(PLACE.get(select_unpredictable(is_newest, self.newer, behind)))
    }

    /// Returns what the directory says when an object comes before all others.
    #[inline(always)]
    pub fn with(self, hash: u64, object: Addr) -> Directory {
        let newer = FINGERPRINT.set(object.word(), hash);
        if self.head().is_null() {
            return Directory { newer, older: 0 };
        }
        let filter = u64::from(self.filter() | filter_bits(FINGERPRINT.get(self.newer)));
        Directory {
            newer: NEWER_FILTER.set(newer, filter >> OLDER_FILTER.width()),
            older: OLDER_FILTER.set(self.head().word(), filter),
        }
    }

    /// Returns what the directory says when an object takes the place of the newest, of its key.
    #[inline(always)]
    pub const fn with_newest(self, object: Addr) -> Directory {
        Directory { newer: PLACE.set(self.newer, object.word()), ..self }
    }

    /// Returns the filter.
    #[inline(always)]
    const fn filter(self) -> u32 {
        let newer = NEWER_FILTER.get(self.newer) << OLDER_FILTER.width();
        (newer | OLDER_FILTER.get(self.older)) as u32
    }
}

/// Returns the bits of the filter that a key sets: one of each byte, chosen by twelve bits of its
/// fingerprint.
#[inline(always)]
fn filter_bits(hash: u64) -> u32 {
    let bytes = |chosen: u64| u32::from(TWO_BYTES[(chosen & 63) as usize]);
    bytes(hash) | bytes(hash >> 6) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walsh::layout::mix;

    /// Some hash of each key.
    const fn hash(key: u64) -> u64 {
        mix(mix(0, key + 1), 1) >> 20
    }

    #[test]
    fn a_search_begins_before_its_key_wherever_that_is() {
        // Fails if a directory forgets a key, if it takes an object for another one, or if what it
        // says of one chain stays when another begins.
        for first in (0..2000).step_by(20) {
            let place = |key: u64| Addr::new(8 * (1 + key));
            let mut directory = Directory::default();
            for key in first..first + 20 {
                directory = directory.with(hash(key), place(key));
                assert_eq!(
                    (directory.head(), directory.start(hash(key))),
                    (place(key), place(key))
                );
                let older = if key > first { place(key - 1) } else { Addr::NULL };
                assert_eq!(directory.behind(), older);
                assert!((first..key).all(|other| directory.start(hash(other)) == older));
            }
            let again = directory.with_newest(Addr::new(8));
            assert_eq!(again.start(hash(first + 19)), Addr::new(8));
            assert_eq!(again.start(hash(first)), directory.behind());
        }
    }

    #[test]
    fn few_searches_for_absent_keys_begin() {
        // Fails if bits of a key are alike: of searches in chains of 2 to 5 objects this part
        // begins, (7/8)^objects of each byte being free.
        for objects in 2..6 {
            let begun = (0..200_000u64).filter(|chain| {
                let keys = (0..objects).map(|object| hash(chain * 8 + object));
                let of = |all: Directory, hash| all.with(hash, Addr::new(8));
                !keys.fold(Directory::default(), of).start(hash(chain * 8 + 7)).is_null()
            });
            let part = begun.count() as f64 / 200_000.0;
            let expected = (1.0 - 0.875f64.powi(objects as i32 - 1)).powi(4);
            assert!((0.7..1.3).contains(&(part / expected)), "{objects} objects: {part}");
        }
    }
}
