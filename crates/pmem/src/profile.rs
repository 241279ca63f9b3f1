//! Device profiles: every number of an emulated device, with its unit and its source.

mod builtin;
mod entries;
mod flash;
mod memory;
mod value;

use std::collections::BTreeMap;

pub use flash::{FlashDevice, Victim};
pub use memory::{Clwb, Flushing, MemoryDevice, Model, Survives};

use crate::{Error, Result};
use entries::Entries;

/// A described device: what [`Emulated`](crate::media::emulated::Emulated) and
/// [`Flash`](crate::media::flash::Flash) are made of.
///
/// A profile is a TOML text. Each number is a table of value, unit and source; a profile may name
/// a built-in one as its base and change some numbers only:
///
/// ```
/// use everhash_pmem::profile::Profile;
///
/// let slow = Profile::parse(
///     r#"
///     name = "slow-writes"
///     title = "a 100-series machine with slow media"
///     base = "optane-100"
///     media_write_ns = { value = 600, unit = "ns", source = "assumed, for a sweep" }
///     "#,
/// )?;
/// assert_eq!(slow.memory()?.media_write_ns, 600.0);
/// assert_eq!(slow.memory()?.media_unit_bytes, 256);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    title: String,
    device: Device,
    sources: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Device {
    Memory(MemoryDevice),
    Flash(FlashDevice),
}

/// One number of a profile, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key in the TOML text.
    pub key: &'static str,
    /// The value, as text.
    pub value: String,
    /// The unit; empty for a choice.
    pub unit: &'static str,
    /// The source of the value.
    pub source: String,
}

