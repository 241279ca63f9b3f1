//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Result, Setting, Settings};
use everhash_pmem::{LINE, Media, Pool, Space, Span, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{
    self, BUCKET_BITS, BUCKET_WORDS, Bucket, Descriptor, MOST_SHARDS, Meta, Place, ROOT, Root,
    SLOTS, VERSION,
};

/// The settings of a new table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurboSettings {
    /// Shards. Their number never changes.
    pub shards: u64,
    /// Buckets of a new shard, a power of two.
    pub buckets_per_shard: u64,
    /// Buckets beyond which a shard does not grow, a power of two.
    pub max_buckets: u64,
    /// Buckets in which a key may lie, from its home on.
    pub scope: u64,
    /// Slots of a bucket that are used, the one that is reserved for updates included.
    pub bucket_slots: u64,
    /// Buckets of an insert's search from which on it collects deleted slots.
    pub gc_probes: u64,
    /// Page of the record heap, a power of two. Unit: bytes.
    pub page_bytes: u64,
    /// Notes of writers on the medium.
    pub lanes: u64,
}

impl Default for TurboSettings {
    fn default() -> Self {
        TurboSettings {
            shards: 4096,
            buckets_per_shard: 1,
            max_buckets: 1 << 20,
            scope: 16,
            bucket_slots: SLOTS as u64,
            gc_probes: 8,
            page_bytes: 64 << 10,
            lanes: 64,
        }
    }
}

const ALL: &[Setting] = &[
    Setting {
        name: "shards",
        default: 4096,
        meaning: "shards, each with a lock and a size of its own; 1 to 2^24, for ever",
    },
    Setting {
        name: "buckets_per_shard",
        default: 1,
        meaning: "buckets of a new shard; a power of two, at most max_buckets",
    },
    Setting {
        name: "max_buckets",
        default: 1 << 20,
        meaning: "buckets beyond which a shard does not grow; a power of two, at most 2^24",
    },
    Setting {
        name: "scope",
        default: 16,
        meaning: "buckets in which a key may lie, from its home on; 1 to 1024",
    },
    Setting {
        name: "bucket_slots",
        default: SLOTS as u64,
        meaning: "slots of a bucket that are used, one of them for updates; 2 to 14",
    },
    Setting {
        name: "gc_probes",
        default: 8,
        meaning: "buckets of an insert's search from which on it collects deleted slots; \
                  1 to 2^20, beyond scope for never",
    },
    Setting {
        name: "page_bytes",
        default: 64 << 10,
        meaning: "page of the record heap; a power of two, 256 to 2^20 bytes",
    },
    Setting {
        name: "lanes",
        default: 64,
        meaning: "notes of writers, for recovery from the end of a process; 0 to 1024, \
                  0 = recovery makes the whole pool durable instead",
    },
];

/// Pairs for each bucket of a table that shall take a number of them without growing.
///
/// Unit: pairs. Source: ours; a path of 16 buckets has 208 slots and 136 pairs on average, whose
/// standard deviation is 11.7: one path in a billion gets more than it holds.
const PAIRS_PER_BUCKET: f64 = 8.5;

/// Buckets of a shard in a table that is sized for its pairs.
///
/// Unit: buckets. Source: ours, where TurboHash 4.7 has 16; with a line of DRAM for each shard, ten
/// million pairs have 1.2 MB of them, which stay in the second cache of a core, and not 4.7 MB.
const SIZED_BUCKETS: u64 = 64;

/// The fewest buckets of a shard, and the fewest shards, in a table that is sized for its pairs.
///
/// Unit: buckets; shards. Source: ours; a shorter path than the scope fills up by chance.
const LEAST: u64 = 16;

