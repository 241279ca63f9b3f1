//! The crash judge judged: no false alarms, planted bugs found, replayed, and counted the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Mutex;

use crate::notes::Notes;
use crate::rows::{Rows, bug};
use everhash_index::{Design, Durability, Engine, Form};
use everhash_pmem::crash::{Limits, Model};
use everhash_pmem::media::traced::Traced;
use everhash_testkit::crash::{Effort, Violation, judge, mutants, replay};
use everhash_testkit::reference::Reference;
use everhash_testkit::workload::render;

/// Enough to find every planted bug; a second or two.
fn small(model: Model) -> Effort {
    Effort { model, seeds: 0..6, operations: 60, ..Effort::default() }
}

#[test]
fn a_trivially_correct_engine_is_never_accused() {
    // Fails by a false alarm, or if the judge looked at nothing.
    for model in [Model::Adr, Model::Eadr, Model::File] {
        let effort = Effort { seeds: 0..1, operations: 12, ..small(model) };
        for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
            let report = judge(&Design::of::<Reference>(), form, &effort).unwrap();
            println!("reference, {form}, {model}: {report}");
            assert!(report.counts.states > 100 && report.counts.nested > 30);
        }
    }
}

#[test]
fn an_engine_that_writes_in_place_is_never_accused() {
    // Fails by a false alarm, or if growth, removal and reuse were never reached.
    for model in Model::ALL {
        let report = judge(&Design::of::<Rows>(), Form::WORDS, &small(model)).unwrap();
        println!("rows, {model}: {report}");
        assert!(report.counts.states > 1000 && report.counts.killed > 10);
        assert!(report.counts.seeds == 6 && report.counts.operations == 6 * 60);
        assert_eq!(report.never_met(Rows::SITES), []);
    }
}

#[test]
fn every_planted_bug_is_found_and_replayed() {
    // Fails if the judge has lost an eye; each of these stands for bugs that were published.
    caught(bug::TOKEN_FIRST, Model::Adr);
    caught(bug::NO_FLUSH, Model::Adr);
    caught(bug::NO_FENCE, Model::Adr);
    caught(bug::NO_FENCE, Model::File);
    caught(bug::FIRST_LINE, Model::Adr);
    caught(bug::LINE_ORDER, Model::File);
    caught(bug::UPDATE_IN_TWO, Model::Eadr);
    caught(bug::EARLY_ROWS, Model::Adr);
    caught(bug::RESURRECTION, Model::Eadr);
    caught(bug::MOVING_RECOVERY, Model::Adr);
    caught(bug::HASTY_FORMAT, Model::Adr);
    caught(bug::NO_FLUSH_REMOVE, Model::Adr);
    caught(bug::QUIET_REPAIR, Model::Adr);
}

#[test]
fn of_a_batch_a_part_keeps_no_later_write_without_an_earlier_one() {
    // Fails if the oracle looks at each key alone: the bug loses the one write or the other, and
    // no key ever has a value that it had not; or if it takes two parts for one.
    let effort = Effort { seeds: 0..3, operations: 24, ..small(Model::Adr) };
    let report = judge(&Design::of::<Notes>(), Form::WORDS, &effort).unwrap();
    println!("notes: {report}");
    assert!(report.counts.states > 1000 && report.counts.killed > 10);
    let found = judge(&Design::of::<Notes>().with_settings(&[("bug", 1)]), Form::WORDS, &effort)
        .unwrap_err();
    println!("{found}");
    assert!(found.failure.to_string().contains("never held just this"), "{found}");
}

#[test]
fn an_engine_that_batches_and_says_that_it_does_not_is_accused() {
    // Fails if every engine may lose what it did last, and not only one that says so: what is lost
    // here is the end of each log, and never a write before one that is there.
    let mut design = Design::of::<Notes>();
    design.capabilities.durability = &[Durability::Immediate];
    let effort = Effort { shorten_executions: 1, operations: 12, ..small(Model::Adr) };
    let found = judge(&design, Form::WORDS, &effort).unwrap_err();
    println!("{found}");
    assert!(found.failure.to_string().contains(": expected "), "{found}");
}

#[test]
fn p05_an_interrupted_recovery_loses_nothing_that_a_batch_might_have_lost() {
    // Fails if a second crash during an open is held to what the first one might have left: the
    // recovery loses the newest write if it is interrupted, and else it does not.
    let limits =
        Limits { product: 24, lazy: 8, single: 8, pairs: 8, random: 8, ..Limits::default() };
    let effort = Effort { seeds: 0..4, operations: 12, limits, ..small(Model::Adr) };
    let design = Design::of::<Notes>().with_settings(&[("bug", 2)]);
    let found = judge(&design, Form::WORDS, &effort).unwrap_err();
    println!("{found}");
    assert!(found.crashes.len() == 2, "{found}");
}

#[test]
fn a_bug_under_one_model_is_none_under_another() {
    // Fails if a model grants or denies an order that it should not.
    judge(&with(bug::LINE_ORDER), Form::WORDS, &small(Model::Adr)).unwrap();
    judge(&with(bug::NO_FLUSH), Form::WORDS, &small(Model::Eadr)).unwrap();
    caught(bug::NO_FLUSH, Model::File);
    judge(&with(bug::TRUSTING_RECOVERY), Form::WORDS, &small(Model::Eadr)).unwrap();
    // A fence of a file is a sync of all: that of `Pool::recovered` persists what was accepted.
    judge(&with(bug::TRUSTING_RECOVERY), Form::WORDS, &small(Model::File)).unwrap();
}

