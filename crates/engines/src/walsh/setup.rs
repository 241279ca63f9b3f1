//! An empty table: its settings, and how it is written.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Addr, Domain, Guarantees, LINE, Media, Pool, Space, WORD, pool};

use super::layout::{
    self, AreaRecord, Info, MOST_ENTRIES, MOST_INDEX, MOST_LEVEL, MOST_LOG_BYTES, ROOT, Root, Tail,
    VERSION,
};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct WalshSettings {
        areas = 0, |value| value == 0 || value.is_power_of_two() && value <= 1 << 16,
            "log areas, a power of two to 65536; 0 = 512, 64 with epochs, 32 with durability 1";
        directories = 262_144, |value| value.is_power_of_two() && value <= 1 << 48,
            "directories of a new table; a power of two, at least areas (raised to it)";
        block_directories = 32, |value| value.is_power_of_two() && value <= 1024,
            "directories for which DRAM is taken at a time; a power of two, at most 1024";
        log_entries = 256, |value| (2..=MOST_ENTRIES).contains(&value),
            "most objects of a log; 2 to 4095";
        log_bytes = 6144,
            |value| value.is_multiple_of(8) && (128..=MOST_LOG_BYTES).contains(&value),
            "room for objects in a log; 128 bytes to 256 KiB, a multiple of 8";
        threshold = 4, |value| (2..=64).contains(&value),
            "average length of chains at which an area is rehashed; 2 to 64";
        durability = 0, |value| value <= 1,
            "0 = batches of flush_interval_ms and flush_bytes, 1 = every write";
        flush_interval_ms = 5000, |value| (1..=86_400_000).contains(&value),
            "age at which a log is flushed although it is not full; 1 ms to 1 day";
        flush_bytes = 3 << 20, |value| (128..=1 << 40).contains(&value),
            "most that a power loss takes back of batches; 128 bytes to 1 TiB";
        epochs = 0, |value| value <= 1,
            "0 = batches of all areas end together on files, 1 = on every medium";
        resize = 2, |value| value <= 2,
            "0 = never, 1 = under the area's lock, 2 = in four phases; 0 and 1 to compare";
    }
}

/// Log areas of a table that collects batches.
///
/// Unit: areas. Source: WALSH 4, the settings of WALSH.
const AREAS: u64 = 512;

/// Log areas of a table whose writes are durable at once.
///
/// Unit: areas. Source: WALSH 4, the settings of WALSH-WAL.
const IMMEDIATE_AREAS: u64 = 32;

/// Log areas of a table whose areas share epochs: on a file.
///
/// Unit: areas. Source: ours; the pages in which the logs of all areas end are written with every
/// epoch. In a file of five million pairs the system was given 371 bytes for each with 512 areas,
/// 130 with 64, and 107 with 16.
const EPOCH_AREAS: u64 = 64;

