//! The engines as the judges of races and of forged pools take them, compiled with those judges
//! only.

use everhash_engines::{ENGINES, designs};
use everhash_index::Design;
use everhash_pmem::Image;
use everhash_pmem::media::traced::Traced;
use everhash_store::Form;
use everhash_testkit::primitives::Shuttle;
use everhash_testkit::race;

use super::tiny_settings::changed;
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
    let plain = changed(PLAIN[place], settings)?;
    let scheduled = changed(SCHEDULED[place], settings)?;
    Ok(race::Subject { plain, scheduled })
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
