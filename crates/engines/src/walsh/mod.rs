//! WALSH: chains of objects in logs, whose heads are in DRAM; writes are collected and flushed
//! together.
//!
//! Yubo Liu, Yongfeng Wang, Zhiguang Chen, Yutong Lu, Ming Zhao: "WALSH: Write-Aggregating
//! Log-Structured Hashing for Hybrid Memory", ACM Transactions on Storage 21(2), 2025.
//!
//! ```text
//!   DRAM     directory: two objects, filter   directory: two objects, filter
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
//! | Section | File |
//! |---|---|
//! | 3.1.1, two-level directory | `directory.rs` |
//! | 3.1.2, 3.1.3, 3.1.7, logs, write aggregation, ordering | `logs.rs` |
//! | 3.1.4, operations | `search.rs`, `ops.rs`, `table.rs`, `ops/blind.rs` |
//! | 3.1.6, objects of variable length | `object.rs` |
//! | 3.2, partial resizing and garbage collection | `resize.rs`, `resize/turns.rs`, `moving.rs` |
//! | 3.3, four-phase concurrency control | `concurrency.rs` |
//! | 3.2.2, 3.4.1, what a close saves | `checkpoint.rs` |
//! | 3.4, recovery | `recovery.rs`, `recovery/read.rs` |
//! | ours: many keys at a time | `batches.rs` |
//! | ours: an open table in DRAM | `state.rs`, `state/queue.rs` |
//! | ours: one sync for all areas on files | `epochs.rs` |
//! | ours: room for logs, and how much of it stays free | `reserve.rs` |
//! | ours: visiting all pairs | `scan.rs` |
//! | ours: clearing, syncing and looking after all areas | `upkeep.rs` |
//!
//! # Where we depart
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | block = directory modulo block size (eq. 2) | division; area bits of their own | (1) |
//! | the low bits choose a directory (3.1.1) | the high bits | doubling parts neighbours (2) |
//! | links are log number, offset (3.1.2) | places on the medium | nothing to look up (3) |
//! | the newest logs are in DRAM (3.1.2) | on the medium, written back late | (4) |
//! | 24 bytes of directory log a write (3.1.2) | 8: part of the hash, and where | (5) |
//! | a directory names the head, its filter holds all keys (3.1.1) | it names two objects | fewer loads (15) |
//! | circular queues of logs (3.1.3) | each log leads to the one before | never too short (3) |
//! | updates, deletes do not look (3.1.4) | they do, or do not (11) | the contract asks for it |
//! | every version lengthens a chain (3.1.4) | not if its key is the head's | hot keys (13) |
//! | a write-ahead log (3.1.5) | the newest log is one | an object is written once (6) |
//! | a 64-byte atomic tail (3.1.7) | an 8-byte one | no machine has the former |
//! | over 1/16 updates: only collect (3.2.1) | if live pairs fill at most 3/4 | (7) |
//! | areas are due by chains and updates (3.2.1) | by the bytes of garbage, too | few long values |
//! | no border if only collecting (3.2.1) | always one | a crash would lose keys |
//! | old logs are loaded in order (3.2.1) | old chains are read in order | neighbours stay so |
//! | one key after the other (3.3.1) | many together, if so asked | their misses overlap |
//! | a search compares heads (3.3.1) | views of the area | objects never change (8) |
//! | a thread that finds an area due rehashes it (3.2.1) | each write does a step | short waits |
//! | an info counts objects, updates, chains (3.2) | heads of logs count live pairs | (12) |
//! | writes look for their key under the lock (3.3.1) | words before it, and again if it changed | loads overlap with stores |
//! | phase 4 frees the old logs (3.3.2) | flushes the new ones first | else both are lost |
//! | areas flush on their own (3.1.2) | on files all at once, in epochs | a sync each (10) |
//! | 512 areas (4) | 64 on files | the last pages of each are written again and again |
//! | 5 s, or a full log (3.1.2) | also a share of `flush_bytes` for each area | a bound in bytes |
//! | directory logs are compacted (3.2.2) | they are not | 8 bytes an object (5) |
//! | directories are saved at close (3.4.1) | of changed areas; a hint | `checkpoint.rs` |
//! | a crash undoes a rehash (3.4.2) | it goes on | writes since were acknowledged (9) |
//! | nothing on long objects (3.1.6) | those longer than one have one | fewer, fuller logs (14) |
//! | nothing on a full device | room to collect an area, and for removals, stays free | `reserve.rs` |
//! | a log has room for 256 objects (3.1.2) | for as many as will probably fit | (16) |
//!
//! 1. With the modulo only a block's worth of directories can be reached. Area, directory and
//!    filter take different bits of the hash, so that a key never changes its area.
//! 2. A scan can be resumed by a place in the order of hashes, whatever doubles meanwhile.
//! 3. Numbers of logs only rise, and each log vouches for the one before it. To take space for a
//!    log and to make it reachable is one store, so that a crash leaks nothing.
//! 4. The writes to the device are the same large ones. A killed process loses nothing, an
//!    object is always read in one place, and nothing is copied. Lines that a cache evicts early
//!    may be written twice.
//! 5. Identifier, head and filter of a directory follow from these eight bytes whatever the number
//!    of directories. After a crash an open reads eight bytes for each object in the logs, and no
//!    objects. They cannot become more and more: a log takes its directory log with it, and logs
//!    are collected when they hold twice the objects that chains may have.
//! 6. With durability 1 each object ends with a seal, a check of 64 bits bound to its place and to
//!    its log. A write is durable by one fence, in the place where it stays; recovery goes on
//!    behind the tail as far as seals match, and the directory log follows from the objects. The
//!    paper's log is written beside the objects and replayed into them. Readers see a write when it
//!    is durable.
//! 7. The sixteenth makes an area that is nearly full of live pairs collect again and again.
//!    Here a collection is paid for by a write for each directory at least.
//! 8. A newer head does not make what was read wrong: the read took effect when it loaded the old
//!    one. Only when logs or directories get another use it must look again.
//! 9. Both sets of directories are rebuilt, from the logs up to the border and from those behind.
//!    To move a key twice does nothing.
//! 10. A power loss then leaves all areas as they were at one instant: see `epochs.rs`.
//! 11. The paper's own are the bare forms: see `ops/blind.rs`.
//! 12. Objects are counted by the logs themselves, and what is not live is garbage. A crash cannot
//!     leave a count that differs from them. The average chain is known in DRAM; after a crash it
//!     is an upper bound until the next rehash.
//! 13. Hot keys that share a chain and are written in turn lengthen it, until their garbage makes
//!     the area due. The bound is that of all garbage, and readers never wait for it.
//! 14. Logs follow one another, so that a log for one object ends the log before it, however empty
//!     that is. When each long object had one, mixed lengths took 2.5 times their bytes; now they
//!     take at most 1.45 times (`tests/space.rs`).
//! 15. In the same two words: the newest object with a fingerprint of 16 bits, the one behind it,
//!     and a filter of 32 bits over the keys of all but the newest. A search begins where its key
//!     may be. In a table made for ten million pairs a present key takes 1.6 objects instead of
//!     2.2, and an absent one as few as before (0.007).
//!
//! 16. By the length of live pairs and of what the log before held. By the former alone a log had
//!     records for a dozen tombstones of values of a kilobyte, and each took 690 bytes; now 60.
//!
//! # What can be taken away, to compare
//!
//! | Without | Settings |
//! |---|---|
//! | partial resizing: all is rehashed at a time | `areas` = 1, `resize` = 1 |
//! | four phases: an area is rehashed under its lock | `resize` = 1 |
//! | any resizing | `resize` = 0 |
//! | batches | `durability` = 1 |
//!
//! Chains are as long as `threshold` says, and batches as large as `log_entries` does.
//! `everhash bench --engine walsh --set NAME=VALUE` measures each.
//!
//! # What a search costs at least
//!
//! Each load of a search waits for the one before. In a table made for ten million pairs of words a
//! present key is the 2.2nd object of its chain and the 1.6th of its search, so that a get waits
//! for 2.6 loads from far memory. How far gets overlap depends on how many instructions each has,
//! because a processor looks ahead only some hundreds: next to nothing overlaps here. A get is a
//! twenty-fifth of independent reads. What leads through area, view, index and block to the
//! directory is bounded before it is used, and the object is checked.
//!
//! A third object in the same two words (31-bit places, two fingerprints of 8 bits, a filter of 16
//! bits) was tried: a present key then reads 1.3 objects, and a get takes three quarters of the
//! time. But an absent key reads 0.11 objects instead of at most 0.03, because a search that a
//! small filter lets through walks a long chain; it takes a fifth longer, and an insert a little.
//!
//! Where a caller has many keys, batches do not wait like that: they ask for 3.0 lines for each,
//! one of a directory and those of its objects, of which one in four lies in two. Batches of some
//! hundreds are faster than small ones, which end with few searches under way.

