//! The engines as the judges of races and of forged pools take them, compiled with those judges
//! only.

use everhash_engines::{ENGINES, designs};
use everhash_index::{Choice, Design, Sizing};
use everhash_pmem::Image;
use everhash_pmem::media::traced::Traced;
use everhash_store::Form;
use everhash_testkit::primitives::Shuttle;
use everhash_testkit::race;

use crate::failure::{Failure, Outcome};

static PLAIN: [Design<Image>; ENGINES.len()] = designs();
static SCHEDULED: [Design<Traced<Shuttle>>; ENGINES.len()] = designs();

/// Returns the engine of a name on both media, with settings of its tiny tables.
///
/// # Errors
/// Usage, if the engine has no such setting or not with this value.
pub fn subject(name: &str, settings: &[(String, u64)]) -> Outcome<race::Subject> {
    let place = ENGINES.iter().position(|about| about.name == name);
    let place = place.expect("the parser admits no other name");
    // A design has settings for ever, and a process makes one such design.
    let changes: Vec<_> =
        settings.iter().map(|(name, value)| (&*name.clone().leak(), *value)).collect();
    let changes: &'static [(&'static str, u64)] = changes.leak();
    let plain = PLAIN[place].with_settings(changes);
    for (name, _) in settings {
        for form in plain.capabilities.all_forms() {
            let tiny = Choice { sizing: Sizing::Tiny, changes: &[] };
            plain.setting(form, tiny, name).map_err(Failure::usage)?;
        }
    }
    Ok(race::Subject { plain, scheduled: SCHEDULED[place].with_settings(changes) })
}

/// Returns the form that was asked for, or all that an engine holds.
///
/// # Errors
/// Usage, if it does not hold that form.
pub fn forms(design: &Design<Image>, asked: Option<Form>) -> Outcome<Vec<Form>> {
    match asked {
        Some(form) if design.capabilities.holds(form) => Ok(vec![form]),
        Some(form) => Err(Failure::usage(format_args!(
            "engine {} holds no pairs of the form {form}",
            design.name
        ))),
        None => Ok(design.capabilities.all_forms()),
    }
}

/// Writes settings as they are written on the command line.
pub fn shown(settings: &[(String, u64)]) -> String {
    settings.iter().map(|(name, value)| format!(" --set {name}={value}")).collect()
}
