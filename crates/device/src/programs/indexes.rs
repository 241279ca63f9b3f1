//! Synthetic indexes: the access patterns of hash tables without the tables, for rows that will be
//! measured on engines and rivals as well.

use everhash_pmem::media::emulated::{Counters, Timing};
use everhash_pmem::profile::MemoryDevice;
use everhash_pmem::{Addr, LINE, Result, Span};

use super::{Pm, SITE, place, region, run};

/// Bytes of the table. Unit: bytes. Source: ours; 32 times the smallest cache that is used.
const TABLE: u64 = 64 << 20;

/// Bytes of the lock words behind it, a line for each. Unit: bytes. Source: ours; four times that
/// cache.
const LOCKS: u64 = 8 << 20;

/// Bytes of an item. Unit: bytes. Source: the papers' items of an 8-byte key and an 8-byte value.
pub(crate) const ITEM: u64 = 16;

/// What an index does to insert an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Reads a line, writes the item into it and flushes.
    InPlace,
    /// Reads the lines of a unit, writes the item into one and flushes; before and after, it writes
    /// a lock word on the device, which it does not flush.
    InPlaceWithLock,
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
    run(&region, threads, operations, |mut random| {
        let mut tail = place(&mut random, TABLE, 1 << 16);
        let mut items = 0;
        move |pm, _| match index {
            Index::InPlace => in_place(pm, place(&mut random, TABLE, LINE), true),
            Index::InPlaceUnflushed => in_place(pm, place(&mut random, TABLE, LINE), false),
            Index::InPlaceWithLock => {
                let unit = place(&mut random, TABLE, 256);
                let lock = Addr::new(TABLE).plus(place(&mut random, LOCKS, LINE).word());
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
    })?;
    region.media().drain();
    Ok((region.media().counters(), operations * threads))
}

fn in_place(pm: &Pm<'_>, at: Addr, flush: bool) -> Result<()> {
    pm.load(at)?;
    pm.write_words(at, &[1, 2])?;
    if flush { pm.persist(Span::new(at, 2), SITE) } else { Ok(()) }
}
