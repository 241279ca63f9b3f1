//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Form as PairForm, Result};
use everhash_pmem::{Addr, LINE, Media, Pool, Space, Span, pool};

use super::layout::{self, EXTENTS, Kind, MOST_BUCKETS, ROOT, Root, Token, VERSION, slots};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct WophiSettings {
        initial_buckets = 4096, |value| value.is_power_of_two() && value <= 1 << 40,
            "main buckets of a new table; a power of two, at most 2^40";
        stripes = 4096, |value| value.is_power_of_two() && value <= 1 << 40,
            "locks; a power of two, at most initial_buckets (lowered to it)";
        group_buckets = 8, |value| value.is_power_of_two() && value <= 64,
            "neighbouring buckets that split together; a power of two, at most 64";
        pab_divisor = 4, |value| (1..=1024).contains(&value),
            "main buckets per pre-allocated bucket; 1 to 1024";
        grow_percent = 75, |value| (10..=1000).contains(&value),
            "load at which the table begins to double; 10 to 1000 percent of all main slots";
        page_bytes = 64 << 10, |value| value.is_power_of_two() && (256..=1 << 20).contains(&value),
            "page of the record heap; a power of two, 256 to 2^20 bytes";
        rotate = 1, |value| value <= 1,
            "1 = the slots of a bucket are used in turn, 0 = always the first free one";
    }
}

impl WophiSettings {
    /// What judges change in [`WophiSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] = &[
        &[("rotate", 0), ("group_buckets", 1)],
        &[("grow_percent", 1000), ("pab_divisor", 64)],
        &[("grow_percent", 10)],
    ];

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        WophiSettings {
            initial_buckets: 4,
            stripes: 2,
            group_buckets: 2,
            pab_divisor: 4,
            grow_percent: 75,
            page_bytes: 512,
            rotate: 1,
        }
    }

    /// Returns settings for a table that takes `items` pairs without growing, or for the largest
    /// one that there can be.
    pub fn sized_for(form: PairForm, items: u64) -> Self {
        let defaults = WophiSettings::default();
        let per_bucket = slots(form) * defaults.grow_percent;
        // One more, because growth begins when the load is reached, and not beyond it.
        let buckets = ((u128::from(items) + 1) * 100).div_ceil(per_bucket.into());
        let initial_buckets = (buckets.clamp(64, 1 << 40) as u64).next_power_of_two();
        let stripes = defaults.stripes.min(initial_buckets);
        WophiSettings { initial_buckets, stripes, ..defaults }
    }

    /// Returns the settings with as many stripes as there can be.
    fn with_stripes(self) -> Self {
        WophiSettings { stripes: self.stripes.min(self.initial_buckets), ..self }
    }

    /// Returns how long the pool of an empty table is. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn bytes_needed(&self, form: PairForm) -> Result<u64> {
        let settings = self.with_stripes();
        settings.check_all()?;
        Ok(bytes_needed(form, &settings))
    }

    /// Returns the first words of a root: version, settings, checksum.
    fn root(&self) -> [u64; Root::CHECKSUM + 1] {
        let mut root = [VERSION; Root::CHECKSUM + 1];
        root[1..Root::CHECKSUM].copy_from_slice(&self.words());
        root[Root::CHECKSUM] = settings::checksum(ROOT, &root[..Root::CHECKSUM]);
        root
    }

    /// Returns the settings in the first words of a root.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not match their checksum; [`Error::Unsupported`] if they are
    /// of another version.
    pub fn from_root(root: &[u64; Root::CHECKSUM + 1]) -> Result<Self> {
        settings::verify(ROOT, root, "wophi", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the checksum");
        let settings = WophiSettings::from_words(*words);
        settings.check_all()?;
        Ok(settings)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check_all(&self) -> Result<()> {
        self.check_each()?;
        if self.stripes > self.initial_buckets {
            let why = "there are at most as many as initial_buckets; lower it".into();
            return Err(Error::Setting { name: "stripes", why });
        }
        Ok(())
    }
}

/// Returns the length of a bucket. Unit: bytes.
pub const fn bucket_bytes(form: PairForm) -> u64 {
    match form {
        PairForm::DOUBLE_WORDS => layout::DoubleBucket::BYTES as u64,
        _ => layout::WordBucket::BYTES as u64,
    }
}

/// Returns how long the pool of an empty table is. Unit: bytes.
pub const fn bytes_needed(form: PairForm, settings: &WophiSettings) -> u64 {
    let pab = layout::pab_buckets(settings.initial_buckets, settings.pab_divisor, 0);
    pool::DATA.byte() + (settings.initial_buckets + pab) * bucket_bytes(form)
}

/// Writes an empty table. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &WophiSettings) -> Result<()> {
    let settings = settings.with_stripes();
    settings.check_all()?;
    let form = PairForm::from_code(pool.identity().form);
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let pab_count = layout::pab_buckets(settings.initial_buckets, settings.pab_divisor, 0);
    let counts = [settings.initial_buckets, pab_count];
    let at = space.take((counts[0] + counts[1]) * bucket_bytes(form), LINE)?.span.start;
    let [main, _] = layout::extent_spans(at, counts, bucket_bytes(form));
    write_buckets(pool, main, bucket_bytes(form))?;
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root());
    for extent in 0..EXTENTS {
        let target = if extent == 0 { main.start } else { Addr::NULL };
        root[Root::EXTENT + extent] = layout::encode_link(target, layout::extent_link(extent));
    }
    Ok(pool.access().write_words(ROOT, &root)?)
}

