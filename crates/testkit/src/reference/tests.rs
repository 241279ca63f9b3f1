//! The reference engine before the judges.

use everhash_index::{Design, Form};

use super::Reference;
use crate::{conformance, model, race};

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn the_reference_behaves_like_a_map() {
    // Fails if an answer of the reference differs from the model's, or the model is wrong.
    for form in FORMS {
        let report =
            model::judge(&Design::of::<Reference>(), form, &model::Effort::default()).unwrap();
        assert!(report.operations == 40_000 && report.restarts > 100, "{report:?}");
        assert!(report.read_outs > report.restarts + report.workloads, "{report:?}");
    }
}

#[test]
fn the_reference_keeps_the_contract() {
    // Fails if the reference breaks a sentence of the contract, if a case demands too much, or if
    // one is neither held nor left out.
    for form in FORMS {
        let report = conformance::judge(&Design::of::<Reference>(), form).unwrap();
        assert!(report.held.len() >= 23, "{report:?}");
        let told = report.held.len() + report.left_out.len();
        assert_eq!(told, conformance::CASES.len(), "{report:?}");
    }
}

#[test]
fn no_schedule_of_the_reference_shows_a_race() {
    // Fails if the reference, which does everything under one lock, is accused of a race, or if
    // schedules or crashes are not tried.
    for form in FORMS {
        let effort = race::Effort { seeds: 0..20, ..race::Effort::default() };
        let report = race::judge(&race::Subject::of::<Reference>(), form, &effort).unwrap();
        assert!(report.schedules == 20 * 60 && report.crashed_schedules > 100, "{report:?}");
        assert!(report.states > 5_000 && report.undecided == 0, "{report:?}");
    }
}

#[test]
fn real_threads_on_the_reference_agree_with_some_order() {
    // Fails if the histories of real threads are put together wrongly.
    for form in FORMS {
        let stress = race::Stress { rounds: 4, ..race::Stress::default() };
        let report = race::stress(&Design::of::<Reference>(), form, &stress).unwrap();
        assert!(report.operations == 8000 && report.undecided == 0, "{report:?}");
    }
}
