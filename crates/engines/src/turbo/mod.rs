//! TurboHash: sharded linear probing in 256-byte buckets, with near-place updates.
//!
//! Xingsheng Zhao, Chen Zhong, Song Jiang: "TurboHash: A Hash Table for Key-value Store on
//! Persistent Memory", SYSTOR 2023.
//!
//! ```text
//!   hash: | bucket ...   | shard          | tag |
//!
//!   directory             shard: contiguous buckets of 256 bytes
//!   +---------+     +------+------+--------------------+
//!   | shard 0 | --> | META | TAGS | slots 0 to 13      |  home of a key: its search begins here,
//!   +---------+     +------+------+--------------------+
//!   | shard 1 |     | META | TAGS | slots 0 to 13      |  goes on while at most one slot is empty,
//!   +---------+     +------+------+--------------------+
//!   | ...     |     | META | TAGS | slots 0 to 13      |  and ends where two are
//! ```
//!
//! META is one word: which slots are valid, which are deleted, and a sequence number. An insert
//! writes its pair into a free slot; an update writes the new pair into the slot that every bucket
//! keeps empty; then one 8-byte store of META publishes it, and deletes the old pair with it. So
//! all that an operation writes lies in one 256-byte block. Readers take no lock. Only shards are
//! ever resized.
//!
//! # Where to find what
//!
//! | Section | File |
//! |---|---|
//! | 3.1: shards, directory, write lock | `shard.rs`, `concurrency.rs` |
//! | 3.2: search path; Algorithms 1 and 4 | `search_path.rs` |
//! | 3.3: a bucket; near-place update | `bucket.rs`, `layout.rs` |
//! | 3.4: operations; Algorithms 1 to 3 | `ops.rs`, `concurrency.rs` |
//! | 3.5, 4.6: shard resizing, garbage collection | `resize.rs` |
//! | 4.7: the sweep of a rehash | `rehash.rs` |
//! | 3.6: variable-size items | `variable_size_items.rs` |
//! | 3.7: failure recovery | `recovery.rs` |
//! | ours: an empty table, an open one in DRAM, its face | `setup.rs`, `state.rs`, `table.rs` |
//! | ours: scan and clear; the judge of pools at rest | `scan.rs`, `check.rs` |
//!
//! # Departures
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | the META word has two 16-bit bitmaps and a 32-bit sequence number | 14 bits each, 12 bits, 12 bits of check over META and 12 over the tags of live pairs; a search that finds its key needs the first only | damage to a structure word is an error, not another answer: always of one bit or byte, 4095 times of 4096 of more |
//! | the sequence number has 32 bits, and is assumed never to wrap around during a read | when it wraps around the writer also counts a move of the shard, which readers compare | a torn pair must be impossible, not unlikely |
//! | 10 bytes of a bucket are unassigned | a 5-bit check for each slot | the same, for pairs: every single flip is found, 31 of 32 other damages |
//! | flush and fence the pair, then META | one flush and fence for a pair in the line of META, where a line keeps the order of its stores; else both, and every line that was touched | the published code leaves the lines of most slots unflushed |
//! | a reader compares the sequence number before and after | it also looks whether the bucket is pending: META stored and not yet fenced | what a reader saw must not be taken back by a crash |
//! | a miss is returned at once | it is validated like a hit | an update may have switched slots meanwhile |
//! | the search goes on to the last bucket | it wraps around inside the shard | padding would end the peak load at 0.54 instead of 0.93 with 16 buckets |
//! | 64 Ki shards of 16 buckets | for a known number of pairs about 1024 of 64 to 1024 buckets; by default 4096 of one, which grow | their lines of DRAM stay in a core's second cache at ten million pairs |
//! | the directory in DRAM has 8 bytes a shard | 64 bytes: place, moves, pending bucket, items, lock | one line holds all that an operation needs |
//! | old shards and records wait for epochs | they are reused at once | a reader validates whatever it has read (`concurrency.rs` says why that is enough), and two atomic additions a lookup are saved |
//! | a leak-free allocator on the device | none: the space in use is what descriptors and slots name, and is found at open | no allocation can leak or be lost; with records, opening takes time in proportion to their number |
//! | recovery reads the directory | and makes durable again what writers had noted in lanes | after a killed process what is visible need not be durable |
//! | an insert takes an empty slot | one beside META, else one of the line that the hash chooses, else any | a get fetches two lines of a bucket at once, and not four: a core has a dozen fetches under way |
//! | AVX-512 compares the tags of a bucket, where the processor has it | SSE2 or NEON, which all processors of their kind have | the tags are one register of sixteen bytes: nothing is left to choose at run time |
//! | (3.6) a record is persisted before its slot | both wait for one fence, and META for it | one fence less; until META is durable, a crash leaves neither |
//! | all items are counted, and visited, under the locks of their shards | `len` is stored at a clean close, and counted under the locks after a crash; a scan takes no lock, and reads a home again if a write came between | a visitor must not stop writers |
//! | a pair at the pointer has the key if the hash is equal | whole keys are compared | two keys may have one hash |
//! | a shard doubles when a search finds no room | it keeps its size if at most 55 % of its slots are live and some are deleted, or at `max_buckets` if one in 16 is deleted; it doubles more than once if need be, and is full at `max_buckets`, or at 64 buckets a pair | deleted slots alone must not double a shard, and a skewed shard must not loop |
//! | a shard is collected at its size | at a smaller one, of which at most 55 % is live, while no shard has found room to grow since the pool was opened or the last one that had to found none; never a smaller one than at first | of a full table that is emptied and filled with other keys, other shards have to grow: after 40 fillings it held 76 thousand pairs instead of 102 |
//! | collection of deleted slots: when there are too many | by an insert that looked at 8 buckets of which a quarter of the slots was deleted, and by upkeep for shards with a quarter of deleted slots | the paper gives no number |
//! | buckets of 256 bytes, the unit of the device | also on devices with larger units: the buckets of a shard are contiguous, and the next one probed lies in the same unit, but for the last | one 8-byte word cannot say more than 14 slots |