impl Profile {
    /// Returns the names of the built-in profiles, in the order in which they are listed.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::TEXTS.iter().map(|(name, _)| *name)
    }

    /// Returns a built-in profile.
    ///
    /// # Errors
    /// [`Error::Profile`] if there is none of that name; the message lists the names.
    pub fn named(name: &str) -> Result<Profile> {
        Self::parse(builtin::text(name)?)
    }

    /// Reads a profile from its TOML text.
    ///
    /// # Errors
    /// [`Error::Profile`]: no TOML, an unknown or missing key, another unit than the key has, a
    /// number without a source or out of range, or numbers that do not go together.
    pub fn parse(text: &str) -> Result<Profile> {
        let mut entries = Entries::parse(text)?;
        entries.fall_back_to_base()?;
        let (name, title) = (entries.text("name")?, entries.text("title")?);
        let device = match entries.text("device")?.as_str() {
            "memory" => Device::Memory(MemoryDevice::read(&mut entries)?.checked()?),
            "flash" => Device::Flash(FlashDevice::read(&mut entries)?.checked()?),
            other => {
                let what =
                    format!("device = \"{other}\" is unknown; write \"memory\" or \"flash\"");
                return Err(Error::Profile { what });
            }
        };
        Ok(Profile { name, title, device, sources: entries.finish()? })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns one line about the device.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the numbers of a byte-addressable device.
    ///
    /// # Errors
    /// [`Error::Profile`] if this is a flash device.
    pub fn memory(&self) -> Result<&MemoryDevice> {
        match &self.device {
            Device::Memory(memory) => Ok(memory),
            Device::Flash(_) => Err(self.wrong_kind("memory")),
        }
    }

    /// Returns the numbers of a flash device.
    ///
    /// # Errors
    /// [`Error::Profile`] if this is byte-addressable memory.
    pub fn flash(&self) -> Result<&FlashDevice> {
        match &self.device {
            Device::Flash(flash) => Ok(flash),
            Device::Memory(_) => Err(self.wrong_kind("flash")),
        }
    }

    /// Returns every number with its unit and source, in the order of the documentation.
    pub fn entries(&self) -> Vec<Entry> {
        let rows = match &self.device {
            Device::Memory(memory) => memory.rows(),
            Device::Flash(flash) => flash.rows(),
        };
        let entry = |(key, value, unit): (&'static str, String, &'static str)| {
            let source = self.sources.get(key).cloned().unwrap_or_default();
            Entry { key, value, unit, source }
        };
        rows.into_iter().map(entry).collect()
    }

    fn wrong_kind(&self, wanted: &str) -> Error {
        let what = format!("{} does not describe a {wanted} device; choose another", self.name);
        Error::Profile { what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_sound_and_has_its_own_name() {
        // Fails if a built-in text lacks a key, a unit or a source, or is listed under another
        // name than its own.
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name(), name);
            assert!(profile.entries().iter().all(|entry| !entry.source.is_empty()), "{name}");
            let (memory, flash) = (profile.memory().err(), profile.flash().err());
            let wrong = memory.as_ref().or(flash.as_ref()).unwrap().to_string();
            let wanted = if memory.is_some() { "a memory device" } else { "a flash device" };
            assert!(memory.is_some() != flash.is_some() && wrong.contains(wanted), "{wrong}");
        }
    }

    fn complaint(text: &str) -> String {
        Profile::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_profile_names_the_key_and_says_what_to_write() {
        // Fails if a mistake in a profile were taken for a number, or passed over in silence.
        let with = |line: &str| format!("name='x'\ntitle='x'\nbase='optane-100'\n{line}\n");
        let cases = [
            (with("dimms = {value = 4, unit = 'ns', source = 's'}"), "modules"),
            (with("dimms = {value = 4, unit = 'modules'}"), "source"),
            (with("dimms = {value = 0, unit = 'modules', source = 's'}"), "1 to 64"),
            (with("dimms = {value = 1.5, unit = 'modules', source = 's'}"), "whole number"),
            (with("dimms = {value = 4, unit = 'modules', source = ''}"), "source"),
            (with("dimms = {value = 4, unit = 'modules', source = 's', old = 2}"), "old"),
            (with("mixed_penalty = {value = 1e9, unit = 'ratio', source = 's'}"), "a number, 1 to"),
            ("name = ''\ntitle = 'x'\nbase = 'optane-100'".to_string(), "name is no text"),
            (with("dims = {value = 4, unit = 'modules', source = 's'}"), "dims"),
            (with("flush = {value = 'clean', source = 's'}"), "clflushopt"),
            (with("dimms = 4"), "value, unit and source"),
            ("name = 'x'\ntitle = 'x'\ndevice = 'tape'".to_string(), "tape"),
            ("name = 'x'\ntitle = 'x'\ndevice = 'memory'".to_string(), "is missing"),
            ("name = 'x'\ntitle = 'x'\nbase = 'nothing'".to_string(), "optane-100"),
            ("name".to_string(), "TOML"),
        ];
        for (text, part) in cases {
            let complaint = complaint(&text);
            assert!(complaint.contains(part), "{complaint:?} lacks {part:?}");
        }
    }

    #[test]
    fn numbers_that_do_not_go_together_are_refused() {
        // Fails if a profile were accepted of which no device can be made.
        let with = |base: &str, numbers: &[(&str, f64, &str)]| {
            let line = |(key, value, unit): &(&str, f64, &str)| {
                format!("{key} = {{value = {value}, unit = '{unit}', source = 's'}}\n")
            };
            let lines: String = numbers.iter().map(line).collect();
            format!("name='x'\ntitle='x'\nbase='{base}'\n{lines}")
        };
        let memory = |key, value| with("optane-100", &[(key, value, "B")]);
        let flash = |key, value, unit| with("tiered", &[(key, value, unit)]);
        let cases = [
            (memory("media_unit_bytes", 100.0), "multiple of 64"),
            (memory("media_unit_bytes", 4000.0), "multiple of 64"),
            (memory("interleave_bytes", 65.0), "media_unit_bytes"),
            (memory("interleave_bytes", 4160.0), "media_unit_bytes"),
            (memory("cache_bytes", 1e12), "4096 to"),
            (flash("page_bytes", 513.0, "B"), "multiple of 64"),
            (flash("page_bytes", 1000.0, "B"), "multiple of 64"),
            (flash("low_water_blocks", 1000.0, "blocks"), "spare_ratio"),
            (flash("spare_ratio", 0.001, "ratio"), "spare_ratio"),
            (flash("blocks", 8.0, "blocks"), "spare_ratio"),
            (
                with(
                    "tiered",
                    &[("blocks", 16_777_216.0, "blocks"), ("block_pages", 65536.0, "pages")],
                ),
                "fewer blocks",
            ),
        ];
        for (text, part) in cases {
            let complaint = complaint(&text);
            assert!(complaint.contains(part), "{complaint:?} lacks {part:?}");
        }
        assert!(Profile::parse(&memory("media_unit_bytes", 512.0)).is_ok());
    }

    #[test]
    fn a_device_of_every_size_has_spare_blocks_for_its_streams() {
        // Fails if a sound profile gave a device that cannot be made when it is made small.
        let text = "name='x'\ntitle='x'\nbase='tiered'\n\
                    streams = {value = 64, unit = 'streams', source = 'test'}";
        let profiles =
            Profile::names().filter_map(|name| Profile::named(name).unwrap().flash().ok().cloned());
        for device in profiles.chain([Profile::parse(text).unwrap().flash().unwrap().clone()]) {
            for scale in [4.0, 64.0, 1e9] {
                let small = device.scaled(scale);
                assert!(small.blocks < device.blocks);
                let ftl = crate::media::flash::Ftl::new(&small, 1);
                assert_eq!(ftl.logical_pages(), small.logical_pages());
            }
        }
    }

    #[test]
    fn the_smallest_device_still_has_a_set_of_lines_or_a_page_in_its_cache() {
        // Fails if a device that was made small could hold nothing, and divided by zero.
        let memory = Profile::named("optane-100").unwrap().memory().unwrap().scaled(1e12);
        assert_eq!(memory.cache_bytes, memory.cache_ways * crate::LINE);
        let flash = Profile::named("tiered").unwrap().flash().unwrap().clone();
        assert_eq!(FlashDevice { cache_ratio: 0.0, ..flash }.cache_pages(), 1);
    }

    #[test]
    fn only_clwb_leaves_a_line_in_the_cache() {
        // Fails if what a processor does with one instruction counted for the others.
        let device = Profile::named("optane-200").unwrap().memory().unwrap().clone();
        for flush in [Flushing::Clwb, Flushing::Clflushopt, Flushing::Clflush] {
            let keeps = MemoryDevice { flush, clwb: Clwb::Keeps, ..device.clone() };
            assert_eq!(keeps.flush_keeps_line(), flush == Flushing::Clwb);
            let invalidates = MemoryDevice { flush, clwb: Clwb::Invalidates, ..device.clone() };
            assert!(!invalidates.flush_keeps_line());
        }
    }

    #[test]
    fn a_base_gives_what_the_profile_leaves_out() {
        // Fails if a derived profile kept its own defaults, or lost its changes.
        let text = "name='x'\ntitle='A device'\nbase='walsh'\n\
                    dimms = {value = 6, unit = 'modules', source = 'test'}";
        let profile = Profile::parse(text).unwrap();
        assert_eq!((profile.name(), profile.title()), ("x", "A device"));
        for entry in profile.entries() {
            assert_eq!(entry.source == "test", entry.key == "dimms", "{entry:?}");
        }
        let memory = profile.memory().unwrap().clone();
        assert_eq!((memory.dimms, memory.flush), (6, Flushing::Clflush));
    }
}
