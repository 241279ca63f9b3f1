//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, Domain, Guarantees, LINE, Media, Pool, Site, Space, Span, WORD, pool};

use super::layout::{
    self, BUCKET_BYTES, Head, LINE_WORDS, Line, Listed, MOST_LOG, Place, ROOT, Root, SLOTS, VERSION,
};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct TieredSettings {
        layers = 0, |value| value == 0 || (2..=layout::MOST_LAYERS as u64).contains(&value),
            "layers of a table that does not grow; 2 to 4; 0: as fits the medium";
        ratio_log = 0, |value| value <= 6,
            "a layer has 2^n times the buckets of the one above; n, 1 to 6; 0: as fits the medium";
        top_pages = 0, |value| value == 0 || value.is_power_of_two() && value <= MOST_TOP_PAGES,
            "pages of the first top layer; a power of two to 2^24; 0: as fits the other layers";
        page_bytes = 4096, |value| value.is_power_of_two() && (128..=1 << 16).contains(&value),
            "page in which pairs are moved together; a power of two, 128 to 65536 bytes";
        line_slots = SLOTS as u64, |value| (1..=SLOTS as u64).contains(&value),
            "slots of a line that are used; 1 to 3";
        grow_percent = 80, |value| (10..=100).contains(&value),
            "load at which a layer is added; 10 to 100 percent";
        heap_page_bytes = 64 << 10,
            |value| value.is_power_of_two() && (512..=1 << 20).contains(&value),
            "page of the record heap; a power of two, 512 to 2^20 bytes";
        movement = 1, |value| value <= 1,
            "1 = opportunistic data movement, 0 = none but in growth";
        one_flush = 1, |value| value <= 1,
            "1 = moved pairs share the flush of the write that moves them, 0 = each has its own";
        shadow_reading = 1, |value| value <= 1,
            "1 = reads use the source of a moved pair, 0 = they go on to the lower layer";
        streams = 1, |value| value <= 1,
            "1 = a stream for each layer, 0 = one for all";
        fingerprints = AS_FITS, |value| value <= AS_FITS,
            "fingerprints in DRAM: 1 = of all slots, 2 = of upper layers, 0 = none; 3: as fits";
    }
}

/// The most pages of the first top layer.
///
/// Unit: pages. Source: ours; 64 GiB with the usual pages.
const MOST_TOP_PAGES: u64 = 1 << 24;

/// The setting of fingerprints that follows the medium.
///
/// Unit: none. Source: ours; 0 says that there are none.
const AS_FITS: u64 = 3;

/// The slots of a table of no known size.
///
/// Unit: slots. Source: ours; 64 pages of a top layer, and 128 below it.
const USUAL_SLOTS: u64 = 192 * 192;

/// The access unit of a medium on which pages count, from which on a table is steep.
///
/// Unit: bytes. Source: ours; a page of flash. There each write of a page at random costs others,
/// which a small top layer saves.
const COSTLY_BYTES: u64 = 4096;

/// Returns whether each bucket that is read, and each write at random, costs a page of a device: a
/// file's pages lie in memory.
pub fn costs_pages(guarantees: Guarantees) -> bool {
    let is_device = matches!(guarantees.domain, Domain::Adr | Domain::Eadr);
    is_device && guarantees.access_unit_bytes >= COSTLY_BYTES
}

/// The load for which a table of known size is made.
///
/// Unit: percent. Source: ours; below the load at which it grows, which spreads by chance.
const SIZED_PERCENT: u64 = 70;