impl TurboSettings {
    fn field(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "shards" => &mut self.shards,
            "buckets_per_shard" => &mut self.buckets_per_shard,
            "max_buckets" => &mut self.max_buckets,
            "scope" => &mut self.scope,
            "bucket_slots" => &mut self.bucket_slots,
            "gc_probes" => &mut self.gc_probes,
            "page_bytes" => &mut self.page_bytes,
            "lanes" => &mut self.lanes,
            _ => return None,
        })
    }

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

    /// Returns settings for a table that takes `items` pairs without growing.
    pub fn sized_for(items: u64) -> Self {
        let shards = (items as f64 / (PAIRS_PER_BUCKET * SIZED_BUCKETS as f64)).ceil() as u64;
        let shards = shards.clamp(LEAST, MOST_SHARDS);
        let buckets = (items as f64 / (PAIRS_PER_BUCKET * shards as f64)).ceil() as u64;
        TurboSettings {
            shards,
            buckets_per_shard: buckets.next_power_of_two().max(LEAST),
            ..TurboSettings::default()
        }
    }

    /// Returns the settings as words, in the order of the root.
    fn words(&self) -> [u64; Root::DIRECTORY] {
        [
            VERSION,
            self.shards,
            self.buckets_per_shard,
            self.max_buckets,
            self.scope,
            self.bucket_slots,
            self.gc_probes,
            self.page_bytes,
            self.lanes,
        ]
    }

    /// Returns the settings in the first words of a root.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not match their checksum; [`Error::Unsupported`] if they are
    /// of another version.
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<Self> {
        if root_checksum(root) != root[Root::CHECKSUM] {
            let at = ROOT.plus(Root::CHECKSUM as u64).byte();
            return Err(Error::Corrupt { at, broken: "the checksum of the settings matches" });
        }
        let version = root[Root::VERSION];
        if version != VERSION {
            let what = format!("layout {version} of engine turbo; open with a newer program");
            return Err(Error::Unsupported { what });
        }
        let settings = TurboSettings {
            shards: root[Root::SHARDS],
            buckets_per_shard: root[Root::BUCKETS],
            max_buckets: root[Root::MAX_BUCKETS],
            scope: root[Root::SCOPE],
            bucket_slots: root[Root::BUCKET_SLOTS],
            gc_probes: root[Root::GC_PROBES],
            page_bytes: root[Root::PAGE_BYTES],
            lanes: root[Root::LANES],
        };
        settings.check_all()?;
        Ok(settings)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check_all(&self) -> Result<()> {
        let mut copy = *self;
        for setting in ALL {
            let value = *copy.field(setting.name).expect("every setting has a field");
            check(setting, value)?;
        }
        if self.buckets_per_shard > self.max_buckets {
            let why = "there are at most max_buckets; lower it".into();
            return Err(Error::Setting { name: "buckets_per_shard", why });
        }
        Ok(())
    }
}

impl Settings for TurboSettings {
    const ALL: &'static [Setting] = ALL;

    fn get(&self, name: &str) -> Option<u64> {
        let mut copy = *self;
        copy.field(name).map(|value| *value)
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        let setting = ALL.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| Self::unknown(name))?;
        check(setting, value)?;
        *self.field(name).expect("every setting has a field") = value;
        Ok(())
    }
}

fn check(setting: &Setting, value: u64) -> Result<()> {
    let sound = match setting.name {
        "shards" => (1..=MOST_SHARDS).contains(&value),
        "buckets_per_shard" | "max_buckets" => value.is_power_of_two() && value <= 1 << BUCKET_BITS,
        "scope" => (1..=1024).contains(&value),
        "bucket_slots" => (2..=SLOTS as u64).contains(&value),
        "gc_probes" => (1..=1 << 20).contains(&value),
        "page_bytes" => value.is_power_of_two() && (256..=1 << 20).contains(&value),
        _ => value <= 1024,
    };
    let wrong = || format!("{value} is out of range; {}", setting.meaning);
    if sound { Ok(()) } else { Err(Error::Setting { name: setting.name, why: wrong() }) }
}

fn root_checksum(root: &[u64]) -> u64 {
    let bytes: Vec<u8> = root[..Root::CHECKSUM].iter().flat_map(|w| w.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, ROOT.byte())
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
    root[..Root::DIRECTORY].copy_from_slice(&settings.words());
    root[Root::DIRECTORY] = directory.start.byte();
    root[Root::CHECKSUM] = root_checksum(&root);
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
        words[Descriptor::VERSION] = layout::seal_version(0, at);
        words[Descriptor::SETS] = place(shard).seal(layout::set_at(at, 0));
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
        words[Bucket::META] = Meta::first(0).seal([0; 2], at);
        pm.write_words(at, &words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_read_and_set_and_refuses_nonsense() {
        // Fails if a setting is listed and not there, or takes a value that breaks the table.
        let mut settings = TurboSettings::default();
        for setting in TurboSettings::ALL {
            assert_eq!(settings.get(setting.name), Some(setting.default), "{}", setting.name);
            assert!(settings.set(setting.name, u64::MAX).is_err());
            settings.set(setting.name, setting.default).unwrap();
        }
        let error = settings.set("shrads", 1).unwrap_err().to_string();
        assert!(error.contains("buckets_per_shard"), "{error}");
        assert_eq!(settings, TurboSettings::default());
        settings.buckets_per_shard = 2 * settings.max_buckets;
        assert!(settings.check_all().is_err());
    }

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
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost on the way, or if a flipped bit is believed.
        let settings = TurboSettings { lanes: 3, gc_probes: 77, ..TurboSettings::tiny() };
        let mut root = [0; Root::CHECKSUM + 1];
        root[..Root::DIRECTORY].copy_from_slice(&settings.words());
        root[Root::DIRECTORY] = 8192;
        root[Root::CHECKSUM] = root_checksum(&root);
        assert_eq!(TurboSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(TurboSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }
}
