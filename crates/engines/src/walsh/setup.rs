//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Form, Result, Setting, Settings};
use everhash_pmem::{Addr, LINE, Media, Pool, Space, Span, pool};

use super::layout::{
    self, AreaRecord, Info, MOST_ENTRIES, MOST_LEVEL, MOST_LOG_BYTES, ROOT, Root, Tail, VERSION,
};

/// The settings of a new table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalshSettings {
    /// Log areas: parts of the table that are written, flushed and rehashed independently.
    pub areas: u64,
    /// Directories of a new table, all areas together.
    pub directories: u64,
    /// Directories of a block, the unit in which DRAM is taken.
    pub block_directories: u64,
    /// Most objects of a log.
    pub log_entries: u64,
    /// Room for objects in a log. Unit: bytes.
    pub log_bytes: u64,
    /// Average length of an area's chains at which it is rehashed.
    pub threshold: u64,
    /// 0 = batches, 1 = every write is durable when it returns.
    pub durability: u64,
    /// Age at which a log is flushed although it is not full. Unit: milliseconds.
    pub flush_interval_ms: u64,
    /// Most objects that a power failure may take back of batches, all areas together. Unit:
    /// bytes.
    pub flush_bytes: u64,
    /// 0 = areas share epochs where only a sync makes anything durable, 1 = they always do: then a
    /// power failure leaves all of them as they were at one instant.
    pub epochs: u64,
    /// 0 = never, 1 = under the area's lock, 2 = in four phases.
    pub resize: u64,
}

const ALL: &[Setting] = &[
    Setting {
        name: "areas",
        default: 512,
        meaning: "log areas; a power of two, at most 65536; 32 for durability 1",
    },
    Setting {
        name: "directories",
        default: 262_144,
        meaning: "directories of a new table; a power of two, at least areas (raised to it)",
    },
    Setting {
        name: "block_directories",
        default: 32,
        meaning: "directories for which DRAM is taken at a time; a power of two, at most 1024",
    },
    Setting { name: "log_entries", default: 256, meaning: "most objects of a log; 2 to 4095" },
    Setting {
        name: "log_bytes",
        default: 6144,
        meaning: "room for objects in a log; 128 bytes to 256 KiB, a multiple of 8",
    },
    Setting {
        name: "threshold",
        default: 4,
        meaning: "average length of chains at which an area is rehashed; 2 to 64",
    },
    Setting {
        name: "durability",
        default: 0,
        meaning: "0 = batches of flush_interval_ms and flush_bytes, 1 = every write",
    },
    Setting {
        name: "flush_interval_ms",
        default: 5000,
        meaning: "age at which a log is flushed although it is not full; 1 ms to 1 day",
    },
    Setting {
        name: "flush_bytes",
        default: 3 << 20,
        meaning: "most that a power failure takes back of batches; 128 bytes to 1 TiB",
    },
    Setting {
        name: "epochs",
        default: 0,
        meaning: "0 = batches of all areas end together on files, 1 = on every medium",
    },
    Setting {
        name: "resize",
        default: 2,
        meaning: "0 = never, 1 = under the area's lock, 2 = in four phases; 0 and 1 to compare",
    },
];

impl Default for WalshSettings {
    fn default() -> Self {
        WalshSettings {
            areas: 512,
            directories: 262_144,
            block_directories: 32,
            log_entries: 256,
            log_bytes: 6144,
            threshold: 4,
            durability: 0,
            flush_interval_ms: 5000,
            flush_bytes: 3 << 20,
            epochs: 0,
            resize: 2,
        }
    }
}