impl TieredSettings {
    /// What judges change in [`TieredSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] = &[
        &[("movement", 0)],
        &[("one_flush", 0)],
        &[("shadow_reading", 0), ("fingerprints", 1)],
        &[("layers", 4), ("ratio_log", 2)],
        &[("line_slots", layout::SLOTS as u64)],
    ];

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        TieredSettings {
            layers: 2,
            ratio_log: 1,
            top_pages: 2,
            page_bytes: 256,
            line_slots: 1,
            grow_percent: 80,
            heap_page_bytes: 512,
            movement: 1,
            one_flush: 1,
            shadow_reading: 1,
            streams: 1,
            fingerprints: 0,
        }
    }

    /// Returns settings for a table that takes `items` pairs without growing.
    ///
    /// How many pages that are depends on the shape, which follows the medium. Until that is known,
    /// `top_pages` has the slots: more than there can be pages.
    pub fn sized_for(items: u64) -> Self {
        let slots = u128::from(items) * 100 / u128::from(SIZED_PERCENT) + 1;
        let slots = u64::try_from(slots).unwrap_or(u64::MAX).max(USUAL_SLOTS);
        let top_pages = MOST_TOP_PAGES.saturating_add(slots);
        TieredSettings { top_pages, ..TieredSettings::default() }
    }

    /// Returns the settings with those filled in that follow the medium.
    ///
    /// Where a write at random costs an access unit of 4 KiB or more, and others that the device
    /// moves for it, a table is steep: three layers each four times as large as the one above, and
    /// the heads of all but the bottom one in DRAM. In memory a second layer is a second search.
    pub(super) fn on_medium(mut self, guarantees: Guarantees) -> Self {
        let (layers, ratio_log, fingerprints) =
            if costs_pages(guarantees) { (3, 2, 2) } else { (2, 1, 0) };
        if self.layers == 0 {
            self.layers = layers;
        }
        if self.ratio_log == 0 {
            self.ratio_log = ratio_log;
        }
        if self.fingerprints == AS_FITS {
            self.fingerprints = fingerprints;
        }
        if self.top_pages == 0 {
            self.top_pages = MOST_TOP_PAGES + USUAL_SLOTS;
        }
        if let Some(slots @ 1..) = self.top_pages.checked_sub(MOST_TOP_PAGES) {
            self.top_pages = 1;
            // One step beyond the most says that there are not enough, and is refused.
            while self.top_pages <= MOST_TOP_PAGES && self.slots() < slots {
                self.top_pages *= 2;
            }
        }
        self
    }

    /// Returns the slots of a new table.
    pub fn slots(&self) -> u64 {
        (0..self.layers).map(|index| self.slots_of_log(self.layer_log(index))).sum()
    }

    /// Returns the slots of a layer of 2^`log` buckets.
    pub const fn slots_of_log(&self, log: u32) -> u64 {
        (layout::BUCKET_LINES * self.line_slots) << log
    }

    /// Returns the logarithm of the buckets of the layer that is added as number `index`.
    pub fn layer_log(&self, index: u64) -> u32 {
        let top = (self.top_pages * self.page_bytes / BUCKET_BYTES).ilog2();
        layout::layer_log(top, self.layers, self.ratio_log, index)
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
        settings::verify(ROOT, root, "tiered", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the checksum");
        let settings = TieredSettings::from_words(*words);
        settings.check_all()?;
        Ok(settings)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check_all(&self) -> Result<()> {
        self.check_each()?;
        let follows_medium = [self.layers, self.ratio_log, self.top_pages].contains(&0);
        if follows_medium || self.fingerprints == AS_FITS {
            let why = "what follows the medium is not filled in; name layers, ratio_log, \
                       top_pages and fingerprints"
                .into();
            return Err(Error::Setting { name: "layers", why });
        }
        if self.layer_log(self.layers - 1) > MOST_LOG {
            let why = "the bottom layer would have more than 2^40 buckets; lower it".into();
            return Err(Error::Setting { name: "top_pages", why });
        }
        Ok(())
    }

    /// Returns how long the pool of an empty table is on a medium. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn bytes_needed(&self, guarantees: Guarantees) -> Result<u64> {
        let settings = self.on_medium(guarantees);
        settings.check_all()?;
        Ok(bytes_needed(&settings))
    }
}

/// Returns how long the pool of an empty table is, whose settings are all filled in. Unit: bytes.
pub fn bytes_needed(settings: &TieredSettings) -> u64 {
    let layers = (0..settings.layers).map(|index| BUCKET_BYTES << settings.layer_log(index));
    pool::DATA.byte().next_multiple_of(settings.page_bytes) + layers.sum::<u64>()
}

