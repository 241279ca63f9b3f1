//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, judge};

use crate::wophi::Wophi;

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
fn survives(form: Form, model: Model) {
    let effort = Effort { model, seeds: 0..4, operations: 60, ..Effort::default() };
    let report = judge(&Design::of::<Wophi>(), form, &effort);
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{form}, {model}: {report}");
    assert!(report.counts.states > 1000, "fewer mean that crashes were not tried");
}

#[test]
fn p01_a_power_failure_is_survived_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    super::FORMS.into_iter().for_each(|form| survives(form, Model::Adr));
}

#[test]
fn p01_a_power_failure_is_survived_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    super::FORMS.into_iter().for_each(|form| survives(form, Model::Eadr));
}

#[test]
fn p01_a_power_failure_is_survived_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    super::FORMS.into_iter().for_each(|form| survives(form, Model::File));
}

#[test]
fn p01_a_power_failure_is_survived_where_a_line_keeps_no_order() {
    // Fails as on files, and if a write-back is missing that a file's sync makes good.
    super::FORMS.into_iter().for_each(|form| survives(form, Model::Arm));
}
