//! Write-back of cache lines, the fence that waits for it, and stores past the caches.

use core::sync::atomic::{Ordering, fence};

/// How a cache line is written back to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WriteBack {
    /// No write-back: volatile memory, or caches that survive power loss.
    None,
    /// `clwb` (x86): writes the line back and may keep it in the cache.
    Clwb,
    /// `clflushopt` (x86): writes the line back and evicts it; any number may be under way.
    Clflushopt,
    /// `clflush` (x86): as `clflushopt`, but serialized. For measurements only.
    Clflush,
    /// `dc cvap` (Arm, feature DPB): writes the line back to the point of persistence.
    DcCvap,
}

impl WriteBack {
    /// Every instruction, the best first.
    pub const ALL: [WriteBack; 5] = [
        WriteBack::Clwb,
        WriteBack::Clflushopt,
        WriteBack::Clflush,
        WriteBack::DcCvap,
        WriteBack::None,
    ];

    /// Returns the best write-back that this processor has and that a fence of ours completes.
    ///
    /// Never `clflush`: vendors differ in what orders it. `None` if the processor has nothing else.
    pub fn best() -> Option<WriteBack> {
        [WriteBack::Clwb, WriteBack::Clflushopt, WriteBack::DcCvap]
            .into_iter()
            .find(|kind| kind.is_supported())
    }

    /// Returns whether this processor has the instruction.
    pub fn is_supported(self) -> bool {
        match self {
            WriteBack::None => true,
            _ => detected(self),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detected(kind: WriteBack) -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    // Leaf 7 says clflushopt (bit 23 of ebx) and clwb (bit 24), leaf 1 clflush (bit 19 of edx).
    let last = __cpuid(0).eax;
    let extended = if last >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    match kind {
        WriteBack::None => true,
        WriteBack::Clwb => extended & (1 << 24) != 0,
        WriteBack::Clflushopt => extended & (1 << 23) != 0,
        WriteBack::Clflush => __cpuid(1).edx & (1 << 19) != 0,
        WriteBack::DcCvap => false,
    }
}

#[cfg(target_arch = "aarch64")]
fn detected(kind: WriteBack) -> bool {
    kind == WriteBack::DcCvap && std::arch::is_aarch64_feature_detected!("dpb")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected(_kind: WriteBack) -> bool {
    false
}

/// A supported write-back: the proof that the processor has its instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flusher(WriteBack);

impl Flusher {
    /// Returns the flusher, or `None` if this processor lacks the instruction.
    pub(crate) fn new(kind: WriteBack) -> Option<Flusher> {
        kind.is_supported().then_some(Flusher(kind))
    }

    /// Returns how lines are written back.
    pub(crate) fn kind(self) -> WriteBack {
        self.0
    }

    /// Begins the write-back of the line that holds `byte`.
    ///
    /// # Safety
    /// `byte` lies in mapped memory.
    #[inline(always)]
    pub(crate) unsafe fn line(self, byte: *const u8) {
        #[cfg(target_arch = "x86_64")]
        match self.0 {
            WriteBack::None | WriteBack::DcCvap => {}
            // SAFETY: the instruction exists (`new`), the address is mapped (caller), the content
            // does not change. No `nomem`: the compiler must not move a store behind it.
            WriteBack::Clwb => unsafe {
                core::arch::asm!("clwb [{}]", in(reg) byte, options(nostack, preserves_flags));
            },
            // SAFETY: as for clwb.
            WriteBack::Clflushopt => unsafe {
                core::arch::asm!(
                    "clflushopt [{}]", in(reg) byte, options(nostack, preserves_flags)
                );
            },
            // SAFETY: as for clwb.
            WriteBack::Clflush => unsafe {
                core::arch::asm!("clflush [{}]", in(reg) byte, options(nostack, preserves_flags));
            },
        }
        #[cfg(target_arch = "aarch64")]
        if self.0 == WriteBack::DcCvap {
            // SAFETY: as for clwb; `sys #3, c7, c12, #1` is DC CVAP, written so that an assembler
            // without the feature takes it.
            unsafe {
                core::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) byte,
                    options(nostack, preserves_flags));
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = byte;
    }

    /// Waits for the write-backs and the stores past the caches of this thread.
    #[inline(always)]
    pub(crate) fn fence(self) {
        if self.0 != WriteBack::None {
            store_fence();
        }
    }
}

/// Waits until earlier stores, write-backs and stores past the caches of this thread are done.
#[inline(always)]
pub(crate) fn store_fence() {
    fence(Ordering::Release);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has sfence; it has no operand. No `nomem`: it orders memory.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every Armv8 has dsb; it has no operand.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
}

/// Stores a word past the caches, where the processor can, and with an ordinary store elsewhere.
///
/// Until [`store_fence`] the store is unordered, as if another thread made it and the fence waited
/// for that thread. All accesses to words are atomic, so this is defined.
///
/// # Safety
/// `word` is a word of a live, writable mapping, aligned to eight bytes.
#[inline(always)]
pub(crate) unsafe fn store_past_caches(word: *mut u64, value: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the word is mapped, writable and aligned (caller), so the store neither faults nor
    // tears; movnti is part of every x86-64.
    unsafe {
        core::arch::asm!("movnti [{}], {}", in(reg) word, in(reg) value,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the word is mapped, writable, aligned (caller) and reached by atomics alone.
    unsafe {
        core::sync::atomic::AtomicU64::from_ptr(word).store(value, Ordering::Relaxed);
    }
}

/// Whether [`store_past_caches`] really goes past the caches, so that no flush is needed.
pub(crate) const PASSES_CACHES: bool = cfg!(target_arch = "x86_64");