mod bucket;
mod check;
mod concurrency;
pub mod layout;
mod ops;
mod recovery;
mod rehash;
mod resize;
mod scan;
mod search_path;
mod setup;
mod shard;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod variable_size_items;

use everhash_index::{Capabilities, Checked, Durability, Engine, Error, Executor, Form, Result};
use everhash_pmem::{Boot, Guarantees, Media, Pool, Region, Site};

pub use setup::{TurboSettings, bytes_needed};
pub use table::TurboTable;

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turbo;

impl Engine for Turbo {
    const NAME: &'static str = "turbo";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Immediate],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] = &[
        bucket::sites::ALL,
        variable_size_items::sites::ALL,
        shard::sites::ALL,
        rehash::sites::ALL,
        scan::sites::ALL,
        recovery::sites::ALL,
        table::sites::ALL,
    ];

    type Settings = TurboSettings;
    type Table<M: Media> = TurboTable<M>;

    fn tiny(_form: Form) -> TurboSettings {
        TurboSettings::tiny()
    }

    fn sized_for(_form: Form, items: u64) -> TurboSettings {
        TurboSettings::sized_for(items)
    }

    fn bytes_needed(_form: Form, settings: &TurboSettings, _guarantees: Guarantees) -> Result<u64> {
        settings.check_all().map(|()| bytes_needed(settings))
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &TurboSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<TurboTable<M>> {
        let look = table::word_lookup;
        Ok(match Form::from_code(pool.identity().form) {
            Form::WORDS => TurboTable::Words(recovery::open(pool, executor, look)?),
            _ => TurboTable::Bytes(recovery::open(pool, executor, look)?),
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
