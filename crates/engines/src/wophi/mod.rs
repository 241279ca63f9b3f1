//! WOPHI: chained buckets that are allocated ahead, and log-free 8-byte commits.
//!
//! Renzhi Xiao, Dan Feng, Yuchong Hu, Yucheng Zhang, Lanlan Cui, Lin Wang: "Write-Optimized
//! Persistent Hash Index for Non-Volatile Memory".
//!
//! ```text
//!   main buckets, addressable       pre-allocated buckets (PAB), reached through chains only
//!   +-------+------+----------+     +-------+------+----------+
//!   | TOKEN | NEXT | slots    | --> | TOKEN | NEXT | slots    | --> ...
//!   +-------+------+----------+     +-------+------+----------+
//!   | TOKEN |  -   | slots    |     TOKEN: two bits a slot, depth or owner, version, check
//!   +-------+------+----------+
//! ```
//!
//! An insert writes the pair, and then its token with one 8-byte store; a delete clears the token.
//! Where a line keeps the order of its stores, pair and token lie in one line and need one flush
//! and one fence together. A full chain takes a bucket that is ready.
//!
//! # Where to find what
//!
//! | paper | file |
//! |---|---|
//! | III-A, Fig. 1: buckets | `layout.rs`, `bucket.rs`, `main_buckets.rs` |
//! | III-A-1: log-free failure-atomic writes | `failure_atomic_writes.rs`, `form.rs` |
//! | III-A-2: bucket pre-allocation | `bucket_pre_allocation.rs`, `upkeep.rs` |
//! | III-B, Algorithms 1 and 2 | `ops.rs` |
//! | nothing: ours | `concurrency.rs`, `resize.rs`, `recovery.rs`, `scan.rs`, `check.rs` |

mod bucket;
mod bucket_pre_allocation;
mod check;
mod concurrency;
mod failure_atomic_writes;
mod form;
pub mod layout;
mod main_buckets;
mod ops;
mod recovery;
mod resize;
mod scan;
mod setup;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod upkeep;

use everhash_index::{Capabilities, Checked, Durability, Engine, Executor, Form, Result};
use everhash_pmem::{Media, Pool, Region, Site};

pub use setup::{WophiSettings, bytes_needed};
pub use table::WophiTable;

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wophi;

impl Engine for Wophi {
    const NAME: &'static str = "wophi";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Immediate],
        bare: true,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] = &[
        failure_atomic_writes::sites::ALL,
        ops::sites::ALL,
        resize::sites::ALL,
        upkeep::sites::ALL,
        recovery::sites::ALL,
        table::sites::ALL,
    ];

    type Settings = WophiSettings;
    type Table<M: Media> = WophiTable<M>;

    fn tiny(_form: Form) -> WophiSettings {
        WophiSettings::tiny()
    }

    fn sized_for(form: Form, items: u64) -> WophiSettings {
        WophiSettings::sized_for(form, items)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &WophiSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WophiTable<M>> {
        Ok(match Form::from_code(pool.identity().form) {
            Form::WORDS => WophiTable::Words(recovery::open(pool, executor)?),
            Form::DOUBLE_WORDS => WophiTable::DoubleWords(recovery::open(pool, executor)?),
            _ => WophiTable::Bytes(recovery::open(pool, executor)?),
        })
    }

    fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
        check::check(region, visit)
    }
}
