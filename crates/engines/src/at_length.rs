//! Every engine under the judges that need schedulers or hostile pools, for longer than its own
//! tests: with its usual tiny settings and with those that lead to paths of their own.
//!
//! `everhash race` and `everhash fuzz` do the same for as long as somebody has time. The program
//! with both compiles every engine for two more media, which the tests have anyway.

use everhash_index::{Design, Durability};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Traced;
use everhash_testkit::primitives::Shuttle;
use everhash_testkit::{fuzz, race};

use crate::{ENGINES, designs};

static PLAIN: [Design<Image>; ENGINES.len()] = designs();
static SCHEDULED: [Design<Traced<Shuttle>>; ENGINES.len()] = designs();

/// How many pools are mutated, of all forms together.
const MUTATED: u64 = 3000;

/// Returns an engine with other settings of its tiny tables. One that makes every write durable
/// then is held to that.
fn changed<M: everhash_pmem::Media>(
    design: Design<M>,
    settings: &'static [(&'static str, u64)],
) -> Design<M> {
    let design = design.with_settings(settings);
    match settings.contains(&("durability", 1)) {
        true => design.with_durability(&[Durability::Immediate]),
        false => design,
    }
}

fn schedules(place: usize) {
    let usual: &[(&str, u64)] = &[];
    for settings in [usual].iter().chain(ENGINES[place].variants) {
        let plain = changed(PLAIN[place], settings);
        let subject = race::Subject { plain, scheduled: changed(SCHEDULED[place], settings) };
        for form in plain.capabilities.all_forms() {
            let effort = race::Effort { seeds: 0..4, edge_seeds: 0..4, ..race::Effort::default() };
            let report = race::judge(&subject, form, &effort).unwrap();
            println!("{form}, {settings:?}: {report:?}");
            assert!(report.schedules > 400 && report.undecided == 0, "{form}: {report:?}");
        }
    }
}

fn mutated_pools(place: usize) {
    let forms = PLAIN[place].capabilities.all_forms();
    let executions = 0..MUTATED / forms.len() as u64;
    for form in forms {
        let effort = fuzz::Effort { seed: 0, executions: executions.clone(), model: Model::Adr };
        let report = fuzz::judge(&PLAIN[place], form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.opened > 0 && report.mixed > 0, "{form}: {report}");
    }
}

macro_rules! engines {
    ($($name:ident)+) => {
        $(mod $name {
            use crate::ENGINES;

            fn place() -> usize {
                let place = ENGINES.iter().position(|about| about.name == stringify!($name));
                place.expect("the registry has an engine of this name")
            }

            #[test]
            #[ignore = "half a minute: `.ci/run` runs it"]
            fn no_schedule_shows_what_no_order_explains_with_any_settings() {
                // Fails if a path that only some settings lead to has a race.
                super::schedules(place());
            }

            #[test]
            #[ignore = "some seconds: `.ci/run` runs it"]
            fn what_sound_moments_make_together_is_refused_or_borne() {
                // Fails if a pool whose every word is the engine's own makes it panic or run on.
                super::mutated_pools(place());
            }
        })+

        #[test]
        fn every_engine_is_here() {
            // Fails if an engine of the registry is judged nowhere at length.
            let here = [$(stringify!($name)),+];
            assert!(ENGINES.iter().map(|about| about.name).eq(here));
        }
    };
}

engines! { reef walsh turbo wophi elimda tiered }
