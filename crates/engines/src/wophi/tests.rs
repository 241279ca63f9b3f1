//! What WOPHI must do, and how often it may write.

mod counts;
mod crashes;
mod damage;
mod faults;
mod upkeep;
mod weak_memory;

use everhash_index::{Design, Form};
use everhash_testkit::{conformance, model, race, room};

use super::Wophi;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    for form in FORMS {
        let report = model::judge(&Design::of::<Wophi>(), form, &model::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    for form in FORMS {
        let report = conformance::judge(&Design::of::<Wophi>(), form);
        println!("{form}: {:?}", report.unwrap_or_else(|violations| panic!("{violations}")));
    }
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that found no room has changed its key, if one that returned is not
    // there, if removing needs room, or if the table does not go on when there is room again.
    for form in FORMS {
        let report = room::judge(&Design::of::<Wophi>(), form, &room::Effort::default());
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        println!("{form}: {report}");
        assert!(report.runs > 30 && report.refused > 100, "{form}: {report}");
    }
}

#[test]
fn threads_do_not_disturb_one_another() {
    // Fails if a schedule of some threads gives an answer that no order of the operations gives,
    // or one that a crash takes back.
    for form in FORMS {
        let report = race::judge(&race::Subject::of::<Wophi>(), form, &race::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn real_threads_do_not_disturb_one_another() {
    // Fails if the processor's own orders break what all schedules of shuttle keep.
    for form in FORMS {
        let report = race::stress(&Design::of::<Wophi>(), form, &race::Stress::default());
        println!("{form}: {:?}", report.unwrap_or_else(|complaint| panic!("{complaint}")));
    }
}
