//! WALSH: chains of objects in logs, whose heads are in DRAM; writes are collected and flushed
//! together.
//!
//! Yubo Liu, Yongfeng Wang, Zhiguang Chen, Yutong Lu, Ming Zhao: "WALSH: Write-Aggregating
//! Log-Structured Hashing for Hybrid Memory", ACM Transactions on Storage 21(2), 2025.
//!
//! ```text
//!   DRAM     directory: head, filter          directory: head, filter
//!                        |                                |
//!            .-----------'          .---------------------'
//!            v                      v
//!   log 9   [head | directory log | object | object | ...    the newest, filled by plain stores
//!     |                               |        |
//!   log 8   [head | directory log | object | object | ...    durable, below the tail
//!     |                                        |
//!   log 7   [head | directory log | object | object | ...
//! ```
//!
//! Every write appends an object to the newest log of its area and makes it the head of its chain.
//! A log is written back at once, and one 8-byte store makes it true. When an area's chains are
//! too long, the newest versions of its keys are appended anew, to twice as many chains, and the
//! old logs are free.
//!
//! # Where to find what
//!
//! | Paper | File |
//! |---|---|
//! | 3.1.1 two-level directory | `directory.rs` |
//! | 3.1.2, 3.1.3, 3.1.7 logs, write aggregation, write ordering | `logs.rs`, `layout.rs` |
//! | 3.1.4 operations | `ops.rs`, `table.rs` |
//! | 3.1.6 objects of variable length | `object.rs` |
//! | 3.2 partial resizing, garbage collection | `resize.rs` |
//! | 3.3 four-phase concurrency control | `concurrency.rs`, `resize.rs` |
//! | 3.4 recovery | `recovery.rs` |
//! | nothing: ours | `scan.rs`, `check.rs` |
//!
//! # Departures
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | 3.1.1, equation 2: block = directory modulo block size | division; the area from hash bits of its own | the modulo reaches a block's worth of pairs only |
//! | 3.1.1: the low bits of the hash choose the directory | the high bits do | doubling parts a chain into neighbours; a scan can be resumed |
//! | 3.1.2: a chain links by log number and offset | by place on the medium | one load less, no table from numbers to places, nothing that wraps around |
//! | 3.1.2: the newest logs are in DRAM and copied when full | on the medium, not written back before they are full | the same large writes; the end of a process loses nothing; an object is read in one place |
//! | 3.1.2: a directory log has 24 bytes for each write | 8 bytes: part of the hash, and where the object is | identifier, head and filter follow from them at any number of directories |
//! | 3.1.3: circular queues of logs | each log leads to the one before it, numbers only rise | no queue that can be too short; taking space and reaching it is one store |
//! | 3.1.4: updates and deletes append without a look | they look first | the contract says whether the key was there; `len` is exact |
//! | 3.1.4: every version lengthens the chain | the version at the head is passed over if it is of the same key | a hot key would make a chain as long as its history |
//! | 3.1.5: a write-ahead log for immediate durability | tail and objects are persisted by every write | two fences a write instead of one; the log is not built yet |
//! | 3.1.7: the tail is written by a 64-byte atomic write | by an 8-byte store | no machine has the former |
//! | 3.2.1: only collection, if more than 1/16 are updates | if live pairs fill at most 3/4 of the threshold | 1/16 collects for ever at a load just below the threshold |
//! | 3.2.1: the border is not written if only collecting | it always is | a crash would lose keys that are not yet moved |
//! | 3.2.1: old logs are loaded and read in order | old chains are read in order | neighbours in a chain become neighbours in a log |
//! | 3.3.1: a search compares the head before and after | it looks whether logs were given another use | objects never change, so a newer head does not matter; a flush does not change it |
//! | 3.3.2, phase 4 frees the old logs at once | the new logs are flushed first | the copies would be lost by a crash, and the originals too |
//! | 3.4.1: directories are written at close | they are rebuilt from the directory logs at every open | one way to open; 8 bytes are read for each object |
//! | 3.4.2: a crash in a rehash undoes it | it is gone on with | writes after its begin were acknowledged, and perhaps synced |

mod check;
mod concurrency;
mod directory;
pub mod layout;
mod logs;
mod object;
mod ops;
mod recovery;
mod resize;
mod scan;
mod setup;
mod table;
#[cfg(test)]
mod tests;

use everhash_index::{Capabilities, Checked, Durability, Engine, Executor, Form, Result};
use everhash_pmem::{Media, Pool, Region, Site};

pub use concurrency::Walsh as WalshTable;
pub use setup::{WalshSettings, bytes_needed};

/// The engine.
///
/// In batches, the default, a crash takes back at most what was written in the last flush
/// interval, and of each area no more than one log. Of each area, and so of each key, a prefix of
/// the writes survives; there is no order between areas. [`sync`](everhash_index::Table::sync) is
/// the barrier over all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walsh;

impl Engine for Walsh {
    const NAME: &'static str = "walsh";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Batch, Durability::Immediate],
        bare: false,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] =
        &[logs::sites::ALL, resize::sites::ALL, recovery::sites::ALL, table::sites::ALL];

    type Settings = WalshSettings;
    type Table<M: Media> = WalshTable<M>;

    fn tiny(_form: Form) -> WalshSettings {
        WalshSettings::tiny()
    }

    fn sized_for(_form: Form, items: u64) -> WalshSettings {
        WalshSettings::sized_for(items)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WalshTable<M>> {
        recovery::open(pool, executor)
    }

    fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
        check::check(region, visit)
    }
}
