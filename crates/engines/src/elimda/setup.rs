//! An empty table: its settings, how many bytes it needs, and how it is written.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Domain, Guarantees, Media, Pool, Space, pool};

use super::layout::{
    self, BlockHead, Geometry, Kind, MOST_ACCESS_UNITS, MOST_BUCKETS, MOST_LANES, MOST_LOGS,
    MOST_SLOTS, MOST_UNITS, Prefix, ROOT, Root, SegmentHead, UNIT_BYTES, VERSION,
};
use crate::common::settings::{self, settings};

settings! {
    /// The settings of a new table.
    pub struct ElimDaSettings {
        unit_slots = 15, |value| (1..=MOST_SLOTS).contains(&value),
            "items of a unit; 2 to 15 (7 of 16-byte pairs); 1, with access_units 1: no DRAM table";
        buckets = 0, |value| value == 0 || value.is_power_of_two() && value <= MOST_BUCKETS,
            "buckets of a segment; a power of two, at most 256; 0: as fits the access unit";
        segment_units = 320, |value| (1..=MOST_UNITS).contains(&value),
            "units of a segment; buckets to 32768";
        bucket_units = 24, |value| value <= MOST_UNITS,
            "units of one bucket at most; to segment_units and 4 times the mean; 0: no relocation";
        initial_segments = 16, |value| value.is_power_of_two() && value <= 1 << 24,
            "segments of a new table; a power of two, at most 2^24";
        lanes = 8, |value| value.is_power_of_two() && value <= MOST_LANES,
            "lanes of the backup log; a power of two to 64, at most buckets (lowered to it)";
        block_lines = 128, |value| (2..=1 << 16).contains(&value),
            "lines of 64 bytes of a block of the backup log; 2 to 65536";
        log_percent = 150, |value| (100..=10_000).contains(&value),
            "slots of the backup log per slot of the DRAM table; 100 to 10000 percent";
        page_bytes = 64 << 10, |value| value.is_power_of_two() && (256..=1 << 20).contains(&value),
            "page of the record heap; a power of two, 256 to 2^20 bytes";
        collecting_logs = 8192, |value| value == 0 || value.is_power_of_two() && value <= MOST_LOGS,
            "logs before the backup log, if caches are durable; a power of two to 2^16, or 0";
        cached_log_kib = 16 << 10, |value| value <= 1 << 32,
            "backup log up to which durable caches keep it; a longer one is written back by units";
        access_units = 0,
            |value| value == 0 || value.is_power_of_two() && value <= MOST_ACCESS_UNITS,
            "units relocated as one; a power of two to 16; 0: an access unit of the medium";
    }
}

impl ElimDaSettings {
    /// What judges change in [`ElimDaSettings::tiny`] to meet the paths that other settings take.
    pub const VARIANTS: &[&[(&str, u64)]] = &[
        &[("collecting_logs", 0)],
        &[("bucket_units", 0)],
        &[("unit_slots", 1)],
        &[("lanes", 1), ("block_lines", 2)],
        &[("access_units", 2)],
    ];

    /// Returns settings so small that a few dozen operations reach every path.
    pub const fn tiny() -> Self {
        ElimDaSettings {
            unit_slots: 3,
            buckets: 2,
            segment_units: 8,
            bucket_units: 6,
            initial_segments: 1,
            lanes: 2,
            block_lines: 4,
            log_percent: 100,
            page_bytes: 512,
            collecting_logs: 2,
            cached_log_kib: 0,
            access_units: 1,
        }
    }

    /// Returns settings for a table that takes `items` pairs without growing; of more segments than
    /// there can be if that is needed, which are refused.
    pub fn sized_for(form: Form, items: u64) -> Self {
        let defaults = ElimDaSettings::default();
        // Segments of one age fill together; at three quarters none of them has overflowed.
        let slots = defaults.segment_units * unit_slots(form) * 3 / 4;
        let initial_segments = items.saturating_add(1).div_ceil(slots).next_power_of_two();
        // At most a sixteenth of the pairs wait in collecting logs.
        let collecting_logs = (items / 256).next_power_of_two().min(defaults.collecting_logs);
        ElimDaSettings { initial_segments, collecting_logs, ..defaults }
    }

