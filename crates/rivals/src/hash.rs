//! Two independent hash functions of words, and the random choices of cuckoo hashing.

/// Returns both hashes of a key.
pub fn both(key: u64) -> [u64; 2] {
    // Differing additions before a mixer whose every output bit depends on every input bit.
    [mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)), mix(key.wrapping_add(0xd1b5_4a32_d192_ed03))]
}

/// Spreads a number over all 64 bits; a bijection.
///
/// Source: the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
