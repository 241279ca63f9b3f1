//! What Reef must do.

mod accounts;
mod beside_checkpoints;
mod bounds;
mod busy_system;
mod checkpoints;
mod choice;
mod cold;
mod counted;
mod crashes;
mod damage;
mod directory;
mod ends;
mod first_touches;
mod full;
mod groups;
mod look_ups;
mod objects;
mod replay;
mod rest;
mod runs;
mod scans;
mod settings;
mod setup;
mod space;
mod times;
mod traps;
mod weak_memory;
mod writers;

use everhash_index::{Design, Form};
use everhash_testkit::{all_forms, model, race, room};

use super::Reef;
use settings::Immediate;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    all_forms::model(&Design::of::<Reef>());
    model::judge(&Design::of::<Immediate>(), Form::WORDS, &model::Effort::default()).unwrap();
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    all_forms::conformance(&Design::of::<Reef>());
    all_forms::conformance(&Design::of::<Immediate>());
}

#[test]
fn every_answer_of_threads_is_explained_by_an_order() {
    // Fails if a schedule of a few threads has an answer that no order of them explains.
    all_forms::schedules(&race::Subject::of::<Reef>());
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
    all_forms::threads(&Design::of::<Reef>());
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that found no room has changed its key, if one that returned is not
    // there, if removing needs room, or if the table does not go on when there is room again.
    all_forms::room(&Design::of::<Reef>(), &room::Effort::default());
}
