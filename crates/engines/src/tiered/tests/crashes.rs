//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_pmem::crash::{Limits, Model};
use everhash_testkit::crash::{Effort, survives};

use crate::tiered::Tiered;

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
fn effort(model: Model) -> Effort {
    let all = Effort::default();
    let limits = Limits { product: 8, lazy: 16, single: 4, pairs: 4, random: 4, ..all.limits };
    let nested_limits = Limits { lazy: 0, ..limits };
    // Durable caches leave one state of each crash: longer workloads make up for it, and
    // fewer ended processes, which leave the same.
    let is_durable = model == Model::Eadr;
    let (seeds, operations, killed_one_in) =
        if is_durable { (0..2, 90, 64) } else { (0..2, 60, 8) };
    let nested_one_in = 2048;
    Effort { model, seeds, operations, killed_one_in, nested_one_in, limits, nested_limits, ..all }
}

fn survive(model: Model) {
    for form in super::FORMS {
        let counts = survives::<Tiered>(form, &effort(model));
        assert!(counts.states > 400, "fewer mean that crashes were not tried");
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
    // Fails if recovery relies on what a killed process left visible and not durable: the next
    // power failure takes back what was read since.
    for form in super::FORMS {
        let effort = Effort { killed_one_in: 1, seeds: 0..1, ..effort(Model::Adr) };
        let counts = survives::<Tiered>(form, &effort);
        assert!(counts.killed > 100, "fewer mean that the process was not ended");
    }
}

#[test]
fn p01_a_power_failure_is_survived_where_a_line_keeps_no_order() {
    // Fails as on files, and if a write-back is missing that a file's sync makes good.
    survive(Model::Arm);
}
