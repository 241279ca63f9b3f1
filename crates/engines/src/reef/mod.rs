//! Reef: append-only segments under a directory of tagged places.
//!
//! Ours; no paper. It joins what the papers here teach: WALSH's aggregated log and epochs, ElimDA's
//! relocation in whole units, TurboHash's line of tags and optimistic readers, WOPHI's work ahead
//! of need. Read beside it: FASTER (Chandramouli et al., SIGMOD 2018), Viper (Benson et al., VLDB
//! 2021), bitcask, F2FS (Lee et al., FAST 2015) on cleaning segments.
//!
//! ```text
//!   DRAM    shard
//!           [leaf | leaf | leaf | leaf]          links, by the lowest bits of the hash
//!              |       |      `-. |
//!              v       v        v v
//!           [bucket] [bucket] [bucket]           a leaf has 16 to 31 buckets
//!           [bucket] [  ...
//!           [tag place | tag place | ...]        a bucket is a line of eight words
//!                    |           |
//!           .--------'           '-------.
//!           v                            v
//!   stream  [head | object | object | object ...]  [head | object | object |   <- appended here
//!            segment 7, full                        segment 8
//!
//!   root    [settings | commit record of epoch 4 | commit record of epoch 5]
//! ```
//!
//! Every write appends an object to the newest segment of the key's stream, and lets one word of
//! the directory lead there. One commit record says where all streams end; it and what it speaks of
//! become durable by one sync. A segment whose pairs are mostly replaced is emptied into the newest
//! one and is free. A table at rest gives the storage behind free segments back to the device.
//!
//! | costs | |
//! |---|---|
//! | get | one line of DRAM, one object |
//! | absent | one line of DRAM; of 1,000 look-ups 25 go on to another one, of 10,000 eight read an object (640,000 pairs) |
//! | insert | no object is read; one is written, in sequence |
//! | overwrite, remove | the key of one object is read |
//! | growth of the directory | a leaf is split, in one or two microseconds; no object is read or moved, but once in nine splits the keys of the leaf |
//! | opening | 8.2 bytes of a checkpoint for each pair are verified, and the objects of the log behind it are read |
//! | first touch | after an opening a leaf, some 170 pairs, is read from the checkpoint when it is first looked at |
//! | durability | of batches one sync for all streams, about 600 bytes |
//! | room | 8 bytes a pair beside key and value for words, 16 for byte strings; a file of 1.4 to 1.6 times that while all pairs are overwritten, 1.25 at rest, a saved directory among it |
//! | overwriting | 2.15 words are written for each that is put, at most 3.2 where a saved directory takes much of the room |
//! | DRAM | 13.4 bytes a pair on average, at most 14 while a table grows |
//! | at most | pools of 16 TiB |
//! | an atomic batch | its objects, 576 bytes more, and where writes are durable at once one fence |
//!
//! # Where to find what
//!
//! | Section | File |
//! |---|---|
//! | the directory | `directory.rs`, `directory/word.rs`, `directory/arena.rs` |
//! | its searches | `directory/search.rs` |
//! | its growth | `directory/split.rs` |
//! | its form in a checkpoint | `directory/saved.rs` |
//! | streams, segments | `stream.rs`, `segments.rs`, `units.rs`, `growing.rs`, `reserve.rs` |
//! | what threads that write by turns store each for itself | `runs.rs` |
//! | objects and their checks | `objects.rs` |
//! | operations on one key | `look_ups.rs`, `ops.rs` |
//! | operations on many keys | `batches.rs` |
//! | atomic batches | `groups.rs` |
//! | batches, commit records | `epochs.rs` |
//! | collection, tombstones | `collection.rs`, `collection/fits.rs` |
//! | clearing | `clearing.rs` |
//! | checkpoints of the directory | `checkpoint.rs`, `recovery/loaded.rs`, `first_touches.rs` |
//! | recovery | `recovery.rs`, `recovery/found.rs`, `recovery/replay.rs` |
//! | reading segments, for recovery and for collection | `reader.rs` |
//! | visiting all pairs | `scan.rs` |
//! | work ahead of need | `upkeep.rs` |
//!
//! There is no `concurrency.rs`: the latches lie in what they guard, and `state.rs` gives their
//! order. There is no `resize.rs`: leaves are split in `directory/split.rs`, and segments are
//! emptied in `collection.rs`.
//!
//! # Where we depart
//!
//! There is no paper; these are the choices that our first design made otherwise.
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | 8-byte records downward from a segment's end | none: recovery reads the objects | written once, in one place; one range to verify |
//! | an object names the place that it replaces | it does not | order in the stream decides, and keys are compared |
//! | tags of 22 bits | 19, and the distance from home in 3 | a removal knows from DRAM alone which pairs may move nearer |
//! | a shard is an array of buckets, and doubles some of them at a time | leaves of 16 to 31 buckets under an array of links (extendible hashing), which are split one by one | a half-doubled array has two homes for a key, and every look-up asks which; a leaf has one |
//! | fresh tags in the background | with a split, of its leaf | it is no more than 200 keys |
//! | a segment is freed by a record | by a mark in place of its checksum, as of an epoch | no words of a next owner bring its head back |
//! | the head of a segment says what it says | behind a salt | the next head at its place completes no torn one |
//! | a megabyte is written out at once | a sync writes what was stored | the kernel does it in order, too |
//! | writers of a stream append one behind the other | threads that do by turns take runs of 4 KiB of its newest segment, and fill them alone | three lines that go from one processor to the other with each append do so once in thirty |
//! | segments of one length | a 512th of the table, at most `segment_bytes`; of long objects a whole number | a small database stays small, and nothing is left over |
//! | collection at 1.6 times the live bytes | by upkeep at 1.34 times, by writers at 1.41, all room counted, and no segment with less than 5/16 of garbage; but the emptiest if it fits into the newest one, or into one with another | what waits for an epoch, and the last step of the file, come to it; every opening ends its segments, and processes that write little leave them nearly empty |
//! | a checkpoint after so many bytes of log | after 8 times its own length, and 64 MiB; at rest after twice its length | what is written grows by an eighth at most, or by half where pauses follow; a table at rest opens after a kill as fast as after a close |
//! | shards are loaded when first touched | leaves are, and all were verified at open | nobody waits for a whole shard, and a damaged checkpoint can be ignored for the log |
//! | `clear` is one commit record | a new segment in each stream, with a floor | one epoch takes all, and a killed process loses nothing |
//!
//! Not here: a sync that no writer ever waits for; leaves that are joined again when they are
//! nearly empty.

