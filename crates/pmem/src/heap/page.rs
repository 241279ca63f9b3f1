//! A page of records of one class: which of its slots are in use.

/// One bit a slot, in DRAM. The page itself has no header.
#[derive(Debug)]
pub(super) struct Page {
    /// A set bit is a slot in use, or behind the last slot.
    bits: Box<[u64]>,
    slots: u32,
    used: u32,
    /// No word before this one has a clear bit.
    first_room: u32,
}

impl Page {
    pub(super) fn new(slots: u32) -> Page {
        let mut bits = vec![0; slots.div_ceil(64) as usize].into_boxed_slice();
        if let (Some(last), rest @ 1..) = (bits.last_mut(), slots % 64) {
            *last = u64::MAX << rest;
        }
        Page { bits, slots, used: 0, first_room: 0 }
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn free(&self) -> u32 {
        self.slots - self.used
    }

    pub(super) fn is_full(&self) -> bool {
        self.free() == 0
    }

    /// Returns what the page costs in DRAM. Unit: bytes.
    pub(super) fn dram_bytes(&self) -> u64 {
        (size_of::<Page>() + size_of_val(&*self.bits)) as u64
    }

    /// Takes the first free slot.
    pub(super) fn take(&mut self) -> Option<u32> {
        let (at, word) = (self.first_room..)
            .zip(&mut self.bits[self.first_room as usize..])
            .find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        *word |= 1 << bit;
        self.first_room = at;
        self.used += 1;
        Some(at * 64 + bit)
    }

    /// Marks a free slot as in use; `false` if it is in use, or if there is no such slot.
    pub(super) fn claim(&mut self, slot: u64) -> bool {
        self.change(slot, false)
    }

    /// Marks a slot in use as free; `false` if it is free, or if there is no such slot.
    pub(super) fn give(&mut self, slot: u64) -> bool {
        self.change(slot, true)
    }

    fn change(&mut self, slot: u64, was_used: bool) -> bool {
        let (at, mask) = (slot / 64, 1 << (slot % 64));
        if slot >= self.slots as u64 || (self.bits[at as usize] & mask != 0) != was_used {
            return false;
        }
        self.bits[at as usize] ^= mask;
        if was_used {
            self.used -= 1;
            self.first_room = self.first_room.min(at as u32);
        } else {
            self.used += 1;
        }
        true
    }
}