/// Writes an empty table. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &TieredSettings) -> Result<()> {
    let settings = settings.on_medium(pool.region().media().guarantees());
    settings.check_all()?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let pm = pool.access();
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root());
    for index in 0..layout::PLACES {
        root[Root::PLACES + index] = Listed::Unused.encode(layout::place_at(index));
    }
    for index in 0..settings.layers as usize {
        let log = settings.layer_log(index as u64);
        let span = space.take(BUCKET_BYTES << log, settings.page_bytes)?.span;
        let place = Place::new(span.start, log);
        write_empty_lines(&pm, span, None)?;
        root[Root::PLACES + index] = Listed::Live(place).encode(layout::place_at(index));
    }
    Ok(pm.write_words(ROOT, &root)?)
}

/// Lines that are written by one call.
///
/// Unit: lines. Source: ours; a page. A flash device writes one for each call.
const LINES_AT_ONCE: u64 = 4096 / LINE;

/// Writes lines without pairs: their words may not stay zero, or a hole would pass for them. With a
/// site they are written past the caches, and the next fence of the access makes them durable.
///
/// # Errors
/// As the medium.
pub fn write_empty_lines<M: Media>(
    pm: &everhash_pmem::Access<'_, M>,
    span: Span,
    site: Option<Site>,
) -> Result<()> {
    let mut words = Vec::new();
    let count = span.bytes() / LINE;
    for first in (0..count).step_by(LINES_AT_ONCE as usize) {
        let line = |index: u64| span.start.plus(index * (LINE / WORD));
        let at = line(first);
        words.clear();
        words.extend((first..count.min(first + LINES_AT_ONCE)).flat_map(|i| empty_line(line(i))));
        match site {
            Some(site) => pm.write_words_nt(at, &words, site)?,
            None => pm.write_words(at, &words)?,
        }
    }
    Ok(())
}

/// Returns the words of a line at `at` without pairs and without a link.
pub fn empty_line(at: Addr) -> [u64; LINE_WORDS] {
    let mut words = [0; LINE_WORDS];
    words[Line::LINK] = layout::seal_link(Addr::NULL, at);
    words[Line::HEAD] = Head::EMPTY.encode(at);
    words
}

const _: () = assert!(TieredSettings::COUNT + 1 == Root::CHECKSUM, "they fill their place");

#[cfg(test)]
mod tests {
    use everhash_index::Settings;
    use everhash_pmem::crash::Model;

    use super::*;