    /// Returns the settings with those filled in that follow the access unit of the medium.
    ///
    /// A D-bucket fills an access unit. With pages of 4 KiB a segment has therefore fewer buckets,
    /// so that each takes several of them before it splits, and fewer lanes. On an ordinary file
    /// the system gathers what is written to a page, and long D-buckets only slow searches down.
    pub(super) fn on_medium(mut self, guarantees: Guarantees) -> Self {
        if self.access_units == 0 {
            let bytes = match guarantees.domain {
                Domain::Adr | Domain::Eadr => guarantees.access_unit_bytes,
                Domain::None | Domain::Process | Domain::Synced => UNIT_BYTES,
            };
            let units = (bytes / UNIT_BYTES).clamp(1, MOST_ACCESS_UNITS);
            self.access_units = 1 << units.ilog2();
        }
        if self.buckets == 0 {
            self.buckets = (MOST_RELOCATED / self.access_units).min(MOST_SHARING);
            if self.bucket_units > 0 {
                let shared = self.segment_units * 6 / 5 / self.buckets;
                let wanted = shared.next_multiple_of(self.access_units);
                self.bucket_units = self.bucket_units.max(wanted);
            }
        }
        self.lanes = self.lanes.min(self.buckets);
        self
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
        settings::verify(ROOT, root, "elimda", VERSION)?;
        let words = root[1..].first_chunk().expect("the settings lie before the checksum");
        let settings = ElimDaSettings::from_words(*words);
        settings.check_each()?;
        Ok(settings)
    }

    /// Returns the geometry of a table with pairs of `form`, all of whose settings are filled in.
    ///
    /// # Errors
    /// [`Error::Setting`] if the settings do not fit one another.
    pub fn geometry(&self, form: Form) -> Result<Geometry> {
        self.check_each()?;
        Geometry::of_root(&self.root(), form).ok_or_else(|| self.misfit())
    }

    /// Says which of the settings, each of which is possible, does not fit the others.
    fn misfit(&self) -> Error {
        let ElimDaSettings { buckets, segment_units, bucket_units, access_units, .. } = *self;
        let (name, why) = if segment_units < buckets || !segment_units.is_multiple_of(access_units)
        {
            let why =
                format!("a multiple of access_units, {access_units}, from buckets, {buckets}");
            ("segment_units", why)
        } else if self.lanes > buckets {
            ("lanes", format!("at most buckets, {buckets}"))
        } else if bucket_units < access_units {
            ("bucket_units", format!("0, or at least access_units, {access_units}"))
        } else {
            let most = segment_units.min(4 * segment_units / buckets);
            let why = format!(
                "at most {most} with {segment_units} segment_units for {buckets} buckets; lower \
                 it, or raise segment_units"
            );
            ("bucket_units", why)
        };
        Error::Setting { name, why }
    }
}

/// The most units of the D-buckets of a segment, if its buckets are not set.
///
/// Unit: units. Source: ours; with 320 units a segment, each bucket is relocated five times before
/// the segment splits.
const MOST_RELOCATED: u64 = 64;

/// The most buckets that share the units of a segment, if they are not set.
///
/// Unit: buckets. Source: ours; many small segments would each read and write alone.
const MOST_SHARING: u64 = 16;

const _: () = assert!(ElimDaSettings::COUNT + 1 == Root::CHECKSUM, "they fill their place");

/// Returns the items of a unit of the default length.
const fn unit_slots(form: Form) -> u64 {
    match form {
        Form::DOUBLE_WORDS => 7,
        _ => 15,
    }
}

/// Returns how long the medium of a table is, at least. Unit: bytes.
///
/// Beside the empty table it holds a spare segment and a spare block for each lane: a full table
/// needs both to go on once pairs are removed.
pub const fn bytes_needed(geometry: &Geometry) -> u64 {
    let align = geometry.align_bytes();
    let block_bytes = (geometry.block_lines * 64).next_multiple_of(align);
    pool::DATA.byte()
        + layout::extent_bytes(geometry.initial_segments, 0).next_multiple_of(align)
        + (geometry.initial_segments + 1) * geometry.segment_words() * 8
        + geometry.lanes * 2 * block_bytes
}

