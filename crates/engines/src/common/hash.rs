//! The keyed hash that spreads keys: part of the format, so its values never change.
//!
//! Words stand for their bytes in little-endian order: a key of two words and the same key as
//! sixteen bytes have one hash.

use everhash_index::{Error, HashKind, Result};
use everhash_pmem::{AtOnce, Identity, VectorSip};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline, rapidhash_v3_seeded};
use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A hash function with the key of one pool.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    function: Function,
    key: [u64; 2],
}

/// The hash functions, for [`with_hash`].
#[derive(Clone, Copy)]
pub(crate) enum Function {
    Sip13(Sip13),
    /// The same function in fewer instructions, where the processor has them.
    VectorSip13(VectorSip13),
    Xxh3(Xxh3),
    Rapid(Rapid),
    Xxh3AtOnce(WithLines<Xxh3>),
    RapidAtOnce(WithLines<Rapid>),
}

/// One hash function of keys of fixed length, for code that is compiled for it alone.
pub(crate) trait WordHash: Sized + 'static {
    /// Returns the hash function of a [`KeyedHash`] if it is this one.
    fn of(keyed: &KeyedHash) -> Option<&Self>;

    /// Returns the hash of an eight-byte key.
    fn word(&self, word: u64) -> u64;

    /// Returns the hash of a sixteen-byte key.
    fn two_words(&self, words: [u64; 2]) -> u64;

    /// Returns that the processor compares a line at once: always, or never.
    #[inline(always)]
    fn at_once(&self) -> Option<AtOnce> {
        None
    }
}

/// A hash function on a processor that compares a line at once: so a look-up that is compiled for
/// it asks for both together.
#[derive(Clone, Copy)]
pub(crate) struct WithLines<H> {
    hash: H,
    proof: AtOnce,
}

/// A hash function that goes with either kind of processor.
pub(crate) trait HasLines: WordHash {
    /// Returns the hash function of a [`KeyedHash`] if it is this one, and a line is compared at
    /// once.
    fn with_lines(keyed: &KeyedHash) -> Option<&WithLines<Self>>;
}

/// Evaluates an expression with the hash function of a [`KeyedHash`] as a [`WordHash`]: it is
/// compiled once for each. An engine chooses its look-up of words so, when a table is opened: a
/// look-up does not ask which function it is, and the registers of one function are not the spills
/// of another.
macro_rules! with_hash {
    ($keyed:expr, $hash:ident => $then:expr) => {
        match $keyed.function() {
            $crate::common::hash::Function::Sip13($hash) => $then,
            $crate::common::hash::Function::VectorSip13($hash) => $then,
            $crate::common::hash::Function::Xxh3($hash) => $then,
            $crate::common::hash::Function::Rapid($hash) => $then,
            $crate::common::hash::Function::Xxh3AtOnce($hash) => $then,
            $crate::common::hash::Function::RapidAtOnce($hash) => $then,
        }
    };
}

pub(crate) use with_hash;

impl KeyedHash {
    /// Makes the hash function `kind` with a key.
    pub fn new(kind: HashKind, key: [u64; 2]) -> Self {
        let function = match kind {
            HashKind::Sip13 => match VectorSip::detect() {
                Some(proof) => Function::VectorSip13(VectorSip13 { state: sip_state(key), proof }),
                None => Function::Sip13(Sip13::new(key)),
            },
            HashKind::Xxh3 => match AtOnce::detect() {
                Some(proof) => Function::Xxh3AtOnce(WithLines { hash: Xxh3::new(key), proof }),
                None => Function::Xxh3(Xxh3::new(key)),
            },
            HashKind::Rapid => match AtOnce::detect() {
                Some(proof) => Function::RapidAtOnce(WithLines { hash: Rapid::new(key), proof }),
                None => Function::Rapid(Rapid::new(key)),
            },
        };
        KeyedHash { function, key }
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

    /// Returns the hash function for code that is compiled for each.
    #[inline(always)]
    pub(crate) fn function(&self) -> &Function {
        &self.function
    }

    /// Returns the hash of a byte string.
    #[inline]
    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        match &self.function {
            Function::Sip13(_) | Function::VectorSip13(_) => {
                SipHasher13::new_with_keys(self.key[0], self.key[1]).hash(bytes)
            }
            Function::Xxh3(xxh3) | Function::Xxh3AtOnce(WithLines { hash: xxh3, .. }) => {
                xxh3_64_with_seed(bytes, xxh3.seed)
            }
            Function::Rapid(rapid) | Function::RapidAtOnce(WithLines { hash: rapid, .. }) => {
                rapidhash_v3_seeded(bytes, &rapid.secrets)
            }
        }
    }

