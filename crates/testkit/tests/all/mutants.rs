//! Mutants of the reference engine: each flush, fence and commit that it makes is left out once.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::rows::{Rows, bug};
use everhash_index::{Design, Engine, Form};
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_testkit::crash::{
    Effort, MutantOutcome, judge_mutant, mutants, mutants_among, replay_mutant, survivors,
};
use everhash_testkit::reference::{Reference, sites};
use everhash_testkit::workload::render;

#[test]
fn every_flush_and_every_fence_of_the_reference_engine_is_needed() {
    // Fails if the judge has become blind for a place, or if the engine persists what nobody needs
    // to be durable.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let effort = Effort { seeds: 0..2, operations: 24, keys: 12, ..Effort::default() };
        let efforts = [Model::Adr, Model::File].map(|model| effort.clone().under(model));
        let fates = mutants(&Design::of::<Reference>(), form, &efforts)
            .expect("the engine as it is is sound");
        for outcome in &fates {
            println!("{form}: {outcome}");
        }
        assert!(fates.len() >= 9, "{form}: only {} mutants", fates.len());
        assert!(fates.iter().all(|outcome| outcome.detection.is_some()), "{form}: one survived");
    }
}

/// Returns the engine with a bug, of which one site is its own.
fn with_one_site(bug: u64, site: &str) -> Design<Traced> {
    let mut design = Design::of::<Rows>().with_settings(Box::leak(Box::new([("bug", bug)])));
    let mut sites = Rows::SITES.concat();
    sites.retain(|one| one.name() == site);
    design.sites = Box::leak(Box::new([&*sites.leak()]));
    design
}

#[test]
fn a_mutant_is_judged_by_as_many_seeds_as_are_wanted_and_told_of_at_once() {
    // Fails if a mutant that nobody wants, or that of another's site, is judged; if more seeds are
    // tried than are wanted, or fewer; or if whoever waits hears of none until the end.
    let design = with_one_site(0, "rows/update/value");
    let efforts = [Effort { seeds: 0..2, operations: 3, ..Effort::default() }];
    let judge = |most: u64| {
        let told = Mutex::new(BTreeSet::new());
        let seeds = |mutant: &Mutant| if mutant.change == Change::DropCommit { 0 } else { most };
        let tells = |outcome: &MutantOutcome| {
            told.lock().expect("nobody panics").insert(outcome.mutant);
        };
        let outcomes = mutants_among(&design, Form::WORDS, &efforts, &seeds, &tells);
        let outcomes = outcomes.expect("the engine as it is is sound");
        let judged: BTreeSet<Mutant> = outcomes.iter().map(|outcome| outcome.mutant).collect();
        assert_eq!(told.into_inner().expect("nobody panics"), judged);
        let names: Vec<String> = judged.iter().map(Mutant::to_string).collect();
        assert_eq!(names, ["rows/update/value:drop-flush", "rows/update/value:drop-fence"]);
        outcomes.into_iter().map(|outcome| outcome.detection.map(|it| it.seed)).collect::<Vec<_>>()
    };
    // The first workload updates nothing.
    assert_eq!(judge(1), [None, None]);
    assert_eq!(judge(2), [Some(1), Some(1)]);
}

#[test]
fn who_survives_is_told_unless_it_is_excused_or_another_engine_s() {
    // Fails if an instruction that nobody needs passes, or one that has its reason does not.
    let design = with_one_site(0, "rows/open/accept");
    let effort = Effort { seeds: 0..1, operations: 12, ..Effort::default() };
    let survive = |design: Design<Traced>, exceptions: &str| {
        let found =
            survivors(&[design], &[Form::WORDS], core::slice::from_ref(&effort), exceptions);
        let found = found.expect("the engine as it is is sound");
        found.iter().map(Mutant::to_string).collect::<Vec<_>>()
    };
    let needless = "rows/open/accept:drop-fence";
    assert_eq!(survive(design, "'rows/open/accept:drop-flush'"), [needless]);
    assert_eq!(survive(design, needless), [needless], "only a whole name excuses");
    assert!(survive(design, &format!("mutant = \"{needless}\"")).is_empty());
    let mut other = design;
    other.name = "other";
    assert!(survive(other, "").is_empty());
}

#[test]
fn what_kills_a_mutant_is_no_bug_of_the_engine() {
    // Fails if every mutant of an engine with a bug counts as killed: only the judge's other
    // states show this one, and not those by which the sites are met.
    let effort = Effort { seeds: 0..1, operations: 12, ..Effort::default() };
    let effort = Effort { killed_one_in: 1, nested_one_in: 4, ..effort.under(Model::File) };
    let design = with_one_site(bug::LINE_ORDER, "rows/remove/token");
    let found = mutants(&design, Form::WORDS, &[effort]).expect_err("the engine is accused");
    assert!(found.mutant.is_none() && !found.crashes.is_empty(), "{found}");
}

#[test]
fn a_violation_of_a_mutant_is_short_and_replayed_with_the_mutant_alone() {
    // Fails if a mutant is forgotten while its violation is shortened or replayed: the engine as it
    // is would pass.
    let design = Design::of::<Reference>();
    let mutant = Mutant { site: sites::TABLE, change: Change::DropFlush };
    let effort = Effort { seeds: 0..1, operations: 12, ..Effort::default() };
    let found = judge_mutant(&design, Form::WORDS, &effort, Some(mutant)).expect_err("it is wrong");
    assert!(found.operations.len() <= 3 && found.mutant == Some(mutant), "{found}");
    let operations = render(&found.operations);
    let crashes: Vec<String> = found.crashes.iter().map(ToString::to_string).collect();
    let replay = |mutant| {
        replay_mutant(&design, Form::WORDS, &effort, mutant, &operations, &crashes.join(" "))
    };
    let again = replay(Some(mutant)).expect_err("it still is");
    assert_eq!(again.to_string(), found.failure.to_string());
    let sound = replay(None);
    assert!(sound.as_ref().err().is_none_or(everhash_testkit::Failure::is_stale), "{sound:?}");
}