    #[test]
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost on the way, or if a flipped bit goes unnoticed.
        let settings = TieredSettings { layers: 4, grow_percent: 77, ..TieredSettings::tiny() };
        let mut root = settings.root();
        assert_eq!(TieredSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(TieredSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }

    /// What media guarantee that write whole units, of so many bytes.
    fn writing_units(access_unit_bytes: u64) -> Guarantees {
        Guarantees { access_unit_bytes, ..Model::Adr.guarantees() }
    }

    fn shape(settings: TieredSettings) -> [u64; 3] {
        [settings.layers, settings.ratio_log, settings.fingerprints]
    }

    const FLAT: [u64; 3] = [2, 1, 0];
    const STEEP: [u64; 3] = [3, 2, 2];

    #[test]
    fn a_sized_table_has_room_for_its_items() {
        // Fails if a table that was made for n items grows while they are inserted, in either
        // shape, or if it is more than twice as large.
        for guarantees in [writing_units(256), writing_units(4096), Model::File.guarantees()] {
            for items in [0, 1, 1000, 1 << 20, 10_000_000] {
                let settings = TieredSettings::sized_for(items).on_medium(guarantees);
                settings.check_all().unwrap();
                let (room, least) = (settings.slots() * SIZED_PERCENT / 100, USUAL_SLOTS);
                assert!(items <= room, "{items}");
                assert!(room <= 2 * items.max(least), "{items}: {settings:?}");
            }
        }
    }

    #[test]
    fn a_table_is_steep_where_the_medium_writes_pages() {
        // Fails if a flash device gets the shape that suits memory, or memory or a file that of a
        // flash device.
        let flat = [64, 256, 2048].map(writing_units);
        let flat = flat.into_iter().chain([Model::File.guarantees()]);
        let steep = [4096, 1 << 14].map(writing_units).into_iter();
        let cases = flat.map(|medium| (medium, FLAT)).chain(steep.map(|medium| (medium, STEEP)));
        for (guarantees, expected) in cases {
            for settings in [TieredSettings::default(), TieredSettings::sized_for(1 << 20)] {
                let settings = settings.on_medium(guarantees);
                assert_eq!(shape(settings), expected, "{guarantees:?}");
                settings.check_all().unwrap();
            }
        }
        let flat = TieredSettings::default().on_medium(Model::File.guarantees());
        assert_eq!(flat.top_pages, 64);
    }

    #[test]
    fn what_is_named_is_kept_on_every_medium() {
        // Fails if the medium overrides a setting.
        for guarantees in [writing_units(4096), writing_units(256), Model::File.guarantees()] {
            for (name, value) in
                [("layers", 2), ("layers", 4), ("ratio_log", 1), ("ratio_log", 3), ("top_pages", 2)]
            {
                for sized in [TieredSettings::default(), TieredSettings::sized_for(1 << 20)] {
                    let mut settings = sized;
                    settings.set(name, value).unwrap();
                    let settings = settings.on_medium(guarantees);
                    settings.check_all().unwrap();
                    assert_eq!(settings.get(name), Some(value), "{guarantees:?}");
                }
            }
            for fingerprints in 0..=2 {
                let settings = TieredSettings { fingerprints, ..TieredSettings::default() };
                assert_eq!(settings.on_medium(guarantees).fingerprints, fingerprints);
            }
            assert_eq!(TieredSettings::tiny().on_medium(guarantees), TieredSettings::tiny());
        }
    }

    #[test]
    fn settings_that_no_table_can_have_are_refused() {
        // Fails if a limit is not enforced, or if what is just inside of one is refused.
        let most = MOST_TOP_PAGES;
        let limits: &[(&str, &[u64], &[u64])] = &[
            ("layers", &[2, 4], &[1, 5]),
            ("ratio_log", &[1, 6], &[7]),
            ("top_pages", &[1, most], &[3, most - 1, most * 2]),
            ("page_bytes", &[128, 1 << 16], &[64, 192, 1 << 17]),
            ("line_slots", &[1, 3], &[0, 4]),
            ("grow_percent", &[10, 100], &[9, 101]),
            ("heap_page_bytes", &[512, 1 << 20], &[256, 768, 1 << 21]),
            ("movement", &[0, 1], &[2]),
            ("one_flush", &[0, 1], &[2]),
            ("shadow_reading", &[0, 1], &[2]),
            ("streams", &[0, 1], &[2]),
            ("fingerprints", &[0, 2], &[4]),
        ];
        let is_refused = |name, value| {
            let mut settings = TieredSettings::tiny();
            settings.set(name, value).and_then(|()| settings.check_all()).is_err()
        };
        for (name, accepted, refused) in limits {
            accepted.iter().for_each(|value| assert!(!is_refused(name, *value), "{name}: {value}"));
            refused.iter().for_each(|value| assert!(is_refused(name, *value), "{name}: {value}"));
        }
        // 2^24 pages of 16 buckets, and three more layers, the last one 2^12 times as large.
        let top_pages = most;
        let large = TieredSettings { layers: 4, ratio_log: 4, top_pages, ..TieredSettings::tiny() };
        TieredSettings { page_bytes: 16 * BUCKET_BYTES, ..large }.check_all().unwrap();
        assert!(TieredSettings { page_bytes: 32 * BUCKET_BYTES, ..large }.check_all().is_err());
        let sized = TieredSettings::sized_for(u64::MAX).on_medium(writing_units(256));
        assert!(sized.check_all().is_err(), "there are no tables of that size");
    }

    #[test]
    fn settings_that_follow_the_medium_are_not_in_a_root() {
        // Fails if a forged root makes a table without layers.
        for settings in [
            TieredSettings::default(),
            TieredSettings { layers: 0, ..TieredSettings::tiny() },
            TieredSettings { ratio_log: 0, ..TieredSettings::tiny() },
            TieredSettings { top_pages: 0, ..TieredSettings::tiny() },
            TieredSettings { fingerprints: AS_FITS, ..TieredSettings::tiny() },
            TieredSettings::sized_for(1000),
        ] {
            assert!(TieredSettings::from_root(&settings.root()).is_err(), "{settings:?}");
        }
    }
}