    /// Returns the hash of an eight-byte key.
    #[inline(always)]
    pub fn word(&self, word: u64) -> u64 {
        with_hash!(self, hash => hash.word(word))
    }

    /// Returns the hash of a sixteen-byte key.
    #[inline(always)]
    pub fn two_words(&self, words: [u64; 2]) -> u64 {
        with_hash!(self, hash => hash.two_words(words))
    }
}

/// What SipHash's state is made of, beside the key. Source: Aumasson, Bernstein, INDOCRYPT 2012.
const SIP: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

/// Returns SipHash's state before the first word.
fn sip_state(key: [u64; 2]) -> [u64; 4] {
    [key[0] ^ SIP[0], key[1] ^ SIP[1], key[0] ^ SIP[2], key[1] ^ SIP[3]]
}

/// SipHash-1-3 of whole words, without the branches for the rest of a word.
///
/// A get overlaps with the next one only as far as the processor looks ahead, and the hash is most
/// of its instructions. The half of a round that the next word does not reach comes before that
/// word: of the first round it is done once for all, when the key is known.
#[derive(Clone, Copy)]
pub(crate) struct Sip13 {
    state: [u64; 4],
}

impl Sip13 {
    fn new(key: [u64; 2]) -> Sip13 {
        let mut state = sip_state(key);
        sip_begin(&mut state);
        Sip13 { state }
    }

