//! Engines with other settings, held to what those promise.

use everhash_index::{Design, Durability};
use everhash_pmem::Media;

/// The setting of engines that collect writes or not, and its value for those that do not.
const IMMEDIATE: (&str, u64) = ("durability", 1);

/// Returns an engine with other settings of its tables. One that is told to make every write
/// durable is held to that.
pub fn with_settings<M: Media>(
    design: Design<M>,
    settings: &'static [(&'static str, u64)],
) -> Design<M> {
    let design = design.with_settings(settings);
    match settings.contains(&IMMEDIATE) {
        true => design.with_durability(&[Durability::Immediate]),
        false => design,
    }
}
