//! Planted bugs: a small engine with a switch, and the judges that must find each of them.

mod bug;
mod check;
mod engine;
mod layout;
mod ops;
mod table;

use bug::{Bug, Judge, Planted};
use engine::Slots;
use everhash_index::Form;
use everhash_testkit::{conformance, model, race};

const FORMS: [Form; 2] = [Form::WORDS, Form::DOUBLE_WORDS];

/// Runs a judge; returns what it complains about.
fn verdict(judge: Judge) -> Result<(), String> {
    match judge {
        Judge::Model(form) => model::judge::<Slots>(form, &model::Effort::default())
            .map(drop)
            .map_err(|violation| violation.to_string()),
        Judge::Conformance(case) => match conformance::judge::<Slots>(Form::WORDS) {
            Ok(_) => Ok(()),
            Err(found) if found.broken.iter().any(|(name, _)| *name == case) => {
                Err(found.to_string())
            }
            Err(found) => panic!("{case} holds, and instead: {found}"),
        },
        Judge::Race(form) => race::judge::<Slots>(form, &race::Effort::default())
            .map(drop)
            .map_err(|violation| violation.to_string()),
        Judge::RaceCrash => {
            let effort = race::Effort { seeds: 0..200, crash_every: 1, ..race::Effort::default() };
            race::judge::<Slots>(Form::WORDS, &effort)
                .map(drop)
                .map_err(|violation| violation.to_string())
        }
        Judge::Crash(model) => {
            let effort = race::Effort { model, crash_every: 3, ..race::Effort::default() };
            race::judge::<Slots>(Form::DOUBLE_WORDS, &effort)
                .map(drop)
                .map_err(|violation| violation.to_string())
        }
    }
}

#[test]
fn the_sound_engine_passes_every_judge() {
    // Fails if a judge finds what is not there: then the tests below would show nothing.
    let _planted = Planted::new(Bug::None);
    for form in FORMS {
        model::judge::<Slots>(form, &model::Effort::default()).unwrap();
        conformance::judge::<Slots>(form).unwrap();
        race::stress::<Slots>(form, &race::Stress::default()).unwrap();
        for model in everhash_pmem::crash::Model::ALL {
            let effort = race::Effort { model, ..race::Effort::default() };
            race::judge::<Slots>(form, &effort).unwrap();
        }
    }
}

#[test]
fn every_planted_bug_is_found_by_its_judge() {
    // Fails if a judge has become blind for a class of bugs.
    let mut survived = Vec::new();
    for bug in chosen() {
        let bug = &bug;
        let _planted = Planted::new(*bug);
        let (class, source, judge) = bug.about();
        match verdict(judge) {
            Ok(()) => survived.push(*bug),
            Err(found) => println!("{class} {bug:?} ({source})\n{found}\n"),
        }
    }
    assert!(survived.is_empty(), "not found: {survived:?}");
}

/// Returns the bugs to try: all, or the one that the environment names.
fn chosen() -> Vec<Bug> {
    let name = std::env::var("PLANTED").unwrap_or_default();
    Bug::ALL.iter().copied().filter(|bug| name.is_empty() || format!("{bug:?}") == name).collect()
}
