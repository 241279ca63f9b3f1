//! Byte-lane compare: which bytes of a few words equal a given byte, as a bit mask.
//!
//! Engines keep one hash byte per slot and look at all slots of a bucket at once. The words have
//! been loaded from the medium before, so this works on plain memory.

use core::sync::atomic::AtomicU64;

/// Returns a mask whose bit `i` says that byte `i` of `words` equals `byte`.
///
/// Bytes are counted in little-endian order: byte 0 is the lowest of `words[0]`. Takes 1, 2 or 4
/// words (8, 16 or 32 bytes), chosen when compiled; other counts do not compile.
///
/// ```
/// assert_eq!(everhash_pmem::equal_bytes(&[0x00_07_00_07], 7), 0b0101);
/// assert_eq!(everhash_pmem::equal_bytes(&[0, 7 << 56], 7), 1 << 15);
/// ```
#[inline(always)]
pub fn equal_bytes<const N: usize>(words: &[u64; N], byte: u8) -> u32 {
    const { assert!(N == 1 || N == 2 || N == 4, "1, 2 or 4 words") };
    match N {
        1 => equal_8(words[0], byte),
        2 => equal_16([words[0], words[1]], byte),
        _ => equal_32([words[0], words[1], words[2], words[3]], byte),
    }
}

/// Compares byte by byte: the reference for the vector versions, and the fallback.
///
/// Source: ours; same result as [`equal_bytes`] on any number of words up to four.
pub fn equal_bytes_scalar(words: &[u64], byte: u8) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.enumerate().fold(0, |mask, (i, found)| mask | (u32::from(found == byte) << i))
}

/// Returns which of the eight 16-bit lanes of two words equal `lane` in the bits of `looked_at`:
/// bit i for lane i, counted from the lowest of `words[0]`.
///
/// ```
/// assert_eq!(everhash_pmem::equal_lanes([0x0007_0000_1007, 7 << 48], 0xfff, 7), 0b1000_0101);
/// ```
#[inline(always)]
pub fn equal_lanes(words: [u64; 2], looked_at: u16, lane: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::*;
        // Every x86-64 has SSE2, so these intrinsics need no detection and are safe to call.
        // SAFETY: SSE2 is part of the target; the arguments are values, no memory is touched.
        unsafe {
            let found = _mm_set_epi64x(words[1] as i64, words[0] as i64);
            let found = _mm_and_si128(found, _mm_set1_epi16(looked_at as i16));
            let equal = _mm_cmpeq_epi16(found, _mm_set1_epi16((lane & looked_at) as i16));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_lanes_scalar(words, looked_at, lane)
}

/// Compares lane by lane: the reference for [`equal_lanes`], and the fallback.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_lanes_scalar(words: [u64; 2], looked_at: u16, lane: u16) -> u32 {
    let lanes =
        words.iter().flat_map(|word| (0..4).map(move |index| (word >> (16 * index)) as u16));
    lanes
        .enumerate()
        .fold(0, |mask, (index, found)| mask | u32::from((found ^ lane) & looked_at == 0) << index)
}

