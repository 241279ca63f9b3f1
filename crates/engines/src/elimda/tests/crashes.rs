//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, judge};

use crate::elimda::ElimDa;

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
fn survives(form: Form, model: Model) {
    // Durable caches leave one state of each crash: longer workloads make up for it, and fewer
    // ended processes, which leave the same.
    let durable = model == Model::Eadr;
    let (operations, killed_one_in) = if durable { (90, 64) } else { (60, 4) };
    // With collecting logs, 16-byte pairs leave four times the states of the other forms.
    let seeds = if durable && form == Form::DOUBLE_WORDS { 0..2 } else { 0..4 };
    let effort = Effort { model, seeds, operations, killed_one_in, ..Effort::default() };
    let report = judge(&Design::of::<ElimDa>(), form, &effort);
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