impl WalshSettings {
    fn field(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "areas" => &mut self.areas,
            "directories" => &mut self.directories,
            "block_directories" => &mut self.block_directories,
            "log_entries" => &mut self.log_entries,
            "log_bytes" => &mut self.log_bytes,
            "threshold" => &mut self.threshold,
            "durability" => &mut self.durability,
            "flush_interval_ms" => &mut self.flush_interval_ms,
            "flush_bytes" => &mut self.flush_bytes,
            "epochs" => &mut self.epochs,
            "resize" => &mut self.resize,
            _ => return None,
        })
    }

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        WalshSettings {
            areas: 2,
            directories: 4,
            block_directories: 2,
            log_entries: 6,
            log_bytes: 192,
            threshold: 2,
            durability: 0,
            flush_interval_ms: 1000,
            flush_bytes: 512,
            epochs: 0,
            resize: 2,
        }
    }

    /// Returns settings for a table that takes `items` pairs without being rehashed.
    pub fn sized_for(items: u64) -> Self {
        let defaults = WalshSettings::default();
        // Areas differ: the fullest of 512 has some standard deviations more than the average.
        let directories = (items / (defaults.threshold - 1)).next_power_of_two();
        let directories = directories.clamp(64, 1 << 40);
        let areas = defaults.areas.min(directories);
        // Most directories will be needed: with large blocks their index stays in a near cache.
        let block_directories = (directories / areas).clamp(defaults.block_directories, 256);
        WalshSettings { directories, areas, block_directories, ..defaults }
    }

    /// Returns the number of directories of a new area, as a base-2 logarithm.
    pub fn level(&self) -> u32 {
        (self.directories / self.areas).ilog2()
    }

    /// Returns the settings in the words of a root, and where the area table begins.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`].
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<(Self, Addr)> {
        let corrupt = |broken| Error::Corrupt { at: ROOT.byte(), broken };
        if layout::sum(&root[..Root::CHECKSUM], ROOT.byte()) != root[Root::CHECKSUM] {
            return Err(corrupt("the checksum of the root matches"));
        }
        if root[Root::VERSION] != VERSION {
            let version = root[Root::VERSION];
            let what = format!("layout {version} of engine walsh; open with a newer program");
            return Err(Error::Unsupported { what });
        }
        let areas = root[Root::AREAS];
        let settings = WalshSettings {
            areas,
            directories: root[Root::DIRECTORIES].saturating_mul(areas),
            block_directories: root[Root::BLOCK_DIRECTORIES],
            log_entries: root[Root::LOG_ENTRIES],
            log_bytes: root[Root::LOG_BYTES],
            threshold: root[Root::THRESHOLD],
            durability: root[Root::DURABILITY],
            flush_interval_ms: root[Root::FLUSH_INTERVAL_MS],
            flush_bytes: root[Root::FLUSH_BYTES],
            epochs: root[Root::EPOCHS],
            resize: root[Root::RESIZE],
        };
        settings.check_all()?;
        let table = Addr::from_medium(root[Root::AREA_TABLE]);
        Ok((settings, table.ok_or_else(|| corrupt("an address is a multiple of eight"))?))
    }

    fn check_all(&self) -> Result<()> {
        let mut copy = *self;
        for setting in ALL {
            let value = *copy.field(setting.name).expect("every setting has a field");
            check(setting, value)?;
        }
        if self.directories < self.areas || self.level() > MOST_LEVEL {
            let why = "there is at least one for each area, and at most 2^32".into();
            return Err(Error::Setting { name: "directories", why });
        }
        Ok(())
    }
}

impl Settings for WalshSettings {
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
        "areas" => value.is_power_of_two() && value <= 1 << 16,
        "directories" => value.is_power_of_two() && value <= 1 << 48,
        "block_directories" => value.is_power_of_two() && value <= 1024,
        "log_entries" => (2..=MOST_ENTRIES).contains(&value),
        "log_bytes" => value.is_multiple_of(8) && (128..=MOST_LOG_BYTES).contains(&value),
        "threshold" => (2..=64).contains(&value),
        "durability" | "epochs" => value <= 1,
        "flush_interval_ms" => (1..=86_400_000).contains(&value),
        "flush_bytes" => (128..=1 << 40).contains(&value),
        _ => value <= 2,
    };
    let wrong = || format!("{value} is out of range; {}", setting.meaning);
    if sound { Ok(()) } else { Err(Error::Setting { name: setting.name, why: wrong() }) }
}