/// Writes empty main buckets: their words may not stay zero, or a hole would pass for one.
fn write_buckets<M: Media>(pool: &Pool<M>, main: Span, bucket_bytes: u64) -> Result<()> {
    let pm = pool.access();
    let bucket_words = bucket_bytes / 8;
    let mut words = vec![0; bucket_words as usize];
    for index in 0..main.words / bucket_words {
        let at = main.start.plus(index * bucket_words);
        words[layout::TOKEN] = Token::empty(0).encode(at, Kind::Main);
        words[layout::NEXT] = layout::encode_link(Addr::NULL, at.plus(layout::NEXT as u64));
        pm.write_words(at, &words)?;
    }
    Ok(())
}

const _: () = assert!(WophiSettings::COUNT + 1 == Root::CHECKSUM, "they fill their place");
const _: () = assert!(MOST_BUCKETS > 1 << 40, "the largest initial table can double");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sized_table_has_room_for_its_items() {
        // Fails if a table that was made for n items grows while they are inserted.
        for form in [PairForm::WORDS, PairForm::DOUBLE_WORDS, PairForm::Variable] {
            for items in [0, 1, 100, 1000, 12_345, 1 << 20] {
                let settings = WophiSettings::sized_for(form, items);
                let slots = settings.initial_buckets * slots(form);
                assert!(items * 100 < slots * settings.grow_percent, "{items} in {slots}");
            }
        }
    }

    #[test]
    fn a_table_for_more_pairs_than_there_can_be_is_as_large_as_one_can_be() {
        // Fails if the number of buckets overflows, in the settings or in what they take.
        for form in [PairForm::WORDS, PairForm::DOUBLE_WORDS, PairForm::Variable] {
            for items in (57..64).map(|bits| 1 << bits).chain([u64::MAX - 1, u64::MAX]) {
                let settings = WophiSettings::sized_for(form, items);
                settings.check_all().unwrap();
                assert_eq!(settings.initial_buckets, 1 << 40);
                assert!(bytes_needed(form, &settings) > 1 << 46);
            }
        }
    }

    #[test]
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost, or if a flipped bit goes unnoticed.
        let settings = WophiSettings { rotate: 0, ..WophiSettings::tiny() };
        let mut root = settings.root();
        assert_eq!(WophiSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(WophiSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }
}
