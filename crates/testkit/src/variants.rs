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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;
    use everhash_pmem::Image;

    #[test]
    fn who_is_told_to_make_every_write_durable_is_held_to_it() {
        // Fails if judges allow for lost writes where none may be lost, or the reverse.
        let modes = &[Durability::Batch, Durability::Immediate];
        let design = Design::<Image>::of::<Reference>().with_durability(modes);
        assert!(!with_settings(design, &[("other", 2), IMMEDIATE]).batches());
        assert!(with_settings(design, &[("durability", 0), ("other", 1)]).batches());
    }
}
