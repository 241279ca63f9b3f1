//! What WALSH must do.

mod blind;
mod bounds;
mod checkpoints;
mod counts;
mod crashes;
mod damage;
mod figures;
mod full;
mod hostile;
mod hot;
mod seals;
mod settings;
mod space;
mod times;
mod traps;
mod words;

use everhash_index::{Design, Form};
use everhash_testkit::{conformance, model, race, room};

use super::Walsh;
use settings::{Epochal, Immediate};

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    for form in FORMS {
        let report = model::judge(&Design::of::<Walsh>(), form, &model::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
    model::judge(&Design::of::<Immediate>(), Form::WORDS, &model::Effort::default()).unwrap();
    model::judge(&Design::of::<Epochal>(), Form::WORDS, &model::Effort::default()).unwrap();
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    for form in FORMS {
        let report = conformance::judge(&Design::of::<Walsh>(), form);
        println!("{form}: {:?}", report.unwrap_or_else(|violations| panic!("{violations}")));
        let report = conformance::judge(&Design::of::<Epochal>(), form);
        report.unwrap_or_else(|violations| panic!("epochs, {form}: {violations}"));
    }
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that found no room has changed its key, if one that returned is not
    // there, if removing needs room, or if the table does not go on when there is room again.
    for form in FORMS {
        let report = room::judge(&Design::of::<Walsh>(), form, &room::Effort::default());
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        println!("{form}: {report}");
        assert!(report.runs > 30 && report.refused > 100, "{form}: {report}");
    }
}

#[test]
fn threads_do_not_disturb_one_another() {
    // Fails if a schedule of a few threads has an answer that no order of them explains.
    for form in FORMS {
        // What a crash may take back of a batch is for the crash judge to say.
        let effort = race::Effort { crash_every: 0, ..race::Effort::default() };
        let report = race::judge(&race::Subject::of::<Walsh>(), form, &effort);
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
    let effort = race::Effort { crash_every: 0, ..race::Effort::default() };
    race::judge(&race::Subject::of::<Epochal>(), Form::WORDS, &effort)
        .unwrap_or_else(|found| panic!("epochs: {found}"));
}

#[test]
fn threads_show_nothing_that_a_crash_takes_back() {
    // Fails if, with immediate durability, a reader sees a write before it is durable.
    let effort = race::Effort { seeds: 0..30, ..race::Effort::default() };
    let report = race::judge(&race::Subject::of::<Immediate>(), Form::WORDS, &effort);
    println!("{:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
}

#[test]
fn real_threads_do_not_disturb_one_another() {
    // Fails if the processor's own orders break what all schedules of shuttle keep.
    for form in FORMS {
        let report = race::stress(&Design::of::<Walsh>(), form, &race::Stress::default());
        println!("{form}: {:?}", report.unwrap_or_else(|complaint| panic!("{complaint}")));
    }
}