/// Compares the eight bytes of a word inside an ordinary register.
#[inline(always)]
fn equal_8(word: u64, byte: u8) -> u32 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // A byte of `other` is zero where they are equal. Adding 0x7f to its low seven bits carries
    // into bit 7 unless they are zero, and never into the next byte.
    let other = word ^ (u64::from(byte) * 0x0101_0101_0101_0101);
    let equal = !(((other & LOW) + LOW) | other | LOW);
    // The multiplication gathers the eight top bits, one per byte, into the top byte.
    ((equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_16(words: [u64; 2], byte: u8) -> u32 {
    use core::arch::x86_64::*;
    // Every x86-64 has SSE2, so these intrinsics need no detection and are safe to call.
    // SAFETY: SSE2 is part of the target; the arguments are values, no memory is touched.
    unsafe {
        let found = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(found, _mm_set1_epi8(byte as i8))) as u32
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_32(words: [u64; 4], byte: u8) -> u32 {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { equal_32_avx2(&words, byte) };
    }
    equal_32_halves(words, byte)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn equal_32_avx2(words: &[u64; 4], byte: u8) -> u32 {
    use core::arch::x86_64::*;
    let at = core::ptr::from_ref(words).cast::<__m256i>();
    // SAFETY: `at` points to 32 readable bytes, and the load asks for no alignment.
    let found = unsafe { _mm256_loadu_si256(at) };
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(found, _mm256_set1_epi8(byte as i8))) as u32
}

/// Turns words into the bytes that they stand for, in little-endian order, and returns these.
///
/// ```
/// assert_eq!(everhash_pmem::little_endian_bytes(&mut [0x6261])[..2], *b"ab");
/// ```
#[inline(always)]
pub fn little_endian_bytes(words: &mut [u64]) -> &[u8] {
    words.iter_mut().for_each(|word| *word = word.to_le());
    // SAFETY: the words are that many bytes, borrowed as long as the result; bytes have any value
    // and need no alignment.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Returns which of the 64 lanes of 16 bits of two lines in DRAM are `lane`, bit i for lane i, with
/// what every x86-64 has. Each word is loaded as one (relaxed), in no order.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal_lanes_of_lines_by_quarters(lines: &[AtomicU64; 16], lane: u16) -> u64 {
    // SAFETY: SSE2 is part of every x86-64; the argument is a value.
    let wanted = unsafe { core::arch::x86_64::_mm_set1_epi16(lane as i16) };
    let (quarters, _) = lines.as_chunks::<4>();
    let equal = |quarter: &[AtomicU64; 4]| {
        let equal: u32;
        // SAFETY: as in `AtOnce::equal_lanes_of_lines`; SSE2 is part of every x86-64, and these
        // loads ask for no alignment.
        unsafe {
            core::arch::asm!(
                "movdqu {low}, xmmword ptr [{first}]",
                "movdqu {high}, xmmword ptr [{first} + 16]",
                "pcmpeqw {low}, {wanted}",
                "pcmpeqw {high}, {wanted}",
                "packsswb {low}, {high}",
                "pmovmskb {equal:e}, {low}",
                first = in(reg) quarter.as_ptr(),
                wanted = in(xmm_reg) wanted,
                low = out(xmm_reg) _,
                high = out(xmm_reg) _,
                equal = lateout(reg) equal,
                options(readonly, nostack, preserves_flags)
            );
        }
        u64::from(equal)
    };
    (0..4).fold(0, |mask, index| mask | equal(&quarters[index]) << (16 * index))
}

/// Returns which of the eight words of a line in DRAM are `value` from bit `SHIFT` on, bit i for
/// word i, with what every x86-64 has: bits of the upper half of a word. Each word is loaded as one
/// (relaxed), in no order.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal_high_bits_of_line_by_halves<const SHIFT: u32>(
    line: &[AtomicU64; 8],
    value: u64,
) -> u32 {
    const { assert!(SHIFT >= 32 && SHIFT < 64) }
    let equal: u32;
    // SAFETY: as in `equal_lanes_of_lines_by_quarters`.
    unsafe {
        core::arch::asm!(
            "movd {wanted}, {value:e}",
            "movdqu {low}, xmmword ptr [{first}]",
            "movdqu {next}, xmmword ptr [{first} + 16]",
            "movdqu {high}, xmmword ptr [{first} + 32]",
            "movdqu {last}, xmmword ptr [{first} + 48]",
            // The upper halves of four words each.
            "shufps {low}, {next}, 0xdd",
            "shufps {high}, {last}, 0xdd",
            "pshufd {wanted}, {wanted}, 0",
            "psrld {low}, {shift}",
            "psrld {high}, {shift}",
            "pcmpeqd {low}, {wanted}",
            "pcmpeqd {high}, {wanted}",
            // Lanes of 32 bits become lanes of 8.
            "packssdw {low}, {high}",
            "packsswb {low}, {low}",
            "pmovmskb {equal:e}, {low}",
            shift = const SHIFT - 32,
            value = in(reg) value,
            first = in(reg) line.as_ptr(),
            wanted = out(xmm_reg) _,
            low = out(xmm_reg) _,
            next = out(xmm_reg) _,
            high = out(xmm_reg) _,
            last = out(xmm_reg) _,
            equal = lateout(reg) equal,
            options(readonly, nostack, preserves_flags)
        );
    }
    equal & 0xff
}

/// A processor that compares a whole line with one value at once, and rotates lanes of 64 bits by
/// different counts: the proof that it is one.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce(());

impl AtOnce {
    /// Returns the proof, or `None` if the processor lacks the instructions.
    pub fn detect() -> Option<AtOnce> {
        #[cfg(target_arch = "x86_64")]
        let has_them = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl");
        #[cfg(not(target_arch = "x86_64"))]
        let has_them = false;
        has_them.then_some(AtOnce(()))
    }
}

// What follows is written as instructions: the compiler would call a function that not every
// processor has. The registers lie above the fifteenth: they need not be cleared for old code.
#[cfg(target_arch = "x86_64")]
impl AtOnce {
    /// Returns which of the eight words at `first` are `value`, bit i for word i. Each is loaded as
    /// one, in no order.
    ///
    /// # Safety
    /// `first` is where eight words of a live mapping begin.
    #[inline(always)]
    pub(super) unsafe fn equal_words_of_line(self, first: *const u64, value: u64) -> u32 {
        let equal: u32;
        // SAFETY: the instructions exist, for an `AtOnce` is made only then. The caller's words are
        // mapped, and only read; an instruction may do that beside stores, as an atomic load may.
        unsafe {
            core::arch::asm!(
                "vpbroadcastq zmm16, {value}",
                "vpcmpeqq k1, zmm16, zmmword ptr [{first}]",
                "kmovw {equal:e}, k1",
                value = in(reg) value,
                first = in(reg) first,
                equal = lateout(reg) equal,
                out("zmm16") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        equal
    }

    /// Returns which of the 64 lanes of 16 bits of two lines in DRAM are `lane`, bit i for lane i.
    /// Each word is loaded as one (relaxed), in no order.
    #[inline(always)]
    pub fn equal_lanes_of_lines(self, lines: &[AtomicU64; 16], lane: u16) -> u64 {
        let equal: u64;
        // SAFETY: the instructions exist, for an `AtOnce` is made only then. The words are there,
        // and only read; an instruction may do that beside stores, as an atomic load may.
        unsafe {
            core::arch::asm!(
                "vpbroadcastw zmm16, {lane:e}",
                "vpcmpeqw k1, zmm16, zmmword ptr [{first}]",
                "vpcmpeqw k2, zmm16, zmmword ptr [{first} + 64]",
                "kunpckdq k1, k2, k1",
                "kmovq {equal}, k1",
                lane = in(reg) u32::from(lane),
                first = in(reg) lines.as_ptr(),
                equal = lateout(reg) equal,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        equal
    }

    /// Returns which of the eight words of a line in DRAM are `value` from bit `SHIFT` on, bit i
    /// for word i. Each is loaded as one (relaxed), in no order.
    #[inline(always)]
    pub fn equal_high_bits_of_line<const SHIFT: u32>(
        self,
        line: &[AtomicU64; 8],
        value: u64,
    ) -> u32 {
        const { assert!(SHIFT < 64) }
        let equal: u32;
        // SAFETY: as in `equal_lanes_of_lines`.
        unsafe {
            core::arch::asm!(
                "vpsrlq zmm16, zmmword ptr [{first}], {shift}",
                "vpbroadcastq zmm17, {value}",
                "vpcmpeqq k1, zmm16, zmm17",
                "kmovw {equal:e}, k1",
                shift = const SHIFT,
                value = in(reg) value,
                first = in(reg) line.as_ptr(),
                equal = lateout(reg) equal,
                out("zmm16") _,
                out("zmm17") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        equal
    }

    /// Returns which of the sixteen bytes of the words `FIRST` and `FIRST + 1` behind `start` are
    /// the lowest one of `low`, bit i for byte i. Each word is loaded as one, in no order.
    ///
    /// # Safety
    /// Both words lie in a live mapping.
    #[inline(always)]
    pub(super) unsafe fn equal_bytes_of_words<const FIRST: usize>(
        self,
        start: *const u64,
        low: u64,
    ) -> u32 {
        let equal: u32;
        // SAFETY: as in `equal_words_of_line`.
        unsafe {
            core::arch::asm!(
                "vpbroadcastb xmm16, {low:e}",
                "vpcmpeqb k1, xmm16, xmmword ptr [{start} + {offset}]",
                "kmovw {equal:e}, k1",
                low = in(reg) low,
                start = in(reg) start,
                offset = const FIRST * 8,
                equal = lateout(reg) equal,
                out("zmm16") _,
                out("k1") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        equal
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl AtOnce {
    /// Returns which of the eight words at `first` are `value`: never called.
    ///
    /// # Safety
    /// None here.
    pub(super) unsafe fn equal_words_of_line(self, _first: *const u64, _value: u64) -> u32 {
        unreachable!("it cannot be made on this processor")
    }

    /// Returns which of the lanes of two lines are `lane`: never called.
    pub fn equal_lanes_of_lines(self, _lines: &[AtomicU64; 16], _lane: u16) -> u64 {
        unreachable!("it cannot be made on this processor")
    }

    /// Returns which of the words of a line are `value` from a bit on: never called.
    pub fn equal_high_bits_of_line<const SHIFT: u32>(
        self,
        _line: &[AtomicU64; 8],
        _value: u64,
    ) -> u32 {
        unreachable!("it cannot be made on this processor")
    }

    /// Returns which of sixteen bytes are the lowest one of `low`: never called.
    ///
    /// # Safety
    /// None here.
    pub(super) unsafe fn equal_bytes_of_words<const FIRST: usize>(
        self,
        _start: *const u64,
        _low: u64,
    ) -> u32 {
        unreachable!("it cannot be made on this processor")
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[inline(always)]
fn equal_16(words: [u64; 2], byte: u8) -> u32 {
    use core::arch::aarch64::*;
    // SAFETY: NEON is part of every aarch64; the arguments are values, no memory is touched.
    unsafe {
        let found = vcombine_u8(vcreate_u8(words[0]), vcreate_u8(words[1]));
        let equal = vreinterpretq_u64_u8(vceqq_u8(found, vdupq_n_u8(byte)));
        gather(vgetq_lane_u64::<0>(equal)) | (gather(vgetq_lane_u64::<1>(equal)) << 8)
    }
}

/// Makes a mask of eight bytes that are each 0 or 255.
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[inline(always)]
fn gather(equal: u64) -> u32 {
    let ones = equal & 0x0101_0101_0101_0101;
    (ones.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
#[inline(always)]
fn equal_16(words: [u64; 2], byte: u8) -> u32 {
    equal_8(words[0], byte) | (equal_8(words[1], byte) << 8)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal_32(words: [u64; 4], byte: u8) -> u32 {
    equal_32_halves(words, byte)
}

#[inline(always)]
fn equal_32_halves(words: [u64; 4], byte: u8) -> u32 {
    equal_16([words[0], words[1]], byte) | (equal_16([words[2], words[3]], byte) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failure names its seed.
    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    fn judge(words: &[u64; 4], byte: u8) {
        let message = || format!("words {words:x?}, byte {byte:#x}");
        let scalar = |count: usize| equal_bytes_scalar(&words[..count], byte);
        assert_eq!(equal_bytes(&[words[0]], byte), scalar(1), "{}", message());
        assert_eq!(equal_bytes(&[words[0], words[1]], byte), scalar(2), "{}", message());
        assert_eq!(equal_bytes(words, byte), scalar(4), "{}", message());
        assert_eq!(equal_32_halves(*words, byte), scalar(4), "{}", message());
    }

    #[test]
    fn every_pair_of_bytes_in_every_lane_is_compared_as_the_scalar_twin_does() {
        // Fails if a lane is swapped, or if a carry of the register trick reaches a neighbour:
        // that shows with a zero difference below a difference of 0x01 or 0x80.
        for lane in 0..32 {
            for found in 0..=255u8 {
                for byte in 0..=255u8 {
                    let mut bytes = [byte ^ 0x01; 32];
                    bytes[lane] = found;
                    let word = |i: usize| {
                        u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"))
                    };
                    judge(&[word(0), word(1), word(2), word(3)], byte);
                }
            }
        }
    }

    #[test]
    fn words_are_their_bytes() {
        // Fails if bytes come in the machine's order, or if the last ones are lost.
        let words = [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09];
        for count in 0..=words.len() {
            let expected: Vec<u8> = (1..=8 * count as u8).collect();
            assert_eq!(little_endian_bytes(&mut { words }[..count]), expected);
        }
    }

    #[test]
    fn every_pattern_of_equal_lanes_comes_out_as_its_own_mask() {
        // Fails if two equal lanes disturb one another; 0x00, 0x80 and 0x01 are the edges.
        for pattern in 0..=0xffffu32 {
            for (byte, other) in [(0u8, 1u8), (0, 0x80), (0x80, 0), (0xff, 0x7f), (1, 0)] {
                let bytes: [u8; 16] =
                    core::array::from_fn(|i| if pattern >> i & 1 == 1 { byte } else { other });
                let value = u128::from_le_bytes(bytes);
                let words = [value as u64, (value >> 64) as u64];
                assert_eq!(equal_bytes(&words, byte), pattern);
                assert_eq!(
                    equal_bytes(&[words[0], words[1], words[1], words[0]], byte) & 0xffff,
                    pattern
                );
            }
        }
    }

    #[test]
    fn random_words_are_compared_as_the_scalar_twin_does() {
        // Fails on any input class that the two tests above did not think of.
        let mut seed = 42;
        for _ in 0..200_000 {
            // Few different bytes, so that many lanes are equal.
            let mask = 0x0303_0303_0303_0303 << (next(&mut seed) % 7);
            let words = [0; 4].map(|_: u64| next(&mut seed) & mask);
            judge(&words, (words[1] >> 16) as u8);
            judge(&words, next(&mut seed) as u8);
        }
    }

    #[test]
    fn the_high_bits_of_a_line_are_compared_as_those_of_its_words_are() {
        // Fails if a word of the line lies in another lane, or if a bit below the shift, or none
        // of those above it, is compared; with or without long registers.
        use crate::{Primitives, Std};
        let mut seed = 7;
        for round in 0..4000 {
            let value = next(&mut seed) >> 42;
            let words: [u64; 8] = core::array::from_fn(|_| {
                let other = 1 << (next(&mut seed) % 64);
                let is_equal = next(&mut seed).is_multiple_of(2);
                let low = next(&mut seed) >> 22;
                (value << 42 | low) ^ if is_equal { 0 } else { other }
            });
            let expected = (0..8).fold(0, |mask, i| mask | u32::from(words[i] >> 42 == value) << i);
            let line = words.map(AtomicU64::new);
            for proof in [None, AtOnce::detect()] {
                let equal = Std::equal_high_bits_of_line::<42>(&line, value, proof);
                assert_eq!(equal, expected, "round {round}: {words:x?}, {value:#x}");
            }
        }
    }

    #[test]
    fn lanes_are_compared_as_the_scalar_twin_does() {
        // Fails if a lane is swapped or half compared, or if a bit that is not looked at counts.
        let mut seed = 11;
        for _ in 0..200_000 {
            let words = [0; 2].map(|_: u64| next(&mut seed) & 0x8003_0301_8103_0003);
            for looked_at in [u16::MAX, 0xfff1, 0x0003, 0x8000, 0] {
                for lane in [words[0] as u16, (words[1] >> 48) as u16, next(&mut seed) as u16] {
                    let expected = equal_lanes_scalar(words, looked_at, lane);
                    assert_eq!(
                        equal_lanes(words, looked_at, lane),
                        expected,
                        "{words:x?} {lane:x}"
                    );
                }
            }
        }
    }

    #[test]
    fn two_lines_are_compared_as_their_words_are() {
        // Fails if a word of the lines lies in another lane, with or without long registers.
        use crate::{Primitives, Std};
        let mut seed = 3;
        for _ in 0..2000 {
            let words: [u64; 16] =
                core::array::from_fn(|_| next(&mut seed) & 0x8101_0003_0300_8001);
            let lines = words.map(AtomicU64::new);
            for lane in [words[0], words[7] >> 48, words[8] >> 16, words[15] >> 32, 0, 1] {
                let lane = lane as u16;
                let expected = (0..64).fold(0, |mask, i| {
                    let found = (words[i / 4] >> (i % 4 * 16)) as u16;
                    mask | u64::from(found == lane) << i
                });
                for proof in [None, AtOnce::detect()] {
                    let equal = Std::equal_lanes_of_lines(&lines, lane, proof);
                    assert_eq!(equal, expected, "{words:x?}, {lane:#x}");
                }
            }
        }
    }
}
