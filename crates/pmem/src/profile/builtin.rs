//! The profiles that come with the crate.

use crate::{Error, Result};

/// Name and text of each, in the order in which they are listed.
pub(super) const TEXTS: &[(&str, &str)] = &[
    ("optane-100", include_str!("../../profiles/optane-100.toml")),
    ("optane-100-256gb", include_str!("../../profiles/optane-100-256gb.toml")),
    ("optane-200", include_str!("../../profiles/optane-200.toml")),
    ("optane-200-eadr", include_str!("../../profiles/optane-200-eadr.toml")),
    ("dram", include_str!("../../profiles/dram.toml")),
    ("cxl-dram", include_str!("../../profiles/cxl-dram.toml")),
    ("cxl-nvdimm", include_str!("../../profiles/cxl-nvdimm.toml")),
    ("walsh", include_str!("../../profiles/walsh.toml")),
    ("elimda", include_str!("../../profiles/elimda.toml")),
    ("elimda-adr", include_str!("../../profiles/elimda-adr.toml")),
    ("turbohash", include_str!("../../profiles/turbohash.toml")),
    ("wophi", include_str!("../../profiles/wophi.toml")),
    ("flash", include_str!("../../profiles/flash.toml")),
    ("tiered", include_str!("../../profiles/tiered.toml")),
    ("tiered-fit", include_str!("../../profiles/tiered-fit.toml")),
];

/// Returns the text of the built-in profile `name`.
pub(super) fn text(name: &str) -> Result<&'static str> {
    let found = TEXTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let known: Vec<&str> = TEXTS.iter().map(|(known, _)| *known).collect();
        let what = format!("no built-in profile \"{name}\"; there are {}", known.join(", "));
        Error::Profile { what }
    })
}
