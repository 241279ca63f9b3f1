//! Values in DRAM that a hash leads to, without a check of the index: it is right by arithmetic.

/// Values, a power of two of them, of which the low bits of a hash choose one.
#[derive(Debug)]
pub struct Masked<T> {
    values: Box<[T]>,
    /// One less than their number.
    mask: usize,
}

impl<T> Masked<T> {
    /// Takes the values.
    ///
    /// # Panics
    /// If their number is not a power of two.
    pub fn new(values: Box<[T]>) -> Masked<T> {
        assert!(values.len().is_power_of_two());
        Masked { mask: values.len() - 1, values }
    }

    /// Returns the value that the low bits of `hash` choose.
    #[inline(always)]
    pub fn of(&self, hash: u64) -> &T {
        // SAFETY: there are `mask + 1` values, and none is ever added or taken away.
        whole(unsafe { self.values.get_unchecked(hash as usize & self.mask) })
    }

    /// Returns all of them.
    #[inline(always)]
    pub fn all(&self) -> &[T] {
        &self.values
    }
}

/// Values of which 32 bits of a hash choose one, each for an equal share of the hashes.
#[derive(Debug)]
pub struct Scaled<T> {
    values: Box<[T]>,
}

impl<T> Scaled<T> {
    /// Takes the values.
    ///
    /// # Panics
    /// If there are none, or more than 2^32.
    pub fn new(values: Box<[T]>) -> Scaled<T> {
        assert!(!values.is_empty() && values.len() as u64 <= 1 << 32);
        Scaled { values }
    }

    /// Returns the index of the value that `bits` choose.
    #[inline(always)]
    pub fn index_of(&self, bits: u32) -> u64 {
        u64::from(bits).wrapping_mul(self.values.len() as u64) >> 32
    }

    /// Returns the value that `bits` choose.
    #[inline(always)]
    pub fn of(&self, bits: u32) -> &T {
        // SAFETY: the bits are less than 2^32, so that many parts of the number are less than it;
        // the product does not wrap around, because there are at most 2^32 values.
        whole(unsafe { self.values.get_unchecked(self.index_of(bits) as usize) })
    }

    /// Returns all of them.
    #[inline(always)]
    pub fn all(&self) -> &[T] {
        &self.values
    }
}

/// Returns `value`. The compiler sees no parts of its address: it keeps the sum in one register,
/// and not an array and an offset in two.
#[inline(always)]
fn whole<T>(value: &T) -> &T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut at: *const T = value;
        #[expect(clippy::pointers_in_nomem_asm_block, reason = "what it points to is not read")]
        // SAFETY: no instruction at all: the pointer stays as it is.
        unsafe {
            core::arch::asm!(
                "/* {} */",
                inout(reg) at,
                options(pure, nomem, nostack, preserves_flags)
            );
            // SAFETY: it is that of `value`.
            &*at
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_leads_to_a_value_and_every_value_is_led_to() {
        // Fails if an index could be one too far, or if the last value is out of reach.
        for log in 0..6 {
            let masked = Masked::new((0..1u64 << log).collect());
            let hashes = (0..200).chain(u64::MAX - 200..=u64::MAX);
            hashes.for_each(|hash| assert_eq!(*masked.of(hash), hash % (1 << log)));
        }
        for count in 1..70u64 {
            let scaled = Scaled::new((0..count).collect());
            assert_eq!((*scaled.of(0), *scaled.of(u32::MAX)), (0, count - 1));
            let step = u32::MAX / 1000;
            (0..1000).for_each(|i| assert_eq!(*scaled.of(i * step), scaled.index_of(i * step)));
        }
    }

    #[test]
    #[should_panic(expected = "is_power_of_two")]
    fn values_that_a_mask_does_not_fit_are_refused() {
        // Fails if a mask could lead beyond the last value.
        let _ = Masked::new(Box::from([1, 2, 3]));
    }

    #[test]
    #[should_panic(expected = "is_empty")]
    fn no_value_at_all_is_refused() {
        // Fails if an index could be one of nothing.
        let _ = Scaled::new(Box::<[u64]>::default());
    }
}
