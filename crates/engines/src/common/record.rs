//! Records of variable length: a key and a value behind a checksum, found through a record word.
//!
//! The record word names the size class, which bounds the lengths in the record: a damaged record
//! costs at most the memory of its class.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Class, Media, RecordWord, Span, WORD};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

everhash_pmem::ruler! {
    /// The head of a record; key and value follow without a gap, the rest of the last word is
    /// zero.
    pub struct RecordHead [16] {
        0 CHECKSUM [1] "XXH3-64 of key and value; seed: address, hash of the key, lengths";
        8 LENGTHS  [1] "bytes of the key, 32 bits | bytes of the value << 32";
    }
}

/// How long a record is that is copied as a whole before it is stored, at most.
///
/// Unit: bytes. Source: ours; a longer copy costs more than a checksum in two parts.
const AT_ONCE: usize = 8192;

/// Spreads the parts of a checksum's seed over its bits.
///
/// Source: ours; 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a slot over the tag of its record word. Odd, and drawn at random until one flipped bit,
/// two of them, and any damage to one byte of a factor change the twelve highest bits of the
/// product, always.
///
/// Source: ours.
const TAG_SPREAD: u64 = 0xcb2d_ce9b_1cca_c475;

/// Returns the tag of a record word, which may be there already: a check over the hash of the key
/// and the rest of the word.
pub const fn tag_of(hash: u64, record_word: u64) -> u16 {
    let rest = record_word & (u64::MAX >> RecordWord::TAG_BITS);
    ((hash ^ rest).wrapping_mul(TAG_SPREAD) >> (u64::BITS - RecordWord::TAG_BITS)) as u16
}

/// Returns the size class of a record, `None` if there is none so large.
pub fn class_of(key_bytes: usize, value_bytes: usize) -> Option<Class> {
    Class::of(RecordHead::BYTES as u64 + key_bytes as u64 + value_bytes as u64)
}

/// Writes a record at `at` and returns its span. Nothing is flushed; a crash leaves any part of it.
///
/// # Errors
/// If `at` lies outside the medium.
pub fn write<M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    hash: u64,
    key: &[u8],
    value: &[u8],
) -> Result<Span> {
    let lengths = key.len() as u64 | (value.len() as u64) << 32;
    let (seed, bytes) = (seed(at, hash, lengths), RecordHead::BYTES + key.len() + value.len());
    // Of a long value only what shares a word with the key is copied.
    let beside_key = key.len().next_multiple_of(WORD as usize) - key.len();
    let copied = if bytes <= AT_ONCE { value.len() } else { beside_key.min(value.len()) };
    let (copied, rest) = value.split_at(copied);
    let mut front = Vec::with_capacity(bytes - rest.len());
    front.extend_from_slice(&[0; 8]);
    front.extend_from_slice(&lengths.to_le_bytes());
    front.extend_from_slice(key);
    front.extend_from_slice(copied);
    let checksum = match rest {
        [] => xxh3_64_with_seed(&front[RecordHead::BYTES..], seed),
        rest => {
            let mut checksum = Xxh3::with_seed(seed);
            checksum.update(&front[RecordHead::BYTES..]);
            checksum.update(rest);
            checksum.digest()
        }
    };
    front[..8].copy_from_slice(&checksum.to_le_bytes());
    pm.write_bytes(at, &front)?;
    if !rest.is_empty() {
        pm.write_bytes(at.plus(front.len() as u64 / WORD), rest)?;
    }
    Ok(Span::of_bytes(at, bytes as u64))
}

/// Reads the record that `word` leads to: replaces the contents of `bytes` by key and value, and
/// returns the length of the key.
///
/// May run while the record is being replaced: the result is then an error or another record, and
/// the caller's own validation detects that.
///
/// # Errors
/// [`Error::Corrupt`] if the lengths exceed the class or the checksum does not match.
pub fn read<M: Media>(
    pm: &Access<'_, M>,
    word: RecordWord,
    hash: u64,
    bytes: &mut Vec<u8>,
) -> Result<usize> {
    let corrupt = |broken| Error::Corrupt { at: word.addr.byte(), broken };
    let mut head = [0; RecordHead::WORDS];
    pm.read_words(word.addr, &mut head)?;
    let lengths = head[RecordHead::LENGTHS];
    let (key_bytes, value_bytes) = (lengths & u64::from(u32::MAX), lengths >> 32);
    let total = key_bytes + value_bytes;
    if RecordHead::BYTES as u64 + total > word.class.bytes() {
        return Err(corrupt("a record fits into its size class"));
    }
    bytes.clear();
    let body = word.addr.plus(RecordHead::BYTES as u64 / WORD);
    pm.read_bytes(body, total, bytes)?;
    if xxh3_64_with_seed(bytes, seed(word.addr, hash, lengths)) != head[RecordHead::CHECKSUM] {
        return Err(corrupt("the checksum of a record matches"));
    }
    Ok(key_bytes as usize)
}

