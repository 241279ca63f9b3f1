//! ElimDA: a three-layer index without double I/O amplification.
//!
//! "Eliminating Double I/O Amplifications of Hashing Indexes for Persistent Memory", anonymous
//! submission 98.
//!
//! ```text
//!   caches   collecting log of its leading bits  <->  shadow log              durable caches only
//!               |  full: item by item
//!               v
//!   DRAM     bucket: D-bucket of an access unit | fingerprints of its units     x 16 a segment
//!               |  full: relocated as one access unit  |  hit: one read of the device
//!               v                                      v
//!   device   segment: head, watermarks | unit | unit | unit | ...               256-byte units
//!            log:     lane -> block -> block -> open block                     backup of D-buckets
//! ```
//!
//! Where caches are durable, an insert appends its pair to a collecting log by two exchanges, and
//! nothing is flushed. A full log goes to the backup log and to the DRAM table, item by item, while
//! another log takes its place. Elsewhere an insert appends its pair to the backup log with one
//! flush and one fence, and puts it into a D-bucket in DRAM.
//!
//! A full D-bucket goes to the device table as one access unit of the device: a unit of 256 bytes,
//! or a row of up to 16 on a device of pages. It carries the order number of the last item that it
//! absorbed, the watermark: with its one commit store all backup copies of its items are dead. DRAM
//! table and device table have one shape; a directory in DRAM leads to both. A search reads the
//! device only where a 16-bit fingerprint in DRAM is equal.
//!
//! # Where to find what
//!
//! | Section | File |
//! |---|---|
//! | 3.2: the DRAM table and the directory | `dram_table.rs`, `dram_table/bucket.rs` |
//! | 3.2, 3.3: collecting logs, appends without a lock | `collecting_log.rs`, `collectors.rs` |
//! | 3.3: shadow logs | `shadow_log.rs` |
//! | 3.3, 3.7: the backup log, and inserts with volatile caches | `insert_ahead_logging.rs`, `lane.rs` |
//! | 3.4: reversed search | `reversed_search.rs`; of words, alone and many at a time: `look_ups.rs` |
//! | 3.5: bucket relocation | `bucket_relocation.rs` |
//! | 3.5: segment split | `resize.rs` |
//! | 3.6: recovery | `recovery.rs` |
//! | 3.7: value pool; ours: the forms of pairs | `form.rs` |
//! | ours: an open table in DRAM | `state.rs` |
//! | 3.7: what the machine offers to keep logs in its caches | `cache_allocation.rs` |
//! | ours: scan and clear | `scan.rs` |
//! | ours: upkeep | `upkeep.rs` |
//!
//! # Where we depart
//!
//! | The paper says | We do | Why |
//! |---|---|---|
//! | insert appends without looking for the key (3.3) | looks first: under the lock of the bucket, or by an exchange with the word that it saw before; the paper's is `insert_blind` | the contract's insert says whether the key was absent |
//! | of two inserts of a key the first one wins (3.3, 3.4) | so does it of two blind ones, one after the other; the second stays until a split drops it, and a removal ends the first one only | who inserts blindly knows that the key is absent; all else would look for it |
//! | recovery compares the keys of log and device table (3.6) | order numbers and watermarks | a deleted key would come back, or an old value (1) |
//! | a bitmap in DRAM says which log slots are free (3.3) | lanes of blocks; the oldest is reused when all of it is dead | a bitmap is lost in a crash, and what it freed comes back (2) |
//! | the log is one region (3.3) | up to 64 lanes, chosen by the bucket of a key | positions in a lane rise per bucket: they are the order numbers |
//! | a shadow log for each thread (3.3) | a pool of spare logs on the device | they hold acknowledged items, and threads are not known |
//! | a full log goes to the backup log as a whole, then item by item to the DRAM table (3.3) | each item in one step, under the lock of its bucket | between the two, an update, a removal or a later order number would meet half of a move (5) |
//! | count and tag are two words (3.3) | one control word with a generation; what has moved or ended in a second one | a thread that was held up must not append to a log that serves other keys by now |
//! | a reader looks into the shadow log last (3.4) | into the older of the two logs first | it holds what was inserted first |
//! | 8,192 logs (3.2) | 8,192, fewer in tables that are made for fewer pairs | the logs of a small table would hold all of it |
//! | the device gathers what is appended one by one (3.7) | of every 256 bytes of the log, the last line holds one item | a unit goes to the media with its last line, which must not come again |
//! | full logs and D-buckets are flushed (3.3, 3.5) | where caches are durable, a full access unit of the log or of the device table is written back, and nothing waits for that | its lines would leave the caches one by one, each for a write of the whole unit |
//! | a unit is 16 pairs (4.1) | 15, of 16-byte pairs 7, and a head | live bits, bucket, watermark and checks need room |
//! | D-bucket, log and access unit have one length (4.1) | where it is more than 256 bytes, a collecting log keeps 256, and a page of the device table is a row of units | a reader reads 256 bytes; fingerprints of 15 items and the index of their unit are 16 lanes |
//! | a P-bucket is 4 KiB (4.1) | units of a segment are shared by its buckets, up to 24 each | the segment splits when it is full, not when its worst bucket is |
//! | no number of P-buckets a segment | 16 | many small segments would each read and write alone |
//! | a split when a P-bucket overflows (3.5) | a rebuild at the same depth, if at most half of the units would be needed | churn alone must not grow the directory |
//! | updates in place (3.1) | one word; 16-byte values as a new item, then the end of the old one | a value of two words would be torn |
//! | the directories of both tables (3.5) | one, in DRAM; the device has one word a segment | one store commits a split (3) |
//! | a reader of one layer after the other (3.4) | validates what it read, hit or miss | an item moves between the layers (4) |
//! | a split drops duplicates as it moves them (3.5) | beforehand, bucket by bucket; those of the log end once the new segment counts | the older pair of a key must be durable before the newer one ends |
//! | a split moves units and D-buckets each to their like (3.5) | the last unit of a bucket takes the oldest items of the D-bucket, if it has room | it is written whole, and they need no other one |
//! | a split fills new segments (3.5) | segments and their units have a lap; units of a lower one are free | space that held a segment need not be emptied for another one (6) |
//! | split blocks inserts (3.5) | of its segment only; readers wait while one word turns | the rest of the table goes on |
//! | fingerprints in DRAM (3.4) | those of four units, two lines, are compared at once; zero for what is not live | two planes of bytes, the high one compared first, took a look-up 365 instructions instead of 257, and one of many 543 instead of 329 |
//! | the width of fingerprints is a parameter (3.4) | 16 bits | segment (40 bits of a hash) and bucket (8) leave so many, so that no bit says what these do; with 8 one search in two of an absent key would read the device, and with 32 a pair takes two bytes more of DRAM |
//! | keys in items, values in a pool (3.7) | an item is hash and record word; the record is fenced before its item | keys of any length; a split reads no record |
//! | no word on hashes that are equal | so many as a bucket holds; one more is `Limit` | a chain would be met by nobody who has no second key with the same 64 bits |
//!
//! 1. An item is live if its live bit is set and its order number is above the watermark of its
//!    bucket. Both halves of a split inherit the watermarks in their heads.
//! 2. The link to the oldest block of a lane is the floor below which all is dead. It moves,
//!    durably, before a block is written again. If a lane has half as many slots again as its
//!    D-buckets, the D-buckets that still hold its oldest block are relocated early, as partial
//!    units.
//! 3. The slot of the old segment turns to the lower half. The upper half has a slot already and
//!    counts once no segment covers its hashes.
//! 4. A bucket's sequence says whether it changed meanwhile (`concurrency.rs`). Items enter the
//!    D-bucket after their fence: no reader is shown what a crash takes back. In collecting logs a
//!    store is durable when it is visible.
//! 5. Recovery ends an item of a collecting log that it finds in a layer below: a crash came
//!    between the two steps of its move. It holds the same pair, or an older value.
//! 6. Up to two spare spaces are kept, whose laps are known. Other space, and space whose laps have
//!    come round, is written whole, with lap 1. What was written into goes back with a higher lap,
//!    or not at all: nothing that a failure leaves there is of the lap that comes next.
//!
//! # What is not here yet
//!
//! - Cache pseudo-locking (3.7): it belongs to the machine's administrator. The engine says how
//!   many ways of the last-level cache could be set aside, and takes none.
//! - Fingerprints that are rebuilt at first touch: an open reads the whole device table. What the
//!   log holds can only be told from what was relocated by the watermarks of its units, and the
//!   D-buckets hold pairs of nearly every bucket, so that an open touches nearly all of them.
//! - Segments that grow: right after its split a segment is half empty.
//!
//! Settings leave a part out, to measure what it is for: `collecting_logs = 0` the cache layer,
//! `unit_slots = 1` with `access_units = 1` the DRAM table, `bucket_units = 0` the relocation.
//!
//! # What an operation costs at least
//!
//! With durable caches an insert is two exchanges of one word and a store of its pair; one in 15
//! moves 15 pairs to the backup log. Without, it stores one line of the backup log and fences once;
//! one in 15 also writes a unit with two fences. With byte strings, and on files, there is one
//! fence more. A get that hits reads one line of the device, or none if the item is in its
//! D-bucket; a miss reads one in about 370, where a fingerprint is equal by chance. An update or a
//! removal is one store and one fence. An update of a 16-byte pair takes two.
//!
//! Measured on the emulated test bed of the paper (`tests/figures.rs`: 312,500 pairs beside a cache
//! of 576 KiB, a 64th of the paper's), for one insert:
//!
//! | | bytes written | bytes read | emulated time |
//! |---|---|---|---|
//! | volatile caches | 68 | 64 | 274 ns |
//! | durable caches | 79 | 65 | 655 ns |
//! | durable caches, no collecting logs | 72 | 63 | 167 ns |
//! | the same, the log not written back by units | 110 | 63 | 172 ns |
//! | the same beside 4 MiB of cache, which hold all of the log | 41 | 21 | 140 ns |
//! | volatile caches, no DRAM table | 234 | 478 | 842 ns |
//! | volatile caches, no relocation | 34 | 28 | 250 ns |
//!
//! On a device of the same kind that works in pages of 4 KiB, an insert writes 60 bytes with whole
//! pages and 85 with units. On ordinary files the system gathers what is written to a page: with
//! access units of 4 KiB a table of 4 M pairs takes 31 bytes of the file and 10.4 of DRAM for each
//! instead of 25 and 5.4, and 1.7 to 2.0 M searches a second instead of 2.8; so units are 256 bytes
//! there.
//!
//! Grown to 20 M pairs of words in a file, one thread (`everhash scale`), when nearly all segments
//! have just been split: 8.0 bytes of DRAM a pair, 46 of the file of which 38 are in use (a half
//! that was just split is half empty), 30 written; an open with one thread takes 0.58 s after a
//! crash and 0.53 s after a close, 35 and 38 M pairs a second. On average between two doublings it
//! is 5.4 bytes of DRAM and 28 of the device (`tests/counts.rs`). While 20 M pairs go in, beginning
//! with one segment, 75.4 % of all slots are filled on average and 53 to 98 % at any time (68.9, 48
//! to 88 % in the paper).
//!
//! Of the first row about 27 bytes are the log, and the rest the units that relocations and splits
//! write, each pair about 2.4 times: all segments have just been split for the third time. A split
//! writes the units that are in use, and no others: in space that was used before, a unit counts if
//! it has the lap of its segment. With whole segments it was 87 bytes written. The last unit of a
//! bucket, half of which would stay empty, takes what the D-bucket holds: 72 without. Of what is
//! read, 34 bytes are the segments that split, and the rest are units of log and device table
//! before they are written. The lines of a unit of the log are announced together: the device would
//! read the unit anew for each line that is asked for after a write, which makes 48 bytes an
//! insert. The device evicts lines at random, so grouping matters: the fourth row. But the log
//! gathers what is appended by itself: the collecting logs save no traffic, and an insert takes
//! almost four times the emulated time with them, because it looks at more lines. Their use is the
//! append without a lock.
//!
//! A look-up of a word reads the head of its bucket in DRAM, the fingerprints of the units that are
//! in use, two units a line, and where one is equal the item. Look-ups of many keys ask for the
//! lines of 32 keys at once, step by step. The head says whether a split has given the hash away,
//! and how many units there are: a search branches on both and makes no address of them. With the
//! number of units in an address, a get was 0.83 and one of an absent key 0.66 times as fast.
//!
//! What bounds a get is the line of its item: one of 50,000 pairs, all in the caches, takes 43 ns,
//! and one of a million 150 ns (a fifteenth of random 8-byte reads), of which 107 ns are that wait.
//! Look-ups that need not wait for it, of absent keys or of 32 keys at once, take 36 ns; a single
//! one overlaps little of it with the next, whose 257 instructions come before its own line.
//!
//! 10 M pairs of words in memory, one thread, to what the machine gives in the same run (`everhash
//! bench`, one run): an insert 0.48 and an update 0.55 of a fence; a get 0.055, one of an absent
//! key 0.09 and a batched one 0.23 of independent random reads. Two threads get, update and remove
//! 1.8 to 1.9 times as many pairs, and insert 1.3 times as many.
//!
//! Behind the fence of a write comes no locked instruction but that of the next write: it would
//! wait until all is written back, and whatever follows with it. So pairs are counted before the
//! fence, and the lane of the log is locked once, before it. A write that does not come to its end
//! takes its count back; one to a bucket of which a change failed does nothing.
//!
//! Not covered by a check: values of the two fixed forms, and their keys in units and collecting
//! logs, which have no room for one. A flipped bit in such a key is found at open if the key
//! belongs to another bucket or collector then. Keys in the backup log, every structure word and
//! byte strings are covered.
//!
//! # Beside the indexes of the paper
//!
//! CCEH, Dash, Level Hashing and clevel (`crates/rivals/src/memory.rs`), in one run with ElimDA,
//! with the same pairs, device and cache as above, one thread, emulated time: `cargo test
//! --release -p everhash-rivals --test memory -- --ignored --nocapture`. Each of the four does to
//! the device what its publication says. The port of CCEH to PMDK, which the paper ran, is in no
//! mean below.
//!
//! | Durable caches: bytes of an insert, mean time (99th percentile) | written | read | insert | positive search | negative search | removal |
//! |---|---|---|---|---|---|---|
//! | ElimDA | 79 | 65 | 655 ns (3,653) | 683 (710) | 412 (447) | 501 (805) |
//! | ElimDA, no collecting logs | 72 | 63 | 167 ns (467) | 680 (710) | 405 (404) | 501 (805) |
//! | ElimDA, blind inserts | 79 | 65 | 212 ns (3,007) | 681 (709) | 412 (447) | 501 (805) |
//! | CCEH | 417 | 507 | 961 ns (1,567) | 403 (1,045) | 1,004 (1,700) | 384 (1,028) |
//! | CCEH, port to PMDK | 380 | 1,259 | 2,778 ns (3,986) | 414 (1,365) | 3,219 (4,064) | 402 (1,231) |
//! | Dash | 564 | 416 | 683 ns (1,493) | 735 (1,227) | 476 (921) | 751 (1,248) |
//! | Level | 473 | 889 | 1,646 ns (2,453) | 901 (1,930) | 1,769 (1,930) | 843 (1,924) |
//! | clevel | 543 | 904 | 1,378 ns (7,424) | 1,053 (1,580) | 1,037 (1,290) | 1,362 (1,907) |
//! | CCEH, reads ahead | 417 | 507 | 559 ns (1,088) | 492 (1,075) | 532 (1,322) | 454 (1,046) |
//! | Dash, reads ahead | 564 | 416 | 565 ns (1,315) | 544 (942) | 318 (634) | 562 (1,030) |
//! | Level, reads ahead | 475 | 910 | 721 ns (1,290) | 397 (754) | 526 (877) | 386 (747) |
//! | clevel, reads ahead | 543 | 904 | 835 ns (6,166) | 668 (930) | 409 (626) | 967 (1,361) |
//!
//! ElimDA writes 84 % less than the four on average and reads 90 % less (without collecting logs
//! 86 % and 91 %; the paper has 53 % and 94 %; with the port in place of CCEH it reads 92.5 %
//! less). Half of the 65 bytes that it reads are segments that split. It is ahead of each in
//! inserts and in searches that find nothing. It finds and removes keys faster than each but CCEH,
//! which meets its key in the first line that it reads (1.12 misses), while ElimDA looks through
//! DRAM first: four lines, 404 of the 683 ns. A removal takes 1.53 misses, because the live bits
//! of a unit lie in another line than most items.
//!
//! Two things in these times favour ElimDA, and one the others. Each line is waited for in turn,
//! though a processor runs ahead where the lines of a search are known from the start, as in all
//! four; the rows with reads ahead ask for them at once. Then positive searches take 397 to 668
//! ns, less than those of ElimDA; Dash is ahead in negative ones, CCEH and Level in removals, and
//! CCEH and Dash in inserts, unless ElimDA has no collecting logs. An insert without collecting
//! logs and a removal are charged one line of DRAM though they look at the same lines as a search;
//! with four they would take 470 and 804 ns, the insert still ahead of each. On the other hand
//! lines of DRAM are charged in full each time, also of hot keys, while lines of the device stay
//! in the cache: with DRAM for nothing a positive search is 276 ns.
//!
//! | Nanoseconds of an operation of YCSB, durable caches | A | B | D | F | A, zipfian | B | D | F |
//! |---|---|---|---|---|---|---|---|---|
//! | ElimDA | 526 | 659 | 520 | 684 | 380 | 510 | 520 | 610 |
//! | ElimDA, no collecting logs | 526 | 658 | 481 | 420 | 380 | 510 | 481 | 352 |
//! | the same, DRAM for nothing | 273 | 269 | 92 | 169 | 127 | 121 | 92 | 101 |
//! | CCEH | 381 | 390 | 273 | 787 | 199 | 198 | 273 | 717 |
//! | Dash | 737 | 730 | 437 | 749 | 408 | 398 | 437 | 609 |
//! | Level | 916 | 909 | 485 | 1,703 | 546 | 538 | 492 | 1,567 |
//! | clevel | 1,196 | 1,064 | 728 | 1,769 | 701 | 608 | 728 | 1,600 |
//!
//! Half of the operations of A are updates and half of F are inserts, one of 20 in B and D, where
//! D reads the latest keys. Against the four (A and B: CCEH and clevel, as in the paper, Exp#3)
//! the rate is 50 % higher in A, 10 % in B, the same in D, and in F 83 %, without collecting logs
//! 198 % (paper: 175, 229, 200 and 199 %); with zipfian keys 19 % higher in A, 21 % lower in B.
//! The lines of DRAM decide: with DRAM for nothing it would be 188, 170, 423 and 641 %.
//!
//! With volatile caches an insert of ElimDA takes 274 ns, of CCEH 1,025, of Dash 822, of Level
//! 1,899 and of clevel 1,704: 398 % more a second on average (Exp#5: 314 %; if four lines of DRAM
//! were charged, 136 %). The insert of the paper, which does not look for its key, takes 1.3 times
//! as long as with durable caches (paper: 1.6 times); there it is 450 % more a second than the
//! four (Exp#1: 489 %). One that looks for its key is charged the four lines of a search with
//! collecting logs, and one line without: with DRAM for nothing it takes 126 and 70 ns.
//!
//! | Insert with a value out of place, durable caches, a 256th | 16 B | 32 B | 64 B | 128 B | 256 B |
//! |---|---|---|---|---|---|
//! | ElimDA | 785 ns | 839 | 880 | 905 | 968 |
//! | ElimDA, no collecting logs | 270 ns | 314 | 337 | 343 | 371 |
//! | Dash | 986 ns | 986 | 986 | 1,024 | 1,076 |
//! | clevel | 1,407 ns | 1,407 | 1,458 | 1,498 | 1,563 |
//!
//! With half as many pairs, as in Fig. 4, the four write 23.1 to 31.4 times what was inserted
//! (paper: 22.6 to 41.5) and read 14.8 to 43.9 times what is searched for (9.3 to 24.3). The reads
//! are not reproduced: one unit is 16 times a pair, a found key of CCEH takes 0.93 units, and 9.3
//! would need four searches of ten without any read, beside a cache that holds about a tenth of
//! the table.
//!
//! | Collecting logs, a 64th | 16 | 32 | 64 | 128 | 256 |
//! |---|---|---|---|---|---|
//! | insert | 635 ns, 73 B written | 638, 73 | 644, 75 | 655, 79 | 687, 86 |
//!
//! | D-bucket | 32 B | 64 B | 128 B | 256 B | 512 B |
//! |---|---|---|---|---|---|
//! | insert | 592 ns, 226 B written | 311, 100 | 221, 90 | 167, 72 | 154, 58 |
//! | positive search | 709 ns | 690 | 681 | 680 | 672 |
//!
//! | P-bucket | 1 KiB | 2 KiB | 4 KiB | 8 KiB | 16 KiB |
//! |---|---|---|---|---|---|
//! | insert | 171 ns, 69 B written | 170, 70 | 169, 72 | 165, 71 | 161, 66 |
//! | positive search | 634 ns | 653 | 671 | 679 | 683 |
//!
//! More logs do not help one thread, which never waits for a log, and take more of the cache (Fig.
//! 17 has up to 24 threads). The sweeps of bucket sizes (without collecting logs) have the shapes
//! of Fig. 18: inserts gain up to the access unit and little beyond, and with larger P-buckets
//! inserts become faster and searches slower.