/// Writes an empty table. Durable when the pool's header is.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Full`].
pub fn format<M: Media>(pool: &Pool<M>, settings: &ElimDaSettings) -> Result<()> {
    let settings = settings.on_medium(pool.region().media().guarantees());
    let geometry = settings.geometry(Form::from_code(pool.identity().form))?;
    let space = Space::fresh(pool.region().clone(), pool::DATA);
    let pm = pool.access();
    let mut root = [0; Root::WORDS];
    root[..=Root::CHECKSUM].copy_from_slice(&settings.root());
    // Before the first segment is written: a table that does not fit must not fill the medium.
    let all = bytes_needed(&geometry) - pool::DATA.byte();
    space.give(space.take(all, geometry.align_bytes())?.span);
    let initial = geometry.initial_segments;
    let table = space.take(layout::extent_bytes(initial, 0), 64)?.span;
    pm.write_words(table.start, &vec![0; table.words as usize])?;
    root[Root::EXTENTS] = layout::seal(table.start.byte(), layout::extent_link(0), Kind::Extent);
    for index in 0..initial {
        let span = space.take(geometry.segment(pool::DATA).bytes(), geometry.align_bytes())?.span;
        let prefix = Prefix { depth: initial.ilog2(), bits: index };
        pm.write_words(span.start, &empty_segment(&geometry, span.start, prefix))?;
        let slot = table.start.plus(index);
        pm.store(slot, layout::seal(span.start.byte(), slot, Kind::Slot))?;
    }
    for lane in 0..geometry.lanes {
        let span = space.take(geometry.block(pool::DATA).bytes(), geometry.align_bytes())?.span;
        pm.write_words(span.start, &empty_block(&geometry, span.start, 1))?;
        let link = layout::first_link(lane);
        root[Root::FIRST + lane as usize] = layout::seal(span.start.byte(), link, Kind::First);
    }
    root[Root::ITEMS] = layout::seal(0, layout::ITEMS, Kind::Items);
    root[Root::UNITS] = layout::seal(0, layout::UNITS, Kind::Units);
    Ok(pm.write_words(ROOT, &root)?)
}

/// Returns the words of a segment at `at` that has absorbed nothing.
fn empty_segment(geometry: &Geometry, at: everhash_pmem::Addr, prefix: Prefix) -> Vec<u64> {
    let mut words = vec![0; geometry.segment_words() as usize];
    words[SegmentHead::PLACE] = prefix.seal(at);
    words[SegmentHead::LAP] = layout::seal(1, geometry.lap_at(at), Kind::Lap);
    for bucket in 0..geometry.buckets {
        let mark = geometry.watermark_at(at, bucket);
        words[(mark.word() - at.word()) as usize] = layout::seal(0, mark, Kind::Watermark);
    }
    words
}

/// Returns the words of an empty block at `at`, the last of its lane.
pub fn empty_block(geometry: &Geometry, at: everhash_pmem::Addr, number: u64) -> Vec<u64> {
    let mut words = vec![0; geometry.block(at).words as usize];
    words[..BlockHead::REST].copy_from_slice(&block_head(at, number));
    words
}