mod batches;
mod check;
mod checkpoint;
mod concurrency;
mod directory;
mod epochs;
pub mod layout;
mod logs;
mod moving;
mod object;
mod ops;
mod recovery;
mod reserve;
mod resize;
mod scan;
mod search;
mod setup;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod upkeep;

use everhash_index::{Capabilities, Checked, Durability, Engine, Error, Executor, Form, Result};
use everhash_pmem::{Boot, Guarantees, Media, Pool, Region, Site};

pub use setup::WalshSettings;
pub use state::Walsh as WalshTable;

/// The engine.
///
/// In batches, the default, a killed process takes nothing back. A power loss takes back
/// at most what was written in the last flush interval, and no more than `flush_bytes` of objects.
/// Of each area, and so of each key, a prefix of the writes survives. On persistent memory there
/// is no order between areas; on an ordinary file, or with the setting `epochs`, all of them are as
/// they were at one instant. [`sync`](everhash_index::Table::sync) is the barrier over all areas.
///
/// A [`salvage`](Engine::salvage) reads on behind a damaged object. What an older object says of
/// the same key is not given back; where nothing says whose object it was (in the newest log of an
/// area of a pool that was not closed), neither is any older pair of the area. A damaged head of a
/// log costs the older logs of its area. In a pool of relaxed durability that was not closed, any
/// damage costs its area.
///
/// Not there: the compaction of directory logs (3.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Walsh;

impl Engine for Walsh {
    const NAME: &'static str = "walsh";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Batch, Durability::Immediate],
        bare: true,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] =
        &[logs::sites::ALL, resize::sites::ALL, epochs::sites::ALL, recovery::sites::ALL];

    type Settings = WalshSettings;
    type Table<M: Media> = WalshTable<M>;

    fn tiny(_form: Form) -> WalshSettings {
        WalshSettings::tiny()
    }

    fn sized_for(_form: Form, items: u64) -> WalshSettings {
        WalshSettings::sized_for(items)
    }

    fn bytes_needed(_form: Form, settings: &WalshSettings, guarantees: Guarantees) -> Result<u64> {
        settings.bytes_needed(guarantees)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WalshTable<M>> {
        recovery::open(pool, executor)
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        check::check(region, boot, visit)
    }

    fn salvage<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        check::salvage(region, boot, visit, report)
    }
}
