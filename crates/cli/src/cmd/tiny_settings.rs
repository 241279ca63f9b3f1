//! The settings of the tiny tables that judges work on.

use everhash_engines::About;
use everhash_index::{Choice, Design, Sizing};
use everhash_pmem::Media;
use everhash_testkit::variants::with_settings;

use crate::failure::{Failure, Outcome};

/// Returns an engine with other settings of its tables. One that is told to make every write
/// durable is held to that.
///
/// # Errors
/// Usage, if the engine has no such setting or not with this value.
pub fn changed<M: Media>(design: Design<M>, settings: &[(String, u64)]) -> Outcome<Design<M>> {
    // A design has settings for ever, and a process makes few of them.
    let changes: Vec<_> =
        settings.iter().map(|(name, value)| (&*name.clone().leak(), *value)).collect();
    let design = with_settings(design, changes.leak());
    for (name, _) in settings {
        for form in design.capabilities.all_forms() {
            let tiny = Choice { sizing: Sizing::Tiny, changes: &[] };
            design.setting(form, tiny, name).map_err(Failure::usage)?;
        }
    }
    Ok(design)
}

/// Returns the settings with which judges try an engine, too.
pub fn variants(about: &About) -> impl Iterator<Item = Vec<(String, u64)>> {
    let owned = |settings: &&[(&str, u64)]| {
        settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    };
    about.variants.iter().map(owned)
}

/// Writes settings as they are written on the command line.
pub fn shown(settings: &[(String, u64)]) -> String {
    settings.iter().map(|(name, value)| format!(" --set {name}={value}")).collect()
}