/// Returns the two words at the start of a block that is the last of its lane.
pub fn block_head(at: everhash_pmem::Addr, number: u64) -> [u64; BlockHead::REST] {
    let next = at.plus(BlockHead::NEXT as u64);
    [layout::seal(number, at, Kind::Number), layout::seal(0, next, Kind::Next)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use everhash_pmem::Image;
    use everhash_pmem::crash::Model;
    use everhash_testkit::session::Session;

    use super::*;
    use crate::elimda::ElimDa;

    #[test]
    fn settings_survive_the_root_and_damage_does_not_pass() {
        // Fails if a field is lost on the way, or if a flipped bit is believed.
        let settings = ElimDaSettings { log_percent: 200, ..ElimDaSettings::tiny() };
        let mut root = settings.root();
        assert_eq!(ElimDaSettings::from_root(&root).unwrap(), settings);
        for bit in 0..root.len() * 64 {
            root[bit / 64] ^= 1 << (bit % 64);
            assert!(ElimDaSettings::from_root(&root).is_err(), "bit {bit}");
            root[bit / 64] ^= 1 << (bit % 64);
        }
    }

    #[test]
    fn a_unit_fills_the_access_unit_of_the_device() {
        // Fails if a relocation would write a part of an access unit, or more than one.
        let units = [(64, 1), (256, 1), (512, 2), (2048, 8), (4096, 16), (1 << 14, 16)];
        for (form, slots) in [(Form::WORDS, 15), (Form::DOUBLE_WORDS, 7), (Form::Variable, 15)] {
            for (access_unit_bytes, units) in units {
                let guarantees = Guarantees { access_unit_bytes, ..Model::Adr.guarantees() };
                let settings = ElimDaSettings::default().on_medium(guarantees);
                let geometry = settings.geometry(form).unwrap();
                let unit = (geometry.unit_slots, geometry.unit_words() * 8, geometry.access_units);
                assert_eq!(unit, (slots, 256, units), "{form}, {access_unit_bytes}");
                assert_eq!(geometry.dram_slots(), slots * units);
                assert_eq!(geometry.align_bytes(), 256 * units);
            }
            let settings = ElimDaSettings::default().on_medium(Model::File.guarantees());
            assert_eq!(settings.geometry(form).unwrap().access_units, 1);
        }
    }

    #[test]
    fn settings_that_do_not_fit_one_another_are_refused() {
        // Fails if a table were made that cannot be opened, or if a pool at rest is read by such a
        // root.
        let sound = ElimDaSettings {
            buckets: 8,
            segment_units: 32,
            bucket_units: 16,
            access_units: 2,
            ..ElimDaSettings::default()
        };
        sound.geometry(Form::WORDS).unwrap();
        let wrong = [
            (ElimDaSettings { lanes: 16, ..sound }, "lanes: at most buckets, 8"),
            (ElimDaSettings { segment_units: 33, ..sound }, "segment_units: a multiple of"),
            (ElimDaSettings { bucket_units: 1, ..sound }, "bucket_units: 0, or at least"),
            (ElimDaSettings { bucket_units: 17, ..sound }, "bucket_units: at most 16 with 32 seg"),
            (
                ElimDaSettings { buckets: 1, lanes: 1, bucket_units: 34, ..sound },
                "bucket_units: at most 32 with 32 segment_units for 1 buckets",
            ),
            (
                ElimDaSettings { segment_units: 6, bucket_units: 2, ..sound },
                "segment_units: a multiple of access_units, 2, from buckets, 8",
            ),
            (
                ElimDaSettings { access_units: 32, segment_units: 64, bucket_units: 32, ..sound },
                "access_units",
            ),
            (ElimDaSettings { access_units: 0, ..sound }, "segment_units"),
            (ElimDaSettings { buckets: 0, ..sound }, "lanes"),
        ];
        for (wrong, why) in wrong {
            let refused = wrong.geometry(Form::WORDS).unwrap_err();
            assert!(matches!(refused, Error::Setting { .. }), "{refused}");
            assert!(refused.to_string().contains(why), "{refused}, {why}");
            assert_eq!(Geometry::of_root(&wrong.root(), Form::WORDS), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_table_has_no_more_lanes_than_buckets() {
        // Fails if whoever chooses few buckets is told of lanes, of which nothing was said.
        for buckets in [1, 4] {
            let few = ElimDaSettings { buckets, ..ElimDaSettings::default() };
            let settings = few.on_medium(Model::File.guarantees());
            assert_eq!(settings.geometry(Form::WORDS).unwrap().lanes, buckets);
        }
    }

    #[test]
    fn a_root_with_a_setting_out_of_range_is_refused() {
        // Fails if a setting that no geometry has is believed: pages of records have its length.
        for wrong in [
            ElimDaSettings { page_bytes: 0, ..ElimDaSettings::tiny() },
            ElimDaSettings { page_bytes: 1 << 21, ..ElimDaSettings::tiny() },
            ElimDaSettings { log_percent: 99, ..ElimDaSettings::tiny() },
            ElimDaSettings { cached_log_kib: u64::MAX, ..ElimDaSettings::tiny() },
        ] {
            assert!(ElimDaSettings::from_root(&wrong.root()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn settings_follow_the_access_unit_and_the_number_of_pairs() {
        // Fails if buckets that share the units of a segment may not have their share of them, or
        // if the collecting logs of a small table could hold all of it.
        let pages = Guarantees { access_unit_bytes: 4096, ..Model::Adr.guarantees() };
        let settings = ElimDaSettings::default().on_medium(pages);
        assert_eq!((settings.buckets, settings.lanes, settings.bucket_units), (4, 4, 96));
        let sized = |items| ElimDaSettings::sized_for(Form::WORDS, items).collecting_logs;
        assert_eq!([0, 256, 10_000, 1 << 30].map(sized), [1, 1, 64, 8192]);
    }

    #[test]
    fn a_table_for_more_pairs_than_one_can_have_is_refused() {
        // Fails if the number of pairs overflows on its way to a number of segments, or if a table
        // for fewer of them is made in silence.
        let guarantees = Model::File.guarantees();
        for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
            let most = (1 << 24) * 320 * unit_slots(form) * 3 / 4 - 1;
            let refused = |items| {
                let settings = ElimDaSettings::sized_for(form, items);
                settings.on_medium(guarantees).geometry(form).is_err()
            };
            assert!(!refused(most), "{form}");
            for items in [most + 1, u64::MAX - 1, u64::MAX] {
                assert!(refused(items), "{form}: {items}");
            }
        }
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused_before_it_is_written() {
        // Fails if segments are written until the medium is full.
        let settings = ElimDaSettings { initial_segments: 1 << 20, ..ElimDaSettings::tiny() };
        let image = Arc::new(Image::new(0, 1 << 20));
        let made = Session::<ElimDa>::create(Arc::clone(&image), Form::WORDS, &settings);
        assert!(matches!(made.err(), Some(Error::Full { needed }) if needed > 1 << 28));
        assert!(image.bytes() < 64 << 10, "{}", image.bytes());
    }
}