/// Returns the length of an object of a fixed form, or of the head of one of variable length.
/// Unit: words.
pub const fn object_head_words(form: Form) -> u64 {
    match form {
        Form::Fixed { key_bytes, value_bytes } => 1 + (key_bytes as u64 + value_bytes as u64) / 8,
        Form::Variable => layout::ObjectHead::WORDS as u64,
    }
}

/// Returns how long the pool of an empty table is. Unit: bytes. Logs come with the first writes.
pub const fn bytes_needed(settings: &WalshSettings) -> u64 {
    pool::DATA.byte() + settings.areas * AreaRecord::BYTES as u64
}

/// Writes an empty table: areas without logs. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
    let directories = settings.directories.max(settings.areas);
    let settings = WalshSettings { directories, ..*settings };
    settings.check_all()?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let table = space.take(settings.areas * AreaRecord::BYTES as u64, LINE)?.span;
    let (pm, seed) = (pool.access(), layout::seed(pool.identity().database));
    for area in 0..settings.areas {
        let at = layout::area_record(table.start, area);
        let mut record = [0; AreaRecord::WORDS];
        for place in [AreaRecord::TAIL, AreaRecord::LIVE] {
            record[place] = Tail::default().seal(at.plus(place as u64));
        }
        for (sequence, place) in [(1, AreaRecord::INFO_A), (0, AreaRecord::INFO_B)] {
            let mut info = [0; Info::WORDS];
            (info[Info::SEQUENCE], info[Info::START]) = (sequence, 1);
            info[Info::LEVEL] = settings.level().into();
            let info = layout::seal_head(info, at.plus(place as u64), seed);
            record[place..][..Info::WORDS].copy_from_slice(&info);
        }
        pm.write_words(at, &record)?;
    }
    write_root(pool, &settings, table)
}

fn write_root<M: Media>(pool: &Pool<M>, settings: &WalshSettings, table: Span) -> Result<()> {
    let mut root = [0; Root::WORDS];
    root[Root::VERSION] = VERSION;
    root[Root::AREAS] = settings.areas;
    root[Root::DIRECTORIES] = settings.directories / settings.areas;
    root[Root::BLOCK_DIRECTORIES] = settings.block_directories;
    root[Root::LOG_ENTRIES] = settings.log_entries;
    root[Root::LOG_BYTES] = settings.log_bytes;
    root[Root::THRESHOLD] = settings.threshold;
    root[Root::DURABILITY] = settings.durability;
    root[Root::FLUSH_INTERVAL_MS] = settings.flush_interval_ms;
    root[Root::RESIZE] = settings.resize;
    root[Root::FLUSH_BYTES] = settings.flush_bytes;
    root[Root::EPOCHS] = settings.epochs;
    root[Root::AREA_TABLE] = table.start.byte();
    root[Root::CHECKSUM] = layout::sum(&root[..Root::CHECKSUM], ROOT.byte());
    root[Root::EPOCH] = layout::seal_epoch(0);
    Ok(pool.access().write_words(ROOT, &root)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_read_and_set_and_refuses_nonsense() {
        // Fails if a setting is listed and not there, or takes a value that breaks the table.
        let mut settings = WalshSettings::default();
        for setting in WalshSettings::ALL {
            assert_eq!(settings.get(setting.name), Some(setting.default), "{}", setting.name);
            assert!(settings.set(setting.name, u64::MAX).is_err());
            settings.set(setting.name, setting.default).unwrap();
        }
        assert_eq!(settings, WalshSettings::default());
        assert!(WalshSettings::tiny().check_all().is_ok());
    }

    #[test]
    fn the_initial_directories_are_the_papers() {
        // Fails if an area of a new table has another share of the 262,144 directories.
        assert_eq!(1 << WalshSettings::default().level(), 262_144 / 512);
    }
}
