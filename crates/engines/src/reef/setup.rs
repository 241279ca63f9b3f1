//! An empty table: its settings, and how it is written.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Media, Pool, pool};

use super::layout::{self, Epoch, LEAST_UNIT_BYTES, MOST_STREAMS, ROOT, Root, VERSION};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct ReefSettings {
        streams = 4, |value| value.is_power_of_two() && value <= MOST_STREAMS,
            "streams of segments, a power of two to 32; writers of different ones never meet";
        shards = 256, |value| value.is_power_of_two() && value <= 1024,
            "shards of the directory, a power of two to 1024; at least streams (raised to it)";
        buckets = 4096, |value| value.is_power_of_two() && value <= 1 << 40,
            "buckets of a new directory, a power of two; at least shards (raised to it)";
        segment_bytes = 4 << 20,
            |value| value.is_power_of_two() && (LEAST_UNIT_BYTES..=1 << 30).contains(&value),
            "length of a segment of a large table, a power of two; 256 bytes to 1 GiB";
        durability = 0, |value| value <= 1,
            "0 = batches of flush_interval_ms and flush_bytes, 1 = every write";
        flush_interval_ms = 5000, |value| (1..=86_400_000).contains(&value),
            "age at which an epoch ends; 1 ms to 1 day";
        flush_bytes = 32 << 20, |value| (128..=1 << 40).contains(&value),
            "most that power loss takes back of batches; 128 bytes to 1 TiB";
        run_bytes = 4096, |value| value % 8 == 0 && value <= 1 << 20,
            "what a thread takes of a segment where several write one stream; 0 = nothing";
    }
}

/// Slots of a bucket of the directory.
///
/// Unit: slots. Source: ours; a cache line of words.
pub const BUCKET_SLOTS: u64 = 8;

impl ReefSettings {
    /// What judges change in [`ReefSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] = &[
        &[("durability", 1)],
        &[("streams", 1), ("shards", 1), ("buckets", 1)],
        &[("segment_bytes", 256), ("flush_bytes", 128)],
        Self::WITH_RUNS,
    ];

    /// With these, threads that write by turns meet segments that are long enough for runs.
    pub const WITH_RUNS: &[(&str, u64)] =
        &[("streams", 1), ("segment_bytes", 32 << 10), ("flush_bytes", 2048)];

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        ReefSettings {
            streams: 2,
            shards: 2,
            buckets: 4,
            segment_bytes: 1024,
            durability: 0,
            flush_interval_ms: 1000,
            flush_bytes: 512,
            run_bytes: 192,
        }
    }

    /// Returns settings for a table whose directory takes `items` pairs without growing.
    pub fn sized_for(items: u64) -> Self {
        let defaults = ReefSettings::default();
        // Of 5/7 of so many the directory is made, or of a few more.
        let buckets = (items.saturating_mul(5) / (3 * BUCKET_SLOTS)).max(1).next_power_of_two();
        ReefSettings { buckets: buckets.clamp(defaults.buckets, 1 << 40), ..defaults }
    }

    /// Returns the number of buckets of a new shard, as a base-2 logarithm.
    pub fn level(&self) -> u32 {
        (self.buckets / self.shards).ilog2()
    }

    /// Returns how long a unit is. Unit: bytes.
    pub fn unit_bytes(&self) -> u64 {
        layout::unit_bytes(self.segment_bytes)
    }

    /// Returns the settings in the words of a root.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`].
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<Self> {
        settings::verify(ROOT, root, "reef", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the checksum");
        let settings = ReefSettings::from_words(*words);
        settings.check_all().map_err(|_| Error::Corrupt {
            at: ROOT.byte(),
            broken: "the settings of a table are possible ones",
        })?;
        Ok(settings)
    }

    /// Returns how long the pool of an empty table is, which has no segments. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn bytes_needed(&self) -> Result<u64> {
        self.raised().check_all()?;
        Ok(pool::DATA.byte())
    }

    fn check_all(&self) -> Result<()> {
        self.check_each()?;
        let fits = self.shards >= self.streams && self.buckets >= self.shards;
        if !fits || self.level() > 30 {
            let why = "there is one for each stream, and at most 2^30 buckets for each".into();
            return Err(Error::Setting { name: "shards", why });
        }
        Ok(())
    }

    fn raised(self) -> Self {
        let shards = self.shards.max(self.streams);
        ReefSettings { shards, buckets: self.buckets.max(shards), ..self }
    }
}

/// Writes an empty table: no segments, and the commit record of epoch 0. Durable when the pool's
/// header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &ReefSettings) -> Result<()> {
    let settings = settings.raised();
    settings.check_all()?;
    let mut root = [0; Root::WORDS];
    root[Root::VERSION] = VERSION;
    root[1..Root::CHECKSUM].copy_from_slice(&settings.words());
    root[Root::CHECKSUM] = settings::checksum(ROOT, &root[..Root::CHECKSUM]);
    let seed = layout::seed(pool.identity().database);
    let epoch = &mut root[Root::EPOCH_A..][..Epoch::WORDS];
    epoch[Epoch::CHECKSUM] = layout::sum(&epoch[..Epoch::CHECKSUM], layout::epoch_place(0), seed);
    Ok(pool.access().write_words(ROOT, &root)?)
}

/// Returns the lengths of keys and values of a fixed form. Unit: words.
pub const fn fixed_words(form: Form) -> (usize, usize) {
    match form {
        Form::Fixed { key_bytes, value_bytes } => {
            (key_bytes as usize / 8, value_bytes as usize / 8)
        }
        Form::Variable => (0, 0),
    }
}

const _: () = assert!(ReefSettings::COUNT + 1 == Root::CHECKSUM, "they fill their place");
