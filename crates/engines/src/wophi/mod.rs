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
//! Where a line keeps the order of its stores, pair and token lie in one line and share one flush
//! and one fence. A full chain takes a pre-allocated bucket.
//!
//! # Where to find what
//!
//! | Section | File |
//! |---|---|
//! | III-A, Fig. 1: a bucket and its slots | `layout.rs`, `bucket.rs` |
//! | III-A, main buckets | `main_buckets.rs` |
//! | III-A-1, log-free failure-atomic writes | `failure_atomic_writes.rs` |
//! | III-A-2, bucket pre-allocation | `bucket_pre_allocation.rs` |
//! | III-B, Algorithms 1 and 2 | `ops.rs` |
//! | ours: an open table in DRAM, its face | `state.rs`, `table.rs` |
//! | ours: growth | `resize.rs` |
//! | ours: refilling, unlinking | `upkeep.rs` |
//! | ours: scan and clear | `scan.rs` |
//! | ours: opening, after a crash too | `recovery.rs` |
//!
//! # Where we depart
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | 4 slots a bucket (III-A) | 3, of 16-byte pairs 4 | token, link, slots: one line (1) |
//! | key, value, token flushed apart (Alg. 1) | together where line order allows | (2) |
//! | insert takes any free slot (Alg. 1) | looks for the key first | else deletes revive (3) |
//! | delete where `strcmp` is not 0 (Alg. 2) | where all bytes are equal | it hits another key |
//! | no update | one word, or two slots and a switch | log-free, like the rest (4) |
//! | a token is a bit | two bits, in a circle | of two equal keys one is newer |
//! | slots from 0 on (Alg. 1, line 7) | in turn, by the version | wear; `rotate = 0` is theirs |
//! | a counter of buckets used (Alg. 1, line 33) | none; reachable is used | a torn count (5) |
//! | PAB buckets are empty | hold anything until linked | one flush less (5) |
//! | PAB empty: an error (Alg. 1, line 29) | one is allocated, and counted | no reason to fail |
//! | no size of the PAB | a quarter of the main buckets | 0.19 are needed at load 0.75 |
//! | chains without bound | doubling, a group of buckets at a time | see `resize.rs` |
//! | no growth | at load 0.75, or 7/8 of the PAB in use | half is in use at 0.58 |
//! | no growth | a group splits under two fences, or three | chains lose pairs (8) |
//! | no end of a chain | at most as many buckets as the medium holds | cycles in damaged pools |
//! | no iteration | a chain is copied without its lock | readers block no writer (9) |
//! | one thread | stripes of locks and sequences | see `concurrency.rs` |
//! | a token is read before its flush | readers wait until it is durable | a crash takes nothing back (6) |
//! | a freed slot is reused | at once, as buckets and records are | walks are validated (6) |
//! | 16-byte pairs | byte strings too, in records | two fences an insert (7) |
//! | no recovery | a walk over all chains | see `recovery.rs` |
//!
//! 1. Three slots of 8-byte pairs, or of hash and record word, fill the line of the token: an
//!    insert flushes one line. Sixteen-byte pairs have a fingerprint each in that line.
//! 2. Pair and token in one line need one fence where the medium keeps the order of stores to a
//!    line; where it does not (files), and for other lines, the pair is fenced before its token.
//! 3. The paper's insert and delete are there as `bare()`, for measurements. A key that was
//!    inserted twice blindly is there twice, and `check` says so.
//! 4. An 8-byte value, or a record word, changes by one store. A 16-byte pair is written to a free
//!    slot, of the same bucket if it has one: then one token word ends the old and begins the new.
//!    Else the new token, the old one's successor, is made durable before the old one is cleared,
//!    and recovery clears the old one of two. Any free slot of the chain will do, before or behind
//!    the old one, because readers validate their whole walk.
//! 5. Which PAB buckets are free is known in DRAM, and found at open: those that no link leads to.
//!    The owner in a token word is a cross-check of the link and decides nothing, so no bucket has
//!    to be cleared before it is used again. A link is durable before what it replaced is reused.
//! 6. The sequence of a stripe is odd from before a commit store until after its fence. A reader's
//!    walk, hit or miss, counts if the sequence did not change; so no epoch has to pass before a
//!    slot, a bucket or a record is reused, and the version in the token word only turns the slots.
//!    A release fence before the first store to any of them makes that true of every memory model:
//!    a reader that sees what another thread stores there also sees the sequence of the stripe that
//!    gave it up (`tests/weak_memory.rs`).
//! 7. The record is fenced before slot and token. With one fence for all of it, a damaged record
//!    could not be told from an insert that a crash cut short, and recovery had to read records.
//!
//! 8. The images of the upper buckets, then the token words of the lower ones. Pairs that moved out
//!    of chained buckets are ended under a third fence, and only where there are some: left there,
//!    dead by address, they would make every walk hash each key on it. `tests/counts.rs`
//!    bounds what that costs: three lines an insert, all of growth included.
//! 9. The copy counts if the sequence of the stripe did not change, as with a get. `len` is the sum
//!    of a counter per stripe, and recovery counts anew (`tests/upkeep.rs`).
//!
//! Not covered by a check: the keys and values of the two fixed forms, which have no room for one.
//! A flipped bit in a key is found when the bucket splits or the pool is opened, if the key lies in
//! a wrong bucket then; one in a value is not found. Every other word is covered, and byte strings
//! wholly.
//!
//! # What limits a get
//!
//! A get reads one line, and a processor can fetch a dozen lines at once. But it looks ahead by
//! some hundred instructions, and a get has 146 with SipHash, 101 with rapidhash, the call and
//! the check of the answer included (`everhash bench --instructions`). The bench measures what the
//! hash leaves (`hash + random read`): on a virtual Xeon of 2023 less than a quarter of the rate of
//! independent reads, and a get with all its checks reaches four tenths of that. So single gets
//! with this hash cannot reach a fifth of independent reads there. Batches can (three tenths),
//! because they prefetch the next lines before the first is compared, and XXH3 helps (an eighth)
//! where keys need no defence.

mod bucket;
mod bucket_pre_allocation;
mod check;
mod concurrency;
mod failure_atomic_writes;
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

use everhash_index::{Capabilities, Checked, Durability, Engine, Error, Executor, Form, Result};
use everhash_pmem::{Boot, Guarantees, Media, Pool, Region, Site};

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
        atomic_batches: false,
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

    fn bytes_needed(form: Form, settings: &WophiSettings, _guarantees: Guarantees) -> Result<u64> {
        settings.bytes_needed(form)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &WophiSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WophiTable<M>> {
        let look = table::word_lookup;
        Ok(match Form::from_code(pool.identity().form) {
            Form::WORDS => WophiTable::Words(recovery::open(pool, executor, look)?),
            Form::DOUBLE_WORDS => WophiTable::DoubleWords(recovery::open(pool, executor, look)?),
            _ => WophiTable::Bytes(recovery::open(pool, executor, look)?),
        })
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        check::check(region, visit)
    }

    fn salvage<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        check::salvage(region, visit, report)
    }
}
