//! What TurboHash must do: the judges of the contract, and the paper's figures.

mod checks;
mod crashes;
mod damage;
mod failures;
mod figures;
mod hostile;
mod mechanisms;
mod rehash;
mod smaller_shards;
mod times;
mod weak_memory;

use everhash_index::{Design, Form};
use everhash_testkit::{all_forms, race, room};

use super::Turbo;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    all_forms::model(&Design::of::<Turbo>());
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    all_forms::conformance(&Design::of::<Turbo>());
}

#[test]
fn p02_no_schedule_of_threads_shows_what_a_crash_takes_back() {
    // Fails if a schedule of some threads gives an answer that no order of the operations gives,
    // or one that a crash takes back.
    all_forms::schedules(&race::Subject::of::<Turbo>());
}

#[test]
fn real_threads_do_not_disturb_one_another() {
    // Fails if the processor's own orders break what all schedules of shuttle keep.
    all_forms::threads(&Design::of::<Turbo>());
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that found no room has changed its key, if one that returned is not
    // there, if removing needs room, or if the table does not go on when there is room again.
    all_forms::room(&Design::of::<Turbo>(), &room::Effort::default());
}