mod batches;
mod check;
mod checkpoint;
mod clearing;
mod collection;
mod directory;
mod epochs;
mod first_touches;
mod groups;
mod growing;
pub mod layout;
mod look_ups;
mod objects;
mod ops;
mod reader;
mod recovery;
mod reserve;
mod runs;
mod scan;
mod segments;
mod setup;
mod state;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod units;
mod upkeep;

use everhash_index::{Capabilities, Checked, Durability, Engine, Error, Executor, Form, Result};
use everhash_pmem::{Boot, Guarantees, Media, Pool, Region, Site};

pub use setup::ReefSettings;
pub use state::Reef as ReefTable;

/// The engine.
///
/// In batches, the default, the end of the process takes nothing back. Power loss takes back at
/// most what was written in the last flush interval, and no more than `flush_bytes` of objects: the
/// whole table is then as it was at one moment. The interval holds where a sync takes at most a
/// quarter of it: upkeep ends an epoch half an interval after it has seen a write, and that may
/// wait for the sync of a writer's epoch before its own. [`sync`](everhash_index::Table::sync) is
/// the barrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reef;

impl Engine for Reef {
    const NAME: &'static str = "reef";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Batch, Durability::Immediate],
        bare: false,
        atomic_batches: true,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] =
        &[segments::sites::ALL, epochs::sites::ALL, recovery::sites::ALL, groups::sites::ALL];

    type Settings = ReefSettings;
    type Table<M: Media> = ReefTable<M>;

    fn tiny(_form: Form) -> ReefSettings {
        ReefSettings::tiny()
    }

    fn sized_for(_form: Form, items: u64) -> ReefSettings {
        ReefSettings::sized_for(items)
    }

    fn bytes_needed(_form: Form, settings: &ReefSettings, _guarantees: Guarantees) -> Result<u64> {
        settings.bytes_needed()
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &ReefSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<ReefTable<M>> {
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
