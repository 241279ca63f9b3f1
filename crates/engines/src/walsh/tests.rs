//! What WALSH must do.

mod accounts;
mod blind;
mod bounds;
mod checkpoints;
mod counts;
mod crashes;
mod damage;
mod directories;
mod failures;
mod figures;
mod forged;
mod full;
mod hostile;
mod hot;
mod infos;
mod refusing;
mod removals;
mod salvage;
mod scans;
mod seals;
mod settings;
mod space;
mod times;
mod traps;
mod words;

use everhash_index::{Design, Form};
use everhash_testkit::{all_forms, model, race, room};

use super::Walsh;
use settings::{Epochal, Immediate};

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    all_forms::model(&Design::of::<Walsh>());
    model::judge(&Design::of::<Immediate>(), Form::WORDS, &model::Effort::default()).unwrap();
    model::judge(&Design::of::<Epochal>(), Form::WORDS, &model::Effort::default()).unwrap();
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    all_forms::conformance(&Design::of::<Walsh>());
    all_forms::conformance(&Design::of::<Epochal>());
}

#[test]
fn every_answer_of_threads_is_explained_by_an_order() {
    // Fails if a schedule of a few threads has an answer that no order of them explains.
    all_forms::schedules(&race::Subject::of::<Walsh>());
    let epochal = race::Subject::of::<Epochal>();
    race::judge(&epochal, Form::WORDS, &race::Effort::default()).unwrap();
}

#[test]
fn p02_no_schedule_of_threads_shows_what_a_crash_takes_back() {
    // Fails if, with immediate durability, a reader sees a write before it is durable.
    let effort = race::Effort { seeds: 0..15, ..race::Effort::default() };
    race::judge(&race::Subject::of::<Immediate>(), Form::WORDS, &effort).unwrap();
}

#[test]
fn real_threads_do_not_disturb_one_another() {
    // Fails if the processor's own orders break what all schedules of shuttle keep.
    all_forms::threads(&Design::of::<Walsh>());
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that found no room has changed its key, if one that returned is not
    // there, if removing needs room, or if the table does not go on when there is room again.
    all_forms::room(&Design::of::<Walsh>(), &room::Effort::default());
}