/// Binds a record to its place and its key: a record elsewhere, or of another key, is damage.
fn seed(at: Addr, hash: u64, lengths: u64) -> u64 {
    (at.byte().wrapping_mul(SPREAD) ^ hash).wrapping_mul(SPREAD) ^ lengths
}

#[cfg(test)]
mod tests {
    use everhash_pmem::{Image, Region, Std};

    use super::*;

    const AT: Addr = Addr::new(128);

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed() {
        // Fails if a byte that influences an answer is outside the checksum.
        let region = Region::new(Image::<Std>::new(4096, 4096));
        let pm = region.access();
        let (key, value) = (b"a key".as_slice(), b"and its value".as_slice());
        let class = class_of(key.len(), value.len()).unwrap();
        let span = write(&pm, AT, 7, key, value).unwrap();
        let word = RecordWord { addr: AT, class, tag: 0 };
        let mut bytes = vec![1; 100];
        assert_eq!(read(&pm, word, 7, &mut bytes).unwrap(), key.len());
        assert_eq!(bytes, b"a keyand its value");
        assert!(read(&pm, word, 8, &mut bytes).is_err());
        let used_bits = (RecordHead::BYTES + key.len() + value.len()) as u64 * 8;
        for bit in 0..used_bits {
            let at = span.start.plus(bit / 64);
            let before = pm.load(at).unwrap();
            pm.store(at, before ^ 1 << (bit % 64)).unwrap();
            assert!(read(&pm, word, 7, &mut bytes).is_err(), "bit {bit}");
            pm.store(at, before).unwrap();
        }
        assert!(read(&pm, word, 7, &mut bytes).is_ok());
    }

    #[test]
    fn records_of_every_length_are_read_back() {
        // Fails if a record that is stored in two parts differs from one that is stored at once: at
        // the word that key and value share, or where the key or the value ends.
        const WORDS: usize = AT_ONCE / 4 + 16;
        let region = Region::new(Image::<Std>::new(1 << 16, 1 << 16));
        let pm = region.access();
        let mut found = Vec::new();
        let lengths = (0..=9).chain(AT_ONCE - 20..AT_ONCE + 9);
        let pairs = lengths.clone().flat_map(|key| lengths.clone().map(move |value| (key, value)));
        for (key_bytes, value_bytes) in pairs {
            let (key, value) = (vec![1; key_bytes], vec![2; value_bytes]);
            pm.write_words(AT, &[u64::MAX; WORDS]).unwrap();
            let span = write(&pm, AT, 7, &key, &value).unwrap();
            let class = class_of(key_bytes, value_bytes).unwrap();
            let word = RecordWord { addr: AT, class, tag: 0 };
            assert_eq!(read(&pm, word, 7, &mut found).unwrap(), key_bytes);
            assert_eq!(found, [key, value].concat(), "{key_bytes} {value_bytes}");
            // The rest of the last word is zero, and nothing is stored behind it.
            let used = (key_bytes + value_bytes) % 8;
            let last = pm.load(AT.plus(span.words - 1)).unwrap();
            assert!(used == 0 || last >> (8 * used) == 0, "{key_bytes} {value_bytes}");
            assert_eq!(pm.load(AT.plus(span.words)).unwrap(), u64::MAX);
        }
    }

    #[test]
    fn two_flipped_bits_and_any_damaged_byte_of_a_slot_change_the_tag() {
        // Fails if a slot can lead to another record, or be taken for another key's, unnoticed.
        let (hash, word) = (0x0123_4567_89ab_cdef, 0x8_0000_1234);
        let tag = tag_of(hash, word);
        let two = (0..64).flat_map(|a| (0..=a).map(move |b| 1u64 << a | 1 << b));
        let bytes = (0..8).flat_map(|byte| (1..256u64).map(move |by| by << (8 * byte)));
        for damage in two.chain(bytes) {
            assert_ne!(tag_of(hash ^ damage, word), tag, "{damage:#x}");
            let rest = damage & ((1 << 52) - 1);
            assert!(rest == 0 || tag_of(hash, word ^ rest) != tag, "{damage:#x}");
        }
        assert_eq!(tag_of(hash, word | 0xfff << 52), tag);
    }

    #[test]
    fn a_length_beyond_the_class_allocates_nothing() {
        // Fails if a damaged length were used before it is bounded.
        let region = Region::new(Image::<Std>::new(4096, 4096));
        let pm = region.access();
        pm.store(AT.plus(RecordHead::LENGTHS as u64), u64::MAX).unwrap();
        let word = RecordWord { addr: AT, class: Class::of(64).unwrap(), tag: 0 };
        let mut bytes = Vec::new();
        assert!(matches!(read(&pm, word, 0, &mut bytes), Err(Error::Corrupt { at: 128, .. })));
        assert_eq!(bytes.capacity(), 0);
    }
}
