//! SipHash-1-3 of whole words, with two lanes at once where the processor can rotate them.
//!
//! A lookup waits for memory as soon as it has the hash, and a processor overlaps several lookups
//! only within its instruction window. Two lanes need half as many instructions.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m128i, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_slli_si128, _mm_srli_si128,
    _mm_xor_si128,
};

use super::lanes::AtOnce;

/// SipHash-1-3 on a processor that rotates lanes of 64 bits by different counts: the proof that it
/// is one.
///
/// Words stand for their bytes in little-endian order.
#[derive(Clone, Copy, Debug)]
pub struct VectorSip(AtOnce);

impl VectorSip {
    /// Returns the proof, or `None` if the processor lacks the instructions.
    pub fn detect() -> Option<VectorSip> {
        // Those instructions are some of these.
        AtOnce::detect().map(VectorSip)
    }

    /// Returns what else such a processor can do.
    #[inline(always)]
    pub fn at_once(self) -> AtOnce {
        self.0
    }

    /// Returns the hash of `N` words, that is of 8 `N` bytes. The state before the first word is
    /// SipHash's four constants, each with a word of the key.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn words<const N: usize>(self, [a, b, c, d]: [u64; 4], words: [u64; N]) -> u64 {
        // SAFETY: SSE2 is part of every x86-64; the arguments are values.
        unsafe {
            let (mut x, mut y) = (pair(a, c), pair(b, d));
            for word in words {
                let low = _mm_cvtsi64_si128(word as i64);
                y = _mm_xor_si128(y, _mm_slli_si128::<8>(low));
                round(&mut x, &mut y);
                x = _mm_xor_si128(x, low);
            }
            // The last word has no bytes left, and the length in its highest one.
            let last = (N as u64 * 8) << 56;
            y = _mm_xor_si128(y, pair(0, last));
            round(&mut x, &mut y);
            x = _mm_xor_si128(x, pair(last, 0xff));
            round(&mut x, &mut y);
            round(&mut x, &mut y);
            round(&mut x, &mut y);
            let both = _mm_xor_si128(x, y);
            _mm_cvtsi128_si64(_mm_xor_si128(both, _mm_srli_si128::<8>(both))) as u64
        }
    }

    /// Returns the hash of `N` words, that is of 8 `N` bytes.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn words<const N: usize>(self, _state: [u64; 4], _words: [u64; N]) -> u64 {
        unreachable!("it cannot be made on this processor")
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn pair(low: u64, high: u64) -> __m128i {
    // SAFETY: SSE2 is part of every x86-64; the arguments are values.
    unsafe { _mm_set_epi64x(high as i64, low as i64) }
}

/// By how much the words of `y` are rotated in each half of a round. Source: SipHash.
#[cfg(target_arch = "x86_64")]
static ROTATIONS: [Counts; 2] = [Counts([13, 16]), Counts([17, 21])];

/// Two counts in one operand.
#[cfg(target_arch = "x86_64")]
#[repr(align(16))]
struct Counts(#[expect(dead_code, reason = "read by instructions")] [u64; 2]);

/// One round on the words (a, c) and (b, d).
///
/// Each half adds, rotates and combines both lanes. Between the halves the lanes of `x` change
/// places, and in the same shuffle the halves of the word that the half rotates by 32.
///
/// Written as instructions, since the compiler would call a function for each that not every
/// processor has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn round(x: &mut __m128i, y: &mut __m128i) {
    // SAFETY: the instructions exist, for a `VectorSip` is made only then; they read and write the
    // named registers and read 32 bytes of a static.
    unsafe {
        core::arch::asm!(
            "vpaddq {x}, {x}, {y}",
            "vprolvq {y}, {y}, xmmword ptr [rip + {counts}]",
            "vpxor {y}, {y}, {x}",
            "vpshufd {x}, {x}, 0x1e",
            "vpaddq {x}, {x}, {y}",
            "vprolvq {y}, {y}, xmmword ptr [rip + {counts} + 16]",
            "vpxor {y}, {y}, {x}",
            "vpshufd {x}, {x}, 0x1e",
            x = inout(xmm_reg) *x,
            y = inout(xmm_reg) *y,
            counts = sym ROTATIONS,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
}