mod bucket_relocation;
mod cache_allocation;
mod check;
mod collecting_log;
mod collectors;
mod concurrency;
mod dram_table;
mod form;
mod insert_ahead_logging;
mod lane;
pub mod layout;
mod look_ups;
mod ops;
mod recovery;
mod resize;
mod reversed_search;
mod scan;
mod setup;
mod shadow_log;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod upkeep;

use everhash_index::{Capabilities, Checked, Durability, Engine, Error, Executor, Form, Result};
use everhash_pmem::{Boot, Guarantees, Media, Pool, Region, Site};

pub use cache_allocation::CacheAllocation;
pub use setup::{ElimDaSettings, bytes_needed};
pub use table::ElimDaTable;

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElimDa;

impl Engine for ElimDa {
    const NAME: &'static str = "elimda";

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
        insert_ahead_logging::sites::ALL,
        bucket_relocation::sites::ALL,
        resize::sites::ALL,
        form::sites::ALL,
        ops::sites::ALL,
        scan::sites::ALL,
        recovery::sites::ALL,
        collecting_log::sites::ALL,
        shadow_log::sites::ALL,
    ];

    type Settings = ElimDaSettings;
    type Table<M: Media> = ElimDaTable<M>;

    fn tiny(_form: Form) -> ElimDaSettings {
        ElimDaSettings::tiny()
    }

    fn sized_for(form: Form, items: u64) -> ElimDaSettings {
        ElimDaSettings::sized_for(form, items)
    }

    fn bytes_needed(form: Form, settings: &ElimDaSettings, guarantees: Guarantees) -> Result<u64> {
        Ok(bytes_needed(&settings.on_medium(guarantees).geometry(form)?))
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &ElimDaSettings) -> Result<()> {
        setup::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<ElimDaTable<M>> {
        Ok(match Form::from_code(pool.identity().form) {
            Form::WORDS => ElimDaTable::Words(recovery::open(pool, executor, check::check)?),
            Form::DOUBLE_WORDS => {
                ElimDaTable::DoubleWords(recovery::open(pool, executor, check::check)?)
            }
            _ => ElimDaTable::Bytes(recovery::open(pool, executor, check::check)?),
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
