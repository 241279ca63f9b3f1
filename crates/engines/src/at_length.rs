//! Every engine under the judges that need schedulers or hostile pools, for longer than its own
//! tests, with its usual tiny settings and with those that lead to paths of their own; and crashed
//! three times in a row.
//!
//! `everhash race`, `everhash fuzz` and `everhash crash` do the same for as long as somebody has
//! time. The program with the first two compiles every engine for two more media, which the tests
//! have anyway.

use everhash_index::{Design, Engine};
use everhash_pmem::crash::Model;
use everhash_testkit::variants::with_settings;
use everhash_testkit::{crash, fuzz, race};

/// How many executions of a workload are judged when crashes follow each other.
const EXECUTIONS: u64 = 10_000;

/// How many pools are mutated, of all forms together.
const MUTATED: u64 = 3000;

/// The usual settings with every form, the others with one form each, in turn.
fn schedules<E: Engine>(variants: &[&'static [(&'static str, u64)]]) {
    let subject = race::Subject::of::<E>();
    let forms = subject.plain.capabilities.all_forms();
    let usual = forms.iter().map(|form| (*form, &[][..]));
    let others = forms.iter().cycle().zip(variants).map(|(form, settings)| (*form, *settings));
    for (form, settings) in usual.chain(others) {
        let scheduled = with_settings(subject.scheduled, settings);
        let subject = race::Subject { scheduled, plain: with_settings(subject.plain, settings) };
        let effort = race::Effort { seeds: 0..4, edge_seeds: 0..4, ..race::Effort::default() };
        let report = race::judge(&subject, form, &effort).unwrap();
        println!("{form}, {settings:?}: {report:?}");
        assert!(report.schedules > 400 && report.undecided == 0, "{form}: {report:?}");
    }
}

fn mutated_pools<E: Engine>() {
    let design = Design::of::<E>();
    let forms = design.capabilities.all_forms();
    let executions = 0..MUTATED / forms.len() as u64;
    for form in forms {
        let effort = fuzz::Effort { seed: 0, executions: executions.clone(), model: Model::Adr };
        let report = fuzz::judge(&design, form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.opened > 0 && report.mixed > 0, "{form}: {report}");
    }
}

/// A few operations, and a crash at every point of what follows the first crash, and of what
/// follows that: power may be lost while a recovery repeats what power loss has torn.
fn crashes_in_a_row<E: Engine>() {
    let efforts = [Model::Adr, Model::Eadr, Model::File].map(|model| crash::Effort {
        model,
        seeds: 2..4,
        executions: EXECUTIONS,
        ..crash::Effort::three_in_a_row()
    });
    let forms = E::CAPABILITIES.all_forms();
    for (form, effort) in forms.iter().flat_map(|form| efforts.iter().map(move |it| (*form, it))) {
        let counts = crash::survives::<E>(form, effort);
        println!("{form}, {}: {counts:?}", effort.model);
        assert!(counts.nested > 1000, "{form}: {counts:?}");
    }
}

macro_rules! engines {
    ($($module:ident::$engine:ident)+) => {
        $(mod $module {
            use everhash_index::Engine;

            use crate::$module::$engine;

            #[test]
            #[ignore = "a minute or two: `.ci/run` runs it"]
            fn no_schedule_shows_what_no_order_explains_with_any_settings() {
                // Fails if a path that only some settings lead to has a race.
                super::schedules::<$engine>(<$engine as Engine>::Settings::VARIANTS);
            }

            #[test]
            #[ignore = "some seconds: `.ci/run` runs it"]
            fn what_sound_moments_make_together_is_refused_or_borne() {
                // Fails if a pool whose every word is the engine's own makes it panic or run on.
                super::mutated_pools::<$engine>();
            }

            #[test]
            #[ignore = "a quarter of a minute: `.ci/run` runs it"]
            fn three_crashes_in_a_row_lose_nothing() {
                // Fails if a recovery takes for durable what power loss has torn, or what another
                // recovery that was interrupted has stored.
                super::crashes_in_a_row::<$engine>();
            }
        })+

        #[test]
        fn every_engine_is_here() {
            // Fails if an engine of the registry is judged nowhere at length.
            let here = [$(<crate::$module::$engine as Engine>::NAME),+];
            assert!(crate::ENGINES.iter().map(|about| about.name).eq(here));
        }
    };
}

engines! { reef::Reef walsh::Walsh turbo::Turbo wophi::Wophi elimda::ElimDa tiered::Tiered }