impl WalshSettings {
    /// What judges change in [`WalshSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] = &[
        &[("durability", 1)],
        &[("resize", 1)],
        &[("resize", 0), ("threshold", 16)],
        &[("areas", 8), ("log_entries", 2), ("log_bytes", 128)],
        &[("epochs", 1)],
    ];

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
        let areas = if directories < AREAS { directories } else { defaults.areas };
        // Most directories will be needed: with large blocks their index stays in a near cache.
        let block_directories = (directories / AREAS).clamp(defaults.block_directories, 256);
        WalshSettings { directories, areas, block_directories, ..defaults }
    }

    /// Returns whether areas share epochs on a medium.
    pub(super) fn shares_epochs(&self, guarantees: Guarantees) -> bool {
        let only_syncs = matches!(guarantees.domain, Domain::Process | Domain::Synced);
        self.durability == 0 && (only_syncs || self.epochs == 1)
    }

    /// Returns the settings with the number of areas that follows the medium.
    fn on_medium(self, guarantees: Guarantees) -> Self {
        self.with_areas(self.shares_epochs(guarantees))
    }

    /// Returns how long the pool of an empty table is at least on a medium. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn bytes_needed(&self, guarantees: Guarantees) -> Result<u64> {
        let settings = self.on_medium(guarantees);
        settings.check_all()?;
        let table = (settings.areas * AreaRecord::BYTES as u64).next_multiple_of(LINE);
        Ok(pool::DATA.byte() + table + settings.first_room())
    }

    /// Returns how much room a new table leaves free: an open demands that the indexes of all
    /// directories are in proportion to the medium, and that an ordinary log is no longer than it.
    /// Unit: bytes.
    fn first_room(&self) -> u64 {
        let blocks = (self.directories / self.block_directories).max(self.areas);
        let log_bytes = layout::log_bytes(self.log_entries, self.log_bytes / WORD);
        log_bytes.max(blocks.div_ceil(MOST_INDEX) * WORD).next_multiple_of(LINE)
    }

    /// Returns the settings with a number of areas; `share_epochs` says whether they do.
    fn with_areas(self, share_epochs: bool) -> Self {
        let areas = match self.areas {
            0 if share_epochs => EPOCH_AREAS,
            0 if self.durability == 1 => IMMEDIATE_AREAS,
            0 => AREAS,
            areas => areas,
        };
        WalshSettings { areas, directories: self.directories.max(areas), ..self }
    }

    /// Returns the number of directories of a new area, as a base-2 logarithm.
    pub fn level(&self) -> u32 {
        (self.directories / self.areas).ilog2()
    }

    /// Returns what an ordinary log takes in a pool of a form.
    pub fn ordinary_log(&self, form: Form) -> OrdinaryLog {
        let most = self.log_bytes / WORD;
        let least = object_head_words(form) + layout::seal_words(self.durability);
        let (entries, object_words) = match form {
            Form::Variable => (self.log_entries, most),
            Form::Fixed { .. } => {
                let words = most.min(self.log_entries * least);
                ((words / least).max(1), words)
            }
        };
        let bytes = layout::log_bytes(entries, object_words);
        OrdinaryLog { entries, object_words, bytes }
    }

    /// Returns the settings in the words of a root, and where the area table begins.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`].
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<(Self, Addr)> {
        settings::verify(ROOT, root, "walsh", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the area table");
        let settings = WalshSettings::from_words(*words);
        settings.check_all()?;
        let broken = "an address is a multiple of eight";
        let table = Addr::from_medium(root[Root::AREA_TABLE]);
        Ok((settings, table.ok_or(Error::Corrupt { at: ROOT.byte(), broken })?))
    }

    /// Returns the first words of a root: version, settings, area table, checksum.
    fn root(&self, table: Addr) -> [u64; Root::CHECKSUM + 1] {
        let mut root = [VERSION; Root::CHECKSUM + 1];
        root[1..Root::AREA_TABLE].copy_from_slice(&self.words());
        root[Root::AREA_TABLE] = table.byte();
        root[Root::CHECKSUM] = settings::checksum(ROOT, &root[..Root::CHECKSUM]);
        root
    }

    fn check_all(&self) -> Result<()> {
        self.check_each()?;
        if self.areas == 0 || self.directories < self.areas || self.level() > MOST_LEVEL {
            let why = "there is at least one for each area, and at most 2^32".into();
            return Err(Error::Setting { name: "directories", why });
        }
        Ok(())
    }
}

/// What a log takes that is no longer than usual.
#[derive(Clone, Copy, Debug)]
pub struct OrdinaryLog {
    /// The most objects.
    pub entries: u64,
    /// The room for them. Unit: words.
    pub object_words: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Returns the length of an object of a fixed form, or of the head of one of variable length.
/// Unit: words.
pub const fn object_head_words(form: Form) -> u64 {
    match form {
        Form::Fixed { key_bytes, value_bytes } => 1 + (key_bytes as u64 + value_bytes as u64) / 8,
        Form::Variable => layout::ObjectHead::WORDS as u64,
    }
}

/// Writes an empty table: areas without logs. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
    let settings = settings.on_medium(pool.region().media().guarantees());
    settings.check_all()?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let table = space.take(settings.areas * AreaRecord::BYTES as u64, LINE)?.span;
    let (pm, seed) = (pool.access(), layout::seed(pool.identity().database));
    for area in 0..settings.areas {
        let at = layout::area_record(table.start, area);
        let mut record = [0; AreaRecord::WORDS];
        for place in [AreaRecord::DURABLE_TAIL, AreaRecord::VISIBLE_TAIL, AreaRecord::CHECKPOINT] {
            record[place] = Tail::default().encode(at.plus(place as u64));
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
    space.give(space.take(settings.first_room(), LINE)?.span);
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root(table.start));
    root[Root::EPOCH] = layout::encode_epoch(0);
    Ok(pool.access().write_words(ROOT, &root)?)
}

const _: () = assert!(WalshSettings::COUNT + 1 == Root::AREA_TABLE, "they fill their place");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_directories_are_the_papers() {
        // Fails if an area of a new table has another share of the 262,144 directories.
        let batches = WalshSettings::default().with_areas(false);
        assert_eq!((batches.areas, 1 << batches.level()), (512, 262_144 / 512));
        let immediate = WalshSettings { durability: 1, ..WalshSettings::default() };
        let immediate = immediate.with_areas(false);
        assert_eq!((immediate.areas, 1 << immediate.level()), (32, 262_144 / 32));
    }
}
