//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Form as PairForm, Result, Setting, Settings};
use everhash_pmem::{Addr, LINE, Media, Pool, Space, Span, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{self, EXTENTS, Kind, MOST_BUCKETS, ROOT, Root, Token, VERSION};

/// The settings of a new table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WophiSettings {
    /// Main buckets of a new table, a power of two.
    pub initial_buckets: u64,
    /// Locks, a power of two, at most `initial_buckets`.
    pub stripes: u64,
    /// Neighbouring buckets that split together, a power of two.
    pub group_buckets: u64,
    /// Main buckets per pre-allocated bucket.
    pub pab_divisor: u64,
    /// Load at which the table begins to double.
    pub grow_percent: u64,
    /// Page of the record heap, a power of two. Unit: bytes.
    pub page_bytes: u64,
    /// 1 = the slots of a bucket are used in turn, 0 = always the first free one.
    pub rotate: u64,
}

impl Default for WophiSettings {
    fn default() -> Self {
        WophiSettings {
            initial_buckets: 4096,
            stripes: 4096,
            group_buckets: 8,
            pab_divisor: 4,
            grow_percent: 75,
            page_bytes: 64 << 10,
            rotate: 1,
        }
    }
}

const ALL: &[Setting] = &[
    Setting {
        name: "initial_buckets",
        default: 4096,
        meaning: "main buckets of a new table; a power of two, at most 2^40",
    },
    Setting {
        name: "stripes",
        default: 4096,
        meaning: "locks; a power of two, at most initial_buckets (lowered to it)",
    },
    Setting {
        name: "group_buckets",
        default: 8,
        meaning: "neighbouring buckets that split together; a power of two, at most 64",
    },
    Setting {
        name: "pab_divisor",
        default: 4,
        meaning: "main buckets per pre-allocated bucket; 1 to 1024",
    },
    Setting {
        name: "grow_percent",
        default: 75,
        meaning: "load at which the table begins to double; 10 to 1000 percent of all main slots",
    },
    Setting {
        name: "page_bytes",
        default: 64 << 10,
        meaning: "page of the record heap; a power of two, 256 to 2^20 bytes",
    },
    Setting {
        name: "rotate",
        default: 1,
        meaning: "1 = the slots of a bucket are used in turn, 0 = always the first free one",
    },
];

impl WophiSettings {
    fn field(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "initial_buckets" => &mut self.initial_buckets,
            "stripes" => &mut self.stripes,
            "group_buckets" => &mut self.group_buckets,
            "pab_divisor" => &mut self.pab_divisor,
            "grow_percent" => &mut self.grow_percent,
            "page_bytes" => &mut self.page_bytes,
            "rotate" => &mut self.rotate,
            _ => return None,
        })
    }

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

    /// Returns settings for a table that takes `items` pairs without growing.
    pub fn sized_for(form: PairForm, items: u64) -> Self {
        let defaults = WophiSettings::default();
        let per_bucket = slots(form) * defaults.grow_percent;
        // One more, because growth begins when the load is reached, and not beyond it.
        let buckets = ((items + 1) * 100).div_ceil(per_bucket).next_power_of_two();
        let initial_buckets = buckets.clamp(64, 1 << 40);
        let stripes = defaults.stripes.min(initial_buckets);
        WophiSettings { initial_buckets, stripes, ..defaults }
    }

    /// Returns the settings as words, in the order of the root.
    fn words(&self) -> [u64; Root::CHECKSUM] {
        [
            VERSION,
            self.initial_buckets,
            self.stripes,
            self.group_buckets,
            self.pab_divisor,
            self.grow_percent,
            self.page_bytes,
            self.rotate,
        ]
    }

    /// Returns the settings in the first words of a root.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not match their checksum; [`Error::Unsupported`] if they are
    /// of another version.
    pub fn from_root(words: &[u64; Root::CHECKSUM + 1]) -> Result<Self> {
        let (words, checksum) =
            (words.first_chunk().expect("eight of nine"), words[Root::CHECKSUM]);
        if settings_checksum(words) != checksum {
            let at = ROOT.plus(Root::CHECKSUM as u64).byte();
            return Err(Error::Corrupt { at, broken: "the checksum of the settings matches" });
        }
        let [version, initial_buckets, stripes, group_buckets, pab_divisor, ..] = *words;
        if version != VERSION {
            let what = format!("layout {version} of engine wophi; open with a newer program");
            return Err(Error::Unsupported { what });
        }
        let [.., grow_percent, page_bytes, rotate] = *words;
        let settings = WophiSettings {
            initial_buckets,
            stripes,
            group_buckets,
            pab_divisor,
            grow_percent,
            page_bytes,
            rotate,
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
        if self.stripes > self.initial_buckets {
            let why = "there are at most as many as initial_buckets; lower it".into();
            return Err(Error::Setting { name: "stripes", why });
        }
        Ok(())
    }
}

