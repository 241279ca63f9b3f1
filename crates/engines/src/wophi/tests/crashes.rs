//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::Form;
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, judge, mutants};

use crate::wophi::Wophi;

/// Some seconds for each form and model. `everhash crash` does more.
fn effort(model: Model) -> Effort {
    Effort { model, seeds: 0..6, operations: 60, ..Effort::default() }
}

fn survives(form: Form, model: Model) {
    let report = judge::<Wophi>(form, &effort(model));
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{form}, {model}: {report}");
    println!("  never met: {:?}", report.never_met::<Wophi>());
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
#[ignore = "takes many minutes: cargo test --release -p everhash-engines --lib -- --ignored"]
fn every_flush_and_every_fence_is_needed() {
    // Fails if a persist site can be left out without a judge noticing: it is dead code then, or
    // one of the exceptions, which have their reasons.
    let exceptions = include_str!("../exceptions.toml");
    let mut seen = Vec::new();
    let mut count = 0;
    for form in super::FORMS {
        let efforts = [effort(Model::Adr), effort(Model::File)];
        for fate in
            mutants::<Wophi>(form, &efforts).unwrap_or_else(|violation| panic!("{violation}"))
        {
            if !fate.mutant.site.name().starts_with("wophi/") {
                continue;
            }
            count += 1;
            println!("{form}: {fate}");
            if fate.death.is_none() {
                seen.push(fate.mutant.to_string());
            }
        }
    }
    println!("{count} mutants, survivors: {seen:#?}");
    let excused = |name: &String| exceptions.contains(&format!("\"{name}\""));
    assert!(seen.iter().all(excused), "not excused");
}
