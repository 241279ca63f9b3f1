//! Synthetic indexes: the access patterns of hash tables without the tables, for rows that will be
//! measured on engines and rivals as well.

use everhash_pmem::media::emulated::{Counters, Emulated, Timing};
use everhash_pmem::media::virtual_time::Summary;
use everhash_pmem::profile::MemoryDevice;
use everhash_pmem::{Addr, LINE, Region, Result, Span, WORD};

use super::{Pm, SITE, place, region, run};

/// Bytes of the table. Unit: bytes. Source: ours; 32 times the smallest cache that is used.
const TABLE: u64 = 64 << 20;

/// Bytes of the lock words behind it at most, a line for each. Unit: bytes. Source: CCEH's segments
/// of 16 KiB have a lock each.
const LOCKS: u64 = TABLE / (16 << 10) * LINE;

/// Bytes of an item. Unit: bytes. Source: the papers' items of an 8-byte key and an 8-byte value.
pub(crate) const ITEM: u64 = 16;

/// A lock for each segment of CCEH's size.
pub(crate) const SEGMENT_LOCKS: Index = Index::InPlaceWithLock { locks: LOCKS / LINE };

/// What an index does to insert an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Reads a line, writes the item into it and flushes.
    InPlace,
    /// Reads the lines of a unit, writes the item into one and flushes; before and after, it writes
    /// one of so many lock words on the device, which it does not flush.
    InPlaceWithLock { locks: u64 },
    /// Reads a line and writes the item into it.
    InPlaceUnflushed,
    /// Collects a unit of items and writes it past the caches behind the one before.
    Log,
}

/// Inserts items on `threads` threads and returns the counters with the number of items. The cache
/// is shrunk to `cache_bytes`.
pub(crate) fn insert(
    device: &MemoryDevice,
    index: Index,
    cache_bytes: u64,
    threads: u64,
) -> Result<(Counters, u64)> {
    let device = MemoryDevice { cache_bytes, ..device.clone() };
    let region = region(&device, Timing::Virtual, TABLE + LOCKS);
    let operations = 200_000 / threads;
    // Until the caches are full of dirty lines, stores without a flush look free.
    inserts(&region, index, threads, 2 * cache_bytes / LINE / threads)?;
    let before = region.media().counters();
    inserts(&region, index, threads, operations)?;
    region.media().drain();
    Ok((region.media().counters() - before, operations * threads))
}

fn inserts(
    region: &Region<Emulated>,
    index: Index,
    threads: u64,
    operations: u64,
) -> Result<Summary> {
    run(region, threads, operations, |mut random| {
        let mut tail = place(&mut random, TABLE, 1 << 16);
        let mut items = 0;
        move |pm, _| match index {
            Index::InPlace => in_place(pm, place(&mut random, TABLE, LINE), true),
            Index::InPlaceUnflushed => in_place(pm, place(&mut random, TABLE, LINE), false),
            Index::InPlaceWithLock { locks } => {
                let unit = place(&mut random, TABLE, 256);
                let lock = Addr::new(TABLE).plus(random.below(locks) * LINE / WORD);
                pm.store(lock, 1)?;
                for line in 0..4 {
                    pm.load(unit.plus(line * 8))?;
                }
                in_place(pm, unit.plus(random.below(4) * 8), true)?;
                pm.store(lock, 0)
            }
            Index::Log => {
                items += 1;
                if items % (256 / ITEM) != 0 {
                    return Ok(());
                }
                pm.write_words_nt(tail, &[1; 32], SITE)?;
                // The log goes on behind its last unit, and around at the end of the table.
                tail = Addr::new((tail.byte() + 256) % TABLE);
                pm.fence(SITE)
            }
        }
    })
}

fn in_place(pm: &Pm<'_>, at: Addr, flush: bool) -> Result<()> {
    pm.load(at)?;
    pm.write_words(at, &[1, 2])?;
    if flush { pm.persist(Span::new(at, 2), SITE) } else { Ok(()) }
}