#[test]
fn other_settings_lead_to_other_bugs() {
    // Fails if tables are made with the usual settings whatever was asked for.
    for planted in [bug::MASKED_ROWS, bug::HALF_GROWTH] {
        judge(&with(planted), Form::WORDS, &small(Model::Adr)).unwrap();
    }
    let variants: [&'static [(&str, u64)]; 2] =
        [&[("bug", bug::MASKED_ROWS), ("rows", 12)], &[("bug", bug::HALF_GROWTH), ("rows", 1)]];
    for changes in variants {
        let design = Design::of::<Rows>().with_settings(changes);
        let found = judge(&design, Form::WORDS, &small(Model::Adr)).unwrap_err();
        println!("{found}");
        let sound = [changes[1]];
        let design = Design::of::<Rows>().with_settings(Box::leak(Box::new(sound)));
        judge(&design, Form::WORDS, &small(Model::Adr)).unwrap();
    }
}

/// Returns the engine with a bug planted.
fn with(bug: u64) -> Design<Traced> {
    Design::of::<Rows>().with_settings(Box::leak(Box::new([("bug", bug)])))
}

fn caught(bug: u64, model: Model) -> Violation {
    // What is wrong is wrong in many states: a few of each kind are enough.
    let all = small(model);
    let limits = Limits { product: 24, lazy: 8, single: 8, pairs: 8, random: 8, ..all.limits };
    let effort = Effort { operations: 24, limits, ..all };
    let found = judge(&with(bug), Form::WORDS, &effort);
    let violation = *found.err().unwrap_or_else(|| panic!("bug {bug} is not found under {model}"));
    println!("{violation}\n");
    assert!(
        violation.operations.len() <= 6,
        "bug {bug}: {} operations",
        violation.operations.len()
    );
    let operations = render(&violation.operations);
    let crashes: Vec<String> = violation.crashes.iter().map(ToString::to_string).collect();
    let again = replay(&with(bug), Form::WORDS, &effort, &operations, &crashes.join(" "));
    assert_eq!(again.unwrap_err().to_string(), violation.failure.to_string());
    violation
}

#[test]
fn a_violation_is_shown_before_it_is_short() {
    // Fails if whoever waits for a violation learns of it only when it has been shortened.
    static LENGTHS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let watch = |violation: &Violation| {
        assert!(!violation.crashes.is_empty());
        LENGTHS.lock().unwrap().push(violation.operations.len());
    };
    let effort = Effort { watch, ..small(Model::Adr) };
    let violation = judge(&with(bug::NO_FLUSH), Form::WORDS, &effort).unwrap_err();
    let lengths = LENGTHS.lock().unwrap();
    assert_eq!(lengths[0], 60);
    assert_eq!(lengths.last(), Some(&violation.operations.len()));
    assert!(lengths.is_sorted_by(|longer, shorter| longer > shorter), "{lengths:?}");
}

#[test]
fn a_violation_is_shortened_as_far_as_the_effort_goes_and_replayed_only_where_it_happens() {
    // Fails if whoever wants no shorter workload waits for one, or if a text that another program
    // has written passes for a bug that is mended.
    let effort = Effort { shorten_executions: 0, ..small(Model::Adr) };
    let found = judge(&with(bug::NO_FLUSH), Form::WORDS, &effort).unwrap_err();
    assert_eq!(found.operations.len(), 60);
    let crashes: Vec<String> = found.crashes.iter().map(ToString::to_string).collect();
    let stale = replay(&with(0), Form::WORDS, &effort, "len", &crashes.join(" ")).unwrap_err();
    assert!(stale.is_stale(), "{stale}");
}

#[test]
fn what_is_visible_and_not_durable_needs_two_crashes() {
    // Fails if the process is never ended alone: one crash cannot show that recovery trusts it.
    let violation = caught(bug::TRUSTING_RECOVERY, Model::Adr);
    assert_eq!(violation.crashes.len(), 2);
    let one = Effort { depth: 1, ..small(Model::Adr) };
    judge(&with(bug::TRUSTING_RECOVERY), Form::WORDS, &one).unwrap();
}

#[test]
fn counts_do_not_depend_on_the_number_of_threads() {
    // Fails if a report depends on which thread came first.
    let run = |threads| {
        let effort = Effort { threads, ..small(Model::Adr) };
        judge(&Design::of::<Rows>(), Form::WORDS, &effort).unwrap().counts
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn every_persist_of_a_small_engine_is_needed() {
    // Fails if the judge misses a dropped flush, fence or commit store of the engine, or if one
    // that nobody needs slips into it.
    let efforts = [small(Model::Adr), small(Model::File)];
    // `Pool::recovered` follows, and its fence completes this write-back as well.
    let needless = ["rows/open/accept:drop-fence"];
    let fates = mutants(&Design::of::<Rows>(), Form::WORDS, &efforts).unwrap();
    fates.iter().for_each(|outcome| println!("{outcome}"));
    let survivors: Vec<String> = fates
        .iter()
        .filter(|outcome| {
            outcome.detection.is_none() && outcome.mutant.site.name().starts_with("rows/")
        })
        .map(|outcome| outcome.mutant.to_string())
        .collect();
    assert_eq!(survivors, needless);
    assert!(fates.len() > 20);
}