impl Settings for WophiSettings {
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
        "initial_buckets" | "stripes" => value.is_power_of_two() && value <= 1 << 40,
        "group_buckets" => value.is_power_of_two() && value <= 64,
        "pab_divisor" => (1..=1024).contains(&value),
        "grow_percent" => (10..=1000).contains(&value),
        "page_bytes" => value.is_power_of_two() && (256..=1 << 20).contains(&value),
        _ => value <= 1,
    };
    let wrong = || format!("{value} is out of range; {}", setting.meaning);
    if sound { Ok(()) } else { Err(Error::Setting { name: setting.name, why: wrong() }) }
}

fn settings_checksum(words: &[u64; Root::CHECKSUM]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, ROOT.byte())
}

/// Returns the slots of a bucket.
pub const fn slots(form: PairForm) -> u64 {
    match form {
        PairForm::DOUBLE_WORDS => 4,
        _ => 3,
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
    let settings =
        WophiSettings { stripes: settings.stripes.min(settings.initial_buckets), ..*settings };
    settings.check_all()?;
    let form = PairForm::from_code(pool.identity().form);
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let bytes = settings.initial_buckets * bucket_bytes(form);
    let main = space.take(bytes, LINE)?.span;
    let pab_count = layout::pab_buckets(settings.initial_buckets, settings.pab_divisor, 0);
    let pab = space.take(pab_count * bucket_bytes(form), LINE)?.span;
    write_buckets(pool, main, bucket_bytes(form))?;
    let mut root = [0; Root::WORDS];
    root[..Root::CHECKSUM].copy_from_slice(&settings.words());
    root[Root::CHECKSUM] = settings_checksum(&settings.words());
    for extent in 0..EXTENTS {
        let [main, pab] = if extent == 0 { [main.start, pab.start] } else { [Addr::NULL; 2] };
        root[Root::MAIN + extent] = layout::seal_link(main, layout::main_link(extent));
        root[Root::PAB + extent] = layout::seal_link(pab, layout::pab_link(extent));
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
        words[layout::TOKEN] = Token::empty(0).seal(at, Kind::Main);
        words[layout::NEXT] = layout::seal_link(Addr::NULL, at.plus(layout::NEXT as u64));
        pm.write_words(at, &words)?;
    }
    Ok(())
}

const _: () = assert!(MOST_BUCKETS > 1 << 40, "the largest initial table can double");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_read_and_set_and_refuses_nonsense() {
        // Fails if a setting is listed and not there, or takes a value that breaks the table.
        let mut settings = WophiSettings::default();
        for setting in WophiSettings::ALL {
            assert_eq!(settings.get(setting.name), Some(setting.default), "{}", setting.name);
            assert!(settings.set(setting.name, u64::MAX).is_err());
            settings.set(setting.name, setting.default).unwrap();
        }
        let error = settings.set("bukets", 1).unwrap_err().to_string();
        assert!(error.contains("initial_buckets"), "{error}");
        assert_eq!(settings, WophiSettings::default());
    }

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
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost on the way, or if a flipped bit is believed.
        let settings = WophiSettings { rotate: 0, ..WophiSettings::tiny() };
        let mut root = [0; Root::CHECKSUM + 1];
        root[..Root::CHECKSUM].copy_from_slice(&settings.words());
        root[Root::CHECKSUM] = settings_checksum(&settings.words());
        assert_eq!(WophiSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(WophiSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }
}
