//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, LINE, Media, Pool, Site, Space, Span, WORD, pool};

use super::layout::{
    self, BUCKET_BYTES, Head, LINE_WORDS, Line, Listed, MOST_LOG, Place, ROOT, Root, SLOTS, VERSION,
};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct TieredSettings {
        layers = 2, |value| (2..=layout::MOST_LAYERS as u64).contains(&value),
            "layers of a table that does not grow; 2 to 4";
        ratio_log = 1, |value| (1..=6).contains(&value),
            "a layer has 2^n times the buckets of the one above; n, 1 to 6";
        top_pages = 64, |value| value.is_power_of_two() && value <= 1 << 24,
            "pages of the first top layer; a power of two, at most 2^24";
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
        fingerprints = 0, |value| value <= 2,
            "fingerprints in DRAM: 1 = of all slots, 2 = of all but the bottom layer, 0 = none";
    }
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
    pub fn sized_for(items: u64) -> Self {
        let mut settings = TieredSettings::default();
        while settings.top_pages < 1 << 24
            && u128::from(settings.slots()) * u128::from(SIZED_PERCENT) < u128::from(items) * 100
        {
            settings.top_pages *= 2;
        }
        settings
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
        if self.layer_log(self.layers - 1) > MOST_LOG {
            let why = "the bottom layer would have more than 2^40 buckets; lower it".into();
            return Err(Error::Setting { name: "top_pages", why });
        }
        Ok(())
    }
}

/// Returns how long the pool of an empty table is. Unit: bytes.
pub fn bytes_needed(settings: &TieredSettings) -> u64 {
    let layers = (0..settings.layers).map(|index| BUCKET_BYTES << settings.layer_log(index));
    pool::DATA.byte().next_multiple_of(settings.page_bytes) + layers.sum::<u64>()
}

/// Writes an empty table. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &TieredSettings) -> Result<()> {
    settings.check_all()?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let pm = pool.access();
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root());
    for index in 0..settings.layers as usize {
        let log = settings.layer_log(index as u64);
        let span = space.take(BUCKET_BYTES << log, settings.page_bytes)?.span;
        let place = Place { start: span.start, log };
        write_empty_lines(&pm, span, None)?;
        root[Root::PLACES + index] = Listed::Live(place).encode(layout::place_at(index));
    }
    Ok(pm.write_words(ROOT, &root)?)
}

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
    for index in 0..span.bytes() / LINE {
        let at = span.start.plus(index * (LINE / WORD));
        let words = empty_line(at);
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

    #[test]
    fn a_sized_table_has_room_for_its_items() {
        // Fails if a table that was made for n items grows while they are inserted.
        for items in [0, 1, 1000, 1 << 20, 10_000_000] {
            let settings = TieredSettings::sized_for(items);
            settings.check_all().unwrap();
            assert!(items * 100 <= settings.slots() * SIZED_PERCENT, "{items}");
        }
    }
}