    #[inline(always)]
    fn words<const N: usize>(&self, words: [u64; N]) -> u64 {
        let mut state = self.state;
        for word in words {
            sip_absorb(&mut state, word);
        }
        // The last word has no bytes left, and the length in its highest one.
        sip_absorb(&mut state, (N as u64 * 8) << 56);
        state[2] ^= 0xff;
        sip_end(&mut state);
        sip_begin(&mut state);
        sip_end(&mut state);
        sip_begin(&mut state);
        sip_end(&mut state);
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

impl WordHash for Sip13 {
    #[inline(always)]
    fn of(keyed: &KeyedHash) -> Option<&Self> {
        if let Function::Sip13(hash) = &keyed.function { Some(hash) } else { None }
    }

    #[inline(always)]
    fn word(&self, word: u64) -> u64 {
        self.words([word])
    }

    #[inline(always)]
    fn two_words(&self, words: [u64; 2]) -> u64 {
        self.words(words)
    }
}

/// Ends the round that was begun, and begins the next.
#[inline(always)]
fn sip_absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    sip_end(state);
    state[0] ^= word;
    sip_begin(state);
}

/// The part of a round that needs half of the state only.
#[inline(always)]
fn sip_begin([a, b, ..]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
}

#[inline(always)]
fn sip_end([a, b, c, d]: &mut [u64; 4]) {
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

/// SipHash-1-3 with vector instructions.
#[derive(Clone, Copy)]
pub(crate) struct VectorSip13 {
    state: [u64; 4],
    proof: VectorSip,
}

impl WordHash for VectorSip13 {
    #[inline(always)]
    fn of(keyed: &KeyedHash) -> Option<&Self> {
        if let Function::VectorSip13(hash) = &keyed.function { Some(hash) } else { None }
    }

    #[inline(always)]
    fn word(&self, word: u64) -> u64 {
        self.proof.words(self.state, [word])
    }

    #[inline(always)]
    fn two_words(&self, words: [u64; 2]) -> u64 {
        self.proof.words(self.state, words)
    }

    #[inline(always)]
    fn at_once(&self) -> Option<AtOnce> {
        Some(self.proof.at_once())
    }
}

/// XXH3-64. It takes one seed, made of both words of the key.
#[derive(Clone, Copy)]
pub(crate) struct Xxh3 {
    seed: u64,
    /// What eight bytes are combined with first: the seed, in a constant.
    flip: u64,
}

/// Words 1 and 2 of XXH3's default secret, combined by exclusive or.
const XXH3_SECRET: u64 = 0xc73a_b174_c5ec_d5a2;

/// What XXH3 multiplies eight bytes by, twice. Source: XXH3, `XXH3_rrmxmx`.
const XXH3_FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

impl Xxh3 {
    fn new(key: [u64; 2]) -> Xxh3 {
        let seed = key[0] ^ key[1].rotate_left(32);
        let spread = seed ^ u64::from((seed as u32).swap_bytes()) << 32;
        Xxh3 { seed, flip: XXH3_SECRET.wrapping_sub(spread) }
    }
}

impl WordHash for Xxh3 {
    #[inline(always)]
    fn of(keyed: &KeyedHash) -> Option<&Self> {
        if let Function::Xxh3(hash) = &keyed.function { Some(hash) } else { None }
    }

    /// `xxh3_64_with_seed` of eight bytes, with what depends on the seed alone computed before.
    #[inline(always)]
    fn word(&self, word: u64) -> u64 {
        let mut mixed = word.rotate_left(32) ^ self.flip;
        mixed ^= mixed.rotate_left(49) ^ mixed.rotate_left(24);
        mixed = mixed.wrapping_mul(XXH3_FACTOR);
        mixed ^= (mixed >> 35).wrapping_add(8);
        mixed = mixed.wrapping_mul(XXH3_FACTOR);
        mixed ^ mixed >> 28
    }

    #[inline(always)]
    fn two_words(&self, words: [u64; 2]) -> u64 {
        xxh3_64_with_seed(&bytes_of(words), self.seed)
    }
}

/// rapidhash V3. Its seed is made of the first word of the key, its secrets of the second.
#[derive(Clone, Copy)]
pub(crate) struct Rapid {
    /// What an eight-byte key is combined with, and then the two halves of the product.
    flips: [[u64; 2]; 2],
    secrets: RapidSecrets,
}

/// What rapidhash combines the low half of its first product with. Source: rapidhash V3.
const RAPID_LAST_SECRET: u64 = 0xaaaa_aaaa_aaaa_aaaa;

impl Rapid {
    fn new(key: [u64; 2]) -> Rapid {
        let (seed, secrets) = (RapidSecrets::seed(key[0]).seed, RapidSecrets::seed(key[1]).secrets);
        let first = [secrets[1], seed ^ 8];
        let flips = [first, [RAPID_LAST_SECRET, secrets[1] ^ 8]];
        Rapid { flips, secrets: RapidSecrets { seed, secrets } }
    }
}

/// Returns both halves of a product, the low one first.
#[inline(always)]
fn halves(a: u64, b: u64) -> [u64; 2] {
    let product = u128::from(a) * u128::from(b);
    [product as u64, (product >> 64) as u64]
}

impl WordHash for Rapid {
    #[inline(always)]
    fn of(keyed: &KeyedHash) -> Option<&Self> {
        if let Function::Rapid(hash) = &keyed.function { Some(hash) } else { None }
    }

    /// `rapidhash_v3_seeded` of eight bytes, with what depends on the key alone computed before.
    #[inline(always)]
    fn word(&self, word: u64) -> u64 {
        let [first, second] = self.flips;
        let [low, high] = halves(word ^ first[0], word ^ first[1]);
        let [low, high] = halves(low ^ second[0], high ^ second[1]);
        low ^ high
    }

    #[inline(always)]
    fn two_words(&self, words: [u64; 2]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(&bytes_of(words), &self.secrets)
    }
}

impl HasLines for Xxh3 {
    #[inline(always)]
    fn with_lines(keyed: &KeyedHash) -> Option<&WithLines<Self>> {
        if let Function::Xxh3AtOnce(hash) = &keyed.function { Some(hash) } else { None }
    }
}

impl HasLines for Rapid {
    #[inline(always)]
    fn with_lines(keyed: &KeyedHash) -> Option<&WithLines<Self>> {
        if let Function::RapidAtOnce(hash) = &keyed.function { Some(hash) } else { None }
    }
}

impl<H: HasLines> WordHash for WithLines<H> {
    #[inline(always)]
    fn of(keyed: &KeyedHash) -> Option<&Self> {
        H::with_lines(keyed)
    }

    #[inline(always)]
    fn word(&self, word: u64) -> u64 {
        self.hash.word(word)
    }

    #[inline(always)]
    fn two_words(&self, words: [u64; 2]) -> u64 {
        self.hash.two_words(words)
    }

    #[inline(always)]
    fn at_once(&self) -> Option<AtOnce> {
        Some(self.proof)
    }
}

#[inline(always)]
fn bytes_of(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

impl core::fmt::Debug for KeyedHash {
    /// Prints the kind only: the key of the hash lets an attacker make colliding keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kind = match &self.function {
            Function::Sip13(_) | Function::VectorSip13(_) => HashKind::Sip13,
            Function::Xxh3(_) | Function::Xxh3AtOnce(_) => HashKind::Xxh3,
            Function::Rapid(_) | Function::RapidAtOnce(_) => HashKind::Rapid,
        };
        f.debug_struct("KeyedHash").field("kind", &kind).finish_non_exhaustive()
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
    fn rapidhash_has_the_published_values() {
        // Fails if the library leaves what rapidhash.h V3 computes with its secrets and seed 0.
        // These numbers come from another program that was written after that file.
        let published = RapidSecrets::seed_cpp(0);
        let bytes: Vec<u8> = (0..40).collect();
        let found = LENGTHS.map(|n| rapidhash_v3_seeded(&bytes[..n], &published));
        let frozen = [
            0x0338_dc4b_e2ce_cdae,
            0x4f23_c791_b16e_ba02,
            0x7f40_3e57_3bb8_ebc1,
            0xda56_413f_f396_af3e,
            0xd6bf_c1bc_f7e9_ca19,
            0x07b0_547f_109b_e79e,
            0x0912_f2e3_f0fc_db14,
        ];
        assert_eq!(found, frozen);
        // With the secrets of a pool: what its header says must lead to the same hashes for ever.
        let keyed = KeyedHash::new(HashKind::Rapid, KEY);
        let found = LENGTHS.map(|n| keyed.bytes(&bytes[..n]));
        let frozen = [
            0x4df0_b0e7_4575_355a,
            0x0874_0a15_eda2_43b0,
            0x0468_26a4_7304_2eaa,
            0xa4b3_99dc_16b7_524e,
            0x577e_99d0_4cfe_9162,
            0xd0f0_9f65_fa3e_332f,
            0x36e5_3f6c_5838_5fbe,
        ];
        assert_eq!(found, frozen);
    }

    /// Lengths on every path of rapidhash below its long one.
    const LENGTHS: [usize; 7] = [0, 1, 7, 8, 16, 24, 40];

    #[test]
    fn words_are_their_bytes() {
        // Fails if the two ways to a key could lead to two buckets.
        for kind in HashKind::ALL {
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
        let Some(proof) = VectorSip::detect() else { return };
        let (scalar, vector) = (Sip13::new(KEY), VectorSip13 { state: sip_state(KEY), proof });
        for i in 0..10_000u64 {
            let word = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(vector.word(word), scalar.word(word));
            assert_eq!(vector.two_words([i, word]), scalar.two_words([i, word]));
        }
    }

    #[test]
    fn processors_without_vectors_have_the_hashes_of_bytes() {
        // Fails if the form that this processor may never choose differs from the published one.
        let (scalar, keyed) = (Sip13::new(KEY), KeyedHash::new(HashKind::Sip13, KEY));
        for i in 0..1000u64 {
            assert_eq!(scalar.word(i), keyed.bytes(&i.to_le_bytes()));
            assert_eq!(scalar.two_words([i, !i]), keyed.bytes(&bytes_of([i, !i])));
        }
    }

    #[test]
    fn both_words_of_a_key_reach_every_hash() {
        // Fails if a part of the random key of a pool is not used.
        for kind in HashKind::ALL {
            let hash = |key: [u64; 2]| {
                let keyed = KeyedHash::new(kind, key);
                (keyed.word(7), keyed.two_words([7, 8]), keyed.bytes(b"twenty-four bytes or so."))
            };
            for other in [[KEY[0] ^ 1, KEY[1]], [KEY[0], KEY[1] ^ 1]] {
                let (a, b) = (hash(KEY), hash(other));
                assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2, "{kind}");
            }
        }
    }

    #[test]
    fn the_key_is_never_printed() {
        // Fails if a derived Debug shows the secret in a log.
        let text = format!("{:?}", KeyedHash::new(HashKind::Sip13, [0x1234_5678, 99]));
        assert!(!text.contains("99") && text.contains("Sip13"), "{text}");
    }
}
