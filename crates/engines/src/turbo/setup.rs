//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, LINE, Media, Pool, Space, Span, pool};

use super::layout::{
    self, BUCKET_BITS, BUCKET_WORDS, Bucket, Descriptor, MOST_SHARDS, Meta, Place, ROOT, Root,
    SLOTS, VERSION,
};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct TurboSettings {
        shards = 4096, |value| (1..=MOST_SHARDS).contains(&value),
            "shards, each with a lock and a size of its own; 1 to 2^24, for ever";
        buckets_per_shard = 1, |value| value.is_power_of_two() && value <= 1 << BUCKET_BITS,
            "buckets of a new shard; a power of two, at most max_buckets";
        max_buckets = 1 << 20, |value| value.is_power_of_two() && value <= 1 << BUCKET_BITS,
            "buckets beyond which a shard does not grow; a power of two, at most 2^24";
        scope = 16, |value| (1..=1024).contains(&value),
            "buckets in which a key may lie, from its home on; 1 to 1024";
        bucket_slots = SLOTS as u64, |value| (2..=SLOTS as u64).contains(&value),
            "slots of a bucket that are used, one of them for updates; 2 to 14";
        gc_probes = 8, |value| (1..=1 << 20).contains(&value),
            "buckets of an insert's search from which on it collects deleted slots; \
             1 to 2^20, beyond scope for never";
        page_bytes = 64 << 10, |value| value.is_power_of_two() && (256..=1 << 20).contains(&value),
            "page of the record heap; a power of two, 256 to 2^20 bytes";
        lanes = 64, |value| value <= 1024,
            "notes of writers, for recovery from the end of a process; 0 to 1024, \
             0 = recovery makes the whole pool durable instead";
    }
}

/// Pairs for each bucket of a table that shall take a number of them without growing.
///
/// Unit: pairs. Source: ours; a path of 16 buckets has 208 slots and 136 pairs on average, whose
/// standard deviation is 11.7: one path in a billion gets more than it holds.
const PAIRS_PER_BUCKET: f64 = 8.5;

/// Shards of a table that is sized for its pairs, while each has 64 to 1024 buckets.
///
/// Unit: shards. Source: ours, where TurboHash 4.7 has 64 Ki of 16 buckets. Each has a line of
/// DRAM, and a get waits for it before it can fetch the bucket: so they should stay in a core's
/// second-level cache, beside the lines that gets fetch through it.
const SIZED_SHARDS: u64 = 1024;

/// Buckets of a shard in a table that is sized for its pairs.
///
/// Unit: buckets. Source: ours; fewer in a small table, so that writers seldom wait for each other,
/// and no more in a large one, so that no writer waits long for a rehash.
const SIZED_BUCKETS: core::ops::RangeInclusive<u64> = 64..=1024;

/// The fewest buckets of a shard, and the fewest shards, in a table that is sized for its pairs.
///
/// Unit: buckets; shards. Source: ours; a shorter path than the scope fills up by chance.
const LEAST: u64 = 16;

impl TurboSettings {
    /// What judges change in [`TurboSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] =
        &[&[("lanes", 0), ("gc_probes", 1)], &[("shards", 8), ("scope", 1), ("bucket_slots", 14)]];

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        TurboSettings {
            shards: 2,
            buckets_per_shard: 1,
            max_buckets: 1 << 16,
            scope: 2,
            bucket_slots: 4,
            gc_probes: 2,
            page_bytes: 512,
            lanes: 1,
        }
    }

    /// Returns settings for a table that takes `items` pairs without growing, or for the largest
    /// one that there can be.
    pub fn sized_for(items: u64) -> Self {
        let all = (items as f64 / PAIRS_PER_BUCKET).ceil() as u64;
        let buckets = all.div_ceil(SIZED_SHARDS).next_power_of_two();
        let buckets = buckets.clamp(*SIZED_BUCKETS.start(), *SIZED_BUCKETS.end());
        let shards = all.div_ceil(buckets).clamp(LEAST, MOST_SHARDS);
        let defaults = TurboSettings::default();
        let buckets = all.div_ceil(shards).clamp(LEAST, defaults.max_buckets);
        TurboSettings { shards, buckets_per_shard: buckets.next_power_of_two(), ..defaults }
    }

    /// Returns the first words of a root: version, settings, directory, checksum.
    fn root(&self, directory: Addr) -> [u64; Root::CHECKSUM + 1] {
        let mut root = [VERSION; Root::CHECKSUM + 1];
        root[1..Root::DIRECTORY].copy_from_slice(&self.words());
        root[Root::DIRECTORY] = directory.byte();
        root[Root::CHECKSUM] = settings::checksum(ROOT, &root[..Root::CHECKSUM]);
        root
    }

    /// Returns the settings in the first words of a root.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not match their checksum; [`Error::Unsupported`] if they are
    /// of another version.
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<Self> {
        settings::verify(ROOT, root, "turbo", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the directory");
        let settings = TurboSettings::from_words(*words);
        settings.check_all()?;
        Ok(settings)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check_all(&self) -> Result<()> {
        self.check_each()?;
        if self.buckets_per_shard > self.max_buckets {
            let why = "there are at most max_buckets; lower it".into();
            return Err(Error::Setting { name: "buckets_per_shard", why });
        }
        Ok(())
    }
}

/// Returns how long the pool of an empty table is. Unit: bytes.
pub const fn bytes_needed(settings: &TurboSettings) -> u64 {
    let directory = layout::directory_bytes(settings.shards, settings.lanes);
    let buckets = settings.shards * settings.buckets_per_shard * Bucket::BYTES as u64;
    pool::DATA.byte() + directory.next_multiple_of(Bucket::BYTES as u64) + buckets
}

/// Writes an empty table. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &TurboSettings) -> Result<()> {
    settings.check_all()?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let directory = layout::directory_bytes(settings.shards, settings.lanes);
    let directory = space.take(directory, LINE)?.span;
    let log = settings.buckets_per_shard.ilog2();
    let all = settings.shards * settings.buckets_per_shard * Bucket::BYTES as u64;
    let buckets = space.take(all, Bucket::BYTES as u64)?.span;
    write_buckets(pool, buckets)?;
    write_directory(pool, directory, settings, |shard| {
        let words = shard * settings.buckets_per_shard * BUCKET_WORDS as u64;
        Place { start: buckets.start.plus(words), log }
    })?;
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root(directory.start));
    Ok(pool.access().write_words(ROOT, &root)?)
}

