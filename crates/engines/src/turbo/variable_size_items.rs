//! Variable-size items (TurboHash 3.6): 8-byte words lie in the slot, and of all other pairs the
//! hash of the key and a pointer to a record.

use crate::common::slot_codec::SlotCodec;

/// Where a record is persisted.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, which the fence before its META also waits for.
        RECORD = "turbo/write/record";
    }
}

/// A codec whose slots have the two words that a bucket of TurboHash has for each.
pub trait PairCodec: SlotCodec<Words = [u64; 2]> {}

impl<C: SlotCodec<Words = [u64; 2]>> PairCodec for C {}
