//! Every byte of the reference engine on the medium.

use everhash_pmem::{Addr, Bits, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

everhash_pmem::ruler! {
    /// The root, at the beginning of the pool's root area. One word decides which table is true.
    pub struct Root [64] {
        0 TABLE [1] "address of the table, 0 for none, with a check; one store switches tables";
        8 SPARE [7] "zero";
    }
}

everhash_pmem::ruler! {
    /// The head of a table. A table is written once, in one piece, and never changed.
    pub struct Head [64] {
        0  CHECKSUM [1] "XXH3-64 of the two words after it and of the pairs, seeded by address";
        8  LENGTH   [1] "length of the pairs";
        16 COUNT    [1] "number of pairs";
        24 SPARE    [5] "zero";
    }
}

everhash_pmem::ruler! {
    /// The head of a pair; the key and the value follow, each filled up with zeros to whole words.
    pub struct Pair [8] {
        0 LENGTHS [1] "length of the key in the low half, of the value in the high half";
    }
}

/// Where the root lies.
pub const ROOT: Addr = pool::ROOT;

/// The length of a key, in the head of a pair. Unit: bytes.
pub const KEY_BYTES: Bits = Bits::new(0, 32);

/// The length of a value, in the head of a pair. Unit: bytes.
pub const VALUE_BYTES: Bits = Bits::new(32, 32);

/// The address in the root. Unit: bytes.
const ADDRESS: Bits = Bits::new(0, 48);

/// The check over the address: without it one flipped bit could name an older table, or none.
const CHECK: Bits = Bits::new(48, 16);

/// Returns the root word that names a table.
pub fn root_word(table: Addr) -> u64 {
    let word = ADDRESS.set(0, table.byte());
    CHECK.set(word, xxh3_64_with_seed(&word.to_le_bytes(), ROOT.byte()))
}

/// Returns the table that a root word names, or `None` if the word is damaged.
pub fn table_of(root_word_found: u64) -> Option<Addr> {
    let table = Addr::from_medium(ADDRESS.get(root_word_found))?;
    (root_word(table) == root_word_found).then_some(table)
}

/// Returns the checksum of the table at `table`; `covered` is everything behind the checksum that
/// has a meaning: `LENGTH`, `COUNT` and the pairs.
pub fn checksum(table: Addr, bytes: u64, count: u64, pairs: &[u8]) -> u64 {
    let mut covered = Vec::with_capacity(pairs.len() + 16);
    covered.extend_from_slice(&bytes.to_le_bytes());
    covered.extend_from_slice(&count.to_le_bytes());
    covered.extend_from_slice(pairs);
    xxh3_64_with_seed(&covered, table.byte())
}