fn write_directory<M: Media>(
    pool: &Pool<M>,
    directory: Span,
    settings: &TurboSettings,
    place: impl Fn(u64) -> Place,
) -> Result<()> {
    let pm = pool.access();
    for shard in 0..settings.shards {
        let at = layout::descriptor_at(directory.start, shard);
        let mut words = [0; Descriptor::WORDS];
        words[Descriptor::VERSION] = layout::encode_version(0, at);
        words[Descriptor::SETS] = place(shard).encode(layout::set_at(at, 0));
        pm.write_words(at, &words)?;
    }
    let lanes = layout::lane_at(directory.start, settings.shards, 0);
    for lane in 0..settings.lanes {
        pm.write_words(lanes.plus(lane * layout::Lane::WORDS as u64), &[0; layout::LINE_WORDS])?;
    }
    Ok(())
}

/// Writes empty buckets: their words may not stay zero, or a hole would pass for one.
fn write_buckets<M: Media>(pool: &Pool<M>, buckets: Span) -> Result<()> {
    let pm = pool.access();
    let mut words = [0; BUCKET_WORDS];
    for index in 0..buckets.words / BUCKET_WORDS as u64 {
        let at = buckets.start.plus(index * BUCKET_WORDS as u64);
        words[Bucket::META] = Meta::first(0).encode([0; 2], at);
        pm.write_words(at, &words)?;
    }
    Ok(())
}

const _: () = assert!(TurboSettings::COUNT + 1 == Root::DIRECTORY, "they fill their place");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sized_table_has_room_for_its_items_and_not_much_more() {
        // Fails if a table that was made for n items grows while they are inserted, or is larger
        // than the 31 bytes an item that the table of figures allows.
        for items in [0, 1, 1000, 12_345, 1 << 20, 10_000_000, 1_000_000_000, 1 << 40] {
            let settings = TurboSettings::sized_for(items);
            settings.check_all().unwrap();
            let buckets = settings.shards * settings.buckets_per_shard;
            assert!(items as f64 <= buckets as f64 * PAIRS_PER_BUCKET, "{items} in {buckets}");
            if (1 << 20..1 << 30).contains(&items) {
                let bytes = bytes_needed(&settings) as f64 / items as f64;
                assert!(bytes <= 31.0, "{bytes} bytes for each of {items}");
            }
        }
    }

    #[test]
    fn a_table_for_more_pairs_than_there_can_be_is_as_large_as_one_can_be() {
        // Fails if settings come out that no table can have, or whose length overflows.
        for items in (44..64).map(|bits| 1 << bits).chain([u64::MAX]) {
            let settings = TurboSettings::sized_for(items);
            settings.check_all().unwrap();
            assert!(bytes_needed(&settings) > 1 << 48, "{items}");
        }
    }

    #[test]
    fn a_shard_does_not_begin_with_more_buckets_than_it_may_have() {
        // Fails if a table is made, or opened, whose shards are larger than they may grow.
        let settings =
            TurboSettings { buckets_per_shard: 4, max_buckets: 2, ..TurboSettings::tiny() };
        let refused = settings.check_all();
        assert!(matches!(refused, Err(Error::Setting { name: "buckets_per_shard", .. })));
    }

    #[test]
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost, or if a flipped bit goes unnoticed.
        let settings = TurboSettings { lanes: 3, gc_probes: 77, ..TurboSettings::tiny() };
        let mut root = settings.root(Addr::new(8192));
        assert_eq!(TurboSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(TurboSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }
}
