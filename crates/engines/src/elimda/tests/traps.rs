//! A scenario for each place where a crash could meet ElimDA as published between two of its steps:
//! every state of a short workload that leads there, and of crashes after it.

use everhash_index::Design;
use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_testkit::crash::{Effort, judge_workload};
use everhash_testkit::workload::parse;

use crate::elimda::{
    ElimDa, bucket_relocation, collecting_log, insert_ahead_logging, resize, shadow_log,
};

/// A few states of each crash point, so that all scenarios take some seconds.
fn effort(model: Model) -> Effort {
    let usual = Effort::default();
    let limits = Limits { product: 8, lazy: 2, single: 2, pairs: 2, random: 2, ..usual.limits };
    Effort { model, limits, nested_one_in: 512, killed_one_in: 8, ..usual }
}

/// Judges a scenario with all forms; it must have persisted something at `site`.
fn scenario(operations: &str, site: Site) {
    scenario_under(&[Model::Adr, Model::File], operations, site);
}

fn scenario_under(models: &[Model], operations: &str, site: Site) {
    let operations = parse(operations).unwrap();
    for model in models.iter().copied() {
        for form in super::FORMS {
            let report = judge_workload(&Design::of::<ElimDa>(), form, &effort(model), &operations);
            let report = report.unwrap_or_else(|violation| panic!("{violation}"));
            println!("{form}, {model}: {report}");
            let met = report.met.sites().any(|(met, _, _)| met == site);
            assert!(met, "{form}, {model}: the scenario never came to {site:?}");
        }
    }
}

/// Inserts of so many keys, as text.
fn inserts(count: u16) -> String {
    (0..count).map(|key| format!("insert:{key}:{key}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn t_e1_what_was_relocated_and_then_removed_or_changed_stays_so() {
    // Fails if recovery takes a copy in the log for live because the device table lacks the key, or
    // holds another value: the copies of relocated pairs are still in the log.
    let changes: Vec<_> = (0..10).map(|key| format!("update:{key}:{}", 100 + key)).collect();
    let removes: Vec<_> = (0..10).step_by(2).map(|key| format!("remove:{key}")).collect();
    let (changes, removes) = (changes.join(" "), removes.join(" "));
    let operations = format!("{} {changes} {removes} reopen insert:0:7 remove:1", inserts(10));
    scenario(&operations, bucket_relocation::sites::STATE);
    // With durable caches the pairs come through collecting logs.
    let operations = format!("{} {changes} {removes} reopen insert:0:7 remove:1", inserts(30));
    scenario_under(&[Model::Eadr], &operations, bucket_relocation::sites::STATE);
}

#[test]
fn t_e1_what_a_flush_moved_and_a_crash_left_in_its_log_is_removed_and_changed_once() {
    // Fails if recovery keeps the copy in the collecting log: the log was not emptied when the
    // crash came, and the pair below was changed or removed before the next one.
    let writes: Vec<_> = (0..24)
        .map(|key| format!("insert:{key}:{key} update:{}:9 remove:{}", key / 2, key / 3))
        .collect();
    scenario_under(&[Model::Eadr], &writes.join(" "), shadow_log::sites::EMPTIED);
}

#[test]
fn t_e2_a_slot_that_was_reserved_and_not_filled_is_empty() {
    // Fails if recovery takes a slot without its live bit, or gives a number out again that is not
    // above a watermark: few keys, so that lines are left half full by every crash.
    let writes: Vec<_> = (0..18).map(|n| format!("put:{}:{n} remove:{}", n % 3, n % 3)).collect();
    scenario(&writes.join(" "), insert_ahead_logging::sites::APPEND);
    scenario_under(&[Model::Eadr], &writes.join(" "), collecting_log::sites::RESERVE);
}

#[test]
fn t_e3_durable_caches_are_not_taken_for_granted() {
    // Fails if an insert relied on durable caches where the medium does not claim them: it is in
    // the backup log when it returns, on every medium.
    let operations = "insert:1:1 insert:2:2 update:1:3 remove:2";
    scenario(operations, insert_ahead_logging::sites::APPEND);
    scenario_under(&[Model::Eadr], operations, collecting_log::sites::WRITTEN);
}

#[test]
fn t_e4_a_crash_inside_a_split_leaves_one_segment_or_both_halves() {
    // Fails if a key is lost or doubled by a split that a crash interrupts, or if the halves forget
    // what the old segment had absorbed.
    let more: Vec<_> =
        (0..6).map(|key| format!("remove:{key} insert:{key}:{}", 90 + key)).collect();
    let operations = format!("{} {}", inserts(40), more.join(" "));
    scenario(&operations, resize::sites::TURN);
    scenario_under(&[Model::Eadr], &operations, resize::sites::TURN);
}

#[test]
fn blocks_of_the_log_come_back_only_when_all_in_them_is_dead() {
    // Fails if a block is written again before the link to its successor is durable, or while an
    // item in it is needed: one key stays, others come and go until the log has gone round.
    let churn = (1..40).map(|n| format!("put:{}:{n} remove:{}", n % 5 + 1, n % 5 + 1));
    let operations = format!("insert:0:7 {}", churn.collect::<Vec<_>>().join(" "));
    scenario(&operations, insert_ahead_logging::sites::FIRST);
}
