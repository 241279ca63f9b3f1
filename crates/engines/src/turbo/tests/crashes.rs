//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::{Inline, Opening, Table, create, open};
use everhash_pmem::crash::{Limits, Model, What};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Region, Std};
use everhash_testkit::crash::{Effort, survives};

use crate::turbo::{Turbo, TurboSettings, recovery};

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
///
/// A resize writes whole shards past the caches, and so leaves more states than there is time for:
/// a few of each crash point are enough to look at what is never reached.
fn effort(model: Model) -> Effort {
    let all = Effort::default();
    let limits = Limits { product: 8, lazy: 16, single: 4, pairs: 4, random: 4, ..all.limits };
    let nested_limits = Limits { lazy: 0, ..limits };
    let (operations, nested_one_in) = (40, 2048);
    // Durable caches leave one state of most crashes: more workloads make up for it.
    let seeds = if model == Model::Eadr { 0..6 } else { 0..1 };
    Effort { model, seeds, operations, nested_one_in, limits, nested_limits, ..all }
}

fn survive(model: Model) {
    for form in super::FORMS {
        let counts = survives::<Turbo>(form, &effort(model));
        assert!(counts.states > 150, "fewer mean that crashes were not tried");
    }
}

#[test]
fn p01_a_power_failure_is_survived_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    survive(Model::Adr);
}

#[test]
fn p01_a_power_failure_is_survived_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    survive(Model::Eadr);
}

#[test]
fn p01_a_power_failure_is_survived_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    survive(Model::File);
}

#[test]
fn p05_what_a_reader_saw_after_the_end_of_a_process_survives_a_power_failure() {
    // Fails if the lane does not name every bucket that was visible and not durable when the
    // process ended: the next power failure takes back what was read since.
    for form in super::FORMS {
        let effort = Effort { killed_one_in: 1, seeds: 0..1, ..effort(Model::Adr) };
        let counts = survives::<Turbo>(form, &effort);
        assert!(counts.killed > 100, "fewer mean that the process was not ended");
    }
}

#[test]
fn p01_a_power_failure_is_survived_where_a_line_keeps_no_order() {
    // Fails as on files, and if a write-back is missing that a file's sync makes good.
    survive(Model::Arm);
}

#[test]
fn p05_recovery_makes_everything_durable_where_no_lane_says_what_is_not() {
    // Fails if a table without lanes, or one on a file, whose writers note nothing, is read after a
    // killed process before all that is visible is durable; or if a table with lanes waits for it.
    for (model, lanes, expected) in
        [(Model::Adr, 0, 1), (Model::File, 0, 1), (Model::File, 4, 1), (Model::Adr, 4, 0)]
    {
        let region = Region::new(Traced::<Std>::new(model, 0, 1 << 20));
        let settings = TurboSettings { lanes, ..TurboSettings::tiny() };
        let opening = Opening::default();
        let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        assert!(table.words().unwrap().insert_word(1, 2).unwrap());
        drop(table);
        region.media().take_log();
        drop(open::<Turbo, _>(region.clone(), opening.boot, &Inline).unwrap());
        let log = region.media().take_log();
        let accepted = log.events().iter().filter(|event| {
            event.site == Some(recovery::sites::ACCEPTED) && matches!(event.what, What::Sync)
        });
        assert_eq!(accepted.count(), expected, "{model}, {lanes} lanes");
    }
}
