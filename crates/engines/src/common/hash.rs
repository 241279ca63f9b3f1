//! The keyed hash that spreads keys: part of the format, so its values never change.

use everhash_index::{Error, HashKind, Result};
use everhash_pmem::{Identity, VectorSip};
use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A hash function with the key of one pool.
///
/// Words stand for their bytes in little-endian order: a key of two words and the same key as
/// sixteen bytes have one hash.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    kind: HashKind,
    /// SipHash takes its state before the first word, made of both words of the key; XXH3 takes one
    /// seed, made of both.
    state: [u64; 4],
    /// The same SipHash in fewer instructions, where the processor has them.
    vector: Option<VectorSip>,
}

/// What SipHash's state is made of, beside the key. Source: Aumasson, Bernstein, INDOCRYPT 2012.
const SIP: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

impl KeyedHash {
    /// Makes the hash function `kind` with a key.
    pub fn new(kind: HashKind, key: [u64; 2]) -> Self {
        match kind {
            HashKind::Sip13 => {
                let state = [key[0] ^ SIP[0], key[1] ^ SIP[1], key[0] ^ SIP[2], key[1] ^ SIP[3]];
                KeyedHash { kind, state, vector: VectorSip::new(state) }
            }
            HashKind::Xxh3 => {
                let seed = key[0] ^ key[1].rotate_left(32);
                KeyedHash { kind, state: [seed, 0, 0, 0], vector: None }
            }
        }
    }

    /// Makes the hash function that a pool's header names.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this program does not know it.
    pub fn of(identity: &Identity) -> Result<Self> {
        let kind = HashKind::from_code(identity.hash_kind).ok_or_else(|| Error::Unsupported {
            what: format!("hash function {}; open with a newer program", identity.hash_kind),
        })?;
        Ok(Self::new(kind, identity.hash_key))
    }

    /// Returns the hash of a byte string.
    #[inline]
    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        match self.kind {
            HashKind::Sip13 => {
                let key = [self.state[0] ^ SIP[0], self.state[1] ^ SIP[1]];
                SipHasher13::new_with_keys(key[0], key[1]).hash(bytes)
            }
            HashKind::Xxh3 => xxh3_64_with_seed(bytes, self.state[0]),
        }
    }

    /// Returns the hash of an eight-byte key.
    #[inline(always)]
    pub fn word(&self, word: u64) -> u64 {
        match self.kind {
            HashKind::Sip13 => self.sip13([word]),
            HashKind::Xxh3 => xxh3_64_with_seed(&word.to_le_bytes(), self.state[0]),
        }
    }

    #[inline(always)]
    fn sip13<const N: usize>(&self, words: [u64; N]) -> u64 {
        match self.vector {
            Some(vector) => vector.words(words),
            None => sip13(self.state, words),
        }
    }

    /// Returns the hash of a sixteen-byte key.
    #[inline(always)]
    pub fn two_words(&self, words: [u64; 2]) -> u64 {
        match self.kind {
            HashKind::Sip13 => self.sip13(words),
            HashKind::Xxh3 => {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&words[0].to_le_bytes());
                bytes[8..].copy_from_slice(&words[1].to_le_bytes());
                xxh3_64_with_seed(&bytes, self.state[0])
            }
        }
    }
}

/// SipHash-1-3 of whole words, without the branches for the rest of a word.
///
/// A get overlaps with the next one only as far as the processor looks ahead, and the hash of a
/// slice is most of its instructions.
#[inline(always)]
fn sip13<const N: usize>(mut state: [u64; 4], words: [u64; N]) -> u64 {
    for word in words {
        sip_absorb(&mut state, word);
    }
    // The last word has no bytes left, and the length in its highest one.
    sip_absorb(&mut state, (N as u64 * 8) << 56);
    state[2] ^= 0xff;
    sip_round(&mut state);
    sip_round(&mut state);
    sip_round(&mut state);
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline(always)]
fn sip_absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    sip_round(state);
    state[0] ^= word;
}

#[inline(always)]
fn sip_round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

impl core::fmt::Debug for KeyedHash {
    /// Prints the kind only: the key of the hash lets an attacker make colliding keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyedHash").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    #[test]
    fn hashes_never_change() {
        // Fails if a library, or how words are packed, changes: every pool would lose its keys.
        let sip = KeyedHash::new(HashKind::Sip13, KEY);
        let xxh = KeyedHash::new(HashKind::Xxh3, KEY);
        let bytes: Vec<u8> = (0..16).collect();
        let found: Vec<[u64; 2]> =
            [0, 1, 7, 8, 16].map(|n| [sip.bytes(&bytes[..n]), xxh.bytes(&bytes[..n])]).to_vec();
        // Those of SipHash-1-3 are the published vectors of this key: dc c4 0f 05 58 01 ac ab, ...
        let frozen = [
            [0xabac_0158_050f_c4dc, 0x763a_c112_32c2_f16b],
            [0xc9f4_9bf3_7d57_ca93, 0x61e6_5b00_ad4d_f954],
            [0xd392_7d98_9bb1_1140, 0x27f1_079d_7624_5083],
            [0x3690_9511_8d29_9a8e, 0x6b29_8e14_b03f_6d82],
            [0xcc4f_dd1a_7d90_8b66, 0x955f_ec2e_aa06_efdb],
        ];
        assert_eq!(found, frozen);
    }

    #[test]
    fn words_are_their_bytes() {
        // Fails if the two ways to a key could lead to two buckets.
        for kind in [HashKind::Sip13, HashKind::Xxh3] {
            let hash = KeyedHash::new(kind, KEY);
            assert_eq!(hash.word(0x0102), hash.bytes(&[2, 1, 0, 0, 0, 0, 0, 0]));
            let mut bytes = [0; 16];
            (bytes[0], bytes[8]) = (3, 4);
            assert_eq!(hash.two_words([3, 4]), hash.bytes(&bytes));
            for i in 0..1000u64 {
                let word = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                assert_eq!(hash.word(word), hash.bytes(&word.to_le_bytes()));
                let both = [word.to_le_bytes(), i.to_le_bytes()].concat();
                assert_eq!(hash.two_words([word, i]), hash.bytes(&both));
            }
        }
    }

    #[test]
    fn every_processor_has_the_same_hashes() {
        // Fails if vector instructions and ordinary ones disagree: a pool could not be moved.
        let hash = KeyedHash::new(HashKind::Sip13, KEY);
        let Some(vector) = hash.vector else { return };
        for i in 0..10_000u64 {
            let word = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(vector.words([word]), sip13(hash.state, [word]));
            assert_eq!(vector.words([i, word]), sip13(hash.state, [i, word]));
        }
    }

    #[test]
    fn the_key_is_never_printed() {
        // Fails if a derived Debug shows the secret in a log.
        let text = format!("{:?}", KeyedHash::new(HashKind::Sip13, [0x1234_5678, 99]));
        assert!(!text.contains("99") && text.contains("Sip13"), "{text}");
    }
}
