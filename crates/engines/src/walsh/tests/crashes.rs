//! Every crash leaves what it may leave: of batches a prefix of each key's writes since the last
//! sync, of immediate writes all that returned.

use std::collections::BTreeSet;

use everhash_index::{Design, Engine, Form};
use everhash_pmem::crash::{Limits, Model};
use everhash_pmem::media::traced::Mutant;
use everhash_testkit::crash::{Effort, judge_mutant, survives, survivors};
use everhash_testkit::session::survives_ended_processes;

use super::settings::{Epochal, Immediate};
use crate::walsh::Walsh;
use crate::walsh::logs::sites;
use crate::walsh::recovery;

/// A second or two for each form and model. `everhash crash` does more.
fn effort(model: Model) -> Effort {
    let limits = Limits { product: 24, lazy: 8, single: 8, pairs: 8, random: 8, ..LIMITS };
    // Where caches are durable, a workload has a tenth of the states.
    let seeds = if model == Model::Eadr { 0..2 } else { 0..1 };
    Effort { model, seeds, operations: 30, limits, nested_one_in: 256, ..Effort::default() }
}

/// As many states as an effort has by default.
const LIMITS: Limits = Limits {
    product: 64,
    lazy: 128,
    single: 64,
    pairs: 64,
    random: 32,
    seed: 1,
    whole_places: false,
};

fn survive<E: Engine>(form: Form, effort: &Effort) {
    let counts = survives::<E>(form, effort);
    assert!(counts.states > 500, "fewer mean that crashes were not tried");
}

#[test]
#[ignore = "takes minutes: cargo test --release -p everhash-engines --lib -- --ignored walsh"]
fn many_crashes_leave_what_they_may() {
    // Fails as the tests below do, by what few workloads and few states do not show.
    for model in [Model::Adr, Model::Eadr, Model::File] {
        let effort =
            Effort { model, seeds: 0..24, operations: 80, limits: LIMITS, ..effort(model) };
        super::FORMS.into_iter().for_each(|form| survive::<Walsh>(form, &effort));
        survive::<Immediate>(Form::WORDS, &effort);
    }
}

#[test]
fn p03_p04_a_power_failure_leaves_a_prefix_behind_the_last_sync_on_memory() {
    // Fails if a flush or a fence is missing, if two stores are taken for one, or if what returned
    // before a sync is gone after it.
    super::FORMS.into_iter().for_each(|form| survive::<Walsh>(form, &effort(Model::Adr)));
}

#[test]
fn p03_p04_a_power_failure_leaves_a_prefix_behind_the_last_sync_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    survive::<Walsh>(Form::WORDS, &effort(Model::Eadr));
}

#[test]
fn p03_p04_a_power_failure_leaves_a_prefix_behind_the_last_sync_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    super::FORMS.into_iter().for_each(|form| survive::<Walsh>(form, &effort(Model::File)));
}

#[test]
fn p03_a_power_failure_leaves_one_instant_of_all_areas() {
    // Fails if a cut is not one instant, or if an area goes on where the epoch has not come.
    survive::<Epochal>(Form::WORDS, &effort(Model::Eadr));
}

#[test]
fn p01_an_immediate_write_survives() {
    // Fails if a write returns before its object is durable with all objects before it, or if
    // recovery does not find those behind the tail.
    for model in [Model::Adr, Model::File] {
        survive::<Immediate>(Form::WORDS, &effort(model));
    }
    survive::<Immediate>(Form::Variable, &effort(Model::File));
}

#[test]
fn an_immediate_write_without_its_flush_or_fence_is_noticed() {
    // Fails if the judge would pass writes that are only visible: the mutants of the command line
    // are those of batches.
    for change in ["drop-flush", "drop-fence"] {
        let mutant = Mutant { site: sites::SEALED, change: change.parse().unwrap() };
        let judged = judge_mutant(
            &Design::of::<Immediate>(),
            Form::WORDS,
            &effort(Model::Adr),
            Some(mutant),
        );
        assert!(judged.is_err(), "{mutant} is not noticed");
    }
}

#[test]
#[ignore = "takes many minutes: cargo test --release -p everhash-engines --lib -- --ignored walsh"]
fn every_flush_and_every_fence_is_needed() {
    // Fails if a persist site can be left out without a judge noticing: it is dead code then, or
    // one of the exceptions, which have their reasons.
    let designs = [Design::of::<Walsh>(), Design::of::<Immediate>()];
    let efforts = [Model::Adr, Model::Eadr, Model::File].map(effort);
    let exceptions = include_str!("../exceptions.toml");
    let survived = survivors(&designs, &[Form::WORDS], &efforts, exceptions);
    assert_eq!(survived.unwrap_or_else(|found| panic!("{found}")), BTreeSet::new());
}

#[test]
fn the_end_of_a_process_loses_nothing() {
    // Fails if a write is somewhere else than in the mapping when it returns.
    for form in super::FORMS {
        survives_ended_processes::<Walsh>(form).unwrap();
    }
}

#[test]
fn a_kill_and_a_power_loss_in_the_recovery_leave_an_epoch_that_is_whole() {
    // Fails if recovery writes the cut of the next epoch while the number of the last one, which a
    // killed process has left, is visible and not durable: power loss goes back to the epoch
    // before, whose cut is overwritten then. Takes three crashes in a row.
    let limits = Limits { product: 12, lazy: 8, single: 8, pairs: 8, random: 8, ..LIMITS };
    let depths = Effort { depth: 3, nested_one_in: 64, killed_one_in: 1, ..Effort::default() };
    let seeds = Effort { model: Model::Adr, seeds: 300..303, operations: 40, keys: 12, ..depths };
    let effort = Effort { limits, nested_limits: limits, executions: 6000, ..seeds };
    let counts = survives::<Epochal>(Form::WORDS, &effort);
    assert!(counts.nested > 10_000, "{counts:?}");
    // A violation of three crashes takes minutes to become short.
    let effort = Effort { shorten_executions: 0, ..effort };
    for change in ["drop-flush", "drop-fence"] {
        let mutant = Mutant { site: recovery::sites::EPOCH_FOUND, change: change.parse().unwrap() };
        let design = Design::of::<Epochal>();
        let judged = judge_mutant(&design, Form::WORDS, &effort, Some(mutant));
        assert!(judged.is_err(), "{mutant} is not noticed");
    }
}
