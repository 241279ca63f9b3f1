//! A pointer to a record in one word: address, size class, and a few bits of the key's hash.

use super::Class;
use crate::{Addr, Bits, Error, Result, WORD};

/// The address in words: 2^45 of them are 256 TiB.
const AT: Bits = Bits::new(0, 45);
const CLASS: Bits = Bits::new(45, 7);
const TAG: Bits = Bits::new(52, 12);

/// Where a record lies and how long it may be, as one committed word. Zero is no record.
///
/// Bits 0 to 44 hold the address in words, 45 to 51 the class, 52 to 63 the tag.
///
/// ```
/// use everhash_pmem::{Addr, Class, RecordWord};
///
/// let class = Class::of(100).expect("100 bytes are less than 32 MiB");
/// let pointer = RecordWord { addr: Addr::new(4096), class, tag: 0xabc };
/// let slot = Addr::new(64);
/// assert_eq!(RecordWord::from_medium(slot, pointer.word())?, Some(pointer));
/// assert_eq!(RecordWord::from_medium(slot, 0)?, None);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordWord {
    /// Where the record lies; not the start of the medium, and below 2^48 bytes.
    pub addr: Addr,
    /// Its size class.
    pub class: Class,
    /// Twelve bits for the engine: with a part of the hash, most lookups of other keys need not
    /// read the record.
    pub tag: u16,
}

impl RecordWord {
    /// The number of bits of a tag.
    pub const TAG_BITS: u32 = 12;

    /// Returns the word.
    ///
    /// # Panics
    /// If the address is null or 2^48 bytes or more, or if the tag has more than twelve bits.
    pub fn word(self) -> u64 {
        assert!(!self.addr.is_null(), "no record lies at the start of the medium");
        assert!(self.addr.word() <= AT.max(), "a record word reaches 2^48 bytes");
        assert!(u64::from(self.tag) <= TAG.max(), "a tag has twelve bits");
        let word = CLASS.set(AT.set(0, self.addr.word()), self.class.index());
        TAG.set(word, self.tag.into())
    }

    /// Returns the pointer in `word`, which was read at `at`; `None` if it is zero.
    ///
    /// Does not check that a record lies there: [`Heap::claim`] does.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at `at` if no engine could have stored the word.
    ///
    /// [`Heap::claim`]: crate::Heap::claim
    pub fn from_medium(at: Addr, word: u64) -> Result<Option<RecordWord>> {
        if word == 0 {
            return Ok(None);
        }
        let corrupt = |broken| Error::Corrupt { at: at.byte(), broken };
        if AT.get(word) == 0 {
            return Err(corrupt("a record word without an address is zero"));
        }
        let class = Class::from_index(CLASS.get(word))
            .ok_or(corrupt("a record word names a size class that exists"))?;
        let addr = Addr::new(AT.get(word) * WORD);
        Ok(Some(RecordWord { addr, class, tag: TAG.get(word) as u16 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_word_is_a_pointer_or_damage_and_pointers_come_back() {
        // Fails if a bit of a damaged word is ignored, or if the fields overlap.
        let place = Addr::new(72);
        let mut word = 1u64;
        let mut counts = (0, 0);
        for _ in 0..100_000 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            match RecordWord::from_medium(place, word) {
                Ok(found) => {
                    assert_eq!(found.unwrap().word(), word);
                    counts.0 += 1;
                }
                Err(Error::Corrupt { at: 72, .. }) => counts.1 += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(counts.0 > 50_000 && counts.1 > 20_000, "{counts:?}");
        assert!(RecordWord::from_medium(place, 1 << 45).is_err());
        let top = RecordWord {
            addr: Addr::new((1 << 48) - 8),
            class: Class::of(Class::LARGEST_BYTES).unwrap(),
            tag: 0xfff,
        };
        assert_eq!(RecordWord::from_medium(place, top.word()).unwrap(), Some(top));
    }

    #[test]
    #[should_panic(expected = "2^48")]
    fn an_address_that_does_not_fit_is_a_bug_of_ours() {
        // Fails if high address bits were cut off silently.
        let class = Class::of(16).unwrap();
        let _ = RecordWord { addr: Addr::new(1 << 48), class, tag: 0 }.word();
    }
}
