//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::Form;
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, survives};

use crate::elimda::ElimDa;

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
fn survive(form: Form, model: Model) {
    // Durable caches leave one state of each crash, files and the weaker order hundreds.
    let (seeds, operations) = match model {
        Model::Eadr => (0..2, 90),
        Model::Adr => (0..2, 60),
        _ => (0..1, 60),
    };
    let effort = Effort { model, seeds, operations, ..Effort::default() };
    let counts = survives::<ElimDa>(form, &effort);
    assert!(counts.states > 400, "fewer mean that crashes were not tried");
}

#[test]
fn p01_a_power_failure_is_survived_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Adr));
}

#[test]
fn p01_a_power_failure_is_survived_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Eadr));
}

#[test]
fn p01_a_power_failure_is_survived_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::File));
}

#[test]
fn p01_a_power_failure_is_survived_where_a_line_keeps_no_order() {
    // Fails as on files, and if a write-back is missing that a file's sync makes good.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Arm));
}
